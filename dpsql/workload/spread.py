"""Rows of a unit that are spread out: of those that agree in some attributes only a share counts.

Trusted core. Nothing here depends on how good a plan is.

Guarantees:
    Let at most k rows of a unit count, and at most sk of those that agree in the attributes G, with
    a share s <= 1. Let B be what is measured in a set A of attributes with G inside of A, in which
    each row adds at most M to its cell. Then the unit changes the exact answers in A by a vector of
    squared norm at most min(k²Δ², s·k²Λ), where Δ is the largest norm of a column of B, times M,
    and Λ >= M²·λ for the largest eigenvalue λ of BᵀB.

    *Proof.* Let n_c be how many of the unit's rows lie in the cell c of A, and h_c what they add to
    it: |h_c| <= M·n_c. Rows in one cell agree in A, and so in G: n_c <= sk. And Σ n_c <= k. So
    ‖Bh‖² <= λ Σ h_c² <= λM² Σ n_c² <= λM²·(sk)·Σ n_c <= Λ·s·k². That it is at most k²Δ², the
    triangle inequality says (`certify`). ∎ Rows without a cell in A add nothing to it.

    Where a unit is one record with rows in several tables (`workload.several`), k is part of M: its
    rows in the one table that A is over add at most kM' = M in all, and the same holds with k = 1.

    A cell of an attribute is then a cell as the bound on rows means it: what counts rows merges
    none of them, or doesn't say that it kept to the bound (`engines.base.Counted`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import InternalError
from dpsql.schema import Table


@dataclass(frozen=True, slots=True)
class SpreadRows:
    """Of the rows of a unit that count, at most a share agree in some attributes."""

    attributes: frozenset[str]
    share: Fraction
    """Of the most rows of a unit that count, how many may agree: more than 0, and at most 1."""

    def __post_init__(self) -> None:
        if type(self.share) is not Fraction or not 0 < self.share <= 1 or not self.attributes:
            raise InternalError("rows that agree in some attributes are a share of all that count")

    def renamed(self, name: Callable[[str], str]) -> SpreadRows:
        """Return the same of attributes with other names."""
        return SpreadRows(frozenset(map(name, self.attributes)), self.share)

    def implies(self, other: SpreadRows) -> bool:
        """Whether rows of which this is true are as spread out as another one says.

        Those that agree in more attributes agree in fewer of them, too.
        """
        return self.attributes <= other.attributes and self.share <= other.share


def least_share(spreads: Iterable[SpreadRows]) -> Fraction:
    """Return the least share of a unit's rows that may agree; 1 of all, if nothing is said."""
    return min((spread.share for spread in spreads), default=Fraction(1))


def by_share(
    spaces: Iterable[tuple[str, ...]], spreads: Sequence[SpreadRows]
) -> dict[Fraction, list[tuple[str, ...]]]:
    """Sort sets of attributes by the least share of rows that may lie in one of their cells."""
    if not spreads:  # there may be very many sets
        return {least_share(spreads): list(spaces)}
    found: dict[Fraction, list[tuple[str, ...]]] = {}
    for space in spaces:
        names = frozenset(space)
        share = least_share(spread for spread in spreads if spread.attributes <= names)
        found.setdefault(share, []).append(space)
    return found


def spreads_of(table: Table, merged: Collection[str]) -> tuple[SpreadRows, ...]:
    """Say how far apart the rows of a unit are that are kept.

    Args:
        table: whose rows they are.
        merged: columns of which some cells are counted together: rows that agree in these cells may
            lie in several of those that a limit is for, so it says nothing of them.
    """
    limits = () if table.unit is None or not table.is_bounded else table.unit.limits
    return tuple(
        SpreadRows(frozenset(limit.columns), Fraction(limit.rows, table.contributions))
        for limit in limits
        if limit.rows <= table.contributions and not any(name in merged for name in limit.columns)
    )
