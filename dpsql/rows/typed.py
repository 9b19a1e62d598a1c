"""A value computed from a row once types are known: a frozen tree of operations on typed values.

`write.py` makes it of an expression, and each engine writes it as its database does. DuckDB's SQL
is written here: it computes what cells have in common, whatever the engine is.

What an operation means doesn't depend on an engine. Each is a function of its operands, of whose
types nothing is left open: what has no value of the type is NULL.

- `column`: what is stored; `labels`, of a column of labels, these as texts.
- `constant`: of a type, spelled as in `expression.RowConstant`; of NULL, NULL.
- `clock`: what the clock of a zone shows at the instant that is stored in a column: infinite, if
  that is, or beyond the years 100,000 before and after; to UTC none is beyond.
- `shift`: a time that is moved by a constant interval, or NULL where that fails.
- `cast`: the same value of another type, which has it; `try_cast`: the value, or NULL.
- `call`: a function of `functions.py`, by DuckDB's name, that is total on these operands; `try`:
  the call that is its operand, or NULL where that fails; `tried`: both, and its value is cast.
- `bytes`: those of a text, by which texts are compared.
- `stored`: a column of labels as it is stored, which are sorted as their type lists them.
- `compare`, `and`, `or`, `not`, `between`, `in`, `is_null`, `coalesce`: as in SQL, with three
  truth values; `case`: conditions and results in turn, and what there is otherwise, if not NULL.
- `nullif`: the third operand, but NULL where the first two are equal.
- `bounded`: the first operand, brought between the two others.

Guarantees:
    The SQL of a tree has the calls, casts and constants of the tree, and nothing else.

    *Proof.* By induction. Each operation is written around what is written of its operands, between
    brackets or keywords. Names and constants are in quotes that are doubled within; functions,
    operators and types are of closed lists (`functions.py`, `types.py`). `+`, LIKE and their like
    are called as `system.main."…"(…)`, since a macro may have their name. Comparisons, casts, TRY,
    CASE, COALESCE, COLLATE, IN, BETWEEN and IS are syntax, for which there are no macros, and
    built-in types can't be created again. Each constant is a quoted string that is cast: a minus
    sign would be an operator. ∎

    All versions of DuckDB that may be installed compute the same of it, so that what was measured
    by one can be put together with what another measures. What they compute otherwise is written
    by what they compute alike: see `_called`, `_tried_cast`, `huge_as_float`. That
    is seen by `tests/rows/test_versions.py`, whose expected values are no version's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from dpsql.rows.functions import COUNTED, FUNCTIONS, of_shapes
from dpsql.rows.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    NULL,
    TIME,
    VARCHAR,
    RowType,
)
from dpsql.schema.domain import ZONED
from dpsql.schema.names import quoted_name
from dpsql.schema.sequences import decimal_text

Limits = tuple[int, int]
_MAY_FAIL = frozenset({"try", "tried", "try_cast", "clock", "shift"})
_SEARCHES = frozenset(FUNCTIONS[name].duckdb for name in of_shapes("searched", "like", "regex"))
_OF_ANY = frozenset({"compare", "between", "in", "is_null", "bounded", "try_cast"})
"""Operations that have a value of their type for whatever stands for a DECIMAL."""
_CHOSEN_BY = {"least": "<=", "greatest": ">="}
_SHORT = 8
"""Nodes of what may be written twice."""
_WEEKS = frozenset({"week", "isoyear", "yearweek"})
_SHOWN_WEEK = re.compile(r"(?:[^%]|%[^UW])*%[UW]", re.DOTALL)
_LEAST_HUGE = -(2**127)


@dataclass(frozen=True, slots=True)
class RowValue:
    """A value of a row: the operation by which it is computed, and its type.

    Of an integer also the least and the largest value that it can have by its columns' types, so
    that no sum or product overflows; and of a DECIMAL, in last digits, where they are known.
    """

    operation: str
    parts: tuple[RowValue, ...]
    type: RowType
    text: str = ""
    """The name of a column or a function, the sign of a comparison, or what a constant is."""
    limits: Limits | None = None
    digits: Limits | None = None

    @property
    def ends(self) -> Limits | None:
        """Between which integers its last digits are, of whatever exact type."""
        return self.digits if self.type.name == "DECIMAL" else self.limits

    @property
    def sql(self) -> str:
        """DuckDB's SQL."""
        return duckdb_sql(self)

    @property
    def bare(self) -> str:
        """The same, but of a DECIMAL that is stored whatever is, also what its type hasn't."""
        return _bare(self, _WRITTEN)

    @property
    def nodes(self) -> Iterator[RowValue]:
        """All that it is made of, and itself."""
        pending, seen = [self], set[int]()
        while pending:
            node = pending.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                pending.extend(node.parts)

    @property
    def may_lack(self) -> bool:
        """Whether something in it gives NULL where it has no value of a type."""
        return any(node.operation in {"tried", "try_cast"} for node in self.nodes)

    @property
    def may_fail(self) -> bool:
        """Whether something in it gives NULL where it has no value, or fails."""
        return any(node.operation in _MAY_FAIL for node in self.nodes)

    @property
    def is_tried(self) -> bool:
        """Whether a function in it gives NULL where it fails."""
        return any(node.operation in {"try", "tried"} for node in self.nodes)


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """A value computed from several rows, by one of the functions of `windows.py`.

    Args:
        function: its name; "count" without arguments counts rows.
        type: its type.
        arguments: what it is given of each row; for lag and lead, also the default.
        told: what values are told apart and sorted by, if not by themselves.
        added: for a sum and an average, the type in which values are added up.
        numbers: constants that it takes.
        of_none: the rank of a row that isn't looked at.
    """

    function: str
    type: RowType
    arguments: tuple[RowValue, ...] = ()
    told: RowValue | None = None
    added: RowType = NULL
    numbers: tuple[int, ...] = ()
    of_none: int = 0

    @property
    def filled(self) -> bool:
        """Whether it is something of no rows, too: then `of_none`, or that there are none."""
        counts = self.function in {"exists", "count", "count_distinct"}
        return counts or self.of_none > 0

    @property
    def empty(self) -> RowValue:
        """The value that it has where no row is looked at."""
        if self.function == "exists":
            return constant_of("false", BOOLEAN)
        return number_of(self.of_none) if self.filled else constant_of("", NULL)


