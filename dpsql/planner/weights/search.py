"""Weighted residuals: choose the references that need the least error.

Any reference is as good for privacy, and Σ_A √E_A, which decides the total error (see
`allocate`), is a smooth function of them. One attribute alone has its best reference in closed
form, from the strategy X that is optimal over all its cells: ℓ ∝ X⁻¹1. From there a quasi-Newton
method goes on with the derivatives (see below): those of optima, which the dual gives, whatever
solvers a plan then asks. What it finds is only used if the certified total error is below the one
with uniform references.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.digits import few, nearest
from dpsql.linalg.iterations import descend
from dpsql.planner.residuals.pieces import Component, Piece, Splitter, reorder, split_rows
from dpsql.planner.residuals.references import Reference, rounded
from dpsql.planner.residuals.spaces import Coloring, Subworkload, by_role, by_size, decompose, kinds
from dpsql.planner.residuals.structure import analyze, products
from dpsql.planner.strategies.dual import Dual, DualPoint, DualSolver, maximize
from dpsql.planner.strategies.identity import identity_error
from dpsql.planner.weights.axes import FreeAxis, Vertices, axes_of, is_cyclic
from dpsql.workload import Queries, Workload

EVALUATIONS = 30
SMALL_WORK = 3e10
TIMES = 30
"""Beyond `SMALL_WORK`, the search may cost as often what the uniform references cost."""
CONTEXTS = 0.5
"""As much of that again may be spent on references for each context."""
PROGRESS = 1e-5
"""The search ends where a step gains less, relative to the total."""
PATIENCE = 4
"""Or after so many evaluations that gain no more: values are off by more than derivatives tell."""
FIRST_STEP = 0.1
"""Length of the first step of the references, relative to theirs;"""
POLISHING_STEP = 0.02
"""and where they have been searched for already."""
START_BITS = 24
"""Bits of the largest weight, where a search begins."""
RESOLUTION = 16
"""References are rounded to multiples of 1/(RESOLUTION · cells), or of 1/COARSEST."""
MIRRORED = 1 / 32
"""Difference of two ends that are taken for alike, at most, relative to a cell's mean weight."""
COARSEST = 64
FINEST = 128
DENOMINATORS = (1, 2, 4, 8, 16, 32)
"""A reference that few cells decide is rounded to multiples of one of these."""
SLIGHT = 5e-5
"""Loss that such rounding may cause, relative to Σ √E."""
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
        best = search.minimize()
    except TooMuchError:  # a guess, to be planned beside uniform references
        best = search.each_alone(), 0.0
    if best is None:
        return None
    return Choice(search.coloring, search.rounded(best[0]), best[1])


def uniform_is_best(workload: Workload) -> bool:
    """Whether symmetry tells that no other references do better."""
    return not _not_alike(workload, by_size(workload))


def free_axes(workload: Workload, coloring: Coloring) -> dict[int, FreeAxis]:
    """Return the colors whose reference is searched for, with what is asked along them."""
    unlike = _not_alike(workload, coloring)
    wanted = sorted(c for c in unlike if coloring.sizes[c] > 1)
    return axes_of(workload, coloring, wanted)


def _not_alike(workload: Workload, coloring: Coloring) -> set[int]:
    """Return the colors whose best reference need not be uniform.

    Where every block on an attribute is over it alone and looks the same from all its cells, as
    group-bys and circular ranges do, uniform is best by symmetry.
    """
    colors: set[int] = set()
    for kind in kinds(workload, coloring):
        column = 0
        for block in kind.blocks:
            width = len(block.attributes)
            if width > 1 or not is_cyclic(block.queries):
                colors |= {coloring.colors[i] for i in kind.attributes[0, column : column + width]}
            column += width
    return colors


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


class Descent(ABC):
    """A way down from given references to some that need less error.

    References are listed by number; `_moved` says which of them may move, and along which cells.
    """

    _moved: Mapping[int, FreeAxis]

    @abstractmethod
    def objective(self, weights: list[Array]) -> tuple[float, Slopes] | None:
        """Return Σ √E and its slopes by the references' numbers; None if one can't be solved."""

    @abstractmethod
    def forget_pieces(self) -> None:
        """Keep no pieces of queries for the next step: they may be large."""

    def descend(
        self,
        start: list[Array],
        unit: float,
        known: tuple[float, Slopes] | None = None,
        evaluations: int = EVALUATIONS,
        first_step: float = FIRST_STEP,
    ) -> tuple[float, list[Array]]:
        """Go down from some references; return the least Σ √E met, and where.

        Args:
            start: where to begin.
            unit: of the values, for the method to tell what is little.
            known: the objective at the start, if it has just been evaluated.
            evaluations: how often it is evaluated at most.
            first_step: how far to move at first, relative to the references' length.
        """
        # What is searched from follows from matrices that may be nearly singular: see `digits`.
        start = [_plain(w) if c in self._moved else w for c, w in enumerate(start)]
        best, met, gained = (math.inf, start), 0, 1
        step = first_step * math.sqrt(sum(float(start[c] @ start[c]) for c in self._moved))

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
            descend(objective, zero, evaluations=evaluations, progress=PROGRESS)
        self.forget_pieces()
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


