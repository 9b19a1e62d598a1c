"""Follow noise through a query: which noisy statistics each value of its result consists of.

Beside every column of every SELECT stands a hidden one, `__e0`, `__e1`, …: the list of pairs
(statistic, coefficient) whose sum is, to first order, the value's noise. An answer's statistic
has itself with coefficient 1; expressions scale and join lists by the chain rule; SUM and AVG,
plain or over windows, collect them. DuckDB computes the lists with the values, so filters, sorting,
joins and limits apply to both alike. An empty list means no noise, NULL that it isn't known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.sql.expressions import Expr, render, with_named
from dpsql.sql.gradient import Gradient, NotSmoothError, gradient, named
from dpsql.sql.pairs import (
    NONE,
    UNKNOWN,
    Answers,
    Output,
    Source,
    listed,
    of_answers,
    renamed,
    scaled,
)

Columns = Callable[[str], Sequence[str]]
"""Returns the columns of a public table of the sandbox."""
_SHIFTS = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


class Propagation:
    """Adds the hidden columns to one statement's query."""

    def __init__(self, answers: Mapping[str, Answers], columns: Columns) -> None:
        self._answers = answers
        self._columns = columns

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
            known[alias.name.lower()] = outputs
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
            _, outputs = self.annotate(query.this, names)
            return _hiding(query, outputs, f"{query.key.upper()} compares noisy values")
        if query.args.get("distinct") is not None:
            plain = exp.Select(**{k: v for k, v in query.args.items() if k != "distinct"})
            _, outputs = _Select(self, plain, names).annotated()
            return _hiding(query, outputs, "DISTINCT compares noisy values")
        return _Select(self, query, names).annotated()

    def _union(
        self, query: exp.Union, names: Mapping[str, list[Output]]
    ) -> tuple[Expr, list[Output]]:
        left, above = self.annotate(query.this, names)
        right, below = self.annotate(query.expression, names)
        merged = [
            Output(a.name, a.noisy or b.noisy, a.exact and b.exact, a.reason or b.reason)
            for a, b in zip(above, below, strict=False)
        ]
        rest = {k: v for k, v in query.args.items() if k not in {"this", "expression"}}
        return exp.Union(this=left, expression=right, **rest), merged

    def source(self, item: Expr, names: Mapping[str, list[Output]]) -> tuple[Expr, Source]:
        """Annotate one item after FROM."""
        alias = item.args.get("alias")
        if isinstance(item, exp.Subquery):
            inner, outputs = self.annotate(item.this, names)
            outputs = renamed(outputs, alias)
            name = alias.name if alias is not None else "__q"
            shown = exp.Identifier(this=name, quoted=True)
            whole = exp.TableAlias(this=shown, columns=_columns(outputs))
            return exp.Subquery(this=inner, alias=whole), listed(name, outputs)
        if isinstance(item, exp.Table) and isinstance(item.this, exp.Identifier):
            if item.name in self._answers:
                return item, of_answers(item.name, self._answers[item.name])
            if item.name.lower() in names:
                outputs = renamed(names[item.name.lower()], alias)
                return item, listed(item.alias or item.name, outputs)
            outputs = renamed([Output(name) for name in self._columns(item.name)], alias)
            plain = {o.name.lower(): (o, NONE) for o in outputs}
            return item, Source(item.alias or item.name, plain)
        return item, Source(item.alias or item.name, None)


def _columns(outputs: list[Output]) -> list[Expr]:
    """Name the columns of an annotated query, hidden ones last."""
    shown: list[Expr] = [exp.Identifier(this=o.name, quoted=True) for o in outputs]
    return shown + [exp.Identifier(this=f"__e{i}") for i in range(len(outputs))]


