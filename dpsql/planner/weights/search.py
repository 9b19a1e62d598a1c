"""Weighted residuals: choose the references that need the least error.

Any reference is as good for privacy, and Σ_A √E_A, which decides the total error (see
`allocate`), is a smooth function of them. One attribute alone has its best reference in closed
form, from the strategy X that is optimal over all its cells: ℓ ∝ X⁻¹1. From there a quasi-Newton
method goes on with the derivatives of `gradient`: those of optima, which the dual gives, whatever
solvers a plan then asks. What it finds is only used if the certified total error is below the one
with uniform references.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import few, nearest
from dpsql.linalg.iterations import descend
from dpsql.planner.residuals.decompose import Subworkload, decompose
from dpsql.planner.residuals.equivalence import Coloring, by_role, by_size, kinds
from dpsql.planner.residuals.pieces import Piece, Splitter
from dpsql.planner.residuals.references import Reference, rounded
from dpsql.planner.strategies.dual import Dual, maximize
from dpsql.planner.weights import gradient
from dpsql.planner.weights.axes import FreeAxis, Vertices, axes_of, is_cyclic
from dpsql.planner.weights.evaluation import TOLERANCE, WORK, Evaluation, Spent, TooMuchError
from dpsql.planner.weights.gradient import Slopes, covariance_root
from dpsql.workload import Workload

EVALUATIONS = 30
SMALL_WORK = 3e10
TIMES = 30
"""Beyond `SMALL_WORK`, the search may cost as often what the uniform references cost."""
PROGRESS = 1e-5
"""The search ends where a step gains less, relative to the total."""
PATIENCE = 4
"""Or after so many evaluations that gain no more: values are off by more than derivatives tell."""
FIRST_STEP = 0.1
"""How far the references move in the first step, relative to their length."""
START_BITS = 24
"""Bits of the largest weight, where a search begins."""
RESOLUTION = 16
"""References are rounded to multiples of 1/(RESOLUTION · cells), or of 1/COARSEST."""
MIRRORED = 1 / 32
"""Of a cell's mean weight: by so little may two ends differ that are taken for alike."""
COARSEST = 64
FINEST = 128
DENOMINATORS = (1, 2, 4, 8, 16, 32)
"""A reference that few cells decide is rounded to multiples of one of these."""
SLIGHT = 5e-5
"""What that may cost, relative to Σ √E."""
WORSE = 0.05
"""A search may start this far above uniform references: those can be a saddle point."""


@dataclass(frozen=True, slots=True)
class Choice:
    """References that promise less error than uniform ones."""

    coloring: Coloring
    references: list[Reference]
    """One for each color."""
    uniform_roots: float
    """A lower bound on Σ_A √E_A with uniform references; 0 if none is known."""


def reference_search(workload: Workload) -> ReferenceSearch | None:
    """Return what searches for references; None if uniform ones are best by symmetry."""
    coloring = by_role(workload)
    free = free_axes(workload, coloring)
    if not free:
        return None
    search = ReferenceSearch(workload, coloring, free)
    coarse = by_size(workload)
    if len(coarse.sizes) < len(coloring.sizes):
        shared = ReferenceSearch(workload, coarse, free_axes(workload, coarse))
        if len(search.subworkloads) > 2 * len(shared.subworkloads) + 50:
            return shared  # attributes in different roles then share a compromise
    return search


def choose_references(search: ReferenceSearch) -> Choice | None:
    """Search for the best references; None if uniform ones are best."""
    try:
        found = search.minimize()
    except TooMuchError:  # a guess, to be planned beside uniform references
        found = search.each_alone(), 0.0
    if found is None:
        return None
    return Choice(search.coloring, search.rounded(found[0]), found[1])


def uniform_is_best(workload: Workload) -> bool:
    """Whether symmetry tells that no other references do better."""
    return not _not_alike(workload, by_size(workload))


def free_axes(workload: Workload, coloring: Coloring) -> dict[int, FreeAxis]:
    """Return the colors whose reference is searched for, with what is asked along them."""
    found = _not_alike(workload, coloring)
    wanted = sorted(c for c in found if coloring.sizes[c] > 1)
    return axes_of(workload, coloring, wanted)


def _not_alike(workload: Workload, coloring: Coloring) -> set[int]:
    """Return the colors whose best reference need not be uniform.

    Where every block on an attribute is over it alone and looks the same from all its cells, as
    group-bys and circular ranges do, uniform is best by symmetry.
    """
    found: set[int] = set()
    for kind in kinds(workload, coloring):
        column = 0
        for block in kind.blocks:
            width = len(block.attributes)
            if width > 1 or not is_cyclic(block.queries):
                found |= {coloring.colors[i] for i in kind.attributes[0, column : column + width]}
            column += width
    return found


