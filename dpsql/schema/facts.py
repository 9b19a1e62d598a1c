"""Facts that the catalog of a database tells of its tables: public ones, and no others.

Whoever describes tables (`catalog.py`), finds them by their names (`lookup.py`) or follows their
keys (`keys.py`) asks a `Catalog`. None of them knows a connection, or writes SQL: an engine has a
`Catalog` of its own (`dpsql/engines/`), and nothing else of it is known here.

*What a catalog must see to.* What it tells is taken to be public, so it tells nothing that follows
from rows: no sizes, no statistics, though databases keep them beside the rest. And it is taken to
be true: domains follow from types and CHECKs, ways to units from FOREIGN KEYs. So it asks the
system itself, of which no table, view or macro of the database can take the place; and what the
system doesn't enforce for all rows, it leaves out.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

TablePath: TypeAlias = tuple[str, str, str]
"""Database, schema and name."""


class Database(NamedTuple):
    """A database of the engine's own kind: a transaction sees one state of it."""

    name: str
    file: Path | None
    """The file in which it is stored; None if it is in memory. Its account is beside the file."""


class SchemaPath(NamedTuple):
    """A schema of a database."""

    database: str
    schema: str


class NamedTable(NamedTuple):
    """A table that has a name."""

    path: TablePath
    hidden: bool
    """Whether it is temporary, or the system's own."""


class StoredView(NamedTuple):
    """A view, as the catalog has it."""

    path: TablePath
    sql: str
    """Its definition, written by the database: CREATE VIEW …"""
    comment: str | None
    registered: bool = False
    """Whether it stands for an object of Python, which may be replaced at any time."""


class StoredColumn(NamedTuple):
    """A column of a table or a view, as the catalog has it."""

    name: str
    type: str
    """As DuckDB names it, whatever the database."""
    nullable: bool
    generated: bool
    """Whether it is computed when it is read: it may call anything then."""
    comment: str | None


class StoredTable(NamedTuple):
    """A table, as the catalog has it."""

    columns: tuple[StoredColumn, ...]
    comment: str | None
    checks: tuple[str, ...] = ()
    """The CHECKs that hold for all of its rows, in DuckDB's SQL."""
    collated: frozenset[str] = frozenset()
    """The columns of texts of which some pass for equal that differ in their bytes."""


class StoredKey(NamedTuple):
    """A constraint that tells rows of a table apart, or that refers to rows of another one."""

    table: str
    kind: Literal["PRIMARY KEY", "UNIQUE", "FOREIGN KEY"]
    columns: tuple[str, ...]
    """Names in it may be written in another case than those of tables and columns."""
    parent: str = ""
    """If it is a FOREIGN KEY: the table of the same schema that it references."""
    keys: tuple[str, ...] = ()
    """The columns of that, in the order of `columns`."""


class StoredKeys(NamedTuple):
    """The columns of the tables and views of one schema, and the keys that these have."""

    columns: Mapping[str, Mapping[str, str]]
    """Table → column → type. Generated columns have the type ''."""
    keys: tuple[StoredKey, ...] = ()


class TableComment(NamedTuple):
    """A comment on a table or a view that may be meant for dpsql."""

    path: TablePath
    comment: str


class Catalog(Protocol):
    """Tells what is public of the tables of a database, as it is now.

    What is read within a snapshot of the engine is of that. What is temporary is said to be in a
    database `temp`.

    All methods:

    Raises:
        SchemaError: the catalog can't be read now. Its text quotes nothing.
    """

    system: str
    """The name of the database system in errors, such as DuckDB."""

    def held(self, *, anew: bool = True) -> AbstractContextManager[None]:
        """Hold the first answer to each question, within this context.

        A script names few tables, and each of them is described many times. Within another one
        this begins anew: whoever verifies that tables are as they were asks the database again.
        Otherwise it goes on with what is held, if anything is. A catalog may as well ask the
        database each time.
        """
        return nullcontext()

    def forget(self) -> None:
        """Ask the database again from now on, also for what is held: tables may be others now."""

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the parts of a name that is written with dots, such as "main.people"."""
        return tuple(name.split("."))

    def current(self) -> SchemaPath:
        """Return where a name alone is looked up."""

    def database(self, name: str) -> Database | None:
        """Return a database of that name; None if there is none, or it is another system's.

        What another system calls its place is no file, and may hold a password.
        """

    def tables_named(self, name: str) -> list[NamedTable]:
        """List the tables of a name, in whatever case, of all databases and schemas."""

    def views_named(self, name: str) -> list[StoredView]:
        """List the views of a name, in whatever case, but the system's own."""

    def table_names(self) -> list[tuple[str, str]]:
        """List schema and name of all stored tables of the current database.

        Those of the current schema come first.
        """

    def view_names(self) -> list[tuple[str, str]]:
        """List its stored views; see `table_names`."""

    def columns(self, path: Sequence[str]) -> list[StoredColumn]:
        """List the columns of a table or a view, in order; none if there is neither."""

    def table(self, path: Sequence[str]) -> StoredTable | None:
        """Return a table; None if there is none at this path, but a view, say."""

    def keys(self, path: Sequence[str]) -> StoredKeys:
        """Return the keys of all tables of the schema that a path is in.

        Keys that the system doesn't enforce aren't among them.
        """

    def schemas(self) -> list[SchemaPath]:
        """List the schemas that have tables."""

    def comments(self, text: str) -> list[TableComment]:
        """List the comments on tables and views that have a text in them."""

    def zones(self) -> list[str]:
        """List the time zones that are known."""

    def is_gregorian(self, zone: str) -> bool:
        """Whether times are shown in a zone by the Gregorian calendar."""

    def copying(self, relation: str, name: str) -> str:
        """Write the statement that stores a relation as a table of some name, for hints."""


_TOLD: ContextVar[tuple[object, dict[object, Any]] | None] = ContextVar("told", default=None)
"""A connection or session, and what was told on it; see `HeldCatalog.held`."""
T = TypeVar("T")


class HeldCatalog(Catalog):
    """A catalog that asks nothing twice while its answers are held; see `Catalog.held`."""

    @property
    @abstractmethod
    def _place(self) -> object:
        """The connection or session on which it is read."""

    @contextmanager
    def held(self, *, anew: bool = True) -> Iterator[None]:
        """Look at nothing twice, until this ends; see `Catalog`."""
        if not anew and self._told() is not None:
            yield
            return
        before = _TOLD.set((self._place, {}))
        try:
            yield
        finally:
            _TOLD.reset(before)

    def forget(self) -> None:
        """Look at everything again; see `Catalog`."""
        told = self._told()
        if told is not None:
            told.clear()

    def _told(self) -> dict[object, Any] | None:
        """Return what was told and is held; None if nothing is to be held."""
        held = _TOLD.get()
        return held[1] if held is not None and held[0] is self._place else None

    def _once(self, what: object, look: Callable[[], T]) -> T:
        """Return what is seen at a look, or was seen while it is held."""
        told = self._told()
        if told is None:
            return look()
        if what not in told:
            told[what] = look()
        answer: T = told[what]
        return answer
