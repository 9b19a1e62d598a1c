"""Whole numbers among noisy answers: where SQL compares integers, and where it writes them.

Counts and sums of integers are integers in SQL. Their noisy answers are DOUBLE, because noise and
what is computed of it has fractions. But the text of an integer has none, and '224.00000430457294'
is no text that a reader of '224' can use; and two noisy numbers are never equal, so that `HAVING
COUNT(*) = 40` would hold for no group, and `>= 40` for half of those that have 40 rows. So what is
an integer in SQL counts as the nearest whole number

- where text is made of it, and of what is computed of such integers alone, as CAST(1.0 * n / m AS
  VARCHAR), so that texts side by side agree;
- where it is compared with another integer: by = and <> anywhere, in ranks with ties, in
  COUNT(DISTINCT …), after GROUP BY, in all keys but the last one of ORDER BY with LIMIT, or of
  ROW_NUMBER; and by < and the like where rows or groups are chosen. It is the comparison that is
  most often right: of 40 and 41, the nearer one is the likelier.

Everywhere else numbers keep their fractions, and what is said of their noise. CASE WHEN n > 0 and
WHERE n >= 0 guard what is computed of the number as it is, and compare that. Of what isn't known
to be an integer, as an average, nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from sqlglot import exp

from dpsql.errors import SqlError
from dpsql.rows.types import BOOLEAN
from dpsql.schema.domain import INTEGER_TYPES
from dpsql.schema.names import folded
from dpsql.sql.binding.core import Quantile, Role, Statistic, Windowed
from dpsql.sql.binding.expressions import Expr, is_star
from dpsql.sql.lowering.lower import LoweredCore
from dpsql.sql.lowering.measures import RowReader


class Kind(Enum):
    """Kinds of columns over answers."""

    WHOLE = "an integer as it is"
    NOISY = "a noisy number that is an integer in SQL"
    OTHER = "anything else, or not known"


Names = Mapping[str, Kind]
"""Columns by their names in small letters."""
Columns = Sequence[tuple[str, Kind]]
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
"""Functions that are an integer where their first argument is one."""
_DIVIDING = (exp.Mod, exp.IntDiv)
_UNITING = (exp.Add, exp.Sub, exp.Mul, exp.Coalesce, exp.Greatest, exp.Least, *_DIVIDING)
"""Functions that are an integer where all of their arguments are."""
_EQUAL = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In)
_ORDERED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between)
_RANKS = (exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist)
_NUMBERS = (exp.RowNumber, exp.Ntile)
_CHOOSING = (exp.Where, exp.Having, exp.Qualify, exp.Join)
_TEXTS = (exp.Cast, exp.DPipe, exp.Concat, exp.ConcatWs, exp.GroupConcat)
_HUGEINT = exp.DataType.build("HUGEINT", "duckdb")


def with_whole_statistics(
    query: exp.Query, cores: Sequence[LoweredCore], reader: RowReader
) -> tuple[LoweredCore, ...]:
    """Say which statistics are integers in SQL, if that matters in a query over them."""
    if not _matters(query):
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


def with_whole_numbers(query: exp.Query, cores: Sequence[LoweredCore]) -> exp.Query:
    """Round what is an integer in SQL, where that matters.

    Args:
        query: a query over tables of answers, as SQL has it.
        cores: what these are the answers of.
    """
    written = query.copy()
    if _matters(written):
        _Wholes().query(written, {folded(c.core.table): _columns(c) for c in cores}, {})
    return written


def _columns(core: LoweredCore) -> Columns:
    """Return the columns of a table of answers."""
    types = (core.types.get(k) for k in range(len(core.core.keys)))
    keys = [Kind.WHOLE if type_ in INTEGER_TYPES else Kind.OTHER for type_ in types]
    sums = [Kind.NOISY if whole else Kind.OTHER for whole in core.whole]
    named = [(Role.KEY.named(k), kind) for k, kind in enumerate(keys)]
    return [*named, *((Role.STATISTIC.named(j), kind) for j, kind in enumerate(sums))]


def _matters(query: exp.Query) -> bool:
    if any(any(True for _ in _keys(select)) for select in query.find_all(exp.Select)):
        return True
    return any(True for _ in _texts(query)) or any(True for _ in _compared(query))


def _texts(node: Expr) -> Iterator[Expr]:
    """Yield what stands where text is made of it."""
    for maker in node.find_all(*_TEXTS):
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


def _compared(node: Expr) -> Iterator[list[Expr]]:
    """Yield what is compared with one another."""
    for found in node.find_all(*_EQUAL, *_ORDERED, exp.Order, exp.Count, exp.Case):
        if isinstance(found, exp.Order):
            yield from ([part.this] for part in _tied(found))
        elif isinstance(found, exp.Case):
            if found.this is not None:
                yield [found.this, *(branch.this for branch in found.args["ifs"])]
        elif isinstance(found, exp.Count):
            if isinstance(found.this, exp.Distinct):
                yield from ([part] for part in found.this.expressions)
        elif found.args.get("query") is None and (isinstance(found, _EQUAL) or _chooses(found)):
            yield list(found.iter_expressions())


def _chooses(comparison: Expr) -> bool:
    """Whether rows or groups are chosen by a comparison; that a number isn't negative is none."""
    place = comparison.find_ancestor(exp.Case, exp.If, exp.Query, *_CHOOSING)
    zero = isinstance(comparison, exp.GTE) and comparison.expression == exp.Literal.number(0)
    return isinstance(place, _CHOOSING) and not zero


