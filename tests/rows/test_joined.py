"""Joined texts tell their values, whatever signs these have, and DuckDB reads what it writes."""

from __future__ import annotations

import itertools

import duckdb
import pytest

from dpsql.rows.expression import RowColumn
from dpsql.rows.found import FoundExpression, joined, joined_text, part_sql, parted
from dpsql.rows.write import RowWriter

TEXTS = [
    "",
    ":",
    ",",
    "0",
    "1:",
    "1,1:",
    ",:",
    "a",
    "é",
    "🤦🏼‍♂️",
    "\\",
    "'",
    "\x00",
    "(other)",
    None,
]
NUMBERS = [0, 1, -1, 10, 2**63 - 1, -(2**63), None]


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a VARCHAR, b VARCHAR, c BIGINT)")
    rows = [
        *itertools.product(TEXTS, TEXTS, NUMBERS[:3]),
        *itertools.product(["a"], ["b"], NUMBERS),
    ]
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    return con


def test_no_two_lists_of_values_have_one_text(con):
    types = {"a": "VARCHAR", "b": "VARCHAR", "c": "BIGINT"}
    written = RowWriter(types).write(joined([RowColumn(name) for name in types])).sql
    rows = con.sql(f"SELECT DISTINCT {written} AS t, a, b, c FROM t").fetchall()
    assert len({text for text, *_ in rows}) == len(rows)
    for text, *values in rows:
        texts = [None if value is None else str(value) for value in values]
        assert joined_text(texts) == text
        assert parted(text, 3) == tuple(texts)


def test_its_values_are_read_by_sql_as_they_were(con):
    types = {"a": "VARCHAR", "b": "VARCHAR", "c": "BIGINT"}
    written = RowWriter(types).write(joined([RowColumn(name) for name in types])).sql
    parts = ", ".join(f"{part_sql('t', n)} IS NOT DISTINCT FROM {name}::VARCHAR"
                      for n, name in enumerate(types))  # fmt: skip
    rows = con.sql(f"SELECT {parts} FROM (SELECT {written} AS t, * FROM t)").fetchall()
    assert rows
    assert {value for row in rows for value in row} == {True}


@pytest.mark.parametrize(
    "text",
    ["", ":", "1:a", "1,1:a", "1,1:abc", "1,1,1:abc", "a,1:bc", "01,1:ab", "²,1:ab", "-1,1:ab",
     "1,99999999999:ab", "(other)", ",", "+1,1:ab"],
)  # fmt: skip
def test_what_was_never_written_is_no_list_of_values(text):
    assert parted(text, 2) is None


def test_their_order_makes_no_other_name():
    types = {"a": "VARCHAR", "b": "INTEGER", "d": "DATE"}
    each = [FoundExpression.of(RowColumn(n), types, frozenset(), part=True) for n in types]
    names = {FoundExpression.together(parts, types).name for parts in itertools.permutations(each)}
    assert len(names) == 1
    pair = FoundExpression.together(each[:2], types)
    assert pair.name not in names
    assert (pair.label, pair.filled) == ("(a, b)", True)
