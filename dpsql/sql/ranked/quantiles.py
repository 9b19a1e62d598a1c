"""Percentiles by the places of rows, written as the quantiles that they are.

    SELECT k, MIN(CASE WHEN place < 0.25 * n THEN 9999 ELSE x END) AS q
    FROM (SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY x) AS place,
                 COUNT(*) OVER (PARTITION BY k) AS n FROM t)
    GROUP BY k

is `SELECT k, QUANTILE_DISC(LEAST(x, 9999), 0.25) AS q FROM (SELECT k, x FROM t) GROUP BY k`.
Windows over all rows can't be answered, since the place of each depends on all others; quantiles
can. Which one it is `Selection` tells. Rows without a value have places as well, the last ones;
where that can't be written, these are not to be there (`Quantile.all_rows`).

WHERE on places selects rows of which nothing but values is asked: `SELECT x … WHERE place = CEIL(n
/ 2)` is `SELECT QUANTILE_DISC(x, 0.5) …`. A SELECT in which anything else needs places stays as it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sqlglot import exp

from dpsql.schema.names import folded
from dpsql.sql.binding.expressions import Expr, has_aggregate, is_aggregate, meant
from dpsql.sql.ranked.places import Leaf, Pick, PlaceKind, UnreadableError, selection
from dpsql.sql.ranked.rows import (
    Level,
    NumberedRows,
    Ranked,
    conjuncts,
    is_constant,
    levels_of,
    query_named,
    rebuilt,
    tables_of,
    text_of,
    with_windows,
)
from dpsql.sql.text.parse import Parsed
from dpsql.sql.text.spans import SourceText

_PICKS: dict[type[Expr], Pick] = {
    exp.Min: Pick.FIRST,
    exp.Max: Pick.LAST,
    exp.Avg: Pick.EACH,
    exp.AnyValue: Pick.EACH,
}
_TURNED = {Pick.FIRST: Pick.LAST, Pick.LAST: Pick.FIRST, Pick.EACH: Pick.EACH}
_CLAUSES = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "distinct", "with_"}
)
"""The parts that a SELECT over numbered rows may have."""


IsPublic = Callable[[tuple[str, ...]], bool]
"""Whether a name after FROM, as its parts, is a public table's."""


def with_quantiles(parsed: Parsed, is_public: IsPublic) -> Parsed | None:
    """Write all quantiles of a statement that are told by places; None if there are none.

    Over public tables places are answered as they are.
    """
    whole, written = exp.Subquery(this=parsed.query.copy()), False
    while sum(_write(one, parsed.source, is_public) for one in list(whole.find_all(exp.Select))):
        written = True
    if not written:
        return None
    query: exp.Query = whole.this
    _drop_unused(query)
    return Parsed(query.copy(), parsed.source, parsed.weight)


def _write(select: exp.Select, source: SourceText, is_public: IsPublic) -> bool:
    """Write a SELECT over numbered rows without numbers; return whether it is one."""
    alone = with_windows(select)
    if alone is None:
        return _write_alone(select, source, is_public)
    select.replace(alone)
    written = _write_alone(alone, source, is_public)
    if not written:
        alone.replace(select)
    return written


def _write_alone(select: exp.Select, source: SourceText, is_public: IsPublic) -> bool:
    levels = levels_of(select)
    if not any(level.select.find(exp.Window) for level in levels):
        return False
    try:
        if all(map(is_public, tables_of(levels[-1].select))):
            return False
        clauses = _OverNumbered(select, levels, source).clauses()
    except UnreadableError:
        return False
    for key, value in clauses.items():
        select.set(key, value)
    return True


def _drop_unused(query: exp.Query) -> None:
    """Take away the CTEs with windows that no name means any more."""
    while True:
        named = {id(query_named(table)) for table in query.find_all(exp.Table)}
        ctes = list(query.find_all(exp.CTE))
        unused = [cte for cte in ctes if id(cte) not in named and cte.find(exp.Window)]
        if not unused:
            return
        for cte in unused:
            clause = cte.parent
            cte.pop()
            if isinstance(clause, exp.With) and not clause.expressions:
                clause.pop()


