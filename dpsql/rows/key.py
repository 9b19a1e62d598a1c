"""Keys of rows: columns that no table has, computed of each row by an expression with known values.

Guarantees:
    A row has one cell of the key's domain, whatever it holds, and which one depends on this row
    alone.

    *Proof.* The key is what `write.py` makes, which engines compute by SQL that never raises, a
    function of the columns of its own row. The values of the domain are found from the expression
    and the types of its columns, or, for a column that is looked up, from a public table; so they
    are the same for all private tables that have these columns. The engine places the value in the
    domain as it does with a stored one (`engines/codes.py`): in the cell that is equal to
    it, or in the one for NULL; a value that is neither would be in no cell, and has none in any
    table. Adding or removing a row therefore changes one count of each marginal by one, as if the
    key had been stored with the row. ∎
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import SchemaError
from dpsql.rows.cuts import constant_at, ends, text_at
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    canonical,
    columns,
    spelled,
)
from dpsql.rows.known import KnownValues, known_values
from dpsql.rows.operands import cast
from dpsql.rows.typed import RowValue, shortest_case
from dpsql.rows.types import BIGINT, BOOLEAN, DATE, DOUBLE, NULL, VARCHAR, RowType, row_type
from dpsql.rows.write import RowWriter, known_as
from dpsql.schema.domain import Domain, cut_at
from dpsql.schema.names import quoted_name

MOST_VALUES = 1_000
"""Values of a key. Where there are more, a column should be declared."""
MOST_LOOKED_UP = 1_000_000
"""Values of a column that are looked for in public tables."""
_SHOWN = 100
"""Characters of a list of texts that a name spells out."""


@dataclass(frozen=True, slots=True)
class Presence:
    """In which values of a key an expression is there: it is not NULL, and its DOUBLE not NaN.

    Args:
        of: the expression, as `canonical` writes it.
        values: those of the key that a row has exactly if it is there.
    """

    of: str
    values: frozenset[int]


@dataclass(frozen=True, slots=True)
class RowKey:
    """A column with a domain that is computed of each row.

    Args:
        name: what it is, in full: the expression and what it means (`known_as`), the types of what
            it reads, and the domain. So
            two keys of one name are the same, whenever they were measured; but for lines.
        domain: its values. It has a cell for NULL unless the expression never is.
        value: how it is computed, of the domain's type.
        type: the type that the expression has in SQL, to which values are brought back.
        columns: what is read of a row.
    """

    name: str
    domain: Domain
    value: RowValue
    type: RowType
    columns: frozenset[str]
    label: str = ""
    """The key's name for a reader."""
    cut: str = ""
    """The cut of the line of a column (`schema/domain.py`): its name doesn't say that."""
    presence: Presence | None = None
    """The expression of which it tells whether it is there, and how."""

    @property
    def digest(self) -> str:
        """The digest that identifies it: where it is cut, or a hash."""
        if self.cut:
            return self.cut
        return hashlib.sha256(f"{self.name}: {self.domain!r}".encode()).hexdigest()

    def leading_to(self, results: Sequence[RowValue]) -> RowValue | None:
        """Return, by the same conditions, what stands in a list for each cell of the domain.

        It is what `value` leads to, for any row: of CASEs whose results are constants, each
        constant is that of one cell, in whose place the cell's result is put; and where all results
        of a CASE are one, its conditions decide nothing, nor do they fail.

        Args:
            results: constants of one type, for each cell in its order; the last for NULL, if the
                domain has a cell for it.

        Returns:
            None if the key is more than CASEs of constants, or of constants without a cell.
        """
        cells: dict[Hashable, RowValue] = dict(zip(self.domain.values, results, strict=False))
        missing = results[-1] if self.domain.nullable else None

        def led(node: RowValue) -> RowValue | None:
            if node.operation == "constant":
                return missing if node.type == NULL else cells.get(_meant(node))
            if node.operation == "cast" and _is_whole(node.type) and _is_whole(node.parts[0].type):
                return led(node.parts[0])
            if node.operation != "case":
                return None
            odd = len(node.parts) % 2 == 1
            ends = [led(part) for part in node.parts[1::2]]
            ends.append(led(node.parts[-1]) if odd else missing)
            known = [end for end in ends if end is not None]
            conditions = node.parts[: 2 * len(ends) - 2 : 2]
            return shortest_case(conditions, known) if len(known) == len(ends) else None

        return led(self.value)


