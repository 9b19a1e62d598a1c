"""Groups that noise can't tell from empty ones are left out where that is asked for."""

from __future__ import annotations

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.errors import ArgumentError, MechanismError
from dpsql.measurement import measure as measuring
from dpsql.request import Request, named
from tests.helpers.seeded import SeededBits

BY_G = "SELECT g, COUNT(*) AS n FROM t GROUP BY g"
PRECISE = dpsql.Budget(rho=1e5)
COUNTS = "SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h"


@pytest.fixture
def con():
    """Rows in 12 of 240 groups, 40 and more in each."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 59),
            h INTEGER NOT NULL CHECK (h BETWEEN 0 AND 3),
            v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9));
        INSERT INTO t SELECT 5 * (i % 4) + 1, i % 3, i * i % 7 FROM range(600) AS t(i);
    """).fetchall()
    return con


@pytest.fixture
def session(con, monkeypatch):
    bits = SeededBits(7)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    return dpsql.Session(con)


OVER_GROUPS = [
    f"SELECT AVG(n) AS a FROM ({COUNTS})",
    f"SELECT COUNT(*) AS k, SUM(n) AS n FROM ({COUNTS})",
    f"{COUNTS} ORDER BY g, h LIMIT 3",
    f"SELECT g, h, n, dense_rank() OVER (ORDER BY g, h) AS r FROM ({COUNTS}) ORDER BY g, h",
    "SELECT g, AVG(COUNT(*)) OVER (ORDER BY g) AS a FROM t GROUP BY g ORDER BY g",
    "SELECT g, lag(COUNT(*)) OVER (ORDER BY g) AS a FROM t GROUP BY g ORDER BY g",
    "SELECT g, SUM(v) AS s FROM t WHERE h < 2 GROUP BY g ORDER BY g DESC LIMIT 2",
    "SELECT g, QUANTILE_DISC(v, 0.5) AS q FROM t GROUP BY g ORDER BY g",
    "SELECT g, AVG(v) AS a FROM t GROUP BY g HAVING AVG(v) > -1 ORDER BY g",
    "SELECT g, COUNT(*) AS n FROM t GROUP BY g UNION ALL SELECT h, COUNT(*) FROM t GROUP BY h",
]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sql", OVER_GROUPS)
def test_windows_ranks_means_and_limits_see_the_other_groups_alone(con, session, sql):
    """Noise is small here: ten standard errors are less than one row."""
    release = session.release(sql, budget=PRECISE, groups_above=10)
    names = [d[0] for d in con.execute(sql).description]
    found = release["query"].select(names).with_columns(pl.all().cast(pl.Float64).round(1))
    expected = pl.DataFrame(con.execute(sql).fetchall(), schema=names, orient="row")
    expected = expected.with_columns(pl.all().cast(pl.Float64).round(1))
    order = [] if "ORDER BY" in sql.rpartition(")")[2] else names
    assert found.sort(order or names).equals(expected.sort(order or names)), (found, expected)
    summary = " ".join(release.summary().split())
    assert "whose noisy count is less than 10 times its standard error are left out" in summary
    assert "groups without rows" not in summary
    others = session.query(sql, budget=PRECISE, reuse=False)
    assert not others.select(names).sort(names).equals(release["query"].select(names).sort(names))


def test_it_is_noisy_counts_that_decide(session):
    """Of groups without rows some get through, as many as noise alone makes it above."""
    sql = "SELECT g, h, COUNT(*) AS n FROM t GROUP BY g, h"
    frame = session.query(sql, budget=dpsql.Budget(rho=0.05), groups_above=1)
    all_ = session.query(sql, budget=0)
    errors = frame["n_variance"].sqrt()
    assert (frame["n"] >= errors).all()
    assert frame.height == (all_["n"] >= all_["n_variance"].sqrt()).sum()
    assert 20 < frame.height < 100  # 12 with rows, and of 228 others 16 %


def test_it_is_free_where_groups_were_counted(session):
    session.release({"n": COUNTS, "all": "SELECT COUNT(*) AS n FROM t"}, budget=PRECISE)
    spent = session.ledger.spent
    sql = f"SELECT COUNT(*) AS k FROM ({COUNTS})"
    # An answer that counts groups alone is not noisy itself; one of them has to be.
    sql = f"SELECT SUM(n) AS n, COUNT(*) AS k FROM ({COUNTS})"
    assert session.query(sql, budget=0, groups_above=10)["k"].item() == 12
    assert session.release(sql, budget=0, groups_above=10)["query"]["k"].item() == 12
    assert session.ledger.spent == spent


def test_releases_answer_so_too(session, con, tmp_path):
    release = session.release(COUNTS, budget=PRECISE)
    release.save(tmp_path / "saved")
    loaded = dpsql.Release.load(tmp_path / "saved")
    top = f"{COUNTS} ORDER BY g, h LIMIT 20"
    assert loaded.query(top).height == 20
    assert loaded.query(top, groups_above=10).height == 12
    made = dpsql.query(con, [COUNTS], budget=PRECISE, groups_above=10)
    made.save(tmp_path / "above")
    again = dpsql.Release.load(tmp_path / "above")
    assert "are left out" in " ".join(again.summary().split())
    assert "are left out" in made.columns("query_1")["reason"].to_list()[-1]


