"""The obvious way to check a statement: let DuckDB answer it on the same, public, data."""

import math
from decimal import Decimal

import dpsql
from dpsql.schema.catalog import read_table
from dpsql.sql import compile_script
from tests.sql.people import FIXTURES, PUBLIC, connect

__all__ = ["FIXTURES", "PUBLIC", "compile_one", "connect", "differences"]

PRECISE = dpsql.Budget(rho=10**12)
"""So much that noise is around a millionth of a row."""


def compile_one(con, sql, name="q"):
    reader = dpsql.session.PublicReader(con, PUBLIC)
    return compile_script([(name, sql)], lambda parts: read_table(con, parts), reader.read)


def differences(con, sql):
    """Compare the answer at a huge budget with DuckDB's own, cell by cell.

    DuckDB has no row for a group that is empty; there our counts and sums must be 0, and what is
    computed from them may be anything. A sum without rows is NULL there and 0 here.
    """
    release = dpsql.Session(con, public=PUBLIC).release(sql, budget=PRECISE)
    described = release.columns("query").rows()
    names = [name for name, *_ in described]
    ours = [tuple(map(plain, row)) for row in release["query"].select(names).rows()]
    theirs = [tuple(map(plain, row)) for row in con.execute(sql).fetchall()]
    keys = [i for i, (_, role, *_) in enumerate(described) if role == "key"]
    waiting = {}
    for row in theirs:
        waiting.setdefault(tuple(row[i] for i in keys), []).append(row)
    found = []
    for row in ours:
        others = waiting.get(tuple(row[i] for i in keys))
        other = others.pop(0) if others else None
        for (name, role, kind, _), value, i in zip(described, row, range(len(row)), strict=True):
            if role == "key":
                continue
            if other is not None and not close(value, other[i]):
                found.append(f"{name}: {value} in place of {other[i]} in {row}")
            if other is None and kind == "exact" and "OVER" not in sql and not close(value, 0.0):
                found.append(f"{name}: {value} in place of an empty group in {row}")
    return found + [f"no row for {key}" for key, left in waiting.items() if left]


def plain(value):
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def close(a, b):
    if isinstance(a, float) and (b is None or isinstance(b, float)):
        b = 0.0 if b is None else b
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-3) or (math.isnan(a) and math.isnan(b))
    return a == b or (a is None and b == 0.0)