def _is_whole(type_: RowType) -> bool:
    return type_.is_integer or type_ == NULL


def _meant(constant: RowValue) -> Hashable:
    """Return a constant as domains have it; what it isn't where that is no value of theirs."""
    if constant.type.is_integer:
        return int(constant.text)
    return constant.text == "true" if constant.type == BOOLEAN else constant.text


def row_key(
    expression: RowExpression,
    types: Mapping[str, str],
    filled: frozenset[str] = frozenset(),
    label: str = "",
) -> RowKey | None:
    """Make a key of an expression.

    Args:
        expression: what is computed.
        types: the columns' types.
        filled: columns that are never NULL.
        label: what a reader calls it, if not what it is.

    Returns:
        None if its values aren't known, are too many, or can't be a domain; or if it is a column,
        which is for the owner to declare.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    known = known_values(expression, types, filled)
    if known is None or isinstance(expression, RowColumn) or len(known.values) > MOST_VALUES:
        return None
    return key_with(expression, known, types, label)


def key_with(
    expression: RowExpression, known: KnownValues, types: Mapping[str, str], label: str = ""
) -> RowKey | None:
    """Make a key of an expression with known values.

    Args:
        expression: what is computed.
        known: all values that it can have.
        types: the columns' types.
        label: what a reader calls it, if not what it is.

    Returns:
        None if its values can't be a domain.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    written = RowWriter(types).write(expression)
    if written.may_lack:  # what is compared may have no value of a common type
        known = replace(known, nullable=True)
    domain = _domain(known)
    if domain is None:
        return None
    value = cast(written, row_type(domain.type))
    name = f"{described(expression, types)} in {_shown(domain)}"
    return RowKey(
        name,
        domain,
        value,
        known.type,
        columns(expression),
        label or spelled(expression),
        presence=_told(expression, types),
    )


def described(expression: RowExpression, types: Mapping[str, str]) -> str:
    """Say what an expression is, with the types of what it reads."""
    read = sorted(columns(expression))
    over = ", ".join(f"{canonical(RowColumn(name))} {types[name]}" for name in read)
    return f"{known_as(expression, types)} of {over}"


def _told(expression: RowExpression, types: Mapping[str, str]) -> Presence | None:
    """Read what is said to be there by NOT (e IS NULL OR isnan(CAST(e AS DOUBLE))).

    Of a column of exact numbers, which is never NaN, by NOT (e IS NULL).
    """
    match expression:
        case RowCall("not", (RowCall("is_null", (RowColumn() as e,)),)):
            if RowWriter(types).write(e).type.is_exact:
                return Presence(canonical(e), frozenset({True}))
        case RowCall("not", (RowCall("or", (RowCall("is_null", (e,)), RowCall() as nan)),)):
            if nan == RowCall("isnan", (RowCast(e, DOUBLE),)):
                return Presence(canonical(e), frozenset({True}))
    return None


