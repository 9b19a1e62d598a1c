"""Fit declared domains to the columns of a table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, TypeVar

from dpsql.errors import SchemaError, printable
from dpsql.schema.domain import (
    INTEGER_TYPES,
    TIMES,
    ZONED,
    Declaration,
    Domain,
    NumberBounds,
    Unknown,
    UnknownBounds,
    UnknownKeys,
    Value,
    is_exact,
    is_number,
)
from dpsql.schema.drafts import KEY_TYPES, drafted, unsuitable
from dpsql.schema.names import as_sql, as_text, closest, enum_type, folded
from dpsql.schema.sequences import (
    FLOATS,
    MAX_DIGITS,
    DecimalRange,
    as_float32,
    below_float32,
    decimal_scale,
    decimal_text,
    decimal_width,
    type_range,
    within,
)

GENERATED = "GENERATED "
"""The words before the type of a generated column."""
MAX_FLOAT_GRID = 2**40
"""Doubles tell so many steps apart with room to spare."""
Bounds = TypeVar("Bounds", NumberBounds, UnknownBounds)
_LABEL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class KnownColumn:
    """The facts that are known of a column without a declaration."""

    name: str
    type: str
    found: Domain | NumberBounds | None = None
    shown: str = ""
    """The type in messages, if another text says more."""
    generated: bool = field(default=False, kw_only=True)


class Fitted(NamedTuple):
    """Columns of a table, by what is known of them: a domain, bounds, or only a type."""

    columns: dict[str, Domain]
    """Columns with a domain."""
    undeclared: dict[str, str]
    """Columns without a domain → their types."""
    bounds: dict[str, NumberBounds]
    """Some of these → their bounds."""
    unknown: dict[str, Unknown]
    """Some of these → that their values, or their bounds, are to be found."""


def fitted(table: str, known: Sequence[KnownColumn], declared: Mapping[str, Declaration]) -> Fitted:
    """Fit what is declared for a table to its columns; it goes before what else is known of them.

    Raises:
        SchemaError: a declared column doesn't exist, or can't hold what is declared.
    """
    for column in declared:
        if folded(column) not in {folded(one.name) for one in known}:
            raise SchemaError(
                f"The schema declares the column {printable(column)}, which {table} doesn't have.",
                hint=closest(column, [one.name for one in known]),
            )
    given = {folded(column): domain for column, domain in declared.items()}
    columns: dict[str, Domain] = {}
    undeclared: dict[str, str] = {}
    bounds: dict[str, NumberBounds] = {}
    unknown: dict[str, Unknown] = {}
    for one in known:
        found, said = one.found, given.get(folded(one.name))
        if isinstance(said, UnknownKeys):
            unknown[one.name], found, said = _findable(one, said), None, None
        if isinstance(said, UnknownBounds):
            unknown[one.name] = checked_bounds(one.name, one.type, one.generated, said)
            found, said = None, None
        if isinstance(said, NumberBounds):
            found = checked_bounds(one.name, one.type, one.generated, said)
        elif said is not None:
            found = from_declaration(one.name, one.type, one.generated, said, as_sql(table))
        if isinstance(found, Domain):
            columns[one.name] = found
            continue
        shown = one.shown or one.type
        undeclared[one.name] = f"{GENERATED}{shown}" if one.generated else shown
        if found is not None:
            bounds[one.name] = found
    return Fitted(columns, undeclared, bounds, unknown)


def _findable(column: KnownColumn, said: UnknownKeys) -> UnknownKeys:
    """Return what is said of a column whose values are to be found.

    Raises:
        SchemaError: it is of a type of which none are found.
    """
    if column.generated or column.type not in KEY_TYPES:
        what = "is generated" if column.generated else f"has the type {column.type}"
        raise SchemaError(
            f"The column {column.name} {what}, so its values can't be found.",
            hint="Domain.keys is for columns of texts, whole numbers, dates and times.",
        )
    return said


def from_declaration(
    name: str, type_: str, generated: bool, domain: Domain, table: str = "…"
) -> Domain:
    """Give a declared domain the column's own type.

    Raises:
        SchemaError: the column can't hold the declared values.
    """
    labels = enum_labels(type_)
    if generated:
        raise SchemaError(
            f"The column {name} is generated, so it can't have a domain.",
            hint="store its values in a column of its own.",
        )
    if labels is not None and domain.type in {"VARCHAR", "ENUM"}:
        return _enum(name, labels, domain)
    if type_ in INTEGER_TYPES and domain.type in INTEGER_TYPES:
        return _integers(name, type_, domain)
    if isinstance(domain.values, DecimalRange) and (is_exact(type_) or type_ in FLOATS):
        return _decimals(name, type_, domain, domain.values)
    if domain.type in {"DATE", "TIMESTAMP"} and type_ in {"DATE", *TIMES}:
        return _times(name, type_, domain)
    if domain.type == "DOUBLE" and type_ == "FLOAT":
        return _float_bins(name, domain)
    if domain.type == "DOUBLE" and (is_exact(type_) or type_ == "DOUBLE"):
        return domain.of_column(type_)
    if (type_, domain.type) in {("VARCHAR", "VARCHAR"), ("BOOLEAN", "BOOLEAN")}:
        return domain
    raise _of_another_kind(name, type_, domain, table)


def _of_another_kind(name: str, type_: str, domain: Domain, table: str) -> SchemaError:
    enum = enum_labels(type_) is not None
    shown = "ENUM" if enum else type_
    none_fits = drafted(name, type_) is None and type_ != "BOOLEAN" and not enum
    return SchemaError(
        f"The column {name} has the type {shown}, so it can't have the domain {domain}.",
        hint=unsuitable(table, name, type_)
        if none_fits
        else "Domain.integers is for integer columns, .labels for VARCHAR and ENUM columns, "
        ".boolean for BOOLEAN columns, .dates for DATE and TIMESTAMP columns, .decimals and .bins "
        "for DECIMAL, DOUBLE and integer columns.",
    )


def checked_bounds(name: str, type_: str, generated: bool, bounds: Bounds) -> Bounds:
    """Return the bounds of a column that can be added up, or that they are to be found.

    Those of whole numbers and DECIMALs are values of the type: the outermost between the bounds.

    Raises:
        SchemaError: it is not a stored column of numbers, or no two values are between the bounds.
    """
    if generated or not is_number(type_):
        what = "is generated" if generated else f"has the type {type_}"
        hint = "Domain.number is for columns of integers, DECIMAL, DOUBLE or FLOAT."
        if type_ == "VARCHAR":
            number = as_text(f"TRY_CAST({as_sql(name)} AS DOUBLE)")
            hint = f"give its numbers bounds among the table's expressions: {{{number}: (0, 100)}}."
        if type_ == "UHUGEINT":
            hint = f"no sum is that large: ALTER TABLE … ALTER {as_sql(name)} TYPE DOUBLE;"
        raise SchemaError(
            f"The column {name} {what}, so it can't have the bounds {bounds}.", hint=hint
        )
    if isinstance(bounds, UnknownBounds) or type_ in FLOATS:
        return bounds
    digit = Fraction(1, 10 ** decimal_scale(type_))
    low, high = bounds.among(digit)  # so that squares and products are of what is added up
    if low >= high:
        raise SchemaError(
            f"Between the bounds {bounds} of {name} are no two values of its type {type_}.",
            hint=f"use bounds that are multiples of {decimal_text(digit)}.",
        )
    return replace(bounds, low=low, high=high)


def _times(name: str, type_: str, domain: Domain) -> Domain:
    """Days, hours and minutes; with a zone where the type has none of its own clock."""
    hint = None
    if type_ == "DATE" and domain.type == "TIMESTAMP":
        hint = 'a DATE has no hours: use grain="day".'
    elif type_ == ZONED and domain.zone is None:
        hint = (
            "on which day and at what time it falls depends on where one is; say whose clock "
            'counts, for example zone="UTC" or zone="Europe/Berlin".'
        )
    elif type_ != ZONED and domain.zone is not None:
        hint = f"zone= is for columns of type {ZONED}: leave it out."
    if hint is not None:
        raise SchemaError(
            f"The column {name} has the type {type_}, so it can't have the domain {domain}.",
            hint=hint,
        )
    return domain.of_column(type_)


def _enum(name: str, labels: tuple[str, ...], domain: Domain) -> Domain:
    extra = [str(v) for v in domain.values if v not in set(labels)]
    if extra:
        raise SchemaError(
            f"{extra[0]!r} is not a label of the ENUM column {name}.",
            hint=closest(extra[0], labels),
        )
    missing = [label for label in labels if label not in set(domain.values)]
    if missing:
        # Rows with the missing labels would need a place, and the ENUM is public anyway.
        raise SchemaError(
            f"The domain of the ENUM column {name} lacks its label {missing[0]!r}.",
            hint=f"leave {name} out of the schema: all labels of an ENUM are its domain.",
        )
    # DuckDB orders an ENUM by its labels, whatever the order of the declaration. As all are
    # listed, no string is an other one.
    outside = None if domain.outside == "other" else domain.outside
    return Domain("ENUM", labels, domain.nullable, outside)


def _integers(name: str, type_: str, domain: Domain) -> Domain:
    low, high = type_range(type_)
    whole = domain.values if isinstance(domain.values, range) else _whole(domain.values)
    if within(low, high, whole) != whole:
        raise SchemaError(
            f"The domain {domain} of {name} goes beyond its type {type_}.",
            hint=f"declare values between {low} and {high}.",
        )
    return domain.as_type(type_)


def _whole(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(v for v in values if isinstance(v, int))


def _decimals(name: str, type_: str, domain: Domain, values: DecimalRange) -> Domain:
    if type_ in FLOATS:
        if len(values) > MAX_FLOAT_GRID:
            raise SchemaError(
                f"The domain {domain} of {name} has steps too fine for its type {type_}.",
                hint="use a larger step.",
            )
        return domain.of_column(type_)
    scale = decimal_scale(type_)
    if values.scale > scale:
        step = f"{Decimal(f'1E-{scale}'):f}"
        raise SchemaError(
            f"The domain {domain} of {name} has values between those of its type {type_}.",
            hint=f"use bounds and a step that are multiples of {step}.",
        )
    low, high = _ends(type_)
    least, most, _ = values.scaled(scale)
    if least < low or most > high:
        shown = " and ".join(f"{Decimal(f'{end}E-{scale}'):f}" for end in (low, high))
        raise SchemaError(
            f"The domain {domain} of {name} goes beyond its type {type_}.",
            hint=f"declare values between {shown}.",
        )
    return domain.of_column(type_)


def _float_bins(name: str, domain: Domain) -> Domain:
    """Round the edges of bins as the column's values are: 0.7 is then 0.7 of a FLOAT."""
    edges = [float(v) for v in (*domain.values, *(domain.uppers or ())[-1:])]  # type: ignore[arg-type]
    rounded = [as_float32(edge) for edge in edges]
    if any(a >= b for a, b in pairwise(rounded)) or not all(map(math.isfinite, rounded)):
        raise SchemaError(
            f"The domain {domain} of {name} has edges that its type FLOAT can't tell apart.",
            hint="use edges that lie further apart, or a DOUBLE column.",
        )
    uppers = (*map(below_float32, rounded[1:-1]), rounded[-1])
    return replace(domain, values=tuple(rounded[:-1]), uppers=uppers, column_type="FLOAT")


def _ends(type_: str) -> tuple[int, int]:
    """Return the least and the largest value that a domain may have, in the last digit."""
    if type_ in INTEGER_TYPES:
        return type_range(type_)
    largest = 10 ** min(decimal_width(type_), MAX_DIGITS) - 1
    return -largest, largest


def enum_labels(type_: str) -> tuple[str, ...] | None:
    """Read the labels from a type's text; None for other types."""
    if not type_.startswith("ENUM("):
        return None
    labels = tuple(label.replace("''", "'") for label in _LABEL.findall(type_))
    # Read back, so that a text which doesn't look as expected gives no domain, not a wrong one.
    return labels if type_ == enum_type(labels) else ()
