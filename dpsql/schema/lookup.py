"""Names that the owner gives, of tables and columns: all that each may mean, of which one is left.

A unit, a bound or a reference names a table or columns in a text: `account`, `account.id`,
`main.account.id`; of several, `shop, nr`. One text may fit several things: a table `account`, and
a column `account` of another table; a column `"a.b"`, and the column `b` of a table `a`. Which of
them is taken says who is protected, so it must not follow from what is tried first. All are listed
here, by one function for all declarations, and whoever can't show that they are the same refuses.

*None is missing.* A text means a table as a whole, or a column alone, or a column behind a table,
at any of its dots; or it is a list of such texts, all of one table. `meanings` tries each of these,
and `Names.tables` says what a text means as a table, with whatever stands before it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from dpsql.errors import SchemaError, printable
from dpsql.hints import Hint, instead
from dpsql.schema.facts import Catalog, Database, NamedTable, StoredView, TablePath
from dpsql.schema.names import as_sql, as_text, closest, folded, nearest, unknown
from dpsql.schema.table import Table


class MeantName(NamedTuple):
    """One thing that a name may mean."""

    path: tuple[str, ...]
    """Database, schema and name of a table."""
    columns: tuple[str, ...] = ()
    """Columns of it; none for the table itself."""

    def worded(self, parts: int) -> str:
        """Word it for people, with some parts of its table's path."""
        table = printable(".".join(self.path[-parts:]))
        if not self.columns:
            return f"the table {table}"
        listed = " and ".join(map(printable, self.columns))
        return f"the column{'s' if len(self.columns) > 1 else ''} {listed} of {table}"


class Names(Protocol):
    """A catalog in which names are looked up."""

    def tables(self, text: str) -> Collection[tuple[str, ...]]:
        """Return the paths of all tables that a text means as a whole."""

    def columns_in(self, path: tuple[str, ...]) -> Collection[str]:
        """Return the columns of a table."""


def meanings(names: Names, text: str, own: tuple[str, ...] | None = None) -> list[MeantName]:
    """Return all that a name may mean: tables; columns, alone only those of a table.

    Args:
        names: where it is looked up.
        text: the name.
        own: the table whose columns need no name before them, if there is one.
    """
    return [*map(MeantName, names.tables(text)), *columns_meant(names, text, own)]


def columns_meant(names: Names, text: str, own: tuple[str, ...] | None = None) -> list[MeantName]:
    """Return all columns that a name may mean, of one table each; see `meanings`."""
    meanings_of_text = _of_one(names, text, own)
    parts = text.split(",")
    if len(parts) > 1:
        for chosen in product(*(_of_one(names, part, own) for part in parts)):
            if len({one.path for one in chosen}) == 1:
                columns = tuple(column for one in chosen for column in one.columns)
                meanings_of_text.append(MeantName(chosen[0].path, columns))
    return list(dict.fromkeys(meanings_of_text))


def _of_one(names: Names, text: str, own: tuple[str, ...] | None) -> list[MeantName]:
    """Return each single column that a text may mean."""
    text = text.strip()
    places = [(own, text)] if own is not None else []
    for at, sign in enumerate(text):
        if sign == ".":
            places += [(path, text[at + 1 :]) for path in names.tables(text[:at])]
    found = [(path, match(column, names.columns_in(path))) for path, column in places]
    return list(dict.fromkeys(MeantName(p, (column,)) for p, column in found if column is not None))


def spelled(
    meaning: MeantName,
    read: Callable[[str], Sequence[MeantName]],
    own: tuple[str, ...] | None = None,
) -> str | None:
    """Return the shortest name that has one meaning and no other; None if each has others, too.

    Args:
        meaning: what is to be named.
        read: returns all that a name may mean where it is given.
        own: the table whose columns need no name before them there, if there is one.
    """
    path, columns = meaning
    texts = [".".join(path[-n:]) for n in (1, 2, 3) if all(path[-n:])]
    if columns:
        before = [""] * (path == own) + [f"{table}." for table in texts]
        texts = [", ".join(table + column for column in columns) for table in before]
    return next((text for text in texts if list(read(text)) == [meaning]), None)


