"""Records of the functions of rows, each property of each against DuckDB's values on hostile rows.

In both directions: what a record says holds on every row; and what it doesn't say, though it holds
on all of them, is listed here with the reason (`UNSAID`), so that nothing is forgotten.
"""

from __future__ import annotations

import itertools
from dataclasses import MISSING, fields
from functools import cache

import duckdb
import pytest

import dpsql
from dpsql.errors import InternalError
from dpsql.rows.cuts import Cutter, has_places
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowColumn,
    RowConstant,
    canonical,
    columns,
    spelled,
)
from dpsql.rows.functions import (
    FUNCTIONS,
    Cuts,
    Digits,
    Finite,
    Null,
    RowFunction,
    Whole,
    check_column,
)
from dpsql.rows.key import line
from dpsql.rows.known import RowBounds, is_nullable, is_whole, may_be_nan, type_bounds
from dpsql.rows.measure import last_digit
from dpsql.rows.types import NULL, is_integer, row_type
from dpsql.rows.write import RowWriter
from dpsql.sql.algebra.groups import is_null_with
from tests.rows.test_total import accepted, calls, hostile_rows
from tests.rows.tools import TYPES, benign, connect, create, parse

OWN = {"bounded": "bounds of a column", "clock": "what a clock shows"}
"""Functions that no SQL has."""
NAMES = [name for name in FUNCTIONS if name not in OWN]
MOST_CALLS = 60
ODDEST = [RowColumn(name) for name in "xfihpo"] + [RowConstant("INTEGER", "2"), NOTHING]
BOUNDS = type_bounds(TYPES)
INTEGERS = frozenset(name for name, type_ in TYPES.items() if is_integer(type_))
RANGES = [("1990-01-01", "2009-12-31"), ("2001-01-01", "2001-12-31")]
NUMBERS = [
    name for name in NAMES
    if FUNCTIONS[name].result not in {"BOOLEAN", "VARCHAR", "TIMESTAMP"}
    and name not in {"date_part", "date_diff"}
]  # fmt: skip
"""Functions that make numbers of numbers, or of texts."""
REALS = [n for n in NAMES if FUNCTIONS[n].shape == "real"]
SETTING = "an error under some settings of DuckDB's, and then NULL"
ROOM = "in a TRY, though there is room for what is rounded"
LATER = "true; but a sum would be measured otherwise than before, so that its past is lost"
UNSAID = {
    "null": {
        **dict.fromkeys([*REALS, "/"], SETTING), **dict.fromkeys(["floor", "ceil", "trunc"], ROOM),
    },
    "finite": dict.fromkeys([
        "coalesce", "nullif", "round", "floor", "ceil", "trunc", "//", "cbrt", "exp", "sin", "cos",
        "tan", "atan", "radians", "degrees", "atan2",
    ], LATER),
    "whole": {},
}  # fmt: skip
"""Property → function → why its record says less than holds on all rows."""


@pytest.fixture(scope="module")
def con():
    con = connect()
    create(con, hostile_rows() + benign(300, seed=3))
    return con


