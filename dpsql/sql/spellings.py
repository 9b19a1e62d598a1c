"""Spellings that say the same in other words: ANY and ALL, UNNEST in a SELECT list, NATURAL, `*`.

    x = ANY (q)                        x IN q
    x IN (SELECT MAX(y) FROM t)        (x = (SELECT MAX(y) FROM t))
    x > ALL ([1, 2])                   x > 1 AND x > 2
    x > ALL (SELECT y …)               CASE WHEN NOT EXISTS (…) THEN true
                                       WHEN x <= (SELECT MAX(y) …) THEN false
                                       WHEN EXISTS (… y IS NULL) THEN NULL ELSE x > MAX END
    INTERVAL '3 secs'                  INTERVAL '3' SECOND
    date_add(d, INTERVAL 3 DAY)        d + INTERVAL 3 DAY
    SELECT UNNEST(v) AS k              SELECT k FROM UNNEST(v) AS unnested(k)
    a NATURAL JOIN b                   a JOIN b USING (…), with the columns that both have
    SELECT * EXCLUDE (c) FROM t        SELECT t.a, t.b FROM t
    FROM people AS p (a, b)            FROM (SELECT * FROM people) AS p (a, b)

Only names of columns are looked up, which are public. What comes out is a statement like one that
was written, and goes through the same checks; what is left is refused with the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.errors import SqlLimitError, SqlSchemaError, printable
from dpsql.rows.times import ALIASES, LENGTHS
from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import Expr, has_aggregate, is_star, quoted, quoted_column
from dpsql.sql.binding.joins import name_parts
from dpsql.sql.shorthands import Queries, pivoted_item, queries_around
from dpsql.sql.text.parse import Parsed
from dpsql.sql.text.spans import SourceText

Columns = Callable[[tuple[str, ...]], Sequence[str] | None]
"""Returns the names of a table's columns in the order of `*`; None if there is no such table."""
IsPrivate = Callable[[tuple[str, ...]], bool]
"""Whether a name is that of a table whose rows are private."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_OPPOSITE: dict[type[Expr], type[Expr]] = {
    exp.EQ: exp.NEQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.NEQ: exp.EQ,
    exp.GTE: exp.LT,
    exp.GT: exp.LTE,
}
"""Comparison → the one that is true where it is false."""
_ENDS: dict[type[Expr], type[Expr]] = {
    **dict.fromkeys((exp.GT, exp.GTE), exp.Max),
    **dict.fromkeys((exp.LT, exp.LTE), exp.Min),
}
"""Comparison → the value for which it holds if it does for all."""
_RELEASED = (exp.Case, exp.Cast, exp.Literal, exp.Neg)
"""Values that stand there once a query with one row was released."""
_COMPARED = "compared"
_MOST_COLUMNS = 10_000
"""The most that the stars of one statement stand for."""
_UNNESTED = "unnested"
_ONE_SIDED = frozenset({"SEMI", "ANTI"})


def without_spellings(parsed: Parsed, columns: Columns, is_private: IsPrivate) -> Parsed:
    """Write a statement in the words that the rest of the front end knows.

    Args:
        parsed: the statement.
        columns: names the columns of tables.
        is_private: tells private tables.

    Raises:
        SqlError: a star stands for unknown columns, or leaves out one that isn't there.
    """
    selects = list(parsed.query.find_all(exp.Select))
    for node in list(parsed.query.find_all(exp.Any, exp.All, exp.Anonymous)):
        _write_compared(node)
    for listed in list(parsed.query.find_all(exp.In)):
        _write_equal(listed)
    for interval in list(parsed.query.find_all(exp.Interval)):
        _write_interval(interval)
    for added in list(parsed.query.find_all(exp.DateAdd)):
        _write_added(added)
    for select in selects:
        _write_unnested(select)
    stars = _Stars(parsed.source, columns)
    for select in selects:
        stars.write_natural(select)
    for select in selects:
        stars.write(select)
    for table in list(parsed.query.find_all(exp.Table)):
        _write_renamed(table, is_private)
    return parsed


# ── Comparisons with any of several values, or with all of them ──────────────────────────────────


def _write_compared(node: Expr) -> None:
    """Write `= ANY` and `<> ALL` as IN and NOT IN, and others of a list value by value.

    That is the definition of ANY and ALL, also where a value is NULL.
    """
    comparison = node.parent
    compared = isinstance(comparison, _COMPARISONS) and comparison.expression is node
    of_all = isinstance(node, exp.All) or _is_all(node)
    if comparison is None or not compared or not (of_all or isinstance(node, exp.Any)):
        return
    given = _given(node.expressions[0] if _is_all(node) else node.this)
    one = comparison.this
    if isinstance(comparison, exp.NEQ if of_all else exp.EQ):
        listed = _listed(one, given)
        if listed is not None:
            comparison.replace(exp.Not(this=listed) if of_all else listed)
        return
    values = _values(given)
    if values:
        comparison.replace(_with_each(comparison, values, of_all=of_all))
    elif isinstance(given, exp.Select) and _has_one_row(given):
        comparison.set("expression", exp.Subquery(this=given))
    elif isinstance(given, _RELEASED) and given.find(exp.Array) is None:
        comparison.set("expression", exp.Paren(this=given))
    elif isinstance(given, exp.Query) and _lists_one(given):
        comparison.replace(_with_all(comparison, given, of_all=of_all))


def _with_each(comparison: Expr, values: Sequence[Expr], *, of_all: bool) -> Expr:
    """Return a comparison with each of some values, joined by AND or by OR."""
    each = (type(comparison)(this=comparison.this.copy(), expression=v.copy()) for v in values)
    return exp.Paren(this=exp.and_(*each) if of_all else exp.or_(*each))


def _write_equal(listed: exp.In) -> None:
    """Write what is IN a query of exactly one row as equal to its value."""
    query = listed.args.get("query")
    inner = query.this if isinstance(query, exp.Subquery) else None
    if isinstance(inner, exp.Select) and _has_one_row(inner):
        listed.replace(exp.Paren(this=exp.EQ(this=listed.this, expression=query)))


def _has_one_row(select: exp.Select) -> bool:
    """Whether a SELECT adds up all its rows, and returns one value."""
    parts = {key for key, value in select.args.items() if value} - {"expressions", "from_", "where"}
    single = parts <= {"joins"} and len(select.expressions) == 1
    return single and has_aggregate(select.expressions[0], windows=False)


def _with_all(comparison: Expr, query: exp.Query, *, of_all: bool) -> Expr:
    """Write a comparison with all rows of a query, or with any, by the least and the largest.

    It holds for all if it does for the nearest end, or there are no rows; with any it is NOT of the
    opposite with all. NULL among the rows makes NULL of what isn't false without it.
    """
    sign = type(comparison) if of_all else _OPPOSITE[type(comparison)]
    signs = (exp.LTE, exp.GTE) if sign is exp.EQ else (sign,)
    rows = _RowsCompared.of(query)
    one = comparison.this
    apart = [_OPPOSITE[each](this=one.copy(), expression=rows.end(_ENDS[each])) for each in signs]
    same = [each(this=one.copy(), expression=rows.end(_ENDS[each])) for each in signs]
    case: Expr = exp.Case(
        ifs=[
            exp.If(this=exp.Not(this=rows.exist()), true=exp.true()),
            exp.If(this=exp.or_(*apart), true=exp.false()),
            exp.If(this=rows.exist(missing=True), true=exp.null()),
        ],
        default=exp.and_(*same),
    )
    return case if of_all else exp.Not(this=exp.Paren(this=case))


def _lists_one(query: Expr) -> bool:
    """Whether a query has one column, as far as its text tells."""
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    listed = query.expressions if isinstance(query, exp.Select) else []
    return len(listed) == 1 and not is_star(listed[0].unalias())


@dataclass(frozen=True, slots=True)
class _RowsCompared:
    """A query that a value is compared with: a SELECT without a list, and what it lists."""

    select: exp.Select
    value: Expr

    @classmethod
    def of(cls, query: exp.Query) -> _RowsCompared:
        clauses = {key for key, value in query.args.items() if value}
        if isinstance(query, exp.Select) and clauses <= {"expressions", "from_", "joins", "where"}:
            value = query.expressions[0].unalias()
            if not has_aggregate(value):
                return cls(query, value)
        alias = exp.TableAlias(this=quoted(_COMPARED), columns=[quoted(_COMPARED)])
        rows = exp.From(this=exp.Subquery(this=query.copy(), alias=alias))
        return cls(exp.Select(from_=rows), quoted_column(_COMPARED, _COMPARED))

    def end(self, function: type[Expr]) -> exp.Subquery:
        """Return the least or the largest value."""
        return exp.Subquery(this=self._listing(function(this=self.value.copy())))

    def exist(self, *, missing: bool = False) -> exp.Exists:
        """Return whether there are rows, or such without a value."""
        select = self._listing(exp.Literal.number(1))
        if missing:
            null = exp.Is(this=exp.Paren(this=self.value.copy()), expression=exp.null())
            select.where(null, copy=False)
        return exp.Exists(this=select)

    def _listing(self, value: Expr) -> exp.Select:
        select = self.select.copy()
        select.set("expressions", [value])
        return select


def _is_all(node: Expr) -> bool:
    called = isinstance(node, exp.Anonymous) and capitals(node.name) == "ALL"
    return called and len(node.expressions) == 1


def _given(node: Expr) -> Expr:
    """Return what stands in parentheses."""
    while isinstance(node, exp.Paren) or (
        isinstance(node, exp.Subquery) and not node.args.get("alias")
    ):
        node = node.this
    return node


def _listed(one: Expr, given: Expr) -> exp.In | None:
    values = _values(given)
    if values:
        membership = exp.In(this=one.copy(), expressions=[value.copy() for value in values])
    elif isinstance(given, exp.Query):
        membership = exp.In(this=one.copy(), query=exp.Subquery(this=given.copy()))
    else:
        return None
    return membership


def _values(given: Expr) -> list[Expr]:
    """Return the values of a list, or of VALUES with one in each row; none of anything else."""
    if isinstance(given, exp.Array) and not any(e.find(exp.Query) for e in given.expressions):
        return list(given.expressions)
    rows = given.expressions if isinstance(given, exp.Values) else []
    single = all(isinstance(row, exp.Tuple) and len(row.expressions) == 1 for row in rows)
    return [row.expressions[0] for row in rows] if single else []


# ── Intervals with the one name of their unit, which DuckDB takes behind a number ────────────────


def _write_interval(interval: exp.Interval) -> None:
    """Write INTERVAL '3 secs' as INTERVAL '3' SECOND, and '1.5 hours' and '02:30' as a cast."""
    unit, text = interval.args.get("unit"), interval.this
    if unit is None or interval.args.get("fraction_in_string"):
        if isinstance(text, exp.Literal) and text.is_string:
            whole = text.name if unit is None else f"{text.name} {unit.name}"
            interval.replace(exp.cast(exp.Literal.string(whole), "INTERVAL"))
        return
    name = ALIASES.get(folded(unit.name))
    if isinstance(unit, exp.Var) and name in LENGTHS:
        unit.set("this", capitals(name))


def _write_added(added: exp.DateAdd) -> None:
    """Write date_add(d, INTERVAL 3 DAY) as the sum that it is."""
    if isinstance(added.expression, exp.Interval | exp.Cast) and added.args.get("unit") is None:
        added.replace(
            exp.Paren(this=exp.Add(this=added.this.copy(), expression=added.expression.copy()))
        )


# ── UNNEST in a SELECT list without FROM, as a table after FROM ──────────────────────────────────


def _write_unnested(select: exp.Select) -> None:
    if select.args.get("from_") is not None:
        return
    unnested = [node for item in select.expressions for node in item.find_all(exp.Explode)]
    if len(unnested) != 1 or unnested[0].find(exp.Column, exp.Query) or unnested[0].expressions:
        return
    (node,) = unnested
    whole = node.parent is select
    item = node.parent if isinstance(node.parent, exp.Alias) else None
    name = exp.to_identifier("unnest" if item is None else item.alias, quoted=True)
    alias = exp.TableAlias(this=exp.to_identifier(_UNNESTED), columns=[name])
    rows: Expr
    if isinstance(node.this, exp.GenerateSeries):
        rows = exp.Table(this=node.this.copy(), alias=alias)
    else:
        rows = exp.Unnest(expressions=[node.this.copy()], alias=alias, offset=False)
    column = exp.Column(this=name.copy())
    node.replace(exp.Alias(this=column, alias=name.copy()) if whole else column)
    select.set("from_", exp.From(this=rows))


# ── Columns by their names: what `*` stands for, and which ones two tables have in common ────────


class _Stars:
    """Names what stars of one statement stand for."""

    def __init__(self, source: SourceText, columns: Columns) -> None:
        self._source, self._columns = source, columns
        self._known: dict[int, tuple[str, ...] | None] = {}
        self._made = 0

    def write_natural(self, select: exp.Select) -> None:
        """Write the columns that both sides of NATURAL joins have after USING."""
        first = select.args.get("from_")
        joins = select.args.get("joins") or []
        if not any(capitals(join.method) == "NATURAL" for join in joins) or first is None:
            return
        around = queries_around(select)
        before = self._of_item(first.this, around)
        for join in joins:
            own = self._of_item(join.this, around)
            if before is None or own is None:
                return
            here = {folded(name) for name in own}
            if capitals(join.method) == "NATURAL":
                both = [name for name in dict.fromkeys(before) if folded(name) in here]
                if not both:
                    return
                using = [exp.to_identifier(name, quoted=True) for name in both]
                join.set("method", None)
                join.set("using", using)
            used = {folded(name.name) for name in join.args.get("using") or []}
            if capitals(join.kind) not in _ONE_SIDED:
                before += tuple(name for name in own if folded(name) not in used)

    def write(self, select: exp.Select) -> None:
        """Write the columns of stars with EXCLUDE, REPLACE and RENAME one by one."""
        items = select.expressions
        if not any(_options(item) for item in items):
            return
        around, found = queries_around(select), list[Expr]()
        for item in items:
            star = _options(item)
            found += [item] if star is None else self._written(item, star, select, around)
        select.set("expressions", found)

    def _written(
        self, item: Expr, star: exp.Star, select: exp.Select, around: Queries
    ) -> list[Expr]:
        columns = self._starred(item, select, around)
        if columns is None:
            message = "It isn't known which columns this star stands for."
            raise self._source.error(item, message, "name the columns.")
        excluded, replaced, named = self._changed(item, star, columns)
        span, items = self._source.node(item), list[Expr]()
        for name, owner in columns:
            if folded(name) in excluded:
                continue
            shown = exp.to_identifier(name, quoted=True)
            column: Expr = exp.Column(this=shown)
            if owner:
                column.set("table", exp.to_identifier(owner, quoted=True))
            column.meta.update(start=span.start, end=span.end - 1)
            if folded(name) in replaced:
                column = exp.Alias(this=replaced[folded(name)].copy(), alias=shown.copy())
            elif folded(name) in named:
                column = exp.Alias(this=column, alias=named[folded(name)].copy())
            items.append(column)
        return items

    def _changed(
        self, item: Expr, star: exp.Star, columns: Sequence[tuple[str, str]]
    ) -> tuple[set[str], dict[str, Expr], dict[str, Expr]]:
        """Return the columns that a star leaves out, shows another expression of, and renames."""
        left_out = star.args.get("except_") or []
        of_one = next((c for c in left_out if isinstance(c, exp.Column) and c.table), None)
        if of_one is not None:
            message = "A star leaves out columns by their names alone here."
            hint = "write EXCLUDE for one table: a.* EXCLUDE (x), b.*."
            raise self._source.unsupported(of_one, message, hint)
        excluded = {folded(c.name) for c in left_out}
        replaced = {folded(a.alias): a.this for a in star.args.get("replace") or []}
        named = {folded(a.this.name): a.args["alias"] for a in star.args.get("rename") or []}
        here = {folded(name) for name, _ in columns}
        lacking = next((n for n in (*excluded, *replaced, *named) if n not in here), None)
        if lacking is not None:
            message = f"The star has no column {printable(lacking)[:100]} to leave out or change."
            hint = "it has " + ", ".join(printable(name) for name, _ in columns[:20]) + "."
            raise self._source.error(item, message, hint, SqlSchemaError)
        return excluded, replaced, named

    def _starred(
        self, item: Expr, select: exp.Select, around: Queries
    ) -> list[tuple[str, str]] | None:
        """Return the columns that a star stands for, each with what it is qualified by."""
        owner = folded(item.text("table")) if isinstance(item, exp.Column) else ""
        first, found = select.args.get("from_"), list[tuple[str, str]]()
        if first is None:
            return None
        items = [(first.this, list[str]()), *_joined(select)]
        said = {folded(name) for _, using in items for name in using} if not owner else set()
        for of, using in items:
            alias = of.alias_or_name
            if owner and folded(alias) != owner:
                continue
            names = self._of_item(of, around)
            if names is None:
                return None
            merged = set() if owner else {folded(name) for name in using}
            found += [
                (name, "" if folded(name) in said else alias)
                for name in names
                if folded(name) not in merged
            ]
        self._made += len(found)
        if self._made > _MOST_COLUMNS:
            message = "The stars stand for too many columns."
            raise self._source.error(item, message, "name the columns.", SqlLimitError)
        return found or None

    def _of_item(self, item: Expr, around: Queries) -> tuple[str, ...] | None:
        """Return the names of the columns of an item after FROM; None if they aren't known."""
        query, given = pivoted_item(item, around)
        if isinstance(query, exp.Table) and isinstance(query.this, exp.Identifier):
            listed = self._columns(name_parts(query))
            names = None if listed is None else tuple(listed)
        elif isinstance(query, exp.Select):
            names = self._of_query(query)
        else:
            return given or None
        return None if names is None else (*given, *names[len(given) :])

    def _of_query(self, query: exp.Select) -> tuple[str, ...] | None:
        if id(query) not in self._known:
            self._known[id(query)] = None  # of one that is in itself nothing is known
            self._known[id(query)] = self._named(query)
        return self._known[id(query)]

    def _named(self, query: exp.Select) -> tuple[str, ...] | None:
        names = list[str]()
        for item in query.expressions:
            star = _options(item)
            if star is not None:
                written = self._written(item, star, query, queries_around(query))
                names += [one.alias_or_name for one in written]
            elif is_star(item):
                columns = self._starred(item, query, queries_around(query))
                if columns is None:
                    return None
                names += [name for name, _ in columns]
            elif item.alias_or_name in {"", "*"}:
                return None
            else:
                names.append(item.alias_or_name)
        return tuple(names)


def _options(item: Expr) -> exp.Star | None:
    """Return the star that an item is, if it leaves something out or changes it."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return None
    options = ("except_", "replace", "rename")
    return star if any(star.args.get(key) for key in options) else None


def _joined(select: exp.Select) -> Iterable[tuple[Expr, list[str]]]:
    """Return what is joined after the first item, and by which columns of the same name."""
    for join in select.args.get("joins") or []:
        if capitals(join.kind) not in _ONE_SIDED:
            yield join.this, [name.name for name in join.args.get("using") or []]


# ── Names that an alias gives to the columns of a private table ──────────────────────────────────


def _write_renamed(table: exp.Table, is_private: IsPrivate) -> None:
    """Write a private table as a query of it, whose columns may have other names."""
    alias, name = table.args.get("alias"), table.this
    if not isinstance(alias, exp.TableAlias) or not alias.args.get("columns"):
        return
    if not isinstance(name, exp.Identifier) or not alias.name:
        return
    if (not table.db and folded(table.name) in queries_around(table)) or not is_private(
        name_parts(table)
    ):
        return
    inner = table.copy()
    inner.set("alias", None)
    rows = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    table.replace(exp.Subquery(this=rows, alias=alias.copy()))
