"""Where counts come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.schema import Table

Marginal = tuple[str, ...]
Counts = NDArray[np.int64]
Merged = Mapping[str, NDArray[np.int64]]
"""Column → the class of each of its cells; classes are numbered from 0 without a gap."""


class Counted(Mapping[Marginal, Counts]):
    """Exact counts by marginal, which are private, and how many rows of one unit they hold.

    Args:
        marginals: attributes → counts as int64, of shape (cells of the first one, …).
        contributions: the most rows of one privacy unit that may be among those counted.
    """

    def __init__(self, marginals: Mapping[Marginal, Counts], contributions: int) -> None:
        self._marginals, self._contributions = dict(marginals), contributions

    @property
    def contributions(self) -> int:
        """The most rows of one privacy unit that may be among those counted."""
        return self._contributions

    def __getitem__(self, marginal: Marginal) -> Counts:
        return self._marginals[marginal]

    def __iter__(self) -> Iterator[Marginal]:
        return iter(self._marginals)

    def __len__(self) -> int:
        return len(self._marginals)

    def __repr__(self) -> str:
        return f"<Counted: {len(self)} marginals>"  # never what was counted


class Counting(Protocol):
    """Statements that count some marginals of a table: the same are checked and run."""

    def check(self) -> None:
        """Make sure that `run` can count this, as far as no row is needed to know.

        Whether it fails depends on the schema and the catalog alone, and so does what it says.

        Raises:
            InternalError: the engine would refuse the counting statements.
        """

    def run(self) -> Counted:
        """Count the rows of the table in every cell of every wanted marginal.

        A column has `table.cells` of them: those of its domain and, where rows may be outside
        of it, one more for these. Cells of a column in `merged` are counted together where they
        have the same class there.

        All counts are of one snapshot and over the same rows, all that the table has: which
        columns are counted by decides in which cell a row is, and not whether it counts.

        It may fail with any exception whatever, and the text of that may quote values. The
        session, which knows what was charged, replaces it by an `ExecutionError`.
        """


class Engine(Protocol):
    """Counts rows. What it returns is private and goes to `mechanism` only."""

    def prepared(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
    ) -> Counting:
        """Say how the wanted marginals of a table are counted; reads nothing."""
