"""Facts about a relation, inferred from the bottom up: its columns, its keys, how many rows.

All of them are about the rows of one unit. They say which joins are key joins, which columns tell
the unit, and how many rows a unit has at most; the noise follows from a `Bound`. So a wrong key or
number makes a wrong answer, or a refusal, but nobody's rows less protected. Trusted are the columns
of a relation, their types and which of them a condition says are equal, by which it is written; and
`most` of a `Scan`, which the database enforces: where it is 1, no `Bound` is needed.

- *columns*: type, whether it is ever NULL, and whose key it is.
- *unique*: sets of columns in which no two rows of a unit agree. The empty set says that a unit has
  one row at most.
- *most*: how many rows a unit has at most, if that is known.
- *shared*: how many rows of a unit agree in some columns at most: one, in the place that
  `row_number()` gives each.

`most_rows` is another number: how many rows a unit has if it has no more in tables than the bounds
of these say. Nothing enforces that: of a unit that has more in a table, more may meet. So a `Bound`
keeps as many, and the number says only how many must be kept so that of other units none is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from dpsql.errors import InternalError
from dpsql.rel.nodes import (
    ONLY,
    Agg,
    Bound,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    Key,
    NodeVisitor,
    Project,
    Public,
    Relation,
    Scan,
    StoredRows,
    Union,
    Window,
    walk,
)
from dpsql.rows.expression import (
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    RowExpression,
)
from dpsql.rows.functions import COMPARISONS
from dpsql.rows.types import BIGINT, is_readable
from dpsql.rows.windows import RANKS, SHARES, WindowCall, aggregated, rows_window
from dpsql.rows.write import RowWriter
from dpsql.schema.domain import COLLATED
from dpsql.schema.grain import stored_type
from dpsql.schema.keys import is_id
from dpsql.schema.units import MAX_ROWS

UNIT: Key = (), ""
"""The key of the unit itself: a column that has it has one value for all rows of a unit."""
_KINDS = _DECLARED, _READABLE, _COLLATED, _OPAQUE = range(4)
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparison → what it is with its sides exchanged."""
_NEVER_NULL = frozenset({"exists", "count", "count_distinct"})


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """The facts about a column of a relation.

    Args:
        type: its type, as the catalog has it.
        nullable: whether it may be NULL.
        key: the key whose value it has, of a row of the same unit; None if of none.
    """

    type: str
    nullable: bool = True
    key: Key | None = None


@dataclass(frozen=True, slots=True)
class RelationFacts:
    """The facts about a relation; see the module."""

    columns: Mapping[Id, ColumnFacts]
    private: bool = True
    unique: frozenset[frozenset[Id]] = frozenset()
    most: int | None = None
    shared: tuple[tuple[frozenset[Id], int], ...] = ()
    types: Mapping[Id, str] = field(init=False)

    def __post_init__(self) -> None:
        types = {name: column.type for name, column in self.columns.items()}
        object.__setattr__(self, "types", types)

    def is_unique(self, columns: Iterable[Id]) -> bool:
        """Whether no two rows of a unit agree in some columns."""
        given = frozenset(columns)
        return any(key <= given for key in self.unique)

    def tells_unit(self, column: RowExpression) -> bool:
        """Whether an expression has one value for all rows of a unit, which no other unit has."""
        return isinstance(column, RowColumn) and self.columns[column.name].key == UNIT

    def is_unit(self, column: Id) -> bool:
        """Whether a column is the id of the unit itself in each row."""
        facts = self.columns[column]
        return facts.key == UNIT and not facts.nullable


