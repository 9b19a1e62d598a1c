"""An engine in which each stored row stands for many, so that small tables are huge ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np

from dpsql.engines.base import LOW_BITS, Counted, Counting, Engine
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.source import DuckDBSource


class ManyRows(Engine):
    """Counts each row, and each unit, so many times as another engine does."""

    def __init__(self, engine: Engine, times: int) -> None:
        self.engine, self.times = engine, times

    def snapshot(self):
        """The other's."""
        return self.engine.snapshot()

    def prepared(self, *given, **how):
        """Prepare what the other does."""
        return _ManyCounted(self.engine.prepared(*given, **how), self.times)


class _ManyCounted(Counting):
    def __init__(self, counting: Counting, times: int) -> None:
        self.counting, self.times = counting, times

    def check(self) -> None:
        """Check what the other would run."""
        self.counting.check()

    def run(self) -> Counted:
        """Run it, and multiply; in Python's integers where these are sums."""
        counted = self.counting.run()
        marginals, above = {}, {}
        for marginal, counts in counted.items():
            exact = counts.astype(object)
            if marginal in counted.above:
                exact = counted.above[marginal].astype(object) * 2**LOW_BITS
                exact = (exact + counts % 2**LOW_BITS) * self.times
                above[marginal] = np.asarray(exact >> LOW_BITS, dtype=np.int64)
                exact = (exact + 2**63) % 2**64 - 2**63
            else:
                exact = exact * self.times
            # Which raises where one doesn't fit.
            marginals[marginal] = np.asarray(exact, dtype=np.int64)
        return Counted(
            marginals,
            counted.contributions,
            counted.bounds,
            counted.units,
            counted.spreads,
            counted.totals,
            above,
        )


@contextmanager
def many_rows(times: int) -> Iterator[None]:
    """Have sessions count each row of DuckDB so many times."""

    def engine(self, on_step=None):
        return ManyRows(DuckDBEngine(self.con, on_step=on_step), times)

    with patch.object(DuckDBSource, "engine", engine):
        yield
