"""Options of the public calls as they are typed: flags of the command line and of the magics.

They have the names that `dpsql.request` gives them in Python; both faces make their parsers of the
same table, so that neither lacks one. Importing this loads nothing heavy.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from dpsql.calls import MARGINAL
from dpsql.planner.plans.traits import MECHANISMS

Kind = Literal[
    "text",
    "texts",
    "single",
    "bounds",
    "whole",
    "number",
    "amount",
    "pairs",
    "weights",
    "keys",
    "share",
    "choice",
    "switch",
    "off",
]


@dataclass(frozen=True, slots=True)
class Flag:
    """The form in which an option is typed.

    `texts`, `pairs` (name=25), `weights` (the same, or a word) and `keys`
    (orders.customer_id=customers.id) may be repeated; a `single` text that is repeated is handed
    over as several, to be refused; `bounds` are one whole number, or several with names
    (orders=10), `whole` is one; `share` is a number that makes a `Keys`, `Bounds` or `Quantiles`;
    `off` is a switch that is on without it.
    """

    help: str
    kind: Kind = "text"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    """The words of a choice; the first one is the default."""


FLAGS: Mapping[str, Flag] = {
    "schema": Flag("Domains and privacy units: a TOML file, in a notebook also a dpsql.Schema."),
    "unit": Flag("The column that tells to whom a row belongs.", "single", "COLUMN"),
    "max_rows": Flag(
        "How many rows of one unit count at most; of several tables, orders=10. Repeatable.",
        "bounds",
        "K",
    ),
    "max_groups": Flag(
        "With --unit: in how many groups one counts at most where units are counted.",
        "whole",
        "M",
    ),
    "max_values": Flag(
        "With --unit: how many values of one count at most in a group where distinct values are "
        "counted.",
        "whole",
        "L",
    ),
    "references": Flag(
        "With --unit: a key that the database doesn't know, orders.customer_id=customers.id. "
        "Repeatable.",
        "keys",
        "COLUMN=COLUMN",
    ),
    "each_row": Flag(
        "Beside tables with units: the rows of this one belong to nobody in those.", "switch"
    ),
    "public": Flag("A table that holds no private row. Repeatable.", "texts", "NAME"),
    "ledger": Flag(
        "The ledger's file [beside the database, DB.ledger], or its server, postgresql://….",
        metavar="PLACE",
    ),
    "dataset": Flag(
        "With a server as --ledger: the name of rows that are in no file.", metavar="NAME"
    ),
    "version": Flag("Of tables with versions in Spark: which one is asked.", metavar="VERSION"),
    "vintage": Flag("A label for this state of the data.", metavar="LABEL"),
    "accept_schema": Flag("A changed schema is meant.", "switch"),
    "epsilon": Flag("The budget as ε; needs --delta, which is 0 for pure ε.", "amount", "X"),
    "delta": Flag("δ of the budget; beside others, where ε is shown [1e-9].", "amount", "X"),
    "rho": Flag("The budget as ρ of zero-concentrated DP.", "amount", "X"),
    "mu": Flag("The budget as μ of Gaussian DP.", "amount", "X"),
    "key_delta": Flag(
        "Of the total's δ, or beside ρ or μ: what is set aside to find keys with.", "amount", "X"
    ),
    "free": Flag("Spend nothing: answer from past measurements alone.", "switch"),
    "targets": Flag(
        "In place of a budget: the largest standard error of a statement. Repeatable.",
        "pairs",
        "NAME=X",
    ),
    "at_most": Flag("With --target: the budget given is the most that may be charged.", "switch"),
    "weights": Flag(
        "A statement's importance, repeatable; or marginal: each table of answers counts alike.",
        "weights",
        "NAME=X",
    ),
    "objective": Flag(
        "Make the sum of variances small, or the largest one.",
        "choice",
        choices=("total", "largest"),
    ),
    "keys": Flag(
        "Find values of columns that nobody has declared, for this share of the budget, for "
        "example 0.5.",
        "share",
        "SHARE",
    ),
    "bounds": Flag(
        "Find bounds of columns that are added up, and that nobody has declared, for this share of "
        "the budget, for example 0.2.",
        "share",
        "SHARE",
    ),
    "quantiles": Flag(
        "Draw quantiles of columns that nobody has declared for this share of the budget, for "
        "example 0.5.",
        "share",
        "SHARE",
    ),
    "reuse": Flag("Leave past measurements out of account.", "off"),
    "mechanism": Flag(
        "What plans and measures; see dpsql compare.",
        "choice",
        choices=tuple(MECHANISMS),
    ),
    "assume": Flag(
        "Rows of the table (rows=100000), or of each group of a statement: for targets of "
        "averages, shares, deviations and quantiles, whose errors a plan shows. Repeatable.",
        "pairs",
        "NAME=N",
    ),
    "confidence": Flag("Add the bounds of intervals, for example 0.95.", "number", "P"),
    "accept_gap": Flag("Charge a plan, too, that loses accuracy it need not.", "switch"),
    "groups_above": Flag(
        "Leave out groups whose noisy count is below so many standard errors, for example 2.",
        "number",
        "K",
    ),
    "suppress_below": Flag(
        "Print values as NULL that rest on fewer rows, by their noisy number; rows stay.",
        "number",
        "N",
    ),
    "standard_errors": Flag("Have standard errors beside values, and no variances.", "switch"),
    "report_cut": Flag("Count the units, too, that have more rows than count.", "switch"),
    "report_moved": Flag("Count the values, too, that count as others.", "switch"),
    "progress": Flag("Don't show how far long work is.", "off"),
    "nonnegative": Flag("Add columns without negative counts (biased).", "switch"),
    "integers": Flag("Add columns of whole numbers (biased).", "switch"),
}
"""Option → how it is typed."""

BUDGET = ("epsilon", "delta", "rho", "mu")


def exact_number(text: str) -> Decimal:
    """Read a decimal number, exactly as it is typed.

    Raises:
        ValueError: it is not a number.
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a number") from None


