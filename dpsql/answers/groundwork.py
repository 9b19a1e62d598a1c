"""Groundwork: what was found, drawn or released before a release, each for charges of its own.

Keys and bounds that nobody knew, quantiles that are drawn, and values of all rows that statements
compare with: they are no measurements of the release's plan, and its answers rest on them all the
same. So each says for which charges it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec

from dpsql.answers.found_values import FoundValues, Parts
from dpsql.measurement.quantiles import RankDraw, rows_missed, rows_needed
from dpsql.privacy import Entry
from dpsql.privacy.keys import KeyRound, KeyRule
from dpsql.rel.ranked import ValueLine
from dpsql.rows.types import row_type
from dpsql.schema import Table
from dpsql.schema.domain import Domain
from dpsql.schema.names import folded
from dpsql.sql.lowering.drawn import DrawnValues, Place


class Earlier(msgspec.Struct, frozen=True, omit_defaults=True, rename={"seq": "entry"}):
    """An earlier release on whose measurements answers rest as well."""

    seq: int
    """Its entry in the ledger."""
    request: str
    mu_squared: Fraction
    time: str
    delta: Fraction | None = None
    """The δ that it was charged, if any."""

    @classmethod
    def of(cls, entry: Entry) -> Earlier:
        """Take it from the ledger."""
        delta = entry.delta or None
        return cls(entry.seq, entry.request, entry.mu_squared, entry.time, delta)


class FoundRound(msgspec.Struct, frozen=True, omit_defaults=True):
    """A round in which keys were found; see `privacy/keys.py`."""

    mu_squared: Fraction
    delta: Fraction
    most: int
    least: int
    epsilon: Fraction = Fraction(0)
    """The pure ε that it was paid, if its noise was Laplace noise."""

    @classmethod
    def of(cls, by: KeyRound) -> FoundRound:
        """Describe a round."""
        return cls(by.mu_squared, by.delta, by.most, by.least, by.epsilon)

    @property
    def rule(self) -> KeyRound:
        """The round."""
        return KeyRound(self.mu_squared, self.delta, self.most, self.least, self.epsilon)


class FoundColumn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column whose values were found in the rows, for a charge of its own."""

    path: tuple[str, ...]
    """Its table's."""
    column: str
    rounds: tuple[FoundRound, ...]
    charge: Earlier
    scores: tuple[int, ...] = ()
    """The noisy scores of the values, in their order, where answers take them along."""
    computed: FoundValues | None = None
    """What is computed of a row, and its values, if the column is a key that is derived so."""

    @classmethod
    def of(
        cls,
        path: tuple[str, ...],
        column: str,
        rule: KeyRule,
        entry: Entry,
        scores: tuple[int, ...] = (),
        computed: FoundValues | None = None,
    ) -> FoundColumn:
        """Describe what was charged by an entry of the ledger."""
        return cls(
            path,
            column,
            tuple(map(FoundRound.of, rule.rounds)),
            Earlier.of(entry),
            scores,
            computed,
        )

    @property
    def charges(self) -> tuple[Earlier, ...]:
        """The charges on which it rests."""
        return (self.charge,)

    @property
    def label(self) -> str:
        """The name that a reader sees."""
        return self.column if self.computed is None else self.computed.expression

    @property
    def parts(self) -> Parts:
        """The values that each of its keys joins; none if it is one alone."""
        return () if self.computed is None else self.computed.parts

    def is_called(self, name: object) -> bool:
        """Whether it is meant by a name, or by a list of what was found together."""
        if not isinstance(name, list | tuple):
            return folded(str(name)) == folded(self.label)
        names = {folded(label) for label, _ in self.parts}
        return bool(names) and names == {folded(str(one)) for one in name}

    def domain(self, table: Table) -> Domain | None:
        """Return the values, of the table that has them, if it does."""
        return table.columns.get(self.column) if self.computed is None else self.computed.domain

    @property
    def without_scores(self) -> FoundColumn:
        """The same where answers follow from what was measured alone."""
        return msgspec.structs.replace(self, scores=())

    @property
    def rule(self) -> KeyRule:
        """The rule by which they were found."""
        return KeyRule(tuple(each.rule for each in self.rounds))


