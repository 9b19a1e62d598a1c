"""DuckDB's SQL for what rows add to sums. Trusted.

Guarantees:
    What is added up is w of `rows/measure.py`: an integer, in last digits, between low·d + `offset`
    and high·d + `offset`, or NULL; and just the rows are counted that add something. Nothing fails,
    and sums hold all that is added up of n < 2^50 rows.

    *Proof.* `added` writes w, a number of an exact type, in last digits, or NULL; and `present`
    writes what isn't NULL in those rows that add something.

    - *Where values are of a type T:* w is what is present, and of T. It is a CASE. Each of its
      results is NULL; or a constant that stands for low or high; or a value of T, in a branch that
      is taken only where it is compared with both in T, and lies between them; or x itself in the
      branch ELSE, where neither `x < lo` nor `x > hi` is true: T is in a total order, so x lies
      between them or is NULL.
    - *Where the expression itself lies between both* whatever a row holds, as its `ends` say
      (`rows/operands.py`), w is the expression.
    - *Where values are doubles:* what is present is a CASE, whose results are NULL; a double h;
      or y in the branch ELSE, where `y > h` isn't true. NaN is above all doubles, and so isn't
      there. Then w = TRY_CAST(y·f − g AS UINTEGER), and `offset` is −low. So w is not negative.
      And it is at most what it is for h, as f > 0, and rounding to the nearest double never changes
      an order. That is high − low, with nothing rounded on the way: f is a power of two or 1, and
      h·f and g are whole numbers below 2^52, so it is the same in one operation and in two. What is
      too small has no w, and so adds low.

    `total` takes c·offset off sums, where a sum of no w is 0, in HUGEINTs. These hold all that is
    computed of n < 2^50 rows: |w| < 2^76, so |Σ w| and |c·offset| are below 2^126, which 38 digits
    hold too, and |S| < 2^106, as |v| ≤ d·2^31 < 2^56. What is compared and cast is total
    (`rows/write.py`), so nothing fails. ⌊S/d + 1/2⌋ is written as ⌊(S + ⌊d/2⌋)/d⌋, the same for
    whole S. (`//` cuts a quotient off, so d·2^96 is put to what is divided first, which makes it
    positive.) ∎
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.rows.measure import RowMeasure
from dpsql.rows.typed import RowValue, call, constant_of, duckdb_sql, real, text_of, value_of, whole
from dpsql.rows.types import BIGINT, DOUBLE, HUGEINT, RowType

_INFINITE = real(math.inf)
_INTEGER, _DOUBLE = RowType("INTEGER"), value_of(DOUBLE)
_ABOVE = 2**96
"""Steps that are put to a sum so that its quotient is rounded down, and taken off again."""


@dataclass(frozen=True, slots=True)
class RowSum:
    """The SQL of what rows add.

    Args:
        of: the measure.
        value: what is computed of a row.
        again: the same as a double, if that is tried where `value` is NULL.
        counted: the expression that is there in just the rows that add 1 to a count.
    """

    of: RowMeasure
    value: str
    again: str = ""
    counted: str = ""

    @classmethod
    def made(cls, measure: RowMeasure) -> RowSum:
        """Write a measure. What is stored is compared before it is added up, whatever it is."""
        return cls(measure, measure.value.bare, "" if measure.again is None else measure.again.sql)

    @property
    def read_again(self) -> frozenset[str]:
        """The columns of a row that stand beside what is `computed`."""
        return self.of.columns if self.again else frozenset()

    def computed(self, name: str) -> str:
        """Write what a subquery computes of each row, in a column of this name."""
        return f"{self.value} AS {name}"

    def added(self, name: str) -> str:
        """Write what is added up, given what is `computed`; NULL if that is nothing.

        The columns of the row stand beside it, if there is something to compute `again`. What is
        asked first outside isn't asked first inside: DuckDB would take it out, and compute it
        apart, which takes longer.
        """
        of = self.of
        if of.inside:
            return name
        if not of.exact:
            steps = _written(of.in_steps(_DOUBLE), self.present(name))
            return f"CAST(TRY_CAST({steps} AS {of.type.sql}) AS {BIGINT.sql})"
        low, high = (end.sql for end in of.ends)
        outside, above = f"{name} < {low} OR {name} > {high}", f"WHEN {name} > {high} THEN {high}"
        if not self.again:
            return f"CASE WHEN {outside} THEN CASE {above} ELSE {low} END ELSE {name} END"
        rounded = f"TRY_CAST({self.again} AS {of.type.sql})"
        least, most = (real(float(Fraction(end, 10**of.type.scale))) for end in of.digits)
        return (
            f"CASE WHEN {outside} OR {name} IS NULL THEN CASE {above} "
            f"WHEN {name} < {low} THEN {low} WHEN {rounded} BETWEEN {low} AND {high} "
            f"THEN {rounded} WHEN {self.again} BETWEEN {most} AND {_INFINITE} THEN {high} "
            f"WHEN {self.again} < {least} THEN {low} END ELSE {name} END"
        )

    def present(self, name: str) -> str:
        """Write what is not NULL in rows that add something, given what is `computed`."""
        if self.of.exact:
            return self.added(name)
        return _written(self.of.present(_DOUBLE), name)

    def total(self, summed: str, count: str) -> str:
        """Write V of some rows, as a HUGEINT.

        Args:
            summed: the sum of what is `added`; NULL of no row.
            count: in how many rows something is `present`; named only if there is an `offset`.
        """
        of = self.of
        if of.type.name == "DECIMAL":
            # A DECIMAL's text has all its digits, so without the point it is the integer meant.
            summed = call("replace", f"CAST({summed} AS VARCHAR)", text_of("."), text_of(""))
        # Rows may be present of which none has a w: their sum is NULL, and stands for 0.
        total = f"COALESCE(CAST({summed} AS HUGEINT), {whole(0, HUGEINT)})"
        if of.offset:
            more = call("*", f"CAST({count} AS HUGEINT)", whole(of.offset, HUGEINT))
            total = call("-", total, more)
        if of.parts > 1:
            above = whole(of.parts * _ABOVE + of.parts // 2, HUGEINT)
            steps = call("//", call("+", total, above), whole(of.parts, HUGEINT))
            total = call("-", steps, whole(_ABOVE, HUGEINT))
        return total


def _written(tree: RowValue, value: str) -> str:
    return duckdb_sql(tree, {"value": lambda *_: value})


def zero_or_one(condition: str, columns: frozenset[str], counted: str = "") -> RowSum:
    """Return 1 of the rows in which a condition is true, and nothing of the others.

    What it gives is a constant or NULL, so it is between its bounds by its form.

    Args:
        condition: its SQL, a BOOLEAN of what `rows/write.py` made.
        columns: what it reads of a row.
        counted: the expression that is there in just these rows, if there is one.
    """
    constant = constant_of("1", _INTEGER)
    of = RowMeasure(constant, Fraction(1), 0, 0, 1, columns, exact=True, inside=True)
    return RowSum(of, f"CASE WHEN {condition} THEN {constant.sql} END", counted=counted)
