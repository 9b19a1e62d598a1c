"""Quantiles by groups, drawn by the exponential mechanism. Trusted core.

For the probability p = a/b, in lowest terms, and n rows in a group, the quantile is the value x for
which b·#{< x} < a·n <= b·#{<= x}. A place v on the line of values has the score

    q(v) = −max(0, b·#{x < v} − (a·n − 1), a·n − b·#{x <= v}),

a whole number: in units of 1/b rows, by how many rows v misses the quantile (Smith 2011, "Privacy-
preserving statistical estimation with optimal convergence rates"; rows that tie are in it). It is
cut off at −R, and v is drawn with P(v) ∝ e^(s·max(q(v), −R)), s = ε/ρ, where ρ = 2·max(a, b − a) is
the *range* of what a row can change.

The least and the largest value, p = 0 and 1, are hardly better than what lies beyond all rows. In
their place the value is drawn that is number c from that end, c = ⌈(ln(length of the line) + 7)/s⌉:
with c − 1 and c in place of a·n − 1 and a·n for p = 0, and n − c and n − c + 1 for p = 1. Places
beyond all rows miss it by c, so that they are drawn with a probability below e^(−7) together, if
there are c rows.

Guarantees:
    1. Only a charged plan is carried out, and only once, with a receipt for at least its cost
       (`ChargedPlan`); and for values in which there are as many rows of a unit, in as many groups
       and of the same question, as was paid for.
    2. A row that is added to a group, or removed, changes the scores there by numbers within a
       range of ρ. *Proof.* A row at x is added. Let t₁ = b·#{x < v} − a·n + 1 and
       t₂ = a·n − b·#{x <= v}. For v > x, t₁ changes by b − a, and t₂ by a − b; for v < x, t₁ by −a
       and t₂ by a; for v = x, t₁ by −a and t₂ by a − b. Each is at most max(a, b − a) in magnitude,
       so q changes by no more, and so does max(q, −R). For p = 0 and 1, where b = 1, c doesn't
       depend on rows, and #{x < v} and #{x <= v} grow by 0 or 1, or #{x > v} and #{x >= v}: so q
       changes by no more than 1. The cut at −R makes no change larger. ∎
    3. A unit with at most k rows, of which each is in at most m groups, changes the scores of the
       group g by numbers within a range of ρ·n_g, where n_g is the number of its rows in g: so the
       draw there has a range of at most ε·n_g and is μ(ε·n_g)-GDP (`exponential.py`). Here
       μ(ε) = h(ε/2) − h(−ε/2) with h' even and falling with |x|, so that μ is concave, μ(0) = 0 and
       μ(n·ε) <= n·μ(ε). Draws of groups are independent, and of n_g <= k and Σ n_g <= k·m follows
       Σ n_g² <= k²·m. Together they are μ-GDP with

           μ² = m·k²·μ(ε)² <= m·k²·`selection_cost(ε)` .

    4. Each place has exactly its probability. The line is cut into stretches on which the score is
       constant: single values that rows have, and what lies between two of them. A score is drawn
       with the number of all places that have it as the number of candidates, then one of these
       places, uniformly (`Stretches`). Values that aren't read miss the quantile by more than R: so
       do all places beyond the last one that is read, if there are rows beyond, and their score is
       −R.
    5. Nothing fails for how many rows there are: a database multiplies numbers of rows, of fewer
       than 2^53, by b, and `DrawPlan` makes sure that this and R fit 127 bits.
    6. All is decided in whole numbers of any size; no float has a part in it. What leaves this file
       are places that were drawn. Time depends on how many values are read, by no more than the
       scores between 0 and −R, and on the number of values between these.

R = ⌈(ln(length of the line) + 40)/s⌉: all places that miss by more have less than e^(−40) of the
probability of the best one, together.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, cast

import numpy as np

from dpsql.engines.ranked import RankedRows, Ranking, RankWindow, by_group
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.exponential import exponential_mechanism, selection_cost
from dpsql.measurement.measure import ChargedPlan
from dpsql.measurement.randomness import RandomBits, fresh_bits
from dpsql.rel.ranked import RankedValues, ValueLine

BEYOND = 40
"""The logarithm of how much likelier the best place is than all of those that aren't told apart."""
_OUTSIDE = 7
"""The same for the places beyond all rows, where the least or the largest value is drawn."""
_WORD = 64
FEWEST = 3
"""As many of the same rows are drawn together, see `halving.py`: of two it would take two levels,
and gain nothing."""
MOST_ROWS = 2**53
"""No table has as many: a byte for each would be nine petabytes."""
LARGEST_RANGE = 2_000
"""The largest ε that has a price; it is far beyond what anybody spends."""


