"""A small table, and the slow and obvious way to answer a compiled statement on it."""

import itertools
import math
import random
from pathlib import Path

import duckdb
import numpy as np

from dpsql.schema.catalog import read_table
from dpsql.sql import KeyColumn, ValueColumn, compile_script

FIXTURES = Path(__file__).parents[1] / "fixtures" / "sql"
CREATE = '''
    CREATE TYPE size AS ENUM ('small', 'big', 'medium');
    CREATE TABLE people (
        age INTEGER CHECK (age BETWEEN 17 AND 40),
        hours SMALLINT NOT NULL CHECK (hours >= 0 AND hours <= 12),
        years TINYINT CHECK (years IN (1, 2, 4, 8)),
        sex ENUM ('Male', 'Female') NOT NULL,
        size size,
        edu VARCHAR CHECK (edu IN ('hs', 'ba', 'ma', 'phd''s', 'medium')),
        rich BOOLEAN,
        member BOOLEAN NOT NULL,
        "Odd ""Name""" INTEGER CHECK ("Odd ""Name""" BETWEEN -2 AND 2),
        name VARCHAR,
        income DOUBLE,
        born DATE
    );
'''


def rows(count=400, seed=1):
    rng = random.Random(seed)  # noqa: S311

    def maybe(value):
        return None if rng.random() < 0.1 else value

    return [
        (
            maybe(rng.randint(17, 40)),
            rng.randint(0, 12),
            maybe(rng.choice([1, 2, 4, 8])),
            rng.choice(["Male", "Female"]),
            maybe(rng.choice(["small", "big"])),
            maybe(rng.choice(["hs", "ba", "ma", "phd's", "medium"])),
            maybe(rng.random() < 0.4),
            rng.random() < 0.5,
            maybe(rng.randint(-2, 2)),
            "Alice",
            1.5,
            "2000-01-01",
        )
        for _ in range(count)
    ]


def connect():
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    con.executemany(f"INSERT INTO people VALUES ({', '.join('?' * 12)})", rows()).fetchall()
    return con


def compile_one(con, sql, name="q"):
    return compile_script([(name, sql)], lambda parts: read_table(con, parts))


def count_cells(con, table, columns):
    """The exact joint counts of some columns, NULL in the last cell of each."""
    domains = [table.columns[name] for name in columns]
    counts = np.zeros([domain.size for domain in domains])
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    if not columns:
        return np.array(con.execute("SELECT COUNT(*) FROM people").fetchall()[0][0], dtype=float)
    for *values, count in con.execute(
        f"SELECT {quoted}, COUNT(*) FROM people GROUP BY ALL"
    ).fetchall():
        counts[tuple(code(domain, v) for domain, v in zip(domains, values, strict=True))] += count
    return counts


def code(domain, value):
    return domain.size - 1 if value is None else list(domain.values).index(value)


def value_of(domain, at):
    return domain.values[at] if at < len(domain.values) else None


def contract(family, counts, attributes):
    """Answer a family on exact counts: sum out what it doesn't touch, multiply block by block."""
    touched = [name for block in family.blocks for name in block.attributes]
    rest = tuple(i for i, name in enumerate(attributes) if name not in touched)
    order = [name for name in attributes if name in touched]
    tensor = counts.sum(axis=rest).transpose([order.index(name) for name in touched])
    tensor = tensor.reshape([math.prod(block.shape) for block in family.blocks])
    for axis, block in enumerate(family.blocks):
        tensor = np.moveaxis(np.tensordot(block.queries.matrix, tensor, (1, axis)), 0, axis)
    return tensor


def answer(con, script, statement):
    """The rows of a statement's answer, on exact counts: key values, then value columns."""
    attributes = list(script.workload.domain)
    counts = count_cells(con, script.table, attributes)
    keys = [c for c in statement.columns if isinstance(c, KeyColumn)]
    values = [c for c in statement.columns if isinstance(c, ValueColumn)]
    answers = [contract(script.workload.families[c.family], counts, attributes) for c in values]
    found = {}
    for at in itertools.product(*map(range, statement.shape)):
        group = tuple(value_of(k.domain, k.codes[at[k.block]]) for k in keys)
        assert group not in found
        found[group] = tuple(float(a[at]) for a in answers)
    return found


def duckdb_answer(con, sql, statement):
    """DuckDB's own answer, in the same form."""
    found = {}
    for row in con.execute(sql).fetchall():
        paired = list(zip(statement.columns, row, strict=True))
        group = tuple(v for c, v in paired if isinstance(c, KeyColumn))
        found[group] = tuple(float(v) for c, v in paired if isinstance(c, ValueColumn))
    return found
