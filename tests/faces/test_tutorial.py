"""The tutorial notebook runs from top to bottom, and shows what its text says."""

from __future__ import annotations

import ast
import json
import re

import nbformat
import polars as pl
import pytest

from tests.docs.pages import ROOT
from tests.faces.kernel import run_notebook

NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
pytestmark = pytest.mark.slow  # it takes long to run


@pytest.fixture(scope="module")
def executed() -> list[nbformat.NotebookNode]:
    """Run the notebook as Jupyter would; return its cells of code."""
    notebook = run_notebook(nbformat.read(NOTEBOOK, as_version=4), NOTEBOOK.parent)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(
    cells: list[nbformat.NotebookNode], beginning: str, kind: str = "text/plain"
) -> list[str]:
    """Return what the cells display whose code begins so."""
    found = [cell for cell in cells if cell.source.startswith(beginning)]
    assert found
    return [
        output.data[kind]
        for cell in found
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]


def test_it_is_kept_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_only_the_errors_that_it_announces_occur(executed):
    failed = [c for c in executed if any(o.output_type == "error" for o in c.outputs)]
    assert [o.ename for c in failed for o in c.outputs] == ["SqlSchemaError", "BudgetError"]
    for cell in failed:
        assert cell.metadata.tags == ["raises-exception"]
        assert "Traceback" not in "\n".join(cell.outputs[0].traceback)


def test_plans_come_before_anything_is_spent(executed):
    for html in shown(executed, "%%dpsql --plan", "text/html"):
        assert "planning spends nothing" in html
        assert "certified gap" in html


def test_the_account_has_one_charge_of_epsilon_one(executed):
    before, after = shown(executed, "%dpsql")
    assert before.startswith("spent: ρ = 0\n")
    assert "ε = 1 at δ = 1e-9" in after.splitlines()[0]


def test_answers_are_near_the_truth_and_agree(executed):
    truth = pl.scan_parquet(NOTEBOOK.parent / "data" / "adult.parquet").select(pl.len()).collect()
    (answer,) = shown(executed, "total = ")
    by_sex, by_age = ast.literal_eval(re.sub(r"np\.float64\((.*?)\)", r"\1", answer))
    assert by_sex == pytest.approx(truth.item(), abs=300)
    assert by_age == pytest.approx(by_sex, abs=1e-3)


def test_the_release_is_shown_as_a_card(executed):
    (html,) = shown(executed, "release", "text/html")[:1]
    for words in ("Release of 4 statements", "by_sex", "add or remove one row of adult"):
        assert words in html


def test_free_answers_and_frames_are_shown_as_frames(executed):
    assert "young" in shown(executed, "release.query")[0]
    assert "people_standard_error" in shown(executed, "%%dpsql --free")[0]
    assert "mean_age" in shown(executed, "frame = ")[0]
