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
from dpsql.measurement.quantiles import LARGEST_RANGE
from dpsql.privacy import Entry
from dpsql.privacy.amount import fraction, fraction_text
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
    """The drawn places on the line of values, group by group."""
    epsilon: Fraction
    described: Mapping[str, str]
    """The table's description, see `Table.described`."""
    among: tuple[Fraction, ...] = ()
    """The probabilities of all that were drawn together by halving; none if it was one alone."""
    single: bool = False
    """Whether the line is one of numbers of single precision."""

    @classmethod
    def of(
        cls,
        asked: DrawnQuantile,
        places: Sequence[int],
        epsilon: Fraction,
        among: tuple[Fraction, ...],
    ) -> KeptQuantiles:
        """Return what was drawn of a question, at an ε."""
        line = asked.values.line
        described = asked.table.stored.described
        about = asked.label, asked.name, asked.values.probability
        ends = line.type.sql, line.low, line.high
        return cls(*about, *ends, tuple(places), epsilon, described, among, line.single)

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
        return DrawnQuantiles(
            *about, tuple(at), self.probability, *line, *drawn, self.among, self.single
        )

    def tells(self, one: DrawnQuantiles) -> bool:
        """Whether these are what a release tells of."""
        identity = (self.label, self.name, self.probability, self.type, self.low, self.high)
        told = (one.label, one.name, one.probability, one.type, one.low, one.high)
        drawn = self.places, self.epsilon, self.among, self.single
        return identity == told and drawn == (one.places, one.epsilon, one.among, one.single)


class KeptDraws(msgspec.Struct, frozen=True):
    """Quantiles that were drawn for one charge: one, or several by halving."""

    each: tuple[KeptQuantiles, ...]

    def encode(self) -> bytes:
        """Write them: one as itself."""
        document = self.each[0] if len(self.each) == 1 else self.each
        return _MARK + zlib.compress(msgspec.json.encode(document, enc_hook=_text))

    def of(self, probability: Fraction) -> KeptQuantiles | None:
        """Return the one for a probability; None if there is none."""
        return next((kept for kept in self.each if kept.probability == probability), None)


def can_be_drawn(one: DrawnQuantiles) -> bool:
    """Whether what a release tells of quantiles can be so."""
    try:
        line = one.line
    except DpsqlError:
        return False
    return (
        line.is_possible
        and 0 <= one.probability <= 1
        and 0 < one.epsilon <= LARGEST_RANGE
        and _is_paid(one)
        and all(one.low <= place <= one.high for place in one.places)
        and one.label == printable(one.label)
    )


def _is_paid(one: DrawnQuantiles) -> bool:
    """Whether its charge can have paid for it, and for what was drawn with it."""
    levels = 1
    if one.among:
        from dpsql.measurement.halving import are_halved, levels_of  # which few need

        if one.probability not in one.among or not are_halved(one.among):
            return False
        levels = levels_of(one.among)
    return levels * selection_cost(one.epsilon) <= one.charge.mu_squared


def holds_quantiles(content: bytes) -> bool:
    """Whether what a ledger keeps are quantiles that were drawn."""
    return content.startswith(_MARK)


def decode_quantiles(content: bytes) -> KeptDraws:
    """Read what was written.

    Raises:
        ReleaseFormatError: it is something else.
    """
    try:
        if not holds_quantiles(content):
            raise ValueError
        document = zlib.decompress(content.removeprefix(_MARK))
        kind = KeptQuantiles | tuple[KeptQuantiles, ...]
        kept = msgspec.json.decode(document, type=kind, dec_hook=_fraction)
        if not kept:
            raise ValueError
        return KeptDraws((kept,) if isinstance(kept, KeptQuantiles) else kept)
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