@dataclass(frozen=True, slots=True)
class _Picked:
    """A value that is picked among the rows of each group."""

    value: Expr
    condition: Expr
    """The rows of which it is taken, over the innermost columns."""
    pick: Pick
    sentinel: Expr | None = None
    """The value in place of those of all others."""


class _OverNumbered:
    """A SELECT over rows that are numbered.

    Args:
        select: the SELECT.
        levels: the queries that number the rows.
        source: the statement's text.
    """

    def __init__(self, select: exp.Select, levels: tuple[Level, ...], source: SourceText) -> None:
        self._select, self._source = select, source
        self._rows = NumberedRows(levels)
        self._partitions: set[frozenset[str]] = set()
        """By what the rows are told apart that have places among each other."""
        where = select.args.get("where")
        parts = [] if where is None else conjuncts(where.this)
        self._placed = [self._rows.expanded(p) for p in parts if self._rows.is_ranked(p)]
        self._kept = [part for part in parts if not self._rows.is_ranked(part)]
        self._names = {folded(i.alias) for i in select.expressions if isinstance(i, exp.Alias)}

    def clauses(self) -> dict[str, object]:
        """Return the parts of the SELECT that become others.

        Raises:
            UnreadableError: something else needs places.
        """
        select = self._select
        if any(value for key, value in select.args.items() if key not in _CLAUSES):
            raise UnreadableError
        grouped = select.args.get("group") or any(map(has_aggregate, select.expressions))
        parts = self._groups() if grouped else self._chosen_rows()
        if len(self._partitions) != 1:
            raise UnreadableError
        kept = self._kept_where(*self._partitions)
        return {**parts, "where": kept, "from_": exp.From(this=self._rows.without_ranks())}

    def _kept_where(self, partition: frozenset[str]) -> exp.Where | None:
        """Return the conditions on what has places among each other: on all of it, or on none."""
        for part in self._kept:
            told = (self._rows.key(column) for column in part.find_all(exp.Column))
            if part.find(exp.Query) or not partition.issuperset(told):
                raise UnreadableError
        return exp.Where(this=exp.and_(*self._kept, copy=True)) if self._kept else None

    # ── Groups, of whose rows values are picked ────────────────────────────────────────────

    def _groups(self) -> dict[str, object]:
        select = self._select
        group, having, order = (select.args.get(key) for key in ("group", "having", "order"))
        items = [_named(item, self._grouped(item)) for item in select.expressions]
        parts: dict[str, object] = {"expressions": items}
        if having is not None:
            parts["having"] = exp.Having(this=self._grouped(having.this))
        if order is not None:
            parts["order"] = exp.Order(expressions=[self._sorted(o) for o in order.expressions])
        nodes, keys = self._keys(group)
        if self._partitions != {keys}:
            raise UnreadableError
        if group is not None and not group.args.get("all"):
            parts["group"] = exp.Group(expressions=[n.copy() for n in nodes]) if nodes else None
        return parts

    def _keys(self, group: exp.Group | None) -> tuple[list[Expr], frozenset[str]]:
        """Return what rows are grouped by, but for how many there are in each group."""
        if group is None:
            return [], frozenset()
        if group.args.get("all"):
            written = [i.unalias() for i in self._select.expressions if not has_aggregate(i)]
        elif any(value for key, value in group.args.items() if key != "expressions"):
            raise UnreadableError
        else:
            written = list(group.expressions)
        kept = [node for node in written if not self._is_number(self._key(node))]
        meanings = list(map(self._key, kept))
        if any(self._rows.is_ranked(node) for node in meanings):
            raise UnreadableError
        return kept, self._rows.keys(meanings)

    def _key(self, node: Expr) -> Expr:
        """Return what an item of GROUP BY means: a column comes before an alias."""
        if isinstance(node.unnest(), exp.Column):
            with suppress(UnreadableError):
                self._rows.expanded(node)
                return node
        return meant(node, self._select)

    def _sorted(self, node: Expr) -> Expr:
        """Write an item of ORDER BY: numbers and aliases stand for items of the list."""
        of = node.this.unnest()
        named = isinstance(of, exp.Column) and not of.table and folded(of.name) in self._names
        changed = of.copy() if named or isinstance(of, exp.Literal) else self._grouped(of)
        return type(node)(**{**node.copy().args, "this": changed})

    def _grouped(self, node: Expr) -> Expr:
        """Write an expression over groups."""
        if is_aggregate(node):
            return self._aggregate(node)
        if isinstance(node, exp.Column | exp.Query | exp.Window):
            if isinstance(node, exp.Column | exp.Query) and self._is_number(node):
                return _count()
            if self._rows.is_ranked(node):
                raise UnreadableError
            return node.copy()
        return rebuilt(node, self._grouped)

    def _is_number(self, node: Expr) -> bool:
        """Whether an expression is how many rows there are in each group."""
        ranked = self._rows.ranked(self._rows.expanded(node))
        if ranked is None or ranked.leaf.counted is not PlaceKind.NUMBER or ranked.of:
            return False
        self._partitions.add(ranked.partition)
        return True

    def _aggregate(self, node: Expr) -> Expr:
        of = node.this if isinstance(node, exp.Filter) else node
        pick = _PICKS.get(type(of))
        if pick is None or any(value for key, value in of.args.items() if key != "this"):
            return self._without_places(node)
        if not isinstance(node, exp.Filter) and self._is_number(of.this):
            return _count()
        picked = self._picked(node, of, pick)
        return self._without_places(node) if picked is None else self._quantile(picked, node)

    def _without_places(self, node: Expr) -> Expr:
        if self._placed or self._rows.is_ranked(node):
            raise UnreadableError
        return node.copy()

    def _picked(self, node: Expr, of: Expr, pick: Pick) -> _Picked | None:
        """Return what an aggregate picks; None if it is an aggregate of all rows."""
        conditions, value, sentinel = list(self._placed), of.this.unnest(), None
        if isinstance(node, exp.Filter):
            conditions.append(self._rows.expanded(node.expression.this))
        if isinstance(value, exp.Case | exp.If) and self._rows.is_ranked(value):
            condition, value, sentinel = self._either(value)
            conditions.append(condition)
        if not any(self._rows.ranked(part) for c in conditions for part in c.find_all(exp.Var)):
            return None
        return _Picked(value, exp.and_(*conditions, copy=True), pick, sentinel)

    def _either(self, node: Expr) -> tuple[Expr, Expr, Expr | None]:
        """Split CASE WHEN … THEN constant ELSE value END: when it's the value, and both."""
        whens = [node] if isinstance(node, exp.If) else node.args["ifs"]
        compares = isinstance(node, exp.Case) and node.this is not None
        if len(whens) != 1 or compares:
            raise UnreadableError
        condition = self._rows.expanded(whens[0].this)
        yes, no = whens[0].args["true"].unnest(), node.args.get("false") or node.args.get("default")
        other = exp.Null() if no is None else no.unnest()
        if is_constant(self._rows.expanded(yes)):
            condition, yes, other = exp.Not(this=exp.Paren(this=condition)), other, yes
        if not is_constant(self._rows.expanded(other)):
            raise UnreadableError
        return condition, yes, None if isinstance(other, exp.Null) else other

    # ── Rows at places ─────────────────────────────────────────────────────────────────────

    def _chosen_rows(self) -> dict[str, object]:
        """Write a query of the rows at a place of each group as one of groups."""
        if not self._placed or self._select.args.get("having"):
            raise UnreadableError
        limit, order = (self._select.args.get(key) for key in ("limit", "order"))
        pick = Pick.EACH if limit is None else self._first(limit, order)
        condition = exp.and_(*self._placed, copy=True)

        def changed(node: Expr) -> Expr:
            if isinstance(node, exp.Query | exp.Window) or is_aggregate(node):
                raise UnreadableError
            if not isinstance(node, exp.Column):
                return rebuilt(node, changed)
            if self._rows.is_ranked(node):
                return self._grouped(node)
            if self._rows.key(node) in self._partition_of(condition):
                return node.copy()
            return self._quantile(_Picked(node, condition, pick), node)

        items = [_named(item, changed(item)) for item in self._select.expressions]
        keys = self._columns(self._partition_of(condition))
        limited = keys and limit is not None
        if limited or not any(item.find(*_QUANTILES) for item in items):
            raise UnreadableError
        parts: dict[str, object] = {"expressions": items, "distinct": None, "limit": None}
        parts["group"] = exp.Group(expressions=keys) if keys else None
        sorted_by = order.expressions if order is not None and limit is None else []
        named_only = [o for o in sorted_by if folded(o.this.unnest().name) in self._names]
        if len(named_only) != len(sorted_by):
            raise UnreadableError
        parts["order"] = exp.Order(expressions=[o.copy() for o in sorted_by]) if sorted_by else None
        return parts

    def _first(self, limit: Expr, order: Expr | None) -> Pick:
        """Return which row LIMIT 1 leaves."""
        single = isinstance(limit, exp.Limit) and limit.expression == exp.Literal.number(1)
        if not single or order is None or limit.args.get("offset"):
            raise UnreadableError
        by = order.expressions[0]
        place = self._rows.expanded(by.this)
        ranked = self._rows.ranked(place)
        word = next(filter(None, map(self._rows.ranked, self._words())), None)
        if word is None or (text_of(place) if ranked is None else ranked.order) != word.order:
            raise UnreadableError
        from_last = bool(by.args.get("desc")) ^ (ranked is None and word.descending)
        return Pick.LAST if from_last else Pick.FIRST

    def _words(self) -> Iterator[Expr]:
        """Yield the places in WHERE."""
        for condition in self._placed:
            for part in condition.find_all(exp.Var):
                ranked = self._rows.ranked(part)
                if ranked is not None and ranked.leaf.counted is not PlaceKind.NUMBER:
                    yield part

    def _partition_of(self, condition: Expr) -> frozenset[str]:
        ranked = next(filter(None, map(self._rows.ranked, condition.find_all(exp.Var))), None)
        return frozenset() if ranked is None else ranked.partition

    def _columns(self, partition: frozenset[str]) -> list[Expr]:
        """Return columns to group by."""
        known = {
            self._rows.key(column): column.copy()
            for item in self._select.expressions
            for column in item.find_all(exp.Column)
        }
        if not partition <= known.keys():
            raise UnreadableError
        return [known[key] for key in sorted(partition)]

    # ── Quantiles ──────────────────────────────────────────────────────────────────────────

    def _quantile(self, picked: _Picked, at: Expr) -> Expr:
        """Write a value at a place as a quantile.

        Raises:
            UnreadableError: it is none.
        """
        words = map(self._rows.ranked, picked.condition.find_all(exp.Var))
        ranked = list(dict.fromkeys(one for one in words if one is not None))
        places = [one for one in ranked if one.leaf.counted is not PlaceKind.NUMBER]
        orders = {(one.order, one.descending) for one in places}
        self._partitions |= {one.partition for one in ranked}
        if len(orders) != 1:
            raise UnreadableError
        ((order, descending),) = orders
        if not _rises_with(self._rows.expanded(picked.value), order):
            raise UnreadableError
        quantile = self._written(picked, ranked, order, descending=descending)
        span = self._source.node(at)
        quantile.meta.update(start=span.start, end=span.end - 1)
        return quantile

    def _written(
        self, picked: _Picked, ranked: Sequence[Ranked], order: str, *, descending: bool
    ) -> Expr:
        chosen = selection(picked.condition, self._leaf)
        pick = _TURNED[picked.pick] if descending else picked.pick
        share = chosen.share(pick)
        if share is None or (picked.pick is Pick.EACH and picked.sentinel is not None):
            raise UnreadableError
        all_rows, value = _all_rows(ranked, order), picked.value.copy()
        all_rows = all_rows and not _always_known(self._rows.expanded(value))
        if picked.sentinel is not None:
            plain = all_rows and picked.pick is Pick.FIRST and not descending
            value = _least(value, picked.sentinel.copy(), picked.pick, nulls=plain)
            all_rows = all_rows and not plain
        level = exp.Literal.number(f"{float(1 - share if descending else share):.12g}")
        continuous = picked.pick is Pick.EACH and not chosen.always_one
        if continuous and chosen.in_the_middle:
            quantile: Expr = exp.Median(this=value)
        else:
            kind = exp.PercentileCont if continuous else exp.PercentileDisc
            quantile = kind(this=value, expression=level)
        quantile.meta["all_rows"] = all_rows
        return quantile

    def _leaf(self, node: Expr) -> Leaf | None:
        ranked = self._rows.ranked(node)
        return None if ranked is None else ranked.leaf


