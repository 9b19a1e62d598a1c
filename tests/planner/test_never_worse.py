"""The default plan is as good as any mechanism's, and loses next to nothing by rounding."""

from __future__ import annotations

import random

import pytest

import dpsql
from dpsql.planner.mechanisms import querysmasher
from tests.helpers.overlapping import overlapping, two_ends
from tests.helpers.random_scripts import script, table

BUDGET = dpsql.Budget(rho=0.5)
OTHERS = ["querysmasher", "residualplanner+", "fourier", "hdmm", "gaussian"]
MARGINALS = ["hdmm", "gaussian"]
"""Those that may treat one column differently in each set of columns."""


def check(seed: int) -> None:
    generator = random.Random(seed)  # noqa: S311
    compared(table(generator), script(generator))


def compared(*asked, mechanisms=OTHERS) -> dpsql.Plan:
    planned = dpsql.plan(*asked, budget=BUDGET)
    others = dpsql.compare(*asked, budget=BUDGET, mechanisms=mechanisms)
    assert planned.rmse <= 1.001 * others.frame["rmse"].min()
    assert planned.avoidable <= 0.01
    return planned


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", [*range(8), 653])
def test_random_scripts(seed):
    check(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 2008))
def test_many_random_scripts(seed):
    check(seed)


@pytest.mark.parametrize(("groups", "values"), [(60, 16), (60, 64)])
def test_shared_columns_of_which_other_things_are_asked(groups, values, monkeypatch):
    """A strategy for each set of columns was 1.7 and 2.4 percent better.

    One reference of the shared column can't be as good, which is known before it is planned.
    """
    workload = two_ends(groups, values)
    planned = compared(workload, mechanisms=MARGINALS)
    assert not planned.tried
    monkeypatch.setattr(querysmasher, "choose_by_context", lambda *_: None)
    common = querysmasher.plan(workload, BUDGET)
    assert planned.rmse < 0.985 * common.rmse


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100))
def test_many_random_overlapping_workloads(seed):
    compared(overlapping(random.Random(seed)))  # noqa: S311
