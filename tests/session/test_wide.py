"""Releases that are measured in wide integers: answered, kept, read again and built upon."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.measurement.distributions import CoarseGaussian
from dpsql.planner.mechanisms import querysmasher
from dpsql.release.measurements import decode, encode

SCRIPT = {
    "sums": "SELECT c, q, SUM(COUNT(*)) OVER (PARTITION BY q ORDER BY c) AS n FROM t "
    "JOIN range(0, 19) AS r(q) ON a + b <= q GROUP BY c, q ORDER BY c, q",
    "rest": "SELECT COUNT(*) AS n FROM t WHERE c >= 2",
}
COUNTS = {"counts": "SELECT c, COUNT(*) AS n FROM t GROUP BY c ORDER BY c"}
LARGE, SMALL = dpsql.Budget(rho=10**6), dpsql.Budget(rho=1)


@pytest.fixture(autouse=True)
def spaces(monkeypatch):
    """Residual spaces are planned, which need wide integers here: all columns at once would not."""
    monkeypatch.setattr(querysmasher, "is_quick", lambda workload: False)
    monkeypatch.setattr(querysmasher, "MODERATE_WORK", 0)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            a SMALLINT NOT NULL CHECK (a BETWEEN 0 AND 9),
            b SMALLINT NOT NULL CHECK (b BETWEEN 0 AND 9),
            c SMALLINT NOT NULL CHECK (c BETWEEN 0 AND 15));
        INSERT INTO t SELECT i * i % 10, i % 23 % 10, i % 17 % 16 FROM range(20000) AS r(i);
    """).fetchall()
    return con


def exact(con, sql: str) -> list[int]:
    return [row[-1] for row in con.execute(sql).fetchall()]


def is_wide(release: dpsql.Release) -> bool:
    return any(isinstance(b.law, CoarseGaussian) for b in release.sources[-1].blocks)


def test_answers_are_right_kept_and_read_again(con, tmp_path):
    session = dpsql.Session(con)
    release = session.release(SCRIPT, budget=LARGE)
    assert is_wide(release)
    for name, sql in SCRIPT.items():
        frame = release[name]
        np.testing.assert_allclose(frame["n"], exact(con, sql), atol=0.1)
        assert (frame["n_variance"] < 1e-4).all()
    release.save(tmp_path / "release")
    again = dpsql.Release.load(tmp_path / "release")
    free = session.release(SCRIPT, budget=0)
    for name in SCRIPT:
        assert again[name].equals(release[name])
        np.testing.assert_allclose(free[name]["n"], release[name]["n"])
    assert encode(decode(encode(release.sources))) == encode(release.sources)


@pytest.mark.statistical
def test_errors_are_as_large_as_stated(con):
    release = dpsql.Session(con).release(SCRIPT, budget=SMALL)
    assert is_wide(release)
    errors = release["sums"]["n"] - np.array(exact(con, SCRIPT["sums"]))
    ratio = (errors**2).mean() / release["sums"]["n_variance"].mean()
    assert 0.4 < ratio < 2  # of 105 answers that are correlated


def test_later_releases_build_on_them(con):
    session = dpsql.Session(con)
    assert is_wide(session.release(SCRIPT, budget=LARGE))
    later = session.release(COUNTS, budget=SMALL)
    assert (later["counts"]["n_variance"] < 1e-3).all()
    np.testing.assert_allclose(later["counts"]["n"], exact(con, COUNTS["counts"]), atol=0.2)


def test_adjusted_columns_fit_them(con):
    release = dpsql.Session(con).release(SCRIPT, budget=LARGE, nonnegative=True)
    assert is_wide(release)
    fitted = release["sums"]["n_adjusted"]
    np.testing.assert_allclose(fitted, exact(con, SCRIPT["sums"]), atol=0.5)
