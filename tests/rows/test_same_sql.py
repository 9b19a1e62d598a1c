"""DuckDB's SQL of expressions and keys, as before engines had trees, and of sums in two words.

Private rows are reached by this SQL, and its proofs are about its form. So whoever changes how it
is written sees here what changes, and says why.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import DpsqlError
from dpsql.rows.key import row_key
from dpsql.rows.measure import bounded_columns, measure
from dpsql.rows.write import RowWriter
from dpsql.schema import Domain, Table
from dpsql.schema.units import ResolvedUnit
from tests.rows.tools import TYPES, Random, connect, parse

WRITTEN = Path(__file__).with_name("duckdb_sql.json")
K = Domain("INTEGER", range(3))
UNIT = ResolvedUnit("i", "i", "INTEGER", (), 2)
EXPRESSIONS = """
    i + 1 | b * b * b | p * q - w | d + 7 | d - DATE '2020-02-29' | - a | x / 2 | b // 3 | w % q
    abs(h) | sign(x) | round(p, 1) | floor(x) | trunc(q) | sqrt(i * i) | pow(x, 2) | isnan(x)
    lower(s) | length(e) | s || i | substring(s, 2, 3) | left(s, -1) | contains(s, 'a''b')
    strpos(s, 'x') | s LIKE 'a%' | s ILIKE '%B_' | regexp_matches(s, '^a', 'i') | d > '2001-01-01'
    date_part('hour', t) | dayname(d) | strftime(t, '%Y-%m') | date_trunc('month', d)
    date_diff('day', d, t) | i BETWEEN 1 AND p | s IN ('a', 'b') | e IS NULL | coalesce(i, p)
    nullif(x, 0) | least(i, 5) | greatest(d, t) | CASE WHEN o THEN i ELSE x END | NOT o AND true
    CAST(s AS INTEGER) | CAST(x AS DECIMAL(18,3)) | CAST(o AS TINYINT) | NULL | e = 'green'
    i IS DISTINCT FROM a | t <= d | CAST(p AS VARCHAR) | u - h | f * 2 | p + 0.05 | x > i
"""
SUMS = ["p", "i", "x", "p * (1 - q)", "b * 2", "CASE WHEN s = 'a' THEN p END", "x * 3 - i", "w * q"]
STEPS = [Fraction(1), Fraction(1, 100), Fraction(1, 64)]
KEYS = ["i > 3", "month(d)", "s = 'a'", "lower(s) IN ('a', 'b')", "CASE WHEN x > 1 THEN 'u' END"]


def listed():
    return [text.strip() for line in EXPRESSIONS.split("\n") for text in line.split("|")
            if text.strip() and "||" not in line] + ["s || i"]  # fmt: skip


def statements(*, measures=None, keys=None, unit=None):
    columns = {"k": K, **{name: key.domain for name, key in (keys or {}).items()}}
    table = Table("r", columns, TYPES, ("memory", "main", "r"), unit, enforced=frozenset({"k"}))
    names = [*(measures or {}), *(keys or {})]
    wanted = [("k",), *(("k", name) for name in names), *((name,) for name in names)]
    prepared = DuckDBEngine(connect()).prepared(
        table, wanted, measures=measures or {}, keys=keys or {}
    )
    return "\n".join(f"{scan.sql} {scan.parameters}" for scan in prepared.needed)


def summed(con, text, step, unit=None):
    found = {}
    for inside in (False, True):
        value = parse(con, text)
        if inside:
            value = bounded_columns(value, TYPES, {c: (Fraction(0), Fraction(9)) for c in "ibpqw"})
        found["v" if inside else "w"] = measure(value, TYPES, (Fraction(-3), Fraction(900)), step)
    return "\n".join(statements(measures={name: m}, unit=unit) for name, m in found.items())


def digest(texts):
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def texts():
    con, writer = connect(), RowWriter(TYPES)
    yield from ((text, writer.write(parse(con, text)).sql) for text in listed())
    yield from ((f"sum of {text}", summed(con, text, STEPS[1])) for text in SUMS)
    for text in KEYS:
        yield f"key {text}", statements(keys={"key": row_key(parse(con, text), TYPES)})
    every = [
        summed(con, text, step, unit) for text in SUMS for step in STEPS for unit in (None, UNIT)
    ]
    yield "sums, with units and without", digest(every)
    for seed in range(0, 300, 50):
        yield f"random expressions from {seed}", digest(at_random(con, range(seed, seed + 50)))


def at_random(con, seeds):
    for seed in seeds:
        try:
            yield RowWriter(TYPES).write(parse(con, Random(seed).any(1 + seed % 4))).sql
        except DpsqlError as error:
            yield type(error).__name__


@pytest.fixture(scope="module")
def now():
    return dict(texts())


@pytest.mark.parametrize("what", json.loads(WRITTEN.read_text(encoding="utf-8")))
def test_the_sql_is_as_it_was(now, what):
    assert now[what] == json.loads(WRITTEN.read_text(encoding="utf-8"))[what]


def test_nothing_else_is_written(now):
    assert now.keys() == json.loads(WRITTEN.read_text(encoding="utf-8")).keys()
