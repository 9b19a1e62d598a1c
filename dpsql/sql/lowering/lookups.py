"""Joins of cells with public rows: what has to be equal is looked up, not multiplied out.

A condition may say that a column of a public table equals something of what was joined before: as
`a = b` among others joined by AND, or in every part of an OR. DuckDB finds such rows by a hash
table, so that the work is that of the rows that meet. Relations are joined in an order in which
as many of them as possible can be looked up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from dpsql.errors import ResourceLimitError, SqlError, printable
from dpsql.schema import Table
from dpsql.schema.checks import operands
from dpsql.schema.names import as_sql, capitals
from dpsql.sql.binding.core import Core, Linear, Quantile, Relation, Statistic, base_of
from dpsql.sql.binding.expressions import BoundExpr, Expr, conjunction, has_aggregate, render
from dpsql.sql.binding.instants import COMPARISONS
from dpsql.sql.binding.joins import joined_plainly
from dpsql.sql.lowering.matrices import CoupledColumns
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText

MAX_JOINED = 2**26
"""Pairs of cells, or what they were joined with, and public rows that are looked at."""


_Text = tuple[str, ...]
"""The text of an equality, whichever side comes first."""


_CANONICAL = re.compile(r"__([aw]|r[0-9]+_)[0-9]+")


@dataclass(frozen=True, slots=True)
class _Equality:
    """An equality that must hold for a public row to be met."""

    condition: BoundExpr
    """The condition which says so, and maybe more."""
    sql: str
    before: Expr
    """Over what is joined before."""
    own: Expr
    """Over the columns of the relation."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A relation that is joined, and the equalities by which its rows are looked up."""

    relation: Relation
    equal: tuple[_Equality, ...]

    @property
    def sql(self) -> str:
        """The join."""
        relation = self.relation
        conditions = [equality.sql for equality in self.equal]
        # Public rows that no row meets are looked at apart.
        kind = {"right": "inner", "full": "left"}.get(relation.kind, relation.kind)
        if relation.kind == "inner":
            on = f" ON {conjunction(conditions)}" if conditions else ""
            return f"{'JOIN' if conditions else 'CROSS JOIN'} {relation.table}{on}"
        conditions += [c.sql for c in relation.on if c.sql not in conditions]
        return f"{capitals(kind)} JOIN {relation.table} ON {conjunction(conditions)}"

    @property
    def conditions(self) -> list[tuple[BoundExpr, str]]:
        """The conditions of the join, and what is looked at of each when rows are joined."""
        equal = [(equality.condition, equality.sql) for equality in self.equal]
        return equal if self.relation.kind == "inner" else [(c, c.sql) for c in self.relation.on]

    @property
    def multiplies(self) -> bool:
        """Whether there may be more rows after it than before."""
        return self.relation.kind not in {"semi", "anti"}


