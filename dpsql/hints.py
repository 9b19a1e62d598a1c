"""Hints that name arguments: each place where they are typed has its own words for these.

    "pass " + option("accept_schema", True) + " if the change is meant."

says `accept_schema=True` in Python, `--accept-schema` on the command line and in a notebook's cell.
As a string a hint is for Python; the command line and the magics ask for theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


class Hint(str):
    """A text for Python, which knows what is typed elsewhere in its place.

    Args:
        python: the text.
        command: the same for the command line; the Python by default.
        cell: the same for `%%dpsql`; as on the command line by default.
    """

    __slots__ = ("cell", "command")

    command: str
    cell: str

    def __new__(cls, python: str, command: str | None = None, cell: str | None = None) -> Hint:
        """Make a hint; see the class."""
        hint = super().__new__(cls, python)
        hint.command = python if command is None else command
        hint.cell = hint.command if cell is None else cell
        return hint

    def __add__(self, other: str) -> Hint:
        """Put a text or a hint behind it."""
        after = other if isinstance(other, Hint) else Hint(other)
        return Hint(str(self) + str(after), self.command + after.command, self.cell + after.cell)

    def __radd__(self, other: str) -> Hint:
        """Put it behind a text."""
        return Hint(other) + self


def for_command(hint: str) -> str:
    """Word a hint for the command line."""
    return hint.command if isinstance(hint, Hint) else hint


def for_cell(hint: str) -> str:
    """Word a hint for `%%dpsql`."""
    return hint.cell if isinstance(hint, Hint) else hint


FREE = Hint("budget=0", "--free")
"""To spend nothing."""
ANY_BUDGET = Hint(
    "budget=dpsql.Budget(epsilon=1, delta=1e-9), or rho=0.5, or mu=1",
    "--epsilon 1 --delta 1e-9, or --rho 0.5, or --mu 1",
)
"""A budget in any form."""
NO_REUSE = Hint("reuse=False", "--no-reuse")
"""To leave earlier measurements out of account."""


_PLURAL = {"max_rows"}
"""Options of several that are typed as in Python; of others one is typed at a time."""


def option(name: str, value: object = None) -> Hint:
    """Name an argument, with a value to pass: True for a switch, a list or mapping for several."""
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return Hint(f"{name}=", flag)
    if value is True:
        return Hint(f"{name}=True", flag)
    if isinstance(value, Mapping):
        given = [f"{key}={item}" for key, item in value.items()]
        flag = flag if name in _PLURAL else flag.removesuffix("s")
    else:
        given = [*map(str, value)] if isinstance(value, (list, tuple)) else [str(value)]
    shown = json.dumps(value, ensure_ascii=False)
    return Hint(f"{name}={shown}", " ".join(f"{flag} {word(item)}" for item in given))


def budget(**amounts: object) -> Hint:
    """Write a budget: `budget(epsilon=1, delta="1e-9")`."""
    stated = ", ".join(f"{name}={value}" for name, value in amounts.items())
    typed = " ".join(f"--{name} {value}" for name, value in amounts.items())
    return Hint(f"dpsql.Budget({stated})", typed)


def spend(**amounts: object) -> Hint:
    """Name the argument for a budget, with one."""
    return Hint("budget=", "") + budget(**amounts)


def call(python: str, *arguments: str) -> Hint:
    """Name a call: a method in Python, the command or magic of the same name elsewhere."""
    name = python.rpartition(".")[2]
    magic = "%%dpsql --plan" if name == "plan" else "%%dpsql"
    found = Hint(f"{python}(…", f"dpsql {name}", magic)
    for argument in arguments:
        found = found + Hint(", ", " ") + argument
    return found + Hint(")", "")


def word(text: str) -> str:
    """Write a value as one word of a command line."""
    plain = bool(text) and all(c.isalnum() or c in "._=+-/:" for c in text)
    return text if plain else "'" + text.replace("'", "'\\''") + "'"
