"""A workload over the joint cells of the attributes that it touches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.workload.workload import Family, Workload

Array = NDArray[np.float64]


def touched(workload: Workload) -> tuple[str, ...]:
    """Return the attributes that the families touch, in domain order."""
    used = frozenset().union(*(f.attributes for f in workload.families if f.count))
    return tuple(name for name in workload.domain if name in used)


def joint_cells(workload: Workload) -> int:
    """Return the number of joint cells of the touched attributes."""
    return math.prod(workload.domain[name] for name in touched(workload))


def gram(workload: Workload, names: Sequence[str]) -> Array:
    """Return Σ weight · QᵀQ over the joint cells."""
    total: Array = np.zeros(())
    for family in workload.families:
        if not family.count:
            continue
        grams = [block.queries.gram() for block in family.blocks]
        order = [name for block in family.blocks for name in block.attributes]
        for name in names:
            if name not in order:
                grams.append(np.ones((workload.domain[name],) * 2))
                order.append(name)
        product: Array = np.ones((1, 1))
        for factor in grams:
            product = np.asarray(np.kron(product, factor), dtype=np.float64)
        total = total + family.weight * _in_order(product, order, names, workload)
    return total


def written_out(workload: Workload, names: Sequence[str]) -> Array:
    """Write all queries out over the joint cells, with their weights folded in."""
    families = [f for f in workload.families if f.count]
    sizes = workload.domain
    return np.vstack([math.sqrt(f.weight) * spread_out(f, names, sizes) for f in families])


def spread_out(family: Family, names: Sequence[str], sizes: Mapping[str, int]) -> Array:
    """Write a family's queries out over the joint cells: shape (queries, cells)."""
    product = family.written_out()
    order = [name for block in family.blocks for name in block.attributes]
    tensor: Array = product.reshape(-1, *(sizes[name] for name in order))
    present = [name for name in names if name in order]
    tensor = tensor.transpose(0, *(1 + order.index(name) for name in present))
    spread = [sizes[name] if name in order else 1 for name in names]
    full = [sizes[name] for name in names]
    tensor = np.broadcast_to(tensor.reshape(-1, *spread), (len(product), *full))
    return tensor.reshape(len(product), -1)


def _in_order(gram: Array, order: list[str], names: Sequence[str], workload: Workload) -> Array:
    """Permute the cells of both sides from one order of the attributes to another."""
    shape = [workload.domain[name] for name in order]
    at = [order.index(name) for name in names]
    tensor = gram.reshape(shape * 2).transpose(at + [len(at) + i for i in at])
    return np.ascontiguousarray(tensor).reshape(gram.shape)
