"""Where counts come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.schema import Table

Marginal = tuple[str, ...]
Counts = NDArray[np.int64]
Merged = Mapping[str, NDArray[np.int64]]
"""Column → the class of each of its cells; classes are numbered from 0 without a gap."""


class Engine(Protocol):
    """Counts rows. What it returns is private and goes to `mechanism` only."""

    def marginals(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        guards: Sequence[str] = (),
        merged: Merged = MappingProxyType({}),
    ) -> Mapping[Marginal, Counts]:
        """Count the rows of `table` in every cell of every wanted marginal.

        Cells of a column in `merged` are counted together where they have the same class there.

        All counts are of one snapshot and over the same rows: those whose value is in the
        domain for every attribute of any wanted marginal and for every column in `guards`.

        It may fail with any exception whatever, and the text of that may quote values. The
        session, which knows what was charged, replaces it by an `ExecutionError`.
        """
