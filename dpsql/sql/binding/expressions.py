"""Bound expressions: SQL over canonical names, free of what the analyst called things.

The private table's i-th column with a domain is `__a{i}`, the i-th without one `__w{i}`, and the
j-th column of a core's r-th public relation is `__r{r}_{j}`. No name in a statement begins so, and
none of a public table's columns does where these are evaluated (`names.aside`).
What is stored in the i-th column with a domain, whatever SQL sees of it, is `__s{i}`: only
conditions that dpsql adds itself are about that.
Equal expressions have equal text.

Functions of SQL have three columns here: what is written, what it is in the sandbox, and on rows.
The first two are listed in `dpsql/sql/sandbox/permitted.py`, the third is what `dpsql/rows/` has
records of (`rows/functions.py`), which has to be among the second: constants of an expression of
rows are computed in the sandbox. Nowhere in it are functions that tell the time, the session or the
catalog (`now`, `version`), that draw random numbers, keep state, wait, fail on purpose, read files
or run text as SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from sqlglot import exp

from dpsql.errors import InternalError, Span
from dpsql.rows.functions import FUNCTIONS as OF_ROWS
from dpsql.rows.read import READ
from dpsql.schema.checks import operands
from dpsql.schema.names import folded
from dpsql.schema.table import Table
from dpsql.sql.sandbox import permitted as listed

Class = type[exp.Expr]


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """A function that may be written, or by which others are.

    Args:
        written: a class of the parser's, or a name that it has no class for; None if nobody may
            write it.
        sandbox: DuckDB's name; empty if it is syntax.
        on_rows: whether it may run on private rows, too.
    """

    written: Class | str | None
    sandbox: str
    on_rows: bool


def _table(entries: Sequence[listed.Entry]) -> tuple[SqlFunction, ...]:
    table = []
    for name, word in entries:
        written: Class | str | None = getattr(exp, word) if word[:1].isupper() else word or None
        table.append(SqlFunction(written, name, (name or folded(word)) in READ))
    return tuple(table)


SCALARS, _AGGREGATES, _WINDOWS = map(_table, (listed.SCALARS, listed.AGGREGATES, listed.WINDOWS))
"""The table: functions of their arguments alone, aggregates, and window functions."""
_NOWHERE = sorted({one.duckdb for one in OF_ROWS.values() if one.duckdb} - listed.RUN)
if _NOWHERE:
    raise InternalError(f"functions of rows that can't run in the sandbox: {_NOWHERE}")


def _classes(table: Sequence[SqlFunction]) -> frozenset[Class]:
    return frozenset(one.written for one in table if isinstance(one.written, type))


FUNCTIONS = _classes(SCALARS)
"""Functions that the parser knows by a class of their own."""
NAMED = frozenset(one.written for one in SCALARS if isinstance(one.written, str))
"""Functions that the parser knows by name only."""
AGGREGATES = _classes(_AGGREGATES)
"""Aggregates that may be computed on public or noisy rows; fewer may be on private ones."""
WINDOWS = _classes(_WINDOWS)
"""Window functions; they compute on noisy answers."""

VOLATILE: tuple[type[exp.Expr], ...] = (
    exp.Rand, exp.Uuid, exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.Localtime,
    exp.Localtimestamp, exp.CurrentDatabase, exp.CurrentSchema, exp.CurrentVersion,
    exp.CurrentUser, exp.SessionUser, exp.CurrentRole, exp.CurrentCatalog,
)  # fmt: skip
"""Functions whose value isn't one of their arguments, for a better message."""

TYPES = frozenset(
    {
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "INT128", "UTINYINT", "USMALLINT",
        "UINT", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "TEXT", "CHAR", "DATE",
        "TIMESTAMP", "TIMESTAMPNTZ", "TIME", "INTERVAL",
    }
)  # fmt: skip
"""Types that can be cast to."""


Expr = exp.Expr
NESTED = (exp.Struct, exp.Array, exp.Bracket, exp.Dot)
"""Nodes that make a struct or a list of values, or take one of them."""
_PARTS = (exp.Ordered, exp.Order, exp.WindowSpec, exp.Interval, exp.Identifier, exp.PropertyEQ)
NO_VALUES = (*_PARTS, *NESTED)
"""Nodes that are no value of a row, and so neither a key nor computed of keys as a whole."""


