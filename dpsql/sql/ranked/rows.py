"""Rows that are numbered: queries over all rows of another, and what each column is.

    SELECT … FROM (SELECT x, row_number() OVER (ORDER BY x) AS place, COUNT(*) OVER () AS n
                   FROM t WHERE …)

A query that only names and computes columns has as many rows as the one that it is over, so that
windows look at the same rows in whichever of such a chain they stand. The same rows are counted by
`(SELECT COUNT(*) FROM t WHERE …)`.

A number of rows from a query that is joined is a window over the rows themselves:

    FROM r JOIN (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS s ON r.k = s.k

is `FROM (SELECT *, COUNT(*) OVER (PARTITION BY k) AS n FROM r) AS r WHERE k IS NOT NULL`, if the
rows that are counted are those of r. Without keys it is `COUNT(*) OVER ()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import Expr, has_aggregate, is_star, with_named, with_parts
from dpsql.sql.ranked.places import Leaf, PlaceKind, UnreadableError

_RANKS: dict[type[Expr], PlaceKind] = {
    exp.RowNumber: PlaceKind.PLACE,
    exp.Rank: PlaceKind.RANK,
    exp.PercentRank: PlaceKind.PERCENT_RANK,
    exp.CumeDist: PlaceKind.CUME_DIST,
    exp.Ntile: PlaceKind.NTILE,
}
_CLAUSES = ("from_", "joins", "where", "group", "having")
"""The parts of a query that tell which rows it has."""
_KNOWN = {*_CLAUSES, "expressions", "order", "with_", "windows"}
_NUMBER = Leaf(PlaceKind.NUMBER)
_MOST_PARTS = 100
"""Into which NTILE may divide rows."""
_MOST_STEPS = 10_000
"""Expressions of one SELECT that are read: each query around another may use its columns twice."""
_MOST_NAMES = 1000
"""Queries that are written in place of their names, for the same reason."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A window over rows that tells where a row stands, or how many there are."""

    leaf: Leaf
    partition: frozenset[str]
    order: str = ""
    """The first expression that the rows are sorted by."""
    descending: bool = False
    of: str = ""
    """An expression, if only rows are counted in which it has a value."""


@dataclass(frozen=True, slots=True)
class Level:
    """A query whose windows look at the rows in question."""

    select: exp.Select
    alias: str
    columns: tuple[str, ...]
    """Names that are given to its first columns."""

    def items(self) -> Iterator[tuple[str, Expr]]:
        """Yield the name of each column, and what it is."""
        for i, item in enumerate(self.select.expressions):
            given = self.columns[i] if i < len(self.columns) else item.alias_or_name
            yield given, item.unalias()


