"""Windows over the rows of a SELECT: what each is computed of, and of which rows of the unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from sqlglot import exp

from dpsql.hints import instead
from dpsql.rel.nodes import Id
from dpsql.schema import Table
from dpsql.sql.algebra.described import DescribedRelation, id_of
from dpsql.sql.algebra.visible import RelationHome
from dpsql.sql.binding.bind import RowBinder, Visits
from dpsql.sql.binding.expressions import BoundExpr, Expr
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.binding.units.windows import UnitWindows
from dpsql.sql.text.spans import SourceText


class _Translator(Protocol):
    @property
    def tables(self) -> NamedTables: ...
    @property
    def loose(self) -> Mapping[Id, str]: ...
    def rely_on(self, ids: Iterable[Id]) -> None: ...


class _Rows(Protocol):
    """The rows of a SELECT under translation: see `RowsOfSelect`."""

    source: SourceText
    select: exp.Select

    @property
    def queries(self) -> _Translator: ...
    @property
    def of(self) -> DescribedRelation: ...
    def table(self) -> Table: ...
    def home(self) -> RelationHome: ...
    def bind(self, node: Expr) -> BoundExpr: ...
    def refuse(self, node: Expr, outer: object) -> Expr: ...


class PartsOfWindows(UnitWindows):
    """Reads one window over the rows of a SELECT."""

    def __init__(self, rows: _Rows) -> None:
        bare = exp.Select(expressions=[])
        binder = _Preparing(rows, bare)
        super().__init__(rows.source, rows.queries.tables, rows.select, binder, (), ())
        self._rows = rows

    def _table(self, at: Expr) -> Table:
        return self._rows.table()

    def _partition(
        self, window: exp.Window, table: Table, at: Expr
    ) -> tuple[tuple[str, ...], tuple[BoundExpr, ...]]:
        nodes = window.args.get("partition_by") or []
        bounds = [self._binder.bind(node) for node in nodes]
        of = self._rows.of
        ids = [id_of(bound, self._rows.table()) for bound in bounds]
        told = [id_ for id_ in ids if id_ is not None and of.tells.get(id_)]
        if not told:
            raise self._source.unsupported(
                at,
                "A window over single rows is not supported, but for rows of one unit.",
                "partition it by the unit: " + instead("OVER (PARTITION BY …)") + ".",
            )
        if all(id_ in self._rows.queries.loose for id_ in told):
            self._rows.queries.rely_on(told[:1])
        rest = [b for b, id_ in zip(bounds, ids, strict=True) if id_ not in told]
        return tuple(dict.fromkeys(told)), tuple(dict.fromkeys(rest))


class _Preparing(RowBinder):
    """Binds expressions after what they need was added to the relation."""

    def __init__(self, rows: _Rows, select: exp.Select) -> None:
        visits = Visits(rows.refuse, lambda node, binder: None, rows.refuse)
        super().__init__(rows.source, select, rows.home(), visits)
        self._rows = rows

    def bind(self, node: Expr) -> BoundExpr:
        return self._rows.bind(node)
