"""Amounts of privacy loss: exact sums by name, each with its own limit. Trusted.

An `Amount` says how much releases may tell of one unit. Units are of kinds, here called *roots*:
those of the root r are the rows of one table, each with all that belongs to it elsewhere. An
amount has a μ² for the units of each root, and Δ, a probability of failing: releases that cost it
are (ε, δ_μ(ε) + Δ)-private for the units of r at every ε, with μ² = `of(r)` and δ_μ as in
`conversions`. Amounts of releases that are chosen after seeing earlier ones add up by name, if each
name has a limit that was fixed before the first of them; see docs/explanation/accounting.md, which
has the proof, and why what is left of one limit can't be exchanged for more of another.

What is booked on `EVERY` counts for the units of all roots. Everything is, as long as the units of
different tables are not compared: they may be the same persons.

Guarantees:
    1. Sums are exact and don't depend on their order. No amount is negative.
    2. `a <= b` only if, for the units of any root, named in a or b or in neither, a allows no
       larger μ² than b; and no larger Δ.
    3. Equal amounts have one text in a ledger, and it is read as the same amount.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from dpsql.errors import InternalError

EVERY = "*"
"""Stands for all roots."""
_ZERO = Fraction(0)
_GRID = 10**30
_FINE_GRID = 10**60
# Python reads integers of up to 4,300 digits.
_FRACTION = re.compile(r"(0|[1-9][0-9]{0,3999})/([1-9][0-9]{0,3999})")
_ROOT = re.compile(r"\*|[0-9a-f]{1,128}")


@dataclass(frozen=True, slots=True)
class Amount:
    """A privacy loss. Names without a loss are left out, so that equal losses are equal.

    Raises:
        InternalError: a part is negative, or inexact.
    """

    mu_squared: Mapping[str, Fraction] = field(default_factory=dict)
    """Root (a digest, or `EVERY`) → μ²."""
    delta: Fraction = _ZERO
    """The sum Δ of what δ pays besides."""

    def __post_init__(self) -> None:
        for part in (*self.mu_squared.values(), self.delta):
            if type(part) is not Fraction or part < 0:
                raise InternalError("an amount of privacy loss is negative or inexact")
        named = {root: part for root, part in self.mu_squared.items() if part}
        object.__setattr__(self, "mu_squared", MappingProxyType(named))

    def of(self, root: str) -> Fraction:
        """Give the μ² for the units of a root; of `EVERY`, for those of one that isn't named."""
        common = self.mu_squared.get(EVERY, _ZERO)
        return common if root == EVERY else common + self.mu_squared.get(root, _ZERO)

    def __bool__(self) -> bool:
        return bool(self.mu_squared or self.delta)

    def __add__(self, other: Amount) -> Amount:
        both = dict(self.mu_squared)
        for root, part in other.mu_squared.items():
            both[root] = both.get(root, _ZERO) + part
        # A history is added up before each decision, and sums of fractions take their time.
        return Amount(both, self.delta + other.delta if other.delta else self.delta)

    def __le__(self, other: Amount) -> bool:
        named = {EVERY, *self.mu_squared, *other.mu_squared}
        if self.delta and not self.delta <= other.delta:
            return False
        return all(self.of(root) <= other.of(root) for root in named)

    @property
    def document(self) -> dict[str, Any]:
        """The form in which a ledger has it: fractions in lowest terms, "p/q"."""
        document: dict[str, Any] = {}
        if self.mu_squared:
            document["mu_squared"] = {
                root: fraction_text(part) for root, part in self.mu_squared.items()
            }
        if self.delta:
            document["delta"] = fraction_text(self.delta)
        return document

    @classmethod
    def read(cls, document: Any) -> Amount:
        """Read what `document` wrote.

        Raises:
            ValueError, TypeError, AttributeError: it is something else.
        """
        parts = {root: fraction(text) for root, text in document.get("mu_squared", {}).items()}
        amount = cls(parts, fraction(document.get("delta", "0/1")))
        if amount.document != document or not all(map(_ROOT.fullmatch, parts)):
            raise ValueError("not an amount")
        return amount


def on_grid(mu_squared: Fraction) -> Fraction:
    """Round an amount up to a multiple of 10^−30, so that sums of many stay short."""
    return Fraction(-(-mu_squared * _GRID // 1), _GRID)


def on_fine_grid(delta: Fraction, *, up: bool) -> Fraction:
    """Round a δ to a multiple of 10^−60: up what is charged, and down what may be charged.

    A total is on the grid therefore, and so is all that is left of it: what fits into that exactly
    fits rounded up as well.
    """
    steps = delta * _FINE_GRID
    return Fraction(math.ceil(steps) if up else math.floor(steps), _FINE_GRID)


def fraction(text: str) -> Fraction:
    """Read "p/q".

    Raises:
        ValueError, TypeError: it is something else.
    """
    match = _FRACTION.fullmatch(text)
    if match is None:
        raise ValueError("not a fraction")
    return Fraction(int(match[1]), int(match[2]))


def fraction_text(part: Fraction) -> str:
    """Write "p/q"; see `fraction`."""
    return f"{part.numerator}/{part.denominator}"
