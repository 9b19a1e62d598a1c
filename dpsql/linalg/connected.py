"""Sets that are connected by common elements."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable


def connected(sets: Iterable[Collection[Hashable]]) -> list[list[int]]:
    """Group the numbers of sets that have elements in common, directly or through others.

    An empty set is a group of its own. Groups come in the order of their last sets.
    """
    groups: list[tuple[list[int], set[Hashable]]] = []
    for number, elements in enumerate(sets):
        joined, union = [number], set(elements)
        apart = []
        for numbers, others in groups:
            if others.isdisjoint(elements):
                apart.append((numbers, others))
            else:
                joined, union = numbers + joined, union | others
        groups = [*apart, (joined, union)]
    return [numbers for numbers, _ in groups]
