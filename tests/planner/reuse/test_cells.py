"""Sources over merged cells, looked at over finer ones."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.answers.answers import NoisyMarginals
from dpsql.planner.mechanisms import querysmasher
from dpsql.planner.reconstruction.sources import Ground, _split, agrees, splits
from dpsql.planner.residuals.references import Reference
from dpsql.planner.reuse.past import Past, known, plan_given, source_of
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Workload
from dpsql.workload.workload import coarsening, common_refinement
from tests.oracle import every_space
from tests.planner.random_workloads import some

BANDS = np.repeat(np.arange(4), 5)
"""Of 20 ages."""
TABLE = np.random.default_rng(1).integers(0, 30, (20, 3))
BUDGET = Budget(rho=0.1)


def classes(draw, cells):
    raw = np.array(draw(st.lists(st.integers(0, 3), min_size=cells, max_size=cells)))
    return common_refinement([raw])


@given(st.data())
@some(40)
def test_split_references_agree_with_the_coarse_ones(data):
    coarse = classes(data.draw, data.draw(st.integers(1, 12)))
    n = int(coarse.max()) + 1
    numerators = np.array(data.draw(st.lists(st.integers(0, 40), min_size=n, max_size=n)))
    numerators[0] += 1
    reference = Reference.of_integers(numerators)
    fine = _split(reference, coarse)
    assert len(fine.weights) == len(coarse)
    assert agrees(fine, coarse, reference)
    if n > 1:
        wrong = numerators.copy()
        wrong[-1] += 1 + numerators.sum()
        assert not agrees(fine, coarse, Reference.of_integers(wrong))


@given(st.data())
@some(40)
def test_refinements(data):
    cells = data.draw(st.integers(1, 10))
    one, other = classes(data.draw, cells), classes(data.draw, cells)
    fine = common_refinement([one, other])
    for coarse in (one, other):
        of = coarsening(fine, coarse)
        assert of is not None
        assert (of[fine] == coarse).all()
    pairs = len({*zip(one.tolist(), other.tolist(), strict=True)})
    assert int(fine.max()) + 1 == pairs
    if pairs > int(one.max()) + 1:
        assert coarsening(one, fine) is None


def measured(plan, table, merged):
    """The source of a plan for (merged) ages and kinds, without noise."""
    counts = {
        (): table.sum(), ("kind",): table.sum(axis=0), ("age",): table.sum(axis=1),
        ("age", "kind"): table,
    }  # fmt: skip
    values = {}
    for block, space in every_space(plan.certified.blocks):
        matrix = np.ones((1, 1))
        for factor in block.factors:
            matrix = np.kron(matrix, factor.matrix)
        axes = [axis for f in block.factors for axis in f.axes]
        there = np.asarray(counts[space]).transpose(axes) if space else counts[space]
        found = matrix @ np.asarray(there, dtype=float).ravel()
        shape = [f.measurements for f in block.factors]
        values[frozenset(space)] = np.rint(found).astype(np.int64).reshape(shape)
    source = source_of(plan, merged)
    return type(source)(source.blocks, source.references, source.sizes, source.merged, values)


def banded():
    return np.array([TABLE[band == BANDS].sum(axis=0) for band in range(4)])


@pytest.mark.parametrize("residuals", ["uniform", "none"])
def test_bands_help_single_ages_and_answers_stay_exact(residuals):
    merged = MappingProxyType({"age": BANDS})
    bands = Workload({"age": 4, "kind": 3})
    bands.add(["age", "kind"], [Prefix(), Identity()]).add(["age"], [Identity()])
    first = measured(querysmasher.plan(bands, BUDGET, residuals=residuals), banded(), merged)
    ages = Workload({"age": 20, "kind": 3})
    ages.add(["age"], [Prefix()]).add(["age", "kind"], [Identity(), Identity()])
    alone = querysmasher.plan(ages, BUDGET, residuals=residuals)
    plan = plan_given(alone, Past((first,)), 1e-3, uniform=residuals == "uniform")
    assert plan.given is not None
    assert plan.rmse < alone.rmse
    values = plan.values(measured(plan, TABLE, {}).values)
    made = NoisyMarginals(lambda names: plan.reconstruction.marginal(names, values))
    truth = [TABLE.sum(axis=1).cumsum(), TABLE]
    for family, expected in zip(ages.families, truth, strict=True):
        np.testing.assert_allclose(made.answers(family), expected, atol=1e-5)


def test_bands_determine_bands_over_ages_and_not_ages():
    merged = MappingProxyType({"age": BANDS})
    bands = Workload({"age": 4}).add(["age"], [Prefix()])
    source = source_of(querysmasher.plan(bands, BUDGET), merged)
    assert (splits([source])["age"] == BANDS).all()
    same = Workload({"age": 4}).add(["age"], [Identity()])
    assert known(same, Past((source,), merged))[1] == ()
    finer = common_refinement([BANDS, np.arange(20) // 2])
    ages = Workload({"age": int(finer.max()) + 1}).add(["age"], [Identity()])
    assert known(ages, Past((source,), {"age": finer}))[1] == (("age",),)


def test_cells_that_do_not_fit_are_left_out():
    crossing = common_refinement([np.arange(20) // 3])
    bands = Workload({"age": 4}).add(["age"], [Identity()])
    source = source_of(querysmasher.plan(bands, BUDGET, residuals="none"), {"age": BANDS})
    workload = Workload({"age": 7}).add(["age"], [Identity()])
    ground = Ground.of([source], workload.domain, {"age": crossing})
    assert ground.coarse(source, "age") is None
    alone = querysmasher.plan(workload, BUDGET)
    plan = plan_given(alone, Past((source,), {"age": crossing}), 1e-3)
    assert plan.rmse == pytest.approx(alone.rmse)
