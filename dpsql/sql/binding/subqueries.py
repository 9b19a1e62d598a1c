"""Subqueries in conditions on rows: they are public, but for columns of the row they are for.

Such a column has one value in each cell, so that DuckDB can run the subquery for cells as well as
for rows. Which columns are the subquery's own follows from what is after FROM in it, from the
inside out, as everywhere in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.hints import never
from dpsql.schema import Table
from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import Expr, has_aggregate, render
from dpsql.sql.binding.items import NOISY, Kinds, Names, PrivateItems
from dpsql.sql.binding.joins import name_parts
from dpsql.sql.binding.released import KeyedValue, answers_of, is_compared, keyed_value, value_alone
from dpsql.sql.binding.standins import KEYS, StandIns
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.spans import SourceText

Outer = Callable[[exp.Column], Expr | None]
"""Binds a column from outside of a subquery; None if there is none of its name."""
Shown = Callable[[Expr], Sequence[str] | None]
"""Returns the names of the columns of an item after FROM; None if they aren't known."""


Within = Callable[[Expr, Names, Kinds], Expr]
"""Rewrites anything inside a query, and takes note of what it is over."""


Outside = dict[int, tuple[Expr, Expr]]
"""Columns from outside of a subquery, by identity → what to put in their place.

The columns are kept: a node that is made when one is gone could have its identity.
"""


@dataclass(frozen=True, slots=True)
class _Visible:
    """The names that one SELECT has for its tables and their columns, in lower case."""

    tables: frozenset[str]
    columns: frozenset[str]
    complete: bool
    """Whether all of its columns are known."""

    def has(self, node: exp.Column) -> bool:
        """Whether a column is, or may be, one of this SELECT."""
        qualifier = folded(node.table)
        if qualifier:
            return qualifier in self.tables | self.columns  # a column may have parts of its own
        return not self.complete or folded(node.name) in self.columns


@dataclass(frozen=True, slots=True)
class OuterColumns:
    """Binds the columns of a subquery that are not its own.

    Args:
        outer: binds them.
        shown: returns the columns of an item after FROM.
    """

    outer: Outer
    shown: Shown
    bound: Outside = field(default_factory=dict)

    def bind(self, node: Expr, around: tuple[_Visible, ...] = ()) -> None:
        """Look through a subquery, and bind what is from outside.

        Raises:
            SqlError: a column is neither its own, nor one that a condition may use.
        """
        if isinstance(node, exp.Column):
            self._column(node, around)
            return
        if not isinstance(node, exp.Select):
            for part in node.iter_expressions():
                self.bind(part, around)
            return
        inside = (*around, self._visible(node))
        for part in node.iter_expressions():
            if not isinstance(part, exp.From | exp.Join):
                self.bind(part, inside)
                continue
            self.bind(part.this, around)  # a table sees no column of those beside it
            if part.args.get("on") is not None:
                self.bind(part.args["on"], inside)

    def _column(self, node: exp.Column, around: tuple[_Visible, ...]) -> None:
        if isinstance(node.this, exp.Star) or any(names.has(node) for names in around):
            return
        bound = self.outer(node)
        if bound is not None:
            self.bound[id(node)] = node, bound

    def _visible(self, select: exp.Select) -> _Visible:
        items = [clause.this for clause in _items(select)]
        found = [self.shown(item) for item in items]
        columns = [name for names in found for name in names or ()]
        columns += [item.alias for item in select.expressions if isinstance(item, exp.Alias)]
        return _Visible(
            frozenset(folded(item.alias_or_name) for item in items),
            frozenset(map(folded, columns)),
            None not in found,
        )


def _items(select: exp.Select) -> list[Expr]:
    clause = select.args.get("from_")
    return [] if clause is None else [clause, *(select.args.get("joins") or [])]