def named_number(text: str) -> tuple[str, float]:
    """Read a name and a number, as in `by_sex=25`.

    Raises:
        ValueError: it is something else.
    """
    name, _, typed = text.rpartition("=")
    with suppress(ValueError):
        if name and math.isfinite(number := float(typed)):
            return name, number
    raise ValueError(f"{text!r} is not of the form name=25")


def weight(text: str) -> tuple[str, float]:
    """Read a name and a number, or the word `marginal`, which is a name without one.

    Raises:
        ValueError: it is something else.
    """
    if text == MARGINAL:
        return MARGINAL, math.nan
    with suppress(ValueError):
        return named_number(text)
    raise ValueError(f"{text!r} is neither of the form name=25 nor {MARGINAL}")


def weights_of(given: Collection[tuple[str, float]]) -> dict[str, float] | str | None:
    """Return weights as they are given in Python.

    Raises:
        ValueError: a statement has two, or some have weights where each table counts alike.
    """
    found = dict(given)
    if len(found) < len(given):
        raise ValueError("a statement is named twice")
    if any(map(math.isnan, found.values())):
        if len(found) > 1:
            raise ValueError(f"{MARGINAL} goes with no other weight; write them into the SQL")
        return MARGINAL
    return found or None


def key(text: str) -> tuple[str, str]:
    """Read a column and the one that it refers to, as in `orders.customer_id=customers.id`.

    Raises:
        ValueError: it is something else.
    """
    column, _, of = map(str.strip, text.partition("="))
    if column and of and "=" not in of:
        return column, of
    raise ValueError(f"{text!r} is not of the form orders.customer_id=customers.id")


def keys_of(given: Collection[tuple[str, str]]) -> dict[str, str] | None:
    """Return columns and those that they refer to, as they are given in Python.

    Raises:
        ValueError: a column is given twice.
    """
    found = dict(given)
    if len(found) < len(given):
        raise ValueError("a column refers to two")
    return found or None


def bound(text: str) -> tuple[str, int]:
    """Read a whole number, or a name and one, as in `orders=10`; the name is empty without one.

    Raises:
        ValueError: it is something else.
    """
    name, equals, typed = text.rpartition("=")
    if typed.strip().isdecimal() and bool(equals) == bool(name):
        return name, int(typed)
    raise ValueError(f"{text!r} is no whole number, nor of the form orders=10")


def whole_number(text: str) -> int:
    """Read a whole number.

    Raises:
        ValueError: it is something else.
    """
    if not text.strip().isdecimal():
        raise ValueError(f"{text!r} is no whole number")
    return int(text)


def bounds_of(given: Collection[tuple[str, int]]) -> int | dict[str, int] | None:
    """Return one bound, or those of several tables, as they are given in Python.

    Raises:
        ValueError: a table has two, or one has no name beside others.
    """
    found = dict(given)
    if len(found) < len(given):
        raise ValueError("a table has two bounds")
    if "" in found and len(found) > 1:
        raise ValueError("one bound is of no table")
    return found.get("", found or None)


def spelling(name: str) -> str:
    """Return the flag of an option: `--max-rows`, `--no-reuse`, and `--target` for one of many."""
    flag = FLAGS[name]
    word = name.removesuffix("s") if flag.kind in {"pairs", "weights", "keys"} else name
    return ("--no-" if flag.kind == "off" else "--") + word.replace("_", "-")


def one_of(texts: Collection[str]) -> str | list[str] | None:
    """Return the only one of some texts, as it is given in Python; all if there are several."""
    return next(iter(texts)) if len(texts) == 1 else [*texts] or None
