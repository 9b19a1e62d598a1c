"""Spark's SQL for what rows add to sums. Trusted.

Guarantees:
    What is added up is w of `rows/measure.py`: an integer, in last digits, between low·d + `offset`
    and high·d + `offset`, or NULL; and just the rows are counted that add something. Nothing fails,
    and sums hold all that is added up of n < 2^50 rows.

    *Proof.* What a row has is a number x of an exact type T, or a double; it is total
    (`sql/expressions.py`).

    - *Where values are exact,* `least` and `greatest` bring x between two constants of T, which
      stand for low and high; or x lies between them by its form (`rows/operands.py`), and they
      change nothing. So its last digits are between low·d + `offset` and high·d + `offset`. These
      have as many digits as the larger of both, to which x is cast, and times 10^s they are whole
      numbers in a DECIMAL that has room for them: it is checked here that 38 digits are enough.
    - *Where values are doubles,* h takes the place of what is larger, NaN is NULL, and the steps
      y·f − g are between 0 and those of h before `rint` rounds them, where they are not negative;
      elsewhere there is no w. As in DuckDB, steps of h are high − low with nothing rounded.

    So |w| < 2^76, and |Σ w| < 2^126 < 10^38 is held by the DECIMAL(38,0) in which Spark adds up a
    DECIMAL(28,0). What is made of sums is made of Python's integers, which have no end. ∎

A double in which what T can't compute is tried again isn't written: then the measure is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.engines.cover import MOST_SUM
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.engines.spark.sql.text import between, call, last_digits, let, real
from dpsql.engines.spark.sql.types import digits_of, refused
from dpsql.rows.measure import RowMeasure
from dpsql.rows.typed import RowValue, value_of
from dpsql.rows.types import DOUBLE

_MOST_DIGITS = 38
_ADDED, _DOUBLE = "DECIMAL(28,0)", value_of(DOUBLE)


@dataclass(frozen=True, slots=True)
class SparkSum:
    """A measure as Spark adds it up.

    Args:
        of: the measure.
        value: SQL of what a row has: what `added` and `present` are made of.
    """

    of: RowMeasure
    value: str

    @classmethod
    def made(cls, measure: RowMeasure) -> SparkSum:
        """Write a measure.

        Raises:
            UnsupportedSqlError: Spark can't compute it as DuckDB does.
        """
        if measure.again is not None and _may_overflow(measure.value):
            raise refused(
                "what could be too large for its type",
                "declare bounds of the columns, or cast them to DECIMALs with fewer digits.",
            )
        made = cls(measure, spark_sql(measure.value))
        made.added("x")
        return made

    def present(self, x: str) -> str:
        """Write what is not NULL in rows that add something, given the value."""
        if self.of.exact:
            return x
        return spark_sql(self.of.present(_DOUBLE), {"value": lambda *_: x})

    def added(self, x: str) -> str:
        """Write w, given the value."""
        return self._of_exact(x) if self.of.exact else self._of_double(x)

    def _of_exact(self, x: str) -> str:
        scale = self.of.type.scale
        bounded = between("v", *map(spark_sql, self.of.ends))
        digits = digits_of(self.of.digits, scale)
        if scale and digits + scale + 2 > _MOST_DIGITS:
            raise refused(
                f"sums of numbers with {scale} digits after the point",
                "cast them to DECIMALs with fewer.",
            )
        added = f"CAST({last_digits(bounded, digits, scale)} AS {_ADDED})"
        return let("v", x, f"CASE WHEN v IS NOT NULL THEN {added} END")

    def _of_double(self, x: str) -> str:
        of = self.of
        steps = spark_sql(of.in_steps(_DOUBLE), {"value": lambda *_: "v"})
        zero, most = real(0), real(of.high - of.low)
        nearest = call("rint", between("v", zero, most))
        made = f"CASE WHEN v >= {zero} THEN CAST(CAST({nearest} AS BIGINT) AS {_ADDED}) END"
        return let("v", let("v", self.present(x), steps), made)

    def total(self, summed: int, count: int) -> int:
        """Return V of some rows, given Σ w and how many rows are present."""
        s = summed - count * self.of.offset
        d = self.of.parts
        return max(-MOST_SUM, min(MOST_SUM, (s + d // 2) // d))


def _may_overflow(value: RowValue) -> bool:
    """Whether a number may be NULL by its type, where its double isn't: see `write_double`."""
    if value.operation == "case":
        results = (*value.parts[1::2], *value.parts[-1:])
        return any(map(_may_overflow, results))
    if value.operation in {"try", "tried"}:
        return True
    sums = value.operation == "call" and value.text in {"+", "-", "*"}
    return (sums or value.operation in {"cast", "try_cast"}) and any(
        map(_may_overflow, value.parts)
    )
