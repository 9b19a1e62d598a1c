"""A few rows of the published tables, as the example prints them."""

from __future__ import annotations

import contextlib
import io

import pytest

from examples import paper_tables
from examples.paper_tables import PUBLISHED, TABLES, build, plan_row, run

UNCHANGED = {"marginal", "circular"}
"""Families for which uniform residuals are best."""


@pytest.fixture(scope="module")
def printed() -> list[list[str]]:
    """All quick rows, planned in this process: one takes longer to start than most rows."""
    told = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(told):
        patch.setattr(paper_tables, "run", lambda t, i: plan_row(t, PUBLISHED[f"table{t}"][i]))
        patch.setattr("sys.argv", ["paper_tables.py", "--quick"])
        paper_tables.main()
    lines = [line for line in told.getvalue().splitlines() if line.startswith("| ")]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines if "row" not in line]


@pytest.mark.slow
def test_quick_rows_are_as_published_or_better(printed):
    compared = [row for row in printed if "," in row[5]]
    assert len(compared) >= 6
    for label, _, published, uniform, weighted, gaps, _, _ in compared:
        assert float(uniform) <= float(published) * 1.0005, label
        assert max(map(float, gaps.split(","))) <= 1e-3, label
        if UNCHANGED & set(label.split()):
            assert float(weighted) == float(uniform)
        else:
            assert float(weighted) < float(uniform)


@pytest.mark.slow
def test_quick_times_have_their_columns(printed):
    timed = [row for row in printed if "," not in row[5]]
    assert [len(row) for row in timed] == [8, 8]
    assert all(float(row[7]) <= 1e-3 for row in timed)


def test_a_row_in_a_process_of_its_own_is_planned_alike():
    row, quick = PUBLISHED["table6"][0], ("queries", "uniform", "uniform gap")
    alone, here = run(6, 0), plan_row(6, row)
    assert [alone[k] for k in quick] == [here[k] for k in quick]
    assert alone["uniform MB"] > 0


@pytest.mark.parametrize("table", [t for t in TABLES if t != 8])
def test_every_small_row_has_the_published_number_of_queries(table):
    rows = [r for r in PUBLISHED[f"table{table}"] if "queries" in r and r.get("n", 10) <= 10]
    for row in rows:
        assert build(table, row).count == row["queries"]
