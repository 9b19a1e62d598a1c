"""The check of a relation before anything is written of it. Trusted.

Guarantees:
    A relation that passes has a meaning for each unit alone (`nodes.py`): the rows [R](u) are a
    function, as a multiset, of the stored rows of u and of public rows, and an engine can compute
    it without failing for what a row says.

    *Proof.* By induction over the tree; the check looks at the tree alone, and at nothing that was
    said of it elsewhere.
    (i) Every leaf is a `Scan` of a table with units, and all of these have ids that are the same
    (`Ids`), or it is `Public`. A public relation is only the right side of a `Join` or a
    `GroupJoin`: so each row of every other node has a row of u on its left, and is a row of u.
    (ii) Expressions are of closed lists by construction (`rows/expression.py`), are total functions
    of a row (`rows/write.py`), and read columns of the node's inputs alone. No id is given twice.
    (iii) Aggregates are functions of multisets: those of `rows/windows.py`, of exact numbers,
    times, texts and truth values; typing one refuses all others. So is a window by values, and one
    that looks at rows one by one is a function of the multiset up to an exchange of equal rows
    (`rows/windows.py`): its type is made by the same rules, and its numbers are such as it takes.
    (iv) Keys of a `Group` are exact: of values that are equal there is one, so that it doesn't
    matter which of a group is shown. Zeros of a DOUBLE are equal and not the same, and so are NaNs,
    so that it is a key only as `with_one_zero` has it.
    (v) Cells of a `Bound` are of columns of their types, so that a row is in one of them, or in
    none, whatever it says (`engines/codes.py`).
    (vi) Columns of a `Union` that go together have one type, so that no cast is made by the
    database, which could fail. ∎
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.errors import InternalError, SqlLimitError, UnsupportedSqlError
from dpsql.rel.facts import Known, RelationFacts, columns_of_rows
from dpsql.rel.keys import equal_columns, has_one_zero, same_rows
from dpsql.rel.nodes import (
    ONLY,
    Bound,
    CellsOf,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
    expressions,
    inputs,
    read_by,
    walk,
)
from dpsql.rows.expression import RowColumn, RowExpression
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.types import BOOLEAN, NULL
from dpsql.rows.windows import CHOSEN, MOST_AWAY, RANKS, SHARES, SHIFTED, WindowCall
from dpsql.rows.write import RowWriter
from dpsql.schema.grain import type_of
from dpsql.schema.keys import compared_as, is_id
from dpsql.schema.table import Table
from dpsql.schema.units import MAX_ROWS

MOST_RELATIONS, MOST_LEVELS = 1_000, 200
"""Nodes that a tree has at most, and how many of them stand one above the other."""


def check_kept(relation: Relation, table: Table, known: Known) -> None:
    """Check that a unit has no more rows than it is charged for, in all and in the same cells.

    *Proof.* Its rows are those of the `Bound` that is found, each at most once (`same_rows`). ∎

    Args:
        relation: its root.
        table: whose rows they are: its unit says how many of them are charged for.
        known: the facts about it.

    Raises:
        InternalError: there may be more.
    """
    bounds = (node for node in same_rows(relation, known) if isinstance(node, Bound))
    node = next(bounds, None)
    if node is None:
        raise InternalError("nothing bounds the rows of units that would be counted")
    most, limits = (table.unit.max_rows, table.unit.limits) if table.unit else (None, ())
    kept = [(limit.rows, tuple(cells.domain for cells in limit.cells)) for limit in node.limits]
    charged = [
        (limit.rows, tuple(table.columns[name] for name in limit.columns)) for limit in limits
    ]
    if most is None or node.rows > most or kept != charged:
        raise InternalError("more rows of a unit would be counted than are charged for")


def check(relation: Relation, known: Known | None = None) -> None:
    """Check that a relation has a meaning for each unit alone.

    Args:
        relation: its root.
        known: the facts about it, if some were inferred before.

    Raises:
        UnsupportedSqlError: it has none, or something in it isn't exact.
        InternalError: the tree is malformed, whatever a statement says.
    """
    _check_size(relation)
    nodes, known = list(walk(relation)), known or Known()
    if isinstance(relation, Public):
        raise _public_first()
    _check_units([node for node in nodes if isinstance(node, Scan)])
    _check_ids(nodes, known)
    for node in nodes:  # before anything is inferred
        _check_sides(node)
        for _, call in node.adds if isinstance(node, Window) else ():
            _check_call(call)
    for node in nodes:
        _check_expressions(node, known)
        _check_node(node, known)


def _check_size(relation: Relation) -> None:
    """Check that a tree is not too large to be written."""
    pending, count = [(relation, 1)], 0
    while pending:
        node, level = pending.pop()
        count += 1
        if count > MOST_RELATIONS or level > MOST_LEVELS:
            raise SqlLimitError(
                "The statement looks at rows in too many steps.",
                hint=f"at most {MOST_RELATIONS:,} are taken, and {MOST_LEVELS} one after the "
                "other: ask parts of it in statements of their own.",
            )
        pending.extend((side, level + 1) for side in inputs(node))


def _check_units(scans: list[Scan]) -> None:
    """Check that all tables have rows of the same units, of one database."""
    tables = [scan.source.table for scan in scans]
    if any(table.unit is None for table in tables):
        raise InternalError("rows of nobody are put together")
    databases = {table.path[:1] for table in tables}
    ids = (table.unit.columns for table in tables if table.unit)
    types = {tuple(compared_as(type_) for _, type_ in columns) for columns in ids}
    if len({scan.source.ids for scan in scans}) > 1 or len(databases) > 1 or len(types) > 1:
        raise UnsupportedSqlError(
            "Rows of different units can't meet: nobody is protected by both.",
            hint="release from each of the tables in its own statement.",
        )


def _check_ids(nodes: Iterable[Relation], known: Known) -> None:
    """Check that no id of a column is given by two nodes, or twice by one."""
    seen = set[Id]()
    for node in nodes:
        ids = _given(node, known)
        if len({*ids}) < len(ids) or not seen.isdisjoint(ids):
            raise InternalError("two columns of a relation have one id")
        seen.update(ids)


def _given(node: Relation, known: Known) -> list[Id]:
    """Return the ids of the columns that a node makes."""
    match node:
        case Scan():
            return list(known.of(node).columns)
        case Public() | Project():
            return [name for name, _ in node.columns]
        case GroupJoin() | Window():
            return [name for name, _ in node.adds]
        case Group():
            return [name for name, _ in (*node.keys, *node.adds)]
        case Union():
            return list(node.columns)
        case _:
            return []


def _check_sides(node: Relation) -> None:
    """Check that public rows are met by rows of a unit, and kept by nothing."""
    sides = inputs(node)
    kept = sides[:1] if isinstance(node, Join | GroupJoin) else sides
    if any(isinstance(side, Public) for side in kept):
        raise _public_first()


def _public_first() -> UnsupportedSqlError:
    return UnsupportedSqlError(
        "Rows of a public table are kept here whether or not a private row meets them, and such "
        "rows belong to nobody.",
        hint="write the private table first: FROM orders LEFT JOIN regions ON …",
    )


def _check_expressions(node: Relation, known: Known) -> None:
    """Check what expressions read."""
    there = frozenset(name for side in inputs(node) for name in known.of(side).columns)
    for expression in expressions(node):
        if not columns_of(expression) <= there:
            raise InternalError("an expression reads a column that isn't there")
    if not read_by(node) <= there:
        raise InternalError("rows are told apart by a column that isn't there")


def _check_node(node: Relation, known: Known) -> None:
    """Check what one kind of node asks for; facts refuse what has no type."""
    if not known.of(node).private and not isinstance(node, Public):
        raise InternalError("public rows stand for those of units")
    match node:
        case Scan():
            _check_along(node)
        case Public() if not node.columns:
            raise InternalError("public rows have no columns")
        case GroupJoin():
            _check_only(node)
        case Group():
            _check_only(node)
            _check_keys(node, known.of(node.of))
        case Union():
            _check_union(node, known)
        case Bound():
            _check_bound(node, known.of(node.of))
    _check_conditions(node, known)


def _check_bound(node: Bound, of: RelationFacts) -> None:
    if not all(
        1 <= rows <= MAX_ROWS for rows in (node.rows, *(limit.rows for limit in node.limits))
    ):
        raise InternalError("no number of rows that could be kept")
    placed = dict[Id, CellsOf]()
    for limit in node.limits:
        if any(placed.setdefault(cells.column, cells) != cells for cells in limit.cells):
            raise InternalError("a column has cells of two kinds")
        names = {cells.column for cells in limit.cells}
        typed = (of.types[cells.column] == type_of(cells.domain) for cells in limit.cells)
        if not limit.cells or len(names) < len(limit.cells) or not all(typed):
            raise InternalError("rows are in no cells that a limit could be for")


def _check_keys(node: Group, of: RelationFacts) -> None:
    writer = RowWriter(of.types)
    keys = (value for _, value in node.keys)
    made = (
        value
        for value in keys
        if not (isinstance(value, RowColumn) and _is_id(value, of)) and not has_one_zero(value)
    )
    if any(writer.write(value).type.is_float for value in made):
        raise UnsupportedSqlError(
            "Rows of a unit can't be grouped by a DOUBLE: of its zeros it would be left open which "
            "one is shown.",
            hint="group by a whole number or a decimal, for example CAST(x AS DECIMAL(18, 2)).",
        )


def _is_id(column: RowColumn, of: RelationFacts) -> bool:
    return is_id(of.types[column.name])


def _check_call(call: WindowCall) -> None:
    """Check what a window takes: a number that is none would be an error where there are rows."""
    given, numbers, least = len(call.arguments), call.numbers, 1
    if call.function in {*RANKS, *SHARES}:
        good = not given and len(numbers) == (call.function == "ntile")
    elif call.function in SHIFTED:
        good, least = 1 <= given <= 2 and len(numbers) <= 1, -MOST_AWAY
    elif call.function in CHOSEN:
        good = given == 1 and len(numbers) == (call.function == "nth_value")
    else:
        good = given <= 1 and not numbers
    if not good or not all(least <= number <= MOST_AWAY for number in numbers):
        raise InternalError("a window takes other arguments")


def _check_only(node: Group | GroupJoin) -> None:
    """Check that what is shown of the only row of a group is a column of it, as it is."""
    only = [agg for _, agg in node.adds if agg.function == ONLY]
    plain = all(isinstance(agg.value, RowColumn) and agg.where is None for agg in only)
    if only and (isinstance(node, GroupJoin) or not plain):
        raise InternalError("what a group has of its only row is a column")


def _check_along(scan: Scan) -> None:
    """Check that columns are those of rows that the way to the unit leads to."""
    unit = scan.source.table.unit
    steps = () if unit is None else unit.joins
    rows_columns = {*columns_of_rows(scan.source, "").values()}
    if len(scan.along) > len(steps):
        raise InternalError("there is no step along which a column could be read")
    if scan.along and not rows_columns.issuperset(steps[0].columns):
        raise InternalError("which row the way leads to is said by a column that can't be read")
    for (source, _), step in zip(scan.along, steps, strict=False):
        if not step.enforced or source.table.path != step.path:
            raise InternalError("a column is read of a row that the way doesn't lead to")


def _conditions(node: Relation, known: Known) -> list[RowExpression | None]:
    """Return the conditions of a node, without those by which stored values are equal."""
    match node:
        case Filter():
            return [node.where]
        case Join() | GroupJoin():
            _, rest = equal_columns(node.on, known.of(node.left), known.of(node.right))
            adds = node.adds if isinstance(node, GroupJoin) else ()
            return [*rest, *(agg.where for _, agg in adds)]
        case Group():
            return [agg.where for _, agg in node.adds]
        case Window():
            return [call.holds for _, call in node.adds]
        case _:
            return []


def _check_conditions(node: Relation, known: Known) -> None:
    types = {name: of for side in inputs(node) for name, of in known.of(side).types.items()}
    writer = RowWriter(types)
    for condition in _conditions(node, known):
        if condition is not None and writer.write(condition).type not in (BOOLEAN, NULL):
            raise UnsupportedSqlError(
                "A condition on rows is true or false.", hint="compare it with something: x > 0."
            )


def _check_union(node: Union, known: Known) -> None:
    parts = [known.of(part) for part in node.parts]
    if len(parts) < 2 or any(len(part.columns) != len(node.columns) for part in parts):
        raise InternalError("relations of different columns are put together")
    for types in zip(*(part.types.values() for part in parts), strict=True):
        if len({*types}) > 1:
            raise UnsupportedSqlError(
                f"UNION ALL puts together columns of the types {' and '.join(sorted({*types}))}.",
                hint="cast both to one type, for example CAST(x AS BIGINT).",
            )
