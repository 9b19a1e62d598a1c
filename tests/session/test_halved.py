"""Several quantiles of the same rows, drawn together by halving: charged once, kept, told of."""

from __future__ import annotations

import itertools
from fractions import Fraction
from unittest.mock import patch

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBRanking
from dpsql.engines.ranked import RankWindow, by_group
from dpsql.measurement import halving, quantiles
from dpsql.session import draws as drawing
from tests.session.test_draws import (
    BUDGET,
    MUCH,
    ROWS,
    SCHEMA,
    charged,
    duckdb_copy,
    failing,
    forge,
    session,
)

QUARTILES = ", ".join(
    f"QUANTILE_DISC(delay, {p}) AS {name}" for name, p in (("a", 0.25), ("b", 0.5), ("c", 0.75))
)
ALL = f"SELECT {QUARTILES} FROM f"
BY_CAR = f"SELECT car, {QUARTILES} FROM f GROUP BY car"
HALVES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))


@pytest.fixture(autouse=True)
def halved(monkeypatch):
    """Halve with any budget: what is drawn is seen best with large ones."""
    monkeypatch.setattr(halving, "ROUNDED", 0)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute(f"CREATE TABLE f AS {ROWS}").fetchall()
    return con


@pytest.mark.parametrize(
    "value", ["delay", "price", "tip", "day", "f.at", "partly", "delay // 100"]
)
@pytest.mark.parametrize("by", ["", "car", "ROLLUP (car)"])
def test_what_is_drawn_are_the_quantiles(con, value, by):
    """Of values of any type that can be drawn, also where many rows have the same one."""
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    of = ", ".join(f"QUANTILE_DISC({value}, {p}) AS q{n}" for n, p in enumerate(shares))
    key, group = ("", "") if not by else ("car, ", f" GROUP BY {by}")
    release = session(con).release(
        f"SELECT {key}{of} FROM f{group}", budget=dpsql.Budget(rho=10**7)
    )
    sets = 2 if "ROLLUP" in by else 1  # of which each is drawn by itself
    assert len({one.charge for one in release.facts.drawn}) == sets
    order = "" if not by else " ORDER BY car NULLS LAST"
    found = release["query"] if not by else release["query"].sort("car", nulls_last=True)
    for n, p in enumerate(shares):
        ends = [
            con.sql(f"SELECT QUANTILE_DISC({value}, {p + off}) AS q FROM f{group}{order}").pl()["q"]
            for off in (-0.002, 0.002)
        ]
        drawn = found[f"q{n}"]
        if ends[0].dtype.is_numeric():
            drawn, ends = drawn.cast(pl.Float64), [end.cast(pl.Float64) for end in ends]
        assert drawn.null_count() == 0
        assert drawn.is_between(*ends).all()


@pytest.mark.parametrize("rows", [4, 10, 97])
def test_with_a_large_budget_each_is_drawn_by_itself_and_exact(con, monkeypatch, rows):
    """A cut of ten rows moves the quartiles by one, which no budget makes up for."""
    monkeypatch.setattr(halving, "ROUNDED", 1)
    con.execute(f"CREATE TABLE few AS SELECT range * 3 AS delay FROM range({rows})").fetchall()
    release = dpsql.query(con, [ALL.replace("FROM f", "FROM few")], budget=MUCH)
    assert [one.among for one in release.facts.drawn] == [()] * 3
    exact = con.execute(ALL.replace("FROM f", "FROM few")).fetchone()
    assert release["query_1"].select("a", "b", "c").row(0) == exact
    small = dpsql.query(con, [ALL], budget=dpsql.Budget(epsilon=1, delta=1e-9))
    assert all(one.among for one in small.facts.drawn)


def test_they_are_charged_for_once(con):
    asked = session(con)
    release = asked.release(BY_CAR, budget=dpsql.Budget(rho=0.02))
    assert charged(asked) == Fraction(2, 100)
    assert len(asked.ledger.entries()) == 2
    drawn = release.facts.drawn
    assert {one.charge.mu_squared / 2 for one in drawn} == {Fraction(18, 1000)}
    assert {one.among for one in drawn} == {HALVES}
    (epsilon,) = {one.epsilon for one in drawn}
    cost = 2 * quantiles.selection_cost(epsilon)
    assert drawn[0].charge.mu_squared * Fraction(999, 1000) < cost <= drawn[0].charge.mu_squared