@dataclass(frozen=True, slots=True)
class QuantilePlan(ABC):
    """A plan for drawing one or several quantiles in each group; see `measure.Payable`.

    Args:
        name: what tells the question apart from others: groups, values, conditions.
        line: where the values lie.
        groups: the number of groups.
        most: how many of them a row is in at most: m.
        contributions: how many rows of a unit there are at most: k.
        epsilon: the range ε that one row has a say of, in each level.
    """

    name: str
    line: ValueLine
    groups: int
    most: int
    contributions: int
    epsilon: Fraction

    @property
    @abstractmethod
    def kind(self) -> tuple[str, object]:
        """The way in which they are drawn, in a word, and of which probabilities."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """The number of draws in a group that a row has a say of."""

    @property
    def digest(self) -> str:
        """A hash of all that decides what is drawn, and for whom."""
        word, of = self.kind
        asked = self.name, of, self.line.said, self.groups
        price = self.most, self.contributions, self.epsilon
        return hashlib.sha256(repr((word, asked, price)).encode()).hexdigest()

    @property
    def privacy_cost(self) -> Fraction:
        """The μ² that it spends."""
        return self.levels * self.most * self.contributions**2 * selection_cost(self.epsilon)

    @property
    def delta(self) -> Fraction:
        """The δ that it spends besides: none."""
        return Fraction(0)

    @abstractmethod
    def is_for(self, ranking: Ranking) -> bool:
        """Whether it is the plan for the values of some rows, and for as many rows of a unit."""

    @abstractmethod
    def drawing(self, ranking: Ranking, bits: RandomBits) -> Callable[[int], list[int]]:
        """Read rows; return what draws a place for each quantile in a group."""


@dataclass(frozen=True, slots=True)
class DrawPlan(QuantilePlan):
    """A plan for drawing one quantile in each group.

    Args:
        probability: p.
    """

    probability: Fraction

    def __post_init__(self) -> None:
        """Refuse what a database can't compute for all tables.

        Raises:
            InternalError: numbers of rows, times the denominator of p, may not fit 127 bits.
        """
        if self.probability.denominator * MOST_ROWS + self.window.reach >= 2**126:
            raise InternalError("a quantile's probability has too many digits")

    @classmethod
    def of(cls, name: str, values: RankedValues, contributions: int, epsilon: Fraction) -> DrawPlan:
        """Return the plan for a question, at an ε."""
        p, line, most = values.probability, values.line, min(values.most, values.count)
        return cls(name, line, values.count, most, contributions, epsilon, p)

    @property
    def kind(self) -> tuple[str, Fraction]:
        """One quantile."""
        return "quantiles", self.probability

    @property
    def levels(self) -> int:
        """The one draw."""
        return 1

    @property
    def among(self) -> tuple[Fraction, ...]:
        """The probabilities of others that are drawn with it: none, see `halving.py`."""
        return ()

    @property
    def steepness(self) -> Fraction:
        """The number s by which scores count."""
        return self.epsilon / score_range(self.probability)

    @property
    def least(self) -> int:
        """The score −R at which others are cut off."""
        if self.epsilon <= 0:
            raise InternalError("a quantile is drawn for an amount above 0")
        return least_score(self.probability, self.line, self.epsilon)

    @property
    def window(self) -> RankWindow:
        """The part of the order of rows that is read: all that isn't cut off at −R."""
        return RankWindow(self.probability, place_from_end(self) - self.least)

    def aim(self, rows: int) -> tuple[int, int]:
        """Return what b·#{x < v} is at most, and b·#{x <= v} at least, where v misses nothing.

        Args:
            rows: the number of rows in its group.
        """
        fewest, c = self.probability.numerator * rows, place_from_end(self)
        if c:
            fewest += 1 - c if self.probability else c
        return fewest - 1, fewest

    def is_for(self, ranking: Ranking) -> bool:
        """Whether it is the plan for the values of some rows."""
        return self == self.of(self.name, ranking.values, ranking.contributions, self.epsilon)

    def drawing(self, ranking: Ranking, bits: RandomBits) -> Callable[[int], list[int]]:
        """Read the rows near the quantile; return what draws it in a group."""
        ranks = ranking.run((self.window,))
        ranks.check(self.groups, self.line)
        of = by_group(ranks)

        def drawn(group: int) -> list[int]:
            line = stretches(self, ranks, of(group))
            at, number = line.draw(self.steepness, bits)
            return [line.first[at] + number]

        return drawn


