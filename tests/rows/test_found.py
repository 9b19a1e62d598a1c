"""Expressions whose values can be found: as what, and brought back to which type."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.rows.found import FoundExpression
from dpsql.schema.domain import COLLATED, Domain
from tests.rows.tools import parse

TYPES = {
    "s": "VARCHAR",
    "n": "INTEGER",
    "big": "BIGINT",
    "x": "DOUBLE",
    "d": "DATE",
    "t": "TIMESTAMP",
    "c": COLLATED,
}
FOUND = {
    "upper(s)": ("VARCHAR", "VARCHAR"),
    "substr(s, 1, 3)": ("VARCHAR", "VARCHAR"),
    "year(d)": ("BIGINT", "BIGINT"),
    "n + 1": ("BIGINT", None),
    "CAST(s AS INTEGER)": ("INTEGER", "INTEGER"),
    "floor(x / 10)": ("BIGINT", "DOUBLE"),
    "round(x)": ("BIGINT", "DOUBLE"),
    "round(x, -2)": ("BIGINT", "DOUBLE"),
    "date_trunc('month', t)": ("DATE", "TIMESTAMP"),
    "date_trunc('day', t)": ("DATE", "TIMESTAMP"),
    "CAST(d AS VARCHAR)": ("VARCHAR", "VARCHAR"),
    "CAST(t AS DATE)": None,
    "date_trunc('hour', t)": None,
    "round(x, 2)": None,
    "x / 3": None,
    "s": None,
    "1 + 1": None,
    "upper(c)": None,
    "s || c": None,
}


@pytest.mark.parametrize("sql", FOUND)
def test_values_are_found_as_keys_of_some_type(sql):
    found = FoundExpression.of(parse(duckdb.connect(), sql), TYPES, frozenset())
    if FOUND[sql] is None:
        assert found is None
        return
    type_, own = FOUND[sql]
    assert found is not None
    if own is not None:
        assert (found.type, found.own.sql) == (type_, own)
    assert not found.filled


def test_it_is_filled_where_nothing_can_be_missing():
    con = duckdb.connect()
    for sql, filled, is_filled in (
        ("coalesce(NULL, s)", {}, False),
        ("coalesce(s, 'x')", {}, True),
        ("CAST(s AS INTEGER)", {"s"}, False),
        ("coalesce(s, 'x')", {}, True),
        ("floor(x)", {"x"}, False),
    ):
        found = FoundExpression.of(parse(con, sql), TYPES, frozenset(filled))
        assert found is not None
        assert found.filled == is_filled


def test_keys_of_other_values_types_or_expressions_have_other_names():
    domains = [
        Domain.labels(labels, other="z", nullable=True) for labels in (["a", "z"], ["b", "z"])
    ]
    cases = [("upper(s)", TYPES), ("lower(s)", TYPES), ("CAST(n AS VARCHAR)", TYPES)]
    cases.append(("CAST(n AS VARCHAR)", {**TYPES, "n": "BIGINT"}))
    names = [
        FoundExpression.of(parse(duckdb.connect(), sql), types, frozenset()).key(domain, types).name
        for sql, types in cases
        for domain in domains
    ]
    assert len(set(names)) == len(names)
