"""Describe a table by what a catalog tells of it and what is declared; rows are never read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dpsql.errors import SchemaError, StaleSchemaError, UnboundedError, printable
from dpsql.hints import option
from dpsql.schema.checks import bounds_from_checks, values_from_checks
from dpsql.schema.declarations import Schema
from dpsql.schema.domain import COLLATED, Declaration, Domain, NumberBounds
from dpsql.schema.entries import check_expressions, domains_of, expressions_of
from dpsql.schema.facts import Catalog, StoredColumn
from dpsql.schema.fitting import GENERATED, KnownColumn, enum_labels, fitted
from dpsql.schema.grain import grain
from dpsql.schema.groups import Groups
from dpsql.schema.keys import check_way, references_for
from dpsql.schema.limits import limited
from dpsql.schema.lookup import attached_file, find, means, meant, of_table
from dpsql.schema.names import apart, closest, folded, unknown
from dpsql.schema.references import DescribedTables, resolve_unit, with_parents
from dpsql.schema.sequences import DecimalRange
from dpsql.schema.table import Table
from dpsql.schema.units import DeclaredUnit, EachRow, ResolvedUnit, Unit, of_comment


def read_table(
    catalog: Catalog,
    name_parts: tuple[str, ...],
    declared: Schema | None = None,
    unit: DeclaredUnit = None,
) -> Table:
    """Describe a base table: its columns with their public domains.

    Args:
        catalog: tells of the tables.
        name_parts: the table's name, optionally after its schema, or its database and schema.
        declared: domains and units that go before those of the catalog.
        unit: the table's privacy unit.

    Raises:
        SchemaError: no such base table, or an ambiguous name; a declared domain for a column
            that doesn't exist or can't hold it; a unit that can't be found, or is not the
            declared one; the catalog can't be read.
    """
    path = find(catalog, tuple(name_parts))
    return _describe(catalog, path, declared, unit)


def check_declared(tables: DescribedTables, declared: Schema | None) -> None:
    """Check every declaration, also of tables that are not asked for: none may be misspelled.

    Args:
        tables: by way of which the declarations are checked.
        declared: the declarations.

    Raises:
        SchemaError: a declared table or column doesn't exist, or can't hold its domain.
    """
    if declared is None:
        return
    names = [*declared, *declared.units, *declared.groups, *declared.expressions]
    for name in dict.fromkeys(names):
        tables.describe(meant(tables.catalog, name), declared)


def verify_unchanged(
    tables: DescribedTables,
    table: Table,
    declared: Schema | None,
    unit: DeclaredUnit,
) -> None:
    """Check that the catalog still describes `table`, and that a view reads the same.

    Raises:
        StaleSchemaError: it was dropped or altered since it was read, or files were changed.
    """
    sources = table.origin.tables if table.origin is not None else ()
    for source in sources:
        verify_unchanged(tables, source, declared, unit)
    if sources:
        return
    try:
        now = tables.describe(table.path, declared, unit)
        if table.parents or table.added:
            now = with_parents(tables, now, declared, unit)
            named = {parent.prefix for parent in table.parents}
            now = grain(now.alone, [p for p in now.parents if p.prefix in named])
    except SchemaError as error:
        if not error.unknown:  # the reason why it can't be read now, which may be a setting's
            raise StaleSchemaError(error.message, hint=error.hint) from None
        now = None
    if now is not None and _files(now) != _files(table):
        raise StaleSchemaError(
            f"Files of {table.name} were added, removed or written since they were listed.",
            hint="ask again when nobody is writing to them.",
        )
    if now is None or _public(now) != _public(table):
        raise StaleSchemaError(
            f"The table {table.name} was altered or dropped since its schema was read.",
            hint="plan again: the new plan will read the new schema.",
        )
    met = [of for one in table.added for of in one.tables]
    for other in {one.path: one for one in met}.values():
        verify_unchanged(tables, other, declared, unit)


def _files(table: Table) -> str:
    met = [table, *(parent.table for parent in table.parents)]
    return "".join(of.origin.state for of in met if of.origin is not None)


def _public(table: Table) -> object:
    """Return what must be as it was when a table was planned for."""
    origin = table.origin
    scanned = None if origin is None else (origin.digest, _public(origin.base))
    above = [(p.above, p.join, p.on_way, _public(p.table)) for p in table.parents]
    alone = table.alone
    known = alone.fingerprint, alone.enforced, alone.bounds, alone.expressions
    return known, table.file, scanned, above


def column_types(catalog: Catalog, path: Sequence[str]) -> dict[str, str]:
    """Return the types of a table's columns, with `GENERATED` before that of a generated one.

    Raises:
        SchemaError: the catalog can't be read.
    """
    return {
        column.name: f"{GENERATED}{column.type}" if column.generated else column.type
        for column in catalog.columns(path)
    }


def _describe(
    catalog: Catalog,
    path: tuple[str, ...],
    schema: Schema | None = None,
    unit: DeclaredUnit = None,
) -> Table:
    stored = catalog.table(path)
    if stored is None:
        raise unknown(f"There is no table {path[-1]}.", "was it dropped?")
    rows = stored.columns
    apart(path[-1], [row.name for row in rows])
    unclear = stored.collated
    known: list[KnownColumn] = []
    for name, type_, nullable, generated, _ in rows:
        # A generated column may call anything, random() too: it is not a fact about the row.
        says_nothing = generated or name in unclear
        domain = None if says_nothing else _from_catalog(name, type_, nullable, stored.checks)
        shown = COLLATED if name in unclear else type_
        known.append(KnownColumn(name, type_, domain, shown, generated=generated))
    declared = declared_for(catalog, path, schema, rows)
    columns, undeclared, bounds, to_find = fitted(path[-1], known, declared)
    check_zones(catalog, columns.values())
    said = unit_of(catalog, path, schema, unit, stored.comment)
    resolved = None
    if isinstance(said, Unit):
        for_all = isinstance(unit, Unit) and isinstance(unit.max_rows, int)
        resolved = _resolved(catalog, tuple(path), said, columns, for_all=for_all)
    given = {folded(column) for column in declared}
    enforced = frozenset(name for name in (*columns, *bounds) if folded(name) not in given)
    return Table(
        path[-1],
        columns,
        undeclared,
        tuple(path),
        resolved,
        enforced,
        groups_of(catalog, path, schema, columns),
        isinstance(said, EachRow),
        bounds,
        frozenset(name for name, _, nullable, made, _ in rows if not nullable and not made),
        file=attached_file(catalog, path),
        expressions=expressions_for(
            catalog, path, schema, stored.comment, [row.name for row in rows]
        ),
        order=tuple(row.name for row in rows),
        unknown=to_find,
    )


def declared_for(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    columns: Sequence[StoredColumn],
) -> dict[str, Declaration]:
    """Return what is declared of columns: by the schema, or else by their comments.

    Raises:
        SchemaError: a comment is not understood.
    """
    given = (of_table(catalog, schema, path) if schema is not None else None) or {}
    lowered = {folded(column) for column in given}
    noted = [(one.name, one.comment) for one in columns if folded(one.name) not in lowered]
    return domains_of(path[-1], noted) | dict(given)


def expressions_for(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    comment: str | None,
    columns: Iterable[str],
) -> Mapping[str, NumberBounds]:
    """Return the bounds of expressions: as the schema declares them, or as the comment does.

    Raises:
        SchemaError: one is no expression of the columns, or the comment is not understood.
    """
    given = of_table(catalog, schema.expressions, path) if schema is not None else None
    expressions = {**expressions_of(path[-1], comment), **(given or {})}
    check_expressions(path[-1], expressions, columns)
    return expressions


def unit_of(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    given: DeclaredUnit,
    comment: str | None,
) -> DeclaredUnit:
    """Return whose rows are protected together: as given, as declared, or as a comment says.

    Raises:
        SchemaError: they contradict each other, or the comment is not understood.
    """
    declared = of_table(catalog, schema.units, path) if schema is not None else None
    if given is not None and declared is not None and given != declared:
        raise SchemaError(
            f"The schema declares another privacy unit for {path[-1]} than the one that was "
            "passed.",
            hint=f"leave unit and max_rows out: the schema says {declared}.",
        )
    said = of_comment(path[-1], comment, given or declared)
    if not isinstance(said, Unit):
        return said
    known = references_for(catalog, path, schema, said)
    return replace(said, max_rows=_bound(catalog, path, said), references=known)


def _resolved(
    catalog: Catalog,
    path: tuple[str, ...],
    said: Unit,
    columns: Mapping[str, Domain],
    *,
    for_all: bool,
) -> ResolvedUnit:
    """Find a unit in a table. Of the units' own table it has one row, whatever is said of all.

    Args:
        catalog: tells of the tables.
        path: the table's.
        said: the unit.
        columns: the table's columns with a domain.
        for_all: whether how many rows count is said of all tables, and not of this one.

    Raises:
        SchemaError: it can't be found.
    """
    keys = catalog.keys(path)
    unit = resolve_unit(keys, path, said)
    check_way(catalog, path[-1], unit)
    unit = limited(catalog, path, unit, said, columns)
    if not for_all or unit.max_rows == 1:
        return unit
    by_itself = resolve_unit(keys, path, Unit(said.key, references=said.references))
    return unit if by_itself.max_rows is None else replace(by_itself, stated=unit)


def _bound(catalog: Catalog, path: Sequence[str], unit: Unit) -> int | None:
    """Return how many rows of a unit count in one table; None if it says so of others only."""
    rows = unit.max_rows
    bound = of_table(catalog, rows, path) if isinstance(rows, Mapping) else rows
    if bound is None and means(catalog, unit.key, path):
        return 1  # the units' own table, of which each is a row
    return bound


def unbounded(
    catalog: Catalog, table: Table, schema: Schema | None, unit: DeclaredUnit
) -> UnboundedError:
    """Say that nothing bounds the rows of units in a table, and how its bound is given."""
    declared = of_table(catalog, schema.units, table.path) if schema is not None else None
    said = unit if isinstance(unit, Unit) else declared
    rows = said.max_rows if isinstance(said, Unit) else None
    others = dict(rows) if isinstance(rows, Mapping) else {}
    hint = "give its bound too, for example " + option("max_rows", {**others, table.name: 10})
    if table.unit is not None and not table.unit.joins:  # it has the units' key: it is private
        hint = "say how many, for example " + option(
            "max_rows", {**others, table.name: 10} if others else 10
        )
    else:
        hint += "; or, if it has no private row, say so: " + option("public", [table.name])
    return UnboundedError(
        f"Nothing says how many rows of a unit count in {printable(table.name)}.", hint=hint + "."
    )


def groups_of(
    catalog: Catalog,
    path: Sequence[str],
    schema: Schema | None,
    columns: Mapping[str, Domain],
) -> tuple[Groups, ...]:
    """Return which combinations of values exist, as declared for a table.

    Raises:
        SchemaError: they don't fit its columns.
    """
    exist = (of_table(catalog, schema.groups, path) if schema is not None else None) or ()
    return tuple(each.resolved(path[-1], columns) for each in exist)


def _from_catalog(
    name: str, type_: str, nullable: bool, checks: Sequence[str]
) -> Domain | NumberBounds | None:
    if type_ == "BOOLEAN":
        return Domain.boolean(nullable=nullable)
    labels = enum_labels(type_)
    if labels is not None:
        return Domain("ENUM", labels, nullable) if labels else None
    values = values_from_checks(name, type_, checks)
    if not values:
        return bounds_from_checks(name, type_, checks)
    if isinstance(values, DecimalRange):
        return Domain(values.type, values, nullable, column_type=type_)
    return Domain(type_, values, nullable, column_type=type_ if type_ == "DATE" else "")


# ── Time zones, as the database that reads the rows knows them ───────────────────────────────────


def check_zones(catalog: Catalog, domains: Iterable[Domain]) -> None:
    """Refuse what would read a clock otherwise than is declared.

    The calendar may be a setting of the session: in the Ethiopian one a year has thirteen months.

    Raises:
        SchemaError: the database knows no such zone, or shows it by another calendar.
    """
    for zone in sorted({domain.zone for domain in domains if domain.zone is not None}):
        names = catalog.zones()
        if zone not in names:
            raise SchemaError(
                f"{catalog.system} knows no time zone {zone}.", hint=closest(zone, names)
            )
        if not catalog.is_gregorian(zone):
            raise SchemaError(
                "The connection's calendar is not the Gregorian one, in which days are declared.",
                hint="SET Calendar = 'gregorian';",
            )
