"""Sums, means and extremes of doubles among rows of a unit: the same in whatever order."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from statistics import fmean

import duckdb
import pytest
from sqlglot import exp

import dpsql
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.request import Request, named
from dpsql.rows.expression import RowColumn
from dpsql.rows.windows import DIGITS, in_steps, scale_of
from dpsql.rows.write import RowWriter
from dpsql.schema.names import quoted_name
from dpsql.sql.algebra.unit_sums import without_steps
from dpsql.sql.binding.expressions import render
from tests.helpers.inserted import insert

BUDGET = dpsql.Budget(rho=10**12)
HOSTILE = (
    math.nan, math.inf, -math.inf, -0.0, 0.0, None, 5e-324, 1e308, -1e308, 0.1, 0.2, 0.3, 1e16,
    -1e16, 100.0, -100.0, 99.99999999999999, 1 / 3,
)  # fmt: skip
SQL = (
    "SELECT COUNT(*) FROM people p WHERE (SELECT {} FROM visits v WHERE v.person = p.id) > 1 "
    "GROUP BY ()"
)
LOW, HIGH = -100, 100


def visits(seed, persons=6):
    """Return rows of persons, with hostile numbers among others."""
    rng = random.Random(seed)  # noqa: S311
    numbers = [*HOSTILE, *(round(rng.uniform(-120, 120), 2) for _ in range(20))]
    return [(rng.randrange(persons), rng.choice(numbers)) for _ in range(rng.choice([40, 400]))]


def opened(rows, persons=6, threads=1):
    con = duckdb.connect()
    con.execute(f"SET threads = {threads}")
    con.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)").fetchall()
    con.execute(
        "CREATE TABLE visits (person INTEGER NOT NULL REFERENCES people (id), x DOUBLE)"
    ).fetchall()
    insert(con, "people", [(i,) for i in range(persons)])
    insert(con, "visits", rows)
    return con


def declared(con, low=LOW, high=HIGH):
    unit = dpsql.Unit("people", {"people": 1, "visits": 400})
    bounds = {"visits": {"x": dpsql.Domain.number(low, high)}}
    return dpsql.Session(con, schema=dpsql.Schema(bounds, units={"people": unit, "visits": unit}))


def computed(con, *wanted, low=LOW, high=HIGH):
    """Return what persons have of their visits, as SQL sees it."""
    session = declared(con, low, high)
    found = []
    for one in wanted:
        request = Request(named(SQL.format(one)), BUDGET)
        script = session._data.declared.compile(request)
        (table,) = script.tables
        (column,) = table.added
        (key,) = script.keys.values()
        _, agg = column.computed
        sql = name = quoted_name(column.name)
        if agg.function in {"sum", "avg"}:
            sql = key.value.parts[0].sql  # what is compared with 1
            assert sql != name
        rows = con.execute(
            f"SELECT id, {sql} FROM ({kept_rows(table, ['id', column.name])}) AS r(id, {name})"
        ).fetchall()
        found.append({id_: repr(value) for id_, value in rows})
    return found


def expected(rows, function, persons=6):
    """Return the same by fractions: of what lies outside, the nearer bound."""
    inside: dict[int, list[float]] = {person: [] for person in range(persons)}
    for person, x in rows:
        if x is not None and not math.isnan(x):
            inside[person].append(min(max(x, LOW), HIGH))
    return {person: function(values) if values else None for person, values in inside.items()}


@pytest.mark.parametrize("seed", range(8))
def test_of_whatever_order_they_are_the_same(seed):
    rows = visits(seed)
    found = computed(opened(rows), "SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)")
    for again in range(3):
        shuffled = random.Random(again).sample(rows, len(rows))  # noqa: S311
        con = opened(shuffled, threads=1 + again)
        assert computed(con, "SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)") == found


@pytest.mark.parametrize("seed", range(8))
def test_they_are_those_of_the_numbers_between_the_bounds(seed):
    rows = visits(seed)
    sums, means = computed(opened(rows), "SUM(x)", "AVG(x)")
    for function, there in ((math.fsum, sums), (fmean, means)):
        for person, value in expected(rows, function).items():
            found = there[person]
            assert (found == "None") == (value is None)
            assert value is None or float(found) == pytest.approx(value, abs=1e-9)


def test_short_decimals_add_up_to_their_sum():
    """Where doubles don't: 0.1 + 0.2 is not 0.3, and 1e16 hides what is added to it."""
    cents = [0.1] * 10 + [0.2, 0.7, 19.99, 8.01]
    (sums,) = computed(opened([(0, x) for x in cents]), "SUM(x)")
    assert sums[0] == repr(29.9)
    (sums,) = computed(opened([(0, x) for x in cents]), "SUM(x)", low=0, high=10**6)
    assert sums[0] == repr(29.9)


