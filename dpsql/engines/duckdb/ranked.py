"""DuckDB's SQL for rows in order of a value, by groups. Trusted.

Guarantees:
    Those of `dpsql/engines/ranked.py`. Each row that counts is read once for each group that it is
    in, with its value; equal values of a group are counted, and running totals of these are numbers
    of rows up to a value. They are added up as doubles, which DuckDB does in half the time that it
    takes for integers: tables have fewer than 2^53 rows, so that whatever part of them is added up,
    and in whatever order, it is a whole number that a double has exactly. All else are whole
    numbers, of 128 bits where they are multiplied, and of 64 elsewhere; `measurement/quantiles.py`
    lets no factor pass with which these don't fit. NaN is none. What is beyond the line, as what
    is infinite is, becomes its nearer end before rows are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.engines.base import Measures
from dpsql.engines.duckdb.catalog import check_bound
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.columns import whole
from dpsql.engines.duckdb.units import UnitsInGroups
from dpsql.engines.ranked import RankedRows, RankWindow, check_ranked, read_ranks
from dpsql.rel.ranked import MOST_DIGITS, RankedValues, ValueLine
from dpsql.rows.typed import RowValue, call
from dpsql.rows.types import RowType
from dpsql.schema import Table
from dpsql.schema.sequences import decimal_text

if TYPE_CHECKING:
    import duckdb

_BATCH = 100_000
_NARROW = frozenset(
    RowType(name)
    for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
)
"""Types of integers that all fit 64 bits."""


@dataclass(frozen=True, slots=True)
class RankScan:
    """The statement that puts rows in order, but for the window that is read.

    Args:
        table: whose rows they are.
        values: what is put in order.
        each: the query for rows (g, v).
        parameters: its parameters.
    """

    table: Table
    values: RankedValues
    each: str
    parameters: tuple[Any, ...]

    @classmethod
    def of(cls, coding: Coding, values: RankedValues, measures: Measures) -> RankScan:
        """Write it.

        Args:
            coding: how rows get their cells.
            values: what is put in order.
            measures: what is computed row by row, of which one may be a condition.

        Raises:
            InternalError: a row may be in more groups than it is charged for.
        """
        check_ranked(values)
        ranked = _on_line(values.value.value)
        written = UnitsInGroups(coding, values, measures, values.value, ranked=ranked)
        each = written.each()
        return cls(coding.table, values, each, tuple(written.parameters.values))

    @property
    def contributions(self) -> int:
        """The most rows of one unit that count."""
        return self.table.contributions

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement and its parameters."""
        check_bound(con, self.sql([RankWindow(self.values.probability, 0)]), self.parameters)

    def run(self, con: duckdb.DuckDBPyConnection, windows: Sequence[RankWindow]) -> RankedRows:
        """Run the statement."""
        ranks = con.sql(self.sql(windows), params=list(self.parameters)).to_arrow_table(_BATCH)
        return read_ranks(ranks, ("g", "v", "below", "upto", "n"), self.values)

    def sql(self, windows: Sequence[RankWindow]) -> str:
        """Write the statement, as rows of (g, v, below, upto, n) in order."""
        count, total = "system.main.count(*)", "system.main.sum(m::DOUBLE)"
        running = f"{total} OVER (PARTITION BY g ORDER BY v ROWS UNBOUNDED PRECEDING)"
        near = " OR ".join(map(_is_near, windows))
        return (
            f"WITH lying AS (SELECT g, {_within(self.values.line)} AS v FROM ({self.each})), "
            f"ranked AS (SELECT g, v, {count} AS m FROM lying GROUP BY g, v), "
            f"placed AS (SELECT g, v, m, ({running})::BIGINT AS upto, "
            f"({total} OVER (PARTITION BY g))::BIGINT AS n FROM ranked), "
            f"told AS (SELECT g, v, {call('-', 'upto', 'm')} AS below, upto, n FROM placed) "
            f"SELECT g, v, below, upto, n FROM told WHERE {near} ORDER BY g, v"
        )


def _is_near(window: RankWindow) -> str:
    """Write whether a value is within a window."""
    p, reach = window.probability, whole(window.reach, "HUGEINT")
    a, b = whole(p.numerator, "HUGEINT"), whole(p.denominator, "HUGEINT")
    wanted = call("*", a, "n::HUGEINT")
    left = f"{call('*', b, 'upto::HUGEINT')} >= {call('-', wanted, reach)}"
    right = f"{call('*', b, 'below::HUGEINT')} <= {call('+', wanted, reach)}"
    return f"({left} AND {right})"


def _within(line: ValueLine) -> str:
    """Write v as the line has it: rounded, or the nearer end if it is beyond."""
    if line.type.is_float:
        low, high = (f"'{end!r}'::DOUBLE" for end in line.ends)
    else:
        low, high = (whole(end, "BIGINT") for end in (line.low, line.high))
    inside = "v::FLOAT::DOUBLE" if line.single else "v"  # its ends are in single precision, too
    return f"CASE WHEN v < {low} THEN {low} WHEN v > {high} THEN {high} ELSE {inside} END"


def _on_line(value: RowValue) -> str:
    """Write the place of a value on its line; of floats the value itself. NULL where it has none.

    The year of a date that can be drawn has four digits; others count as the first or the last.
    """
    sql, type_ = f"({value.sql})", value.type
    if type_.is_float:
        return f"CASE WHEN NOT {call('isnan', sql)} THEN {sql}::DOUBLE END"
    line = ValueLine.of(type_)
    if type_.is_exact and line is not None and type_ not in _NARROW:
        low, high = (decimal_text(Fraction(end, 10**type_.scale)) for end in (line.low, line.high))
        ends = f"WHEN {sql} >= '{high}'::{type_.sql} THEN {whole(line.high, 'BIGINT')} "
        ends += f"WHEN {sql} <= '{low}'::{type_.sql} THEN {whole(line.low, 'BIGINT')} "
        return f"CASE {ends} ELSE {_last_digits(sql, type_)} END"
    if line is not None and type_.name == "DATE":
        return _finite(sql, call("-", sql, "'1970-01-01'::DATE"), line)
    if line is not None and type_.name == "TIMESTAMP":
        return _finite(sql, call("epoch_us", sql), line)
    return f"{sql}::BIGINT"


def _last_digits(sql: str, type_: RowType) -> str:
    """Write how many last digits a number has that fits 18 digits, or is whole and fits 64 bits.

    Neither factor has digits after the point that could be lost, and their product fits 128 bits.
    """
    if type_.name != "DECIMAL":
        return f"TRY_CAST({sql} AS BIGINT)"
    narrow = f"TRY_CAST({sql} AS DECIMAL({MOST_DIGITS},{type_.scale}))"
    return f"{call('*', narrow, f'{10**type_.scale}::DECIMAL(19,0)')}::BIGINT"


def _finite(sql: str, place: str, line: ValueLine) -> str:
    """Write the place of a day or a time; infinite ones have those of the ends of the line."""
    low, high = (whole(end, "BIGINT") for end in (line.low, line.high))
    ends = f"WHEN {sql} > '1970-01-01'::{line.type.sql} THEN {high} ELSE {low}"
    finite = f"WHEN {call('isfinite', sql)} THEN TRY({place})::BIGINT"
    return f"CASE WHEN {sql} IS NOT NULL THEN CASE {finite} {ends} END END"
