"""Releases of several tables that choose by the data what they measure."""

from __future__ import annotations

import random
from fractions import Fraction
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.engines import several
from dpsql.errors import ExecutionError, InternalError, UndeterminedError
from dpsql.measurement import guarded, narrow
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.guarded import GuardedCounts
from dpsql.planner.mechanisms import aim_rounds
from dpsql.planner.mechanisms.aim_rounds import Estimates
from dpsql.release.measurements import decode, encode
from dpsql.session import planning
from tests.helpers.counting import recorded_statements
from tests.helpers.interrupted import interrupted
from tests.release.saved import replace_file
from tests.release.test_combined_rows import declared
from tests.release.test_private_joins import TABLES, shop
from tests.session import test_several_tables
from tests.session.test_several_tables import by_key, owned, plain, units

HUGE = dpsql.Budget(rho=Fraction(10**13))
BUDGET = dpsql.Budget(rho=Fraction(1, 2))
SCRIPT = {
    "regions": "SELECT region, vip, COUNT(*) AS n FROM customers GROUP BY region, vip",
    "status": "SELECT status, region, COUNT(*) AS n FROM orders GROUP BY status, region",
    "north": """SELECT status, COUNT(*) AS n FROM orders JOIN customers c ON customer_id = c.id
        WHERE c.region = 'n' GROUP BY status""",
    "items": """SELECT qty, status, COUNT(*) AS n FROM items JOIN orders o ON o.id = order_id
        GROUP BY qty, status""",
    "total": "SELECT COUNT(*) AS n FROM customers",
    "both": """SELECT region, COUNT(*) AS n FROM (SELECT region FROM customers
        UNION ALL SELECT region FROM orders) GROUP BY region""",
    "average": "SELECT AVG(qty) AS a FROM items",
}
AIM = {"mechanism": "aim"}


con, session = test_several_tables.con, test_several_tables.session


# ── answers ────────────────────────────────────────────────────────────────────────────────


def test_answers_are_those_of_the_database(con, session):
    release = session.release(SCRIPT, budget=HUGE, **AIM)
    for name in SCRIPT.keys() - {"average"}:
        exact, found = by_key(owned(con, SCRIPT[name]), 1), by_key(plain(release[name]), 1)
        assert exact.items() <= found.items()
        assert all(found[key] == (0,) for key in found.keys() - exact.keys())
    ((true,),) = owned(con, SCRIPT["average"])
    assert release["average"]["a"][0] == pytest.approx(true, rel=1e-3)
    assert release["regions"].columns == ["region", "vip", "n"]
    assert release.facts.rmse is None
    assert session.ledger.spent == HUGE.mu_squared


def test_at_most_so_many_rows_of_a_unit_count_in_each_table(con):
    session = dpsql.Session(con, schema=units(orders=2))
    script = {"c": SCRIPT["total"], "o": "SELECT COUNT(*) AS n FROM orders"}
    release = session.release(script, budget=HUGE, **AIM)
    kept = "SELECT SUM(LEAST(n, 2)) FROM (SELECT COUNT(*) AS n FROM orders GROUP BY customer_id)"
    assert round(release["o"]["n"][0]) == owned(con, kept)[0][0]
    assert round(release["c"]["n"][0]) == 30


def test_rows_of_two_tables_that_meet_are_a_table_beside_others(con):
    session = dpsql.Session(con, schema=declared())
    script = {
        "met": """SELECT o.status, a.city, COUNT(*) AS n FROM orders o
            JOIN addresses a ON o.customer_id = a.customer_id GROUP BY ALL""",
        "regions": SCRIPT["regions"],
        "orders": SCRIPT["status"],
    }
    release = session.release(script, budget=HUGE, **AIM)
    for name, sql in script.items():
        exact, found = by_key(owned(con, sql), 1), by_key(plain(release[name]), 1)
        assert exact.items() <= found.items()
    assert len(release.facts.tables) == 3


