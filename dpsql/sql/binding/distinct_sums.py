"""Sums and averages of distinct values, which are made of numbers of distinct values.

Let a column have the values c + s·t, for whole numbers t from 0 to T. The j-th binary digit of t
says whether 2^j is a part of it, so

    SUM(DISTINCT x) = c · COUNT(DISTINCT t) + s · Σ_j 2^j · COUNT(DISTINCT t whose digit j is 1)

and AVG(DISTINCT x) is that by COUNT(DISTINCT t). Nothing is measured but numbers of distinct
values, which are charged as they are elsewhere (`rel/distinct.py`); that privacy is kept rests on
nothing that is said here. A value outside of a domain, or of bounds, is what it is in other sums.

Where units have several rows, each of these numbers is a lower bound, of the values that units
cover. So is their sum, if no factor is negative. Of an average there is none then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import sqlglot
from sqlglot import exp

from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES, NumberBounds
from dpsql.schema.grain import declared_type
from dpsql.schema.sequences import DecimalRange, decimal_scale, decimal_text
from dpsql.sql.binding.expressions import Expr

MOST_DIGITS = 40
"""Binary digits of a value: each is a number that is measured."""
_VALUE = "x"


@dataclass(frozen=True, slots=True)
class ValueSteps:
    """The values of a column: c + s·t, for whole numbers t from 0 to T.

    Args:
        first: c.
        step: s.
        most: T.
        whole: whether the column has integers, and s is one.
        clamped: whether other values are stored, which count as the nearer end.
    """

    first: Fraction
    step: Fraction
    most: int
    whole: bool
    clamped: bool

    @classmethod
    def of(cls, table: Table, name: str) -> ValueSteps | None:
        """Return the values of a column; None if they aren't known by steps, or by too many."""
        type_, domain = declared_type(table, name), table.columns.get(name)
        whole = type_ in INTEGER_TYPES
        if domain is not None:
            found = cls._of_domain(domain, whole=whole)
        else:
            found = cls._of_bounds(table.bounds.get(name), type_)
        return found if found is not None and found.most.bit_length() <= MOST_DIGITS else None

    @classmethod
    def _of_domain(cls, domain: Domain, *, whole: bool) -> ValueSteps | None:
        values = domain.values
        if domain.uppers is not None:
            return None
        if isinstance(values, DecimalRange):
            first, step = Fraction(values[0]), Fraction(values.spacing)
            return cls(first, step, len(values) - 1, whole and step == 1, clamped=False)
        numbers = [value for value in values if type(value) is int]
        if len(numbers) < len(values):
            return None
        least = min(numbers)
        return cls(Fraction(least), Fraction(1), max(numbers) - least, whole, clamped=False)

    @classmethod
    def _of_bounds(cls, bounds: NumberBounds | None, type_: str) -> ValueSteps | None:
        whole = type_ in INTEGER_TYPES
        if bounds is None or not (whole or type_.startswith("DECIMAL")):
            return None
        step = Fraction(1, 1 if whole else 10 ** decimal_scale(type_))
        first, last = -(-bounds.low // step), bounds.high // step
        return cls(first * step, step, last - first, whole, clamped=True)

    @property
    def is_positive(self) -> bool:
        """Whether no value is negative."""
        return self.first >= 0

    @property
    def largest(self) -> Fraction:
        """The largest value without its sign, by which one changes a sum at most."""
        return max(abs(self.first), abs(self.first + self.step * self.most))

    def counted(self, value: Expr) -> Iterator[tuple[Fraction, Expr]]:
        """Yield the expressions whose distinct values are counted for a sum, each with its factor.

        Args:
            value: the column.
        """
        if self.first:
            yield self.first, self.number(value)
        number = self._text
        for place in range(self.most.bit_length()):
            digit = f"{number} // {2**place} % 2"  # where it is 0, there is no quotient
            yield self.step * 2**place, _written(f"{number} // ({digit})", value)

    def number(self, value: Expr) -> Expr:
        """Return t of each row."""
        return _written(self._text, value)

    @property
    def _text(self) -> str:
        stored, first = f"CAST({_VALUE} AS {'BIGINT' if self.whole else 'DOUBLE'})", self.first
        if self.clamped:
            low, high = (decimal_text(end) for end in (first, first + self.step * self.most))
            inside = f"greatest({low}, least({stored}, {high}))"
            stored = f"(CASE WHEN {_VALUE} IS NULL THEN NULL ELSE {inside} END)"
        above = f"({stored} - {decimal_text(first)})" if first else stored
        steps = f"CAST(round({above} / {decimal_text(self.step)}) AS BIGINT)"
        return above if self.whole else steps


def _written(text: str, value: Expr) -> Expr:
    """Write an expression of a column."""
    read: Expr = sqlglot.parse_one(text, dialect="duckdb")
    return read.transform(
        lambda part: value.copy() if isinstance(part, exp.Column) else part, copy=False
    )
