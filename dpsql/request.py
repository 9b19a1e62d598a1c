"""Requests: one type from the public call to the ledger's digest, and the options of calls.

Each option of a public call is declared here once, with its type; `Request` and `Declared` have the
defaults. Functions take some of them as `**options: Unpack[…]`, which type checkers and editors
read; `spelled_out` writes them into the signature that `help()` shows. The command line and the
magics make their flags of the same names, see `dpsql.flags`.

Importing this loads nothing heavy.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    cast,
)

from dpsql.errors import SqlError
from dpsql.planner.plans.traits import QUERYSMASHER
from dpsql.progress import Progress, Watch

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import polars as pl
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

    from dpsql.engines.public import PublicTables
    from dpsql.engines.source import DataSource
    from dpsql.planner.mechanisms.base import Basis, Loss, ObjectiveName, Residuals
    from dpsql.planner.plans.plan import Plan
    from dpsql.privacy import Budget
    from dpsql.privacy.finding import Bounds, Keys, Quantiles
    from dpsql.schema.declarations import SchemaLike
    from dpsql.schema.units import UnitLike

    class ArrowFrame(Protocol):
        """Frame of any library that hands out Arrow data, as pandas and PyArrow do."""

        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

    InFiles: TypeAlias = str | os.PathLike[str]
    Frame: TypeAlias = pl.DataFrame | pl.LazyFrame | ArrowFrame
    PrivateRows: TypeAlias = (
        DuckDBPyConnection
        | SparkSession
        | DataSource
        | InFiles
        | Frame
        | Mapping[str, InFiles | Frame]
        | Mapping[str, str]
        | Mapping[str, InFiles]
    )

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Statements = str | Sequence[str] | Mapping[str, str]
Weights = Mapping[str, float] | Literal["marginal"]
"""Statement → importance of each of its answers; or each table of answers counts alike."""
Free = Literal[0]
"""In place of a budget: answer from earlier measurements alone."""


class SchemaOption(TypedDict, total=False):
    """Domains that go before the catalog's: as they are, or the path of a schema file."""

    schema: SchemaLike | None


class UnitOptions(TypedDict, total=False):
    """Options for public tables, and for whose rows are protected together."""

    public: PublicTables | None
    unit: UnitLike
    max_rows: int | Mapping[str, int] | None
    max_groups: int | None
    max_values: int | None
    references: Mapping[str, str] | None


class TableOptions(SchemaOption, UnitOptions, total=False):
    """Options that declare tables, where nothing is spent."""


class StateOptions(TypedDict, total=False):
    """Options for the state of the rows, as their owner says."""

    vintage: str
    accept_schema: bool


class LedgerOption(TypedDict, total=False):
    """Options for the place of the account, and the name by which rows are known there."""

    ledger: str | Path | None
    dataset: str | None


class RedeclaredOptions(TableOptions, StateOptions, total=False):
    """Options of `Session.redeclared`."""


class SessionOptions(RedeclaredOptions, LedgerOption, total=False):
    """Options of `Session`, besides its total."""

    version: int | str | None


class MechanismOptions(TypedDict, total=False):
    """Options for the mechanism that plans, and for the groups that are answered."""

    mechanism: str
    groups_above: float | None


class ReuseOption(TypedDict, total=False):
    """The use of earlier measurements, or of none."""

    reuse: bool


class WeightsOption(TypedDict, total=False):
    """The option for how much each statement counts when they are planned together."""

    weights: Weights | None


class AimOptions(TypedDict, total=False):
    """Options for the aims of a plan."""

    targets: Mapping[str, float] | None
    objective: ObjectiveName
    assume: Mapping[str, float] | None


class SearchOptions(TypedDict, total=False):
    """Options for the search for a plan: how long it lasts, and among which plans."""

    tolerance: float
    residuals: Residuals


class ProgressOption(TypedDict, total=False):
    """The function that is told how far the work is."""

    progress: Progress | bool | None


class ReportOption(TypedDict, total=False):
    """Options for what is told besides what is asked."""

    report_cut: bool
    report_moved: bool


