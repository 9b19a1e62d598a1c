"""OPT_M: marginals with weights (HDMM, 7 and 8).

The strategy θ_B·(marginal over B), for all attribute sets B, treats the cells of each attribute
alike. So its Gram matrix has the residual spaces as eigenspaces, whatever the weights (Theorem
9): on that of A, with n_B the number of cells over B and N that of all, its eigenvalue is

    κ_A = N · Σ_{B⊇A} θ_B² / n_B .

With g_A the trace there of the Gram matrix of what is asked, the error is

    ‖θ‖² · Σ_A g_A / κ_A ,   ‖θ‖² = Σ θ_B² (Gaussian) or (Σ θ_B)² (Laplace) ,

of any queries, also joint ones: g_A is Σ over the queries of ‖their part in A‖² (Theorem 11, in
other words). N cancels. The problem is convex in θ² for Gaussian noise; for Laplace noise the
search starts from several places.

Over up to 15 attributes all sets B are there, numbered by their bits, and sums over all supersets
take one pass for each attribute (Yates's algorithm). Over more, only listed sets are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpsql.linalg.arrays import Array
from dpsql.linalg.sets import subsets
from dpsql.planner.mechanisms.hdmm.strategies import Noise, descend, irregular
from dpsql.planner.residuals.decompose import decompose
from dpsql.planner.residuals.equivalence import by_size
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Workload
from dpsql.workload.workload import touched

MAX_BITS = 15
MAX_PAIRS = 2**23
"""Pairs of a listed set and a listed superset of it."""


class ListedSubsets:
    """Sets of the attributes 0..d−1, in a fixed order, with the pairs of one inside another."""

    def __init__(self, sets: Sequence[tuple[int, ...]]) -> None:
        self.sets = list(sets)
        """The attributes of each set, ascending; a set is known by its place here."""
        self._numbers = {frozenset(s): i for i, s in enumerate(self.sets)}
        lower, upper = [], []
        for at, larger in enumerate(self.sets):
            for smaller in subsets(larger):
                number = self._numbers.get(frozenset(smaller))
                if number is not None:
                    lower.append(number)
                    upper.append(at)
        shape = (len(self.sets),) * 2
        pairs = scipy.sparse.coo_array((np.ones(len(lower)), (lower, upper)), shape)
        self._above, self._below = pairs.tocsr(), pairs.T.tocsr()

    def index(self, attributes: Collection[int]) -> int:
        """Return the number of a set."""
        return self._numbers[frozenset(attributes)]

    def above(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its supersets and of its own."""
        return np.asarray(self._above @ values)

    def below(self, values: Array) -> Array:
        """Return, for each set, the sum of the values of its subsets and of its own."""
        return np.asarray(self._below @ values)


class AllSubsets(ListedSubsets):
    """All 2^d sets, of which no pairs have to be kept."""

    def __init__(self, count: int) -> None:
        self._count = count
        numbers = range(1 << count)
        self.sets = [tuple(i for i in range(count) if n >> i & 1) for n in numbers]

    def index(self, attributes: Collection[int]) -> int:
        """Return the number whose bits are the attributes."""
        return sum(1 << i for i in attributes)

    def above(self, values: Array) -> Array:
        """Add what has a bit to what hasn't, bit by bit."""
        return self._passes(values, 0, 1)

    def below(self, values: Array) -> Array:
        """Add what hasn't a bit to what has, bit by bit."""
        return self._passes(values, 1, 0)

    def _passes(self, values: Array, into: int, of: int) -> Array:
        result = np.array(values)
        for i in range(self._count):
            pairs = result.reshape(-1, 2, 1 << i)
            pairs[:, into] += pairs[:, of]
        return result