class ReferenceSearch(Descent):
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
        self._tolerance = TOLERANCE
        self._splitter = Splitter(small.uniform)

    def part(self, asked: Mapping[int, Subworkload], colors: Set[int]) -> ReferenceSearch:
        """Search for the references of some colors and some subworkloads in the time that is left.

        Args:
            asked: number of a subworkload here → what of it is searched for.
            colors: of the attributes whose references may move.
        """
        part = copy(self)
        part.subworkloads = tuple(asked.values())
        places = {number: place for place, number in enumerate(asked)}
        part._deltas = {
            (places[number], i): delta
            for (number, i), delta in self._deltas.items()
            if number in places
        }
        part._moved = {c: axis for c, axis in self.free.items() if c in colors}
        return part

    def polishing(self) -> ReferenceSearch:
        """Search closer to the optimum for all references, for the same subworkloads."""
        polished = self.part(dict(enumerate(self.subworkloads)), self.free.keys())
        polished._tolerance = POLISHING_TOLERANCE
        return polished

    def start(self, references: Sequence[Reference]) -> list[Array]:
        """Return references of all colors over the cells that are searched."""
        return [self.cut(c, r) for c, r in enumerate(references)]

    def cut(self, color: int, reference: Reference) -> Array:
        """Return a color's reference over the cells that are searched."""
        return self._small.cut(color, reference.weights)

    @property
    def work_left(self) -> float:
        """Multiplications that it may still cost, roughly."""
        return self._spent.limit - self._spent.work

    @contextmanager
    def limited(self, work: float) -> Iterator[None]:
        """Let what is searched for meanwhile cost so many multiplications at most."""
        limit = self._spent.limit
        self._spent.limit = min(limit, self._spent.work + work)
        try:
            yield
        finally:
            self._spent.limit = limit

    def minimize(self) -> tuple[list[Array], float] | None:
        """Return the best references found, and Σ √E for uniform ones; None if those are best."""
        uniform = [r.weights for r in self._small.uniform]
        if (least := self.objective(uniform)) is None:
            raise TooMuchError
        if not least[0]:  # nothing is asked of any space
            return None
        limit = min(WORK, max(SMALL_WORK, TIMES * self._spent.work))
        self._spent.limit = limit
        if TIMES * self._spent.work < SMALL_WORK / 10:
            self._tolerance = POLISHING_TOLERANCE
        best = (least[0], uniform)
        with suppress(TooMuchError):
            ended = math.inf
            alone = self.each_alone()
            value = self.objective(alone)
            if value is not None and value[0] < least[0] * (1 + WORSE):
                ended, _ = reached = self.descend(alone, least[0], known=value)
                best = min(best, reached, key=lambda b: b[0])
            if best[1] is uniform and ended > least[0] * (1 + PROGRESS):
                even = self._on_support(uniform)
                best = min(best, self.descend(even, least[0]), key=lambda b: b[0])
        self._spent.limit = max(self._spent.work, limit) + limit * CONTEXTS
        return None if best[1] is uniform else (best[1], least[0])

    def forget_pieces(self) -> None:
        """Keep no pieces, of which there are some for each of many contexts."""
        self._splitter = Splitter(self._small.uniform)

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
                value = self.objective([r.weights for r in tried], final=True)
                if value is not None and value[0] <= limit:
                    result = tried
                    if denominator != FINEST:
                        break
                    limit = value[0] * (1 + SLIGHT)
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

    def objective(
        self, weights: list[Array], final: bool = False, solved: SolvedComponents | None = None
    ) -> tuple[float, Slopes] | None:
        """Return Σ_A √E_A and its slopes; None if one can't be solved.

        Args:
            weights: the references, one for each color.
            final: whether they may make all pieces vanish.
            solved: what other searches have solved, and this one will have.
        """
        roots = self.roots(weights, final, solved)
        if roots is None:
            return None
        counts = [len(subworkload.spaces) for subworkload in self.subworkloads]
        return summed(zip(counts, roots, strict=True))

    def roots(
        self, weights: list[Array], final: bool = False, solved: SolvedComponents | None = None
    ) -> list[tuple[float, Slopes]] | None:
        """Return √E_A and its slopes for a space of each subworkload; None if one can't be solved.

        Where the references make all pieces vanish √E has no slope, and is least.
        """
        references = [
            Reference.of_reals(w) if c in self.free else self._small.uniform[c]
            for c, w in enumerate(weights)
        ]
        self._splitter = self._splitter.moved(references)
        how = Accuracy(self._tolerance, self._deltas, self._spent)
        evaluation = Evaluation(self._splitter, weights, self._moved.keys(), how, solved)
        result: list[tuple[float, Slopes]] = []
        for number, subworkload in enumerate(self.subworkloads):
            if (solved_error := evaluation.error(number, subworkload, final)) is None:
                return None
            error, slope = solved_error
            root, slopes = math.sqrt(max(0.0, error)), dict[int, Array]()
            if error > 0:
                add(slopes, slope, 1 / (2 * root))
            result.append((root, slopes))
        return result

    def each_alone(self) -> list[Array]:
        """Return ℓ ∝ X⁻¹1 for the best strategy X of each free attribute by itself."""
        result = self._on_support([r.weights for r in self._small.uniform])
        for c, axis in self.free.items():
            point = maximize(Dual.of(axis.rows, axis.rows.shape[1:]), TOLERANCE)
            root = covariance_root(point, point.root)
            weights = root.T @ root.sum(axis=1)
            if weights.sum() > 1e-6 * np.abs(weights).sum():
                result[c] = axis.on_support(weights / weights.sum())
        return result


