"""Notes on answers that are computed over groups, or chosen by noise: what readers must know."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.helper import ensure_list

from dpsql.schema.table import MovedValues
from dpsql.sql.binding.core import Role, Windowed
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.computing.postprocess import Postprocessing, has_statistic
from dpsql.sql.lowering.lower import LoweredCore

EMPTY = (
    "groups without rows take part, unlike in a database: declare which groups exist, or leave "
    "out groups that may be empty, by groups_above={} or HAVING COUNT(*) > …"
)
_FLOORS = range(2, 7)
"""Floors in standard errors. The least is proposed that on average lets less than one in two
statements have a group without rows."""
CHOSEN = (
    "chosen by noisy values, so too large on average: by 0.8 standard errors if the exact value "
    "is at the threshold, by 1.5 or 2.4 if it is one or two standard errors below"
)
CHOSEN_GROUPS = "groups are chosen by noisy values"
LISTED = "groups are public: they are listed whether they have rows or not, and cost nothing"
PUBLIC = "computed from public tables alone: exact, and free"
ABOVE = "groups whose noisy count is less than {:g} times its standard error are left out"
_NEUTRAL = (exp.Sum,)
"""Functions of groups to which an empty group adds nothing but noise."""


@dataclass(frozen=True, slots=True)
class Note:
    """A note on some values: what must be known of them besides their errors."""

    text: str
    outputs: frozenset[int] | None = None
    """The numbers of their columns; None for all that are noisy."""
    avoidable: bool = False
    """Whether it is said before anything is charged, because another statement is without it."""

    def about(self, output: int, *, key: bool) -> bool:
        """Whether it is about a column, which may be one without noise."""
        return not key if self.outputs is None else output in self.outputs


def notes(
    query: exp.Query, cores: Sequence[LoweredCore], post: Postprocessing | None
) -> tuple[Note, ...]:
    """Return the notes for a statement.

    Args:
        query: what it computes on the answers of its cores.
        cores: these.
        post: the same, followed through by its noise; None if nothing is computed.
    """
    floors = {core.core.floor.errors for core in cores if core.core.floor is not None}
    found = [*_empty_notes(query, cores), *(Note(ABOVE.format(errors)) for errors in floors)]
    outputs = () if post is None else post.outputs
    if any(output.chosen for output in outputs):
        noisy = any(output.noisy for output in outputs)
        found.append(Note(CHOSEN) if noisy else Note(CHOSEN_GROUPS, frozenset(range(len(outputs)))))
    elif not any(group.columns for core in cores for group in core.sets):
        width = len(outputs) or len(query.expressions)
        found.append(Note(LISTED if cores else PUBLIC, frozenset(range(width))))
    return tuple(found)


def _empty_notes(query: exp.Query, cores: Sequence[LoweredCore]) -> Iterator[Note]:
    """Say of what is computed over groups that some of them may have no rows."""
    if not any(_may_be_empty(query, core) for core in cores):
        return
    groups = [group for core in cores for group in core.sets]
    means = {
        Role.STATISTIC.named(j)
        for group in groups
        for j, s in enumerate(group.columns)
        if isinstance(s.statistic, Windowed) and s.statistic.mean
    }
    over = _over_groups(query, means)
    if over is None or over:
        empty = EMPTY.format(_floor(sum(group.rows for group in groups)))
        yield Note(empty, over, avoidable=True)


def moved_notes(moved: Iterable[MovedValues]) -> tuple[Note, ...]:
    """Return a note for each way in which values count as others, see `schema.table`."""
    return tuple(Note(text) for text in dict.fromkeys(map(str, moved)))


def _floor(groups: int) -> int:
    """Return the standard errors that leave out as good as all groups without rows."""
    above = statistics.NormalDist().cdf
    return next((k for k in _FLOORS if groups * above(-k) < 1 / 2), _FLOORS[-1])


def computes_on_groups(query: exp.Query) -> bool:
    """Whether a query computes anything from several groups together."""
    return query.find(exp.AggFunc, exp.Window) is not None


def _may_be_empty(query: exp.Query, core: LoweredCore) -> bool:
    """Whether a core has groups, of which neither the owner nor HAVING says that they have rows."""
    if not core.core.keys:
        return False
    own = [s for s in query.find_all(exp.Select) if _table_of(s) == core.core.table]
    return not core.core.declared and not all(map(_chooses, own))


def _chooses(select: exp.Select) -> bool:
    """Whether groups are chosen by noisy values, be it in a SELECT around sums of answers."""
    where, around = select.args.get("where"), select.parent
    if where is not None and has_statistic(where):
        return True
    while isinstance(around, (exp.Subquery, exp.SetOperation, exp.From)):
        around = around.parent
    placed = select.find_ancestor(exp.From, exp.Where, exp.Select)
    return isinstance(around, exp.Select) and isinstance(placed, exp.From) and _chooses(around)


def _table_of(select: exp.Select) -> str:
    clause = select.args.get("from_")
    return clause.this.name if clause is not None else ""


def _over_groups(query: exp.Query, means: set[str]) -> frozenset[int] | None:
    """Return the columns for which it matters which groups there are; None if all are.

    These are the items of the outer SELECT in which something is computed over groups. What cuts
    rows off, or is computed in the queries that it is over, is taken to be about all of them.

    Args:
        query: what is computed on the answers.
        means: the statistics that are means over groups.
    """
    if not _computes(query, means):
        return frozenset()
    stars = any(item.find(exp.Star) and not item.find(exp.AggFunc) for item in query.expressions)
    if not isinstance(query, exp.Select) or stars:  # the columns aren't the items
        return None
    parts = [
        ensure_list(of) for key, of in query.args.items() if key not in {"expressions", "order"}
    ]
    if any(isinstance(p, Expr) and _computes(p, means) for of in parts for p in of):
        return None
    return frozenset(i for i, item in enumerate(query.expressions) if _computes(item, means))


def _computes(part: Expr, means: set[str]) -> bool:
    """Whether something in a query depends on which groups there are."""
    for node in part.walk():
        if isinstance(node, exp.Limit | exp.Offset):
            return True
        aggregate = isinstance(node, exp.AggFunc) and not isinstance(node, _NEUTRAL)
        window = isinstance(node, exp.Window) and not isinstance(node.this, _NEUTRAL)
        mean = isinstance(node, exp.Column) and node.name in means
        if aggregate or window or mean:
            return True
    return False
