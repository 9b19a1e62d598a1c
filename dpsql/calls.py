"""Checks of how the public calls are called: wrong arguments are told like any other mistake."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from dpsql.errors import ArgumentError, BudgetError, printable, shown
from dpsql.hints import ANY_BUDGET, option, spend

F = TypeVar("F", bound=Callable[..., Any])
MARGINAL = "marginal"
"""The word that is given in place of weights, so that each table of answers counts alike."""
_AMOUNTS = ("epsilon", "delta", "rho", "mu")
DECLARED = frozenset(
    {
        "schema", "public", "unit", "max_rows", "max_groups", "max_values", "references", "vintage",
        "accept_schema",
    }
)  # fmt: skip
"""Arguments that are declared for a session, and not in its calls."""


def checked(function: F) -> F:
    """Make a missing, unknown or repeated argument an `ArgumentError` that says what to pass.

    A missing budget is a `BudgetError`, as a wrong one is.
    """
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        try:
            signature.bind(*args, **given)
        except TypeError as error:
            wrong = _wrong(name, signature, args, given, str(error))
        else:
            return function(*args, **given)
        raise wrong

    return call  # type: ignore[return-value]


def _wrong(
    name: str, signature: inspect.Signature, args: tuple[Any, ...], given: dict[str, Any], why: str
) -> ArgumentError | BudgetError:
    """Return the error of a call that the signature doesn't take."""
    known = [n for n in signature.parameters if n not in {"self", "cls"}]
    extra = next((n for n in given if n not in signature.parameters), None)
    if extra is not None:
        return _unknown(name, extra, known, given)
    try:
        bound = signature.bind_partial(*args, **given).arguments
    except TypeError:
        return _too_many(name, signature, known, why)
    required = [p.name for p in signature.parameters.values() if p.default is p.empty]
    missing = [n for n in required if n not in bound]
    if "budget" in missing:
        return BudgetError(f"{name} needs a budget.", hint="pass " + ANY_BUDGET + ".")
    if missing:
        return ArgumentError(f"{name} needs {' and '.join(missing)}.", hint=_order(name, required))
    return _otherwise(name, known, why)


def _unknown(name: str, extra: str, known: list[str], given: dict[str, Any]) -> ArgumentError:
    """Return the error of an argument that a call doesn't take."""
    hint: str
    if extra in _AMOUNTS and "budget" in known:
        stated = {n: given[n] for n in _AMOUNTS if n in given}
        if "epsilon" in stated or "delta" in stated:
            stated = {"epsilon": stated.get("epsilon", 1), "delta": stated.get("delta", "1e-9")}
        hint = "an amount is passed as " + spend(**stated) + "."
    elif extra in DECLARED and name.startswith("Session."):
        hint = f"a session declares it: session.redeclared({extra}=…)."
    else:
        close = difflib.get_close_matches(extra, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(known)}."
    return ArgumentError(f"{name} takes no {printable(extra)}.", hint=hint)


def _too_many(name: str, signature: inspect.Signature, known: list[str], why: str) -> ArgumentError:
    """Return the error of arguments without a name that have no place."""
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    alone = [n for n in known if signature.parameters[n].kind is by_place]
    named = next((n for n in known if n not in alone), None)
    if not alone or not named:
        return _otherwise(name, known, why)
    return ArgumentError(
        f"{name} takes only {', '.join(alone)} without a name.",
        hint=f"name the others: {named}=….",
    )


def _otherwise(name: str, known: list[str], why: str) -> ArgumentError:
    return ArgumentError(
        f"{name} can't be called so: {why}.", hint=f"the arguments are {', '.join(known)}."
    )


def _order(name: str, required: list[str]) -> str:
    return f"for example {name}({', '.join(n for n in required if n not in {'self', 'cls'})})."


def check_switch(**given: object) -> None:
    """Refuse a switch that is neither True nor False.

    Raises:
        ArgumentError: there is one.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise ArgumentError(
                f"{name} is a {type(value).__name__}.", hint=f"pass {name}=True or {name}=False."
            )


def check_above(**given: object) -> None:
    """Refuse what is not a number of standard errors; None is left to its default.

    Raises:
        ArgumentError: there is one.
    """
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= float(str(value)) <= 1e6):
            raise ArgumentError(
                f"{name} is a number of standard errors, not {shown(value)}.",
                hint="for example " + option(name, 2) + ".",
            )


def check_rows(**given: object) -> None:
    """Refuse what is not a number of rows; None is left to its default.

    Below 0 rows are none: what noise makes negative would be left out, and nothing else.

    Raises:
        ArgumentError: there is one.
    """
    for name, value in given.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (number and 0 < float(str(value)) <= 1e18):
            raise ArgumentError(
                f"{name} is a number of rows above 0, not {shown(value)}.",
                hint="for example " + option(name, 10) + ".",
            )


def check_path(**given: object) -> None:
    """Refuse what is not a path; None is left to its default.

    Raises:
        ArgumentError: that is so.
    """
    check_path_given(**{name: value for name, value in given.items() if value is not None})


def check_path_given(**given: object) -> None:
    """Refuse what is not a path, None too.

    Raises:
        ArgumentError: that is so.
    """
    for name, value in given.items():
        path = os.fspath(value) if isinstance(value, os.PathLike) else value
        if not isinstance(path, str) or not path or "\0" in path:
            raise ArgumentError(
                f"{name} is not a path: {shown(value)}.",
                hint="for example " + option(name, f"{name}.d") + ".",
            )


def check_callable(**given: object) -> None:
    """Refuse what can't be called; None is left to its default.

    Raises:
        ArgumentError: that is so.
    """
    for name, value in given.items():
        if value is not None and not callable(value):
            raise ArgumentError(f"{name} can't be called: {shown(value)}.", hint="pass a function.")
