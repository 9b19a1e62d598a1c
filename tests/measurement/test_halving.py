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

from dpsql.engines.ranked import RankedRows, RankWindow
from dpsql.errors import InternalError
from dpsql.measurement import halving, quantiles
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.halving import (
    HalvedPlan,
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


EVERY = (RankWindow(Fraction(1, 2), 2**60),)
FINE = 60
"""So many u stand for all: c·u is whole between them for no c up to 5."""


def law_of_cuts(own, low, high, probability, plan, part):
    """The probabilities of all cuts of a part, v and ⌊u·c⌋, by their definition, and scores."""
    a, b = probability.numerator, probability.denominator
    scores, shares, left = {}, {}, {}
    for place in range(low, high + 1):
        below, same = sum(x < place for x in own), sum(x == place for x in own)
        for row in range(max(same, 1)):
            on_left = below + row
            missed = (b * on_left - a * len(own) + 1, a * len(own) - b * (on_left + bool(same)))
            scores[place, row] = max(-max(0, *missed), plan.least(part))
            shares[place, row], left[place, row] = 1 / max(same, 1), on_left
    steep, top = float(plan.epsilon / score_range(probability)), max(scores.values())
    weights = {cut: shares[cut] * math.exp(steep * (scores[cut] - top)) for cut in scores}
    total = sum(weights.values())
    return {cut: (weight / total, left[cut], scores[cut]) for cut, weight in weights.items()}


def law(own, plan):
    """The law of the places that are drawn of one group: by the tree, part by part."""
    line, own, outcomes = plan.line, sorted(own), {(): 1.0}
    for number, part in enumerate(plan.parts):
        after = Counter()
        for cuts, chance in outcomes.items():
            drawn = dict(zip((each.at for each in plan.parts[:number]), cuts, strict=True))
            low = (line.low, 0) if part.low is None else drawn[part.low]
            high = (line.high, len(own)) if part.high is None else drawn[part.high]
            rows = own[low[1] : high[1]]
            found = law_of_cuts(rows, low[0], high[0], part.probability, plan, part)
            for (place, _), (share, left, _) in found.items():
                after[(*cuts, (place, low[1] + left))] += chance * share
        outcomes = after
    told, at = Counter(), [part.at for part in plan.parts]
    for cuts, chance in outcomes.items():
        told[tuple(cuts[at.index(n)][0] for n in range(len(at)))] += chance
    return told


class Paths:
    """All that can be drawn, one after the other, in place of random draws."""

    def __init__(self):
        self.path, self.at, self.chance = [], 0, 1.0

    def choose(self, weights):
        if self.at == len(self.path):
            self.path.append([0, len(weights)])
        chosen = self.path[self.at][0]
        self.chance *= weights[chosen] / sum(weights)
        self.at += 1
        return chosen

    def follow(self):
        """Yield this for each path, until all were taken."""
        while True:
            self.at, self.chance = 0, 1.0
            yield self
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return
            self.path[-1][0] += 1


def law_of_code(monkeypatch, own, plan):
    """The law of the places that `halving` draws of one group: all paths of its draws."""
    paths, told = Paths(), Counter()

    def draw(line, steepness, _):
        top = max(line.scores)
        each = [(at, n) for at, length in enumerate(line.lengths) for n in range(length)]
        weights = [
            math.exp(float(steepness) * (line.scores[at] - top)) / line.shares[at] for at, _ in each
        ]
        return each[paths.choose(weights)]

    monkeypatch.setattr(halving.Stretches, "draw", draw)
    monkeypatch.setattr(halving, "uniform_below", lambda count, _: paths.choose([1] * count))
    rows = asked([own], line=plan.line, at=plan.probabilities[0])
    for taken in paths.follow():
        drawing = halving._Drawing(plan, rows, None)
        cuts = drawing.cuts(drawing.read(plan.windows), 0)
        told[tuple(cut.place for cut in cuts)] += taken.chance
    return told


@pytest.mark.parametrize("beyond", [quantiles.BEYOND, 1, -1])
@pytest.mark.parametrize(
    "own", [(), (1,), (1, 1, 1), (0, 0, 0, 2), (0, 1, 1, 2, 2), (5, 5, -9, 1, 7)], ids=str
)
def test_what_is_drawn_has_the_law_of_its_definition(monkeypatch, beyond, own):
    """Of no rows, one, tied ones, and ones beyond the line; also where −R is near 0."""
    monkeypatch.setattr(quantiles, "BEYOND", beyond)
    plan = plan_of(asked([own], line=TINIEST), epsilon=Fraction(5, 2))
    expected = law(np.clip(own, 0, 2).tolist(), plan)
    found = law_of_code(monkeypatch, own, plan)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    assert all(found[key] == pytest.approx(expected[key], abs=1e-12) for key in found | expected)


@pytest.mark.parametrize("many", range(5))
@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3)], ids=str)
def test_a_row_is_added_to_one_part_and_changes_its_scores_as_is_said(many, probability):
    """All cuts, of all rows of three values that four have, and each that one more has."""
    a, b = probability.numerator, probability.denominator
    cuts = [(place, Fraction(2 * n + 1, 2 * FINE)) for place in range(3) for n in range(FINE)]

    def parted(own, place, u):
        below, same = sum(x < place for x in own), own.count(place)
        left = below + math.floor(u * same)
        missed = b * left - a * len(own) + 1, a * len(own) - b * (left + bool(same))
        return Counter(own[:left]), Counter(own[left:]), -max(0, *missed)

    for own in itertools.combinations_with_replacement(range(3), many):
        for row in range(3):
            changes = set()
            for cut in cuts:
                before, after = parted(own, *cut), parted(tuple(sorted((*own, row))), *cut)
                added = [other - one for one, other in zip(before[:2], after[:2], strict=True)]
                assert not any(
                    one - other for one, other in zip(before[:2], after[:2], strict=True)
                )
                assert added in ([Counter([row]), Counter()], [Counter(), Counter([row])])
                changes.add(after[2] - before[2])
            assert max(changes) - min(changes) <= score_range(probability)


