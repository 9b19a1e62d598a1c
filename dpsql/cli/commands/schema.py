"""`dpsql schema`: what is public about the tables of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dpsql.cli import opening, options, output
from dpsql.errors import SchemaError
from dpsql.hints import for_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from dpsql.cli.options import Rows
    from dpsql.engines.source import DataSource
    from dpsql.schema import Schema, Table
    from dpsql.schema.document import Proposal
    from dpsql.schema.domain import Domain, NumberBounds


@click.command(short_help="Print what is public about tables, or draft it.")
@click.argument(
    "place", required=False, type=options.RowsPlace(), callback=options.only_rows, metavar="[PATH]"
)
@options.rows_option(required=False)
@click.option("--table", "names", multiple=True, help="Only this table. Repeatable.")
@click.option("--schema", "declared", type=options.FILE, help="A TOML file that goes before it.")
@click.option("--toml", "as_toml", is_flag=True, help="Print a schema file to start from.")
@click.option(
    "--values",
    "values",
    is_flag=True,
    help="Draft lists of values and bounds by reading rows: the draft is as private as they are.",
)
@options.json_option
def schema(
    place: Rows | None,
    db: Rows | None,
    names: tuple[str, ...],
    declared: Path | None,
    *,
    as_toml: bool,
    values: bool,
    as_json: bool,
) -> None:
    """Print what is public about each table: columns, domains and privacy units.

    PATH is short for --db PATH. Of a DuckDB file no row is read, and columns without a public
    domain come with a hint at how to declare one. Of CSV and Parquet a schema file is drafted, as
    by --toml; types of CSV are found by looking at its rows, and the draft says so:

        dpsql schema people.csv > people.toml
    """
    from dpsql.schema.document import Proposal, proposed, write_toml

    rows = place or db
    if rows is None or (place and db):
        raise click.UsageError("Name the rows: dpsql schema people.csv, or by --db.")
    if (as_toml or values) and as_json:
        raise click.UsageError("Choose one of --toml and --json.")
    by_table: dict[tuple[str, ...], Mapping[str, Domain | NumberBounds]] | None = None
    with opening.data(rows) as source:
        given = opening.schema_file(declared)
        drafts = as_toml or values or (source.is_opened and not (as_json or declared))
        typed = drafts and source.guess_types()
        tables = _tables(source, names, given)
        proposals = proposed(source.catalog, tables, given)
        if values:
            by_table = {table.path: source.values_found(table) for table in tables}
    each = [(table, proposals.get(table.path, Proposal())) for table in tables]
    if drafts:
        output.say(write_toml(tables, proposals, by_table, typed=typed).removesuffix("\n"))
    elif as_json:
        output.say_json({"tables": [_document(*described) for described in each]})
    else:
        for described in each:
            _print(*described)


def _tables(source: DataSource, names: tuple[str, ...], declared: Schema | None) -> list[Table]:
    from dpsql.schema.catalog import check_declared
    from dpsql.schema.lookup import table_names

    check_declared(source, declared)
    paths = [tuple(name.split(".")) for name in names]
    paths = paths or table_names(source.catalog) or table_names(source.catalog, views=True)
    if not paths:
        raise SchemaError(
            "The database has no table.",
            hint="CREATE TABLE people AS FROM 'people.parquet'; makes one, in DuckDB.",
        )
    return [source.describe(parts, declared) for parts in paths]


def _print(table: Table, proposal: Proposal) -> None:
    output.say(f"{table.name}: {table.neighbours}")
    for line in _proposed(table, proposal):
        output.say(f"  {line}")
    rows = [(f"  {name}", domain.size, domain) for name, domain in table.columns.items()]
    if rows:
        output.say_table(["  column", "cells", "domain"], rows)
    bounds = [(f"  {name}", each) for name, each in table.bounds.items()]
    bounds += [(f"  {text}", each) for text, each in table.expressions.items()]
    if bounds:
        output.say_table(["  to be added up", "bounds"], bounds)
    lacking = {name: of for name, of in table.undeclared.items() if name not in table.bounds}
    if lacking:
        output.say("  without a public domain:")
    for name, type_ in lacking.items():
        output.say(f"  {name} {type_}")
        output.say(f"    Hint: {_hint(table, name, type_)}")
    output.say()


def _proposed(table: Table, proposal: Proposal) -> Iterator[str]:
    """Word the units and references that may be declared."""
    for column, key in proposal.references.items():
        yield f"{column} may refer to {key}, but no FOREIGN KEY says so."
    if proposal.unit and proposal.root != table.name:
        yield f"Its rows may belong to {proposal.root}."
    if proposal.unit or proposal.references:
        yield "Hint: dpsql schema --toml drafts what to declare then."


def _document(table: Table, proposal: Proposal) -> dict[str, object]:
    unit = table.unit
    return {
        "table": table.name,
        "neighbours": table.neighbours,
        "unit": None if unit is None else {"key": unit.name, "max_rows": unit.max_rows},
        "proposed": {
            "unit": proposal.unit or None,
            "root": proposal.root or None,
            "references": dict(proposal.references),
        },
        "columns": [
            {"name": n, "type": d.type, "cells": d.size, "nullable": d.nullable, "domain": str(d)}
            for n, d in table.columns.items()
        ],
        "undeclared": [
            {"name": name, "type": type_, "hint": _hint(table, name, type_)}
            for name, type_ in table.undeclared.items()
        ],
        "bounds": _bounds(table.bounds),
        "expressions": _bounds(table.expressions),
    }


def _bounds(known: Mapping[str, NumberBounds]) -> list[dict[str, object]]:
    return [{"of": of, "bounds": str(bounds)} for of, bounds in known.items()]


def _hint(table: Table, name: str, type_: str) -> str:
    from dpsql.schema.drafts import declaration_hint

    view = table.origin is not None
    return for_command(declaration_hint(table.typed, name, type_, view=view))
