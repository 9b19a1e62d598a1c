"""Definitions of views: which rows of which one relation each shows, and all tables below a name.

A view may hold anything, random() and windows too, so it is never selected from. Its text, as the
catalog has it, is parsed by DuckDB (`json_serialize_sql`, which runs nothing), and read here by a
closed list: one SELECT of columns and of expressions of one row (`dpsql/rows/`) from one table,
view or list of files, with or without a WHERE. What is read is all that is ever written again;
whatever else stands in the tree refuses the view.

A table that the owner declares public must not show private rows. Its own name says what it is; a
view shows what it reads. So all that the trees of definitions name is followed, too.

*None is missing.* Whatever part of a tree names a table has `table_name`, also below subqueries,
CTEs and SUMMARIZE. Functions that are macros have definitions of their own, which are followed as
views are; those that take the names of tables, or SQL, as texts are read if these are literals, and
are refused if they aren't. A name without a schema is taken for all tables of that name: so more
may be found than is read, and nothing less. Files, and tables of other systems, are no tables here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from dpsql.engines.source import RefusedViewError
from dpsql.errors import DpsqlError, SchemaError, printable
from dpsql.rows.expression import RowExpression
from dpsql.rows.read import read_expression
from dpsql.schema.facts import TablePath
from dpsql.schema.lookup import paths_of
from dpsql.schema.names import folded

if TYPE_CHECKING:
    from dpsql.engines.duckdb.catalog import DuckDBCatalog

Tree: TypeAlias = Mapping[str, Any]
Parse: TypeAlias = Callable[[str], str]
"""From the text of a SELECT to DuckDB's syntax tree of it, as JSON."""

PARSE = "SELECT system.main.json_serialize_sql(?)"
"""Query of the syntax tree of a text; it runs nothing."""
NAME = r'(?:"(?:[^"]|"")*"|[^\s"().,]+)'
_HEAD = re.compile(
    rf"CREATE VIEW {NAME}(?:\.{NAME}){{0,2}}(?: \((?P<columns>{NAME}(?:, {NAME})*)\))? AS "
)
_PLACE = frozenset({"type", "class", "alias", "query_location", "query_location_length"})
_MOST = 1_000_000
"""Characters of a definition."""
_WHY = {
    "cte_map": "it has a WITH clause",
    "modifiers": "it has DISTINCT, ORDER BY, LIMIT or OFFSET",
    "group_expressions": "it groups its rows",
    "group_sets": "it groups its rows",
    "having": "it groups its rows",
    "qualify": "it has a QUALIFY clause",
    "sample": "it draws a sample",
    "at_clause": "it reads an earlier version of its table",
    "column_name_alias": "it renames the columns of its table after FROM",
}
_RELATIONS = {
    "JOIN": "it joins several tables",
    "SUBQUERY": "it selects from a subquery",
    "EMPTY": "it reads no table",
    "EMPTY_FROM": "it reads no table",
}


@dataclass(frozen=True, slots=True)
class AllColumns:
    """A star: all columns of the relation, but for some, or under other names, or changed."""

    without: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, RowExpression] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedRelation:
    """A table, a view or, where the name is a path, a file."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """A call of a function that reads files, with its literal arguments."""

    function: str
    patterns: tuple[str, ...]
    options: Mapping[str, str]
    """Option → the text of its literal."""


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """The definition of a view: its columns, its relation, and the condition on its rows."""

    items: tuple[AllColumns | tuple[str, RowExpression], ...]
    """Expressions have the names that are written after AS, or ""."""
    relation: NamedRelation | ReadFiles
    where: RowExpression | None
    names: tuple[str, ...]
    """Column names in brackets after the view's own, which go before all others."""


