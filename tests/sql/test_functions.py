"""The table of functions: what is written, and what runs on rows."""

import duckdb
import pytest
from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.sql.binding.expressions import SCALARS
from dpsql.sql.text.parse import parse_statement
from tests.rows.tools import parse

CALLED = [one for one in SCALARS if one.sandbox.isidentifier()]
ARGUMENTS = ["a", "a, b", "'day', b", "a, 'b'", "a, 2", "'day', a, b", "a, b, c", ""]


@pytest.fixture(scope="module")
def con():
    return duckdb.connect()


@pytest.mark.parametrize("one", [o for o in CALLED if isinstance(o.written, str)])
def test_what_has_a_name_only_has_no_class(one):
    (call,) = parse_statement(f"SELECT {one.written}(a, b)").query.expressions
    assert isinstance(call, exp.Anonymous)


@pytest.mark.parametrize("one", CALLED, ids=lambda one: one.sandbox)
def test_the_last_column_says_what_is_read_as_an_expression_of_rows(con, one):
    read = False
    for arguments in ARGUMENTS:
        try:
            parse(con, f"{one.sandbox}({arguments})")
        except (UnsupportedSqlError, AssertionError):
            continue
        read = True
    assert read is one.on_rows
