"""Values that rows have, for a draft that the data owner asks for: `dpsql schema --values`.

What is found here is as private as the rows. It goes into no release, and nobody asks for it but
the owner's command, which says so in what it prints.
"""

from __future__ import annotations

import math
from datetime import date
from fractions import Fraction

import duckdb

from dpsql.engines.duckdb.columns import source_of
from dpsql.schema import Table
from dpsql.schema.domain import INTEGER_TYPES, TIMES, ZONED, Domain, NumberBounds
from dpsql.schema.drafts import singles_out
from dpsql.schema.names import quoted_name
from dpsql.schema.sequences import FLOATS

MOST = 100
"""Values that are listed; a column of more tells rows apart, or is added up."""
_MOST_MONTHS = 600
_ROUND = (*map(Fraction, ("1", "1.2", "1.5", "2", "2.5", "3", "4", "5", "6", "8", "10", "12")),)
"""Multiples of a power of ten that ends are rounded to: by a quarter at most."""
_LONG = 200
"""Characters of a text; longer ones are no labels."""


def values_found(con: duckdb.DuckDBPyConnection, table: Table) -> dict[str, Domain | NumberBounds]:
    """Return what rows tell of columns of which nothing is known: lists of values, and ends.

    NULL is a value of a column if there is one; a row with NULL that comes later is left out.
    Columns that tell rows or persons apart, by their name or by how many values they have, are
    left out, and so is what DuckDB can't look at.
    """
    proposals = {}
    for name, type_ in table.undeclared.items():
        if name in table.bounds or singles_out(name):
            continue
        try:
            told = _told(con, source_of(table), quoted_name(name), type_)
        except duckdb.Error:
            told = None
        if told is not None:
            proposals[name] = told
    return proposals


def _told(
    con: duckdb.DuckDBPyConnection, source: str, column: str, type_: str
) -> Domain | NumberBounds | None:
    rows = f"(SELECT {column} AS v FROM {source} WHERE {column} IS NOT NULL)"
    if type_ in FLOATS or type_.startswith("DECIMAL("):
        return _bounds(con, rows)
    missing = f"SELECT 1 FROM {source} WHERE {column} IS NULL LIMIT 1"
    nullable = bool(con.execute(missing).fetchall())
    if type_.startswith("VARCHAR"):
        texts = sorted(map(str, _listed(con, rows)))
        short = bool(texts) and max(map(len, texts)) <= _LONG
        return Domain.labels(texts, nullable=nullable) if short else None
    if type_ in INTEGER_TYPES:
        whole = sorted(int(str(v)) for v in _listed(con, rows))
        if whole and whole[-1] - whole[0] < 2 * len(whole):
            return Domain.integers(whole[0], whole[-1], nullable=nullable)
        return Domain("BIGINT", tuple(whole), nullable=nullable) if whole else _bounds(con, rows)
    return _days(con, rows, type_, nullable) if type_ == "DATE" or type_ in TIMES else None


def _listed(con: duckdb.DuckDBPyConnection, rows: str) -> list[object]:
    """Return all values of the rows; none if there are too many."""
    values = con.execute(f"SELECT DISTINCT v FROM {rows} LIMIT {MOST + 1}").fetchall()
    return [v for (v,) in values] if len(values) <= MOST else []


def _bounds(con: duckdb.DuckDBPyConnection, rows: str) -> NumberBounds | None:
    """Return the ends of numbers, rounded outwards to few digits."""
    finite = "system.main.isfinite(v::DOUBLE)"
    sql = f"SELECT min(v::DOUBLE), max(v::DOUBLE) FROM {rows} WHERE {finite}"
    ((low, high),) = con.execute(sql).fetchall()
    if low is None:
        return None
    least = Fraction(0) if low >= 0 else -_round_up(-low)
    most = Fraction(0) if high <= 0 else _round_up(high)
    return NumberBounds(least, most) if least < most else None


def _round_up(number: float) -> Fraction:
    power = Fraction(10) ** math.floor(math.log10(number))
    return next(power * times for times in _ROUND if power * times >= number)


def _days(con: duckdb.DuckDBPyConnection, rows: str, type_: str, nullable: bool) -> Domain | None:
    """Return whole years, by month, or by year if there are many."""
    finite = "system.main.isfinite(v)"
    sql = f"SELECT min(v)::DATE::VARCHAR, max(v)::DATE::VARCHAR FROM {rows} WHERE {finite}"
    ((low, high),) = con.execute(sql).fetchall()
    try:
        first, last = date.fromisoformat(str(low)), date.fromisoformat(str(high))
    except ValueError:  # there is none, or of a year that Python hasn't
        return None
    months = 12 * (last.year - first.year + 1)
    grain = "month" if months <= _MOST_MONTHS else "year"
    ends = f"{first.year:04}-01-01", f"{last.year:04}-12-31"
    zone = "UTC" if type_ == ZONED else None
    return Domain.dates(*ends, grain, zone=zone, nullable=nullable)  # type: ignore[arg-type]