@pytest.mark.parametrize("epsilon", [Fraction(3, 10), Fraction(3)], ids=str)
@pytest.mark.parametrize("probabilities", [QUARTILES, UPPER], ids=str)
@pytest.mark.parametrize("contributions", [1, 2])
def test_units_are_as_hard_to_tell_apart_as_is_charged(epsilon, probabilities, contributions):
    """A unit with up to two rows of a group, of three values: all rows besides, all of its own."""
    each, worst, cheaper = itertools.combinations_with_replacement, -1.0, -1.0
    rows = asked([[]], line=TINIEST, contributions=contributions, at=probabilities[0])
    plan = plan_of(rows, probabilities, epsilon)
    mu, laws = math.sqrt(float(plan.privacy_cost)), {}
    for own in (own for many in range(5 + contributions) for own in each(range(3), many)):
        found = law(own, plan)
        laws[own] = np.array([found[key] for key in sorted(found)])
    assert {len(found) for found in laws.values()} == {10}  # places that are in order
    for own in (own for many in range(5) for own in each(range(3), many)):
        for added in each(range(3), contributions):
            pair = laws[own], laws[tuple(sorted((*own, *added)))]
            for one, other in (pair, pair[::-1]):
                worst = max(worst, beyond_gaussian(one, other, mu))
                cheaper = max(cheaper, beyond_gaussian(one, other, mu / 3))
    assert worst < 1e-12
    assert cheaper > 0  # a third of the charge would be noticed


