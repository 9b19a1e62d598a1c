"""The dual solvers against an independent conic program, and against published optima."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from dpsql.planner.mechanisms.querysmasher import conquer, plan
from dpsql.planner.residuals.pieces import Splitter
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import by_size, decompose
from dpsql.planner.residuals.structure import multiply, products
from dpsql.planner.strategies import choose
from dpsql.planner.strategies.choose import Solutions
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Workload
from tests.helpers.least import least_error_by_conic_program

SMALL = {
    "prefix": Workload({"a": 6}).add(["a"], [Prefix()]),
    "all ranges": Workload({"a": 5}).add(["a"], [AllRange()]),
    "product": Workload({"a": 3, "b": 4}).add(["a", "b"], [Prefix(), Identity()]),
    "affine": Workload({"a": 3, "b": 4}).add(
        ["a", "b"],
        Matrix([(np.add.outer(range(3), range(4)) <= c).ravel() for c in range(6)]),
    ),
    "sum of structures": Workload({"a": 3, "b": 3})
    .add(["a", "b"], [Identity(), Prefix()])
    .add(["a", "b"], Matrix([np.abs(np.subtract.outer(range(3), range(3))).ravel() <= 1])),
    "stacked ranges": Workload({"a": 6, "b": 3})
    .add(["a", "b"], [Matrix([[1, 1, 0, 0, 0, 0]]), Identity()])
    .add(["a", "b"], [Matrix([[0, 1, 1, 1, 0, 0]]), Identity()], weight=2.0),
    "one query": Workload({"a": 7}).add(["a"], Matrix([[0, 0, 1, 1, 1, 0, 0]])),
}


@pytest.mark.parametrize("name", SMALL)
def test_bounds_enclose_the_conic_optimum(name):
    coloring = by_size(SMALL[name])
    splitter = Splitter([Reference.of_cells(n) for n in coloring.sizes])
    for subworkload in decompose(SMALL[name], coloring, splitter.squares):
        if subworkload.spaces == ((),):
            continue
        found = conquer(subworkload, splitter, Solutions(1e-7))
        terms = products(subworkload, splitter)
        rows = [math.sqrt(t.weight) * multiply(t.pieces).rows for t in terms]
        optimum = least_error_by_conic_program(np.vstack(rows))
        assert found.lower <= optimum * (1 + 1e-5)
        assert found.upper >= optimum * (1 - 1e-5)
        assert found.upper / found.lower - 1 <= 1e-6


def hybrid(sizes: dict[str, int], numeric: set[str], ways) -> Workload:
    """Products of prefixes (numeric attributes) and points (the others)."""
    workload = Workload(sizes)
    for k in ways:
        for names in combinations(sizes, k):
            workload.add(list(names), [Prefix() if a in numeric else Identity() for a in names])
    return workload


CPS = {"c1": 7, "c2": 4, "c3": 2, "n1": 50, "n2": 100}
ADULT = dict(
    zip("abcdefghiABCDE", (42, 16, 15, 9, 7, 6, 5, 2, 2, 100, 100, 100, 99, 85), strict=True)
)


@pytest.mark.parametrize(
    ("sizes", "numeric", "ways", "optimum"),
    [
        (CPS, {"n1", "n2"}, (1,), 3.135),
        (CPS, {"n1", "n2"}, (2,), 6.192),
        (CPS, {"n1", "n2"}, (1, 2, 3), 8.140),
        (ADULT, set("ABCDE"), (1,), 5.047),
    ],
)
def test_reaches_the_certified_optimum_of_the_published_workloads(sizes, numeric, ways, optimum):
    """QuerySmasher, Table 2, at privacy cost 1."""
    planned = plan(hybrid(sizes, numeric, ways), Budget(mu=1), residuals="uniform")
    assert planned.rmse == pytest.approx(optimum, rel=1e-3)
    assert planned.gap <= 2e-3


def test_affine_queries_on_census_sizes():
    """QuerySmasher, Table 3 (CPS, affine): published 5.935, certified optimum 4.826."""
    workload = Workload(CPS)
    for a in CPS:
        workload.add([a], [Prefix()])
    for a, b in combinations(CPS, 2):
        sums = np.add.outer(range(CPS[a]), range(CPS[b])).ravel()
        workload.add([a, b], Matrix([sums <= c for c in range(CPS[a] + CPS[b] - 1)]))
    planned = plan(workload, Budget(mu=1), residuals="uniform")
    assert planned.rmse == pytest.approx(4.826, rel=1e-3)


def test_sums_too_large_to_solve_have_an_honest_gap():
    """A product strategy is answered with a valid, if loose, certificate."""
    workload = Workload({"a": 60, "b": 60})
    workload.add(["a", "b"], [Identity(), Identity()])
    workload.add(["a", "b"], [Prefix(), Prefix()])
    planned = plan(workload, Budget(mu=1))
    assert "product of 2" in planned.explain()
    assert planned.gap > 0


def test_a_plan_that_would_take_too_long_is_made_of_products_and_says_so(monkeypatch):
    """The budget is counted in multiplications, so that plans are reproducible."""
    workload = Workload({"a": 9, "b": 9}).add(["a", "b"], [Prefix(), Prefix()])
    sums = np.add.outer(range(9), range(9)).ravel()
    workload.add(["a", "b"], Matrix([sums <= c for c in range(17)]))
    best = plan(workload, Budget(mu=1), residuals="uniform")
    monkeypatch.setattr(choose, "PLAN_WORK", 1e5)
    quick = plan(workload, Budget(mu=1), residuals="uniform")
    assert "product of 2" in quick.explain()
    assert "product of 2" not in best.explain()
    assert quick.rmse >= best.rmse
    # The certificate holds: the better plan is not below what the quick one calls possible.
    assert best.rmse**2 >= quick.rmse**2 / (1 + quick.gap) * (1 - 1e-9)