def largest_epsilon(mu_squared: Fraction, most: int, contributions: int) -> Fraction:
    """Return an ε, of ten digits, at which quantiles cost no more than an amount.

    Args:
        mu_squared: the amount, as μ².
        most: how many groups a row is in at most.
        contributions: how many rows of a unit there are at most.
    """
    each = mu_squared / (most * contributions**2)

    def fits(epsilon: Fraction) -> bool:
        return selection_cost(epsilon) <= each

    # μ(ε) <= ε·√(2π)/4, with equality for small ε, and ε/2 is less than what a μ of √ε needs.
    low = _rounded_down(Fraction(math.sqrt(each) * 4 / math.sqrt(2 * math.pi)))
    low = min(low, Fraction(LARGEST_RANGE))
    high = min(2 * low + 2 * each, Fraction(LARGEST_RANGE))
    while low and not fits(low):
        low = _rounded_down(low * (1 - Fraction(1, 10**9)))
    while high - low > low / 10**8:
        middle = _rounded_down((low + high) / 2)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rounded_down(value: Fraction) -> Fraction:
    """Round down to ten digits."""
    if value <= 0:
        return Fraction(0)
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 9)
    return math.floor(value / unit) * unit


def score_range(probability: Fraction) -> int:
    """Return ρ: within which range the numbers lie by which a row changes scores."""
    a, b = probability.numerator, probability.denominator
    if not 0 <= a <= b:
        raise InternalError("a quantile has a probability between 0 and 1")
    return 2 * max(a, b - a)


def least_score(probability: Fraction, line: ValueLine, epsilon: Fraction) -> int:
    """Return the score −R at which others are cut off, at an ε above 0."""
    beyond = Fraction(math.log(line.width)) + BEYOND
    return -math.ceil(beyond * score_range(probability) / epsilon)


class RankDraw(Protocol):
    """A rule by which quantiles are drawn."""

    @property
    def probability(self) -> Fraction:
        """The part of the rows that are to be below."""

    @property
    def epsilon(self) -> Fraction:
        """The range ε that one row has a say of."""

    @property
    def line(self) -> ValueLine:
        """The line on which the values lie."""

    @property
    def among(self) -> tuple[Fraction, ...]:
        """The probabilities of all that are drawn together by halving; none if it is one alone."""


def place_from_end(drawn: RankDraw) -> int:
    """Return c: which value is drawn in place of the least or the largest; 0 of other quantiles."""
    p = drawn.probability
    if p not in (0, 1):
        return 0
    needed = Fraction(math.log(drawn.line.width)) + _OUTSIDE
    return math.ceil(needed * score_range(p) / drawn.epsilon)


def rows_missed(drawn: RankDraw) -> float:
    """Return by how many rows what is drawn misses the quantile, about, in a group of many rows.

    On both sides of what is looked for, places that miss it by d rows are drawn in proportion to
    e^(−d·b·s), of which the mean is 1/(b·s), if rows are spread evenly.
    """
    return max(place_from_end(drawn) - 1, 0) + _spread(drawn)


def rows_needed(drawn: RankDraw) -> float:
    """Return in how few rows beside a quantile nothing but chance decides what is drawn.

    Of the least and the largest value, in how few rows of a group.
    """
    return place_from_end(drawn) + math.log(drawn.line.width) * _spread(drawn)


def _spread(drawn: RankDraw) -> float:
    return score_range(drawn.probability) / (drawn.probability.denominator * float(drawn.epsilon))


