"""Errors that say in which of several statements they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpsql.errors import SqlError, printable

P = ParamSpec("P")
T = TypeVar("T")


def naming(name: str, several: bool, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Take one step with one of several statements; an error says with which."""
    try:
        return step(*args, **kwargs)
    except SqlError as error:
        error.statement = printable(name) if several else None
        raise