class Subqueries:
    """Rewrites the subqueries of one statement.

    Args:
        source: its text.
        sandbox: where public tables are.
        items: tells items after FROM apart.
        within: rewrites what is in a subquery.
        meet: takes note of a private table in a subquery for each row of one.
        root: the statement.
    """

    def __init__(
        self,
        source: SourceText,
        sandbox: Sandbox,
        items: PrivateItems,
        within: Within,
        meet: Callable[[Table, Expr], None],
        root: Expr,
    ) -> None:
        self._source, self._root = source, root
        self._sandbox = sandbox
        self._items = items
        self._within, self._meet = within, meet
        self._outside: Outside = {}

    def outside(self, node: Expr) -> Expr | None:
        """Return what to put in place of a column from outside of a subquery; None for others."""
        found = self._outside.get(id(node))
        return None if found is None else found[1].copy()

    def public(self, node: Expr, outer: Outer, names: Names) -> Expr:
        """Rewrite a subquery in an expression of rows.

        Raises:
            UnsupportedSqlError: it is over private rows, or noisy answers.
        """
        kinds = Kinds()
        private = self.private_in(node, names)
        if private is None:
            own = frozenset(folded(cte.alias) for cte in node.find_all(exp.CTE))
            columns = OuterColumns(outer, lambda item: self.columns(item, names, own))
            columns.bind(node)
            self._outside |= columns.bound
            rewritten = self._within(node, names, kinds)
        if private is not None:
            self._meet(private, node)
        if private is not None or kinds.all == NOISY:
            error = self._source.unsupported(
                node,
                "A subquery over private rows is not supported here.",
                never(
                    "one unit's rows would decide which rows of others count. Use public tables "
                    "in the subquery; noisy answers can be used in HAVING and around the statement."
                ),
            )
            if isinstance(node.parent, exp.In) and (private is None or _has_groups(node)):
                error.value, error.behind = answers_of(node, self._root, self._source), ""
                raise error
            raise self.released(error, node, names)
        return rewritten

    def released(self, error: UnsupportedSqlError, node: Expr, names: Names) -> UnsupportedSqlError:
        """Say in an error which statement releases the values of a subquery, if there is one."""
        query = node.args.get("query") if isinstance(node, exp.In) else node
        if not isinstance(query, exp.Subquery):
            return error
        columns = self._from_outside(query, names)
        if isinstance(node, exp.In):
            if not columns.bound and _has_groups(query):
                error.value, error.behind = answers_of(query, self._root, self._source), ""
                error.span = self._source.node(query)
            return error
        if not columns.bound:
            error.value = value_alone(query, self._root, self._source)
            return error
        found = self._keyed(query, columns.bound, names) if is_compared(query) else None
        if found is not None:
            error.value, error.by_keys = found.statement(query, self._root), found.told
        return error

    def of_answers(self, node: Expr, names: Names) -> Expr:
        """Return a subquery that has a value for each key as one of answers by these.

        So it can stand beside answers, or in a query of public rows. Others are returned as they
        are.
        """
        if not isinstance(node, exp.Subquery) or node.this.args.get("where") is None:
            return node
        if isinstance(node.parent, (exp.From, exp.Join)) or not self.names_private(node, names):
            return node
        found = self._keyed(node, self._from_outside(node, names).bound, names)
        return node if found is None else found.joined()

    def _keyed(self, query: exp.Subquery, outside: Outside, names: Names) -> KeyedValue | None:
        found = keyed_value(query, outside, self._root) if outside else None
        if found is None or not self._are_alike(query, found.compared, names):
            return None
        return found

    def _from_outside(self, query: Expr, names: Names) -> OuterColumns:
        """Find the columns of a subquery that aren't its own, whatever they mean outside."""
        own = frozenset(folded(cte.alias) for cte in query.find_all(exp.CTE))
        columns = OuterColumns(
            lambda column: column, lambda item: self._named_columns(item, names, own)
        )
        columns.bind(query)
        return columns

    def _are_alike(
        self, node: exp.Subquery, compared: Sequence[tuple[Expr, Expr]], names: Names
    ) -> bool:
        """Whether keys are of one type with what is compared: '1' and '01' are both equal to 1."""
        around = node.find_ancestor(exp.Select) or self._around(node)
        if not isinstance(around, exp.Select) or not isinstance(node.this, exp.Select):
            return False
        standins = StandIns(self._sandbox, self._items)
        own = standins.types([ours for ours, _ in compared], node.this, names)
        given = standins.types([theirs for _, theirs in compared], around, names)
        return own is not None and own == given and set(own) <= KEYS

    def _around(self, node: exp.Subquery) -> Expr | None:
        """Return the SELECT in which a subquery was written that is made anew, as in HAVING."""
        place = self._source.node(node)
        places = ((one, self._source.node(one)) for one in self._root.find_all(exp.Subquery))
        found = next((one for one, written in places if written == place), None)
        return None if found is None else found.find_ancestor(exp.Select)

    def _named_columns(self, item: Expr, names: Names, own: frozenset[str]) -> Sequence[str] | None:
        """Return the columns of an item after FROM of any subquery; None if they aren't known."""
        if isinstance(item, exp.Table) and folded(item.name) in own:
            return None
        if not self.names_private(item, names):
            return self.columns(item, names, own)
        if isinstance(item, exp.Table) and folded(item.name) not in names:
            return self._items.table(item)[0].alone.listed
        return None

    def noisy(self, node: Expr, outer: Outer, names: Names) -> Expr:
        """Rewrite a subquery over answers; columns of what isn't public are taken for its own."""
        node = self.of_answers(node, names)
        own = frozenset(folded(cte.alias) for cte in node.find_all(exp.CTE))

        def shown(item: Expr) -> list[str] | None:
            private = self.names_private(item, names)
            return None if private else self.columns(item, names, own)

        columns = OuterColumns(outer, shown)
        columns.bind(node)
        self._outside |= columns.bound
        return self._within(node, names, Kinds())

    def columns(self, item: Expr, names: Names, own: frozenset[str]) -> list[str] | None:
        """Return the columns of an item after FROM of a public subquery; None if not known."""
        if isinstance(item, exp.Table) and folded(item.name) in own:
            return None
        kinds = Kinds()
        rewritten = self._within(item, names, kinds)
        if kinds.all == NOISY:  # which is refused
            return None
        try:
            return [name for name, _ in self._sandbox.types(f"SELECT * FROM {render(rewritten)}")]
        except SandboxError:  # it uses columns from outside itself, or the whole will fail, too
            return None

    def names_private(self, node: Expr, names: Names) -> bool:
        """Whether a private table is named anywhere in a query; it must exist."""
        return self.private_in(node, names) is not None

    def private_in(self, node: Expr, names: Names) -> Table | None:
        """Return a private table that is named anywhere in a query; None if there is none."""
        own = {folded(cte.alias) for cte in node.find_all(exp.CTE)}
        for table in node.find_all(exp.Table):
            known = folded(table.name) in own and len(name_parts(table)) == 1
            if not known and self._items.is_private(table, names):
                return self._items.table(self._items.base(table, names))[0]
        return None


def _has_groups(query: Expr) -> bool:
    """Whether the rows of a query of private rows are answers: those of groups, or of all."""
    select = query.unnest()
    if not isinstance(select, exp.Select):
        return False
    return bool(select.args.get("group")) or any(map(has_aggregate, select.expressions))
