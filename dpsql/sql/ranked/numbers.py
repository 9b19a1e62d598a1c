"""Numbers of rows from a query that is joined, as windows over the rows themselves.

    FROM r JOIN (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS s ON r.k = s.k

is `FROM (SELECT *, COUNT(*) OVER (PARTITION BY k) AS n FROM r) AS r WHERE k IS NOT NULL`, if the
rows that are counted are those of r. Without keys it is `COUNT(*) OVER ()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.ranked.places import UnreadableError
from dpsql.sql.ranked.rows import (
    NumberedRows,
    counts_rows,
    level_of,
    levels_from,
    levels_of,
    rows_of,
)

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
        own = table == self.alias or (not table and name in self.numbers and rows != self.alias)
        return name if known and own else None


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
        found = self._select.copy()
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
        found.set("joins", None)
        found.set("where", exp.Where(this=exp.and_(*left, copy=True)) if left else None)
        self._rename(found, matched)
        rows = exp.Subquery(this=counted, alias=exp.TableAlias(this=alias))
        found.set("from_", exp.From(this=rows))
        return found

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
                own = folded(column.table) == self._alias
                if own and self._rows.key(column) == total.keys[name]:
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