def test_a_pure_budget_is_divided_among_the_levels(con):
    asked = dpsql.Session(con, schema=SCHEMA, unit="person", max_rows=3)
    release = asked.release(ALL, budget=dpsql.Budget(epsilon=1, delta=0), mechanism="laplace")
    assert {one.epsilon for one in release.facts.drawn} == {Fraction(9, 10) / 3 / 2}
    amounts = [dpsql.Budget(epsilon=of, delta=0).mu_squared for of in (0.9, 0.1)]
    assert [entry.mu_squared for entry in asked.ledger.entries()] == amounts


def test_each_of_them_is_free_later(con):
    asked = session(con)
    first = asked.query(BY_CAR, budget=dpsql.Budget(rho=0.02))
    before = charged(asked)
    for name, p in (("c", "0.75"), ("a", "0.25")):
        sql = f"SELECT car, QUANTILE_CONT(delay, {p}) AS q FROM f GROUP BY car"
        assert asked.query(sql, budget=0)["q"].to_list() == first[name].to_list()
    other_way = BY_CAR.replace("0.25", "0.3").replace("0.75", "0.25").replace("0.3", "0.75")
    again = asked.query(other_way, budget=0)
    assert again["c"].to_list() == first["a"].to_list()
    assert charged(asked) == before
    for other in ("FROM f WHERE price > 3", "FROM f"):
        sql = f"SELECT QUANTILE_DISC(delay, 0.25) AS q {other}"  # other groups, other rows
        with pytest.raises(dpsql.UndeterminedError):
            asked.query(sql, budget=0)


def test_what_was_drawn_before_is_taken_along(con):
    asked = session(con)
    one = asked.query("SELECT MEDIAN(delay) AS b FROM f", budget=dpsql.Budget(rho=0.02))
    release = asked.release(ALL, budget=dpsql.Budget(rho=0.02))
    assert release["query"]["b"].to_list() == one["b"].to_list()
    assert [len(of.among) for of in release.facts.drawn] == [0, 0, 0]  # of two nothing is gained
    more = ALL.replace(" FROM", ", QUANTILE_DISC(delay, 0.1) AS d, QUANTILE_DISC(delay, 0.6) AS e, "
                       "QUANTILE_DISC(delay, 0.9) AS g FROM")  # fmt: skip
    drawn = asked.release(more, budget=dpsql.Budget(rho=0.02)).facts.drawn
    assert [len(of.among) for of in drawn] == [0, 0, 0, 3, 3, 3]
    assert drawn[3].among == (Fraction(1, 10), Fraction(6, 10), Fraction(9, 10))


@pytest.mark.parametrize(
    ("of", "among"),
    [
        ("MIN(delay) AS l, MEDIAN(delay) AS m, MAX(delay) AS h", [0, 0, 0]),
        (f"MIN(delay) AS l, MAX(delay) AS h, {QUARTILES}", [0, 0, 3, 3, 3]),
        (f"{QUARTILES}, QUANTILE_DISC(price, 0.25) AS l", [3, 3, 3, 0]),
        ("QUANTILE_DISC(delay, 0.5) AS a, QUANTILE_DISC(delay, 0.8) AS b", [0, 0]),
        ("QUANTILE_DISC(delay, 0.97) AS a, QUANTILE_DISC(delay, 0.98) AS b, "
         "QUANTILE_DISC(delay, 0.99) AS c, QUANTILE_DISC(delay, 0.995) AS d", [4, 4, 4, 4]),
        ("MEDIAN(delay) AS a, QUANTILE_DISC(delay, 0.9) AS b, QUANTILE_DISC(delay, 0.99) AS c",
         [0, 0, 0]),
        ("QUANTILE_DISC(delay, 0.5) AS a, QUANTILE_DISC(delay, 0.9) AS b, "
         "QUANTILE_DISC(delay, 0.3) FILTER (WHERE car = 'a') AS c", [0, 0, 0]),
    ],
)  # fmt: skip
def test_those_are_drawn_together_that_are_better_then(con, of, among):
    drawn = session(con).release(f"SELECT {of} FROM f", budget=MUCH).facts.drawn
    assert [len(one.among) for one in drawn] == among


def test_with_next_to_no_budget_each_is_drawn_by_itself(con):
    """Halving would look at each of very many rows that tie."""
    sql = "SELECT QUANTILE_DISC(x, 0.25) AS a, MEDIAN(x) AS b, QUANTILE_DISC(x, 0.75) AS c FROM t"
    con.execute("CREATE OR REPLACE TABLE t AS SELECT 1 AS x FROM range(1_000_000)").fetchall()
    for rho, together in ((1e-2, True), (1e-11, False)):
        release = dpsql.query(con, [sql], budget=dpsql.Budget(rho=rho))
        assert [bool(one.among) for one in release.facts.drawn] == [together] * 3