def draw_quantiles(
    charged: ChargedPlan,
    ranking: Ranking,
    on_group: Callable[[int, int], None] = lambda done, of: None,
    *,
    _bits: RandomBits | None = None,
) -> list[list[int]]:
    """Draw a place on the line for each quantile of a plan, in each group.

    Args:
        charged: the plan, paid for.
        ranking: the rows in order.
        on_group: called with how many groups are done, and of how many.
        _bits: a source of random bits for tests; see `measure.measure`.

    Raises:
        InternalError: it was done before, is for other values, or is no plan for quantiles.
    """
    plan = charged.certified
    if not isinstance(plan, QuantilePlan):
        raise InternalError("a plan that draws no quantiles can't draw them")
    if not plan.is_for(ranking):
        raise InternalError("quantiles are drawn of other values than are paid for")
    charged.use_once()
    drawn = plan.drawing(ranking, fresh_bits() if _bits is None else _bits)
    each = list[list[int]]()
    for group in range(plan.groups):
        on_group(group, plan.groups)
        each.append(drawn(group))
    return [list(places) for places in zip(*each, strict=True)]


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of a line, from left to right, each of what has one score: parallel lists.

    Args:
        first: the first place of each.
        lengths: how many can be drawn there; none, where two values are next to each other.
        scores: the score of these.
        shares: by how many each of them counts less than a place.
    """

    first: list[int]
    lengths: list[int]
    scores: list[int]
    shares: list[int]

    def draw(self, steepness: Fraction, bits: RandomBits) -> tuple[int, int]:
        """Draw a score, and what has it; return the number of a stretch, and a number within it."""
        kinds, many = list(zip(self.scores, self.shares, strict=True)), dict[tuple[int, int], int]()
        for kind, length in zip(kinds, self.lengths, strict=True):
            if length:
                many[kind] = many.get(kind, 0) + length
        scores = [score for score, _ in many]
        weights = [n if share == 1 else Fraction(n, share) for (_, share), n in many.items()]
        chosen = list(many)[exponential_mechanism(scores, steepness, bits, weights)]
        number = uniform_below(many[chosen], bits)
        for at, (kind, length) in enumerate(zip(kinds, self.lengths, strict=True)):
            if kind == chosen:
                if number < length:
                    return at, number
                number -= length
        raise InternalError("fewer places have a score than were counted")


def stretches(plan: DrawPlan, found: RankedRows, own: slice) -> Stretches:
    """Return the stretches of a line with the scores of one group: values, and what is between.

    Args:
        plan: the plan.
        found: values of rows of all groups.
        own: where those of the group are.
    """
    places, below, upto = found.places[own].tolist(), found.below[own], found.upto[own]
    aim = plan.aim(int(found.sizes[own][0]) if places else 0)
    between = np.append(below, upto[-1:]) if places else np.zeros(1, np.int64)
    after = [plan.line.low, *(place + 1 for place in places)]
    gaps = [end - start for start, end in zip(after, [*places, plan.line.high + 1], strict=True)]
    b, least = plan.probability.denominator, plan.least
    return Stretches(
        _alternating(after, places),
        _alternating(gaps, [1] * len(places)),
        _alternating(
            scores_of(b, aim, least, between, between), scores_of(b, aim, least, below, upto)
        ),
        [1] * (2 * len(places) + 1),
    )


def scores_of(b: int, aim: tuple[int, int], least: int, below: Ints, upto: Ints) -> list[int]:
    """Return the scores of places that have so many rows below them, and so many up to them.

    Rows are counted from about the one that is looked for, and not from the first. Where their
    products don't fit 64 bits for sure, they are whole numbers of any size.

    Args:
        b: the denominator of p.
        aim: what b·#{x < v} is at most, and b·#{x <= v} at least, where v misses nothing.
        least: the score −R at which others are cut off.
        below: #{x < v} of each place.
        upto: #{x <= v}.
    """
    most, fewest = aim
    near = fewest // b
    farthest = b * int(max(abs(below - near).max(initial=0), abs(upto - near).max(initial=0)))
    whole = np.int64 if farthest + abs(most - b * near) + b - least < 2**62 else np.object_
    over = b * (below - near).astype(whole) - (most - b * near)
    under = (fewest - b * near) - b * (upto - near).astype(whole)
    missed = np.maximum(np.maximum(over, under), 0)
    return cast("list[int]", np.maximum(-missed, least).tolist())


def _alternating(gaps: list[int], values: list[int]) -> list[int]:
    """Put in one order what is said of values, and of the gaps before, between and after them."""
    order = [0] * (len(gaps) + len(values))
    order[::2], order[1::2] = gaps, values
    return order


def uniform_below(count: int, bits: RandomBits) -> int:
    """Draw a whole number from 0 to before `count`, each with the same probability."""
    if count < 1 or count > 2**_WORD:
        raise InternalError("there is nothing to draw from")
    length = (count - 1).bit_length()
    while True:
        number = int(bits.words(1)[0]) >> (_WORD - length) if length else 0
        if number < count:
            return number