def read_definition(sql: str, parse: Parse) -> ViewDefinition:
    """Read what DuckDB's catalog says of a view.

    Raises:
        RefusedViewError: it has something in it that isn't listed; says what, in half a sentence.
    """
    head = _HEAD.match(sql)
    if head is None or len(sql) > _MOST:
        raise RefusedViewError("its definition isn't a plain SELECT")
    node = _select(parse(sql[head.end() :].strip().removesuffix(";")))
    relation, qualifiers = _relation(node.get("from_table") or {})
    try:
        items = tuple(_item(_unqualified(item, qualifiers)) for item in node["select_list"])
        where = _unqualified(node.get("where_clause"), qualifiers)
        condition = read_expression(where) if where else None
    except RefusedViewError:
        raise
    except DpsqlError as error:
        raise RefusedViewError(f"in its definition, {error.message}".rstrip(".")) from None
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise RefusedViewError("its definition isn't understood") from None
    listed = re.findall(NAME, head["columns"] or "")
    return ViewDefinition(items, relation, condition, tuple(map(_bare, listed)))


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _select(text: str) -> Tree:
    """Return the one SELECT of a tree, which has no clauses but those that are read.

    Raises:
        RefusedViewError: it has others.
    """
    try:
        serialized = json.loads(text)
        (statement,) = serialized["statements"]
        node: Tree = statement["node"]
        plain = not serialized["error"] and set(statement) <= {"node", "named_param_map"}
        plain = plain and not statement.get("named_param_map")
    except (ValueError, KeyError, TypeError, RecursionError):
        plain = False
    if not plain or node.get("type") != "SELECT_NODE":
        raise RefusedViewError("its definition isn't a plain SELECT")
    rest = dict(node)
    if rest.pop("aggregate_handling", None) != "STANDARD_HANDLING":
        raise RefusedViewError(_WHY["group_sets"])
    if rest.get("cte_map") == {"map": []}:
        del rest["cte_map"]
    _refuse_others(rest, {"type", "select_list", "from_table", "where_clause"})
    return node


def _refuse_others(tree: Tree, read: set[str]) -> None:
    """Refuse whatever a node has besides what is read."""
    for key, value in tree.items():
        if key not in read and value:
            raise RefusedViewError(_WHY.get(key, f"its definition has {printable(key)[:60]}"))


def _relation(tree: Tree) -> tuple[NamedRelation | ReadFiles, list[str]]:
    """Read what stands after FROM, and by which name columns are qualified, in small letters."""
    kind = str(tree.get("type"))
    if kind == "BASE_TABLE":
        parts = tuple(map(str, tree["qualified_name"]["path"]))
        _refuse_others(
            tree, {*_PLACE, "qualified_name", "schema_name", "table_name", "catalog_name"}
        )
        return NamedRelation(parts), _own(tree, parts)
    if kind == "TABLE_FUNCTION" and tree.get("with_ordinality") == "WITHOUT_ORDINALITY":
        _refuse_others(tree, {*_PLACE, "function", "with_ordinality"})
        read = _files(tree["function"])
        return read, _own(tree, (read.function,))
    raise RefusedViewError(_RELATIONS.get(kind, "it reads something else than one table or files"))


def _own(tree: Tree, parts: tuple[str, ...]) -> list[str]:
    return [folded(part) for part in ((str(tree["alias"]),) if tree["alias"] else parts)]


def _files(tree: Tree) -> ReadFiles:
    """Read a call of a function that reads files: paths first, then options by their names."""
    function = folded(str(tree["function_name"]))
    if len(tree.get("qualified_name", {"path": [""]})["path"]) != 1:
        raise RefusedViewError("it calls a function of a schema")
    patterns: list[str] = []
    options: dict[str, str] = {}
    for place, argument in enumerate(tree["arguments"]):
        value, name = argument["expression"], folded(str(argument["name"]))
        if not name and value["class"] == "COMPARISON" and value["type"] == "COMPARE_EQUAL":
            # DuckDB writes `name = value` for an option, which is read as a comparison.
            (name,) = map(folded, value["left"]["column_names"])
            value = value["right"]
        if place == 0 and not name:
            patterns = _paths(value)
        elif name and name not in options:
            options[name] = _literal(value)
        else:
            raise RefusedViewError(f"{printable(function)} has arguments that aren't understood")
    return ReadFiles(function, tuple(patterns), options)


def _paths(tree: Tree) -> list[str]:
    """Read one path, or a list of them."""
    if tree["class"] == "FUNCTION" and tree["function_name"] == "list_value":
        return [_literal(argument["expression"]) for argument in tree["arguments"]]
    return [_literal(tree)]


def _literal(tree: Tree) -> str:
    if tree["class"] != "CONSTANT":
        raise RefusedViewError("a path or an option in it isn't a constant")
    return str(tree["literal"].get("text") or "")


def _item(tree: Any) -> AllColumns | tuple[str, RowExpression]:
    """Read one item of the select list."""
    if tree["class"] != "STAR":
        return str(tree["alias"]), read_expression(tree)
    _refuse_others(tree, {*_PLACE, "relation_name", "exclude_list", "replace_list", "rename_list"})
    return AllColumns(
        frozenset(folded(str(name)) for name in tree["exclude_list"]),
        {_key(pair): str(pair["value"]) for pair in tree["rename_list"]},
        {_key(pair): read_expression(pair["value"]) for pair in tree["replace_list"]},
    )


