"""Releases whose references depend on what else is kept: everything works with them, too."""

from __future__ import annotations

import io

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.residuals.spaces import References
from dpsql.release.measurements import decode, encode

BUDGET = dpsql.Budget(rho=0.5)
SCRIPT = {
    "low": "SELECT a, b, SUM(COUNT(*)) OVER (PARTITION BY a ORDER BY b) AS n FROM t GROUP BY a, b",
    "high": "SELECT c, b, SUM(COUNT(*)) OVER (PARTITION BY c ORDER BY b DESC) AS n FROM t "
    "GROUP BY c, b",
}
FEW = "SELECT a, COUNT(*) AS n FROM t WHERE b <= 3 GROUP BY a"


@pytest.fixture(scope="module", autouse=True)
def spaces():
    """Residual spaces are planned: else all columns would be at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(querysmasher, "MODERATE_WORK", 0)
        yield


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            a SMALLINT NOT NULL CHECK (a BETWEEN 0 AND 19),
            b SMALLINT NOT NULL CHECK (b BETWEEN 0 AND 7),
            c SMALLINT NOT NULL CHECK (c BETWEEN 0 AND 19));
        INSERT INTO t SELECT i % 19, i % 7, i % 17 FROM range(30000) AS r(i);
    """).fetchall()
    return con


@pytest.fixture(scope="module")
def session(con):
    return dpsql.Session(con)


@pytest.fixture(scope="module")
def release(session):
    release = session.release(SCRIPT, budget=BUDGET, nonnegative=True, integers=True)
    assert References.of(release.sources[-1].references).special
    return release


def test_answers_are_near(con, release):
    for name in SCRIPT:
        keys = release[name].columns[:2]
        true = con.sql(SCRIPT[name]).pl().select(*keys, true="n")
        both = release[name].join(true, keys, how="left").drop_nulls("true")
        assert len(both) > 100
        assert (both["n"] - both["true"]).abs().max() < 30
        assert (both["n_adjusted"] - both["true"]).abs().max() < 30
        assert (release[name]["n_adjusted"] >= 0).all()


def test_what_was_measured_is_kept(release, tmp_path):
    (source,) = release.sources
    again = decode(encode(release.sources))
    assert encode(again) == encode(release.sources)
    found, before = (References.of(s.references) for s in (again[0], source))
    assert found.pivots == before.pivots
    assert {place: r.key for place, r in found.special.items()} == {
        place: r.key for place, r in before.special.items()
    }
    release.save(tmp_path / "release")
    loaded = dpsql.Release.load(tmp_path / "release")
    assert loaded.query(FEW).equals(release.query(FEW))


def test_contexts_that_do_not_fit_are_refused(release):
    frame = pl.read_parquet(io.BytesIO(encode(release.sources)))
    context, pivots = pl.col("names").list.len() > 1, pl.col("kind") == "pivots"
    reference = pl.col("kind") == "reference"
    for other in (
        frame.filter(~pivots),
        frame.filter(~(reference & ~context & (pl.col("names").list.first() == "b"))),
        frame.with_columns(names=pl.when(pivots).then(["b"]).otherwise("names")),
        frame.with_columns(
            shape=pl.when(reference & context).then([9]).otherwise("shape"),
            data=pl.when(reference & context).then([1] * 9).otherwise("data"),
        ),
    ):
        content = io.BytesIO()
        other.write_parquet(content)
        with pytest.raises(dpsql.ReleaseFormatError):
            decode(content.getvalue())


def test_more_follows_for_free_and_helps_later(con, session, release):
    both = session.query(FEW, budget=0).join(con.sql(FEW).pl().select("a", true="n"), "a")
    assert (both["n"] - both["true"]).abs().max() < 30
    alone = dpsql.plan(con, SCRIPT, budget=BUDGET)
    later = session.plan(SCRIPT, budget=BUDGET)
    assert later.given is not None
    assert later.rmse == pytest.approx(alone.rmse / 2**0.5, rel=0.02)
    assert References.of(later.references).special
