"""Keys that nobody knows beforehand: found for a charge, kept, and used in the same session."""

from __future__ import annotations

import json
import os
import traceback
import zlib
from dataclasses import replace
from datetime import date
from fractions import Fraction
from unittest.mock import patch

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.engines.duckdb.key_scores import KeyScan
from dpsql.release import found_keys
from dpsql.release.found_keys import decode_keys
from tests.cli.conftest import stored
from tests.session.tools import forked, key, warm_up

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
MUCH = dpsql.Budget(rho=100)
TABLE = """
    CREATE TABLE planes (tailnum VARCHAR PRIMARY KEY, seats INTEGER);
    INSERT INTO planes SELECT 'N' || i, 10 * (i % 7) FROM range(400) r(i);
    CREATE TABLE flights (
        id INTEGER, tailnum VARCHAR, origin VARCHAR NOT NULL, number SMALLINT, day DATE,
        moment TIMESTAMP, zoned TIMESTAMPTZ, price DOUBLE, late BOOLEAN);
    INSERT INTO flights
    SELECT i, 'N' || (i // 3) % ((i % 17) * 20 + 1), ['JFK', 'LGA', 'EWR'][i % 3 + 1], i % 5,
        DATE '2013-01-01' + (i % 4)::INTEGER, TIMESTAMP '2013-01-01' + to_hours((i % 50)::INTEGER),
        TIMESTAMPTZ '2013-01-01 00:00+00', i / 7, i % 2 = 0
    FROM range(40000) r(i);
"""
BY_TAILNUM = "SELECT tailnum, COUNT(*) AS n FROM flights GROUP BY tailnum"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "air.duckdb"
    path.write_bytes(stored(TABLE))
    return path


@pytest.fixture
def con(file):
    with duckdb.connect(file) as con:
        yield con


@pytest.fixture
def session(con):
    return dpsql.Session(con)


def states(session):
    return session.history["state"].to_list()


def find(session, column="tailnum", **given):
    return session.find_keys("flights", column, **{"budget": BUDGET, **given})


# ── found, kept, and used ────────────────────────────────────────────────────────────────────────


def test_found_keys_are_the_domain_of_the_same_session(session, con):
    with pytest.raises(dpsql.SchemaError, match="no public domain"):
        session.query(BY_TAILNUM, budget=MUCH)
    found = find(session)
    counts = dict(con.execute(BY_TAILNUM).fetchall())
    assert {k for k, n in counts.items() if n > 80} <= {*found.keys} < {*counts}
    answers = session.query(BY_TAILNUM, budget=MUCH)
    assert set(answers["tailnum"]) == {*found.keys, "(other)", None}
    assert answers["n"].sum() == pytest.approx(40_000, abs=20)
    top = answers.filter(pl.col("tailnum") == "N0")["n"].item()
    assert top == pytest.approx(counts["N0"], abs=5)
    assert session.ledger.spent_delta == Fraction(1, 10**10)


def test_they_are_paid_once_whoever_asks_again(session, file, con):
    found = find(session)
    spent = session.ledger.spent, session.ledger.spent_delta
    for budget in (BUDGET, 0, dpsql.Budget(rho=1)):
        assert find(session, budget=budget, keys=dpsql.Keys(0.5)) == found
    other = dpsql.Session(con)
    assert find(other, "TAILNUM", budget=0).keys == found.keys
    assert set(other.query(BY_TAILNUM, budget=MUCH)["tailnum"]) >= {*found.keys}
    third = dpsql.Session(con, schema={"flights": {"tailnum": found.domain}})
    assert set(third.query(BY_TAILNUM, budget=MUCH)["tailnum"]) >= {*found.keys}
    assert (session.ledger.spent - 2 * MUCH.mu_squared, session.ledger.spent_delta) == spent


def test_new_ones_are_paid_for_if_that_is_asked(session):
    first, second = find(session), find(session, refresh=True)
    assert first.request != second.request
    assert first.keys != second.keys
    assert session.ledger.spent_delta == Fraction(2, 10**10)
    assert find(session) == second
    assert set(session.query(BY_TAILNUM, budget=MUCH)["tailnum"]) == {*second.keys, "(other)", None}


