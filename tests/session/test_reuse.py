"""Answers from earlier measurements: what is free, what is combined, and what is kept apart."""

from __future__ import annotations

import re
import shutil
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import UndeterminedError
from dpsql.planner.reconstruction import combine
from dpsql.privacy import Ledger
from dpsql.session import data
from tests.session.tools import AGES, BANDS, BUDGET, BY_AGE, BY_SEX, WINDOW, create

TOTAL = "SELECT COUNT(*) AS n FROM people"
SCRIPT = {
    "sexes": BY_SEX,
    "ages": BY_AGE,
    "bands": BANDS,
    "median": "SELECT sex, MEDIAN(age) AS m FROM people GROUP BY sex",
    "mean": "SELECT sex, AVG(income) AS mean, SUM(income) AS sum FROM people GROUP BY sex",
    "window": WINDOW,
    "shares": "SELECT town, COUNT(*) / SUM(COUNT(*)) OVER () AS share, COUNT(*) AS n FROM people "
    "GROUP BY town HAVING COUNT(*) > -1e9 ORDER BY town NULLS FIRST",
    "total": TOTAL,
}


def same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    assert_frame_equal(one, other, rel_tol=1e-9, abs_tol=1e-9)


# ── free answers ───────────────────────────────────────────────────────────────────────────


@pytest.mark.sampled(4)
@pytest.mark.parametrize("names", [*([name] for name in SCRIPT), list(SCRIPT)], ids="+".join)
def test_the_same_again_is_free_and_equal(session, names):
    script = {name: SCRIPT[name] for name in names}
    for _ in range(2):  # from one release, and from two
        release = session.release(script, budget=BUDGET)
        charged = session.ledger.entries()
        free = session.release(script, budget=0)
        assert free.charged is None
        for name, sql in script.items():
            same(free[name], release[name])
            same(session.query(sql, budget=0), release[name])
            same(release.query(sql), release[name])
            assert_frame_equal(free.columns(name), release.columns(name))
        assert session.ledger.entries() == charged


def test_free_answers_leave_the_ledger_as_it_is(tmp_path):
    with create(tmp_path / "people.duckdb") as con:
        session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
        release = session.release({"ages": BY_AGE}, budget=BUDGET)
        content = session.ledger.path.read_bytes()
        left = session.remaining
        for sql in (BY_SEX, BANDS, AGES, TOTAL):
            session.query(sql, budget=0)
            session.query(sql, budget=0, confidence=0.9)
            release.query(sql)
        with pytest.raises(UndeterminedError):
            session.query(SCRIPT["mean"], budget=0)
        assert session.ledger.path.read_bytes() == content
        assert session.remaining == left
        assert session.history.height == 1


def test_coarser_answers_are_sums_of_what_was_released(session):
    cells = session.query(BY_AGE, budget=BUDGET)
    by_sex, by_age, bands, total = (
        session.query(sql, budget=0) for sql in (BY_SEX, AGES, BANDS, TOTAL)
    )
    same(by_sex[:, :2], cells.group_by("sex", maintain_order=True).agg(pl.col("n").sum()))
    same(by_age[:, :2], cells.group_by("age", maintain_order=True).agg(pl.col("n").sum()))
    sums = by_age["n"].to_numpy().reshape(2, 5).sum(axis=1)
    np.testing.assert_allclose(bands["n"], sums)
    np.testing.assert_allclose(total["n"], [cells["n"].sum()])


def test_conditions_over_measured_cells_are_free(session):
    cells = session.query(BY_AGE, budget=BUDGET)
    sql = "SELECT COUNT(*) AS n FROM people WHERE age BETWEEN 2 AND 4 AND sex = 'F'"
    wanted = cells.filter(pl.col("age").is_between(2, 4), sex="F")["n"].sum()
    np.testing.assert_allclose(session.query(sql, budget=0)["n"], [wanted])


def test_several_releases_are_put_together(session):
    """Neither of two releases, made without the other, says it as well."""
    first, second = (session.query(sql, budget=BUDGET, reuse=False) for sql in (BY_SEX, AGES))
    both = session.release([BY_SEX, AGES, TOTAL], budget=0)
    assert both["query_1"]["n_variance"].max() <= first["n_variance"].max() * (1 + 1e-9)
    assert both["query_2"]["n_variance"].max() <= second["n_variance"].max() * (1 + 1e-9)
    alone = first["n_variance"].sum(), second["n_variance"].sum()
    assert both["query_3"]["n_variance"][0] == pytest.approx(1 / (1 / alone[0] + 1 / alone[1]))
    totals = [both["query_1"]["n"].sum(), both["query_2"]["n"].sum(), both["query_3"]["n"][0]]
    np.testing.assert_allclose(totals, totals[0])


