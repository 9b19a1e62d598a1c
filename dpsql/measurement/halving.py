"""Three or more quantiles of the same values by groups, drawn by halving. Trusted core.

The middle one is drawn of all rows of a group, and parts them; then those below it of the rows on
its left, and those above it of the rows on its right; and so on (Kaplan, Schnapp and Stemmer 2022,
"Differentially private approximate quantiles"). Of the rows between the quantiles for p₁ and p₂
that for p is their quantile for p′ = (p − p₁)/(p₂ − p₁). Each is drawn as in `quantiles.py`, whose
notation this is, but for one thing: where many rows have the value at which rows are parted, it is
drawn as well how many of these are on its left.

So a *cut* is drawn: a value v and a number u from 0 to before M = 2^16. Of c rows that have v,
⌊u·c/M⌋ are on the left, with all smaller ones, and the rest is on the right. A cut has the score
q(v, u) = −max(0, b·B − (a·n − 1), a·n − b·U), where B is the number of rows on the left, and U is
B + 1 if there are rows with v, and else B: it stands for one of these rows, or for what lies
between two values. It is cut off at −R, and drawn with P(v, u) ∝ e^(s·max(q(v, u), −R)), s = ε/ρ′,
among all cuts whose values lie from the one at which rows were parted on the left to that on the
right.

Guarantees:
    1. Only a charged plan is carried out, and only once, with a receipt for at least its cost
       (`ChargedPlan`); and for values in which there are as many rows of a unit, in as many groups
       and of the same question, as was paid for.
    2. To add a row to a group adds one row to one of the parts that given cuts make of it, and
       changes no other. *Proof.* By induction over the cuts: a row with a value below v is on the
       left, and one above it on the right. Of c + 1 rows with v, ⌊u·(c + 1)/M⌋ are on the left: as
       many as of c, or one more, since u < M; and the rest is as many more as are missing there. ∎
    3. A row that is added to a part, or removed, changes the scores of cuts there by numbers within
       a range of ρ′ = 2·max(a, b − a). *Proof.* As n grows by 1, B grows by δ, which is 0 or 1 by
       guarantee 2, and so does U: if the row is the first with v, B stays and U grows by 1, and
       else U − B is what it was. So b·B − a·n changes by −a or b − a, and so does b·U − a·n, each
       by max(a, b − a) at most; hence q does, and what is cut off at −R changes by no more. ∎
    4. *A level* are the draws of parts that don't overlap, given earlier ones. A unit with at most
       k rows, in at most m groups each, has n_j rows in the part j, with n_j <= k, and Σ n_j <= k·m
       over the parts of all groups, by guarantee 2. So a level is μ-GDP as groups are (guarantee 3
       of `quantiles.py`), with μ² <= m·k²·`selection_cost(ε)`. All that a level depends on besides
       the rows are earlier cuts, so L levels together are μ-GDP with

           μ² = L·m·k²·`selection_cost(ε)`,   L = ⌊log₂(number of quantiles)⌋ + 1 .

       What is told are values of cuts, without their u.
    5. Each cut has exactly its probability. Cuts are put together that have the same score: those
       of values between two that rows have, of which each has M; and of a value those with the same
       B. A score is drawn with the number of all cuts that have it as the number of candidates,
       then one of these, uniformly. Rows that aren't read miss the quantile of their part by more
       than R: what is read are the values near p·n of the whole group, as far as R and as that
       quantile may be from there, if no earlier cut of the group has the score −R. If one has, as
       once in e^40 times, all values are read.
    6. All is decided in whole numbers of any size; no float has a part in it. What leaves this file
       are places that were drawn.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.engines.ranked import RankedRows, Ranking, RankWindow, by_group
from dpsql.errors import InternalError
from dpsql.measurement.exponential import exponential_mechanism, selection_cost
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.quantiles import (
    BEYOND,
    FEWEST,
    MOST_ROWS,
    RankDraw,
    score_range,
    uniform_below,
)
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.rel.ranked import RankedValues, ValueLine

TAGS = 16
"""The binary logarithm of M."""
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
class HalvedPlan:
    """A plan for drawing several quantiles in each group; see `measure.Payable`.

    Args:
        name: what tells the question apart from others: groups, values, conditions.
        probabilities: those of the quantiles, in ascending order, between 0 and 1.
        line: where the values lie.
        groups: the number of groups.
        most: how many of them a row is in at most: m.
        contributions: how many rows of a unit there are at most: k.
        epsilon: the range ε that one row has a say of, in each level.
    """

    name: str
    probabilities: tuple[Fraction, ...]
    line: ValueLine
    groups: int
    most: int
    contributions: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        """Refuse what can't be drawn so, and what a database can't compute for all tables.

        Raises:
            InternalError: that is so.
        """
        if not are_halved(self.probabilities):
            raise InternalError("several quantiles are drawn in order, between the first and last")
        if self.epsilon <= 0:
            raise InternalError("quantiles are drawn for an amount above 0")
        for window in self.windows().values():
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
        return cls(name, tuple(probabilities), values.line, count, most, contributions, epsilon)

    @property
    def digest(self) -> str:
        """A hash of all that decides what is drawn, and for whom."""
        line = self.line.type.sql, self.line.low, self.line.high
        asked = self.name, self.probabilities, line, self.groups
        price = self.most, self.contributions, self.epsilon
        return hashlib.sha256(repr(("halved quantiles", asked, price)).encode()).hexdigest()

    @property
    def parts(self) -> tuple[HalvedPart, ...]:
        """The parts in which they are drawn, level by level."""
        return parts_of(self.probabilities)

    @property
    def privacy_cost(self) -> Fraction:
        """The μ² that it spends."""
        levels = levels_of(self.probabilities)
        return levels * self.most * self.contributions**2 * selection_cost(self.epsilon)

    @property
    def delta(self) -> Fraction:
        """The δ that it spends besides: none."""
        return Fraction(0)

    def least(self, part: HalvedPart) -> int:
        """Return the score −R at which others are cut off."""
        cuts = Fraction(math.log(self.line.width) + TAGS * math.log(2)) + BEYOND
        return -math.ceil(cuts * score_range(part.probability) / self.epsilon)

    def windows(self) -> dict[int, RankWindow]:
        """Return the part of the order of a group's rows that is read, for each of the quantiles.

        A quantile's place in its part is (1 − p′)·l + p′·h, where rows were parted at l and at h.
        So what has a score above −R misses p·n of the whole group by no more rows than it misses
        that place, and these parts of the rows by which l and h miss their own. The two more are
        for rounding.
        """
        off, found = dict[int | None, Fraction]({None: Fraction(0)}), dict[int, RankWindow]()
        for part in self.parts:
            p, probability = part.probability, self.probabilities[part.at]
            rows = Fraction(-self.least(part), p.denominator) + 2
            off[part.at] = rows + (1 - p) * off[part.low] + p * off[part.high]
            reach = math.ceil(probability.denominator * off[part.at])
            found[part.at] = RankWindow(probability, reach)
        return found


def are_halved(probabilities: Sequence[Fraction]) -> bool:
    """Whether quantiles can be drawn so: in order, between the first and the last, and enough."""
    all_of = [Fraction(0), *probabilities, Fraction(1)]
    return len(probabilities) >= FEWEST and all_of == sorted(set(all_of))


def levels_of(probabilities: Sequence[Fraction]) -> int:
    """Return L: how many draws follow each other."""
    return len(probabilities).bit_length()


class _Cut(NamedTuple):
    """A place at which rows are parted: their value, and how many of the group are on its left."""

    place: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that rows of a part have: places, the rows below each, and up to it, in the part.

    Args:
        places: these, in ascending order, each once.
        below: the rows below each.
        upto: the rows up to each.
        low: the first place of cuts.
        high: the last one.
        rows: the number of rows of the part.
    """

    places: list[int]
    below: list[int]
    upto: list[int]
    low: int
    high: int
    rows: int

    @classmethod
    def of(cls, found: RankedRows, own: slice, low: _Cut, high: _Cut) -> _Values:
        """Return those of a part of a group, as far as they were read."""
        columns = (found.places[own], found.below[own], found.upto[own])
        places, below, upto = list[int](), list[int](), list[int]()
        for place, least, most in zip(*(column.tolist() for column in columns), strict=True):
            if most <= low.rows or least >= high.rows:
                continue
            if places and places[-1] == place:  # what is beyond the line counts as its end
                upto[-1] = min(most, high.rows) - low.rows
                continue
            places.append(place)
            below.append(max(least, low.rows) - low.rows)
            upto.append(min(most, high.rows) - low.rows)
        return cls(places, below, upto, low.place, high.place, high.rows - low.rows)

    def on_the_left(self, place: int, tag: int) -> int | None:
        """Return how many rows of the part are on the left of a cut; None if that wasn't read."""
        at = bisect_left(self.places, place)
        if at < len(self.places) and self.places[at] == place:
            return self.below[at] + (tag * (self.upto[at] - self.below[at]) >> TAGS)
        before = self.upto[at - 1] if at else 0
        after = self.below[at] if at < len(self.places) else self.rows
        return before if before == after else None


