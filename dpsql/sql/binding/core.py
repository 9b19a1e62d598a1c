"""A core: the part of a statement that counts rows of the private table.

Everything else in a statement computes on the noisy answers of its cores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, NamedTuple

from sqlglot import exp

from dpsql.errors import Span
from dpsql.rows.known import Interval
from dpsql.sql.binding.expressions import BoundExpr, Expr, column, paren, render

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Kinds of joins with public rows, seen from the private ones: those come first."""

ROW = "__row"
"""The column of a table of answers with the number of each row."""


class Role(StrEnum):
    """The role of a column in a table of answers: the letter that its name begins with."""

    KEY = "k"
    ROLLED_UP = "g"
    """1 where a key is rolled up, else 0."""
    STATISTIC = "s"
    CENTER = "c"
    """The column of what was taken off the weight of each row that a statistic adds up."""
    LOWER = "l"
    UPPER = "u"
    """The ends of a quantile's interval."""
    SIZE = "n"
    """The column of the number of rows that a quantile is of."""
    STANDARD_ERROR = "d"
    IN_COMMON = "m"
    """The most that a count has in common with those of other tables, of which totals are compared:
    with two of them, m·m' bounds their covariance."""

    def named(self, number: int) -> str:
        """Return the name of the column of this role for a key, or a statistic, by its number."""
        return f"__{self}{number}"

    def column(self, number: int) -> Expr:
        """Refer to that column."""
        return column(self.named(number))


FLOOR_ROLES = (Role.STANDARD_ERROR, Role.IN_COMMON)
"""The columns of a count by which groups are left out, see `Floor`."""


class AnswerColumn(NamedTuple):
    """A column of a table of answers: what it holds, and of which key or statistic."""

    role: Role
    number: int

    @classmethod
    def of(cls, node: Expr) -> AnswerColumn | None:
        """Return the column that a node refers to; None if it is something else."""
        found = _ANSWER_COLUMN.fullmatch(node.name) if isinstance(node, exp.Column) else None
        return None if found is None else cls(Role(found[1]), int(found[2]))

    @property
    def public(self) -> bool:
        """Whether it is the same whatever the noise is."""
        return self.role not in {Role.STATISTIC, Role.LOWER, Role.UPPER, Role.SIZE}


_ANSWER_COLUMN = re.compile(f"__([{''.join(Role)}])([0-9]+)")


@dataclass(frozen=True, slots=True)
class Relation:
    """A public relation that a core joins."""

    number: int
    alias: str
    columns: tuple[str, ...]
    """As the analyst calls them; the j-th is `__r{number}_{j}` in bound expressions."""
    table: str
    """The sandbox table that holds it, with columns by their canonical names."""
    rows: int
    kind: JoinKind
    on: tuple[BoundExpr, ...]
    """Conditions of a join that isn't inner; those of inner joins are conjuncts of the core."""
    span: Span


Within = tuple[tuple[str, Interval], ...]
"""Columns, and between which numbers they lie in all rows that are meant."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The rows or units that a statistic counts, each once.

    Whatever rests on one number being a part of another, or an average of what is counted there,
    asks this, and nothing else: a unit has several rows, so that of rows and units neither are a
    part of the others.
    """

    of_units: bool
    conditions: frozenset[str]
    """Conditions that all rows or units meet that are counted."""
    of_values: bool = False
    """Whether it is values of theirs, of which units cover some: then nothing is a part of it."""

    def holds(self, part: Tally) -> bool:
        """Whether this tally counts everything that another one counts.

        Of units that is so where none is left out of a group that it is in, see `LoweredCore`.
        """
        if self.of_values or part.of_values:
            return False
        return self.of_units == part.of_units and self.conditions <= part.conditions


@dataclass(frozen=True, slots=True)
class Linear:
    """Σ over the rows of a group of a public weight, for the rows that meet some conditions."""

    label: str = field(compare=False)
    """As the analyst would write it, for reports."""
    weight: BoundExpr | None = None
    """The number that each row adds; None for 1."""
    center: bool = False
    """Take off the middle of the weight's values, which is what an average needs."""
    times: BoundExpr | None = None
    """Take the weight's product with this, after centering both; it may be the weight itself."""
    filters: tuple[BoundExpr, ...] = ()
    present: tuple[BoundExpr, ...] | None = None
    """The conditions of a row that has a weight to add, if it is known which cells meet them."""
    of_units: bool = False
    """Whether units are counted that have such rows, in place of the rows."""
    values: BoundExpr | None = None
    """The expression whose distinct values are counted in place of units, as far as these cover
    them."""
    factor: BoundExpr | None = None
    """The factor of a weight that is added up row by row, which cells tell: see `factors`."""
    part: float = field(default=1.0, compare=False)
    """By what it is multiplied where it is a part of a sum, as a share of the largest value of it.
    """
    within: Within = ()
    """Limits of columns by its conditions and those of its core: so a weight has bounds."""
    bound: Tally | None = field(default=None, compare=False)
    """Its tally when it was bound, where other conditions have come to stand for the same."""

    @property
    def tally(self) -> Tally:
        """Rows that meet its conditions and have a value to add, or the units of these."""
        if self.bound is not None:
            return self.bound
        there = (present(form).sql for weight in self.weights for form in _forms(weight))
        conditions = frozenset((*(f.sql for f in self.filters), *there))
        return Tally(self.of_units, conditions, self.values is not None)

    @property
    def counts(self) -> bool:
        """Whether it is a number of rows, or of units: nothing is added up but these."""
        return not self.weights and self.factor is None

    @property
    def is_plain_sum(self) -> bool:
        """Whether the values of one column are added up as they are."""
        if self.weight is None or self.center or self.times is not None or self.factor is not None:
            return False
        return isinstance(self.weight.node.unnest(), exp.Column)

    @property
    def weights(self) -> tuple[BoundExpr, ...]:
        """The weights whose product is added up, each once; none where rows are counted."""
        given = dict.fromkeys((self.weight, self.times))
        return tuple(weight for weight in given if weight is not None)


