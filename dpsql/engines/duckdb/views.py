"""Private tables that are views: what the catalog says of them, and what is declared.

The table below is charged for, whatever the views on the way are called and however many there are.
The unit of a view is told by columns of that table, which the view shows as they stand there, so
that the rows of a unit are the same rows under all names; else the view is refused. How its rows
are scanned, and why one row below is one row above at most, `projection.py` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace

from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.columns import source_of
from dpsql.engines.duckdb.definitions import (
    PARSE,
    AllColumns,
    ReadFiles,
    ViewDefinition,
    read_definition,
)
from dpsql.engines.duckdb.files import (
    READERS,
    check_numbers,
    check_options,
    columns_of,
    guarded,
    list_files,
    partition_types,
    scan_of,
)
from dpsql.engines.duckdb.projection import FileScan, Layer, Projection
from dpsql.engines.frozen import is_one_file, partitions_of
from dpsql.engines.source import RefusedViewError
from dpsql.errors import SchemaError, SqlError, UnsupportedSqlError, printable
from dpsql.rows.expression import (
    RowCast,
    RowColumn,
    RowExpression,
    replaced,
)
from dpsql.rows.times import with_clocks
from dpsql.rows.types import row_type
from dpsql.rows.write import RowWriter
from dpsql.schema import EachRow, Schema, Table, Unit
from dpsql.schema.catalog import (
    check_zones,
    column_types,
    declared_for,
    expressions_for,
    groups_of,
    read_table,
    unit_of,
)
from dpsql.schema.domain import ZONED, Domain
from dpsql.schema.facts import Catalog, StoredKeys, StoredView
from dpsql.schema.fitting import GENERATED, KnownColumn, fitted
from dpsql.schema.keys import KeyCatalog, read_keys
from dpsql.schema.limits import limited
from dpsql.schema.lookup import attached_file, find, find_view, is_table, storing
from dpsql.schema.names import apart, closest, folded, quoted_name
from dpsql.schema.references import resolve_unit
from dpsql.schema.units import DeclaredUnit, ResolvedUnit, RowLimit

FILES = "files"
"""Name of the files that a view reads, where a table would have its own."""


def unit_below(catalog: Catalog, layer: Layer, said: DeclaredUnit) -> DeclaredUnit:
    """Name the unit of a view by the columns below.

    Raises:
        SchemaError: they are no columns of the view that are shown as they are below.
    """
    if not isinstance(said, Unit):
        return said
    view = printable(layer.path[-1])
    shown = list[str]()
    for columns in _unit_columns(catalog, layer, said):
        plain = layer.plain(columns)
        if plain is None or layer.below is None:
            raise SchemaError(
                f"The column {columns} of the view {view} is computed, so it can't be its unit.",
                hint="show the column of the table below unchanged, and name that column.",
            )
        shown.append(plain)
    names = names_below(catalog, layer)
    key = names.spelled(names.path, tuple(shown))
    if key is None:
        raise SchemaError(
            f"No name means {printable(', '.join(shown))} of {printable(names.path[-1])} alone, "
            f"which the view {view} shows as its unit.",
            hint="rename it there.",
        )
    return Unit(key, said.max_rows, max_groups=said.max_groups, max_values=said.max_values)


def names_below(catalog: Catalog, layer: Layer) -> KeyCatalog:
    """Return what names mean of what is below a view: files, a table or another view."""
    below = layer if layer.below is None else layer.below
    if below.files is not None:
        return read_keys(StoredKeys({FILES: below.types}), ("", "", FILES))
    return read_keys(catalog.keys(below.path), below.path)


def _unit_columns(catalog: Catalog, layer: Layer, said: Unit) -> list[str]:
    """Return the columns of a view that have the id of its unit, by declared references too.

    Raises:
        SchemaError: there are none.
    """
    view, stored = printable(layer.path[-1]), catalog.keys(layer.path)
    names = read_keys(stored, layer.path, said.references)
    meant = [meaning.columns for meaning in names.means(said.key) if meaning.path == names.path]
    if not any(meant) and not said.references:
        raise SchemaError(
            f"The view {view} has no column {printable(said.key)} that could be its unit.",
            hint=closest(said.key, layer.columns),
        )
    resolved = resolve_unit(stored, layer.path, said)
    if resolved.joins and layer.below is not None and layer.below.files is not None:
        raise SchemaError(
            f"The rows of {view} belong to units by rows of another table, "
            f"{printable(resolved.joins[0].path[-1])}, which files can't lead to.",
            hint="put the rows of all into one DuckDB file, in Python "
            f'duckdb.connect("all.duckdb").execute("CREATE TABLE {view} AS FROM …"), and ask '
            "that, with the same references; or pass a frame in place of each file.",
        )
    if resolved.joins:
        raise SchemaError(
            f"The unit of the view {view} is in another table, "
            f"{printable(resolved.joins[0].path[-1])}, which is not supported for views.",
            hint="show the column that has the id in the view's table; or store its rows: "
            f"{storing(catalog, layer.path[1:], layer.path)}",
        )
    return [name for name, _ in resolved.columns]


def unit_above(layer: Layer, inner: Table, domains: Collection[str]) -> ResolvedUnit | None:
    """Name the unit of what is below by the view's own column.

    Of the limits on rows that agree in columns below, those stay that are for columns which the
    view shows as they are: no others can be told of its rows.

    Args:
        layer: the view.
        inner: what is below.
        domains: the columns of the view with a domain.

    Raises:
        SchemaError: the view doesn't show it.
    """
    unit = inner.unit
    if unit is None:
        return None
    shown = {layer.plain(name): name for name in reversed(list(layer.columns))}
    known = {layer.plain(name): name for name in reversed(list(layer.columns)) if name in domains}
    limits = (
        RowLimit(tuple(sorted(known[name] for name in limit.columns)), limit.rows)
        for limit in unit.limits
        if all(name in known for name in limit.columns)
    )
    if not unit.joins and all(name in shown for name, _ in unit.columns):
        (column, _), *further = [(shown[name], type_) for name, type_ in unit.columns]
        name = ", ".join(shown[name] for name, _ in unit.columns)
        columns = tuple(sorted(limits))
        return replace(unit, name=name, column=column, further=tuple(further), limits=columns)
    raise SchemaError(
        f"The rows of {printable(inner.name)} belong to units, of {printable(unit.name)}, which "
        f"the view {printable(layer.path[-1])} doesn't show.",
        hint="create the view again with that column, unchanged.",
    )


"""The name of what is read from files, which has none."""
_MOST_VIEWS = 16
"""Views over views over views."""


def describe_table(
    catalog: DuckDBCatalog,
    name_parts: tuple[str, ...],
    declared: Schema | None = None,
    unit: DeclaredUnit = None,
) -> Table:
    """Describe a base table or a view of the current database; reads no row.

    Args:
        catalog: tells of the tables; besides it, what files say of their columns is read.
        name_parts: the name, optionally after its schema, or its database and schema.
        declared: domains and units that go before what is known otherwise.
        unit: the privacy unit.

    Raises:
        SchemaError: see `read_table`; the view can't be released from.
    """
    view = find_view(catalog, tuple(name_parts))
    if view is None:
        return read_table(catalog, name_parts, declared, unit)
    try:
        table = _described(catalog, _layer(catalog, view, 1), declared, unit)
        source_of(table)  # so that whatever can't be written is refused here
        return table
    except SqlError as error:  # of an operand that doesn't fit its operator
        why = f"in its definition, {error.message}".rstrip(".")
    raise _refused(catalog, view, why)


def _refused(
    catalog: DuckDBCatalog, view: StoredView, why: str, hint: str | None = None
) -> SchemaError:
    named = view.path if attached_file(catalog, view.path) else view.path[1:]
    return SchemaError(
        f"{printable(view.path[-1])} is a view that can't be released from: {why}.",
        hint=hint or storing(catalog, named, view.path),
    )


# ── what a view is made of ─────────────────────────────────────────────────────────────────


def _layer(catalog: DuckDBCatalog, view: StoredView, level: int) -> Layer:
    """Read a view, and what is below it.

    Raises:
        SchemaError: it can't be released from.
    """
    try:
        if level > _MOST_VIEWS:
            raise RefusedViewError(f"more than {_MOST_VIEWS} views stand on each other")
        read = read_definition(view.sql, lambda text: str(catalog.fetch(PARSE, [text])[0][0]))
        below = _below(catalog, view, read, level)
        shown, types = _typed(catalog, view, _shown(read, below), below)
        where = None if read.where is None else _computed(read.where, below)
    except RefusedViewError as error:
        raise _refused(catalog, view, error.message, error.hint) from None
    return Layer(view.path, types, below, shown, where, view.comment)


def _below(catalog: DuckDBCatalog, view: StoredView, read: ViewDefinition, level: int) -> Layer:
    """Find what a view reads: names in it are of its own database, and first of its schema.

    They are looked up as in a statement there. So a table of another database may be read, by its
    full name: its account is that of the file which it is in.
    """
    if isinstance(read.relation, ReadFiles):
        return _files(catalog, read.relation)
    parts = read.relation.parts
    if parts in catalog.copies:
        return _copied(catalog, parts)
    database, schema, _ = view.path
    inner = find_view(catalog, parts, (database, schema))
    if inner is not None:
        return _layer(catalog, inner, level + 1)
    reader = _reader(parts[0]) if len(parts) == 1 else None
    if reader is not None and not is_table(catalog, (database, schema, *parts)):
        return _files(catalog, ReadFiles(reader, parts, {}))
    stored = find(catalog, parts, (database, schema))
    return Layer(stored, column_types(catalog, stored))


def _reader(name: str) -> str | None:
    """Return the function by which DuckDB reads a name as a file, where no table has it."""
    *_, end = folded(name).removesuffix(".gz").removesuffix(".zst").split(".")
    return READERS.get(end, "read_parquet" if "://" in name else None)


def _files(catalog: DuckDBCatalog, read: ReadFiles) -> Layer:
    """List files, and look at their columns.

    Their table, to which the account binds a unit and a description, is told by its columns: which
    of the files a view reads, and where the folder is, makes no other table of them. What the
    names of folders say is text there, and in definitions of the type that DuckDB gives it.
    """
    check_options(read)
    run = catalog.fetch
    asked = read.options.get("hive_partitioning")
    hive = asked == "true"
    frozen = list_files(run, read.patterns, partitioned=asked != "false")
    if catalog.by_path and is_one_file(read.patterns):
        frozen = frozen.by_path()
    columns = columns_of(run, frozen, hive=hive)
    apart("the files", list(columns.types))
    if columns.ticks:
        from dpsql.engines.duckdb.numbered import register  # slow to import, for few files

        register(catalog.con)
        check_numbers(run, frozen, columns, hive=hive)
    relation = guarded(scan_of(frozen, hive=hive, numbers=bool(columns.ticks)), columns)
    typed = hive and read.options.get("hive_types_autocast") != "false"
    cast = partition_types(run, frozen) if typed else {}
    unread = partitions_of(frozen) if asked is None else ()
    scan = FileScan(frozen, relation, repr((read.patterns, hive)), cast, unread)
    return Layer(_named_by(columns.named_by), columns.types, files=scan)


def _copied(catalog: DuckDBCatalog, parts: tuple[str, ...]) -> Layer:
    """Return the copy of files of CSV, whose texts are told apart by their columns' names alone."""
    types = column_types(catalog, parts)
    scan = FileScan(catalog.copies[parts], ".".join(map(quoted_name, parts)), "csv", texts=True)
    return Layer(_named_by(dict.fromkeys(types, "VARCHAR")), types, files=scan)


