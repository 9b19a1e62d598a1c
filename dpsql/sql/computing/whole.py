"""Whole numbers among noisy answers, and texts of them.

Counts and sums of integers are integers in SQL. Their noisy answers are DOUBLE, because noise and
what is computed of it has fractions; but the text of an integer has none, and '224.00000430457294'
is no text that a reader of '224' can use. So where text is made of a value that is an integer in
SQL, it is made of the nearest whole number. Only texts are: numbers keep their fractions, and what
is said of their noise. Of what isn't known to be an integer, the text is that of the number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import SqlError
from dpsql.rows.types import BOOLEAN
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.names import folded
from dpsql.sql.binding.core import Quantile, Role, Statistic, Windowed
from dpsql.sql.binding.expressions import Expr, is_star
from dpsql.sql.lowering.lower import LoweredCore
from dpsql.sql.lowering.measures import RowReader

Names = Mapping[str, bool]
"""Columns by their names in small letters: whether each holds whole numbers."""
Columns = Sequence[tuple[str, bool]]
"""The same, in their order."""
Tables = Mapping[str, Columns]
"""Tables and CTEs by their names in small letters."""

_KEEPING = (
    exp.Paren,
    exp.Neg,
    exp.Abs,
    exp.Sum,
    exp.Min,
    exp.Max,
    exp.AnyValue,
    exp.First,
    exp.Last,
    exp.Lag,
    exp.Lead,
    exp.FirstValue,
    exp.LastValue,
    exp.NthValue,
    exp.Nullif,
    exp.Window,
    exp.Filter,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.Distinct,
    exp.Order,
)
"""What is an integer where its first argument is one."""
_UNITING = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv, exp.Coalesce, exp.Greatest, exp.Least)
"""What is an integer where all of its arguments are."""


def with_whole_statistics(
    query: exp.Query, cores: Sequence[LoweredCore], reader: RowReader
) -> tuple[LoweredCore, ...]:
    """Say which statistics are integers in SQL, if text is made in a query over them."""
    if not any(True for _ in _texts(query)):
        return tuple(cores)
    return tuple(
        replace(core, whole=tuple(_is_integer(s.statistic, reader) for s in core.sets[0].columns))
        for core in cores
    )


def _is_integer(statistic: Statistic, reader: RowReader) -> bool:
    """Whether a sum is an integer in SQL; in doubt it isn't, as where public rows are read."""
    if isinstance(statistic, Windowed):
        return not statistic.mean and _is_integer(statistic.of, reader)
    if isinstance(statistic, Quantile):
        return False  # it has the type that it has in SQL
    added = (*statistic.weights, *([] if statistic.factor is None else [statistic.factor]))
    if statistic.center or any(weight.relations for weight in added):
        return False
    try:
        types = [reader.type_of(weight) for weight in added]
    except SqlError:
        return False
    return all(type_.is_integer or type_ == BOOLEAN for type_ in types)


def with_whole_texts(query: exp.Query, cores: Sequence[LoweredCore]) -> exp.Query:
    """Make texts of integers those of whole numbers.

    Args:
        query: a query over tables of answers, as SQL has it.
        cores: what these are the answers of.
    """
    written = query.copy()
    if any(True for _ in _texts(written)):
        _Wholes().query(written, {folded(c.core.table): _columns(c) for c in cores}, {})
    return written


def _columns(core: LoweredCore) -> Columns:
    """Return the columns of a table of answers."""
    keys = range(len(core.core.keys))
    columns = [(Role.KEY.named(k), core.types.get(k) in INTEGER_TYPES) for k in keys]
    return [*columns, *((Role.STATISTIC.named(j), whole) for j, whole in enumerate(core.whole))]


def _texts(node: Expr) -> Iterator[Expr]:
    """Yield what stands where text is made of it."""
    for maker in node.find_all(exp.Cast, exp.DPipe, exp.Concat, exp.ConcatWs, exp.GroupConcat):
        if isinstance(maker, exp.Cast):  # TRY_CAST is one, too
            yield from [maker.this] if maker.to.this in exp.DataType.TEXT_TYPES else []
        elif isinstance(maker, exp.DPipe):
            yield from (maker.this, maker.expression)
        elif isinstance(maker, exp.GroupConcat):
            listed = maker.this
            while isinstance(listed, (exp.Order, exp.Distinct)):
                listed = _first(listed)
            yield from [] if listed is None else [listed]
        else:
            yield from maker.expressions