class JoinedRows:
    """The cells of a component, joined with its public relations.

    Args:
        sandbox: where these are.
        component: the component.
        cells: SQL for its cells.
        count: how many there are.
        before: a relation that is among them already.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        component: CoupledColumns,
        cells: str,
        count: int,
        before: Relation | None = None,
    ) -> None:
        self._sandbox, self._component = sandbox, component
        self._cells, self._count = cells, count
        self._steps = _steps(component.relations, component.conjuncts, before)

    @property
    def sql(self) -> str:
        """The relation to select from, as SQL."""
        return " ".join([self._cells, *(step.sql for step in self._steps)])

    def tests(self) -> Iterator[tuple[BoundExpr, str]]:
        """Return queries that tell which condition of a join fails: one that those before don't."""
        before = self._cells
        for step in self._steps:
            for condition, on in step.conditions:
                yield (
                    condition,
                    f"SELECT count(*) FROM {before} SEMI JOIN {step.relation.table} ON {on}",
                )
            before = f"{before} {step.sql}"

    def check_size(self) -> None:
        """Refuse joins with too many pairs.

        A row meets at most as many public ones as have the same values in the columns that have to
        be equal. Where that alone doesn't say that they are few, they are counted.

        Raises:
            ResourceLimitError: there are too many.
        """
        if self._size <= MAX_JOINED:
            return
        most = self._count
        for step in self._steps:
            most *= self._most_met(step) if step.multiplies or not step.equal else 1
            if most > MAX_JOINED:
                self._check_counted()
                return

    @property
    def _size(self) -> int:
        return self._count * math.prod(max(1, step.relation.rows) for step in self._steps)

    def _most_met(self, step: _Step) -> int:
        rows = step.relation.rows
        if not step.equal or not rows:
            return max(1, rows)
        keys = ", ".join(_own(step))
        ((most,),) = self._sandbox.rows(
            f"SELECT max(n) FROM (SELECT count(*) AS n FROM {step.relation.table} GROUP BY {keys})"
        )
        return int(most)

    def _check_counted(self) -> None:
        """Count the pairs of each join before it is made, of rows that are alike at once."""
        needed = [_columns(e.before for e in step.equal) for step in self._steps]
        met, source, rows = "", self._cells, "1"
        for i, step in enumerate(self._steps):
            later = sorted(frozenset[str]().union(*needed[i:]) & self._joined_before(i))
            sandbox, old = self._sandbox, met
            met = sandbox.new_name("met")
            shown = "".join(f"{name}, " for name in later)
            number = f"sum({rows})::DOUBLE AS __rows"
            sandbox.create(met, f"SELECT {shown}{number} FROM {source} GROUP BY ALL")
            if old:
                sandbox.drop(old)
            pairs = self._pairs(step, met)
            if pairs > MAX_JOINED:
                raise self._too_many()
            on = conjunction([equality.sql for equality in step.equal])
            kind = "LEFT JOIN" if step.relation.kind in {"left", "full"} else "JOIN"
            source = f"{met} {kind} {step.relation.table} ON {on}" if step.multiplies else met
            rows = "__rows"
        if met:
            self._sandbox.drop(met)

    def _pairs(self, step: _Step, met: str) -> float:
        """Return how many pairs a join looks at."""
        relation = step.relation
        ((before,),) = self._sandbox.rows(f"SELECT coalesce(sum(__rows), 0) FROM {met}")
        if not step.equal:
            return float(before) * max(1, relation.rows)
        if not step.multiplies:
            return float(before)
        sides = [[render(e.before) for e in step.equal], _own(step)]
        parts = [
            f"(SELECT {', '.join(f'{sql} AS e{i}' for i, sql in enumerate(side))}, "
            f"{number} AS n FROM {table} GROUP BY ALL)"
            for side, number, table in zip(
                sides, ("sum(__rows)", "count(*)::DOUBLE"), (met, relation.table), strict=True
            )
        ]
        same = conjunction([f"l.e{i} IS NOT DISTINCT FROM r.e{i}" for i in range(len(step.equal))])
        ((pairs,),) = self._sandbox.rows(
            f"SELECT coalesce(sum(l.n * r.n), 0) FROM {parts[0]} l JOIN {parts[1]} r ON {same}"
        )
        return float(pairs) + (float(before) if relation.kind in {"left", "full"} else 0.0)

    def _joined_before(self, i: int) -> frozenset[str]:
        """Return the columns that can be there before a join."""
        numbers = {step.relation.number for step in self._steps[i:]}
        names = frozenset[str]().union(*(_columns(e.before for e in s.equal) for s in self._steps))
        return frozenset(name for name in names if _relation(name) not in numbers)

    def _too_many(self) -> ResourceLimitError:
        apart = [s.relation for s in self._steps if not s.equal and s.relation.rows > 1]
        hint = "join smaller tables, or ones in which fewer rows have the same keys."
        if apart:
            largest = max(apart, key=lambda relation: relation.rows)
            hint = (
                f"join {largest.alias} ON equal columns; or use smaller tables, or columns with "
                "fewer values."
            )
        return ResourceLimitError(
            f"Joining {', '.join(self._component.attributes)} with public tables gives "
            f"{self._size:,} pairs to look at, more than {MAX_JOINED:,}.",
            hint=hint,
        )


def values_of(sandbox: Sandbox, query: str, most: int) -> list[str] | list[int]:
    """Return at most so many of the texts or integers that a query returns, each once, in order."""
    frame = sandbox.frame(
        f"SELECT DISTINCT v FROM ({query}) AS x(v) WHERE v IS NOT NULL ORDER BY 1 LIMIT {most}"
    )["v"]
    values = frame.cast(pl.String) if frame.dtype == pl.Enum else frame
    return values.to_list() if values.dtype.is_integer() or values.dtype == pl.String else []


def constants_of(sandbox: Sandbox, query: str, most: int) -> list[tuple[str, str]] | None:
    """Return the type and the text of each value of a query, but for NULL; None if too many.

    Raises:
        SandboxError: DuckDB refuses the query.
    """
    (_, type_), *_ = sandbox.types(f"SELECT v FROM ({query}) AS x(v)")
    text = "v::DOUBLE::VARCHAR" if type_ == "FLOAT" else "v::VARCHAR"  # which is longer
    rows = sandbox.rows(
        f"SELECT DISTINCT {text} FROM ({query}) AS x(v) WHERE v IS NOT NULL LIMIT {most + 1}"
    )
    return None if len(rows) > most else [(type_, text) for (text,) in rows]


