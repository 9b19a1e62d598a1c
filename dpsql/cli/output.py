"""The output of commands: aligned tables, amounts, CSV and JSON, and progress meanwhile."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from dpsql.errors import printable
from dpsql.markup import numeric, plain
from dpsql.progress import Progress, Watch

if TYPE_CHECKING:
    from decimal import Decimal

    import polars as pl
    from rich.progress import Progress as Display
    from rich.progress import TaskID

    from dpsql.privacy import Budget, Ledger


FALLBACK_WIDTH = 100
"""Columns of the terminal, where there is none."""
LEAST_WIDTH = 40
MOST_ROWS = 100
"""Rows of a frame that are printed as a table; CSV and JSON have all of them."""


def say(text: str = "") -> None:
    """Print lines to standard output, with nothing in them that could disguise them."""
    click.echo("\n".join(printable(line) for line in text.split("\n")))


def counted(number: int, what: str) -> str:
    """Say how many there are: `1 row`, `2 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def note(text: str) -> None:
    """Print lines to standard error, which is for the reader and not for the next program."""
    click.echo("\n".join(printable(line) for line in text.split("\n")), err=True)


def say_json(document: object) -> None:
    """Print one JSON document, in ASCII."""
    click.echo(json_text(document))


def json_text(document: object) -> str:
    """Write a document as JSON."""
    return json.dumps(_json(document), indent=2, allow_nan=False)


def say_frame(frame: pl.DataFrame) -> None:
    """Print the first rows of a frame as a table; its keys are repeated where it is divided.

    Values have as many digits as their standard errors leave a meaning, which stand beside them;
    CSV and JSON have all digits, and variances.
    """
    from dpsql.present.shown import ERROR, shown_rows, with_errors

    shown = with_errors(frame.head(MOST_ROWS))
    names = shown.columns
    keys = next((i for i, name in enumerate(names) if f"{name}{ERROR}" in names), 1)
    say_table(names, shown_rows(shown), keys=keys)
    if frame.height > MOST_ROWS:
        say(f"… and {frame.height - MOST_ROWS:,} more rows: take --csv or --json for all.")


def say_csv(frame: pl.DataFrame) -> None:
    """Print a frame as CSV; on a terminal without characters that could disguise it."""
    from dpsql.present.formats import csv_text

    text = csv_text(frame)
    if sys.stdout.isatty():
        say(text.removesuffix("\n"))
    else:
        click.echo(text, nl=False)


def say_table(header: Sequence[str], rows: Iterable[Sequence[object]], *, keys: int = 1) -> None:
    """Print rows below a header: numbers to the right, all else to the left.

    A table that is wider than the terminal is divided into several, one below the other, each
    with the first `keys` columns again.
    """
    from rich.cells import cell_len

    values: list[list[object]] = [list(row) for row in rows]
    texts = [list(header), *([plain(cell) for cell in row] for row in values)]
    lines = [[printable(text) for text in line] for line in texts]
    room = max(shutil.get_terminal_size((FALLBACK_WIDTH, 24)).columns, LEAST_WIDTH)
    widths = [min(max(map(cell_len, c)), room // 2) for c in zip(*lines, strict=True)]
    right = [numeric([row[i] for row in values]) for i in range(len(header))]
    for number, part in enumerate(_parts(widths, keys, room)):
        if number:
            click.echo()
        for line in lines:
            cells = (_fitted(line[i], widths[i], to_the_right=right[i]) for i in part)
            click.echo("  ".join(cells).rstrip())


def _fitted(text: str, width: int, *, to_the_right: bool) -> str:
    """Bring a text to a width, in cells of the terminal."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    space = " " * (width - cell_len(text))
    return space + text if to_the_right else text + space


def _parts(widths: Sequence[int], keys: int, room: int) -> list[list[int]]:
    """Divide columns among tables of at most `room` characters; each begins with the keys."""
    first = list(range(min(keys, len(widths))))
    if sum(widths[i] + 2 for i in first) > room // 2:  # keys that leave no room are not repeated
        first = first[:1]
    parts, used = [list(first)], sum(widths[i] + 2 for i in first)
    for i in range(len(first), len(widths)):
        if used + widths[i] > room and len(parts[-1]) > len(first):
            parts.append(list(first))
            used = sum(widths[j] + 2 for j in first)
        parts[-1].append(i)
        used += widths[i] + 2
    return parts


def _json(value: Any) -> Any:
    """Turn a value into one that JSON has; a number that isn't finite becomes null."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    return str(value)


# ── Amounts of privacy loss, in all of their forms ───────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class AccountReport:
    """A report of what was charged and what is left, for people and for machines."""

    lines: tuple[str, ...]
    document: dict[str, object]


def account(charged: Budget | None, ledger: Ledger, delta: Decimal) -> AccountReport:
    """Word a charge, and what is left of the total, if there is one."""
    from dpsql.present.account import left_of

    if charged is not None:
        charged = ledger.understood(charged)
    lines = [f"charged: {'nothing' if charged is None else budget_forms(charged, delta)}"]
    left = left_of(ledger, delta=Fraction(delta))
    lines += [] if left is None else [f"left: {left}"]
    document: dict[str, object] = {
        "charged": None if charged is None else budget_json(charged, delta),
        "remaining": amounts_json(ledger, delta)["remaining"],
    }
    return AccountReport(tuple(lines), document)


def amounts_json(ledger: Ledger, delta: Decimal) -> dict[str, dict[str, object] | None]:
    """Give what may be spent, was spent and is left; with δ if an account has any.

    ε is what is charged for it, or can be asked: beside all δ that is set aside.
    """
    total_delta, spent_delta = ledger.total_delta, ledger.spent_delta
    any_delta = bool(total_delta or spent_delta)
    amounts = {
        "total": (ledger.total, total_delta, True),
        "spent": (ledger.spent, spent_delta, True),
        "remaining": (ledger.remaining, ledger.remaining_delta, False),
    }
    return {
        name: None
        if value is None
        else as_json(
            value, delta, up=up, key_delta=key_delta if any_delta else None, aside=total_delta
        )
        for name, (value, key_delta, up) in amounts.items()
    }


def budget_forms(budget: Budget, delta: Decimal) -> str:
    """Word a budget in all forms, as it was asked first if it is pure."""
    words = forms(budget.mu_squared, delta, key_delta=budget.key_delta)
    return f"{budget}; {words}" if budget.pure else words


def budget_json(budget: Budget, delta: Decimal) -> dict[str, object]:
    """Give a budget in all forms; ε and δ as they were asked if it is pure."""
    amounts = as_json(budget.mu_squared, delta, key_delta=budget.key_delta or None)
    return {**amounts, "epsilon": float(budget.amount), "delta": 0.0} if budget.pure else amounts


def forms(mu_squared: Fraction, delta: Decimal, *, key_delta: Fraction = Fraction(0)) -> str:
    """Word an amount in all forms, rounded up."""
    from dpsql.present.account import amount

    return amount(mu_squared, up=True, delta=Fraction(delta), key_delta=key_delta)


def as_json(
    mu_squared: Fraction,
    delta: Decimal,
    *,
    up: bool = True,
    key_delta: Fraction | None = None,
    aside: Fraction | None = None,
) -> dict[str, object]:
    """Give an amount in all forms; μ² exactly, ε rounded up or down.

    Args:
        mu_squared: the amount.
        delta: where ε is shown.
        up: whether it is rounded up.
        key_delta: the δ that belongs to the amount, a part of `delta`; where that is no more, there
            is no ε. None if no δ is spent or set aside.
        aside: the δ that an account sets aside: ε is given beside that, if it is less than `delta`.
    """
    rest = Fraction(delta) - (key_delta or 0)
    if aside is not None and aside < Fraction(delta):
        rest = Fraction(delta) - aside
    return {
        "mu_squared": mu_squared,
        "rho": float(mu_squared / 2),
        "mu": math.sqrt(mu_squared),
        "epsilon": _epsilon(mu_squared, rest, up=up) if rest > 0 else None,
        "delta": float(delta),
        **({} if key_delta is None else {"key_delta": key_delta}),
    }


def _epsilon(mu_squared: Fraction, delta: Fraction, *, up: bool) -> float:
    from dpsql.privacy import Budget
    from dpsql.privacy.conversions import epsilon_of

    if up or mu_squared <= 0:
        return epsilon_of(max(mu_squared, Fraction(0)), delta)
    affordable = Budget(epsilon=1, delta=delta).at_most(mu_squared)
    return 0.0 if affordable is None else float(affordable.amount)


# ── Progress of long work, as bars on a terminal ─────────────────────────────────────────────────


class Bars(Watch):
    """A bar for each phase.

    Work of a single step has no share that is done: its bar moves on, beside the time it took.
    """

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, phase: str, done: int, of: int) -> None:
        """Draw the bar of a phase."""
        if phase not in self._tasks:
            self._tasks[phase] = self._display.add_task(phase)
        total = of if done or of > 1 else None
        self._display.update(self._tasks[phase], completed=done, total=total)

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._display.console.print(text, highlight=False, markup=False)


@contextmanager
def progress_on_terminal(wanted: Progress | bool | None) -> Iterator[Watch]:
    """Give a watch that draws bars on standard error, if they are wanted and that is a terminal."""
    if wanted is False or not sys.stderr.isatty():
        yield Watch()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Bars(display)