@cache
def cases(name):
    """Return calls of a function on all kinds of arguments, and how they are written."""
    least, most = FUNCTIONS[name].arguments
    pairs = itertools.product(ODDEST, repeat=2) if least <= 2 <= most else ()
    found = accepted(calls(name))
    return found[:: max(1, len(found) // MOST_CALLS)] + accepted(RowCall(name, p) for p in pairs)


def asked(con, counted):
    """Ask of all rows how many there are of each kind, in a few queries."""
    counted, found = list(counted), []
    for start in range(0, len(counted), 100):
        listed = ", ".join(f"count(*) FILTER (WHERE {one})" for one in counted[start : start + 100])
        (row,) = con.execute(f"SELECT {listed} FROM r").fetchall()
        found += row
    return found


def written(expression):
    return RowWriter(TYPES).write(expression)


def joined(operator, conditions):
    listed = list(conditions)
    return f"({f' {operator} '.join(listed)})" if listed else "false"


def test_no_record_leaves_a_property_open():
    assert all(f.default is MISSING and f.default_factory is MISSING for f in fields(RowFunction))
    with pytest.raises(TypeError):
        RowFunction("sign", (1, 1), "TINYINT")
    with pytest.raises(InternalError):
        check_column("shape", {"logic"})


def test_each_name_is_read_as_one_function():
    read = [name for listed in FUNCTIONS.values() for name in listed.read.split()]
    assert len(read) == len(set(read))


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_and_called_by_its_names(con, name):
    listed = FUNCTIONS[name]
    known = "SELECT count(*) FROM duckdb_functions() WHERE function_name = ? AND schema_name = ?"
    if listed.duckdb:
        assert con.execute(known, [listed.duckdb, "main"]).fetchone() != (0,)
        assert any(f'system.main."{listed.duckdb}"(' in w.sql for _, w in cases(name))
    given = "abc"[: max(listed.arguments[0], min(2, listed.arguments[1]))]
    for read in listed.read.split():
        found = parse(con, f'"{read}"({", ".join(given)})')
        assert found == RowCall(name, tuple(map(RowColumn, given)))


@pytest.mark.parametrize("name", NAMES)
def test_its_type_is_duckdbs(con, name):
    """The same on rows and over domains, where DuckDB computes what was written."""
    told = set()
    assert any(numbers(name)) is (name in NUMBERS)
    for expression, value in cases(name):
        if not FUNCTIONS[name].result:
            continue
        assert value.type == row_type(FUNCTIONS[name].result)
        try:
            text = spelled(expression)
            told |= set(con.execute(f"SELECT typeof({text}) FROM r LIMIT 1").fetchall())
        except duckdb.Error:  # what was written is no SQL of DuckDB's
            continue
    spelled_otherwise = {"is_distinct", "is_not_distinct"}
    if FUNCTIONS[name].result and name not in spelled_otherwise:
        assert told - {('"NULL"',)} == {(FUNCTIONS[name].result,)}


LEVELS = ["never", "all", "any", "may"]
NULLS = {Null.NEVER: "never", Null.ALL: "all", Null.ANY: "any", Null.MAY: "may"}


def level_of(nothing, few, all_):
    """Say how far something is ruled out, by the rows where it is so.

    Args:
        nothing: how many there are.
        few: those in which it is so of no argument.
        all_: those in which it isn't so of all arguments.
    """
    return "never" if not nothing else "all" if not all_ else "any" if not few else "may"


@pytest.mark.parametrize("name", NAMES)
def test_it_is_null_where_its_record_says(con, name):
    counted, never = [], []
    for expression, value in cases(name):
        if any(node.operation == "try_cast" for node in value.nodes) and name not in "+-*":
            continue  # an operand may have no value of a common type: that is asked elsewhere
        sides = [f"(({written(part).sql}) IS NULL)" for part in expression.arguments]
        of_any, of_all = joined("OR", sides), joined("AND", sides)
        null = f"(({value.sql}) IS NULL)"
        counted += [null, f"{null} AND NOT {of_any}", f"{null} AND NOT {of_all}"]
        never.append("false" if is_nullable(expression, frozenset()) else null)
    assert not sum(asked(con, never))
    found = asked(con, counted)
    level = level_of(*(sum(found[k::3]) for k in range(3)))
    if level == "all" and FUNCTIONS[name].arguments == (1, 1):
        level = "any"
    check_level("null", name, NULLS[FUNCTIONS[name].null], level)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_null_with_its_columns_where_groups_rely_on_it(con, name):
    """So that a row of NULLs adds nothing to an aggregate: `sql/algebra/groups.py`."""
    claims = []
    for expression, value in cases(name):
        told = [c for c in columns(expression) if is_null_with(expression, frozenset({c}))]
        claims += [f'"{c}" IS NULL AND (({value.sql}) IS NOT NULL)' for c in told]
    assert not sum(asked(con, claims))
    if FUNCTIONS[name].null is Null.ANY and name not in {"and", "or"}:
        assert claims


def check_level(what, name, said, found):
    if name in UNSAID[what]:
        assert LEVELS.index(said) > LEVELS.index(found), "it is said by now"
    else:
        assert said == found


NANS = {
    Finite.ALWAYS: "never", Finite.LEAST: "all", Finite.KEPT: "any", Finite.CHOSEN: "any",
    Finite.SUM: "may", Finite.UNKNOWN: "may",
}  # fmt: skip
OF_FINITE = {Finite.ALWAYS, Finite.LEAST, Finite.KEPT, Finite.SUM}


def numbers(name):
    """Return calls whose value and operands are numbers, or texts beside one."""
    for expression, value in cases(name):
        parts = [written(part) for part in expression.arguments]
        if value.type.is_number and all(part.type.is_number or part.type == NULL for part in parts):
            yield expression, value, parts
        elif value.type.is_number and FUNCTIONS[name].finite is Finite.ALWAYS:
            yield expression, value, []


def of_doubles(value):
    """Write whether a number is NaN, and whether it is a finite one or NULL."""
    double = f"CAST({value.sql} AS DOUBLE)"
    return f"coalesce(isnan({double}), false)", f"coalesce(isfinite({double}), true)"


@pytest.mark.parametrize("name", NUMBERS)
def test_it_is_finite_where_its_record_says(con, name):
    listed, counted, never = FUNCTIONS[name].finite, [], []
    for expression, value, parts in numbers(name):
        nan, finite = of_doubles(value)
        never.append("false" if may_be_nan(expression) else nan)
        sides = [of_doubles(part) for part in parts]
        exact = "true" if all(not part.type.is_float for part in parts) else "false"
        absent = [f"(({part.sql}) IS NULL)" for part in parts]
        some = joined("OR", (side for side, _ in sides))
        pairs = zip(sides, absent, strict=True)
        each = joined("AND", (f"({side} OR {no})" for (side, _), no in pairs))
        counted += [nan, f"{nan} AND NOT {some}", f"{nan} AND NOT {each}"]
        counted.append(f"NOT {finite} AND {exact}")
    assert not sum(asked(con, never))
    found = asked(con, counted)
    level = level_of(*(sum(found[k::4]) for k in range(3)))
    if level == "all" and FUNCTIONS[name].arguments == (1, 1):
        level = "any"
    if name not in UNSAID["finite"]:
        assert NANS[listed] == level
        assert (listed in OF_FINITE) == (sum(found[3::4]) == 0)
    else:
        assert LEVELS.index(NANS[listed]) >= LEVELS.index(level)
        assert listed not in OF_FINITE


@pytest.mark.parametrize("name", NUMBERS)
def test_it_is_whole_where_its_record_says(con, name):
    listed, broken, of_wholes, alone, never = FUNCTIONS[name].whole, [], [], [], []
    for expression, value, parts in numbers(name):
        fraction = not_whole(value)
        broken.append(fraction)
        never.append(fraction if is_whole(expression, INTEGERS) else "false")
        of_wholes.append(f"{fraction} AND NOT {joined('OR', map(not_whole, parts))}")
        alone.append(fraction if len(expression.arguments) == 1 else "false")
    assert not sum(asked(con, never))
    always, kept, one = (not sum(asked(con, counted)) for counted in (broken, of_wholes, alone))
    found = Whole.ALWAYS if always else Whole.KEPT if kept else Whole.UNKNOWN
    if found is Whole.KEPT and one and FUNCTIONS[name].arguments == (1, 2):
        found = Whole.ROUNDED
    if name in UNSAID["whole"]:
        assert listed is Whole.UNKNOWN is not found
    else:
        assert listed is found


def not_whole(value):
    if not value.type.is_float:
        return f"(({value.sql}) IS NOT NULL AND ({value.sql}) % 1 <> 0)"
    return f"(isfinite({value.sql}) AND trunc({value.sql}) <> {value.sql})"


@pytest.mark.parametrize("name", NAMES)
def test_its_values_are_multiples_of_its_digit(con, name):
    listed, counted = FUNCTIONS[name].digits, []
    for expression, value in cases(name):
        digit = last_digit(expression, TYPES) if value.type.is_exact else None
        if not digit or digit.denominator > 10**10:
            continue
        exact = f"TRY_CAST({value.sql} AS DECIMAL(38,10))"
        counted.append(f"{exact} % {float(digit)!r}::DECIMAL(38,10) <> 0")
    assert not sum(asked(con, counted))
    assert counted or listed is Digits.UNKNOWN


@pytest.mark.parametrize("name", NAMES)
def test_its_values_are_between_its_bounds(con, name):
    bounds, counted = RowBounds(BOUNDS), []
    for expression, value in cases(name):
        if not (value.type.is_number or value.type.name == "BOOLEAN"):
            continue
        double = f"CAST({value.sql} AS DOUBLE)"
        number = f"isfinite({double}) AND {double}"
        for end, beyond, sign in zip(bounds.of(expression), "<>", "-+", strict=True):
            if end is not None and abs(end) < 10**300:
                slack = f"1e-9 * (1 + abs({double}))"
                counted.append(f"{number} {beyond} {float(end)!r}::DOUBLE {sign} {slack}")
    assert not sum(asked(con, counted))


def within(column, call, low, high):
    ends = (RowConstant("DATE", low), RowConstant("DATE", high))
    return RowCase(((RowCall("between", (column, *ends)), call),), NOTHING)


@pytest.mark.parametrize("name", NAMES)
def test_it_changes_where_its_record_says(con, name):
    known = 0
    for call, _ in cases(name):
        names = columns(call)
        (column,) = names if len(names) == 1 else (None,)
        if column is None or not has_places(row_type(TYPES[column])) or known > 20:
            continue
        type_, own = row_type(TYPES[column]), RowColumn(column)
        expressions = [within(own, call, *ends) for ends in RANGES] if type_.is_time else [call]
        for expression in expressions:
            cutter = Cutter(own, type_)
            cuts = cutter.cuts_of(expression, cutter.everything)
            if not cuts:
                continue
            known += 1
            number = line(column, TYPES[column], sorted(cuts), nullable=True).key.value.sql
            sql = f"coalesce(CAST({written(expression).sql} AS VARCHAR), '∅')"
            each = f"SELECT count(DISTINCT {sql}) AS n FROM r GROUP BY {number}"
            most = con.execute(f"SELECT max(n) FROM ({each})").fetchone()
            assert most == (1,), canonical(expression)
    if FUNCTIONS[name].cuts not in (Cuts.ARGUMENTS, Cuts.NOWHERE):
        assert known


BOTH_WAYS = """
    sign(n) ; n > 3 ; isnan(n) ; length(left(s, 2)) ; s LIKE 'a%'
    ; dayname(d) ; hour(d)
"""


def test_an_answer_has_one_type_by_rows_and_by_cells():
    """Whether a column has a domain decides where a key is computed, but not its type."""
    domains = {
        "n": dpsql.Domain.integers(-1, 9), "s": dpsql.Domain.labels(["ab", "b"]),
        "d": dpsql.Domain.dates("2024-01-01", "2024-01-09"),
    }  # fmt: skip
    with duckdb.connect() as con:
        row = "-1 AS n, 'ab' AS s, DATE '2024-01-01' AS d"
        con.execute(f"CREATE TABLE t AS SELECT {row}").fetchall()
        for text in BOTH_WAYS.split(";"):
            sql = f"SELECT {text} AS k, COUNT(*) AS n FROM t GROUP BY k"
            by_cells, by_rows = (
                dpsql.Session(con, schema={"t": known}).query(sql, budget=dpsql.Budget(rho=1))
                for known in (domains, {})
            )
            assert by_cells.schema["k"] == by_rows.schema["k"], text