def compared_values(place: Expr, tables: Mapping[int, str]) -> list[str] | None:
    """Return queries for all public values with which an expression is compared where it stands.

    In a subquery it is compared with values of the rows of its FROM: more of them than those for
    which the rest of the subquery holds do no harm.

    Args:
        place: the expression, over private columns, in the condition.
        tables: relation → its table in the sandbox.

    Returns:
        Queries of one column each; None if it is compared with anything else, or not compared.
    """
    place, at = _in_brackets(place), None
    if isinstance(place, exp.Tuple):
        return None
    if isinstance(place.parent, exp.Tuple):
        at = next(i for i, part in enumerate(place.parent.expressions) if part is place)
        place = _in_brackets(place.parent)
    parent = place.parent
    if not isinstance(parent, COMPARISONS) or parent.args.get("symmetric"):
        return None
    found: list[str | None]
    if isinstance(parent, exp.In) and isinstance(parent.args.get("query"), exp.Expr):
        query = parent.args["query"].unnest()
        found = [_listed_by(query, at or 0) if place is parent.this else None]
    elif at is not None:
        return None
    else:
        found = [_values_of(other, place, tables) for other in _beside(place, parent)]
    queries = [query for query in found if query is not None]
    return queries if len(queries) == len(found) else None


def _beside(place: Expr, comparison: Expr) -> list[Expr]:
    """Return what a comparison compares an expression with, but for NULL."""
    ends = isinstance(comparison, exp.Between) and place is not comparison.this
    parts = [comparison.this] if ends else comparison.iter_expressions()
    return [part for part in parts if part is not place and not isinstance(part, exp.Null)]


def comparison_of(place: Expr) -> Expr | None:
    """Return what compares an expression where it stands, alone or beside others in brackets."""
    outer = _in_brackets(place)
    return (
        _in_brackets(outer.parent).parent if isinstance(outer.parent, exp.Tuple) else outer.parent
    )


def _in_brackets(node: Expr) -> Expr:
    """Return an expression with the parentheses around it."""
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node


def _values_of(node: Expr, place: Expr, tables: Mapping[int, str]) -> str | None:
    """Return a query for the values of what a place is compared with; None if it isn't public."""
    named = frozenset(filter(_CANONICAL.match, _columns([node])))
    relations = {_relation(name) for name in named}
    if None in relations or len(relations) > 1:
        return None
    columns = _columns([node]) - named
    around = place.find_ancestor(exp.Select)
    if relations or around is None:
        # Also for a row that meets none, in an outer join.
        from_ = "".join(
            f" FROM (SELECT * FROM {tables[r]} UNION ALL BY NAME SELECT NULL AS __r{r}_row)"
            for r in relations
            if r is not None
        )
        return None if columns and not node.find(exp.Query) else f"SELECT {render(node)}{from_}"
    return _of_rows(node, around, place)


def _of_rows(node: Expr, select: exp.Select, place: Expr | None = None) -> str | None:
    """Return a query for the values that an expression has for the rows of a SELECT.

    Args:
        node: the expression.
        select: the SELECT in which it stands.
        place: what it is compared with there; None if it is shown.
    """
    part = node if place is None else place
    while part.parent is not select and part.parent is not None:
        part = part.parent
    clause = "expressions" if place is None else "where"
    first, joins = select.args.get("from_"), list(select.args.get("joins") or [])
    outside = any(map(_CANONICAL.match, _columns([*joins, *([first] if first else [])])))
    named = any(query.args.get("with_") for query in _around(select))
    grouped = has_aggregate(node) or node.find(exp.Window) is not None
    if part.arg_key != clause or outside or named or grouped:
        return None
    rows = exp.Select(
        expressions=[node.copy()],
        from_=first.copy() if first is not None else None,
        joins=[join.copy() for join in joins],
    )
    return render(rows)


def _around(node: Expr | None) -> Iterator[Expr]:
    """Return a node, and all around it."""
    while node is not None:
        yield node
        node = node.parent


def _listed_by(query: Expr, at: int) -> str | None:
    """Return a query for the values of one column of a subquery after IN."""
    if not any(map(_CANONICAL.match, _columns([query]))):
        names = ", ".join(f"c{i}" for i in range(at + 1))
        return f"SELECT c{at} FROM ({render(query)}) AS x({names})"
    if not isinstance(query, exp.Select) or at >= len(query.expressions):
        return None
    shown = query.expressions[at]
    if query.args.get("group") or any(map(_CANONICAL.match, _columns([shown]))):
        return None
    return _of_rows(shown.unalias(), query)