def ambiguous(
    name: str, where: str, found: Sequence[MeantName], typed: Sequence[str | None]
) -> SchemaError:
    """Return the error for a name that may mean several things.

    Args:
        name: as the owner wrote it.
        where: what is named so.
        found: all that it may mean.
        typed: how each of them is typed so that it means nothing else; None if it can't be.
    """
    known = dict.fromkeys(text for text in typed if text is not None)
    alike = len({one.worded(1) for one in found}) < len(found)
    means = " or ".join(one.worded(3 if alike else 1) for one in found)
    shown = Hint("")
    for text in known:
        shown = shown + (" or " if shown else "") + text
    return SchemaError(
        f"{where} is named {printable(name)}, which may mean {means}.",
        hint="write " + shown + ", whichever is meant."
        if known
        else "rename one of them: no spelling means just one of them.",
    )


def match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant; SQL ignores case.

    Raises:
        SchemaError: it may be several, which differ in case only.
    """
    meant = folded(name)
    matches = [k for k in known if folded(k) == meant]
    if len(matches) > 1:
        shown = " and ".join(map(printable, matches[:2]))
        raise SchemaError(
            f"{printable(name)} may mean {shown}, which differ in case only.",
            hint="rename one of them.",
        )
    return matches[0] if matches else None


# ── Tables and views of a database, by their names ────────────────────────────────────────────────

_MAX_PARTS = 3
_MAIN = "main"
"""The schema of an attached database that a name means which has none."""
_TEMPORARY = "temp"
"""The database of what is temporary."""
_SHOWN = 8
T = TypeVar("T")
P = TypeVar("P", bound=Sequence[str])


def current_database(catalog: Catalog) -> Database:
    """Return the current database.

    Raises:
        SchemaError: the catalog can't be read, or the database is another system's.
    """
    with catalog.held(anew=False):
        name = catalog.current().database
        file = catalog.database(name)
    if file is None:
        raise SchemaError(
            f"The current database {printable(name)} is not {catalog.system}'s own, so no account "
            "can be kept beside it.",
            hint=f"copy the table into a {catalog.system} database, and USE that.",
        )
    return file


def attached_file(catalog: Catalog, path: Sequence[str], current: str | None = None) -> Path | None:
    """Return the file that a table or view of an attached database is in; None in the current one.

    The file is what its rows are known by: their account is beside it, whatever the database is
    called on this connection. So it has to be one, and of the engine's own kind, of which a
    transaction sees one state. The current database may be given.

    Raises:
        SchemaError: the database is another system's, in memory, or on another machine.
    """
    database = path[0]
    if folded(database) == folded(current or catalog.current().database):
        return None
    found = catalog.database(database)
    if found is None:
        raise _other_system(catalog, database, path)
    file = found.file
    if file is None:
        raise SchemaError(
            f"{printable(path[-1])} is in another in-memory database, {printable(database)}: its "
            "account couldn't be told from that of a later one with this name.",
            hint=f"USE {as_sql(database)}; and make a new session.",
        )
    if not os.path.isfile(file):
        raise SchemaError(
            f"The database {printable(database)} is not a file on this machine, so no account can "
            "be kept beside it.",
            hint=_stored(catalog, path),
        )
    return file


def _other_system(catalog: Catalog, database: str, path: Sequence[str]) -> SchemaError:
    return SchemaError(
        f"The database {printable(database)} is not {catalog.system}'s own, so dpsql can't tell "
        "one snapshot of it from another, nor find its account.",
        hint=f"store the rows in {catalog.system}: {_stored(catalog, path)}",
    )


def _stored(catalog: Catalog, path: Sequence[str], name: str | None = None) -> str:
    """Write how what is at a path is stored in a table, as a hint has it."""
    return catalog.copying(".".join(map(as_sql, path)), as_sql(f"{name or path[-1]}_stored"))


def table_names(catalog: Catalog, *, views: bool = False) -> list[tuple[str, ...]]:
    """List the tables of the current database, or its views; those of another schema with its name.

    Raises:
        SchemaError: the catalog can't be read.
    """
    current = catalog.current().schema
    return [
        (table,) if schema == current else (schema, table)
        for schema, table in (catalog.view_names() if views else catalog.table_names())
    ]


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """Names of the current database, and of those that are attached; see `meanings`."""

    catalog: Catalog

    def tables(self, text: str) -> list[tuple[str, ...]]:
        """Return the paths of all tables and views that a text means."""
        return list(self.parts(text))

    def columns_in(self, path: tuple[str, ...]) -> list[str]:
        """Return the columns of a table or a view."""
        return [column.name for column in self.catalog.columns(path)]

    def parts(self, text: str) -> dict[tuple[str, ...], tuple[str, ...]]:
        """Return the path of each table that a text means → the parts of its name there.

        A text alone means a table of the current schema, or the only one that is called so in
        another. One with dots may be a name alone, or be cut at any of them.
        """
        catalog, here = self.catalog, self.catalog.current()
        listed = [*table_names(catalog), *table_names(catalog, views=True)]
        known = {_folded(parts): parts for parts in listed}
        named = [parts for path, parts in known.items() if path[-1] == folded(text)]
        alone = [parts for parts in named if len(parts) == 1]
        columns = dict[tuple[str, ...], tuple[str, ...]]()
        for parts in alone or (named if len(named) == 1 else []):
            columns[here.database, *([here.schema] if alone else []), *parts] = parts
        for parts in _cuts(catalog, text):
            wanted = _candidates(parts, *here)
            tables = [one.path for one in catalog.tables_named(parts[-1]) if not one.hidden]
            views = [view.path for view in catalog.views_named(parts[-1])]
            for path in (*tables, *views):
                if _folded(path) in wanted and not _is_temporary(path):
                    columns.setdefault(path, parts)
        return columns


def paths_of(parts: Sequence[str], paths: Iterable[P]) -> list[P]:
    """Return those of some paths that a name may mean, whatever the current schema is."""
    name = _folded(parts)
    known = [(path, _folded(path)) for path in paths]
    return [
        path
        for path, whole in known
        if whole[-len(name) :] == name or (len(name) > 1 and name == (whole[0], whole[-1]))
    ]


def _cuts(catalog: Catalog, text: str) -> list[tuple[str, ...]]:
    """Cut a text with dots into two or three parts in all ways, or as the catalog has it cut."""
    pieces, parts = tuple(text.split(".")), catalog.parts(text)
    if parts != pieces:
        return [parts] if 1 < len(parts) <= _MAX_PARTS else []
    cuts = [(i, j) for i, j in combinations(range(1, len(pieces) + 1), 2)]
    return [
        tuple(".".join(each) for each in (pieces[:i], pieces[i:j], pieces[j:]) if each)
        for i, j in cuts
    ]


def meant(catalog: Catalog, name: str) -> tuple[str, ...]:
    """Return the parts of a declared table's name, which may itself have a dot in it.

    A name alone also means a table of another schema, if it is the only one of that name.

    Raises:
        SchemaError: it may mean several tables.
    """
    found = CatalogNames(catalog).parts(name)
    if len(found) > 1:
        meanings, names = list(map(MeantName, found)), CatalogNames(catalog)
        texts = [
            spelled(one, lambda text: [*map(MeantName, names.tables(text))]) for one in meanings
        ]
        typed = [None if text is None else as_text(text) for text in texts]
        raise ambiguous(name, "A table", meanings, typed)
    if found:
        return next(iter(found.values()))
    parts = catalog.parts(name)
    return parts if len(parts) <= _MAX_PARTS else (name,)


def find(
    catalog: Catalog, parts: tuple[str, ...], within: tuple[str, str] | None = None
) -> TablePath:
    """Resolve a name to the path of one base table, of the current or an attached database.

    Args:
        catalog: tells of the tables.
        parts: the name.
        within: the database and the schema in which a name alone is looked up; if not given, the
            current ones, after what is temporary.

    Raises:
        SchemaError: there is none, or the name may mean several; or see `attached_file`.
    """
    shown = _checked(parts)
    here = catalog.current()
    place = within or here
    tables = catalog.tables_named(parts[-1])
    views = catalog.views_named(parts[-1])
    wanted = _candidates(parts, *place)
    stored = [one.path for one in tables if not one.hidden]
    found = _one(shown, [path for path in stored if _folded(path) in wanted])
    if found is None:
        raise _not_found(shown, parts, tables, views, place, catalog)
    others = [one.path for one in tables if one.hidden] + [one.path for one in views]
    if within is None and len(parts) == 1 and any(map(_is_temporary, others)):
        raise _hidden(shown, found, "table")
    attached_file(catalog, found, here.database)
    return found


def is_table(catalog: Catalog, path: Sequence[str]) -> bool:
    """Whether there is a stored table at a path.

    Raises:
        SchemaError: the catalog can't be read.
    """
    tables = catalog.tables_named(path[-1])
    return any(_folded(one.path) == _folded(path) for one in tables if not one.hidden)


def find_view(
    catalog: Catalog, parts: tuple[str, ...], within: tuple[str, str] | None = None
) -> StoredView | None:
    """Resolve a name to a view of the current or an attached database; None if it means none.

    For the arguments see `find`.

    Raises:
        SchemaError: it is no name, or may mean several; or see `attached_file`.
    """
    shown = _checked(parts)
    here = catalog.current()
    wanted = _candidates(parts, *(within or here))
    views = {view.path: view for view in catalog.views_named(parts[-1])}
    stored = [path for path in views if not _is_temporary(path)]
    found = _one(shown, [path for path in stored if _folded(path) in wanted])
    if found is None:
        return None
    others = [*views, *(one.path for one in catalog.tables_named(parts[-1]))]
    if within is None and len(parts) == 1 and any(map(_is_temporary, others)):
        raise _hidden(shown, found, "view")
    attached_file(catalog, found, here.database)
    return views[found]


def _checked(parts: tuple[str, ...]) -> str:
    """Return how a name is shown.

    Raises:
        SchemaError: it is none.
    """
    shown = printable(".".join(parts))
    if not 1 <= len(parts) <= _MAX_PARTS or not all(_encodable(part) and part for part in parts):
        raise SchemaError(
            f"{shown or 'An empty text'} is not a table name.", hint="for example people."
        )
    return shown


def _is_temporary(path: TablePath) -> bool:
    return folded(path[0]) == _TEMPORARY


def _one(shown: str, paths: Sequence[TablePath]) -> TablePath | None:
    if len(paths) > 1:
        raise SchemaError(
            f"The name {shown} is ambiguous: it means {_listed(paths)}.",
            hint="write database.schema.table.",
        )
    return paths[0] if paths else None


def _hidden(shown: str, path: TablePath, kind: str) -> SchemaError:
    return SchemaError(
        f"The name {shown} is ambiguous: a temporary table or view hides the stored {kind}.",
        hint=f"write {printable(path[1])}.{printable(path[2])}, or drop the temporary one.",
    )


def is_named(catalog: Catalog, parts: tuple[str, ...], table: Table) -> bool:
    """Whether a name, with or without its schema and database, means a table."""
    return _folded(table.path) in _candidates(parts, *catalog.current())


def _candidates(parts: tuple[str, ...], database: str, schema: str) -> set[tuple[str, ...]]:
    name = parts[-1]
    paths: list[tuple[str, ...]]
    if len(parts) == 1:
        paths = [(database, schema, name)]
    elif len(parts) == 2:  # the first is a schema or, as DuckDB allows, a database
        in_database = folded(parts[0]) == folded(database)
        paths = [(database, parts[0], name), (parts[0], schema if in_database else _MAIN, name)]
    else:
        paths = [parts]
    return {_folded(path) for path in paths}


def storing(catalog: Catalog, parts: tuple[str, ...], view: Sequence[str]) -> str:
    """Word how the rows of a view are stored in a table."""
    columns = [column.name for column in catalog.columns(view)]
    listed = ", ".join(map(as_sql, columns[:_SHOWN]))
    more = ", …" if len(columns) > _SHOWN else ""
    stored = _stored(catalog, parts, view[-1])
    return f"store its rows in a table, and declare domains of its columns {listed}{more}: {stored}"


def _not_found(
    shown: str,
    parts: tuple[str, ...],
    tables: list[NamedTable],
    views: list[StoredView],
    place: tuple[str, str],
    catalog: Catalog,
) -> SchemaError:
    """Return the error of a name that no table has: what has it instead, or names like it."""
    seen = [view for view in views if folded(view.path[-1]) == folded(parts[-1])]
    here, current = place
    wanted = {(_TEMPORARY, _MAIN, folded(parts[-1])), *_candidates(parts, here, current)}
    passing = _passing(shown, parts[-1], tables, seen, wanted, catalog)
    if passing is not None:
        return passing
    paths = [one.path for one in tables if not one.hidden] + [view.path for view in seen]
    near = [path[1:] for path in paths if path[0] == here]
    if near:
        return unknown(
            f"There is no table {shown} in the schema {printable(current)}.", _written(near)
        )
    for path in paths:
        attached_file(catalog, path)
    if paths:
        return unknown(
            f"There is no table {shown} in the database {printable(here)}.", _written(paths)
        )
    return unknown(f"There is no table {shown}.", _names_like(parts, catalog))


def _passing(
    shown: str,
    name: str,
    tables: list[NamedTable],
    views: list[StoredView],
    wanted: Container[tuple[str, ...]],
    catalog: Catalog,
) -> SchemaError | None:
    """Return the error of a name that stands for what isn't stored; None if nothing such has it."""
    if any(view.registered for view in views):
        return SchemaError(
            f"{shown} is a registered frame; only base tables and views of them can be released "
            "from, since what is registered may be replaced at any time.",
            hint=f"ask the frame itself, as the table self: polars.DataFrame({as_sql(name)})"
            f".dp.session(); or store its rows: {_stored(catalog, [name])}",
        )
    if any(_folded(view.path) in wanted for view in views):
        return SchemaError(
            f"{shown} is a temporary view; only base tables and stored views of them can be "
            "released from.",
            hint="create it without TEMP.",
        )
    if any(_is_temporary(one.path) for one in tables):
        return SchemaError(
            f"{shown} is a temporary table; only stored base tables can be released from.",
            hint="create it without TEMP.",
        )
    return None


