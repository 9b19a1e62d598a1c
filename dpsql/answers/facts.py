"""Facts that a data user must know about a release apart from its answers. All are public."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

import msgspec
import polars as pl

from dpsql.answers.found_values import FoundValues, Parts
from dpsql.measurement.certify import is_laplace
from dpsql.measurement.quantiles import RankDraw, rows_missed, rows_needed
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER, Traits
from dpsql.planner.reconstruction.sources import RESIDUALS, Source
from dpsql.privacy import Budget, Entry, Receipt
from dpsql.privacy.keys import KeyRound, KeyRule
from dpsql.rel.ranked import ValueLine
from dpsql.rel.related import ReadTable
from dpsql.rows.types import row_type
from dpsql.schema import Table
from dpsql.schema.domain import Domain
from dpsql.schema.names import folded
from dpsql.schema.table import neighbours_of
from dpsql.sql.compiled import Script
from dpsql.sql.lowering.drawn import DrawnValues, Place

LIBRARIES = (
    "dpsql",
    "duckdb",
    "polars",
    "numpy",
    "scipy",
    "sqlglot",
    "python-flint",
    "cryptography",
)

GAUSSIAN_NOISE = (
    "round(N(0, sigma^2)) added to exact integers: the Gaussian mechanism, rounded afterwards; "
    "variance sigma^2 + 1/12; drawn exactly from AES-256 in counter mode, keyed by the system"
)
LAPLACE_NOISE = (
    "discrete Laplace noise, P(z) in proportion to exp(-|z|/b), added to exact integers: pure "
    "epsilon; variance 1/(2 sinh(1/(2b))^2); drawn exactly from AES-256 in counter mode, keyed by "
    "the system"
)


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
    """The expression of a row, and its values, if the column is a key that is derived so."""

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
    missed, needed = _missed_and_needed(drawn)
    return f"about {missed:.2g} rows off, if a group has more than some {needed:,.0f} rows{beside}"


def _missed_and_needed(drawn: RankDraw) -> tuple[float, float]:
    if not drawn.among:
        return rows_missed(drawn), rows_needed(drawn)
    from dpsql.measurement import halving  # which few need

    return halving.rows_missed(drawn), halving.rows_needed(drawn)


class DrawnQuantiles(msgspec.Struct, frozen=True):
    """Quantiles by groups that were drawn, for a charge of their own; see `sql.DrawnQuantile`."""

    path: tuple[str, ...]
    """Its table's."""
    label: str
    """The words that the analyst wrote."""
    name: str
    """A name that no other quantile of the same table has."""
    at: tuple[Place, ...]
    """Its places in the release's statements."""
    probability: Fraction
    type: str
    """The type of the values; then the least and the largest place on their line."""
    low: int
    high: int
    places: tuple[int, ...]
    """The drawn places on the line, group by group."""
    epsilon: Fraction
    """The range of what one row has a say of, see `measurement/quantiles.py`."""
    charge: Earlier
    among: tuple[Fraction, ...] = ()
    """The probabilities of all that were drawn together by halving; none if it was one alone."""
    single: bool = False
    """Whether the line is one of numbers of single precision."""

    @property
    def line(self) -> ValueLine:
        """The line of the values."""
        return ValueLine(row_type(self.type), self.low, self.high, self.single)

    def of_statement(self, name: str, other: str) -> DrawnQuantiles:
        """Return the same where one statement of the release is asked again, by another name."""
        at = tuple((other, *place[1:]) for place in self.at if place[0] == name)
        return msgspec.structs.replace(self, at=at)

    @property
    def values(self) -> DrawnValues:
        """The values of which answers are made."""
        return DrawnValues(self.line, self.places, _missed_and_needed(self)[1])