def multiplied(node: Expr) -> Iterator[tuple[frozenset[str], list[str]]]:
    """Find subqueries of which all rows are looked at for each value of columns from outside.

    Yields:
        These columns by their canonical names, and the subquery's tables.
    """
    for query in node.find_all(exp.Select):
        outer = frozenset(filter(_CANONICAL.match, _columns([query])))
        where = query.args.get("where")
        equalities = _implied_by(where.this).values() if where is not None else ()
        if outer and not any(map(_is_lookup, equalities)):
            tables = query.find_all(exp.Table)
            yield outer, [t.name for t in tables if isinstance(t.this, exp.Identifier)]


def _is_lookup(equality: Expr) -> bool:
    """Whether something from outside equals something of the subquery's own."""
    sides = equality.this, equality.expression
    outside = [{bool(_CANONICAL.match(name)) for name in _columns([side])} for side in sides]
    return {True} in outside and {False} in outside


def _steps(
    relations: Sequence[Relation], conjuncts: Sequence[BoundExpr], before: Relation | None
) -> list[_Step]:
    """Bring relations into an order in which they are looked up, where that is possible.

    Inner joins may come in any order. The others stay in theirs, each after what its condition is
    about: an inner join that comes before multiplies the same rows that it would afterwards.
    """
    implied = implied_equalities(conjuncts)
    left, found = [r for r in relations if r != before], list[_Step]()
    while left:
        placed = {step.relation.number for step in found}
        placed |= set() if before is None else {before.number}
        outer = next((r for r in left if r.kind != "inner"), None)
        ready = [r for r in left if r.kind == "inner"]
        if outer is not None and _about(outer) <= placed:
            ready.append(outer)
        steps = [
            _Step(relation, tuple(_equal_to(relation, implied, placed)))
            for relation in ready or left[:1]
        ]
        step = next((s for s in steps if s.equal), steps[0])
        found.append(step)
        left.remove(step.relation)
    return found


def _about(relation: Relation) -> set[int]:
    """Return the other relations that the condition of a join is about."""
    return {n for condition in relation.on for n in condition.relations} - {relation.number}


def _equal_to(
    relation: Relation, implied: Mapping[_Text, tuple[BoundExpr, Expr]], placed: set[int]
) -> Iterator[_Equality]:
    """Return what has to be equal for rows of a relation to meet what was joined before."""
    if relation.kind != "inner":
        implied = implied_equalities(relation.on)
    for condition, node in implied.values():
        for here, before in ((node.this, node.expression), (node.expression, node.this)):
            about = _relations(before)
            if _relations(here) == {relation.number} and about and about <= placed | {None}:
                yield _Equality(condition, render(node), before, here)
                break


def implied_equalities(conditions: Iterable[BoundExpr]) -> dict[_Text, tuple[BoundExpr, Expr]]:
    """Return the equalities that are true wherever all conditions are, with the first to say so."""
    equalities: dict[_Text, tuple[BoundExpr, Expr]] = {}
    for condition in conditions:
        for text, equality in _implied_by(condition.node).items():
            equalities.setdefault(text, (condition, equality))
    return equalities


def _implied_by(node: Expr) -> dict[_Text, Expr]:
    node = node.unnest()
    if isinstance(node, exp.EQ | exp.NullSafeEQ):
        sides = sorted([render(node.this.unnest()), render(node.expression.unnest())])
        return {(type(node).__name__, *sides): node}
    if not isinstance(node, exp.Connector):
        return {}
    parts = [_implied_by(part) for part in operands(node, type(node))]
    if isinstance(node, exp.And):
        return {text: equality for part in parts for text, equality in part.items()}
    if isinstance(node, exp.Or):
        first, *others = parts
        return {text: e for text, e in first.items() if all(text in part for part in others)}
    return {}


def _own(step: _Step) -> list[str]:
    return [render(equality.own) for equality in step.equal]


def _columns(nodes: Iterable[Expr]) -> frozenset[str]:
    return frozenset(column.name for node in nodes for column in node.find_all(exp.Column))


def _relations(node: Expr) -> set[int | None]:
    """Return the relations that an expression is about, None for private columns.

    There are none where it depends on something else, like the rows of a subquery.
    """
    if node.find(exp.Query):
        return set()
    return {_relation(name) for name in _columns([node])}