def test_numbers_and_days_that_are_not_found_count_as_null(session):
    numbers = find(session, "number")
    assert numbers.keys == (0, 1, 2, 3, 4)
    days, times = find(session, "day"), find(session, "moment")
    assert days.keys == tuple(date(2013, 1, i) for i in range(1, 5))
    assert times.keys == (date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3))
    for sql, each in (
        ("SELECT number, COUNT(*) AS n FROM flights GROUP BY number", numbers),
        ("SELECT day, COUNT(*) AS n FROM flights GROUP BY day", days),
        ("SELECT CAST(moment AS DATE) AS d, COUNT(*) AS n FROM flights GROUP BY 1", times),
    ):
        answers = session.query(sql, budget=MUCH)
        assert set(answers[answers.columns[0]]) == {*each.keys, None}
        assert answers["n"].sum() == pytest.approx(40_000, abs=2)


def test_several_columns_and_a_join_with_a_public_table(con):
    session = dpsql.Session(con, public=["planes"])
    found = find(session)
    assert set(find(session, "origin").keys) == {"JFK", "LGA", "EWR"}
    both = "SELECT tailnum, origin, COUNT(*) AS n FROM flights GROUP BY ALL"
    answers = session.query(both, budget=MUCH)
    assert answers.height == (len(found) + 2) * 4  # origin is never NULL: its other label
    seats = "SELECT seats, COUNT(*) AS n FROM flights JOIN planes USING (tailnum) GROUP BY seats"
    assert session.query(seats, budget=MUCH)["n"].sum() > 10_000


def test_other_labels(session):
    found = find(session, other="the rest")
    assert found.domain.other == "the rest"
    again = find(session, other=found.keys[0])
    assert again.keys == found.keys[1:]
    assert set(session.query(BY_TAILNUM, budget=MUCH)["tailnum"]) == {*found.keys, None}


def test_what_is_found_says_by_which_rule(session):
    found = find(session, keys=dpsql.Keys(at_least=100, max_keys=7))
    assert len(found) == len(found.keys) == 7
    assert found.least(0.95) == 100
    assert found.probability(100) >= 0.95 > found.probability(99)
    assert found.threshold == pytest.approx(80, abs=1)
    assert repr(found).startswith("<FoundKeys: 7 of flights.tailnum ('N")
    assert "keys of 80 units are found every other time, of 100 in 95 % of cases" in repr(found)


def test_views_and_frames(con):
    con.execute("CREATE VIEW late AS SELECT tailnum, day FROM flights WHERE late")
    session = dpsql.Session(con)
    found = session.find_keys("late", "tailnum", budget=BUDGET)
    again = session.find_keys("late", "tailnum", budget=0)
    assert again == found
    by = "SELECT tailnum, COUNT(*) AS n FROM late GROUP BY tailnum"
    assert set(session.query(by, budget=MUCH)["tailnum"]) >= {*found.keys}
    with pytest.raises(dpsql.BudgetError):
        find(session, budget=0)
    frame = dpsql.Session(con.sql("FROM flights").pl())
    assert "N0" in frame.find_keys("self", "tailnum", budget=BUDGET).keys


def test_a_new_vintage_has_keys_of_its_own(con):
    first = dpsql.Session(con, vintage="2013")
    find(first)
    second = dpsql.Session(con, vintage="2014")
    with pytest.raises(dpsql.BudgetError, match="before"):
        find(second, budget=0)
    find(second)
    assert first.ledger.spent_delta == Fraction(2, 10**10)


# ── units ────────────────────────────────────────────────────────────────────────────────────────


def test_units_with_several_keys(con):
    """Also between releases: the description of the table changes, and nothing has to be said."""
    session = dpsql.Session(con, unit="id", max_rows=3)
    con.execute(
        "INSERT INTO flights (id, tailnum, origin) SELECT i, 'N1', 'JFK' FROM range(500) r(i)"
    )
    by_late = "SELECT late, COUNT(*) AS n FROM flights GROUP BY late"
    session.query(by_late, budget=MUCH)
    found = find(session)
    assert len(found.rule.rounds) == 2
    assert found.rule.rounds[0].most == 3
    session.query(BY_TAILNUM, budget=MUCH)
    assert set(find(session, "origin").keys) == {"JFK", "LGA", "EWR"}
    by = "SELECT tailnum, origin, COUNT(*) AS n FROM flights GROUP BY ALL"
    assert session.query(by, budget=MUCH)["n"].sum() == pytest.approx(40_500, abs=400)
    other = dpsql.Session(con, unit="id", max_rows=3)
    find(other, budget=0)
    find(other, "origin", budget=0)
    assert not other.query(by, budget=0).is_empty()


