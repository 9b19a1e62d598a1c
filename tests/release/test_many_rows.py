"""Tables of up to 2^58 rows: answers are right, whatever is asked and by whatever mechanism.

Each stored row stands for `times` rows. So a count or a sum is `times` what DuckDB says, and an
average, a share or a median is what DuckDB says.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.measurement import measure as measuring
from tests.helpers.many_rows import many_rows
from tests.helpers.seeded import SeededBits

ROWS = 300
BUDGET = dpsql.Budget(rho=2)
TIMES = [1, 2**23 + 1, 2**24, 2**32 - 1, 2**45 + 7, 2**49 - 1]
"""With 300 rows: about 2^8, 2^31, 2^32, 2^40, 2^53, 2^57 of them."""
DIGITS = 1e-13
"""How far from the truth floats may be, relatively: answers are made of some thousand of them."""


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("CREATE TYPE kind AS ENUM ('x', 'y', 'z')")
    con.execute(
        "CREATE TABLE t (kind kind NOT NULL, age INT NOT NULL CHECK (age BETWEEN 0 AND 19), "
        "here BOOLEAN NOT NULL, pay BIGINT NOT NULL CHECK (pay BETWEEN 0 AND 2000000000))"
    )
    con.execute(
        "INSERT INTO t SELECT ['x', 'y', 'z'][1 + i % 3], (i * 7) % 20, i % 5 < 2, "
        f"(i * 7919 % 1000) * 2000000 FROM range({ROWS}) AS r(i)"
    )
    return con


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    bits = SeededBits(3)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)


COUNTS = {
    "kinds": "SELECT kind, COUNT(*) AS n FROM t GROUP BY kind",
    "ages": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM t GROUP BY age",
    "both": "SELECT kind, here, COUNT(*) AS n FROM t GROUP BY kind, here",
    "all": "SELECT COUNT(*) AS n FROM t",
}
SUMS = {
    "paid": "SELECT kind, SUM(pay) AS n FROM t GROUP BY kind",
    "paid_here": "SELECT SUM(pay) AS n FROM t WHERE here",
}


def check(release, con, script, times, sigmas=6):
    """Every number against DuckDB's, within its noise and the digits of a float."""
    largest = 0
    for name, sql in script.items():
        truth = {row[:-1]: int(row[-1]) * times for row in con.execute(sql).fetchall()}
        assert len(release[name]) == len(truth)
        for row in release[name].iter_rows(named=True):
            true = truth[tuple(row[key] for key in list(row)[: len(next(iter(truth)))])]
            allowed = sigmas * row["n_variance"] ** 0.5 + DIGITS * max(map(abs, truth.values()))
            assert abs(int(row["n"]) - true) < allowed + 1, (name, row, true)
            largest = max(largest, true)
    return largest


@pytest.mark.parametrize("times", TIMES)
def test_counts_and_sums_are_right_for_tables_of_any_size(con, times):
    script = {**COUNTS, **SUMS}
    with many_rows(times):
        release = dpsql.Session(con).release(script, budget=BUDGET)
    largest = check(release, con, script, times)
    assert times < 2**45 or largest > 2**80


MARGINALS = {name: COUNTS[name] for name in ("kinds", "both", "all")}


@pytest.mark.parametrize(
    "mechanism", ["residualplanner", "residualplanner+", "fourier", "hdmm", "gaussian", "laplace"]
)
@pytest.mark.parametrize("times", [2**32 - 1, 2**45 + 7])
def test_all_mechanisms_are_right_for_large_tables(con, mechanism, times):
    script = MARGINALS if mechanism == "residualplanner" else COUNTS
    budget = dpsql.Budget(epsilon=2, delta=0) if mechanism == "laplace" else BUDGET
    with many_rows(times):
        release = dpsql.Session(con).release(script, budget=budget, mechanism=mechanism)
    check(release, con, script, times, sigmas=12 if mechanism == "laplace" else 6)