def _relation(name: str) -> int | None:
    """Return the relation of a column, by its canonical name; None for a private one."""
    return int(name[3:].partition("_")[0]) if name.startswith("__r") else None


# ── Public rows that no private row meets, which RIGHT and FULL joins keep ───────────────────────
#
# Such a row is there once, with NULL for all private columns, if and only if no private row meets
# it. What it adds to a statistic would depend on whether there are private rows, and not on how
# many, which no linear query tells. So a statistic must pass over it, as COUNT of a private column
# does: then all that such rows leave behind are their groups, and these are public.


def kept_relation(relations: Iterable[Relation]) -> Relation | None:
    """Return the relation of which all rows are kept; there is one at most."""
    return next((r for r in relations if r.kind in {"right", "full"}), None)


def unmatched_rows(sandbox: Sandbox, component: CoupledColumns, cells: str) -> str | None:
    """Join the rows that are kept with NULLs in place of cells, and with all other relations.

    Returns:
        What to select from; None if no relation is kept.

    Raises:
        ResourceLimitError: there are too many.
    """
    kept = kept_relation(component.relations)
    if kept is None:
        return None
    nulls = f"(SELECT p.* FROM (SELECT 1) AS o LEFT JOIN {cells} ON false) AS p"
    rows = f"{nulls} CROSS JOIN {kept.table}"
    joined = JoinedRows(sandbox, component, rows, max(1, kept.rows), kept)
    joined.check_size()
    return joined.sql


@dataclass(frozen=True, slots=True)
class UnmatchedRows:
    """Checks the cores of one statement.

    Args:
        sandbox: evaluates.
        table: the private table.
        source: the statement.
        cells: writes SQL for the joint cells of columns.
    """

    sandbox: Sandbox
    table: Table
    source: SourceText
    cells: Callable[[Sequence[str]], str]

    def check(self, core: Core) -> None:
        """Refuse a core whose groups or statistics depend on which public rows are met.

        Raises:
            SqlError: they do.
        """
        kept = kept_relation(core.relations)
        if kept is None:
            return
        private = next((key for key in core.keys if key.attributes or key.by_row), None)
        if private is not None:
            raise self.source.unsupported(
                private.span,
                f"Rows of {printable(kept.alias)} without a match have no value here.",
                f"group by columns of {printable(kept.alias)} alone, or "
                + joined_plainly(kept.span, self.source),
            )
        for statistic in core.statistics:
            if self._counts(core, statistic):
                raise self._counted(kept, statistic)

    def _counts(self, core: Core, statistic: Statistic) -> bool:
        """Whether a statistic counts a row that has NULL for all private columns."""
        of = base_of(statistic)
        if isinstance(of, Linear) and of.of_units and of.values is None:
            return False  # the id of a unit is among these columns
        value = of.value if isinstance(of, Quantile) else of.values or of.weight
        conditions = [*core.conjuncts, *core.by_row, *of.filters]
        on = [condition for relation in core.relations for condition in relation.on]
        used = [*conditions, *on, *([] if value is None else [value])]
        attributes = _union(e.attributes for e in used)
        component = CoupledColumns(attributes, core.relations, (), (), weighted=False)
        types = [
            f"NULL::{type_} AS __w{i}"
            for i, (name, type_) in enumerate(self.table.undeclared.items())
            if name in _union(e.by_row for e in used)
        ]
        cells = self.cells(attributes)
        if types:
            cells = f"(SELECT *, {', '.join(types)} FROM {cells}) AS p"
        source = unmatched_rows(self.sandbox, component, cells)
        tests = [f"({condition.sql}) IS TRUE" for condition in conditions]
        tests += [] if value is None else [f"({value.sql}) IS NOT NULL"]
        where = " AND ".join(tests) or "true"
        ((count,),) = self.sandbox.rows(f"SELECT count(*) FROM {source} WHERE {where}")
        return bool(count)

    def _counted(self, kept: Relation, statistic: Statistic) -> SqlError:
        on = [name for condition in kept.on for name in sorted(condition.attributes)]
        column = as_sql(on[0] if on else next(iter(self.table.columns)))
        alias = printable(kept.alias)
        return self.source.unsupported(
            kept.span,
            f"{printable(_label(statistic))} counts rows of {alias} without a match, too, and "
            "which rows these are depends on private data.",
            f"count a column of {as_sql(self.table.name)}, COUNT({column}), or "
            + joined_plainly(kept.span, self.source),
        )


def _label(statistic: Statistic) -> str:
    return base_of(statistic).label


def _union(names: Iterable[frozenset[str]]) -> tuple[str, ...]:
    return tuple(sorted(frozenset[str]().union(*names)))