@dataclass(frozen=True, slots=True)
class BoundExpr:
    """An expression over columns of the private table and of public relations."""

    node: Expr = field(compare=False, repr=False)
    sql: str
    attributes: frozenset[str] = field(compare=False)
    """The private columns with a domain that it depends on."""
    relations: frozenset[int] = field(compare=False)
    """The public relations that it depends on."""
    span: Span = field(compare=False, repr=False)
    """The place in the statement."""
    by_row: frozenset[str] = field(default=frozenset(), compare=False)
    """The private columns for which it is evaluated row by row: those without a domain that it
    depends on; timestamps of which it depends on more than their cells tell; and where it is added
    up, those with a domain of too many cells."""

    @property
    def nodes(self) -> frozenset[str | int]:
        """Everything that it couples: column names and relation numbers."""
        return self.attributes | self.relations

    @property
    def constant(self) -> bool:
        """Whether it is the same for all rows."""
        return not self.nodes and not self.by_row

    def each(self, change: Callable[[BoundExpr], BoundExpr]) -> BoundExpr:
        """Return what becomes of it, wherever it is computed; see `added_up.InEach`."""
        return change(self)


def render(node: Expr) -> str:
    """Write an expression as DuckDB SQL, with every name in quotes."""
    return node.sql(dialect="duckdb", comments=False, identify=True)


def is_aggregate(node: Expr) -> bool:
    """Whether a node is an aggregate, supported or not; window functions are not."""
    own = isinstance(node, (exp.AggFunc, exp.Filter, exp.WithinGroup))
    return own and type(node) not in WINDOWS and not isinstance(node, exp.Grouping)


def has_aggregate(node: Expr, *, windows: bool = True) -> bool:
    """Whether an aggregate stands anywhere in an expression, outside of subqueries.

    Args:
        node: the expression.
        windows: whether one that a window is over rows is meant as well.
    """
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, exp.Window) and not windows and not over_groups(current):
            continue
        if is_aggregate(current):
            return True
        if not isinstance(current, exp.Query):
            pending += list(current.iter_expressions())
    return False


def over_groups(window: exp.Window) -> bool:
    """Whether an aggregate stands in a window, other than the function that runs over it."""
    function = window.this.this if isinstance(window.this, exp.Filter) else window.this
    parts = [*function.iter_expressions(), *window.iter_expressions()]
    return any(has_aggregate(part) for part in parts if part is not window.this)


def rebuild(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return a new node of the same kind whose children were changed one by one."""
    if isinstance(node, exp.Connector):
        first, *others = [change(part) for part in operands(node, type(node))]
        for other in others:
            first = type(node)(this=_wrapped(first, node), expression=_wrapped(other, node))
        return first
    args: dict[str, Any] = {}
    for key, value in node.args.items():
        if isinstance(value, list):
            args[key] = [change(v) if isinstance(v, Expr) else v for v in value]
        else:
            args[key] = change(value) if isinstance(value, Expr) else value
    return type(node)(**args)


def in_place_of(select: exp.Select, args: Mapping[str, Any]) -> exp.Select:
    """Return a SELECT of other clauses, at the same place of the statement."""
    found = exp.Select(**args)
    found.meta.update(select.meta)
    found.parent = select.parent
    return found


def with_parts(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return a copy of a node, where it was written, whose children were changed one by one."""
    copy = node.copy()
    for key, value in node.args.items():
        if isinstance(value, Expr):
            copy.set(key, change(value))
        elif isinstance(value, list):
            copy.set(key, [change(v) if isinstance(v, Expr) else v for v in value])
    return copy


def _wrapped(part: Expr, parent: Expr) -> Expr:
    other = isinstance(part, exp.Connector) and type(part) is not type(parent)
    return exp.Paren(this=part) if other else part


def paren(node: Expr) -> Expr:
    """Put a copy of an expression into parentheses."""
    return exp.Paren(this=node.copy())


def times(first: Expr, *others: Expr) -> Expr:
    """Return a product of copies of some expressions."""
    found = paren(first)
    for other in others:
        found = exp.Mul(this=found, expression=paren(other))
    return found


def ratio(top: Expr, bottom: Expr) -> Expr:
    """Return a quotient of two expressions, of floats as in DuckDB."""
    return exp.Div(this=top, expression=bottom, typed=False, safe=False)


def meant(node: Expr, select: exp.Select) -> Expr:
    """Return what an item of ORDER BY stands for: a number or an alias is one of the list."""
    found, items = node.unnest(), select.expressions
    if isinstance(found, exp.Literal) and not found.is_string and found.name.isdecimal():
        at = int(found.name) - 1
        found = items[at].unalias() if at in range(len(items)) else found
    elif isinstance(found, exp.Column) and not found.table:
        named = {folded(item.alias): item.this for item in items if isinstance(item, exp.Alias)}
        found = named.get(folded(found.name), found)
    copied: Expr = found.copy()
    return copied


def with_named(node: exp.Window, named: Sequence[exp.Window]) -> exp.Window | None:
    """Return a window with what it takes from the one that it names, as in `OVER w`.

    Args:
        node: the window.
        named: those after WINDOW; each may take from an earlier one.

    Returns:
        A window that names none; None if there is none of the name.
    """
    found, before = node, list(named)
    while found.args.get("alias") is not None:
        names = [folded(window.name) for window in before]
        name = folded(found.args["alias"].name)
        if name not in names:
            return None
        base, before = before[names.index(name)].copy(), before[: names.index(name)]
        found = found.copy()
        for key in ("partition_by", "order", "spec"):
            found.set(key, found.args.get(key) or base.args.get(key))
        found.set("alias", base.args.get("alias"))
    return found


def write_windows_out(select: Expr) -> None:
    """Write windows out where `OVER w` names them: what they order by may be noisy."""
    named = select.args.get("windows") or []
    for node in list(select.find_all(exp.Window)):
        own = node.find_ancestor(exp.Select) is select and not any(node is n for n in named)
        whole = with_named(node, named) if own else None
        if whole is not None and whole is not node:
            node.replace(whole)
    if named:
        select.set("windows", None)


def conjunction(parts: list[str]) -> str:
    """Join conditions by AND."""
    return " AND ".join(f"({part})" for part in parts) if parts else "true"


def conjuncts(condition: Expr) -> list[Expr]:
    """Divide a condition into parts of which each must be true.

    What stands in all branches of an OR is taken out of it: (a AND b) OR (a AND c) is true where a
    and (b OR c) are, NULL or not. Each part can then be evaluated for itself.
    """
    return [part for node in operands(condition, exp.And) for part in _factored(node)]


def _factored(node: Expr) -> list[Expr]:
    branches = [operands(branch, exp.And) for branch in operands(node, exp.Or)]
    written = [[render(part.unnest()) for part in branch] for branch in branches]
    common = set(written[0]).intersection(*written[1:])
    if len(branches) == 1 or not common:
        return [node]
    taken = {sql: part for part, sql in zip(branches[0], written[0], strict=True) if sql in common}
    rests = [
        [part for part, sql in zip(branch, names, strict=True) if sql not in common]
        for branch, names in zip(branches, written, strict=True)
    ]
    if not all(rests):  # a OR (a AND b) is a
        return list(taken.values())
    left = reduce(_or, (reduce(_and, map(paren, rest)) for rest in rests))
    left.parent = node.parent  # where it stands in the statement
    return [*taken.values(), left]


def _and(one: Expr, other: Expr) -> Expr:
    return exp.And(this=one, expression=other)


def _or(one: Expr, other: Expr) -> Expr:
    return exp.Or(this=_wrapped(one, exp.Or()), expression=_wrapped(other, exp.Or()))


def is_star(node: Expr) -> bool:
    """Whether a node is `*` or `t.*`, and not a query that has one."""
    return isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    )