_QUANTILES = (exp.Median, exp.PercentileCont, exp.PercentileDisc)


def _all_rows(ranked: Sequence[Ranked], order: str) -> bool:
    """Whether rows without a value are among those whose share is meant.

    Raises:
        UnreadableError: those in which something else has a value are.
    """
    counted = {one.of for one in ranked if one.leaf.counted is PlaceKind.NUMBER}
    if not counted <= {"", order}:
        raise UnreadableError
    shares = [one for one in ranked if one.leaf.counted is not PlaceKind.PLACE and not one.of]
    return bool(shares)


def _always_known(node: Expr) -> bool:
    """Whether an expression has a value in all rows, whatever columns have."""
    while isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        node = node.this.unnest()
    return isinstance(node, exp.Count)


def _least(value: Expr, constant: Expr, pick: Pick, *, nulls: bool) -> Expr:
    """Write the smaller of a value and a constant, or for MAX the larger one."""
    if nulls:  # LEAST is the constant for NULL, which is sorted as the last one
        return exp.Least(this=value, expressions=[constant], ignore_nulls=True)
    beyond = exp.GT if pick is Pick.FIRST else exp.LT
    when = exp.If(this=beyond(this=value.copy(), expression=constant.copy()), true=constant)
    return exp.Case(ifs=[when], default=value)


