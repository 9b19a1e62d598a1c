"""Colors: which attributes a workload treats alike, so that they can share a reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpsql.linalg.arrays import Array, Ints
from dpsql.planner.residuals.references import Reference
from dpsql.workload import Block, Workload


@dataclass(frozen=True, slots=True)
class Coloring:
    """A color for each attribute. Attributes of one color have one size and one reference."""

    colors: tuple[int, ...]
    """The color of each attribute, in domain order: an index into `sizes`."""
    sizes: tuple[int, ...]
    """How many cells the attributes of each color have."""


@dataclass(frozen=True, slots=True, eq=False)
class FamilyKind:
    """Families that have equal queries, over any attributes of equal colors."""

    blocks: tuple[Block, ...]
    """Of one of them."""
    attributes: Ints
    """Shape (families, attributes of all blocks)."""
    weights: Array
    """The weight of each family: shape (families,)."""


def by_size(workload: Workload) -> Coloring:
    """Give all attributes of one size one color."""
    sizes = tuple(sorted(set(workload.domain.values())))
    return Coloring(tuple(sizes.index(n) for n in workload.domain.values()), sizes)


def by_reference(
    references: Mapping[str, Reference], domain: Mapping[str, int]
) -> tuple[Coloring, list[Reference]]:
    """Give attributes that have equal references one color; return the colors' references."""
    distinct = {reference.key: reference for reference in references.values()}
    keys = list(distinct)
    colors = tuple(keys.index(references[name].key) for name in domain)
    sizes = tuple(len(r.weights) for r in distinct.values())
    return Coloring(colors, sizes), list(distinct.values())


def by_role(workload: Workload) -> Coloring:
    """Give attributes that occur in the same way in the same queries one color.

    Colors by size are refined until they are stable: attributes of one color then occur
    equally often at each place of families of each kind, weight and colors. Attributes that can
    be exchanged always end up with one color.
    """
    coloring = by_size(workload)
    sorts = kinds(workload, coloring)
    while True:
        finer = _refine(coloring, sorts)
        if len(finer.sizes) == len(coloring.sizes):
            return coloring
        coloring = finer


def _refine(coloring: Coloring, sorts: list[FamilyKind]) -> Coloring:
    """Tell attributes of one color apart by where they occur.

    One round of color refinement (Weisfeiler and Leman, 1968) on the hypergraph whose vertices are
    attributes and whose edges are families: vertices of one color stay so if as many edges of each
    description meet them at each place. All edges of a kind are handled at once, as rows.
    """
    colors = np.array(coloring.colors, dtype=np.int64)
    seen: list[Counter[object]] = [Counter() for _ in colors]
    for kind in sorts:
        # 1. The places of a family of this kind, and the colors that stand there.
        labels = [label for block in kind.blocks for label in _places(block)]
        occurring = colors[kind.attributes]
        for label in set(labels):  # what can be exchanged is put in order
            columns = [i for i, other in enumerate(labels) if other == label]
            occurring[:, columns] = np.sort(occurring[:, columns], axis=1)
        # 2. A description of each family: its weight, and its places with the colors in them.
        values, weights = np.unique(kind.weights, return_inverse=True)
        rows = np.column_stack([weights, occurring])
        codes, distinct = distinct_rows(rows, max(len(values), len(colors)))
        families = [
            (values[row[0]], tuple(sorted(zip(labels, row[1:], strict=True))))
            for row in distinct.tolist()
        ]
        # 3. For each place, count how often each attribute is there in families so described.
        for label, attributes in zip(labels, kind.attributes.T, strict=True):
            events, counts = np.unique(codes * len(colors) + attributes, return_counts=True)
            for event, count in zip(events.tolist(), counts.tolist(), strict=True):
                code, attribute = divmod(event, len(colors))
                seen[attribute][label, families[code]] += count
    # 4. What an attribute was, and all that was counted of it, is its new color.
    roles = [(c, frozenset(s.items())) for c, s in zip(coloring.colors, seen, strict=True)]
    first = list(dict.fromkeys(roles))
    return Coloring(
        tuple(first.index(role) for role in roles),
        tuple(coloring.sizes[c] for c, _ in first),
    )


def _places(block: Block) -> list[tuple[bytes, int]]:
    """Label the axes of a block; those that can be exchanged get one label."""
    labels: list[int] = []
    for axis, n in enumerate(block.shape):
        same = (i for i in labels if block.shape[i] == n and _exchangeable(block, i, axis))
        labels.append(next(same, axis))
    return [(block.queries.key, label) for label in labels]


def _exchangeable(block: Block, one: int, other: int) -> bool:
    """Whether every query of a block says the same of both axes."""
    tensor = block.queries.matrix.reshape(-1, *block.shape)
    return bool((tensor == tensor.swapaxes(one + 1, other + 1)).all())


def kinds(workload: Workload, coloring: Coloring) -> list[FamilyKind]:
    """Sort the families that have any queries by kind."""
    order = {name: i for i, name in enumerate(workload.domain)}
    found: dict[object, tuple[tuple[Block, ...], list[list[int]], list[float]]] = {}
    for family in workload.families:
        if not family.count:
            continue
        row = [order[a] for block in family.blocks for a in block.attributes]
        shape = tuple((len(block.attributes), block.queries.key) for block in family.blocks)
        key = shape, tuple(coloring.colors[i] for i in row)
        if key not in found:
            found[key] = family.blocks, [], []
        found[key][1].append(row)
        found[key][2].append(family.weight)
    return [
        FamilyKind(blocks, np.array(rows, dtype=np.int64), np.array(weights))
        for blocks, rows, weights in found.values()
    ]


def distinct_rows(rows: Ints, base: int) -> tuple[Ints, Ints]:
    """Return for each row, of numbers below `base`, which of the distinct rows it is; and those."""
    codes = np.zeros(len(rows), dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    for column in rows.T:
        # Numbered anew after each column, so that the codes stay small.
        _, first, codes = np.unique(codes * base + column, return_index=True, return_inverse=True)
    return codes, rows[first] if len(rows) else rows
