"""Merged cells: the same answers from fewer of them."""

import numpy as np
import pytest

import dpsql
from dpsql.linalg.matrices import Intervals, Sparse
from dpsql.schema import Domain, Table
from dpsql.sql import compile_script
from dpsql.sql.lowering.alike import Classes
from dpsql.sql.lowering.matrices import LoweredBlock

SIZES = {"a": 7, "b": 5}
TABLE = Table(
    "t",
    {"a": Domain.integers(0, 999), "b": Domain.integers(0, 9)},
    enforced=frozenset({"a", "b"}),
)


def random_block(rng, attributes):
    shape = [SIZES[name] for name in attributes]
    rows, cells = int(rng.integers(1, 5)), int(np.prod(shape))
    if len(attributes) == 1 and rng.random() < 0.5:
        low = rng.integers(0, cells, rows)
        length = rng.integers(1, cells + 1, rows)
        return LoweredBlock(attributes, Intervals(cells, low, low + length), ())
    # Few different values, so that slices are often alike.
    matrix = rng.integers(0, 2, [rows, *shape]) * rng.integers(1, 3)
    for axis in range(len(shape)):
        matrix = np.take(matrix, rng.integers(0, shape[axis], shape[axis]), axis + 1)
    row, *at = np.nonzero(matrix)
    cell = np.ravel_multi_index(at, shape)
    weight = matrix[(row, *at)].astype(float)
    return LoweredBlock(attributes, Sparse.of(rows, cells, row, cell, weight), ())


def answers(block, counts, sizes):
    """Answer a block on the joint counts of a and b."""
    dropped = tuple(i for i, name in enumerate(sizes) if name not in block.attributes)
    return block.dense() @ counts.sum(dropped).ravel()


@pytest.mark.parametrize("seed", range(60))
def test_answers_stay_the_same(seed):
    rng = np.random.default_rng(seed)
    kinds = [("a",), ("b",), ("a", "b")]
    blocks = [random_block(rng, kinds[i]) for i in rng.integers(0, 3, rng.integers(1, 5))]
    classes = Classes.of_blocks(blocks, SIZES)
    counts = rng.integers(0, 50, list(SIZES.values()))
    merged = counts
    for axis, name in enumerate(SIZES):
        if name in classes.of:
            sums = np.zeros((classes.sizes[name], *np.delete(merged.shape, axis)), dtype=int)
            np.add.at(sums, classes.of[name], np.moveaxis(merged, axis, 0))
            merged = np.moveaxis(sums, 0, axis)
    for block in blocks:
        smaller = classes.merge(block, SIZES)
        expected = answers(block, counts, SIZES)
        np.testing.assert_array_equal(answers(smaller, merged, SIZES), expected)


def sizes_of(*statements):
    script = compile_script([(f"q{i}", s) for i, s in enumerate(statements)], lambda parts: TABLE)
    return dict(script.workload.domain)


def test_only_what_is_told_apart_is_counted():
    assert sizes_of("SELECT COUNT(*) FROM t WHERE a >= 18") == {"a": 2}
    assert sizes_of("SELECT a // 100 AS h, COUNT(*) FROM t GROUP BY h") == {"a": 10}
    assert sizes_of("SELECT COUNT(*) FROM t WHERE a % 2 = 0 AND b < 3") == {"a": 2, "b": 2}
    both = ["SELECT COUNT(*) FROM t WHERE a >= 18", "SELECT COUNT(*) FROM t WHERE a < 65"]
    assert sizes_of(*both) == {"a": 3}
    assert sizes_of(*both, "SELECT a, COUNT(*) FROM t GROUP BY a") == {"a": 1000}


def test_a_few_conditions_on_large_domains_are_planned_as_a_whole():
    script = compile_script(
        [("q", "SELECT b, COUNT(*) AS n FROM t WHERE a BETWEEN 18 AND 64 GROUP BY b")],
        lambda parts: TABLE,
    )
    plan = dpsql.plan(script.workload, budget=dpsql.Budget(mu=1))
    assert plan.gap < 1e-3
    assert plan.rmse == pytest.approx(1, rel=1e-3)