def test_answers_are_not_negative_and_have_no_variances(session):
    release = session.release(SCRIPT, budget=BUDGET, **AIM)
    for name in SCRIPT:
        assert not [c for c in release[name].columns if c.endswith("_variance")]
    for name in SCRIPT.keys() - {"average"}:
        assert (release[name]["n"] >= 0).all()
    described = release.columns("both")
    assert described["reason"].drop_nulls().unique().to_list() == [
        "biased: chosen and fitted by the data"
    ]
    summary = " ".join(release.summary().split())
    assert "Release of customers, orders, items" in summary
    assert "at most 1 of customers, 20 of orders, 50 of items of each unit count" in summary
    assert "they are biased" in summary


def test_mechanisms_are_compared(session):
    found = session.compare(SCRIPT, budget=BUDGET).frame.filter(pl.col("mechanism") == "aim")
    assert "by the data" in found["note"][0]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(DISTINCT customer_id) AS n FROM orders",
        "SELECT SUM(price * qty) AS s FROM items JOIN orders o ON o.id = order_id",
        "SELECT AVG(price - qty) AS s FROM items JOIN orders o ON o.id = order_id",
    ],
)
def test_sums_and_units_are_refused_before_the_charge(session, sql):
    script = {"total": SCRIPT["total"], "other": sql}
    with pytest.raises(dpsql.MechanismError, match="sums of their values nor numbers") as caught:
        session.release(script, budget=BUDGET, **AIM)
    assert not session.ledger.entries()
    names = caught.value.hint.removeprefix("mechanisms that can: ").rstrip(".").split(", ")
    assert "aim" not in names
    assert session.release(script, budget=BUDGET, mechanism=names[-1]).charged


# ── what is kept ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def saved(session, tmp_path):
    release = session.release(SCRIPT, budget=BUDGET, out=tmp_path / "r", **AIM)
    return release, tmp_path / "r"


def test_a_release_is_saved_and_loaded_and_not_asked_more(session, saved):
    release, path = saved
    loaded = dpsql.Release.load(path, ledger=session.ledger)
    for name in SCRIPT:
        assert_frame_equal(loaded[name], release[name])
    assert loaded.facts.adaptive
    assert loaded.summary() == release.summary()
    assert {s.reading for s in loaded.sources} == {"adaptive"}
    assert len({s.table for s in loaded.sources}) == 3
    assert not any("orders" in name for s in loaded.sources for name in s.sizes)
    assert encode(decode(encode(loaded.sources))) == encode(release.sources)
    for ask in (release.query, loaded.query, lambda sql: session.query(sql, budget=0)):
        for sql in (SCRIPT["total"], SCRIPT["both"]):
            with pytest.raises(UndeterminedError):
                ask(sql)


def test_later_releases_rest_on_nothing_of_it(session, saved):
    fresh = session.plan(SCRIPT["status"], budget=BUDGET, reuse=False)
    assert session.plan(SCRIPT["status"], budget=BUDGET).rmse == pytest.approx(fresh.rmse)


@pytest.mark.parametrize(
    "change",
    [
        lambda sources: sources[::-1],
        lambda sources: sources[:-1],
        lambda sources: (*sources, sources[-1]),
        lambda sources: tuple(s for s in sources if s.table != sources[0].table),
    ],
)
def test_measurements_that_were_changed_are_noticed(session, saved, change):
    _, path = saved
    name = "release.measurements.parquet"
    replace_file(path, name, encode(change(decode((path / name).read_bytes()))))
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(path, ledger=session.ledger)


def test_a_table_of_which_nothing_can_be_measured_is_kept_all_the_same(con, tmp_path):
    session = dpsql.Session(con, schema=units(items=10**6))
    tiny = dpsql.Budget(rho=Fraction(1, 10**12))
    release = session.release(SCRIPT, budget=tiny, out=tmp_path / "r", **AIM)
    found = {source.table: bool(source.blocks) for source in release.sources}
    assert sorted(found.values()) == [False, True, True]
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    assert_frame_equal(loaded["regions"], release["regions"])