@dataclass(frozen=True, slots=True)
class Ordering:
    """One expression of ORDER BY in a window, over keys."""

    key: BoundExpr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A window over the groups."""

    partition: tuple[BoundExpr, ...]
    order: tuple[Ordering, ...]
    spec: str
    """The frame as SQL; empty for the default."""
    counts_rows: bool
    """Whether it is a frame of ROWS, and not of a RANGE or of GROUPS."""
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Windowed:
    """The sum, or the mean, of a linear statistic over a window of groups."""

    label: str = field(compare=False)
    of: Linear
    frame: Frame
    mean: bool


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile of an expression's values over the rows of a group."""

    label: str = field(compare=False)
    value: BoundExpr
    probability: float
    continuous: bool
    filters: tuple[BoundExpr, ...] = ()
    all_rows: bool = False
    """Whether rows without a value would count, as the last ones: then there may be none."""
    stored: BoundExpr | None = field(default=None, compare=False)
    """Its value as it was bound, where keys that are computed of rows have come in its place."""
    counted: Linear | None = None
    """If it is drawn among values that have no cells: the number of rows that have one."""

    @property
    def weights(self) -> tuple[BoundExpr, ...]:
        """The expressions whose values its queries are about: just one."""
        return (self.value,)


Statistic = Linear | Windowed | Quantile


def counts(statistic: Statistic) -> bool:
    """Whether a statistic is a number of rows, or of units: nothing is added up but these."""
    if isinstance(statistic, Windowed):
        return not statistic.mean and statistic.of.counts
    return isinstance(statistic, Linear) and statistic.counts


def expressions(statistic: Statistic) -> tuple[BoundExpr, ...]:
    """Return all expressions of a statistic."""
    if isinstance(statistic, Windowed):
        frame = statistic.frame
        return (*expressions(statistic.of), *frame.partition, *(o.key for o in frame.order))
    factor = statistic.factor if isinstance(statistic, Linear) else None
    return (*statistic.weights, *statistic.filters, *([] if factor is None else [factor]))


@dataclass(frozen=True, slots=True)
class SumForm:
    """A form in which sums of values without cells are added up: all are equal but for errors."""

    from_zero: bool = False
    """Whether values are added up as they are, but for averages; else around a middle."""
    filled: bool = True
    """Whether rows without a value count as 0 where no more than sums is asked of a column. Else
    those are counted that have one, to put the middle back."""
    everywhere: bool = False
    """Whether rows without a value count as 0 in averages as well, wherever that can be."""
    around: frozenset[str] = frozenset()
    """Measures to which rows without a value add nothing, in place of which no others are made."""

    def columns(self, cores: Iterable[Core]) -> frozenset[str]:
        """Return the columns, of those without a domain, in sums of which such rows count as 0."""
        if self.from_zero or not self.filled:
            return frozenset()
        summed, others = set[str](), set[str]()
        for core in cores:
            parts = [*core.conjuncts, *core.by_row, *core.keys, *core.derived]
            parts += (condition for relation in core.relations for condition in relation.on)
            for statistic in core.statistics:
                base, asked = base_of(statistic), expressions(statistic)
                if isinstance(base, Linear) and base.is_plain_sum:
                    summed |= base.weight.by_row if base.weight else set()
                    asked = tuple(part for part in asked if part != base.weight)
                parts += asked
            others.update(*(part.by_row | part.attributes for part in parts))
        return frozenset(summed if self.everywhere else summed - others)


FILLED = SumForm()
OTHER_FORMS = (SumForm(filled=False), SumForm(everywhere=True), SumForm(from_zero=True))
"""The other forms in which sums may have been measured."""


def base_of(statistic: Statistic) -> Linear | Quantile:
    """Return a statistic without the window over groups in which it is added up."""
    return statistic.of if isinstance(statistic, Windowed) else statistic