def _named_by(types: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the path of what is read from files: it is told by its columns."""
    return "", FILES, hashlib.sha256(repr(sorted(types.items())).encode()).hexdigest()


def _shown(read: ViewDefinition, below: Layer) -> dict[str, RowExpression]:
    """Return the columns of a view by their names, in order."""
    shown: list[tuple[str, RowExpression]] = []
    for item in read.items:
        if isinstance(item, AllColumns):
            for name in below.types:
                key = folded(name)
                if key not in item.without:
                    given = item.changed.get(key, RowColumn(name))
                    shown.append((item.renamed.get(key, name), _computed(given, below)))
        else:
            name, given = item
            column = _known_name(given.name, below) if isinstance(given, RowColumn) else ""
            shown.append((name or column, _computed(given, below)))
    names = [*read.names, *(name for name, _ in shown[len(read.names) :])]
    if not all(names):
        raise RefusedViewError(
            "an expression in it has no name", hint="write … AS name in its definition."
        )
    return dict(zip(names, (expression for _, expression in shown), strict=False))


def _computed(expression: RowExpression, below: Layer) -> RowExpression:
    """Return what a view computes of a row; a column stays what it is, also one of instants.

    Raises:
        RefusedViewError: it depends on the time zone of whoever looks at the view.
    """
    resolved = _resolved(expression, below)
    if isinstance(resolved, RowColumn):
        return resolved
    try:
        return with_clocks(
            resolved, {name: None for name, type_ in below.types.items() if type_ == ZONED}
        )
    except UnsupportedSqlError as error:
        raise RefusedViewError(f"in its definition, {error.message}".rstrip(".")) from None


def _resolved(expression: RowExpression, below: Layer) -> RowExpression:
    """Write the names of columns as they are below, and their types where they are folders'."""
    if isinstance(expression, RowColumn):
        column = RowColumn(_known_name(expression.name, below))
        type_ = None if below.files is None else below.files.cast.get(column.name)
        return column if type_ is None else RowCast(column, type_)
    return replaced(expression, lambda part: _resolved(part, below))


def _known_name(name: str, below: Layer) -> str:
    """Return the name of a column as it is below: SQL ignores case."""
    known = next((column for column in below.types if folded(column) == folded(name)), None)
    if known is None:
        raise RefusedViewError(
            f"it names {printable(name)}, which is no column below it", hint=_partitions(below)
        )
    if below.files is not None and folded(known) in map(folded, below.files.unread):
        raise RefusedViewError(
            f"{printable(known)} is a column of its files and the name of folders, and which of "
            "them is meant is a guess",
            hint="say so in its definition: read_parquet('…', hive_partitioning = true) shows what "
            "the folders say, and hive_partitioning = false what the files do.",
        )
    return known


def _partitions(below: Layer) -> str | None:
    """Say that folders aren't read as columns, which DuckDB does by a guess."""
    if below.files is None or not below.files.unread:
        return None
    keys = " and ".join(map(printable, below.files.unread))
    return (
        f"if its columns {keys} are the names of folders, say so in its definition: "
        "read_parquet('…', hive_partitioning = true)."
    )


def _stays(type_: str, shown: str) -> bool:
    """Whether a column is shown as it is: with its type, or one that no cast is known for."""
    try:
        row_type(type_)
    except UnsupportedSqlError:
        return True
    return type_ == shown


def _typed(
    catalog: DuckDBCatalog,
    view: StoredView,
    shown: Mapping[str, RowExpression],
    layer: Layer,
) -> tuple[dict[str, RowExpression], dict[str, str]]:
    """Give the columns of a view the types that DuckDB says they have, by casts of our own.

    What is shown as it is keeps its type; but what folders of files say is text, for which DuckDB
    takes another type if it fits all of them.
    """
    # A time of day in nanoseconds is shown as one in microseconds, which it is here.
    described = {
        name: "TIME" if type_ == "TIME_NS" else type_
        for name, type_ in column_types(catalog, view.path).items()
    }
    apart(view.path[-1], list(shown))
    if list(described) != list(shown):
        raise RefusedViewError(
            "its columns aren't those that its definition gives",
            hint=_partitions(layer) or "make it anew: CREATE OR REPLACE VIEW … AS …;",
        )
    below = layer.types
    columns: dict[str, RowExpression] = {}
    types: dict[str, str] = {}
    for name, expression in shown.items():
        if isinstance(expression, RowColumn) and _stays(below[expression.name], described[name]):
            columns[name], types[name] = expression, below[expression.name]
        else:
            type_ = row_type(described[name])
            written = RowWriter(below).write(expression).type
            columns[name] = expression if written == type_ else RowCast(expression, type_)
            types[name] = type_.sql
    return columns, types


# ── what is declared for it ────────────────────────────────────────────────────────────────


def _described(
    catalog: DuckDBCatalog, layer: Layer, schema: Schema | None, unit: DeclaredUnit
) -> Table:
    """Describe a layer: what is known of a column below holds for it as it is shown above."""
    if layer.files is not None:
        return _described_files(layer, unit)
    if layer.below is None:
        return read_table(catalog, layer.path, schema, unit)
    name, path = layer.path[-1], layer.path
    said = unit_of(catalog, path, schema, unit, layer.comment)
    inner = _described(catalog, layer.below, schema, unit_below(catalog, layer, said))
    known = [_known(layer, inner, column) for column in layer.types]
    declared = declared_for(catalog, path, schema, catalog.columns(path))
    columns, undeclared, bounds, unknown = fitted(name, known, declared)
    check_zones(catalog, columns.values())
    given = {folded(column) for column in declared}
    kept = {column for column in (*columns, *bounds) if folded(column) not in given}
    scan = _scan(inner, layer.below).through(layer)
    whose = unit_above(layer, inner, columns)
    if whose is not None and isinstance(said, Unit):
        whose = limited(catalog, path, whose, said, columns)
    return Table(
        name,
        columns,
        undeclared,
        path,
        whose,
        frozenset(c for c in kept if layer.plain(c) in inner.enforced),
        groups_of(catalog, path, schema, columns),
        inner.each_row,
        bounds,
        frozenset(c for c in layer.columns if layer.plain(c) in inner.filled),
        origin=scan,
        expressions=expressions_for(catalog, path, schema, layer.comment, layer.types),
        file=attached_file(catalog, path),
        order=tuple(layer.types),
        unknown=unknown,
    )


def _described_files(layer: Layer, unit: DeclaredUnit) -> Table:
    """Describe files: nothing is declared of them but by views."""
    resolved = None
    if isinstance(unit, Unit):
        resolved = resolve_unit(StoredKeys({FILES: layer.types}), ("", "", FILES), unit)
    return Table(
        FILES,
        {},
        layer.types,
        layer.path,
        resolved,
        each_row=isinstance(unit, EachRow),
    )


def _scan(inner: Table, layer: Layer) -> Projection:
    return inner.origin if isinstance(inner.origin, Projection) else Projection.of(inner, layer)


def _known(layer: Layer, inner: Table, column: str) -> KnownColumn:
    """Say what is known of a column of a view: all that is, where it shows another as it is."""
    type_, plain = layer.types[column], layer.plain(column)
    truth = Domain.boolean(nullable=True) if type_ == "BOOLEAN" else None
    if plain is None:
        return KnownColumn(column, type_, truth)
    generated = type_.startswith(GENERATED)
    known = inner.columns.get(plain) or inner.bounds.get(plain) or truth
    shown = inner.undeclared.get(plain, "").removeprefix(GENERATED)
    return KnownColumn(column, type_.removeprefix(GENERATED), known, shown, generated=generated)
