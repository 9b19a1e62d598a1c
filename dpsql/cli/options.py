"""Options that several commands share, each group handed over as one object."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import click

from dpsql.flags import (
    BUDGET,
    FLAGS,
    bound,
    bounds_of,
    exact_number,
    key,
    keys_of,
    named_number,
    one_of,
    spelling,
    weight,
    weights_of,
    whole_number,
)
from dpsql.request import SessionOptions

if TYPE_CHECKING:
    from dpsql.privacy import Budget

Command = TypeVar("Command", bound=Callable[..., Any])
Rows: TypeAlias = "str | dict[str, str]"
"""A path or a pattern of files, or several by the names of tables."""
DELTA = Decimal("1e-9")
"""The δ at which amounts are shown, unless another one is given."""


class Typed(click.ParamType[Any]):
    """A type of option: a function reads it from a text, or refuses it with a ValueError.

    Args:
        name: what is read, for the help.
        read: the function.
    """

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name, self._read = name, read

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Read a text; a wrong one ends in a usage error."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


AMOUNT = Typed("number", exact_number)


def by_name(pairs: tuple[tuple[str, float], ...], option: str) -> dict[str, float] | None:
    """Make a mapping of repeated options; None if there is none."""
    values = dict(pairs)
    if len(values) < len(pairs):
        raise click.UsageError(f"{option} names a statement twice.")
    return values or None


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """A budget as options, in one of its three forms."""

    epsilon: Decimal | None
    delta: Decimal | None
    rho: Decimal | None
    mu: Decimal | None

    @property
    def shown_delta(self) -> Decimal:
        """The δ at which amounts are shown."""
        return self.delta or DELTA  # a pure budget has a δ of 0, at which no sum has an ε

    def budget(self) -> Budget | None:
        """Make the budget; None if none is given.

        Raises:
            click.UsageError: more than one form, or ε without δ.
            BudgetError: the number is not a useful amount.
        """
        from dpsql.privacy import Budget

        given = [n for n in (self.epsilon, self.rho, self.mu) if n is not None]
        if len(given) > 1:
            raise click.UsageError(
                "Give one form of budget: --epsilon with --delta, or --rho, or --mu."
            )
        if self.epsilon is not None:
            if self.delta is None:
                raise click.UsageError("--epsilon needs --delta, for example --delta 1e-9.")
            return Budget(epsilon=self.epsilon, delta=self.delta)
        if self.rho is not None:
            return Budget(rho=self.rho)
        return None if self.mu is None else Budget(mu=self.mu)

    def needed(self) -> Budget:
        """Make the budget.

        Raises:
            click.UsageError: as in `budget`, and if none is given.
            BudgetError: the number is not a useful amount.
        """
        budget = self.budget()
        if budget is None:
            raise click.UsageError("Give a budget: --epsilon with --delta, or --rho, or --mu.")
        return budget


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Private data, and what is declared about it."""

    db: Rows
    declared: SessionOptions


def check_budget(
    budget: Budget | None, *, targets: bool = False, free: bool = False, at_most: bool = False
) -> None:
    """Refuse a missing budget, and two ways of giving one.

    Raises:
        click.UsageError: there is none, or more than one.
    """
    if at_most and (not targets or budget is None):
        raise click.UsageError(
            "--at-most is for --target and a budget: --target n=3 --at-most --rho 0.5."
        )
    if targets and budget is not None and not at_most:
        raise click.UsageError(
            "--target asks for the least budget: leave the budget out. In a release, "
            "--at-most says that it is the most."
        )
    if not free and not targets and budget is None:
        raise click.UsageError(
            "Give a budget (--epsilon with --delta, or --rho, or --mu), or --target."
        )


def check_free(*, free: bool, other: bool) -> None:
    """Refuse --free beside an option that it excludes.

    Raises:
        click.UsageError: there is one.
    """
    if free and other:
        raise click.UsageError(
            "--free spends nothing, and rests on past measurements: leave the budget, --target "
            "and --no-reuse out."
        )


class LedgerPlace(click.Path):
    """A ledger's file, or the address of the server that has it, which stays as it is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a path, unless it is an address."""
        from dpsql.privacy import is_address

        return value if is_address(value) else super().convert(value, param, ctx)


class RowsPlace(click.ParamType[Any]):
    """A path or a pattern of files, or name=path."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Read a name, empty if there is none, and a path."""
        if isinstance(value, tuple):
            return cast("tuple[str, str]", value)
        name, equals, path = value.partition("=")
        if os.path.exists(value) or not equals or not name.isidentifier():
            name, path = "", value
        if not os.path.exists(path) and not any(sign in path for sign in "*?["):
            self.fail(f"There is no file {path}.", param, ctx)
        return name, path


def rows_of(ctx: click.Context, param: click.Parameter, given: Any) -> Rows | None:
    """Return the path that is given; or several by their names."""
    paths = [*(given or ())]
    if len(paths) == 1 and not paths[0][0]:
        return cast(str, paths[0][1])
    if not all(name for name, _ in paths) or len(dict(paths)) < len(paths):
        raise click.BadParameter("several are given as --db name=path each.", ctx, param)
    return dict(paths) or None


def only_rows(ctx: click.Context, param: click.Parameter, given: Any) -> Rows | None:
    """Return the same of an argument, which is given once at most."""
    return rows_of(ctx, param, [] if given is None else [given])


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_STATEMENT = re.compile(r"\s*(?:select|with|from)\s", re.IGNORECASE)


