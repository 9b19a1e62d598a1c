from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest

from dpsql.linalg.sets import subsets
from dpsql.planner.mechanisms.aim import Targets, by_table
from dpsql.planner.mechanisms.aim_rounds import residual_block
from dpsql.workload import Identity, Prefix, Total, Workload
from dpsql.workload.workload import UnitTable, over_all

SIZES = {"a": 3, "b": 2, "one": 1, "c": 4}


def workload():
    workload = Workload(SIZES)
    workload.add(["b", "a"], [Prefix(), Identity()], weight=2.0)
    workload.add(["a", "b", "one"], [Identity()] * 3)
    workload.add(["c"], [Total()], weight=0.5)
    return workload


def targets():
    return Targets.of(workload())


def candidates(of, contributions=1):
    (table,) = by_table(of, contributions)
    return table.candidates


def test_families_over_the_same_attributes_are_one_target():
    assert dict(targets().weights) == {("a", "b"): 3.0, ("c",): 0.5}
    assert dict(targets().sizes) == {"a": 3, "b": 2, "c": 4}


def test_the_closure_is_every_subset_in_order():
    found = targets()
    assert found.closure == ((), ("a",), ("b",), ("c",), ("a", "b"))
    assert set(found.largest) == {("a", "b"), ("c",)}
    assert found.closure_bound >= len(found.closure)
    assert found.cells(("a", "b")) == 6


def test_subsets_keep_the_order():
    assert list(subsets(("x", "y"))) == [(), ("x",), ("y",), ("x", "y")]


def test_weights_are_what_candidates_share_with_the_targets():
    """w_r = Σ_s c_s |r ∩ s|, up to one factor."""
    weights = candidates(workload())
    exact = {("a",): 3.0, ("b",): 3.0, ("c",): 0.5, ("a", "b"): 6.0}
    assert set(weights) == set(exact)
    assert max(weights.values()) == 1 << 16
    for candidate, weight in weights.items():
        assert weight == pytest.approx(exact[candidate] / 6 * (1 << 16), rel=1e-4)
        assert type(weight) is int
    assert candidates(workload(), contributions=7) == weights


def of_two(rows, weights=(1.0, 1.0)):
    """A table with three attributes, and one with ten, of which all pairs are asked."""
    parts = []
    for name, k, n in (("few", rows[0], 3), ("many", rows[1], 10)):
        own = Workload({f"x{i}": 3 for i in range(n)})
        for pair in combinations(own.domain, 2):
            own.add(list(pair), [Identity()] * 2)
        parts.append((UnitTable(name, k), own))
    given = [[w] * len(own.families) for w, (_, own) in zip(weights, parts, strict=True)]
    return by_table(over_all(parts, given), 1)


@pytest.mark.parametrize("rows", [(1, 1), (1, 50), (30, 7)])
def test_a_marginal_is_worth_as_much_in_each_table_for_all_rows_of_a_unit(rows):
    """Whatever else is asked of its table; and twice as much if statements weigh twice as much."""
    few, many = of_two(rows)
    assert (few.measure, few.rows, few.change) == ("few", rows[0], rows[0])
    pairs = few.candidates["few.x0", "few.x1"], many.candidates["many.x0", "many.x1"]
    assert pairs[0] * rows[0] == pytest.approx(pairs[1] * rows[1], rel=1e-3)
    twice = of_two(rows, (2.0, 1.0))
    more = [t.candidates[f"{t.measure}.x0", f"{t.measure}.x1"] * t.change for t in twice]
    assert more[0] == pytest.approx(2 * more[1], rel=1e-3)
    assert few.worth[()] == few.candidates["few.x0",]
    assert () not in few.candidates


def test_tables_have_measurements_and_marginals_of_their_own():
    few, many = of_two((2, 5))
    assert set(few.sizes) == {"few.x0", "few.x1", "few.x2"}
    assert many.marginal(("many.x3",)) == ("many.x3", "many")
    own = residual_block(("many.x3",), many.sizes, Fraction(1), 1)
    block = many.block(own)
    assert block.spaces == (("many.x3", "many"),)
    assert block.privacy_cost == 25 * own.privacy_cost


def test_of_a_table_the_total_alone_may_be_asked():
    parts = [(UnitTable("t", 4), Workload({"a": 3}).add([], [], weight=2.0))]
    (table,) = by_table(over_all(parts, [[2.0]]), 1)
    assert table.candidates == {}
    assert table.worth == {(): 1 << 16}


def test_light_candidates_still_count():
    workload = Workload({"a": 2, "b": 2})
    workload.add(["a"], [Identity()], weight=1e9).add(["b"], [Identity()], weight=1e-9)
    assert candidates(workload)[("b",)] == 1


def test_many_three_way_marginals():
    names = [f"x{i}" for i in range(14)]
    workload = Workload(dict.fromkeys(names, 3))
    for triple in combinations(names, 3):
        workload.add(list(triple), [Identity()] * 3)
    found = Targets.of(workload)
    assert len(found.largest) == 364
    assert len(found.closure) == 1 + 14 + 91 + 364
    # C(13, 2) triples hold one attribute, twelve hold both of a pair.
    single, pair = (candidates(workload)[names] for names in (("x0",), ("x0", "x1")))
    assert pair / single == pytest.approx(2, rel=1e-3)
