"""Added columns: what a row has of others of its unit, while it stays one row.

    SELECT region, EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id) FROM customers c

counts customers, each with one more column. So these are the rows of `customers`, and they are
counted together with all else that is asked of customers. Such columns are those of a `GroupJoin`
or of a `Window`, which give each row of their input once (`dpsql/rel/nodes.py`). They are named
after what they are, so that statements that ask the same of a row share the column.

In its expressions a column of the row is called as the table calls it. Where rows are met, these
have the ids of their own relation, and columns of the row stand behind `OUTSIDE`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

from dpsql.rel.nodes import OUTSIDE, Agg, Relation, Scan, walk
from dpsql.rows.expression import RowExpression
from dpsql.rows.expression import columns as columns_of
from dpsql.rows.known import Interval
from dpsql.rows.windows import WindowCall
from dpsql.schema.domain import Domain
from dpsql.schema.grain import stored_type
from dpsql.schema.table import Table


@dataclass(frozen=True, eq=False, slots=True)
class MetRows:
    """The rows of its unit that a row meets, by a condition.

    Args:
        relation: the rows.
        on: the condition; None if it meets all of them.
    """

    relation: Relation
    on: RowExpression | None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The private tables that they are of."""
        scans = [node for node in walk(self.relation) if isinstance(node, Scan)]
        return tuple(
            source.table for scan in scans for source in (scan.source, *(s for s, _ in scan.along))
        )


Met: TypeAlias = tuple[MetRows, Agg]
"""An aggregate of the rows that a row meets."""


@dataclass(frozen=True, eq=False, slots=True)
class AddedColumn:
    """A column that is computed of a row and others of its unit.

    Args:
        name: its name in the table, which says in full what it is.
        computed: the aggregate of other rows, or the window.
        type: its type.
        filled: whether it is never NULL.
        domain: its values, if they are known.
        between: between which numbers it lies, as far as that is known.
        digest: a hash of what it is, and of its values.
        listed: whether it has no other values than those, as that of another row may have.
    """

    name: str
    computed: Met | WindowCall
    type: str
    filled: bool
    domain: Domain | None
    between: Interval
    digest: str
    listed: bool = True

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the row that are read."""
        if isinstance(self.computed, WindowCall):
            return self.computed.read
        met, agg = self.computed
        parts = (part for part in (met.on, agg.value, agg.where) if part is not None)
        names = frozenset[str]().union(*map(columns_of, parts))
        return frozenset(n.removeprefix(OUTSIDE) for n in names if n.startswith(OUTSIDE))

    @property
    def is_window(self) -> bool:
        """Whether it looks at the other rows of its table."""
        return isinstance(self.computed, WindowCall)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The other private tables that are read."""
        return () if isinstance(self.computed, WindowCall) else self.computed[0].tables


def added_column(
    computed: Met | WindowCall,
    table: Table,
    fact: tuple[str, bool],
    domain: Domain | None,
    between: Interval,
    *,
    listed: bool = True,
) -> AddedColumn:
    """Name a column that is added to the rows of a table after what it is.

    Args:
        computed: what it is.
        table: the table, whose columns may be computed themselves.
        fact: its type, and whether it may be NULL.
        domain: its values, if they are known.
        between: between which numbers it lies, as far as that is known.
        listed: whether it has no other values than those of the domain.
    """
    from dpsql.rel.identity import text_of_met, text_of_window  # which few statements need

    known = (*table.columns, *table.undeclared)
    around = {n: repr((n, stored_type(table, n), table.derived.get(n, ""))) for n in known}
    values = "" if domain is None else f"{domain!r} {domain.zone}{'' if listed else ' or others'}"
    if isinstance(computed, WindowCall):
        shown, text = f"{computed.function} over rows", text_of_window(computed, around)
    else:
        met, agg = computed
        text = text_of_met(met.relation, met.on, agg, around)
        names = ", ".join(dict.fromkeys(table.name for table in met.tables))
        shown = f"{agg.function} of {names or 'public rows'}"
    digest = hashlib.sha256(repr((text, values, between)).encode()).hexdigest()
    type_, nullable = fact
    name = f"{shown} {digest[:32]}"
    return AddedColumn(name, computed, type_, not nullable, domain, between, digest, listed)