def is_sql(script: str) -> bool:
    """Whether a SCRIPT is SQL itself, and no file's path."""
    return bool(_STATEMENT.match(script)) and not os.path.exists(script)


class ScriptPlace(click.Path):
    """A file or a folder of statements, `-` for standard input, or SQL itself."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Take SQL as it is, and check that anything else exists."""
        return value if is_sql(value) else super().convert(value, param, ctx)


SCRIPT = ScriptPlace(exists=True, allow_dash=True)
_TYPES: Mapping[str, Any] = {
    "schema": FILE,
    "ledger": LedgerPlace(dir_okay=False, path_type=Path),
    "bounds": Typed("whole number", bound),
    "whole": Typed("whole number", whole_number),
    "number": float,
    "amount": AMOUNT,
    "pairs": Typed("name=number", named_number),
    "weights": Typed("name=number", weight),
    "keys": Typed("column=column", key),
    "share": AMOUNT,
}
"""Option, or kind of flag, → what click reads it as; else it is text."""
_DECLARED = {*SessionOptions.__annotations__, "each_row"} - {"dataset", "version"}
"""Rows that commands ask are in a file, which needs no name and has no versions."""

ROWS = "The private rows: a file of CSV, Parquet or DuckDB, a folder, or a pattern in quotes."


def rows_option(*, required: bool = True, what: str = ROWS) -> Callable[[Any], Any]:
    """Make the option that names private rows, as one path or several with names."""
    return click.option(
        "--db",
        type=RowsPlace(),
        multiple=True,
        required=required,
        callback=rows_of,
        metavar="PATH",
        help=f"{what} Of several each as name=PATH.",
    )


db_option = rows_option()
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; errors as JSON too."
)
max_bytes = click.option(
    "--max-bytes",
    type=int,
    metavar="N",
    help="How large a report may be, 10000000 by default: beyond that it leaves parts out.",
)
style = click.option(
    "--style",
    type=click.Choice(["plain", "office"]),
    default="plain",
    help="How a report's tables are written: plain, or as statistics offices publish them.",
)


def most_bytes(given: int | None) -> int:
    """Return how large a report may be."""
    from dpsql.present.disk import MOST_BYTES

    return MOST_BYTES if given is None else given


def typed(name: str) -> Callable[[Any], Any]:
    """Make the option of a command that `dpsql.flags` describes."""
    flag = FLAGS[name]
    more: dict[str, Any]
    if flag.kind in {"switch", "off"}:
        more = {"is_flag": True}
    elif flag.kind == "choice":
        choice = click.Choice(flag.choices)
        more = {"type": choice, "default": flag.choices[0], "show_default": True}
    else:
        more = {"type": _TYPES.get(flag.kind, _TYPES.get(name)), "metavar": flag.metavar}
        more["multiple"] = flag.kind in {"texts", "pairs", "weights", "single", "bounds", "keys"}
    return click.option(spelling(name), name, help=flag.help, **more)


def amounts(command: Command) -> Command:
    """Give a command the options of a budget, as `amounts`."""
    return gathered("amounts", _typed(BUDGET), lambda given: BudgetOptions(**given), command)


def source(command: Command) -> Command:
    """Give a command the options of a database, as `source`."""
    return gathered("source", {"db": db_option, **_typed(_DECLARED)}, _source, command)


def taking(kind: type) -> Callable[[Command], Command]:
    """Give a command all of a call's options that can be typed, as `asked`."""
    return lambda command: gathered("asked", _typed(kind.__annotations__), _present, command)


def _typed(names: Collection[str]) -> dict[str, Callable[[Any], Any]]:
    return {name: typed(name) for name in FLAGS if name in names}


def _source(given: dict[str, Any]) -> DatabaseOptions:
    each_row = given.pop("each_row")
    beside = ("unit", "max_rows", "references", "max_groups", "max_values")
    units = any(given[name] for name in beside)
    if each_row and units:
        raise click.UsageError(
            "--each-row is for tables without --unit and --max-rows: leave it out, or these."
        )
    if each_row:
        from dpsql.schema import EACH_ROW

        given["unit"] = EACH_ROW
    return DatabaseOptions(given.pop("db"), cast("SessionOptions", _present(given)))


def _present(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were typed, as they are given in Python."""
    arguments = {name: _argument(name, value) for name, value in given.items()}
    return {name: value for name, value in arguments.items() if value is not None}


def _argument(name: str, value: Any) -> Any:
    kind = FLAGS[name].kind
    if kind == "pairs":
        return by_name(value, spelling(name))
    if kind == "texts":
        return list(value) or None
    if kind in _READ:
        try:
            return _READ[kind](value)
        except ValueError as error:
            raise click.UsageError(f"{spelling(name)}: {error}.") from None
    if kind == "share" and value is not None:
        from dpsql.privacy.finding import RULES

        return RULES[name](value)
    if kind == "single" and isinstance(value, tuple):
        return one_of(value)
    return not value if kind == "off" else value


_READ: dict[str, Callable[[Any], Any]] = {
    "bounds": bounds_of,
    "weights": weights_of,
    "keys": keys_of,
}
"""Kind of option → the reader of its values, whose ValueErrors say what is wrong."""


def gathered(
    name: str,
    options: Mapping[str, Callable[[Any], Any]],
    gather: Callable[[dict[str, Any]], Any],
    command: Command,
) -> Command:
    """Add options, and hand their values over as one object."""

    @wraps(command)
    def call(**given: Any) -> Any:
        values = {option: given.pop(option) for option in options}
        return command(**{name: gather(values)}, **given)

    decorated: Any = call
    for option in reversed([*options.values()]):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
