"""Answers in batches: the same rows as the whole frame, and no more at once than asked for."""

from __future__ import annotations

import polars as pl
import pytest

import dpsql

SCRIPT = {
    "total": "SELECT COUNT(*) AS n FROM t",
    "both": "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b",
    "turned": "SELECT b, a, COUNT(*) AS n FROM t GROUP BY a, b",
    "some": "SELECT a, COUNT(*) AS n FROM t WHERE b BETWEEN 2 AND 5 AND a <> 3 GROUP BY a",
    "running": "SELECT a, SUM(COUNT(*)) OVER (ORDER BY a) AS n FROM t GROUP BY a",
}


@pytest.fixture(scope="module")
def release():
    import duckdb

    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (a INT NOT NULL CHECK (a BETWEEN 0 AND 9),"
        " b INT NOT NULL CHECK (b BETWEEN 0 AND 19))"
    )
    con.execute("INSERT INTO t SELECT i % 10, i % 19 FROM range(5000) AS r(i)")
    budget = dpsql.Budget(rho=1)
    yield dpsql.Session(con).release(SCRIPT, budget=budget, confidence=0.9)
    con.close()


@pytest.mark.parametrize("rows", [1, 7, 100, 10**6])
@pytest.mark.parametrize("name", SCRIPT)
def test_batches_are_the_frame(release, name, rows):
    frame, batches = release[name], list(release.batches(name, rows))
    assert all(batch.schema == frame.schema for batch in batches)
    joined = pl.concat(batches)
    keys = [column for column in frame.columns if column in ("a", "b")]
    joined = joined.sort(keys) if keys else joined
    assert joined.select(keys).equals(frame.select(keys))
    for column in frame.columns:
        assert joined[column].to_list() == pytest.approx(frame[column].to_list(), rel=1e-9)


def test_batches_are_as_small_as_asked(release):
    """Along the first key; a row of the others is not cut."""
    assert [len(batch) for batch in release.batches("both", 45)] == [40] * 5
    assert [len(batch) for batch in release.batches("running", 8)] == [8, 2]


def test_a_release_is_a_mapping_whose_frames_are_made_once(release):
    assert list(release) == list(SCRIPT)
    assert len(release) == len(SCRIPT)
    assert release["both"] is release["both"]
    for missing in (lambda: release["no"], lambda: next(release.batches("no"))):
        with pytest.raises(KeyError):
            missing()
    assert repr(release).startswith("Release(total, both")