@dataclass(slots=True)
class NumberedRows:
    """The queries between a query and its rows.

    Expressions are read as over the innermost: each window that numbers rows is a word in them.
    """

    levels: tuple[Level, ...]
    _words: dict[str, Ranked] = field(default_factory=dict)
    _left: int = _MOST_STEPS

    def expanded(self, node: Expr, depth: int = 0) -> Expr:
        """Write an expression over the columns of a level as one over those of the innermost.

        Raises:
            UnreadableError: it has columns of which that isn't known.
        """
        self._left -= 1
        if self._left < 0:
            raise UnreadableError
        node = node.unnest()
        if isinstance(node, exp.Column):
            return self._column(node, depth)
        if isinstance(node, exp.Window):
            return self._window(node, depth)
        if isinstance(node, exp.Query):
            return self._counted_again(node)
        return self._rebuilt(node, depth)

    def key(self, node: Expr, depth: int = 0) -> str:
        """Return a text that two expressions have if they are the same."""
        return text_of(self.expanded(node, depth))

    def ranked(self, node: Expr) -> Ranked | None:
        """Return the window that a part of an expanded expression stands for."""
        return self._words.get(node.name) if isinstance(node, exp.Var) else None

    def is_ranked(self, node: Expr, depth: int = 0) -> bool:
        """Whether an expression tells where a row stands, or how many rows there are."""
        return any(self.ranked(part) for part in self.expanded(node, depth).find_all(exp.Var))

    def without_ranks(self) -> exp.Subquery:
        """Return the queries without the columns that tell where rows stand."""
        made: exp.Subquery | None = None
        for depth in reversed(range(len(self.levels))):
            level, select = self.levels[depth], self.levels[depth].select.copy()
            select.set("expressions", list(self._kept(depth)))
            select.set("order", None)
            if made is not None:
                select.args["from_"].set("this", made)
            alias = exp.TableAlias(this=exp.to_identifier(level.alias, quoted=True))
            made = exp.Subquery(this=select, alias=alias if level.alias else None)
        if made is None or any(not level.select.expressions for level in self.levels):
            raise UnreadableError
        return made

    def _kept(self, depth: int) -> Iterator[Expr]:
        level = self.levels[depth]
        for i, (name, value) in enumerate(level.items()):
            if is_star(value):
                yield value.copy()
            elif not self.is_ranked(value, depth + 1):
                named = exp.Alias(this=value.copy(), alias=exp.to_identifier(name, quoted=True))
                yield named if i < len(level.columns) else level.select.expressions[i].copy()

    def _rebuilt(self, node: Expr, depth: int) -> Expr:
        return rebuilt(node, lambda part: self.expanded(part, depth))

    # ── Columns ────────────────────────────────────────────────────────────────────────────

    def _column(self, node: exp.Column, depth: int) -> Expr:
        if depth == len(self.levels):
            plain = not self.levels[-1].select.args.get("joins")
            table = None if plain or not node.table else folded(node.table)
            return exp.column(exp.to_identifier(folded(node.name), quoted=True), table=table)
        level = self.levels[depth]
        if node.table and folded(node.table) != folded(level.alias):
            raise UnreadableError
        values = [value for name, value in level.items() if folded(name) == folded(node.name)]
        if len(values) == 1 and not is_star(values[0]):
            return self.expanded(values[0], depth + 1)
        stars = [value for _, value in level.items() if is_star(value)]
        if values or len(stars) != 1 or not _is_bare(stars[0]):
            raise UnreadableError
        return self._column(exp.column(node.this.copy()), depth + 1)

    # ── Windows, and counts of the same rows ───────────────────────────────────────────────

    def _window(self, node: exp.Window, depth: int) -> Expr:
        if not depth:
            raise UnreadableError  # its rows may be fewer
        window = with_named(node, self.levels[depth - 1].select.args.get("windows") or [])
        if window is None:
            raise UnreadableError
        ranked = self._rank(window, depth)
        return self._rebuilt(window, depth) if ranked is None else self._word(ranked)

    def _word(self, ranked: Ranked) -> exp.Var:
        known = next((word for word, one in self._words.items() if one == ranked), None)
        word = known or f"ranked {len(self._words)}"
        self._words[word] = ranked
        return exp.Var(this=word)

    def _rank(self, window: exp.Window, depth: int) -> Ranked | None:
        partition = self.keys(window.args.get("partition_by") or [], depth)
        order, spec, of = window.args.get("order"), window.args.get("spec"), window.this
        if order is None:
            counted = None if spec is not None else self._counted(of, depth)
            if counted is None:
                return None
            return Ranked(_NUMBER, partition, of=counted)
        first = self._first(order, partition, depth)
        kind, parts = _RANKS.get(type(of)), _parts(of) if isinstance(of, exp.Ntile) else 1
        if counts_rows(of):
            kind = (
                PlaceKind.UP_TO if spec is None else PlaceKind.PLACE if _counts_up(spec) else None
            )
        elif spec is not None:
            return None
        if first is None or kind is None or not parts:
            return None
        return Ranked(Leaf(kind, parts), partition, *first)

    def keys(self, nodes: list[Expr], depth: int = 0) -> frozenset[str]:
        """Return what rows are grouped by, without constants."""
        expanded = [self.expanded(node, depth) for node in nodes]
        return frozenset(text_of(node) for node in expanded if not is_constant(node))

    def _counted(self, node: Expr, depth: int) -> str | None:
        """Return in which rows a window counts values, "" if all; None if it does not count."""
        if counts_rows(node):
            return ""
        if isinstance(node, exp.Max):
            ranked = self.ranked(self.expanded(node.this, depth))
            last = ranked is not None and ranked.leaf.counted is PlaceKind.PLACE
            return "" if last else None
        plain = isinstance(node, exp.Count) and not isinstance(node.this, exp.Distinct)
        return self.key(node.this, depth) if plain and not node.expressions else None

    def _first(
        self, order: exp.Order, partition: frozenset[str], depth: int
    ) -> tuple[str, bool] | None:
        """Return what rows of a partition are sorted by first, and whether from its last value."""
        for part in order.expressions:
            node = self.expanded(part.this, depth)
            if text_of(node) not in partition and not is_constant(node):
                nulls_last = not part.args.get("nulls_first")
                return (text_of(node), bool(part.args.get("desc"))) if nulls_last else None
        return None

    def _counted_again(self, query: exp.Query) -> Expr:
        """Read a subquery that counts the same rows."""
        select = query.unnest() if isinstance(query, exp.Subquery) else query
        count = _count(select) if isinstance(select, exp.Select) else None
        if count is None or not isinstance(select, exp.Select):
            return query.copy()
        self._left -= _MOST_STEPS // 100
        if isinstance(count.this, exp.Distinct):
            groups = self._are_groups(select, count.this)
            return self._word(Ranked(_NUMBER, frozenset())) if groups else query.copy()
        if rows_of(select) != rows_of(self.levels[-1].select):
            return query.copy()
        of = ""
        if not counts_rows(count):
            inner = NumberedRows(levels_of(select))
            of = inner.key(count.this) if inner.levels else ""
            if not of:
                return query.copy()
        return self._word(Ranked(_NUMBER, frozenset(), of=of))

    def _are_groups(self, select: exp.Select, values: exp.Distinct) -> bool:
        """Whether a query counts the values by which the rows here are grouped.

        These are as many as there are groups, or one less, if rows without a value are one.
        """
        own, depth = self.levels[-1].select, len(self.levels)
        group = own.args.get("group")
        grouped = [] if group is None or own.args.get("having") else group.expressions
        if rows_of(select, grouped=False) != rows_of(own, grouped=False) or len(grouped) != 1:
            return False
        counted = NumberedRows((Level(select, "", ()),)).keys(values.expressions, 1)
        return bool(counted) and self.keys(grouped, depth) == counted