def is_private(node: Expr) -> bool:
    """Whether a node is a column of the private table, or a key."""
    return isinstance(node, exp.Column) and node.name.startswith(("__a", "__w", "__s"))


def reads_rows(node: Expr) -> bool:
    """Whether a column without a domain stands in an expression, or one as it is stored."""
    return any(part.name.startswith(("__w", "__s")) for part in node.find_all(exp.Column))


def named_by(place: str, table: Table) -> str:
    """Return the column of the private table that a canonical name stands for."""
    listed = table.undeclared if place.startswith("__w") else table.columns
    return list(listed)[int(place[3:])]


def rebuilt_branch(branch: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return WHEN … THEN … with its two expressions changed."""
    return exp.If(this=change(branch.this), true=change(branch.args["true"]))


def substituted(node: Expr, of: Expr, by: Expr) -> Expr:
    """Put something else in place of an expression wherever it stands in another one."""
    if node == of:
        return by.copy()
    return rebuild(node, lambda part: substituted(part, of, by))


def column(name: str) -> exp.Column:
    """Refer to a column by its canonical name."""
    return exp.Column(this=exp.Identifier(this=name, quoted=False))


def as_stored(index: int) -> str:
    """Name what is stored in a column with a domain, in or outside of it."""
    return f"__s{index}"


def quoted(name: str) -> exp.Identifier:
    """Name something as the analyst calls it."""
    return exp.Identifier(this=name, quoted=True)


def quoted_column(name: str, table: str | None = None) -> exp.Column:
    """Refer to a column as the analyst calls it."""
    return exp.Column(this=quoted(name), table=quoted(table) if table is not None else None)


def joined_bound(node: Expr, parts: Sequence[BoundExpr], span: Span) -> BoundExpr:
    """Return an expression that is made of some bound ones."""
    return BoundExpr(
        node,
        render(node),
        frozenset[str]().union(*(part.attributes for part in parts)),
        frozenset[int]().union(*(part.relations for part in parts)),
        span,
        frozenset[str]().union(*(part.by_row for part in parts)),
    )
