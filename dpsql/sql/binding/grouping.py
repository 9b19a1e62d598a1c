"""GROUP BY: which keys there are, and which tell the groups of each set; names in HAVING."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, combinations, product

from sqlglot import exp

from dpsql.errors import SqlError
from dpsql.hints import Hint, ask, instead, leave_out
from dpsql.schema.names import as_sql, folded, one_of
from dpsql.sql.binding.expressions import Expr, has_aggregate, is_aggregate, rebuild
from dpsql.sql.text.spans import SourceText

MAX_SETS = 256
"""Grouping sets of one statement; CUBE of 8 columns has as many."""

Sets = list[tuple[Expr, ...]]


def key_nodes(select: exp.Select, source: SourceText) -> dict[int, Expr]:
    """Return every expression that is grouped by, under the identity of its node.

    Numbers stand for items of the SELECT list, and ALL for those without aggregates: constants
    among these are the same in all groups.
    """
    found: dict[int, Expr] = {}
    for elements in _elements(select, source):
        for group in elements:
            for node in group:
                found[id(node)] = _meant(node, select, source)
    return found


def sets_of(
    select: exp.Select, source: SourceText, numbers: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """Return the grouping sets as tuples of key numbers; one empty set without GROUP BY.

    Args:
        select: the SELECT.
        source: its text.
        numbers: for the identity of every node that is grouped by, the number of its key; those
            of constants have none.

    Raises:
        SqlError: there are too many of them.
    """
    elements = _elements(select, source)
    count = 1
    for sets in elements:
        count *= len(sets)
    if count > MAX_SETS:
        raise source.error(
            source.clause("GROUP") or source.whole(),
            f"GROUP BY has {count:,} grouping sets, more than {MAX_SETS}.",
            "name the sets that you need: GROUPING SETS ((sex, age), (sex), ()).",
        )
    return tuple(
        tuple(dict.fromkeys(numbers[i] for g in chosen for i in map(id, g) if i in numbers))
        for chosen in product(*elements)
    )


def lists_values(select: exp.Select) -> bool:
    """Whether a SELECT without GROUP BY is DISTINCT, which is GROUP BY ALL without aggregates."""
    if select.args.get("group") is not None or select.args.get("distinct") is None:
        return False
    places = [select.args.get(key) for key in ("having", "qualify", "order")]
    parts = [*select.expressions, *(place for place in places if place is not None)]
    return not any(has_aggregate(part) or part.find(exp.Window) for part in parts)


def in_having(node: Expr, aliases: Mapping[str, Expr], key: Callable[[Expr], int | None]) -> Expr:
    """Return a condition on groups with what its names stand for, as DuckDB reads them.

    A name that is no key is an alias of the SELECT list, even if a column has it too: that of a
    single row would mean nothing there. Inside of aggregates it is the column.

    Args:
        node: the condition, or a part of it.
        aliases: what the aliases stand for.
        key: tells which key an expression is, if it is one.
    """
    if is_aggregate(node) or isinstance(node, (exp.Query, exp.Subquery)) or key(node) is not None:
        return node
    if isinstance(node, exp.Column):
        meant = None if node.table else aliases.get(folded(node.name))
        return node if meant is None else exp.Paren(this=meant.copy())
    return rebuild(node, partial(in_having, aliases=aliases, key=key))


def _elements(select: exp.Select, source: SourceText) -> list[Sets]:
    """Return for each element of GROUP BY the sets among which it chooses."""
    group = select.args.get("group")
    if group is None and not lists_values(select):
        return []
    if group is None or group.args.get("all"):
        items = [node.unalias() for node in select.expressions]
        keys = [n for n in items if not isinstance(n.unnest(), exp.Literal)]
        return [[(n,)] for n in keys if not has_aggregate(n) and not n.find(exp.Window)]
    return [_sets(node, source) for node in group.expressions]


def _sets(node: Expr, source: SourceText) -> Sets:
    if isinstance(node, exp.Rollup):
        parts = [columns_of(part) for part in node.expressions]
        return [tuple(chain(*parts[:n])) for n in range(len(parts), -1, -1)]
    if isinstance(node, exp.Cube):
        parts = [columns_of(part) for part in node.expressions]
        if len(parts) > 12:
            raise source.unsupported(
                source.clause("GROUP") or source.whole(),
                "CUBE takes up to 12 columns.",
                "name the sets that you need: GROUPING SETS ((sex, age), (sex), ()).",
            )
        sizes = range(len(parts), -1, -1)
        chosen = chain.from_iterable(combinations(parts, size) for size in sizes)
        return [tuple(chain(*group)) for group in chosen]
    if isinstance(node, exp.GroupingSets):
        return list(chain.from_iterable(_sets(part, source) for part in node.expressions))
    return [columns_of(node)]


def columns_of(node: Expr) -> tuple[Expr, ...]:
    """Return the columns of `a`, `(a)`, `(a, b)` or `()`."""
    return tuple(node.expressions) if isinstance(node, exp.Tuple) else (node,)


def _meant(node: Expr, select: exp.Select, source: SourceText) -> Expr:
    """Put the item of the SELECT list in place of its number."""
    inner = node.unnest()
    if isinstance(inner, exp.Neg) and isinstance(inner.this, exp.Literal):  # DuckDB's place, too
        raise source.error(
            inner,
            f"There is no column {source.text(source.node(inner))} in the SELECT list.",
            _grouped(inner.this, select, source),
        )
    if not isinstance(inner, exp.Literal):
        return inner
    place = int(inner.name) if inner.name.isdigit() and not inner.is_string else 0
    if not 1 <= place <= len(select.expressions):
        raise source.error(
            inner,
            "GROUP BY a constant makes one group."
            if inner.is_string
            else f"There is no column {inner.name} in the SELECT list.",
            _grouped(inner, select, source),
        )
    return select.expressions[place - 1].unalias().unnest()  # type: ignore[no-any-return]


def _grouped(node: exp.Literal, select: exp.Select, source: SourceText) -> Hint:
    """Say what may be written in place of a constant after GROUP BY."""
    items = [item.unalias() for item in select.expressions]
    keys = [item for item in items if not has_aggregate(item) and not item.find(exp.Window)]
    named = [instead(source.text(source.node(key))) for key in keys]
    if node.is_string and node.name.isidentifier():
        named.insert(0, instead(as_sql(node.name)))
    if named:
        return "name the column to group by, " + one_of(list(dict.fromkeys(named))) + "."
    return (
        leave_out(of=source.inside(select).clause("GROUP"))
        + ", with GROUP BY; or name the column to group by."
    )


def written_out(node: exp.Window, select: exp.Select, source: SourceText) -> Hint:
    """Write out a window that names another one which isn't there."""
    group = select.args.get("group")
    keys = [source.text(source.node(key)) for key in group.expressions] if group is not None else []
    call = source.text(source.node(node.this))
    order = f"ORDER BY {', '.join(keys)}" if keys else ""
    return "write it out: " + instead(f"{call} OVER ({order})") + "."


def over_rows(node: exp.Window, source: SourceText) -> SqlError:
    """Say of a window over single rows what groups it may be over."""
    order = node.args.get("order")
    places = [part.this for part in order.expressions] if order is not None else []
    places += node.args.get("partition_by") or []
    columns = [part for part in places if isinstance(part, exp.Column)]
    keys = ", ".join(dict.fromkeys(source.text(source.node(column)) for column in columns))
    hint: str = "compute on groups: what is grouped by can be the ORDER BY of a window."
    if not places:
        alone = source.text(source.node(node.this))
        hint = "without groups it is one number: write it alone, " + instead(alone) + "."
    if keys:
        hint = "compute on groups: " + ask(
            f"SELECT {keys}, COUNT(*) AS n, SUM(COUNT(*)) OVER (ORDER BY {keys}) AS so_far … "
            f"GROUP BY {keys}"
        )
    return source.unsupported(node, "A window over single rows is not supported.", hint)