# ── interruptions ──────────────────────────────────────────────────────────────────────────


def test_what_was_measured_and_not_handed_out_is_had_again(session, monkeypatch):
    with interrupted(planning.MeasuredRounds) as made:
        session.release(SCRIPT, budget=BUDGET, **AIM)
    (entry,) = session.ledger.entries()
    assert entry.state == "released"
    with recorded_statements() as counting:
        again = session.release(SCRIPT, budget=BUDGET, **AIM)
    assert not counting
    assert session.ledger.spent == BUDGET.mu_squared
    assert again.receipt.request == entry.request
    for name in SCRIPT:
        assert_frame_equal(again[name], made[0][name], rel_tol=1e-5)
    assert encode(again.sources) == session.ledger.content(entry)
    fresh = session.release(SCRIPT, budget=BUDGET, **AIM)
    assert fresh.receipt.request != entry.request


CUT = {
    "rich": "SELECT balance > 500 AS rich, COUNT(*) AS n FROM customers GROUP BY ALL",
    "dear": "SELECT price // 100 AS p, price > 50 AS dear, COUNT(*) AS n FROM orders GROUP BY ALL",
    "long": "SELECT length(note) > 0 AS l, vip, COUNT(*) AS n FROM customers GROUP BY ALL",
    "few": "SELECT COUNT(*) AS n FROM items JOIN orders o ON o.id = order_id WHERE price < qty",
}


def test_cells_that_conditions_cut_are_found_again(con, session):
    """Of columns and expressions of each table, from what the ledger has."""
    with interrupted(planning.MeasuredRounds) as made:
        session.release(CUT, budget=HUGE, **AIM)
    again = session.release(CUT, budget=HUGE, **AIM)
    assert session.ledger.spent == HUGE.mu_squared
    for name, sql in CUT.items():
        assert_frame_equal(again[name], made[0][name], rel_tol=1e-5)
        exact, answers = by_key(owned(con, sql), 1), by_key(plain(again[name]), 1)
        assert exact.items() <= answers.items()


def test_estimates_follow_from_what_was_kept(session, monkeypatch):
    seen, real = [], Estimates.of

    def keep(plan, measured):
        seen.append(real(plan, measured))
        return seen[-1]

    with interrupted(planning.MeasuredRounds):
        session.release(SCRIPT, budget=BUDGET, **AIM)
    monkeypatch.setattr(Estimates, "of", keep)
    session.release(SCRIPT, budget=BUDGET, **AIM)
    (estimates,) = seen
    of = {one.measure for some in estimates.measured for one in some}
    assert of == {"customers", "orders", "items"}


# ── the charge ─────────────────────────────────────────────────────────────────────────────


def test_counts_with_a_larger_bound_than_is_paid_for_are_not_looked_at(session, monkeypatch):
    """Whoever counts says that units have more rows than the plan was made for."""
    real = several.CountedTable

    def careless(of, *rest):
        more = of.rows + (of.name == "orders")
        return real(type(of)(of.name, more), *rest)

    monkeypatch.setattr("dpsql.session.answer.CountedTable", careless)
    session.release(SCRIPT, budget=BUDGET, **AIM)  # the bound is the table's, whatever was planned
    ran, bounds = [], several._CountedPart.bounds

    def larger(self, counted):
        yield from ((name, most + (name == "orders")) for name, most in bounds(self, counted))

    monkeypatch.setattr(several._CountedPart, "bounds", larger)
    for name in ("measure", "choose", "compare"):
        monkeypatch.setattr(GuardedCounts, name, lambda *_: ran.append(1))
    with pytest.raises(ExecutionError):
        session.release(SCRIPT, budget=BUDGET, **AIM)
    assert not ran


