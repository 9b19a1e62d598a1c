"""From DuckDB's own syntax tree, as `json_serialize_sql` gives it, to an expression of a row.

A closed list: whatever else stands in the tree is refused by name. Nothing is trusted: what the
nodes hold is checked again by the expression that is made of it (`expression.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from dpsql.errors import UnsupportedSqlError
from dpsql.rows.expression import (
    MOST_LEVELS,
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
    unlisted,
)
from dpsql.rows.functions import FUNCTIONS
from dpsql.rows.times import ALIASES, PARTS, meant, read_interval
from dpsql.rows.types import COARSE, RowType, row_type
from dpsql.schema.names import capitals, folded

Tree = Mapping[str, Any]

_COMPARISONS = {
    "COMPARE_EQUAL": "=", "COMPARE_NOTEQUAL": "<>", "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">", "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=", "COMPARE_DISTINCT_FROM": "is_distinct",
    "COMPARE_NOT_DISTINCT_FROM": "is_not_distinct",
}  # fmt: skip
_OPERATORS = {
    "OPERATOR_NOT": "not", "OPERATOR_IS_NULL": "is_null", "COMPARE_IN": "in",
    "OPERATOR_COALESCE": "coalesce",
}  # fmt: skip
_NEGATED = {"OPERATOR_IS_NOT_NULL": "is_null", "COMPARE_NOT_IN": "in"}
_NAMES = {read: name for name, listed in FUNCTIONS.items() for read in listed.read.split()}
_PARTS = {
    name: part
    for name, part in ALIASES.items()
    if part in PARTS and (len(name) > 3 or name in {"day", "era"})
}
"""Functions that are a part of a time; shorter names are no functions of DuckDB."""
READ = frozenset({*_NAMES, *_PARTS, "if", "log", "case"})
"""Names of DuckDB's functions that may run on rows."""
_NEGATED_NAMES = {"!~~": "like", "!~~*": "ilike"}
_KINDS = {"INTEGER": "INTEGER", "STRING": "VARCHAR", "BOOLEAN": "BOOLEAN", "NULL_LITERAL": "NULL"}


def read_expression(tree: Tree, level: int = 1) -> RowExpression:
    """Read one expression of a select list or a condition.

    Args:
        tree: its node.
        level: how deep it stands.

    Raises:
        UnsupportedSqlError: it has something in it that isn't listed.
    """
    if level > MOST_LEVELS:
        raise UnsupportedSqlError("The expression is nested too deeply to run on rows.")
    reader = _READERS.get(str(tree.get("class")))
    if reader is None:
        raise unlisted(str(tree.get("class")))
    return reader(tree, level + 1)


def _column(tree: Tree, _: int) -> RowExpression:
    names = tree["column_names"]
    if len(names) != 1:  # a table's column, or a field of a struct
        raise unlisted("a name with a point in it")
    return RowColumn(str(names[0]))


def _constant(tree: Tree, _: int) -> RowExpression:
    literal = tree["literal"]
    kind, text = str(literal["kind"]), str(literal.get("text") or "")
    if kind == "INTEGER" and len(text.lstrip("-")) > 38:
        kind = "NUMERIC"
    if kind == "NUMERIC":
        return RowConstant(
            "DECIMAL" if text.strip("-").replace(".", "").isdigit() else "DOUBLE", text
        )
    if kind not in _KINDS:
        raise unlisted(f"a constant of kind {kind}")
    return RowConstant(_KINDS[kind], text)


def _comparison(tree: Tree, level: int) -> RowExpression:
    name = _listed(_COMPARISONS, tree)
    apart = _time_apart(tree["left"], tree["right"], level)
    if apart is not None:
        return RowCall(name, apart)
    return RowCall(
        name, (read_expression(tree["left"], level), read_expression(tree["right"], level))
    )


def _time_apart(left: Tree, right: Tree, level: int) -> tuple[RowExpression, RowExpression] | None:
    """Read how much time lies between two moments, and the interval it is compared with.

    DuckDB compares intervals as if each month had 30 days. None if it is something else.
    """
    spans = [read_interval(part) for part in (left, right)]
    if (spans[0] is None) == (spans[1] is None):
        return None
    arguments = list[RowExpression]()
    for part, span in zip((left, right), spans, strict=True):
        if span is not None:
            microseconds = (30 * span[0] + span[1]) * 86_400_000_000 + span[2]
            arguments.append(RowConstant("INTEGER", str(microseconds)))
            continue
        read = read_expression(part, level)
        if not isinstance(read, RowCall) or read.function != "-":
            return None
        unit = RowConstant("VARCHAR", "microsecond")
        arguments.append(RowCall("date_diff", (unit, *read.arguments[::-1])))
    return arguments[0], arguments[1]