@pytest.mark.parametrize("probability", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 3)], ids=str)
@pytest.mark.parametrize("epsilon", [Fraction(1, 50), Fraction(2), Fraction(60)], ids=str)
def test_cuts_have_their_scores_and_places_count_alike(probability, epsilon):
    """Also of values that many rows have, of which only those near the quantile are told apart."""
    rng = random.Random(4)  # noqa: S311
    part = halving.HalvedPart(0, None, None, probability, 0)
    for _ in range(8):
        own = sorted(rng.randint(-6, 6) for _ in range(rng.choice([0, 1, 4, 30, 200])))
        plan = plan_of(asked([own]), epsilon=epsilon)
        expected = Counter()
        for (place, _), (_, _, score) in law_of_cuts(own, -9, 9, probability, plan, part).items():
            expected[place, score] += Fraction(1, max(own.count(place), 1))
        found = Counter()
        of = line_of(plan, part, asked([own]), EVERY, -9, 9)
        for place, length, score, share in zip(
            of.first, of.lengths, of.scores, of.shares, strict=True
        ):
            for number in range(length):
                found[place + (number if share == 1 else 0), score] += Fraction(1, share)
        assert found == expected


def line_of(plan, part, rows, windows, low=-128, high=127):
    """The stretches of which a cut of a whole group is drawn."""
    drawing, (own,) = halving._Drawing(plan, rows, SeededBits(0)), rows.groups
    ends = halving._Cut(low, 0), halving._Cut(high, len(own))
    given = halving._PartRows.of(drawing.read(windows), slice(None), *ends)
    return halving._PartCuts.of(given, part.probability, plan.least(part)).line


class Whole(Rows):
    """Rows of which all are read, whatever is asked for."""

    def run(self, windows):
        return super().run([RankWindow(windows[0].probability, 2**60)])


@pytest.mark.parametrize("beyond", [quantiles.BEYOND, 2, -5])
@pytest.mark.parametrize("probabilities", [QUARTILES, DECILES, UPPER], ids=["4", "10", "upper"])
def test_what_is_read_decides_what_is_drawn(monkeypatch, beyond, probabilities):
    """The same words of random bits draw the same, if only what is near is read or all is.

    Where −R is near 0, cuts have that score time and again. Many rows are beyond the line.
    """
    usual = quantiles.BEYOND
    monkeypatch.setattr(quantiles, "BEYOND", beyond)
    rng = random.Random(5)  # noqa: S311
    reads = 0
    for seed in range(12):
        spread = rng.choice([2, 25, 120, 400])
        groups = [[rng.randint(-spread, spread) for _ in range(rng.choice([0, 7, 400]))]
                  for _ in range(3)]  # fmt: skip
        groups[0] += [3] * rng.choice([0, 500])
        epsilon = rng.choice([Fraction(1, 10), Fraction(3), Fraction(40)])
        near = asked(groups, at=probabilities[0])
        every = Whole(near.values, groups)
        plan = plan_of(near, probabilities, epsilon)
        drawn = [draw_quantiles(paid(plan), of, _bits=SeededBits(seed)) for of in (near, every)]
        assert drawn[0] == drawn[1]
        assert all(np.diff(drawn[0], axis=0).ravel() >= 0)
        reads += len(near.windows)
    assert reads == 12 if beyond == usual else reads >= 12
    assert reads > 12 or beyond >= 0


HOSTILE = {
    "ties": [(7, 200_000)],
    "all but a few tied": [(7, 200_000), *((place, 1) for place in range(-100, 100))],
    "two ties": [(-3, 100_000), (50, 100_000)],
    "all above the line": [(10**6 + n, 50) for n in range(4000)],
    "all below it": [(-(10**6) - n, 50) for n in range(4000)],
    "both": [(-500, 100_000), (500, 100_001)],
    "one row": [(3, 1)],
    "no row": [],
}


@pytest.mark.parametrize("own", HOSTILE)
@pytest.mark.parametrize("row", [-129, 7, 50])
def test_a_row_more_changes_cuts_of_many_rows_by_what_is_said(own, row):
    """By no more than ε the logarithm of the density of each cut, whatever rows there are."""
    given = np.repeat(*np.array(HOSTILE[own], dtype=int).reshape(-1, 2).T)
    places, (below, upto) = np.arange(-128, 128), ranks(given, np.arange(-128, 128))
    near = len(given) / 2 + np.linspace(-400.7, 400.3, 80)  # rows with which u are on the left
    u = np.clip((near[:, None] - below) / np.maximum(upto - below, 1), 0, 1 - 1e-9)
    each = np.append(given, row), given
    change = np.subtract(*(densities(own, np.tile(places, 80), u.ravel()) for own in each))
    assert np.ptp(change) <= 0.5 + 1e-9
    assert np.abs(change).max() <= 0.5 + 1e-9
    assert np.ptp(change) > 0.2 or own == "no row"