def test_groups_bound_the_keys_of_a_unit_where_rows_have_no_bound(con):
    session = dpsql.Session(con, unit=dpsql.Unit("id", max_groups=2))
    assert find(session).rule.rounds[0].most == 2


def test_a_unit_is_no_key(con):
    session = dpsql.Session(con, unit="id", max_rows=3)
    with pytest.raises(dpsql.SchemaError, match="of which unit a row is") as caught:
        find(session, "id")
    assert "COUNT(DISTINCT id)" in caught.value.hint


def test_units_without_a_bound(con):
    session = dpsql.Session(con, unit="id")
    with pytest.raises(dpsql.SchemaError) as caught:
        find(session)
    assert "max_rows" in caught.value.hint
    assert states(session) == []


def test_rows_of_several_units(con):
    con.execute("CREATE TABLE owners (owner INTEGER, tailnum VARCHAR)")
    unit = dpsql.Unit("owners.owner", 2, references={"flights.tailnum": "owners.tailnum"})
    session = dpsql.Session(con, unit=unit)
    with pytest.raises(dpsql.SchemaError, match="several units") as caught:
        find(session, "origin")
    assert "FOREIGN KEY" in caught.value.hint


# ── accounts ─────────────────────────────────────────────────────────────────────────────────────


def test_all_of_a_total_goes_as_far_as_its_delta(con):
    session = dpsql.Session(con, budget=BUDGET, key_delta=1e-10)
    find(session, keys=dpsql.Keys(0.25))
    assert session.ledger.spent_delta == Fraction(1, 4 * 10**10)
    find(session, "origin", keys=dpsql.Keys(0.25))
    left = session.ledger.remaining
    assert left == session.ledger.total / 2
    find(session, "number", budget=dpsql.Budget(rho=left / 2))
    assert session.ledger.remaining == session.ledger.remaining_delta == 0
    with pytest.raises(dpsql.BudgetError):
        find(session, "day")
    assert find(session, "origin").keys == ("EWR", "JFK", "LGA")


def test_delta_is_used_up(con):
    session = dpsql.Session(con, budget=MUCH, key_delta=1e-10)
    find(session, keys=dpsql.Keys(delta=1e-10), budget=dpsql.Budget(rho=1))
    with pytest.raises(dpsql.BudgetError, match="Not enough δ"):
        find(session, "origin", budget=dpsql.Budget(rho=1))
    assert len(states(session)) == 1


@pytest.mark.parametrize(
    "total", [{"budget": BUDGET, "key_delta": 0}, {"budget": dpsql.Budget(rho=1)}]
)
def test_a_total_without_delta(con, total):
    session = dpsql.Session(con, **total)
    for budget in (BUDGET, dpsql.Budget(rho=0.001)):
        with pytest.raises(dpsql.BudgetError, match="sets no δ aside") as caught:
            find(session, budget=budget)
        assert "key_delta" in caught.value.hint
    assert states(session) == []


