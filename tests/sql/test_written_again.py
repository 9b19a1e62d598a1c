"""Every documented function, in every position of CASE and IF, is read in one way only."""

import re
from functools import cache
from itertools import product
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp

from dpsql.errors import Span, SqlError, SqlParseError
from dpsql.sql.binding.expressions import SCALARS
from dpsql.sql.text.parse import check_written, parse_statement

PAGE = Path(__file__).parents[2] / "docs/reference/sql/functions.md"
SECTION = PAGE.read_text(encoding="utf-8").split("\n## Expressions\n")[1].split("\n## ")[0]
ROWS = dict(re.findall(r"^\| (numbers|strings|dates) \| ([^|;]*)", SECTION, re.MULTILINE))
NAMES = sorted({name.strip() for row in ROWS.values() for name in row.split(",")})
SPECIAL = [
    "trim(BOTH 'A' FROM s)", "trim(BOTH FROM s)", "trim(LEADING 'A' FROM s)", "trim('A' FROM s)",
    "trim(TRAILING FROM s)", "extract(year FROM d)", "position('a' IN s)",
    "substring(s FROM 2 FOR 3)", "CAST(s AS INTEGER)", "TRY_CAST(s AS DATE)", "s::DATE",
    "TRY(make_date(y, m, d))", "DATE '2026-01-31'", "d + INTERVAL 1 MONTH", "d - INTERVAL '3 days'",
    "a BETWEEN b AND c", "a NOT IN (1, 2)", "s LIKE 'a!%' ESCAPE '!'", "s NOT ILIKE 'a%'",
    "a IS NOT DISTINCT FROM b", "a IS NULL", "NOT a", "-a ** b", "a // b % c", "s || 'x'",
    "coalesce(a, b)", "ifnull(a, b)", "nullif(a, b)", "IF(a, b)", "IF(a, b, c)", "iif(a, b, c)",
    "CASE WHEN a THEN b END", "CASE a WHEN b THEN c ELSE d END", "s GLOB 'a*'", "(a, b) = (c, d)",
]  # fmt: skip
ARGUMENTS = ["", "a", "a, b", "a, b, c", "'day', a", "'day', a, b"]
POSITIONS = [
    "{}", "IF({}, b, c)", "IF(a, {}, c)", "IF(a, b, {})", "IF(a, {})", "CASE {} WHEN b THEN c END",
    "CASE a WHEN {} THEN c ELSE d END", "CASE a WHEN b THEN {} ELSE d END",
    "CASE a WHEN b THEN c ELSE {} END", "CASE WHEN {} THEN c ELSE d END",
    "CASE WHEN a THEN {} WHEN b THEN c END", "CASE WHEN a THEN b WHEN {} THEN c END",
    "CASE WHEN a THEN b ELSE {} END",
]  # fmt: skip


def check(expression):
    parsed = parse_statement(f"SELECT {expression} AS k FROM t")
    check_written(parsed.query, parsed.source)


@cache
def calls():
    """All calls of documented functions that are read alone, and what else is written otherwise."""
    found = list(SPECIAL)
    for name in NAMES:
        own = [f"{name}({arguments})" for arguments in ARGUMENTS]
        read = [call for call in own if is_read(call)]
        assert read, name
        found += read
    return found


def is_read(call):
    try:
        check(call)
    except SqlError:
        return False
    return True


def test_functions_are_found_on_the_page():
    assert len(NAMES) > 90


@pytest.mark.parametrize("position", POSITIONS)
def test_a_function_is_read_in_one_way_wherever_it_stands(position):
    for call in calls():
        check(position.format(call))


@pytest.mark.sampled(30)
@pytest.mark.parametrize("outer", POSITIONS[1:])
@pytest.mark.parametrize("inner", POSITIONS[1:])
def test_cases_in_cases_are_read_in_one_way(outer, inner):
    for call in ("a", "IF(a, b, IF(c, d, e))", "trim(BOTH 'x' FROM s)"):
        check(outer.format(inner.format(call)))


SAMPLES = """
    CREATE TABLE t AS
    SELECT n, n::INTEGER % 20 AS i, s, d
    FROM unnest([0, 1, 2, 5, 7, 100, -1, -2.5, 1e6, 1e-10, NULL]) AS a(n),
        unnest(['Abc', '', 'ä.b', 'month', NULL]) AS b(s),
        unnest([TIMESTAMP '2024-02-29 23:59:59.5', '0001-01-01', NULL]) AS c(d)
"""
PLACES = ("n", "i", "s", "d", "'day'", "'%Y'", "2", "0.5")


@pytest.fixture(scope="module")
def samples():
    con = duckdb.connect()
    con.execute(SAMPLES).fetchall()
    return con


def values(con, sql):
    """Return all values; None if DuckDB doesn't know such a call."""
    try:
        return repr(con.execute(sql).fetchall())
    except duckdb.Error:
        return None


CALLED = sorted({*NAMES, *(one.sandbox for one in SCALARS if one.sandbox.isidentifier())})


@pytest.mark.parametrize("name", CALLED)
def test_a_function_has_the_values_of_what_was_typed(samples, name):
    """Functions with one value in theory are several to DuckDB: log2(5) isn't log(2, 5)."""
    for arguments in [(), *((a,) for a in PLACES), *product(PLACES, repeat=2), ("'day'", "d", "d")]:
        sql = f"SELECT TRY({name}({', '.join(arguments)})) AS k FROM t"
        found = values(samples, sql)
        if found is not None and is_read(f"{name}({', '.join(arguments)})"):
            written = parse_statement(sql).query.sql("duckdb", comments=False, identify=True)
            assert values(samples, written) == found, sql


@pytest.mark.parametrize("name", CALLED)
def test_no_argument_is_left_out(name):
    """The parser makes a % b of mod(a, b, c); what it has no place for is refused."""
    for count, form in product(range(1, 6), ("{}", "{} + 1", "2 * {}", "coalesce({}, 7)")):
        names = [f"a{i}" for i in range(count)]
        sql = f"SELECT {name}({', '.join(map(form.format, names))}) FROM t"
        try:
            tree = parse_statement(sql).query
        except SqlError:
            continue
        there = {node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var)}
        assert {*names} <= there, sql


def test_what_is_left_out_is_named():
    with pytest.raises(SqlParseError, match="would be left out") as refused:
        parse_statement("SELECT c, mod(a, b, c) FROM t LIMIT 3")
    assert refused.value.span == Span(20, 21)
    for sql in (
        "SELECT date_trunc('yr', x) FROM t WHERE x < .5 AND y > 5e-1 AND z > 1_000 ORDER BY x, 'x'",
        "SELECT (list(a))[2] FROM t WHERE d < now() - INTERVAL '1 day' AND NAME = 'a' || 'A'",
        "SELECT a, b FROM t GROUP BY ALL ORDER BY a NULLS FIRST, (b + a) DESC NULLS LAST LIMIT 10",
    ):
        assert parse_statement(sql)
