"""Hints in three places: Python, the command line and a notebook's cell."""

from __future__ import annotations

import ast
import pickle
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from dpsql import notebook
from dpsql.cli import main
from dpsql.hints import ANY_BUDGET, FREE, NO_REUSE, Hint, call, for_cell, for_command, option, spend

PACKAGE = Path(__file__).parents[2] / "dpsql"


@pytest.mark.parametrize(
    ("hint", "python", "command"),
    [
        (option("ledger"), "ledger=", "--ledger"),
        (option("accept_schema", True), "accept_schema=True", "--accept-schema"),
        (option("max_rows", 3), "max_rows=3", "--max-rows 3"),
        (option("public", ["airlines", "zones"]),
         'public=["airlines", "zones"]', "--public airlines --public zones"),
        (option("targets", {"by sex": 25}), 'targets={"by sex": 25}', "--target 'by sex=25'"),
        (spend(epsilon=1, delta="1e-9"),
         "budget=dpsql.Budget(epsilon=1, delta=1e-9)", "--epsilon 1 --delta 1e-9"),
        (call("session.release", FREE), "session.release(…, budget=0)", "dpsql release --free"),
        ("leave " + FREE + " out", "leave budget=0 out", "leave --free out"),
        ("no argument", "no argument", "no argument"),
    ],
)  # fmt: skip
def test_each_place_has_its_own_words(hint, python, command):
    assert str(hint) == python
    assert for_command(hint) == command
    assert shlex.split(for_command(hint))


def test_a_cell_has_magics_and_no_commands():
    assert for_cell(call("session.plan")) == "%%dpsql --plan"
    assert for_cell("try " + call("session.release", FREE)) == "try %%dpsql --free"
    assert for_cell("plain") == "plain"


def test_a_hint_survives_being_copied():
    hint = "pass " + FREE
    again = pickle.loads(pickle.dumps(hint))  # noqa: S301
    assert (again, again.command, again.cell) == (hint, hint.command, hint.cell)


def every_option(group: click.Group) -> Iterator[str]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from every_option(command)
        for parameter in command.params:
            yield from parameter.opts


def named() -> set[str]:
    """Give the arguments that hints name anywhere in the library."""
    found = set()
    for path in set(PACKAGE.rglob("*.py")) - {PACKAGE / "hints.py"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = node.func if isinstance(node, ast.Call) else None
            if isinstance(function, ast.Name) and function.id == "option":
                assert isinstance(node, ast.Call)
                found |= {a.value for a in node.args[:1] if isinstance(a, ast.Constant)}
    return found


def test_the_options_that_hints_name_exist_on_the_command_line_and_in_cells():
    names = named()
    assert len(names) > 8
    constants = [ANY_BUDGET, FREE, NO_REUSE]
    repeated = ("weight", "target", "reference")
    flags = {f"--{name.replace('_', '-')}" for name in names} - {f"--{one}s" for one in repeated}
    flags |= {f"--{one}" for one in repeated}
    flags |= {w.strip(",") for h in constants for w in h.command.split() if w.startswith("--")}
    cells = {o for a in notebook.cell_parser()._actions for o in a.option_strings}
    assert flags <= set(every_option(main))
    lines = {o for a in notebook.line_parser()._actions for o in a.option_strings}
    # Of `dpsql rows`, `dpsql show` and `dpsql report`, for which there are no magics.
    assert flags - cells - lines == {"--up-to", "--overwrite", "--title", "--max-bytes", "--style"}


def test_only_hints_know_of_places():
    assert isinstance("a" + Hint("b"), Hint)
    assert not isinstance("a" + "b", Hint)
