"""Names of the columns of answers, where the analyst gives them none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlglot import exp

from dpsql.errors import SqlSchemaError, printable
from dpsql.schema.names import closest, folded, nearest
from dpsql.sql.binding.bind import MAX_NAME_CHARACTERS, RowBinder, check_name
from dpsql.sql.binding.expressions import Expr, quoted
from dpsql.sql.binding.row_queries import unused
from dpsql.sql.binding.scope import NamedColumn, PrivateColumn, Scope
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
