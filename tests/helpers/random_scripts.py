"""Random scripts over small tables: nullable columns, filters, comparisons, joins, averages."""

from __future__ import annotations

import random

import duckdb

CONDITIONS = (
    "g <> 'g1'",
    "a >= 2",
    "a < b",
    "b IS NOT NULL",
    "a + b <= 7",
    "g IN ('g0', 'g2') AND a > 1",
    "c",
    "NOT c OR a = 0",
)
KEYS = ("g", "a", "b", "c", "a // 3 AS band", "g, c", "g, a", "c, b", "g, b")
VALUES = (
    "COUNT(*) AS n",
    "COUNT(*) AS n, AVG(b) AS m",
    "SUM(a) AS s, COUNT(*) AS n",
    "COUNT(*) AS n, VAR_POP(a) AS v",
    "COUNT_IF(a > 2) AS i, COUNT(*) AS n",
    "AVG(a - b) AS d, COUNT(b) AS n",
    "COUNT(b) AS n",
)


def table(generator: random.Random) -> duckdb.DuckDBPyConnection:
    """Make an empty table of three to a few thousand joint cells."""
    labels = ", ".join(f"'g{i}'" for i in range(generator.randint(3, 7)))
    largest = [generator.randint(3, 8) for _ in range(2)]
    optional = ["" if generator.random() < 0.5 else "NOT NULL" for _ in range(2)]
    con = duckdb.connect()
    con.execute(f"""
        CREATE TABLE t (
            g ENUM ({labels}) {optional[0]},
            a SMALLINT NOT NULL CHECK (a BETWEEN 0 AND {largest[0]}),
            b SMALLINT {optional[1]} CHECK (b BETWEEN 0 AND {largest[1]}),
            c BOOLEAN NOT NULL)
    """).fetchall()
    return con


def script(generator: random.Random) -> dict[str, str]:
    """Write one to four statements."""
    return {f"s{i}": _statement(generator) for i in range(generator.randint(1, 4))}


def _statement(generator: random.Random) -> str:
    kind = generator.random()
    where = f" WHERE {generator.choice(CONDITIONS)}" if generator.random() < 0.5 else ""
    if kind < 0.15:
        axis = generator.choice("ab")
        total = f"SUM(COUNT(*)) OVER (ORDER BY {axis}) AS n"
        return f"SELECT {axis}, {total} FROM t{where} GROUP BY {axis}"
    if kind < 0.35:
        key = generator.choice(("g, ", "c, ", ""))
        compared = generator.choice(("a + b <= q", "a <= q", "a - b >= q", "abs(a - b) <= q"))
        joined = f"t JOIN range(0, 9) AS r(q) ON {compared}"
        return f"SELECT {key}q, COUNT(*) AS n FROM {joined}{where} GROUP BY {key}q"
    if kind < 0.45:
        return f"SELECT {generator.choice(VALUES)} FROM t{where}"
    keys = generator.choice(KEYS)
    return f"SELECT {keys}, {generator.choice(VALUES)} FROM t{where} GROUP BY ALL"
