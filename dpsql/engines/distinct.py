"""Distinct values by groups, as many as units cover: a flow that is certified. Trusted.

Guarantees:
    Let units have values in groups, and let F_g be the largest number of values of the group g that
    can be covered if each unit covers at most l of its own values there, and each value is covered
    once. What `covered` returns is F_g for each group, whoever found it. To add or to remove a unit
    with all of its values changes each F_g by a whole number from 0 to l, in one direction; and
    those of all groups together by l·m at most, if the unit has values in at most m groups, or at
    most l·m pairs of a group and a value.

    *Proof.* (1) *F_g is what is returned.* A flow is looked at: who covers which value. Each pair
    of it is one that the unit has, no unit covers more than l values of a group, and no value is
    covered twice, as there is one place for by whom it is. So at least as many values can be
    covered as it has in the group. And a cut is looked at, of units and values of the group: each
    pair that a unit has there is of a unit or of a value in the cut. Of what anybody could cover,
    at most l values are covered by each of these units, and the others are values in the cut: at
    most l·(units) + (values). Both numbers are compared for each group, as integers; where they are
    equal, so is F_g. Else nothing is returned.
    (2) *What a unit changes* (Knop and Steinke 2023, lemma 3). What covers values without the unit
    does so with it, so F_g doesn't fall when the unit is added. And of what is covered best with
    it, take away what it covers itself: at most l values of the group, no more than it has there,
    and none where it has none. The rest is covered without the unit.
    (3) *In all groups.* By (2) the changes are at most l in m groups; or they are at most the
    numbers of values that the unit has in each, which add up to l·m at most. ∎

    How many groups and values of a unit are kept before, by what its own rows are, is the matter of
    the engines (`duckdb/distinct.py`, `spark/distinct.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpsql.engines.arrow import numbers
from dpsql.errors import InternalError
from dpsql.linalg.arrays import Ints
from dpsql.linalg.flows import NOBODY, Taken, numbered, taken
from dpsql.rel.distinct import DistinctValues

if TYPE_CHECKING:
    import pyarrow as pa

_MOST = 2**62


@dataclass(frozen=True, slots=True)
class ValuesOfUnits:
    """The values that units have in groups.

    Args:
        groups: for each pair of a unit and a group in which it has values: the number of the group.
        pairs: for each value of a unit in a group, the place of that pair.
        values: the number of the value there.
    """

    groups: Ints
    pairs: Ints
    values: Ints

    def __repr__(self) -> str:
        return "<ValuesOfUnits>"  # never what they are


def check_groups_of_a_row(groups: DistinctValues) -> None:
    """Make sure that a row is in no more groups than it is charged for, by the cells it lies in.

    Raises:
        InternalError: it may be.
    """
    times = (int(np.unique_counts(of.cells).counts.max(initial=1)) for of in groups.blocks)
    if groups.each != 1 or math.prod(times) > groups.most < groups.count:
        raise InternalError("a row may be in more groups than it is charged for")


def values_of(found: pa.Table) -> ValuesOfUnits:
    """Read values as a database hands them out: rows of a unit's group `g`, with a list `v`."""
    groups, pairs, before = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    texts = []
    for batch in found.to_batches():
        if batch.num_rows:
            lists = batch.column("v")
            groups.append(numbers(batch.column("g"), np.int64))
            lengths = np.diff(numbers(lists.offsets, np.int32)).astype(np.int64)
            pairs.append(np.repeat(before + np.arange(batch.num_rows), lengths))
            texts.append(lists.flatten())
            before += batch.num_rows
    return ValuesOfUnits(np.concatenate(groups), np.concatenate(pairs), _numbered(texts))


def _numbered(texts: list[pa.Array]) -> Ints:
    """Give numbers to values, by their bytes."""
    import pyarrow as pa

    if not texts:
        return np.zeros(0, np.int64)
    encoded = pa.chunked_array(texts).dictionary_encode().unify_dictionaries()
    places = [numbers(chunk.indices, np.int32) for chunk in encoded.chunks if len(chunk)]
    return np.concatenate([np.zeros(0, np.int64), *places]).astype(np.int64)


def covered(of: ValuesOfUnits, groups: int, each: int) -> Ints:
    """Return how many values of each group are covered at most.

    Args:
        of: which values units have.
        groups: the number of groups.
        each: how many values of a group a unit covers at most.

    Raises:
        InternalError: it isn't certain that no more can be covered. It says nothing of the values.
    """
    if each < 1 or (
        of.groups.size and not 0 <= int(of.groups.min()) <= int(of.groups.max()) < groups
    ):
        raise InternalError("values are of other groups than are counted")
    here = of.groups[of.pairs]
    many = int(of.values.max(initial=-1)) + 1
    if many * groups >= _MOST:
        raise InternalError("there are too many values")
    places, right = numbered(here * many + of.values, many * groups)
    edges, sizes = (of.pairs, right), (len(of.groups), len(places))
    pairs = taken(edges, sizes, each)
    return certified(pairs, edges, (of.groups, places // max(many, 1)), groups, each)


def certified(
    found: Taken, edges: tuple[Ints, Ints], of: tuple[Ints, Ints], groups: int, each: int
) -> Ints:
    """Return how many values of each group are taken, if it is certain that no more can be.

    Args:
        found: a flow and a cut, whoever made them.
        edges: pairs of a unit in a group, and values of the same group.
        of: the groups of all of the units in groups, and of all of the values.
        groups: how many there are.
        each: how many values a unit covers in a group at most.

    Raises:
        InternalError: it isn't.
    """
    (left, right), (lefts, rights) = edges, of
    if found.by.shape != rights.shape or found.right.shape != rights.shape:
        raise InternalError(_UNSURE)
    if found.left.shape != lefts.shape or not np.array_equal(lefts[left], rights[right]):
        raise InternalError(_UNSURE)
    counted = np.flatnonzero(found.by != NOBODY)
    by = found.by[counted]
    if by.size and not 0 <= int(by.min()) <= int(by.max()) < len(lefts):
        raise InternalError(_UNSURE)
    has = np.zeros(len(rights), dtype=np.bool_)
    has[right[found.by[right] == left]] = True
    within = int(np.bincount(by, minlength=1).max(initial=0)) <= each
    is_cut = (found.left[left] | found.right[right]).all()
    flow = np.bincount(rights[counted], minlength=groups)
    cut = each * np.bincount(lefts[found.left], minlength=groups)
    cut += np.bincount(rights[found.right], minlength=groups)
    if not (has[counted].all() and within and is_cut and np.array_equal(flow, cut)):
        raise InternalError(_UNSURE)
    return flow.astype(np.int64)


_UNSURE = "it isn't certain that no more values can be covered"
