"""Sets that are connected by common elements."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

Element = TypeVar("Element", bound=Hashable)


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


def unions(sets: Iterable[Collection[Element]]) -> list[frozenset[Element]]:
    """Return the elements of each group of connected sets, in the order of the groups."""
    given = list(sets)
    return [frozenset(e for i in group for e in given[i]) for group in connected(given)]
