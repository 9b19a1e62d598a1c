"""Most rows of a unit in a relation, if it has no more in tables than the bounds of these say.

Nothing enforces that: of a unit that has more in a table, more may meet. So a `Bound` keeps as
many, and the number says only how many must be kept so that of other units none is left out.
"""

from __future__ import annotations

from dpsql.rel.facts import Known, equalities
from dpsql.rel.nodes import (
    Bound,
    Filter,
    Group,
    GroupJoin,
    Join,
    NodeVisitor,
    Project,
    Public,
    Relation,
    Scan,
    Union,
    Window,
)
from dpsql.schema.units import MAX_ROWS


def most_rows(relation: Relation) -> int | None:
    """Return how many rows of a unit there are at most.

    None if a table has no bound, or if so many can't be kept.
    """
    most = _Most(Known()).visit(relation)
    return most if most <= MAX_ROWS else None


class _Most(NodeVisitor[int]):
    """The numbers of rows, from the bottom up; none is less than 1."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def visit(self, node: Relation) -> int:
        found, sure = super().visit(node), self._known.of(node).most
        return max(found if sure is None else min(found, sure), 1)

    def _scan(self, node: Scan) -> int:
        table = node.source.table
        return table.contributions if table.is_bounded else MAX_ROWS + 1

    def _public(self, node: Public) -> int:
        return len(node.rows)

    def _filter(self, node: Filter) -> int:
        return self.visit(node.of)

    def _project(self, node: Project) -> int:
        return self.visit(node.of)

    def _join(self, node: Join) -> int:
        left, right = self._known.of(node.left), self._known.of(node.right)
        pairs = equalities(node.on, left, right)
        if right.is_unique(b for _, b in pairs):
            return self.visit(node.left)
        of_one = right.private and node.kind == "inner" and left.is_unique(a for a, _ in pairs)
        return self.visit(node.right) * (1 if of_one else self.visit(node.left))

    def _group_join(self, node: GroupJoin) -> int:
        return self.visit(node.left)

    def _window(self, node: Window) -> int:
        return self.visit(node.of)

    def _group(self, node: Group) -> int:
        return self.visit(node.of)

    def _union(self, node: Union) -> int:
        return sum(map(self.visit, node.parts))

    def _bound(self, node: Bound) -> int:
        return min(node.rows, self.visit(node.of))
