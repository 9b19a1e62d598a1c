"""Malformed and degenerate workloads: refused with a hint, or answered as they should be."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

import dpsql
from dpsql.errors import DpsqlError, ResourceLimitError, WorkloadError
from dpsql.workload import AllRange, CircularRange, Identity, Matrix, Prefix, Ranges, Workload

BUDGET = dpsql.Budget(mu=1)


def small() -> Workload:
    return Workload({"a": 4, "b": 3})


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, -math.inf, 1e10, "1", None, True])
def test_weights(weight):
    with pytest.raises(WorkloadError, match="weight") as error:
        small().add(["a"], [Prefix()], weight)
    assert error.value.hint
    if weight is not None:  # that leaves the family out
        with pytest.raises(WorkloadError):
            small().add(["a"], [Prefix()]).weighted([weight])


def test_all_weights_may_not_be_zero():
    """There is no weight of zero, so that not all can be."""
    with pytest.raises(WorkloadError):
        small().add(["a"], [Prefix()]).add(["b"], [Prefix()]).weighted([0, 0])


@pytest.mark.parametrize("options", [{}, {"residuals": "uniform"}, {"objective": "largest"}])
def test_empty_workloads(options):
    with pytest.raises(WorkloadError, match="empty") as error:
        dpsql.plan(small(), budget=BUDGET, **options)
    assert "add" in error.value.hint


@pytest.mark.parametrize("queries", [
    [[1, 2, 3]], [[1, 2, 3, 4, 5]], [1, 2, 3, 4], [[[1, 2, 3, 4]]], [[1, 2], [3]], "abc",
    [[1, math.nan, 0, 0]], [[1, math.inf, 0, 0]], [["x", 1, 2, 3]],
])  # fmt: skip
def test_matrices(queries):
    with pytest.raises(WorkloadError) as error:
        small().add(["a"], Matrix(queries))
    assert error.value.hint


@pytest.mark.parametrize(("attributes", "factors"), [
    (["c"], [Prefix()]), (["A"], [Prefix()]), (["a", "a"], [Prefix(), Prefix()]),
    (["a"], [Prefix(), Prefix()]), (["a", "b"], [Prefix()]), ([("a", "b")], [Matrix([[1, 2]])]),
    (["a"], ["prefix"]), (["a"], [Ranges([(0, 4)])]), (["a"], [Ranges([(2, 1)])]),
])  # fmt: skip
def test_attributes_and_factors(attributes, factors):
    with pytest.raises(WorkloadError) as error:
        small().add(attributes, factors)
    assert error.value.hint


@pytest.mark.parametrize("size", [0, -1, 1.5, "3", True, None])
def test_sizes(size):
    with pytest.raises(WorkloadError):
        Workload({"a": size})


@pytest.mark.parametrize("residuals", ["uniform", "weighted", "none"])
def test_duplicates_count_twice(residuals):
    once = small().add(["a", "b"], [Prefix(), Identity()], 2.0)
    twice = small().add(["a", "b"], [Prefix(), Identity()]).add(["a", "b"], [Prefix(), Identity()])
    first, second = (dpsql.plan(w, budget=BUDGET, residuals=residuals) for w in (once, twice))
    np.testing.assert_allclose(first.variances[0], second.variances[0], rtol=1e-6)
    np.testing.assert_allclose(second.variances[0], second.variances[1])
    assert first.rmse**2 * 12 == pytest.approx(second.rmse**2 * 24, rel=1e-6)


@pytest.mark.parametrize("residuals", ["uniform", "weighted", "none"])
def test_queries_that_are_zero_are_answered_for_nothing(residuals):
    workload = small().add(["a"], Matrix([[0, 0, 0, 0], [1, 1, 0, 0]]), name="some")
    workload.add(["a", "b"], Matrix(np.zeros((2, 12))), name="none")
    planned = dpsql.plan(workload, budget=BUDGET, residuals=residuals)
    some, none = planned.variances
    assert not none.any()
    assert some[0] == 0
    # A single counting query has the variance 1/μ² at best.
    assert some[1] >= 1 - 1e-9


@pytest.mark.parametrize("residuals", ["uniform", "weighted", "none"])
def test_rank_deficient_families(residuals):
    rows = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [2, 2, 1, 1]])
    planned = dpsql.plan(small().add(["a"], Matrix(rows)), budget=BUDGET, residuals=residuals)
    (variances,) = planned.variances
    assert planned.gap < 2e-3
    assert (variances > 0).all()
    # The third row is the sum of the first two, the fourth that of the first and the third.
    assert variances[2] <= (math.sqrt(variances[0]) + math.sqrt(variances[1])) ** 2 + 1e-9


def test_domains_beyond_64_bits_simply_work():
    """60 attributes of 1,000 values: 10^180 cells in all, of which 10^6 are counted."""
    workload = Workload({f"a{i}": 1000 for i in range(60)})
    workload.add(["a3", "a59"], [Identity(), Identity()])
    workload.add([("a1", "a2")], [Matrix(np.ones((1, 10**6)))])
    planned = dpsql.plan(workload, budget=BUDGET)
    assert planned.marginals == (("a3", "a59"),)
    assert planned.gap < 1e-3


def test_billions_of_ranges_cost_no_more_to_plan_than_prefixes():
    workload = Workload({f"a{i}": 40 for i in range(20)})
    names = list(workload.domain)
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            workload.add([first, second], [CircularRange(), AllRange()])
    assert workload.count > 2 * 10**8
    planned = dpsql.plan(workload, budget=BUDGET)
    assert len(planned.planned) < 400
    assert planned.gap < 1e-3


def test_what_is_too_large_is_refused_by_sizes_alone():
    workload = Workload({"a": 10**5, "b": 10**5})
    for attributes, factors in (
        (["a", "b"], [Identity(), Identity()]),
        (["a"], [AllRange()]),
        (["a"], [CircularRange()]),
    ):
        with pytest.raises(ResourceLimitError) as error:
            workload.add(attributes, factors)
        assert isinstance(error.value, DpsqlError)
        assert error.value.hint
    with pytest.raises(ResourceLimitError, match="joint cells"):
        dpsql.plan(
            Workload({"a": 50, "b": 50}).add(["a", "b"], [Prefix(), Prefix()]),
            budget=BUDGET,
            residuals="none",
        )


def test_answers_are_limited_in_all():
    workload = Workload({f"a{i}": 1 for i in range(4)})
    many = Matrix(np.ones((2**16, 1)))
    workload.add(["a0", "a1", "a2"], [many] * 3).add(["a0"], [many])
    with pytest.raises(ResourceLimitError, match="18,446,744,073,709,551,616 answers") as error:
        Workload(workload.domain).add(list(workload.domain), [many] * 4)
    assert error.value.hint
    wide = Workload(workload.domain).add(["a0", "a1", "a2"], [many] * 3)
    for _ in range(2):
        wide.add([("a0", "a1"), "a2", "a3"], [Matrix(np.ones((2**13, 1))), many, many])
    assert wide.count == wide.copy().count == 2**48 + 2**46
    assert wide.weighted([None, 1, 1]).count == 2**46


def test_comparisons_are_what_they_say():
    x, y = np.divmod(np.arange(12), 3)
    for matrix, expected in (
        (Matrix.affine((4, 3), (1, 1)), [x + y <= c for c in range(6)]),
        (Matrix.affine((4, 3), (2, -1), [0, 1.5]), [2 * x - y <= 0, 2 * x - y <= 1.5]),
        (Matrix.difference((4, 3)), [abs(x - y) <= c for c in range(4)]),
        (Matrix.difference((4, 3), [1]), [abs(x - y) <= 1]),
    ):
        np.testing.assert_array_equal(matrix.bind(12).matrix, expected)


@pytest.mark.parametrize("build", [
    lambda: Matrix.affine((4, 3), (1,)), lambda: Matrix.difference((4,)),
    lambda: Matrix.affine((10**5, 10**5), (1, 1)), lambda: Matrix.difference((0, 3)),
    lambda: Matrix.affine((4, 3), (1, math.nan), [math.nan, 1]).bind(13),
    lambda: Matrix.affine((5000, 5000), (1, 1)),
])  # fmt: skip
def test_bad_comparisons(build):
    with pytest.raises(DpsqlError) as error:
        build()
    assert error.value.hint


def test_sparse_matrices():
    import scipy.sparse

    rows = np.eye(4)[:2]
    for kind in (scipy.sparse.csr_array, scipy.sparse.coo_matrix):
        np.testing.assert_array_equal(Matrix(kind(rows)).bind(4).matrix, rows)
    with pytest.raises(ResourceLimitError, match="written out"):
        Matrix(scipy.sparse.csr_array((10**6, 10**6)))


class TestCellsTogether:
    """Marginals that are small by themselves, and too large together."""

    @staticmethod
    def of(marginals, cells=100):
        workload = Workload({f"c{i}": cells for i in range(6)})
        for names in marginals:
            workload.add(names, [Identity()] * len(names))
        return workload

    def test_the_sum_has_a_public_limit(self):
        pairs = list(combinations([f"c{i}" for i in range(6)], 4))  # 15 of 10^8 cells are too many
        with pytest.raises(ResourceLimitError, match="limit is 134,217,728") as caught:
            dpsql.plan(self.of(pairs, 80), budget=dpsql.Budget(rho=1))
        assert 'os.environ["DPSQL_MAX_CELLS"] = "614400000"' in caught.value.hint

    def test_the_hint_works_when_typed(self, monkeypatch):
        monkeypatch.setenv("DPSQL_MAX_CELLS", "199")
        workload = self.of([("c0",), ("c1",)])
        with pytest.raises(ResourceLimitError, match="have 200 cells together; the limit is 199"):
            dpsql.plan(workload, budget=dpsql.Budget(rho=1))
        monkeypatch.setenv("DPSQL_MAX_CELLS", "200")
        assert dpsql.plan(workload, budget=dpsql.Budget(rho=1)).workload.count == 200

    def test_a_marginal_is_counted_once(self, monkeypatch):
        monkeypatch.setenv("DPSQL_MAX_CELLS", "100")
        assert dpsql.plan(self.of([("c0",)] * 3), budget=dpsql.Budget(rho=1)).workload.count == 300

    @pytest.mark.parametrize("said", ["", "x", "-1", "1e9", "1" * 30])
    def test_what_is_no_number_of_cells(self, monkeypatch, said):
        monkeypatch.setenv("DPSQL_MAX_CELLS", said)
        with pytest.raises(dpsql.errors.ArgumentError, match="no number of cells"):
            dpsql.plan(self.of([("c0",)]), budget=dpsql.Budget(rho=1))
