"""Synthetic rows of the Adult census extract: how near they are to the real ones.

python -m tests.benchmarks.synthetic examples/data/adult.parquet [ε] [updates]

The file is that of `aim_adult`. All pairs of its 14 columns are released at δ = 1e-9 with equal
weights, under the noise of a fixed seed. The table gives the mean over all 14, 91 and 364 marginals
of one, two and three columns of Σ|rows − truth|/rows, and seconds:

    rows             as many as the release says
    updates          the same, after some rounds of updates (10)
    4 N, updates     four times as many, after 15 rounds
    bootstrap        real rows, drawn again
    independent      real columns, each in another order

and what `synthetic_quality` expects of the first, beside what is so: the mean of `tv_estimated`
over pairs against the mean of the true distances, as sums.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from unittest import mock

import duckdb
import numpy as np
import polars as pl

import dpsql
from dpsql.measurement import measure
from tests.benchmarks.aim_adult import DOMAIN, SIZES, distance, read
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive.tools import marginals_of

Codes = Mapping[str, np.ndarray]


def released(codes: Codes, epsilon: str, seed: int = 0) -> dpsql.Release:
    """Release all pairs of columns."""
    con = duckdb.connect()
    columns = (
        f"{name} SMALLINT NOT NULL CHECK ({name} BETWEEN 0 AND {n - 1})"
        for name, n in SIZES.items()
    )
    con.execute(f"CREATE TABLE adult ({', '.join(columns)})")
    con.register("given", pl.DataFrame(dict(codes)))
    con.execute("INSERT INTO adult SELECT * FROM given")
    con.unregister("given")
    script = {
        f"{a}_{b}": f"SELECT {a}, {b}, COUNT(*) AS n FROM adult GROUP BY {a}, {b}"
        for a, b in combinations(DOMAIN, 2)
    }
    with mock.patch.object(measure, "fresh_bits", return_value=SeededBits(seed)):
        return dpsql.Session(con).release(
            script, budget=dpsql.Budget(epsilon=Fraction(epsilon), delta=1e-9), weights="marginal"
        )


def distances(codes: Codes, rows: Codes) -> list[float]:
    """Return how far rows are from the truth, over marginals of one to three columns."""
    total, count = (len(next(iter(of.values()))) for of in (codes, rows))
    found = []
    for width in (1, 2, 3):
        sets = list(combinations(SIZES, width))
        truth = marginals_of(codes, SIZES, sets)
        made = marginals_of(rows, SIZES, sets)
        found.append(distance(truth, lambda names, made=made: made[names] * (total / count)))
    return found


def as_codes(frame: pl.DataFrame) -> Codes:
    """Return the codes of a frame of whole numbers from 0."""
    return {name: frame[name].to_numpy().astype(np.int64) for name in frame.columns}


def main() -> None:
    """Print the table."""
    codes = read(sys.argv[1])
    epsilon = sys.argv[2] if len(sys.argv) > 2 else "1"
    updates = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    rows = len(next(iter(codes.values())))
    start = time.perf_counter()
    release = released(codes, epsilon)
    print(f"released in {time.perf_counter() - start:.1f} s")
    print("rows            1-way   2-way   3-way     s")
    ways: dict[str, dict[str, int]] = {
        "rows": {},
        "updates": {"updates": updates},
        "4 N, updates": {"rows": 4 * rows, "updates": 15},
    }
    for name, how in ways.items():
        start = time.perf_counter()
        frame = release.synthetic(seed=1, **how)
        seconds = time.perf_counter() - start
        shown(name, distances(codes, as_codes(frame)), seconds)
        if name == "rows":
            expected = release.synthetic_quality(frame)
    generator = np.random.default_rng(1)
    again = generator.integers(0, rows, rows)
    shown("bootstrap", distances(codes, {name: of[again] for name, of in codes.items()}))
    apart = {name: generator.permutation(of) for name, of in codes.items()}
    shown("independent", distances(codes, apart))
    pairs = expected.filter(pl.col("columns").list.len() == 2)
    print(pairs.select(pl.col("^tv_.*$").mean() * 2))


def shown(name: str, found: list[float], seconds: float = 0.0) -> None:
    """Print one line."""
    print(f"{name:14s}" + "".join(f"{of:8.4f}" for of in found) + f"{seconds:6.1f}", flush=True)


if __name__ == "__main__":
    main()
