"""Weights of answers that make the largest variance as small as can be, with a certificate.

Notation: A (m × N) are query rows, each divided by the root of the variance that it may have.

    minimize max_q a_q X⁻¹ a_qᵀ subject to diag(X) <= 1                        (primal)
    maximize f(ω, δ)²,  ω, δ >= 0, Σω = Σδ = 1                                  (dual)
    f = tr (D^{1/2} AᵀWA D^{1/2})^{1/2},  W = diag(ω), D = diag(δ)

The largest variance is the largest mean Σ ω_q Var_q, and for given ω the problem is that of `dual`,
with A weighted. f is the sum of the singular values of W^{1/2}AD^{1/2}, in which answers and cells
play the same part. It is concave in both together, as the largest ⟨A, Z⟩ for which
[[W, Z], [Zᵀ, D]] is positive semidefinite; its square is the squared factorization norm γ₂(A)²
(Edmonds, Nikolov and Ullman, "The power of factorization mechanisms in local and central
differential privacy", STOC 2020).

With W^{1/2}AD^{1/2} = USVᵀ and X = D^{-1/2}VSVᵀD^{-1/2}, the variances are diag(USUᵀ)/ω, and
diag(X) = diag(VSVᵀ)/δ. Both have the mean f, with the weights ω and δ. So for any ω and δ

    f² <= the least largest variance <= max Var · max diag(X) ,

and weights of answers and cells that are above the mean are raised until both are close.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.iterations import Accelerated, descend
from dpsql.linalg.roots import eigen_of

WORK = 1e11
"""Multiplications that it may cost: a few seconds."""
STEPS = 60
"""So many evaluations have to be possible."""
MOST_STEPS = 500
FIXED = 80
"""Steps of the fixed point, after which a quasi-Newton method goes on."""
STRETCH = 1.5
"""As in `dual`, where δ alone is moved."""
LEAST_RATIO = 1e-12
LEAST_SHARE = 1e-5
"""Share of its first weight that an answer or a cell keeps at least."""
ASTRAY = 3
"""As in `dual`: where a gap is so many times the best one, guesses begin anew."""
LEAST = 1e-300
RANK = 1e-14
"""Squared singular values, relative to the largest, below which they are rounding errors."""
ROUNDING = 1e-9
"""Part by which the bound is lowered: it is computed in floats."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedAnswers:
    """Weights of answers, and bounds on the least largest variance at privacy cost 1."""

    weights: Array
    """ω, which adds up to 1."""
    lower: float
    upper: float

    @property
    def gap(self) -> float:
        """Relative distance of the bounds."""
        return self.upper / self.lower - 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """One evaluation of the dual."""

    f: float
    variances: Array
    """The variances of the answers, for X."""
    diagonal: Array
    """The diagonal of X: the cost of the strategy in each cell."""
    rank: int

    @property
    def upper(self) -> float:
        return float(self.variances.max() * self.diagonal.max())


def least_work(queries: int, cells: int) -> float:
    """Return the multiplications that `weigh` may take; beyond `WORK` it is not to be tried."""
    return STEPS * _work(queries, cells)


def weigh(rows: Array, tolerance: float) -> WeightedAnswers:
    """Find weights of answers, until the gap is at most `tolerance` or the work is used up.

    Args:
        rows: A, of shape (answers, cells), not all 0.
        tolerance: the relative gap to aim for.
    """
    search = _AnswerSearch(rows, tolerance)
    steps = max(1, min(MOST_STEPS, int(WORK / _work(*rows.shape))))
    search.by_steps(min(steps, FIXED))
    if not search.done and steps > FIXED:
        search.by_slopes(steps - FIXED)
    weights, _ = search.split(search.found)
    return WeightedAnswers(weights, search.lower * (1 - ROUNDING), search.best.upper)


class _AnswerSearch:
    """The best weights of answers and cells, one after the other in a vector, found until now."""

    def __init__(self, rows: Array, tolerance: float) -> None:
        self._rows, self._tolerance = rows, tolerance
        asked = (rows != 0).any(axis=1)  # what is known without data needs no weight
        start = np.concatenate([asked / asked.sum(), np.full(rows.shape[1], 1 / rows.shape[1])])
        # Mixing in a little of the first weights costs as little of f, and loses no direction.
        self._least = LEAST_SHARE * start
        self.found, self.lower = start, 0.0
        self.best = _evaluate(rows, *self.split(start))

    @property
    def done(self) -> bool:
        """Whether the bounds are close."""
        return self.best.upper <= self.lower * (1 + self._tolerance)

    def split(self, both: Array) -> tuple[Array, Array]:
        """Return the weights of answers and of cells."""
        return both[: len(self._rows)], both[len(self._rows) :]

    def at(self, both: Array) -> tuple[Array, _Point, Array]:
        """Evaluate weights, made to add up to 1; return also what each is to be multiplied by."""
        sums = np.concatenate([np.full(len(part), part.sum()) for part in self.split(both)])
        both = np.maximum(both / sums * (self._least > 0), self._least)
        omega, delta = self.split(both)
        point = _evaluate(self._rows, omega, delta)
        self.lower = max(self.lower, point.f**2 / (omega.sum() * delta.sum()))
        if point.rank == self.best.rank and point.upper <= self.best.upper:
            self.best, self.found = point, both
        ratios = np.concatenate([point.variances, point.diagonal]) / point.f
        return both, point, np.where(self._least > 0, ratios, 1.0)

    def by_steps(self, steps: int) -> None:
        """Raise what is above the mean: quick where all weights stay well above 0."""
        both, guess = self.found, Accelerated()
        for _ in range(steps):
            both, point, ratios = self.at(both)
            if self.done:
                return
            gap, best = (p.upper / self.lower - 1 for p in (point, self.best))
            if point.rank < self.best.rank or gap > ASTRAY * best:
                guess.forget()
            both = guess.next(both, STRETCH * np.log(np.maximum(ratios, LEAST_RATIO)))

    def by_slopes(self, steps: int) -> None:
        """Minimize −log f over z, with weights z²/Σz² for answers and for cells."""

        def objective(z: Array) -> tuple[float, Array]:
            sums = np.concatenate([np.full(len(part), part @ part) for part in self.split(z)])
            _, point, ratios = self.at(z * z)
            return -float(np.log(point.f)), -(z / sums) * (ratios - 1.0)

        start = np.sqrt(self.found)
        descend(objective, start, evaluations=steps, done=lambda: self.done, kept=30)


def _work(queries: int, cells: int) -> float:
    """Return the multiplications that one evaluation takes, roughly."""
    rank = min(queries, cells)
    return 2.0 * queries * cells * rank + 10.0 * rank**3


def _evaluate(rows: Array, omega: Array, delta: Array) -> _Point:
    """Decompose W^{1/2}AD^{1/2} by the eigenvectors of the smaller one of its Gram matrices."""
    wide = rows.shape[0] < rows.shape[1]
    scaled = np.sqrt(omega)[:, None] * rows * np.sqrt(delta)
    if wide:
        scaled = scaled.T
    values, right = eigen_of(scaled.T @ scaled)
    kept = values > RANK * values[-1]
    singular, right = np.sqrt(values[kept]), right[:, kept]
    # U = BV/S, so that diag(USUᵀ) has the entries Σ (BV)²/s.
    left = np.square(scaled @ right) @ (1 / singular)
    both = np.square(right) @ singular, left
    variances, diagonal = both if wide else both[::-1]
    return _Point(
        float(singular.sum()),
        variances / np.maximum(omega, LEAST),
        diagonal / np.maximum(delta, LEAST),
        len(singular),
    )