def test_the_least_and_the_largest_are_stored_values():
    rows = [(0, 1 / 3), (0, -0.0), (1, 0.0), (1, -0.0), (2, math.nan), (2, -7.25), (3, math.inf)]
    least, largest = computed(opened(rows), "MIN(x)", "MAX(x)")
    assert [least[i] for i in range(5)] == ["0.0", "0.0", "-7.25", "inf", "None"]
    assert [largest[i] for i in range(5)] == [repr(1 / 3), "0.0", "nan", "inf", "None"]


@pytest.mark.parametrize("seed", range(4))
def test_a_person_takes_only_its_own_with_it(seed):
    rows = visits(seed)
    wanted = ("SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)", "SUM(x * x)", "AVG(x / 7)")
    whole = computed(opened(rows), *wanted)
    for gone in range(6):
        fewer = computed(opened([row for row in rows if row[0] != gone]), *wanted)
        for before, after in zip(whole, fewer, strict=True):
            assert {**before, gone: "None"} == after


@pytest.mark.parametrize(
    ("largest", "scale"),
    [(1000, 10), (100, 11), (1, 13), (Fraction(1, 2), 13), (0, 22), (10**13, 0), (10**20, -7),
     (10**35, -22), (10**36, None)],
)  # fmt: skip
def test_a_number_is_at_most_so_many_steps(largest, scale):
    assert scale_of((Fraction(0), Fraction(largest))) == scale
    assert scale_of((-Fraction(largest), Fraction(0))) == scale
    assert scale is None or Fraction(largest) * Fraction(10) ** scale <= 10**DIGITS
    assert scale_of((None, Fraction(largest))) is None


def test_steps_are_read_back_as_the_number():
    con = duckdb.connect()
    for scale in (-7, 0, 2, 13):
        there = RowWriter({"x": "DOUBLE"}).write(in_steps(RowColumn("x"), scale)).sql
        back = render(without_steps(exp.column("n"), scale))
        sql = f"SELECT {back} FROM (SELECT {there} AS n FROM (SELECT ?::DOUBLE AS x))"
        for x in (0.0, 12.0, -12.5, 10.0**12):
            step = Fraction(10) ** -scale
            ((found,),) = con.execute(sql, [x]).fetchall()
            if abs(Fraction(x)) / step < 2**53:
                assert abs(Fraction(found) - Fraction(x)) <= step / 2


def test_other_bounds_make_another_column():
    """What is rounded to other steps is never taken for it."""
    names = []
    for low, high in ((0, 100), (0, 100), (0, 1000)):
        session = declared(opened([(0, 1.5)]), low, high)
        request = Request(named(SQL.format("SUM(x)")), BUDGET)
        (table,) = session._data.declared.compile(request).tables
        names.append(table.added[0].name)
    assert names[0] == names[1] != names[2]


def test_without_bounds_they_are_asked_for():
    con = opened([(0, 1.5)])
    session = dpsql.Session(con, unit=dpsql.Unit("people", {"people": 1, "visits": 9}))
    with pytest.raises(dpsql.DpsqlError, match="column x has no public bounds") as caught:
        session.plan({"q": SQL.format("SUM(x)")}, budget=BUDGET)
    assert "Domain.number(" in str(caught.value.hint)
    session.plan({"q": SQL.format("MAX(x)")}, budget=BUDGET)
