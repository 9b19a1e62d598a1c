"""Rows in order of a value in DuckDB: those within a window of ranks, whatever the rows are."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from fractions import Fraction
from types import SimpleNamespace

import duckdb
import pytest

from dpsql.engines.duckdb.ranked import RankScan
from dpsql.engines.ranked import RankWindow

SPREADS = [1, 3, 50, 10**6, 2**62]
SPECIAL = [math.inf, -math.inf, 0.0, -0.0]
REACHES = [0, 1, 5, 100, 10**6, 10**30]
PROBABILITIES = [0, 1, Fraction(1, 2), Fraction(9, 10), Fraction(333, 1000), Fraction(1, 10**9)]


def within(rows, window):
    """What the statement should return, by the definition of a window: (g, v, below, upto, n)."""
    a, b, found = window.probability.numerator, window.probability.denominator, []
    for group in sorted({g for g, _ in rows}):
        values = sorted(v for g, v in rows if g == group)
        n = len(values)
        for v in sorted(set(values)):
            below, upto = bisect_left(values, v), bisect_right(values, v)
            if b * upto >= a * n - window.reach and b * below <= a * n + window.reach:
                found.append((group, v, below, upto, n))
    return found


def drawn(rng, kind, size):
    spread = rng.choice(SPREADS)
    for _ in range(size):
        g, v = rng.choice([0, 0, 0, 1, 2, 2**40]), rng.randint(-spread, spread)
        special = kind == "DOUBLE" and rng.random() < 0.2
        yield g, rng.choice(SPECIAL) if special else float(v) if kind == "DOUBLE" else v


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 30, 700])
def test_values_within_the_window_are_read_with_their_ranks(kind, size):
    """Windows of all widths, ties, groups without rows, and infinite values."""
    rng, con = random.Random(f"{kind} {size}"), duckdb.connect()  # noqa: S311
    for _ in range(3):
        rows = list(drawn(rng, kind, size))
        listed = ", ".join(f"({g}, '{v}'::{kind})" for g, v in rows)
        source = (
            f"(VALUES {listed}) x (g, v)" if rows else f"(SELECT 0, 1::{kind} LIMIT 0) x (g, v)"
        )
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT g::BIGINT AS g, v FROM {source}")
        for p, reach in zip(rng.sample(PROBABILITIES, 3), rng.sample(REACHES, 3), strict=True):
            values = SimpleNamespace(probability=Fraction(p))
            scan = RankScan(None, values, "SELECT g, v FROM t", ())  # type: ignore[arg-type]
            window = RankWindow(Fraction(p), reach)
            assert con.sql(scan.sql(window)).fetchall() == within(rows, window)