def _plain(weights: Array) -> Array:
    """Return weights with few digits, up to a factor that makes them sum to 1."""
    plain = few(weights, START_BITS)
    return np.asarray(plain / plain.sum())


def summed(parts: Iterable[tuple[int, tuple[float, Slopes]]]) -> tuple[float, Slopes]:
    """Add up values and slopes, each so many times."""
    total, slopes = 0.0, dict[int, Array]()
    for count, (value, slope) in parts:
        total += count * value
        add(slopes, slope, count)
    return total, slopes


# ── Error that references need, and its derivatives: the objective of the search ─────────────────


WORK = 3e11
"""Multiplications that the search may cost, roughly; what was found until then is used."""
STEPS = 10
"""Evaluations of a dual that a solution is reckoned to take, before that is known."""
TOLERANCE = 8e-3
"""Gap to which subworkloads are solved on the way; their lower bounds are far closer."""
POLISHING_TOLERANCE = 2e-3
"""The same where steps are small, or cost little."""
MIXED = 1e-4
"""Share of the uniform δ with which a dual is solved anew: no δ may start at zero."""


class TooMuchError(Exception):
    """The search would take too long, or the dual doesn't take what is asked."""


@dataclass(slots=True)
class Spent:
    """The work that a search has taken so far, and its limit."""

    work: float = 0.0
    """Multiplications, roughly."""
    limit: float = WORK


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy to which duals are solved, where they start, and the work that they may take."""

    tolerance: float
    deltas: dict[tuple[int, int], Array]
    """Number of a subworkload, and of its component → δ that was good for it before."""
    spent: Spent


@dataclass(slots=True)
class _SolvedComponent:
    """A component's least error, and the root H of its covariance."""

    error: float
    root: Array | None
    """None where the uniform references are known to be best."""


SolvedComponents = dict[bytes, _SolvedComponent]
"""Content of a component → its solution."""