def ranks(own, places):
    """How many rows are below places, and up to them, if those beyond the line are at its ends."""
    own = np.sort(np.clip(own, -128, 127))
    return [np.searchsorted(own, places, side) for side in ("left", "right")]


def densities(own, places, u):
    """The logarithms of densities of cuts of a group: by definition, their sum by the code."""
    rows = asked([own])
    plan = plan_of(rows, epsilon=Fraction(1, 2))
    part, a, b = plan.parts[0], 1, 2
    assert part.probability == Fraction(a, b)
    steep = float(plan.epsilon / score_range(part.probability))
    of = line_of(plan, part, rows, plan.windows)
    weights = np.exp(steep * np.array(of.scores, dtype=float)) / np.array(of.shares)
    total = float(weights @ np.array(of.lengths))
    below, upto = ranks(own, places)
    left = below + np.floor(u * (upto - below)).astype(int)
    missed = b * left - a * len(own) + 1, a * len(own) - b * (left + (upto > below))
    return steep * np.maximum(-np.maximum(0, np.maximum(*missed)), plan.least(part)) - np.log(total)


@pytest.mark.statistical
@pytest.mark.parametrize("beyond", [quantiles.BEYOND, -1])
def test_places_come_with_their_probabilities(monkeypatch, beyond):
    """By the whole of a draw, with its random bits."""
    monkeypatch.setattr(quantiles, "BEYOND", beyond)
    own, draws = [0, 0, 0, 0, 0, 2, 3], 1000
    line = ValueLine(RowType("TINYINT"), 0, 3)
    rows = asked([own], line=line)
    plan, bits = plan_of(rows, epsilon=Fraction(2)), SeededBits(11)
    expected = law(own, plan)
    assert sum(expected.values()) == pytest.approx(1)
    drawing = halving._Drawing(plan, rows, bits)
    near = drawing.read(plan.windows)
    found = Counter(tuple(cut.place for cut in drawing.cuts(near, 0)) for _ in range(draws))
    often = [key for key, chance in expected.items() if chance * draws >= 5]
    counts = [found[key] for key in often] + [draws - sum(found[key] for key in often)]
    shares = [expected[key] for key in often]
    shares.append(1 - sum(shares))
    assert set(found) <= set(expected)
    assert stats.chisquare(counts, np.array(shares) * draws).pvalue > 1e-6


def test_rows_near_a_quantile_that_are_missing_are_noticed():
    plan = plan_of(asked([range(100)]))
    near = asked([range(100)]).run([RankWindow(Fraction(1, 2), 20)])
    given = halving._PartRows.of(near, slice(None), halving._Cut(-128, 0), halving._Cut(127, 100))
    with pytest.raises(InternalError):
        halving._PartCuts.of(given, Fraction(1, 2), plan.least(plan.parts[0]))
    assert halving._PartCuts.of(given, Fraction(1, 2), -20).gaps > 10


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 10**6, 2**53])
@pytest.mark.parametrize("part", [Fraction(1, 2), Fraction(9, 10), Fraction(1, 1000)])
@pytest.mark.parametrize("reach", [1, 2**14, 2**31, 2**53, 2**62, 2**63 - 500, 2**63, 2**100])
def test_no_number_of_rows_is_too_many_for_any_reach(reach, part, size):
    """One row more may not be an error: where a score is cut off doesn't depend on 64 bits."""
    here = 1 if size else 0
    values = (np.full(here, of, np.int64) for of in (5, 0, size))
    rows = halving._PartRows(*values, halving._Cut(-9, 0), halving._Cut(9, size))
    near = part.denominator * min(reach, size) if size <= 10**6 else 50
    cuts = halving._PartCuts.of(rows, part, -near)
    if size <= 10**6:
        far = halving._PartCuts.of(rows, part, -part.denominator * (reach + size))
        assert (far.below[: far.gaps], far.gaps) == (cuts.below[: cuts.gaps], cuts.gaps)
        assert far.line.first[: far.gaps] == cuts.line.first[: cuts.gaps]


