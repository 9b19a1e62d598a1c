"""Follow noise through a query: which noisy statistics each value of its result consists of.

Beside every column of every SELECT stands a hidden one, `__e0`, `__e1`, …: the list of pairs
(statistic, coefficient) whose sum is, to first order, the value's noise. An answer's statistic
has itself with coefficient 1; expressions scale and join lists by the chain rule; SUM and AVG,
plain or over windows, collect them. DuckDB computes the lists with the values, so filters, sorting,
joins and limits apply to both alike. An empty list means no noise, NULL that it isn't known. What
is rounded has a pair besides for what its step may move, which has no statistic: see `gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from dpsql.schema.names import capitals, folded, quoted_name
from dpsql.sql.binding.core import ROW, AnswerColumn, Role
from dpsql.sql.binding.expressions import (
    Expr,
    is_star,
    quoted,
    quoted_column,
    render,
    write_windows_out,
)
from dpsql.sql.computing.gradient import Gradient, IsLeaf, NotSmoothError, gradient, is_step, named

# ── Lists of pairs (statistic, coefficient): what noise a value consists of, as SQL ──────────────


ROWS = 2**40
"""Statistic j of row r of a table of answers has the number (first + j)·ROWS + r."""
TYPE = "STRUCT(i BIGINT, c DOUBLE)[]"
NONE = f"CAST([] AS {TYPE})"
UNKNOWN = f"CAST(NULL AS {TYPE})"
STEP = f"CAST([{{'i': -1, 'c': 1.0}}] AS {TYPE})"
"""The step of a rounding: its coefficient is the farthest that it moves a value, or NaN."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a query's result."""

    name: str
    noisy: bool = False
    exact: bool = True
    """Whether the list of its noise is exact, not to first order only."""
    reason: str | None = None
    """Why its noise isn't known."""
    chosen: bool = False
    """Whether noisy values decide which rows there are."""
    ordered: bool = False
    """Whether noisy values decide in which order rows come."""


@dataclass(frozen=True, slots=True)
class NumberedStatistics:
    """The statistics of a table of answers: how many there are, and the number of the first one.

    Those in `opaque` are quantiles: noisy, but not sums.
    """

    first: int
    count: int
    opaque: frozenset[int]


@dataclass(frozen=True, slots=True)
class FromItem:
    """A table after FROM: its columns by their names in small letters."""

    alias: str
    columns: Mapping[str, tuple[Output, str]]
    """Each with the SQL of its list."""
    complete: bool = True
    """Whether these are all; those of VALUES and the like are public, and not known."""


def scaled(pairs: str, factor: str) -> str:
    """Multiply the coefficients of a list."""
    if "SELECT" not in capitals(factor):
        by = f"lambda __p : {{'i': __p.i, 'c': CAST(__p.c * ({factor}) AS DOUBLE)}}"
        return f"list_transform({pairs}, {by})"
    # A lambda can't hold a subquery: its value goes beside each pair.
    factors = f"list_resize(CAST([] AS DOUBLE[]), len({pairs}), CAST({factor} AS DOUBLE))"
    return (
        f"list_transform(list_zip({pairs}, {factors}), "
        "lambda __p : {'i': __p[1].i, 'c': __p[1].c * __p[2]})"
    )


def of_answers(table: str, statistics: NumberedStatistics) -> FromItem:
    """Return a table of answers: each statistic consists of itself."""
    columns: dict[str, tuple[Output, str]] = {}
    for j in range(statistics.count):
        at = f"{(statistics.first + j) * ROWS} + {ROW}"
        pairs = f"CAST([{{'i': {at}, 'c': 1.0}}] AS {TYPE})"
        reason = "quantiles have an interval instead" if j in statistics.opaque else None
        name = Role.STATISTIC.named(j)
        columns[name] = Output(name, noisy=True, exact=reason is None, reason=reason), pairs
    return FromItem(table, columns)