class FindingOptions(TypedDict, total=False):
    """Options for columns whose values, or bounds, nobody has declared: how these are found."""

    keys: Keys | None
    bounds: Bounds | None
    quantiles: Quantiles | None


class AnswerOptions(MechanismOptions, ReuseOption, FindingOptions, ProgressOption, total=False):
    """Options of `Session.query`, besides its budget."""

    confidence: float | None
    accept_gap: bool
    suppress_below: float | None
    standard_errors: bool


class QueryOptions(SessionOptions, WeightsOption, AnswerOptions, total=False):
    """Options of `dpsql.query`, besides its budget."""


class FrameSessionOptions(UnitOptions, StateOptions, LedgerOption, total=False):
    """Options of a session on a frame, besides its total and the schema."""


class FrameOptions(FrameSessionOptions, WeightsOption, AnswerOptions, total=False):
    """Options of `df.dp.sql`, besides its budget and the schema."""


class ReleaseOptions(AnswerOptions, WeightsOption, AimOptions, ReportOption, total=False):
    """Options of `Session.release`, besides its budget."""

    nonnegative: bool
    integers: bool
    out: str | Path | None
    at_most: Budget | None


class SessionPlanOptions(
    AimOptions,
    WeightsOption,
    SearchOptions,
    MechanismOptions,
    ReuseOption,
    FindingOptions,
    ReportOption,
    ProgressOption,
    total=False,
):
    """Options of `Session.plan`, besides its budget."""


class PlanningOptions(
    FindingOptions,
    AimOptions,
    WeightsOption,
    SearchOptions,
    MechanismOptions,
    ReportOption,
    total=False,
):
    """Options for a plan by itself."""

    bases: Mapping[str, Basis] | None
    loss: Loss | None


class PlanOptions(PlanningOptions, TableOptions, ProgressOption, total=False):
    """Options of `dpsql.plan`, besides its budget."""

    given: Sequence[Plan]


class SessionCompareOptions(WeightsOption, ProgressOption, total=False):
    """Options of `Session.compare`, besides its budget."""

    mechanisms: Sequence[str] | None
    tolerance: float


class CompareOptions(SessionCompareOptions, TableOptions, total=False):
    """Options of `dpsql.compare`, besides its budget."""


