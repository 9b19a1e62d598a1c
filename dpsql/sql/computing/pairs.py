"""Lists of pairs (statistic, coefficient): what noise a value consists of, as SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dpsql.schema.names import capitals, folded, quoted_name
from dpsql.sql.binding.core import ROW, Role
from dpsql.sql.binding.expressions import Expr

ROWS = 2**40
"""Statistic j of row r of a table of answers has the number (first + j)·ROWS + r."""
TYPE = "STRUCT(i BIGINT, c DOUBLE)[]"
NONE = f"CAST([] AS {TYPE})"
UNKNOWN = f"CAST(NULL AS {TYPE})"
STEP = f"CAST([{{'i': -1, 'c': 1.0}}] AS {TYPE})"
"""The step of a rounding: its coefficient is the farthest that it moves a value, or NaN."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a query's result."""

    name: str
    noisy: bool = False
    exact: bool = True
    """Whether the list of its noise is exact, not to first order only."""
    reason: str | None = None
    """Why its noise isn't known."""
    chosen: bool = False
    """Whether noisy values decide which rows there are."""
    ordered: bool = False
    """Whether they decide in which order."""


@dataclass(frozen=True, slots=True)
class NumberedStatistics:
    """The statistics of a table of answers: how many there are, and the number of the first one.

    Those in `opaque` are quantiles: noisy, but not sums.
    """

    first: int
    count: int
    opaque: frozenset[int]


@dataclass(frozen=True, slots=True)
class FromItem:
    """A table after FROM: its columns by their names in small letters."""

    alias: str
    columns: Mapping[str, tuple[Output, str]]
    """Each with the SQL of its list."""
    complete: bool = True
    """Whether these are all; those of VALUES and the like are public, and not known."""


def scaled(pairs: str, factor: str) -> str:
    """Multiply the coefficients of a list."""
    if "SELECT" not in capitals(factor):
        by = f"lambda __p : {{'i': __p.i, 'c': CAST(__p.c * ({factor}) AS DOUBLE)}}"
        return f"list_transform({pairs}, {by})"
    # A lambda can't hold a subquery: its value goes beside each pair.
    factors = f"list_resize(CAST([] AS DOUBLE[]), len({pairs}), CAST({factor} AS DOUBLE))"
    return (
        f"list_transform(list_zip({pairs}, {factors}), "
        "lambda __p : {'i': __p[1].i, 'c': __p[1].c * __p[2]})"
    )


def of_answers(table: str, statistics: NumberedStatistics) -> FromItem:
    """Return a table of answers: each statistic consists of itself."""
    columns: dict[str, tuple[Output, str]] = {}
    for j in range(statistics.count):
        at = f"{(statistics.first + j) * ROWS} + {ROW}"
        pairs = f"CAST([{{'i': {at}, 'c': 1.0}}] AS {TYPE})"
        reason = "quantiles have an interval instead" if j in statistics.opaque else None
        name = Role.STATISTIC.named(j)
        columns[name] = Output(name, noisy=True, exact=reason is None, reason=reason), pairs
    return FromItem(table, columns)


def listed(alias: str, outputs: list[Output]) -> FromItem:
    """Return an annotated query or CTE under its alias."""
    name = quoted_name(alias)
    columns = {folded(o.name): (o, f"{name}.__e{i}") for i, o in enumerate(outputs)}
    return FromItem(alias, columns)


def renamed(outputs: list[Output], alias: Expr | None) -> list[Output]:
    """Give columns the names that stand behind an alias: `AS q (a, b)`."""
    given = alias.args.get("columns") or [] if alias is not None else []
    names = [c.name for c in given]
    return [replace(o, name=names[i]) if i < len(names) else o for i, o in enumerate(outputs)]
