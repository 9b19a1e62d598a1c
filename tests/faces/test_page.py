"""The page on notebooks: its cells run, and it has every option of the magics."""

from __future__ import annotations

import argparse
import re

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from dpsql.notebook import cell_parser, line_parser, unload_ipython_extension
from tests.docs.pages import ROOT, blocks, layout, numbers, read

PAGE = ROOT / "docs" / "how-to" / "use-notebooks.md"


def test_cells_run_and_show_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    monkeypatch.setattr(shell, "showtraceback", lambda *args, **kwargs: None)
    for block in blocks(PAGE):
        if block.language != "ipython":
            continue
        with capture_output() as captured:
            found = shell.run_cell(block.code, store_history=False)
        error = found.error_in_exec
        written = [s for s in captured.stdout.splitlines() if s.startswith("charged: ")]
        display, _ = shell.display_formatter.format(found.result)
        returned = [] if found.result is None else [display["text/plain"]]
        shown = "\n".join([*written, *returned] if error is None else error._render_traceback_())
        if block.shown is not None:
            assert layout(shown) == layout(block.shown), f"line {block.line}"
            if not block.noisy:
                assert numbers(shown) == pytest.approx(numbers(block.shown)), f"line {block.line}"
        else:
            assert error is None, f"line {block.line}: {error}"
    shell.user_ns["con"].close()
    unload_ipython_extension(shell)
    shell.reset()


def options(parser: argparse.ArgumentParser) -> set[str]:
    found = {name for action in parser._actions for name in action.option_strings}
    return found - {"-h", "--help"}


def test_every_option_of_the_magics_is_on_the_page_and_no_other():
    cells = re.findall(r"^\| (`--[^|]*)\|", read(PAGE), re.MULTILINE)
    documented = {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)}
    documented |= {option for cell in cells for option in re.findall(r"; `(--[a-z]+)", cell)}
    assert documented == options(line_parser()) | options(cell_parser())