@dataclass(frozen=True, slots=True)
class Request:
    """Statements, and how they are to be answered."""

    statements: tuple[tuple[str, str], ...] = ()
    """Name and text of each."""
    budget: Budget | Free | None = None
    _: KW_ONLY
    targets: Mapping[str, float] | None = None
    """In place of a budget: statement → the largest standard error."""
    objective: ObjectiveName = "total"
    weights: Weights | None = None
    tolerance: float = 1e-3
    residuals: Residuals = "weighted"
    reuse: bool = True
    mechanism: str = QUERYSMASHER
    bases: Mapping[str, Basis] | None = None
    loss: Loss | None = None
    at_most: Budget | None = None
    """With targets: the most that may be charged. It decides nothing else."""
    accept_gap: bool = False
    """Whether a plan may lose accuracy that it need not: it decides nothing but that."""
    groups_above: float | None = None
    """Standard errors by which the noisy count of a group must be above zero to be answered."""
    assume: Mapping[str, float] | None = None
    """With targets: the rows for which those of averages and the like hold."""
    keys: Keys | None = None
    """A way to find the values of undeclared columns: what is measured is over those found."""
    bounds: Bounds | None = None
    """A way to find the bounds of undeclared columns that are added up."""
    quantiles: Quantiles | None = None
    """The part of the budget that draws quantiles, and which are drawn."""
    report_cut: bool = False
    """Whether it is asked besides how many units have more rows than count."""
    report_moved: bool = False
    """Whether it is asked besides how many values count as others, because it is declared so."""
    confidence: float | None = None
    """From here on all is post-processing: how answers are shown and handed out."""
    nonnegative: bool = False
    integers: bool = False
    suppress_below: float | None = None
    """The least number of rows behind a value, by their noisy number, for it to be shown."""
    standard_errors: bool = False
    """Whether these stand beside values in place of variances."""
    out: str | Path | None = None
    progress: Progress | bool | None = None

    @property
    def free(self) -> bool:
        """Whether nothing may be spent: a plain 0 was given as the budget."""
        return type(self.budget) is int and self.budget == 0

    @property
    def amount(self) -> Budget | None:
        """The amount that may be spent; None where nothing may be, or as much as targets need."""
        return self.budget or None

    @property
    def digest(self) -> str:
        """A hash of all that decides what is measured but the amount, which is in the ledger.

        Runs that were interrupted are found again by it, those of earlier versions too. So what was
        asked before there was an option stays the same without it.
        """
        options: list[object] = [self.objective, self.weights or {}, self.targets, self.reuse]
        if self.mechanism != QUERYSMASHER:
            options.append(self.mechanism)
        if self.amount is not None and self.amount.pure:  # else the noise has another distribution
            options.append("pure")
        if self.groups_above is not None:
            options.append({"groups_above": float(self.groups_above)})  # 2 and 2.0 ask the same
        if self.targets is not None and self.assume is not None:
            options.append({"assume": self.assume})
        if self.quantiles is not None and self.quantiles.always:
            options.append("drawn")
        if self.report_cut:
            options.append("report_cut")
        if self.report_moved:
            options.append("report_moved")
        return digest([self.statements, *options])

    def tell(self, phase: str, done: int, of: int) -> None:
        """Say how far the work is, to whoever wants to know."""
        if callable(self.progress):
            self.progress(phase, done, of)

    def note(self, text: str) -> None:
        """Say something about the work, where somebody looks on."""
        if isinstance(self.progress, Watch):
            self.progress.note(text)


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations besides those of the catalog, as they are given; see `Session`."""

    schema: SchemaLike | None = None
    public: PublicTables | None = None
    unit: UnitLike = None
    max_rows: int | Mapping[str, int] | None = None
    max_groups: int | None = None
    max_values: int | None = None
    references: Mapping[str, str] | None = None
    vintage: str = ""
    accept_schema: bool = False
    ledger: str | Path | None = None
    dataset: str | None = None
    version: int | str | None = None


DEFAULTS: Mapping[str, object] = {
    "mechanisms": None,
    **{field.name: field.default for field in (*fields(Request), *fields(Declared))},
    "given": (),
}
"""Option → what it is where it isn't given; in the order of signatures."""


def named(statements: Statements) -> tuple[tuple[str, str], ...]:
    """Give every statement a name: `query`, or `query_1`, `query_2`, … or the mapping's.

    Raises:
        SqlError: they are not texts, or there are none.
    """
    if isinstance(statements, str):
        return (("query", statements),)
    if isinstance(statements, Mapping):
        pairs = tuple(statements.items())
    elif isinstance(statements, Sequence):
        pairs = tuple((f"query_{i + 1}", sql) for i, sql in enumerate(statements))
    else:
        pairs = (("", statements),)
    if not pairs:
        raise SqlError("There are no statements.", hint="pass at least one SELECT.")
    for name, sql in pairs:
        if not isinstance(name, str) or not isinstance(sql, str):
            raise SqlError("Statements are SQL texts.", hint='pass {"name": "SELECT …"}.')
    return pairs


def part(options: Mapping[str, Any], kind: type[T]) -> T:
    """Return those of some options that another call takes."""
    taken = kind.__annotations__
    return cast(T, {name: value for name, value in options.items() if name in taken})


def spelled_out(kind: type) -> Callable[[F], F]:
    """Write the options of a function, which it takes as `**options`, into its signature."""

    def spell(function: F) -> F:
        signature = inspect.signature(function)
        plain = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=DEFAULTS[name],
                annotation=getattr(kind.__annotations__[name], "__forward_arg__", Any),
            )
            for name in DEFAULTS
            if name in kind.__annotations__
        ]
        function.__signature__ = signature.replace(parameters=[*plain, *options])  # type: ignore[attr-defined]
        return function

    return spell


def digest(value: object) -> str:
    """Return a hash of something that JSON has."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
