"""OPT_0 against written-out linear algebra, and its formulas against finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.errors import ResourceLimitError
from dpsql.linalg.matrices import Dense, Exchangeable, across_and_along, weighted_sum
from dpsql.planner.mechanisms.hdmm_products import (
    MAX_CELLS,
    DenseStrategy,
    EvenStrategy,
    Oracle,
    error_of_theta,
    even,
    gram_of,
    irregular,
    matrix_of,
)
from dpsql.workload import AllRange, Identity, Prefix, Ranges, Total
from tests.helpers.hdmm import rows_of, sensitivity


def error(rows, gram):
    inverse = np.linalg.pinv(rows)
    return np.trace(inverse.T @ gram.matrix @ inverse)


@pytest.mark.parametrize("p", [1, 3])
def test_the_objective_of_p_identity_is_the_error_and_its_gradient_is_right(p):
    gram = gram_of(Prefix().bind(9))
    theta = irregular(9 * p, 5).reshape(p, 9)
    value, gradient = error_of_theta(gram.matrix)(theta)
    assert value == pytest.approx(error(matrix_of(theta), gram))
    for at in np.ndindex(*theta.shape):
        step = np.zeros_like(theta)
        step[at] = 1e-6
        ahead, behind = (error_of_theta(gram.matrix)(theta + s)[0] for s in (step, -step))
        assert gradient[at] == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("factor", [Prefix(), AllRange(), Identity(), Ranges([(0, 3), (5, 9)])])
def test_strategies_have_sensitivity_1_and_the_error_that_they_state(noise, factor):
    gram = weighted_sum([(1.0, gram_of(factor.bind(20))), (0.5, gram_of(Total().bind(20)))])
    strategy = Oracle(noise).solve(gram)
    rows = rows_of(strategy)
    assert sensitivity(rows, noise) == pytest.approx(1, rel=1e-9)
    assert strategy.error(gram) == pytest.approx(error(rows, gram), rel=1e-6)
    identity = EvenStrategy(20, 1.0, 0.0).error(gram)
    assert strategy.error(gram) <= identity * (1 + 1e-4)


def test_gaussian_noise_gets_the_optimum_of_all_strategies():
    cvxpy = pytest.importorskip("cvxpy")
    gram = gram_of(Prefix().bind(8))
    x, bound = cvxpy.Variable((8, 8), symmetric=True), cvxpy.Variable((8, 8), symmetric=True)
    root = np.linalg.cholesky(gram.matrix).T
    joint = cvxpy.bmat([[bound, root], [root.T, x]])
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.trace(bound)), [joint >> 0, cvxpy.diag(x) <= 1])
    best = problem.solve(solver="CLARABEL")
    assert Oracle("gaussian").solve(gram).error(gram) == pytest.approx(best, rel=2e-4)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("total", [0.0, 1e-3, 1.0, 50.0, 1e6])
def test_the_best_weights_of_cells_and_total_are_found(noise, total):
    gram = Exchangeable(30, 1.0, 1.0 + 30 * total)
    found = even(gram, noise).error(gram)
    grid = np.linspace(0, 0.9999, 20001)
    if noise == "laplace":
        best = min(EvenStrategy(30, 1 - t, t).error(gram) for t in grid)
    else:
        best = min(EvenStrategy(30, (1 - t) ** 0.5, t**0.5).error(gram) for t in grid)
    assert found <= best * (1 + 1e-9)


def test_plain_gram_matrices_need_no_matrix():
    many = 10**7
    gram = weighted_sum([(2.0, Exchangeable(many)), (3.0, Exchangeable(many, 0.0, many))])
    assert gram.even is not None
    assert sum(across_and_along(gram)) == 5.0 * many
    small = weighted_sum([(2.0, Exchangeable(6)), (3.0, Exchangeable(6, 0.0, 6))])
    assert small.matrix == pytest.approx(2 * np.eye(6) + 3)
    parts = across_and_along(small)
    assert parts == pytest.approx(across_and_along(Dense(small.matrix)))
    assert parts[1] == pytest.approx(small.matrix.sum() / 6)
    assert EvenStrategy(6, 0.5, 0.25).error(small) == pytest.approx(
        error(rows_of(EvenStrategy(6, 0.5, 0.25)), small)
    )
    assert DenseStrategy.of(np.eye(6)).error(small) == pytest.approx(np.trace(small.matrix))
    with pytest.raises(ResourceLimitError, match="cells"):
        gram_of(Prefix().bind(MAX_CELLS + 1))


def test_a_start_is_never_made_worse_and_equal_questions_get_equal_answers():
    queries = Dense(irregular(12 * 40, 3).reshape(12, 40) - 0.3)
    gram = gram_of(queries)
    first, again = Oracle("laplace").solve(gram), Oracle("laplace").solve(gram)
    assert (rows_of(first) == rows_of(again)).all()
    assert Oracle("laplace").solve(gram, first).error(gram) <= first.error(gram)