def _names_like(parts: tuple[str, ...], catalog: Catalog) -> Hint | str:
    """Name the tables that may be meant by a name that none has."""
    named = [*table_names(catalog), *table_names(catalog, views=True)]
    known = [".".join(map(as_sql, path)) for path in named[:1000]]
    made = catalog.copying("'file.parquet'", "…")
    hint = f"the database has no table: {made} makes one."
    if known:
        hint = closest(".".join(parts), known)
    if len(parts) == 1 and nearest(parts[0], known) is None:
        hint = hint + (
            f" If it is a frame of Python, store it: {_stored(catalog, parts)} or ask it as the "
            "table self, by its dp.session()."
        )
    return hint


def _written(paths: Sequence[Sequence[str]]) -> Hint:
    """Say to write one of some names."""
    first, *others = (instead(".".join(map(as_sql, path))) for path in paths)
    words = "write " + first
    for other in others:
        words = words + " or " + other
    return words + "."


def of_table(catalog: Catalog, declared: Mapping[str, T], path: Sequence[str]) -> T | None:
    """Return what is declared for a table."""
    near = [
        key for key in declared if folded(key.split(".")[-1]) == folded(path[-1].split(".")[-1])
    ]
    tables = [key for key in near if means(catalog, key, path)]
    if len(tables) > 1:
        raise SchemaError(
            f"The schema declares the table {path[-1]} twice.", hint="SQL ignores case: keep one."
        )
    return declared[tables[0]] if tables else None


def means(catalog: Catalog, name: str, path: Sequence[str]) -> bool:
    """Whether a declared name is that of the table at a path."""
    return _folded(path) in _candidates(meant(catalog, name), *catalog.current())


def _encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _folded(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(folded(part) for part in path)


def _listed(paths: Sequence[Sequence[str]]) -> str:
    return " and ".join(printable(".".join(path[:3])) for path in paths)
