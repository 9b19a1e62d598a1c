"""Rewrite a core: what is left of its SELECT computes on the noisy answers.

Keys and statistics become columns of the table of answers, see `AnswerColumn`; GROUP BY, WHERE and
FROM are used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlglot import exp

from dpsql.errors import SqlError, SqlSchemaError, printable
from dpsql.hints import COUNTED, ask, group_by, instead
from dpsql.schema.names import capitals, closest, folded, nearest, one_of
from dpsql.sql.binding.aggregates import aggregate, linear
from dpsql.sql.binding.bind import MAX_NAME_CHARACTERS, RowBinder, Visits, check_name
from dpsql.sql.binding.core import (
    ROW,
    Core,
    Floor,
    Frame,
    Linear,
    Ordering,
    Relation,
    Role,
    Windowed,
)
from dpsql.sql.binding.existing import Existing, condition
from dpsql.sql.binding.expressions import (
    NO_VALUES,
    BoundExpr,
    Expr,
    column,
    has_aggregate,
    is_aggregate,
    is_star,
    over_groups,
    paren,
    quoted,
    quoted_column,
    rebuild,
    render,
    with_named,
)
from dpsql.sql.binding.grouping import (
    columns_of,
    in_having,
    key_nodes,
    lists_values,
    over_rows,
    sets_of,
    written_out,
)
from dpsql.sql.binding.row_queries import unused
from dpsql.sql.binding.scope import Home, NamedColumn, PrivateColumn, Scope
from dpsql.sql.binding.summands import together
from dpsql.sql.text.spans import SourceText


def output_name(node: Expr, inner: Expr, scope: Scope, source: SourceText) -> str:
    """Return the name of an item of a SELECT list over private rows.

    Args:
        node: the item.
        inner: what it is, without its alias.
        scope: what names mean.
        source: the statement's text.
    """
    if isinstance(node, exp.Alias):
        return check_name(node.alias, node.args["alias"], source)
    if isinstance(inner, exp.Column):
        found = scope.resolve(inner, by_row=True)
        if isinstance(found, PrivateColumn):
            return found.shown
        return found.name if isinstance(found, NamedColumn) else inner.name
    if isinstance(inner, exp.Count) and (inner.this is None or inner.this.is_star):
        return "count"
    if isinstance(inner, exp.Window) and isinstance(inner.this, exp.Sum):
        return "cumulative_count"
    return written_name(inner, source)


@contextmanager
def sorts(node: Expr, select: exp.Select, binder: RowBinder) -> Iterator[None]:
    """Hint at the names of the SELECT list where ORDER BY has a name that nothing has."""
    try:
        yield
    except SqlSchemaError as error:
        if not (error.unknown and isinstance(node, exp.Column) and not node.table):
            raise
        named = [n for n in select.expressions if isinstance(n, (exp.Alias, exp.Column))]
        unnamed = [n for n in select.expressions if n not in named]
        names = [item.alias_or_name for item in named]
        ours = [folded(output_name(n, n.unnest(), binder.scope, binder.source)) for n in unnamed]
        columns = binder.scope.names
        if folded(node.name) in ours:
            hint = "give it a name in the SELECT list, COUNT(*) AS n, and sort by that: ORDER BY n"
        elif nearest(node.name, names) or (names and nearest(node.name, columns) is None):
            hint = closest(node.name, names, printable)
        else:
            raise
        raise binder.source.located(error, node, hint) from None


def written_name(inner: Expr, source: SourceText) -> str:
    """Return the text of an expression as a name."""
    text = " ".join(source.text(source.node(inner)).split())
    return printable(text[:MAX_NAME_CHARACTERS])


def told_apart(written: Sequence[Expr], items: Sequence[Expr], source: SourceText) -> list[Expr]:
    """Put numbers behind equal names that nobody gave, as DuckDB does in subqueries.

    Args:
        written: the items of a SELECT list, as they are written.
        items: what became of them.
        source: the statement's text.
    """
    given = {folded(node.alias) for node in written if isinstance(node, exp.Alias)}
    taken: set[str] = set()
    found = []
    for node, item in zip(written, items, strict=True):
        name = item.alias_or_name or written_name(node, source)
        kept = isinstance(node, exp.Alias) or name == "*" or folded(name) in given
        free = name if kept else unused(name, taken | given)
        taken.add(folded(free))
        new = exp.Alias(this=item.unalias(), alias=quoted(free))
        found.append(item if free == name else new)
    return found


class CoreBinder(RowBinder):
    """Binds one SELECT over the private table, and rewrites what is left of it."""

    def __init__(self, source: SourceText, select: exp.Select, home: Home, visits: Visits) -> None:
        super().__init__(source, select, home, visits)
        self._keys: tuple[BoundExpr, ...] = ()
        self._sets: tuple[tuple[int, ...], ...] = ()
        self._fixed: dict[str, Expr] = {}
        """Keys that are the same for all rows, as SQL → as expressions."""
        self._kept: list[Expr] = []
        self._chosen = False
        """Whether groups are left out for their noisy counts."""
        self._derived: list[BoundExpr] | None = []  # None inside of what is derived from keys

    def core(
        self,
        name: str,
        relations: Sequence[Relation],
        joined: Sequence[BoundExpr],
        exist: Sequence[Existing] = (),
        above: float | None = None,
    ) -> tuple[Core, exp.Select]:
        """Bind everything; return the core and what is left to compute on its answers.

        Args:
            name: the table of the core's answers.
            relations: the public relations, already in scope.
            joined: the conditions of inner joins, and of a query of private rows.
            exist: which groups exist, as far as that is declared.
            above: how many standard errors the noisy count of a group must be above zero, else
                the group is left out.
        """
        where = self._select.args.get("where")
        written = self.conditions(where.this) if where is not None else ()
        found = (*joined, *written)
        self._group()
        self.told.update(*(part.attributes for part in (*found, *self._keys)))
        self._kept = condition(exist, self._keys)
        self._chosen = above is not None and bool(self._keys)
        left = self._rest(name)
        self._check_counts()
        floor = self._floored(left, above) if above is not None and self._keys else None
        core = Core(
            name,
            tuple(relations),
            tuple(dict.fromkeys(c for c in found if not c.by_row)),
            tuple(dict.fromkeys(c for c in found if c.by_row)),
            self._keys,
            self._sets,
            together(tuple(self._statistics), self.told),
            tuple(dict.fromkeys(self._derived or ())),
            frozenset(self._named),
            self.source.clause("WHERE") if where is not None else self._home.where,
            floor,
            bool(self._kept),
        )
        return core, left

    def _group(self) -> None:
        """Bind what is grouped by."""
        nodes = self._without_constants(dict(key_nodes(self._select, self.source)))
        self._keys = tuple(dict.fromkeys(map(self.bind, nodes.values())))
        places = {key.sql: i for i, key in enumerate(self._keys)}
        numbers = {name: places[self.bind(node).sql] for name, node in nodes.items()}
        self._sets = sets_of(self._select, self.source, numbers)

    def _floored(self, left: exp.Select, errors: float) -> Floor:
        """Leave groups out whose noisy count noise alone may give, as HAVING would.

        The rows of groups are counted for that, if they aren't anyway. Standard errors are public:
        they are a column of the answers' table, like keys.
        """
        count = self.statistic(Linear("COUNT(*)"))
        times = exp.Literal.number(repr(float(errors)))  # NumPy's floats are written as calls
        least = exp.Mul(this=times, expression=Role.STANDARD_ERROR.column(count))
        left.where(exp.GTE(this=Role.STATISTIC.column(count), expression=least), copy=False)
        return Floor(count, errors)

    def _without_constants(self, nodes: Mapping[int, Expr]) -> dict[int, Expr]:
        """Leave out keys that are the same for all rows: they tell no groups.

        What they are is known wherever they stand. Where they are rolled up it isn't the same in
        all groups.

        Raises:
            UnsupportedSqlError: there are grouping sets besides.
        """
        bounds = {i: self.bind(node) for i, node in nodes.items()}
        group = self._select.args.get("group")
        fixed = [(nodes[i], bound) for i, bound in bounds.items() if bound.constant]
        sets = None if group is None else group.find(exp.Rollup, exp.Cube, exp.GroupingSets)
        if fixed and sets is not None:
            node, _ = fixed[0]
            raise self.source.unsupported(
                node,
                "A constant can't be one of several grouping sets.",
                "leave it out of GROUP BY, and write it into the SELECT list of an outer query.",
            )
        self._fixed = {bound.sql: _value(bound.node) for _, bound in fixed}
        return {i: node for i, node in nodes.items() if not bounds[i].constant}

    def _rest(self, name: str) -> exp.Select:
        """Rewrite SELECT, HAVING, ORDER BY, … to work on the table of the answers."""
        args = self._select.args
        written = self._select.expressions
        items = told_apart(written, [self._item(node) for node in written], self.source)
        left = exp.Select(
            expressions=items, from_=exp.From(this=exp.Table(this=exp.Identifier(this=name)))
        )
        having = [args["having"].this] if args.get("having") is not None else []
        having = [self.rewrite(in_having(each, self.aliases, self._as_key)) for each in having]
        if having or self._kept:
            left.set("where", exp.Where(this=exp.and_(*having, *self._kept)))
        if args.get("qualify") is not None:
            left.set("qualify", exp.Qualify(this=self._qualifying(args["qualify"].this)))
        for key in ("limit", "offset", "distinct"):
            if args.get(key) is not None and (key != "distinct" or not lists_values(self._select)):
                left.set(key, rebuild(args[key], self.rewrite))
        if args.get("order") is not None:
            ordered = [rebuild(o, self._sorted) for o in args["order"].expressions]
            left.set("order", exp.Order(expressions=ordered))
        elif self._kept and args.get("distinct") is None:  # looking groups up mixes them
            left.set("order", exp.Order(expressions=[exp.Ordered(this=column(ROW))]))
        return left

    def _qualifying(self, node: Expr) -> Expr:
        """Rewrite QUALIFY; DuckDB wants a window in it, and ours may have become statistics."""
        condition = self.rewrite(node)
        if condition.find(exp.Window):
            return condition
        number = exp.Window(this=exp.RowNumber(), over="OVER")
        first = exp.GT(this=number, expression=exp.Literal.number(0))
        return exp.And(this=exp.Paren(this=condition), expression=first)

    def _item(self, node: Expr) -> Expr:
        inner = node.this if isinstance(node, exp.Alias) else node
        inner = inner if isinstance(inner, exp.Subquery) else inner.unnest()
        if is_star(inner):
            raise self.source.unsupported(
                inner,
                "SELECT * is not supported: single rows are never returned.",
                COUNTED,
            )
        alias = output_name(node, inner, self.scope, self.source)
        return exp.Alias(this=self.rewrite(inner), alias=quoted(alias))

    def _sorted(self, node: Expr) -> Expr:
        """Rewrite what is sorted by: a number, an alias, or an expression."""
        inner = node.unnest()
        if isinstance(inner, exp.Literal):
            return inner
        if isinstance(inner, exp.Column) and not inner.table and folded(inner.name) in self.aliases:
            return quoted_column(inner.name)
        with sorts(inner, self._select, self):
            return self.rewrite(node)

    def rewrite(self, node: Expr) -> Expr:
        """Rewrite an expression over keys and aggregates to one over the columns of the answers.

        Raises:
            UnsupportedSqlError: a column is neither grouped by nor aggregated.
        """
        if isinstance(node, exp.Paren):
            return exp.Paren(this=self.rewrite(node.this))
        if isinstance(node, (exp.Query, exp.Subquery)):
            key = self._as_key(node)
            return (
                self._visits.noisy(node, self._key_outside) if key is None else Role.KEY.column(key)
            )
        if isinstance(node, exp.Grouping):
            return self._grouping(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if is_aggregate(node):
            return aggregate(node, self)
        if isinstance(node, (exp.Literal, exp.Boolean, exp.Null, exp.DataType, exp.Var, exp.Star)):
            return node.copy()
        key = self._as_key(node)
        if key is not None:
            return Role.KEY.column(key)
        if isinstance(node, exp.Column):
            found = self.scope.resolve(node)
            if not isinstance(found, exp.Expr):
                fixed = self._fixed.get(self.bind(node).sql) if self._fixed else None
                if fixed is None:
                    raise self._not_grouped(node)
                return fixed.copy()
            return exp.Paren(this=self._aliased(node, found, self.rewrite))
        return self._computed(node)

    def _computed(self, node: Expr) -> Expr:
        """Rewrite a function or an operator; note what depends on keys alone, as a whole."""
        derived = self._derived
        if derived is None or isinstance(node, NO_VALUES) or self._aggregates(node):
            return rebuild(node, self.rewrite)
        derived.append(self.bind(node))
        self._derived = None
        try:
            return rebuild(node, self.rewrite)
        finally:
            self._derived = derived

    def _as_key(self, node: Expr) -> int | None:
        """Return the number of the key that an expression is; None if it is not one."""
        if self._keys and node.find(exp.Query):  # bound a second time, it would have new names
            text = self.source.text(self.source.node(node.unnest()))
            spelled = (self.source.text(key.span) for key in self._keys)
            return next((i for i, key in enumerate(spelled) if key == text), None)
        if not self._keys or isinstance(node, NO_VALUES) or self._aggregates(node):
            return None
        sql = self.bind(node).sql
        return next((i for i, key in enumerate(self._keys) if key.sql == sql), None)

    def _key_outside(self, node: exp.Column) -> Expr | None:
        """Bind a column of a subquery over answers that isn't its own; None if there is none."""
        try:
            found = self.scope.resolve(node)
        except SqlSchemaError as error:
            if error.unknown and not node.table:
                return None
            raise
        if isinstance(found, exp.Expr):  # of the SELECT list, where DuckDB finds it
            return None
        key = self._as_key(node)
        if key is None:
            raise self._not_grouped(node)
        return Role.KEY.column(key)

    def _aggregates(self, node: Expr) -> bool:
        """Whether an expression, or an alias in it, computes on groups and not on rows."""
        if has_aggregate(node) or node.find(exp.Window, exp.Query):
            return True
        for part in node.find_all(exp.Column):
            if not part.table and folded(part.name) in self.aliases:
                found = self.scope.resolve(part, by_row=True)
                if not isinstance(found, exp.Expr) or found is node:
                    continue
                if self._aggregates(found):
                    return True
        return False

    def _not_grouped(self, node: exp.Column) -> SqlError:
        name = printable(self.source.text(self.source.node(node)))
        plain = [
            self.source.text(self.source.node(item))
            for item in (n.unalias().unnest() for n in self._select.expressions)
            if isinstance(item, exp.Column) and not item.is_star
        ]
        keys = [self.source.text(key.span) for key in self._keys]
        wanted = ", ".join(map(printable, dict.fromkeys([*keys, *plain, name])))
        window = None if keys else self._row_window()
        if window is not None:
            return over_rows(window, self.source)
        counted = any(has_aggregate(item) for item in self._select.expressions)
        if counted:
            hint = "write " + group_by(wanted, of=self.source.node(self._select))
        elif isinstance(self._select.find_ancestor(exp.In, exp.Exists, exp.Select), exp.In):
            kept = group_by(f"{wanted} HAVING COUNT(*) > 1", of=self.source.node(self._select))
            hint = "keep only values with enough rows, by their noisy count: " + kept
        else:
            hint = "count: " + ask(f"SELECT {wanted}, COUNT(*) AS n … GROUP BY {wanted}")
        return self.source.unsupported(
            node, f"The column {name} stands outside of aggregates, and is not grouped by.", hint
        )

    def _row_window(self) -> exp.Window | None:
        """Return a window that isn't over groups."""
        found = (w for item in self._select.expressions for w in item.find_all(exp.Window))
        return next((window for window in found if not over_groups(window)), None)

    def _grouping(self, node: exp.Grouping) -> Expr:
        """Write GROUPING(a, b, …) as the number whose bits say which keys are rolled up."""
        bits: Expr | None = None
        for part in node.expressions:
            key = self._as_key(part)
            if key is None:
                group = self._select.args.get("group")
                keys = (
                    [] if group is None else [k for e in group.expressions for k in columns_of(e)]
                )
                texts = [instead(self.source.text(self.source.node(key))) for key in keys]
                here = self.source.text(self.source.node(part))
                raise self.source.unsupported(
                    part,
                    "GROUPING takes columns of GROUP BY.",
                    "name one of them: " + one_of(texts) + "." if texts else group_by(here) + ".",
                )
            bit = Role.ROLLED_UP.column(key)
            doubled = exp.Mul(this=bits, expression=exp.Literal.number(2)) if bits else None
            bits = exp.Paren(this=exp.Add(this=doubled, expression=bit)) if doubled else bit
        if bits is None:
            raise self.source.unsupported(node, "GROUPING needs a column.", "GROUPING(sex).")
        return bits

    def _window(self, node: exp.Window) -> Expr:
        """Note sums and means of counts over a window as statistics of their own.

        Other windows, and those that see only groups that HAVING leaves or that exist, or rows of
        several grouping sets, are computed on the noisy answers.
        """
        frame = self._frame(node)
        node = self._definition(node)
        if frame is not None:
            mean = isinstance(node.this, exp.Avg)
            of = linear(node.this.this, self)
            if of.of_units:
                what, one = ("units", "unit") if of.values is None else ("values", "value")
                raise self.source.unsupported(
                    node,
                    f"Counts of {what} can't be added up over groups: one {one} may be in several "
                    "of them.",
                    f"count the {what} of the larger groups in a separate statement.",
                )
            label = " ".join(self.source.text(frame.span).split())
            return Role.STATISTIC.column(self.statistic(Windowed(label, of, frame, mean)))
        function = node.this.this if isinstance(node.this, exp.Filter) else node.this
        argument = function.this if is_aggregate(function) else None
        of_rows = is_aggregate(function) and not (argument and has_aggregate(argument))
        if of_rows and not (self._keys and isinstance(argument, exp.Star)):
            raise over_rows(node, self.source)
        return rebuild(node, self.rewrite) if not is_aggregate(node.this) else self._over(node)

    def _over(self, node: exp.Window) -> Expr:
        """Rewrite a window whose function is an aggregate over the answers."""
        function = rebuild(node.this, self.rewrite)
        args = {k: v for k, v in node.args.items() if k != "this"}
        rest = rebuild(exp.Window(this=exp.Null(), **args), self.rewrite)
        rest.set("this", function)
        return rest

    def _frame(self, node: exp.Window) -> Frame | None:
        """Return a window as one over keys; None if it can't be a statistic."""
        if not isinstance(node.this, (exp.Sum, exp.Avg)) or not isinstance(
            node.this.this, (exp.Count, exp.CountIf, exp.Sum, exp.Filter)
        ):
            return None
        filtered = self._select.args.get("having") is not None or self._kept or self._chosen
        if filtered or len(self._sets) != 1:
            return None
        window = self._definition(node)
        order = window.args.get("order")
        ordered = order.expressions if order is not None else []
        partition = window.args.get("partition_by") or []
        keys = [self._as_key(part) for part in [*partition, *(o.this for o in ordered)]]
        if None in keys:
            return None
        chosen = [self._keys[key] for key in keys if key is not None]
        orderings = tuple(
            Ordering(key, bool(o.args.get("desc")), bool(o.args.get("nulls_first")))
            for key, o in zip(chosen[len(partition) :], ordered, strict=True)
        )
        spec = window.args.get("spec")
        return Frame(
            tuple(chosen[: len(partition)]),
            orderings,
            render(spec) if spec is not None else "",
            spec is not None and capitals(spec.text("kind")) == "ROWS",
            self.source.node(node),
        )

    def _definition(self, node: exp.Window) -> exp.Window:
        """Return a window with what it takes from the one that it names, as in `OVER w`."""
        found = with_named(node, self._select.args.get("windows") or [])
        if found is None:
            name = printable(node.args["alias"].name)
            raise self.source.error(
                node, f"There is no window {name}.", written_out(node, self._select, self.source)
            )
        return found

    def _check_counts(self) -> None:
        nested = self._select.parent is not None
        if not self._statistics and not self._keys:
            raise self.source.unsupported(
                self._select if nested else self.source.whole(),
                "The statement counts nothing: single rows are never returned.",
                COUNTED,
            )


def _value(node: Expr) -> Expr:
    """Write a constant as a value, that ORDER BY doesn't take for the number of a column."""
    return exp.Coalesce(this=paren(node), expressions=[exp.Null()])