def test_confidence_is_free(session):
    session.query(BY_SEX, budget=BUDGET)
    frame = session.query(BY_SEX, budget=0, confidence=0.95)
    assert frame.columns == ["sex", "n", "n_variance", "n_lower", "n_upper"]
    width = (frame["n_upper"] - frame["n_lower"]).to_numpy()
    np.testing.assert_allclose(width, 2 * 1.959964 * np.sqrt(frame["n_variance"]), rtol=1e-6)


# ── what is not known ──────────────────────────────────────────────────────────────────────


def undetermined(session: dpsql.Session, sql: str) -> UndeterminedError:
    before = session.ledger.entries()
    with pytest.raises(UndeterminedError) as caught:
        session.query(sql, budget=0)
    assert session.ledger.entries() == before
    return caught.value


def test_nothing_is_known_at_first(session):
    assert "the total" in undetermined(session, TOTAL).message


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        (AGES, ["age"]),
        (BY_AGE, ["age", "sex"]),
        ("SELECT COUNT(*) AS n FROM people WHERE age < 7", ["age"]),
        ("SELECT town, COUNT(*) AS n FROM people GROUP BY town", ["town"]),
        (SCRIPT["mean"], ["income"]),
        (SCRIPT["median"], ["age"]),
    ],
)
def test_what_was_not_measured_is_named_and_the_hint_works(session, sql, named):
    session.query(BY_SEX, budget=BUDGET)
    error = undetermined(session, sql)
    for name in named:
        assert re.search(rf"\b{name}\b", error.message)
    (amount,) = re.findall(r"budget=dpsql\.Budget\(rho=([0-9.]+)\)", error.hint)
    session.query(sql, budget=dpsql.Budget(rho=float(amount)))
    session.query(sql, budget=0)


def test_the_statement_is_named(session):
    session.query(BY_SEX, budget=BUDGET)
    with pytest.raises(UndeterminedError) as caught:
        session.release({"known": BY_SEX, "unknown": AGES}, budget=0)
    assert caught.value.statement == "unknown"
    assert caught.value.sql == AGES


def test_a_release_answers_only_from_its_own(con, session):
    first = session.release(BY_SEX, budget=BUDGET)
    second = session.release(AGES, budget=BUDGET)
    with pytest.raises(UndeterminedError):
        first.query(AGES)
    second.query(AGES)
    with pytest.raises(dpsql.SchemaError, match="no table"):
        first.query("SELECT COUNT(*) FROM other")
    with pytest.raises(dpsql.SqlError, match="one SQL text"):
        first.query(5)


# ── what is kept apart ─────────────────────────────────────────────────────────────────────


def variance_alone(sql: str) -> float:
    with create() as con:
        return dpsql.query(con, sql, budget=BUDGET)["n_variance"].max()


def test_other_vintages(file):
    alone = variance_alone(AGES)
    with duckdb.connect(file) as con:
        total = dpsql.Budget(rho=1)
        dpsql.Session(con, budget=total, vintage="2026-Q3").query(AGES, budget=BUDGET)
        later = dpsql.Session(con, budget=total, vintage="2026-Q4")
        undetermined(later, AGES)
        assert later.query(AGES, budget=BUDGET)["n_variance"].max() == pytest.approx(alone)
        assert later.query(AGES, budget=BUDGET)["n_variance"].max() < 0.6 * alone
        assert later.remaining == 1 - 3 * BUDGET.rho  # one budget for all of them
        undetermined(dpsql.Session(con), AGES)
        earlier = dpsql.Session(con, vintage="2026-Q3")
        assert earlier.query(AGES, budget=0)["n_variance"].max() == pytest.approx(alone)


COMPUTED = {
    "share": """
        WITH q AS (SELECT age AS a, sex AS s, COUNT(*) AS n FROM people GROUP BY CUBE (age, sex))
        SELECT a, n, n / (SELECT sum(n) FROM q) AS share, rank() OVER (ORDER BY n DESC) AS rk
        FROM q ORDER BY n""",
    "spread": "SELECT age, STDDEV(age) AS d, COUNT(*) AS n FROM people GROUP BY age",
}


