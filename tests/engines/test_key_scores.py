"""Scores of keys: what one unit adds, replayed on neighbours, with keys of every kind."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb import key_scores
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.key_scores import KeyScan
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.engines.key_scores import MOST_BYTES, key_pairs
from dpsql.errors import InternalError
from dpsql.privacy.keys import SCALE, weights
from dpsql.rows.expression import RowCast, RowColumn
from dpsql.rows.found import joined
from dpsql.rows.types import VARCHAR
from tests.rows.tools import parse

LONG = "é" * (MOST_BYTES // 2)
TEXTS = [
    "",
    "\x00",
    "a\x00b",
    "a\x00",
    "a",
    "A",
    "é",
    "e\u0301",
    "\u202eabc",
    "(other)",
    "';--",
    '"',
]
TEXTS += ["𝕒", " ", "a ", LONG, LONG + "a", "x" * 1_000_000]
VALUES = {
    "VARCHAR": TEXTS,
    "BIGINT": [0, -1, 1, 2**63 - 1, -(2**63), 7, 8, 9, 10],
    "UBIGINT": [0, 1, 2**64 - 1, 2**63],
    "DATE": [date(2020, 1, 1) + timedelta(i) for i in range(9)] + ["infinity", "-infinity"],
    "TIMESTAMP": [datetime(2020, 1, 1) + timedelta(hours=7 * i) for i in range(30)] + ["infinity"],
}


def key_of(type_, value):
    """The key that a value is, as bytes; None if it is none."""
    if value is None or (type_ == "VARCHAR" and len(value.encode()) > MOST_BYTES):
        return None
    return str(value.date() if isinstance(value, datetime) else value).encode()


def scored(con, most, known=(), unit=None, table="t", column="k"):
    """Key → (units, score)."""
    return scored_by(con, most, RowColumn(column), known, unit, table)


def scored_by(con, most, key, known=(), unit=None, table="t"):
    """The same for what is computed of a row."""
    scan = KeyScan(DuckDBSource(con).describe((table,), None, unit), key, weights(most))
    scan.check(con)
    found = {}
    for piece in scan.run(con, known):
        assert repr(piece) == "<ScoredKeys>"
        keys = piece.pick(np.arange(len(piece.units)))
        rows = zip(keys, piece.units.tolist(), piece.scores.tolist(), strict=True)
        for key, units, score in rows:
            assert key not in found
            found[key] = units, score
    return found


def stored(type_, rows):
    """A connection with all rows, numbered."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE rows (i INTEGER, u INTEGER, k {type_})")
    listed = ", ".join(f"({i}, ${2 * i + 1}, ${2 * i + 2}::{type_})" for i in range(len(rows)))
    con.execute(f"INSERT INTO rows VALUES {listed}", [value for row in rows for value in row])
    return con


def filled(con, condition="true", order="i"):
    """Fill the table with some of them."""
    con.execute(
        f"CREATE OR REPLACE TABLE t AS SELECT u, k FROM rows WHERE {condition} ORDER BY {order}"
    )
    return con


def changed(one, other):
    """Key → what it has less in another."""
    keys = one.keys() | other.keys()
    pairs = {k: (one.get(k, (0, 0)), other.get(k, (0, 0))) for k in keys}
    return {k: (a[0] - b[0], a[1] - b[1]) for k, (a, b) in pairs.items() if a != b}


@pytest.mark.parametrize("type_", VALUES)
@pytest.mark.parametrize("seed", range(3))
def test_a_unit_adds_its_weights_to_its_own_keys(type_, seed):
    """Each unit is taken away in turn, before and after some keys are known."""
    rng = random.Random(seed)  # noqa: S311
    most = rng.choice([1, 2, 3, 5])
    values = [*VALUES[type_], None]
    rows = [(rng.randrange(6), rng.choice(values)) for _ in range(rng.choice([8, 30, 60]))]
    rows += [(None, rng.choice(values)) for _ in range(3)]
    known = frozenset(key_of(type_, v) or b"none" for v in rng.sample(values, 3))
    known = frozenset() if seed % 2 else frozenset(k for k in known if b"\x00" not in k)
    unit = dpsql.Unit("u", max_rows=most)
    con = stored(type_, rows)
    whole = scored(filled(con), most, known, unit)
    for u in range(6):
        own = {key_of(type_, v) for who, v in rows if who == u} - {None} - known
        t = min(len(own), most)
        lost = changed(whole, scored(filled(con, f"u IS DISTINCT FROM {u}"), most, known, unit))
        assert len(lost) == t
        assert lost.keys() <= own
        assert set(lost.values()) <= {(1, weights(most)[t - 1])}
    assert scored(filled(con, order="hash(i)"), most, known, unit) == whole


@pytest.mark.parametrize("type_", VALUES)
def test_a_row_is_one_unit_where_there_are_no_others(type_):
    rng = random.Random(7)  # noqa: S311
    rows = [(i, rng.choice([*VALUES[type_], None])) for i in range(25)]
    con = stored(type_, rows)
    whole = scored(filled(con), 1)
    for i, value in rows:
        key = key_of(type_, value)
        expected = {} if key is None else {key: (1, SCALE)}
        assert changed(whole, scored(filled(con, f"i <> {i}"), 1)) == expected


def test_units_are_found_by_enforced_keys():
    con = duckdb.connect()
    con.execute("CREATE TABLE persons (id INTEGER PRIMARY KEY)")
    con.execute("CREATE TABLE visits (person INTEGER REFERENCES persons (id), clinic VARCHAR)")
    con.execute("INSERT INTO persons SELECT range FROM range(5)")
    con.execute("INSERT INTO visits SELECT i % 5, 'c' || (i % 3) FROM range(30) r(i)")
    unit = dpsql.Unit("person", 2)
    found = scored(con, 2, unit=unit, table="visits", column="clinic")
    assert sum(units for units, _ in found.values()) == 10
    assert {score / units for units, score in found.values()} == {weights(2)[1]}


