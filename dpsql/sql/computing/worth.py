"""The worth of statistics that a statement shows in quotients only.

An average is c + S/N, for the sum S of what rows add around the middle c of its range and their
number N. Its error is that of S − m·N, over N, where m is how far the mean is from the middle. With
|m| at most 1, in units of what one row can add, and nothing else known of it, E m² = 1/3. So N
counts with a third of the weight of S in the sum of squared errors that a plan makes small: its
mean over m is least then, 7 percent below that of equal weights.

A share A/N is the average of 1 for rows that A counts and of 0 for others: the middle is 1/2, a row
adds ±1/2 around it, and S = A − N/2. To make the errors of A and of N small each for itself is 22
percent worse, and 37 where the share is one half.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlglot import exp

from dpsql.linalg.matrices import Dense
from dpsql.sql.binding.core import AnswerColumn, Core, Linear, Role, Statistic
from dpsql.sql.binding.expressions import Expr
from dpsql.workload import Family
from dpsql.workload.workload import Block, spread_out

THIRD = 1 / 3
"""The mean of m² for m uniform in [−1, 1]."""
_SCALED = (
    *(exp.Paren, exp.Cast, exp.Nullif, exp.Mul),
    *(exp.Literal, exp.Column, exp.Identifier, exp.DataType),
)


@dataclass(frozen=True, slots=True)
class Worth:
    """The worth of the statistics of a core."""

    of: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """Statistic → by what its weight is multiplied; 1 for others."""
    shares: tuple[tuple[int, int], ...] = ()
    """The numbers of two counts whose quotient is a share: A and N."""


def worths(query: exp.Query, cores: Sequence[Core]) -> dict[str, Worth]:
    """Return what the statistics of each core are worth, by its table of answers."""
    by_table = {core.table: core for core in cores}
    plain: set[tuple[str, int]] = set()
    averages: Counter[tuple[str, int]] = Counter()
    shares: dict[tuple[str, int, int], None] = {}
    for node in query.copy().find_all(exp.Column):  # whose parts know what they are in
        answer = AnswerColumn.of(node)
        if answer is None or answer.role is not Role.STATISTIC:
            continue
        table = _table_of(node, by_table)
        if table is None:  # it may be of any of them
            plain |= {(name, answer.number) for name in by_table}
            continue
        statistics = by_table[table].statistics
        above, below = _quotient(node, statistics)
        if above is None or below is None:
            plain.add((table, answer.number))
        elif _is_average(statistics[above]):
            averages[table, below] += answer.number == below
        else:
            shares[table, above, below] = None
    for core in cores:
        if core.floor is not None:
            plain.add((core.table, core.floor.statistic))
    return {
        table: _worth(table, len(core.statistics), plain, averages, list(shares))
        for table, core in by_table.items()
    }


def _worth(
    table: str,
    count: int,
    plain: set[tuple[str, int]],
    averages: Counter[tuple[str, int]],
    shares: Sequence[tuple[str, int, int]],
) -> Worth:
    quotients = tuple((above, below) for name, above, below in shares if name == table)
    divided = Counter(below for _, below in quotients)
    parts = {above for above, _ in quotients}
    of = {
        number: min(1.0, THIRD * (averages[table, number] + divided[number]))
        for number in range(count)
        if (table, number) not in plain
        and (averages[table, number] or divided[number] or number in parts)
    }
    return Worth(of, quotients)


def _table_of(node: exp.Column, by_table: Mapping[str, Core]) -> str | None:
    """Return the table of answers that a column is of; None if there are several."""
    select = node.find_ancestor(exp.Select)
    tables = [] if select is None else list(_sources(select))
    return tables[0] if len(tables) == 1 and tables[0] in by_table else None


def _sources(select: exp.Select) -> Iterator[str]:
    """Name what a SELECT reads from; what is no table has no name."""
    first = select.args.get("from_") or select.args.get("from")
    for part in (first, *(select.args.get("joins") or ())):
        if part is not None:
            yield part.this.name if isinstance(part.this, exp.Table) else ""


def _quotient(
    node: exp.Column, statistics: Sequence[Statistic]
) -> tuple[int, int] | tuple[None, None]:
    """Return the statistics of the average or the share in which a column stands, if it is one."""
    part: Expr = node
    while isinstance(part.parent, (exp.Paren, exp.Cast, exp.Nullif)) or (
        isinstance(part.parent, exp.Mul) and _is_scaled(part.parent)
    ):
        part = part.parent
    quotient = part.parent
    if not isinstance(quotient, exp.Div):
        return None, None
    above, below = (_statistic(side) for side in (quotient.this, quotient.expression))
    if above is None or below is None or above == below:
        return None, None
    top, bottom = statistics[above], statistics[below]
    if not (isinstance(top, Linear) and isinstance(bottom, Linear) and bottom.counts):
        return None, None
    if not bottom.tally.holds(top.tally):
        return None, None
    share = top.counts and not top.of_units
    return (above, below) if share or _is_average(top) else (None, None)


def _is_scaled(node: exp.Mul) -> bool:
    """Whether one factor is a number."""
    return any(isinstance(side.unnest(), exp.Literal) for side in (node.this, node.expression))


def _statistic(side: Expr) -> int | None:
    """Return the statistic that a side of a quotient is, up to a factor."""
    columns = list(side.find_all(exp.Column))
    if len(columns) != 1 or not all(isinstance(part, _SCALED) for part in side.walk()):
        return None
    answer = AnswerColumn.of(columns[0])
    return answer.number if answer is not None and answer.role is Role.STATISTIC else None


def _is_average(statistic: Statistic) -> bool:
    """Whether a sum is one around the middle of what is added up, as averages are made of."""
    if not isinstance(statistic, Linear):
        return False
    return statistic.center and statistic.times is None and not statistic.counts


# ── The queries A − N/2, of which a share is the average ─────────────────────────────────────────


MOST_ENTRIES = 2**20
"""Coefficients that are written out; of more, A and N are planned each for itself."""
Placed = tuple[Family, tuple[tuple[int, ...], ...]]
"""A family of counts, and along which axes of the groups the rows of each block run."""
_Key = tuple[tuple[str, ...], bytes]


def around_half(part: Placed, whole: Placed, sizes: Mapping[str, int]) -> Family | None:
    """Return the queries A − N/2; None if they don't go together, or are too many.

    Blocks that A and N have in common stay; the others become one, over the cells of them all.
    """
    (a, _), (n, _) = part, whole
    common = {*map(_key, a.blocks)} & {*map(_key, n.blocks)}
    parts, wholes = _apart(part, common), _apart(whole, common)
    used = {name for block in (*parts.blocks, *wholes.blocks) for name in block.attributes}
    names = tuple(name for name in sizes if name in used)
    shape = tuple(sizes[name] for name in names)
    rows = math.prod(block.queries.rows for block in parts.blocks)
    along = _along(part, common) == _along(whole, common)
    if not names or not along or rows * math.prod(shape) > MOST_ENTRIES:
        return None
    above, below = (spread_out(family, names, sizes) for family in (parts, wholes))
    if above.shape != below.shape:  # groups that only one of them counts
        return None
    kept = tuple(block for block in a.blocks if _key(block) in common)
    around = Block(names, shape, Dense(above - below / 2))
    return Family(f"{a.name}: share", (*kept, around), 1.0)


def _apart(placed: Placed, common: Set[_Key]) -> Family:
    """Return the blocks that a family has for itself."""
    return Family("", tuple(b for b in placed[0].blocks if _key(b) not in common), 1.0)


def _along(placed: Placed, common: Set[_Key]) -> list[tuple[int, ...]]:
    """Return along which axes rows of its own blocks run, where these have several."""
    family, of = placed
    each = zip(family.blocks, of, strict=True)
    return [axes for b, axes in each if b.queries.rows > 1 and _key(b) not in common]


def _key(block: Block) -> _Key:
    return block.attributes, block.queries.key