class _Select:
    """Annotates one SELECT without DISTINCT."""

    def __init__(
        self, propagation: Propagation, select: Expr, names: Mapping[str, list[Output]]
    ) -> None:
        self._propagation = propagation
        self._select = select
        self._names = names
        self._sources: list[Source] = []
        self._lists: dict[str, str] = {}
        self._exact: dict[str, bool] = {}
        self._grouped = False
        self._merged: set[str] = set()

    def annotated(self) -> tuple[Expr, list[Output]]:
        select = self._select.copy()
        _inline_windows(select)
        clause = select.args.get("from_")
        if clause is not None:
            clause.set("this", self._add(clause.this))
        for join in select.args.get("joins") or []:
            join.set("this", self._add(join.this))
            self._merged |= {part.name.lower() for part in join.args.get("using") or []}
        items = [item for node in select.expressions for item in self._expanded(node)]
        self._grouped = select.args.get("group") is not None or any(_aggregates(n) for n in items)
        outputs, hidden = [], []
        for i, item in enumerate(items):
            output, pairs = self._item(item)
            outputs.append(output)
            hidden.append(exp.Alias(this=exp.Var(this=pairs), alias=exp.Identifier(this=f"__e{i}")))
        select.set("expressions", [*items, *hidden])
        return select, outputs

    def _add(self, item: Expr) -> Expr:
        changed, source = self._propagation.source(item, self._names)
        self._sources.append(source)
        return changed

    def _expanded(self, node: Expr) -> list[Expr]:
        """Write out the columns that a star stands for; those of public tables stay a star."""
        star = isinstance(node, exp.Star)
        if not star and not (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            return [node]
        owner = node.text("table").lower()
        chosen = [s for s in self._sources if star or s.alias.lower() == owner]
        if any(source.columns is None for source in chosen):
            raise NotSmoothError("* stands for columns of a public table")
        return [
            exp.Alias(
                this=exp.Column(
                    this=exp.Identifier(this=output.name, quoted=True),
                    table=exp.Identifier(this=source.alias, quoted=True),
                ),
                alias=exp.Identifier(this=output.name, quoted=True),
            )
            for at, source in enumerate(chosen)
            for output, _ in (source.columns or {}).values()
            if not (star and at and output.name.lower() in self._merged)
        ]

    def _item(self, item: Expr) -> tuple[Output, str]:
        """Return an output column, and the SQL of its list."""
        name = item.alias_or_name or render(item)
        inner = item.unalias()
        try:
            found = gradient(inner, self._leaf)
        except NotSmoothError as error:
            return Output(name, noisy=True, exact=False, reason=str(error)), UNKNOWN
        if not found.partial:
            return Output(name), NONE
        exact = found.exact and all(self._exact[leaf] for leaf in found.partial)
        return Output(name, noisy=True, exact=exact), self._chain(found)

    def _chain(self, g: Gradient) -> str:
        """Scale the lists of what an expression depends on by its derivatives, and join them."""
        parts = []
        for leaf, derivative in g.partial.items():
            factor = render(derivative)
            parts.append(self._lists[leaf] if factor == "1" else scaled(self._lists[leaf], factor))
        return parts[0] if len(parts) == 1 else f"flatten([{', '.join(parts)}])"

    def _leaf(self, node: Expr) -> str | None:
        """Return the name of a noisy value, whose list is noted."""
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Window):
            return self._window(node)
        if isinstance(node, (exp.AggFunc, exp.Filter)):
            return self._aggregate(node)
        if isinstance(node, exp.Subquery):
            return self._scalar(node)
        return None

    def _column(self, node: exp.Column) -> str | None:
        qualifier = node.table.lower()
        for source in self._sources:
            if qualifier and qualifier != source.alias.lower():
                continue
            found = (source.columns or {}).get(node.name.lower())
            if found is None:
                continue
            output, pairs = found
            if not output.noisy:
                return None
            if output.reason is not None:
                raise NotSmoothError(output.reason)
            if self._grouped and node.find_ancestor(exp.AggFunc, exp.Window) is None:
                raise NotSmoothError("rows are grouped by a noisy value")
            return self._note(render(node), pairs, output.exact)
        return None

    def _aggregate(self, node: Expr) -> str | None:
        inner = node.this if isinstance(node, exp.Filter) else node
        found = self._argument(node, inner)
        if found is None:
            return None
        condition = render(node.expression) if isinstance(node, exp.Filter) else ""
        having = f" FILTER ({condition})" if condition else ""
        return self._collected(node, inner, found, having)

    def _window(self, node: exp.Window) -> str | None:
        if isinstance(node.this, _SHIFTS):
            return self._shifted(node)
        found = self._argument(node, node.this)
        if found is None:
            return None
        rest = {k: v for k, v in node.args.items() if k != "this"}
        over = render(exp.Window(this=exp.Var(this=""), **rest)).strip()
        return self._collected(node, node.this, found, f" {over}")

    def _shifted(self, node: exp.Window) -> str | None:
        """Take the list of another row, as LAG and the like take its value."""
        function = node.this
        others = [n for n in node.iter_expressions() if n is not function]
        others += [n for n in function.iter_expressions() if n is not function.this]
        grouped, self._grouped = self._grouped, False
        try:
            found = gradient(function.this, self._leaf)
        finally:
            self._grouped = grouped
        if any(self._noisy(other) for other in others):
            raise NotSmoothError("which row is taken depends on noisy values")
        if not found.partial:
            return None
        shifted = node.copy()
        shifted.this.set("this", exp.Var(this=self._chain(found)))
        shifted.this.set("default", None)
        exact = found.exact and all(self._exact[leaf] for leaf in found.partial)
        return self._note(render(node), render(shifted), exact)

    def _argument(self, node: Expr, function: Expr) -> Gradient | None:
        """Differentiate what an aggregate is over; None if nothing in it is noisy."""
        if isinstance(function, (exp.Sum, exp.Avg)) and isinstance(function.this, exp.Expr):
            parts = [] if node is function else list(node.iter_expressions())
            others = [part for part in parts if part is not function]
            if any(self._noisy(other) for other in others):
                raise NotSmoothError("the rows that are added up are chosen by noisy values")
            grouped, self._grouped = self._grouped, False
            try:
                found = gradient(function.this, self._leaf)
            finally:
                self._grouped = grouped
            return found if found.partial else None
        if any(self._noisy(part) for part in node.iter_expressions()):
            raise NotSmoothError(f"{named(function)} of noisy values has no variance")
        return None

    def _noisy(self, node: Expr) -> bool:
        grouped, self._grouped = self._grouped, False
        try:
            return any(self._leaf(part) is not None for part in node.walk())
        except NotSmoothError:
            return True
        finally:
            self._grouped = grouped

    def _collected(self, node: Expr, function: Expr, g: Gradient, rest: str) -> str:
        """Note the list of SUM or AVG: the lists of its rows, one after the other."""
        pairs = f"flatten(list({self._chain(g)}){rest})"
        if isinstance(function, exp.Avg):
            count = f"(count({render(function.this)}){rest})"
            pairs = f"list_transform({pairs}, lambda __p : {{'i': __p.i, 'c': __p.c / {count}}})"
        exact = g.exact and all(self._exact[leaf] for leaf in g.partial)
        return self._note(render(node), pairs, exact)

    def _scalar(self, node: exp.Subquery) -> str | None:
        query, outputs = self._propagation.annotate(node.this, self._names)
        if not outputs or not outputs[0].noisy:
            return None
        if outputs[0].reason is not None:
            raise NotSmoothError(outputs[0].reason)
        pairs = f"(SELECT __e0 FROM ({render(query)}) AS __q)"
        return self._note(render(node), pairs, outputs[0].exact)

    def _note(self, name: str, pairs: str, exact: bool) -> str:
        self._lists[name], self._exact[name] = pairs, exact
        return name


