"""The inputs and outputs of every mechanism."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from numpy.typing import ArrayLike

from dpsql.errors import InternalError, WorkloadError, shown
from dpsql.measurement.certify import CertifiedPlan
from dpsql.measurement.differences import Difference
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.plans.plan import RECORD, Plan
from dpsql.planner.plans.traits import Traits
from dpsql.privacy import Budget
from dpsql.workload import Workload
from dpsql.workload.spread import SpreadRows, least_share

if TYPE_CHECKING:
    from dpsql.rel.support import Support

DEFAULT_TOLERANCE = 1e-3

Residuals = Literal["weighted", "uniform", "none"]
ObjectiveName = Literal["total", "largest"]
Basis = str | ArrayLike
"""Queries for which ResidualPlanner+ makes an attribute's strategy: `identity`, `prefix`, `range`,
or a matrix of queries × cells."""
Loss = Callable[[Any], Any]
"""Objective of ResidualPlanner: from the variances v_B, a vector of CVXPY with one entry for each
family, to a convex scalar."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """Solutions for workloads that hold whatever may be spent on them.

    The parts of a workload are planned twice: to see how the budget is best shared among them, and
    then for their shares.
    """

    _found: dict[tuple[int, str, float], tuple[Workload, Any]] = field(default_factory=dict)

    def once(self, workload: Workload, what: str, tolerance: float, solve: Callable[[], T]) -> T:
        """Solve something of a workload, unless that was done before."""
        key = id(workload), what, tolerance  # the workload is kept, so that no other has its id
        if key not in self._found:
            self._found[key] = workload, solve()
        solution: T = self._found[key][1]
        return solution


@dataclass(frozen=True, slots=True)
class Options:
    """The options for a plan; see `querysmasher.plan`."""

    tolerance: float = DEFAULT_TOLERANCE
    residuals: Residuals = "weighted"
    objective: ObjectiveName = "total"
    targets: Mapping[str, float] | None = None
    contributions: int = 1
    neighbours: str = RECORD
    bases: Mapping[str, Basis] | None = None
    """Attribute → the queries for which ResidualPlanner+ makes its strategy."""
    loss: Loss | None = None
    """The objective of ResidualPlanner: a convex function of the variances."""
    bound: int = 1
    """The largest magnitude of what a row adds to its cell: 1 where rows are counted."""
    spreads: tuple[SpreadRows, ...] = ()
    """Bounds on how far apart the rows of a unit are, that count."""
    supports: tuple[Support, ...] = ()
    """The cells in which rows add something to sums."""
    solved: Solved | None = None
    """Solutions found before for the same workloads, if they are planned for several budgets."""


DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Cost:
    """The amount that a plan may spend, where a privacy unit may have several records."""

    budget: Budget
    contributions: int = 1
    bound: int = 1
    """The largest magnitude of what a record adds to its cell: 1 where records are counted."""
    spreads: tuple[SpreadRows, ...] = ()
    """Bounds on how far apart the records of a unit are; a mechanism that ignores them pays as if
    all of a unit's records were in one cell."""
    supports: tuple[Support, ...] = ()
    """The cells in which records add something to sums."""

    @property
    def change(self) -> int:
        """The most by which a unit changes a cell."""
        return self.contributions * self.bound

    @property
    def amount(self) -> Fraction:
        """The amount to spend, exactly: as μ², or as ε of a pure budget."""
        return self.budget.amount if self.budget.pure else self.budget.mu_squared

    @property
    def times(self) -> int:
        """The factor by which a unit costs more than a record that counts as one."""
        return self.change if self.budget.pure else self.change**2

    @property
    def per_record(self) -> Fraction:
        """The amount to spend if each unit had a single record that counts as one, exactly.

        As μ²/(kM)², or as ε/(kM) for a pure budget.
        """
        return self.amount / self.times

    @property
    def agreeing(self) -> Fraction:
        """The number of a unit's records that may agree in all counts, however they are apart."""
        return self.contributions * least_share(self.spreads)

    @property
    def at_best(self) -> Fraction:
        """The amount to spend per record if all queries cost as little as any can, exactly.

        However far its records are apart, a unit may have the least share of them in one cell.
        """
        least = least_share(self.spreads)
        return self.per_record / (least if self.budget.pure else least**2)

    def certified(
        self, blocks: tuple[BlockStrategy, ...], differences: tuple[Difference, ...] = ()
    ) -> CertifiedPlan:
        """Check that these measurements cost no more."""
        names = {name for block in blocks for space in block.spaces for name in space}
        said = (s for s in self.supports if s.measure in names and s.attribute in names)
        supports = tuple(said)
        return CertifiedPlan(blocks, self.budget, self.change, self.spreads, differences, supports)


class Mechanism(ABC):
    """A way to choose what is measured."""

    traits: Traits
    """Its entry in `MECHANISMS`."""

    @abstractmethod
    def reason_unsupported(self, workload: Workload, budget: Budget) -> str | None:
        """Say why it can't answer a workload within a budget, as a clause; None if it can.

        It is quick, and looks at sizes before anything is written out. `reason_of_kind` has what
        is wrong with empty workloads and other budgets, whatever is asked.
        """

    def measured(self, workload: Workload) -> Workload:
        """Return what is planned for a workload that it can answer: usually that itself."""
        return workload

    @abstractmethod
    def plan(self, workload: Workload, budget: Budget | None, options: Options) -> Plan:
        """Plan a workload that it can answer, with options that it takes.

        Families without queries play no part, nor do attributes that no family touches. `Cost` has
        the contributions; neighbours and the name of the mechanism are filled in by the registry.

        Args:
            workload: what to answer.
            budget: what may be spent; None if there are targets.
            options: what the plan is to be like.

        Raises:
            MechanismError: it can't answer this after all.
            WorkloadError: the workload is empty, or an option is out of range.
            ResourceLimitError: a strategy would be too large, or the budget is too small.
        """


def reason_of_kind(workload: Workload, budget: Budget, *, pure: bool = False) -> str | None:
    """Say why noise can't answer a workload, whatever is asked in it: Gaussian unless `pure`."""
    if not workload.families:
        return "the workload is empty"
    return "its Gaussian noise gives no pure ε" if budget.pure and not pure else None


def reason_of_counts(workload: Workload, budget: Budget) -> str | None:
    """Say why no table of numbers of rows could answer a workload, with Gaussian noise."""
    reason = reason_of_kind(workload, budget)
    added_up = [f.measure for f in workload.families if f.measure is not None]
    if reason is None and not all(block.of_rows for block in added_up):
        return (
            "it fits numbers of rows, and neither sums of their values nor numbers of units follow "
            "from these"
        )
    return reason


def budget_of(budget: Budget | None) -> Budget:
    """Return a budget, which only those that meet targets plan without."""
    if budget is None:
        raise InternalError("a plan without a budget was let through")
    return budget


def check_how(tolerance: float, residuals: str, objective: str) -> None:
    """Refuse options that do not exist.

    Raises:
        WorkloadError: one does not.
    """
    number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
    if not number or not 1e-8 <= tolerance <= 1:
        raise WorkloadError(
            f"The tolerance {tolerance!r} is out of range.", hint="use 1e-8 to 1, e.g. 1e-3."
        )
    if not isinstance(residuals, str) or residuals not in ("weighted", "uniform", "none"):
        raise WorkloadError(
            f"There are no residuals {shown(residuals)}.",
            hint='use "weighted", "uniform" or "none".',
        )
    if not isinstance(objective, str) or objective not in ("total", "largest"):
        raise WorkloadError(
            f"There is no objective {shown(objective)}.", hint='use "total" or "largest".'
        )