def check_equal_to_the_last_bit(session, times):
    session.release(COMPUTED, budget=dpsql.Budget(rho=1))
    first, *others = (session.release(COMPUTED, budget=0) for _ in range(times))
    for name in COMPUTED:
        # As text, which tells all numbers apart: NaN equals itself, and -0.0 isn't 0.0.
        rows = [[*map(str, row)] for row in first[name].rows()]
        for other in others:
            assert [[*map(str, row)] for row in other[name].rows()] == rows


def test_free_answers_are_the_same_to_the_last_bit(session):
    check_equal_to_the_last_bit(session, 4)


@pytest.mark.long
def test_many_free_answers_are_the_same_to_the_last_bit(session):
    check_equal_to_the_last_bit(session, 40)


def test_databases_that_share_a_ledger_share_the_account_alone(tmp_path):
    alone, shared = variance_alone(AGES), tmp_path / "shared.ledger"
    for number, year in enumerate(("2025", "2026")):
        (tmp_path / year).mkdir()
        with create(tmp_path / year / "people.duckdb") as con:
            session = dpsql.Session(con, ledger=shared)
            undetermined(session, AGES)
            frame = session.query(AGES, budget=BUDGET)
            assert frame["n_variance"].max() == pytest.approx(alone)
            assert session.ledger.spent == (number + 1) * BUDGET.mu_squared
            assert dpsql.Session(con).query(AGES, budget=0).equals(frame)
            undetermined(dpsql.Session(con, vintage="another"), AGES)


def test_a_database_is_moved_with_its_ledger(tmp_path, file):
    with duckdb.connect(file) as con:
        frame = dpsql.query(con, AGES, budget=BUDGET)
    shutil.copytree(file.parent, tmp_path / "elsewhere" / "moved")
    with duckdb.connect(tmp_path / "elsewhere" / "moved" / file.name, read_only=True) as con:
        assert dpsql.query(con, AGES, budget=0).equals(frame)


def test_rows_in_memory_are_known_by_their_vintage_alone(tmp_path):
    ledger = tmp_path / "people.ledger"
    for number in range(2):
        with create() as con:
            session = dpsql.Session(con, ledger=ledger)
            undetermined(session, AGES)
            session.query(AGES, budget=BUDGET)
            assert session.query(AGES, budget=0).height
            named = dpsql.Session(con, ledger=ledger, vintage="2026")
            if number:
                assert named.query(AGES, budget=0).height
            else:
                undetermined(named, AGES)
                named.query(AGES, budget=BUDGET)
    assert Ledger.existing(ledger).spent == 3 * BUDGET.mu_squared


def test_without_reuse(session):
    alone = variance_alone(AGES)
    session.query(AGES, budget=BUDGET)
    release = session.release(AGES, budget=BUDGET, reuse=False)
    assert release["query"]["n_variance"].max() == pytest.approx(alone)
    assert len(release.sources) == 1
    assert "rests also on" not in release.summary()
    assert session.query(AGES, budget=0)["n_variance"].max() == pytest.approx(alone / 2, rel=0.02)


def test_another_unit_is_refused(file):
    with duckdb.connect(file) as con:
        dpsql.query(con, AGES, budget=BUDGET)
        for budget in (BUDGET, 0):
            with pytest.raises(dpsql.LedgerError, match="Another unit"):
                dpsql.query(con, AGES, budget=budget, unit="person", max_rows=3)


def test_another_number_of_rows_is_not_combined(file):
    """For 3 rows of a person and for 5, other rows are counted."""
    with duckdb.connect(file) as con:
        three = dpsql.Session(con, unit="person", max_rows=3)
        three.query(AGES, budget=BUDGET)
        five = dpsql.Session(con, unit="person", max_rows=5, accept_schema=True)
        undetermined(five, AGES)
        five.query(AGES, budget=BUDGET)
        assert five.ledger.spent == 2 * BUDGET.mu_squared


@pytest.mark.parametrize("reader", [{}, {"accept_schema": True}])
def test_rows_kept_by_an_earlier_rule_are_not_combined(file, reader):
    """Releases before a rule had a name counted other rows of the same persons."""
    with duckdb.connect(file) as con:
        with patch("dpsql.engines.base.RULE", ""):
            before = dpsql.Session(con, unit="person", max_rows=3).release(AGES, budget=BUDGET)
        session = dpsql.Session(con, unit="person", max_rows=3, **reader)
        undetermined(session, AGES)
        after = session.release(AGES, budget=BUDGET)
        assert len(before.sources) == len(after.sources) == 1
        assert session.ledger.spent == 2 * BUDGET.mu_squared
        same(session.query(AGES, budget=0), after["query"])
        same(before.query(AGES), before["query"])