class BoundedColumn(msgspec.Struct, frozen=True):
    """A column whose bounds were found in the rows, for charges of their own."""

    path: tuple[str, ...]
    """Its table's."""
    column: str
    low: str
    """The bounds as decimals."""
    high: str
    charges: tuple[Earlier, ...]

    @property
    def label(self) -> str:
        """The name that a reader sees."""
        return self.column

    @property
    def charge(self) -> Earlier:
        """The charge that found them: the last one of those on which they rest."""
        return max(self.charges, key=lambda one: one.seq)


class ReleasedValue(msgspec.Struct, frozen=True):
    """A value of all units' rows that was released first, for statements that compare with it."""

    statement: str
    """The statement that returns it."""
    value: str
    """The value, as it is written in SQL."""
    charges: tuple[Earlier, ...]
    """The charges on which it rests."""


def words_of_miss(drawn: RankDraw) -> str:
    """Word how far off a drawn quantile is: by how many rows, if there are enough beside it."""
    beside = "" if drawn.probability in (0, 1) else " on each side of it"
    return (
        f"about {rows_missed(drawn):.2g} rows off, if a group has more than some "
        f"{rows_needed(drawn):,.0f} rows{beside}"
    )


class DrawnQuantiles(msgspec.Struct, frozen=True):
    """Quantiles by groups that were drawn, for a charge of their own; see `sql.DrawnQuantile`."""

    path: tuple[str, ...]
    """Its table's."""
    label: str
    """The words that the analyst wrote."""
    name: str
    """What tells it apart from others of the same table."""
    at: tuple[Place, ...]
    """Where it stands in the release's statements."""
    probability: Fraction
    type: str
    """That of the values, and the least and the largest place on their line."""
    low: int
    high: int
    places: tuple[int, ...]
    """What was drawn: places on the line, group by group."""
    epsilon: Fraction
    """The range of what one row has a say of, see `measurement/quantiles.py`."""
    charge: Earlier

    @property
    def charges(self) -> tuple[Earlier, ...]:
        """The charges on which it rests."""
        return (self.charge,)

    @property
    def line(self) -> ValueLine:
        """The line of the values."""
        return ValueLine(row_type(self.type), self.low, self.high)

    def of_statement(self, name: str, other: str) -> DrawnQuantiles:
        """Return the same where one statement of the release is asked again, by another name."""
        at = tuple((other, *place[1:]) for place in self.at if place[0] == name)
        return msgspec.structs.replace(self, at=at)

    @property
    def values(self) -> DrawnValues:
        """The values of which answers are made."""
        return DrawnValues(self.line, self.places, rows_needed(self))


@dataclass(frozen=True, slots=True)
class Groundwork:
    """All of it that there is of a release, or of statements that are asked."""

    found: tuple[FoundColumn, ...] = ()
    """The columns whose values were found in the rows."""
    bounded: tuple[BoundedColumn, ...] = ()
    """The columns whose bounds were found in the rows."""
    drawn: tuple[DrawnQuantiles, ...] = ()
    """The quantiles that were drawn."""
    valued: tuple[ReleasedValue, ...] = ()
    """The values that were released first, and are written in the statements."""

    def __iter__(self) -> Iterator[FoundColumn | BoundedColumn | DrawnQuantiles | ReleasedValue]:
        yield from self.found
        yield from self.bounded
        yield from self.drawn
        yield from self.valued

    def __bool__(self) -> bool:
        return any(True for _ in self)

    @property
    def charges(self) -> tuple[Earlier, ...]:
        """The charges on which it rests, each once."""
        return tuple(dict.fromkeys(charge for one in self for charge in one.charges))

    @property
    def requests(self) -> tuple[str, ...]:
        """The names of these charges, in order."""
        return tuple(sorted({charge.request for charge in self.charges}))

    @property
    def without_scores(self) -> Groundwork:
        """The same where answers follow from what was measured alone."""
        return replace(self, found=tuple(one.without_scores for one in self.found))