def test_budgets_without_delta(session):
    with pytest.raises(dpsql.BudgetError) as caught:
        find(session, budget=dpsql.Budget(rho=0.1))
    assert "keys=dpsql.Keys(delta=" in caught.value.hint
    found = find(session, budget=dpsql.Budget(rho=0.1), keys=dpsql.Keys(delta="1e-10"))
    assert found.rule.mu_squared == Fraction(1, 5)
    assert found.rule.delta == session.ledger.spent_delta == Fraction(1, 10**10)


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given_", "error", "match"),
    [
        ({"column": "nothing"}, dpsql.SchemaError, "no column"),
        ({"column": 3}, dpsql.SchemaError, "no column"),
        ({"column": "late"}, dpsql.SchemaError, "has a public domain"),
        ({"column": "price"}, dpsql.SchemaError, "DOUBLE"),
        ({"column": "zoned"}, dpsql.SchemaError, "TIME ZONE"),
        ({"table": "planets"}, dpsql.SchemaError, "planets"),
        ({"table": "planes"}, dpsql.SchemaError, "public"),
        ({"table": 3}, dpsql.ArgumentError, "no table"),
        ({"budget": None}, dpsql.BudgetError, "no budget"),
        ({"budget": True}, dpsql.BudgetError, "must be"),
        ({"budget": 0}, dpsql.BudgetError, "before"),
        ({"budget": 0, "refresh": True}, dpsql.BudgetError, "paid"),
        ({"refresh": 1}, dpsql.ArgumentError, "refresh"),
        ({"keys": 3}, dpsql.ArgumentError, "Keys"),
        ({"other": ""}, dpsql.ArgumentError, "label"),
        ({"progress": 3}, dpsql.ArgumentError, "progress"),
        ({"share": 3}, dpsql.ArgumentError, "share"),
    ],
)
def test_what_is_refused_costs_nothing(con, given_, error, match):
    session = dpsql.Session(con, public=["planes"])
    asked = {"table": "flights", "column": "tailnum", "budget": BUDGET, **given_}
    with pytest.raises(error, match=match) as caught:
        session.find_keys(**asked)
    assert caught.value.hint
    assert states(session) == []


def test_no_key_is_found(con):
    con.execute("CREATE TABLE few AS SELECT i AS n, 'x' || i AS t FROM range(500) r(i)")
    session = dpsql.Session(con)
    found = session.find_keys("few", "t", budget=BUDGET)
    assert found.keys == ()
    assert found.domain.values == ("(other)",)
    answers = session.query("SELECT t, COUNT(*) AS n FROM few GROUP BY t", budget=MUCH)
    assert set(answers["t"]) == {"(other)", None}
    found = session.find_keys("few", "n", budget=BUDGET)
    assert found.keys == ()
    with pytest.raises(dpsql.SchemaError, match="No value of n was found") as caught:
        _ = found.domain
    assert "refresh=True" in caught.value.hint
    assert "46" in str(caught.value)
    con.execute("DELETE FROM few")
    assert session.find_keys("few", "t", budget=BUDGET, refresh=True).keys == ()


# ── what fails after the charge ──────────────────────────────────────────────────────────────────


def failing(*_):
    raise RuntimeError("N0 has 600 rows")
    yield


def test_a_failure_tells_nothing_and_is_free_once(session):
    with patch.object(KeyScan, "run", failing), pytest.raises(dpsql.ExecutionError) as caught:
        find(session)
    assert caught.value.__context__ is None
    assert "N0" not in "".join(traceback.format_exception(caught.value))
    assert states(session) == ["failed"]
    find(session)
    assert states(session) == ["delivered"]
    assert session.ledger.spent_delta == Fraction(1, 10**10)


def test_a_failure_after_noise_was_drawn_is_paid_for(session):
    run = KeyScan.run

    def breaking(*given):
        yield from run(*given)
        raise RuntimeError("N0 has 600 rows")

    with patch.object(KeyScan, "run", breaking), pytest.raises(dpsql.ExecutionError):
        find(session)
    assert states(session) == ["charged"]
    find(session)
    assert session.ledger.spent_delta == Fraction(2, 10**10)


def test_an_interrupt_stays_one(session):
    def interrupted(*_):
        raise KeyboardInterrupt("N0 has 600 rows")
        yield

    with patch.object(KeyScan, "run", interrupted), pytest.raises(KeyboardInterrupt) as caught:
        find(session)
    assert not caught.value.args
    assert states(session) == ["charged"]
    assert len(find(session)) > 0


