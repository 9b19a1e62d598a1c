"""Drawn quantiles, as a ledger keeps them and as releases tell of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from dpsql.answers.facts import DrawnQuantiles, Earlier
from dpsql.errors import DpsqlError, ReleaseFormatError, printable
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.quantiles import LARGEST_RANGE, DrawPlan
from dpsql.privacy import Entry
from dpsql.privacy.amount import fraction, fraction_text
from dpsql.rel.ranked import ValueLine
from dpsql.rows.types import row_type
from dpsql.sql.lowering.drawn import DrawnQuantile, Place

_MARK = b"dpsql quantiles 1\n"


class KeptQuantiles(msgspec.Struct, frozen=True):
    """The quantiles of an expression by groups that were drawn, as a ledger keeps them."""

    label: str
    name: str
    probability: Fraction
    type: str
    low: int
    high: int
    places: tuple[int, ...]
    """What was drawn: places on the line of values, group by group."""
    epsilon: Fraction
    described: Mapping[str, str]
    """How the table was described, see `Table.described`."""

    @classmethod
    def of(cls, asked: DrawnQuantile, plan: DrawPlan, places: Sequence[int]) -> KeptQuantiles:
        """Return what was drawn by a plan."""
        line = plan.line.type.sql, plan.line.low, plan.line.high
        described = asked.table.stored.described
        about = asked.label, asked.name, plan.probability
        return cls(*about, *line, tuple(places), plan.epsilon, described)

    def encode(self) -> bytes:
        """Write them."""
        return _MARK + zlib.compress(msgspec.json.encode(self, enc_hook=_text))

    def told(self, asked: DrawnQuantile, at: Sequence[Place], entry: Entry) -> DrawnQuantiles:
        """Return what a release tells of them.

        Args:
            asked: the question.
            at: where they stand in the release's statements.
            entry: the charge.
        """
        line = self.type, self.low, self.high
        drawn = self.places, self.epsilon, Earlier.of(entry)
        about = asked.table.path, asked.label, self.name
        return DrawnQuantiles(*about, tuple(at), self.probability, *line, *drawn)

    def tells(self, one: DrawnQuantiles) -> bool:
        """Whether these are what a release tells of."""
        own = (self.label, self.name, self.probability, self.type, self.low, self.high)
        told = (one.label, one.name, one.probability, one.type, one.low, one.high)
        return own == told and (self.places, self.epsilon) == (one.places, one.epsilon)


def can_be_drawn(one: DrawnQuantiles) -> bool:
    """Whether what a release tells of quantiles can be so."""
    try:
        line = ValueLine.of(row_type(one.type))
    except DpsqlError:
        return False
    within = line is not None and line.low <= one.low <= one.high <= line.high
    return (
        within
        and 0 <= one.probability <= 1
        and 0 < one.epsilon <= LARGEST_RANGE
        and selection_cost(one.epsilon) <= one.charge.mu_squared
        and all(one.low <= place <= one.high for place in one.places)
        and one.label == printable(one.label)
    )


def holds_quantiles(content: bytes) -> bool:
    """Whether what a ledger keeps are quantiles that were drawn."""
    return content.startswith(_MARK)


def decode_quantiles(content: bytes) -> KeptQuantiles:
    """Read what was written.

    Raises:
        ReleaseFormatError: it is something else.
    """
    try:
        if not holds_quantiles(content):
            raise ValueError
        document = zlib.decompress(content.removeprefix(_MARK))
        return msgspec.json.decode(document, type=KeptQuantiles, dec_hook=_fraction)
    except (ValueError, TypeError, zlib.error, RecursionError):  # msgspec's errors are ValueErrors
        raise ReleaseFormatError(
            "The quantiles can't be read: they are damaged, or of another version.",
            hint="update dpsql, or pay for new ones with reuse=False.",
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, Fraction):
        raise TypeError
    return fraction_text(value)


def _fraction(kind: type, value: Any) -> Any:
    if kind is not Fraction or not isinstance(value, str):
        raise ValueError
    return fraction(value)