def test_plans_say_how_far_off_each_will_be(con):
    plan = dpsql.plan(con, ALL, budget=BUDGET)
    apart = ALL.replace("delay, 0.5", "price, 0.5").replace("delay, 0.75", "price, 0.75")
    alone = dpsql.plan(con, apart, budget=BUDGET)
    together = [note for note in plan.notes if "is drawn with 2 others, for ρ = 0.0149" in note]
    assert len(together) == 3
    assert "about 5.7 rows off" in together[0]
    assert "about 9.4 rows off" in alone.notes[0]
    said = " ".join(session(con).release(ALL, budget=BUDGET).summary().split())
    assert all(note.partition("together: ")[2].partition(". It")[0] in said for note in together)


def test_releases_are_saved_with_them(con, tmp_path):
    asked = session(con)
    release = asked.release({"cars": BY_CAR}, budget=BUDGET)
    release.save(tmp_path / "r")
    again = dpsql.Release.load(tmp_path / "r", ledger=asked.ledger)
    assert again["cars"].equals(release["cars"])
    assert again.facts.drawn == release.facts.drawn
    assert again.marks("cars").equals(release.marks("cars"))
    sql = "SELECT car, QUANTILE_DISC(delay, 0.75) - 1 AS q FROM f GROUP BY car"
    assert again.query(sql)["q"].to_list() == [q - 1 for q in release["cars"]["c"]]


@pytest.mark.parametrize(
    "among",
    [[], ["1/4", "1/2", "9/10"], ["1/2", "3/4", "4/5"], ["1/4", "1/2"], ["3/4", "1/2", "1/4"],
     ["1/4", "1/3", "1/2", "3/4"], ["1/4", "1/4", "1/4"], ["0/1", "1/4", "1/2"], "x"],
)  # fmt: skip
def test_what_a_folder_says_of_them_is_what_the_ledger_has(con, tmp_path, among):
    asked = session(con)
    asked.release(ALL, budget=BUDGET).save(tmp_path / "r")
    forge(tmp_path / "r", "among", among)
    with pytest.raises((dpsql.LedgerError, dpsql.ReleaseFormatError)):
        dpsql.Release.load(tmp_path / "r", ledger=asked.ledger)


def test_a_failure_while_rows_are_read_pays_for_the_next(con):
    """Nothing is drawn before all is read that is near one of them."""
    asked = session(con, budget=dpsql.Budget(rho=0.04))
    with patch.object(DuckDBRanking, "run", failing), pytest.raises(dpsql.ExecutionError) as told:
        asked.query(ALL, budget=dpsql.Budget(rho=0.02))
    assert "secret" not in str(told.value)
    assert charged(asked) == Fraction(18, 1000)
    assert asked.query(ALL, budget=dpsql.Budget(rho=0.02)).height == 1
    assert charged(asked) == Fraction(2, 100)


def test_a_failure_after_noise_is_not_free(con):
    asked = session(con, budget=dpsql.Budget(rho=0.02))
    with patch.object(drawing.KeptQuantiles, "of", failing), pytest.raises(dpsql.ExecutionError):
        asked.query(ALL, budget=dpsql.Budget(rho=0.01))
    asked.query(ALL, budget=dpsql.Budget(rho=0.01))
    assert charged(asked) == Fraction(19, 1000)


def test_a_unit_changes_as_many_rows_of_parts_as_is_charged(con):
    """One unit's rows, of all groups: rows of parts that any cuts make are its own, or none."""
    seen = []

    def noted(charged, ranking, *_):
        plan = charged.certified
        near = ranking.run(plan.windows)
        every = ranking.run([RankWindow(Fraction(1, 2), 10**9)])
        assert near.places.size <= every.places.size
        seen.append((plan, every))
        return [[0] * plan.groups for _ in plan.probabilities]

    sql = f"SELECT car, {QUARTILES} FROM f GROUP BY ROLLUP (car)"
    for without in (None, 7):
        other = duckdb_copy(con)
        other.execute("DELETE FROM f WHERE person = ?", [without]).fetchall()
        asked = dpsql.Session(other, schema=SCHEMA, unit="person", max_rows=4)
        with patch.object(drawing, "draw_quantiles", noted):
            asked.query(sql, budget=BUDGET)
    assert len(seen) == 4  # of each set of groups its own
    for ((plan, before), (same, after)), places in itertools.product(
        zip(seen[:2], seen[2:], strict=True), ((-10, 200, 700), (13, 13, 13), (100, 444, 445))
    ):
        assert plan == same
        changed = [
            one - other
            for group in range(plan.groups)
            for one, other in zip(
                *(sizes(of, by_group(of)(group), places, plan) for of in (before, after)),
                strict=True,
            )
        ]
        assert all(0 <= rows <= 4 for rows in changed)
        assert 0 < sum(changed) <= 4 * plan.most


