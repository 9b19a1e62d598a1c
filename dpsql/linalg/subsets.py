"""Subsets of attributes, or of anything else that comes in an order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import TypeVar

Item = TypeVar("Item")


def subsets(items: Sequence[Item]) -> chain[tuple[Item, ...]]:
    """Return all subsets, the smallest first and the set itself last, each in the given order."""
    sizes = range(len(items) + 1)
    return chain.from_iterable(combinations(items, size) for size in sizes)