# ── Queries after FROM, and which rows they have ─────────────────────────────────────────────────


def levels_of(select: exp.Select) -> tuple[Level, ...]:
    """Return the queries over whose rows a query is, from the outside in."""
    clause = select.args.get("from_")
    return () if clause is None else levels_from(clause.this)


def levels_from(item: Expr | None) -> tuple[Level, ...]:
    """Return the query that an item after FROM is, and those over whose rows that is."""
    levels: list[Level] = []
    while item is not None:
        level = level_of(item)
        if level is None or not _is_plain(level.select):
            break
        levels.append(level)
        clause = level.select.args.get("from_") if _is_passing(level.select) else None
        item = None if clause is None else clause.this
    return tuple(levels)


def rows_of(select: exp.Select, *, grouped: bool = True) -> str:
    """Return a text that two queries have if they have the same rows.

    Args:
        select: the query.
        grouped: whether its rows are groups, if it has any, and not those that these are of.
    """
    clause = select.args.get("from_")
    level = level_of(clause.this) if clause is not None else None
    clauses = _CLAUSES if grouped else ("from_", "joins", "where")
    chooses = any(select.args.get(key) for key in clauses[1:])
    if level is not None and _is_plain(level.select) and not chooses:
        return rows_of(level.select)
    name = clause.this.alias_or_name if clause is not None else ""
    texts: list[str] = []
    for key in _CLAUSES:
        value = select.args.get(key) if key in clauses else None
        for part in value if isinstance(value, list) else [value]:
            plain = not select.args.get("joins")
            texts.append(_told(part, name, plain=plain) if part is not None else "")
    return "\n".join(texts)


def _told(part: Expr, name: str, *, plain: bool) -> str:
    """Write a clause with queries in place of their names; if it can, with bare columns."""
    made = _written_out(part)
    if plain:
        for column in made.find_all(exp.Column):
            if folded(column.table) == folded(name):
                column.set("table", None)
        if isinstance(made, exp.From):
            made.this.set("alias", None)
    return text_of(made)