def sizes(found, own, places, plan):
    """How many rows are between cuts at some places."""
    size = int(found.sizes[own][0])
    ends = halving._Cut(plan.line.low, 0), halving._Cut(plan.line.high, size)
    of = halving._PartRows.of(found, own, *ends)
    with patch.object(halving, "uniform_below", lambda count, _: count // 4):
        left = [of.drawn_at(place, None) for place in places]
    return [other - one for one, other in zip([0, *left], [*left, size], strict=True)]


# ── What was drawn, and what remembers it ────────────────────────────────────────────────────────


@pytest.mark.parametrize("last", [0, 1])
def test_of_two_draws_of_the_same_the_later_one_is_handed_out(con, last):
    asked, each = session(con), ("SELECT MEDIAN(delay) AS b FROM f", ALL)
    for sql in (each[1 - last], each[last]):
        asked.query(sql, budget=dpsql.Budget(rho=0.02), reuse=False)
    drawn = asked.release(each[0], budget=0).facts.drawn
    assert len(drawn) == 1
    assert drawn[0].charge.seq == asked.ledger.entries()[2].seq  # each draws, and counts
    assert len(drawn[0].among) == (0, 3)[last]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize(("step", "again"), [("check", 0), ("run", Fraction(45, 10000))])
def test_an_end_between_draws_leaves_what_was_drawn_to_the_next_session(
    tmp_path, kind, step, again
):
    """The same values again, for nothing: only a draw that had read rows is paid for again."""
    sql = ALL.replace(" FROM", ", QUANTILE_DISC(price, 0.25) AS d FROM")
    budget, seen, inner = dpsql.Budget(rho=0.02), [], getattr(DuckDBRanking, step)

    def ended(*given):
        seen.append(given)
        if len(seen) == 2:
            raise kind("secret")
        return inner(*given)

    def opened():
        return dpsql.Session(tmp_path / "f.db", schema=SCHEMA, budget=dpsql.Budget(rho=1))

    with duckdb.connect(tmp_path / "f.db") as made:
        made.execute(f"CREATE TABLE f AS {ROWS}").fetchall()
    with opened() as asked, patch.object(DuckDBRanking, step, ended), pytest.raises(kind) as told:
        asked.query(sql, budget=budget)
    assert told.value.__context__ is None
    with opened() as asked:
        assert charged(asked) == Fraction(135, 10000) + again
        kept = asked.query(ALL, budget=dpsql.Budget(rho=0.001))  # of which all counts rows
        release = asked.release(sql, budget=budget)
        assert release["query"].select(*"abc").equals(kept.select(*"abc"))
        amounts = [of.charge.mu_squared / 2 for of in release.facts.drawn]
        assert amounts == [Fraction(135, 10000)] * 3 + [Fraction(45, 10000)]
        spent = charged(asked)
        assert spent == Fraction(135, 10000) + again + Fraction(1, 1000) + Fraction(2, 100)
        assert asked.release(sql, budget=0)["query"].equals(release["query"])
        assert charged(asked) == spent


@pytest.mark.parametrize("sign", [-1, 1])
def test_rows_beyond_an_end_of_the_line_are_tied_there(sign):
    """A row more among 200,000 of which most are beyond: cuts divide as many of them as before."""
    con, seen = duckdb.connect(), []

    def noted(charged, ranking, *_):
        plan = charged.certified
        found = ranking.run(plan.windows)
        found.check(plan.groups, plan.line, 3)
        seen.append((plan, found))
        return [[0] * plan.groups for _ in plan.probabilities]

    schema = dpsql.Schema({"t": {"x": dpsql.Domain.number(-1000, 1000)}})
    con.execute(f"CREATE TABLE t AS SELECT {sign} * (900 + range) AS x FROM range(200_000)")
    sql = "SELECT " + ", ".join(f"QUANTILE_DISC(x, {p}) AS q{p}" for p in (25, 50, 75)) + " FROM t"
    sql = sql.replace("x, ", "x, 0.")
    for number in (1, 0):
        con.execute(f"INSERT INTO t SELECT {sign} * 5000 FROM range({1 - number})")
        with patch.object(drawing, "draw_quantiles", noted):
            dpsql.query(con, sql, schema=schema, budget=BUDGET)
    (plan, before), (same, after) = seen
    assert plan == same
    assert before.places.tolist() == after.places.tolist()
    own = before.places == 1000 * sign
    assert (before.upto - before.below)[own].tolist() == [199_900]
    assert (after.upto - after.below)[own].tolist() == [199_901]
