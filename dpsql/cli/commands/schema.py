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

    from dpsql.engines.source import DataSource
    from dpsql.schema import Schema, Table
    from dpsql.schema.domain import NumberBounds
    from dpsql.schema.proposals import Proposal


@click.command(short_help="Print what is public about tables.")
@options.db_option
@click.option("--table", "names", multiple=True, help="Only this table. Repeatable.")
@click.option("--schema", "declared", type=options.FILE, help="A TOML file that goes before it.")
@click.option("--toml", "as_toml", is_flag=True, help="Print a schema file to start from.")
@options.json_option
def schema(
    db: Path, names: tuple[str, ...], declared: Path | None, *, as_toml: bool, as_json: bool
) -> None:
    """Print what is public about each table: columns, domains and privacy units.

    No row is read. Columns without a public domain come with a hint at how to declare one.
    """
    from dpsql.engines import data_source
    from dpsql.schema.document import write_toml
    from dpsql.schema.proposals import Proposal, proposed

    if as_toml and as_json:
        raise click.UsageError("Choose one of --toml and --json.")
    with opening.database(db) as con:
        given = opening.schema_file(declared)
        source = data_source(con)
        tables = _tables(source, names, given)
        proposals = proposed(source.catalog, tables, given)
    each = [(table, proposals.get(table.path, Proposal())) for table in tables]
    if as_toml:
        output.say(write_toml(tables, proposals).removesuffix("\n"))
    elif as_json:
        output.say_json({"tables": [_document(*one) for one in each]})
    else:
        for one in each:
            _print(*one)


def _tables(source: DataSource, names: tuple[str, ...], declared: Schema | None) -> list[Table]:
    from dpsql.schema.catalog import check_declared
    from dpsql.schema.lookup import table_names

    check_declared(source, declared)
    found = [tuple(name.split(".")) for name in names]
    found = found or table_names(source.catalog) or table_names(source.catalog, views=True)
    if not found:
        raise SchemaError(
            "The database has no table.",
            hint="CREATE TABLE people AS FROM 'people.parquet'; makes one, in DuckDB.",
        )
    return [source.describe(parts, declared) for parts in found]


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
    """Word what may be declared of whose rows there are, and of what they refer to."""
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
