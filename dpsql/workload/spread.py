"""Rows of a unit that are spread out: of those that agree in some attributes only a share counts.

Trusted core. Nothing here depends on how good a plan is.

Let at most k rows of a unit count, and at most m = sk of those that are in the same cell of the
attributes G, with a share s <= 1. Where w such cells are counted together, as one *class*, at most
k·s_g of the rows are in a class g, with its share s_g = min(1, w·s) (`Apart.shares`): no more than
m in each of its cells, and no more than k in all. Let B be what is measured in a set A of
attributes with G inside of A, in which each row adds at most M, in magnitude, to its cell.

Guarantees:
    1. *By the longest column.* The unit changes the exact answers in A by a vector of squared norm
       at most k²Δ², Δ the largest norm of a column of B, times M: see `certify`.
    2. *By eigenvalues.* It is at most k²·s'Λ, with s' the largest s_g, and Λ >= M²·λ for the
       largest eigenvalue λ of BᵀB.
       *Proof.* Let n_c be how many of the unit's rows lie in the cell c of A, and h_c what they add
       to it: |h_c| <= M·n_c. Rows in one cell agree in A, and so are in one class: n_c <= s'k. And
       Σ n_c <= k. So ‖Bh‖² <= λ Σ h_c² <= λM² Σ n_c² <= λM²·(s'k)·Σ n_c <= Λ·s'·k². ∎
    3. *By pairs of classes.* It is at most k²·top(top(N)): N[g, g'] >= M²·|(BᵀB)[c, c']| for all
       cells c of A in the class g and c' in g', and for numbers a_g >= 0

           top(a) = max Σ z_g a_g  over  0 <= z_g <= s_g, Σ z_g <= 1,

       taken of each row of N, and then of what came out.
       *Proof.* Let kz_g be how many of the rows are in the class g, so that 0 <= z_g <= s_g and
       Σ z_g <= 1, and Σ |h_c| over its cells is at most M·kz_g. Then ‖Bh‖² is
       Σ h_c h_c' (BᵀB)[c, c'] <= k² Σ_g z_g Σ_g' z_g' N[g, g'] <= k² Σ_g z_g top(N[g, ·])
       <= k² top(top(N)), because z is one of those over which `top` is the largest. ∎ The largest
       sum is that of the largest numbers, each taken as often as it may be, until all rows are
       used up (an exchange of two gains nothing).
    4. The squared norm for n rows in place of k, 0 <= n <= k, is at most n/k times bound 1, by
       (n/k)² <= n/k, and at most n/k times bound 2, as it is λM²·(s'k)·n at most. That is *not* so
       of bound 3: a unit that has a row in one class alone may change answers as much as one with
       a row in each.

    5. *Sums of magnitudes.* The exact answers in A change by a vector whose magnitudes sum to at
       most k·top(S), with the `top` of 3 and S[g] >= M·Σ_i |B[i, c]| for all cells c of A in the
       class g; and to at most k·max S, whatever the limit is.
       *Proof.* With z of 3, Σ |h_c| over the cells of the class g is at most M·kz_g. So ‖Bh‖₁ is
       at most Σ_c |h_c|·Σ_i |B[i, c]| <= Σ_g kz_g S[g] <= k·top(S). ∎ Of n rows it
       is at most n/k of k·max S, but it may be all of k·top(S), as of bound 3.

    Rows without a cell in A add nothing to it. Where a unit is one record with rows in several
    tables (`workload.workload`), k is part of M: its rows in the one table that A is over add at
    most kM' = M in all, of which at most s_gM in a class g, and the same holds with k = 1.

    That rows are so far apart is for those to see to who count (`engines.base.Counted`): in cells
    as the limit means them, and into which classes they are put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InternalError
from dpsql.schema import Table

_BITS = 62
"""Sums over the classes fit a signed 64-bit integer."""
MOST_SHARES = 2**20
"""Denominators of shares up to which bound 3 is computed."""


@dataclass(frozen=True, slots=True)
class SpreadRows:
    """A limit for the rows of a unit that count: at most a share agree in some attributes."""

    attributes: frozenset[str]
    share: Fraction
    """The share of the most rows of a unit that count which may agree: more than 0, and at most
    1."""
    classes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Attributes of which some cells are counted together, sorted: how many are in each class."""

    def __post_init__(self) -> None:
        if type(self.share) is not Fraction or not 0 < self.share <= 1 or not self.attributes:
            raise InternalError("rows that agree in some attributes are a share of all that count")
        names = [name for name, _ in self.classes]
        if names != sorted(set(names)) or not self.attributes.issuperset(names):
            raise InternalError("classes are of the attributes of a limit, in order")
        if any(type(cells) is not int or cells < 1 for _, of in self.classes for cells in of):
            raise InternalError("a class has a whole number of cells, from one")

    def renamed(self, name: Callable[[str], str]) -> SpreadRows:
        """Return the same of attributes with other names."""
        classes = sorted((name(old), of) for old, of in self.classes)
        return SpreadRows(frozenset(map(name, self.attributes)), self.share, tuple(classes))

    def implies(self, other: SpreadRows) -> bool:
        """Whether rows of which this is true are as spread out as another one says.

        Those that agree in more attributes agree in fewer of them, too. Classes of the attributes
        that both have must be the same: cells of others are as many or more in the other one.
        """
        theirs = dict(other.classes)
        same = all(dict(self.classes).get(n) == theirs.get(n) for n in self.attributes)
        return self.attributes <= other.attributes and self.share <= other.share and same

    def within(self, space: Sequence[str]) -> Apart | None:
        """Say the same of the axes of a set of attributes; None if it has not all of them."""
        if not self.attributes.issubset(space):
            return None
        classes = dict(self.classes)
        axes = tuple(axis for axis, name in enumerate(space) if name in self.attributes)
        return Apart(axes, self.share, tuple(classes.get(space[axis]) for axis in axes))


