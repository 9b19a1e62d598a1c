"""SELECTs over private rows: each clause adds a node to a relation, or a condition on its rows.

    SELECT … FROM a JOIN b ON … WHERE EXISTS (…) QUALIFY …

is translated from FROM on. A `RowsOfSelect` holds the relation as far as it has come: what stands
after FROM and joins are its rows; subqueries and windows are columns that are added to it where an
expression needs them; conditions are kept beside it, so that what counts under one of them is
counted in the same relation as what counts without. Where they have to hold first, for groups and
in windows, they are put into the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Protocol

from sqlglot import exp

from dpsql.errors import InternalError, Span, SqlError, SqlSchemaError, printable
from dpsql.rel.facts import Known
from dpsql.rel.keys import with_one_zero
from dpsql.rel.nodes import Agg, Filter, Group, Id, Relation, Window
from dpsql.rows.expression import RowCast, RowColumn, RowExpression, all_if_any
from dpsql.rows.known import Interval
from dpsql.rows.types import BIGINT, DOUBLE, HUGEINT
from dpsql.rows.windows import WindowCall, WindowOrder, of_rows
from dpsql.schema import Domain, Table
from dpsql.schema.grain import declared_type
from dpsql.schema.names import closest, folded
from dpsql.sql.algebra.declared import key_of, left_in
from dpsql.sql.algebra.described import (
    DescribedRelation,
    NewColumn,
    check_read,
    integers_between,
    known_column,
    merged,
    values_of,
    with_columns,
)
from dpsql.sql.algebra.groups import grouped, left_rows
from dpsql.sql.algebra.places import RowPlace, place_of
from dpsql.sql.algebra.public_values import PublicValues
from dpsql.sql.algebra.query_rows import Numbers, RowsOfQuery, check_names, unless_refused
from dpsql.sql.algebra.unit_sums import AGGREGATES, added_up, is_sum, of_truths, without_steps
from dpsql.sql.algebra.visible import made_column, made_columns, made_value
from dpsql.sql.algebra.window_parts import PartsOfWindows
from dpsql.sql.binding.bind import RowBinder, Visits, no_rows
from dpsql.sql.binding.canonical import Moving, id_of, moved_relations, no_value
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    conjuncts,
    is_aggregate,
    is_star,
    with_parts,
)
from dpsql.sql.binding.grouping import key_nodes
from dpsql.sql.binding.items import Names
from dpsql.sql.binding.joins import JoinedItem
from dpsql.sql.binding.row_queries import check_grouped, check_not_chosen, column_name, unused
from dpsql.sql.binding.scope import Home, NamedColumn, Visible, VisibleItem
from dpsql.sql.binding.subqueries import Outer
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText


class Translator(Protocol):
    """Translates the queries of one statement: see `queries.py`."""

    source: SourceText
    root: Expr
    """The statement."""
    tables: NamedTables
    sandbox: Sandbox
    public_values: PublicValues
    known: Known
    unbounded: dict[Id, DescribedRelation]
    """Numbers of rows of which nothing says how many a unit has → these rows."""
    places: dict[Id, RowPlace]
    """The columns with the place of each row among those of its unit of which something is true."""
    loose: dict[Id, str]
    """Columns that tell a unit by a reference that may lead to others → what they are called."""
    refused: dict[Span, SqlError]
    """Subqueries that are no columns of rows, where they stand → why."""
    store: Callable[[int, JoinedItem, Names], PublicRows]
    """Stores a public item after FROM."""

    def fresh(self, name: str) -> Id:
        """Return an id for a column that is computed, after what it is called."""

    def copies(self) -> str:
        """Return what stands before the ids of columns of a relation that is there once more."""

    def fact(self, relation: Relation, id_: Id) -> tuple[str, bool]:
        """Return the type of a column, and whether it may be NULL."""

    def most(self, of: DescribedRelation) -> int | None:
        """Return how many rows of a unit count in a relation, as far as something says so."""

    def rely_on(self, ids: Iterable[Id]) -> None:
        """Note that rows are taken to be of one unit by columns that may say otherwise."""

    def rely_by(self, called: str) -> None:
        """Note the same as `rely_on` of all columns of a name."""

    def item_kind(self, item: Expr, names: Names) -> str:
        """Return whether an item after FROM is of private rows, noisy answers or public."""

    def item(self, item: Expr, names: Names, cells: Numbers | None = None) -> RowsOfQuery:
        """Translate an item after FROM that has private rows; see `RowsOfSelect` for `cells`."""

    def over_cells(self, node: Expr, outer: Outer, names: Names) -> Expr:
        """Rewrite a subquery over public tables, for cells."""

    def select(
        self, select: exp.Select, names: Names, outer: RowsOfSelect | None = None
    ) -> RowsOfSelect:
        """Translate FROM and WHERE of a SELECT over private rows."""

    def rows(self, query: Expr, names: Names) -> RowsOfQuery:
        """Translate a query of private rows."""

    def add_public_hint(self, error: SqlSchemaError, rows: RowsOfSelect) -> None:
        """Say that a table may be public, where one of several private ones can't be described."""

    def no_reference(self, rows: RowsOfSelect) -> SqlError:
        """Refuse a join of private rows without units, of which none refers to the others."""

    def are_apart(self, query: Expr, names: Names) -> bool:
        """Whether the rows of a query are of no units: each is protected by itself."""

    def is_aside(self, node: Expr, names: Names) -> bool:
        """Whether a node is a subquery over private rows."""

    def aside(self, rows: RowsOfSelect, node: Expr) -> Expr:
        """Add what a subquery is for each row; return it over the columns of the relation."""


