"""A workload over the joint cells of the attributes that it touches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.linalg.labeled import LabeledArray
from dpsql.linalg.matrices import kron
from dpsql.workload.workload import Family, Workload

Groups = dict[frozenset[str], list[Family]]
"""Families by the set of their attributes."""


def touched(workload: Workload) -> tuple[str, ...]:
    """Return the attributes that the families touch, in domain order."""
    used: set[str] = set()
    for family in workload.families:
        if len(used) == len(workload.domain):
            break  # often the first few of very many touch them all
        if family.count:
            used.update(family.names)
    return tuple(name for name in workload.domain if name in used)


def by_attributes(families: Iterable[Family]) -> Groups:
    """Group the families that have any queries by their attributes, as these come."""
    groups: Groups = {}
    for family in families:
        if family.count:
            groups.setdefault(family.attributes, []).append(family)
    return groups


def joint_cells(workload: Workload) -> int:
    """Return the number of joint cells of the touched attributes."""
    return math.prod(workload.domain[name] for name in touched(workload))


def gram(workload: Workload, names: Sequence[str]) -> Array:
    """Return Σ weight · QᵀQ over the joint cells."""
    total: Array = np.zeros(())
    for family in workload.families:
        if not family.count:
            continue
        others = [name for name in names if name not in family.attributes]
        whole = (np.ones((workload.domain[name],) * 2) for name in others)
        product = kron([*(block.queries.gram() for block in family.blocks), *whole])
        order = [*family.names, *others]
        # Both sides' axes are brought into one order.
        sides = [(side, name) for side in (0, 1) for name in order]
        sizes = {key: workload.domain[key[1]] for key in sides}
        table = LabeledArray.of(sides, sizes, product)
        ordered = table.transpose([(side, name) for side in (0, 1) for name in names])
        total = total + family.weight * ordered.reshape(product.shape)
    return total


def written_out(workload: Workload, names: Sequence[str]) -> Array:
    """Write all queries out over the joint cells, with their weights folded in."""
    families = [f for f in workload.families if f.count]
    sizes = workload.domain
    return np.vstack([math.sqrt(f.weight) * spread_out(f, names, sizes) for f in families])


def spread_out(family: Family, names: Sequence[str], sizes: Mapping[str, int]) -> Array:
    """Write a family's queries out over the joint cells: shape (queries, cells)."""
    written = family.written_out().reshape(-1, *(sizes[name] for name in family.names))
    spread = LabeledArray(("", *family.names), written).expand(("", *names))
    full = np.broadcast_to(spread, (len(written), *(sizes[name] for name in names)))
    return full.reshape(len(written), -1)