def duckdb_sql(value: RowValue, further: Mapping[str, Writer] = MappingProxyType({})) -> str:
    """Write a value; its tree may have operations besides those of rows, which are written so."""
    return _sql(value, {**_WRITTEN, **further} if further else _WRITTEN)


def _sql(value: RowValue, writers: Mapping[str, Writer]) -> str:
    write = _bare if value.operation in _OF_ANY else _sql
    return writers[value.operation](value, [write(part, writers) for part in value.parts])


def _bare(value: RowValue, writers: Mapping[str, Writer]) -> str:
    stored = value.operation == "column" and value.type != TIME
    return quoted_name(value.text) if stored else _sql(value, writers)


def value_of(type_: RowType) -> RowValue:
    """Return a value whose SQL is known to an engine, which says how `value` is written."""
    return RowValue("value", (), type_)


def called(function: str, *arguments: RowValue, type_: RowType) -> RowValue:
    """Call a function that is total on its arguments."""
    return RowValue("call", arguments, type_, function)


def constant_of(text: str, type_: RowType = VARCHAR) -> RowValue:
    """Return a constant of a type."""
    return RowValue("constant", (), type_, text)


def number_of(value: int, type_: RowType = BIGINT) -> RowValue:
    """Return an integer."""
    return constant_of(str(value), type_)


def double_of(value: float) -> RowValue:
    """Return a double, spelled so that it is read as the same one."""
    return constant_of(repr(float(value)), DOUBLE)


