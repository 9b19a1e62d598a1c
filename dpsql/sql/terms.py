"""Bound expressions: what a WHERE clause says, free of names and text.

Numbers are exact: a decimal is an integer and a scale, so that all arithmetic is done on integers,
and `bound` proves that none of it can overflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpsql.errors import Span

Kind = Literal["number", "label", "truth", "null"]

MAX_MAGNITUDE = 2**126
"""The largest integer that exact evaluation may meet; HUGEINT reaches one bit further."""


@dataclass(frozen=True, slots=True)
class Term:
    """A column, a literal, or an operator over terms.

    A term of kind "number" stands for an integer divided by 10**scale, and the absolute value of
    that integer never exceeds `bound`, whatever the row.
    """

    operator: str
    """"column", "literal", or the SQL operator."""
    kind: Kind
    operands: tuple[Term, ...] = ()
    value: str | int | bool | None = None
    """The name of a column, or the value of a literal (a number times 10**scale)."""
    scale: int = 0
    bound: int = 0

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the term depends on."""
        if self.operator == "column":
            return frozenset({str(self.value)})
        return frozenset(c for operand in self.operands for c in operand.columns)


@dataclass(frozen=True, slots=True)
class Condition:
    """One conjunct of WHERE, with its place in the text."""

    term: Term
    columns: frozenset[str]
    span: Span


def column(name: str, kind: Kind, bound: int = 0) -> Term:
    """Refer to a column; `bound` is the largest absolute value in its domain."""
    return Term("column", kind, value=name, bound=bound)


def number(digits: int, scale: int = 0) -> Term:
    """Make the number digits / 10**scale, which is not negative."""
    return Term("literal", "number", value=digits, scale=scale, bound=digits)


def literal(value: str | bool | None) -> Term:
    """Make a string, a truth value, or NULL."""
    kind: Kind = "null" if value is None else "truth" if isinstance(value, bool) else "label"
    return Term("literal", kind, value=value)


def arithmetic(operator: str, *operands: Term) -> Term:
    """Combine numbers by `+`, `-` or `*`, or one by `NEG` or `ABS`."""
    if operator == "*":
        left, right = operands
        scale, bound = left.scale + right.scale, left.bound * right.bound
    else:
        scale = max(operand.scale for operand in operands)
        bound = sum(aligned_bound(operand, scale) for operand in operands)
    return Term(operator, "number", operands, scale=scale, bound=bound)


def predicate(operator: str, *operands: Term) -> Term:
    """Combine terms to a truth value; numbers are brought to the same scale."""
    numbers = [operand for operand in operands if operand.kind == "number"]
    scale = max((operand.scale for operand in numbers), default=0)
    bound = max((aligned_bound(operand, scale) for operand in numbers), default=0)
    return Term(operator, "truth", operands, scale=scale, bound=bound)


def aligned_bound(term: Term, scale: int) -> int:
    """Bound the integer that stands for `term` at a finer scale."""
    return int(term.bound * 10 ** (scale - term.scale))