@dataclass(frozen=True, slots=True)
class Apart:
    """Rows of a unit of which at most a share are in one cell of some axes."""

    axes: tuple[int, ...]
    """In ascending order."""
    share: Fraction
    classes: tuple[tuple[int, ...] | None, ...]
    """For each axis how many cells are in each class; None where none are counted together."""

    @property
    def largest(self) -> Fraction:
        """s': the largest share of rows that may be in one class."""
        cells = 1
        for of in self.classes:
            cells *= 1 if of is None else max(of, default=1)
        return min(Fraction(1), self.share * cells)

    def shares(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Return s_g for each joint class, of so many classes along each axis: for planning."""
        return self._rows(shape) / float(self.share.denominator)

    def bound(self, products: NDArray[Any]) -> Fraction | None:
        """Return top(top(N)), exactly or rounded up; None if there are too many rows for that.

        Args:
            products: N: whole numbers that are not negative, of shape (classes of each axis, …,
                and again).
        """
        half = len(self.axes)
        count = int(np.prod(products.shape[:half], dtype=np.int64))
        if self.share.denominator > MOST_SHARES or not count:
            return None
        rows = self._rows(products.shape[:half])
        square = products.reshape(count, count)
        # N <= 2^shift·ceil(N/2^shift), whose sums fit an int64.
        bits = int(square.max()).bit_length() + self.share.denominator.bit_length()
        shift = max(0, bits - _BITS)
        if shift:
            square = -(-square >> shift)
        each = [int(sum_) for sum_ in _top(square.astype(np.int64), rows, self.share.denominator)]
        (top,) = _top(np.array([each], dtype=object), rows, self.share.denominator)
        return Fraction(int(top) << shift, self.share.denominator**2)

    def bound_of_sums(self, sums: NDArray[Any]) -> Fraction | None:
        """Return top(S), exactly; None if there are too many rows for that.

        Args:
            sums: S: Python's integers that are not negative, of shape (classes of each axis, …).
        """
        if self.share.denominator > MOST_SHARES or not sums.size:
            return None
        (top,) = _top(sums.reshape(1, -1), self._rows(sums.shape), self.share.denominator)
        return Fraction(int(top), self.share.denominator)

    def _rows(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return how many rows may be in each joint class, of the denominator of the share."""
        most = self.share.denominator
        shares = np.array([self.share.numerator], dtype=np.int64)
        for size, of in zip(shape, self.classes, strict=True):
            if of is not None and len(of) != size:
                raise InternalError("a limit on rows is of other classes than are counted")
            cells = np.array([1] * size if of is None else [min(n, most) for n in of])
            shares = np.minimum(np.multiply.outer(shares, cells), most).ravel()
        return shares


def _top(numbers: NDArray[Any], rows: NDArray[np.int64], most: int) -> NDArray[Any]:
    """Return for each row of numbers the largest sum of at most `most` of them.

    Args:
        numbers: not negative, of shape (…, classes).
        rows: how often each may be taken.
        most: how many may be taken in all.
    """
    order = np.argsort(numbers, axis=1)[:, ::-1]
    until = np.minimum(np.cumsum(rows[order], axis=1), most)
    taken = np.diff(until, axis=1, prepend=0)
    return np.asarray((taken * np.take_along_axis(numbers, order, axis=1)).sum(axis=1))


def least_share(spreads: Iterable[SpreadRows]) -> Fraction:
    """Return the least share of a unit's rows that may agree; 1 of all, if nothing is said."""
    return min((spread.share for spread in spreads), default=Fraction(1))


def by_limits(
    spaces: Iterable[tuple[str, ...]], spreads: Sequence[SpreadRows]
) -> dict[tuple[Apart, ...], list[tuple[str, ...]]]:
    """Sort sets of attributes by what is known of how far apart rows are in them."""
    if not spreads:  # there may be very many sets
        return {(): list(spaces)}
    attributes: dict[tuple[Apart, ...], list[tuple[str, ...]]] = {}
    for space in spaces:
        said = (spread.within(space) for spread in spreads)
        attributes.setdefault(tuple(column for column in said if column is not None), []).append(
            space
        )
    return attributes


def spreads_of(table: Table, merged: Mapping[str, NDArray[np.int64]]) -> tuple[SpreadRows, ...]:
    """Say how far apart the rows of a unit are that are kept.

    Args:
        table: whose rows they are.
        merged: columns of which some cells are counted together: the class of each cell.
    """
    limits = () if table.unit is None or not table.is_bounded else table.unit.limits
    return tuple(
        SpreadRows(
            frozenset(limit.columns),
            Fraction(limit.rows, table.contributions),
            tuple(
                (name, tuple(np.bincount(merged[name]).tolist()))
                for name in sorted(limit.columns)
                if name in merged
            ),
        )
        for limit in limits
        if limit.rows <= table.contributions
    )