def looked_up_key(
    expression: RowExpression,
    types: Mapping[str, str],
    values: Sequence[str] | Sequence[int],
    *,
    apart: bool = False,
) -> RowKey | None:
    """Make a key of what is only compared with public values, for being equal to one of them.

    The domain is of these values and NULL. Anything else is like NULL where that is enough, or
    has a label of its own. A row with another value is in the cell for NULL, or for that label, as
    `Domain.outside` says of it; so every row has one cell, by its own value.

    Args:
        expression: a column, or what is computed of some.
        types: the columns' types.
        values: all that it is looked for, each once.
        apart: whether any other text is told apart from NULL.

    Returns:
        None if the values aren't of the expression's type, or can't be a domain.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    written = RowWriter(types).write(expression)
    type_, texts = written.type, [value for value in values if isinstance(value, str)]
    good = len(texts) == len(values) if type_ == VARCHAR else type_.is_integer and not texts
    if not values or not good or len(values) > MOST_LOOKED_UP or (apart and not texts):
        return None
    try:
        domain = _domain(KnownValues(tuple(values), type_, nullable=True))
        if apart:  # no other text is that long
            other = max(texts, key=len) + "…"
            domain = Domain.labels(sorted({*texts, other}), nullable=True, other=other)
    except SchemaError:  # a text that can't be a label
        return None
    if domain is None:
        return None
    of = described(expression, types)
    if isinstance(expression, RowColumn):
        of = f"{canonical(expression)} {types[expression.name]}"
    name = f"{of} looked up in {_shown(domain)}{' or others' if apart else ''}"
    value = cast(written, row_type(domain.type))
    return RowKey(name, domain, value, type_, columns(expression))


def _domain(known: KnownValues) -> Domain | None:
    """Return the domain of some values; None if no domain has such."""
    values = known.values
    if known.type == BOOLEAN:
        return Domain.boolean(nullable=known.nullable)
    texts = [value for value in values if isinstance(value, str)]
    if texts or not values:
        good = len(texts) == len(values) and bool(values) and known.type == VARCHAR
        return Domain.labels(sorted(texts), nullable=known.nullable) if good else None
    wholes = sorted({int(value) for value in values if Fraction(value).denominator == 1})
    limits = BIGINT.limits or (0, 0)
    if len(wholes) < len(set(values)) or wholes[0] < limits[0] or wholes[-1] > limits[1]:
        return None
    if wholes[-1] - wholes[0] + 1 == len(wholes):
        return Domain.integers(wholes[0], wholes[-1], nullable=known.nullable)
    return Domain("BIGINT", tuple(wholes), known.nullable)


def _shown(domain: Domain) -> str:
    """Word a domain, so that no other one has the same words."""
    if isinstance(domain.values, range) or domain.type == "BOOLEAN":
        return str(domain)
    return f"{domain.type} {listed(domain.values)}{' or NULL' if domain.nullable else ''}"


def listed(values: Sequence[object]) -> str:
    """List values in a name; of many, a hash."""
    text = repr(list(values))
    if len(text) <= _SHOWN:
        return text
    return f"{len(values)} values {hashlib.sha256(text.encode()).hexdigest()[:16]}"


# ── Axes of a column: cells on which all of several expressions of that column have one value each
#
# Two conditions on one column, `x < 10` and `x >= 50`, aren't independent: as attributes of their
# own they would have joint cells that no row can be in. Instead the column is cut where one of them
# changes, and which interval a row's value lies in is the key; each of them is a function of it. So
# what was measured along fewer cuts is a sum of what is measured along more: `schema/domain.py`. In
# the same way the quarter follows from the month.
#
# The cuts are found from expressions and types alone (`cuts.py`), and never from rows. A row is in
# one interval, by its own value: the key is an expression like any other.


MOST_INTERVALS = 500
_CUTS_SHOWN = 4
"""Cuts that a label lists."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A key, and what a column holds in each of its cells.

    Args:
        key: the key.
        cells: for each cell, in their order, some of the values, as texts; None is NULL.
    """

    key: RowKey
    cells: tuple[tuple[str | None, ...], ...]


def line_name(column: str, declared: str) -> str:
    """Return the name of a column's line, wherever it is cut."""
    return f"line of {quoted_name(column)} {declared}"


def line(column: str, declared: str, cuts: Sequence[int], *, nullable: bool) -> Axis:
    """Cut a column into intervals, each from one cut on and up to the next.

    Args:
        column: its name.
        declared: its type, which has places.
        cuts: places, in ascending order.
        nullable: whether it can be NULL, which has a cell of its own.
    """
    type_, own = row_type(declared), RowColumn(column)
    domain, value = _numbered(own, {column: declared}, type_, cuts, nullable=nullable)
    shown = [_spelled_cut(cut, type_) for cut in cuts[:_CUTS_SHOWN]]
    more = f", … {len(cuts) - _CUTS_SHOWN} more" if len(cuts) > _CUTS_SHOWN else ""
    label = f"{spelled(own)} cut at {', '.join(shown)}{more}" if cuts else f"{spelled(own)} IS NULL"
    name = line_name(column, declared)
    _, most = ends(type_)
    # The last place of doubles is NaN's. Where it isn't cut off, there are numbers in its cell.
    numbers = len(cuts) + 1 if type_ != DOUBLE else len(cuts) if most in cuts else 0
    told = Presence(canonical(own), frozenset(range(numbers))) if numbers else None
    key = RowKey(
        name, domain, value, BIGINT, frozenset({column}), label, cut_at(cuts), presence=told
    )
    return Axis(key, _ends_of_cells(type_, cuts, nullable=nullable))


