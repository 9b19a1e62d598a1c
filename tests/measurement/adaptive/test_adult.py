"""The Adult census extract, all three-way marginals over the original domains."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pytest

import dpsql
from tests.benchmarks.aim_adult import SIZES, adaptive, cut, distance, planner, read
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive.tools import marginals_of

PATH = Path(__file__).parents[3] / "examples" / "data" / "adult.parquet"
PUBLISHED = {"0.1": 0.411, "1": 0.240, "10": 0.187}
"""The graphical-model AIM, measured with its public code."""


def budget(epsilon: str) -> dpsql.Budget:
    return dpsql.Budget(epsilon=Fraction(epsilon), delta=Fraction("1e-9"))


def check(epsilon: str) -> None:
    truth = marginals_of(read(str(PATH)), SIZES, list(combinations(SIZES, 3)))
    estimates, seconds = adaptive(truth, budget(epsilon), SeededBits(1))
    found = distance(truth, estimates.marginal)
    assert found < PUBLISHED[epsilon]
    assert found < distance(truth, cut(estimates.linear))
    assert seconds < 60


def test_all_three_way_marginals_of_adult():
    check("1")


@pytest.mark.long
@pytest.mark.parametrize("epsilon", PUBLISHED)
def test_all_three_way_marginals_of_adult_beat_residualplanner(epsilon):
    check(epsilon)
    truth = marginals_of(read(str(PATH)), SIZES, list(combinations(SIZES, 3)))
    estimates, _ = adaptive(truth, budget(epsilon), SeededBits(2))
    unbiased = planner(truth, budget(epsilon))
    assert distance(truth, estimates.marginal) < 0.5 * distance(truth, cut(unbiased))
