"""Quantiles that are drawn by halving: exact probabilities, what a row changes, what is paid."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from dpsql.engines.ranked import RankedRows
from dpsql.errors import InternalError
from dpsql.measurement import halving, quantiles
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.halving import (
    HalvedPlan,
    draw_halved,
    is_better,
    levels_of,
    parts_of,
    rows_missed,
    rows_needed,
)
from dpsql.measurement.quantiles import DrawPlan, draw_quantiles, score_range
from dpsql.rel.ranked import ValueLine
from dpsql.rows.types import RowType
from tests.helpers.seeded import SeededBits
from tests.measurement.ranked_tools import TINY, Rows, beyond_gaussian, paid, values

QUARTILES = tuple(Fraction(n, 4) for n in (1, 2, 3))
DECILES = tuple(Fraction(n, 10) for n in range(1, 10))
UPPER = tuple(map(Fraction, ("0.5", "0.9", "0.99")))
TINIEST = ValueLine(RowType("TINYINT"), 0, 2)


def asked(groups, *, line=TINY, contributions=1, most=1, at=QUARTILES[0]):
    return Rows(values(at, len(groups), most, line=line), groups, contributions)


def plan_of(rows, probabilities=QUARTILES, epsilon=Fraction(1, 2)):
    return HalvedPlan.of("q", rows.values, probabilities, rows.contributions, epsilon)


# ── Parts ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("many", [3, 4, 5, 7, 8, 9, 31, 32])
def test_parts_of_a_level_do_not_overlap(many):
    probabilities = [Fraction(n, many + 1) for n in range(1, many + 1)]
    parts = parts_of(probabilities)
    assert sorted(part.at for part in parts) == list(range(many))
    assert [part.level for part in parts] == sorted(part.level for part in parts)
    assert {part.level for part in parts} == set(range(levels_of(probabilities)))
    for level, own in itertools.groupby(parts, key=lambda part: part.level):
        ends = [
            (-1 if of.low is None else of.low, many if of.high is None else of.high) for of in own
        ]
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(ends))), level
    earlier = set()
    for part in parts:
        assert {part.low, part.high} <= earlier | {None}
        earlier.add(part.at)
        low = 0 if part.low is None else probabilities[part.low]
        high = 1 if part.high is None else probabilities[part.high]
        assert low + part.probability * (high - low) == probabilities[part.at]


@pytest.mark.parametrize("tags", [1, 2, 3])
def test_a_row_is_added_to_one_part_and_changes_no_other(monkeypatch, tags):
    """All cuts, of all rows of three values that up to six have, and each that one more has."""
    monkeypatch.setattr(halving, "TAGS", tags)

    def halves(own, place, tag):
        found = read([own], TINIEST)
        of = halving._Values.of(found, slice(None), halving._Cut(0, 0), halving._Cut(2, len(own)))
        left = of.on_the_left(place, tag)
        return Counter(sorted(own)[:left]), Counter(sorted(own)[left:])

    for many in range(7):
        for own in itertools.combinations_with_replacement(range(3), many):
            for row, place, tag in itertools.product(range(3), range(3), range(1 << tags)):
                before, after = halves(own, place, tag), halves((*own, row), place, tag)
                added = [other - one for one, other in zip(before, after, strict=True)]
                assert not any(one - other for one, other in zip(before, after, strict=True))
                assert added in ([Counter([row]), Counter()], [Counter(), Counter([row])])


def read(groups, line):
    """Return all values, as a database gives them."""
    rows = asked(groups, line=line)
    return rows.run(quantiles.RankWindow(Fraction(1, 2), 10**9))


# ── The law of a draw ────────────────────────────────────────────────────────────────────────────


def law_of_cuts(own, low, high, probability, plan, part, tags):
    """The probabilities of all cuts, one by one, by their definition, and the rows on the left."""
    a, b = probability.numerator, probability.denominator
    raised, left = {}, {}
    for place, tag in itertools.product(range(low, high + 1), range(1 << tags)):
        same = sum(x == place for x in own)
        below = sum(x < place for x in own) + tag * same // 2**tags
        upto = below + bool(same)
        score = -max(0, b * below - a * len(own) + 1, a * len(own) - b * upto)
        raised[place, tag] = max(score, plan.least(part))
        left[place, tag] = below
    steep = float(plan.epsilon / score_range(probability))
    top = max(raised.values())
    weights = {cut: math.exp(steep * (score - top)) for cut, score in raised.items()}
    total = sum(weights.values())
    return {cut: (weight / total, left[cut]) for cut, weight in weights.items()}


def law(own, plan, tags):
    """The law of all that is drawn of one group, cuts with their u: by the tree, part by part."""
    line, outcomes = plan.line, {(): 1.0}
    for number, part in enumerate(plan.parts):
        after = {}
        for cuts, chance in outcomes.items():
            drawn = dict(zip((each.at for each in plan.parts[:number]), cuts, strict=True))
            low = (line.low, 0) if part.low is None else drawn[part.low][::2]
            high = (line.high, len(own)) if part.high is None else drawn[part.high][::2]
            rows = sorted(own)[low[1] : high[1]]
            found = law_of_cuts(rows, low[0], high[0], part.probability, plan, part, tags)
            for (place, tag), (share, left) in found.items():
                after[(*cuts, (place, tag, low[1] + left))] = chance * share
        outcomes = after
    return outcomes


def told(outcomes):
    """The law of what may be told: cuts, but not how many rows are on their left."""
    return {tuple(cut[:2] for cut in cuts): chance for cuts, chance in outcomes.items()}


@pytest.mark.parametrize("epsilon", [Fraction(3, 10), Fraction(3)], ids=str)
@pytest.mark.parametrize("probabilities", [QUARTILES, UPPER], ids=str)
def test_units_are_as_hard_to_tell_apart_as_is_charged(monkeypatch, epsilon, probabilities):
    """A unit with up to two rows of a group, of three values: all rows besides, all of its own."""
    monkeypatch.setattr(halving, "TAGS", 1)
    each, worst, cheaper = itertools.combinations_with_replacement, -1.0, -1.0
    for contributions in (1, 2):
        rows = asked([[]], line=TINIEST, contributions=contributions, at=probabilities[0])
        plan = plan_of(rows, probabilities, epsilon)
        mu, laws = math.sqrt(float(plan.privacy_cost)), {}

        def law_of(own, plan=plan, laws=laws):
            own = tuple(sorted(own))
            if own not in laws:
                found = told(law(own, plan, 1))
                laws[own] = np.array([found[key] for key in sorted(found)])
            return laws[own]

        everything = {
            tuple((p, t) for p, t in cuts)
            for own in [(), (0, 1, 2)]
            for cuts in told(law(own, plan, 1))
        }
        assert len(everything) == len(law_of(()))  # the same can be told whatever rows there are
        for own in (own for many in range(5) for own in each(range(3), many)):
            for added in each(range(3), contributions):
                pair = law_of(own), law_of((*own, *added))
                for one, other in (pair, pair[::-1]):
                    worst = max(worst, beyond_gaussian(one, other, mu))
                    cheaper = max(cheaper, beyond_gaussian(one, other, mu / 3))
    assert worst < 1e-12
    assert cheaper > 0  # a third of the charge would be noticed


@pytest.mark.parametrize("tags", [0, 1, 3])
@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3)], ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(2), Fraction(60)], ids=str)
def test_cuts_have_their_scores(monkeypatch, tags, probability, epsilon):
    """All of them, from left to right, each once; of values that many rows have, too."""
    monkeypatch.setattr(halving, "TAGS", tags)
    rng = random.Random(4)  # noqa: S311
    part = halving.HalvedPart(0, None, None, probability, 0)
    for _ in range(8):
        own = [rng.randint(-6, 6) for _ in range(rng.choice([0, 1, 4, 30, 200]))]
        plan = plan_of(asked([own]), epsilon=epsilon)
        cuts = halving._Cut(-9, 0), halving._Cut(9, len(own))
        of = halving._Values.of(read([own], TINY), slice(None), *cuts)
        found = list(halving._cuts(probability, plan.least(part), of))
        by_cut = [
            ((one.place + (n >> tags), n % (1 << tags)), one.score)
            if one.tag is None
            else ((one.place, one.tag + n), one.score)
            for one in found
            for n in range(one.many)
        ]
        assert [cut for cut, _ in by_cut] == [
            (place, tag) for place in range(-9, 10) for tag in range(1 << tags)
        ]
        a, b = probability.numerator, probability.denominator
        for (place, tag), score in by_cut:
            same = own.count(place)
            below = sum(x < place for x in own) + tag * same // 2**tags
            missed = max(0, b * below - a * len(own) + 1, a * len(own) - b * (below + bool(same)))
            assert score == max(-missed, plan.least(part))


class Whole(Rows):
    """Rows of which all are read, whatever is asked for."""

    def run(self, window):
        return super().run(quantiles.RankWindow(window.probability, 10**9))


@pytest.mark.parametrize("beyond", [quantiles.BEYOND, 2, -15])
@pytest.mark.parametrize("probabilities", [QUARTILES, DECILES, UPPER], ids=["4", "10", "upper"])
def test_what_is_read_decides_what_is_drawn(monkeypatch, beyond, probabilities):
    """The same words of random bits draw the same, if only what is near is read or all is.

    Where −R is near 0, cuts have that score time and again.
    """
    monkeypatch.setattr(halving, "BEYOND", beyond)
    rng = random.Random(5)  # noqa: S311
    windows = 0
    for seed in range(12):
        spread = rng.choice([2, 25, 120])
        groups = [[rng.randint(-spread, spread) for _ in range(rng.choice([0, 7, 400]))]
                  for _ in range(3)]  # fmt: skip
        groups[0] += [3] * rng.choice([0, 500])
        epsilon = rng.choice([Fraction(1, 10), Fraction(3), Fraction(40)])
        near = asked(groups, at=probabilities[0])
        every = Whole(near.values, groups)
        plan = plan_of(near, probabilities, epsilon)
        drawn = [draw_halved(paid(plan), of, _bits=SeededBits(seed)) for of in (near, every)]
        assert drawn[0] == drawn[1]
        assert all(np.diff(drawn[0], axis=0).ravel() >= 0)
        windows += len(near.windows)
    assert windows >= 12 * len(probabilities)
    assert (windows == 12 * len(probabilities)) or beyond != quantiles.BEYOND
    assert windows > 12 * len(probabilities) or beyond >= 0


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [200, 1000])
@pytest.mark.parametrize("beyond", [quantiles.BEYOND, -3])
def test_places_come_with_their_probabilities(monkeypatch, draws, beyond):
    """Few draws see that cuts of a value that many rows have are told by fewer."""
    monkeypatch.setattr(halving, "TAGS", 2)
    monkeypatch.setattr(halving, "BEYOND", beyond)
    own = [0, 0, 0, 0, 0, 2, 3]
    line = ValueLine(RowType("TINYINT"), 0, 3)
    rows = asked([own], line=line)
    plan, bits = plan_of(rows, epsilon=Fraction(2)), SeededBits(11)
    expected = Counter()
    for cuts, chance in law(own, plan, 2).items():
        by_part = dict(zip((part.at for part in plan.parts), cuts, strict=True))
        expected[tuple(by_part[at][0] for at in range(3))] += chance
    assert sum(expected.values()) == pytest.approx(1)
    found = Counter(
        tuple(place for (place,) in draw_halved(paid(plan), rows, _bits=bits)) for _ in range(draws)
    )
    often = [key for key, chance in expected.items() if chance * draws >= 5]
    counts = [found[key] for key in often] + [draws - sum(found[key] for key in often)]
    shares = [expected[key] for key in often]
    shares.append(1 - sum(shares))
    assert set(found) <= set(expected)
    assert stats.chisquare(counts, np.array(shares) * draws).pvalue > 1e-6


def test_values_that_many_rows_have_are_all_of_their_quantiles():
    """Nine in ten rows are 0: so are the quantiles among them, and the last is not."""
    groups = [[0] * 900 + list(range(1, 101)), [0] * 5000, []]
    rows = asked(groups, at=DECILES[0])
    plan = plan_of(rows, (*DECILES, Fraction(95, 100)), Fraction(40))
    for seed in range(3):
        drawn = np.array(draw_halved(paid(plan), rows, _bits=SeededBits(seed)))
        assert (drawn[:8, 0] == 0).all()
        assert 45 <= drawn[9, 0] <= 55
        assert (drawn[:, 1] == 0).all()


# ── Nothing else is drawn than was paid for ──────────────────────────────────────────────────────


def test_levels_are_paid_for():
    for many, levels in ((3, 2), (4, 3), (7, 3), (8, 4)):
        rows = asked([[1], [2], [], [4]], contributions=3, most=2)
        probabilities = tuple(Fraction(n, many + 1) for n in range(1, many + 1))
        plan = plan_of(rows, probabilities, Fraction(1))
        assert plan.privacy_cost == levels * 2 * 9 * selection_cost(Fraction(1))


OTHERS = {
    "more rows of a unit": lambda rows: Rows(rows.values, rows.groups, 3),
    "fewer": lambda rows: Rows(rows.values, rows.groups, 1),
    "another probability": lambda rows: Rows(values(Fraction(1, 3), 2), rows.groups, 2),
    "more groups": lambda rows: Rows(values(QUARTILES[0], 3), [*rows.groups, []], 2),
    "groups that share rows": lambda rows: Rows(values(QUARTILES[0], 2, 2), rows.groups, 2),
    "a longer line": lambda rows: Rows(
        values(QUARTILES[0], 2, line=ValueLine(RowType("SMALLINT"), -128, 127)), rows.groups, 2
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_values_are_those_that_were_paid_for(other):
    rows = asked([[1], [2]], contributions=2)
    charged, given = paid(plan_of(rows)), OTHERS[other](rows)
    with pytest.raises(InternalError):
        draw_halved(charged, given, _bits=SeededBits(0))
    assert not given.windows  # no row was read
    draw_halved(charged, rows, _bits=SeededBits(0))  # nor is the charge used up


def test_a_charge_pays_once_and_for_no_more():
    rows = asked([[1]])
    plan = plan_of(rows)
    charged = paid(plan)
    draw_halved(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="once"):
        draw_halved(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="less than"):
        paid(plan, plan.privacy_cost * Fraction(999, 1000))
    alone = DrawPlan.of("q", rows.values, 1, Fraction(1))
    for draw, other in ((draw_halved, alone), (draw_quantiles, plan)):
        with pytest.raises(InternalError):
            draw(paid(other), rows, _bits=SeededBits(0))


@pytest.mark.parametrize(
    "probabilities",
    [
        QUARTILES[:2],
        (*QUARTILES, Fraction(1, 2)),
        (Fraction(0), *QUARTILES),
        (*QUARTILES, Fraction(1)),
        (Fraction(1, 2), Fraction(1, 2), Fraction(3, 4)),
        (Fraction(1, 4), Fraction(1, 2), Fraction(1, 2**75)),
        (Fraction(1, 2**75), Fraction(1, 4), Fraction(1, 2)),
        (),
    ],
    ids=str,
)
def test_other_probabilities_are_refused(probabilities):
    with pytest.raises(InternalError):
        plan_of(asked([[1]]), probabilities)
    with pytest.raises(InternalError):
        plan_of(asked([[1]]), epsilon=Fraction(0))


def test_plans_of_other_questions_have_other_digests():
    plan = plan_of(asked([[1]]))
    others = [
        plan_of(asked([[1]]), UPPER),
        plan_of(asked([[1]]), epsilon=Fraction(1)),
        plan_of(asked([[1]], contributions=2)),
        plan_of(asked([[1], []])),
        plan_of(asked([[1]], line=TINIEST)),
        HalvedPlan.of("r", asked([[1]]).values, QUARTILES, 1, Fraction(1, 2)),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 7


def test_rows_out_of_order_are_refused():
    rows = asked([[1, 2]])
    rows.run = lambda _: RankedRows(
        *(np.array(of) for of in ([0, 0], [2, 1], [0, 1], [1, 2], [2, 2]))
    )
    with pytest.raises(InternalError):
        draw_halved(paid(plan_of(rows)), rows, _bits=SeededBits(0))


# ── What is said beforehand ──────────────────────────────────────────────────────────────────────


class One(NamedTuple):
    """A quantile of several, as plans say how far off it will be."""

    probability: Fraction
    among: tuple[Fraction, ...]
    epsilon: Fraction
    line: ValueLine = TINY


@pytest.mark.statistical
@pytest.mark.parametrize("probabilities", [QUARTILES, DECILES, UPPER], ids=["4", "10", "upper"])
def test_ranks_are_off_by_as_much_as_is_said(probabilities):
    """Of 1,000 rows spread evenly: amiss in no more than 1 of 10^6 runs."""
    line = ValueLine(RowType("INTEGER"), 0, 10**6)
    own = list(range(0, 10**6, 1000))
    rows = Rows(values(probabilities[0], line=line), [own])
    every = read([own], line)
    rows.run = lambda _: every
    plan = plan_of(rows, probabilities, Fraction(1))
    off = []
    for seed in range(40):
        drawn = draw_halved(paid(plan), rows, _bits=SeededBits(seed))
        off.append([abs(np.searchsorted(own, x) - float(p) * len(own))
                    for (x,), p in zip(drawn, probabilities, strict=True)])  # fmt: skip
    for p, found in zip(probabilities, np.mean(off, axis=0), strict=True):
        assert 0.4 < found / rows_missed(One(p, probabilities, plan.epsilon, line)) < 1.8


@pytest.mark.parametrize("many", range(3, 12))
def test_those_are_halved_that_are_better_then(many):
    """For the same charge, as plans say it of each: of evenly spread ones by a quarter and more."""
    rng = random.Random(many)  # noqa: S311
    mu_squared = Fraction(1, 10**6)
    levels = (Fraction(many), Fraction(levels_of(range(many))))
    alone, halved = (quantiles.largest_epsilon(mu_squared / of, 1, 1) for of in levels)
    even = [Fraction(n, many + 1) for n in range(1, many + 1)]
    line = ValueLine(RowType("BIGINT"), -(2**63), 2**63 - 1)
    for number in range(30):
        uneven = [Fraction(n, 1000) for n in sorted(rng.sample(range(1, 1000), many))]
        among = tuple(uneven if number else even)
        ones = [One(p, among, halved, line) for p in among]
        each = [DrawPlan("q", p, line, 1, 1, 1, alone) for p in among]
        together, apart = sum(map(rows_missed, ones)), sum(map(quantiles.rows_missed, each))
        needed = zip(map(rows_needed, ones), map(quantiles.rows_needed, each), strict=True)
        few = all(one <= 2 * other for one, other in needed)
        assert is_better(among, line) == (together < apart and few)
        assert number or (together < apart / 1.2 and few)
        assert not is_better(among[:2], line)


@pytest.mark.parametrize("probabilities", [QUARTILES, DECILES, UPPER], ids=["4", "10", "upper"])
def test_groups_of_as_many_rows_as_are_needed_have_quantiles(probabilities):
    """By the law itself: a cut is hardly ever beyond the rows of its part."""
    line = ValueLine(RowType("INTEGER"), -(2**31), 2**31 - 1)
    ones = [One(p, probabilities, Fraction(5), line) for p in probabilities]
    many = max(math.ceil(rows_needed(one) / min(one.probability, 1 - one.probability))
               for one in ones)  # fmt: skip
    own = list(range(0, many * 3, 3))
    rows = Rows(values(probabilities[0], line=line), [own])
    plan = plan_of(rows, probabilities, Fraction(5))
    for seed in range(4):
        drawn = draw_halved(paid(plan), rows, _bits=SeededBits(seed))
        assert all(0 <= place <= own[-1] for (place,) in drawn)