class _EqualCuts(NamedTuple):
    """Cuts that have the same score.

    Args:
        score: that.
        many: how many they are.
        place: the place of the first.
        tag: its u; None if all u of each place are meant, of several places.
    """

    score: int
    many: int
    place: int
    tag: int | None


def _cuts(probability: Fraction, least: int, values: _Values) -> Iterator[_EqualCuts]:
    """Yield all cuts of a part, from left to right, with their scores."""
    a, b = probability.numerator, probability.denominator
    wanted = a * values.rows

    def score(below: int, upto: int) -> int:
        return max(-max(0, b * below - (wanted - 1), wanted - b * upto), least)

    first = (wanted + least) // b - 1  # rows before this one have the score −R, and from `last` on
    last = (wanted - least) // b + 2
    free, before = values.low, 0
    for place, below, upto in zip(values.places, values.below, values.upto, strict=True):
        if free < place:
            yield _EqualCuts(score(below, below), (place - free) << TAGS, free, None)
        yield from _among(place, upto - below, first - below, last - below, below, score)
        free, before = place + 1, upto
    if free <= values.high:
        yield _EqualCuts(score(before, before), (values.high + 1 - free) << TAGS, free, None)


def _among(
    place: int, rows: int, first: int, last: int, below: int, score: Callable[[int, int], int]
) -> Iterator[_EqualCuts]:
    """Yield the cuts of a value that rows have: for each of these, those that stand for it.

    Those before the row number `first`, and from the row number `last` on, have one score.
    """
    first, last = min(max(first, 0), rows), min(max(last, 0), rows)
    ends = _tag(first, rows), _tag(last, rows)
    few = rows <= 1 << TAGS
    each = (_tag(number, rows) for number in range(first, last)) if few else range(*ends)
    begun = sorted({0, *each, *ends} - {1 << TAGS})
    for tag, end in zip(begun, [*begun[1:], 1 << TAGS], strict=True):
        number = below + (tag * rows >> TAGS)
        yield _EqualCuts(score(number, number + 1), end - tag, place, tag)