def test_rows_of_several_units_have_no_keys():
    con = duckdb.connect()
    con.execute("CREATE TABLE persons (id INTEGER, code INTEGER)")
    con.execute("CREATE TABLE visits (code INTEGER, clinic VARCHAR)")
    unit = dpsql.Unit("persons.id", 2, references={"visits.code": "persons.code"})
    for given in (unit, None):
        table = DuckDBSource(con).describe(("visits",), None, given)
        with pytest.raises(InternalError):
            key_pairs(table, RowColumn("clinic"), 2)


def test_keys_come_in_pieces_and_many_are_known(monkeypatch):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i % 50 AS u, 'k' || (i % 6000) AS k FROM range(12000) r(i)"
    )
    monkeypatch.setattr(key_scores, "BATCH", 1)
    engine, unit = DuckDBEngine(con), dpsql.Unit("u", 300)
    table = DuckDBSource(con).describe(("t",), None, unit)
    scores = engine.key_scores(table, RowColumn("k"), weights(300))
    scores.check()
    pieces = list(scores.run())
    assert len(pieces) > 1
    assert sum(len(piece.units) for piece in pieces) == 6000
    known = [f"k{i}".encode() for i in range(5990)]
    assert sum(len(piece.units) for piece in scores.run(known)) == 10


def test_what_is_no_key_is_refused():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (u INTEGER, k DOUBLE)")
    with pytest.raises(InternalError):
        scored(con, 1)
    con.execute("CREATE OR REPLACE TABLE t (u INTEGER, k VARCHAR)")
    with pytest.raises(InternalError):
        scored(con, 2)


# ── What is computed of a row ────────────────────────────────────────────────────────────────────

COMPUTED = {
    "VARCHAR": [
        "upper(k)",
        "substr(k, 1, 2)",
        "k || u::VARCHAR",
        "CASE WHEN u > 2 THEN k ELSE 'few' END",
        "CAST(k AS INTEGER)",
        "CAST(k AS DATE)",
        "k || k",
    ],
    "BIGINT": [
        "CAST(k + u AS BIGINT)",
        "CAST(k * k AS BIGINT)",
        "CAST(k AS VARCHAR)",
        "CAST(floor(k / 3) AS BIGINT)",
        "CAST(-k AS BIGINT)",
    ],
    "DATE": ["year(k)", "CAST(k AS VARCHAR)", "CAST(date_trunc('month', k) AS DATE)", "k + u"],
    "TIMESTAMP": [
        "CAST(date_trunc('week', k) AS DATE)",
        "CAST(k AS VARCHAR)",
        "CAST(year(k) * 100 AS BIGINT)",
    ],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("type_", "sql"), [(t, sql) for t, each in COMPUTED.items() for sql in each]
)
def test_a_unit_adds_its_weights_to_what_is_computed_of_its_rows(type_, sql):
    """Each unit is taken away; what its keys are is asked of DuckDB, row by row."""
    check_units(type_, sql, parse(duckdb.connect(), sql))


@pytest.mark.parametrize("type_", ["VARCHAR", "BIGINT", "DATE"])
def test_a_unit_adds_its_weights_to_lists_of_values(type_):
    """The same of two values that are found together."""
    key = joined([RowColumn("k"), RowCast(RowColumn("k"), VARCHAR)])
    text = "coalesce(k::VARCHAR, '')"
    size = "coalesce(length(k::VARCHAR)::VARCHAR, '')"
    check_units(type_, f"{size} || ',' || {size} || ':' || {text} || {text}", key)


def check_units(type_, sql, key, most=3):
    rng = random.Random(sql)  # noqa: S311
    rows = [(rng.randrange(6), rng.choice([*VALUES[type_], None])) for _ in range(40)]
    con, unit = stored(type_, rows), dpsql.Unit("u", max_rows=most)
    whole = scored_by(filled(con), most, key, unit=unit)
    for u in range(6):
        own = con.sql(f"SELECT DISTINCT TRY({sql})::VARCHAR FROM rows WHERE u = {u}").fetchall()
        own = {text.encode() for (text,) in own if text is not None}
        own = {text for text in own if len(text) <= MOST_BYTES}
        t = min(len(own), most)
        filled(con, f"u IS DISTINCT FROM {u}")
        lost = changed(whole, scored_by(con, most, key, unit=unit))
        assert len(lost) == t
        assert lost.keys() <= own
        assert set(lost.values()) <= {(1, weights(most)[t - 1])}
    assert scored_by(filled(con, order="hash(i)"), most, key, unit=unit) == whole


def test_rows_that_are_units_add_to_what_is_computed_of_them():
    con = stored("VARCHAR", list(enumerate([*TEXTS, None])))
    filled(con)
    found = scored_by(con, 1, parse(duckdb.connect(), "upper(k)"))
    true = con.sql("SELECT upper(k), count(*) FROM t WHERE k IS NOT NULL GROUP BY 1").fetchall()
    short = {k.encode(): (n, n * SCALE) for k, n in true if len(k.encode()) <= MOST_BYTES}
    assert found == short


@pytest.mark.parametrize("sql", ["k || 'x'", "upper(k)"])
def test_what_is_computed_of_texts_with_a_collation_is_no_key(sql):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (u INTEGER, k VARCHAR COLLATE NOCASE)")
    with pytest.raises(InternalError):
        scored_by(con, 1, parse(duckdb.connect(), sql))