class RowsOfSelect:
    """The rows of one SELECT under translation.

    Args:
        queries: translates other queries of the statement.
        select: the SELECT.
        names: what names after FROM mean.
        outer: the SELECT around it, if it is a subquery for a row of that.
        core: whether it counts, so that aliases, and windows over its groups, stay as they are.
        cells: the numbers of public relations, if such are joined over cells: where the rows are
            counted, be it by a SELECT around it. Else public rows are constants.
    """

    def __init__(
        self,
        queries: Translator,
        select: exp.Select,
        names: Names,
        outer: RowsOfSelect | None = None,
        *,
        core: bool = False,
        cells: Numbers | None = None,
    ) -> None:
        self.core, self.cells = core, cells
        self.queries, self.select, self.names, self.outer = queries, select, names, outer
        self.source: SourceText = queries.source
        self.items: tuple[VisibleItem, ...] = ()
        self.merged, self.kept = frozenset[str](), frozenset[str]()
        self.either: Mapping[frozenset[Id], Id] = {}  # see `Visible`
        self.relations: tuple[PublicRows, ...] = ()
        self.where: tuple[BoundExpr, ...] = ()
        self._of: DescribedRelation | None = None
        self.aliases = {
            folded(n.alias): n.this for n in select.expressions if isinstance(n, exp.Alias)
        }
        self._open: list[Expr] = []
        self._closed = False
        self._constants = dict[str, Expr]()
        self._keys: dict[str, Id] = {}
        """Keys of the groups → their columns; empty until there are groups."""
        self._grouped = self._of_firsts = False

    @property
    def of(self) -> DescribedRelation:
        """The relation so far."""
        if self._of is None:
            raise InternalError("nothing after FROM was translated")
        return self._of

    def become(self, of: DescribedRelation) -> None:
        """Go on with another relation, over whose columns everything is said from now on."""
        if self._of is None:
            self._of = of
            return
        before, around, self._of = self._of.table, self.table(), of
        to, to_all = Moving(before, of.table), Moving(around, self.table())
        self.items = tuple(item.moved(to) for item in self.items)
        self.where = tuple(map(to_all, self.where))
        self.relations = moved_relations(self.relations, to_all)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether there are no subqueries in the SELECT."""
        inside = (part for part in self.select.walk() if part is not self.select)
        return not any(isinstance(part, (exp.Query, exp.Exists)) for part in inside)

    # ── Expressions ─────────────────────────────────────────────────────────────────────────────

    def table(self) -> Table:
        """Return the columns that expressions may read: those outside, too."""
        if self.outer is None:
            return self.of.table
        return merged(self.of, self.outer.of)

    def visible(self) -> Visible:
        """Return what is visible in its clauses."""
        table, outer, owners = self.table(), None, dict(self.of.ids_of)
        if self.outer is not None:
            outer, owners = self.outer._visible_in(table), {**owners, **self.outer.of.ids_of}
        return replace(self._visible_in(table), outer=outer, owners=owners)

    def _visible_in(self, table: Table) -> Visible:
        to = Moving(self.of.table, table)
        items = tuple(item.moved(to) for item in self.items)
        return Visible(table, items, self.merged, kept=self.kept, either=self.either)

    def home(self) -> Home:
        """Return it as what a SELECT counts."""
        return Home(self.table(), self.visible())

    def binder(self, home: Home | None = None) -> RowBinder:
        """Return what binds expressions over these rows, in which nothing has to be added.

        Args:
            home: what it is over, if it isn't these rows.
        """
        if self.cells is None:
            visits = Visits(self.refuse, self.public, self.refuse)
        else:
            over_cells = partial(self.queries.over_cells, names=self.names)
            visits = Visits(over_cells, no_rows, self.refuse)
        bare = exp.Select(expressions=[])
        return RowBinder(self.source, bare, home or self.home(), visits)

    def bind(self, node: Expr) -> BoundExpr:
        """Bind an expression, after what it needs was added to the relation.

        Raises:
            SqlError: something in it has no place here.
        """
        return self.bound(self.prepared(node))

    def bound(self, prepared: Expr, home: Home | None = None) -> BoundExpr:
        """Bind an expression in which subqueries and windows are columns already.

        Args:
            prepared: the expression.
            home: what it is over, if it isn't these rows.
        """
        return self.binder(home).bind(prepared)

    def reader(self, *, expected: bool = False) -> RowReader:
        """Return what reads bound expressions as those of a row.

        Args:
            expected: whether it takes columns to be between bounds that rows need not keep to:
                numbers of rows up to `max_rows`, and stored values between declared ones.
        """
        table = self.table()
        if not expected:
            kept = {name: ends for name, ends in table.bounds.items() if name in table.enforced}
            table = replace(table, bounds=kept)
        return RowReader(self.queries.sandbox, table, self.source, stored_in=self.of.ids_of)

    def expression(self, bound: BoundExpr) -> RowExpression:
        """Read a bound expression; a column may be of any type."""
        id_ = id_of(bound, self.table())
        if id_ is not None:
            return self._column(bound, id_)
        check_read(bound, self.table(), self.source)
        return self.reader().expression(bound)

    def added(self, function: str, bound: BoundExpr) -> tuple[RowExpression, int | None]:
        """Read what an aggregate or window is of; see `unit_sums.added_up`."""
        if id_of(bound, self.table()) is not None and not is_sum(function):
            return self.expression(bound), None
        return added_up(function, bound, self.reader(expected=True))

    def _type(self, bound: BoundExpr) -> str:
        id_ = id_of(bound, self.table())
        return self.reader().type_of(bound).name if id_ is None else self.type_of(id_)

    def _column(self, bound: BoundExpr, id_: Id) -> RowExpression:
        if id_ in self.table().columns:
            return self.reader().expression(bound)
        check_read(bound, self.table(), self.source)
        return RowColumn(id_)

    @contextmanager
    def before_windows(self) -> Iterator[None]:
        """Refuse windows for a while: in clauses that SQL computes before them."""
        self._closed, closed = True, self._closed
        try:
            yield
        finally:
            self._closed = closed

    def conditions(self, node: Expr) -> tuple[BoundExpr, ...]:
        """Bind the conjuncts of a condition."""
        prepared = [self.prepared(part) for part in conjuncts(node)]  # which adds columns
        return tuple(map(self.bound, prepared))

    def holds(self, bounds: Sequence[BoundExpr]) -> RowExpression | None:
        """Read conditions as one; None if there are none."""
        return all_if_any([part for one in bounds for part in self.said(one)])

    def said(self, bound: BoundExpr) -> list[RowExpression]:
        """Read a condition, and that no row is left out that has no value of a column in it."""
        condition = self.expression(bound)
        return [condition, *left_in(condition, self.table(), bound.attributes | bound.by_row)]

    def public(self, node: Expr, binder: RowBinder) -> BoundExpr | None:
        """Bind a subquery over public tables."""
        return self.queries.public_values.bind(node, binder, self.names)

    def refuse(self, node: Expr, outer: object) -> Expr:
        """Refuse a subquery that is computed of rows of all units."""
        raise self.source.unsupported(
            node,
            "A subquery over private rows is not supported here.",
            "limit it to rows of the same unit, in EXISTS (…), in x IN (…), or with COUNT, SUM, "
            "MIN or MAX of its rows.",
        )

    def prepared(self, node: Expr) -> Expr:
        """Write columns in place of subqueries, windows and aggregates, which are added."""
        if self.core and (self._is_plain or node.find(exp.Query, exp.Exists) is None):
            return node
        if isinstance(node, exp.Paren):
            return exp.Paren(this=self.prepared(node.this))
        if isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            return self.prepared(node.this)  # the parser adds it
        of_group = self._of_group(node) if self._grouped else None
        if of_group is not None:
            return of_group
        if isinstance(node, exp.Column):
            return self._meant(node)
        if isinstance(node, exp.Window):
            return self._over_rows(node)
        if self.queries.is_aside(node, self.names):
            return self._aside(node)
        if isinstance(node, (exp.Query, exp.Subquery)):
            return node.copy()
        return with_parts(node, self.prepared)

    def _of_group(self, node: Expr) -> Expr | None:
        """Write a key or an aggregate of groups as a column; None if it is neither."""
        key = self._as_key(node)
        if key in self._constants:
            return self._constants[key].copy()
        if key in self._keys:
            return made_column(self._keys[key], self.source.node(node))
        if not is_aggregate(node) or isinstance(node.parent, exp.Window):
            return None
        id_ = self._aggregate(node)
        function = next(agg.function for name, agg in self._adds if name == id_)
        made = made_value(function, id_, self.source.node(node))
        return without_steps(made, self._scales.get(id_))

    def _over_rows(self, node: exp.Window) -> Expr:
        """Write a window over rows of a unit as a column; others stay."""
        if self.core or self.of.table.unit is None:
            return node.copy()
        if self._closed:
            raise self.source.unsupported(
                node,
                "A window function can't stand here.",
                "compute it in a query after FROM, as a column.",
            )
        if self._grouped:  # it is over groups, which aren't there yet
            return with_parts(node, self.prepared)
        function, id_, scale = self._window(node)
        return without_steps(made_value(function, id_, self.source.node(node)), scale)

    def _aside(self, node: Expr) -> Expr:
        """Write a subquery for each row as a column; beside a core it may be a noisy answer."""
        try:
            return self.queries.aside(self, node)
        except SqlError as error:
            if not self.core:
                raise
            for part in (node, node.args.get("query"), node.this):
                if isinstance(part, exp.Expr):
                    self.queries.refused[self.source.node(part)] = error
            return node.copy()

    def _meant(self, node: exp.Column) -> Expr:
        """Write what an alias of the SELECT list stands for in its place, where it is none else."""
        name = folded(node.name)
        if self.core:
            return node.copy()
        if node.table or is_star(node) or name not in self.aliases or self._is_visible(node):
            if self._grouped and not is_star(node):
                raise self.source.unsupported(
                    node,
                    f"The column {printable(node.name)} stands outside of aggregates, and is not "
                    "grouped by.",
                    "group by it, or aggregate it.",
                )
            return node.copy()
        original = self.aliases[name]
        if any(original is one for one in self._open):
            raise self.source.error(
                node, f"{printable(node.name)} is defined in terms of itself.", "rename it."
            )
        self._open.append(original)
        try:
            return exp.Paren(this=self.prepared(original))
        finally:
            self._open.pop()

    def _is_visible(self, node: exp.Column) -> bool:
        if self._grouped:
            return False
        items = (*self.items, *(() if self.outer is None else self.outer.items))
        return any(item.column(node.name) is not None for item in items)

    # ── Windows ─────────────────────────────────────────────────────────────────────────────────

    def _window(self, node: exp.Window) -> tuple[str, Id, int | None]:
        """Add a window; return its function, its column, and the scale of its steps."""
        with self.before_windows():  # there are none within others
            made = PartsOfWindows(self).parts(node)
        function, bounds, numbers = made.asked
        id_ = self.queries.fresh(function)  # whatever it is called
        arguments, scale = tuple(map(self.expression, bounds)), None
        if bounds:
            function = of_truths(function, self._type(bounds[0]))
            first, scale = self.added(function, bounds[0])
            arguments = (first, *arguments[1:])
        call = WindowCall(
            function,
            arguments,
            numbers,
            tuple(map(self.expression, made.partition)),
            tuple((name, self.type_of(name)) for name in made.told),
            tuple(
                WindowOrder(self.expression(o.value), o.descending, o.nulls_first, stored=stored)
                for o in made.order
                for stored in [self.is_enum(o.value)]
            ),
            made.frame,
            self.holds(self.where),
        )
        between, expected = self.ends(function, arguments, self.of.most)
        relation = Window(self.of.relation, ((id_, call),))
        type_, nullable = self.queries.fact(relation, id_)
        if function == "row_number":
            self.queries.places[id_] = place_of(
                made, call.holds, self.of, self.table(), self.queries.known
            )
        domain = self._of_one(function, bounds, type_, between)
        self.become(
            with_columns(
                self.of, relation, [NewColumn(id_, type_, nullable, domain, between, expected)]
            )
        )
        return function, id_, scale

    def ends(
        self, function: str, values: Sequence[RowExpression], most: int | None
    ) -> tuple[Interval, Interval]:
        """Return between which numbers lies what is computed of rows; and as it is expected."""
        sure = self.queries.known.of(self.of.relation).most
        return (
            of_rows(function, self.reader().between(values), sure),
            of_rows(function, self.reader(expected=True).between(values), most),
        )

    def is_enum(self, bound: BoundExpr) -> bool:
        """Whether an expression is a column whose values have an order of their own."""
        id_ = id_of(bound, self.table())
        return id_ is not None and self.type_of(id_).startswith("ENUM")

    def _of_one(
        self, function: str, arguments: Sequence[BoundExpr], type_: str, between: Interval
    ) -> Domain | None:
        """Return the values of a window that is a value of one of the rows, or a number."""
        if function in {"min", "max", "lag", "lead", "first_value", "last_value", "nth_value"}:
            return self.taken(arguments, type_)
        if function in {"bool_and", "bool_or"}:
            return Domain.boolean(nullable=True)
        return integers_between(between, type_)

    def taken(self, values: Sequence[BoundExpr], type_: str) -> Domain | None:
        """Return the domain of what is one of some values, or NULL."""
        if len(values) != 1:
            return None
        id_ = id_of(values[0], self.table())
        domain = self.table().columns.get(id_ or "")
        if domain is None:
            try:
                domain, _, _ = values_of(values[0], self.reader())
            except SqlError:
                return None
        if domain is None:
            return None
        return replace(domain, nullable=True)

    def type_of(self, id_: Id) -> str:
        """Return the type of a column."""
        return declared_type(self.table(), id_)

    # ── Groups ──────────────────────────────────────────────────────────────────────────────────

    def key_nodes(self) -> list[Expr]:
        """Return the keys of GROUP BY; of a DISTINCT, the items of its list."""
        group, distinct = self.select.args.get("group"), self.select.args.get("distinct")
        if group is None and isinstance(distinct, exp.Distinct) and not distinct.args.get("on"):
            found = [node for item in self.select.expressions for _, node in self.listed(item)]
            return [node for node in found if not isinstance(node.unnest(), exp.Literal)]
        return list(key_nodes(self.select, self.source).values())

    def tell_unit(self, nodes: Sequence[Expr]) -> bool:
        """Whether some of several expressions tell of which unit a row is."""
        ids = [self.stored_id(node) for node in nodes] if self.of.table.unit is not None else []
        return any(self.of.tells.get(id_ or "") for id_ in ids) or self.of.are_told(ids)

    def stored_id(self, node: Expr) -> Id | None:
        """Return the column of the relation that an expression is; None if it is computed."""
        with suppress(SqlError):
            return id_of(self.bind(node), self.table())
        return None

    def group(self, keys: Sequence[Expr]) -> None:
        """Put rows that agree in some expressions together."""
        with self.before_windows():
            bounds = [self.bind(key) for key in keys]
        where = self.holds(self.where)
        rows = self.of.relation if where is None else Filter(self.of.relation, where)
        stored, trees = list[tuple[Id, RowExpression]](), list[tuple[Id, RowExpression]]()
        self._added = list[NewColumn]()
        for key, bound in zip(keys, bounds, strict=True):
            if bound.sql in self._keys:
                continue
            if not (bound.attributes or bound.by_row or bound.relations):
                self._constants[bound.sql] = bound.node  # in which all rows agree
                continue
            id_ = self.queries.fresh(self._name(key))
            tree, new = self.named(id_, bound)
            stored.append((id_, tree))
            if isinstance(tree, RowColumn) and not self.of.is_key(tree.name):
                tree, new = key_of(tree, new)
            trees.append((id_, tree))
            self._added.append(new)
            self._keys[bound.sql] = id_
        told = [
            id_ for bound in bounds if self.of.tells.get(id_ := id_of(bound, self.table()) or "")
        ]
        if all(id_ in self.queries.loose for id_ in told):
            self.queries.rely_on(told[:1])
        self._before, self._group, self._by = self.of, (rows, trees), stored
        self._adds, self._scales = list[tuple[Id, Agg]](), dict[Id, int]()
        self._grouped = True

    def _name(self, node: Expr) -> str:
        """Return what an expression is called: by the SELECT list, or as it is typed."""
        for item in self.select.expressions:
            if isinstance(item, exp.Alias) and item.this is node:
                return item.alias
        return column_name(node, self.source)

    def named(self, id_: Id, bound: BoundExpr) -> tuple[RowExpression, NewColumn]:
        """Return an expression as a column of a relation: a column of rows is passed on."""
        table = self.table()
        own = id_of(bound, table)
        if own is None:
            value = self.expression(bound)
            domain, between, type_ = values_of(bound, self.reader())
            expected = self.reader(expected=True).between([value])
            few = integers_between(between, BIGINT.name) if type_ == HUGEINT.name else None
            if few is not None:
                domain, type_ = few, BIGINT.name
                value = RowCast(value, BIGINT)  # in which it fits
            elif type_ == DOUBLE.name:
                value = with_one_zero(value)
            return value, NewColumn(id_, type_, True, domain, between, expected)
        if own in self.queries.loose:
            self.queries.loose[id_] = self.queries.loose[own]
        value = self._column(bound, own) if own in table.undeclared else RowColumn(own)
        return value, replace(known_column(table, own, self.of.tells), id=id_)

    def _as_key(self, node: Expr) -> str | None:
        """Return an expression of rows as it is bound, by which keys are told apart."""
        if is_aggregate(node) or isinstance(node, (exp.Literal, exp.Star, exp.DataType, exp.Var)):
            return None
        if not isinstance(node, (exp.Condition, exp.Cast, exp.Func, exp.Column)):
            return None
        if node.find(exp.Window, exp.Query) or any(is_aggregate(part) for part in node.walk()):
            return None
        self._grouped = False
        try:
            return self.bind(node).sql
        except SqlError:
            return None
        finally:
            self._grouped = True

    def _aggregate(self, node: Expr) -> Id:
        """Add an aggregate of each group; return its column."""
        self._grouped = False
        try:
            with self.before_windows():
                agg, new, scale = self._of_first(node) or self.aggregate(node)
        finally:
            self._grouped = True
        known = next((name for name, one in self._adds if one == agg), None)
        if known is not None:
            return known
        id_ = self.queries.fresh(self._name(node))
        if agg.function in {"count", "count_distinct", "sum"} and None in (new.expected or ()):
            self.queries.unbounded[id_] = self._before
        self._adds.append((id_, agg))
        self._scales |= {} if scale is None else {id_: scale}
        rows, keys = self._group
        type_, nullable = self.queries.fact(Group(rows, tuple(keys), tuple(self._adds)), id_)
        self._added.append(new.column(id_, type_, nullable))
        return id_

    def _of_first(self, node: Expr) -> tuple[Agg, NewColumn, None] | None:
        """Read an aggregate of the row of each group that comes first, which is added to all."""
        from dpsql.sql.algebra.first_rows import first_of_group  # which most statements don't need

        if (found := first_of_group(self, node, *self._group)) is not None:
            self._group, self._of_firsts = (found[0], self._group[1]), True
        return None if found is None else (*found[1:], None)

    def aggregate(self, node: Expr) -> tuple[Agg, NewColumn, int | None]:
        """Read an aggregate of rows, with what is known of its values: a column without a name.

        Returns:
            The scale of its steps, too, if it adds doubles up.

        Raises:
            UnsupportedSqlError: it isn't a function of rows in whatever order.
        """
        inner, where = node, None
        if isinstance(node, exp.Filter):
            inner, where = node.this, self.holds(self.conditions(node.expression.this))
        function, of = AGGREGATES.get(type(inner)), inner.this
        if isinstance(inner, exp.CountIf):
            function, of = "count", exp.Case(ifs=[exp.If(this=of.copy(), true=exp.true())])
        most = self.queries.most(self.of)
        if isinstance(inner, exp.AnyValue) and most == 1:
            function = "min"  # of one row
        if function is None or inner.expressions or isinstance(of, exp.Order):
            raise self.source.unsupported(
                node,
                "This can't be computed from the rows of one unit.",
                "use COUNT, SUM, AVG, MIN, MAX, BOOL_AND, BOOL_OR, COUNT(DISTINCT …) or arg_min.",
            )
        if isinstance(of, exp.Distinct):
            (of, *further) = of.expressions
            if further or function not in {"count", "min", "max"}:
                raise self.source.unsupported(
                    node, "DISTINCT in this aggregate is not supported.", "leave it out."
                )
            function = "count_distinct" if function == "count" else function
        if of is None or is_star(of):
            new = NewColumn("", "", True, None, *self.ends("count", (), most))
            return Agg("count", None, where), new, None
        bound = self.bind(of)
        function = of_truths(function, self._type(bound))
        value, scale = self.added(function, bound)
        domain = None
        if function in {"min", "max"}:
            domain = self.taken([bound], "")
        if function in {"bool_and", "bool_or"}:
            domain = Domain.boolean(nullable=True)
        ends = self.ends("max" if function == "avg" else function, [value], most)
        return Agg(function, value, where), NewColumn("", "", True, domain, *ends), scale

    def grouped(self, items: Sequence[Expr]) -> list[BoundExpr]:
        """Close the groups; return items over them, and let HAVING and QUALIFY hold of them."""
        having, qualify = self.select.args.get("having"), self.select.args.get("qualify")
        if self.select.args.get("group") is None:
            qualify = None  # it is of the rows that DISTINCT puts together
        prepared = [self.prepared(item) for item in items]
        chosen, placed = (
            [self.prepared(part) for part in ([] if clause is None else conjuncts(clause.this))]
            for clause in (having, qualify)
        )
        (rows, keys), adds, known = self._group, self._adds, self.queries.known
        left, kept = None, list[BoundExpr]()
        if not self._of_firsts:  # these are of rows with a column more
            left = left_rows(self._before, self.where, self._by, adds, known)
        if left is None:
            made = grouped(
                self._before, Group(rows, tuple(keys), tuple(adds)), self._by, self._added, known
            )
        else:
            made = left.with_aggregates(adds, self._added, known)
            kept += map(Moving(self._before.table, made.table), self.where)
            prepared, chosen, placed = (
                [made_columns(part, left.keys) for part in parts]
                for parts in (prepared, chosen, placed)
            )
        self._of, self.items, self.where, self._grouped = None, (), (), False
        self.merged, self.aliases = frozenset(), {}
        self.become(made)
        with self.before_windows():
            self.where = (*kept, *[self.bind(part) for part in chosen])
        shown = [self.prepared(item) for item in prepared]  # windows are of groups that are left
        self.where = (*self.where, *[self.bind(part) for part in placed])
        return [self.bound(item) for item in shown]

    # ── SELECT ──────────────────────────────────────────────────────────────────────────────────

    def listed(self, node: Expr) -> list[tuple[str, Expr]]:
        """Return the columns that an item of the SELECT list stands for, with their names."""
        inner = node.unalias()
        if not is_star(inner):
            return [(column_name(node, self.source), inner)]
        owner = "" if isinstance(inner, exp.Star) else folded(inner.text("table"))
        items = [i for i in self.items if not owner or folded(i.alias) == owner]
        if not items:
            shown = printable(self.source.text(self.source.node(inner)))
            message = f"{shown} stands for no table's columns."
            known = [printable(item.alias) for item in self.items]
            raise self.source.error(inner, message, closest(owner, known), SqlSchemaError)
        found, seen = list[tuple[str, Expr]](), set[str]()
        for item in items:
            for one in item.columns:
                merged = not owner and folded(one.name) in self.merged
                if merged and folded(one.name) in seen:
                    continue
                seen.add(folded(one.name))
                node_ = exp.Column(
                    this=exp.Identifier(this=one.name, quoted=True),
                    table=None if merged else exp.Identifier(this=item.alias, quoted=True),
                )
                node_.this.meta.update(inner.meta)
                node_.meta.update(inner.meta)
                found.append((one.name, node_))
        return found

    def rows(self) -> RowsOfQuery:
        """Return its rows with the columns of its SELECT list.

        Raises:
            SqlError: it isn't a query of private rows, or something in it isn't of one unit.
        """
        select, source = self.select, self.source
        check_not_chosen(select, source, of_units=self.of.table.unit is not None)
        check_grouped(select, source)
        listed = [pair for node in select.expressions for pair in self.listed(node)]
        keys = self.key_nodes()
        qualify, distinct = select.args.get("qualify"), select.args.get("distinct")
        if keys:
            if qualify is not None and select.args.get("group") is None:
                self.where = (*self.where, *self.conditions(qualify.this))
            self.group(keys)
            bounds: Sequence[BoundExpr | SqlError] = self.grouped([node for _, node in listed])
        else:
            prepared = [unless_refused(self.prepared, node) for _, node in listed]
            if qualify is not None:
                self.where = (*self.where, *self.conditions(qualify.this))
            if distinct is not None:
                self._first_of_each(distinct.args["on"].expressions)
            bind = self.binder().bind
            bounds = [
                node if isinstance(node, SqlError) else unless_refused(bind, node)
                for node in prepared
            ]
        taken, columns = set[str](), list[NamedColumn]()
        for (name, node), bound in zip(listed, bounds, strict=True):
            unique = unused(name, taken)
            taken.add(folded(unique))
            if isinstance(bound, SqlError):
                check_names(node, self.binder().scope, self.aliases)
            columns.append(
                NamedColumn(unique, bound)
                if isinstance(bound, BoundExpr)
                else NamedColumn(unique, no_value(source.node(node)), error=bound)
            )
        return RowsOfQuery(self.of, tuple(columns), self.where, self.relations)

    def _first_of_each(self, nodes: Sequence[Expr]) -> None:
        """Keep the first row of those that agree in some expressions, in the order of ORDER BY."""
        from dpsql.sql.algebra.first_rows import place_in  # which most statements don't need

        _, id_, _ = self._window(place_in(self.select, nodes))
        place = made_column(id_, self.source.node(self.select))
        first = exp.EQ(this=place, expression=exp.Literal.number(1))
        self.where = (*self.where, self.bound(first))
