"""Keys that nobody knows, found by dpsql and by its peers: how many, and how well they are counted.

    python -m tests.benchmarks.peers_keys [data set …] [--runs 3]

Each tool answers `SELECT key, COUNT(*) … GROUP BY key` at (ε, δ) = (1, 1e-9) in all, by its own
accounting; of persons with several keys, 10 count. It runs in the interpreter that an environment
variable names, or in this one: OPENDP_PYTHON (`pip install 'opendp[polars]'`), SMARTNOISE_PYTHON
(smartnoise-sql), TUMULT_PYTHON (tmlt.analytics; needs a Java), QRLEW_PYTHON (pyqrlew, sqlalchemy,
pandas and duckdb, which runs the SQL that it writes). A tool that isn't there is left out, and said
so. What each is asked is in `ASKED` below, as its own pages show it:

- OpenDP: thresholded noise on all groups, Laplace where a person has one row. Truncation of groups
  of a person is by `keep="first"`: `"sample"`, the default, fails in 0.16.0.
- SmartNoise: COUNT with `censor_dims`; what it reports as spent is 1.5 δ, so it is given δ/1.5.
- Tumult: `get_groups` for half of ε and all of δ, then counts of these groups.
- Qrlew: the rewritten SQL, which gives half of both to thresholds.

Data sets: `tails`, tail numbers of flights (see `found_keys`); `cities`, persons in one of 20,000
cities by Zipf's law; `words`, files of Python's standard library as persons, each with the words of
its docstrings, of which each tool keeps 10 in its own way. Errors are those of keys that are found,
against counts of all rows (`words`: of pairs of a file and a word), so that what is cut off for the
bound is an error, too; `noise` is the standard deviation that the tool states, where it does.
"""
