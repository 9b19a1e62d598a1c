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

    def run(self, windows):
        self.windows.append(windows)
        found, line = [], self.values.line
        for group, given in enumerate(self.groups):
            own = np.sort(np.clip(np.array(given, dtype=np.int64), line.low, line.high))
            places = np.unique(own)
            below, upto = (np.searchsorted(own, places, side) for side in ("left", "right"))
            near = np.zeros(len(places), dtype=bool)
            for window in windows:
                a, b = window.probability.numerator, window.probability.denominator
                aim, reach = a * len(own), min(window.reach, 2**62)
                near |= (b * upto >= aim - reach) & (b * below <= aim + reach)
            there = np.full(near.sum(), group), np.full(near.sum(), len(own))
            found.append([there[0], places[near], below[near], upto[near], there[1]])
        return RankedRows(*(np.concatenate(of).astype(np.int64) for of in zip(*found, strict=True)))


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