def test_another_schema_has_to_be_accepted_and_keeps_untouched_columns(file):
    with duckdb.connect(file) as con:
        dpsql.query(con, AGES, budget=BUDGET)
        con.execute("ALTER TABLE people ADD COLUMN extra BOOLEAN").fetchall()
        for budget in (BUDGET, 0):
            with pytest.raises(dpsql.StaleSchemaError, match="table now and not then: extra"):
                dpsql.query(con, AGES, budget=budget)
        accepted = dpsql.Session(con, accept_schema=True)
        assert accepted.query(AGES, budget=0)["age"].len() == 10
        undetermined(accepted, "SELECT extra, COUNT(*) AS n FROM people GROUP BY extra")


def test_other_rows_are_not_combined(session):
    """Rows without a town don't count in one, and do in the other."""
    some = "SELECT age, COUNT(*) AS n FROM people WHERE town IS NOT NULL GROUP BY age"
    session.query(some, budget=BUDGET)
    before = session.ledger.entries()
    release = session.release(AGES, budget=BUDGET, reuse=True)
    exact_total = 300
    assert abs(release["query"]["n"].sum() - exact_total) < 120
    assert len(session.ledger.entries()) == len(before) + 1


def test_what_a_release_rests_on_is_said(session):
    first = session.release(AGES, budget=BUDGET)
    second = session.release(AGES, budget=BUDGET)
    assert f"entry {first.receipt.seq} " in second.summary()
    assert [e.request for e in second.facts.earlier] == [first.receipt.request]
    free = session.release(AGES, budget=0)
    assert [e.seq for e in free.facts.earlier] == [first.receipt.seq, second.receipt.seq]


def test_what_hardly_helps_is_not_put_together_with_a_plan(monkeypatch):
    """Joint cells of what was asked before have a bound, and need a column of what is asked.

    Each statement was put together with all joint cells before it: 340,000 here, four times.
    """
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE players (name VARCHAR, weight INT CHECK (weight BETWEEN 60 AND 330), "
        "height INT CHECK (height BETWEEN 40 AND 90), hand ENUM('B', 'L', 'R'))"
    )
    con.execute("INSERT INTO players SELECT 'x', 70 + i, 50, 'L' FROM range(50) t(i)")
    joined, written_out = [], combine.written_out

    def noted(placed, cells):
        joined.append(cells * sum(entry.rows for entry, _ in placed))
        return written_out(placed, cells)

    monkeypatch.setattr(combine, "written_out", noted)
    session = dpsql.Session(con)
    entries = []
    for sql in (
        "SELECT CORR(weight, height) AS c FROM players WHERE weight IS NOT NULL AND height IS NOT "
        "NULL",
        "SELECT hand, REGR_SLOPE(weight, height) AS s, REGR_COUNT(weight, height) AS n FROM "
        "players GROUP BY hand",
        "SELECT name LIKE 'x%' AS j, COUNT(*) AS n FROM players WHERE name IS NOT NULL GROUP BY j",
        "SELECT LEAST(LENGTH(name), 12) AS letters, COUNT(*) AS n FROM players GROUP BY letters",
    ):
        session.query(sql, budget=dpsql.Budget(rho=1))
        entries.append(max(joined, default=0))
        joined.clear()
    assert 0 < entries[1] <= combine.PLANNED_ENTRIES  # which tells of the same columns
    assert entries[2:] == [0, 0]


@pytest.mark.parametrize(("asked", "times"), [("age", 1), ("age < 4 AS young", 2)])
def test_statements_are_compiled_again_only_over_finer_cells(session, monkeypatch, asked, times):
    """Ages one by one are as fine as what was asked before; two halves of them are not."""
    session.query("SELECT COUNT(*) AS n FROM people WHERE age < 6", budget=BUDGET)
    compiled, compile_script = [], data.compile_script
    monkeypatch.setattr(
        data, "compile_script", lambda *a, **k: compiled.append(a) or compile_script(*a, **k)
    )
    session.plan(f"SELECT {asked}, COUNT(*) AS n FROM people GROUP BY ALL", budget=BUDGET)
    assert len(compiled) == times
