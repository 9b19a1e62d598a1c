"""The default plan of a script is as good as any mechanism's, and loses nothing by rounding."""

from __future__ import annotations

import random

import pytest

import dpsql
from tests.helpers.random_scripts import script, table

BUDGET = dpsql.Budget(rho=0.5)
OTHERS = ["querysmasher", "residualplanner+", "fourier", "hdmm", "gaussian"]


def check(seed: int) -> None:
    generator = random.Random(seed)  # noqa: S311
    con, statements = table(generator), script(generator)
    planned = dpsql.plan(con, statements, budget=BUDGET)
    compared = dpsql.compare(con, statements, budget=BUDGET, mechanisms=OTHERS)
    assert planned.rmse <= 1.001 * compared.frame["rmse"].min()
    assert planned.avoidable <= 0.01


@pytest.mark.parametrize("seed", [*range(8), 653])
def test_random_scripts(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 2008))
def test_many_random_scripts(seed):
    check(seed)