@pytest.mark.parametrize("refresh", [False, True])
def test_a_crash_between_finding_and_answering_hands_out_the_same(session, refresh):
    if refresh:
        find(session)
    before = session.ledger.spent_delta
    with (
        patch.object(session.ledger, "deliver", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        find(session, refresh=refresh)
    assert states(session)[-1] == "released"
    content = session.ledger.content(session.ledger.entries()[-1])
    found = find(session, refresh=refresh)
    assert {text for text, _, _ in decode_keys(content).told} == {*found.keys}
    assert states(session)[-1] == "delivered"
    assert session.ledger.spent_delta == before + Fraction(1, 10**10)
    assert find(session, refresh=True).request != found.request


def test_a_process_that_dies_leaves_its_keys_to_the_next(file):
    warm_up()

    def die():
        with duckdb.connect(file) as con:
            session = dpsql.Session(con)
            with patch.object(session.ledger, "deliver", lambda _: os._exit(0)):
                find(session)

    os.waitpid(forked(die), 0)
    with duckdb.connect(file) as con:
        session = dpsql.Session(con)
        assert states(session) == ["released"]
        found = find(session, refresh=True)
        assert states(session) == ["delivered"]
        assert found.request == session.ledger.entries()[0].request
        assert len(found) > 0


def test_progress_and_what_a_ledger_keeps(session):
    told = []
    found = find(session, progress=lambda *step: told.append(step))
    assert told[0] == ("finding keys", 0, 1)
    content = session.ledger.content(session.ledger.entries()[0])
    kept = decode_keys(content)
    assert kept.encode() == content
    assert {text for text, _, _ in kept.told} == {*found.keys}
    assert kept.rule == found.rule
    document = json.loads(zlib.decompress(content.removeprefix(found_keys._MARK)))
    assert document.pop("complete")  # which the first version of this didn't write
    old = found_keys._MARK + zlib.compress(json.dumps(document).encode())
    assert decode_keys(old) == replace(kept, complete=False)
    for broken in (b"", content[:-3], content[1:], found_keys._MARK, found_keys._MARK + b"{}"):
        with pytest.raises(dpsql.ReleaseFormatError):
            decode_keys(broken)


def test_answers_do_not_depend_on_the_order_of_rows(con):
    """Found and other are the same set, sorted by bytes, whatever the order of rows was."""
    con.execute("CREATE TABLE back AS FROM flights ORDER BY id DESC")
    session = dpsql.Session(con)
    much = dpsql.Budget(rho=10**6)
    given = {"budget": much, "keys": dpsql.Keys(delta=0.01)}
    one = session.find_keys("flights", "tailnum", **given)
    two = session.find_keys("back", "tailnum", **given)
    assert one.keys == two.keys == tuple(sorted(one.keys, key=str.encode))
    assert key(session.query(BY_TAILNUM, budget=MUCH).select("tailnum"))


# ── refusals of columns without a domain ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("column", ["tailnum", "origin", "number", "day", "moment"])
def test_a_refusal_names_first_by_which_argument_keys_are_found(session, column):
    sql = f"SELECT {column}, COUNT(*) AS n FROM flights GROUP BY {column}"
    with pytest.raises(dpsql.SchemaError, match="no public domain") as caught:
        session.query(sql, budget=BUDGET)
    first, _, rest = caught.value.hint.partition(",")
    name, _, value = first.removeprefix("pass ").partition("=")
    given = {name: eval(value, {"dpsql": dpsql})}  # noqa: S307
    assert session.query(sql, budget=BUDGET, **given).height > 1
    assert not session.query(sql, budget=MUCH).is_empty()
    assert "dpsql.Schema(" in rest
    assert caught.value.hint.command.startswith("pass --keys 0.5, ")


def test_what_the_refusal_says_of_the_cost():
    for most in (1, 2, 10, 1000):
        assert 60 < dpsql.Keys(0.5).rule(BUDGET, most).least(0.95) < 82


@pytest.mark.parametrize(
    ("given_", "column"),
    [({}, "price"), ({}, "zoned"), ({"unit": "id"}, "tailnum"), ({"budget": MUCH}, "tailnum")],
)
def test_a_refusal_names_no_call_that_would_be_refused(con, given_, column):
    session = dpsql.Session(con, **given_)
    with pytest.raises(dpsql.SchemaError) as caught:
        session.query(f"SELECT {column}, COUNT(*) FROM flights GROUP BY {column}", budget=MUCH)
    assert "Keys()" not in caught.value.hint
    assert "Domain" in caught.value.hint