class Evaluation:
    """The errors of subworkloads for given references. Equal parts are computed once.

    A Kronecker product of components i with terms t of weights w_t has the least error

        E = Σ_t w_t Π_i e_ti ,   e_ti = tr(C_i G_ti) ,

    where C_i is the covariance of the best strategy for component i, and G_ti the Gram matrix of
    what t asks there. By the envelope theorem (see `gradient`) C_i is held fixed: `_part` gives
    e_ti and its slopes. w_t is a sum of products of squares of pieces that the space drops:
    `_add_dropped` gives their slopes.
    """

    def __init__(
        self,
        splitter: Splitter,
        weights: list[Array],
        moved: Set[int],
        how: Accuracy,
        solved: SolvedComponents | None = None,
    ) -> None:
        self._splitter, self._weights, self._moved = splitter, weights, moved
        self._tolerance, self._deltas, self._spent = how.tolerance, how.deltas, how.spent
        self._solved: SolvedComponents = {} if solved is None else solved
        self._parts: dict[object, tuple[float, Slopes]] = {}

    def error(self, number: int, asked: Subworkload, final: bool) -> tuple[float, Slopes] | None:
        """Return E and its derivatives; None if the dual doesn't take the subworkload."""
        terms = products(asked, self._splitter)
        structure = analyze(terms)
        taken = (c.identity is not None or DualSolver().accepts(c) for c in structure.components)
        if structure.rest or not all(taken):
            return None
        if final and not all(c.squares for c in structure.components):
            return 0.0, {}
        solved = [(c, self._solve((number, i), c)) for i, c in enumerate(structure.components)]
        total, slopes = 0.0, dict[int, Array]()
        for term, numbers in zip(asked.terms, terms, strict=True):
            parts = [self._part(c, s, term.layout) for c, s in solved]
            value = math.prod(v for v, _ in parts)
            total += numbers.weight * value
            for part, slope in parts:
                if part:
                    add(slopes, slope, numbers.weight * value / part)
            for share, dropped in term.shares:
                self._add_dropped(slopes, dropped, share * value)
        return total, slopes

    def _add_dropped(self, slopes: Slopes, dropped: tuple[Piece, ...], factor: float) -> None:
        """Add the derivatives of factor · ∏ squares of dropped pieces."""
        moved = [i for i, piece in enumerate(dropped) if not self._moved.isdisjoint(piece.colors)]
        squares = [self._splitter.squares(p) for p in dropped] if moved else []
        for i in moved:
            others = math.prod(squares[:i] + squares[i + 1 :])
            add(slopes, self._dropped(dropped[i])[1], factor * others)

    def _dropped(self, piece: Piece) -> tuple[float, Slopes]:
        if piece not in self._parts:
            self._parts[piece] = of_piece(piece, self._weights, np.ones((1, 1)))
        return self._parts[piece]

    def _solve(self, place: tuple[int, int], component: Component) -> _SolvedComponent:
        if not component.squares:  # the search went so far astray that the queries vanish there
            raise TooMuchError
        if component.identity is not None:
            return _SolvedComponent(identity_error(component), None)
        if component.content not in self._solved:
            dual = Dual.of(component.rows, component.shape)
            self._spent.work += 2.0 * component.rows.size * min(component.rows.shape)
            if not dual.rank or self._spent.work + STEPS * dual.work > self._spent.limit:
                raise TooMuchError
            point = maximize(dual, self._tolerance, self._deltas.get(place))
            self._spent.work += point.evaluations * dual.work
            if point.evaluations > 1:  # else it started well enough, and would only drift off
                n = len(point.delta)
                self._deltas[place] = (1 - MIXED) * point.delta + MIXED / n
            # It tells where to go: steps have so few digits that those of R don't matter.
            root = covariance_root(point, point.quick_root)
            self._solved[component.content] = _SolvedComponent(point.lower, root)
        return self._solved[component.content]

    def _part(
        self,
        component: Component,
        solved: _SolvedComponent,
        layout: Sequence[tuple[Piece, tuple[int, ...]]],
    ) -> tuple[float, Slopes]:
        """Return what a component gives to the error of a term's pieces, and its derivatives."""
        inside = tuple((p, axes) for p, axes in layout if set(axes) <= set(component.axes))
        if solved.root is None:
            (alone,) = (self._splitter.component(p, axes) for p, axes in inside)
            return solved.error * alone.squares / component.squares, {}
        key = component.content, component.axes, inside
        if key not in self._parts:
            slopes: Slopes = {}
            value = 0.0
            for i, (piece, axes) in enumerate(inside):
                others = [self._splitter.component(*placed) for placed in inside]
                root = contracted(solved.root, component, others[:i] + others[i + 1 :])
                shape = others[i].shape
                root = reorder(root, shape, [sorted(axes).index(axis) for axis in axes])
                value, slope = of_piece(piece, self._weights, root)
                add(slopes, slope)
            self._parts[key] = value, slopes
        return self._parts[key]


# ── Derivatives of the error of a plan with respect to the references ────────────────────────────
#
# Let E be the least error of a component with Gram matrix G, and C the covariance that its best
# strategy gives to the cells, so that E = tr(G C). By the envelope theorem dE = tr(C dG) with C
# fixed, and by the dual (see `strategies.dual`)
#
#     C = HᵀH ,   H = √f · (Q D Qᵀ)^{-3/4} Q D ,   G = QᵀQ .
#
# G is a sum of Kronecker products of pieces, and a piece is linear in each reference ℓ on its axes:
# to drop an axis is q·ℓ, to keep it is q − (q·ℓ)1. The functions here follow C back to ℓ.


Slopes = dict[int, Array]
"""Color → derivative by its reference, of shape (cells,)."""


