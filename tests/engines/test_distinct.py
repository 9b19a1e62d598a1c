"""Values that units cover: what one unit changes, and flows that are not the largest."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest

from dpsql.engines import distinct
from dpsql.engines.distinct import (
    ValuesOfUnits,
    certified,
    check_groups_of_a_row,
    covered,
    values_of,
)
from dpsql.errors import InternalError
from dpsql.linalg.flows import NOBODY, Taken, taken
from dpsql.rel.distinct import DistinctValues, ReadValue
from dpsql.rows.typed import constant_of
from dpsql.workload.unit_groups import GroupedCells


def listed(database):
    """Return a database as rows of (g, v), as engines hand them out.

    Args:
        database: unit → group → values.
    """
    rows = [(g, sorted(v)) for groups in database.values() for g, v in groups.items() if v]
    lists = pa.array([v for _, v in rows], pa.list_(pa.binary()))
    return pa.table({"g": pa.array([g for g, _ in rows], pa.int64()), "v": lists})


def counts(database, groups, each):
    return covered(values_of(listed(database)), groups, each).tolist()


def brute(database, groups, each):
    """Return the most values that can be covered, by trying all choices."""
    found = []
    for g in range(groups):
        units = {u: of.get(g, set()) for u, of in database.items()}
        values = sorted(set().union(*units.values()))
        choices = [[None, *(u for u, of in units.items() if value in of)] for value in values]
        kept = (
            sum(one is not None for one in chosen)
            for chosen in product(*choices)
            if all(chosen.count(u) <= each for u in units)
        )
        found.append(max(kept))
    return found


def random_database(rng, units=4, groups=2, values=5):
    return {
        u: {g: {b"%d" % v for v in range(values) if rng.random() < 0.4} for g in range(groups)}
        for u in range(units)
    }


@pytest.mark.parametrize("seed", range(30))
def test_as_many_are_covered_as_can_be(seed):
    rng = np.random.default_rng(seed)
    database, each = random_database(rng), int(rng.integers(1, 4))
    assert counts(database, 2, each) == brute(database, 2, each)


@pytest.mark.parametrize("seed", range(60))
def test_a_unit_changes_a_group_by_what_it_may_cover_at_most(seed):
    rng = np.random.default_rng(seed)
    database = random_database(rng, int(rng.integers(2, 12)), 3, int(rng.integers(2, 20)))
    each = int(rng.integers(1, 5))
    whole = np.array(counts(database, 3, each))
    for unit, own in database.items():
        rest = {u: of for u, of in database.items() if u != unit}
        change = whole - counts(rest, 3, each)
        has = np.array([len(own[g]) for g in range(3)])
        assert (change >= 0).all()
        assert (change <= np.minimum(each, has)).all()
        # So many groups with so many values each are the worst: the L2 norm that is charged.
        in_groups = int((has > 0).sum())
        assert (change**2).sum() <= each**2 * in_groups


def test_a_unit_may_change_all_that_it_is_charged_for():
    one = {0: {g: {b"%d" % v for v in range(3)} for g in range(2)}}
    assert counts(one, 2, 3) == [3, 3]
    assert counts(one, 2, 2) == [2, 2]
    assert counts({}, 2, 3) == [0, 0]


def test_a_flow_across_groups_would_let_one_unit_change_them_all():
    """So capacities are for each group: what one takes in the one is not missing in another."""
    database = {0: {0: {b"a"}, 1: {b"b"}}, 1: {0: {b"a"}}}
    assert counts(database, 2, 1) == [1, 1]


# ── A flow that isn't the largest ───────────────────────────────────────────────────────────────


def planted(found):
    """Return wrong flows and cuts that are made of right ones, and what is wrong with them."""
    first = np.flatnonzero(found.by != NOBODY)[0]
    fewer = found.by.copy()
    fewer[first] = NOBODY
    yield "one is not covered", replace(found, by=fewer)
    twice = found.by.copy()
    twice[:] = found.by[first]
    yield "one covers too many", replace(found, by=twice)
    yield "nothing is cut", replace(found, left=found.left & False, right=found.right & False)
    yield "all is cut", replace(found, right=found.right | True)
    both = Taken(fewer, found.left & False, found.right.copy())
    both.right[first] = False
    yield "a pair is in no cut", both
    yield "of nobody", replace(found, by=found.by * 0 + 99)
    yield "of others", replace(found, by=found.by[:-1])
    yield "cut of others", replace(found, left=found.left[:-1])


EDGES = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 1, 2, 1, 3, 4])
GROUPS = np.array([0, 0, 1]), np.array([0, 0, 0, 0, 1])


def test_a_right_one_is_certain():
    found = taken(EDGES, (3, 5), 1)
    assert certified(found, EDGES, GROUPS, 2, 1).tolist() == [2, 1]


@pytest.mark.parametrize("number", range(8))
def test_no_other_flow_is_believed(number):
    why, wrong = list(planted(taken(EDGES, (3, 5), 1)))[number]
    with pytest.raises(InternalError, match="isn't certain"):
        certified(wrong, EDGES, GROUPS, 2, 1)
    assert why


def test_a_flow_in_the_wrong_group_is_not_believed():
    """The sums of both groups agree, and neither group does."""
    edges = np.array([0, 1]), np.array([0, 1])
    groups = np.array([0, 1]), np.array([0, 1])
    by, left = np.array([0, NOBODY]), np.array([False, True])
    wrong = Taken(by, left, np.array([True, False]))
    with pytest.raises(InternalError, match="isn't certain"):
        certified(wrong, edges, groups, 2, 1)
    moved = Taken(np.array([NOBODY, 1]), np.array([True, False]), np.array([False, False]))
    with pytest.raises(InternalError, match="isn't certain"):
        certified(moved, edges, groups, 2, 1)


def test_a_solver_that_fails_tells_nothing(monkeypatch):
    def lazy(edges, sizes, capacity):
        found = taken(edges, sizes, capacity)
        return replace(found, by=found.by * 0 + NOBODY)

    monkeypatch.setattr(distinct, "taken", lazy)
    with pytest.raises(InternalError) as refused:
        counts({0: {0: {b"secret"}}}, 1, 1)
    assert "secret" not in str(refused.value)


# ── What engines hand out ───────────────────────────────────────────────────────────────────────


def test_pieces_of_a_table_are_read_as_one():
    rng = np.random.default_rng(1)
    database = random_database(rng, 9, 3, 9)
    table = listed(database)
    pieces = [table.slice(0, 4), table.slice(4, 0), table.slice(4, 7), table.slice(11)]
    several = pa.concat_tables(pieces)
    whole, parts = values_of(table), values_of(several)
    for name in ("groups", "pairs"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    assert covered(parts, 3, 2).tolist() == covered(whole, 3, 2).tolist()
    assert repr(parts) == "<ValuesOfUnits>"


@pytest.mark.parametrize("group", [-1, 3])
def test_groups_are_those_that_are_counted(group):
    one = np.zeros(1, dtype=np.int64)
    with pytest.raises(InternalError, match="other groups"):
        covered(ValuesOfUnits(one + group, one, one), 3, 1)


def made(**given):
    cells = GroupedCells(("m",), (2,), np.array([0, 0, 1]), np.array([0, 1, 2]))
    value = ReadValue(constant_of("a"), frozenset(), "a")
    fields = {"most": 2, "per_group": 1, "of_rows": True} | given
    return DistinctValues((cells,), 3, value=value, **fields)


def test_a_row_is_in_no_more_groups_than_is_charged_for():
    check_groups_of_a_row(made())
    for wrong in (made(most=1), made(per_group=2)):
        with pytest.raises(InternalError, match="more groups"):
            check_groups_of_a_row(wrong)


def test_other_counts_have_other_names():
    value = ReadValue(constant_of("b"), frozenset(), "b")
    others = [
        made(),
        made(of_rows=False),
        made(per_group=2),
        made(most=1),
        made(kept_of_all=True),
        replace(made(), value=value),
        replace(made(), condition="c"),
    ]
    assert len({one.name({}, {}) for one in others}) == len(others)
    assert made().name({}, {}) == made().name({}, {})