class _Wholes:
    """Looks through the queries of a statement, from the inner ones to those around them."""

    def query(self, query: Expr, tables: Tables, outside: Names) -> Columns:
        """Write the texts of a query, and return which of its columns hold whole numbers."""
        known = dict(tables)
        clause = query.args.get("with_")
        for cte in clause.expressions if clause is not None else []:
            found = self.query(cte.this, known, {})
            known[folded(cte.alias)] = _renamed(found, cte.args["alias"])
        if isinstance(query, exp.Subquery):
            return self.query(query.this, known, outside)
        if isinstance(query, exp.SetOperation):
            left = self.query(query.this, known, outside)
            right = self.query(query.expression, known, outside)
            both = zip(left, right, strict=False)
            return [(name, one and other) for (name, one), (_, other) in both]
        if isinstance(query, exp.Select):
            return self._select(query, known, outside)
        return []

    def _select(self, select: exp.Select, tables: Tables, outside: Names) -> Columns:
        clause = select.args.get("from_")
        items = [clause.this] if clause is not None else []
        items += [join.this for join in select.args.get("joins") or []]
        sources = [self._source(item, tables, outside) for item in items]
        own: dict[str, bool] = {}
        for alias, columns in sources:
            for name, whole in columns:  # of two columns of one name it is either
                for called in (name, f"{alias}.{name}"):
                    own[called] = whole and own.get(called, True)
        names, outputs = {**outside, **own}, list[tuple[str, bool]]()
        for item in select.expressions:
            if is_star(item):
                owner = folded(item.text("table"))
                outputs += (c for alias, told in sources if owner in ("", alias) for c in told)
                continue
            called = folded(item.alias_or_name)
            outputs.append((called, self._is_whole(item.unalias(), names, tables)))
            if called not in own:  # a later item may name it
                names[called] = outputs[-1][1]
        self._write(select, names, tables, items)
        return outputs

    def _source(self, item: Expr, tables: Tables, outside: Names) -> tuple[str, Columns]:
        """Return what an item after FROM is called, and its columns."""
        columns: Columns = []
        if isinstance(item, exp.Subquery):
            columns = self.query(item.this, tables, outside)
        elif isinstance(item, exp.Table):
            columns = tables.get(folded(item.name), [])
        return folded(item.alias_or_name), _renamed(columns, item.args.get("alias"))

    def _write(self, select: exp.Select, names: Names, tables: Tables, items: list[Expr]) -> None:
        """Write the texts of a SELECT, but not those of the queries after FROM again."""
        inner = {id(node) for item in items for node in item.walk()}
        for text in [text for text in _texts(select) if id(text) not in inner]:
            if text.find_ancestor(exp.Select) is not select:
                continue
            for number in self._wholes(text, names, tables):
                _round(number)
        for part in list(select.find_all(exp.Query)):
            if part.find_ancestor(exp.CTE, exp.Query) is select and id(part) not in inner:
                self.query(part, tables, names)

    def _wholes(self, text: Expr, names: Names, tables: Tables) -> list[Expr]:
        """Return the largest parts that are integers of what is computed of nothing else."""
        found = []
        pending = [text]
        while pending:
            node = pending.pop()
            if self._is_whole(node, names, tables):
                found += [node] if node.find(exp.Column) else []
            elif isinstance(node, (exp.Column, exp.Query, exp.Window, exp.AggFunc)):
                return []
            else:
                pending += node.iter_expressions()
        return found

    def _is_whole(self, node: Expr | None, names: Names, tables: Tables) -> bool:
        """Whether a value is an integer in SQL, or NULL; in doubt it isn't."""
        if isinstance(node, exp.Column):
            table = folded(node.text("table"))
            name = folded(node.name)
            return names.get(f"{table}.{name}" if table else name, False)
        if isinstance(node, exp.Literal):
            return not node.is_string and node.name.isdigit()
        if isinstance(node, (exp.Null, exp.Count, exp.CountIf)):
            return True
        if isinstance(node, exp.Cast):
            return node.to.this in exp.DataType.INTEGER_TYPES
        if isinstance(node, exp.Subquery):
            found = _Wholes().query(node.copy(), tables, names)
            return [whole for _, whole in found[:1]] == [True]
        if isinstance(node, (exp.Case, exp.If)):
            return all(self._is_whole(one, names, tables) for one in _branches(node))
        if isinstance(node, _UNITING):
            return all(self._is_whole(one, names, tables) for one in node.iter_expressions())
        return isinstance(node, _KEEPING) and self._is_whole(_first(node), names, tables)


def _round(node: Expr) -> None:
    number = exp.Cast(this=exp.Null(), to=exp.DataType.build("HUGEINT", "duckdb"))
    node.replace(number)
    number.set("this", node)


def _first(node: Expr) -> Expr | None:
    if isinstance(node, exp.Distinct):
        return node.expressions[0] if len(node.expressions) == 1 else None
    return node.this if isinstance(node.this, exp.Expr) else None


def _branches(node: exp.Case | exp.If) -> Iterator[Expr]:
    """Yield what a choice may return."""
    if isinstance(node, exp.If):
        yield node.args["true"]
        other = node.args.get("false")
    else:
        yield from (branch.args["true"] for branch in node.args["ifs"])
        other = node.args.get("default")
    if other is not None:
        yield other


def _renamed(columns: Columns, alias: Expr | None) -> Columns:
    """Give columns the names that stand behind an alias: `AS q (a, b)`."""
    given = [folded(c.name) for c in (alias.args.get("columns") or [])] if alias is not None else []
    names = [*given, *(name for name, _ in columns[len(given) :])]
    return [(name, whole) for name, (_, whole) in zip(names, columns, strict=False)]
