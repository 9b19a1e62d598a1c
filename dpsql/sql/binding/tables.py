"""Meanings of the names of tables in a script: private tables, and public ones that are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import polars as pl

from dpsql.errors import SchemaError, UnboundedError, printable
from dpsql.rel.related import ReadTable, RelatedRows
from dpsql.schema import Table
from dpsql.schema.grain import with_computed
from dpsql.schema.names import aside, folded, quoted_name
from dpsql.sql.binding.existing import ExistingGroups
from dpsql.sql.sandbox.database import Sandbox

if TYPE_CHECKING:
    from dpsql.rel.added import AddedColumn

MAX_VALUES = 10_001
"""Values of a column that are listed; more are too many for all that is made of them."""
Resolve = Callable[[tuple[str, ...]], Table]
Public = Callable[[tuple[str, ...]], pl.DataFrame | None]
Widen = Callable[[Table], Table]
"""Gives a table the columns of the rows that it refers to."""


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


def no_parents(table: Table) -> Table:
    """Know of no other private table that rows refer to."""
    return table


class NamedTables:
    """The tables that the statements of one script name; each is read once.

    Args:
        sandbox: where public tables are stored.
        resolve: finds the private table of a name.
        public: returns the public table of a name, or None.
        widen: gives a table the columns of the rows that it refers to.
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
        unbounded: Unbounded = no_bound,
        relate: Relate = no_relations,
        unique: Unique = nothing_unique,
        same_units: SameUnits = any_table,
    ) -> None:
        self._sandbox, self.check_same_units = sandbox, same_units
        self._relate, self._unique = relate, unique
        self._related: dict[str, Table] = {}
        self.unbounded = unbounded
        self._widen = widen
        self._grains: dict[tuple[str, ...], Table] = {}
        self._unclear: dict[tuple[str, ...], SchemaError] = {}
        self._read: dict[tuple[str, ...], ReadTable] = {}
        self._added: dict[tuple[str, ...], dict[str, AddedColumn]] = {}
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
        """Return a private table with the columns of the rows that it refers to.

        Where its references don't say whose rows these are, it is that alone: its rows meet none,
        see `check_met`.
        """
        if table.path not in self._grains:
            try:
                self._grains[table.path] = self._widen(table)
            except SchemaError as error:
                self._grains[table.path], self._unclear[table.path] = table, error
        return self._grains[table.path]

    def check_met(self, tables: Iterable[Table]) -> None:
        """Check that the units of all rows which some tables refer to are clear.

        Raises:
            SchemaError: it isn't, so that they meet no others.
        """
        for table in tables:
            if table.path in self._unclear:
                raise self._unclear[table.path]

    def related(self, rows: RelatedRows) -> Table:
        """Return the rows of a relation as a table.

        Raises:
            SchemaError: their units are not the same.
        """
        if rows.digest not in self._related:
            self._related[rows.digest] = self._relate(rows)
        return self._related[rows.digest]

    def note_read(self, table: Table) -> None:
        """Note a table that relations read."""
        self._read[table.path] = ReadTable(table, self.unique(table))

    @property
    def read(self) -> tuple[ReadTable, ...]:
        """The tables that relations read."""
        return tuple(self._read.values())

    def unique(self, table: Table) -> frozenset[frozenset[str]]:
        """Return the sets of columns in which no two rows of a table agree."""
        return self._unique(table)

    def add_column(self, table: Table, column: AddedColumn) -> None:
        """Note a column that a relation adds to the rows of a table."""
        self._added.setdefault(table.path, {}).setdefault(column.name, column)

    def with_added(self, table: Table) -> Table:
        """Return a private table with all columns that its rows have of others, so far."""
        return with_computed(self.grain(table), tuple(self._added.get(table.path, {}).values()))

    def asked(self, table: Table) -> Table:
        """Return a table as it is asked by all statements: with the columns that these add."""
        return self.with_added(table) if table.path in self._added else table

    def count(self, table: Table) -> bool:
        """Note that rows of a table are counted.

        Returns:
            Whether none of another one are that is stored in the same: a view beside its table.
        """
        return self._counted.setdefault(table.stored.path, table.path) == table.path

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note added columns and counted tables; forget them again if something is refused."""
        added = {path: dict(columns) for path, columns in self._added.items()}
        counted, read = dict(self._counted), dict(self._read)
        try:
            yield
        except Exception:
            self._added, self._counted, self._read = added, counted, read
            raise

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
