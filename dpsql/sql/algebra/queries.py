"""Queries of one statement: which are of private rows, and the relations that these are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import (
    SchemaError,
    Span,
    SqlError,
    SqlSchemaError,
    printable,
)
from dpsql.hints import never
from dpsql.rel.facts import UNIT, Known
from dpsql.rel.nodes import Id, Key, Relation
from dpsql.schema import Table
from dpsql.schema.grain import unit_columns
from dpsql.schema.names import capitals, folded
from dpsql.sql.algebra.asides import aside
from dpsql.sql.algebra.described import (
    NO_TYPE,
    DescribedRelation,
    NewColumn,
    Tells,
    known_column,
    scanned,
)
from dpsql.sql.algebra.over_cells import from_rows
from dpsql.sql.algebra.places import RowPlace
from dpsql.sql.algebra.projections import projected
from dpsql.sql.algebra.public_values import PublicValues
from dpsql.sql.algebra.query_rows import Numbers, RowsOfQuery
from dpsql.sql.algebra.selects import RowsOfSelect, Translator
from dpsql.sql.binding.canonical import bound_column, column_of, no_value, places
from dpsql.sql.binding.core import Relation as PublicRows
from dpsql.sql.binding.expressions import Expr, has_aggregate
from dpsql.sql.binding.items import (
    NOISY,
    PRIVATE,
    PUBLIC,
    Name,
    Names,
    PrivateItems,
    WrittenRows,
    given_names,
)
from dpsql.sql.binding.joins import JoinedItem, joins_of, name_parts
from dpsql.sql.binding.row_queries import (
    check_not_chosen,
    inner_query,
    is_by_row,
    is_union_all,
    parts_of,
)
from dpsql.sql.binding.scope import NamedColumn
from dpsql.sql.binding.subqueries import Outer, Subqueries
from dpsql.sql.text.spans import SourceText

if TYPE_CHECKING:
    from dpsql.sql.algebra.set_operations import UnitedPart

MOST_STEPS = 200
"""Queries that are translated for one statement, each as often as it is named."""


_PUT_TOGETHER = ("group", "distinct")
"""Clauses of queries inside of others by which rows are put together, if they tell the unit."""


class Queries(Translator):
    """Translates the queries of one statement.

    Args:
        source: its text.
        items: knows what names of tables mean.
        subqueries: rewrites queries over public tables.
        root: the statement.
        store: stores a public item after FROM in the sandbox.
        with_: returns what names mean in a query, with its CTEs.
    """

    def __init__(
        self,
        source: SourceText,
        items: PrivateItems,
        subqueries: Subqueries,
        root: Expr,
        store: Callable[[int, JoinedItem, Names], PublicRows],
        with_: Callable[[Expr, Names], Names],
    ) -> None:
        self.source, self.items, self.tables = source, items, items.tables
        self.sandbox, self.store, self._with = items.tables.sandbox, store, with_
        self.root = root
        self.public_values = PublicValues(source, items, subqueries)
        self._subqueries = subqueries
        self.known = Known()
        self._steps = count()
        self._kinds: dict[tuple[int, tuple[int, ...]], tuple[Expr, Names, str]] = {}
        self._written: dict[int, tuple[Expr, exp.Select | None]] = {}
        self._used = set[Id]()
        self.unbounded = dict[Id, DescribedRelation]()
        """Numbers of rows of which nothing says how many a unit has → these rows."""
        self.loose, self.notes = dict[Id, str](), dict[str, None]()
        self.places = dict[Id, RowPlace]()
        self.refused = dict[Span, SqlError]()
        """Subqueries that are no columns of rows, where they stand → why."""

    @contextmanager
    def own_ids(self) -> Iterator[None]:
        """Translate a tree of its own: the same rows have the same ids then, whatever was before.

        So they are one table, which is measured once.
        """
        before = self._used, self.unbounded, self.places
        self._used, self.unbounded, self.places = set(), {}, {}
        try:
            yield
        finally:
            self._used, self.unbounded, self.places = before

    def fresh(self, name: str) -> Id:
        """Return an id for a column that is computed, after what it is called."""
        plain = "".join(c for c in name if c.isprintable())[:60] or "column"
        return self._unused(plain, [""])

    def prefix(self, table: Table) -> str:
        """Return what stands before the columns of a table, each time that it is scanned."""
        own = table.alone
        names = (*own.columns, *own.undeclared)
        return self._unused(table.name, [f".{name}" for name in names]) + "."

    def copies(self) -> str:
        """Return what stands before the ids of columns of a relation that is there once more."""
        return self._unused("copy", [f".{id_}" for id_ in self._used]) + "."

    def _unused(self, name: str, ends: Sequence[str]) -> str:
        """Return a name with a number, with which no id was given that has one of some ends."""
        for number in count(1):
            found = name if number == 1 else f"{name} {number}"
            ids = {found + end for end in ends}
            if self._used.isdisjoint(ids):
                break
        self._used |= ids
        return found

    def fact(self, relation: Relation, id_: Id) -> tuple[str, bool]:
        """Return the type of a column, and whether it may be NULL."""
        column = self.known.of(relation).columns[id_]
        return column.type, column.nullable

    def rely_on(self, ids: Iterable[Id]) -> None:
        """Note that rows are taken to be of one unit by columns that may say otherwise."""
        for name in [self.loose[id_] for id_ in ids if id_ in self.loose]:
            self.rely_by(name)

    def rely_by(self, called: str) -> None:
        """Note the same as `rely_on` of all columns of a name."""
        self.notes[
            f"rows are joined, grouped and numbered by {printable(called)} within each unit: "
            "where it leads to a row of another unit, they meet none, and where it is NULL, each "
            "unit has its own"
        ] = None

    def unbounded_here(self, id_: Id) -> SchemaError | None:
        """Return the error of a column that counts rows which nothing bounds; else None."""
        of = self.unbounded.get(id_)
        return None if of is None else self.tables.unbounded(self.tables.related(of.related(())))

    def most(self, of: DescribedRelation) -> int | None:
        """Return how many rows of a unit count in a relation, as far as something says so."""
        if of.most is None and of.private:
            with suppress(SchemaError):
                return self.tables.related(of.related(())).unit_rows
        return of.most

    # ── Kinds ───────────────────────────────────────────────────────────────────────────────────

    def inside(self, query: Expr, names: Names) -> Names:
        """Return what names mean in a query, with its CTEs of private rows."""
        clause = query.args.get("with_")
        found = dict(names)
        for cte in clause.expressions if clause is not None else ():
            known = found.get(folded(cte.alias))
            if self.kind(cte.this, found) == PRIVATE:
                found[folded(cte.alias)] = self.named(cte, found)
            elif known is None or known.kind == PRIVATE:
                kind = self.kind(cte.this, found)
                found[folded(cte.alias)] = Name(kind, "")
        return found

    def named(self, cte: exp.CTE, names: Names) -> Name:
        """Return the meaning of a CTE of private rows."""
        columns, around = given_names(cte.args["alias"]), dict(names)
        rows = WrittenRows(cte.this, around, columns, self._first(cte.this, around), around)
        return Name(PRIVATE, "", rows)

    def _first(self, query: Expr, names: Names) -> Expr:
        """Return a private table that a query names."""
        for table in query.find_all(exp.Table):
            parts = name_parts(table)
            known = names.get(folded(parts[-1])) if len(parts) == 1 else None
            if known is not None and known.rows is not None:
                return known.rows.item
            if known is None and self.item_kind(table, names) == PRIVATE:
                return table
        return query

    def item_kind(self, item: Expr, names: Names) -> str:
        """Return whether an item after FROM is of private rows, noisy answers or public."""
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            kind, table = self.items.kind(item, names)
            return NOISY if kind == PRIVATE and table else kind
        query = inner_query(item)
        return PUBLIC if query is None else self.kind(query, names)

    def kind(self, query: Expr, names: Names) -> str:
        """Return whether a query is of private rows, of noisy answers, or public."""
        key = id(query), tuple(sorted(id(name) for name in names.values()))
        if key not in self._kinds:
            self._kinds[key] = query, dict(names), self._kind(query, names)
        return self._kinds[key][2]

    def _kind(self, query: Expr, names: Names) -> str:
        around, names = names, self.inside(query, names)
        if isinstance(query, exp.Subquery):
            return self.kind(query.this, names)
        if isinstance(query, exp.SetOperation):
            kinds = {self.kind(part, names) for part in parts_of(query)}
            if PRIVATE in kinds:
                return PRIVATE
            return PUBLIC if kinds == {PUBLIC} else NOISY
        if not isinstance(query, exp.Select):
            return PUBLIC
        joins = joins_of(query, self.source, nearest=True)
        kinds = {self.item_kind(join.item, names) for join in joins}
        if PRIVATE in kinds:
            return self._of_rows(query, around, names)
        inner = [s for s in query.find_all(exp.Table) if s.find_ancestor(exp.Select) is not query]
        if any(self.item_kind(table, names) in {PRIVATE, NOISY} for table in inner):
            return NOISY
        return NOISY if NOISY in kinds else PUBLIC

    def _of_rows(self, select: exp.Select, around: Names, names: Names) -> str:
        """Return whether a SELECT over private rows returns rows of units, or answers.

        Args:
            select: the SELECT.
            around: what names mean around it.
            names: what they mean in it.
        """
        aggregated = any(
            has_aggregate(part, windows=False)
            for part in (*select.expressions, select.args.get("having"))
            if part is not None
        )
        if not (aggregated or select.args.get("group") or select.args.get("distinct")):
            return PRIVATE
        distinct = select.args.get("distinct")
        if not aggregated and isinstance(distinct, exp.Distinct) and distinct.args.get("on"):
            return PRIVATE
        group = select.args.get("group")
        if group is not None and any(group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)):
            return NOISY
        if self.are_apart(select, names):
            return NOISY
        with self.own_ids():
            rows = self.select(select, self._with(select, around), cells=count())
            of_units = rows.tell_unit(rows.key_nodes())
        return PRIVATE if of_units else NOISY

    # ── Rows ──────────────────────────────────────────────────────────────────────────────────────

    def select(
        self,
        select: exp.Select,
        names: Names,
        outer: RowsOfSelect | None = None,
        cells: Numbers | None = None,
    ) -> RowsOfSelect:
        """Translate FROM and WHERE of a SELECT over private rows."""
        if next(self._steps) > MOST_STEPS:
            raise self.source.unsupported(
                select, "The statement has too many queries of rows.", "ask parts of it."
            )
        rows = RowsOfSelect(self, select, names, outer, cells=cells)
        left = from_rows(rows, joins_of(select, self.source, nearest=True))
        with rows.before_windows():
            prepared = [rows.prepared(part) for part in left]  # which adds columns
        rows.where = (*rows.where, *map(rows.bound, prepared))
        return rows

    def rows(self, query: Expr, names: Names, cells: Numbers | None = None) -> RowsOfQuery:
        """Translate a query of private rows; see `RowsOfSelect` for `cells`.

        Raises:
            SqlError: something in it isn't of one unit.
        """
        names = self._with(query, names)
        if isinstance(query, exp.Subquery):
            return self.rows(query.this, names, cells)
        if isinstance(query, exp.SetOperation):
            self._check_set(query, names)
            written = None if is_union_all(query) else self._written_again(query, names)
            if written is not None:
                return self.rows(written, names)
            numbered = None if cells is None else self._numbered(query, names, cells)
            return numbered or self._union(query, names)
        if not isinstance(query, exp.Select):
            raise self.source.unsupported(query, "This is no query of rows.", "write SELECT.")
        plain = is_by_row(query)
        return self.select(query, names, cells=cells if plain else None).rows()

    def _numbered(
        self, union: exp.SetOperation, names: Names, cells: Numbers
    ) -> RowsOfQuery | None:
        """Put rows of one table together that are joined with nothing; None if some are."""
        from dpsql.sql.algebra.set_operations import are_of_one_scan, numbered_rows

        used, parts = frozenset(self._used), list[RowsOfQuery]()
        for part in parts_of(union):
            self._used = set(used)  # so that all are of the same scan
            parts.append(self.rows(part, names, count()))
        if not are_of_one_scan(parts):
            self._used = set(used)
            return None
        check_widths(union, [len(part.columns) for part in parts], self.source)
        return numbered_rows(parts, next(cells), union, self.sandbox, self.source)

    def behind(self, query: Expr, names: Names) -> Names:
        """Return what names mean behind the CTEs of a query."""
        return self._with(query, names)

    def written(self, item: Expr, names: Names) -> WrittenRows | None:
        """Return the query of private rows after FROM, as it is written; None if it is a table."""
        query = inner_query(item)
        if query is not None:
            given = given_names(item.args.get("alias"))
            return WrittenRows(query, dict(names), given, self._first(query, names), names)
        known = names.get(folded(item.name)) if isinstance(item, exp.Table) else None
        return None if known is None else known.rows

    def item(self, item: Expr, names: Names, cells: Numbers | None = None) -> RowsOfQuery:
        """Translate an item after FROM that has private rows; see `RowsOfSelect` for `cells`."""
        given = given_names(item.args.get("alias"))
        if not isinstance(item, exp.Table):
            query = inner_query(item)
            if query is None:
                raise self.source.unsupported(item, "This has no private rows.", never("it can't."))
            return self.rows(query, names, cells).renamed(given)
        parts = name_parts(item)
        known = names.get(folded(parts[-1])) if len(parts) == 1 else None
        if known is not None and known.rows is not None:
            written = known.rows
            found = self.rows(written.query, written.names, cells)
            for made in written.made:
                found = found.made(made)
            return found.renamed(written.columns).renamed(given)
        return self._scan(item).renamed(given)

    def _scan(self, item: exp.Table) -> RowsOfQuery:
        bare = exp.Table(**{k: v for k, v in item.args.items() if k != "alias"})
        bare.meta.update(item.meta)
        alias = item.args.get("alias")
        bare.set("alias", None if alias is None else exp.TableAlias(this=alias.this))
        table, span = self.items.table(item if not given_names(alias) else bare)
        prefix = self.prefix(table)
        if self._is_plain:
            of = scanned(table, prefix, (), {name: frozenset({UNIT}) for name in unit_ids(table)})
        else:
            wide = self.tables.grain(table)
            self.tables.note_read(wide)
            told, loose = self.keys_told(wide)
            self.loose |= {prefix + name: f"{table.name}.{name}" for name in loose}
            referring = {name for p in wide.parents if not p.above for name in p.join.columns}
            of = scanned(table, prefix, self.tables.unique(table), told, referring)
        at = places(of.table)
        columns = tuple(
            NamedColumn(name, bound_column(at[prefix + name], prefix + name, of.table, span))
            for name in table.alone.listed
        )
        return RowsOfQuery(of, columns)

    @cached_property
    def _is_plain(self) -> bool:
        """Whether rows of one table meet none in the statement: then its keys aren't looked up."""
        root = self.root
        ctes, named = set[str](), Counter[tuple[str, ...]]()
        for node in root.find_all(exp.CTE, exp.Table, exp.Window, exp.Select):
            together = isinstance(node, exp.Select) and any(map(node.args.get, _PUT_TOGETHER))
            if isinstance(node, exp.Window) or (together and node is not root):
                return False
            if isinstance(node, exp.CTE):
                ctes.add(folded(node.alias))
            elif isinstance(node, exp.Table):
                named[name_parts(node)] += 1
        apart = (parts for parts in named if not (len(parts) == 1 and folded(parts[0]) in ctes))
        private = [parts for parts in apart if self.tables.stored(parts) is None]
        return len(private) == 1 and max(named.values()) == 1

    def keys_told(self, table: Table) -> tuple[Tells, frozenset[str]]:
        """Return for each column of a table the keys of rows of the same unit that it has.

        Returns:
            That, and the columns that have them by references alone which aren't on the way to the
            unit: these may lead to rows of other units.
        """
        single = {next(iter(k)) for k in self.tables.unique(table) if len(k) == 1}
        units = unit_ids(table)
        told, loose = dict[str, frozenset[Key]](), set[str]()
        for name in (*table.alone.columns, *table.alone.undeclared):
            keys = {UNIT} if name in units else set[Key]()
            if name in single or (table.path, name) in self._referred:
                keys.add((table.path, name))
            steps = [p for p in table.parents if not p.above and p.join.columns == (name,)]
            if not keys and steps and not any(parent.on_way for parent in steps):
                loose.add(name)
            keys |= {(parent.table.path, parent.join.key) for parent in steps}
            told[name] = frozenset(keys)
        return told, frozenset(loose)

    @cached_property
    def _referred(self) -> frozenset[Key]:
        """The keys that rows of the tables of the statement refer to."""
        found = set[Key]()
        ctes = {folded(cte.alias) for cte in self.root.find_all(exp.CTE)}
        for node in self.root.find_all(exp.Table):
            parts = name_parts(node)
            if (len(parts) == 1 and folded(parts[0]) in ctes) or self.tables.stored(parts):
                continue
            with suppress(SchemaError, SqlError):
                wide = self.tables.grain(self.tables.private(parts))
                found |= {(p.table.path, p.join.key) for p in wide.parents if not p.join.further}
        return frozenset(found)

    def _union(self, query: exp.SetOperation, names: Names) -> RowsOfQuery:
        """Put the rows of several queries together."""
        from dpsql.sql.algebra.set_operations import (
            places_with_values,
            put_together,
        )  # which most statements don't need

        parts = [self._part(part, names) for part in parts_of(query)]
        check_widths(query, [len(listed) for _, listed in parts], self.source)
        listed, places = parts[0][1], places_with_values([part for part, _ in parts])
        united = [
            replace(part, columns=tuple(part.columns[i] for i in places)) for part, _ in parts
        ]
        made, ids = put_together(self, united, [listed[i] for i in places])
        span, of = self.source.node(query), dict(zip(places, ids, strict=True))
        columns = (
            NamedColumn(name, column_of(of[i], made.table, span) if i in of else no_value(span))
            for i, name in enumerate(listed)
        )
        return RowsOfQuery(made, tuple(columns))

    def _check_set(self, query: exp.SetOperation, names: Names) -> None:
        """Refuse what compares rows, chooses some of them, or puts others beside them."""
        apart = self.are_apart(query, names)
        check_not_chosen(query, self.source, of_units=not apart)
        if any(self.kind(part, names) != PRIVATE for part in parts_of(query)):
            raise self.source.unsupported(
                query,
                f"{_called(query)} of single private rows with anything else is not supported.",
                "count in each query of the UNION ALL, and add the counts up in an outer query.",
            )
        if not is_union_all(query) and (apart or self._written_again(query, names) is None):
            raise self.source.unsupported(
                query,
                f"{_called(query)} of single rows is not supported: it compares them.",
                never("equal rows can't be matched. Use conditions after WHERE, or UNION ALL.")
                if apart
                else "list a column that tells the unit on both sides; or use UNION ALL.",
            )

    def _written_again(self, query: exp.SetOperation, names: Names) -> exp.Select | None:
        """Return the SELECT that a set operation stands for; None if it isn't of rows of units."""
        if id(query) not in self._written:
            self._written[id(query)] = query, self._as_select(query, names)
        return self._written[id(query)][1]

    def _as_select(self, query: exp.SetOperation, names: Names) -> exp.Select | None:
        from dpsql.sql.algebra.set_operations import as_select, is_comparable, sides_of, told_by

        if not is_comparable(query):
            return None
        with self.own_ids():
            parts = [self._part(side, names) for side in sides_of(query)]
        check_widths(query, [len(listed) for _, listed in parts], self.source)
        sides = [list(zip(listed, part.columns, strict=True)) for part, listed in parts]
        tells = told_by(sides, [part.of.ids for part, _ in parts])
        return as_select(query, tells, sides[0]) if tells else None

    def are_apart(self, query: Expr, names: Names) -> bool:
        """Whether the rows of a query are of no units: each is protected by itself."""
        with suppress(SchemaError, SqlError):
            item = self._first(query, names)
            return self.items.table(self.items.base(item, names))[0].unit is None
        return False

    def _part(self, query: Expr, names: Names) -> tuple[UnitedPart, list[str]]:
        """Translate a query of UNION ALL; return its columns' names besides."""
        from dpsql.sql.algebra.set_operations import UnitedPart

        rows = self.rows(query, names)
        inner = query
        while isinstance(inner, exp.Subquery):
            inner = inner.this
        select = RowsOfSelect(self, _first_select(inner), names)
        select.become(rows.of)
        of, columns = projected(rows, select)
        named = (next(iter(one.value.attributes | one.value.by_row), None) for one in columns)
        part = UnitedPart(
            of,
            tuple(
                NewColumn("", NO_TYPE) if id_ is None else known_column(of.table, id_, of.tells)
                for id_ in named
            ),
        )
        return part, [one.name for one in columns]

    # ── Subqueries for a row ────────────────────────────────────────────────────────────────────

    def over_cells(self, node: Expr, outer: Outer, names: Names) -> Expr:
        """Rewrite a subquery over public tables, for cells."""
        return self._subqueries.public(node, outer, names)

    def no_reference(self, rows: RowsOfSelect) -> SqlError:
        """Refuse a join of private rows without units, of which none refers to the others."""
        joins = joins_of(rows.select, self.source, nearest=True)
        private = [j for j in joins if self.item_kind(j.item, rows.names) == PRIVATE]
        return self.items.no_grain(private, rows.names, private[1].item)

    def add_public_hint(self, error: SqlSchemaError, rows: RowsOfSelect) -> None:
        """Say that a table may be public, where one of several private ones can't be described."""
        joins = joins_of(rows.select, self.source, nearest=True)
        private = [j for j in joins if self.item_kind(j.item, rows.names) == PRIVATE]
        if len(private) > 1:
            self.items.add_hint(error, private, rows.names)

    def is_aside(self, node: Expr, names: Names) -> bool:
        """Whether a node is a subquery over rows of units."""
        query = node.args.get("query") if isinstance(node, exp.In) else node
        if query is None or not isinstance(node, (exp.In, exp.Exists, exp.Subquery)):
            return False
        table = self._subqueries.private_in(query, names)
        return table is not None and table.unit is not None

    def aside(self, rows: RowsOfSelect, node: Expr) -> Expr:
        """Add what a subquery is for each row; return it over the columns of the relation."""
        return aside(rows, node)


def unit_ids(table: Table) -> frozenset[str]:
    """Return the columns of a table that have the ids of its units."""
    unit = table.unit
    own = unit is not None and not unit.joins and len(unit.columns) == 1
    return frozenset((*unit_columns(table), *((unit.column,) if unit is not None and own else ())))


def check_widths(query: exp.SetOperation, widths: Sequence[int], source: SourceText) -> None:
    """Refuse a set operation of queries of which one has more columns than another.

    Raises:
        SqlError: that is so.
    """
    if len(set(widths)) > 1:
        message = f"The queries of this {_called(query)} have different numbers of columns."
        raise source.error(query, message, "select as many columns in each.")


def _called(query: exp.SetOperation) -> str:
    return capitals(query.key) + ("" if query.args.get("distinct") else " ALL")


def _first_select(query: Expr) -> exp.Select:
    found = query if isinstance(query, exp.Select) else query.find(exp.Select)
    if not isinstance(found, exp.Select):
        raise SqlError("This is no query of rows.")
    return found