def shortest_case(conditions: Sequence[RowValue], ends: Sequence[RowValue]) -> RowValue:
    """Return a CASE of constants, and of such CASEs, with no condition that decides nothing.

    Conditions neither fail nor depend on anything but their row, so those before equal results may
    go. A condition `v IS NULL` may, if NULL leads to the same place without it: in all that is
    compared with it nothing is true. If it leads to another one, it passes by all conditions but
    for the last ELSE: there it is asked for, of the few rows that come so far. For the same reason
    two ends of one run of values, `v < c` within `v < d`, are one condition, which databases test
    at once.

    Args:
        conditions: of the results, in turn.
        ends: the results, and what there is otherwise.
    """
    *results, rest = ends
    kept = list(zip(conditions, results, strict=True))
    while kept and kept[-1][1] == rest:
        kept.pop()
    if not kept:
        return rest
    (first, result), *others = kept
    if first.operation == "is_null":
        without = shortest_case([c for c, _ in others], [*(r for _, r in others), rest])
        of_null = _of_null(without, first.parts[0])
        if of_null == result:
            return without
        if of_null is not None:
            return _asked_last(without, first, result)
    if not others and (run := _one_run(first, result, rest)) is not None:
        return run
    parts = [part for pair in kept for part in pair]
    return RowValue("case", (*parts, rest), rest.type)


def _asked_last(value: RowValue, condition: RowValue, result: RowValue) -> RowValue:
    """Return CASEs with one condition more, where they come to their last ELSE."""
    if value.operation != "case":
        return RowValue("case", (condition, result, value), value.type)
    *parts, rest = value.parts
    return RowValue("case", (*parts, _asked_last(rest, condition, result)), value.type)


def _of_null(value: RowValue, of: RowValue) -> RowValue | None:
    """Return which constant CASEs lead to where `of` is NULL; None if other things decide."""
    while value.operation == "case":
        conditions = value.parts[:-1:2]
        if not all(_unknown_of_null(condition, of) for condition in conditions):
            return None
        value = value.parts[-1]
    return value


def _unknown_of_null(condition: RowValue, of: RowValue) -> bool:
    """Whether a condition isn't true where `of` is NULL: it, or a part of it, compares that."""
    if condition.operation == "and":
        return any(_unknown_of_null(part, of) for part in condition.parts)
    return condition.operation == "compare" and condition.text == "<" and of in condition.parts


def _one_run(below: RowValue, result: RowValue, rest: RowValue) -> RowValue | None:
    """Write `v < c` and `v < d` as one condition, if what is between is told from all else."""
    match result, rest:
        case RowValue("case", (lower, outer, inside)), _ if outer == rest:
            upper = below  # WHEN v < d THEN CASE WHEN v < c THEN outer ELSE inside END ELSE outer
        case _, RowValue("case", (upper, inside, outer)) if outer == result:
            lower = below  # WHEN v < c THEN outer ELSE CASE WHEN v < d THEN inside ELSE outer END
        case _:
            return None
    ends = (lower, upper)
    one = all(map(_is_below, ends)) and lower.parts[0] == upper.parts[0]
    if not one or inside.operation != "constant":
        return None
    above = RowValue("compare", lower.parts, BOOLEAN, ">=")
    return RowValue("case", (RowValue("and", (above, upper), BOOLEAN), inside, outer), outer.type)


def _is_below(condition: RowValue) -> bool:
    return (
        condition.operation == "compare"
        and condition.text == "<"
        and condition.parts[1].operation == "constant"
    )


def as_stored(name: str) -> RowValue:
    """Return a column of labels in the order of their type."""
    return RowValue("stored", (), VARCHAR, name)


def bytes_of(value: RowValue) -> RowValue:
    """Return what is compared: of texts bytes, whatever collation is in force."""
    return RowValue("bytes", (value,), value.type) if value.type == VARCHAR else value


def call(function: str, *arguments: str) -> str:
    """Write a call of a built-in function or operator, whatever macros there are."""
    return f'system.main."{function}"({", ".join(arguments)})'


def text_of(value: str) -> str:
    """Write a string."""
    return "'" + value.replace("'", "''") + "'"


def whole(value: int, type_: RowType = BIGINT) -> str:
    """Write an integer."""
    return number_of(value, type_).sql


def real(value: float) -> str:
    """Write a double so that DuckDB reads the same one."""
    return double_of(value).sql


def _constant(node: RowValue, _: list[str]) -> str:
    if node.type == NULL:
        return "NULL"
    text = text_of(node.text)
    return text if node.type == VARCHAR else f"CAST({text} AS {node.type.sql})"


def case_of(_: RowValue, parts: list[str]) -> str:
    """Write conditions and results in turn, and what is the result otherwise."""
    pairs = zip(parts[::2], parts[1::2], strict=False)
    cases = " ".join(f"WHEN {condition} THEN {result}" for condition, result in pairs)
    otherwise = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
    return f"CASE {cases}{otherwise} END"


