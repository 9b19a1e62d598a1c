"""One release, and as many others of the same plan as are wanted, with noise from given bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from unittest.mock import patch

import duckdb
import numpy as np
from numpy.typing import NDArray

import dpsql
from dpsql.engines.base import Counted
from dpsql.measurement.measure import NoisyMeasurements, counts_of, measuring
from dpsql.measurement.narrow import apply
from dpsql.measurement.randomness import RandomBits
from dpsql.release.assembly import from_plan
from dpsql.session import planning
from tests.helpers.seeded import SeededBits

Values = dict[frozenset[str], NDArray[np.int64]]


@dataclass(frozen=True)
class Redrawn:
    """A plan with the exact counts that it measures: noise can be drawn again and again."""

    given: tuple
    marginals: Counted

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection, script, declared=None, **how) -> Redrawn:
        """Release a script once, by the public API, and keep what its last steps work on.

        Args:
            con: has the rows.
            script: its statements.
            declared: what the session declares.
            how: options of the release.
        """
        found = {}
        measure = planning.measure

        def keep(*given, content=None):
            found["given"] = given
            return from_plan(*given)

        def look(charged, marginals):
            found["marginals"] = marginals
            return measure(charged, marginals)

        with patch.object(planning, "from_plan", keep), patch.object(planning, "measure", look):
            dpsql.Session(con, **(declared or {})).release(script, **how)
        return cls(found["given"], found["marginals"])

    def draws(self, count: int, seed: int = 0) -> Iterator[dpsql.Release]:
        """Yield releases that differ by their noise only."""
        bits = SeededBits(seed)
        for _ in range(count):
            yield self.drawn(bits)

    def drawn(self, bits: RandomBits) -> dpsql.Release:
        """Measure the plan with noise from some bits."""
        return self._release(
            {
                frozenset(space): measuring(block)(block, *counts_of(self.marginals, space), bits)
                for block in self._blocks
                for space in block.spaces
            }
        )

    def exact(self) -> dpsql.Release:
        """Measure without noise; variances and intervals are those of the plan."""
        return self._release(
            {
                frozenset(space): apply(block, self.marginals[space])
                for block in self._blocks
                for space in block.spaces
            }
        )

    @property
    def _blocks(self):
        return self.given[1].certified.blocks

    def _release(self, values: Values) -> dpsql.Release:
        script, plan, facts, _, sources = self.given
        measured = NoisyMeasurements(plan.certified, values)
        own = replace(sources[-1], values=values)
        return from_plan(script, plan, facts, measured, (*sources[:-1], own))