def steps(
    expression: RowExpression, types: Mapping[str, str], type_: RowType, cuts: Sequence[int]
) -> Axis:
    """Cut the values of any expression of a row into intervals; NULL has a cell of its own.

    Which interval its value lies in is an expression again, so the proof of `rows.key` holds.

    Args:
        expression: the expression.
        types: the columns' types.
        type_: its own type, which has places.
        cuts: places, in ascending order.

    Raises:
        UnsupportedSqlError: the expression can't be written.
    """
    domain, value = _numbered(expression, types, type_, cuts, nullable=True)
    places = [constant_at(cut, type_).text for cut in cuts]
    name = f"{described(expression, types)} cut at {listed(places)}"
    key = RowKey(name, domain, value, BIGINT, columns(expression), spelled(expression))
    return Axis(key, _ends_of_cells(type_, cuts, nullable=True))


def _numbered(
    of: RowExpression,
    types: Mapping[str, str],
    type_: RowType,
    cuts: Sequence[int],
    *,
    nullable: bool,
) -> tuple[Domain, RowValue]:
    """Give intervals their numbers, and write in which of them a value lies."""
    numbered = _halved(of, [constant_at(cut, type_) for cut in cuts], 0)
    if nullable:
        numbered = RowCase(((RowCall("is_null", (of,)), NOTHING),), numbered)
    domain = Domain.integers(0, len(cuts), nullable=nullable)
    return domain, cast(RowWriter(types).write(numbered), row_type(domain.type))


def _ends_of_cells(
    type_: RowType, cuts: Sequence[int], *, nullable: bool
) -> tuple[tuple[str | None, ...], ...]:
    """Return the least and the largest value of each interval, as texts."""
    least, most = ends(type_)
    firsts, lasts = [least, *cuts], [*(cut - 1 for cut in cuts), most]
    cells: list[tuple[str | None, ...]] = [
        tuple(dict.fromkeys((text_at(low, type_), text_at(high, type_))))
        for low, high in zip(firsts, lasts, strict=True)
    ]
    return (*cells, (None,)) if nullable else tuple(cells)


def cycle(column: str, types: Mapping[str, str], part: str, filled: frozenset[str]) -> Axis | None:
    """Return the axis of a part of a time that comes again and again; None if it can't be one."""
    shown = RowCall("date_part", (RowConstant("VARCHAR", part), RowColumn(column)))
    type_ = row_type(types[column])
    key = row_key(shown, types, filled)
    if key is None or not key.domain.nullable or (type_ == DATE and part not in _OF_DATES):
        return None
    values = key.domain.values
    if not isinstance(values, range):
        return None
    length = len("2000-01-01") if type_ == DATE else None
    cells = [
        tuple(text.format(value + more)[:length] for text, more in _MOMENTS[part])
        for value in values
    ]
    return Axis(key, (*cells, (None, "infinity", "-infinity")))


_OF_DATES = frozenset({"month", "day", "dayofweek"})
_MOMENTS = {
    "month": (("2000-{:02}-01 00:00:00", 0), ("2001-{:02}-28 23:59:59", 0)),
    "day": (("2000-01-{:02} 00:00:00", 0), ("2001-12-{:02} 23:59:59", 0)),
    # 2 January 2000 was a Sunday, and so was 1 April 2001.
    "dayofweek": (("2000-01-{:02} 00:00:00", 2), ("2001-04-{:02} 23:59:59", 1)),
    "hour": (("2000-01-01 {:02}:00:00", 0), ("2001-12-31 {:02}:59:59.999999", 0)),
    "minute": (("2000-01-01 00:{:02}:00", 0), ("2001-12-31 23:{:02}:59.999999", 0)),
    "second": (("2000-01-01 00:00:{:02}", 0), ("2001-12-31 23:59:{:02}.999999", 0)),
}  # fmt: skip
"""Moments of which a part has a value, and what is added to the value first."""


def _halved(line: RowExpression, cuts: Sequence[RowConstant], first: int) -> RowExpression:
    """Write the number of the interval, found by halving, of which the first is `first`."""
    if not cuts:
        return RowConstant("INTEGER", str(first))
    middle = len(cuts) // 2
    below = _halved(line, cuts[:middle], first)
    rest = _halved(line, cuts[middle + 1 :], first + middle + 1)
    return RowCase(((RowCall("<", (line, cuts[middle])), below),), rest)


def _spelled_cut(cut: int, type_: RowType) -> str:
    """Say where a cut is: before a value, or after the one before, if that is shorter."""
    here, before = (spelled(constant_at(place, type_)) for place in (cut, cut - 1))
    return f"after {before}" if len(before) < len(here) else here