def test_far_more_rows_than_can_be_told_apart_are_refused_before_they_are_read():
    rows = asked([[0] * 5])
    most = (math.log(256) + quantiles.BEYOND) * 2 / halving.MOST_NEAR
    assert plan_of(rows, epsilon=Fraction(most) * Fraction(101, 100))
    with pytest.raises(InternalError, match="too many rows"):
        plan_of(rows, epsilon=Fraction(most) * Fraction(49, 100))


def test_parts_without_rows_have_any_place():
    """Rows that all tie, of which a cut may have all on one side: the other part is empty."""
    plan = plan_of(asked([[7] * 5]), epsilon=Fraction(1, 10))
    rows = asked([[7] * 5])
    found = {
        tuple(place for (place,) in draw_quantiles(paid(plan), rows, _bits=SeededBits(seed)))
        for seed in range(40)
    }
    assert len(found) > 30
    assert all(list(places) == sorted(places) for places in found)


def test_values_that_many_rows_have_are_all_of_their_quantiles():
    """Nine in ten rows are 0: so are the quantiles among them, and the last is not."""
    groups = [[0] * 900 + list(range(1, 101)), [0] * 5000, []]
    rows = asked(groups, at=DECILES[0])
    plan = plan_of(rows, (*DECILES, Fraction(95, 100)), Fraction(40))
    for seed in range(3):
        drawn = np.array(draw_quantiles(paid(plan), rows, _bits=SeededBits(seed)))
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
        draw_quantiles(charged, given, _bits=SeededBits(0))
    assert not given.windows  # no row was read
    draw_quantiles(charged, rows, _bits=SeededBits(0))  # nor is the charge used up


def test_a_charge_pays_once_and_for_no_more():
    rows = asked([[1]])
    plan = plan_of(rows)
    charged = paid(plan)
    draw_quantiles(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="once"):
        draw_quantiles(charged, rows, _bits=SeededBits(0))
    with pytest.raises(InternalError, match="less than"):
        paid(plan, plan.privacy_cost * Fraction(999, 1000))


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
        draw_quantiles(paid(plan_of(rows)), rows, _bits=SeededBits(0))


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
    every = rows.run(EVERY)
    rows.run = lambda _: every
    plan = plan_of(rows, probabilities, Fraction(1))
    off = []
    for seed in range(40):
        drawn = draw_quantiles(paid(plan), rows, _bits=SeededBits(seed))
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
        each = [DrawPlan("q", line, 1, 1, 1, alone, p) for p in among]
        together, apart = sum(map(rows_missed, ones)), sum(map(quantiles.rows_missed, each))
        needed = zip(map(rows_needed, ones), map(quantiles.rows_needed, each), strict=True)
        few = all(one <= 2 * other for one, other in needed)
        assert is_better(among, line) == (together < apart and few)
        assert number or (together < apart / 1.2 and few)
        assert not is_better(among[:2], line)


@pytest.mark.parametrize("probabilities", [QUARTILES, DECILES, UPPER], ids=["4", "10", "upper"])
def test_groups_of_as_many_rows_as_are_needed_have_quantiles(probabilities):
    """A cut is hardly ever beyond the rows of its part, in groups half as large again."""
    line = ValueLine(RowType("INTEGER"), -(2**31), 2**31 - 1)
    ones = [One(p, probabilities, Fraction(5), line) for p in probabilities]
    many = max(math.ceil(rows_needed(one) / min(one.probability, 1 - one.probability))
               for one in ones)  # fmt: skip
    own = list(range(0, many * 3 // 2 * 3, 3))
    rows = Rows(values(probabilities[0], line=line), [own])
    plan = plan_of(rows, probabilities, Fraction(5))
    for seed in range(4):
        drawn = draw_quantiles(paid(plan), rows, _bits=SeededBits(seed))
        assert all(0 <= place <= own[-1] for (place,) in drawn)