def _hiding(query: Expr, outputs: list[Output], reason: str) -> tuple[Expr, list[Output]]:
    """Keep a query as it is, and say of its noisy columns that their noise isn't known."""
    unknown = [replace(o, exact=not o.noisy, reason=reason if o.noisy else None) for o in outputs]
    items: list[Expr] = [exp.Star()]
    for i, output in enumerate(unknown):
        pairs = UNKNOWN if output.noisy else NONE
        items.append(exp.Alias(this=exp.Var(this=pairs), alias=exp.Identifier(this=f"__e{i}")))
    given = [exp.Identifier(this=o.name, quoted=True) for o in outputs]
    whole = exp.TableAlias(this=exp.Identifier(this="__q"), columns=given)
    inner = exp.Subquery(this=query.copy(), alias=whole)
    return exp.Select(expressions=items, from_=exp.From(this=inner)), unknown


def _inline_windows(select: Expr) -> None:
    """Write windows out where `OVER w` names them: what they order by may be noisy."""
    named = select.args.get("windows") or []
    for node in list(select.find_all(exp.Window)):
        own = node.find_ancestor(exp.Select) is select and not any(node is n for n in named)
        whole = with_named(node, named) if own else None
        if whole is not None and whole is not node:
            node.replace(whole)
    if named:
        select.set("windows", None)


def _aggregates(node: Expr) -> bool:
    """Whether an aggregate that is no window stands in an item."""
    for part in node.find_all(exp.AggFunc):
        if not isinstance(part.parent, exp.Window) and part.find_ancestor(exp.Query) in (
            None,
            node.find_ancestor(exp.Query),
        ):
            over = part.parent
            if not (isinstance(over, exp.Filter) and isinstance(over.parent, exp.Window)):
                return True
    return False
