"""Every documented function, in every position of CASE and IF, is read in one way only."""

import re
from functools import cache
from pathlib import Path

import pytest

from dpsql.errors import SqlError
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
