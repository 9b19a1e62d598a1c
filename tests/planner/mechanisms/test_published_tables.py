"""The published errors of ResidualPlanner+ and Weighted Fourier Factorizations, reproduced."""

from __future__ import annotations

import pytest

from tests.benchmarks.published_tables import PUBLISHED, TABLES, cells

ROWS = [(table, row) for table in TABLES for row in PUBLISHED[f"table{table}"]]
QUICK = [
    (table, row)
    for table, row in ROWS
    if row.get("n", 10) == 10 and row.get("d", 10) == 10 and row.get("schema", "CPS") == "CPS"
]


def _label(value) -> str:
    if isinstance(value, int):
        return f"table{value}"
    return "-".join(str(value[k]) for k in ("schema", "ways", "family", "n", "d") if k in value)


@pytest.mark.parametrize(("table", "row"), QUICK, ids=_label)
def test_small_rows_are_reproduced(table, row):
    _check(table, row)


@pytest.mark.long
@pytest.mark.parametrize(("table", "row"), [pair for pair in ROWS if pair not in QUICK], ids=_label)
def test_every_row_is_reproduced(table, row):
    _check(table, row)


def _check(table, row):
    found = list(cells(table, row))
    assert found
    for cell in found:
        assert cell.reproduced, f"{cell.label}: {cell.ours} for {cell.published}"


def test_exceptions_are_rows_of_the_tables():
    """An exception that matches no row would excuse nothing, and hide a typing mistake."""
    matched = [
        cell.exception
        for table, row in ROWS
        if table == 2 and row["schema"] in ("Adult", "Loans") and row["ways"] in ("2", "<=3")
        for cell in cells(table, row)
        if cell.exception
    ]
    assert sorted(map(str, matched)) == sorted(map(str, PUBLISHED["exceptions"]))
