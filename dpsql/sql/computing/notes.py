"""What a reader must know of answers that are computed over groups, or chosen by noise."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from dpsql.sql.binding.core import Windowed
from dpsql.sql.binding.expressions import Expr
from dpsql.sql.computing.postprocess import Postprocessing
from dpsql.sql.lowering.lower import LoweredCore

EMPTY = (
    "groups without rows take part, of which SQL has none: declare which groups exist, or leave "
    "them out by HAVING COUNT(*) > …"
)
CHOSEN = (
    "chosen by noisy values: what lies at the threshold comes out 0.8 standard errors too large "
    "on average, what lies one or two below it 1.5 or 2.4"
)
_NEUTRAL = (exp.Sum,)
"""Functions of groups to which an empty group adds nothing but noise."""


def notes(
    query: exp.Query, cores: Sequence[LoweredCore], post: Postprocessing | None
) -> tuple[str, ...]:
    """Return the notes for a statement.

    Args:
        query: what it computes on the answers of its cores.
        cores: these.
        post: the same, followed through by its noise; None if nothing is computed.
    """
    found = []
    means = any(
        isinstance(s.statistic, Windowed) and s.statistic.mean
        for core in cores
        for group in core.sets
        for s in group.statistics
    )
    if any(_may_be_empty(query, core) for core in cores) and (means or _over_groups(query)):
        found.append(EMPTY)
    if post is not None and any(output.chosen for output in post.outputs):
        found.append(CHOSEN)
    return tuple(found)


def _may_be_empty(query: exp.Query, core: LoweredCore) -> bool:
    """Whether a core has groups, of which neither the owner nor HAVING says that they have rows."""
    if not core.core.keys:
        return False
    own = [s for s in query.find_all(exp.Select) if _table_of(s) == core.core.table]
    wheres = [select.args.get("where") for select in own]
    return any(where is None or not _limited(where) for where in wheres)


def _table_of(select: exp.Select) -> str:
    clause = select.args.get("from_")
    return clause.this.name if clause is not None else ""


def _limited(where: Expr) -> bool:
    noisy = any(part.name.startswith("__s") for part in where.find_all(exp.Column))
    return noisy or any(t.name.startswith("__existing") for t in where.find_all(exp.Table))


def _over_groups(query: exp.Query) -> bool:
    """Whether something is computed over groups for which it matters which groups there are."""
    for node in query.walk():
        if isinstance(node, exp.Limit | exp.Offset):
            return True
        aggregate = isinstance(node, exp.AggFunc) and not isinstance(node, _NEUTRAL)
        window = isinstance(node, exp.Window) and not isinstance(node.this, _NEUTRAL)
        if aggregate or window:
            return True
    return False
