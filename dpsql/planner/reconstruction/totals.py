"""Totals of several tables, of which differences were measured as well.

What is measured of each table by itself has independent noise, and gives its total x_r an estimate
t_r of the variance V_r. Differences y = Gx + noise of variance N (`measurement.differences`) then
move all estimates at once, by weighted least squares:

    t + K(y − Gt),   K = V Gᵀ(G V Gᵀ + N)⁻¹ ,

with the covariance V + M, M = −K G V, instead of V: less for every combination of totals, as M has
no positive eigenvalue. Any other answer a of table r that has the covariance γ_a with t_r moves by
u_a = γ_a/V_r times as much as t_r does. As E K(y − Gt) = 0, it stays unbiased; and for answers a, b
of tables r, s

    Cov(a', b') = Cov(a, b) + u_a u_b M_rs ,

whatever weights the estimates have: Cov(a, K(y − Gt)) = −γ_a (KG)ᵀ, and KG = −M V⁻¹, so that the
two mixed terms are u_a u_b M_rs each, and the last, K(G V Gᵀ + N)Kᵀ = −M, takes one of them away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.linalg.arrays import Array
from dpsql.measurement.differences import Difference
from dpsql.measurement.narrow import Kept
from dpsql.planner.reconstruction.base import Reconstruction
from dpsql.planner.reconstruction.measured import Values
from dpsql.workload import Family

Leans = Mapping[str, Array]
"""Table → u, by how much each answer moves if the table's total moves by one."""


class Totals:
    """How much the totals of tables move, and how much less variance they have.

    Args:
        parts: table → how answers follow from what was measured of it alone.
        differences: what was measured of the totals of two of them.
    """

    def __init__(
        self, parts: Mapping[str, Reconstruction], differences: Sequence[Difference]
    ) -> None:
        found = {name: of for name, part in parts.items() if (of := part.with_total()) is not None}
        self.differences = tuple(
            (number, difference)
            for number, difference in enumerate(differences)
            if all(table in found for table in difference.tables)
        )
        """Those that say something of the parts, with their numbers."""
        used = {table for _, difference in self.differences for table in difference.tables}
        self.tables = tuple(name for name in parts if name in used)
        """Those of which totals move."""
        self._parts = {name: parts[name] for name in self.tables}
        self._with_total = {name: found[name] for name in self.tables}
        self._variances = np.array(
            [float(parts[name].marginal((), found[name])) for name in self.tables]
        )
        rows = [self._row(difference) for _, difference in self.differences]
        self._rows = np.array(rows).reshape(len(rows), len(self.tables))
        spread = self._variances[:, None] * self._rows.T
        self._gain = np.linalg.solve(np.eye(len(rows)) + self._rows @ spread, spread.T).T
        change = self._gain @ spread.T
        self.change = -(change + change.T) / 2
        """M: what is added to the covariances of the totals."""

    def _row(self, difference: Difference) -> list[float]:
        """Return a row of G, for noise of variance 1."""
        sd = math.sqrt(difference.law.variance)
        times = dict(zip(difference.tables, difference.times, strict=True))
        first, _ = difference.tables
        signed = {name: of if name == first else -of for name, of in times.items()}
        return [signed.get(name, 0) / sd for name in self.tables]

    def moves(self, values: Values, measured: Sequence[Kept]) -> dict[str, float]:
        """Return by how much each total moves, as a part of its variance.

        Args:
            values: what answers of the parts are made of.
            measured: the noisy numbers of all differences.
        """
        totals = np.array([float(self._parts[name].marginal((), values)) for name in self.tables])
        found = [
            float(measured[number].ravel()[0]) / math.sqrt(difference.law.variance)
            for number, difference in self.differences
        ]
        moved = self._gain @ (np.array(found) - self._rows @ totals)
        return dict(zip(self.tables, moved / self._variances, strict=True))

    def covariance(self, table: str, attributes: Sequence[str]) -> Array:
        """Return γ of each cell of a marginal of a table."""
        return self._parts[table].marginal(attributes, self._with_total[table])

    def lean(self, table: str, family: Family) -> Array:
        """Return u of each answer to a family of counts of a table, in its shape."""
        if not family.count:
            return np.zeros(family.shape)
        cells = self.covariance(table, family.names).ravel()
        at = self.tables.index(table)
        return np.asarray((family.queries @ cells).reshape(family.shape) / self._variances[at])

    def products(self, first: Leans, second: Leans) -> Array:
        """Return Σ_rs u_r M_rs v_s: what is added to covariances of answers that lean so."""
        found: Array = np.zeros(())
        for one, ours in first.items():
            for other, theirs in second.items():
                change = self.change[self.tables.index(one), self.tables.index(other)]
                found = found + ours * theirs * change
        return found
