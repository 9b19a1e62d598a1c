"""Relations: frozen trees of ten nodes, each of which says what the rows of one unit are.

A private relation R has rows of privacy units. [R](u), the rows of a unit u, is a multiset that is
made of the stored rows of u and of public rows, by recursion over the tree:

- `Scan`: the rows of a stored table whose way leads to u, each once.
- `Public`: rows that are the same for every unit. They stand on the right of a join alone.
- `Filter`: the rows for which a condition is true.
- `Project`: each row, with other columns.
- `Join`: the pairs of rows for which a condition is true; if it is a left join, also the rows on
  the left that meet none, with NULLs.
- `GroupJoin`: each row on the left, with aggregates of the rows on the right that it meets: EXISTS,
  IN and scalar subqueries, SEMI and ANTI JOIN, and the count of a LEFT JOIN by a key.
- `Window`: each row, with its place among others, or with an aggregate of these.
- `Group`: one row for each combination of keys; without keys, one if there are rows.
- `Union`: the rows of several relations.
- `Bound`: at most k of the rows, and before that at most so many of those in the same cells.

Other units occur nowhere in that. So the relation of a database is the sum of [R](u) over all
units, and to remove a unit removes [R](u) and changes nothing else. That both sides of a join are
of one unit, and that windows and groups are of one, is no condition that a statement has to spell:
it is the meaning of the nodes, and no field could leave it out. An engine has to return these
multisets (`dpsql/engines/relations.py`).

Columns are known by ids that are unique in a tree: a table that is scanned twice has two prefixes.
The names that analysts use are no part of it.

There is neither Sort nor Limit among the nodes, as no such thing is a function of the rows of one
unit. DISTINCT is a `Group` without aggregates; the first row of each unit is a `Filter` over a
`Window`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar

from dpsql.rows.expression import RowConstant, RowExpression
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.windows import WindowCall
from dpsql.schema.domain import Domain
from dpsql.schema.table import Table

T = TypeVar("T")
Id: TypeAlias = str
"""A column of a relation, unique in its tree."""
Key: TypeAlias = tuple[tuple[str, ...], str]
"""A column by which rows of a table are referred to: the table's path, and the column's name."""
Ids: TypeAlias = tuple[str, tuple[object, ...]]
"""The ids of units, equal for tables whose rows can be of one unit: see `ForeignKeys.ids`."""
SAME_IDS: Ids = ("", ())
"""The ids of units of all tables of a statement: that these are the same was checked where tables
were described (`schema/references.py`), by the catalog, of which nothing is known here."""

OUTSIDE = "\x1f"
"""The sign before a column of a row, beside the columns of other rows of its unit."""
ONLY = "only"


@dataclass(frozen=True, eq=False, slots=True)
class StoredRows:
    """A stored private table: what its owner and the catalog say of its rows.

    Args:
        table: its columns, and whose rows they are.
        ids: the ids of its units.
        unique: sets of columns in which no two of its rows agree, as the database sees to it.
        keys: column → the key whose value it has, if that is one of a row of the same unit.
    """

    table: Table
    ids: Ids
    unique: frozenset[frozenset[str]] = frozenset()
    keys: Mapping[str, Key] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, slots=True)
class Agg:
    """An aggregate of several rows of a unit.

    Args:
        function: one of `dpsql.rows.windows.AGGREGATES`; or `ONLY`, of a column: its value in a
            group of one row, else NULL.
        value: what of each row; without that, rows are counted.
        where: true of the rows that are looked at; None if all are.
    """

    function: str
    value: RowExpression | None = None
    where: RowExpression | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Scan:
    """The rows of a stored table, each once for every unit that its way leads to.

    Args:
        source: the table.
        prefix: what stands before its columns' names in their ids.
        along: the tables of the first steps of its way, as far as these are FOREIGN KEYs, whose
            columns it has as well: each with a prefix of its own.
    """

    source: StoredRows
    prefix: str = ""
    along: tuple[tuple[StoredRows, str], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Public:
    """Rows that are the same for every unit: constants, of whatever public table.

    Args:
        columns: id → its type.
        rows: their values, each of which is cast to its column's type.
        unique: sets of columns in which no two of the rows agree.
    """

    columns: tuple[tuple[Id, str], ...]
    rows: tuple[tuple[RowConstant, ...], ...]
    unique: frozenset[frozenset[Id]] = frozenset()


@dataclass(frozen=True, eq=False, slots=True)
class Filter:
    """The rows for which a condition is true."""

    of: Relation
    where: RowExpression


@dataclass(frozen=True, eq=False, slots=True)
class Project:
    """Each row, with these columns in place of its own."""

    of: Relation
    columns: tuple[tuple[Id, RowExpression], ...]


@dataclass(frozen=True, eq=False, slots=True)
class ProjectApart(Project):
    """Each row, with its columns as they are, and further ones for what may be missing in it.

    A further column is a column that has another value in place of NULL: so NULL still says that
    there is no row, after a join that keeps rows which meet none.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Join:
    """The pairs of a unit's rows, or of its rows with public ones, for which `on` is true."""

    left: Relation
    right: Relation
    on: RowExpression | None
    kind: Literal["inner", "left"] = "inner"


