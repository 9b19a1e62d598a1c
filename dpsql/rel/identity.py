"""The identity of a relation: two with one digest have the same rows, whatever they are called.

Measurements of rows are put together where the relations that they are of have one digest. So the
text that is hashed is injective: each node stands in brackets with a word of its own, names and
constants are in quotes that are doubled within, and columns are numbered in the order in which the
nodes give them, the inputs of a node before it. Ids, which no analyst sees, and prefixes of scans
aren't in it. Tables are told by their paths within a database, which may be attached under any
name, and public rows by their values.

Conditions that all hold are sorted. Nothing else is recognized as equal: a missed equality costs
budget, and a false one would put measurements of different rows together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from dpsql.rel.facts import Known, conjuncts
from dpsql.rel.nodes import (
    OUTSIDE,
    Agg,
    Bound,
    CellLimit,
    Filter,
    Group,
    GroupJoin,
    Id,
    Join,
    Project,
    Public,
    Relation,
    Scan,
    StoredRows,
    Union,
    Window,
    inputs,
)
from dpsql.rel.rename import renamed
from dpsql.rows.expression import RowColumn, RowExpression, canonical
from dpsql.rows.windows import WindowCall
from dpsql.schema.grain import stored_type
from dpsql.schema.names import quoted_text


def digest(relation: Relation) -> str:
    """Return a hash of which rows a relation has, and of its columns in their order."""
    return hashlib.sha256(text_of(relation).encode()).hexdigest()


def text_of(relation: Relation) -> str:
    """Return the text that is hashed; see the module."""
    return _Text().of(relation)


def text_of_window(call: WindowCall, around: Mapping[str, str]) -> str:
    """Return a text that says which window is added to a row; see `text_of_met`."""
    text = _Text({name: quoted_text(of) for name, of in around.items()})
    return f"Window({text.call(call)})"


def text_of_met(
    relation: Relation, on: RowExpression | None, agg: Agg, around: Mapping[str, str]
) -> str:
    """Return a text that says which aggregate is added to a row; see `added.py`.

    Args:
        relation: the rows that it meets.
        on: by which condition.
        agg: the aggregate of them.
        around: each column of the row → a text that says what that is.
    """
    text = _Text({OUTSIDE + name: quoted_text(of) for name, of in around.items()})
    rows = text.of(relation)
    return f"GroupJoin({rows}, {text.all(on)}, {text.aggs([('', agg)])})"


class _Text:
    """Writes one text, and numbers the columns as it comes to them.

    Args:
        named: columns that no node gives, as they are written.
    """

    def __init__(self, named: Mapping[Id, str] | None = None) -> None:
        self._known = Known()
        self._named = dict(named or {})
        self._numbers: dict[Id, str] = {}

    def of(self, node: Relation) -> str:
        """Write a relation behind those that it is made of."""
        below = [self.of(side) for side in inputs(node)]
        fields = self._own(node)
        self._number(node)
        return f"{type(node).__name__}({', '.join([*below, *fields])})"

    def _number(self, node: Relation) -> None:
        for name in self._known.of(node).columns:
            self._numbers.setdefault(name, str(len(self._numbers)))

    def _own(self, node: Relation) -> Iterable[str]:
        match node:
            case Scan():
                for source in (node.source, *(source for source, _ in node.along)):
                    yield _listed(_stored(source))
            case Public():
                yield _listed(quoted_text(type_) for _, type_ in node.columns)
                yield _listed(_listed(map(canonical, row)) for row in node.rows)
            case Filter():
                yield self.all(node.where)
            case Project():
                yield _listed(self._value(value) for _, value in node.columns)
            case Join():
                yield from (node.kind, self.all(node.on))
            case GroupJoin():
                yield from (self.all(node.on), self.aggs(node.adds))
            case Window():
                yield _listed(self.call(call) for _, call in node.adds)
            case Group():
                yield _listed(self._value(value) for _, value in node.keys)
                yield self.aggs(node.adds)
            case Union():
                yield from ()
            case Bound():
                yield str(node.rows)
                yield _listed(self._limit(limit) for limit in node.limits)

    def _value(self, value: RowExpression | None) -> str:
        return "-" if value is None else canonical(renamed(value, self._named | self._numbers))

    def all(self, condition: RowExpression | None) -> str:
        """Write conditions that all hold."""
        return _listed(sorted(map(self._value, conjuncts(condition))))

    def aggs(self, adds: Iterable[tuple[Id, Agg]]) -> str:
        """Write aggregates."""
        return _listed(
            _listed([agg.function, self._value(agg.value), self.all(agg.where)]) for _, agg in adds
        )

    def _limit(self, limit: CellLimit) -> str:
        cells = (
            _listed(
                [
                    self._numbers[cells.column],
                    quoted_text(repr(cells.domain)),
                    quoted_text(cells.domain.zone or ""),
                    str(cells.leaves_out),
                ]
            )
            for cells in limit.cells
        )
        return _listed([str(limit.rows), *cells])

    def call(self, call: WindowCall) -> str:
        """Write a window."""
        told = (self._value(RowColumn(name)) for name, _ in call.told)
        order = (
            _listed([self._value(o.value), str(o.descending), str(o.nulls_first), str(o.stored)])
            for o in call.order
        )
        return _listed(
            [
                call.function,
                _listed(map(self._value, call.arguments)),
                _listed(map(str, call.numbers)),
                _listed(sorted(told)),
                _listed(sorted(map(self._value, call.partition))),
                _listed(order),
                "-" if call.frame is None else call.frame.sql,
                self.all(call.holds),
            ]
        )


def _stored(source: StoredRows) -> Iterable[str]:
    """Write which stored rows are meant, whose they are, and what their columns are."""
    table = source.table
    yield _listed(map(quoted_text, table.path[1:]))
    yield quoted_text("" if table.origin is None else table.origin.digest)
    if table.unit is not None:
        yield _listed(quoted_text(repr(join)) for join in table.unit.joins)
        yield _listed(quoted_text(name) for name, _ in table.unit.columns)
    for name in (*table.columns, *table.undeclared):
        yield _listed([quoted_text(name), quoted_text(stored_type(table, name))])


def _listed(parts: Iterable[str]) -> str:
    return f"[{', '.join(parts)}]"
