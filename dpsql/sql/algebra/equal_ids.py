"""Equal columns: those that equalities of a statement, and what follows from them, put together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from dpsql.rel.nodes import Id


class EqualIds:
    """Columns that are equal in the rows of inner joins, where equal values are the same."""

    def __init__(self) -> None:
        self._classes = dict[Id, frozenset[Id]]()

    def add(self, a: Id, b: Id) -> bool:
        """Note that two columns are equal; return whether it didn't follow from others."""
        one, other = (self._classes.get(id_, frozenset({id_})) for id_ in (a, b))
        both = one | other
        self._classes |= dict.fromkeys(both, both)
        return one != other

    def pairs(self) -> Iterator[tuple[Id, Id]]:
        """Yield all pairs of columns that are equal."""
        for ids in dict.fromkeys(self._classes.values()):
            yield from combinations(sorted(ids), 2)
