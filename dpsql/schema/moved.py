"""Moved values: stored values that count as others, because the owner declares it so.

A domain may bring values beyond its ends to these, values between two of a grid to the nearer one,
and texts that it doesn't list to one label; bounds bring numbers between them. Where a statement
shows such a column, or adds it up, its readers must know. How many values are moved only the rows
say, so it is asked of them as any count is: each kind comes with the condition that is true of the
rows whose value was moved, and of no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction

from dpsql.schema.domain import Domain, Merging, NumberBounds, Value, first_and_last
from dpsql.schema.names import as_sql, quoted_text
from dpsql.schema.sequences import DecimalRange, decimal_text
from dpsql.schema.table import Table

_NEAR = "1e-9"
"""In steps: by how much a double may miss a multiple that it stands for."""


@dataclass(frozen=True, slots=True)
class MovedValues:
    """Values of a column that are moved in one way."""

    column: str
    kind: str
    """In a word: clamped, rounded, or other."""
    described: str
    """The value that they count as, told as a sentence without its subject."""
    condition: str
    """SQL that is true of the rows that have them."""

    def __str__(self) -> str:
        return f"{self.column} {self.described}"


def moved_values(table: Table, name: str) -> tuple[MovedValues, ...]:
    """Return in which ways values of a column are moved; in none, if all count as they are."""
    if name in table.bounds:
        enforced = name in table.enforced
        return () if enforced else (_between(name, table.bounds[name]),)
    domain = table.columns.get(name)
    return () if domain is None else tuple(_of_cells(name, domain, table.merges(name)))


def _between(name: str, bounds: NumberBounds) -> MovedValues:
    low, high = decimal_text(bounds.low), decimal_text(bounds.high)
    return _clamped(name, (low, high), (low, high))


def _of_cells(name: str, domain: Domain, merges: frozenset[Merging]) -> Iterator[MovedValues]:
    if Merging.ENDS in merges:
        yield _beyond(name, domain)
    if Merging.NEAREST in merges and isinstance(domain.values, DecimalRange):
        yield _between_two(name, domain.values)
    if Merging.OTHER in merges and domain.other is not None:
        listed = ", ".join(quoted_text(str(value)) for value in domain.values)
        described = f"counts as {quoted_text(domain.other)} where it isn't listed"
        yield MovedValues(name, "other", described, f"{as_sql(name)} NOT IN ({listed})")


def _beyond(name: str, domain: Domain) -> MovedValues:
    """Word the ends of a domain, which values beyond them count as."""
    first, last = first_and_last(domain)
    if domain.timed and isinstance(last, date):
        after = _literal(last + timedelta(days=1))
        condition = f"{as_sql(name)} < {_literal(first)} OR {as_sql(name)} >= {after}"
        return MovedValues(name, "clamped", _ends(str(first), str(last)), condition)
    return _clamped(name, (str(first), str(last)), (_literal(first), _literal(last)))


def _clamped(name: str, shown: tuple[str, str], written: tuple[str, str]) -> MovedValues:
    column = as_sql(name)
    condition = f"{column} < {written[0]} OR {column} > {written[1]}"
    return MovedValues(name, "clamped", _ends(*shown), condition)


def _ends(low: str, high: str) -> str:
    return f"counts as at least {low} and at most {high}"


def _between_two(name: str, grid: DecimalRange) -> MovedValues:
    """Word a grid that is coarser than its column; what lies beyond it isn't rounded."""
    step, low = Fraction(grid.step, 10**grid.scale), Fraction(grid.low, 10**grid.scale)
    shown = decimal_text(step)
    multiple = f"the nearest multiple of {shown}"
    if (low / step).denominator != 1:
        multiple = f"the nearest of {decimal_text(low)}, {decimal_text(low + step)}, …"
    steps = f"({as_sql(name)} - {decimal_text(low)}) / {shown}"
    inside = f"{as_sql(name)} BETWEEN {decimal_text(low)} AND {grid[-1]:f}"
    condition = f"{inside} AND abs({steps} - round({steps})) > {_NEAR}"
    return MovedValues(name, "rounded", f"counts as {multiple}", condition)


def _literal(value: Value) -> str:
    """Write an end of an ordered domain as SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value}'"
    return f"DATE '{value}'" if isinstance(value, date) else str(value)
