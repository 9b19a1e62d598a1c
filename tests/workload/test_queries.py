"""Queries that are not written out, against their matrices; and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import dpsql
from dpsql.errors import ResourceLimitError, WorkloadError
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget
from dpsql.workload import (
    AllRange,
    CircularRange,
    Identity,
    Matrix,
    Prefix,
    Ranges,
    Suffix,
    Total,
    Workload,
)

N = 5
CELLS = range(N)
EXPECTED = {
    Identity: [[j == k for j in CELLS] for k in CELLS],
    Total: [[True] * N],
    Prefix: [[j <= k for j in CELLS] for k in CELLS],
    Suffix: [[j >= k for j in CELLS] for k in CELLS],
    AllRange: [[a <= j <= b for j in CELLS] for a in CELLS for b in range(a, N)],
    CircularRange: [
        [(j - a) % N < length for j in CELLS] for a in CELLS for length in range(1, N + 1)
    ],
}
FACTORS = [
    *((kind(), rows) for kind, rows in EXPECTED.items()),
    (Ranges([(1, 3), (0, 0), (1, 3), (0, 4)]), [[1 <= j <= 3 for j in CELLS], [True] + [False] * 4,
     [1 <= j <= 3 for j in CELLS], [True] * N]),
    (Matrix([[1, 2, 0, -1, 0.5], [0, 0, 0, 0, 0]]), [[1, 2, 0, -1, 0.5], [0] * 5]),
]  # fmt: skip


@pytest.mark.parametrize(("factor", "rows"), FACTORS, ids=lambda v: repr(v)[:20])
def test_queries_agree_with_their_definition(factor, rows):
    queries, matrix = factor.bind(N), np.array(rows, dtype=float)
    np.testing.assert_array_equal(queries.matrix, matrix)
    assert (queries.rows, queries.cells) == matrix.shape
    np.testing.assert_array_equal(queries.gram(), matrix.T @ matrix)
    np.testing.assert_array_equal(queries.squares(), np.square(matrix).sum(axis=1))
    np.testing.assert_array_equal(queries.sums(), matrix.sum(axis=1))
    tensor = np.random.default_rng(1).integers(0, 9, (2, N, 3)).astype(float)
    np.testing.assert_array_equal(
        queries.apply(tensor, 1), np.einsum("qn,anb->aqb", matrix, tensor)
    )
    assert queries.key == factor.bind(N).key
    back = np.random.default_rng(2).integers(0, 9, (2, len(matrix), 3)).astype(float)
    np.testing.assert_array_equal(
        queries.apply_transposed(back, 1), np.einsum("qn,aqb->anb", matrix, back)
    )
    some = np.array([0, len(matrix) - 1, 0])
    np.testing.assert_array_equal(queries.take(some).matrix, matrix[some])
    np.testing.assert_array_equal(queries.between(1, len(matrix)).matrix, matrix[1:])


def test_inner_products():
    for first, rows in FACTORS:
        for second, others in FACTORS:
            numbers = np.arange(max(len(rows), len(others)))
            q, p = numbers % len(rows), numbers % len(others)
            expected = (np.array(rows, dtype=float)[q] * np.array(others, dtype=float)[p]).sum(1)
            ours = first.bind(N).take(q).inner(second.bind(N).take(p))
            np.testing.assert_array_equal(ours, expected)
            if len(rows) == len(others):
                np.testing.assert_array_equal(first.bind(N).inner(second.bind(N)), expected)


def test_keys_tell_contents_apart():
    keys = [factor.bind(N).key for factor, _ in FACTORS] + [Identity().bind(6).key]
    assert len(set(keys)) == len(keys)


def test_the_same_ranges_are_planned_alike_whether_written_out_or_not():
    for factor, rows in FACTORS:
        named = plan(Workload({"a": N}).add(["a"], [factor]), Budget(mu=1), tolerance=1e-6)
        written = plan(Workload({"a": N}).add(["a"], Matrix(rows)), Budget(mu=1), tolerance=1e-6)
        assert named.rmse == pytest.approx(written.rmse, rel=1e-5)
        for ours, theirs in zip(named.variances, written.variances, strict=True):
            # The optimum is unique, but each is only near it.
            np.testing.assert_allclose(ours, theirs, rtol=1e-2)


@pytest.mark.parametrize(
    "pairs", [[], [(1, 0)], [(-1, 2)], [(0, N)], [(0.5, 1)], [1, 2], [("a", "b")], 5]
)
def test_wrong_ranges(pairs):
    with pytest.raises(WorkloadError) as error:
        Workload({"a": N}).add(["a"], [Ranges(pairs)])
    assert error.value.hint


def test_a_key_may_have_a_million_values():
    """Nothing of the size cells × cells is made; the closed form of the optimum is known."""
    n = 10**6
    planned = plan(Workload({"zip": n}).add(["zip"], [Identity()]), Budget(mu=1))
    # Measuring each cell directly has RMSE 1, and is optimal.
    assert planned.rmse == pytest.approx(1, rel=1e-6)
    assert planned.gap < 1e-9
    np.testing.assert_allclose(planned.variances[0], 1, rtol=1e-6)


def test_many_circular_ranges_cost_what_few_prefixes_cost():
    """4.9 billion queries: the Gram matrix of one attribute has 50 × 50 entries."""
    names = [f"a{i}" for i in range(40)]
    workload = Workload(dict.fromkeys(names, 50))
    for i, name in enumerate(names):
        workload.add([name], [CircularRange()])
        for other in names[:i]:
            workload.add([name, other], [CircularRange()] * 2)
    planned = plan(workload, Budget(mu=1))
    assert workload.count == 4_875_100_000
    assert planned.gap < 2e-3
    assert planned.rmse == pytest.approx(102.13, abs=0.02)  # QuerySmasher's Table 4


def test_what_cannot_be_written_out_says_so():
    with pytest.raises(ResourceLimitError):
        _ = AllRange().bind(2000).matrix
    with pytest.raises(ResourceLimitError):
        Workload({"a": 20_000}).add(["a"], [AllRange()])
    mixed = Workload({"a": 10_000}).add(["a"], [Identity()]).add(["a"], [Ranges([(0, 9)])])
    with pytest.raises(ResourceLimitError, match="together with") as error:
        plan(mixed, Budget(mu=1))
    assert "release them apart" in error.value.hint


def test_a_group_by_of_many_values_is_released(tmp_path):
    import duckdb

    con = duckdb.connect(tmp_path / "zips.duckdb")
    con.execute("CREATE TABLE t (zip INTEGER NOT NULL CHECK (zip BETWEEN 0 AND 99999))").fetchall()
    con.execute("INSERT INTO t SELECT (i * i) % 100000 FROM range(300000) r(i)").fetchall()
    sql = "SELECT zip, COUNT(*) AS n FROM t GROUP BY zip"
    frame = dpsql.query(con, sql, budget=Budget(rho=10**9))
    exact = dict(con.execute("SELECT zip, count(*) FROM t GROUP BY zip").fetchall())
    assert [round(n) for n in frame["n"]] == [exact.get(value, 0) for value in range(100000)]