def listed(alias: str, outputs: list[Output]) -> FromItem:
    """Return an annotated query or CTE under its alias."""
    name = quoted_name(alias)
    columns = {folded(o.name): (o, f"{name}.__e{i}") for i, o in enumerate(outputs)}
    return FromItem(alias, columns)


def renamed(outputs: list[Output], alias: Expr | None) -> list[Output]:
    """Give columns the names that stand behind an alias: `AS q (a, b)`."""
    given = alias.args.get("columns") or [] if alias is not None else []
    names = [c.name for c in given]
    return [replace(o, name=names[i]) if i < len(names) else o for i, o in enumerate(outputs)]


# ── One SELECT with the hidden columns that say what its values consist of ────────────────────────


_SHIFTS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)
_PICKED = (exp.First, exp.Last)
_OUTSIDE = "a subquery that uses columns from outside has no variance"


class Annotator(Protocol):
    """Annotates the queries inside a SELECT."""

    def annotate(
        self, query: Expr, names: Mapping[str, list[Output]] | None = None
    ) -> tuple[Expr, list[Output]]:
        """Return a query with its hidden columns, and what its other columns are."""

    def source(self, item: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, FromItem]:
        """Annotate one item after FROM."""

    def is_answers(self, item: Expr) -> bool:
        """Whether an item after FROM is a table of answers."""

    def is_noisy(
        self, query: Expr, names: Mapping[str, list[Output]], *, rows_only: bool = False
    ) -> bool:
        """Whether a query returns noisy values, or rows that they choose; in doubt it does."""

    def is_correlated(
        self, node: Expr, sources: Sequence[FromItem], names: Mapping[str, list[Output]]
    ) -> bool:
        """Whether a subquery may use columns of the SELECT around it; in doubt it does."""

    @property
    def many(self) -> bool:
        """Whether lists of all rows would be too long."""


