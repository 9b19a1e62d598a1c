"""Structured matrices against the same matrices written out, and tables with named axes."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import (
    CenteredCells,
    Dense,
    Exchangeable,
    Intervals,
    Kronecker,
    Sparse,
    StructuredMatrix,
    compact,
    kron,
    of_entries,
)
from dpsql.linalg.sets import subsets

N = 5
RUNS = Intervals(N, np.array([0, 1, 3, 2]), np.array([5, 3, 7, 3]))
RNG = np.random.default_rng(3)
MATRICES: dict[str, StructuredMatrix] = {
    "identity": Exchangeable(N),
    "centering": Exchangeable(N, 1.0, 0.0),
    "ones": Exchangeable(N, 0.0, float(N)),
    "alike": Exchangeable(N, 3.0, -2.0),
    "runs": RUNS,
    "weighted cells": CenteredCells(np.array([1.0, 0.0, 4.0, 2.0, 9.0])),
    "dense": Dense(RNG.normal(size=(3, N))),
    "integers": Dense(np.arange(2 * N).reshape(2, N)),
    "sparse": Sparse.of(3, N, np.array([2, 0, 0]), np.array([4, 1, 0]), np.array([1.5, -1.0, 2.0])),
    "transposed": RUNS.T,
    "product": Kronecker([Dense(RNG.normal(size=(2, 2))), Exchangeable(3, 2.0, 1.0)]),
    "empty product": Kronecker([]),
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_a_matrix_does_what_its_entries_say(matrix):
    written = np.array(matrix.matrix)
    assert written.shape == (matrix.rows, matrix.cells)
    rng = np.random.default_rng(1)
    tensor = rng.normal(size=(2, matrix.cells, 3))
    close = pytest.approx
    assert matrix.apply(tensor, 1) == close(np.einsum("qn,anb->aqb", written, tensor))
    back = rng.normal(size=(2, matrix.rows, 3))
    assert matrix.apply_transposed(back, 1) == close(np.einsum("qn,aqb->anb", written, back))
    assert matrix.T.matrix == close(written.T)
    assert matrix.T.T.matrix == close(written)
    assert matrix @ tensor[0] == close(written @ tensor[0])
    assert back[:, :, 0] @ matrix == close(back[:, :, 0] @ written)
    assert matrix.gram() == close(written.T @ written)
    assert matrix.sums() == close(written.sum(1))
    assert matrix.squares() == close(np.square(written).sum(1))
    assert matrix.column_squares() == close(np.square(written).sum(0))
    assert matrix.T.squares() == close(np.square(written).sum(0))
    assert matrix.inner(matrix) == close(np.square(written).sum(1))
    assert matrix.entries().matrix == close(written)
    assert compact(matrix.entries()).matrix == close(written)
    some = np.array([0, matrix.rows - 1, 0])
    assert matrix.take(some).matrix == close(written[some])
    assert matrix.is_identity == (written.shape == (N, N) and bool((written == np.eye(N)).all()))
    assert matrix.is_total == (len(written) == 1 and bool((written == 1).all()))
    squares = matrix.cell_squares()
    if squares is not None:
        assert (np.count_nonzero(written, axis=1) <= 1).all()
        assert squares == close(np.square(written).sum(0))
    if (even := matrix.even_gram()) is not None:
        assert Exchangeable(matrix.cells, *even).matrix == close(written.T @ written)


@pytest.mark.parametrize("name", ["identity", "centering", "ones", "alike", "dense", "product"])
def test_the_pseudo_inverse(name):
    matrix = MATRICES[name]
    assert matrix.pinv().matrix == pytest.approx(np.linalg.pinv(matrix.matrix))


@pytest.mark.parametrize("name", ["identity", "centering", "alike", "dense", "transposed"])
def test_images_of_rows(name):
    first, second = RUNS, Dense(RNG.normal(size=(4, N)))
    matrix = MATRICES[name] if MATRICES[name].rows == N else MATRICES[name].T
    images = [m.matrix @ matrix.matrix for m in (first, second)]
    assert matrix.image_squares(first) == pytest.approx(np.square(images[0]).sum(1))
    products = matrix.image_products(first, second)
    assert products == pytest.approx((images[0] * images[1]).sum(1))


def test_rows_that_are_runs_are_found():
    for matrix in (RUNS, Exchangeable(N)):
        found = of_entries(matrix.rows, N, *(getattr(matrix.entries(), a) for a in ENTRIES))
        assert not found.is_written
        assert found.runs() is not None
        assert found.matrix == pytest.approx(matrix.matrix)
    assert MATRICES["dense"].runs() is None


ENTRIES = ("row", "cell", "weight")


def test_keys_tell_contents_apart():
    keys = {m.key for m in MATRICES.values()}
    assert len(keys) == len(MATRICES)
    assert Exchangeable(N).key == Exchangeable(N, 1.0, 1.0).key


def test_products_are_those_of_numpy():
    tables = [np.arange(4).reshape(2, 2), np.arange(3)[None]]
    assert kron(tables).dtype == np.int64
    assert kron(tables) == pytest.approx(np.kron(*tables))
    sparse = [Dense(t).entries() for t in tables]
    assert sparse[0].kron(sparse[1]).matrix == pytest.approx(np.kron(*tables))


def test_a_table_with_named_axes():
    values = np.arange(24).reshape(2, 3, 4) + 2**60
    table = LabeledArray(("a", "b", "c"), values)
    assert table.sizes == {"a": 2, "b": 3, "c": 4}
    assert (table.project(("c", "a")) == values.sum(1).T).all()
    assert table.project(("c", "a")).dtype == np.int64
    assert table.project(()) == values.sum()
    assert (table.transpose(("b", "c", "a")) == values.transpose(1, 2, 0)).all()
    wider = table.expand(("c", "x", "b", "a"))
    assert (wider[:, 0] == values.transpose(2, 1, 0)).all()


def test_subsets_come_by_size():
    assert list(subsets("ab")) == [(), ("a",), ("b",), ("a", "b")]