def _conjunction(tree: Tree, level: int) -> RowExpression:
    name = _listed({"CONJUNCTION_AND": "and", "CONJUNCTION_OR": "or"}, tree)
    return RowCall(name, _all(tree["children"], level))


def _operator(tree: Tree, level: int) -> RowExpression:
    type_ = str(tree.get("type"))
    if type_ == "OPERATOR_TRY" and len(tree["children"]) == 1:
        # Every scalar that can fail stands in a TRY anyway.
        return read_expression(tree["children"][0], level)
    if type_ in _NEGATED:
        return _not(RowCall(_NEGATED[type_], _all(tree["children"], level)))
    return RowCall(_listed(_OPERATORS, tree), _all(tree["children"], level))


def _between(tree: Tree, level: int) -> RowExpression:
    inner = (read_expression(tree[key], level) for key in ("input", "lower", "upper"))
    between = RowCall("between", tuple(inner))
    return between if _listed(_BETWEEN, tree) == "between" else _not(between)


_BETWEEN = {"COMPARE_BETWEEN": "between", "COMPARE_NOT_BETWEEN": "not between"}


def _case(tree: Tree, level: int) -> RowExpression:
    cases = tuple(
        (read_expression(case["when_expr"], level), read_expression(case["then_expr"], level))
        for case in tree["case_checks"]
    )
    otherwise = tree.get("else_expr")
    return RowCase(cases, read_expression(otherwise, level) if otherwise else NOTHING)


def _cast(tree: Tree, level: int) -> RowExpression:
    to, value = _type(tree["type_expr"]), read_expression(tree["child"], level)
    if isinstance(value, RowConstant) and value.kind == "VARCHAR" and to.is_time:
        value = meant(value.text, to)  # a day stands for its first moment
        return value if value.kind == to.name else RowCast(value, to)
    return RowCast(value, to)


def _type(tree: Tree) -> RowType:
    path = tree.get("qualified_name", {"path": [""]})["path"]
    if tree.get("class") != "TYPE" or len(path) != 1 or capitals(str(tree["type_name"])) in COARSE:
        raise unlisted("a cast to this type")
    sizes = [str(child.get("literal", {}).get("text")) for child in tree.get("children", ())]
    name = str(tree["type_name"])
    if sizes and capitals(name) in {"VARCHAR", "CHAR", "TEXT", "STRING", "BPCHAR"}:
        sizes = []  # DuckDB doesn't look at them
    if len(sizes) == 1:
        sizes.append("0")
    name = {"NUMERIC": "DECIMAL", "DEC": "DECIMAL"}.get(capitals(name), name)
    return row_type(f"{name}({','.join(sizes)})" if sizes else name)


def _function(tree: Tree, level: int) -> RowExpression:
    name = folded(str(tree["function_name"]))
    orders = (tree.get("order_bys") or {}).get("orders")
    if tree.get("distinct") or tree.get("filter") or orders or tree.get("export_state"):
        raise unlisted(f"{name} with DISTINCT, FILTER or ORDER BY")
    if len(tree.get("qualified_name", {"path": [""]})["path"]) != 1:
        raise unlisted("a function of a schema")
    if any(argument.get("name") for argument in tree["arguments"]):
        raise unlisted(f"{name} with arguments by name")
    given = [argument.get("expression", argument) for argument in tree["arguments"]]
    made = _shifted(name, given, level) or _age(name, given, level)
    if made is not None:
        return made
    arguments = _all(given, level)
    if name in _NEGATED_NAMES:
        return _not(RowCall(_NEGATED_NAMES[name], arguments))
    return _call(name, arguments)


def _shifted(name: str, given: list[Tree], level: int) -> RowExpression | None:
    """Read a time that is moved by a constant interval; None if it is something else."""
    sign = {"+": 1, "add": 1, "date_add": 1, "-": -1, "subtract": -1}.get(name)
    if sign is None or len(given) != 2:
        return None
    spans = [read_interval(part) for part in given]
    if spans[0] is not None and sign == 1:
        given, spans = given[::-1], spans[::-1]
    span = spans[1]
    if spans[0] is not None or span is None:
        return None
    text = " ".join(str(sign * part) for part in span)
    return RowCall("shift", (read_expression(given[0], level), RowConstant("VARCHAR", text)))


