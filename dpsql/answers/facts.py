"""Facts that a data user must know about a release apart from its answers. All are public."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

import polars as pl

from dpsql.answers.groundwork import (
    BoundedColumn,
    DrawnQuantiles,
    Earlier,
    FoundColumn,
    Groundwork,
    ReleasedValue,
)
from dpsql.measurement.certify import is_laplace
from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER, Traits
from dpsql.planner.reconstruction.sources import RESIDUALS, Source
from dpsql.privacy import Budget, Receipt
from dpsql.rel.related import ReadTable
from dpsql.schema import Table
from dpsql.schema.table import neighbours_of
from dpsql.sql.compiled import Script

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


def now() -> str:
    """Return the time, in UTC to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache  # reading what is installed takes longer than planning a small release
def versions() -> Mapping[str, str]:
    """Return the versions of Python and of the libraries that a release rests on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


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
    """What it was charged; None if that was nothing."""
    guards: Mapping[str, tuple[str, ...]]
    """Statement → columns in which a row must have a value of the domain to be counted where the
    statement names them; only statements that name such columns."""
    notes: Mapping[str, tuple[str, ...]]
    """Statement → what must be known of its values besides their errors."""
    privacy_cost: Fraction = Fraction(0)
    """What was measured costs that much, as μ²."""
    receipt: Receipt | None = None
    rmse: float | None = None
    """None if it isn't known, because what was measured depends on the data."""
    gap: float | None = None
    """The certified gap of the plan; None if nothing new was measured, or no bound is known."""
    spaces: int = 0
    """How many residual spaces or marginals were measured; 1 for joint cells."""
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
    """How many rows must be behind values that are shown; nothing that is saved depends on it."""
    created: str = field(default_factory=now)
    """UTC, ISO 8601."""
    versions: Mapping[str, str] = field(default_factory=versions)
    mechanism: str | None = None
    """The name of the mechanism that measured what is new; None if nothing is."""
    laplace: bool = False
    """Whether the noise is Laplace noise."""
    warning: str | None = None
    """What was said of the plan: that it loses accuracy that it need not."""

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
        return tuple({one.seq: one for one in self.accounted}.values())

    @property
    def accounted(self) -> tuple[Earlier, ...]:
        """The same charges, each as often as some part of it rests on it, part by part."""
        return (*self.earlier, *(charge for one in self.groundwork for charge in one.charges))

    @property
    def groundwork(self) -> Groundwork:
        """What was found, drawn or released first, for charges of its own."""
        return Groundwork(self.found, self.bounded, self.drawn, self.valued)

    def resting_on(self, groundwork: Groundwork) -> Facts:
        """Return the facts of the same release, with what was found, drawn or released first."""
        parts = {field.name: getattr(groundwork, field.name) for field in fields(groundwork)}
        return replace(self, **parts)

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
    own = sources[-several:]
    noise = all(is_laplace(s.measured) == facts.laplace == facts.budget.pure for s in own)
    kinds = all((s.reading != RESIDUALS) == facts.cells and s.reading != "adaptive" for s in own)
    return (facts.rmse is None) == facts.biased and noise and kinds


def are_grounded(facts: Facts, sources: Sequence[Source]) -> bool:
    """Whether a release's own measurements rest on the charges that facts say, if they say any."""
    if facts.receipt is None:
        return True
    own = sources if facts.adaptive else sources[-len(facts.tables) :]
    said = {one.groundwork for one in own}
    return said in ({facts.groundwork.requests}, {()}, set())


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