@pytest.mark.parametrize("times", [2**32 - 1, 2**44 + 7])
def test_rounds_are_right_for_large_tables(con, times):
    """AIM chooses by distances, which are exact up to 2^53 rows; its fit is in single precision."""
    with many_rows(times):
        release = dpsql.Session(con).release(MARGINALS, budget=BUDGET, mechanism="aim")
    for name, sql in MARGINALS.items():
        truth = {row[:-1]: row[-1] * times for row in con.execute(sql).fetchall()}
        found = {tuple(row[:-1]): row[-1] for row in release[name].rows()}
        for key, true in truth.items():
            assert abs(found[key] - true) < 100 + 1e-6 * true, (name, key)


def test_averages_shares_and_medians_are_those_of_the_stored_rows(con):
    script = {
        "pay": "SELECT AVG(pay) AS v FROM t",
        "share": "SELECT 100.0 * COUNT(*) FILTER (WHERE here) / COUNT(*) AS v FROM t",
        "middle": "SELECT MEDIAN(age) AS v FROM t",
        "least": "SELECT MIN(age) AS v FROM t",
    }
    with many_rows(2**45 + 7):
        release = dpsql.Session(con).release(script, budget=BUDGET, confidence=0.95)
    for name, sql in script.items():
        (true,) = con.execute(sql).fetchone()
        row = release[name].row(0, named=True)
        assert row["v"] == pytest.approx(float(true), rel=1e-9, abs=0.6), name
        spread = row.get("v_variance")
        # Of so many rows a ratio is known to many digits.
        assert spread is None or 0 <= spread < 1e-6 * float(true) ** 2, name


def units(con):
    """Two tables with rows of the same persons."""
    con.execute("CREATE TABLE person (id INT PRIMARY KEY)")
    con.execute("INSERT INTO person SELECT i FROM range(100) AS r(i)")
    for table, most in (("visit", 3), ("stay", 2)):
        con.execute(
            f"CREATE TABLE {table} (person INT NOT NULL REFERENCES person, "
            "day INT NOT NULL CHECK (day BETWEEN 0 AND 4))"
        )
        con.execute(f"INSERT INTO {table} SELECT i // {most}, i % 5 FROM range({100 * most}) r(i)")
    return dpsql.Session(con, unit="person.id", max_rows=3)


TABLES = {
    "visits": "SELECT day, COUNT(*) AS n FROM visit GROUP BY day",
    "stays": "SELECT day, COUNT(*) AS n FROM stay GROUP BY day",
    "all": "SELECT COUNT(*) AS n FROM visit",
}


@pytest.mark.parametrize("times", [2**32 - 1, 2**45 + 7])
def test_several_tables_and_their_compared_totals_are_right(con, times):
    with many_rows(times):
        release = units(con).release(TABLES, budget=BUDGET)
    assert any(source.differences for source in release.sources)
    check(release, con, TABLES, times, sigmas=8)


@pytest.mark.parametrize("times", [2**32 - 1, 2**45 + 7])
def test_units_are_counted_right(con, times):
    script = {"who": "SELECT day, COUNT(DISTINCT person) AS n FROM visit GROUP BY day"}
    with many_rows(times):
        release = units(con).release(script, budget=BUDGET)
    check(release, con, script, times, sigmas=8)


@pytest.mark.parametrize("times", [2**24, 2**45 + 7])
def test_what_is_kept_gives_the_same_answers_again(con, tmp_path, times):
    """From a folder, and with a later release: integers of more than 64 bits are kept exactly."""
    session = dpsql.Session(con)
    with many_rows(times):
        release = session.release({**COUNTS, **SUMS}, budget=BUDGET, out=tmp_path / "first")
        more = session.release(SUMS | {"both": COUNTS["both"]}, budget=BUDGET)
    loaded = dpsql.Release.load(tmp_path / "first")
    again = loaded.query(COUNTS["ages"])
    assert again["n"].to_list() == pytest.approx(release["ages"]["n"].to_list(), rel=1e-12)
    check(loaded, con, {**COUNTS, **SUMS}, times)
    check(more, con, SUMS | {"both": COUNTS["both"]}, times)
    kept = [y for source in loaded.sources for y in (source.values or {}).values()]
    assert {y.dtype for y in kept} >= {np.dtype(object if times > 2**40 else np.int64)}
    for one, other in zip(release.sources, loaded.sources, strict=True):
        for names, values in (one.values or {}).items():
            assert values.tolist() == other.values[names].tolist()