class AnnotatedSelect:
    """Annotates one SELECT without DISTINCT."""

    def __init__(
        self, propagation: Annotator, select: Expr, names: Mapping[str, list[Output]]
    ) -> None:
        self._propagation = propagation
        self._select = select
        self._names = names
        self._sources: list[FromItem] = []
        self._lists: dict[str, str] = {}
        self._exact: dict[str, bool] = {}
        self._merged: set[str] = set()

    def annotated(self) -> tuple[Expr, list[Output]]:
        """Return the SELECT with its hidden columns, and what its other columns are."""
        select = self._select.copy()
        write_windows_out(select)
        clause = select.args.get("from_")
        if clause is not None:
            clause.set("this", self._add(clause.this))
        for join in select.args.get("joins") or []:
            join.set("this", self._add(join.this))
            self._merged |= {folded(part.name) for part in join.args.get("using") or []}
        items = [item for node in select.expressions for item in self._expanded(node)]
        items = self._without_aliases(items)
        grouped = select.args.get("group") is not None or any(_aggregates(n) for n in items)
        leaf = self._group_leaf if grouped else self._leaf
        chosen = self._chosen(select)
        outputs, hidden = [], []
        for i, item in enumerate(items):
            output, pairs = self._item(item, leaf)
            if grouped and chosen and _aggregates(item):
                reason = "the rows that are added up are chosen by noisy values"
                output, pairs = Output(output.name, noisy=True, exact=False, reason=reason), UNKNOWN
            limited, ordered = self._limited(select), self._ordered(select)
            outputs.append(replace(output, chosen=chosen or limited, ordered=ordered))
            hidden.append(exp.Alias(this=exp.Var(this=pairs), alias=exp.Identifier(this=f"__e{i}")))
        select.set("expressions", [*items, *hidden])
        return select, outputs

    def _without_aliases(self, items: list[Expr]) -> list[Expr]:
        """Put what an alias of the list stands for in its place, where a later item uses it."""
        known: dict[str, Expr] = {}
        found = []
        for item in items:
            plain = item.copy()
            for part in list(plain.find_all(exp.Column)):
                name = folded(part.name)
                here = part.find_ancestor(exp.Query) is None  # else it may be a column there
                if here and not part.table and name in known and not self._has(name):
                    part.replace(exp.Paren(this=known[name].copy()))
            found.append(plain)
            if isinstance(plain, exp.Alias):
                known.setdefault(folded(plain.alias), plain.this)
        return found

    def _has(self, name: str) -> bool:
        return any(name in source.columns for source in self._sources)

    def _chosen(self, select: Expr) -> bool:
        """Whether noisy values decide which rows, or groups of rows, a SELECT sees."""
        outputs = [o for source in self._sources for o, _ in source.columns.values()]
        if any(output.chosen for output in outputs):
            return True
        conditions = [join.args.get("on") for join in select.args.get("joins") or []]
        group = select.args.get("group")
        conditions += [select.args.get("where"), *(group.expressions if group is not None else [])]
        return any(part is not None and self._uses_noise(part, select) for part in conditions)

    def _limited(self, select: Expr) -> bool:
        """Whether noisy values decide which rows a SELECT returns."""
        cut = any(select.args.get(key) is not None for key in ("limit", "offset"))
        order = select.args.get("order")
        conditions = [select.args.get("having"), select.args.get("qualify")]
        conditions += [order] if cut else []
        return any(part is not None and self._uses_noise(part, select) for part in conditions)

    def _ordered(self, select: Expr) -> bool:
        """Whether noisy values decide in which order a SELECT returns rows."""
        order = select.args.get("order")
        return order is not None and self._uses_noise(order, select)

    def _uses_noise(self, part: Expr, select: Expr) -> bool:
        """Whether an expression, or an item of the list that it names, is noisy."""
        if self._is_there(part.this):
            return False
        if self._noisy(part) or any(self._depends(query) for query in _queries(part)):
            return True
        items = select.expressions
        aliases = {folded(item.alias): item.this for item in items if isinstance(item, exp.Alias)}
        for inner in part.walk():
            name = folded(inner.name) if isinstance(inner, exp.Column) else ""
            meant = aliases.get(name) if name and not self._has(name) else None
            if isinstance(inner, exp.Literal) and inner.name.isdigit() and not inner.is_string:
                meant = items[int(inner.name) - 1] if 0 < int(inner.name) <= len(items) else None
            if meant is not None and self._noisy(meant):
                return True
        return False

    def _is_there(self, condition: object) -> bool:
        """Whether a condition is that a value isn't NULL which is so for no noise.

        What is linear in noisy answers, with public factors, is NULL where these are, or where
        there is no answer.
        """
        node = condition.this if isinstance(condition, exp.Not) else None
        if not isinstance(node, exp.Is) or not isinstance(node.expression, exp.Null):
            return False
        try:
            return self._is_exact(gradient(node.this, self._leaf))
        except NotSmoothError:
            return False

    def _depends(self, query: exp.Query) -> bool:
        """Whether a subquery returns noisy values, or rows that they choose; in doubt it does."""
        return self._propagation.is_noisy(query, self._names)

    def _add(self, item: Expr) -> Expr:
        changed, source = self._propagation.source(item, self._names)
        self._sources.append(source)
        return changed

    def _expanded(self, node: Expr) -> list[Expr]:
        """Write out the columns that a star stands for; those of public tables stay a star."""
        if not is_star(node):
            return [node]
        star = isinstance(node, exp.Star)
        owner = folded(node.text("table"))
        chosen = [s for s in self._sources if star or folded(s.alias) == owner]
        if not all(source.complete for source in chosen):
            raise NotSmoothError("* stands for columns of a public table")
        expanded = list[Expr]()
        for at, source in enumerate(chosen):
            for output, _ in source.columns.values():
                merged = star and folded(output.name) in self._merged
                if not (merged and at):
                    column = quoted_column(output.name, None if merged else source.alias)
                    expanded.append(exp.Alias(this=column, alias=quoted(output.name)))
        return expanded

    def _item(self, item: Expr, leaf: IsLeaf) -> tuple[Output, str]:
        """Return an output column, and the SQL of its list; `leaf` finds what it is made of."""
        name = item.alias_or_name or render(item)
        try:
            derivative = gradient(item.unalias(), leaf)
        except NotSmoothError as error:
            return Output(name, noisy=True, exact=False, reason=str(error)), UNKNOWN
        if not derivative.partial:
            return Output(name), NONE
        return Output(name, noisy=True, exact=self._is_exact(derivative)), self._chain(derivative)

    def _is_exact(self, g: Gradient) -> bool:
        """Whether the noise of an expression is linear in that of statistics."""
        return g.exact and all(self._exact[leaf] for leaf in g.partial)

    def _chain(self, g: Gradient) -> str:
        """Scale the lists of what an expression depends on by its derivatives, and join them."""
        parts = []
        for leaf, derivative in g.partial.items():
            factor = render(derivative)
            pairs = STEP if is_step(leaf) else self._lists[leaf]
            parts.append(pairs if factor == "1" else scaled(pairs, factor))
        return parts[0] if len(parts) == 1 else f"flatten([{', '.join(parts)}])"

    def _group_leaf(self, node: Expr) -> str | None:
        """Return the name of a noisy value of a group of rows, which is not one row's."""
        name = self._leaf(node)
        of_rows = (
            isinstance(node, exp.Column) and node.find_ancestor(exp.AggFunc, exp.Window) is None
        )
        if name is not None and of_rows:
            raise NotSmoothError("rows are grouped by a noisy value")
        return name

    def _leaf(self, node: Expr) -> str | None:
        """Return the name of a noisy value, whose list is noted; None for anything else."""
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if isinstance(node, (exp.AggFunc, exp.Filter)):
            return self._aggregate(node)
        if isinstance(node, exp.Query) and isinstance(node.parent, (exp.Exists, exp.In)):
            return self._asked(node)
        if isinstance(node, exp.Subquery):
            return self._scalar(node)
        return None

    def _asked(self, node: exp.Query) -> str | None:
        """Note a query of EXISTS or IN, if the truth about it depends on noisy values."""
        rows_only = isinstance(node.parent, exp.Exists)
        if not self._propagation.is_noisy(node, self._names, rows_only=rows_only):
            return None
        return self._note(render(node), UNKNOWN, exact=False)

    def _column(self, node: exp.Column) -> str | None:
        qualifier = folded(node.table)
        if qualifier and all(qualifier != folded(source.alias) for source in self._sources):
            structs = [s.columns[qualifier][0] for s in self._sources if qualifier in s.columns]
            if any(output.noisy for output in structs):
                raise NotSmoothError("a field of a struct has no variance")
            return None
        for source in self._sources:
            if qualifier and qualifier != folded(source.alias):
                continue
            column = source.columns.get(folded(node.name))
            if column is None:
                continue
            output, pairs = column
            if not output.noisy:
                return None
            if output.reason is not None:
                raise NotSmoothError(output.reason)
            return self._note(render(node), pairs, output.exact)
        return None

    def _aggregate(self, node: Expr) -> str | None:
        inner = node.this if isinstance(node, exp.Filter) else node
        if isinstance(inner, _PICKED):
            return self._taken(node, inner)
        derivative = self._argument(node, inner)
        if derivative is None:
            return None
        condition = render(node.expression) if isinstance(node, exp.Filter) else ""
        having = f" FILTER ({condition})" if condition else ""
        return self._collected(node, inner, derivative, having)

    def _window(self, node: exp.Window) -> str | None:
        if isinstance(node.this, _SHIFTS):
            return self._taken(node, node.this)
        derivative = self._argument(node, node.this)
        if derivative is None:
            return None
        if self._propagation.many:
            raise NotSmoothError("there are too many rows to follow noise through a window")
        rest = {k: v for k, v in node.args.items() if k != "this"}
        over = render(exp.Window(this=exp.Var(this=""), **rest)).strip()
        return self._collected(node, node.this, derivative, f" {over}")

    def _taken(self, node: Expr, function: Expr) -> str | None:
        """Take the list of another row, as LAG, FIRST and the like take its value."""
        ordered = function.this if isinstance(function.this, exp.Order) else function
        value = ordered.this
        parts_taken = {id(part) for part in (function, ordered, value)}
        parts = [n for of in (node, function, ordered) for n in of.iter_expressions()]
        if any(self._noisy(part) for part in parts if id(part) not in parts_taken):
            raise NotSmoothError("which row is taken depends on noisy values")
        derivative = gradient(value, self._leaf)
        if not derivative.partial:
            return None
        taken = node.copy()
        inner = taken if node is function else taken.this
        inner.set("default", None)
        place = inner.this if ordered is not function else inner
        place.set("this", exp.Var(this=self._chain(derivative)))
        return self._note(render(node), render(taken), self._is_exact(derivative))

    def _argument(self, node: Expr, function: Expr) -> Gradient | None:
        """Differentiate what an aggregate is over; None if nothing in it is noisy."""
        if isinstance(function, (exp.Sum, exp.Avg)) and isinstance(function.this, exp.Expr):
            parts = [] if node is function else list(node.iter_expressions())
            others = [part for part in parts if part is not function]
            if any(self._noisy(other) for other in others):
                raise NotSmoothError("the rows that are added up are chosen by noisy values")
            derivative = gradient(_unordered(function.this), self._leaf)
            return derivative if derivative.partial else None
        if any(self._noisy(part) for part in node.iter_expressions()):
            raise NotSmoothError(f"{named(function)} of noisy values has no variance")
        return None

    def _noisy(self, node: Expr) -> bool:
        """Whether an expression depends on noisy values; in doubt it does."""
        try:
            return any(self._leaf(part) is not None for part in node.walk())
        except NotSmoothError:
            return True

    def _collected(self, node: Expr, function: Expr, g: Gradient, rest: str) -> str:
        """Note the list of SUM or AVG: the lists of its rows, one after the other."""
        pairs = f"flatten(list({self._chain(g)}){rest})"
        if isinstance(function, exp.Avg):
            count = f"(count({render(_unordered(function.this))}){rest})"
            pairs = f"list_transform({pairs}, lambda __p : {{'i': __p.i, 'c': __p.c / {count}}})"
        return self._note(render(node), pairs, self._is_exact(g))

    def _scalar(self, node: exp.Subquery) -> str | None:
        if self._propagation.is_correlated(node, self._sources, self._names):
            raise NotSmoothError(_OUTSIDE)
        query, outputs = self._propagation.annotate(node.this, self._names)
        if outputs and outputs[0].chosen and not outputs[0].noisy:
            raise NotSmoothError("which row is taken depends on noisy values")
        if not outputs or not outputs[0].noisy:
            return None
        if any(map(self._is_key_outside, node.find_all(exp.Column))):
            raise NotSmoothError(_OUTSIDE)
        if outputs[0].reason is not None:
            raise NotSmoothError(outputs[0].reason)
        pairs = f"(SELECT __e0 FROM ({render(query)}) AS __q)"
        return self._note(render(node), pairs, outputs[0].exact)

    def _is_key_outside(self, node: exp.Column) -> bool:
        """Whether a column in a subquery is a key of the answers around it."""
        column, select = AnswerColumn.of(node), node.find_ancestor(exp.Select)
        if column is None or column.role is not Role.KEY or select is None:
            return False
        clause = select.args.get("from_")
        return clause is None or not self._propagation.is_answers(clause.this)

    def _note(self, name: str, pairs: str, exact: bool) -> str:
        self._lists[name], self._exact[name] = pairs, exact
        return name


