"""Tables that are read by a name: all below it, through views and macros, as the catalog says.

A table that the owner declares public must not show private rows. Its own name says what it is; a
view shows what it reads. So definitions are parsed by DuckDB (`json_serialize_sql`, which runs
nothing), and all that their trees name is followed.

*None is missing.* Whatever part of a tree names a table has `table_name`, also below subqueries,
CTEs and SUMMARIZE. Functions that are macros have definitions of their own, which are followed as
views are; those that take the names of tables, or SQL, as texts are read if these are literals, and
are refused if they aren't. A name without a schema is taken for all tables of that name: so more
may be found than is read, and nothing less. Files, and tables of other systems, are no tables here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpsql.engines.duckdb.definitions import NAME, PARSE
from dpsql.errors import SchemaError
from dpsql.schema.facts import TablePath
from dpsql.schema.lookup import paths_of
from dpsql.schema.names import folded

if TYPE_CHECKING:
    from dpsql.engines.duckdb.catalog import DuckDBCatalog

_MACROS = """
    SELECT macro_definition, function_type FROM system.main.duckdb_functions()
    WHERE function_type IN ('macro', 'table_macro') AND NOT internal
        AND system.main.lower(function_name) = system.main.lower(?)
"""
_HEAD = re.compile(
    rf"CREATE (?:TEMP(?:ORARY)? )?VIEW {NAME}(?:\.{NAME}){{0,2}}"
    rf"(?: \({NAME}(?:, {NAME})*\))? AS "
)
_BY_TEXT = {"query": True, "query_table": False}
"""Functions that read what a text says → whether that is SQL, and not the name of a table."""
_MOST = 1000
"""Names that are followed."""


def tables_below(catalog: DuckDBCatalog, parts: Sequence[str]) -> frozenset[TablePath]:
    """Return the stored tables that may be read by a name, itself among them if it is one.

    Raises:
        SchemaError: that can't be told, or the catalog can't be read.
    """
    found, met = set[TablePath](), set[tuple[str, ...]]()
    pending = [tuple(parts)]
    while pending:
        name = tuple(map(folded, pending.pop()))
        if name in met:
            continue
        met.add(name)
        if len(met) > _MOST:
            raise _unclear()
        found |= set(paths_of(name, [one.path for one in catalog.tables_named(name[-1])]))
        views = {view.path: view for view in catalog.views_named(name[-1])}
        for path in paths_of(name, list(views)):
            if not views[path].registered:
                pending += _named(catalog, _body(views[path].sql), set())
    return frozenset(found)


def _body(sql: str) -> str:
    head = _HEAD.match(sql)
    if head is None:
        raise _unclear()
    return sql[head.end() :].strip().removesuffix(";")


def _named(catalog: DuckDBCatalog, sql: str, macros: set[str]) -> list[tuple[str, ...]]:
    """Return all names of tables in a query, and in the macros that it calls."""
    ((text,),) = catalog.fetch(PARSE, [sql])
    tree = json.loads(str(text))
    if tree.get("error") is not False:
        raise _unclear()
    found = list[tuple[str, ...]]()
    for node in _nodes(tree):
        if node.get("table_name"):
            given = (node.get("catalog_name"), node.get("schema_name"), node["table_name"])
            found.append(tuple(part for part in given if part))
        function = folded(str(node.get("function_name", "")))
        if function in _BY_TEXT:
            for literal in _literals(node.get("arguments")):
                found += (
                    _named(catalog, literal, macros)
                    if _BY_TEXT[function]
                    else [tuple(literal.split(".")), (literal,)]
                )
        elif function and function not in macros:
            macros.add(function)
            for definition, kind in catalog.fetch(_MACROS, [function]):
                whole = f"SELECT {definition}" if kind == "macro" else str(definition)
                found += _named(catalog, whole, macros)
    return found


def _nodes(tree: object) -> Iterator[Mapping[str, Any]]:
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            pending += node.values()
        elif isinstance(node, list):
            pending += node


def _literals(arguments: Any) -> list[str]:
    """Return the texts that a function is called with: literals, or a list of them."""
    found = list[str]()
    for argument in arguments if isinstance(arguments, list) else []:
        node = argument.get("expression", argument)
        listed = node.get("arguments") or node.get("children")
        literal = node.get("literal") or {}
        if literal.get("kind") == "STRING":
            found.append(str(literal["text"]))
        elif listed and folded(str(node.get("function_name", ""))) in {"", "list_value"}:
            found += _literals(listed)
        elif literal.get("kind") != "BOOLEAN":
            raise _unclear()
    return found


def _unclear() -> SchemaError:
    return SchemaError(
        "It can't be determined what this name reads.",
        hint="store its rows in a table, and declare that public.",
    )
