"""The obvious way to check a statement: let DuckDB answer it on the same, public, data."""

import math
import re
from decimal import Decimal

import dpsql
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.engines.public import PublicReader
from dpsql.sql import compile_script
from tests.helpers.described import read_table
from tests.sql.people import FIXTURES, PUBLIC, connect

__all__ = ["FIXTURES", "PUBLIC", "compile_one", "connect", "differences"]

_ORDERED = re.compile(r"ORDER BY [^()]*$")
PRECISE = dpsql.Budget(rho=10**12)
"""So much that noise is around a millionth of a row."""


_TABLES = {}


def compile_one(con, sql, name="q"):
    def resolve(parts):
        if (con, parts) not in _TABLES:
            _TABLES[con, parts] = read_table(con, parts)
        return _TABLES[con, parts]

    reader = PublicReader(DuckDBSource(con), PUBLIC)
    return compile_script([(name, sql)], resolve, reader.read)


def differences(con, sql, session=None):
    """Compare the answer at a huge budget with DuckDB's own, cell by cell.

    DuckDB has no row for a group that is empty; there our counts and sums must be 0, what is added
    to or taken off them (`COUNT(*) - 3 AS n`) must be left, and all else that is computed from them
    may be anything. A sum without rows is NULL there and 0 here.
    """
    session = session or dpsql.Session(con, public=PUBLIC)
    release = session.release(sql, budget=PRECISE)
    described = release.columns("query").rows()
    names = [name for name, *_ in described]
    ours = [tuple(map(plain, row)) for row in release["query"].select(names).rows()]
    theirs = [tuple(map(plain, row)) for row in con.execute(sql).fetchall()]
    keys = [i for i, (_, role, *_) in enumerate(described) if role == "key"]
    found, waiting = [], {}
    for row in theirs:
        waiting.setdefault(tuple(row[i] for i in keys), []).append(row)
    if _ORDERED.search(sql) and len(ours) == len(theirs):
        keyed = [[tuple(row[i] for i in keys) for row in rows] for rows in (ours, theirs)]
        found += ["another order"] * (keyed[0] != keyed[1])
    left = []
    for row in ours:  # several may have the same keys: those of ROLLUP and of NULL, say
        others = waiting.get(tuple(row[i] for i in keys)) or []
        same = [o for o in others if all(map(close, row, o))]
        if same:
            others.remove(same[0])
        else:
            left.append(row)
    for row in left:
        others = waiting.get(tuple(row[i] for i in keys))
        other = others.pop(0) if others else None
        for (name, role, kind, _), value, i in zip(described, row, range(len(row)), strict=True):
            if role == "key":
                continue
            if other is not None and not close(value, other[i]):
                found.append(f"{name}: {value} in place of {other[i]} in {row}")
            rest = re.search(rf" ([+-]) (\d+) AS {re.escape(name)}\b", sql)
            empty = float("".join(rest.groups())) if rest else 0.0
            if other is None and kind == "exact" and "OVER" not in sql and not close(value, empty):
                found.append(f"{name}: {value} in place of an empty group in {row}")
    return found + [f"no row for {key}" for key, left in waiting.items() if left]


def plain(value):
    """Return a value as one that is compared; of a struct its values, as DuckDB returns a row."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def close(a, b):
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and (b is None or isinstance(b, float)):
        b = 0.0 if b is None else b
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-3) or (math.isnan(a) and math.isnan(b))
    return a == b or (a is None and b == 0.0)