def _count() -> Expr:
    return exp.Count(this=exp.Star(), big_int=True)


def _named(item: Expr, value: Expr) -> Expr:
    """Return an item of the list as another one with its name."""
    if isinstance(value, exp.Alias | exp.Column) or not isinstance(item, exp.Column):
        return value
    return exp.Alias(this=value, alias=item.this.copy())


def _rises_with(node: Expr, order: str) -> bool:
    """Whether a value never falls where another rises, so that its quantiles go by that order."""
    while text_of(node) != order:
        inner = _inner(node.unnest())
        if inner is None:
            return False
        node = inner
    return True


def _inner(node: Expr) -> Expr | None:
    """Return a part with which an expression rises, or stays as it is."""
    parts = [part for part in node.iter_expressions() if not isinstance(part, exp.DataType)]
    varying = [part for part in parts if not is_constant(part)]
    if not isinstance(node, _RISING) or len(varying) != 1:
        return None
    (inner,) = varying
    if isinstance(node, exp.Cast) and node.to.this in exp.DataType.TEXT_TYPES:
        return None
    if isinstance(node, exp.Sub | exp.Div | exp.DateDiff) and inner is not node.this:
        return None
    factors = [part for part in parts if part is not inner]
    scaled = isinstance(node, exp.Mul | exp.Div)
    return inner if not scaled or all(map(_is_positive, factors)) else None


_ROUNDED = (exp.Floor, exp.Ceil, exp.Round, exp.Trunc, exp.Year)
_RISING = (exp.Cast, exp.DateDiff, exp.Add, exp.Sub, exp.Mul, exp.Div, *_ROUNDED)


def _is_positive(node: Expr) -> bool:
    inner = node.unnest()
    return isinstance(inner, exp.Literal) and not inner.is_string and float(inner.name) > 0