class Known(NodeVisitor[RelationFacts]):
    """The facts of the relations of a tree, each inferred once."""

    def __init__(self) -> None:
        self._found: dict[Relation, RelationFacts] = {}

    def of(self, relation: Relation) -> RelationFacts:
        """Return the facts of a relation.

        Raises:
            UnsupportedSqlError: an expression in it has no type.
        """
        if relation not in self._found:
            for node in reversed(list(walk(relation))):  # what it is made of before itself
                if node not in self._found:
                    self._found[node] = self.visit(node)
        return self._found[relation]

    def _scan(self, node: Scan) -> RelationFacts:
        source, unit = node.source, node.source.table.unit
        columns = _stored(source, node.prefix, _with_unit(node))
        there = {name: id_ for id_, name in columns_of_rows(source, node.prefix).items()}
        unique = {_renamed(key, there) for key in source.unique if key <= there.keys()}
        ids = frozenset(name for name, _ in unit.columns) if unit and not unit.joins else None
        most = 1 if ids is not None and ids in source.unique else None
        for step, prefix in node.along:
            columns |= _stored(step, prefix, frozenset())
        return RelationFacts(columns, unique=_single(unique, most), most=most)

    def _public(self, node: Public) -> RelationFacts:
        columns = {
            name: ColumnFacts(type_, any(row[i].kind == "NULL" for row in node.rows))
            for i, (name, type_) in enumerate(node.columns)
        }
        return RelationFacts(columns, private=False, unique=node.unique)

    def _filter(self, node: Filter) -> RelationFacts:
        of = self.of(node.of)
        parts = conjuncts(node.where)
        there = frozenset(name for part in parts for name in _needed(part))
        columns = {
            n: replace(c, nullable=c.nullable and n not in there) for n, c in of.columns.items()
        }
        limits = [of.most] if of.most is not None else []
        for name, (first, last) in known_places(parts).items():
            many = max(last - first + 1, 0)
            limits += [each * many for by, each in of.shared if by == {name}]
        most = min(limits, default=None)
        return replace(of, columns=columns, most=most, unique=_single(of.unique, most))

    def _project(self, node: Project) -> RelationFacts:
        of = self.of(node.of)
        passed: dict[Id, Id] = {}
        for name, value in node.columns:
            if isinstance(value, RowColumn):
                passed.setdefault(value.name, name)
        columns = {name: computed(value, of) for name, value in node.columns}
        return replace(
            of,
            columns=columns,
            unique=frozenset(_renamed(key, passed) for key in of.unique if key <= passed.keys()),
            shared=tuple((_renamed(by, passed), n) for by, n in of.shared if by <= passed.keys()),
        )

    def _join(self, node: Join) -> RelationFacts:
        left, right = self.of(node.left), self.of(node.right)
        lost = node.kind == "left"
        met = {n: replace(c, nullable=c.nullable or lost) for n, c in right.columns.items()}
        columns = {**left.columns, **met}
        pairs = equalities(node.on, left, right)
        if right.is_unique(b for _, b in pairs):  # a row meets one at most
            return replace(left, columns=columns)
        unique = {a | b for a in left.unique for b in right.unique}
        many = (left.most, right.most) if right.private else (None, None)
        most = many[0] * many[1] if many[0] is not None and many[1] is not None else None
        if right.private and not lost and left.is_unique(a for a, _ in pairs):
            unique |= right.unique
            most = right.most
        return RelationFacts(columns, unique=frozenset(unique), most=most)

    def _group_join(self, node: GroupJoin) -> RelationFacts:
        left, right = self.of(node.left), self.of(node.right)
        both = RelationFacts({**left.columns, **right.columns})
        adds = {name: _aggregate(agg, both) for name, agg in node.adds}
        return replace(left, columns={**left.columns, **adds})

    def _window(self, node: Window) -> RelationFacts:
        of = self.of(node.of)
        adds, shared = dict[Id, ColumnFacts](), list(of.shared)
        for name, call in node.adds:
            adds[name] = _windowed(name, call, of)
            if _is_place(call, of):
                shared.append((frozenset({name}), 1))
        return replace(of, columns={**of.columns, **adds}, shared=tuple(shared))

    def _group(self, node: Group) -> RelationFacts:
        of = self.of(node.of)
        columns = {name: computed(value, of) for name, value in node.keys}
        columns |= {name: _in_group(agg, of) for name, agg in node.adds}
        finer = frozenset(name for name, value in node.keys if not of.tells_unit(value))
        return RelationFacts(columns, unique=frozenset({finer}), most=of.most if finer else 1)

    def _union(self, node: Union) -> RelationFacts:
        parts = [self.of(part) for part in node.parts]
        columns = {
            name: ColumnFacts(
                each[0].type,
                any(column.nullable for column in each),
                each[0].key if len({column.key for column in each}) == 1 else None,
            )
            for name, *each in zip(node.columns, *(p.columns.values() for p in parts), strict=True)
        }
        many = [part.most for part in parts if part.most is not None]
        return RelationFacts(columns, most=sum(many) if len(many) == len(parts) else None)

    def _bound(self, node: Bound) -> RelationFacts:
        of = self.of(node.of)
        most = node.rows if of.most is None else min(node.rows, of.most)
        return replace(of, most=most, unique=_single(of.unique, most))


def columns_of_rows(source: StoredRows, prefix: str) -> dict[Id, str]:
    """Return the columns that rows have: id → the name that is stored, in the order of their line.

    Those with a domain come first, then those that expressions can read, then texts with a
    collation, which are told apart by their bytes all the same, and at last those of which nothing
    is read but whether two are equal: UUIDs, for example. Columns of other types are left out.
    """
    table = source.table
    kinds = [(_kind(type_), name) for name, type_ in table.undeclared.items()]
    further = [name for kind in _KINDS for of, name in kinds if of == kind]
    return {prefix + name: name for name in (*table.columns, *further)}