def _tied(order: exp.Order) -> Sequence[Expr]:
    """Return by which keys rows are chosen, or numbered, that may be equal.

    Where there is nothing else to tell rows apart, the last key's fractions do.
    """
    around = order.parent
    if isinstance(around, exp.Window) and isinstance(around.this, _RANKS):
        return order.expressions
    numbered = isinstance(around, exp.Window) and isinstance(around.this, _NUMBERS)
    cut = isinstance(around, exp.Select) and around.args.get("limit") is not None
    return order.expressions[:-1] if numbered or cut else []


class _Wholes:
    """Looks through the queries of a statement, from the inner ones to those around them."""

    def query(self, query: Expr, tables: Tables, outside: Names) -> Columns:
        """Round what is to be rounded in a query, and return its columns."""
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
            return [(name, _either(one, other)) for (name, one), (_, other) in both]
        if isinstance(query, exp.Select):
            return self._select(query, known, outside)
        return []

    def _select(self, select: exp.Select, tables: Tables, outside: Names) -> Columns:
        clause = select.args.get("from_")
        items = [clause.this] if clause is not None else []
        items += [join.this for join in select.args.get("joins") or []]
        sources = [self._source(item, tables, outside) for item in items]
        kinds: dict[str, Kind] = {}
        for alias, columns in sources:
            for name, kind in columns:  # of two columns of one name it is either
                for called in (name, f"{alias}.{name}"):
                    kinds[called] = _either(kind, kinds.get(called, kind))
        names, outputs = {**outside, **kinds}, list[tuple[str, Kind]]()
        for key in [key.copy() for key in _keys(select)]:
            if _Scope(names, tables).kind(key) is Kind.NOISY:
                _round_key(key, select)
        for item in select.expressions:
            if is_star(item):
                owner = folded(item.text("table"))
                outputs += (c for alias, told in sources if owner in ("", alias) for c in told)
                continue
            called, scope = folded(item.alias_or_name), _Scope(names, tables)
            outputs.append((called, scope.kind(item.unalias())))
            if called not in kinds:  # a later item may name it
                names[called] = outputs[-1][1]
        self._write(select, _Scope(names, tables), items)
        return outputs

    def _source(self, item: Expr, tables: Tables, outside: Names) -> tuple[str, Columns]:
        """Return what an item after FROM is called, and its columns."""
        columns: Columns = []
        if isinstance(item, exp.Subquery):
            columns = self.query(item.this, tables, outside)
        elif isinstance(item, exp.Table):
            columns = tables.get(folded(item.name), [])
        return folded(item.alias_or_name), _renamed(columns, item.args.get("alias"))

    def _write(self, select: exp.Select, scope: _Scope, items: list[Expr]) -> None:
        """Round in a SELECT, but not in the queries after FROM again."""
        inner = {id(node) for item in items for node in item.walk()}

        def here(node: Expr) -> bool:
            return id(node) not in inner and node.find_ancestor(exp.Select) is select

        rounded = [n for text in _texts(select) if here(text) for n in scope.wholes(text)]
        for sides in _compared(select):
            if all(map(here, sides)) and all(scope.kind(s) is not Kind.OTHER for s in sides):
                rounded += [part for side in sides for part in scope.wholes(side)]
        for node in {id(node): node for node in rounded}.values():
            _round(node)
        for part in list(select.find_all(exp.Query)):
            if part.find_ancestor(exp.CTE, exp.Query) is select and id(part) not in inner:
                self.query(part, scope.tables, scope.names)


