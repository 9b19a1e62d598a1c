"""The closed list of what may run in the sandbox, over DuckDB's own syntax tree of a query.

The front end reads with sqlglot, DuckDB with a parser of its own. So that nothing can hide
between the two, DuckDB reads each query first and gives its tree, and the query runs only if it is
one query, and every kind of node, every function and every table in it is listed here. This is the
last check before a query runs, and it doesn't trust how the text was made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dpsql.sql.sandbox.functions import RUN, TABLES

Tree = Mapping[str, Any]
Names = frozenset[str]

OWN_TABLE = re.compile(r"__[a-z]+_[0-9]+")
"""What the tables of the sandbox are called; no analyst can give such a name."""

_EXPRESSIONS = """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA OPERATOR
    PARAMETER STAR SUBQUERY TYPE WINDOW
"""
_CLASSES = frozenset(_EXPRESSIONS.split())
_SPECIAL = """
    ARRAY_EXTRACT COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE OPERATOR_IS_NOT_NULL
    OPERATOR_IS_NULL OPERATOR_NOT OPERATOR_TRY STRUCT_EXTRACT
"""
_OPERATORS = frozenset(_SPECIAL.split())
_SHAPES = """
    SELECT_NODE SET_OPERATION_NODE BASE_TABLE EMPTY EXPRESSION_LIST JOIN SUBQUERY TABLE_FUNCTION
    DISTINCT_MODIFIER LIMIT_MODIFIER ORDER_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING
"""
_OTHERS = frozenset(_SHAPES.split())
"""Types of nodes that are not expressions: queries, tables, and what sorts and cuts."""
_EMPTY = (
    "at_clause", "catalog", "catalog_name", "columns", "expr", "export_state", "rename_list",
    "replace_list", "sample", "schema", "schema_name",
)  # fmt: skip
"""Parts that must be empty, wherever they stand."""


_BYTES = "C"
"""The collation that compares bytes: expressions of rows name it, whatever is set there."""
_BUILT_IN = ["system", "main"]
"""Where the functions that are listed are, and no others: expressions of rows name it."""


class NotPermittedError(Exception):
    """A query has something in it that isn't listed."""


def check_permitted(document: Tree) -> None:
    """Check what `json_serialize_sql` says of a text.

    Raises:
        NotPermittedError: it is not one query, or has something in it that isn't listed.
    """
    if document.get("error") is not False:
        raise NotPermittedError(str(document.get("error_message"))[:200])
    if len(document["statements"]) != 1:
        raise NotPermittedError("there is more than one query")
    pending: list[tuple[Any, Names]] = [(document["statements"], frozenset())]
    while pending:
        node, names = pending.pop()
        if isinstance(node, list):
            pending += [(part, names) for part in node]
        elif isinstance(node, dict):
            _check(node, names)
            rest = dict(node)
            for cte in (rest.pop("cte_map", None) or {"map": []})["map"]:
                pending.append((cte["value"], names))
                # As written: Python folds the case of more letters than DuckDB.
                names |= {cte["key"]}
            pending += [(part, names) for part in rest.values()]


def _check(node: Tree, names: Names) -> None:
    kind, type_ = node.get("class"), node.get("type")
    good = kind in _CLASSES if "class" in node else type_ is None or type_ in _OTHERS
    if not good or (kind == "OPERATOR" and type_ not in _OPERATORS):
        raise NotPermittedError(f"{kind or type_} can't run here")
    if kind == "COLLATE" and node.get("collation") != _BYTES:
        raise NotPermittedError("a collation can't run here")
    if "function_name" in node and node["function_name"] not in RUN:
        raise NotPermittedError(f"the function {node['function_name']} can't run here")
    if node.get("function_name") == "age" and len(node["arguments"]) != 2:
        raise NotPermittedError("age of one time depends on the clock")
    if type_ == "TABLE_FUNCTION" and node["function"]["function_name"] not in TABLES:
        raise NotPermittedError("this table function can't run here")
    if type_ == "BASE_TABLE":
        name = node["table_name"]
        if name not in names and OWN_TABLE.fullmatch(name) is None:
            raise NotPermittedError(f"there is no table {name}")
    _check_places(node)


def _check_places(node: Tree) -> None:
    """Check that nothing is named by a schema but what is built in, and what must be empty is."""
    kind = node.get("class")
    *schema, _ = node.get("qualified_name", {"path": [""]})["path"]
    built_in = kind == "FUNCTION" and schema == _BUILT_IN
    if schema and not built_in:
        raise NotPermittedError("a name with a schema can't stand here")
    known = {"catalog": "system", "schema": "main"} if built_in else {}
    # A lambda's body is an expression like others; a star's would be COLUMNS(…).
    given = [
        key
        for key in _EMPTY
        if node.get(key) and node[key] != known.get(key) and (kind, key) != ("LAMBDA", "expr")
    ]
    if given:
        raise NotPermittedError(f"{given[0]} can't stand here")