def closure(sets: Collection[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the sets and all subsets of them, small ones first."""
    found = set(chain.from_iterable(map(subsets, sets)))
    return sorted(found, key=lambda s: (len(s), s))


def enough_subsets(count: int, wanted: Collection[tuple[int, ...]]) -> ListedSubsets | None:
    """Return all sets if there are few attributes, else the closure of those wanted.

    None if they are too many.
    """
    if count <= MAX_BITS:
        return AllSubsets(count)
    if sum(1 << len(s) for s in wanted) > MAX_PAIRS:
        return None
    listed = closure(wanted)
    if sum(1 << len(s) for s in listed) > MAX_PAIRS:
        return None
    return ListedSubsets(listed)


STARTS, SHAKES = 30, 30
"""With Laplace noise: how many points are searched from, and how often the best one is shaken."""
STEPS = 3000
PRECISION = 1e-10
SMALLEST = 1e-6
"""Shares of the sensitivity below which a marginal isn't measured, if it isn't needed."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedMarginals:
    """Which marginals are measured, and with which weights: Σ θ² = 1, or Σ θ = 1."""

    sets: tuple[tuple[str, ...], ...]
    theta: tuple[float, ...]
    error: float
    """Σ weight·variance at unit noise and sensitivity 1."""


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """What is asked of each residual space, over a family of attribute sets."""

    names: tuple[str, ...]
    subsets: ListedSubsets
    asked: Array
    """g_A / N for each set, in their order: shape (sets,)."""
    cells: Array
    """n_B, the number of cells of each marginal: shape (sets,)."""


def spectrum(workload: Workload) -> Spectrum | None:
    """Add up what is asked of each residual space; None if there are too many, or none."""
    families = [f for f in workload.families if f.count]
    names = touched(workload)
    places = {name: i for i, name in enumerate(names)}
    found = enough_subsets(
        len(names), {tuple(sorted(places[a] for a in f.attributes)) for f in families}
    )
    if found is None:
        return None
    sizes = [workload.domain[name] for name in names]
    cells = np.array([float(math.prod(sizes[i] for i in s)) for s in found.sets])
    asked = np.zeros(len(found.sets))
    coloring = by_size(workload)
    splitter = Splitter([Reference.of_cells(n) for n in coloring.sizes])
    for subworkload in decompose(workload, coloring, splitter.squares):
        # Over its own cells Σ‖q_A‖² is g_A · n_A / N: what is dropped is the mean over n cells.
        squares = math.fsum(
            share * math.prod(map(splitter.squares, [*dropped, *(piece for piece, _ in t.layout)]))
            for t in subworkload.terms
            for share, dropped in t.shares
        )
        at = [found.index([places[a] for a in space]) for space in subworkload.spaces]
        asked[at] = squares / cells[at]
    return Spectrum(names, found, asked, cells) if asked.any() else None


def best_marginals(given: Spectrum, noise: Noise, largest: float = math.inf) -> WeightedMarginals:
    """Search the best weights of marginals with at most `largest` cells.

    Every residual space of which something is asked has to lie in a marginal that is measured:
    `largest` is not below the cells of what the workload touches.
    """
    error = _ErrorOfWeights(given, noise, given.cells <= largest)
    best = min((_search(error, z) for z in _starts(len(given.asked), noise)), key=error)
    for number in range(1, 1 + SHAKES * (noise == "laplace")):
        best = min(best, _search(error, _shaken(best, number)), key=error)
    weights = error.weights(best)
    kept = np.flatnonzero(weights > 0)
    names = [tuple(given.names[i] for i in given.subsets.sets[at]) for at in kept.tolist()]
    return WeightedMarginals(tuple(names), tuple(weights[kept].tolist()), error.of(weights))


class _ErrorOfWeights:
    """The logarithm of the error, as a function of z for each marginal, with θ² = z⁴ or θ = z²."""

    def __init__(self, given: Spectrum, noise: Noise, allowed: NDArray[np.bool_]) -> None:
        self._given, self._noise, self._allowed = given, noise, allowed
        self._needed = given.asked > 0

    def __call__(self, z: Array) -> float:
        return self.with_gradient(z)[0]

    def of(self, theta: Array) -> float:
        """Return the error itself."""
        norm = theta.sum() ** 2 if self._noise == "laplace" else np.square(theta).sum()
        kappa = self._given.subsets.above(theta**2 / self._given.cells)
        needed = self._needed
        return float(norm * (self._given.asked[needed] / kappa[needed]).sum())

    def weights(self, z: Array) -> Array:
        """Return θ with norm 1, without what is of no use."""
        laplace = self._noise == "laplace"
        theta = np.where(self._allowed, z * z if laplace else np.abs(z), 0.0)
        whole = self.of(theta)
        spent = theta / theta.sum() if laplace else theta**2 / np.square(theta).sum()
        without = np.where(spent > SMALLEST, theta, 0.0)
        kappa = self._given.subsets.above(without)
        if (kappa[self._needed] > 0).all() and self.of(without) <= whole * (1 + 1e-4):
            theta = without
        norm = theta.sum() if laplace else math.sqrt(float(np.square(theta).sum()))
        return np.asarray(theta / norm)

    def with_gradient(self, z: Array) -> tuple[float, Array]:
        """Return log ‖θ‖² + log Σ g/κ and its gradient in z."""
        given, laplace = self._given, self._noise == "laplace"
        squared = np.where(self._allowed, z**4 if laplace else z**2, 0.0)  # θ²
        norm = np.square(z[self._allowed]).sum()  # Σθ, or Σθ²
        kappa = given.subsets.above(squared / given.cells)
        ratio = np.divide(given.asked, kappa, out=np.zeros_like(kappa), where=self._needed)
        error = float(ratio.sum())
        inner = np.divide(ratio, kappa, out=np.zeros_like(kappa), where=self._needed)
        slope = -given.subsets.below(inner) / given.cells / error  # in θ²
        along = 4 * z**3 if laplace else 2 * z
        power = 2.0 if laplace else 1.0
        gradient = slope * along + power * 2 * z / norm
        return power * math.log(norm) + math.log(error), np.where(self._allowed, gradient, 0.0)


def _starts(sets: int, noise: Noise) -> Iterator[Array]:
    """Yield weights that are all alike, and for Laplace noise irregular ones."""
    yield np.ones(sets)
    if noise == "laplace":
        for number in range(1, STARTS + 1):
            # θ = z² is then u^(1/2) or u: where all begin large, more of them stay.
            yield irregular(sets, number) ** (1 / 4 if number % 3 else 1 / 2) + 1e-3


def _shaken(z: Array, number: int) -> Array:
    """Change a good point: all weights by some factor, and let some others in."""
    factors, chosen = irregular(len(z), number), irregular(len(z), number + 1)
    return np.asarray(z / z.max() * np.sqrt(2 * factors) + np.where(chosen < 0.3, factors**2, 0.0))


def _search(error: _ErrorOfWeights, start: Array) -> Array:
    return descend(error.with_gradient, start, STEPS, PRECISION)[1]
