"""A SELECT over UNION ALL of rows of several tables: the sums of what is asked of each branch.

`algebra/branches.py` writes such a SELECT as several, each over the rows of one table. Its
aggregates are functions of sums over rows, which are the sums of those of its branches:

    SELECT kind, COUNT(*), AVG(x) FROM (A UNION ALL B) GROUP BY kind

asks each branch for COUNT(*), Σ x and COUNT(x) by kind, and what is left of the SELECT computes on

    SELECT k, SUM(s0), SUM(s1), … FROM (answers of A UNION ALL answers of B) GROUP BY k

So each branch counts rows of its own table, with the bound of that. A group that one branch alone
can have is one to which the others add nothing. A branch may add sums around a middle of its own:
what was taken off comes back first, see `moments`. Noise of different tables is independent, and
what the sums of answers of one table have in common is followed as everywhere, so errors are those
of the sums.

Everything is bound once for each branch, in step: an expression is those that it is in all of them,
and two are the same where they are in each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Generic, TypeVar

from sqlglot import exp

from dpsql.errors import InternalError, Span, SqlError
from dpsql.schema import Domain
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.core import (
    FLOOR_ROLES,
    Core,
    Floor,
    Linear,
    Quantile,
    Relation,
    Role,
    Statistic,
    present,
)
from dpsql.sql.binding.existing import Existing, Met, condition, tightened
from dpsql.sql.binding.expressions import BoundExpr, Expr, is_aggregate, times
from dpsql.sql.binding.rewrite import CoreBinder
from dpsql.sql.binding.scope import Home
from dpsql.sql.binding.summands import together
from dpsql.sql.sandbox.database import Sandbox, SandboxError
from dpsql.sql.text.spans import SourceText

_EACH = "ask each of the tables by itself, "


B = TypeVar("B", bound=RowBinder)


@dataclass(frozen=True, slots=True)
class Branch(Generic[B]):
    """A SELECT over private rows, which may be one of several whose answers are added up."""

    binder: B
    home: Home
    relations: tuple[Relation, ...]
    joined: tuple[BoundExpr, ...]
    """The conditions of joins, and of a query of private rows."""
    exist: Sequence[Existing]
    """The groups that exist, as far as that is declared."""
    span: Span
    """The place of the table's name in the statement's text."""
    met: tuple[Met, ...] = ()
    """The other rows that each row must meet."""

    def tightened(self, core: Core) -> Core:
        """Tighten the conditions that rows meet others; see `existing.tightened`."""
        return tightened(core, self.home.table, self.met)


@dataclass(frozen=True, slots=True)
class InEach(BoundExpr):
    """An expression as each of the branches has it."""

    parts: tuple[BoundExpr, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, parts: Sequence[BoundExpr]) -> InEach:
        """Put together what it is in each."""
        first = parts[0]
        return cls(
            first.node,
            "\n".join(part.sql for part in parts),
            frozenset[str]().union(*(part.attributes for part in parts)),
            frozenset[int]().union(*(part.relations for part in parts)),
            first.span,
            frozenset[str]().union(*(part.by_row for part in parts)),
            tuple(parts),
        )

    @property
    def constant(self) -> bool:
        """Whether it is the same for all rows of all branches."""
        return len({part.sql for part in self.parts}) == 1 and self.parts[0].constant

    def each(self, change: Callable[[BoundExpr], BoundExpr]) -> BoundExpr:
        """Return what becomes of it in each."""
        return self.of([change(part) for part in self.parts])


class AddedUpBinder(CoreBinder):
    """Binds one SELECT in all of its branches.

    Args:
        source: the statement's text.
        select: the SELECT, as one over the union.
        visits: what becomes of subqueries that are over answers.
        branches: the branches.
        sandbox: where conditions on nothing are evaluated.
    """

    def __init__(
        self,
        source: SourceText,
        select: exp.Select,
        visits: Visits,
        branches: Sequence[Branch[RowBinder]],
        sandbox: Sandbox,
    ) -> None:
        super().__init__(source, select, branches[0].home, visits)
        self.scope = branches[0].binder.scope
        self._branches, self._sandbox = branches, sandbox

    def bind(self, node: Expr) -> BoundExpr:
        """Bind an expression in each branch."""
        return InEach.of([branch.binder.bind(node) for branch in self._branches])

    def summands(self, *nodes: Expr) -> tuple[BoundExpr, ...]:
        """Bind what is added up in each branch."""
        found = [branch.binder.summands(*nodes) for branch in self._branches]
        return tuple(InEach.of(parts) for parts in zip(*found, strict=True))

    def domain_of(self, node: Expr) -> tuple[str, Domain] | None:
        """Return name and domain of a private column that is the same in all branches."""
        found = {branch.binder.domain_of(node) for branch in self._branches}
        return found.pop() if len(found) == 1 else None

    def statistic(self, statistic: Statistic) -> int:
        """Note a statistic that is the sum of those of the branches.

        Raises:
            UnsupportedSqlError: it is none.
        """
        if isinstance(statistic, Quantile):
            raise self._refused(
                statistic.value.span,
                f"{statistic.label} is not supported here",
                "or count rows by ranges of values, SELECT x // 10, COUNT(*) … GROUP BY 1.",
            )
        return super().statistic(statistic)

    def rewrite(self, node: Expr) -> Expr:
        """Rewrite an expression over keys and aggregates; see `CoreBinder.rewrite`."""
        inner = node.this if isinstance(node, exp.Filter) else node
        distinct = isinstance(inner.this, exp.Distinct) or isinstance(inner, exp.ApproxDistinct)
        if is_aggregate(node) and distinct:
            raise self._refused(
                node,
                "DISTINCT is not supported here",
                "or count units that have such rows: SELECT COUNT(*) FROM customers c WHERE "
                "EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) OR EXISTS (…).",
            )
        return super().rewrite(node)

    def _refused(self, node: object, message: str, hint: str) -> SqlError:
        reason = "the rows are of several tables, and their answers can't be added up."
        return self.source.unsupported(node, f"{message}: {reason}", _EACH + hint)  # type: ignore[arg-type]

    def cores(
        self, name: str, above: float | None = None
    ) -> tuple[list[tuple[Core, Branch[RowBinder]]], exp.Select]:
        """Bind everything; return the cores of the branches, and what is left to compute.

        Args:
            name: what the sums of the answers are called.
            above: see `CoreBinder.core`.
        """
        self._group()
        conditions = list[tuple[BoundExpr, ...]]()
        for number, branch in enumerate(self._branches):
            where = branch.binder.where
            written = branch.binder.conditions(where) if where is not None else ()
            conditions.append((*branch.joined, *written))
            keys = [_in(key, number) for key in self._keys]
            branch.binder.told.update(*(p.attributes for p in (*conditions[-1], *keys)))
        self._chosen = True  # so that windows are over the sums
        left = self._rest(name)
        self._check_counts()
        floor = self._floored(left, above) if above is not None and self._keys else None
        found, answers = list[tuple[Core, Branch[RowBinder]]](), list[Expr]()
        for number, branch in enumerate(self._branches):
            table = self._sandbox.new_name("answer")
            core = self._core(number, conditions[number], table, name)
            if core is None:
                continue
            kept = condition(branch.exist, core.keys)
            found.append((replace(core, floor=floor, declared=bool(kept)), branch))
            answers.append(self._answers(table, kept, floor))
        if not found:
            raise self.source.error(
                self.source.clause("WHERE"),
                "No possible row meets the conditions, so there is no group to return.",
                "compare with values that the queries of UNION ALL have.",
            )
        homes = [branch.home for _, branch in found]
        left.set("from_", exp.From(this=self._sums(name, answers, homes, floor)))
        if self._keys and left.args.get("order") is None and left.args.get("distinct") is None:
            ordered = [exp.Ordered(this=key) for key in self._key_columns()]
            left.set("order", exp.Order(expressions=ordered))
        return found, left

    def _core(self, number: int, joined: Sequence[BoundExpr], table: str, sums: str) -> Core | None:
        """Return what is asked of a branch; None if its conditions are never true."""
        branch = self._branches[number]
        conditions = [c for c in joined if self._holds(c) is not True]
        if any(self._holds(c) is False for c in conditions):
            return None
        statistics = tuple(self._of_branch(s, number) for s in self._statistics)
        derived = dict.fromkeys(_in(part, number) for part in self._derived or ())
        return Core(
            table,
            branch.relations,
            tuple(dict.fromkeys(c for c in conditions if not c.by_row)),
            tuple(dict.fromkeys(c for c in conditions if c.by_row)),
            tuple(_in(key, number) for key in self._keys),
            self._sets,
            together(statistics, branch.binder.told),
            tuple(part for part in derived if not part.constant),
            branch.binder.named,
            self.source.clause("WHERE") or branch.home.where,
            summed=sums,
        )

    def _holds(self, bound: BoundExpr) -> bool | None:
        """Whether a condition is true of all rows, or of none; None if it depends on them."""
        if not bound.constant:
            return None
        try:
            ((found,),) = self._sandbox.rows(f"SELECT coalesce(({bound.sql})::BOOLEAN, false)")
        except SandboxError:  # which will be told where it is evaluated
            return None
        return bool(found)

    def _of_branch(self, statistic: Statistic, number: int) -> Linear:
        if not isinstance(statistic, Linear):
            raise InternalError("only sums over rows can be added up")
        weights = (statistic.weight, statistic.times)
        weight, times = (None if w is None else _in(w, number) for w in weights)
        filters = (_in(part, number) for part in statistic.filters)
        needed = tuple(part for part in filters if self._holds(part) is not True)
        return replace(statistic, weight=weight, times=times, filters=needed)

    # ── sums of the answers ────────────────────────────────────────────────────────────────

    def _key_columns(self) -> list[Expr]:
        numbers = range(len(self._keys))
        return [role.column(k) for role in (Role.ROLLED_UP, Role.KEY) for k in numbers]

    def _answers(self, table: str, kept: Sequence[Expr], floor: Floor | None) -> exp.Select:
        """Return the answers of a branch, with all that was taken off put back."""
        sums = _Sums({s: i for s, i in self._statistics.items() if isinstance(s, Linear)})
        columns = [*self._key_columns()]
        columns += [_as(sums.whole(s), Role.STATISTIC, i) for s, i in sums.numbers.items()]
        columns += _spreads(floor)
        found = exp.Select(expressions=columns, from_=exp.From(this=exp.Table(this=_name(table))))
        if kept:
            found.set("where", exp.Where(this=exp.and_(*kept)))
        return found

    def _sums(
        self, name: str, answers: Sequence[Expr], homes: Sequence[Home], floor: Floor | None
    ) -> exp.Subquery:
        """Return the sums of the answers of all branches.

        Two are added up at a time: sums of floats are the same in any order then.
        """
        errors = _errors(homes, floor)
        rows = list(answers)
        while len(rows) > 1:
            pairs = (rows[i : i + 2] for i in range(0, len(rows), 2))
            rows = [self._of_pair(pair, errors) if pair[1:] else pair[0] for pair in pairs]
        columns = self._key_columns()
        columns += _spreads(floor)
        columns += [Role.STATISTIC.column(i) for i, _ in enumerate(self._statistics)]
        for i, statistic in enumerate(self._statistics):
            if isinstance(statistic, Linear) and statistic.center:
                columns.append(_as(exp.Literal.number("0.0"), Role.CENTER, i))
        found = exp.Select(expressions=columns, from_=exp.From(this=_subquery(rows[0], "sums")))
        return _subquery(found, name)

    def _of_pair(self, answers: Sequence[Expr], errors: Sequence[Expr]) -> exp.Select:
        columns = self._key_columns()
        numbers = range(len(self._statistics))
        sums = [_as(_sum(Role.STATISTIC.column(i)), Role.STATISTIC, i) for i in numbers]
        one, other = answers
        rows = _subquery(exp.Union(this=one, expression=other, distinct=False), "pair")
        found = exp.Select(expressions=[*columns, *sums, *(error.copy() for error in errors)])
        found.set("from_", exp.From(this=rows))
        if not sums:
            found.set("distinct", exp.Distinct())
        elif columns:
            found.set("group", exp.Group(expressions=[column.copy() for column in columns]))
        return found


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums of a branch, as if nothing had been taken off what is added up.

    Let S, N and P be as in `moments`, with c, d and m taken off: then Σ x = S(x) + c·N and
    Σ x·y = P(x, y) + m·N + c·S(y) + d·S(x) + c·d·N.
    """

    numbers: Mapping[Linear, int]

    def whole(self, of: Linear) -> Expr:
        """Return a statistic without its middle."""
        own = Role.STATISTIC.column(self.numbers[of])
        if not of.center or of.weight is None:
            return own
        rows = {part.sql for part in (*of.filters, *map(present, of.weights))}
        count = Role.STATISTIC.column(self._of(None, rows))
        terms = [own, times(Role.CENTER.column(self.numbers[of]), count)]
        if of.times is not None:
            first, second = (self._of(weight, rows) for weight in (of.weight, of.times))
            c, d = Role.CENTER.column(first), Role.CENTER.column(second)
            terms.append(times(c, Role.STATISTIC.column(second)))
            terms.append(times(d, Role.STATISTIC.column(first)))
            terms.append(times(c, d, count))
        return reduce(lambda a, b: exp.Add(this=a, expression=b), terms)

    def _of(self, weight: BoundExpr | None, rows: Set[str]) -> int:
        """Return the number of the sum of a weight over some rows, or of their count."""
        for of, number in self.numbers.items():
            own = {part.sql for part in (*of.filters, *map(present, of.weights))}
            plain = of.times is None and (weight is None or of.center)
            if plain and of.weight == weight and own == rows:
                return number
        raise InternalError("a sum around a middle has no count")


