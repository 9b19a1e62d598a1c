"""Follow noise through a query: which noisy statistics each value of its result consists of.

Beside every column of every SELECT stands a hidden one, `__e0`, `__e1`, …: the list of pairs
(statistic, coefficient) whose sum is, to first order, the value's noise. An answer's statistic
has itself with coefficient 1; expressions scale and join lists by the chain rule; SUM and AVG,
plain or over windows, collect them. DuckDB computes the lists with the values, so filters, sorting,
joins and limits apply to both alike. An empty list means no noise, NULL that it isn't known. What
is rounded has a pair besides for what its step may move, which has no statistic: see `gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.schema.names import capitals, folded
from dpsql.sql.binding.expressions import Expr, quoted
from dpsql.sql.computing.annotate import AnnotatedSelect
from dpsql.sql.computing.gradient import NotSmoothError
from dpsql.sql.computing.pairs import (
    NONE,
    UNKNOWN,
    FromItem,
    NumberedStatistics,
    Output,
    listed,
    of_answers,
    renamed,
)

MAX_COLLECTED = 3_000
"""Rows over which a window may collect lists: it makes one for each row."""
Columns = Callable[[str], Sequence[str]]
"""Returns the columns of a public table of the sandbox."""


class Propagation:
    """Adds the hidden columns to one statement's query."""

    def __init__(
        self, answers: Mapping[str, NumberedStatistics], columns: Columns, rows: int
    ) -> None:
        self._answers = answers
        self._columns = columns
        self._rows = rows

    @property
    def many(self) -> bool:
        """Whether the answers have so many rows that lists of all of them would be too long."""
        return self._rows > MAX_COLLECTED

    def is_answers(self, item: Expr) -> bool:
        """Whether an item after FROM is a table of answers."""
        return isinstance(item, exp.Table) and item.name in self._answers

    def is_noisy(
        self, query: Expr, names: Mapping[str, list[Output]], *, rows_only: bool = False
    ) -> bool:
        """Whether a query returns noisy values, or rows that they choose; in doubt it does.

        Args:
            query: the query.
            names: the columns of the CTEs that it may name.
            rows_only: whether only which rows there are matters.
        """
        tables = {table.name for table in query.find_all(exp.Table)}
        if not any(name in self._answers or folded(name) in names for name in tables):
            return False
        try:
            _, outputs = self.annotate(query, names)
        except NotSmoothError:
            return True
        return any(o.chosen or (o.noisy and not rows_only) for o in outputs)

    def is_correlated(
        self, node: Expr, sources: Sequence[FromItem], names: Mapping[str, list[Output]]
    ) -> bool:
        """Whether a subquery may use columns of the SELECT around it; in doubt it does.

        Args:
            node: the subquery.
            sources: what stands after FROM in that SELECT.
            names: the columns of the CTEs that it may name.
        """
        inner: set[str] = set()
        aliases: set[str] = set()
        for select in node.find_all(exp.Select):
            clause = select.args.get("from_")
            items = [clause.this] if clause is not None else []
            items += [join.this for join in select.args.get("joins") or []]
            for item in items:
                _, source = self.source(item, names)
                aliases.add(folded(source.alias))
                inner |= set(source.columns)
        outer = {folded(source.alias) for source in sources} - aliases
        outside = {name for source in sources for name in source.columns} - inner
        return any(
            folded(part.table) in outer or (not part.table and folded(part.name) in outside)
            for part in node.find_all(exp.Column)
        )

    def annotate(
        self, query: Expr, names: Mapping[str, list[Output]] | None = None
    ) -> tuple[Expr, list[Output]]:
        """Return a query with its hidden columns, and what its other columns are.

        Args:
            query: the query over tables of answers and public tables.
            names: the columns of the CTEs that it may name.
        """
        known = dict(names or {})
        clause = query.args.get("with_")
        ctes = []
        for cte in clause.expressions if clause is not None else []:
            inner, outputs = self.annotate(cte.this, known)
            alias = cte.args["alias"]
            outputs = renamed(outputs, alias)
            known[folded(alias.name)] = outputs
            whole = exp.TableAlias(this=alias.this.copy(), columns=_columns(outputs))
            ctes.append(exp.CTE(this=inner, alias=whole))
        bare = type(query)(**{k: v for k, v in query.args.items() if k != "with_"})
        found, outputs = self._query(bare, known)
        if ctes:
            found.set("with_", exp.With(expressions=ctes))
        return found, outputs

    def _query(self, query: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, list[Output]]:
        if isinstance(query, exp.Subquery):
            return self.annotate(query.this, names)
        if isinstance(query, exp.Union) and query.args.get("distinct") is False:
            return self._union(query, names)
        if isinstance(query, exp.SetOperation):
            (_, outputs), (_, others) = (
                self.annotate(side, names) for side in (query.this, query.expression)
            )
            chosen = any(o.noisy or o.chosen for o in (*outputs, *others))
            outputs = [replace(o, chosen=chosen) for o in outputs]
            return _hiding(query, outputs, f"{capitals(query.key)} compares noisy values")
        if query.args.get("distinct") is not None:
            plain = exp.Select(**{k: v for k, v in query.args.items() if k != "distinct"})
            _, outputs = AnnotatedSelect(self, plain, names).annotated()
            return _hiding(query, outputs, "DISTINCT compares noisy values")
        return AnnotatedSelect(self, query, names).annotated()

    def _union(
        self, query: exp.Union, names: Mapping[str, list[Output]]
    ) -> tuple[Expr, list[Output]]:
        left, above = self.annotate(query.this, names)
        right, below = self.annotate(query.expression, names)
        chosen = any(o.chosen for o in (*above, *below))
        merged = [
            Output(a.name, a.noisy or b.noisy, a.exact and b.exact, a.reason or b.reason, chosen)
            for a, b in zip(above, below, strict=False)
        ]
        rest = {k: v for k, v in query.args.items() if k not in {"this", "expression"}}
        return exp.Union(this=left, expression=right, **rest), merged

    def source(self, item: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, FromItem]:
        """Annotate one item after FROM."""
        alias = item.args.get("alias")
        if isinstance(item, exp.Subquery):
            inner, outputs = self.annotate(item.this, names)
            outputs = renamed(outputs, alias)
            name = alias.name if alias is not None else "__q"
            whole = exp.TableAlias(this=quoted(name), columns=_columns(outputs))
            return exp.Subquery(this=inner, alias=whole), listed(name, outputs)
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            if item.name in self._answers:
                return item, of_answers(item.name, self._answers[item.name])
            if folded(item.name) in names:
                outputs = renamed(names[folded(item.name)], alias)
                return item, listed(item.alias or item.name, outputs)
            outputs = renamed([Output(name) for name in self._columns(item.name)], alias)
            plain = {folded(o.name): (o, NONE) for o in outputs}
            return item, FromItem(item.alias or item.name, plain)
        return item, FromItem(item.alias or item.name, {}, complete=False)


def _columns(outputs: list[Output]) -> list[Expr]:
    """Name the columns of an annotated query, hidden ones last."""
    shown: list[Expr] = [quoted(o.name) for o in outputs]
    return shown + [exp.Identifier(this=f"__e{i}") for i in range(len(outputs))]


def _hiding(query: Expr, outputs: list[Output], reason: str) -> tuple[Expr, list[Output]]:
    """Keep a query as it is, and say of its noisy columns that their noise isn't known."""
    unknown = [replace(o, exact=not o.noisy, reason=reason if o.noisy else None) for o in outputs]
    items: list[Expr] = [exp.Star()]
    for i, output in enumerate(unknown):
        pairs = UNKNOWN if output.noisy else NONE
        items.append(exp.Alias(this=exp.Var(this=pairs), alias=exp.Identifier(this=f"__e{i}")))
    given = [quoted(o.name) for o in outputs]
    whole = exp.TableAlias(this=exp.Identifier(this="__q"), columns=given)
    inner = exp.Subquery(this=query.copy(), alias=whole)
    return exp.Select(expressions=items, from_=exp.From(this=inner)), unknown