def _bounded(_: RowValue, parts: list[str]) -> str:
    x, low, high = parts
    return (
        f"CASE WHEN {x} < {low} OR {x} > {high} "
        f"THEN CASE WHEN {x} > {high} THEN {high} ELSE {low} END ELSE {x} END"
    )


def _cast(node: RowValue, parts: list[str]) -> str:
    ((x,), (of,)) = parts, node.parts
    if of.type == HUGEINT and node.type.is_float:
        return huge_as_float(x, node.type)
    return f"CAST({x} AS {node.type.sql})"


def huge_as_float(x: str, type_: RowType = DOUBLE) -> str:
    """Write a HUGEINT as the DOUBLE that is nearest to it; 2.0.0 often takes the one beside it."""
    return f"CAST(CAST({x} AS VARCHAR) AS {type_.sql})"


def _tried_cast(node: RowValue, parts: list[str]) -> str:
    ((x,), (of,), to) = parts, node.parts, node.type
    made = f"TRY_CAST({x} AS {to.sql})"
    if of.type == VARCHAR:
        return _of_type(made, to)
    if of.type.is_float and to == HUGEINT:  # of the least one 2.0.0 makes NULL
        return f"CASE WHEN {made} > {number_of(_LEAST_HUGE, HUGEINT).sql} THEN {made} END"
    return made


def _of_type(value: str, type_: RowType) -> str:
    """Write a value that has to be of a type, but need not be; NULL if it isn't.

    Of the text '1.999e2' 2.0.0 makes a DECIMAL(4,2), and stores it: 199.90. What is computed of it
    overflows. Of a TIME that isn't within a day it makes no text, but fails for good.
    """
    if type_ == TIME:
        low, high = (constant_of(end, type_).sql for end in ("00:00:00", "24:00:00"))
        return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} END"
    if type_.name != "DECIMAL":
        return value
    most = decimal_text(Fraction(10**type_.width - 1, 10**type_.scale))
    low, high = (constant_of(end, type_).sql for end in (f"-{most}", most))
    return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} END"


def _called(node: RowValue, parts: list[str]) -> str:
    function, (first, *rest) = node.text, parts
    if function in _SEARCHES:  # 2.0.1 lets more of these follow the collation that is set
        return call(function, f'(({first}) COLLATE "C")', *rest)
    if function == "round" and rest and node.type == DOUBLE:
        return _to_places(first, int(node.parts[1].text))
    if function == "%" and may_be_least_by_minus_one(node.type, *node.parts):
        one, minus = number_of(1, HUGEINT).sql, number_of(-1, HUGEINT).sql
        return call(function, first, f"CASE WHEN {rest[0]} = {minus} THEN {one} ELSE {rest[0]} END")
    if function in _CHOSEN_BY and _is_cut_off(node):
        return f"CASE WHEN {first} {_CHOSEN_BY[function]} {rest[0]} THEN {first} ELSE {rest[0]} END"
    made, since = call(function, *parts), known_since(node)
    if since:
        day = rest[0] if function == "date_part" else first
        return f"CASE WHEN {day} >= {constant_of(since, DATE).sql} THEN {made} END"
    return made


def _is_cut_off(node: RowValue) -> bool:
    """Whether a choice is between a number and a constant, so that CASE is the same, and faster.

    NULL isn't compared, and so leads to the constant; of −0.0 and 0.0, which are equal, the first
    is taken by both, and NaN is above all numbers in both. The number is written twice, so it has
    to be short.
    """
    number, *others = node.parts
    short = sum(1 for _ in number.nodes) <= _SHORT
    given = [other.operation == "constant" and other.type.is_float for other in others]
    return short and given == [True]


def may_be_least_by_minus_one(type_: RowType, left: RowValue, right: RowValue) -> bool:
    """Whether −2¹²⁷ may be divided by −1: nothing is left, but in 2.0.0 it is an error."""
    if type_ != HUGEINT:
        return False
    low, high = right.limits or (-1, -1)
    return low <= -1 <= high and (left.limits is None or left.limits[0] <= _LEAST_HUGE)