def kinds_of_columns(source: StoredRows, prefix: str) -> dict[Id, int]:
    """Return of which kind the columns are that rows have, in their order; the first is 0."""
    types = source.table.undeclared
    return {
        id_: _kind(types[name]) or _DECLARED if name in types else _DECLARED
        for id_, name in columns_of_rows(source, prefix).items()
    }


def is_scanned(type_: str) -> bool:
    """Whether rows that are scanned have columns of a type that have no domain."""
    return _kind(type_) is not None


def _kind(type_: str) -> int | None:
    """Tell columns without a domain apart by what can be read of them; None if nothing can."""
    if type_ == COLLATED:
        return _COLLATED
    if is_readable(type_):
        return _READABLE
    return _OPAQUE if is_id(type_) else None


def _stored(source: StoredRows, prefix: str, sure: frozenset[str]) -> dict[Id, ColumnFacts]:
    """Return the columns of a stored table, some of which are surely there."""
    table = source.table
    return {
        id_: ColumnFacts(
            stored_type(table, name), name not in table.filled | sure, source.keys.get(name)
        )
        for id_, name in columns_of_rows(source, prefix).items()
    }


def conjuncts(condition: RowExpression | None) -> tuple[RowExpression, ...]:
    """Return the conditions of which one says that all hold."""
    if condition is None:
        return ()
    if isinstance(condition, RowCall) and condition.function == "and":
        return tuple(part for argument in condition.arguments for part in conjuncts(argument))
    return (condition,)


def equalities(
    on: RowExpression | None, left: RelationFacts, right: RelationFacts
) -> list[tuple[Id, Id]]:
    """Return the columns of the two sides that a condition says are equal."""
    pairs = []
    for part in conjuncts(on):
        pair = _equal_columns(part)
        if pair is None:
            continue
        for a, b in (pair, pair[::-1]):
            if a in left.columns and b in right.columns:
                pairs.append((a, b))
    return pairs


def computed(value: RowExpression, of: RelationFacts) -> ColumnFacts:
    """Return the facts about a value of a row.

    Raises:
        UnsupportedSqlError: it has no type.
    """
    if isinstance(value, RowColumn):
        if value.name not in of.columns:
            raise InternalError("an expression reads a column that isn't there")
        return of.columns[value.name]
    written = RowWriter(of.types).write(value)
    return ColumnFacts(written.type.sql)


def _equal_columns(part: RowExpression) -> tuple[Id, Id] | None:
    match part:
        case RowCall("=", (RowColumn(a), RowColumn(b))):
            return a, b
        case _:
            return None


def _with_unit(scan: Scan) -> frozenset[str]:
    """Return the columns that each row of somebody has: those of the first step to its unit.

    Rows without units are described as well, so that they are found to be those of a table; nothing
    else is made of them (`check.py`).
    """
    unit = scan.source.table.unit
    if unit is None:
        return frozenset()
    if unit.joins:
        return frozenset(unit.joins[0].columns)
    return frozenset(name for name, _ in unit.columns)


def _needed(part: RowExpression) -> frozenset[Id]:
    """Return the columns that aren't NULL where a condition is true."""
    match part:
        case RowCall(function, arguments) if function in COMPARISONS:
            return frozenset(a.name for a in arguments if isinstance(a, RowColumn))
        case RowCall("not", (RowCall("is_null", (RowColumn(name),)),)):
            return frozenset({name})
        case _:
            return frozenset()


def known_places(parts: Iterable[RowExpression]) -> dict[Id, tuple[int, int]]:
    """Return the columns that conditions say are between two whole numbers from 1, with these."""
    least, most = dict[Id, int](), dict[Id, int]()
    for part in parts:
        said = said_of_place(part)
        if said is not None:
            name, first, last = said
            least[name] = max(first, least.get(name, 1))
            if last is not None:
                most[name] = min(last, most.get(name, last))
    return {name: (least[name], last) for name, last in most.items()}


def said_of_place(part: RowExpression) -> tuple[Id, int, int | None] | None:
    """Return between which places a condition says that a row is; None if it is another one."""
    match part:
        case RowCall("between", (value, RowConstant("INTEGER", low), RowConstant("INTEGER", high))):
            first, last = int(low), int(high)
        case RowCall("in", (value, *listed)):
            numbers = [int(n.text) for n in listed if _is_whole(n)]
            if not numbers or len(numbers) < len(listed):
                return None
            first, last = min(numbers), max(numbers)
        case RowCall(sign, (RowConstant("INTEGER", n), value)) if sign in _MIRRORED:
            return said_of_place(RowCall(_MIRRORED[sign], (value, RowConstant("INTEGER", n))))
        case RowCall("=", (value, RowConstant("INTEGER", n))):
            first, last = int(n), int(n)
        case RowCall(("<=" | "<") as sign, (value, RowConstant("INTEGER", n))):
            first, last = 1, int(n) - (sign == "<")
        case RowCall((">=" | ">") as sign, (value, RowConstant("INTEGER", n))):
            place = _at_least_one(value)
            above = max(int(n) + (sign == ">"), 1)
            return (place.name, above, None) if isinstance(place, RowColumn) else None
        case _:
            return None
    place = _at_least_one(value)
    return (place.name, max(first, 1), last) if isinstance(place, RowColumn) else None


