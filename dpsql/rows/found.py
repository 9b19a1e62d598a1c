"""Found keys of expressions: what is computed of a row, and whose values nobody knows beforehand.

    SELECT upper(city), COUNT(*) FROM sales GROUP BY 1

The values of `upper(city)` can be found in the rows as those of a column can: it is a function of
its own row. That tells more than the values of `city` do, since a value of it has the units of all
cities that are spelled so. What was found is the domain of a key (`key.py`), as the values are of
which something is looked up.

Values of expressions are found as texts, whole numbers or days. What rounds a number to whole ones
is found as these, and a time that is cut to days, months or years as days: both are brought back to
the type that the expression has. All else, as fractions, must be written as one of those.

Several values of a row are found together, as one text of them: of all pairs of a carrier and a
flight number only those that many units have, where values of each by themselves would make all
pairs of these. `2,3:AA123` is the text of AA and 123: how long each is as a text, and then all of
them. A value that is NULL has no length, as in `2,:AA`. So no two lists of values have one text,
whatever signs they have in them, and a text tells its values. Days are numbers in it, from
1970-01-01 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    RowCall,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    columns,
    spelled,
)
from dpsql.rows.key import RowKey, described, listed
from dpsql.rows.known import is_nullable
from dpsql.rows.operands import cast
from dpsql.rows.times import word
from dpsql.rows.types import BIGINT, DATE, DOUBLE, FLOAT, TIMESTAMP, VARCHAR, RowType, row_type
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import COLLATED, INTEGER_TYPES, Domain


def joined(values: Sequence[RowExpression]) -> RowExpression:
    """Return the text of some values of a row; it is never NULL."""
    texts = [RowCast(value, VARCHAR) for value in values]
    lengths = [_or_empty(RowCast(RowCall("length", (text,)), VARCHAR)) for text in texts]
    head = [part for length in lengths for part in (_text(","), length)][1:]
    return _or_empty(reduce(_with, [*head, _text(":"), *map(_or_empty, texts)]))


def parted(text: str, count: int) -> tuple[str | None, ...] | None:
    """Return the texts of the values of a joined text; None if it is no text of so many."""
    head, colon, rest = text.partition(":")
    lengths = head.split(",")
    if not colon or len(lengths) != count:
        return None
    parts = list[str | None]()
    for length in lengths:
        if not length:
            parts.append(None)
            continue
        if not (length.isascii() and length.isdigit() and len(length) < 6):
            return None
        parts.append(rest[: int(length)])
        rest = rest[int(length) :]
    return tuple(parts) if joined_text(parts) == text else None


def joined_text(values: Sequence[str | None]) -> str:
    """Return the joined text of some values that are texts, or NULL."""
    head = ",".join("" if value is None else str(len(value)) for value in values)
    return f"{head}:{''.join(value or '' for value in values)}"


def part_sql(text: str, number: int) -> str:
    """Write the text of one of the values of a joined text, in SQL of DuckDB.

    Args:
        text: the SQL of the joined text.
        number: which value, from 0.
    """
    head = f"split_part({text}, ':', 1)"
    lengths = [f"TRY_CAST(split_part({head}, ',', {n + 1}) AS BIGINT)" for n in range(number + 1)]
    before = "".join(f" + coalesce({length}, 0)" for length in lengths[:-1])
    return f"substr({text}, length({head}) + 2{before}, {lengths[-1]})"


def _with(before: RowExpression, after: RowExpression) -> RowExpression:
    return RowCall("||", (before, after))


def _text(value: str) -> RowConstant:
    return RowConstant("VARCHAR", value)


def _or_empty(value: RowExpression) -> RowExpression:
    return RowCall("coalesce", (value, _text("")))


_OF_DAYS = frozenset({"day", "week", "month", "quarter", "year", "decade", "century", "millennium"})
_ROUNDING = frozenset({"floor", "ceil", "trunc", "round"})


@dataclass(frozen=True, slots=True)
class FoundExpression:
    """An expression of a row whose values may be found.

    Args:
        expression: what is computed, of one of the types of keys.
        type: that type.
        own: the type that it has in SQL, to which values are brought back.
        name: what it is, in full: what it computes, and of columns of which types.
        label: what a reader calls it.
        filled: whether it is never NULL.
        parts: the expressions that it joins, in this order; none if it is one alone.
    """

    expression: RowExpression
    type: str
    own: RowType
    name: str
    label: str
    filled: bool
    parts: tuple[FoundExpression, ...] = ()

    @classmethod
    def of(
        cls,
        expression: RowExpression,
        types: Mapping[str, str],
        filled: frozenset[str],
        *,
        part: bool = False,
    ) -> FoundExpression | None:
        """Return an expression as one whose values may be found; None if they can't be.

        Args:
            expression: what is computed of a row.
            types: the columns' types.
            filled: the columns that are never NULL.
            part: whether they are found together with others, so that it may be a column, too.

        Raises:
            UnsupportedSqlError: the expression can't be written.
        """
        read = columns(expression)
        if not read or (isinstance(expression, RowColumn) and not part):
            return None
        if any(COLLATED in types[name] for name in read):  # which may tell bytes apart or not
            return None
        if _is_day_of_column(expression, types) and not part:  # which are the column's own keys
            return None
        written = RowWriter(types).write(expression)
        to = _found_as(expression, written.type)
        if to is None:
            return None
        there = to == written.type and not written.may_lack
        return cls(
            expression if to == written.type else RowCast(expression, to),
            to.sql,
            written.type,
            described(expression, types),
            spelled(expression),
            there and not is_nullable(expression, filled),
        )

    @classmethod
    def together(
        cls, parts: Sequence[FoundExpression], types: Mapping[str, str]
    ) -> FoundExpression:
        """Return several as one whose values are found together, in whatever order they are given.

        Args:
            parts: two or more, each once.
            types: the columns' types.

        Raises:
            SqlLimitError: they are too long together.
        """
        ordered = tuple(sorted(parts, key=lambda part: part.name))
        expression = joined([_written(part) for part in ordered])
        RowWriter(types).write(expression)
        label = f"({', '.join(part.label for part in ordered)})"
        name = described(expression, types)
        return cls(expression, VARCHAR.sql, VARCHAR, name, label, filled=True, parts=ordered)

    def key(self, domain: Domain, types: Mapping[str, str]) -> RowKey:
        """Make a key of the values that were found.

        Args:
            domain: these, with a label for other texts.
            types: the columns' types.
        """
        value = cast(RowWriter(types).write(self.expression), row_type(domain.type))
        name = self.name + _found_in(domain)
        return RowKey(name, domain, value, self.own, columns(self.expression), self.label)


def _written(part: FoundExpression) -> RowExpression:
    """Return what a text has of a value: of a day its number, which all engines write alike."""
    epoch = RowConstant("DATE", "1970-01-01")
    return RowCall("-", (part.expression, epoch)) if part.type == "DATE" else part.expression


def name_of(key: str, domain: Domain) -> str:
    """Return the name of the expression of which a key, of some name, has the values found."""
    return key.removesuffix(_found_in(domain))


def _found_in(domain: Domain) -> str:
    null = " or NULL" if domain.nullable else ""
    return f" found in {domain.type} {listed(domain.values)}{null}"


def _is_day_of_column(expression: RowExpression, types: Mapping[str, str]) -> bool:
    if not isinstance(expression, RowCast) or not isinstance(expression.value, RowColumn):
        return False
    return expression.to == DATE and row_type(types[expression.value.name]) == TIMESTAMP


def _found_as(expression: RowExpression, type_: RowType) -> RowType | None:
    """Return the type as which values of an expression are found; None if they can't be."""
    if type_ in {VARCHAR, DATE} or type_.sql in INTEGER_TYPES:
        return type_
    if type_.is_integer or (type_ in {DOUBLE, FLOAT} and _is_whole(expression)):
        return BIGINT
    return DATE if type_ == TIMESTAMP and _is_day(expression) else None


def _is_whole(expression: RowExpression) -> bool:
    """Whether a number is rounded to whole ones."""
    if not isinstance(expression, RowCall) or expression.function not in _ROUNDING:
        return False
    (_, *places) = expression.arguments
    return all(isinstance(place, RowConstant) and place.text.startswith("-") for place in places)


def _is_day(expression: RowExpression) -> bool:
    """Whether a time is cut so that it is always the beginning of a day."""
    if not isinstance(expression, RowCall) or expression.function != "date_trunc":
        return False
    unit = expression.arguments[0]
    if not isinstance(unit, RowConstant):
        return False
    try:
        return word(unit.text, parts=False) in _OF_DAYS
    except UnsupportedSqlError:
        return False
