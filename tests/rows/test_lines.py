"""Lines of columns: whatever a row holds, its interval says what each expression is."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import datetime

import pytest

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.cuts import Cutter, above, constant_at, ends, only_cycle, place, starts, text_at
from dpsql.rows.expression import RowColumn, RowConstant, columns
from dpsql.rows.key import cycle, line
from dpsql.rows.types import row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import coarser, cut_at, lines_of, together
from tests.rows.test_total import hostile_rows
from tests.rows.tools import HOSTILE, TYPES, Random, benign, connect, create, parse

TEXTS = [
    "x < 10", "x >= 50 OR x < -3.5", "x <> 0", "x > 0", "x > -5", "5 >= x", "isnan(x)", "isinf(x)",
    "isfinite(x) AND x <> 0", "x BETWEEN -1 AND 3", "x IN (1, 2.5, '7')", "NOT x < 1e308",
    "CASE WHEN x < 10 THEN 'a' WHEN x > 1e300 THEN 'b' END", "x IS DISTINCT FROM 3", "x IS NULL",
    "coalesce(x > 3, false)", "i > 9.5", "b <= 7e0", "i IN (-2147483648, 2147483647)", "b < 9e15",
    "p < 10.005", "q BETWEEN 5 AND 5.005", "CASE WHEN p BETWEEN 0 AND 1 THEN p END",
    "CASE WHEN i BETWEEN 0 AND 5 THEN i * i END", "(a < 5) = (a < 7)", "d >= '2001-01-01'",
    "CASE WHEN d BETWEEN '2001-01-01' AND '2001-02-01' THEN week(d) END", "d = DATE '2020-02-29'",
    "t >= '2001-01-01' AND t < TIMESTAMP '2002-01-01'", "t::DATE = DATE '2001-01-01'",
    "t::DATE > DATE '2001-01-01'", "t > '1969-12-31 23:59:59.999999'",
    "CASE WHEN t >= '2001-01-15' AND t < '2002-01-01' THEN date_trunc('quarter', t) END",
    "CASE WHEN t >= '2001-01-15' AND t < '2001-01-17' THEN hour(t) END",
    "CASE WHEN t >= '2001-01-15' AND t < '2001-07-17' THEN strftime(t, '%Y-%m') END",
    "CASE WHEN d > '1999-12-30' AND d <= '2001-01-02' THEN isoyear(d) END",
    "CASE WHEN d > '1999-12-30' AND d <= '2001-01-02' THEN monthname(d) ELSE 'other' END",
]  # fmt: skip
NOT_KNOWN = [
    "x + 1 > 3", "floor(x)", "hour(t)", "date_trunc('month', t)", "d >= TIMESTAMP '2001-01-01'",
    "p > 1e-1", "b < 1e17", "i", "a * 2", "CASE WHEN x > 0 THEN x END", "second(t) > 3",
    "CASE WHEN b > 5 THEN b END", "x > 0.12345678901234567", "d <= '9999-12-31'",
    "d = '9999-12-31'", "d BETWEEN '2001-01-01' AND '9999-12-31'", "d >= '0001-01-01'",
    "t <= '9999-12-31 23:59:59.999999'", "t::DATE <= DATE '9999-12-31'", "t < '0001-01-01'",
]  # fmt: skip


@pytest.fixture(scope="module")
def con():
    con = connect()
    create(con, hostile_rows() + benign(300, seed=3))
    return con


def cut(con, text, within=None):
    expression = parse(con, text)
    (name,) = columns(expression)
    cutter = Cutter(RowColumn(name), row_type(TYPES[name]))
    return name, expression, cutter.cuts_of(expression, within or cutter.everything)


def check(con, name, expression, axis):
    """Compare the value of each row with that of its interval, also right at the cuts."""
    sql = RowWriter(TYPES).write(expression).sql
    known, values = list(axis.key.domain.values), []
    for cell in axis.cells:
        listed = ", ".join("(NULL)" if v is None else f"('{v}')" for v in cell)
        rows = f"(SELECT CAST(v AS {TYPES[name]}) AS {name} FROM (VALUES {listed}) AS r(v))"
        ((value,),) = con.execute(f"SELECT DISTINCT CAST({sql} AS VARCHAR) FROM {rows}").fetchall()
        values.append(value)
        numbers = con.execute(f"SELECT DISTINCT {axis.key.value.sql} FROM {rows}").fetchall()
        ((number,),) = numbers
        where = len(axis.cells) - 1 if number is None else known.index(number)
        assert where == len(values) - 1
    query = f"SELECT {axis.key.value.sql}, CAST({sql} AS VARCHAR), CAST({name} AS VARCHAR) FROM r"
    for number, value, row in con.execute(query).fetchall():
        assert values[-1 if number is None else known.index(number)] == value, row


@pytest.mark.sampled(18)
@pytest.mark.parametrize("text", TEXTS)
def test_the_interval_of_a_row_says_what_an_expression_is(con, text):
    name, expression, cuts = cut(con, text)
    assert cuts is not None
    check(con, name, expression, line(name, TYPES[name], sorted(cuts), nullable=True))


@pytest.mark.parametrize("text", NOT_KNOWN)
def test_what_changes_elsewhere_is_on_no_line(con, text):
    assert cut(con, text)[2] is None


class OneColumn(Random):
    """Random expressions of one column, most of which change at a few of its values."""

    def __init__(self, seed, name):
        super().__init__(seed, hostile=True)
        self.name = name

    def value(self):
        if self.name in "dt":
            dates = "2001-01-01", "1969-12-31", "2020-02-29", "2000-06-30"
            kind = "TIMESTAMP" if self.name == "t" else "DATE"
            return f"{kind} '{self.pick(*dates)}'"
        return self.pick("0", "3", "-7", "0.5", "99.99", "1000", "2147483647", "1e1")

    def number(self, depth):
        return self.value() if depth == 0 else self.name

    def condition(self, depth):
        if depth == 0:
            comparison = self.pick("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM")
            one, other = self.value(), self.value()
            return self.pick(
                f"({self.name} {comparison} {one})", f"({one} {comparison} {self.name})",
                f"({self.name} BETWEEN {one} AND {other})", f"({self.name} IN ({one}, {other}))",
                f"({self.name} IS NULL)",
                f"CASE WHEN {self.name} >= {one} AND {self.name} < {other} THEN {self.part()} END",
            )  # fmt: skip
        r = depth - 1
        return self.pick(
            f"({self.condition(r)} {self.pick('AND', 'OR')} {self.condition(r)})",
            f"(NOT {self.condition(r)})", f"coalesce({self.condition(r)}, false)",
            f"({self.condition(r)} = {self.condition(r)})",
            f"CASE WHEN {self.condition(r)} THEN true WHEN {self.condition(r)} THEN false END",
        )  # fmt: skip

    def part(self):
        if self.name not in "dt":
            return f"{self.name} > 1"
        unit = self.pick("month", "year", "quarter", "isoyear", "decade")
        return f"date_part('{unit}', {self.name}) > 5"


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(900))
def test_random_expressions_on_lines(con, seed):
    text = OneColumn(seed, "xtibdpqa"[seed % 8]).condition(1 + seed % 3)
    try:
        name, expression, cuts = cut(con, text)
    except ValueError:
        return  # there is no column in it
    if cuts is not None:
        check(con, name, expression, line(name, TYPES[name], sorted(cuts), nullable=True))


@pytest.mark.parametrize("text", [
    "quarter(t)", "monthname(d)", "month(t) IN (1, 2)", "dayofweek(d) = 0", "dayname(t)",
    "CASE WHEN isodow(t) > 5 THEN 'weekend' END", "hour(t) < 12", "minute(t) // 15", "day(d)",
    "second(t)", "strftime(t, '%H')", "strftime(d, '%A') = 'Monday'", "strftime(t, '%b (%m)')",
])  # fmt: skip
def test_parts_of_a_time_follow_from_the_one_that_comes_again(con, text):
    expression = parse(con, text)
    (name,) = columns(expression)
    axis = cycle(name, TYPES, only_cycle(expression, RowColumn(name)), frozenset())
    check(con, name, expression, axis)


@pytest.mark.parametrize("text", ["month(t) + hour(t)", "t IS NULL OR month(t) = 1", "year(t)"])
def test_other_functions_of_a_time_follow_from_no_part(con, text):
    assert only_cycle(parse(con, text), RowColumn("t")) == ""


@pytest.mark.parametrize("name", list("aibpqxdt"))
def test_places_have_the_order_of_values(con, name):
    """Of each value beside each other one, as DuckDB compares them."""
    type_ = row_type(TYPES[name])
    least, most = ends(type_)
    kind = {"x": "DOUBLE", "d": "DATE", "t": "TIMESTAMP"}.get(name)
    kind = kind or ("DECIMAL" if type_.name == "DECIMAL" else "INTEGER")
    found = {}
    for text in HOSTILE[name]:
        point = text + "." * (kind == "DECIMAL" and "." not in text)
        with suppress(UnsupportedSqlError):  # infinite dates are no constants
            found[text] = place(RowConstant(kind, point), type_)
    assert all(least <= p <= most for p in found.values() if p is not None)
    for (one, p), (other, q) in itertools.product(found.items(), repeat=2):
        if p is not None and q is not None:
            sql = f"SELECT CAST(? AS {TYPES[name]}) < CAST(? AS {TYPES[name]})"
            assert con.execute(sql, [one, other]).fetchone() == (p < q,)
    for p in filter(None, found.values()):
        if least < p < most:
            assert (
                place(constant_at(p, type_), type_) == p == above(constant_at(p, type_), type_) - 1
            )
            sql = f"SELECT CAST(? AS {TYPES[name]}) < CAST(? AS {TYPES[name]})"
            assert con.execute(sql, [text_at(p - 1, type_), text_at(p, type_)]).fetchone() == (
                True,
            )


def test_intervals_along_more_cuts_lie_in_those_along_fewer():
    fine, coarse = (1, 5, 9, 12), (5, 12)
    assert coarser(fine, coarse, nullable=True) == [0, 0, 1, 1, 2, 3]
    assert coarser(fine, (), nullable=False) == [0] * 5
    assert together([{"a": (1, 5)}, {"a": (3,), "b": ()}]) == {"a": (1, 3, 5), "b": ()}
    assert lines_of({"a": f"row:{cut_at(fine)}", "b": "row:" + "0" * 64, "c": cut_at(())}) == {
        "a": fine, "c": ()
    }  # fmt: skip
    with pytest.raises(ValueError):
        lines_of({"a": "cut at 5 3"})


def test_periods_begin_where_the_calendar_says():
    low, high = datetime(2019, 12, 30, 5), datetime(2020, 3, 1)
    weeks = list(starts("week", low, high))
    assert weeks[0] == datetime(2020, 1, 6)
    assert len(weeks) == 8
    assert [m.month for m in starts("month", low, high)] == [1, 2]
    assert list(starts("quarter", low, high)) == [datetime(2020, 1, 1)]
    low, high = datetime(9999, 12, 29, 22), datetime(9999, 12, 31, 23, 59, 30)
    found = {p: len(list(starts(p, low, high))) for p in ("week", "day", "hour", "month")}
    assert found == {"week": 0, "day": 2, "hour": 49, "month": 0}
