"""Kronecker products: references in closed form, certified against all matrix mechanisms."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.weights import search
from dpsql.planner.weights.product import closed_form, factors, reference_of
from dpsql.privacy import Budget
from dpsql.workload import AllRange, Identity, Matrix, Prefix, Suffix, Total, Workload
from dpsql.workload.workload import gram

BUDGET = Budget(mu=1)
AVERAGE = Matrix([[1.0] * 9 + [0.0], [*map(float, range(9)), 0.0]])
"""Counts and sums of a nullable column of nine values."""
FACTORS = (Identity(), Prefix(), Suffix(), AllRange(), Matrix(np.tri(10)[2:7]), AVERAGE, Total())


def total(planned) -> float:
    return planned.rmse**2 * planned.workload.count


@pytest.fixture
def only_products(never_whole, monkeypatch):
    """Leave no way but the closed form."""
    monkeypatch.setattr(search.ReferenceSearch, "minimize", lambda *_: pytest.fail("searched"))


@pytest.mark.parametrize(
    ("first", "second"), [*combinations(FACTORS, 2)], ids=lambda f: type(f).__name__
)
def test_products_reach_the_best_of_all_mechanisms(first, second, only_products):
    workload = Workload({"a": 10, "b": 10}).add(["a", "b"], [first, second])
    planned, whole = plan(workload, BUDGET), plan(workload, BUDGET, residuals="none")
    assert not planned.whole
    assert planned.gap <= 2e-3
    # Both bounds hold for all mechanisms, so neither plan is below the other's.
    assert planned.least <= total(whole) * (1 + 1e-12)
    assert whole.least <= total(planned) * (1 + 1e-12)
    assert planned.least == pytest.approx(whole.least, rel=1e-3)


def test_what_differs_along_one_attribute_only_is_one_product(only_products):
    workload = Workload({"g": 3, "x": 10, "y": 4})
    kinds = {"g": Identity(), "x": Prefix(), "y": Identity()}
    for own in (["g"], ["g", "x"], ["g", "y"], ["g", "x", "y"]):
        workload.add(own, [kinds[name] for name in own])
    workload.add(["g", "x"], [Identity(), AVERAGE], 3.0)
    workload.add(["g", "x", "y"], [Identity(), AVERAGE, Identity()], 3.0)
    found = factors(workload)
    assert found is not None
    first, second, third = (sum(w * q.gram() for w, q in found[name]) for name in "gxy")
    assert np.allclose(np.kron(first, np.kron(second, third)), gram(workload, ("g", "x", "y")))
    assert plan(workload, BUDGET).gap <= 2e-3


@pytest.mark.parametrize("build", [
    lambda w: w.add(["a"], [Prefix()]).add(["b"], [Identity()]),
    lambda w: w.add(["a", "b"], [Prefix(), Prefix()]).add(["a", "b"], [Suffix(), Identity()]),
    lambda w: w.add(["a", "b"], Matrix(np.tri(100))),
    lambda w: w.add(["a", "b"], [Identity(), Total()]).add(["a", "b"], [Prefix(), Identity()]),
])  # fmt: skip
def test_what_is_no_product_is_left_to_the_search(build):
    assert closed_form(build(Workload({"a": 10, "b": 10})), 1e-4) is None


@pytest.mark.parametrize("ranks", [(5, 4), (3, 4), (2, 2), (1, 3)])
def test_any_product_of_strategies_is_one_of_residual_spaces(ranks):
    """Step 3 of the proof: the same information at the same cost."""
    draw = np.random.default_rng(7)
    strategies, parts = [], []
    for rank, n in zip(ranks, (5, 4), strict=True):
        root = draw.normal(size=(rank, n))
        weights, x = reference_of(root), root.T @ root
        x += np.diag(x.diagonal().max() - x.diagonal())  # filled up
        t = float(weights @ x @ weights)
        assert weights.sum() == pytest.approx(1)
        assert np.allclose((x - t) @ weights, 0)
        assert np.linalg.eigvalsh(x - t)[0] >= -1e-9
        strategies.append(x)
        parts.append((x - t, np.full((n, n), t)))
    spaces = [np.kron(*chosen) for chosen in product(*parts)]
    assert np.allclose(sum(spaces), np.kron(*strategies))
    cost = sum(space.diagonal().max() for space in spaces)
    assert cost == pytest.approx(math.prod(x.diagonal().max() for x in strategies))


def test_cells_that_nothing_is_asked_of_are_counted_for_free(only_products):
    """Medians leave NULL out. Its cell costs nothing, and later counts need it."""
    workload = Workload({"g": 5, "x": 12})
    workload.add(["g", "x"], [Identity(), Matrix(np.tri(11, 12))])
    planned = plan(workload, BUDGET)
    assert planned.gap <= 2e-3
    everyone = Workload({"g": 5, "x": 12}).add(["g"], [Identity()])
    (family,) = everyone.families
    assert planned.reconstruction.missing(family, everyone.domain) == ()


def test_a_column_of_which_only_the_total_is_asked(only_products):
    """Its queries are the same for all cells: no hull can be drawn around them."""
    workload = Workload({"a": 60, "c": 40, "d": 2})
    workload.add(["a", "c"], [Total(), AllRange()])
    workload.add(["a", "c", "d"], [Total(), AllRange(), Matrix([[1, 0], [0, 0]])])
    assert plan(workload, BUDGET).gap <= 2e-3


def test_few_rows_over_many_cells_need_no_matrix_of_cells_by_cells(only_products):
    """Counts, sums and squares: their columns are no hull of few cells, as there are three rows."""
    cells = 9_000
    values = np.append(np.arange(cells - 1.0), 0.0)
    counted = np.append(np.ones(cells - 1), 0.0)
    workload = Workload({"g": 3, "x": cells})
    workload.add(["g", "x"], [Identity(), Matrix(np.stack([counted, values, values**2]))])
    planned = plan(workload, BUDGET)
    assert planned.gap <= 2e-3
    assert planned.least > 0