class _Presence:
    """Tells which pieces are there with references in general.

    Some references make some pieces vanish; those of the search must not depend on which.
    """

    def __init__(self, coloring: Coloring, free: Iterable[int]) -> None:
        kinds = [(n, c in free) for c, n in enumerate(coloring.sizes)]
        distinct = sorted(set(kinds))
        self._kind_of = [distinct.index(kind) for kind in kinds]
        self._splitter = Splitter(
            [_irregular(n) if f else Reference.of_cells(n) for n, f in distinct]
        )

    def squares(self, piece: Piece) -> float:
        """Return the piece's squares with irregular references, the same for all of one size."""
        alike = tuple(self._kind_of[c] for c in piece.colors)
        return self._splitter.squares(replace(piece, colors=alike))


def _irregular(cells: int) -> Reference:
    weights = 1 + np.arange(cells) * math.sqrt(2) % 1
    return Reference.of_reals(weights / weights.sum())


class ReferenceSearch:
    """A search for references of the colors that are free."""

    def __init__(self, workload: Workload, coloring: Coloring, free: dict[int, FreeAxis]) -> None:
        small = Vertices.of(workload, coloring, free)
        self.coloring = coloring
        self._small, self._coloring, self.free = small, small.coloring, small.axes
        self._sparse = [c for c, axis in free.items() if axis.sparse]
        present = _Presence(small.coloring, free)
        self.subworkloads = decompose(small.workload, small.coloring, present.squares)
        self._deltas: dict[tuple[int, int], Array] = {}
        self._spent = Spent()
        self._moved = self.free

    def part(self, asked: Mapping[int, Subworkload], colors: Set[int]) -> ReferenceSearch:
        """Search for the references of some colors and some subworkloads in the time that is left.

        Args:
            asked: number of a subworkload here → what of it is searched for.
            colors: of the attributes whose references may move.
        """
        found = copy(self)
        found.subworkloads = tuple(asked.values())
        places = {number: place for place, number in enumerate(asked)}
        found._deltas = {
            (places[number], i): delta
            for (number, i), delta in self._deltas.items()
            if number in places
        }
        found._moved = {c: axis for c, axis in self.free.items() if c in colors}
        return found

    def start(self, references: Sequence[Reference]) -> list[Array]:
        """Return references of all colors over the cells that are searched."""
        return [self._small.cut(c, r.weights) for c, r in enumerate(references)]

    def minimize(self) -> tuple[list[Array], float] | None:
        """Return the best references found, and Σ √E for uniform ones; None if those are best."""
        uniform = [r.weights for r in self._small.uniform]
        if (least := self.objective(uniform)) is None:
            raise TooMuchError
        if not least[0]:  # nothing is asked of any space
            return None
        self._spent.limit = min(WORK, max(SMALL_WORK, TIMES * self._spent.work))
        best = (least[0], uniform)
        with suppress(TooMuchError):
            ended = math.inf
            alone = self.each_alone()
            found = self.objective(alone)
            if found is not None and found[0] < least[0] * (1 + WORSE):
                ended, _ = reached = self.descend(alone, least[0], known=found)
                best = min(best, reached, key=lambda b: b[0])
            if best[1] is uniform and ended > least[0] * (1 + PROGRESS):
                even = self._on_support(uniform)
                best = min(best, self.descend(even, least[0]), key=lambda b: b[0])
        return None if best[1] is uniform else (best[1], least[0])

    def descend(
        self,
        start: list[Array],
        unit: float,
        known: tuple[float, Slopes] | None = None,
    ) -> tuple[float, list[Array]]:
        """Go down from some references; return the least Σ √E met, and where.

        Args:
            start: where to begin.
            unit: of the values, for the method to tell what is little.
            known: the objective at the start, if it has just been evaluated.
        """
        # What is searched from follows from matrices that may be nearly singular: see `digits`.
        start = [_plain(w) if c in self._moved else w for c, w in enumerate(start)]
        best, met, gained = (math.inf, start), 0, 1
        step = FIRST_STEP * math.sqrt(sum(float(start[c] @ start[c]) for c in self._moved))

        def objective(x: Array) -> tuple[float, Array]:
            nonlocal best, met, gained
            weights, met = self._unpacked(start, step * x), met + 1
            fruitless = met > gained + PATIENCE
            result = known if met == 1 else None
            if result is None and not fruitless:
                result = self.objective(weights)
            if result is None:
                raise TooMuchError
            if result[0] < best[0] * (1 - PROGRESS):
                gained = met
            if result[0] < best[0]:
                best = (result[0], weights)
            return result[0] / unit, self.packed(result[1]) * (step / unit)

        zero = np.zeros(sum(len(axis.support) for axis in self._moved.values()))
        with suppress(TooMuchError):  # what was found until then is kept
            descend(objective, zero, evaluations=EVALUATIONS, progress=PROGRESS)
        return best

    def _unpacked(self, start: list[Array], x: Array) -> list[Array]:
        """Return references from free variables; what changes the sum of ℓ is taken away."""
        result, at = list(start), 0
        for c, axis in self._moved.items():
            step = x[at : at + len(axis.support)]
            result[c] = start[c].copy()
            result[c][axis.support] += step - step.mean()
            at += len(step)
        return result

    def packed(self, slopes: Slopes) -> Array:
        """Return the slopes by the free variables; steps that change the sum of ℓ are no use."""
        parts = [
            slopes[c][axis.support] if c in slopes else np.zeros(len(axis.support))
            for c, axis in self._moved.items()
        ]
        return np.concatenate([p - p.mean() for p in parts])

    def steepness(self, weights: list[Array], slopes: Slopes) -> float:
        """Return Σ |g|²·|ℓ|² over the colors that move, for their slopes g by the references ℓ."""
        return math.fsum(
            float(np.square(free - free.mean()).sum() * np.square(weights[c]).sum())
            for c, axis in self._moved.items()
            if c in slopes
            for free in (slopes[c][axis.support],)
        )

    def _on_support(self, weights: list[Array]) -> list[Array]:
        """Return references that act as given ones do, on as few cells as are needed."""
        result = list(weights)
        for c, axis in self.free.items():
            result[c] = axis.on_support(weights[c])
        return result

    def rounded(self, best: list[Array]) -> list[Reference]:
        """Write references over all cells in integers, those on few cells in the smallest that do.

        Small integers leave more bits for the strategies.
        """
        sizes = enumerate(self._coloring.sizes)
        result = [self._rounded(c, best[c], max(COARSEST, RESOLUTION * n)) for c, n in sizes]
        limit = math.inf
        for denominator in (FINEST, *DENOMINATORS) if self._sparse else ():
            tried = list(result)
            for c in self._sparse:
                tried[c] = self._rounded(c, best[c], denominator)
            with suppress(TooMuchError):
                found = self.objective([r.weights for r in tried], final=True)
                if found is not None and found[0] <= limit:
                    result = tried
                    if denominator != FINEST:
                        break
                    limit = found[0] * (1 + SLIGHT)
        return [self._small.spread(c, reference) for c, reference in enumerate(result)]

    def _rounded(self, color: int, weights: Array, denominator: int) -> Reference:
        """Round a reference; one that nearly mirrors itself, to one that does.

        Comparisons as |x − y| <= c look alike from both ends of their attributes. A reference that
        does so, too, makes pieces equal, or zero along further axes; if each cell were rounded by
        itself, that would be lost, and cost more than all else that rounding does.
        """
        if color not in self.free:
            return Reference.of_cells(len(weights))
        middle = (weights + weights[::-1]) / 2
        nearly = np.abs(weights - middle).max() * len(weights) <= MIRRORED
        if nearly and color not in self._sparse:
            return Reference.of_integers(nearest(middle * denominator).astype(np.int64))
        return rounded(weights, denominator)

    def objective(self, weights: list[Array], final: bool = False) -> tuple[float, Slopes] | None:
        """Return Σ_A √E_A and its slopes; None if one can't be solved. Final ones may vanish."""
        found = self.roots(weights, final)
        if found is None:
            return None
        counts = [len(subworkload.spaces) for subworkload in self.subworkloads]
        return summed(zip(counts, found, strict=True))

    def roots(self, weights: list[Array], final: bool = False) -> list[tuple[float, Slopes]] | None:
        """Return √E_A and its slopes for a space of each subworkload; None if one can't be solved.

        Where the references make all pieces vanish √E has no slope, and is least.
        """
        references = [
            Reference.of_reals(w) if c in self.free else self._small.uniform[c]
            for c, w in enumerate(weights)
        ]
        evaluation = Evaluation(Splitter(references), weights, self._deltas, self._spent)
        result: list[tuple[float, Slopes]] = []
        for number, subworkload in enumerate(self.subworkloads):
            if (found := evaluation.error(number, subworkload, final)) is None:
                return None
            error, its = found
            root, slopes = math.sqrt(max(0.0, error)), dict[int, Array]()
            if error > 0:
                gradient.add(slopes, its, 1 / (2 * root))
            result.append((root, slopes))
        return result

    def each_alone(self) -> list[Array]:
        """Return ℓ ∝ X⁻¹1 for the best strategy X of each free attribute by itself."""
        result = self._on_support([r.weights for r in self._small.uniform])
        for c, axis in self.free.items():
            root = covariance_root(maximize(Dual.of(axis.rows, axis.rows.shape[1:]), TOLERANCE))
            weights = root.T @ root.sum(axis=1)
            if weights.sum() > 1e-6 * np.abs(weights).sum():
                result[c] = axis.on_support(weights / weights.sum())
        return result


def _plain(weights: Array) -> Array:
    """Return weights with few digits, up to a factor that makes them sum to 1."""
    found = few(weights, START_BITS)
    return np.asarray(found / found.sum())


def summed(parts: Iterable[tuple[int, tuple[float, Slopes]]]) -> tuple[float, Slopes]:
    """Add up values and slopes, each so many times."""
    total, slopes = 0.0, dict[int, Array]()
    for count, (value, its) in parts:
        total += count * value
        gradient.add(slopes, its, count)
    return total, slopes