def _written_out(part: Expr, left: Iterator[int] | None = None) -> Expr:
    made, left = part.copy(), iter(range(_MOST_NAMES)) if left is None else left
    pairs = zip(list(made.find_all(exp.Table)), list(part.find_all(exp.Table)), strict=True)
    for table, original in pairs:
        cte = query_named(original)
        if cte is not None:
            if next(left, None) is None:
                raise UnreadableError
            alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
            table.replace(exp.Subquery(this=_written_out(cte.this, left), alias=alias))
    return made


def tables_of(select: exp.Select) -> list[tuple[str, ...]]:
    """Return the names of the tables whose rows a query has, as their parts."""
    tables = _written_out(select).find_all(exp.Table)
    return [tuple(part.name for part in table.parts) for table in tables]


def query_named(table: exp.Table) -> exp.CTE | None:
    """Return the CTE that a name after FROM means."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return None
    node: Expr | None = table
    while node is not None:
        known = [node.args["with_"]] if node.args.get("with_") is not None else []
        ctes: list[exp.CTE] = [cte for clause in known for cte in clause.expressions]
        if isinstance(node.parent, exp.With):  # a CTE sees those before it
            before = node.parent.expressions
            ctes, node = before[: [cte is node for cte in before].index(True)], node.parent
        named = [cte for cte in ctes if folded(cte.alias) == folded(table.name)]
        if named:
            return named[0]
        node = node.parent if not isinstance(node, exp.With) else _above(node)
    return None


def _above(clause: exp.With) -> Expr | None:
    """Return what is around the query that a WITH belongs to."""
    return clause.parent.parent if clause.parent is not None else None


def level_of(item: Expr) -> Level | None:
    """Return the SELECT that an item after FROM is."""
    alias = item.args.get("alias")
    given = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if any(value for key, value in item.args.items() if key not in {"this", "alias"}):
        return None
    inner: Expr | None = item
    if isinstance(item, exp.Table):
        inner = query_named(item)
        given = given or (inner.args["alias"].args.get("columns") if inner is not None else None)
    if not isinstance(inner, exp.Subquery | exp.CTE) or not isinstance(inner.this, exp.Select):
        return None
    return Level(inner.this, item.alias_or_name, tuple(column.name for column in given or []))


def _is_plain(select: exp.Select) -> bool:
    """Whether its windows look at the same rows of which it has one each."""
    values = [item.unalias() for item in select.expressions]
    spread = any(value.find(exp.Unnest, exp.Explode) for value in values)
    single = not select.args.get("group") and any(has_aggregate(v, windows=False) for v in values)
    return not (spread or single or any(v for k, v in select.args.items() if k not in _KNOWN))


def _is_passing(select: exp.Select) -> bool:
    """Whether a query has the rows of the first item after its FROM."""
    return not any(select.args.get(key) for key in _CLAUSES[1:]) and _is_plain(select)


def _count(select: exp.Select) -> Expr | None:
    """Return the COUNT of a query that has no other value."""
    if len(select.expressions) != 1:
        return None
    others = [key for key in ("group", "having") if select.args.get(key)]
    others += [key for key, value in select.args.items() if value and key not in _KNOWN]
    value = select.expressions[0].unalias()
    return value if isinstance(value, exp.Count) and not value.expressions and not others else None


def counts_rows(node: Expr) -> bool:
    """Whether an aggregate counts rows, whatever is in them."""
    of = node.this
    if isinstance(node, exp.Sum):
        return bool(of == exp.Literal.number(1))
    return isinstance(node, exp.Count) and (is_star(of) or isinstance(of, exp.Literal))


def _counts_up(spec: Expr) -> bool:
    """Whether a frame reaches from the first row to the row itself."""
    start, end = spec.args.get("start"), spec.args.get("end")
    up = start == "UNBOUNDED" and end in {None, "CURRENT ROW"}
    return up and capitals(spec.text("kind")) == "ROWS" and not spec.args.get("exclude")


def _parts(node: exp.Ntile) -> int:
    """Return into how many parts NTILE divides rows; 0 if that isn't known."""
    of = node.this
    known = isinstance(of, exp.Literal) and not of.is_string and of.name.isdecimal()
    return int(of.name) if known and 0 < int(of.name) <= _MOST_PARTS else 0


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return a copy of an expression whose parts, but for names and types, were changed."""
    kept = (exp.DataType, exp.Identifier)
    return with_parts(node, lambda part: part.copy() if isinstance(part, kept) else change(part))


def is_constant(node: Expr) -> bool:
    """Whether an expanded expression is the same for all rows."""
    return node.find(exp.Column, exp.Query, exp.Window, exp.Var, exp.AggFunc) is None


def _is_bare(star: Expr) -> bool:
    inner = star.this if isinstance(star, exp.Column) else star
    return not any(inner.args.values())


def text_of(node: Expr) -> str:
    """Write an expression so that what differs in cases and parentheses alone is equal."""
    made: Expr = exp.Paren(this=node.copy())
    for name in made.find_all(exp.Identifier):
        name.set("this", folded(name.name))
    for paren in list(made.find_all(exp.Paren)):
        if paren is not made:
            paren.replace(paren.this)
    return str(made.this.sql(dialect="duckdb", comments=False, identify=True))


# ── Numbers of rows from a query that is joined ──


_INNER = frozenset({"", "INNER", "CROSS"})
_GROUPED = frozenset({"expressions", "from_", "joins", "where", "group", "order", "with_"})
"""The parts that a query of numbers of rows may have."""


@dataclass(frozen=True, slots=True)
class JoinedNumbers:
    """A query that counts rows: all of them, or those of each group."""

    alias: str
    keys: dict[str, str]
    """Its columns that are grouped by, and a text of each."""
    numbers: frozenset[str]

    def column(self, node: Expr, rows: str) -> str | None:
        """Return the name of a column if it is one of these, and not one of some other rows."""
        if not isinstance(node, exp.Column):
            return None
        name, table = folded(node.name), folded(node.table)
        known = name in self.keys or name in self.numbers
        is_here = table == self.alias or (not table and name in self.numbers and rows != self.alias)
        return name if known and is_here else None


def with_windows(select: exp.Select) -> exp.Select | None:
    """Write a SELECT from numbered rows and their numbers as one from rows alone; None if it isn't.

    The text of what is left is what was written, so it is read as that.
    """
    joins = select.args.get("joins") or []
    clause = select.args.get("from_")
    if not joins or clause is None or any(not _is_inner(join) for join in joins):
        return None
    items = [clause.this, *(join.this for join in joins)]
    numbered = [item for item in items if _is_numbered(item)]
    if len(numbered) != 1:
        return None
    try:
        return _WithNumbers(
            select, numbered[0], [i for i in items if i is not numbered[0]]
        ).written()
    except UnreadableError:
        return None


def _is_inner(join: exp.Join) -> bool:
    plain = not any(join.args.get(key) for key in ("side", "method"))
    return plain and capitals(join.kind or "") in _INNER


def _is_numbered(item: Expr) -> bool:
    return any(level.select.find(exp.Window) for level in levels_from(item))


class _WithNumbers:
    """Rows that are joined with how many of them there are."""

    def __init__(self, select: exp.Select, item: Expr, others: list[Expr]) -> None:
        self._select, self._item = select, item
        self._alias = folded(item.alias_or_name)
        self._levels = levels_from(item)
        self._rows = NumberedRows(self._levels)
        self._totals = [self._total(other) for other in others]

    def _total(self, item: Expr) -> JoinedNumbers:
        level = level_of(item)
        if level is None or not _is_grouped(level.select):
            raise UnreadableError
        query, group = level.select, level.select.args.get("group")
        if rows_of(query, grouped=False) != rows_of(self._levels[-1].select):
            raise UnreadableError
        inner = NumberedRows(levels_of(query) or (level,))
        depth = 0 if levels_of(query) else 1
        given = {folded(name): value for name, value in level.items()}
        numbers = frozenset(name for name, value in given.items() if counts_rows(value))
        keys = {n: inner.key(value, depth) for n, value in given.items() if n not in numbers}
        grouped = {inner.key(part, depth) for part in (group.expressions if group else [])}
        if not numbers or set(keys.values()) != grouped or len(numbers) + len(keys) != len(given):
            raise UnreadableError
        return JoinedNumbers(folded(item.alias_or_name), keys, numbers)

    def written(self) -> exp.Select:
        """Return the SELECT over the rows alone."""
        select = self._select.copy()
        left, matched = self._conditions()
        windows: list[Expr] = []
        for total in self._totals:
            columns = [matched[total.alias, key] for key in total.keys]
            for name in sorted(total.numbers):
                window = exp.Window(
                    this=exp.Count(this=exp.Star(), big_int=True),
                    partition_by=[column.copy() for column in columns],
                    over="OVER",
                )
                windows.append(exp.alias_(window, f"{total.alias} {name}", quoted=True))
            left += [_known(column) for column in columns]
        alias = exp.to_identifier(self._item.alias_or_name, quoted=True)
        counted = exp.Select(
            expressions=[exp.Star(), *windows], from_=exp.From(this=self._item.copy())
        )
        select.set("joins", None)
        select.set("where", exp.Where(this=exp.and_(*left, copy=True)) if left else None)
        self._rename(select, matched)
        rows = exp.Subquery(this=counted, alias=exp.TableAlias(this=alias))
        select.set("from_", exp.From(this=rows))
        return select

    def _rename(self, select: exp.Select, matched: dict[tuple[str, str], exp.Column]) -> None:
        """Take the columns of numbers of rows from the rows, under the names that they have."""
        select.set("from_", None)
        for item in list(select.expressions):
            if any(total.column(item, self._alias) for total in self._totals):
                item.replace(exp.Alias(this=item.copy(), alias=item.this.copy()))
        with_ = select.args.pop("with_", None)
        for column in list(select.find_all(exp.Column)):
            for total in self._totals:
                name = total.column(column, self._alias)
                if name in total.numbers:
                    column.set("this", exp.to_identifier(f"{total.alias} {name}", quoted=True))
                    column.set("table", None)
                elif name is not None:
                    column.replace(matched[total.alias, name].copy())
        select.set("with_", with_)

    def _conditions(self) -> tuple[list[Expr], dict[tuple[str, str], exp.Column]]:
        """Return the conditions that are left, and the column of the rows that each key equals."""
        matched: dict[tuple[str, str], exp.Column] = {}
        left: list[Expr] = []
        for condition, joining in self._parts():
            found = self._match(condition)
            if found is not None:
                matched[found[0]] = found[1]
            elif joining:
                raise UnreadableError
            else:
                left.append(condition)
        if {(total.alias, key) for total in self._totals for key in total.keys} != set(matched):
            raise UnreadableError
        return left, matched

    def _parts(self) -> Iterator[tuple[Expr, bool]]:
        """Yield all conditions, and whether each is one of a join."""
        for join in self._select.args.get("joins") or []:
            for name in join.args.get("using") or []:
                sides = [exp.column(name.name, table=alias) for alias in self._names()]
                if len(sides) != 2:
                    raise UnreadableError
                yield exp.EQ(this=sides[0], expression=sides[1]), True
            on = join.args.get("on")
            yield from ((part, True) for part in ([] if on is None else conjuncts(on)))
        where = self._select.args.get("where")
        yield from ((part, False) for part in ([] if where is None else conjuncts(where.this)))

    def _names(self) -> list[str]:
        return [self._item.alias_or_name, *(total.alias for total in self._totals)]

    def _match(self, node: Expr) -> tuple[tuple[str, str], exp.Column] | None:
        """Return the key that a comparison sets equal to a column of the rows, and that column."""
        if not isinstance(node, exp.EQ):
            return None
        sides = node.this.unnest(), node.expression.unnest()
        for key, column in (sides, sides[::-1]):
            for total in self._totals:
                name = total.column(key, self._alias)
                if name not in total.keys or not isinstance(column, exp.Column):
                    continue
                is_of_numbers = folded(column.table) == self._alias
                if is_of_numbers and self._rows.key(column) == total.keys[name]:
                    return (total.alias, name), column
        return None


def _is_grouped(select: exp.Select) -> bool:
    """Whether a SELECT does nothing but list groups of rows, and what is counted in them."""
    group = select.args.get("group")
    more = (k for k, v in group.args.items() if v and k != "expressions") if group else ()
    return not any(more) and not any(v and k not in _GROUPED for k, v in select.args.items())


def conjuncts(node: Expr) -> list[Expr]:
    """Return the parts of a chain of AND."""
    node = node.unnest()
    if isinstance(node, exp.And):
        return [part for side in (node.this, node.expression) for part in conjuncts(side)]
    return [node]


def _known(column: exp.Column) -> Expr:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))