def now() -> str:
    """Return the time, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache  # reading what is installed takes longer than planning a small release
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that a release rests on."""
    installed = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return installed


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Facts:
    """The public facts about a release; by default, about one for which nothing was measured."""

    table: Table
    """The table whose rows were counted, or the first of several."""
    others: tuple[Table, ...] = ()
    """The other ones."""
    read: tuple[ReadTable, ...] = ()
    """The stored tables that relations read: so statements mean the same without a database."""
    neighbours: str
    """The neighboring relation, in words: as it was said when the release was made."""
    statements: Mapping[str, str]
    """Name → SQL."""
    expected: pl.DataFrame
    """The table of `Plan.expected_error`."""
    budget: Budget | None = None
    """The charge; None if there was none."""
    guards: Mapping[str, tuple[str, ...]]
    """Statement → columns in which a row must have a value of the domain to be counted where the
    statement names them; only statements that name such columns."""
    notes: Mapping[str, tuple[str, ...]]
    """Statement → what must be known of its values besides their errors."""
    privacy_cost: Fraction = Fraction(0)
    """The cost of all that was measured, as μ²."""
    receipt: Receipt | None = None
    rmse: float | None = None
    """None if it isn't known, because what was measured depends on the data."""
    gap: float | None = None
    """The certified gap of the plan; None if nothing new was measured, or no bound is known."""
    spaces: int = 0
    """The number of residual spaces or marginals that were measured; 1 for joint cells."""
    whole: bool = False
    objective: str
    vintage: str = ""
    earlier: tuple[Earlier, ...] = ()
    found: tuple[FoundColumn, ...] = ()
    """The columns of its tables whose values were found in the rows."""
    bounded: tuple[BoundedColumn, ...] = ()
    """The columns of its tables whose bounds were found in the rows."""
    drawn: tuple[DrawnQuantiles, ...] = ()
    """The quantiles that were drawn."""
    valued: tuple[ReleasedValue, ...] = ()
    """The values that were released first, and are written in the statements."""
    confidence: float | None = None
    nonnegative: bool = False
    integers: bool = False
    groups_above: float | None = None
    """By how many standard errors counts of groups must be above zero, so that they are shown."""
    suppress_below: float | None = None
    """The least number of rows behind a value that is shown; nothing that is saved depends on
    it."""
    created: str = field(default_factory=now)
    """UTC, ISO 8601."""
    versions: Mapping[str, str] = field(default_factory=versions)
    mechanism: str | None = None
    """The name of the mechanism that measured what is new; None if nothing is."""
    laplace: bool = False
    """Whether the noise is Laplace noise."""
    warning: str | None = None
    """The plan's warning, that it loses accuracy that it need not."""

    @property
    def traits(self) -> Traits:
        """The traits of the mechanism; where nothing new was measured, of QuerySmasher."""
        return MECHANISMS[self.mechanism or QUERYSMASHER]

    @property
    def adaptive(self) -> bool:
        """Whether what was measured depends on the data."""
        return self.traits.is_adaptive

    @property
    def biased(self) -> bool:
        """Whether answers are of tables that were fitted to what was measured: without errors."""
        return self.traits.is_biased

    @property
    def cells(self) -> bool:
        """Whether marginals were measured as they are, and not residual spaces."""
        return self.traits.measures_marginals

    @property
    def title(self) -> str | None:
        """The mechanism as people call it; None if nothing new was measured."""
        return None if self.mechanism is None else self.traits.title

    @property
    def invariants(self) -> tuple[()]:
        """The counts that were released without noise: there are none."""
        return ()

    @property
    def noise(self) -> str:
        """The kind of noise that was added, in words."""
        return LAPLACE_NOISE if self.laplace else GAUSSIAN_NOISE

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables whose rows were counted."""
        return (self.table, *self.others)

    @property
    def charges_before(self) -> tuple[Earlier, ...]:
        """The charges on which it rests besides its own, each once."""
        charges = (column.charge for column in self.found)
        drawn = (one.charge for one in self.drawn)
        bounds = (charge for one in self.bounded for charge in one.charges)
        values = (charge for one in self.valued for charge in one.charges)
        rested = (*self.earlier, *charges, *bounds, *drawn, *values)
        return tuple({one.seq: one for one in rested}.values())

    @property
    def rests_on_found(self) -> bool:
        """Whether something was found, drawn or released first, with charges of their own."""
        return bool(self.found or self.bounded or self.drawn or self.valued)

    @property
    def adjusted(self) -> bool:
        """Whether there are adjusted columns."""
        return self.nonnegative or self.integers


def agree(facts: Facts, sources: Sequence[Source]) -> bool:
    """Whether measurements are of the kind that facts say: their noise, and how they are read."""
    laplace = any(is_laplace(source.measured) for source in sources)
    readings = {source.reading for source in sources}
    if facts.budget is None:
        return facts.laplace == laplace and "adaptive" not in readings
    if facts.adaptive:
        return facts.rmse is None and not facts.laplace and not laplace and readings <= {"adaptive"}
    several = len(facts.tables)  # there is nothing of any of them if nothing had to be measured
    last = sources[-several:]
    noise = all(is_laplace(s.measured) == facts.laplace == facts.budget.pure for s in last)
    kinds = all((s.reading != RESIDUALS) == facts.cells and s.reading != "adaptive" for s in last)
    return (facts.rmse is None) == facts.biased and noise and kinds


def unmeasured(
    script: Script,
    expected: pl.DataFrame,
    objective: str,
    held_for: Mapping[str, str] = MappingProxyType({}),
) -> Facts:
    """Return what is public about statements before anything is measured or charged for them.

    Args:
        script: what is asked.
        expected: the table of expected errors.
        objective: what is measured for.
        held_for: statement → the rows for which its target holds.
    """
    held = {name: (f"its target holds for {said}",) for name, said in held_for.items()}
    notes = {
        s.name: (*(note.text for note in s.notes), *script.sums(s), *held.get(s.name, ()))
        for s in script.statements
    }
    return Facts(
        table=script.tables[0],
        others=script.tables[1:],
        read=script.read,
        neighbours=neighbours_of(script.tables),
        statements={s.name: s.sql for s in script.statements},
        expected=expected,
        guards={s.name: tuple(sorted(s.guards)) for s in script.statements if s.guards},
        notes={name: found for name, found in notes.items() if found},
        objective=objective,
    )
