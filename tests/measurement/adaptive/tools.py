"""Pay for adaptive plans, and make tables for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dpsql.engines.base import Counted
from dpsql.measurement.measure import ChargedPlan
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.privacy import Ledger, Purpose
from dpsql.workload import Identity, Workload


def pay(plan: AdaptivePlan) -> ChargedPlan:
    ledger = Ledger.open(None, dataset="test")
    purpose = Purpose(plan.digest, "1", "2", "3", "4", "5")
    receipt = ledger.charge(plan.budget.mu_squared, asked=plan.budget, purpose=purpose)
    return ChargedPlan(plan, receipt, ledger)


def marginals_of(
    codes: Mapping[str, np.ndarray], sizes: Mapping[str, int], wanted: Sequence[tuple[str, ...]]
) -> Counted:
    """Count rows, of which the codes of each attribute are given; each is a unit of its own."""
    found = {}
    rows = len(next(iter(codes.values())))
    for names in wanted:
        shape = [sizes[a] for a in names]
        keys = np.zeros(rows, dtype=np.int64)
        for name in names:
            keys = keys * sizes[name] + codes[name]
        found[names] = np.bincount(keys, minlength=math.prod(shape)).reshape(shape)
    return Counted(found, 1)


def all_marginals(sizes: Mapping[str, int], sets: Sequence[tuple[str, ...]]) -> Workload:
    workload = Workload(sizes)
    for names in sets:
        workload.add(list(names), [Identity()] * len(names))
    return workload
