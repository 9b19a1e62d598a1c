"""Meanings of the names of tables in a script: private tables, and public ones that are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from dpsql.errors import SchemaError, Span, UnboundedError, printable
from dpsql.rel.related import RelatedRows
from dpsql.rows.windows import WindowFrame
from dpsql.schema import Table
from dpsql.schema.combined import RowCombination
from dpsql.schema.grain import chosen_rows, with_added
from dpsql.schema.names import aside, folded, quoted_name
from dpsql.schema.windows import Chosen
from dpsql.sql.binding.existing import ExistingGroups
from dpsql.sql.binding.expressions import BoundExpr
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText

if TYPE_CHECKING:
    from dpsql.rel.added import AddedColumn

MAX_VALUES = 10_001
"""Values of a column that are listed; more are too many for all that is made of them."""
Resolve = Callable[[tuple[str, ...]], Table]
Public = Callable[[tuple[str, ...]], pl.DataFrame | None]
Widen = Callable[[Table], Table]
"""Gives a table the columns of the rows that it refers to."""


AROUND = "__o"
"""What the canonical names begin with of columns of a row, in what is said of others for it."""


Combine = Callable[[RowCombination], Table]
"""Describes rows that are made of rows of several tables, or of one twice."""


def no_combinations(combination: RowCombination) -> Table:
    """Know of no rows that are made of others.

    Raises:
        SchemaError: always.
    """
    raise SchemaError(
        f"Rows of {printable(combination.name)} can be joined only where they are stored.",
        hint="ask this in a session on the data.",
    )


Relate = Callable[[RelatedRows], Table]
"""Describes the rows of a relation."""
Unique = Callable[[Table], frozenset[frozenset[str]]]
"""Returns the sets of columns in which no two rows of a table agree."""


def no_relations(rows: RelatedRows) -> Table:
    """Know of no rows that are made of others.

    Raises:
        SchemaError: always.
    """
    raise SchemaError(
        f"Rows made of those of {printable(rows.name)} can be asked only where these are stored.",
        hint="ask this in a session on the data.",
    )


SameUnits = Callable[[Table, Table], None]
"""Raises a SchemaError if the rows of a second table are not of the same units as of the first."""


def any_table(_: Table, __: Table) -> None:
    """Know of no units that tables could have."""


def nothing_unique(_: Table) -> frozenset[frozenset[str]]:
    """Know of no keys."""
    return frozenset()


Unbounded = Callable[[Table], UnboundedError]
"""Words that nothing bounds the rows of units in a table."""


def no_bound(table: Table) -> UnboundedError:
    """Say so without knowing how it is declared."""
    return UnboundedError(
        f"Nothing says how many rows of a unit count in {printable(table.name)}.",
        hint="count units in place of rows; or ask a session that has a bound.",
    )


Choose = Callable[[Table, Chosen], Table | None]
"""Describes rows that are chosen among those of a table; None if they are asked as rows of it."""


def no_parents(table: Table) -> Table:
    """Know of no other private table that rows refer to."""
    return table


@dataclass(frozen=True, slots=True)
class UnitRows:
    """A value computed from rows of the same unit, as it is bound; see `units/within.py`."""

    name: str
    """What it is, in full."""
    table: Table
    """Whose rows they are."""
    around: Table
    """The table of the row that it is for."""
    pairs: tuple[tuple[str, str], ...]
    """Columns of the row that it is for, each with one of those rows that is equal."""
    function: str
    value: BoundExpr | None
    """What is aggregated; None if rows are counted, or looked for. Here and in conditions, columns
    of the row that it is for have `AROUND` in their names, in place of `__`."""
    conditions: tuple[BoundExpr, ...]
    span: Span
    source: SourceText


@dataclass(frozen=True, slots=True)
class WindowSort:
    """An expression that the rows of a window are sorted by, as it is bound."""

    value: BoundExpr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class UnitWindow:
    """A value computed for a row among others of its unit, bound; see `units/windows.py`."""

    name: str
    """What it is, in full."""
    around: Table
    """The table whose rows they are."""
    function: str
    arguments: tuple[BoundExpr, ...]
    numbers: tuple[int, ...]
    """The constants that the function takes."""
    partition: tuple[BoundExpr, ...]
    told: tuple[str, ...]
    """Columns of PARTITION BY that tell to which rows these belong, as they are stored."""
    order: tuple[WindowSort, ...]
    frame: WindowFrame | None
    conditions: tuple[BoundExpr, ...]
    span: Span
    source: SourceText

    @property
    def bound(self) -> tuple[BoundExpr, ...]:
        """All expressions over a row."""
        order = (one.value for one in self.order)
        return (*self.arguments, *self.partition, *order, *self.conditions)

    def named(self, name: str) -> UnitWindow:
        """Return it under a name."""
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class AddedRows:
    """A column that a relation adds to the rows of a table."""

    around: Table
    """The table."""
    column: AddedColumn

    @property
    def name(self) -> str:
        """The name of the column, which says in full what it is."""
        return self.column.name


RowsOfUnit: TypeAlias = UnitRows | UnitWindow | AddedRows
"""A column that is computed of a row and others of its unit."""


class NamedTables:
    """The tables that the statements of one script name; each is read once.

    Args:
        sandbox: where public tables are stored.
        resolve: finds the private table of a name.
        public: returns the public table of a name, or None.
        widen: gives a table the columns of the rows that it refers to.
        combine: describes rows that are made of rows of several tables.
        choose: describes rows that are chosen among those of a table.
        unbounded: words that nothing bounds the rows of units in a table.
        relate: describes the rows of a relation.
        unique: returns the sets of columns in which no two rows of a table agree.
        same_units: refuses a table whose rows are not of the units of another one.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        resolve: Resolve,
        public: Public,
        widen: Widen = no_parents,
        combine: Combine = no_combinations,
        choose: Choose = chosen_rows,
        unbounded: Unbounded = no_bound,
        relate: Relate = no_relations,
        unique: Unique = nothing_unique,
        same_units: SameUnits = any_table,
    ) -> None:
        self._sandbox, self.check_same_units = sandbox, same_units
        self._choose = choose
        self._relate, self._unique = relate, unique
        self._related: dict[str, Table] = {}
        self.unbounded = unbounded
        self._chosen: dict[str, Table | None] = {}
        self._widen = widen
        self._combine = combine
        self._combined: dict[str, Table] = {}
        self._grains: dict[tuple[str, ...], Table] = {}
        self._rows: dict[tuple[str, ...], dict[str, RowsOfUnit]] = {}
        self._all_rows: list[RowsOfUnit] = []
        self._counted: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._resolve = resolve
        self._public = public
        self._stored: dict[tuple[str, ...], str | None] = {}
        self._tables: dict[tuple[str, ...], Table] = {}
        self.existing = ExistingGroups(sandbox, self.stored)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox, where public relations are stored."""
        return self._sandbox

    def private(self, parts: tuple[str, ...]) -> Table:
        """Return the private table of a name."""
        key = tuple(folded(part) for part in parts)
        if key not in self._tables:
            self._tables[key] = self._resolve(parts)
        return self._tables[key]

    def is_private(self, parts: tuple[str, ...]) -> bool:
        """Whether a name is that of a private table, and not of a public one."""
        try:
            return self.stored(parts) is None and bool(self.private(parts).name)
        except SchemaError:  # which is told where the table is bound
            return False

    def columns(self, parts: tuple[str, ...]) -> list[str] | None:
        """Return the names of a table's columns, in the order of `*`; None if there is none."""
        name = self.stored(parts)
        if name is not None:
            return [known for known, _ in self._sandbox.types(f"SELECT * FROM {name}")]
        return list(self.private(parts).listed) if self.is_private(parts) else None

    def values(self, parts: tuple[str, ...], column: str) -> list[str] | None:
        """Return the public values of a column as text, sorted; None if it has none."""
        name = self.stored(parts)
        if name is not None:
            columns = [known for known, _ in self._sandbox.types(f"SELECT * FROM {name}")]
            found = next((known for known in columns if folded(known) == folded(column)), None)
            return None if found is None else self._distinct(quoted_name(found), name)
        table = self.private(parts)
        for index, (known, domain) in enumerate(table.columns.items()):
            if folded(known) == folded(column) and domain.uppers is None:
                return self._distinct("value", self._sandbox.domain(index, domain))
        return None

    def is_unique(self, stored: str, column: str) -> bool:
        """Whether no two rows of a public table of the sandbox have the same value in a column."""
        known = [name for name, _ in self._sandbox.types(f"SELECT * FROM {stored}")]
        shown = next((quoted_name(c) for c in known if folded(c) == folded(column)), None)
        if shown is None:
            return False
        counts = f"COUNT({shown}) = COUNT(DISTINCT {shown})"
        ((unique,),) = self._sandbox.rows(f"SELECT {counts} FROM {stored}")
        return bool(unique)

    def _distinct(self, column: str, table: str) -> list[str]:
        listed = f"SELECT DISTINCT {column}::VARCHAR AS text FROM {table} WHERE text IS NOT NULL"
        rows = self._sandbox.rows(f"{listed} ORDER BY text LIMIT {MAX_VALUES}")
        return [text for (text,) in rows]

    def grain(self, table: Table) -> Table:
        """Return a private table with the columns of the rows that it refers to."""
        if table.path not in self._grains:
            self._grains[table.path] = self._widen(table)
        return self._grains[table.path]

    def combined(self, combination: RowCombination) -> Table:
        """Return rows that are made of rows of several tables as a table.

        Raises:
            SchemaError: their units are not the same.
        """
        if combination.digest not in self._combined:
            self._combined[combination.digest] = self._combine(combination)
        return self._combined[combination.digest]

    def related(self, rows: RelatedRows) -> Table:
        """Return the rows of a relation as a table.

        Raises:
            SchemaError: their units are not the same.
        """
        if rows.digest not in self._related:
            self._related[rows.digest] = self._relate(rows)
        return self._related[rows.digest]

    def unique(self, table: Table) -> frozenset[frozenset[str]]:
        """Return the sets of columns in which no two rows of a table agree."""
        return self._unique(table)

    def chosen(self, table: Table, chosen: Chosen) -> Table | None:
        """Return rows that are chosen among those of a table; None if they are asked as these."""
        if chosen.digest not in self._chosen:
            self._chosen[chosen.digest] = self._choose(table, chosen)
        return self._chosen[chosen.digest]

    def window(self, table: Table, column: str) -> UnitWindow | None:
        """Return the window that a column of a table is, by its canonical name; None if none."""
        place = int(column.removeprefix("__w")) - len(table.undeclared)
        found = self.names_of_rows(table)
        one = self._rows[table.path][found[place]] if place in range(len(found)) else None
        return one if isinstance(one, UnitWindow) else None

    def add_rows(self, rows: UnitRows | UnitWindow) -> int:
        """Note what is computed of rows of the same unit; return its place among the columns."""
        self._note(rows)
        return len(rows.around.undeclared) + self.names_of_rows(rows.around).index(rows.name)

    def add_column(self, rows: AddedRows) -> None:
        """Note a column that a relation adds to the rows of a table."""
        self._note(rows)

    def _note(self, rows: RowsOfUnit) -> None:
        found = self._rows.setdefault(rows.around.path, {})
        if rows.name not in found:
            found[rows.name] = rows
            self._all_rows.append(rows)

    def names_of_rows(self, table: Table) -> tuple[str, ...]:
        """Name the columns without a domain that are computed for the rows of a table, so far."""
        found = self._rows.get(table.path, {}).values()
        return tuple(
            one.name for one in found if not isinstance(one, AddedRows) or not one.column.domain
        )

    def with_rows(self, table: Table) -> Table:
        """Return a private table with all columns that its rows have of others, so far."""
        found = self.grain(table)
        for one in self._rows.get(table.path, {}).values():
            if isinstance(one, AddedRows):
                found = with_added(found, one.column)
            else:  # which has its place, and isn't read yet
                found = replace(found, undeclared={**found.undeclared, one.name: "BOOLEAN"})
        return found

    def count(self, table: Table) -> bool:
        """Note that rows of a table are counted.

        Returns:
            Whether none of another one are that is stored in the same: a view beside its table.
        """
        return self._counted.setdefault(table.stored.path, table.path) == table.path

    def forget_rows(self, known: Sequence[RowsOfUnit]) -> None:
        """Forget what has been noted of rows of the same unit since it was no more than this."""
        for rows in self._all_rows[len(known) :]:
            del self._rows[rows.around.path][rows.name]
        del self._all_rows[len(known) :]

    @property
    def rows_of_units(self) -> tuple[RowsOfUnit, ...]:
        """The values computed from rows of the same unit, each after those that it needs itself."""
        return tuple(self._all_rows)

    def stored(self, parts: tuple[str, ...]) -> str | None:
        """Return the sandbox table of a public table; None if the name isn't one."""
        key = tuple(folded(part) for part in parts)
        if key not in self._stored:
            frame = self._public(parts)
            name = None
            if frame is not None:
                name = self._sandbox.new_name("public")
                self._sandbox.store(name, frame.rename(aside))
            self._stored[key] = name
        return self._stored[key]