def known_since(node: RowValue) -> str:
    """Return the first day of which 2.0.0 knows something; 2.0.1 knows it of all."""
    of = [part.type for part in node.parts]
    if node.text == "date_part" and of[1] == DATE and node.parts[0].text in _WEEKS:
        return "5877641-01-04 (BC)"
    if node.text == "strftime" and of[0] == DATE and _SHOWN_WEEK.match(node.parts[1].text):
        return "5877641-01-01 (BC)"
    return ""


def _to_places(x: str, digits: int) -> str:
    """Write a double rounded as 2.0.0 does it: 2.0.1 looks at more digits than x·10ⁿ has."""
    ten, (there, back) = real(10.0 ** abs(digits)), ("*", "/") if digits > 0 else ("/", "*")
    if not digits:
        return call("round", x)
    near = call(back, call("round", call(there, x, ten)), ten)
    beyond = "" if digits > 0 else f"WHEN {call('isfinite', x)} THEN {real(0)} "
    return f"CASE WHEN {call('isfinite', near)} THEN {near} {beyond}ELSE {x} END"


def _clock(node: RowValue, _: list[str]) -> str:
    """Write what a clock shows. At the ends of the type there is no such time in other zones."""
    column, (zone,) = quoted_name(node.text), node.parts
    first, last = "'-infinity'", "'infinity'"
    shown = call("make_timestamp", call("epoch_us", column))
    below, above = f"{column} <= {_instant(first)}", f"{column} >= {_instant(last)}"
    if zone.text != "UTC":
        low, high = (_instant(f"'100000-01-01{era} 00:00:00+00'") for era in (" (BC)", ""))
        below, above = f"{column} < {low}", f"{column} > {high}"
        inside = f"CASE WHEN {column} BETWEEN {low} AND {high} THEN {column} END"
        shown = call("timezone", zone.sql, inside)
    return (
        f"CASE WHEN {below} THEN CAST({first} AS TIMESTAMP) WHEN {above} THEN CAST({last} AS "
        f"TIMESTAMP) ELSE TRY({shown}) END"
    )


def _instant(text: str) -> str:
    return f"CAST({text} AS {ZONED})"


def _shift(node: RowValue, parts: list[str]) -> str:
    span = " ".join(f"{n} {unit}" for n, unit in zip(node.text.split(), COUNTED, strict=True))
    return f"TRY({call('+', parts[0], f'CAST({text_of(span)} AS INTERVAL)')})"


Writer = Callable[[RowValue, list[str]], str]
"""The writer of a node, from it and its written operands."""
STANDARD: Mapping[str, Writer] = {
    "and": lambda _, p: f"({' AND '.join(p)})",
    "or": lambda _, p: f"({' OR '.join(p)})",
    "not": lambda _, p: f"(NOT {p[0]})",
    "between": lambda _, p: f"({p[0]} BETWEEN {p[1]} AND {p[2]})",
    "in": lambda _, p: f"({p[0]} IN ({', '.join(p[1:])}))",
    "is_null": lambda _, p: f"({p[0]} IS NULL)",
}
"""Operations that other databases write alike, and mean the same by it."""
_WRITTEN: Mapping[str, Writer] = {
    **STANDARD,
    "column": lambda node, _: _of_type(quoted_name(node.text), node.type),
    "stored": lambda node, _: quoted_name(node.text),
    "labels": lambda node, _: f"{quoted_name(node.text)}::VARCHAR",
    "constant": _constant,
    "clock": _clock,
    "shift": _shift,
    "cast": _cast,
    "try_cast": _tried_cast,
    "call": _called,
    "try": lambda _, p: f"TRY({p[0]})",
    # If DuckDB says the same of the type, the cast isn't there when it runs.
    "tried": lambda node, p: f"TRY_CAST(TRY({_called(node, p)}) AS {node.type.sql})",
    "bytes": lambda _, p: call("encode", p[0]),
    "compare": lambda node, p: f"({p[0]} {node.text} {p[1]})",
    "coalesce": lambda _, p: f"COALESCE({', '.join(p)})",
    "case": case_of,
    "nullif": lambda _, p: f"CASE WHEN {p[0]} = {p[1]} THEN NULL ELSE {p[2]} END",
    "bounded": _bounded,
}
