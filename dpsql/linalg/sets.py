"""Sets: which are connected by common elements, and subsets of what comes in an order."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain, combinations
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


Item = TypeVar("Item")
_MANY = 2**22
"""Subsets that are written out to find which of the sets are among them."""


def subsets(items: Sequence[Item]) -> chain[tuple[Item, ...]]:
    """Return all subsets, the smallest first and the set itself last, each in the given order."""
    sizes = range(len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)


def largest_sets(sets: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the sets that are not inside of others."""
    if sum(1 << len(set_) for set_ in sets) <= _MANY:
        parts = {frozenset(p) for set_ in sets for p in subsets(set_) if p != set_}
        yield from (set_ for set_ in sets if frozenset(set_) not in parts)
        return
    largest: list[frozenset[str]] = []  # few wide ones, then
    for candidate in sorted(map(frozenset, sets), key=len, reverse=True):
        if not any(candidate < other for other in largest):
            largest.append(candidate)
    yield from (set_ for set_ in sets if frozenset(set_) in largest)
