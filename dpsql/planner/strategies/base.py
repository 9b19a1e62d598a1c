"""The inputs and outputs of every solver."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.digits import least
from dpsql.linalg.matrices import Dense, Exchangeable, StructuredMatrix
from dpsql.planner.residuals.pieces import Component
from dpsql.planner.residuals.structure import Product
from dpsql.planner.strategies.merged import MergedCells
from dpsql.workload import Queries
from dpsql.workload.spread import SpreadRows, by_limits

T = TypeVar("T")
Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Triangular:
    """B = coefficients @ basis: `coefficients` is upper triangular with a positive diagonal.

    The integer `basis` spans every query of the component.
    """

    coefficients: Array
    """The rows of B over the basis: shape (r, r)."""
    basis: Ints
    """Rows over the cells, or over their classes, in the order of the coefficients: shape
    (r, cells)."""
    classes: MergedCells | None = None
    """The classes of cells that the basis is over, if all of each are measured alike."""
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Compute something of it, unless that was done before.

        Plans for several budgets take the same integers.
        """
        if key not in self._known:
            self._known[key] = compute()
        value: T = self._known[key]
        return value

    def over_cells(self, rows: NDArray[Number]) -> NDArray[Number]:
        """Return rows over all cells, of rows over the cells of the basis."""
        return rows if self.classes is None else self.classes.spread(rows)

    def inverse(self) -> StructuredMatrix:
        """Return B⁺, of shape (cells, r)."""
        return Dense(np.linalg.pinv(self.over_cells(self.coefficients @ self.basis)))


@dataclass(frozen=True, slots=True)
class Centered:
    """B = (I − J/n)·√(n/(n−1)): every cell against the mean of all cells."""

    cells: int

    def inverse(self) -> StructuredMatrix:
        """Return B⁺, of shape (cells, cells)."""
        return Exchangeable(self.cells, math.sqrt((self.cells - 1) / self.cells), 0.0)


Strategy = Triangular | Centered
"""A strategy of which `rounding` makes integers; `express.over_integers` makes one of real rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A strategy for one component, with a certificate.

    The strategy measured at privacy cost 1 (its columns have norm at most 1) gives a total
    weighted variance of `upper` before rounding; no strategy gives less than `lower`. So `upper` is
    the sum of the squares of Q B⁺, for the component's rows Q and the strategy B.
    """

    strategy: Strategy
    upper: float
    lower: float
    solver: str
    work: float = 0.0
    """Multiplications that it took, roughly."""

    def is_within(self, tolerance: float) -> bool:
        """Whether the relative gap of the bounds is at most `tolerance`."""
        return self.upper <= self.lower * (1 + tolerance)

    def or_better(self, other: Solution) -> Solution:
        """Return the better strategy of two for one component, with the better lower bound."""
        best = least((self, other), lambda solution: solution.upper)
        return replace(best, lower=max(self.lower, other.lower))


class Solver(ABC):
    """One way to find a strategy for a component.

    Of the solvers that accept a component, each is asked until the gap is small (see `choose`).
    """

    name: str
    """As `Plan.explain` shows it; a solution's `solver` may say more."""

    @abstractmethod
    def accepts(self, component: Component) -> bool:
        """Tell whether the component has the structure that this solver needs.

        This is asked several times for each component. Its rows may be any with the right Gram
        matrix: they need not be the queries.
        """

    def may_accept(self, queries: Queries) -> bool:
        """Tell whether it may accept what many queries over many cells ask of residual spaces.

        This is asked before they are split, which takes minutes. Where no solver says so, they are
        refused; of fewer, and of those that other solvers may accept, nothing need be said.
        """
        return False

    def work(self, component: Component) -> float:
        """Return the least number of multiplications that an accepted component takes, roughly."""
        return 0.0

    @abstractmethod
    def solve(
        self, component: Component, tolerance: float, work: float, start: Array | None = None
    ) -> Solution:
        """Find a strategy whose relative gap is at most `tolerance`, or as near as it gets.

        It takes no more than about `work` multiplications, and may begin at a dual δ, of shape
        (cells,).
        """


@dataclass(frozen=True, slots=True)
class Conquered:
    """A subworkload with a strategy, and bounds on the error of one space at privacy cost 1."""

    spaces: tuple[tuple[str, ...], ...]
    terms: tuple[Product, ...]
    solved: tuple[tuple[Component, Solution], ...]
    """Their Kronecker product is what is measured."""
    upper: float
    lower: float
    solver: str

    def by_limits(self, spreads: Sequence[SpreadRows]) -> Iterator[Conquered]:
        """Tell apart the spaces in which rows of a unit are spread out in other ways."""
        groups = by_limits(self.spaces, spreads).values()
        yield from (replace(self, spaces=tuple(spaces)) for spaces in groups)


class StrategyFamily(ABC):
    """The strategies among which a mechanism chooses for each residual space.

    ResidualPlanner, ResidualPlanner+ and Weighted Fourier Factorizations measure residual spaces
    as QuerySmasher does, with strategies that are restricted to a form that is found fast
    (QuerySmasher, arXiv 2604.00868, 7). That is all in which they differ here. Their mechanisms
    are `RestrictedMechanism`s; `PlanBounds` beside it has a `lower` for families that have none.
    """

    def kind(self, space: tuple[str, ...]) -> Hashable:
        """Tell spaces apart that need strategies of their own though the same is asked of them."""
        return None

    @abstractmethod
    def conquer(self, terms: tuple[Product, ...], spaces: tuple[tuple[str, ...], ...]) -> Conquered:
        """Find the best strategy of the family for what is asked of each of some spaces.

        They are all of one kind.

        Raises:
            ResourceLimitError: no solver can take it.
        """
