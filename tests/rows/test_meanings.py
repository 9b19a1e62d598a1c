"""Versions of what expressions mean: measurements of another meaning are known by another name."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError
from dpsql.rows import key
from dpsql.rows.expression import canonical
from dpsql.rows.write import RowWriter, known_as
from dpsql.sql.lowering import measures
from tests.rows.tools import parse

TYPES = [
    "BOOLEAN", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL(4,2)", "DECIMAL(18,2)", "DECIMAL(19,3)",
    "DECIMAL(38,10)", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP",
]  # fmt: skip
OF_TWO = """
    {a} + {b} ; {a} - {b} ; {a} * {b} ; {a} / {b} ; {a} // {b} ; {a} % {b} ; {a} = {b} ; {a} < {b}
    ; {a} IS DISTINCT FROM {b} ; {a} IN ({b}) ; {a} BETWEEN {b} AND {a} ; {a} || {b}
    ; least({a}, {b}) ; greatest({a}, {b}) ; coalesce({a}, {b}) ; nullif({a}, {b}) ; pow({a}, {b})
    ; CASE WHEN {a} IS NULL THEN {b} ELSE {a} END ; ({a} + {b}) / 3 > 0.3
"""
OF_ONE = """
    abs(a) ; sign(a) ; round(a) ; floor(a) ; ceil(a) ; trunc(a) ; sqrt(a) ; exp(a) ; -a
    ; round(a, 1) ; round(a, -1) ; date_part('year', a) ; date_trunc('month', a) ; a + 1 > 5
    ; CAST(a + a AS DOUBLE) ; sqrt(a * a + 1) ; (a + 1) / 2 ; a / 0.1 > 3 ; ceil(a / 0.1)
    ; CASE WHEN a > 0.1 THEN a + 1.5 ELSE a END / 4 ; least(a, 0.1) * 3 ; -(a * 2.5) / 3
    ; CASE WHEN a / 0.1 > 3 THEN a ELSE 0 END ; a = '2020-01-01 12:00:00'
    ; isnan(CAST(a * a AS DOUBLE)) ; isnan(a + 1.5) ; sqrt(a + 1.5) > 2 ; isfinite(a / 0.1)
    ; a IN ('2020-01-01','2020-01-02 12:00:00') ; coalesce(a, '2020-01-01 12:00:00')
"""
CONSTANTS = ["1", "2.5", "0.1", "3000000000"]
PAIRS = [(one,) for one in TYPES] + list(itertools.product(TYPES, repeat=2))
FIRST = json.loads(Path(__file__).with_name("meanings.json").read_text())
"""Of each pair of types: which expressions version 1 (commit cd3a5c5) computed otherwise, as they
are (`w`) or added up (`d`), and a digest of its SQL of all others."""


def listed(text):
    return [one.strip() for one in text.split(";")]


def expressions(types):
    if len(types) == 2:
        return [text.format(a="a", b="b") for text in listed(OF_TWO)]
    found = listed(OF_ONE)
    for constant, text in itertools.product(CONSTANTS, listed(OF_TWO)):
        found += [text.format(a="a", b=constant), text.format(a=constant, b="a")]
    return found


def told(types):
    """Say which expressions are known by a new name, and how the others are computed."""
    names, changed, same = dict(zip("ab", types, strict=False)), [], hashlib.sha256()
    with duckdb.connect(config={"threads": 1}) as con:
        for text in expressions(types):
            try:
                expression = parse(con, text)
            except (duckdb.Error, DpsqlError):
                continue
            for kind in "wd":
                added_up = kind == "d"
                writer = RowWriter(names)
                try:
                    found = (writer.write_double if added_up else writer.write)(expression)
                except DpsqlError:
                    continue
                if known_as(expression, names, added_up=added_up) != canonical(expression):
                    changed.append(f"{kind} {text}")
                else:
                    same.update(f"{kind} {text}: {found.sql}\n".encode())
    return {"changed": changed, "same": same.hexdigest()}


@pytest.mark.sampled(25)
@pytest.mark.parametrize("types", PAIRS, ids=" and ".join)
def test_just_what_is_computed_otherwise_is_known_otherwise(types):
    """Where SQL has changed: if it has another value, `write.known_as` has to tell it apart."""
    assert told(types) == FIRST["/".join(types)]


QUESTIONS = {
    "SELECT f / 0.1 > 3 AS big, COUNT(*) AS n FROM t WHERE f IS NOT NULL GROUP BY big": False,
    "SELECT SUM(f / 0.1) AS s FROM t": False,
    "SELECT q / 2 > 3 AS big, COUNT(*) AS n FROM t GROUP BY big": True,
    "SELECT SUM(price * q) AS s FROM t": True,
    "SELECT date_diff('day', d, e) > 3 AS long, COUNT(*) AS n FROM t GROUP BY long": False,
    "SELECT date_diff('day', d, ts) > 3 AS long, COUNT(*) AS n FROM t GROUP BY long": True,
}
"""Statement → whether it means what it did in version 1."""


@pytest.mark.parametrize("sql", QUESTIONS)
def test_measurements_of_another_meaning_answer_nothing(sql, monkeypatch):
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (f FLOAT CHECK (f BETWEEN 0 AND 2), q INT CHECK (q BETWEEN 0 AND 20),"
            " price DECIMAL(18, 2) CHECK (price BETWEEN 0 AND 100), d DATE, e DATE, ts TIMESTAMP)"
        )
        con.execute(
            "INSERT INTO t SELECT i % 20 / 10.0, i % 20, i % 100, day, day, day "
            "FROM range(1000) r(i), (SELECT DATE '2024-01-01' AS day)"
        )
        session = dpsql.Session(con)
        with monkeypatch.context() as as_before:
            for place in (key, measures):
                as_before.setattr(place, "known_as", lambda e, types, **_: canonical(e))
            session.query(sql, budget=dpsql.Budget(rho=1))
        if QUESTIONS[sql]:
            assert session.query(sql, budget=0).height
        else:
            with pytest.raises(DpsqlError):
                session.query(sql, budget=0)
        session.query(sql, budget=dpsql.Budget(rho=1))
        assert session.query(sql, budget=0).height


def test_the_version_is_in_the_name():
    with duckdb.connect() as con:
        expression = parse(con, "a / 0.1")
    assert known_as(expression, {"a": "DOUBLE"}) == canonical(expression)
    assert known_as(expression, {"a": "FLOAT"}) == f"{canonical(expression)} as of 2"


@pytest.mark.parametrize("sql", ["epoch(a - b) / 3600", "EXTRACT(epoch FROM a - b) + 1"])
def test_a_difference_of_times_is_in_its_epoch_alone(sql):
    with duckdb.connect() as con:
        expression = parse(con, sql)
    for added_up in (False, True):
        name = known_as(expression, {"a": "TIMESTAMP", "b": "TIMESTAMP"}, added_up=added_up)
        assert name == canonical(expression)
