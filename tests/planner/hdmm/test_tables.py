"""HDMM's published errors are reproduced."""

from __future__ import annotations

import pytest

from dpsql.planner.strategies.whole import solve_whole
from tests.benchmarks.hdmm_tables import CHECKS, LARGE, PUBLISHED, one_attribute

SAMPLE = {
    "one_attribute": lambda row: row["n"] <= 64 or (row["noise"] == "gaussian" and row["n"] <= 256),
    "several_attributes": lambda row: row["schema"] == "CPS" or row["noise"] == "gaussian",
    "union": lambda row: row["schema"] == "CPS" or row["ways"] == "1",
    "product": lambda row: row["n"] == 10,
}
ROWS = [(table, row) for table in CHECKS for row in PUBLISHED[table]]
QUICK = [(table, row) for table, row in ROWS if SAMPLE[table](row)]
SLOW = [(table, row) for table, row in ROWS if not SAMPLE[table](row)]


def label(value) -> str:
    if isinstance(value, str):
        return value
    return "-".join(str(v) for k, v in value.items() if not isinstance(v, float) and k != "queries")


def check(table, row):
    numbers = list(CHECKS[table](row))
    assert numbers
    for number in numbers:
        assert number.holds, number


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("table", "row"), QUICK, ids=label)
def test_some_rows(table, row):
    check(table, row)


@pytest.mark.long
@pytest.mark.parametrize(("table", "row"), SLOW, ids=label)
def test_all_other_rows(table, row):
    check(table, row)


GAUSSIAN = [row for row in PUBLISHED["one_attribute"] if row["noise"] == "gaussian"]


def least_standard_error(row) -> float:
    workload = one_attribute(row["workload"], row["n"])
    _, solution = solve_whole(workload, 1e-6)
    return 4.2247 * (solution.upper / workload.count) ** 0.5


@pytest.mark.parametrize("row", [r for r in GAUSSIAN if r["n"] < LARGE], ids=label)
def test_the_whole_domain_at_once_does_no_worse(row):
    assert least_standard_error(row) <= row["opt_0"] + 0.0051


@pytest.mark.long
@pytest.mark.parametrize("row", [r for r in GAUSSIAN if r["n"] > LARGE], ids=label)
def test_the_whole_domain_at_once_does_no_worse_over_1024_cells(row):
    assert least_standard_error(row) <= row["opt_0"] + 0.0051
