"""The trees of cells, evaluated in Python, with all that each operation asks of its operands."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest

from dpsql.engines.codes import codes_of
from dpsql.rows.types import BIGINT, HUGEINT
from dpsql.schema import Domain, Schema
from tests.engines.test_codes import CASES, KINDS, RULES, cell, rows
from tests.helpers.described import read_table

DAY, FIRST = 24 * 3600 * 10**6, datetime(1, 1, 1)
LABELS = [
    Domain.labels(["b", "a"]),
    Domain.labels(["b", "a"], nullable=True),
    Domain.labels(["rest", "é", "b"], other="rest"),
]


def seen(value):
    """Days as their numbers, times as microseconds and texts as bytes; all others as they are."""
    if isinstance(value, datetime):
        return (value - FIRST) // timedelta(microseconds=1) + DAY  # so that days are by number
    if isinstance(value, date):
        return value.toordinal()
    if isinstance(value, Decimal):
        return Fraction(value)
    return value.encode() if isinstance(value, str) else value


def ordered(value):
    """What values are compared by: NaN is the largest."""
    nan = isinstance(value, float) and math.isnan(value)
    return (nan, 0 if nan else value)


def compared(sign, left, right):
    if left is None or right is None:
        return None
    left, right = ordered(left), ordered(right)
    return left < right if sign == "<" else left > right


def constant(node):
    kind = node.type.name
    if kind == "DATE":
        return seen(date.fromisoformat(node.text))
    if kind == "TIMESTAMP":
        return seen(datetime.fromisoformat(node.text))
    return float(node.text) if kind == "DOUBLE" else Fraction(node.text)


def cast(node, value):
    """The same value of another type, which has it."""
    of, to = node.parts[0].type, node.type
    if value is None:
        return None
    if to.name == "DATE" and of.name != "DATE":
        return value if isinstance(value, float) else value // DAY
    if to.name == "DOUBLE":
        return float(value)
    if to.is_integer:
        low, high = to.limits
        assert low <= value <= high, node
        assert value == int(value), node
        return int(value)
    return value


def plain(node, given, *, inside):
    """An operation on numbers: nothing is NULL, NaN or infinite, and nothing overflows."""
    assert all(math.isfinite(value) for value in given), node
    left, right = given if len(given) == 2 else (*given, None)
    assert right is None or right > 0 or node.text in {"+", "-"}, node
    assert left >= 0 or not inside or node.text != "//", node
    made = {
        "+": lambda: left + right, "-": lambda: left - right, "/": lambda: left / right,
        "//": lambda: left // right, "floor": lambda: float(math.floor(left)),
    }[node.text]()  # fmt: skip
    if node.type.is_integer:
        low, high = node.type.limits
        assert low <= made <= high, node
    return made


def digits(node, value, *, inside):
    low, high = node.digits
    made = value * 10 ** node.parts[0].type.scale
    assert made == int(made), node
    assert low <= made <= high or not inside, node
    return int(made)


def months(day):
    there = date.fromordinal(day)
    return there.year * 12 + there.month


class Evaluated:
    """A tree, of a value and of what it was brought to.

    Args:
        values: the list of a domain, as bytes and numbers.
        inside: whether `within` was brought between the ends.
    """

    def __init__(self, values, value, within=None, *, inside=True):
        self.values, self.value, self.within, self.inside = values, value, within, inside

    def of(self, node):
        """Evaluate a node."""
        given = [self.of(part) for part in node.parts] if node.operation != "case" else []
        return getattr(self, f"_{node.operation}")(node, *given)

    def _value(self, _):
        return self.value

    def _within(self, _):
        assert self.within is not None
        return self.within

    def _constant(self, node):
        return constant(node)

    def _cell(self, node):
        return int(node.text)

    def _bytes(self, _, value):
        return value

    def _shown(self, _, value):
        return value  # values are given as the clock shows them

    def _there(self, _, value):
        return value is not None

    def _number(self, _, value):
        return value is not None and not math.isnan(value)

    def _between(self, _, value, low, high):
        if value is None:
            return None
        return ordered(low) <= ordered(value) <= ordered(high)

    def _inside(self, _, value, low, high):
        return min(max(low if value is None else value, low, key=ordered), high, key=ordered)

    def _compare(self, node, left, right):
        return compared(node.text, left, right)

    def _coalesce(self, _, value, rest):
        return rest if value is None else value

    def _place(self, _, value):
        return self.values.index(value) + 1 if value in self.values else None

    def _as(self, node, value):
        return cast(node, value)

    def _plain(self, node, *given):
        return plain(node, given, inside=self.inside)

    def _digits(self, node, value):
        return digits(node, value, inside=self.inside)

    def _months(self, _, day):
        return months(day)

    def _since(self, _, last, first):
        assert type(last) is type(first) is int
        return last - first

    def _case(self, node):
        *cases, rest = node.parts
        for condition, result in zip(cases[::2], cases[1::2], strict=True):
            if self.of(condition):
                return self.of(result)
        return self.of(rest)


def found(domain, value, room):
    """Return the cell of a value; its code is right, and total where it isn't asked for."""
    codes, listed = codes_of(domain, room), domain.values
    if isinstance(listed, tuple):
        listed = [seen(v) for v in listed]
    of_value, code = Evaluated(listed, seen(value)), None
    placed, bounded = of_value.of(codes.placed) is True, of_value.of(codes.bounded)
    if bounded is not None:
        code = Evaluated(listed, None, bounded).of(codes.code)
        assert 0 <= code < len(listed)
    stored = None if codes.stored is None or room != HUGEINT else of_value.of(codes.stored)
    if stored is not None:
        made = Evaluated(listed, None, stored, inside=False).of(codes.code)
        assert made == code or not placed
    if placed:
        return int(code)
    keeps = domain.nullable and (value is None or domain.outside != "drop")
    return len(listed) if keeps else None


@pytest.fixture(scope="module")
def con():
    return duckdb.connect()


def described(con, domain, type_):
    con.execute(f"CREATE OR REPLACE TABLE t (x {type_})").fetchall()
    return read_table(con, ("t",), Schema({"t": {"x": domain}})).columns["x"]


@pytest.mark.parametrize(("kind", "type_"), CASES)
def test_trees_give_the_cells_of_the_oracle(con, kind, type_):
    for nullable, outside in RULES:
        given = replace(KINDS[kind][0], nullable=nullable, outside=outside)
        domain = described(con, given, type_)
        for text, value in [*rows(type_), ("NULL", None)]:
            for room in (BIGINT, HUGEINT) if type_ != "UBIGINT" else (HUGEINT,):
                assert found(domain, value, room) == cell(given, type_, value), (text, room)


@pytest.mark.parametrize("domain", LABELS)
def test_trees_of_labels_know_texts_by_their_bytes(con, domain):
    of_column, labels = described(con, domain, "VARCHAR"), list(domain.values)
    for text in ["a", "A", "b", "", "é", "e\u0301", "rest", "x", None]:
        expected = labels.index(text) if text in labels else None
        if expected is None and text is not None and domain.other is not None:
            expected = labels.index(domain.other)
        if expected is None and domain.nullable:
            expected = len(labels)
        assert found(of_column, text, HUGEINT) == expected


def test_trees_of_booleans(con):
    for nullable in (False, True):
        domain = described(con, Domain.boolean(nullable=nullable), "BOOLEAN")
        for value in (False, True):
            assert found(domain, value, HUGEINT) == value
        assert found(domain, None, HUGEINT) == (2 if nullable else None)
