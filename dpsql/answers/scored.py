"""Counts of rows by keys that were found, from the noisy scores by which they were found as well.

Where each row is a unit, the score of a key is a count of rows, X ~ N(n, σ₁²), and the key was told
because X >= T. What is measured later is Y ~ N(n, σ₂²), of noise of its own. Both say something of
n, but X is too large on average: of keys near T only those are told whose noise was positive.

**Theorem.** Let Z = (σ₁² Y + σ₂² X)/(σ₁² + σ₂²) be the mean weighted by precision, and

    s = σ₂²/√(σ₁² + σ₂²),   w = (Z − T) √(σ₁² + σ₂²)/σ₁²,   r = φ(w)/Φ(w),   u = r (w + r).

(i) n̂ = Z − s r is unbiased given that the key was told, and its variance is at most σ₂². (ii) With
g = (σ₁² + σ₂² u)/(σ₁² + σ₂²), which is the slope of n̂ in Y, g σ₂² is an unbiased estimate of its
variance; it lies between σ₁² σ₂²/(σ₁² + σ₂²), that of Z, and σ₂².

*Proof.* (i) Z is sufficient for n, of X and Y that are independent, and what they are given Z does
not depend on n: Y is N(Z, s²), as Y − Z = σ₂²/(σ₁² + σ₂²) (Y − X); and X >= T says that Y is at
most Z + (Z − T) σ₂²/σ₁² = Z + s w. So E[Y | Z, X >= T] = Z − s r = n̂, the mean of a normal
distribution cut off above. Y is independent of X, so it is unbiased given X >= T; by the theorem of
Rao and Blackwell (Cohen and Sackrowitz, 1989) so is n̂, with no larger a variance. (ii) r' = −u, so
dn̂/dZ = 1 + u σ₂²/σ₁², and dn̂/dY is that times σ₁²/(σ₁² + σ₂²), which is g. As Y is N(n, σ₂²) also
given X >= T, Stein's identity says E[(Y − n) n̂] = σ₂² E[g]; and E[(Y − n) n̂] = E[(n̂ − n) n̂] =
Var(n̂), by the mean given Z. Last, 1 − u is the variance of a standard normal variable cut off
above, in (0, 1). ∎

Noise of different keys is independent, so that which others were told changes nothing of this. A
rule of at least m units for a key decides by the truth, and has a T of its own. That at most so
many keys are told would be another condition: where so many were told, scores are left alone. X is
a sum of rounded scores; ½ is taken off T for that, of 2^20.

Scores are used where answers are shown, and only there: what is measured and kept stays Y, so that
no score ever counts twice. They are used where counts of a table's rows by one column that was
found, without conditions, are all that is asked: everything else that is answered is linear in what
was measured, and agrees with each other; n̂ doesn't add up with it.

Intervals reach as far as errors with the g that would be if Z were smaller by one of its own errors
σ₁σ₂/√(σ₁² + σ₂²), which takes σ₂/σ₁ off w. With g itself they would hold too seldom near T, where
it varies much: 85 in place of 90 percent, with four fifths of a budget for keys. So it is at least
99 of 100 of what it should be, for up to 95 percent (tests/release/test_scored.py).

Of sums of several counts, n̂ is taken for g Y and, of variance g (1 − g) σ₂², what is independent of
the others. That is exact if the counts that were measured are uncorrelated, as those of a single
marginal are, and else of first order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.answers.answers import Answers, GroupBox
from dpsql.answers.facts import FoundColumn
from dpsql.linalg.arrays import Array
from dpsql.privacy.keys import SCALE, KeyRule
from dpsql.schema import Table
from dpsql.sql.compiled import Statement, StatisticColumn
from dpsql.workload import Workload

REMARK = (
    "counts of values that were found follow from the noisy numbers by which they were found, too: "
    "unbiased, with estimated variances; what is asked elsewhere agrees up to errors"
)

_FAR = -1e4
"""From there on 1 − u is below 1e-8."""


def is_count(rule: KeyRule) -> bool:
    """Whether counts take scores of keys along: of one round, one key of a unit, Gaussian noise."""
    return rule.tells_units and not rule.epsilon


def counted_alone(statements: Sequence[Statement], workload: Workload) -> str | None:
    """Return the column by each of whose cells rows are counted, if nothing else is asked."""
    if len(statements) != 1 or len(workload.families) != 1:
        return None
    (family,), sets = workload.families, statements[0].sets
    columns = [column for group in sets for column in group.columns]
    if len(sets) != 1 or len(columns) != 1 or len(family.blocks) != 1 or family.hidden:
        return None
    block, (column,) = family.blocks[0], columns
    counts = column.counts and column.quantile is None and family.measure is None
    if not counts or len(block.attributes) != 1 or not block.queries.is_identity:
        return None
    return block.attributes[0]


@dataclass(frozen=True, slots=True, eq=False)
class CellScores:
    """The scores of a column's cells.

    Args:
        scores: numbers of rows, with noise; NaN for cells that are no keys.
        variance: σ₁², of the noise.
        threshold: T, which all scores reach.
    """

    scores: Array
    variance: float
    threshold: float

    @classmethod
    def of(cls, table: Table, found: FoundColumn) -> CellScores | None:
        """Return what a release says of them; None if they are no counts of rows."""
        domain = found.domain(table)
        if not found.scores or not is_count(found.rule) or table.unit is not None or domain is None:
            return None
        keys = [place for place, key in enumerate(domain.values) if key != domain.other]
        if len(keys) != len(found.scores):
            return None
        scores = np.full(domain.size, np.nan)
        scores[keys] = np.array(found.scores) / SCALE
        (by,) = found.rule.rounds
        return cls(scores, by.variance / SCALE**2, (by.threshold - 0.5) / SCALE)

    def combined(self, measured: Array, variances: Array, place: slice) -> Combined:
        """Put counts of some cells together with their scores.

        Args:
            measured: Y.
            variances: σ₂².
            place: which cells they are.
        """
        scores, own = self.scores[place], self.variance
        there, both = np.isfinite(scores), own + variances
        mean = (own * measured + variances * np.where(there, scores, 0.0)) / both
        w = (mean - self.threshold) * np.sqrt(both) / own
        r, u = _cut_off(w)
        _, lower = _cut_off(w - np.sqrt(variances / own))
        values = np.where(there, mean - variances / np.sqrt(both) * r, measured)
        slopes = (np.where(there, (own + variances * of) / both, 1.0) for of in (u, lower))
        return Combined(values, *slopes)


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """Counts that were put together with scores.

    Args:
        values: n̂.
        slopes: g, by how much they move with what was measured.
        reaches: the same for intervals, which is larger near the threshold.
    """

    values: Array
    slopes: Array
    reaches: Array


def _cut_off(w: Array) -> tuple[Array, Array]:
    """Return r = φ(w)/Φ(w) and u = r (w + r): N(0, 1) cut off above w has mean −r, variance 1 − u.

    φ(w)/Φ(w) = √(2/π)/erfcx(−w/√2), which neither vanishes nor overflows for any w below 0.
    """
    from scipy.special import erfcx  # slow to import, and few answers have scores

    r = math.sqrt(2 / math.pi) / erfcx(-w / math.sqrt(2))
    u = np.where(w < _FAR, 1.0, r * (w + r))  # where w + r would lose its digits
    return r, np.clip(u, 0.0, 1.0)


class ScoredAnswers(Answers):
    """Answers that are counts of found keys and take their scores along; see the module."""

    def __init__(self, plain: Answers, scores: CellScores, *, cautious: bool = False) -> None:
        super().__init__(
            plain.workload, plain.reconstruction, plain.marginal, laplace=plain.laplace
        )
        self._plain, self._scores, self._cautious = plain, scores, cautious

    def values(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return n̂ for every group of a part."""
        return self._combined(column, part).values

    def variances(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return g σ₂² for every group of a part."""
        return self.slopes(column, part) * super().variances(column, part)

    def slopes(self, column: StatisticColumn, part: GroupBox) -> Array:
        """Return g for every group of a part."""
        found = self._combined(column, part)
        return found.reaches if self._cautious else found.slopes

    @property
    def for_intervals(self) -> Answers:
        """The same answers, with the variances by which intervals reach."""
        return ScoredAnswers(self._plain, self._scores, cautious=True)

    @property
    def remark(self) -> str:
        """The remark that explains scored counts."""
        return REMARK

    def _combined(self, column: StatisticColumn, part: GroupBox) -> Combined:
        measured, variances = super().values(column, part), super().variances(column, part)
        return self._scores.combined(measured, variances, part.box[0])


def with_scores(
    answers: Answers,
    statements: Sequence[Statement],
    tables: Sequence[Table],
    found: Sequence[FoundColumn],
) -> Answers | None:
    """Return answers that take scores along, if they are of the kind that can; None else.

    Args:
        answers: what follows from measurements.
        statements: all that are asked.
        tables: all of whose rows are counted.
        found: the columns of which keys were found.
    """
    column = counted_alone(statements, answers.workload)
    if column is None or answers.reconstruction is None or answers.laplace or len(tables) != 1:
        return None
    (table,) = tables
    of = [one for one in found if (one.path, one.column) == (table.path, column)]
    scores = CellScores.of(table, of[0]) if of and table.origin is None else None
    if scores is None or len(scores.scores) != answers.workload.domain[column]:
        return None
    return ScoredAnswers(answers, scores)
