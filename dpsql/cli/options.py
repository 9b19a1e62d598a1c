"""Options that several commands share, each group handed over as one object."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from dpsql.planner.plans.traits import MECHANISMS, QUERYSMASHER

if TYPE_CHECKING:
    from dpsql.privacy import Budget
    from dpsql.schema import EachRow

Command = TypeVar("Command", bound=Callable[..., Any])
DELTA = Decimal("1e-9")
"""The δ at which amounts are shown, unless another one is given."""


class Amount(click.ParamType[Decimal]):
    """A decimal number, taken exactly as it is typed."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        """Read the number; a wrong one ends in a usage error."""
        if isinstance(value, Decimal):
            return value
        try:
            return Decimal(value)
        except InvalidOperation:
            self.fail(f"{value!r} is not a number.", param, ctx)


class Named(click.ParamType[tuple[str, float]]):
    """A statement's name and a number, as in `by_sex=25`."""

    name = "name=number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Read both; a malformed text ends in a usage error."""
        if isinstance(value, tuple):
            return value
        name, _, text = str(value).rpartition("=")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number):
            self.fail(f"{value!r} is not of the form name=25.", param, ctx)
        return name, number


def by_name(pairs: tuple[tuple[str, float], ...], option: str) -> dict[str, float] | None:
    """Make a mapping of repeated options; None if there is none."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise click.UsageError(f"{option} names a statement twice.")
    return found or None


@dataclass(frozen=True, slots=True)
class Amounts:
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
            BudgetError: the number is no useful amount.
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
            BudgetError: the number is no useful amount.
        """
        found = self.budget()
        if found is None:
            raise click.UsageError("Give a budget: --epsilon with --delta, or --rho, or --mu.")
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """A database, and what is declared about it."""

    db: Path
    schema: Path | None = None
    unit: str | None = None
    max_rows: int | None = None
    each_row: bool = False
    public: tuple[str, ...] = ()
    ledger: Path | None = None
    vintage: str = ""
    accept_schema: bool = False

    @property
    def whose(self) -> str | EachRow | None:
        """The unit as it is given in Python."""
        if self.each_row and (self.unit is not None or self.max_rows is not None):
            raise click.UsageError("--each-row is for tables without --unit and --max-rows.")
        if not self.each_row:
            return self.unit
        from dpsql.schema import EACH_ROW

        return EACH_ROW


@dataclass(frozen=True, slots=True)
class Aims:
    """What a plan is to be good at."""

    target: tuple[tuple[str, float], ...]
    weight: tuple[tuple[str, float], ...]
    objective: Literal["total", "largest"]
    no_reuse: bool
    mechanism: str
    assume: tuple[tuple[str, float], ...]

    @property
    def targets(self) -> dict[str, float] | None:
        """Statement → the largest standard error that is allowed."""
        return by_name(self.target, "--target")

    @property
    def assumed(self) -> dict[str, float] | None:
        """The rows of the table, or of each group of a statement, that are assumed."""
        return by_name(self.assume, "--assume")

    @property
    def weights(self) -> dict[str, float] | None:
        """Statement → importance."""
        return by_name(self.weight, "--weight")

    def check_against(
        self, budget: Budget | None, *, free: bool = False, at_most: bool = False
    ) -> None:
        """Refuse a missing budget, and two ways of giving one.

        Raises:
            click.UsageError: there is none, or more than one.
        """
        if at_most and (not self.target or budget is None):
            raise click.UsageError(
                "--at-most is for --target, with a budget: --rho 0.5 for example."
            )
        check_free(free=free, other=budget is not None or bool(self.target) or self.no_reuse)
        if self.target and budget is not None and not at_most:
            raise click.UsageError(
                "--target asks for the least budget: leave the budget out. In a release, "
                "--at-most says that it is the most."
            )
        if not free and not self.target and budget is None:
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


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SCRIPT = click.Path(exists=True, dir_okay=False, allow_dash=True)

_AMOUNTS = (
    click.option(
        "--epsilon", type=Amount(), help="The budget as ε; needs --delta, which is 0 for pure ε."
    ),
    click.option(
        "--delta", type=Amount(), help="δ of the budget; beside others, where ε is shown [1e-9]."
    ),
    click.option("--rho", type=Amount(), help="The budget as ρ of zero-concentrated DP."),
    click.option("--mu", type=Amount(), help="The budget as μ of Gaussian DP."),
)
_SOURCE = (
    click.option("--db", type=FILE, required=True, help="The DuckDB file; opened read-only."),
    click.option("--schema", type=FILE, help="A TOML file with domains and privacy units."),
    click.option("--unit", help="The column that tells to whom a row belongs."),
    click.option("--max-rows", type=int, help="How many rows of one unit count at most."),
    click.option(
        "--each-row",
        is_flag=True,
        help="Beside tables with units: the rows of this one belong to nobody in those.",
    ),
    click.option("--public", multiple=True, help="A table that holds no private row. Repeatable."),
    click.option(
        "--ledger",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The ledger's file [beside the database, DB.ledger].",
    ),
    click.option("--vintage", default="", help="A label for this state of the data."),
    click.option("--accept-schema", is_flag=True, help="A changed schema is meant."),
)
mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(list(MECHANISMS)),
    default=QUERYSMASHER,
    show_default=True,
    help="What plans and measures; see dpsql compare.",
)
_AIMS = (
    click.option(
        "--target",
        type=Named(),
        multiple=True,
        help="In place of a budget: the largest standard error of a statement. Repeatable.",
    ),
    click.option(
        "--weight", type=Named(), multiple=True, help="A statement's importance. Repeatable."
    ),
    click.option(
        "--objective",
        type=click.Choice(["total", "largest"]),
        default="total",
        show_default=True,
        help="Make the sum of variances small, or the largest one.",
    ),
    click.option("--no-reuse", is_flag=True, help="Leave past measurements out of account."),
    mechanism_option,
    click.option(
        "--assume",
        type=Named(),
        multiple=True,
        help="Rows of the table (rows=100000), or of each group of a statement: for targets of "
        "averages, shares, deviations and quantiles, whose errors `plan` shows. Repeatable.",
    ),
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; errors as JSON too."
)
free_option = click.option(
    "--free", is_flag=True, help="Spend nothing: answer from past measurements alone."
)
accept_gap_option = click.option(
    "--accept-gap", is_flag=True, help="Charge a plan, too, that loses accuracy it need not."
)
groups_above_option = click.option(
    "--groups-above",
    type=float,
    help="Leave out groups whose noisy count is below so many standard errors, for example 2.",
)
confidence_option = click.option(
    "--confidence", type=float, help="Add the bounds of intervals, for example 0.95."
)


def amounts(command: Command) -> Command:
    """Give a command the options of a budget, as `amounts`."""
    return _gathered(Amounts, "amounts", _AMOUNTS, command)


def source(command: Command) -> Command:
    """Give a command the options of a database, as `source`."""
    return _gathered(Source, "source", _SOURCE, command)


def aims(command: Command) -> Command:
    """Give a command the options of a plan, as `aims`."""
    return _gathered(Aims, "aims", _AIMS, command)


def _gathered(
    kind: Callable[..., Any],
    name: str,
    options: tuple[Callable[[Any], Any], ...],
    command: Command,
) -> Command:
    """Add options, and hand their values over as one object."""

    @wraps(command)
    def gather(**given: Any) -> Any:
        values = {field.name: given.pop(field.name) for field in fields(kind)}  # type: ignore[arg-type]
        return command(**{name: kind(**values)}, **given)

    decorated: Any = gather
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