def test_counts_are_measured_for_it_if_nothing_else_counts_them(session):
    sql = "SELECT g, SUM(v) AS s FROM t GROUP BY g"
    plain = session.plan(sql, budget=PRECISE)
    above = session.plan(sql, budget=PRECISE, groups_above=2)
    assert above.workload.count == plain.workload.count + 60
    counted = session.plan("SELECT g, COUNT(*) AS n FROM t GROUP BY g", budget=PRECISE)
    same = session.plan("SELECT g, COUNT(*) AS n FROM t GROUP BY g", budget=PRECISE, groups_above=2)
    assert same.workload.count == counted.workload.count


def test_a_statement_without_groups_or_counts_is_what_it_was(session):
    total = session.query("SELECT COUNT(*) AS n FROM t", budget=PRECISE, groups_above=10)
    assert total["n"].item() == pytest.approx(600, abs=1)
    with pytest.raises(dpsql.errors.SqlError, match="counts nothing"):
        session.query("SELECT 1 FROM t", budget=PRECISE, groups_above=2)


def test_groups_alone_are_those_above_the_floor(session):
    found = session.query("SELECT DISTINCT g FROM t", budget=PRECISE, groups_above=4)
    assert found["g"].to_list() == [1, 6, 11, 16]
    assert session.query("SELECT DISTINCT g FROM t", budget=PRECISE).height == 60


def test_only_columns_that_empty_groups_take_part_in_are_noted(session):
    release = session.release(
        {
            "mean": "SELECT g, COUNT(*) AS n, AVG(COUNT(*)) OVER () AS m FROM t GROUP BY g",
            "lag": "SELECT g, COUNT(*) AS n, lag(COUNT(*)) OVER (ORDER BY g) FROM t GROUP BY g",
            "rank": f"SELECT g, n, rank() OVER (ORDER BY n) AS r FROM ({BY_G}) ORDER BY r",
            "limit": "SELECT g, COUNT(*) AS n FROM t GROUP BY g LIMIT 3",
        },
        budget=PRECISE,
    )
    for name in ("mean", "lag", "rank"):
        key, plain, over = release.columns(name)["reason"].to_list()
        assert (key, plain) == (None, None)
        assert "groups without rows" in over
        assert "groups_above=3" in over
        assert f"{name}: groups without rows" in release.summary()
    assert "groups without rows" in release.columns("limit")["reason"].to_list()[1]


@pytest.mark.parametrize(
    ("sql", "floor"),
    [
        ("SELECT g, COUNT(*) AS n FROM t GROUP BY g ORDER BY g LIMIT 5", 3),
        ("SELECT h, rank() OVER (ORDER BY COUNT(*)) AS r FROM t GROUP BY h", 2),
        (f"SELECT AVG(n) AS a FROM ({COUNTS})", 3),
        ("SELECT g, h, v, COUNT(*) AS n FROM t GROUP BY g, h, v ORDER BY n DESC LIMIT 9", 4),
    ],
)
def test_plans_say_which_floor_leaves_groups_without_rows_out(con, session, sql, floor):
    """So that it is known before the charge. With that floor the answer has groups of rows only."""
    plan = session.plan({"q": sql}, budget=PRECISE)
    (note,) = [note for note in plan.notes if note.startswith("q: groups without rows")]
    assert f"by groups_above={floor} or HAVING" in note
    assert note in plan.explain()
    above = session.plan({"q": sql}, budget=PRECISE, groups_above=floor)
    assert above.notes == ()
    found = session.query(sql, budget=PRECISE, groups_above=floor)
    assert found.height == len(con.execute(sql).fetchall())


def test_plans_say_nothing_of_groups_that_are_only_listed(session):
    for sql in (BY_G, f"{BY_G} ORDER BY n", f"SELECT SUM(n) AS n FROM ({BY_G})"):
        assert session.plan(sql, budget=PRECISE).notes == ()


@pytest.mark.parametrize("above", [-1, float("nan"), "2", True, [2]])
def test_what_is_no_number_of_standard_errors_is_refused(session, above):
    for call in (session.query, session.release, session.plan):
        with pytest.raises(ArgumentError, match="number of standard errors"):
            call(COUNTS, budget=PRECISE, groups_above=above)
    with pytest.raises(ArgumentError, match="number of standard errors"):
        session.query(COUNTS, budget=0, groups_above=above)
    assert session.ledger.spent == 0


@pytest.mark.parametrize("above", [10, np.float64(10), np.float64(1e-7)])
def test_any_float_is_a_number_of_standard_errors(session, above):
    """NumPy's is one, and is written otherwise."""
    frame = session.query(COUNTS, budget=PRECISE, groups_above=above)
    assert frame.height == 12 if above > 1 else 12 < frame.height < 240
    release = session.release(COUNTS, budget=0)
    assert release.query(COUNTS, groups_above=above).height == frame.height


def test_the_same_number_asks_the_same():
    def digest(above):
        return Request(named(COUNTS), PRECISE, groups_above=above).digest

    assert digest(2) == digest(2.0) == digest(np.float64(2)) != digest(3)


def test_biased_answers_have_no_standard_errors(session):
    with pytest.raises(MechanismError, match="no standard errors to leave groups out by"):
        session.release(COUNTS, budget=PRECISE, mechanism="aim", groups_above=2)
