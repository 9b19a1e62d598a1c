"""Keys that expressions tell: columns with a domain in place of expressions over columns without.

An expression over columns without a domain can't be evaluated over cells, as there are none. But
often its own values are known: a comparison is true, false or NULL, an hour one of 24 numbers. It
then becomes a column of the table with that domain, which is computed of each row while rows are
counted (`rows/key.py`), and whatever stands around it is evaluated over the cells of that column.

What is replaced is as large as can be: of `CASE WHEN price < 10 THEN 'cheap' ELSE 'dear' END` the
whole, which has two values, and not the condition. If the results of a CASE aren't known, it is
which of them is taken that becomes a column.

A condition could be part of a measure as well, to which a row adds 0 or 1 (see `measures`). As a
key it is better: counts stay counts, which are planned with all others, and what was measured
answers more. So that is done unless the cells become very many. What is added up stays a measure
where it can: a sum of it needs no cells.

A column that has to equal values of public tables is looked up: its own values are then those, and
one cell has all other rows, which meet none of them, as NULL does not. Whatever else is compared
with public values, in joins or subqueries, lies at one of them or between two, which is the key:
one value of each such place is put where it is compared, and no comparison tells that from others.

Expressions of one column that change at a few of its values lie on one axis, see `keys`. Others of
one column are taken for independent ones, though some of their joint cells can't occur. That costs
no accuracy where only one of them is asked about at a time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import MAXYEAR, MINYEAR, date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import SchemaError, SqlError, SqlLimitError, WantedColumn
from dpsql.hints import instead
from dpsql.rows.cuts import Range, ends, moment_at
from dpsql.rows.expression import RowExpression, columns
from dpsql.rows.found import FoundExpression
from dpsql.rows.key import MOST_LOOKED_UP, looked_up_key
from dpsql.rows.types import TIMESTAMP, VARCHAR
from dpsql.schema import Domain, Table
from dpsql.schema.drafts import finding_hint
from dpsql.sql.binding.core import (
    Core,
    Frame,
    Linear,
    Quantile,
    Relation,
    Statistic,
    Windowed,
    present,
)
from dpsql.sql.binding.expressions import (
    BoundExpr,
    Expr,
    column,
    is_private,
    named_by,
    reads_rows,
    rebuild,
    rebuilt_branch,
    render,
    substituted,
)
from dpsql.sql.binding.instants import told_by_rows
from dpsql.sql.lowering.by_rows import by_rows
from dpsql.sql.lowering.coarse import EQUALITIES
from dpsql.sql.lowering.drawn import counted_of
from dpsql.sql.lowering.evaluate import Evaluator
from dpsql.sql.lowering.few_values import Restricted, ranges, restrictions, with_row_conditions
from dpsql.sql.lowering.keys import DerivedKeys, OnAxis
from dpsql.sql.lowering.lookups import compared_values, comparison_of, kept_relation, values_of
from dpsql.sql.lowering.measures import RowReader
from dpsql.sql.sandbox.database import SandboxError
from dpsql.sql.text.spans import SourceText

if TYPE_CHECKING:
    from dpsql.sql.lowering.keys import FoundGroups

ROUNDED = "round what is computed to few values, as in round(price - cost, -2)."
MOST_CELLS = 2**20
"""Cells of all keys of a core together, up to which conditions become keys too."""


def derived_core(
    keys: DerivedKeys, core: Core, reader: RowReader, evaluator: Evaluator, source: SourceText
) -> Core:
    """Return a core in which such expressions are columns.

    Raises:
        SqlError: something that needs a domain has none.
    """
    read = by_rows(core, keys.stored, reader, evaluator)
    return _Statement(keys, keys.stored, reader, evaluator, source).core(read)


class _Statement:
    """Replaces expressions of one statement."""

    def __init__(
        self,
        keys: DerivedKeys,
        table: Table,
        reader: RowReader,
        evaluator: Evaluator,
        source: SourceText,
    ) -> None:
        self._keys, self._table, self._evaluator = keys, table, evaluator
        self._reader, self._source = reader, source
        self._relations: dict[int, Relation] = {}
        self._restricted: dict[str, Restricted] = {}
        self._used: dict[str, Expr] = {}
        """SQL of a restricted expression → the key in its place."""
        self._ranges: dict[str, Range] = {}
        """Column → the places to which conditions restrict it."""
        self._grouped: frozenset[str] = frozenset()
        """The attributes of the groups."""
        self._fine = False
        """Whether what is looked at depends on more than the cells of its columns tell."""
        self._counted = True
        """Whether it is of values as they count; conditions on joined rows are of stored ones."""
        self._where: tuple[BoundExpr, ...] = ()
        """The conditions of the core, as they are written."""
        self._joined: Mapping[str, Expr] = {}
        """SQL of the keys of groups whose values are found together → the parts in their place."""

    def core(self, core: Core) -> Core:
        self._relations = {relation.number: relation for relation in core.relations}
        self._restricted, self._used = restrictions(core.by_row), {}
        self._ranges = ranges(self._read(core.by_row), self._keys.types)
        self._grouped, self._where = frozenset(), (*core.conjuncts, *core.by_row)
        self._joined = self._found_together(core)
        keys = tuple(map(self._grouping, core.keys))
        for quantile in (s for s in core.statistics if isinstance(s, Quantile)):
            self._ranked(quantile)  # before conditions: it says which of these are used up
        relations = tuple(
            replace(relation, on=tuple(map(self._condition, relation.on)))
            for relation in core.relations
        )
        self._grouped = frozenset(a for key in keys for a in key.attributes)
        cells = math.prod(map(self._keys.domain_size, self._grouped))
        as_keys = 3 * cells <= MOST_CELLS
        where = self._conditions(core.by_row, as_keys=as_keys)
        found = replace(
            core,
            keys=keys,
            relations=relations,
            conjuncts=(*core.conjuncts, *self._periods(core), *(c for c in where if not c.by_row)),
            by_row=tuple(c for c in where if c.by_row),
            statistics=tuple(self._statistic(s, as_keys=as_keys) for s in core.statistics),
            derived=tuple(self._computed(core.keys, keys, core.derived)),
        )
        return found if as_keys else with_row_conditions(found, self._table)

    def _periods(self, core: Core) -> Iterator[BoundExpr]:
        """Say in which cells conditions on times can be true, of a timestamp that is grouped by.

        No row of another cell counts, so these are no groups: as if the condition were on cells.
        """
        timed = {
            name: (number, domain)
            for number, (name, domain) in enumerate(self._table.columns.items())
            if name in self._grouped and domain.instant
            if domain.zone is None and domain.outside != "clamp"
        }
        known = self._reader.moments(core.by_row, timed) if timed else {}
        for name, (first, after) in known.items():
            number, domain = timed[name]
            for is_side, place, later in ((exp.GTE, first, 0), (exp.LT, after - 1, 1)):
                start = _start(domain, place, later)
                if start is None:
                    continue
                at = exp.cast(exp.Literal.string(start.isoformat()), "TIMESTAMP")
                node = is_side(this=column(f"__a{number}"), expression=at)
                span = core.by_row[0].span
                yield BoundExpr(node, render(node), frozenset((name,)), frozenset(), span)

    def _computed(
        self, written: Sequence[BoundExpr], keys: Sequence[BoundExpr], derived: Iterable[BoundExpr]
    ) -> Iterator[BoundExpr]:
        """Write what is computed of keys alone over those that are derived.

        These determine it. But of a timestamp that is grouped by its cells, more may be asked.
        """
        for computed in derived:
            joined = any(own.sql in self._joined for own in written)
            if not computed.by_row and not joined:
                yield computed
            elif joined or not computed.by_row.isdisjoint(self._table.columns):
                node = computed.node
                for own, key in zip(written, keys, strict=True):
                    node = substituted(node, own.node, key.node) if own != key else node
                over = self._keys.over_cells(computed, node)
                if over is not None:
                    yield over

    def _statistic(self, statistic: Statistic, *, as_keys: bool) -> Statistic:
        if isinstance(statistic, Windowed):
            of = self._linear(statistic.of, as_keys=as_keys)
            return replace(statistic, of=of, frame=self._frame(statistic.frame))
        if isinstance(statistic, Linear):
            return self._linear(statistic, as_keys=as_keys)
        found = self._ranked(statistic)
        if found.counted is not None:  # which has its conditions
            return replace(found, counted=self._linear(found.counted, as_keys=as_keys))
        return replace(found, filters=self._filters(statistic.filters, as_keys))

    def _ranked(self, quantile: Quantile) -> Quantile:
        """Return a quantile of values that have cells; or one that is drawn, if they have none.

        Raises:
            SqlError: they have none, and can't be drawn.
        """
        try:
            if (
                self._reader.draws_all
                and (counted := counted_of(quantile, self._reader)) is not None
            ):
                return replace(quantile, counted=counted)
            needed = self._needed(quantile.value)
            return replace(quantile, value=needed, stored=quantile.value)
        except SqlError:
            counted = counted_of(quantile, self._reader)
            if counted is None:
                raise
            return replace(quantile, counted=counted)

    def _linear(self, linear: Linear, *, as_keys: bool) -> Linear:
        weight = linear.weight
        if weight is not None and (
            weight.relations or weight.node.find(exp.Query)
        ):  # it is added up over cells of a join
            weight = self._derived(weight) or weight
        filters, there = self._filters(linear.filters, as_keys), None
        # Of what is written: what is told apart by cells is the same rows.
        tally, within = linear.tally, self._reader.within(linear, self._where)
        if (
            weight is not None
            and not linear.center
            and self._reader.is_restored_for_some(weight, within)
        ):
            there = self._filters((*linear.filters, present(weight)), as_keys)
            there = None if any(condition.by_row for condition in there) else there
        return replace(
            linear, weight=weight, filters=filters, present=there, within=within, bound=tally
        )

    def _frame(self, frame: Frame) -> Frame:
        order = tuple(replace(o, key=self._needed(o.key)) for o in frame.order)
        return replace(frame, partition=tuple(map(self._needed, frame.partition)), order=order)

    # ── conditions ─────────────────────────────────────────────────────────────────────────

    def _filters(self, filters: Sequence[BoundExpr], as_keys: bool) -> tuple[BoundExpr, ...]:
        plain = tuple(f for f in filters if not f.by_row)
        return (*plain, *self._conditions([f for f in filters if f.by_row], as_keys=as_keys))

    def _conditions(
        self, conditions: Sequence[BoundExpr], *, as_keys: bool
    ) -> tuple[BoundExpr, ...]:
        """Derive conditions that are evaluated row by row; the others stay as they are.

        Those on private rows alone become one key together: of the joint cells of several, only
        one would ever be asked for. But those that lie on an axis of which more is asked are
        functions of that.
        """
        left, alone = [], []
        for condition in conditions:
            kind = self._kind(condition)
            used = self._restricting(condition)
            if used is not None:
                left.append(used)
                continue
            if condition.relations or condition.node.find(exp.Query):
                left.append(self._condition(condition))
            elif kind != "true" and self._is_lined(condition, as_keys=as_keys):
                left.append(self._derived(condition) or condition)
            elif as_keys and kind == "key":
                alone.append(condition)
            elif kind != "true":
                left.append((self._derived(condition) if as_keys else None) or condition)
        if alone:
            # Their order makes no difference, so it must not make another key.
            ordered = sorted(alone, key=lambda condition: condition.sql)
            together = exp.and_(*(c.node.copy() for c in ordered)) if alone[1:] else alone[0].node
            joint = replace(alone[0], node=together, sql=render(together))
            derived = self._derived(joint)
            left += alone if derived is None else [derived]
        return tuple(left)

    def _is_lined(self, condition: BoundExpr, *, as_keys: bool) -> bool:
        """Whether a condition is best asked along the line of its column, as others are."""
        place = self._on_axis(condition)
        if place is None or place.cuts is None:
            return False
        grouped = self._keys.line_of(place.column) in self._grouped
        return grouped or (as_keys and place.column in self._keys.lined)

    def _read(self, conditions: Sequence[BoundExpr]) -> Iterator[RowExpression]:
        """Read those conditions that can be read as expressions of a row."""
        for condition in conditions:
            with suppress(SqlError):
                yield self._reader.expression(condition)

    def _on_axis(self, bound: BoundExpr) -> OnAxis | None:
        """Say on which axis an expression of private rows alone lies."""
        if bound.relations or bound.node.find(exp.Query):
            return None
        try:
            return self._keys.on_axis(self._reader.expression(bound), self._ranges)
        except SqlError:
            return None

    def _restricting(self, condition: BoundExpr) -> BoundExpr | None:
        """Return a condition over the key whose values it lists; None if there is no such key."""
        for of, key in self._used.items():
            if self._restricted[of].condition is condition:
                node = substituted(condition.node, self._restricted[of].of, key)
                return self._keys.over_cells(condition, node)
        return None

    def _kind(self, condition: BoundExpr) -> str:
        """Say whether a condition is always true, can be a key, or is for others to look at."""
        if condition.relations or condition.node.find(exp.Query):
            return ""
        try:
            if self._reader.always_holds(condition) and not self._keeps_others:
                return "true"
            key = self._reader.key(condition)
        except SqlError:
            return ""
        return "key" if key is not None and key.domain.type == "BOOLEAN" else ""

    @property
    def _keeps_others(self) -> bool:
        """Whether there are rows besides private ones: there a column is NULL that never is."""
        return kept_relation(self._relations.values()) is not None

    # ── lookups ────────────────────────────────────────────────────────────────────────────

    def _condition(self, bound: BoundExpr) -> BoundExpr:
        """Derive a condition on joined rows, or one with a subquery.

        A column without a domain that has to equal one of public values has these as its own: no
        other one meets the condition, as NULL doesn't.

        Raises:
            SqlError: something else in it has no domain.
        """
        node = self._with_lookups(self._in_subqueries(bound.node)) if bound.by_row else bound.node
        self._counted, before = False, self._counted
        try:
            return self._needed(replace(bound, node=node, sql=render(node)))
        finally:
            self._counted = before

    def _with_lookups(self, node: Expr) -> Expr:
        """Put keys in place of columns that are looked up, wherever the whole is true only then."""
        if isinstance(node, exp.Paren | exp.And | exp.Or):
            return rebuild(node, self._with_lookups)
        if isinstance(node, exp.In) and isinstance(node.args.get("query"), exp.Expr):
            place = self._looked_up(node.this)
            return node if place is None else exp.In(this=place, query=node.args["query"].copy())
        if not isinstance(node, exp.EQ):
            return node
        sides = [self._looked_up(side) or side for side in (node.this, node.expression)]
        return exp.EQ(this=sides[0].copy(), expression=sides[1].copy())

    def _in_subqueries(self, node: Expr) -> Expr:
        """Do so after WHERE in subqueries, of which only rows are used for which it is true."""
        if isinstance(node, exp.Where):
            return exp.Where(this=self._with_lookups(node.this))
        return rebuild(node, self._in_subqueries) if node.find(exp.Where) else node

    def _looked_up(self, node: Expr) -> Expr | None:
        """Return the key that a column is whose values are looked for among those of a query."""
        queries = compared_values(node, self._tables) if self._is_untold(node.unnest()) else None
        if queries is None or len(queries) != 1:
            return None
        try:
            values = values_of(self._keys.sandbox, queries[0], MOST_LOOKED_UP + 1)
            expression, _ = self._reader.compared(self._alone(node.unnest()))
            key = looked_up_key(expression, self._reader.types, values)
        except (SqlError, SandboxError):  # which will be told when the condition is evaluated
            return None
        if key is None or key.name in {*self._table.columns, *self._table.undeclared}:
            return None
        return column(f"__a{self._keys.number(key)}")

    @property
    def _tables(self) -> dict[int, str]:
        """The sandbox tables of public relations."""
        return {number: relation.table for number, relation in self._relations.items()}

    def _is_untold(self, node: Expr) -> bool:
        """Whether it is a column whose cells don't tell all that may be stored, if it has any."""
        if not isinstance(node, exp.Column) or not node.name.startswith(("__a", "__w")):
            return False
        stored = node.name.startswith("__w") or int(node.name[3:]) < len(self._table.columns)
        return reads_rows(node) or (
            stored and bool(self._table.merges(named_by(node.name, self._table)))
        )

    def _stepped(self, node: Expr) -> Expr:
        """Put keys in place of what is compared with public values, and with nothing else.

        A comparison changes at the values that it is with, and nowhere else (`rows/cuts.py`). So
        in each of the intervals in which these divide a line, one value stands for all.
        """
        places = list(self._compared(node))
        stepped = dict[int, Expr]()
        for sql in dict.fromkeys(render(place) for place in places):
            alike = [place for place in places if render(place) == sql]
            queries = [query for p in alike for query in compared_values(p, self._tables) or ()]
            equal = all(isinstance(comparison_of(place), EQUALITIES) for place in alike)
            steps = self._steps(self._alone(alike[0]), queries, equal=equal)
            stepped |= {id(place): steps for place in alike if steps is not None}

        def change(part: Expr) -> Expr:
            return stepped[id(part)].copy() if id(part) in stepped else rebuild(part, change)

        return change(node)

    def _compared(self, node: Expr) -> Iterator[Expr]:
        """Find the largest parts over private columns that are compared with public values."""
        columns = list(node.find_all(exp.Column))
        if not any(map(self._is_untold, columns)):
            return
        alone = all(map(is_private, columns)) and node.find(exp.Query) is None
        if alone and compared_values(node, self._tables) is not None:
            yield node.unnest()
            return
        for part in node.iter_expressions():
            yield from self._compared(part)

    def _steps(self, of: BoundExpr, queries: Sequence[str], *, equal: bool) -> Expr | None:
        """Return one value for all that some public values don't tell apart; None if none can.

        Args:
            of: what is compared with them.
            queries: these return them.
            equal: whether it only matters to which of them it is equal.
        """
        try:
            expression, type_ = self._reader.compared(of)
            if type_ == VARCHAR:
                return self._keys.listed(expression, self._reader.types, queries) if equal else None
            return self._keys.steps(expression, type_, self._reader.types, queries)
        except (SqlError, SandboxError):  # which will be told when the condition is evaluated
            return None

    # ── expressions ────────────────────────────────────────────────────────────────────────

    def _needed(self, bound: BoundExpr) -> BoundExpr:
        """Derive an expression that must have cells.

        Raises:
            SqlError: its values aren't known.
        """
        derived = self._of_joined(bound) or self._derived(bound)
        if derived is None:
            raise self._unknown(bound)
        if bound.by_row and self._fine and self._has_many_values(bound, derived):
            text = self._source.text(bound.span)
            raise self._source.unsupported(
                bound.span,
                "This has too many values to tell them apart.",
                "give their bounds: "
                + instead(f"least(greatest({text}, 0), 1000)")
                + ", where NULL counts as 0; or round to fewer values.",
            )
        return derived

    def _grouping(self, bound: BoundExpr) -> BoundExpr:
        """Derive what groups are made of.

        Raises:
            SqlError: its values aren't known; it says if they can be found in the rows.
        """
        try:
            return self._needed(bound)
        except SchemaError as error:
            found = self._found.alone(bound)
            if found is not None:
                self._want(found, found, error)
            raise

    def _found_together(self, core: Core) -> dict[str, Expr]:
        """Put parts of one text in the place of keys whose values are found together.

        Groups by several columns of which nobody knows values are those that many units have, and
        not all that values of each would make. What is found of each by itself serves as well,
        where that is there for all; and where more is asked of groups by some of them.

        Raises:
            SqlError: they weren't found, nor those of each; it says that they can be.
        """
        unknown = self._table.undeclared.keys() | self._table.learned
        several = [one for one in core.keys if one.attributes | one.by_row <= unknown]
        if len(several) < 2 or len(core.sets) != 1 or len(core.sets[0]) != len(core.keys):
            return {}
        from dpsql.sql.lowering.keys import part_of  # which few statements need

        found = {key.sql: part for key in several if (part := self._part(key)) is not None}
        if len(found) < 2:
            return {}
        try:
            together = self._found.together(tuple(found.values()))
        except SqlLimitError:  # they are too many
            return {}
        key = self._found.key(together)
        if key is not None:
            text = column(f"__a{self._keys.number(key)}")
            each = found.items()
            return {sql: part_of(text, key.domain, together, part) for sql, part in each}
        for one in (key for key in core.keys if key.sql in found):
            try:
                self._needed(one)
            except SchemaError as error:
                self._want(together, found[one.sql], error)
                raise
        return {}

    def _want(self, found: FoundExpression, of: FoundExpression, error: SchemaError) -> None:
        """Say in an error that values can be found, for want of those of an expression."""
        if error.wanted is None:
            error.hint = finding_hint() + (error.hint or "")
        first = min(columns(of.expression))
        error.wanted = WantedColumn(self._table.path, first, computed=found)

    @cached_property
    def _found(self) -> FoundGroups:
        from dpsql.sql.lowering.keys import FoundGroups  # which few statements need

        return FoundGroups(self._reader, self._table)

    def _part(self, key: BoundExpr) -> FoundExpression | None:
        """Return a key as one whose values can be found with those of others."""
        part = self._found.part(key)
        if part is None or self._on_axis(key) is not None or self._listed(key.node) is not None:
            return None
        return part

    def _of_joined(self, bound: BoundExpr) -> BoundExpr | None:
        """Return a key whose values are found with those of others, as a part of these."""
        node = self._joined.get(bound.sql)
        return None if node is None else self._keys.over_cells(bound, node.copy())

    def _has_many_values(self, bound: BoundExpr, found: BoundExpr) -> bool:
        """Whether rows have a number that their cells don't tell, and that is no key, either."""
        if found.node != bound.node or not {*found.attributes} <= self._table.columns.keys():
            return False
        if self._evaluator.tells(found, truth=False, plain=True):
            return False
        with suppress(SqlError):
            return self._reader.type_of(bound).is_integer
        return False

    def _derived(self, bound: BoundExpr) -> BoundExpr | None:
        """Put keys in place of all that depends on columns without a domain; None if none can."""
        if not bound.by_row:
            return bound
        self._fine = not bound.by_row.isdisjoint(self._table.columns)
        node = (self._key(bound.node) if self._fine else None) or self._replaced(bound.node)
        if bound.relations or node.find(exp.Query):
            node = self._stepped(node)
        return self._keys.over_cells(bound, node)

    def _replaced(self, node: Expr) -> Expr:
        """Replace the largest parts that can be keys."""
        if not reads_rows(node) and self._is_told(node):
            return node
        key = self._key(node) or self._listed(node) or self._branch(node)
        key = key or self._key(node, rounded=True)  # what conditions list are fewer values
        if key is not None:
            return key
        if isinstance(node, exp.Case):  # its branches are no expressions
            parts = [rebuilt_branch(branch, self._replaced) for branch in node.args["ifs"]]
            others = {k: v for k, v in node.args.items() if isinstance(v, exp.Expr)}
            return exp.Case(**{k: self._replaced(v) for k, v in others.items()}, ifs=parts)
        return rebuild(node, self._replaced)

    def _is_told(self, node: Expr) -> bool:
        """Whether a part of an expression that needs no columns without a domain is left as is."""
        if told_by_rows(node, self._table):
            return False
        if not self._fine or isinstance(node, exp.Column) or not isinstance(node, exp.Condition):
            return True
        names = {part.name for part in node.find_all(exp.Column)}
        if node.find(exp.Query) or not all(name.startswith("__a") for name in names):
            return True
        attributes = frozenset(named_by(name, self._table) for name in names)
        part = replace(self._alone(node), attributes=attributes)
        return self._evaluator.tells(part, truth=False, plain=True)

    def _key(self, node: Expr, *, rounded: bool = False) -> Expr | None:
        """Return the column of the key that an expression is, in the expression's own type."""
        if node.find(exp.Query) or not all(map(is_private, node.find_all(exp.Column))):
            return None
        alone = self._alone(node)
        try:
            where = self._on_axis(alone)
            if where is not None:
                over = self._keys.over(self._reader.expression(alone), where)
                if over is not None:
                    return over
            key = self._reader.key(alone, rounded=rounded, counted=self._counted)
        except SqlError:
            return None
        return None if key is None else self._keys.typed(key)

    def _alone(self, node: Expr) -> BoundExpr:
        """Return a part of a bound expression as one of its own."""
        return BoundExpr(node, render(node), frozenset(), frozenset(), self._source.node(node))

    def _listed(self, node: Expr) -> Expr | None:
        """Make a key of an expression whose values a condition lists."""
        of = render(node.unnest())
        if of in self._used:
            return self._used[of].copy()
        restricted = self._restricted.get(of)
        if restricted is None:
            return None
        try:
            type_ = self._reader.type_of(self._alone(restricted.of))
        except SqlError:
            return None
        instead = restricted.replacement(type_)
        if instead is None:
            return None
        key = self._key(instead)
        if key is None and not restricted.is_range:
            key = self._branch(instead)
        if key is not None:
            self._used[of] = key
        return key

    def _branch(self, node: Expr) -> Expr | None:
        """Make a key of which result a CASE takes, if the results themselves aren't known."""
        if not isinstance(node, exp.Case) or node.this is not None:
            return None
        branches = node.args["ifs"]
        chosen = [
            exp.If(this=branch.this.copy(), true=exp.Literal.number(i))
            for i, branch in enumerate(branches)
        ]
        which = self._key(exp.Case(ifs=chosen, default=exp.Literal.number(len(branches))))
        if which is None:
            return None
        results = [
            exp.If(this=exp.Literal.number(i), true=self._replaced(branch.args["true"]))
            for i, branch in enumerate(branches)
        ]
        otherwise = node.args.get("default")
        last = None if otherwise is None else self._replaced(otherwise)
        return exp.Case(this=which, ifs=results, default=last)

    def _unknown(self, bound: BoundExpr) -> SqlError:
        """Say what has no domain, and how it could have one."""
        places = [part for part in bound.node.find_all(exp.Column) if reads_rows(part)]
        names = [named_by(part.name, self._table) for part in places]
        several = len(set(names)) > 1 and self._table.bounds.keys() >= set(names)
        at = self._source.node(places[0]) if places else bound.span
        try:
            table, name = self._reader.stored(names[0] if names else min(bound.by_row))
            table.column(name, called=self._source.text(at) if table.made_of else "")
        except SchemaError as error:
            return self._source.located(error, at, ROUNDED if several else None)
        return self._source.error(bound.span, "This has no public domain.", None)


def _start(domain: Domain, place: int, later: int) -> date | None:
    """Return on which day the cell begins that a moment lies in, or a later one.

    Of cells within a day it is that day. None if there is no such cell.
    """
    least, most = ends(TIMESTAMP)
    moment = moment_at(place, TIMESTAMP) if least < place < most else None
    if moment is None or moment.year in {MINYEAR, MAXYEAR}:
        return None
    if domain.type != "DATE":
        return moment.date() + timedelta(days=later)
    at = bisect_right(domain.values, moment.date()) - 1 + later
    value = domain.values[at] if 0 <= at < len(domain.values) else None
    return value if isinstance(value, date) else None