def _key(pair: Tree) -> str:
    key = pair["key"]
    return folded(str(key["column"] if isinstance(key, Mapping) else key))


def _unqualified(tree: Any, qualifiers: list[str]) -> Any:
    """Take the relation's name away from before its columns."""
    if isinstance(tree, list):
        return [_unqualified(part, qualifiers) for part in tree]
    if not isinstance(tree, dict):
        return tree
    names = tree.get("column_names")
    if tree.get("class") == "COLUMN_REF" and isinstance(names, list) and len(names) > 1:
        *qualifier, column = names
        if [folded(str(part)) for part in qualifier] == qualifiers[-len(qualifier) :]:
            return {**tree, "column_names": [column]}
    return {key: _unqualified(part, qualifiers) for key, part in tree.items()}


# ── Tables that are read by a name ──


_MACROS = """
    SELECT macro_definition, function_type FROM system.main.duckdb_functions()
    WHERE function_type IN ('macro', 'table_macro') AND NOT internal
        AND system.main.lower(function_name) = system.main.lower(?)
"""
_WRITTEN_VIEW = re.compile(
    rf"CREATE (?:TEMP(?:ORARY)? )?VIEW {NAME}(?:\.{NAME}){{0,2}}"
    rf"(?: \({NAME}(?:, {NAME})*\))? AS "
)
_BY_TEXT = {"query": True, "query_table": False}
"""Functions that read what a text says → whether that is SQL, and not the name of a table."""
_MOST_NAMES = 1000
"""Names that are followed."""


def tables_below(catalog: DuckDBCatalog, parts: Sequence[str]) -> frozenset[TablePath]:
    """Return the stored tables that may be read by a name, itself among them if it is one.

    Raises:
        SchemaError: that can't be told, or the catalog can't be read.
    """
    tables, met = set[TablePath](), set[tuple[str, ...]]()
    pending = [tuple(parts)]
    while pending:
        name = tuple(map(folded, pending.pop()))
        if name in met:
            continue
        met.add(name)
        if len(met) > _MOST_NAMES:
            raise _unclear()
        tables |= set(paths_of(name, [table.path for table in catalog.tables_named(name[-1])]))
        views = {view.path: view for view in catalog.views_named(name[-1])}
        for path in paths_of(name, list(views)):
            if not views[path].registered:
                pending += _named(catalog, _body(views[path].sql), set())
    return frozenset(tables)


def _body(sql: str) -> str:
    head = _WRITTEN_VIEW.match(sql)
    if head is None:
        raise _unclear()
    return sql[head.end() :].strip().removesuffix(";")


def _named(catalog: DuckDBCatalog, sql: str, macros: set[str]) -> list[tuple[str, ...]]:
    """Return all names of tables in a query, and in the macros that it calls."""
    ((text,),) = catalog.fetch(PARSE, [sql])
    tree = json.loads(str(text))
    if tree.get("error") is not False:
        raise _unclear()
    named = list[tuple[str, ...]]()
    for node in _nodes(tree):
        if node.get("table_name"):
            given = (node.get("catalog_name"), node.get("schema_name"), node["table_name"])
            named.append(tuple(part for part in given if part))
        function = folded(str(node.get("function_name", "")))
        if function in _BY_TEXT:
            for literal in _literals(node.get("arguments")):
                named += (
                    _named(catalog, literal, macros)
                    if _BY_TEXT[function]
                    else [tuple(literal.split(".")), (literal,)]
                )
        elif function and function not in macros:
            macros.add(function)
            for definition, kind in catalog.fetch(_MACROS, [function]):
                whole = f"SELECT {definition}" if kind == "macro" else str(definition)
                named += _named(catalog, whole, macros)
    return named


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
    literals = list[str]()
    for argument in arguments if isinstance(arguments, list) else []:
        node = argument.get("expression", argument)
        listed = node.get("arguments") or node.get("children")
        literal = node.get("literal") or {}
        if literal.get("kind") == "STRING":
            literals.append(str(literal["text"]))
        elif listed and folded(str(node.get("function_name", ""))) in {"", "list_value"}:
            literals += _literals(listed)
        elif literal.get("kind") != "BOOLEAN":
            raise _unclear()
    return literals


def _unclear() -> SchemaError:
    return SchemaError(
        "It can't be determined what this name reads.",
        hint="store its rows in a table, and declare that public.",
    )
