"""The reference page has every command and option, and no other."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

import click
import pytest

from dpsql.cli import main
from dpsql.cli.application import Exit
from tests.docs.pages import ROOT, read

PAGE = read(ROOT / "docs" / "reference" / "cli.md")
GROUPS = ("Database options", "Budget options", "Plan options")


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    for command in group.commands.values():
        yield f"{name} {command.name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {command.name}")


COMMANDS = dict(commands(main, "dpsql"))


def section(title: str) -> str:
    """Give a heading, which may name arguments too, and the text below it."""
    heading = rf"^#+ `?{re.escape(title)}(?: \[?[A-Z][^\n]*|`)?\n"
    (match,) = re.finditer(rf"{heading}(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return match[0]


def documented(name: str) -> set[str]:
    """Give the options in a command's section, and in the shared ones that it names."""
    text = section(name)
    shared = [g for g in GROUPS if f"[{g.lower()}]" in " ".join(text.lower().split())]
    rows = "\n".join([text, *map(section, shared)])
    cells = re.findall(r"^\| (`--[^|]*)\|", rows, re.M)
    return {option for cell in cells for option in re.findall(r"`(--[a-z-]+)", cell)}


def options(command: click.Command) -> set[str]:
    return {
        next(o for o in parameter.opts if o.startswith("--"))
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_on_the_page(name):
    assert documented(name) == options(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_is_in_the_heading(name):
    heading = section(name).splitlines()[0]
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Argument):
            shown = parameter.metavar or parameter.name.upper()
            assert shown in heading, f"{heading} lacks {shown}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_does(name):
    assert COMMANDS[name].help
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


def test_the_page_has_no_other_command():
    headings = re.findall(r"^#+ `(dpsql [a-z ]*[a-z])", PAGE, re.M)
    assert set(headings) == set(COMMANDS)


def test_every_exit_code_is_on_the_page():
    codes = re.findall(r"^\| (\d+) \|", PAGE, re.M)
    assert sorted(map(int, codes)) == sorted(Exit)


LIGHT = (
    "dpsql.cli", "dpsql.engines.interrupts", "dpsql.errors", "dpsql.flags", "dpsql.hints",
    "dpsql.markup", "dpsql.planner.plans.traits", "dpsql.progress", "dpsql.request",
)  # fmt: skip


@pytest.mark.parametrize(
    "path", sorted((ROOT / "dpsql" / "cli").rglob("*.py")), ids=lambda p: p.name
)
def test_help_needs_nothing_heavy(path):
    """Whatever is imported at the top of a file is loaded by `dpsql --help` too."""
    for node in ast.parse(read(path)).body:
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dpsql"):
            assert node.module.startswith(LIGHT), node.module
        elif isinstance(node, ast.Import | ast.ImportFrom):
            named = (
                [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            top = {name.split(".")[0] for name in named}
            assert top <= {"click", *sys.stdlib_module_names}
