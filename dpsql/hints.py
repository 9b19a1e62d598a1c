"""Hints: what an error says to do, and what of it can be typed as it stands.

    "did you mean " + instead("age") + "?"

is a text for people, and carries what is to be typed (`Remedy`): here a name in place of what the
error marks. Tests type the remedies of all refusals, so that text and remedy are one thing.

Arguments have other words in each place where they are typed:

    "pass " + option("accept_schema", True) + " if the change is meant."

says `accept_schema=True` in Python, `--accept-schema` on the command line and in a notebook's cell.
As a string a hint is for Python; the command line and the magics ask for theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class RemedyPlace(StrEnum):
    """Place where a remedy is typed."""

    MARKED = "marked"
    """In the statement, in place of a part of it: of what the error marks, unless it says which."""
    STATEMENT = "statement"
    """As a statement: `…` stands for what the marked SELECT has from FROM to before GROUP BY."""
    GROUP_BY = "group by"
    """Behind GROUP BY of the marked SELECT, in place of what stands there."""
    ARGUMENT = "argument"
    """As an argument of the session or the call; a mapping adds to the one that was passed."""
    DATABASE = "database"
    """As a statement of the data owner, in the database."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """Remedy of an error: a text that a hint says to type, and where."""

    place: RemedyPlace
    text: str
    span: tuple[int, int] | None = None
    """The part of the statement that is meant, if that is not what is marked."""


class Hint(str):
    """A text for Python, which knows what is typed elsewhere in its place.

    Args:
        python: the text.
        command: the same for the command line; the Python by default.
        cell: the same for `%%dpsql`; as on the command line by default.
        remedies: what of it is to be typed as it stands: each by itself does what the hint is for.
        choices: hints of which the first is meant that works, see `first_that_works`.
    """

    __slots__ = ("cell", "choices", "command", "remedies")

    command: str
    cell: str
    remedies: tuple[Remedy, ...]
    choices: tuple[Hint, ...]

    def __new__(
        cls,
        python: str,
        command: str | None = None,
        cell: str | None = None,
        remedies: tuple[Remedy, ...] = (),
        choices: tuple[Hint, ...] = (),
    ) -> Hint:
        """Make a hint; see the class."""
        hint = super().__new__(cls, python)
        hint.command = python if command is None else command
        hint.cell = hint.command if cell is None else cell
        hint.remedies = remedies
        hint.choices = choices
        return hint

    def __add__(self, other: str) -> Hint:
        """Put a text or a hint behind it."""
        after = other if isinstance(other, Hint) else Hint(other)
        return Hint(
            str(self) + str(after),
            self.command + after.command,
            self.cell + after.cell,
            self.remedies + after.remedies,
        )

    def __radd__(self, other: str) -> Hint:
        """Put it behind a text."""
        return Hint(other) + self


def instead(text: str, *, of: tuple[int, int] | None = None) -> Hint:
    """Name what is written in place of what an error marks, or of another part of the SQL."""
    return Hint(text, remedies=(Remedy(RemedyPlace.MARKED, text, of),))


def write(text: str, *, of: tuple[int, int] | None = None) -> Hint:
    """Say what to write in place of what an error marks, or of another part of the SQL."""
    return "write " + instead(text, of=of) + "."


def first_that_works(choices: Iterable[Hint], otherwise: str) -> Hint:
    """Name hints to be tried, in this order, before one is given; another if none works.

    Each has one remedy, which is typed into the statement.
    """
    other = otherwise if isinstance(otherwise, Hint) else Hint(otherwise)
    return Hint(other, other.command, other.cell, other.remedies, tuple(choices))


def leave_out(*, of: tuple[int, int] | None = None) -> Hint:
    """Say that what an error marks, or another part of the SQL, is to be left out."""
    return Hint("leave it out", remedies=(Remedy(RemedyPlace.MARKED, "", of),))


def never(why: str) -> Hint:
    """Say that nothing can be typed, as there is no way to what is asked; and why."""
    return Hint(f"this can't be released: {why}")


def ask(statement: str) -> Hint:
    """Name a statement; `…` in it stands for FROM, joins and WHERE of what was asked."""
    return Hint(statement, remedies=(Remedy(RemedyPlace.STATEMENT, statement),))


def group_by(keys: str, *, of: tuple[int, int] | None = None) -> Hint:
    """Name what is to be grouped by: in the SELECT around what is marked, or around a part."""
    return Hint(f"GROUP BY {keys}", remedies=(Remedy(RemedyPlace.GROUP_BY, keys, of),))


def run(statement: str) -> Hint:
    """Name a statement that the data owner runs in the database."""
    return Hint(statement, remedies=(Remedy(RemedyPlace.DATABASE, statement),))


def remedies_of(hint: str | None) -> tuple[Remedy, ...]:
    """Return what a hint says to type."""
    return hint.remedies if isinstance(hint, Hint) else ()


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
COUNTED = "count rows, " + ask("SELECT COUNT(*) AS n …") + ", by what they are grouped by."
"""In place of single rows."""
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
        return Hint(f"{name}=True", flag, remedies=_argument(f"{name}=True"))
    if isinstance(value, Mapping):
        given = [f"{key}={item}" for key, item in value.items()]
        flag = flag if name in _PLURAL else flag.removesuffix("s")
    else:
        given = [*map(str, value)] if isinstance(value, (list, tuple)) else [str(value)]
    shown = json.dumps(value, ensure_ascii=False)
    written = f"{name}={shown}"
    typed = " ".join(f"{flag} {word(item)}" for item in given)
    return Hint(written, typed, remedies=_argument(written))


def passed(name: str, code: str, command: str, cell: str) -> Hint:
    """Say to pass an argument, of which the code is known; and what else is done elsewhere."""
    return Hint(f"pass {name}={code}.", command, cell, _argument(f"{name}={code}"))


def _argument(written: str) -> tuple[Remedy, ...]:
    return (Remedy(RemedyPlace.ARGUMENT, written),)


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
