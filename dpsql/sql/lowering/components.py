"""Components of coupled columns and relations: the blocks that a core's matrices fall into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dpsql.linalg.sets import unions
from dpsql.schema import Table
from dpsql.sql.binding.core import Core, Relation
from dpsql.sql.binding.expressions import BoundExpr

Node = str | int


@dataclass(frozen=True, slots=True)
class CoupledColumns:
    """Columns and relations that conditions, keys or weights connect; independent of all others."""

    attributes: tuple[str, ...]
    """In the order of the schema."""
    relations: tuple[Relation, ...]
    conjuncts: tuple[BoundExpr, ...]
    keys: tuple[int, ...]
    """The numbers of the keys that depend on it."""
    weighted: bool
    """Whether a statistic's weight depends on it."""

    @property
    def nodes(self) -> frozenset[Node]:
        """Everything in it: column names and relation numbers."""
        return frozenset(self.attributes).union(r.number for r in self.relations)


def components(
    core: Core,
    keys: Sequence[int],
    table: Table,
    filters: Iterable[BoundExpr] = (),
    couplings: Iterable[frozenset[Node]] = (),
    weights: Sequence[BoundExpr] = (),
) -> list[CoupledColumns]:
    """Divide a core's columns and relations into independent components.

    Args:
        core: the core.
        keys: the keys of one grouping set.
        table: its private table.
        filters: conditions of one statistic besides those of the core.
        couplings: nodes that are to be in one component for other reasons.
        weights: what each row adds the product of.

    Returns:
        The components; those with keys first, in the order of their first key.
    """
    conjuncts = tuple(dict.fromkeys([*core.conjuncts, *filters]))
    weight = frozenset[Node]().union(*(weight.nodes for weight in weights))
    parts = (*conjuncts, *(core.keys[k] for k in keys))
    edges = [*(part.nodes for part in parts), *couplings, weight, *map(_nodes, core.relations)]
    # What depends on nothing, such as WHERE 1 = 0, is a matter of the first component.
    needs_one = bool(weights or conjuncts)
    groups = _with_attributes(unions(filter(None, edges)), table, needs_one=needs_one)
    found = []
    for number, group in enumerate(groups):
        first = number == 0
        conditions = (c for c in conjuncts if _depends(c.nodes, group, first=first))
        found.append(
            CoupledColumns(
                tuple(name for name in table.columns if name in group),
                tuple(r for r in core.relations if r.number in group),
                tuple(sorted(conditions, key=lambda c: bool(c.nodes))),
                tuple(k for k in keys if _depends(core.keys[k].nodes, group, first=False)),
                bool(weights) and _depends(weight, group, first=first),
            )
        )
    alone = tuple(k for k in keys if not core.keys[k].nodes)
    found += [CoupledColumns((), (), (), alone, False)] if alone else []
    return sorted(found, key=lambda component: component.keys or (len(core.keys),))


def _nodes(relation: Relation) -> frozenset[Node]:
    """Return a relation, and all that its conditions are about."""
    return frozenset({relation.number}).union(*(c.nodes for c in relation.on))


def _depends(nodes: frozenset[Node], group: frozenset[Node], *, first: bool) -> bool:
    """Whether what is about some nodes depends on a group; what is about none, on the first one."""
    return nodes <= group if nodes else first


def _with_attributes(
    groups: list[frozenset[Node]], table: Table, *, needs_one: bool
) -> list[frozenset[Node]]:
    """Give relations that no column is connected with a column: a matrix needs cells."""
    if needs_one and not groups:
        return [_smallest(table)]
    alone = [group for group in groups if not any(isinstance(node, str) for node in group)]
    if not alone:
        return groups
    rest = [group for group in groups if group not in alone] or [_smallest(table)]
    return [rest[0].union(*alone), *rest[1:]]


def _smallest(table: Table) -> frozenset[Node]:
    """Choose a column for what depends on none: one in which every row has a cell, if possible.

    A table without such columns has one cell.
    """

    def cost(name: str) -> tuple[bool, int]:
        domain = table.columns[name]
        return not domain.covers_all, domain.size

    own = [name for name in table.columns if name not in table.joined]
    return frozenset(sorted(own, key=cost)[:1])
