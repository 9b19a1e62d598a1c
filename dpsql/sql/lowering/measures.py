"""Sums that are added up row by row: measures, where cells are too many or not known.

A measure is an integer of each row, of public bounds (see `rows.measure`). Conditions on columns
without a domain are part of it: a row that doesn't meet them adds nothing. So a COUNT under such
a condition is a measure, too, to which a row adds 0 or 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from types import MappingProxyType

from sqlglot import exp

from dpsql.errors import (
    SchemaError,
    Span,
    SqlError,
    SqlSchemaError,
    UnsupportedSqlError,
    WantedColumn,
)
from dpsql.hints import instead
from dpsql.rel.distinct import ReadValue
from dpsql.rows import expression as row
from dpsql.rows.cuts import Range
from dpsql.rows.divisors import around_zero, not_zero
from dpsql.rows.expression import (
    RowExpression,
    spelled,
    sum_spelled,
)
from dpsql.rows.found import FoundExpression
from dpsql.rows.functions import FUNCTIONS, of_shapes
from dpsql.rows.key import RowKey, described, row_key
from dpsql.rows.known import (
    Interval,
    RowBounds,
    common,
    is_nullable,
    may_be_nan,
    type_bounds,
    union,
)
from dpsql.rows.measure import (
    FINE,
    adds_always,
    bounded_columns,
    chosen_step,
    in_common,
    last_digit,
    measure,
    middle_of,
    power_of_two,
    says_there,
)
from dpsql.rows.read import read_expression
from dpsql.rows.times import with_clocks
from dpsql.rows.types import DOUBLE, MOST_DIGITS, NANOSECONDS, VARCHAR, RowType, row_type
from dpsql.rows.write import RowWriter, known_as
from dpsql.schema import Table
from dpsql.schema.domain import ZONED, Merging
from dpsql.schema.drafts import bounds_hint, expression_hint, finding_bounds_hint, have
from dpsql.schema.entries import BoundedExpression
from dpsql.schema.names import as_sql, quoted_text, unused
from dpsql.schema.sequences import has_digits
from dpsql.sql.binding.core import Linear, Within
from dpsql.sql.binding.expressions import BoundExpr, as_stored
from dpsql.sql.lowering.few_values import numbers, ranges
from dpsql.sql.lowering.matrices import AddedUp
from dpsql.sql.lowering.stored_values import (
    clamped,
    ends_of,
    filled,
    number,
    read_type,
    with_moments,
    with_rounded_times,
    within,
)
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.spans import SourceText

MAX_MAGNITUDE = 10**30
"""The most that a row may add, and one over it: squares, products of four and their variances fit
doubles."""
WIDER = Fraction(3, 2)
"""By so much may the range of values be wider where those that are missing count as 0."""
_ONE = row.RowConstant("INTEGER", "1")
_WIDE = Fraction(-(2**63)), Fraction(2**63)
"""The widest bounds that are found of a column: of what has none with these, its own are found."""


@dataclass(frozen=True, slots=True)
class _Added:
    """A value that each row adds, before conditions: its ends, and the steps that it is known to.

    It is `centered` where the middle of its ends is taken off first.
    """

    value: row.RowExpression
    ends: tuple[Fraction, Fraction]
    step: Fraction
    centered: bool = False
    instead: str = ""
    """The measure in whose place it is, of rows with a value alone."""


class RowReader:
    """Makes measures of bound expressions.

    Args:
        sandbox: reads SQL.
        table: the private table.
        source: the statement's text.
        declared: bounds of expressions besides what follows from their columns.
        from_zero: whether sums, but for those of averages, are added up as they are and not around
            a middle that is put back.
        drawing: whether quantiles are drawn that could be read off running totals, too.
        summed: columns of which sums are asked and nothing else: rows without a value count as 0.
        around: measures to which such rows add nothing, in place of which no others are made.
        stored_in: columns of relations → the tables that they are stored in, and their names there.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        table: Table,
        source: SourceText,
        declared: Mapping[row.RowExpression, Interval] = MappingProxyType({}),
        *,
        from_zero: bool = False,
        drawing: bool = False,
        summed: frozenset[str] = frozenset(),
        around: frozenset[str] = frozenset(),
        stored_in: Mapping[str, tuple[Table, str]] = MappingProxyType({}),
    ) -> None:
        self._from_zero, self._stored_in = from_zero, stored_in
        self._summed = frozenset() if from_zero else summed
        self._around = around
        self.draws_all = drawing
        """Whether quantiles are drawn wherever they can be."""
        self._sandbox, self._table, self._source = sandbox, table, source
        self.types = dict(table.undeclared) | {n: read_type(d) for n, d in table.columns.items()}
        """Column → the type that it is read with."""
        self._zones = {
            name: table.columns[name].zone if name in table.columns else None
            for name, type_ in self.types.items()
            if type_ == ZONED
        }
        self._canonical = {f"__a{i}": name for i, name in enumerate(table.columns)}
        self._canonical |= {f"__w{i}": name for i, name in enumerate(table.undeclared)}
        own = unused((*table.columns, *table.undeclared))
        self._stored = {own + name: name for name in table.columns}
        """The name that stands for what is stored, whatever SQL sees of it → column: no column of
        the table is called so."""
        self._names = self._canonical | {as_stored(i): n for i, n in enumerate(self._stored)}
        known = type_bounds({n: type_ for n, type_ in self.types.items() if type_ == "BOOLEAN"})
        self._given = {name: (b.low, b.high) for name, b in table.bounds.items()}
        known |= self._given | {
            name: ends for name, d in table.columns.items() if (ends := ends_of(d)) is not None
        }
        known |= {one.name: one.between for one in table.added if one.domain is None}
        self._bounds = RowBounds(
            known, table.filled, declared, typed=False, unit=self._unit, where=self._where
        )
        # A row counts only if it has a value of the domain in each column that is named.
        always = (name for name, domain in table.columns.items() if not domain.nullable)
        self._filled = table.filled.union(always)
        self._read: dict[str, row.RowExpression] = {}
        self._keys: dict[tuple[str, bool, bool], RowKey | None] = {}

    def added_up(
        self,
        linear: Linear,
        conditions: Sequence[BoundExpr],
        centers: Sequence[float] = (),
        *,
        counted: bool = False,
    ) -> AddedUp:
        """Return the measure of a statistic, for rows that meet some conditions besides its own.

        Args:
            linear: the statistic.
            conditions: those that are part of what a row adds.
            centers: what is taken off each of two weights that are multiplied.
            counted: whether rows that have a weight are counted by themselves.

        Raises:
            SqlError: something in it can't be evaluated row by row, or has no public bounds.
        """
        weight, restored = linear.weight, False
        span = None if weight is None else weight.span
        if weight is None:
            added = _Added(_ONE, (Fraction(0), Fraction(1)), Fraction(1))
        elif linear.times is not None:
            value, ends, step = self._product((weight, linear.times), centers, linear.within)
            # The middle of squares is put back by what is made of them.
            added = _Added(value, ends, step, centered=ends[0] == 0)
        else:
            # Averages put the center back themselves. Elsewhere it is put back for each row that
            # is counted, so it is taken off only if just those have a value.
            plainly = not (linear.center or conditions or self._from_zero)
            full = self._with_zeros(weight, linear.within) if plainly else None
            restored = plainly and (bool(full) or counted or self.is_always_there(weight))
            added = full or self._weighted(weight, linear.within, linear.center or restored)
        value = added.value
        if conditions:
            holds = row.all_of(tuple(map(self.expression, conditions)))
            value = row.RowCase(((holds, value),), row.NOTHING)
        with self.at(span):
            alone = isinstance(value, row.RowColumn)
            made = measure(
                self._bounded(value, linear.within) if alone else value,
                self.types,
                added.ends,
                added.step,
                centered=added.centered,
            )
        steps = f"{made.low}..{made.high} steps of {added.step} from {made.middle}"
        name = f"sum of {known_as(value, self.types, added_up=True)} in {steps}"
        self._check_name(name, span)
        label = sum_spelled(
            [self._plain(factor) for factor in (weight, linear.times) if factor is not None],
            [number(Fraction(f"{center:.6g}")) for center in centers],
            [self._plain(condition) for condition in conditions],
        )
        return AddedUp(name, label, made, restored=restored, instead=added.instead)

    def _plainly(self, weight: BoundExpr, within: Within) -> str:
        """Name the measure of a sum to which rows without a value add nothing."""
        reader = copy(self)
        reader._summed = frozenset()
        return reader.added_up(Linear("", weight, within=within), (), counted=True).name

    def _with_zeros(self, weight: BoundExpr, within: Within) -> _Added | None:
        """Return what rows add by one weight of which only sums are asked, 0 where it is missing.

        With the middle that is put back for all rows, a sum needs no count of those with a value:
        no other query asks for that. None if each row has a value, or a row may fail to have one;
        or if 0 is so far away from all values that these would add much more.
        """
        names = weight.by_row
        if len(names) != 1 or not names <= self._summed or self.is_always_there(weight):
            return None
        value, ends = self._value(weight, within)
        floats = not RowWriter(self.types).write(value).type.is_exact
        if not (floats or all(has_digits(end, MOST_DIGITS) for end in ends)):
            return None
        value = filled(value, ends, floats=floats)
        own, ends = ends, (min(ends[0], Fraction(0)), max(ends[1], Fraction(0)))
        if ends[1] - ends[0] > WIDER * (own[1] - own[0]):
            return None
        if not self._is_there(value) or not _has_middle(*ends):
            return None
        plain = self._plainly(weight, within)
        if plain in self._around:
            return None
        step = self._step(value, ends, centered=True)
        return _Added(value, ends, step, centered=True, instead=plain)

    def _weighted(self, weight: BoundExpr, within: Within, center: bool) -> _Added:
        """Return what rows add by one weight, around the middle of its range if that is wanted."""
        value, ends = self._value(weight, within)
        centered = center and _has_middle(*ends)
        step = self._step(value, ends, centered=centered)
        if not centered and not ends[0] <= 0 <= ends[1]:
            # A measure takes 0 in between, for rows that add nothing.
            value = clamped(row.RowCast(value, DOUBLE), *map(number, ends))
        elif not isinstance(value, row.RowColumn):  # which is the same either way
            value = self._bounded(value, within)
        return _Added(value, ends, step, centered=centered)

    def _check_name(self, name: str, span: Span | None) -> None:
        """Refuse a measure, or a key, that would be taken for a column."""
        if name in self._table.columns or name in self._table.undeclared:
            raise self._source.unsupported(
                span or self._source.whole(),
                "A column of the table has a name that dpsql uses itself.",
                "rename the column.",
            )

    def within(self, linear: Linear, where: Iterable[BoundExpr]) -> Within:
        """Return between which numbers columns lie in the rows that a statistic adds up.

        Nobody's privacy rests on it: what a row adds is brought between the bounds that follow,
        whatever it holds, and whether or not it meets the conditions.

        Args:
            linear: the statistic.
            where: the conditions of its core.
        """
        read = self._read_plainly((*where, *linear.filters)) if _by_rows(linear) else []
        names = frozenset[str]().union(*(row.columns(condition) for condition in read))
        found = dict(numbers(read, {n: self.types[n] for n in names if n in self.types}))
        for name in names & self._bounds.columns.keys():
            column = row.RowColumn(name)
            unit = self._unit(column)
            if unit and any(column in not_zero(condition, holds=True) for condition in read):
                ends = common(self._bounds.columns[name], found.get(name, (None, None)))
                sides = around_zero(ends, unit)
                found |= {name: sides[0]} if len(sides) == 1 else {}
        return tuple(sorted(found.items()))

    def _where(self, condition: row.RowExpression) -> Within:
        return numbers([condition], {n: self.types[n] for n in row.columns(condition)})

    def _unit(self, value: row.RowExpression) -> Fraction | None:
        return last_digit(value, self.types)

    def moments(self, conditions: Iterable[BoundExpr], names: Iterable[str]) -> dict[str, Range]:
        """Return between which places timestamps lie where all of some conditions are true."""
        return ranges(self._read_plainly(conditions), dict.fromkeys(names, "TIMESTAMP"))

    def _read_plainly(self, conditions: Iterable[BoundExpr]) -> list[RowExpression]:
        """Read those conditions that can be read, of what is stored in columns."""
        read = list[RowExpression]()
        for condition in conditions:
            with suppress(SqlError):  # which will be told where it is lowered
                read.append(self._plain(condition))
        return read

    def center(self, weight: BoundExpr, within: Within = ()) -> float:
        """Return what averages of an expression take off the value of each row.

        Args:
            weight: the expression.
            within: between what columns lie.

        Raises:
            SqlError: it can't be evaluated row by row, or has no public bounds.
        """
        value, ends = self._value(weight, within)
        if not _has_middle(*ends):
            return 0.0
        step = self._step(value, ends, centered=True)
        return float(middle_of(ends, step) * step)

    def is_restored_for_some(self, weight: BoundExpr, within: Within = ()) -> bool:
        """Whether the middle of the values is put back for some rows only: not all have a value."""
        if not weight.by_row or self._from_zero:
            return False
        with suppress(SqlError):  # which will be told where it is lowered
            if self._with_zeros(weight, within) is not None:
                return False
            return not self.is_always_there(weight) and self.center(weight, within) != 0
        return False

    def is_always_there(self, weight: BoundExpr) -> bool:
        """Whether each row that counts has a value of an expression to add."""
        return self._is_there(self._plain(weight))

    def always_holds(self, bound: BoundExpr) -> bool:
        """Whether a condition is that something is there which is there in every row."""
        return says_there(self._plain(bound), self._is_there)

    def _is_there(self, value: row.RowExpression) -> bool:
        """Whether no row that counts lacks a value, or has NaN."""
        filled = self._filled
        if isinstance(value, row.RowColumn) and value.name in filled & self._table.columns.keys():
            return True  # NaN is in no domain
        if not is_nullable(value, filled) and not may_be_nan(value):
            return not RowWriter(self.types).write_double(value).may_lack
        return adds_always(value, self.types, filled)

    def key(
        self, bound: BoundExpr, *, rounded: bool = False, counted: bool = True
    ) -> RowKey | None:
        """Return the key that an expression is, if its values are known.

        Args:
            bound: the expression.
            rounded: whether they may be those of a number that is rounded, by declared bounds.
            counted: whether it is of values as they count; a part of a condition is of stored ones.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row, or a column has
                the name of the key.
        """
        asked = bound.sql, rounded, counted
        if asked not in self._keys:  # conditions are looked at more than once
            self._keys[asked] = self._key(bound, rounded=rounded, counted=counted)
        found = self._keys[asked]
        if found is not None:
            self._check_name(found.name, bound.span)
        return found

    def _key(self, bound: BoundExpr, *, rounded: bool, counted: bool) -> RowKey | None:
        expression = self._as_stored(self._within(self._plain(bound), counted=counted))
        with self.at(bound.span):
            label = spelled(self._as_stored(self._plain(bound)))
            found = row_key(expression, self.types, self._table.filled, label)
            if found is None:
                found = self._told(expression)
            if found is None and rounded:
                from dpsql.sql.lowering.few_values import bucket_key  # which few need

                found = bucket_key(expression, self.types, self._bounds)
        return found

    def _told(self, expression: row.RowExpression) -> RowKey | None:
        """Return the key of an expression whose values were found in the rows."""
        if not self._table.told:
            return None
        told = FoundExpression.of(expression, self.types, self._table.filled)
        domain = None if told is None else self._table.told.get(told.name)
        return None if told is None or domain is None else told.key(domain, self.types)

    def reads_moved(self, bound: BoundExpr) -> bool:
        """Whether an expression reads a column whose values count as the nearest of its domain.

        Numbers that are computed of times known by their day, say, are the same of these as of what
        is stored: whatever depends on more was refused when it was bound (`binding/instants.py`).
        """
        harmless = {Merging.ENDS, *([Merging.TIME] if self.type_of(bound).is_number else [])}
        read = row.columns(self.expression(bound)) & self._table.columns.keys()
        return any(self._table.merges(name) - harmless for name in read)

    def type_of(self, bound: BoundExpr) -> RowType:
        """Return the type of an expression.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row.
        """
        expression = self.expression(bound)
        with self.at(bound.span):
            return RowWriter(self.types).write(expression).type

    def read_value(self, bound: BoundExpr) -> ReadValue:
        """Return how a value is read whose distinct values are counted.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row.
        """
        expression = self.expression(bound)
        with self.at(bound.span):
            value = RowWriter(self.types).write(expression)
        return ReadValue(value, row.columns(expression), described(expression, self.types))

    def expression(self, bound: BoundExpr) -> row.RowExpression:
        """Read a bound expression as one of a row.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row.
        """
        return self._as_stored(self._within(self._plain(bound)))

    def as_stored(self, bound: BoundExpr) -> row.RowExpression:
        """Read a bound expression over what is stored, whatever counts of that.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row.
        """
        return self._as_stored(self._plain(bound))

    def compared(self, bound: BoundExpr) -> tuple[row.RowExpression, RowType]:
        """Read what is compared in a condition, which is on what is stored; and its type.

        Raises:
            SqlError: it has something in it that can't be evaluated row by row.
        """
        expression = self._within(self._plain(bound), counted=False)
        with self.at(bound.span):
            return expression, RowWriter(self.types).write(expression).type

    def _plain(self, bound: BoundExpr) -> row.RowExpression:
        """Read an expression over columns as they are stored."""
        if bound.sql not in self._read:
            if bound.relations:
                raise self._source.unsupported(
                    bound.span,
                    "This depends on a column without a domain and on a joined table.",
                    "compare the column with values, or declare its domain.",
                )
            with self.at(bound.span):
                rounded = with_rounded_times(bound.node, self._is_nanoseconds)
                written = with_moments(rounded, self._sandbox)
                read = read_expression(self._sandbox.tree(written))
                self._check_patterns(read)
                self._read[bound.sql] = with_clocks(self._named(read), self._zones)
        return self._read[bound.sql]

    def _is_nanoseconds(self, canonical: str) -> bool:
        return self.types.get(self._canonical.get(canonical, "")) == NANOSECONDS.name

    def _check_patterns(self, node: row.RowExpression) -> None:
        """Let DuckDB read regular expressions here, where what it says can be told."""
        for part in row.nodes(node):
            if isinstance(part, row.RowCall) and part.function in _BY_PATTERN:
                for given in part.arguments[1:]:
                    if isinstance(given, row.RowConstant):
                        self._sandbox.rows(f"SELECT regexp_matches('', {quoted_text(given.text)})")

    def _named(self, node: row.RowExpression) -> row.RowExpression:
        """Put columns in place of their canonical names; what is never NaN isn't asked whether."""
        if isinstance(node, row.RowColumn):
            if node.name not in self._names:
                raise UnsupportedSqlError("This depends on a column of another table.")
            return row.RowColumn(self._names[node.name])
        named = row.replaced(node, self._named)
        if isinstance(named, row.RowCall) and named.function == "or":
            asked = named.arguments
            kept = tuple(part for part in asked if not self._is_needless(part, asked))
            if len(kept) < len(asked):
                return row.RowCall("or", kept) if len(kept) > 1 else kept[0]
        return named

    def _is_needless(self, node: row.RowExpression, beside: Collection[row.RowExpression]) -> bool:
        """Whether a part of an OR is that a value is NaN, which it never is.

        That it is NULL must be asked beside it: else it would make NULL of the OR.
        """
        if not isinstance(node, row.RowCall) or node.function != "isnan":
            return False
        (value,) = node.arguments
        inner = value.value if isinstance(value, row.RowCast) else value
        if row.RowCall("is_null", (inner,)) not in beside or not isinstance(inner, row.RowColumn):
            return False
        if self.types[inner.name] == ZONED:
            return False
        type_ = row_type(self.types[inner.name])
        in_domain = inner.name in self._table.columns  # where NaN never is
        return type_.is_exact or (in_domain and type_.is_number)

    def _within(self, node: row.RowExpression, counted: bool = True) -> row.RowExpression:
        """Put what SQL sees of columns with a domain in their place.

        Args:
            node: the expression.
            counted: whether its value counts, and isn't what a condition is about.
        """
        if isinstance(node, row.RowColumn):
            domain = self._table.columns.get(node.name)
            if domain is None:
                return node
            enforced = node.name in self._table.enforced
            return within(node, domain, enforced=enforced, counted=counted)
        if isinstance(node, row.RowCall) and node.function == "clock":
            return self._on_clock(node, counted)
        if isinstance(node, row.RowCase):
            cases = (
                (self._within(condition, False), self._within(result, counted))
                for condition, result in node.cases
            )
            return row.RowCase(tuple(cases), self._within(node.otherwise, counted))
        if isinstance(node, row.RowCall) and FUNCTIONS[node.function].result == "BOOLEAN":
            counted = False
        return row.replaced(node, lambda part: self._within(part, counted))

    def _as_stored(self, node: row.RowExpression) -> row.RowExpression:
        """Put columns in place of the names that stand for what is stored, whatever SQL sees."""
        if isinstance(node, row.RowColumn):
            return row.RowColumn(self._stored.get(node.name, node.name))
        return row.replaced(node, self._as_stored)

    def _on_clock(self, node: row.RowCall, counted: bool) -> row.RowExpression:
        """Put what SQL sees of an instant with a domain in its place."""
        column = node.arguments[0]
        domain = self._table.columns.get(column.name) if isinstance(column, row.RowColumn) else None
        if domain is None or domain.zone is None or not isinstance(column, row.RowColumn):
            return node
        shown = row.RowCall("clock", (column, row.RowConstant("VARCHAR", domain.zone)))
        enforced = column.name in self._table.enforced
        return within(node, domain, enforced=enforced, counted=counted, shown=shown)

    def known(self, bound: BoundExpr) -> tuple[row.RowExpression, Interval]:
        """Return the tree by which bounds of an expression are found, and what it has without.

        Raises:
            SqlError: it is no number that can be evaluated row by row.
        """
        value = self.expression(bound)
        with self.at(bound.span):
            RowWriter(self.types).write_double(value)
        return row.ordered(value), self._bounds.of(row.ordered(value))

    def between(self, values: Sequence[row.RowExpression]) -> Interval:
        """Return between which numbers all of some expressions lie, days of 1970 for times."""
        return union([self._bounds.of(row.ordered(value)) for value in values])

    def bounded(self, bound: BoundExpr) -> tuple[row.RowExpression, tuple[Fraction, Fraction]]:
        """Return a number of a row, and its public bounds.

        Raises:
            SqlError: it can't be evaluated row by row, or has no public bounds.
        """
        return self._value(bound, ())

    def _value(
        self, bound: BoundExpr, within: Within
    ) -> tuple[row.RowExpression, tuple[Fraction, Fraction]]:
        """Return a number of a row, and its public bounds where columns lie within some."""
        value = self.expression(bound)
        columns = {**self._bounds.columns, **self._inside(self._bounds.columns, within)}
        low, high = replace(self._bounds, columns=columns).of(row.ordered(value))
        if low is None or high is None:
            raise self._unbounded(bound, value)
        self._check_magnitude(bound, max(-low, high))
        return value, (low, high) if low < high else (low, low + 1)

    def _check_magnitude(self, bound: BoundExpr, largest: Fraction) -> None:
        """Refuse what floats can't hold once it is squared and added up."""
        if largest > MAX_MAGNITUDE or 0 < largest < Fraction(1, MAX_MAGNITUDE):
            size, other = ("large", "divide") if largest > 1 else ("small", "multiply")
            raise self._source.unsupported(
                bound.span,
                f"These values are too {size} to be added up.",
                f"{other} them: their bounds may be from 1e-30 to 1e+30.",
            )

    def _unbounded(self, bound: BoundExpr, value: row.RowExpression) -> SqlError:
        """Say which column needs bounds; or that no bounds of columns are enough.

        What can't run on rows would need none, and is refused for that.
        """
        with self.at(bound.span):
            is_text = RowWriter(self.types).write(value).type == VARCHAR
        if is_text:
            said = "What is added up needs a number on rows, not VARCHAR."
            cast = instead(f"CAST({self._source.text(bound.span)} AS DOUBLE)")
            raise self._source.unsupported(bound.span, said, "read it as one: " + cast + ".")
        with self.at(bound.span):
            RowWriter(self.types).write_double(value)
        lacking = self._bounds.lacking(row.ordered(value))
        known = [name for name in lacking if self._is_number(name)]
        if any(n in self._table.computed or self.stored(n)[0].made_of for n in lacking):
            said = "This can't be added up: what is computed from other rows has no public bounds."
            low, high = self._likely(value)
            text = f"greatest({low}, least({self._source.text(bound.span)}, {high}))"
            hint = "give it bounds, for example " + instead(text) + "."
            raise self._source.error(bound.span, said, hint, SqlSchemaError)
        stored = self._over_stored(bound)
        of = BoundedExpression(stored, frozenset(self.stored(n)[1] for n in row.columns(value)))
        found = of if stored.isprintable() and stored and not self._table.made_of else None
        wide = {**self._bounds.columns, **dict.fromkeys(known, _WIDE)}
        if None not in replace(self._bounds, columns=wide).of(row.ordered(value)):
            return self._no_bounds(bound, known, found if len(known) > 1 else None)
        said = "This can't be added up: no public bounds follow from those of its columns."
        hint = expression_hint(self._table.typed, self._source.text(bound.span), stored)
        if found is None:
            return self._source.unsupported(bound.span, said, hint)
        error = SchemaError(said, hint=finding_bounds_hint() + hint)
        path, column = self._table.path, min(found.columns)
        error.wanted = WantedColumn(path, column, bounds=True, computed=found)
        return self._source.located(error, bound.span)

    def _over_stored(self, bound: BoundExpr) -> str:
        """Write an expression over the table's columns, whatever a statement calls them.

        It is "" if something else is in it: columns of other tables, or what is computed of rows.
        """
        node = bound.node.copy()
        for part in node.find_all(exp.Column):
            name = self._canonical.get(part.name, "")
            place = self._table, name
            if not name or name in self._table.joined or self._stored_in.get(name, place) != place:
                return ""
            part.set("this", exp.Identifier(this=name, quoted=as_sql(name) != name))
        return node.sql(dialect="duckdb", comments=False)

    def _no_bounds(
        self, bound: BoundExpr, names: Sequence[str], of: BoundedExpression | None
    ) -> SqlError:
        """Say that columns need bounds, as the table calls them that they are stored in.

        Where what is computed of several may be found, its own bounds are nearer than theirs.
        """
        stored = {name: self.stored(name) for name in names}
        (table, _), shown = stored[names[0]], [name for _, name in stored.values()]
        typed = [(stored[n][1], self.types[n]) for n in names if stored[n][0] is table]
        said = f"This can't be added up: {have(shown)} no public bounds."
        hint, findable = bounds_hint(table.typed, typed), not table.made_of
        error = SchemaError(said, hint=finding_bounds_hint() + hint if findable else hint)
        sought = WantedColumn(table.path, typed[0][0], bounds=True, computed=of)
        error.wanted = sought if findable else None
        return self._source.located(error, bound.span)

    def stored(self, name: str) -> tuple[Table, str]:
        """Return the table in which a column is stored, and its name there."""
        return _stored(*self._stored_in.get(name, (self._table, name)))

    def _is_number(self, name: str) -> bool:
        return self.types[name] != ZONED and row_type(self.types[name]).is_number

    def _likely(self, value: row.RowExpression) -> tuple[int, int]:
        """Return bounds to propose: as far as days of declared columns are apart, if it has any."""
        computed = {one.name: one.columns for one in self._table.added}
        names = {n for name in row.columns(value) for n in computed.get(name, {name})}
        ends = [(d.values[0], d.values[-1]) for n, d in self._table.columns.items() if n in names]
        days = [
            (last - first).days
            for first, last in ends
            if isinstance(first, date) and isinstance(last, date)
        ]
        return (-max(days), max(days)) if days else (0, 1000)

    def _step(
        self, value: row.RowExpression, ends: tuple[Fraction, Fraction], *, centered: bool
    ) -> Fraction:
        """Choose to multiples of what values are rounded, or their sums."""
        most = (ends[1] - ends[0]) / 2 if centered else max(-ends[0], ends[1])
        step = chosen_step(value, self.types, most)
        # A coarse one must not move the ends, to which values are brought, far outward.
        common = in_common((step, *ends))
        return common if most < FINE * common else step

    def _inside(
        self, known: Mapping[str, Interval], within: Within
    ) -> dict[str, tuple[Fraction, Fraction]]:
        """Return the bounds of columns that are known on both sides, and lie within some."""
        found = {}
        for name, ends in within:
            low, high = common(known.get(name, (None, None)), ends)
            if low is not None and high is not None and low <= high:
                found[name] = low, high
        return found

    def _bounded(self, value: row.RowExpression, within: Within) -> row.RowExpression:
        given = {**self._given, **self._inside(self._given, within)}
        return bounded_columns(value, self.types, given)

    def _product(
        self, weights: Sequence[BoundExpr], centers: Sequence[float], within: Within
    ) -> tuple[row.RowExpression, tuple[Fraction, Fraction], Fraction]:
        """Return the product of how far two numbers are from their middles."""
        factors: list[row.RowExpression] = []
        product = Fraction(1)
        for weight, center in zip(weights, centers, strict=True):
            value, (low, high) = self._value(weight, within)
            middle = Fraction(center)
            product *= max(middle - low, high - middle)
            inside = clamped(row.RowCast(value, DOUBLE), number(low), number(high))
            factors.append(row.RowCall("-", (inside, number(middle))))
        least = Fraction(0) if factors[0] == factors[1] else -product
        step = power_of_two((product - least) / 2 / FINE)
        return row.RowCall("*", tuple(factors)), (least, product), step

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """Mark where something can't be evaluated row by row."""
        try:
            yield
        except SandboxError as error:
            hint = "write it in DuckDB's syntax; parentheses make clear what belongs together."
            raise self._source.error(span, f"DuckDB can't read this: {error}.", hint) from None
        except SqlError as error:
            if error.span is not None:
                raise
            raise self._source.error(span, error.message, error.hint, type(error)) from None
        except SchemaError as error:
            raise self._source.located(error, span or self._source.whole()) from None


_BY_PATTERN = of_shapes("regex")


def _by_rows(linear: Linear) -> bool:
    """Whether a statistic adds something up row by row."""
    return any(weight.by_row for weight in linear.weights)


def _has_middle(low: Fraction, high: Fraction) -> bool:
    """Whether the middle of some bounds is not nearly zero, so that it makes values smaller."""
    return abs(low + high) > (high - low) / 1000


def _stored(table: Table, name: str) -> tuple[Table, str]:
    """Return the table in which a column of a table, or of what it refers to, is stored."""
    for parent in table.parents:
        for own, joined in parent.names.items():
            if joined == name:
                return _stored(parent.table, own)
    return table, name