class _Scope:
    """The columns that an expression may name."""

    def __init__(self, names: Names, tables: Tables) -> None:
        self.names = names
        self.tables = tables

    def kind(self, node: Expr | None) -> Kind:
        """Return the kind of a value; NULL is an integer as well."""
        if isinstance(node, exp.Column):
            table, name = folded(node.text("table")), folded(node.name)
            return self.names.get(f"{table}.{name}" if table else name, Kind.OTHER)
        if isinstance(node, exp.Literal):
            return Kind.WHOLE if not node.is_string and node.name.isdigit() else Kind.OTHER
        if isinstance(node, (exp.Null, exp.Count, exp.CountIf)):
            return Kind.WHOLE
        if isinstance(node, exp.Cast):
            return Kind.WHOLE if node.to.this in exp.DataType.INTEGER_TYPES else Kind.OTHER
        if isinstance(node, exp.Subquery):
            columns = _Wholes().query(node.copy(), self.tables, self.names)
            return columns[0][1] if columns else Kind.OTHER
        if isinstance(node, (exp.Case, exp.If)):
            return _either(*map(self.kind, _branches(node)))
        if isinstance(node, _UNITING):
            return _either(*map(self.kind, node.iter_expressions()))
        return self.kind(_first(node)) if isinstance(node, _KEEPING) else Kind.OTHER

    def wholes(self, value: Expr) -> list[Expr]:
        """Return the largest parts that are noisy integers; none if there are other columns."""
        found = []
        pending = [value]
        while pending:
            node = pending.pop()
            kind = self.kind(node)
            if kind is Kind.NOISY:
                found += [*self._divided(node), node]
            elif kind is Kind.WHOLE:
                continue
            elif isinstance(node, (exp.Column, exp.Query, exp.Window, exp.AggFunc)):
                return []
            else:
                pending += node.iter_expressions()
        return found

    def _divided(self, node: Expr) -> Iterator[Expr]:
        """Yield what is divided within an integer: rounding comes first."""
        for inner in node.find_all(*_DIVIDING):
            parts = inner.iter_expressions()
            yield from (part for part in parts if self.kind(part) is Kind.NOISY)


def _either(*kinds: Kind) -> Kind:
    """Return the kind of what may be one of several, or is computed of them."""
    if not kinds or Kind.OTHER in kinds:
        return Kind.OTHER
    return Kind.NOISY if Kind.NOISY in kinds else Kind.WHOLE


def _round(node: Expr) -> None:
    number = exp.Cast(this=exp.Null(), to=_HUGEINT.copy())
    node.replace(number)
    number.set("this", node)


def _keys(select: exp.Select) -> Iterator[exp.Column]:
    """Yield the columns that rows are grouped by: those after GROUP BY, or where these point."""
    group = select.args.get("group")
    for key in group.expressions if group is not None else []:
        place = key.name if isinstance(key, exp.Literal) and not key.is_string else ""
        pointed = place.isdigit() and 0 < int(place) <= len(select.expressions)
        meant = select.expressions[int(place) - 1].unalias() if pointed else key
        if isinstance(meant, exp.Column):
            yield meant


def _round_key(key: exp.Column, select: exp.Select) -> None:
    """Group by the nearest whole number, and return that."""
    for item in [item for item in select.expressions if item == key]:
        name = exp.to_identifier(item.name, quoted=True)
        item.replace(exp.Alias(this=item.copy(), alias=name))
    clauses = [select.args.get(name) for name in ("group", "having", "qualify", "order")]
    for part in [*select.expressions, *(clause for clause in clauses if clause is not None)]:
        for column in list(part.find_all(exp.Column)):
            within = column.find_ancestor(exp.AggFunc, exp.Select)
            if column == key and within is select:
                _round(column)


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
    return [(name, kind) for name, (_, kind) in zip(names, columns, strict=False)]
