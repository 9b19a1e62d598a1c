"""Random workloads whose families ask different things of the columns that they share.

One reference of a shared column is then a compromise, and a strategy for each set of columns
(HDMM's OPT_+) needs none.
"""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np

from dpsql.workload import Identity, Matrix, Prefix, Suffix, Workload
from dpsql.workload.factors import Factor
from dpsql.workload.workload import joint_cells

LEAST, MOST = 1500, 20_000
"""Joint cells: more than are planned as a whole."""
SIZES = (4, 6, 8, 12, 16, 24)


def two_ends(groups: int, values: int) -> Workload:
    """Ask running totals by groups of one column, and from the other end by those of another."""
    workload = Workload({"a": groups, "b": values, "c": groups})
    workload.add(["a", "b"], [Identity(), Prefix()])
    return workload.add(["b", "c"], [Suffix(), Identity()])


def overlapping(generator: random.Random) -> Workload:
    """Make families over pairs of three or four columns; some over a single one or over three."""
    while True:
        names = "abcd"[: generator.choice((3, 3, 3, 4))]
        workload = Workload({name: generator.choice(SIZES) for name in names})
        pairs = list(combinations(names, 2))
        sets: list[tuple[str, ...]] = [*generator.sample(pairs, generator.randint(2, 3))]
        if generator.random() < 0.4:
            sets.append((generator.choice(names),))
        if generator.random() < 0.1 and len(names) == 3:
            sets.append(tuple(names))
        for its in sets:
            factors = [_factor(generator, workload.domain[name]) for name in its]
            workload.add(list(its), factors, weight=generator.choice((1.0, 1.0, 1.0, 0.1, 10.0)))
        if LEAST < joint_cells(workload) <= math.prod(workload.domain.values()) <= MOST:
            return workload


def _factor(generator: random.Random, cells: int) -> Factor:
    kind = generator.choice(("cells", "cells", "prefix", "suffix", "low", "high", "some"))
    half = np.tril(np.ones((cells, cells)))[: cells // 2]
    match kind:
        case "cells":
            return Identity()
        case "prefix":
            return Prefix()
        case "suffix":
            return Suffix()
        case "low":
            return Matrix(half)
        case "high":
            return Matrix(half[:, ::-1].copy())
    rows = [[float(generator.random() < 0.4) for _ in range(cells)] for _ in range(4)]
    return Matrix(np.array(rows))
