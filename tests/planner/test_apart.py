"""Groups of a limit on rows that are measured apart: costs of every unit, errors and bounds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql import Budget
from dpsql.measurement.certify import spent
from dpsql.planner import registry
from dpsql.planner.mechanisms.base import Options
from dpsql.planner.strategies import apart
from dpsql.workload import Identity, Matrix, Prefix, Total, Workload
from dpsql.workload.spread import SpreadRows
from dpsql.workload.workload import written_out

BUDGET = Budget(mu=1)


def planned(workload, rows, *spreads):
    options = Options(contributions=rows, spreads=spreads)
    return registry.plan(workload, BUDGET, options=options)


def in_months(rows, own=1, classes=()):
    return SpreadRows(frozenset({"m"}), Fraction(own, rows), classes)


def flights(*groupings, months=12, carriers=10):
    workload = Workload({"m": months, "c": carriers})
    for grouping in groupings:
        workload.add(list(grouping), [Identity() for _ in grouping])
    return workload


def units(shape, most, capacities):
    """All ways in which up to `most` rows lie in cells, at most so many in each month."""
    cells = range(math.prod(shape))
    for count in range(1, most + 1):
        for at in itertools.combinations_with_replacement(cells, count):
            own = np.bincount(at, minlength=len(cells)).reshape(shape)
            if (own.sum(axis=1) <= capacities).all():
                yield own.ravel()


@pytest.mark.parametrize(
    ("groupings", "rows", "least"),
    [
        (["mc", "m"], 12, 4.0681),
        (["mc", "m"], 6, 2.8766),
        (["mc", "m"], 3, 2.0341),
        (["mc", "m", "c", ""], 12, 5.5275),
    ],
)
def test_months_are_planned_apart(groupings, rows, least):
    plan = planned(flights(*groupings), rows, in_months(rows))
    assert plan.rmse <= least


def test_a_bound_for_all_mechanisms_is_below_the_best_that_is_known():
    """Differences between months would be better still: 3.4266 by convex optimization."""
    plan = planned(flights("mc", "m"), 12, in_months(12))
    assert plan.gap_among == "all mechanisms"
    assert plan.rmse**2 / (1 + plan.gap) <= 3.4266**2
    assert plan.gap < 0.6
    alone = planned(flights("m"), 12, in_months(12))
    assert alone.rmse**2 / (1 + alone.gap) <= 12 * 12 / 23


def test_a_month_costs_what_a_unit_has_in_it_beside_the_total_of_all():
    workload = Workload({"m": 2})
    workload.add(["m"], Matrix(np.array([[1, 0]])))
    workload.add([], [])
    plan = planned(workload, 12, in_months(12, classes=(("m", (1, 11)),)))
    # Of the month (√2)², of all others 11².
    assert plan.rmse**2 * 2 == pytest.approx((math.sqrt(2) + 11) ** 2, rel=1e-4)
    assert plan.gap < 0.07


def test_what_is_asked_of_no_month_is_planned_as_before():
    asked = flights("c", "")
    with_limit, without = planned(asked, 12, in_months(12)), planned(asked, 12)
    assert with_limit.rmse == without.rmse
    assert with_limit.certified.blocks[0].spaces == without.certified.blocks[0].spaces


@pytest.mark.parametrize("seed", range(30))
def test_no_unit_changes_more_than_is_charged(seed):
    random = np.random.default_rng(seed)
    months, carriers = int(random.integers(2, 4)), int(random.integers(1, 4))
    rows = int(random.integers(2, 5))
    own = int(random.integers(1, rows))
    sizes = tuple(int(size) for size in random.integers(1, 3, months))
    workload = Workload({"m": months, "c": carriers})
    of = [Identity(), Prefix(), Total(), Matrix(random.integers(-1, 2, (2, months)) + 0)]
    for _ in range(int(random.integers(1, 4))):
        month = of[int(random.integers(len(of)))]
        carrier = of[int(random.integers(3))]
        workload.add(["m", "c"], [month, carrier], weight=float(random.uniform(0.5, 2)))
    limit = in_months(rows, own, (("m", sizes),))
    found = apart.solve_apart(workload, limit.within(("m", "c")), 1e-4)
    assert found is not None
    plan = planned(workload, rows, limit)
    capacities = np.minimum(rows, own * np.array(sizes))
    cost = spent(plan.certified.blocks, rows, plan.certified.spreads)
    assert cost == plan.certified.privacy_cost <= BUDGET.mu_squared
    worst = 0
    for added in units((months, carriers), rows, capacities):
        changed = Fraction(0)
        for block in plan.certified.blocks:
            names = block.spaces[0]
            counts = added.reshape(months, carriers)
            counts = counts.sum(axis=tuple(i for i, n in enumerate("mc") if n not in names))
            matrix = np.ones((1, 1), dtype=object)
            for factor in sorted(block.factors, key=lambda factor: factor.axes):
                matrix = np.kron(matrix, factor.matrix.astype(object))
            moved = matrix @ np.asarray(counts).astype(object).ravel()
            changed += Fraction(int((moved**2).sum())) / block.law.width
        worst = max(worst, changed)
    assert worst <= cost


@pytest.mark.parametrize("seed", range(20))
def test_norms_are_the_best(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 6))
    errors, shares = random.uniform(0.1, 9, count), random.uniform(0.05, 1, count)
    z = apart._worst(errors, shares)
    assert (z <= shares * (1 + 1e-12)).all()
    assert z.sum() == pytest.approx(min(1.0, shares.sum()))
    best = np.sqrt(errors * shares * z).sum() ** 2

    def reached(norms):
        order = np.argsort(-shares * norms)
        until = np.minimum(np.cumsum(shares[order]), 1.0)
        taken = np.diff(until, prepend=0)
        return (errors / norms).sum() * (taken * (shares * norms)[order]).sum()

    norms = np.sqrt(errors / (shares * z))
    assert reached(norms) == pytest.approx(best, rel=1e-9)
    for _ in range(50):
        assert reached(norms * np.exp(random.normal(0, 0.3, count))) >= best * (1 - 1e-9)


def test_answers_are_unbiased():
    workload = flights("mc", "c", months=3, carriers=4)
    plan = planned(workload, 6, in_months(6))
    (block,) = plan.certified.blocks
    matrix = block.factors[0].matrix.astype(np.float64)
    queries = written_out(workload, ("m", "c"))
    assert queries @ np.linalg.pinv(matrix) @ matrix == pytest.approx(queries, abs=1e-9)
    products = matrix.T @ matrix
    between = np.kron(1 - np.eye(3), np.ones((4, 4)))
    assert np.abs(products * between).max() <= 1e-6 * products.max()