@dataclass(frozen=True, eq=False, slots=True)
class GroupJoin:
    """Each row on the left once, with aggregates of the rows on the right that meet it by `on`."""

    left: Relation
    right: Relation
    on: RowExpression | None
    adds: tuple[tuple[Id, Agg], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Window:
    """Each row, with what it is among the rows of its unit."""

    of: Relation
    adds: tuple[tuple[Id, WindowCall], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """One row for each combination of the keys among the rows of a unit."""

    of: Relation
    keys: tuple[tuple[Id, RowExpression], ...]
    adds: tuple[tuple[Id, Agg], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Union:
    """The rows of several relations, whose columns go together by their places."""

    parts: tuple[Relation, ...]
    columns: tuple[Id, ...]


class CellsOf(NamedTuple):
    """The cells of a column, in which rows are counted."""

    column: Id
    domain: Domain
    leaves_out: bool
    """Whether rows without a value of the domain have a cell of their own, after the others."""


@dataclass(frozen=True, eq=False, slots=True)
class CellLimit:
    """A limit on rows of a unit in the same cells of some columns: how many are kept at most."""

    cells: tuple[CellsOf, ...]
    rows: int


@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """At most so many rows of a unit, by the rule of `dpsql/engines/duckdb/bounded.py`.

    Args:
        of: the rows.
        rows: how many are kept.
        limits: what is kept to before, one after the other.
    """

    of: Relation
    rows: int
    limits: tuple[CellLimit, ...] = ()


Relation: TypeAlias = (
    Scan | Public | Filter | Project | Join | GroupJoin | Window | Group | Union | Bound
)


class NodeVisitor(ABC, Generic[T]):
    """A computation on relations: a method for each kind of node, of which none can be missing."""

    def visit(self, node: Relation) -> T:
        """Return what the method for the node's kind does."""
        match node:
            case Scan():
                return self._scan(node)
            case Public():
                return self._public(node)
            case Filter():
                return self._filter(node)
            case Project():
                return self._project(node)
            case Join():
                return self._join(node)
            case GroupJoin():
                return self._group_join(node)
            case Window():
                return self._window(node)
            case Group():
                return self._group(node)
            case Union():
                return self._union(node)
            case Bound():
                return self._bound(node)

    @abstractmethod
    def _scan(self, node: Scan) -> T: ...
    @abstractmethod
    def _public(self, node: Public) -> T: ...
    @abstractmethod
    def _filter(self, node: Filter) -> T: ...
    @abstractmethod
    def _project(self, node: Project) -> T: ...
    @abstractmethod
    def _join(self, node: Join) -> T: ...
    @abstractmethod
    def _group_join(self, node: GroupJoin) -> T: ...
    @abstractmethod
    def _window(self, node: Window) -> T: ...
    @abstractmethod
    def _group(self, node: Group) -> T: ...
    @abstractmethod
    def _union(self, node: Union) -> T: ...
    @abstractmethod
    def _bound(self, node: Bound) -> T: ...


def inputs(relation: Relation) -> tuple[Relation, ...]:
    """Return the relations that a node is made of."""
    match relation:
        case Scan() | Public():
            return ()
        case Join() | GroupJoin():
            return relation.left, relation.right
        case Union():
            return relation.parts
        case _:
            return (relation.of,)


def walk(relation: Relation) -> Iterator[Relation]:
    """Yield a relation and all that it is made of, each as often as it stands in the tree."""
    pending = [relation]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(inputs(node)))


def expressions(relation: Relation) -> tuple[RowExpression, ...]:
    """Return the expressions that stand in a node itself."""
    match relation:
        case Filter():
            return (relation.where,)
        case Project():
            return tuple(value for _, value in relation.columns)
        case Join():
            return () if relation.on is None else (relation.on,)
        case GroupJoin():
            return (*(() if relation.on is None else (relation.on,)), *_of_aggs(relation.adds))
        case Window():
            return tuple(value for _, call in relation.adds for value in _of_call(call))
        case Group():
            return (*(value for _, value in relation.keys), *_of_aggs(relation.adds))
        case _:
            return ()


def read_by(relation: Relation) -> frozenset[Id]:
    """Return the columns that the expressions of a node read."""
    columns = frozenset[Id]().union(*map(columns_of, expressions(relation)))
    if isinstance(relation, Window):
        return columns.union(name for _, call in relation.adds for name, _ in call.told)
    if isinstance(relation, Bound):
        return columns.union(cells.column for limit in relation.limits for cells in limit.cells)
    return columns


def _of_aggs(adds: tuple[tuple[Id, Agg], ...]) -> Iterator[RowExpression]:
    for _, agg in adds:
        yield from (part for part in (agg.value, agg.where) if part is not None)


def _of_call(call: WindowCall) -> Iterator[RowExpression]:
    yield from (*call.arguments, *call.partition, *(key.value for key in call.order))
    if call.holds is not None:
        yield call.holds


def has_windows(relation: Relation) -> bool:
    """Whether rows of a relation are told apart by windows."""
    return any(isinstance(node, Window) for node in walk(relation))
