"""DuckDB's SQL for rows in order of a value, by groups. Trusted.

Guarantees:
    Those of `dpsql/engines/ranked.py`. Each row that counts is read once for each group that it is
    in, with its value; equal values of a group are counted, and running totals of these are numbers
    of rows up to a value. All are whole numbers of 128 bits where they are multiplied, and of 64
    elsewhere: tables have fewer than 2^58 rows, and `measurement/quantiles.py` lets no factor pass
    with which these don't fit. NaN is none. What is beyond the line, as what is
    infinite is, counts as its nearer end.

    Only rows between two values are put in order, of which it is *counted* that all others are
    outside of the window. Of n rows, `lower` are below the left one, so for any value v there, upto
    <= lower. If b·lower < a·n − reach, then so is b·upto, and v isn't in the window. In the same
    way, v above the right one has below >= upper, and isn't in it if b·upper > a·n + reach. An end
    for which that doesn't hold is none. Where the ends are is a proposal, and decides nothing but
    how many rows are put in order: they are the quantiles of 1/64, 2/64, … that are next to the
    window, and one further.
"""

from __future__ import annotations

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
_PARTS = 64
_QUANTILES = call("quantile_disc", "v", f"[{', '.join(str(k / _PARTS) for k in range(1, _PARTS))}]")
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
        check_bound(con, self.sql(RankWindow(self.values.probability, 0)), self.parameters)

    def run(self, con: duckdb.DuckDBPyConnection, window: RankWindow) -> RankedRows:
        """Run the statement."""
        found = con.sql(self.sql(window), params=list(self.parameters)).to_arrow_table(_BATCH)
        return read_ranks(found, ("g", "v", "below", "upto", "n"), self.values)

    def sql(self, window: RankWindow) -> str:
        """Write the statement, as rows of (g, v, below, upto, n) in order."""
        count, total = "system.main.count(*)", "system.main.sum(m)"
        running = f"{total} OVER (PARTITION BY g ORDER BY v ROWS UNBOUNDED PRECEDING)"
        at = _Window(window)
        return (
            f"WITH every AS MATERIALIZED ({self.each}), "
            f"sizes AS (SELECT g, {count} AS n, {_QUANTILES} AS q FROM every GROUP BY g), "
            f"near AS (SELECT g, n, {at.low} AS low, {at.high} AS high FROM sizes), "
            f"counted AS (SELECT g, n, low, high, {count} FILTER (WHERE v < low) AS lower, "
            f"{count} FILTER (WHERE v <= high) AS upper "
            "FROM every JOIN near USING (g) GROUP BY g, n, low, high), "
            f"cut AS (SELECT g, n, CASE WHEN NOT {at.is_right_of('lower')} THEN lower ELSE 0 END "
            f"AS lower, CASE WHEN NOT {at.is_right_of('lower')} THEN low END AS low, "
            f"CASE WHEN NOT {at.is_left_of('upper')} THEN high END AS high FROM counted), "
            f"ranked AS (SELECT g, v, n, lower, {count} AS m FROM every JOIN cut USING (g) "
            "WHERE (low IS NULL OR v >= low) AND (high IS NULL OR v <= high) "
            "GROUP BY g, v, n, lower), "
            f"placed AS (SELECT g, v, n, m, {call('+', running, 'lower')} AS upto FROM ranked), "
            f"told AS (SELECT g, v, {call('-', 'upto', 'm')}::BIGINT AS below, "
            "upto::BIGINT AS upto, n FROM placed) "
            "SELECT g, v, below, upto, n FROM told "
            f"WHERE {at.is_right_of('upto')} AND {at.is_left_of('below')} ORDER BY g, v"
        )


class _Window:
    """SQL for a window of ranks, in a group of n rows.

    Args:
        window: the window.
    """

    def __init__(self, window: RankWindow) -> None:
        a, b = window.probability.numerator, window.probability.denominator
        self._wanted, self._each = call("*", whole(a, "HUGEINT"), "n::HUGEINT"), whole(b, "HUGEINT")
        self._reach = whole(window.reach, "HUGEINT")

    def is_right_of(self, rows: str) -> str:
        """Write whether so many rows reach up to the window, or beyond: b·upto >= a·n − reach."""
        return f"({call('*', self._each, f'{rows}::HUGEINT')} >= {self._left})"

    def is_left_of(self, rows: str) -> str:
        """Write whether so many rows don't pass the window: b·below <= a·n + reach."""
        return f"({call('*', self._each, f'{rows}::HUGEINT')} <= {self._right})"

    @property
    def low(self) -> str:
        """A value that is left of the window, likely, if there is one."""
        rank = call("//", self._left, self._each)
        place = call("//", call("*", rank, f"{_PARTS}::HUGEINT"), "n")
        before = call("-", f"{place}::BIGINT", "1")
        return f"CASE WHEN {rank} > 0 THEN {call('list_extract', 'q', _above_zero(before))} END"

    @property
    def high(self) -> str:
        """A value that is right of it, likely, if there is one."""
        rank = call("//", self._right, self._each)
        place = call("//", call("*", rank, f"{_PARTS}::HUGEINT"), "n")
        after = call("+", f"{place}::BIGINT", "2")
        return f"CASE WHEN {rank} < n THEN {call('list_extract', 'q', after)} END"

    @property
    def _left(self) -> str:
        return call("-", self._wanted, self._reach)

    @property
    def _right(self) -> str:
        return call("+", self._wanted, self._reach)


def _above_zero(number: str) -> str:
    return f"CASE WHEN {number} > 0 THEN {number} END"


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
