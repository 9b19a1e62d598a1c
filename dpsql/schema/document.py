"""Write what is public about tables: as a schema file to start from, and as plain JSON.

The schema file is for people: `Schema.load` reads it. The JSON keeps a `Table` exactly, with the
types that the catalog gave, for releases on disk; see `dpsql/schema/plain.py` for the domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dpsql.errors import SchemaError, printable
from dpsql.schema.declared import from_declaration
from dpsql.schema.domain import INTEGER_TYPES, Domain
from dpsql.schema.drafts import ZONED, drafted, singles_out
from dpsql.schema.groups import Groups
from dpsql.schema.lines import WIDTH, as_entry, listed
from dpsql.schema.plain import (
    domain_from_json,
    domain_to_json,
    fields,
    items,
    malformed,
    text,
    whole,
)
from dpsql.schema.table import Table
from dpsql.schema.toml import parse_toml, toml_key, toml_text
from dpsql.schema.units import MAX_ROWS, Join, ResolvedUnit

_HEAD = "# What is public about the tables, for dpsql.Schema.load.\n"
_TABLE_KEYS = frozenset({"name", "path", "columns", "undeclared", "enforced", "unit"})
_MAX_JOINS = 64
_MAX_PATH = 3


# ── the schema file ────────────────────────────────────────────────────────────────────────


def write_toml(tables: Iterable[Table]) -> str:
    """Write a schema file that declares what is known of some tables.

    `Schema.load` reads it back to the same domains and units. A column without a domain becomes a
    comment with an example of what to declare; so does one that only the catalog can describe.

    Raises:
        SchemaError: two tables have the same name.
    """
    written: dict[str, str] = {}
    for table in tables:
        name = _name(table)
        if name.lower() in written:
            raise SchemaError(
                f"There are two tables {printable(name)}.",
                hint="a schema file is for the tables of one database.",
            )
        written[name.lower()] = _section(name, table)
    return "\n".join([_HEAD, *written.values()])


def _name(table: Table) -> str:
    """Name a table as a schema file does: with its schema, unless that is `main`."""
    schema = table.path[-2] if len(table.path) > 1 else "main"
    return table.name if schema == "main" else f"{schema}.{table.name}"


def _section(name: str, table: Table) -> str:
    key = toml_key(name)
    lines: list[str] = []
    if table.unit is not None or table.each_row or table.groups:
        lines.append(f"[{key}]")
    if table.unit is not None:
        lines += [f"unit = {toml_text(table.unit.name)}", f"max_rows = {table.unit.max_rows}"]
    if table.each_row:
        lines.append("each_row = true")
    if table.groups:
        lines.append(listed("groups", map(_groups, table.groups)))
    if lines:
        lines.append("")
    lines.append(f"[{key}.columns]")
    lines += [_column(name, domain) for name, domain in table.columns.items()]
    lines += [_undeclared(name, type_) for name, type_ in table.undeclared.items()]
    return "\n".join(lines) + "\n"


def _groups(groups: Groups) -> str:
    columns = ", ".join(map(toml_text, groups.columns))
    if isinstance(groups.of, str):
        return f"{{ columns = [{columns}], of = {toml_text(groups.of)} }}"
    rows = ", ".join(f"[{', '.join(map(toml_text, row))}]" for row in groups.of)
    return f"{{ columns = [{columns}], rows = [{rows}] }}"


def _column(name: str, domain: Domain) -> str:
    line = as_entry(name, domain)
    if _declares(line, name, domain):
        return line
    return f"# {_comment(name)}: only the table itself can declare {_comment(str(domain))}."


def _declares(line: str, name: str, domain: Domain) -> bool:
    """Whether a line is read back as the domain, but for the type that the column gives it."""
    type_ = {"ENUM": "VARCHAR"}.get(domain.type, domain.type)
    type_ = "BIGINT" if type_ in INTEGER_TYPES else type_
    try:
        read = parse_toml(f"[t.columns]\n{line}").tables["t"][name]
    except SchemaError:
        return False
    if domain.column_type == "FLOAT":
        return from_declaration(name, "FLOAT", generated=False, domain=read) == domain
    return read == replace(domain, type=type_, column_type="")


def _undeclared(name: str, type_: str) -> str:
    """Draft what a column without a domain may declare; no character of it may end the comment."""
    type_, shown = type_ or "unknown type", _comment(type_)
    draft = drafted(name, type_)
    if draft is None:
        why = " (store it as a TIMESTAMP)" if type_ == ZONED else ""
        return f"# {_comment(name)} is a column of type {shown}: it can't have a domain{why}."
    note = f"{shown}: a draft, {draft.size:,} cells"
    if singles_out(name):
        note = f"{shown}: does it tell persons apart? Then leave it out, or make it the unit"
    return f"# {printable(as_entry(name, draft))}  # {note}"


def _comment(text: str) -> str:
    return printable(text if len(text) <= WIDTH else f"{text[:WIDTH]}…")


# ── JSON ───────────────────────────────────────────────────────────────────────────────────


def table_to_json(table: Table) -> dict[str, Any]:
    """Write a table in plain JSON types, so that `table_from_json` gives an equal one."""
    return {
        "name": table.name,
        "path": list(table.path),
        "columns": [{"name": n, **domain_to_json(d)} for n, d in table.columns.items()],
        "undeclared": [{"name": n, "type": type_} for n, type_ in table.undeclared.items()],
        "enforced": sorted(table.enforced),
        "unit": None if table.unit is None else _unit_to_json(table.unit),
        **({"groups": [_groups_to_json(each) for each in table.groups]} if table.groups else {}),
    }


def table_from_json(document: object) -> Table:
    """Read a table that `table_to_json` wrote. The document may come from a stranger.

    Raises:
        SchemaError: it is not such a document, in any respect.
    """
    given = isinstance(document, Mapping) and "groups" in document
    found = fields(document, "table", _TABLE_KEYS | ({"groups"} if given else set()))
    columns: dict[str, Domain] = {}
    for item in items(found["columns"], "columns"):
        if not isinstance(item, Mapping) or "name" not in item:
            raise malformed("column")
        name = text(item["name"], "column")
        if name in columns:
            raise malformed("column")
        columns[name] = domain_from_json({k: v for k, v in item.items() if k != "name"})
    undeclared: dict[str, str] = {}
    for item in items(found["undeclared"], "columns"):
        column = fields(item, "column", {"name", "type"})
        name = text(column["name"], "column")
        if name in columns or name in undeclared:
            raise malformed("column")
        undeclared[name] = text(column["type"], "type")
    enforced = [text(name, "column") for name in items(found["enforced"], "columns")]
    if len(set(enforced)) < len(enforced) or not columns.keys() >= set(enforced):
        raise malformed("column")
    return Table(
        text(found["name"], "table"),
        columns,
        undeclared,
        _path(found["path"]),
        None if found["unit"] is None else _unit_from_json(found["unit"]),
        frozenset(enforced),
        tuple(
            _groups_from_json(item, columns) for item in items(found.get("groups", []), "groups")
        ),
    )


def _groups_to_json(groups: Groups) -> dict[str, Any]:
    of = groups.of if isinstance(groups.of, str) else [list(row) for row in groups.of]
    return {"columns": list(groups.columns), "of": of}


def _groups_from_json(document: object, columns: Mapping[str, Domain]) -> Groups:
    found = fields(document, "groups", {"columns", "of"})
    names = tuple(text(name, "groups") for name in items(found["columns"], "groups"))
    of = found["of"]
    if not isinstance(of, str):
        of = tuple(
            tuple(text(value, "groups") for value in items(row, "groups"))
            for row in items(of, "groups")
        )
        if any(len(row) != len(names) for row in of):
            raise malformed("groups")
    groups = Groups(names, of)
    if groups.resolved("", columns) != groups:
        raise malformed("groups")
    return groups


def _unit_to_json(unit: ResolvedUnit) -> dict[str, Any]:
    joins = [
        {"column": j.column, "path": list(j.path), "key": j.key, "type": j.type} for j in unit.joins
    ]
    return {
        "name": unit.name,
        "column": unit.column,
        "type": unit.type,
        "joins": joins,
        "max_rows": unit.max_rows,
    }


def _unit_from_json(document: object) -> ResolvedUnit:
    found = fields(document, "unit", {"name", "column", "type", "joins", "max_rows"})
    return ResolvedUnit(
        text(found["name"], "unit"),
        text(found["column"], "unit"),
        text(found["type"], "unit"),
        tuple(_join(join) for join in items(found["joins"], "joins", _MAX_JOINS)),
        whole(found["max_rows"], "unit", 1, MAX_ROWS),
    )


def _join(document: object) -> Join:
    found = fields(document, "join", {"column", "path", "key", "type"})
    column, key, type_ = (text(found[name], "join") for name in ("column", "key", "type"))
    return Join(column, _path(found["path"]), key, type_)


def _path(document: object) -> tuple[str, ...]:
    return tuple(text(part, "path") for part in items(document, "path", _MAX_PATH))