def _age(name: str, given: list[Tree], level: int) -> RowExpression | None:
    """Read the years that lie between two moments, `year(age(late, early))`; None if it isn't that.

    They are one fewer than the years are apart where the later day of the year isn't over yet.
    """
    part = str(given[0].get("literal", {}).get("text")) if given else ""
    whole = name in {"date_part", "datepart"} and ALIASES.get(folded(part)) == "year"
    of = given[-1] if given and (whole or _PARTS.get(name) == "year") else {}
    if folded(str(of.get("function_name", ""))) != "age" or len(of["arguments"]) != 2:
        return None
    times = [argument.get("expression", argument) for argument in of["arguments"]]
    late, early = _all(times, level)
    backward = RowCall("negative", (_years(early, late),))
    return RowCase(((RowCall("<", (late, early)), backward),), _years(late, early))


def _years(late: RowExpression, early: RowExpression) -> RowExpression:
    one, zero = (RowConstant("INTEGER", digit) for digit in "10")
    apart = RowCall("-", (_part_of("year", late), _part_of("year", early)))
    over = RowCall("<", (_in_year(late), _in_year(early)))
    return RowCall("-", (apart, RowCase(((over, one),), zero)))


def _in_year(time: RowExpression) -> RowExpression:
    """Return a number that grows with the day of the year, by its name, and with the time of it."""
    day = RowCall("*", (_part_of("month", time), RowConstant("INTEGER", "31")))
    day = RowCall("+", (day, _part_of("day", time)))
    begun, unit = (RowConstant("VARCHAR", unit) for unit in ("day", "microsecond"))
    since = RowCall("date_diff", (unit, RowCall("date_trunc", (begun, time)), time))
    return RowCall("+", (RowCall("*", (day, RowConstant("INTEGER", "86400000000"))), since))


def _part_of(part: str, time: RowExpression) -> RowExpression:
    return RowCall("date_part", (RowConstant("VARCHAR", part), time))


def _call(name: str, arguments: tuple[RowExpression, ...]) -> RowExpression:
    if name == "-" and len(arguments) == 1:
        return RowCall("negative", arguments)
    if name == "+" and len(arguments) == 1:
        return arguments[0]
    if name == "if" and len(arguments) == 3:
        return RowCase((arguments[:2],), arguments[2])
    if name == "log" and len(arguments) == 1:
        return RowCall("log10", arguments)
    if name in _PARTS and len(arguments) == 1:
        return RowCall("date_part", (RowConstant("VARCHAR", _PARTS[name]), arguments[0]))
    if name == "like_escape" and len(arguments) == 3:
        return _escaped(*arguments)
    if name == "strftime" and any(isinstance(one, RowConstant) for one in arguments[:1]):
        arguments = arguments[::-1]  # DuckDB takes both orders
    if name not in _NAMES:
        raise unlisted(name)
    return RowCall(_NAMES[name], arguments)


def _escaped(value: RowExpression, pattern: RowExpression, sign: RowExpression) -> RowExpression:
    """Write LIKE with ESCAPE as a regular expression, which takes linear time."""
    texts = [part.text for part in (pattern, sign) if isinstance(part, RowConstant)]
    if len(texts) < 2 or len(texts[1]) != 1:
        raise unlisted("LIKE with ESCAPE and what is no constant")
    (liked, escape), found, place = texts, "", 0
    while place < len(liked):
        letter = liked[place]
        if letter == escape:
            place += 1
            if place == len(liked):
                raise unlisted("LIKE with a pattern that ends in what escapes")
            found += re.escape(liked[place])
        else:
            found += {"%": ".*", "_": "."}.get(letter) or re.escape(letter)
        place += 1
    options = RowConstant("VARCHAR", "s")  # of which . is any character, a new line too
    return RowCall("regexp_full_match", (value, RowConstant("VARCHAR", found), options))


def _all(trees: list[Tree], level: int) -> tuple[RowExpression, ...]:
    return tuple(read_expression(tree, level) for tree in trees)


def _not(expression: RowExpression) -> RowExpression:
    return RowCall("not", (expression,))


def _listed(names: Mapping[str, str], tree: Tree) -> str:
    type_ = str(tree.get("type"))
    if type_ not in names:
        raise unlisted(type_)
    return names[type_]


_READERS: dict[str, Callable[[Tree, int], RowExpression]] = {
    "COLUMN_REF": _column, "CONSTANT": _constant, "COMPARISON": _comparison,
    "CONJUNCTION": _conjunction, "OPERATOR": _operator, "BETWEEN": _between, "CASE": _case,
    "CAST": _cast, "FUNCTION": _function,
}  # fmt: skip