def _in(bound: BoundExpr, number: int) -> BoundExpr:
    """Return what an expression is in one of the branches."""
    if not isinstance(bound, InEach):
        raise InternalError("an expression is bound in one branch alone")
    return replace(bound.parts[number], span=bound.span)


def _spreads(floor: Floor | None) -> list[Expr]:
    """Return the columns that say how far counts of groups may be off, and together with others."""
    return [] if floor is None else [role.column(floor.statistic) for role in FLOOR_ROLES]


def _errors(homes: Sequence[Home], floor: Floor | None) -> list[Expr]:
    """Return the standard error of a sum of counts, or a little more, and what it has in common.

    Let d be the standard errors of two counts, and m what they have in common with other tables:
    their covariance is m·m' at most, and d·d' if they are of one table. So the variance of the sum
    is d² + d'² + 2m·m' at most, which is Σd² + (Σm)² − Σm²; where no totals are compared, m = 0 and
    it is exact. The sum has no more in common with others than m + m': that is a norm.
    """
    if floor is None:
        return []
    error, shared = _spreads(floor)
    common = _as(_sum(shared), Role.IN_COMMON, floor.statistic)
    if len({home.table.path for home in homes}) < len(homes):
        return [_as(_sum(error), Role.STANDARD_ERROR, floor.statistic), common]
    between = exp.Sub(
        this=times(_sum(shared), _sum(shared)), expression=_sum(times(shared, shared))
    )
    more = exp.Greatest(this=between, expressions=[exp.Literal.number("0.0")])  # but for rounding
    root = exp.Sqrt(this=exp.Add(this=_sum(times(error, error)), expression=more))
    return [_as(root, Role.STANDARD_ERROR, floor.statistic), common]


def _sum(of: Expr) -> exp.Sum:
    return exp.Sum(this=of)


def _as(value: Expr, role: Role, number: int) -> Expr:
    return exp.Alias(this=value, alias=_name(role.named(number)))


def _name(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=False)


def _subquery(query: Expr, name: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=_name(name)))
