"""The time that a plan will take, roughly, from public sizes: so that it can be said beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.planner.strategies.dual import MAX_RANK
from dpsql.planner.strategies.whole import MODERATE_WORK, is_quick, whole_work
from dpsql.workload import Workload
from dpsql.workload.workload import joint_cells, touched

WORK_SECONDS = 3e-9
"""Seconds for each r²N of a problem of the rank r over N cells: some ten factorizations of a matrix
of full rank, or some thirty of few rows, as measured on one core of 2024. Twice as long, or half,
is as it may be."""
LONG = 3.0
"""Seconds from which it is worth saying."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The largest problem of a plan, and the seconds that all of them take."""

    where: str
    rank: int
    seconds: float

    def __str__(self) -> str:
        digits = len(str(round(self.seconds))) - 1
        about = round(self.seconds, -digits)
        return f"planning for {self.rank:,} cells of {self.where}: about {about:,.0f} s"


def expected_effort(workload: Workload) -> Effort | None:
    """Return what planning will take; None if that is not worth saying."""
    problems = dict(_problems(workload))
    if not problems:
        return None
    seconds = WORK_SECONDS * sum(work for _, work in problems.values())
    if seconds < LONG:
        return None
    where, (rank, _) = max(problems.items(), key=lambda problem: problem[1][1])
    return Effort(where[0], rank, seconds)


def _problems(workload: Workload) -> Iterator[tuple[tuple[str, bytes], tuple[int, float]]]:
    """Name the problems that have to be solved, with their ranks and their r²N.

    Single cells and totals have closed forms. Of other queries each factor is a problem, but for
    joint cells that are planned at once, which are one.
    """
    hard = [
        (family, block)
        for family in workload.families
        for block in family.blocks
        if not (block.queries.is_identity or block.queries.is_total) and block.bound is None
    ]
    if hard and len({family.measure for family, _ in hard}) == 1:
        work = whole_work(workload)
        several = len(workload.families) > 1
        if is_quick(workload) or (several and work <= MODERATE_WORK):
            rank = min(joint_cells(workload), workload.count, MAX_RANK)
            yield (" x ".join(touched(workload)), b""), (rank, work)
            return
    for _, block in hard:
        rank = min(block.queries.rows, block.queries.cells, MAX_RANK)
        yield (" x ".join(block.attributes), block.queries.key), (rank, float(rank) ** 3)
