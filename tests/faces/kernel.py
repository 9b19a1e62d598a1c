"""Runs notebooks in a kernel of their own, as Jupyter does."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.docs.pages import ROOT

QUIET = "import dpsql.progress; dpsql.progress.AFTER = float('inf')"
"""However long the work is, it is not shown: outputs must not depend on the time that it took."""


def run_notebook(
    notebook: nbformat.NotebookNode, folder: Path, *, allow_errors: bool = False
) -> nbformat.NotebookNode:
    """Run all cells with a folder as working directory, and return the notebook with outputs."""
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        allow_errors=allow_errors,
        extra_arguments=[f"--IPKernelApp.exec_lines={QUIET}"],
        resources={"metadata": {"path": str(folder)}},
    )
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Jupyter client's own are not ours to mend
        client.execute(env={**os.environ, "PYTHONPATH": path})
    return notebook


def notebook_of(*cells: str) -> nbformat.NotebookNode:
    """Make a notebook of cells of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
