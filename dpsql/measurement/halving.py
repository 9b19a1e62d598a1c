"""Three or more quantiles of the same values by groups, drawn by halving. Trusted core.

The middle one is drawn of all rows of a group, and parts them; then those below it of the rows on
its left, and those above it of the rows on its right; and so on (Kaplan, Schnapp and Stemmer 2022,
"Differentially private approximate quantiles"). Of the rows between the quantiles for p₁ and p₂
that for p is their quantile for p′ = (p − p₁)/(p₂ − p₁). Each is drawn as in `quantiles.py`, whose
notation this is, but for one thing: where many rows have the value at which rows are parted, it is
drawn as well how many of these are on its left.

So a *cut* is drawn: a place v, and a number u with 0 <= u < 1. Of c rows at v, ⌊u·c⌋ are on the
left, with all that are below v, and the others on the right, with all that are above. Where n rows
are in a part, p′ = a/b, and B of them are on the left of a cut, it has the score

    q(v, u) = −max(0, b·B − (a·n − 1), a·n − b·U),   U = B + 1 if there are rows at v, and else B,

since it stands for one of these rows, or for what lies between two. It is cut off at −R, and drawn
with a density ∝ e^(s·max(q(v, u), −R)), s = ε/ρ′, among all u and all v from the place at which
rows were parted on the left to that on the right. What is told of a cut is v.

Guarantees:
    1. Only a charged plan is carried out, and only once, with a receipt for at least its cost
       (`ChargedPlan`); and for values in which there are as many rows of a unit, in as many groups
       and of the same question, as was paid for.
    2. For given cuts, a row that is added to a group is added to exactly one of the parts that they
       make of it on a level, and no other part changes. *Proof.* The whole group is the part of the
       first level. Let a part get one row more, at x. Of the rows that the cut (v, u) finds there,
       the left gets that one if x < v, and the right if x > v. If x = v, of c + 1 rows
       ⌊u·(c + 1)⌋ are on the left: as many as of c, or one more, since 0 <= u < 1; so one side gets
       a row at v, and the other side is the same. A part that gets none is the same rows, between
       the same ends, and so are both its sides. ∎ A part without rows is one like any other.
    3. That row changes the scores of cuts of its part by numbers within a range of
       ρ′ = 2·max(a, b − a), and no score of any other part. *Proof.* n grows by 1, and B by δ, 0 or
       1, by guarantee 2. If the row is the first at v, B = ⌊u·0⌋ + … = ⌊u·1⌋ + … stays and U grows
       by 1; else U − B stays, and U grows by δ. So b·B − a·n changes by −a or b − a, and a·n − b·U
       by a or a − b: each by max(a, b − a) at most. Hence q does, and what is cut off at −R. ∎
    4. *A level* are the draws in parts that don't overlap, given the cuts of earlier levels. A unit
       with at most k rows, in at most m groups each, has n_j <= k rows in the part j, and
       Σ n_j <= k·m over all parts of all groups, by guarantee 2. Row by row, its rows change the
       scores of the part j by numbers within a range of ρ′·n_j. As in guarantee 3 of `quantiles.py`
       this makes a level μ-GDP with μ² <= Σ n_j²·μ(ε)² <= m·k²·`selection_cost(ε)`, whatever the
       earlier cuts were. So all that is drawn is μ-GDP by adaptive composition, in both directions,
       and what is told is a function of it:

           μ² = L·m·k²·`selection_cost(ε)`,   L = ⌊log₂(number of quantiles)⌋ + 1 .

    5. Cuts have exactly these probabilities, though u itself isn't drawn. All that depends on u is
       which of c rows at v is the first on the right, the row ⌊u·c⌋: so that row is drawn, as one
       that counts 1/c of a place. Places without rows, and all rows of a place together, count 1.
    6. Rows that aren't read decide nothing. A place has a density of 1 in all, whatever rows are at
       it; so places where all cuts have the score −R needn't be told apart. `HalvedPlan.windows`
       proves that others are read, as long as no cut of the group had the score −R. If one had,
       with a probability of about c·e^(−40) where c rows are at a place, all rows are read, to see
       which of them are on its left; given its place, u is uniform then.
    7. No value is moved after rows are counted (`RankedRows.check` refuses two values at one
       place). NULL and NaN are no values, and what is beyond the line is at its ends, before ranks.
    8. All is decided in whole numbers and fractions of any size; no float has a part in it. What
       leaves this file are places that were drawn. Time depends on how many rows near a quantile
       have the same value, up to `MOST_NEAR` on either side: a plan that looks further is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dpsql.engines.ranked import RankedRows, Ranking, RankWindow, by_group
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.quantiles import (
    FEWEST,
    MOST_ROWS,
    QuantilePlan,
    RankDraw,
    Stretches,
    least_score,
    score_range,
    scores_of,
    uniform_below,
)
from dpsql.measurement.randomness import RandomBits
from dpsql.rel.ranked import RankedValues, ValueLine

MOST_NEAR = 2**14
"""Rows on either side of a quantile that are told apart: each that ties is a cut of its own."""
ROUNDED = 1
"""Rows by which a cut moves what is drawn in its parts, at most."""
_BETWEEN = 7
"""The logarithm of how much likelier the best cut is than those as far off as another quantile."""
_LARGER = 2
"""By how much larger a group may have to be for a quantile than if it was drawn by itself."""


class HalvedPart(NamedTuple):
    """The part of the rows of a group in which a quantile is drawn.

    Args:
        at: which of the quantiles it is, in ascending order.
        low: the one at which the rows were parted on its left; None for the first row.
        high: the one on its right; None for the last row.
        probability: p′, the part of these rows that is below.
        level: the number of its level.
    """

    at: int
    low: int | None
    high: int | None
    probability: Fraction
    level: int


def parts_of(probabilities: Sequence[Fraction]) -> tuple[HalvedPart, ...]:
    """Return the parts in which quantiles are drawn, level by level.

    Of two in the middle the one nearer to the median is drawn first, for which fewer rows will do.
    """

    def off(at: int) -> Fraction:
        return abs(probabilities[at] - Fraction(1, 2))

    def between(first: int, last: int, level: int) -> Iterator[HalvedPart]:
        if first >= last:
            return
        middle = min({(first + last - 1) // 2, (first + last) // 2}, key=off)
        low = first - 1 if first else None
        high = last if last < len(probabilities) else None
        left = Fraction(0) if low is None else probabilities[low]
        right = Fraction(1) if high is None else probabilities[high]
        yield HalvedPart(middle, low, high, (probabilities[middle] - left) / (right - left), level)
        yield from between(first, middle, level + 1)
        yield from between(middle + 1, last, level + 1)

    return tuple(sorted(between(0, len(probabilities), 0), key=lambda part: part.level))


@dataclass(frozen=True, slots=True)
class HalvedPlan(QuantilePlan):
    """A plan for drawing several quantiles in each group.

    Args:
        probabilities: those of the quantiles, in ascending order, between 0 and 1.
    """

    probabilities: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        """Refuse what can't be drawn so, and what a database can't compute for all tables.

        Raises:
            InternalError: that is so.
        """
        if not are_halved(self.probabilities):
            raise InternalError("several quantiles are drawn in order, between the first and last")
        if self.epsilon <= 0:
            raise InternalError("quantiles are drawn for an amount above 0")
        if not has_few_near(self.probabilities, self.line, self.epsilon):
            raise InternalError("too many rows near a quantile would have to be told apart")
        for window in self.windows:
            if window.probability.denominator * MOST_ROWS + window.reach >= 2**126:
                raise InternalError("a quantile's probability has too many digits")

    @classmethod
    def of(
        cls,
        name: str,
        values: RankedValues,
        probabilities: Sequence[Fraction],
        contributions: int,
        epsilon: Fraction,
    ) -> HalvedPlan:
        """Return the plan for a question, at an ε."""
        count, most = values.count, min(values.most, values.count)
        return cls(name, values.line, count, most, contributions, epsilon, tuple(probabilities))

    @property
    def kind(self) -> tuple[str, tuple[Fraction, ...]]:
        """Several, by halving."""
        return "halved quantiles", self.probabilities

    @property
    def levels(self) -> int:
        """L: how many draws follow each other."""
        return levels_of(self.probabilities)

    @property
    def parts(self) -> tuple[HalvedPart, ...]:
        """The parts in which they are drawn, level by level."""
        return parts_of(self.probabilities)

    def least(self, part: HalvedPart) -> int:
        """Return the score −R at which others are cut off."""
        return least_score(part.probability, self.line, self.epsilon)

    @property
    def windows(self) -> tuple[RankWindow, ...]:
        """The parts of the order of a group's rows that are read, one for each quantile.

        Let rows be parted at l and h, each that many rows from the first. A cut with more than −R
        has B and U less than R/b + 1 rows from l + p′·(h − l), by its score. That place is
        (1 − p′)·l + p′·h, as p·n is of the places that l and h are wanted at. So it misses p·n by
        no more than the same average of what l and h miss, if their scores were above −R, too. A
        value that has one row so near, or a gap, is within the window, and so are those beside the
        gap; of all other places all cuts have the score −R. One row more is for rounding.
        """
        off, windows = dict[int | None, Fraction]({None: Fraction(0)}), list[RankWindow]()
        for part in self.parts:
            p, probability = part.probability, self.probabilities[part.at]
            rows = Fraction(-self.least(part), p.denominator) + 2
            off[part.at] = rows + (1 - p) * off[part.low] + p * off[part.high]
            reach = math.ceil(probability.denominator * off[part.at])
            windows.append(RankWindow(probability, reach))
        return tuple(windows)

    def is_for(self, ranking: Ranking) -> bool:
        """Whether it is the plan for the values of some rows, which are those of one of them."""
        values, given = ranking.values, (self.probabilities, ranking.contributions, self.epsilon)
        asked = self.of(self.name, values, *given)
        return self == asked and values.probability in self.probabilities

    def drawing(self, ranking: Ranking, bits: RandomBits) -> Callable[[int], list[int]]:
        """Read the rows near the quantiles; return what draws the cuts of a group."""
        drawing = _Drawing(self, ranking, bits)
        near = drawing.read(self.windows)
        return lambda group: [cut.place for cut in drawing.cuts(near, group)]


def has_few_near(probabilities: Sequence[Fraction], line: ValueLine, epsilon: Fraction) -> bool:
    """Whether at an ε no more than `MOST_NEAR` rows on either side of a cut are told apart."""
    each = (part.probability for part in parts_of(probabilities))
    return all(-least_score(p, line, epsilon) <= MOST_NEAR * p.denominator for p in each)


def are_halved(probabilities: Sequence[Fraction]) -> bool:
    """Whether quantiles can be drawn so: in order, between the first and the last, and enough."""
    all_of = [Fraction(0), *probabilities, Fraction(1)]
    return len(probabilities) >= FEWEST and all_of == sorted(set(all_of))


def levels_of(probabilities: Sequence[Fraction]) -> int:
    """Return L: how many draws follow each other."""
    return len(probabilities).bit_length()


# ── One group ────────────────────────────────────────────────────────────────────────────────────


class _Cut(NamedTuple):
    """A place at which rows are parted, and how many of the group are on its left."""

    place: int
    rows: int


class _PartRows(NamedTuple):
    """Values of rows between two cuts: places, the rows below each and up to it, in the part.

    Args:
        places: the places that rows of the part are known to have, in ascending order.
        below: the rows below each.
        upto: the rows up to each: more, as a value of which all rows are elsewhere is none here.
        low: the cut on the left.
        high: the cut on the right.
    """

    places: Ints
    below: Ints
    upto: Ints
    low: _Cut
    high: _Cut

    @classmethod
    def of(cls, ranks: RankedRows, group: slice, low: _Cut, high: _Cut) -> _PartRows:
        """Return those of a group, as far as they were read."""
        below, upto = (
            np.clip(rows[group], low.rows, high.rows) - low.rows
            for rows in (ranks.below, ranks.upto)
        )
        there = below < upto
        return cls(ranks.places[group][there], below[there], upto[there], low, high)

    @property
    def size(self) -> int:
        """The number of rows: n."""
        return self.high.rows - self.low.rows

    def drawn_at(self, place: int, bits: RandomBits) -> int:
        """Draw how many rows are on the left of a cut at a place whose cuts have one score."""
        number = int(np.searchsorted(self.places, place))
        below = int(self.upto[number - 1]) if number else 0
        if number == len(self.places) or int(self.places[number]) != place:
            return below
        return below + uniform_below(int(self.upto[number]) - below, bits)


@dataclass(frozen=True, slots=True)
class _PartCuts:
    """All cuts of a part: at places that no row near the quantile has, and rows.

    Args:
        line: these, in stretches: places, single rows, and rows beside those with the same value.
        below: B of the first of each stretch.
        gaps: how many of the stretches are of places.
    """

    line: Stretches
    below: list[int]
    gaps: int

    @classmethod
    def of(cls, rows: _PartRows, p: Fraction, least: int) -> _PartCuts:
        """Return those of some rows, for the quantile p among these and the score −R.

        A row r, from 0, has a score above −R if b·r < a·n − 1 + R and b·(r + 1) > a·n − R. Where no
        row of a place has, it counts like the places around it, that no row has.

        Raises:
            InternalError: a row with a score above −R wasn't read.
        """
        b, wanted = p.denominator, p.numerator * rows.size
        first = max((wanted + least) // b, 0)
        last = max(min(-((least + 1 - wanted) // b), rows.size), first)
        near = (rows.upto > first) & (rows.below < last)
        places, below, upto = rows.places[near], rows.below[near], rows.upto[near]
        begun, ended, share = np.maximum(below, first), np.minimum(upto, last), upto - below
        taken, ends = places.tolist(), np.arange(len(places))
        row, at = np.arange(first, last), np.repeat(ends, ended - begun)
        if len(row) != len(at):
            raise InternalError("rows near a quantile are missing")
        free, between = [rows.low.place, *(place + 1 for place in taken)], np.append(0, upto)
        gaps = [end - start for start, end in zip(free, [*taken, rows.high.place + 1], strict=True)]
        beside = np.concatenate([(begun - below)[:1], (upto - ended)[-1:]])
        ends = np.concatenate([ends[:1], ends[-1:]])
        line = Stretches(
            free + places[at].tolist() + places[ends].tolist(),
            gaps + [1] * len(at) + beside.tolist(),
            scores_of(b, (wanted - 1, wanted), least, between, between)
            + scores_of(b, (wanted - 1, wanted), least, row, row + 1)
            + [least] * len(ends),
            [1] * len(free) + share[at].tolist() + share[ends].tolist(),
        )
        of_each = np.concatenate([between, row, below[:1], ended[-1:]]).tolist()
        return cls(line, of_each, len(free))


@dataclass(slots=True)
class _Drawing:
    """Drawing of cuts: a plan, its rows in order, and random bits."""

    plan: HalvedPlan
    ranking: Ranking
    bits: RandomBits
    _all: RankedRows | None = None

    def read(self, windows: Sequence[RankWindow]) -> RankedRows:
        """Return the values in windows."""
        ranks = self.ranking.run(windows)
        ranks.check(self.plan.groups, self.plan.line, len(windows))
        return ranks

    def all(self) -> RankedRows:
        """Return all values, which are needed hardly ever."""
        if self._all is None:
            p = self.plan.probabilities[0]
            self._all = self.read((RankWindow(p, p.denominator * MOST_ROWS),))
        return self._all

    def cuts(self, near: RankedRows, group: int) -> list[_Cut]:
        """Draw the cuts of a group, one level after the other; return them in ascending order."""
        drawn, rows, line = dict[int, _Cut](), near, self.plan.line
        for part in self.plan.parts:
            group_rows = by_group(rows)(group)
            size = int(rows.sizes[group_rows][0]) if group_rows.start < group_rows.stop else 0
            low = _Cut(line.low, 0) if part.low is None else drawn[part.low]
            high = _Cut(line.high, size) if part.high is None else drawn[part.high]
            values = _PartRows.of(rows, group_rows, low, high)
            p, least = part.probability, self.plan.least(part)
            cuts = _PartCuts.of(values, p, least)
            at, number = cuts.line.draw(self.plan.epsilon / score_range(p), self.bits)
            place, left = cuts.line.first[at], cuts.below[at]
            if at >= cuts.gaps:
                left += number
            else:
                place += number
            if cuts.line.scores[at] == least:
                rows = self.all()
                values = _PartRows.of(rows, by_group(rows)(group), low, high)
                if at < cuts.gaps:
                    left = values.drawn_at(place, self.bits)
            drawn[part.at] = _Cut(place, low.rows + left)
        return [drawn[at] for at in sorted(drawn)]


# ── Before anything is drawn ─────────────────────────────────────────────────────────────────────


def is_better(
    probabilities: Sequence[Fraction], line: ValueLine, epsilon: Fraction = Fraction(0)
) -> bool:
    """Whether quantiles are better drawn so than each by itself, for the same charge.

    They miss by fewer rows, on average, and none is of use in far larger groups only. That is for a
    small ε, of which μ² is about a multiple of the square. A part of p·n rows has a whole number of
    them, so that each cut moves those in its parts by a row at most, however large ε is.

    Args:
        probabilities: of the quantiles.
        line: where the values lie.
        epsilon: the range ε that a row has a say of in each level; 0 for any small one.
    """
    if not are_halved(probabilities):
        return False
    levels, many = math.sqrt(levels_of(probabilities)), math.sqrt(len(probabilities))
    rounded = ROUNDED * float(epsilon) * sum(part.level for part in parts_of(probabilities))
    together = (sum(_off(probabilities).values()) + rounded) * levels
    alone = sum(_spread(p) for p in probabilities) * many
    groups = _groups(probabilities, line)
    each = {p: math.log(line.width) * _spread(p) / float(min(p, 1 - p)) for p in probabilities}
    few = all(groups[p] * levels <= _LARGER * each[p] * many for p in probabilities)
    return together < alone and few


def rows_missed(drawn: RankDraw) -> float:
    """Return by how many rows one of the quantiles is off, about; see `quantiles.rows_missed`."""
    return _off(drawn.among)[drawn.probability] / float(drawn.epsilon)


def _off(among: Sequence[Fraction]) -> dict[Fraction, float]:
    """Return ε times the number of rows by which each quantile is off.

    Of the rows by which those at which rows were parted are off, a part comes to its own.
    """
    spreads = dict[int | None, float]({None: 0.0})
    for part in parts_of(among):
        p = float(part.probability)
        spreads[part.at] = math.hypot(
            _spread(part.probability), (1 - p) * spreads[part.low], p * spreads[part.high]
        )
    return {p: spreads[at] for at, p in enumerate(among)}


def rows_needed(drawn: RankDraw) -> float:
    """Return in how few rows beside one of them chance alone decides; see `quantiles.rows_needed`.

    That is so beside each of those at which rows were parted, too: what is said is of how many rows
    beside the quantile these are a part. Between two quantiles fewer rows will do, as nothing is
    drawn beyond these.
    """
    p = drawn.probability
    return _groups(drawn.among, drawn.line)[p] * float(min(p, 1 - p)) / float(drawn.epsilon)


def _groups(among: Sequence[Fraction], line: ValueLine) -> dict[Fraction, float]:
    """Return ε times the number of rows that a group needs for each quantile."""
    needed = dict[int | None, float]({None: 0.0})
    for part in parts_of(among):
        p, (low, high) = among[part.at], (part.low, part.high)
        below = p if low is None else p - among[low]
        above = 1 - p if high is None else among[high] - p
        sides = ((low, below), (high, above))
        beyond = math.log(line.width)
        least = max((beyond if end is None else _BETWEEN) / float(rows) for end, rows in sides)
        needed[part.at] = max(least * _spread(part.probability), needed[low], needed[high])
    return {p: needed[at] for at, p in enumerate(among)}


def _spread(probability: Fraction) -> float:
    """Return ε times the number of rows by which what is drawn misses p·n, about."""
    return score_range(probability) / probability.denominator