class Seen:
    """What a release was asked, of what, and at which price, with made up outputs."""

    def __init__(self) -> None:
        self.statements, self.asked, self.exact, self.prices = [], [], [], []
        self.frames, self.made_up = {}, np.random.default_rng(3)

    def measure(self, counts, block):
        before = counts._allowance.spent
        with patch.object(narrow, "draw", lambda law, n, bits: np.zeros(n, dtype=np.int64)):
            exact = MEASURE(counts, block)
        self.asked.append((block.spaces, block.law, [f.content for f in block.factors]))
        self.exact.append((exact.astype(object), block.law.width))
        self.prices.append(counts._allowance.spent - before)
        return self.made_up.integers(-(10**6), 10**7, exact.shape)

    def choose(self, counts, candidates, epsilon):
        given = []

        def drawn(scores, steepness, bits):
            given.append((np.array(scores, dtype=object), steepness))
            return int(self.made_up.integers(len(scores)))

        with patch.object(guarded, "exponential_mechanism", drawn):
            chosen = CHOOSE(counts, candidates, epsilon)
        self.asked.append((tuple(candidates), epsilon, given[0][1]))
        self.exact.append(given[0])
        self.prices.append(selection_cost(epsilon))
        return chosen


MEASURE, CHOOSE = GuardedCounts.measure, GuardedCounts.choose


def seen(con, schema, script) -> Seen:
    found = Seen()
    with (
        recorded_statements() as found.statements,
        patch.object(GuardedCounts, "measure", lambda c, block: found.measure(c, block)),
        patch.object(GuardedCounts, "choose", lambda c, *given: found.choose(c, *given)),
    ):
        release = dpsql.Session(con, schema=schema).release(script, budget=BUDGET, **AIM)
    found.frames = {name: release[name] for name in script}
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(4))
def test_neighbors_differ_by_what_is_charged_for_each_step(seed):
    """Without one customer, with all rows in all tables, and the same outputs: the same statements
    and steps, of which each would tell the two apart by no more than it was paid for."""
    rng = random.Random(seed)  # noqa: S311
    schema = units(rng.choice([1, 2, 5]), rng.choice([1, 4]))
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con, seed=seed, customers=8, apart=3)
    whole = seen(con, schema, SCRIPT)
    shop(con, seed=seed, customers=8, apart=3, without=3)
    fewer = seen(con, schema, SCRIPT)
    assert (whole.statements, whole.asked) == (fewer.statements, fewer.asked)
    assert whole.prices == fewer.prices
    assert 0 < sum(whole.prices) <= BUDGET.mu_squared
    for name, frame in whole.frames.items():
        assert_frame_equal(frame, fewer.frames[name], check_exact=True)
    differ, choices = set(), 0
    pairs = zip(whole.exact, fewer.exact, whole.asked, whole.prices, strict=True)
    for (ours, of), (theirs, _), asked, price in pairs:
        change = (ours - theirs).ravel()
        if isinstance(of, int):  # noise of this variance
            assert Fraction(sum(int(d) ** 2 for d in change), of) <= price
            differ |= {names[-1] for names in asked[0] if change.any()}
        else:  # of scores: its range is at most ε
            assert of * int(change.max() - change.min()) <= asked[1]
            assert 2 * of * int(np.abs(change).max()) <= asked[1]
            choices += change.any()
    assert "customers" in differ
    assert choices


def test_counts_of_no_table_are_refused(session, monkeypatch):
    """A counter that forgets the axis of a table's counts, and so what a unit adds."""
    from dpsql.engines.base import Counted

    caught, run = [], aim_rounds.run

    def forgetful(charged, counted):
        bare = {names: counted[names] for names in counted}
        names = next(iter(bare))
        bare[names[:-1]] = bare.pop(names)[..., 0]
        try:
            return run(charged, Counted(bare, 1, counted.bounds))
        except InternalError as error:
            caught.append(str(error))
            raise

    monkeypatch.setattr(aim_rounds, "run", forgetful)
    with pytest.raises(ExecutionError):
        session.release(SCRIPT, budget=BUDGET, **AIM)
    assert "missing" in caught[0]
