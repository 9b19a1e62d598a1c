"""The scan that is read in place of a view, written by the library itself. Trusted.

Guarantees:
    1. The view itself is never read. Its definition is read by a closed list
       (`definitions.py`), and `Projection.sql` is written from what was read: a SELECT of
       expressions of one row (`dpsql/rows/write.py`: total, and of nothing but their own row) from
       one stored table or one frozen list of files, WHERE conditions of the same kind hold. All
       names and paths are quoted here.
    2. So each row below gives one row of the view or none. *Proof.* The scan has no join, no
       aggregate, no window, no LIMIT and no sample; by 1. an item and a condition are functions of
       the row. A view over a view is written as one scan of the table at the bottom, with each
       column replaced by its expression, which is again of one row; induction over the views. ∎
       Two tables that differ in one row below thus differ in at most one row in the view, and
       what is charged for a measurement of the view is what it costs for the table below.
    3. The table below is `Projection.base` under all names. Charges name it, so the account knows
       one table (`dpsql/session/purpose.py`).

What a column of the view means: the expression of the definition, but NULL where DuckDB would fail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from dpsql.engines.duckdb.files import is_read
from dpsql.engines.frozen import FrozenFiles
from dpsql.rows.expression import (
    NOTHING,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    replaced,
)
from dpsql.rows.measure import condition
from dpsql.rows.types import RowType, row_type
from dpsql.rows.write import RowWriter, known_as
from dpsql.schema import Table
from dpsql.schema.fitting import GENERATED
from dpsql.schema.names import quoted_name


@dataclass(frozen=True, slots=True)
class FileScan:
    """The scan of a list of files."""

    files: FrozenFiles
    relation: str
    """The item after FROM."""
    asked: str
    """Arguments of the definition: patterns and options."""
    cast: Mapping[str, RowType] = field(default_factory=dict)
    """Columns that are made of the names of folders → the types that a definition has them in."""
    unread: tuple[str, ...] = ()
    """Columns that could be made of the names of folders, and aren't."""
    texts: bool = False
    """Whether files have texts alone, which are of the types that the owner declares."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A view, or what stands at the bottom, without anything that is declared."""

    path: tuple[str, ...]
    types: Mapping[str, str]
    """Its columns and their types."""
    below: Layer | None = None
    """The relation that a view reads; None for a stored table."""
    columns: Mapping[str, RowExpression] = field(default_factory=dict)
    """The columns of a view, over those below."""
    where: RowExpression | None = None
    comment: str | None = None
    files: FileScan | None = None
    """The reading of files, at the bottom."""

    def plain(self, name: str) -> str | None:
        """Return the column below that a column of a view shows as it is; None if it doesn't."""
        shown = self.columns.get(name)
        return shown.name if isinstance(shown, RowColumn) else None


@dataclass(frozen=True)
class Projection:
    """A scan: columns that are expressions of one row of a stored table, where conditions hold.

    Args:
        base: the table that is charged for.
        relation: what stands after FROM, written by us.
        below: the columns of that, and their types.
        columns: the columns of the view.
        conditions: what must be true of a row.
        read: the files that the relation reads, if any.
    """

    base: Table
    relation: str
    below: Mapping[str, str]
    columns: Mapping[str, RowExpression]
    conditions: tuple[RowExpression, ...] = ()
    read: FileScan | None = None

    @classmethod
    def of(cls, base: Table, bottom: Layer) -> Projection:
        """Return the scan of what stands at the bottom, as it is."""
        columns = {name: RowColumn(name) for name in bottom.types}
        relation = ".".join(quoted_name(part) for part in base.path)
        if bottom.files is not None:
            relation = bottom.files.relation
            if bottom.files.texts:  # so that the account knows one table, whatever is declared
                base = replace(base, undeclared=dict.fromkeys(base.undeclared, "VARCHAR"))
        return cls(base, relation, bottom.types, columns, read=bottom.files)

    def through(self, view: Layer) -> Projection:
        """Return the scan of a view, with its expressions in place of those that it names."""
        put = partial(_put, self.columns, {} if view.below is None else view.below.types)
        holds = () if view.where is None else (put(view.where),)
        shown = {name: put(expression) for name, expression in view.columns.items()}
        return replace(self, columns=shown, conditions=(*self.conditions, *holds))

    @cached_property
    def sql(self) -> str:
        """The SQL that stands after FROM: a SELECT in brackets.

        Columns with which nothing is ever done are left out: generated ones, which may call
        anything, and those that may make DuckDB fail on a file.
        """
        items = []
        for name, expression in self.columns.items():
            if not isinstance(expression, RowColumn):
                written = RowWriter(self.below).write(expression).sql
                items.append(f"{written} AS {quoted_name(name)}")
            elif _is_read(self.below[expression.name]):
                items.append(f"{quoted_name(expression.name)} AS {quoted_name(name)}")
        holds = " AND ".join(condition(clause, self.below).sql for clause in self.conditions)
        where = f" WHERE {holds}" if holds else ""
        return f"(SELECT {', '.join(items)} FROM {self.relation}{where})"

    @cached_property
    def digest(self) -> str:
        """A hash of what is scanned."""
        written = [f"{name!r}: {known_as(e, self.below)}" for name, e in self.columns.items()]
        written += [known_as(condition, self.below) for condition in self.conditions]
        written += [] if self.read is None else [self.read.asked]
        return hashlib.sha256("\n".join(written).encode()).hexdigest()

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders whose account the files are in; none of a table."""
        return () if self.read is None else self.read.files.roots

    @property
    def state(self) -> str:
        """The state of the files: which there are, and when they were written."""
        return "" if self.read is None else self.read.files.state

    @property
    def tables(self) -> tuple[Table, ...]:
        """It is no combination."""
        return ()

    def check_unchanged(self) -> None:
        """Check that the files are as they were; of a table a transaction sees one state."""
        if self.read is not None:
            self.read.files.check()


def _is_read(type_: str) -> bool:
    return is_read(type_) and not type_.startswith(GENERATED)


def _put(
    columns: Mapping[str, RowExpression], types: Mapping[str, str], expression: RowExpression
) -> RowExpression:
    """Put expressions in the place of the columns that they are."""
    if not isinstance(expression, RowColumn):
        return replaced(expression, partial(_put, columns, types))
    shown = columns[expression.name]
    if isinstance(shown, RowConstant) and shown != NOTHING:  # a string beside a date stays one
        return RowCast(shown, row_type(types[expression.name]))
    return shown
