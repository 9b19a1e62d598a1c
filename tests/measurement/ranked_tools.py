"""Rows in order of values, as databases give them, and what is paid for quantiles of these."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from dpsql.engines.ranked import RankedRows, check_ranked
from dpsql.measurement.measure import ChargedPlan
from dpsql.privacy import Budget, Ledger, Purpose
from dpsql.rel.distinct import ReadValue
from dpsql.rel.ranked import RankedValues, ValueLine
from dpsql.rows.typed import RowValue
from dpsql.rows.types import RowType
from dpsql.workload.unit_groups import GroupedCells

TINY = ValueLine(RowType("TINYINT"), -128, 127)


def values(probability, groups=1, most=1, line=TINY):
    read = ReadValue(RowValue("column", (), line.type, "x"), frozenset({"x"}), "x")
    cells = np.repeat(np.arange(groups), most)
    into = (cells + np.tile(np.arange(most), groups)) % groups
    block = GroupedCells(("g",), (groups,), cells, into)
    about = {"value": read, "line": line, "probability": probability}
    return RankedValues((block,), groups, min(most, groups), "", **about)


class Rows:
    """Groups of values, put in order; of units with so many rows."""

    def __init__(self, of, groups, contributions=1):
        self.values, self.contributions, self.groups = of, contributions, groups
        self.windows = []

    def check(self):
        check_ranked(self.values)

    def run(self, window):
        self.windows.append(window)
        a, b = window.probability.numerator, window.probability.denominator
        found = []
        for group, own in enumerate(self.groups):
            for value in sorted(set(own)):
                below, upto = sum(x < value for x in own), sum(x <= value for x in own)
                aim = a * len(own)
                if b * upto >= aim - window.reach and b * below <= aim + window.reach:
                    found.append((group, value, below, upto, len(own)))
        columns = zip(*found, strict=True) if found else [()] * 5
        return RankedRows(*(np.array(column, dtype=np.int64) for column in columns))


def paid(plan, mu_squared=None):
    ledger = Ledger.open(None, dataset="test")
    mu_squared = mu_squared or plan.privacy_cost
    receipt = ledger.charge(
        mu_squared,
        asked=Budget(rho=mu_squared / 2),
        purpose=Purpose(plan.digest, "1", "2", "3", "4", "5"),
    )
    return ChargedPlan(plan, receipt, ledger)


def beyond_gaussian(p, q, mu):
    """The most by which a divergence of p from q exceeds that of Gaussians at a distance of μ."""
    cuts = np.exp(np.linspace(-4, 4, 81))
    gaussian = ndtr(mu / 2 - np.log(cuts) / mu) - cuts * ndtr(-mu / 2 - np.log(cuts) / mu)
    found = np.maximum(p[None] - cuts[:, None] * q[None], 0).sum(axis=1)
    return float((found - gaussian).max())
