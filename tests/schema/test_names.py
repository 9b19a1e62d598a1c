"""Names in SQL: those in quotes that mean something else without, and no others."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.schema.names import KEYWORDS, as_sql


def test_all_words_of_duckdb_are_known_that_are_no_names():
    kinds = "('reserved', 'type_function')"
    words = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category IN "
    assert {word for (word,) in duckdb.connect().sql(words + kinds).fetchall()} == KEYWORDS


@pytest.mark.parametrize("name", ["order", "End", "LEFT", "true", "a b", "1a", "é", 'a"b', "name"])
def test_a_name_is_itself_wherever_it_is_typed(name):
    con = duckdb.connect()
    typed = as_sql(name)
    assert typed == name or name != "name"
    con.execute(f"CREATE TABLE t AS SELECT 7 AS {typed}").fetchall()
    assert con.sql(f"SELECT upper({typed}::VARCHAR) FROM t").fetchall() == [("7",)]
    assert con.sql("FROM t").columns == [name]