def counts_units(statistic: Statistic) -> bool:
    """Whether units are counted, and not rows."""
    base = base_of(statistic)
    return isinstance(base, Linear) and base.of_units


def measured_columns(statistic: Statistic, conjuncts: Sequence[BoundExpr]) -> frozenset[str]:
    """Return the columns whose values are added up or ordered, and on which nothing else depends.

    These are what an average or a quantile is of. That a value is there at all is not a condition
    on it: COUNT(x) is over x as AVG(x) is.

    Args:
        statistic: what is counted or added up.
        conjuncts: the conditions of its core.
    """
    base = base_of(statistic)
    conditions = [*conjuncts, *base.filters]
    parts = [*base.weights, *filter(_is_present, conditions)]
    over = frozenset[str]().union(*(part.attributes for part in parts))
    others = [c.attributes for c in conditions if not _is_present(c)]
    return over.difference(*others)


def present(e: BoundExpr) -> BoundExpr:
    """Return the condition that an expression has a value."""
    return e.each(_present)


def _present(e: BoundExpr) -> BoundExpr:
    absent: Expr = exp.Is(this=paren(e.node), expression=exp.Null())
    if e.by_row:  # what is added up row by row leaves NaN out
        number = exp.Cast(this=e.node.copy(), to=exp.DataType.build("DOUBLE"))
        absent = exp.Paren(this=exp.Or(this=absent, expression=exp.IsNan(this=number)))
    condition = exp.Not(this=absent)
    return replace(e, node=condition, sql=render(condition))


def _forms(weight: BoundExpr) -> Iterator[BoundExpr]:
    """Yield a weight as it is added up over cells, and row by row.

    Either way NULL and NaN add nothing; so what has a value to add is present in both forms.
    """
    yield from (replace(weight, by_row=names) for names in (frozenset[str](), frozenset({ROW})))


def _is_present(condition: BoundExpr) -> bool:
    """Whether a condition is that some value is not NULL."""
    node = condition.node.unnest()
    inner = node.this.unnest() if isinstance(node, exp.Not) else None
    return isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null)


@dataclass(frozen=True, slots=True)
class Floor:
    """Groups are left out whose noisy count is below so many of its standard errors."""

    statistic: int
    """The number of the count."""
    errors: float


@dataclass(frozen=True, slots=True)
class Core:
    """The queries that one SELECT over the private table makes about its rows."""

    table: str
    """The name of the table of its noisy answers, whose columns are `AnswerColumn`s."""
    relations: tuple[Relation, ...]
    conjuncts: tuple[BoundExpr, ...]
    """The conditions that a row, joined with public rows, must meet."""
    by_row: tuple[BoundExpr, ...]
    """Conditions that depend on columns without a domain, and are evaluated row by row."""
    keys: tuple[BoundExpr, ...]
    sets: tuple[tuple[int, ...], ...]
    """For each grouping set, the keys that tell its groups."""
    statistics: tuple[Statistic, ...]
    derived: tuple[BoundExpr, ...]
    """Values that are computed of keys and of nothing else, apart from the keys."""
    named: frozenset[str]
    """Every private column that is named anywhere in it."""
    where: Span | None
    floor: Floor | None = None
    """The rule by which groups are left out for having too few rows, if any are."""
    declared: bool = False
    """Whether the owner declares which of its groups exist."""
    summed: str | None = None
    """The name of the sums in which its answers are added up with those of others, so that it
    may have no groups itself."""


def rewritten(core: Core, change: Callable[[BoundExpr], BoundExpr]) -> Core:
    """Put others in place of expressions, wherever they stand in a core.

    Conditions that are evaluated row by row then stand with the others that are.
    """

    def all_of(parts: Sequence[BoundExpr]) -> tuple[BoundExpr, ...]:
        return tuple(map(change, parts))

    where = all_of(core.conjuncts)
    return replace(
        core,
        relations=tuple(replace(r, on=all_of(r.on)) for r in core.relations),
        conjuncts=tuple(c for c in where if not c.by_row),
        by_row=(*core.by_row, *(c for c in where if c.by_row)),
        keys=all_of(core.keys),
        statistics=tuple(_rewritten(one, change) for one in core.statistics),
        derived=all_of(core.derived),
    )


def _rewritten(one: Statistic, change: Callable[[BoundExpr], BoundExpr]) -> Statistic:
    if isinstance(one, Windowed):
        order = tuple(replace(o, key=change(o.key)) for o in one.frame.order)
        frame = replace(one.frame, partition=tuple(map(change, one.frame.partition)), order=order)
        return replace(one, of=_linear(one.of, change), frame=frame)
    if isinstance(one, Quantile):
        return replace(one, value=change(one.value), filters=tuple(map(change, one.filters)))
    return _linear(one, change)


def _linear(of: Linear, change: Callable[[BoundExpr], BoundExpr]) -> Linear:
    return replace(
        of,
        weight=None if of.weight is None else change(of.weight),
        times=None if of.times is None else change(of.times),
        filters=tuple(map(change, of.filters)),
    )
