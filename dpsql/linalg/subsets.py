"""Subsets of attributes, or of anything else that comes in an order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import TypeVar

Item = TypeVar("Item")
_MANY = 2**22
"""Subsets that are written out to find which of the sets are among them."""


def subsets(items: Sequence[Item]) -> chain[tuple[Item, ...]]:
    """Return all subsets, the smallest first and the set itself last, each in the given order."""
    sizes = range(len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)


def largest_sets(sets: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the sets that are not inside of others."""
    if sum(1 << len(one) for one in sets) <= _MANY:
        parts = {frozenset(p) for one in sets for p in subsets(one) if p != one}
        yield from (one for one in sets if frozenset(one) not in parts)
        return
    largest: list[frozenset[str]] = []  # few wide ones, then
    for one in sorted(map(frozenset, sets), key=len, reverse=True):
        if not any(one < other for other in largest):
            largest.append(one)
    yield from (one for one in sets if frozenset(one) in largest)