def _unordered(argument: Expr) -> Expr:
    """Take ORDER BY off what is added up: it makes no difference to a sum."""
    return argument.this if isinstance(argument, exp.Order) else argument


def _queries(part: Expr) -> Iterator[exp.Query]:
    """Yield the queries in an expression, but not those within them."""
    pending = [part]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            pending += node.iter_expressions()


def _aggregates(node: Expr) -> bool:
    """Whether an aggregate of rows stands in an item, outside of its windows and subqueries."""
    query = node.find_ancestor(exp.Query)
    return any(
        not _is_of_window(part) and part.find_ancestor(exp.Query) in (None, query)
        for part in node.find_all(exp.AggFunc)
    )


def _is_of_window(function: Expr) -> bool:
    """Whether a function, maybe with a FILTER, is computed over a window."""
    above = function.parent
    return isinstance(above.parent if isinstance(above, exp.Filter) else above, exp.Window)


MAX_COLLECTED = 3_000
"""Rows over which a window may collect lists: it makes one for each row."""
Columns = Callable[[str], Sequence[str]]
"""Returns the columns of a public table of the sandbox."""


class Propagation:
    """Adds the hidden columns to one statement's query."""

    def __init__(
        self, answers: Mapping[str, NumberedStatistics], columns: Columns, rows: int
    ) -> None:
        self._answers = answers
        self._columns = columns
        self._rows = rows

    @property
    def many(self) -> bool:
        """Whether the answers have so many rows that lists of all of them would be too long."""
        return self._rows > MAX_COLLECTED

    def is_answers(self, item: Expr) -> bool:
        """Whether an item after FROM is a table of answers."""
        return isinstance(item, exp.Table) and item.name in self._answers

    def is_noisy(
        self, query: Expr, names: Mapping[str, list[Output]], *, rows_only: bool = False
    ) -> bool:
        """Whether a query returns noisy values, or rows that they choose; in doubt it does.

        Args:
            query: the query.
            names: the columns of the CTEs that it may name.
            rows_only: whether only which rows there are matters.
        """
        tables = {table.name for table in query.find_all(exp.Table)}
        if not any(name in self._answers or folded(name) in names for name in tables):
            return False
        try:
            _, outputs = self.annotate(query, names)
        except NotSmoothError:
            return True
        return any(o.chosen or (o.noisy and not rows_only) for o in outputs)

    def is_correlated(
        self, node: Expr, sources: Sequence[FromItem], names: Mapping[str, list[Output]]
    ) -> bool:
        """Whether a subquery may use columns of the SELECT around it; in doubt it does.

        Args:
            node: the subquery.
            sources: what stands after FROM in that SELECT.
            names: the columns of the CTEs that it may name.
        """
        inner: set[str] = set()
        aliases: set[str] = set()
        for select in node.find_all(exp.Select):
            clause = select.args.get("from_")
            items = [clause.this] if clause is not None else []
            items += [join.this for join in select.args.get("joins") or []]
            for item in items:
                _, source = self.source(item, names)
                aliases.add(folded(source.alias))
                inner |= set(source.columns)
        outer = {folded(source.alias) for source in sources} - aliases
        outside = {name for source in sources for name in source.columns} - inner
        return any(
            folded(part.table) in outer or (not part.table and folded(part.name) in outside)
            for part in node.find_all(exp.Column)
        )

    def annotate(
        self, query: Expr, names: Mapping[str, list[Output]] | None = None
    ) -> tuple[Expr, list[Output]]:
        """Return a query with its hidden columns, and what its other columns are.

        Args:
            query: the query over tables of answers and public tables.
            names: the columns of the CTEs that it may name.
        """
        known = dict(names or {})
        clause = query.args.get("with_")
        ctes = []
        for cte in clause.expressions if clause is not None else []:
            inner, outputs = self.annotate(cte.this, known)
            alias = cte.args["alias"]
            outputs = renamed(outputs, alias)
            known[folded(alias.name)] = outputs
            whole = exp.TableAlias(this=alias.this.copy(), columns=_columns(outputs))
            ctes.append(exp.CTE(this=inner, alias=whole))
        bare = type(query)(**{k: v for k, v in query.args.items() if k != "with_"})
        annotated, outputs = self._query(bare, known)
        if ctes:
            annotated.set("with_", exp.With(expressions=ctes))
        return annotated, outputs

    def _query(self, query: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, list[Output]]:
        if isinstance(query, exp.Subquery):
            return self.annotate(query.this, names)
        if isinstance(query, exp.Union) and query.args.get("distinct") is False:
            return self._union(query, names)
        if isinstance(query, exp.SetOperation):
            (_, outputs), (_, others) = (
                self.annotate(side, names) for side in (query.this, query.expression)
            )
            chosen = any(o.noisy or o.chosen for o in (*outputs, *others))
            outputs = [replace(o, chosen=chosen) for o in outputs]
            return _hiding(query, outputs, f"{capitals(query.key)} compares noisy values")
        if query.args.get("distinct") is not None:
            plain = exp.Select(**{k: v for k, v in query.args.items() if k != "distinct"})
            _, outputs = AnnotatedSelect(self, plain, names).annotated()
            return _hiding(query, outputs, "DISTINCT compares noisy values")
        return AnnotatedSelect(self, query, names).annotated()

    def _union(
        self, query: exp.Union, names: Mapping[str, list[Output]]
    ) -> tuple[Expr, list[Output]]:
        left, above = self.annotate(query.this, names)
        right, below = self.annotate(query.expression, names)
        chosen = any(o.chosen for o in (*above, *below))
        merged = [
            Output(a.name, a.noisy or b.noisy, a.exact and b.exact, a.reason or b.reason, chosen)
            for a, b in zip(above, below, strict=False)
        ]
        rest = {k: v for k, v in query.args.items() if k not in {"this", "expression"}}
        return exp.Union(this=left, expression=right, **rest), merged

    def source(self, item: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, FromItem]:
        """Annotate one item after FROM."""
        alias = item.args.get("alias")
        if isinstance(item, exp.Subquery):
            inner, outputs = self.annotate(item.this, names)
            outputs = renamed(outputs, alias)
            name = alias.name if alias is not None else "__q"
            whole = exp.TableAlias(this=quoted(name), columns=_columns(outputs))
            return exp.Subquery(this=inner, alias=whole), listed(name, outputs)
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            if item.name in self._answers:
                return item, of_answers(item.name, self._answers[item.name])
            if folded(item.name) in names:
                outputs = renamed(names[folded(item.name)], alias)
                return item, listed(item.alias or item.name, outputs)
            outputs = renamed([Output(name) for name in self._columns(item.name)], alias)
            plain = {folded(o.name): (o, NONE) for o in outputs}
            return item, FromItem(item.alias or item.name, plain)
        return item, FromItem(item.alias or item.name, {}, complete=False)


def _columns(outputs: list[Output]) -> list[Expr]:
    """Name the columns of an annotated query, hidden ones last."""
    shown: list[Expr] = [quoted(o.name) for o in outputs]
    return shown + [exp.Identifier(this=f"__e{i}") for i in range(len(outputs))]


def _hiding(query: Expr, outputs: list[Output], reason: str) -> tuple[Expr, list[Output]]:
    """Keep a query as it is, and say of its noisy columns that their noise isn't known."""
    unknown = [replace(o, exact=not o.noisy, reason=reason if o.noisy else None) for o in outputs]
    items: list[Expr] = [exp.Star()]
    for i, output in enumerate(unknown):
        pairs = UNKNOWN if output.noisy else NONE
        items.append(exp.Alias(this=exp.Var(this=pairs), alias=exp.Identifier(this=f"__e{i}")))
    given = [quoted(o.name) for o in outputs]
    whole = exp.TableAlias(this=exp.Identifier(this="__q"), columns=given)
    inner = exp.Subquery(this=query.copy(), alias=whole)
    return exp.Select(expressions=items, from_=exp.From(this=inner)), unknown