def _tag(number: int, rows: int) -> int:
    """Return the first u for which so many of some rows with a value are on the left, or more."""
    return -(-(number << TAGS) // rows)


def _drawn(
    plan: HalvedPlan, part: HalvedPart, values: _Values, bits: RandomBits
) -> tuple[int, int, int]:
    """Draw a cut of a part: a score, and one of the cuts that have it, v and u."""
    least, p = plan.least(part), part.probability
    cuts, many = list(_cuts(p, least, values)), dict[int, int]()
    for each in cuts:
        many[each.score] = many.get(each.score, 0) + each.many
    scores, steepness = list(many), plan.epsilon / score_range(p)
    chosen = scores[exponential_mechanism(scores, steepness, bits, list(many.values()))]
    number = uniform_below(many[chosen], bits)
    for each in cuts:
        if each.score != chosen:
            continue
        if number < each.many:
            if each.tag is not None:
                return chosen, each.place, each.tag + number
            return chosen, each.place + (number >> TAGS), number % (1 << TAGS)
        number -= each.many
    raise InternalError("fewer cuts have a score than were counted")


def draw_halved(
    charged: ChargedPlan,
    ranking: Ranking,
    on_group: Callable[[int, int], None] = lambda done, of: None,
    *,
    _bits: RandomBits | None = None,
) -> list[list[int]]:
    """Draw a place on the line for each of the quantiles, in each group.

    Args:
        charged: the plan, paid for.
        ranking: the rows in order.
        on_group: called with how many groups are done, and of how many.
        _bits: a source of random bits for tests; see `measure.measure`.

    Raises:
        InternalError: it was done before, is for other values, or is no plan for quantiles.
    """
    plan = charged.certified
    if not isinstance(plan, HalvedPlan):
        raise InternalError("a plan that halves no rows can't halve them")
    values, given = ranking.values, (plan.probabilities, ranking.contributions, plan.epsilon)
    if HalvedPlan.of(plan.name, values, *given) != plan or (
        values.probability not in plan.probabilities
    ):
        raise InternalError("quantiles are drawn of other values than are paid for")
    charged.use_once()
    bits = fresh_bits() if _bits is None else _bits
    reader = _NearRows(plan, ranking)
    drawn: list[list[int]] = [[0] * plan.groups for _ in plan.probabilities]
    near = {at: reader.read(window) for at, window in plan.windows().items()}
    for group in range(plan.groups):
        on_group(group, plan.groups)
        for at, cut in _parted(plan, reader, near, group, bits).items():
            drawn[at][group] = cut.place
    return drawn


@dataclass(slots=True)
class _NearRows:
    """A reader of rows in order: of those near a quantile, or of all, hardly ever."""

    plan: HalvedPlan
    ranking: Ranking
    found: RankedRows | None = None

    def all(self) -> RankedRows:
        """Return all values."""
        if self.found is None:
            p = self.plan.probabilities[0]
            self.found = self.read(RankWindow(p, p.denominator * MOST_ROWS))
        return self.found

    def read(self, window: RankWindow) -> RankedRows:
        """Return the values in a window."""
        found = self.ranking.run(window)
        found.check(self.plan.groups, self.plan.line)
        return found


def _parted(
    plan: HalvedPlan,
    reader: _NearRows,
    near: dict[int, RankedRows],
    group: int,
    bits: RandomBits,
) -> dict[int, _Cut]:
    """Draw the cuts of a group, one level after the other."""
    found, far = dict[int, _Cut](), False
    for part in plan.parts:
        rows = reader.all() if far else near[part.at]
        own = by_group(rows)(group)
        size = int(rows.sizes[own][0]) if own.start < own.stop else 0
        low = _Cut(plan.line.low, 0) if part.low is None else found[part.low]
        high = _Cut(plan.line.high, size) if part.high is None else found[part.high]
        values = _Values.of(rows, own, low, high)
        score, place, tag = _drawn(plan, part, values, bits)
        if score == plan.least(part):
            far, rows = True, reader.all()
            values = _Values.of(rows, by_group(rows)(group), low, high)
        left = values.on_the_left(place, tag)
        if left is None:
            raise InternalError("rows are missing near a place that was drawn")
        found[part.at] = _Cut(place, low.rows + left)
    return found


# ── Before anything is drawn ─────────────────────────────────────────────────────────────────────


def is_better(probabilities: Sequence[Fraction], line: ValueLine) -> bool:
    """Whether quantiles are better drawn so than each by itself, for the same charge.

    They miss by fewer rows, on average, and none is of use in far larger groups only. That is for a
    small ε, of which μ² is about a multiple of the square.
    """
    if not are_halved(probabilities):
        return False
    levels, many = math.sqrt(levels_of(probabilities)), math.sqrt(len(probabilities))
    together = sum(_off(probabilities).values()) * levels
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
    found = dict[int | None, float]({None: 0.0})
    for part in parts_of(among):
        p = float(part.probability)
        found[part.at] = math.hypot(
            _spread(part.probability), (1 - p) * found[part.low], p * found[part.high]
        )
    return {p: found[at] for at, p in enumerate(among)}


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
    beyond = math.log(line.width) + TAGS * math.log(2)
    found = dict[int | None, float]({None: 0.0})
    for part in parts_of(among):
        p, (low, high) = among[part.at], (part.low, part.high)
        below = p if low is None else p - among[low]
        above = 1 - p if high is None else among[high] - p
        sides = ((low, below), (high, above))
        own = max((beyond if end is None else _BETWEEN) / float(rows) for end, rows in sides)
        found[part.at] = max(own * _spread(part.probability), found[low], found[high])
    return {p: found[at] for at, p in enumerate(among)}


def _spread(probability: Fraction) -> float:
    """Return ε times the number of rows by which what is drawn misses p·n, about."""
    return score_range(probability) / probability.denominator
