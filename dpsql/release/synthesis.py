"""Rows that are made up, so that they are like those of a table as far as a release says.

Whatever is made of noisy answers costs nothing. What was not measured is not in these rows: columns
that no measurement connects are independent, given what connects them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from dpsql.errors import ArgumentError, ResourceLimitError, SchemaError, printable, shown
from dpsql.hints import option
from dpsql.linalg.arrays import Ints
from dpsql.linalg.threads import one_thread
from dpsql.release.relations import ReleasedRelation
from dpsql.release.synthetic.cells import Cells
from dpsql.release.synthetic.draws import Draws
from dpsql.release.synthetic.junction import drawn
from dpsql.release.synthetic.updates import updated
from dpsql.schema.table import Table, closest

MAX_VALUES = 1 << 28
"""Rows times columns: 2 GiB."""
MAX_UPDATES = 1_000


def table_named(tables: Sequence[Table], name: str | None) -> Table:
    """Return the table of a release that is meant; the only one, if none is named.

    Raises:
        ArgumentError, SchemaError: there are several, or none of that name.
    """
    listed = [table.shown for table in tables]
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        raise ArgumentError(
            f"This release is of several tables: {printable(', '.join(listed))}.",
            hint="name the one whose rows are meant: " + option("table", listed[0]) + ".",
        )
    if not isinstance(name, str):
        raise ArgumentError(
            f"table is the name of a table, not {shown(name)}.",
            hint="for example " + option("table", listed[0]) + ".",
        )
    found = [table for table in tables if table.shown == name]
    found = found or [table for table in tables if table.is_called(tuple(name.split(".")))]
    if len(found) != 1:
        what = "no table" if not found else "several tables"
        raise SchemaError(f"This release has {what} {printable(name)}.", hint=closest(name, listed))
    return found[0]


@one_thread
def synthetic(
    relation: ReleasedRelation, rows: int | None, updates: int, seed: int | None
) -> pl.DataFrame:
    """Make rows up; see `Release.synthetic`."""
    _check_number("updates", updates, MAX_UPDATES)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ArgumentError(
            f"seed is a whole number, not {shown(seed)}.", hint="for example " + option("seed", 1)
        )
    columns = len(relation.columns)
    if rows is not None:
        _check_number("rows", rows, MAX_VALUES // max(columns, 1))
    if not columns:
        raise SchemaError(
            f"This release says nothing about the columns of {printable(relation.table.shown)}.",
            hint="release counts by the columns that are wanted: GROUP BY.",
        )
    tables = relation.tables
    if rows is None:
        rows = round(float(tables.table(())))
        _check_size(rows, columns)
    draws = Draws(seed)
    codes = drawn(tables, rows, draws)
    if updates:
        codes = updated(codes, tables, updates, draws)
    found = []
    for name in relation.columns:
        cells = Cells(name, relation.table.columns[name])
        among = codes.get(name, np.zeros(rows, dtype=np.int64))
        found.append(cells.values(_within(among, relation.classes[name], draws), draws))
    return pl.DataFrame(found)


def _within(codes: Ints, classes: Ints, draws: Draws) -> Ints:
    """Choose one of the cells of the domain that measurements don't tell apart, evenly."""
    count = int(classes.max()) + 1
    if count == len(classes):
        return codes
    members = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes, minlength=count)
    begins = np.cumsum(sizes) - sizes
    at = draws.stratified(codes, count) * sizes[codes]
    return np.asarray(members[begins[codes] + at.astype(np.int64)])


def _check_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(
            f"{name} is a whole number from 0, not {shown(value)}.",
            hint="for example " + option(name, 10) + ".",
        )
    if value > most:
        raise ResourceLimitError(
            f"{name} is {value:,}, more than {most:,}.",
            hint="for example " + option(name, most) + ".",
        )


def _check_size(rows: int, columns: int) -> None:
    most = MAX_VALUES // columns
    if rows > most:
        raise ResourceLimitError(
            f"The release says that there are {rows:,} rows, more than the {most:,} that are made "
            "up at once.",
            hint="ask for fewer: " + option("rows", most) + ".",
        )