def covariance_root(point: DualPoint, roots: Array) -> Array:
    """Return H with E = tr(G HᵀH) at the dual's optimum, for its R; shape (rank, cells)."""
    weighted = roots * point.delta
    values = np.einsum("ij,ij->i", weighted, roots)  # √ of the eigenvalues of Q D Qᵀ
    return np.asarray(math.sqrt(point.f) * weighted / values[:, None])


def add(slopes: Slopes, more: Slopes, factor: float = 1.0) -> None:
    """Add derivatives up, in place."""
    for color, slope in more.items():
        slopes[color] = slopes.get(color, 0.0) + factor * slope


def of_piece(piece: Piece, references: Sequence[Array], root: Array) -> tuple[float, Slopes]:
    """Differentiate tr(C G) for a piece with Gram matrix G.

    Args:
        piece: the piece.
        references: ℓ of each color.
        root: H with C = HᵀH, of shape (any, cells of the kept axes in the piece's order).

    Returns:
        tr(C G), and its derivatives.
    """
    weights = [references[c] for c in piece.colors]
    if len(weights) == 1:
        return _of_axis(piece, weights[0], root)
    return _of_joint(piece, weights, root)


def _of_axis(piece: Piece, weights: Array, root: Array) -> tuple[float, Slopes]:
    (color,) = piece.colors
    if not piece.kept[0]:
        scale = float(np.square(root).sum())
        slope = _gram_times(piece.queries, weights)
        return scale * float(weights @ slope), {color: 2 * scale * slope}
    # A kept query is q·K with K = I − ℓ1ᵀ, so the kept Gram matrix is KᵀGK, and dK = −dℓ1ᵀ.
    sums = root.sum(axis=1)
    turned = root.T - np.outer(weights, sums)
    applied = _gram_times(piece.queries, turned)
    return float((turned * applied).sum()), {color: -2 * applied @ sums}


def _gram_times(queries: Queries, values: Array) -> Array:
    """Multiply by the Gram matrix, which is not written out where the queries are fewer."""
    if queries.is_identity:
        return values
    if queries.rows < queries.cells:
        return queries.apply_transposed(queries.apply(values, 0), 0)
    return queries.gram() @ values


def _of_joint(piece: Piece, weights: Sequence[Array], root: Array) -> tuple[float, Slopes]:
    matrix = piece.queries.matrix
    rows = split_rows(matrix, weights, piece.kept)
    applied = rows @ root.T
    back = 2 * applied @ root  # the derivative by the rows
    shape = [len(w) for w in weights]
    slopes: Slopes = {}
    for axis, color in enumerate(piece.colors):
        partly = _all_but(matrix, weights, piece.kept, axis)
        sizes = [n if keep else 1 for n, keep in zip(shape, piece.kept, strict=True)]
        tensor = np.moveaxis(back.reshape(-1, *sizes), axis + 1, -1)
        if piece.kept[axis]:
            tensor = -tensor.sum(axis=-1, keepdims=True)
        slope = tensor.reshape(-1) @ partly
        add(slopes, {color: slope})
    return float(np.square(applied).sum()), slopes


def _all_but(matrix: Array, weights: Sequence[Array], kept: tuple[bool, ...], axis: int) -> Array:
    """Split queries on all axes but one; shape (queries × cells of the kept ones, its cells)."""
    tensor = np.moveaxis(matrix.reshape(-1, *map(len, weights)), axis + 1, 1)
    n = tensor.shape[1]
    others = [i for i in range(len(weights)) if i != axis]
    # Each cell of the axis is taken for a query of its own.
    flat = np.ascontiguousarray(tensor).reshape(len(matrix) * n, -1)
    split = split_rows(flat, [weights[i] for i in others], tuple(kept[i] for i in others))
    return np.ascontiguousarray(split.reshape(len(matrix), n, -1).swapaxes(1, 2)).reshape(-1, n)


def contracted(root: Array, component: Component, others: Sequence[Component]) -> Array:
    """Apply other pieces to H; what is left is the H that one piece sees: shape (any, cells)."""
    tensor: Array = root.reshape(-1, *component.shape)
    axes = list(component.axes)
    for other in others:
        at = [axes.index(axis) + 1 for axis in other.axes]
        table = other.rows.reshape(-1, *other.shape)
        tensor = np.tensordot(table, tensor, (list(range(1, len(at) + 1)), at))
        tensor = tensor.reshape(-1, *tensor.shape[2:])
        axes = [axis for axis in axes if axis not in other.axes]
    return np.asarray(tensor.reshape(len(tensor), -1))
