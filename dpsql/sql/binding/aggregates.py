"""Aggregates: which linear statistics each one needs, and how it follows from them.

COUNT and SUM are linear in the rows; averages, variances and regressions are functions of such
sums, see `moments`. Sums of distinct values are made of numbers of these. Let a column have the
values c + s·t, for whole numbers t from 0 to T. The j-th binary digit of t says whether 2^j is a
part of it, so

    SUM(DISTINCT x) = c · COUNT(DISTINCT t) + s · Σ_j 2^j · COUNT(DISTINCT t whose digit j is 1)

and AVG(DISTINCT x) is that by COUNT(DISTINCT t). Nothing is measured but numbers of distinct
values, which are charged as they are elsewhere (`rel/distinct.py`); that privacy is kept rests on
nothing that is said here. A value outside of a domain, or of bounds, is what it is in other sums.

Where units have several rows, each of these numbers is a lower bound, of the values that units
cover. So is their sum, if no factor is negative. Of an average there is none then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import sqlglot
from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.errors import SqlError, printable
from dpsql.hints import Hint, ask, first_that_works, instead, never, option
from dpsql.schema import Domain, Table
from dpsql.schema.domain import INTEGER_TYPES, NumberBounds
from dpsql.schema.grain import declared_type, ids_of_units
from dpsql.schema.names import capitals, folded
from dpsql.schema.sequences import DecimalRange, decimal_scale, decimal_text
from dpsql.schema.units import ResolvedUnit
from dpsql.sql.binding.bind import RowBinder
from dpsql.sql.binding.core import Linear, Quantile, Role
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    conjuncts,
    has_aggregate,
    paren,
    ratio,
    times,
)
from dpsql.sql.binding.moments import ONE, TWO, Moments, of_one, of_two
from dpsql.sql.binding.scope import stored_place
from dpsql.sql.binding.summands import divided
from dpsql.sql.text.spans import SourceText

MOST_DIGITS = 40
"""Binary digits of a value: each is a number that is measured."""
_VALUE = "x"


@dataclass(frozen=True, slots=True)
class ValueSteps:
    """The values of a column: c + s·t, for whole numbers t from 0 to T.

    Args:
        first: c.
        step: s.
        most: T.
        whole: whether the column has integers, and s is one.
        clamped: whether other values are stored, which count as the nearer end.
    """

    first: Fraction
    step: Fraction
    most: int
    whole: bool
    clamped: bool

    @classmethod
    def of(cls, table: Table, name: str) -> ValueSteps | None:
        """Return the values of a column; None if they aren't known by steps, or by too many."""
        type_, domain = declared_type(table, name), table.columns.get(name)
        whole = type_ in INTEGER_TYPES
        if domain is not None:
            found = cls._of_domain(domain, whole=whole)
        else:
            found = cls._of_bounds(table.bounds.get(name), type_)
        return found if found is not None and found.most.bit_length() <= MOST_DIGITS else None

    @classmethod
    def _of_domain(cls, domain: Domain, *, whole: bool) -> ValueSteps | None:
        values = domain.values
        if domain.uppers is not None:
            return None
        if isinstance(values, DecimalRange):
            first, step = Fraction(values[0]), Fraction(values.spacing)
            return cls(first, step, len(values) - 1, whole and step == 1, clamped=False)
        numbers = [value for value in values if type(value) is int]
        if len(numbers) < len(values):
            return None
        least = min(numbers)
        return cls(Fraction(least), Fraction(1), max(numbers) - least, whole, clamped=False)

    @classmethod
    def _of_bounds(cls, bounds: NumberBounds | None, type_: str) -> ValueSteps | None:
        whole = type_ in INTEGER_TYPES
        if bounds is None or not (whole or type_.startswith("DECIMAL")):
            return None
        step = Fraction(1, 1 if whole else 10 ** decimal_scale(type_))
        first, last = -(-bounds.low // step), bounds.high // step
        return cls(first * step, step, last - first, whole, clamped=True)

    @property
    def is_positive(self) -> bool:
        """Whether no value is negative."""
        return self.first >= 0

    @property
    def largest(self) -> Fraction:
        """The largest value without its sign, by which one changes a sum at most."""
        return max(abs(self.first), abs(self.first + self.step * self.most))

    def counted(self, value: Expr) -> Iterator[tuple[Fraction, Expr]]:
        """Yield the expressions whose distinct values are counted for a sum, each with its factor.

        Args:
            value: the column.
        """
        if self.first:
            yield self.first, self.number(value)
        number = self._text
        for place in range(self.most.bit_length()):
            digit = f"{number} // {2**place} % 2"  # where it is 0, there is no quotient
            yield self.step * 2**place, _written(f"{number} // ({digit})", value)

    def number(self, value: Expr) -> Expr:
        """Return t of each row."""
        return _written(self._text, value)

    @property
    def _text(self) -> str:
        stored, first = f"CAST({_VALUE} AS {'BIGINT' if self.whole else 'DOUBLE'})", self.first
        if self.clamped:
            low, high = (decimal_text(end) for end in (first, first + self.step * self.most))
            inside = f"greatest({low}, least({stored}, {high}))"
            stored = f"(CASE WHEN {_VALUE} IS NULL THEN NULL ELSE {inside} END)"
        above = f"({stored} - {decimal_text(first)})" if first else stored
        steps = f"CAST(round({above} / {decimal_text(self.step)}) AS BIGINT)"
        return above if self.whole else steps


def _written(text: str, value: Expr) -> Expr:
    """Write an expression of a column."""
    read: Expr = sqlglot.parse_one(text, dialect="duckdb")
    return read.transform(
        lambda part: value.copy() if isinstance(part, exp.Column) else part, copy=False
    )


_QUANTILES = (exp.Median, exp.PercentileCont, exp.PercentileDisc, exp.Quantile)
_ADDED: tuple[type[Expr], ...] = (exp.Count, exp.CountIf, exp.Sum, *ONE, *TWO)
"""Aggregates that follow from sums over rows."""
_OF_GROUPS = ("expressions", "having", "qualify", "order")
_EXTREMES: dict[type[Expr], float] = {exp.Min: 0.0, exp.Max: 1.0}
"""The least and the largest value, as the quantiles that they are."""
_LONGEST_ARGUMENT = 60
"""Characters of an argument that a hint repeats."""
_NO_DISTINCT = "DISTINCT in an aggregate is not supported."
_PUBLIC = "Distinct values can be counted of private rows alone, and these are of public ones."
_MIXED = (
    "Distinct values can be counted where each private row has one, which follows from the row "
    "alone. Here a private row may have several."
)
_UNCOUNTED = "distinct values can't be counted with this noise: "
_OF_ROWS: tuple[tuple[tuple[type[Expr], ...], str], ...] = (
    ((exp.ArgMin, exp.ArgMax), "it returns a single row's value: "),
    ((exp.ApproxTopK,), _UNCOUNTED),
    ((exp.Mode,), "the most frequent value follows from counts: "),
    (
        (exp.GroupConcat, exp.ArrayAgg, exp.AnyValue, exp.First, exp.Last),
        "it returns single rows' values: ",
    ),
)
"""Aggregates in place of which the rows of each value are counted, and why."""


def aggregate(node: Expr, binder: RowBinder) -> Expr:
    """Return an aggregate as an expression over statistics, which are noted.

    Raises:
        UnsupportedSqlError: it can't be answered with this noise.
        SqlError: it has the wrong arguments.
    """
    inner, filters = _unwrapped(node, binder)
    if isinstance(inner, (exp.Sum, exp.Avg)) and _is_distinct(inner):
        return _of_distinct(inner, filters, binder)
    if isinstance(inner, (exp.Count, exp.CountIf, exp.Sum, exp.ApproxDistinct)):
        found = linear(node, binder)
        if found.weight is not None:
            terms = divided(found.weight, found, binder.table, binder.statistic)
            if terms is not None:
                return terms
        return _s(binder.statistic(found))
    label = _label(node, binder)
    if isinstance(inner, ONE):
        given = binder.summands(_only(inner, binder.source))
        return of_one(inner, Moments(binder, label, given, filters))
    if isinstance(inner, TWO):
        given = binder.summands(inner.this, inner.expression)
        return of_two(inner, Moments(binder, label, given, filters))
    if isinstance(inner, (*_QUANTILES, exp.WithinGroup)) or _is_extreme(inner):
        return _s(binder.statistic(_quantile(inner, filters, label, binder)))
    raise refused(node, binder.source)


def linear(node: Expr, binder: RowBinder) -> Linear:
    """Return COUNT, COUNT_IF or SUM, with its FILTER, as a linear statistic.

    Raises:
        UnsupportedSqlError: it is another aggregate, or of DISTINCT values that aren't units.
    """
    inner, filters = _unwrapped(node, binder)
    label = _label(node, binder)
    if isinstance(inner, exp.ApproxDistinct) or _counts_distinct(inner):
        told = _units_when(inner, binder)
        if told is not None:  # COUNT(DISTINCT CASE WHEN p THEN id END) counts units where p
            return Linear(label, filters=(*filters, *told), of_units=True)
        return Linear(label, filters=filters, of_units=True, values=_values(inner, binder))
    if isinstance(inner, exp.Count):
        argument = inner.this
        if argument is None or isinstance(argument, (exp.Star, exp.Literal, exp.Boolean)):
            return Linear(label, filters=filters)
        present = exp.Not(this=exp.Is(this=exp.Paren(this=argument), expression=exp.Null()))
        return Linear(label, filters=(*filters, _condition(present, node, binder)))
    if isinstance(inner, exp.CountIf):
        _check_distinct(inner, binder.source)
        return Linear(label, filters=(*filters, *_conjuncts(inner.this, binder)))
    if not isinstance(inner, exp.Sum):
        raise refused(node, binder.source)
    argument = _only(inner, binder.source)
    found = _when(argument)
    if found is not None:  # SUM(CASE WHEN p THEN e ELSE 0 END) counts where p: p stays factored
        condition, argument = found
        filters = (*filters, *_conjuncts(condition, binder))
        if argument.unnest() == exp.Literal.number(1):
            return Linear(label, filters=filters)
    (weight,) = binder.summands(argument)
    return Linear(label, weight, filters=filters)


def adds_up(select: exp.Select) -> bool:
    """Whether what a SELECT computes of several sets of rows follows from sums over each of them.

    It does for COUNT, SUM and moments; quantiles, extremes and numbers of units are no sums.
    """
    parts = [part for key, part in select.args.items() if key in _OF_GROUPS and part is not None]
    nodes = (node for part in parts for one in ensure_list(part) for node in _aggregates(one))
    return all(isinstance(node, _ADDED) and not _is_distinct(node) for node in nodes)


def _aggregates(node: Expr) -> Iterator[Expr]:
    """Yield the aggregates in an expression that aren't those of subqueries."""
    if isinstance(node, exp.AggFunc):
        yield node
    elif not isinstance(node, exp.Query):
        for part in node.iter_expressions():
            yield from _aggregates(part)


def _is_distinct(node: Expr) -> bool:
    return isinstance(node.this, exp.Distinct)


def refused(node: Expr, source: SourceText) -> SqlError:
    """Say why an aggregate is not supported, and what is."""
    inner = node
    while isinstance(inner, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        inner = inner.this
    span = source.node(node.this if isinstance(node, exp.Filter) else node)
    word = capitals(source.text(source.node(inner)).split("(")[0].strip())
    if not word.replace("_", "a").isalnum() and isinstance(inner, exp.Func):
        word = inner.sql_name()
    message = f"The aggregate {word} is not supported."
    return source.unsupported(span, message, _in_place_of(inner, node, source))


def _in_place_of(inner: Expr, node: Expr, source: SourceText) -> str:
    """Say what to write in place of an aggregate; `node` is what it is a part of."""
    called = inner if inner.this is not None else node
    for types, why in _OF_ROWS:
        if isinstance(inner, types):
            return why + count_groups(called, source)
    argument = argument_of(called, source)
    if isinstance(inner, (exp.Min, exp.Max)) and argument:
        one = [instead(f"{name}({argument})") for name in ("MIN", "MAX")]
        return "take one value, " + one[0] + " or " + one[1] + ", or several quantiles."
    if isinstance(inner, (exp.LogicalAnd, exp.LogicalOr)) and argument:
        share = instead(f"100.0 * COUNT_IF({argument}) / COUNT(*)")
        return "a single row can change it; ask for the share instead: " + share + "."
    return never(
        "of aggregates, there are only COUNT, COUNT_IF, SUM, AVG, VAR_POP, VAR_SAMP, "
        "STDDEV_POP, STDDEV_SAMP, COVAR_POP, COVAR_SAMP, CORR, REGR_SLOPE and its like, "
        "MEDIAN, QUANTILE_CONT, QUANTILE_DISC, MIN and MAX."
    )


def count_groups(node: Expr, source: SourceText) -> Hint:
    """Say how the rows of each value are counted that an aggregate is called with."""
    values = argument_of(node, source)
    if not values:
        return Hint("count the rows of each value, and look at the noisy counts.")
    counted = ask(f"SELECT {values}, COUNT(*) … GROUP BY {values}")
    return "count the rows of each value, " + counted + ", and look at the noisy counts."


def argument_of(node: Expr, source: SourceText) -> str:
    """Return what a function is called with first, as it was typed; "" if that can't be repeated.

    Of DISTINCT it is the whole list.
    """
    first = (
        node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else node.this
    )
    while isinstance(first, (exp.Order, exp.Distinct)) and isinstance(first.this, exp.Expr):
        first = first.this
    if isinstance(node, exp.WithinGroup) and node.args.get("expression") is not None:
        first = node.expression.expressions[0].this
    written = [
        _typed(one, source)
        for one in (first.expressions if isinstance(first, exp.Distinct) else [first])
    ]
    return ", ".join(written) if all(written) else ""


def _typed(node: object, source: SourceText) -> str:
    """Write an argument as it was typed; nothing if it is long, or no value of a row."""
    if not isinstance(node, exp.Expr) or isinstance(node, exp.Star) or has_aggregate(node):
        return ""
    text = " ".join(source.text(source.node(node)).split())
    return text if len(text) <= _LONGEST_ARGUMENT else ""


def _unwrapped(node: Expr, binder: RowBinder) -> tuple[Expr, tuple[BoundExpr, ...]]:
    """Take FILTER off an aggregate, and bind its condition."""
    if isinstance(node, exp.Filter):
        return node.this, _conjuncts(node.expression.this, binder)
    return node, ()


def _conjuncts(condition: Expr, binder: RowBinder) -> tuple[BoundExpr, ...]:
    return tuple(binder.bind(part) for part in conjuncts(condition))


def _condition(node: Expr, place: Expr, binder: RowBinder) -> BoundExpr:
    """Bind a condition that the analyst didn't write; it stands where the aggregate does."""
    return replace(binder.bind(node), span=binder.source.node(place))


def _only(node: Expr, source: SourceText) -> Expr:
    _check_distinct(node, source)
    argument = node.this
    if not isinstance(argument, exp.Expr):
        raise source.error(
            node, "Something is missing here.", "name what to compute on: SUM(hours)."
        )
    return argument


def _counts_distinct(node: Expr) -> bool:
    return isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct)


def _told_apart(node: Expr) -> list[Expr]:
    """Return what COUNT(DISTINCT …) or APPROX_COUNT_DISTINCT(…) is of."""
    return list(node.this.expressions) if isinstance(node.this, exp.Distinct) else [node.this]


def _values(node: Expr, binder: RowBinder) -> BoundExpr | None:
    """Return the expression whose values are counted; None if it is the units of the table.

    Raises:
        UnsupportedSqlError: it is of several expressions or of public rows, or is meant for units
            that can't be counted, or nothing bounds how many values one unit has.
    """
    table, arguments, source = binder.table, _told_apart(node), binder.source
    if len(arguments) != 1 or node.args.get("accuracy") is not None:
        raise _distinct(node, source)
    bound = binder.bind(arguments[0])
    unit, name = table.unit, stored_place(arguments[0], binder.scope)
    if unit is not None:
        if name is not None and name in ids_of_units(table):
            return None
        meant = _meant_for_units(node, unit, name, binder)
        if meant is not None:
            raise meant
    if bound.relations or bound.node.find(exp.Query) is not None:
        private = bound.attributes or bound.by_row
        raise source.unsupported(node, _MIXED if private else _PUBLIC, count_groups(node, source))
    if unit is not None and unit.max_values is None and unit.max_rows is None:
        raise source.unsupported(
            node,
            f"Nothing says how many of these values count of one {printable(unit.name)}.",
            "give a bound: " + option("max_values", 5) + ".",
        )
    return bound


def _of_distinct(node: Expr, filters: tuple[BoundExpr, ...], binder: RowBinder) -> Expr:
    """Return the sum, or the average, of distinct values, by numbers of distinct values.

    Raises:
        UnsupportedSqlError: the values aren't known by steps, or one unit may have several and
            nothing is known of their sum.
    """
    (argument, *others) = node.this.expressions
    name = stored_place(argument, binder.scope)
    steps = None if others or name is None else ValueSteps.of(binder.table, name)
    if steps is None:
        raise _distinct(node, binder.source)
    unit, mean = binder.table.unit, isinstance(node, exp.Avg)
    if unit is not None and unit.max_rows != 1 and (mean or not steps.is_positive):
        typed = argument_of(node, binder.source)
        raise binder.source.unsupported(
            node,
            "Of values that units cover, only numbers and sums of positive ones have a bound.",
            f"ask for SUM(DISTINCT {typed}) and COUNT(DISTINCT {typed}), two lower bounds."
            if mean and steps.is_positive
            else count_groups(node, binder.source),
        )

    def counted(value: Expr, part: float = 1.0) -> Expr:
        of = exp.Count(this=exp.Distinct(expressions=[value]))
        of.meta.update(node.meta)
        values, label = _values(of, binder), _label(node, binder)
        found = Linear(label, filters=filters, of_units=True, values=values, part=part)
        return _s(binder.statistic(found))

    number = counted(steps.number(argument)) if mean else None
    total: Expr = exp.Literal.number(0)
    for factor, value in steps.counted(argument):
        part = float(abs(factor) / steps.largest)
        term = times(exp.Literal.number(decimal_text(abs(factor))), counted(value, part))
        total = (exp.Sub if factor < 0 else exp.Add)(this=total, expression=term)
    return paren(total) if number is None else ratio(paren(total), number)


def _units_when(node: Expr, binder: RowBinder) -> tuple[BoundExpr, ...] | None:
    """Return the conditions of COUNT(DISTINCT CASE WHEN … THEN id END); None if it is another."""
    (argument, *others) = _told_apart(node)
    found = None if others or binder.table.unit is None else _when(argument)
    if found is None or isinstance(found[1].unnest(), exp.Literal):
        return None
    condition, value = found
    binder.bind(value)
    if stored_place(value, binder.scope) not in ids_of_units(binder.table):
        return None
    return _conjuncts(condition, binder)


def _meant_for_units(
    node: Expr, unit: ResolvedUnit, stored: str | None, binder: RowBinder
) -> SqlError | None:
    """Say why what COUNT(DISTINCT …) counts aren't units, though that is what is meant.

    None if values of another expression are meant.
    """
    table, source = binder.table, binder.source
    id_ = unit.name.rpartition(".")[2]
    called = stored is not None and folded(stored.rpartition(".")[2]) == folded(id_)
    if called and not ids_of_units(table):
        return source.unsupported(
            node,
            f"Units can't be counted here: {printable(unit.name)} is found through references "
            "that the database doesn't enforce, so a row may have none.",
            "create the tables with these references as PRIMARY KEY and FOREIGN KEY; or count "
            "rows.",
        )
    own = next(iter(binder.scope.names_of(ids_of_units(table))), None)
    (argument,) = _told_apart(node)
    named = isinstance(argument, exp.Column)
    beside = stored is not None and "." not in stored + (own or "")
    if called and own is not None and not beside:  # orders.id is none of orders.customer_id
        counted = instead(f"COUNT(DISTINCT {binder.scope.whole(own)})")
        same = "count " + counted + ", which is the same."
        hint: Hint | str = first_that_works([same], _units_elsewhere(unit))
    elif named and own is None and folded(argument.name) == folded(id_):
        hint = _units_elsewhere(unit)  # groups of each unit's rows are no step forward
    else:
        when = _units_counted(argument, unit, binder)
        if when is None:
            return None
        hint = when
    return source.unsupported(
        node, f"What is counted here is not {printable(unit.name)} of the rows.", hint
    )


def _units_counted(argument: Expr, unit: ResolvedUnit, binder: RowBinder) -> Hint | None:
    """Say how units are counted that have a row for which the condition of a CASE is true.

    None if the results of the CASE aren't meant for their ids.
    """
    source, found = binder.source, _when(argument)
    names = sorted(ids_of_units(binder.table))
    own = [binder.scope.whole(name) for name in binder.scope.names_of(names)]
    place = None if found is None else stored_place(found[1], binder.scope)
    if found is None or place is None:
        return None
    condition, id_ = (source.text(source.node(part)) for part in found)
    same = folded(place.rpartition(".")[2]) == folded(unit.name.rpartition(".")[2])
    if not same and place not in names:
        return None
    id_ = own[0] if own and same and place not in names else id_
    return "count units, " + instead(f"COUNT(DISTINCT {id_}) FILTER (WHERE {condition})") + "."


def _units_elsewhere(unit: ResolvedUnit) -> str:
    return f"join the table that has {printable(unit.name)}, and count these."


def _check_distinct(node: Expr, source: SourceText) -> None:
    if isinstance(node.this, exp.Distinct):
        raise _distinct(node, source)


def _distinct(node: Expr, source: SourceText) -> SqlError:
    return source.unsupported(node, _NO_DISTINCT, _UNCOUNTED + count_groups(node, source))


def _when(node: Expr) -> tuple[Expr, Expr] | None:
    """Split CASE WHEN p THEN e [ELSE 0 | ELSE NULL] END, or IF(p, e, 0), into p and e."""
    node = node.unnest()
    if isinstance(node, exp.If):
        branch, otherwise = node, node.args.get("false")
    elif isinstance(node, exp.Case) and node.this is None and len(node.args["ifs"]) == 1:
        branch, otherwise = node.args["ifs"][0], node.args.get("default")
    else:
        return None
    zero = otherwise is None or otherwise.unnest() in (exp.Literal.number(0), exp.Null())
    value = branch.args.get("true")
    return (branch.this, value) if zero and value is not None else None


def _is_extreme(node: Expr) -> bool:
    """Whether a node is the MIN or MAX of one expression, not that of the n first ones."""
    return type(node) in _EXTREMES and not any(v for k, v in node.args.items() if k != "this")


def _quantile(
    node: Expr, filters: tuple[BoundExpr, ...], label: str, binder: RowBinder
) -> Quantile:
    if type(node) in _EXTREMES:
        plain = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        return Quantile(label, binder.bind(plain), _EXTREMES[type(node)], False, filters)
    if isinstance(node, exp.WithinGroup):
        ordered = [] if node.args.get("expression") is None else node.expression.expressions
        if len(ordered) != 1 or not isinstance(node.this, (exp.PercentileCont, exp.PercentileDisc)):
            raise refused(node, binder.source)
        inner: Expr = node.this
        value, level = binder.bind(ordered[0].this), inner.this
        descending = bool(ordered[0].args.get("desc"))
    else:
        inner, value = node, binder.bind(_only(node, binder.source))
        level, descending = inner.args.get("expression") or inner.args.get("quantile"), False
    probability = 0.5 if isinstance(inner, exp.Median) else _probability(level, node, binder)
    continuous = isinstance(inner, (exp.Median, exp.PercentileCont))
    probability = 1 - probability if descending else probability
    all_rows = bool(inner.meta.get("all_rows"))
    return Quantile(label, value, probability, continuous, filters, all_rows)


def _probability(level: Expr | None, node: Expr, binder: RowBinder) -> float:
    number = level.unnest() if level is not None else None
    if isinstance(number, exp.Literal) and not number.is_string and 0 <= float(number.name) <= 1:
        return float(number.name)
    raise binder.source.error(
        level if level is not None and number is not None else node,
        "A quantile needs one probability between 0 and 1, written as a number.",
        "write one, " + _quartile(node, binder.source) + "; several quantiles are several columns.",
    )


def _quartile(node: Expr, source: SourceText) -> Hint:
    """Write the first quartile of what a quantile is of."""
    of = source.node(node)
    inner = node.this if isinstance(node, exp.WithinGroup) else node
    function = "QUANTILE_DISC" if isinstance(inner, exp.PercentileDisc) else "QUANTILE_CONT"
    return instead(f"{function}({argument_of(node, source) or 'x'}, 0.25)", of=of)


def _label(node: Expr, binder: RowBinder) -> str:
    return " ".join(binder.source.text(binder.source.node(node)).split())


def _s(number: int) -> Expr:
    return Role.STATISTIC.column(number)
