"""Covariances and variances of combinations, against the dense oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InternalError, ResourceLimitError
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.planner.reconstruction import residual
from dpsql.planner.reconstruction.base import Aligned
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
from tests.helpers.calls import counted_calls
from tests.oracle import generalized_least_squares
from tests.planner.random_workloads import RESIDUALS, some, workloads

BUDGET = Budget(mu=1)
SETTINGS = some(45)
pytestmark = pytest.mark.usefixtures("quick_cells")


@st.composite
def statements(draw):
    """Draw a workload whose first families are columns of one statement: (workload, axes, sizes).

    Axis i is mostly the key i, with conditions on it or elsewhere; sometimes it is anything.
    """
    cells = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    while math.prod(cells) > 64:
        cells.pop()
    names = "abcd"[: len(cells)]
    domain = dict(zip(names, cells, strict=True))
    keys = draw(st.integers(0, min(3, len(names))))
    sizes = tuple(domain[name] for name in names[:keys])
    workload, axes = Workload(domain), []
    for _ in range(draw(st.integers(1, 3))):
        placed = draw(st.booleans()) or draw(st.booleans())
        groups = draw(_keyed(names, keys) if placed else _anywhere(names, keys))
        factors = [
            draw(_factor(math.prod(domain[a] for a in g), math.prod(sizes[i] for i in own)))
            for g, own in groups
        ]
        workload.add([g for g, _ in groups], factors)
        axes.append(tuple(own for _, own in groups))
    return workload, axes, sizes


@st.composite
def _keyed(draw, names, keys):
    """Every key covers its axis, alone or joined to other attributes."""
    others = draw(st.lists(st.sampled_from(names[keys:]), unique=True)) if names[keys:] else []
    parts = [[(name, (i,))] for i, name in enumerate(names[:keys])]
    parts += [[(name, ())] for name in others]
    parts = draw(st.permutations(parts))
    while len(parts) > 1 and draw(st.integers(0, 2)) == 0:
        first, second, *rest = parts
        parts = draw(st.permutations([[*first, *second], *rest]))
    return [(tuple(n for n, _ in part), tuple(a for _, own in part for a in own)) for part in parts]


@st.composite
def _anywhere(draw, names, keys):
    """The axes are covered by any attributes."""
    chosen = draw(st.permutations(names))
    chosen = chosen[: draw(st.integers(1 if keys else 0, len(names)))]
    groups, axes = [], list(draw(st.permutations(range(keys))))
    while chosen:
        size = draw(st.integers(1, len(chosen)))
        taken = len(axes) if size == len(chosen) else draw(st.integers(0, len(axes)))
        groups.append((tuple(chosen[:size]), tuple(axes[:taken])))
        chosen, axes = chosen[size:], axes[taken:]
    return groups


@st.composite
def _factor(draw, cells, rows):
    named = [Identity(), Prefix(), Suffix(), Total(), AllRange(), CircularRange()]
    fitting = [f for f in named if f.bind(cells).rows == rows]
    kind = draw(st.sampled_from([*fitting, *fitting, "ranges", "integer", "real"]))
    if not isinstance(kind, str):
        return kind
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "ranges":
        pairs = np.sort(rng.integers(0, cells, (rows, 2)), axis=1)
        return Ranges([tuple(map(int, pair)) for pair in pairs])
    if kind == "integer":
        return Matrix(rng.integers(-1, 3, (rows, cells)))
    return Matrix(rng.normal(size=(rows, cells)))


def places(aligned: Aligned, sizes) -> np.ndarray:
    """The number of the answer that stands in each row."""
    flat = [a for axes in aligned.axes for a in axes]
    numbers = np.arange(aligned.family.count).reshape([sizes[a] for a in flat])
    return numbers.transpose(np.argsort(flat)) if flat else numbers.reshape(())


def dense_covariance(planned) -> np.ndarray:
    blocks = planned.certified.blocks
    if not blocks:
        return np.zeros((planned.workload.count,) * 2)
    estimator, noise, _ = generalized_least_squares(planned.workload, blocks)
    return (estimator * noise) @ estimator.T


@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunk", [2**24, 7])
def test_covariances_are_those_of_the_mechanism(chunk, monkeypatch):
    monkeypatch.setattr(residual, "CHUNK", chunk)
    monkeypatch.setattr(residual, "MAX_ENTRIES", chunk)

    @SETTINGS
    @given(statements(), RESIDUALS)
    def check(statement, residuals):
        workload, axes, sizes = statement
        planned = plan(workload, BUDGET, residuals=residuals)
        dense = dense_covariance(planned)
        columns = [Aligned(f, own) for f, own in zip(workload.families, axes, strict=True)]
        begins = np.cumsum([0, *(f.count for f in workload.families)])
        scale = max(1.0, np.abs(dense).max())
        for i, first in enumerate(columns):
            for j, second in enumerate(columns):
                ours = planned.reconstruction.covariances(first, second, sizes)
                rows = begins[i] + places(first, sizes), begins[j] + places(second, sizes)
                assert ours.shape == sizes
                np.testing.assert_allclose(ours, dense[rows], rtol=1e-6, atol=1e-8 * scale)
            variances = planned.reconstruction.variances(first.family).ravel()[places(first, sizes)]
            same = planned.reconstruction.covariances(first, first, sizes)
            np.testing.assert_allclose(same, variances, rtol=1e-9, atol=1e-12 * scale)

    check()


@SETTINGS
@given(workloads(), RESIDUALS, st.integers(0, 2**32 - 1))
def test_combinations_have_the_variance_of_the_mechanism(workload, residuals, seed):
    planned = plan(workload, BUDGET, residuals=residuals)
    dense = dense_covariance(planned)
    k, rng = 3, np.random.default_rng(seed)
    coefficients = rng.normal(size=(k, workload.count))
    ends = np.cumsum([f.count for f in workload.families])
    terms = list(zip(workload.families, np.split(coefficients, ends[:-1], axis=1), strict=True))
    ours = planned.reconstruction.combined_variances(terms, workload.domain)
    expected = np.einsum("ki,ij,kj->k", coefficients, dense, coefficients)
    scale = max(1.0, np.abs(dense).max()) * workload.count
    np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7 * scale)


def test_parts_of_a_statement_have_their_part_of_the_covariances():
    workload = Workload({"a": 4, "b": 3, "c": 2})
    workload.add(["b", "a"], [Identity(), Identity()])
    workload.add([("a", "c"), "b"], [Matrix(np.arange(32).reshape(4, 8) % 3), Prefix()])
    planned = plan(workload, BUDGET)
    first, second = (
        Aligned(f, a) for f, a in zip(workload.families, [((1,), (0,)), ((0,), (1,))], strict=True)
    )
    whole = planned.reconstruction.covariances(first, second, (4, 3))
    box = (slice(1, 3), slice(0, 2))
    cut = (column.cut(box, (4, 3)) for column in (first, second))
    np.testing.assert_allclose(planned.reconstruction.covariances(*cut, (2, 2)), whole[box])


def test_disjoint_attributes_share_the_total_only():
    workload = Workload({"a": 3, "b": 3}).add(["a"], Identity()).add(["b"], Identity())
    planned = plan(workload, BUDGET, residuals="uniform")
    first, second = (Aligned(f, ((0,),)) for f in workload.families)
    shared = planned.reconstruction.covariances(first, second, (3,))
    total = next(b for b in planned.certified.blocks if b.spaces == ((),))
    (factor,) = total.factors or (None,)
    scale = 1 if factor is None else int(factor.matrix[0, 0])
    np.testing.assert_allclose(shared, (total.law.variance) / scale**2 / 9)


def variances_with_and_without_a_further_key(n):
    """Ask for (co)variances where a key has n values, and return how many functions that calls."""
    workload = Workload({"zip": n, "sex": 2})
    workload.add(["zip"], Identity())
    workload.add(["zip", "sex"], [Identity(), Matrix([[1, 0]])])
    planned = plan(workload, BUDGET)
    whole, part = workload.families
    runs = Workload(workload.domain).add(["zip", "sex"], [Ranges([(0, 9)] * 2), Total()])
    asked, ways = planned.reconstruction, ((0,), ())
    with counted_calls() as calls:
        found = asked.covariances(Aligned(whole, ((0,),)), Aligned(part, ways), (n,))
        ours = asked.variances(part).ravel()
        first, second = (Aligned(f, ways) for f in (runs.families[0], runs.families[0].part(0, 2)))
        between = asked.covariances(first, second, (2,))
        (both,) = asked.combined_variances(
            [(whole, np.eye(1, n)), (part, -np.eye(1, n))], workload.domain
        )
    assert both == pytest.approx(planned.variances[0][0] + ours[0] - 2 * found[0], rel=1e-6)
    assert found.shape == (n,)
    assert (between > 0).all()
    return calls.count


def test_a_key_may_have_a_million_values():
    """Nothing is done value by value: that would be a million calls."""
    few, many = map(variances_with_and_without_a_further_key, (10**3, 10**6))
    assert many < 2 * few


def test_what_is_too_large_is_refused_by_sizes():
    workload = Workload({"a": 4096, "b": 4097}).add(["a"], Identity()).add(["b"], Identity())
    planned = plan(workload, BUDGET)
    terms = [(f, np.ones((1, f.count))) for f in workload.families]
    with pytest.raises(ResourceLimitError, match="joint cells") as error:
        planned.reconstruction.combined_variances(terms, workload.domain)
    assert error.value.hint
    first, second = (Aligned(f, ((i,),)) for i, f in enumerate(workload.families))
    with pytest.raises(InternalError):
        planned.reconstruction.covariances(first, second, (4096, 4097))
    with pytest.raises(InternalError):
        planned.reconstruction.combined_variances(
            [terms[0], (workload.families[0], np.ones((2, 4096)))], {"a": 4096}
        )
