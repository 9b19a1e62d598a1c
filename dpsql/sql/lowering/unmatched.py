"""Public rows that no private row meets, which RIGHT and FULL joins keep.

Such a row is there once, with NULL for all private columns, if and only if no private row meets it.
What it adds to a statistic would depend on whether there are private rows, and not on how many,
which no linear query tells. So a statistic must pass over it, as COUNT of a private column does:
then all that such rows leave behind are their groups, and these are public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dpsql.errors import SqlError, printable
from dpsql.schema import Table
from dpsql.schema.names import as_sql
from dpsql.sql.binding.core import Core, Quantile, Relation, Statistic, base_of
from dpsql.sql.binding.joins import joined_plainly
from dpsql.sql.lowering.components import CoupledColumns
from dpsql.sql.lowering.lookups import JoinedRows
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.spans import SourceText


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
        value = of.value if isinstance(of, Quantile) else of.weight
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
