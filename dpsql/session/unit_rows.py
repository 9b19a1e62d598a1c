"""Questions about how many rows units have.

They are statements, over what `dpsql/engines/unit_rows.py` makes of the rows of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import polars as pl

from dpsql.engines.unit_rows import ROWS
from dpsql.errors import ArgumentError, SchemaError, printable, shown
from dpsql.hints import option
from dpsql.request import Request
from dpsql.schema import Table
from dpsql.schema.names import as_sql, folded
from dpsql.schema.units import RowLimit
from dpsql.sql.compiled import Script

MOST = 10_000
"""The largest number of rows that can be told apart."""
BOUND, CUT = "max_rows", "units_cut"
_UNITS = frozenset({"units", "units_variance"})
BESIDE = 0.01
"""Weight of what is counted besides: of units that were cut, and of values that are moved."""


def bounds(most: int) -> tuple[int, ...]:
    """Return bounds from which to choose: half an octave apart, and the largest one."""
    halves = (round(2 ** (half / 2)) for half in range(2 * most.bit_length()))
    return tuple(sorted({most, *(bound for bound in halves if bound < most)}))


def check_up_to(most: object) -> None:
    """Refuse what is no number of rows that can be told apart.

    Raises:
        ArgumentError: it isn't one.
    """
    if type(most) is not int or not 1 <= most <= MOST:
        raise ArgumentError(
            f"up_to is a whole number from 1 to {MOST:,}, not {shown(most)}.",
            hint="give the largest bound that you would choose, for example "
            + option("up_to", 100)
            + ".",
        )


def histogram(name: str, most: int) -> str:
    """Write the statement that counts units by how many rows they have.

    Rows between two bounds pass for as many as lie in their middle, and more than the last one for
    one more.
    """
    edges = (0, *bounds(most), most + 1)
    below = [(high, Fraction(low + 1 + high, 2)) for low, high in pairwise(edges)]
    steps = " ".join(f"WHEN {ROWS} <= {high} THEN {high}" for high, _ in below)
    means = " ".join(f"WHEN {ROWS} <= {high} THEN {float(mean)}" for high, mean in below)
    after = f"OVER (ORDER BY {BOUND} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)"
    return f"""
        SELECT {BOUND}, units, {CUT}, {CUT} / all_units AS {CUT}_share,
            above - {BOUND} * {CUT} AS rows_cut,
            (above - {BOUND} * {CUT}) / all_rows AS rows_cut_share
        FROM (
            SELECT CASE {steps} END AS {BOUND}, COUNT(*) AS units,
                SUM(COUNT(*)) {after} AS {CUT},
                SUM(SUM(CASE {means} END)) {after} AS above,
                SUM(COUNT(*)) OVER () AS all_units,
                SUM(SUM(CASE {means} END)) OVER () AS all_rows
            FROM {as_sql(name)} GROUP BY {BOUND}
        ) ORDER BY {BOUND}
    """


def without_last(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Say of units with more rows than the last bound how many they are, and nothing else."""
    known, others = pl.col(BOUND) <= most, [n for n in frame.columns if n not in _UNITS]
    return frame.with_columns(pl.when(known).then(pl.col(name)).alias(name) for name in others)


def with_units_cut(
    request: Request,
    script: Script,
    unit_counts: Callable[[Table, int, int, tuple[RowLimit, ...]], Table],
) -> tuple[Request, Mapping[str, Table]]:
    """Ask besides how many units have more rows than count, by the bound and by limits.

    Args:
        request: what is asked.
        script: what it was compiled to.
        unit_counts: describes the units of a table with how many rows they have, as far as numbers
            from the least to the largest one are told apart, which those have, too, whom limits
            cut.

    Returns:
        What is asked then, and what it is over besides, by the names that it has there.

    Raises:
        SchemaError: all rows of all units count.
    """
    statements, made = dict(request.statements), dict[str, Table]()
    bounded = (table for table in script.tables if table.unit is not None and table.is_bounded)
    cut = [table for table in bounded if not _all_chosen(table)]
    if not cut:
        raise SchemaError(
            "No rows are left out here: no table that is counted limits the rows of a unit.",
            hint="leave " + option("report_cut") + " out.",
        )
    for table, name in zip(cut, named_besides(CUT, cut, statements), strict=True):
        k = table.contributions
        limits = table.unit.limits if table.unit is not None else ()
        units = unit_counts(table, k, k + 1, limits)
        made[units.path[-1]] = units
        statements[name] = _count_cut(units, k, grouped=request.groups_above is None)
    return replace(request, statements=tuple(statements.items()), report_cut=False), made


def _all_chosen(table: Table) -> bool:
    """Whether all rows count that are chosen of a unit."""
    chosen, limits = table.chosen, () if table.unit is None else table.unit.limits
    if chosen is None or chosen.rows is None or chosen.rows > table.contributions:
        return False
    return all(limit.columns == chosen.apart and limit.rows >= chosen.places for limit in limits)


def _count_cut(units: Table, k: int, *, grouped: bool) -> str:
    """Write the statement that counts units with more than k rows, and all, and gives their share.

    By groups it is one that all mechanisms answer; but few units in a group may be left out.
    """
    found, counted = as_sql(units.path[-1]), "COUNT(*)"
    if grouped:
        found, counted = f"(SELECT {ROWS}, COUNT(*) AS n FROM {found} GROUP BY {ROWS})", "SUM(n)"
    cut = f"{counted} FILTER (WHERE {ROWS} > {k})"
    return (
        f"SELECT /*+ weight({BESIDE}) */ {cut} AS {CUT}, {counted} AS units, "
        f"{cut} / {counted} AS {CUT}_share FROM {found}"
    )


def named_besides(base: str, tables: Sequence[Table], asked: Mapping[str, str]) -> Iterator[str]:
    """Name statements that are asked besides, one for each table, as no other one is named."""
    taken = {folded(name) for name in asked}
    for table in tables:
        name = base if len(tables) == 1 else f"{base} of {printable(table.shown)}"
        while folded(name) in taken:
            name += "_"
        taken.add(folded(name))
        yield name
