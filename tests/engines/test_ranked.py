"""Rows in order of a value in DuckDB: those within a window of ranks, whatever the rows are."""

from __future__ import annotations

import math
import random
import sys
from bisect import bisect_left, bisect_right
from fractions import Fraction
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest

from dpsql.engines.duckdb.ranked import RankScan
from dpsql.engines.ranked import RankWindow
from dpsql.linalg.floats import place_of, single_place_of
from dpsql.rel.ranked import ValueLine
from dpsql.rows.types import RowType

SPREADS = [1, 3, 50, 10**6, 2**62]
LARGEST, NEAREST = (float(np.float32(v)) for v in (np.finfo(np.float32).max, 0.1))
SPECIAL = [math.inf, -math.inf, 0.0, -0.0, 5e-324, -1.5, 0.1, 1e-40, 16777217.0, 1e300]
REACHES = [0, 1, 5, 100, 10**6, 10**30]
PROBABILITIES = [0, 1, Fraction(1, 2), Fraction(9, 10), Fraction(333, 1000), Fraction(1, 10**9)]
ENDS = {
    "BIGINT": [(-(2**63), 2**63 - 1), (-2, 1), (3, 3), (2**62, 2**62 + 1), (-(2**63), 0)],
    "DOUBLE": [(-sys.float_info.max, sys.float_info.max), (-1.25, 0.5), (0.0, 0.1), (-0.0, 5e-324)],
    "SINGLE": [(-LARGEST, LARGEST), (-1.25, 0.5), (0.0, NEAREST), (-1e-40, 16777217.0)],
}


def within(rows, windows, low, high, kind):
    """What the statement should return, by the definition of a window: (g, v, below, upto, n)."""
    found = []

    def place(v):
        v = min(max(v, low), high)
        return float(np.float32(v)) if kind == "SINGLE" else v

    for group in sorted({g for g, _ in rows}):
        values = sorted(place(v) for g, v in rows if g == group)
        n = len(values)
        for v in sorted(set(values)):
            below, upto = bisect_left(values, v), bisect_right(values, v)
            for window in windows:
                a, b = window.probability.as_integer_ratio()
                if b * upto >= a * n - window.reach and b * below <= a * n + window.reach:
                    found.append((group, v, below, upto, n))
                    break
    return found


def drawn(rng, kind, size):
    spread = rng.choice(SPREADS)
    for _ in range(size):
        g, v = rng.choice([0, 0, 0, 1, 2, 2**40]), rng.randint(-spread, spread)
        special = kind != "BIGINT" and rng.random() < 0.3
        yield g, rng.choice(SPECIAL) if special else v if kind == "BIGINT" else float(v)


def scan_of(kind, low, high):
    if kind == "BIGINT":
        line = ValueLine(RowType(kind), low, high)
    else:
        place = single_place_of if kind == "SINGLE" else place_of
        line = ValueLine(RowType("DOUBLE"), place(low), place(high), kind == "SINGLE")
    values = SimpleNamespace(line=line)
    return RankScan(None, values, "SELECT g, v FROM t", ())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 30, 700])
def test_values_within_windows_are_read_with_their_ranks(kind, size):
    """Windows of all widths, ties, groups without rows, values beyond the line, infinite ones."""
    rng, con = random.Random(f"{kind} {size}"), duckdb.connect()  # noqa: S311
    stored = "BIGINT" if kind == "BIGINT" else "DOUBLE"
    for ends in ENDS[kind]:
        rows = list(drawn(rng, kind, size))
        listed = ", ".join(f"({g}, '{v}'::{stored})" for g, v in rows)
        source = (
            f"(VALUES {listed}) x (g, v)" if rows else f"(SELECT 0, 1::{stored} LIMIT 0) x (g, v)"
        )
        con.execute(f"CREATE OR REPLACE TABLE t AS SELECT g::BIGINT AS g, v FROM {source}")
        of = zip(rng.sample(PROBABILITIES, 3), rng.sample(REACHES, 3), strict=True)
        each = [RankWindow(Fraction(p), reach) for p, reach in of]
        scan = scan_of(kind, *ends)
        for windows in (each, each[:1]):
            assert con.sql(scan.sql(windows)).fetchall() == within(rows, windows, *ends, kind)


def test_values_that_are_rounded_to_one_are_counted_together():
    """As values beyond an end are: else they would have one place and several ranks."""
    con, scan = duckdb.connect(), scan_of("SINGLE", -100.0, 100.0)
    near = "19.99 + range * 1e-12 * (1 - 2 * (range % 2))"
    con.execute(f"CREATE TABLE t AS SELECT 0::BIGINT AS g, {near} AS v FROM range(100_000)")
    found = con.sql(scan.sql([RankWindow(Fraction(1, 2), 3)])).fetchall()
    assert found == [(0, float(np.float32(19.99)), 0, 100_000, 100_000)]


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE"])
@pytest.mark.parametrize("end", [-5, 5])
def test_values_beyond_an_end_are_one_value_before_ranks(kind, end):
    """Else a row more would move those that a window cuts off, and all that are told by them."""
    con, sign, scan = duckdb.connect(), 1 if end > 0 else -1, scan_of(kind, -5, 5)
    far = f"({sign} * (5 + range))::{kind}"
    con.execute(f"CREATE TABLE t AS SELECT 0::BIGINT AS g, {far} AS v FROM range(200_000)")
    for p in (0.1, 0.5, 0.9):
        found = con.sql(scan.sql([RankWindow(Fraction(str(p)), 3)])).fetchall()
        assert found == [(0, end, 0, 200_000, 200_000)]