def _is_whole(value: RowExpression) -> TypeGuard[RowConstant]:
    return isinstance(value, RowConstant) and value.kind == "INTEGER"


def _at_least_one(value: RowExpression) -> RowExpression:
    """Return a place that was said to be a whole number from 1 on, which each is."""
    match value:
        case RowCast(inner, to) if to == BIGINT:
            return _at_least_one(inner)
        case RowCase(
            ((_, RowConstant("NULL", "")),),
            RowCall("greatest", (place, RowConstant("INTEGER", "1"))),
        ):
            return place
    return value


def _renamed(names: Iterable[Id], to: Mapping[Id, Id]) -> frozenset[Id]:
    return frozenset(to[name] for name in names)


def _aggregate(agg: Agg, of: RelationFacts) -> ColumnFacts:
    if agg.function == ONLY and agg.value is not None:
        return replace(computed(agg.value, of), nullable=True, key=None)
    made = aggregated(agg.function, agg.value, RowWriter(of.types))
    return ColumnFacts(made.type.sql, agg.function not in _NEVER_NULL)


def _in_group(agg: Agg, of: RelationFacts) -> ColumnFacts:
    """Return the facts about an aggregate of a group, which has a row: it is of that at least."""
    fact = _aggregate(agg, of)
    filled = agg.value is not None and agg.where is None and not computed(agg.value, of).nullable
    return replace(fact, nullable=fact.nullable and not (filled and agg.function != ONLY))


def _single(unique: Iterable[frozenset[Id]], most: int | None) -> frozenset[frozenset[Id]]:
    """Return the sets of columns that are unique; the empty set among them if there is one row."""
    return frozenset([*unique, frozenset[Id]()] if most == 1 else unique)


def _is_place(call: WindowCall, of: RelationFacts) -> bool:
    """Whether a window numbers all rows of a unit."""
    told = (RowColumn(name) for name, _ in call.told)
    numbers = call.function == "row_number" and call.holds is None
    return numbers and all(map(of.tells_unit, (*told, *call.partition)))


def _windowed(name: Id, call: WindowCall, of: RelationFacts) -> ColumnFacts:
    made = rows_window(name, call, of.types)
    always = call.function in RANKS or call.function in _NEVER_NULL
    always |= call.function in SHARES and call.holds is None
    return ColumnFacts(made.type, not always)


def most_rows(relation: Relation) -> int | None:
    """Return how many rows of a unit there are at most.

    None if a table has no bound, or if so many can't be kept.
    """
    most = _Most(Known()).visit(relation)
    return most if most <= MAX_ROWS else None


class _Most(NodeVisitor[int]):
    """The numbers of rows, from the bottom up; none is less than 1."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def visit(self, node: Relation) -> int:
        most, sure = super().visit(node), self._known.of(node).most
        return max(most if sure is None else min(most, sure), 1)

    def _scan(self, node: Scan) -> int:
        table = node.source.table
        return table.contributions if table.is_bounded else MAX_ROWS + 1

    def _public(self, node: Public) -> int:
        return len(node.rows)

    def _filter(self, node: Filter) -> int:
        return self.visit(node.of)

    def _project(self, node: Project) -> int:
        return self.visit(node.of)

    def _join(self, node: Join) -> int:
        left, right = self._known.of(node.left), self._known.of(node.right)
        pairs = equalities(node.on, left, right)
        if right.is_unique(b for _, b in pairs):
            return self.visit(node.left)
        of_one = right.private and node.kind == "inner" and left.is_unique(a for a, _ in pairs)
        return self.visit(node.right) * (1 if of_one else self.visit(node.left))

    def _group_join(self, node: GroupJoin) -> int:
        return self.visit(node.left)

    def _window(self, node: Window) -> int:
        return self.visit(node.of)

    def _group(self, node: Group) -> int:
        return self.visit(node.of)

    def _union(self, node: Union) -> int:
        return sum(map(self.visit, node.parts))

    def _bound(self, node: Bound) -> int:
        return min(node.rows, self.visit(node.of))
