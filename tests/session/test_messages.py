"""How often the helper and the catalog are asked: what a script waits for, whatever its size."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.sql.sandbox import helper
from tests.benchmarks.ordinary import BUDGET, SCHEMA, SIZES, STATEMENTS
from tests.session.tools import create

FEW = {
    "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex": 1,
    "SELECT sex, COUNT(*) AS n FROM people WHERE age BETWEEN 2 AND 4 GROUP BY sex": 2,
    "SELECT COUNT(*) AS n FROM people WHERE age > 3 AND sex = 'F'": 2,
    "SELECT sex, SUM(income) AS s FROM people GROUP BY sex": 4,
}
"""Statement → messages when it is asked first."""


@pytest.fixture
def sent(monkeypatch):
    """What is sent to a helper that nobody has asked before."""
    monkeypatch.setattr(helper._CURRENT, "_helper", None)
    found, ask = [], helper.Helper.ask

    def noted(self, message, block, seconds):
        found.append((message["kind"], message["query"]))
        return ask(self, message, block, seconds)

    monkeypatch.setattr(helper.Helper, "ask", noted)
    yield found
    helper.helper().let_go()


@pytest.mark.parametrize(("sql", "most"), FEW.items())
def test_plain_statements_take_few_messages_and_none_again(sent, sql, most):
    session = dpsql.Session(create())
    session.plan(sql, budget=BUDGET)
    assert len(sent) <= most
    first = len(sent)
    session.plan(sql, budget=BUDGET)
    dpsql.plan(create(), sql, budget=BUDGET)
    assert sent[first:] == []


def test_statements_alike_take_no_more_messages_than_one(sent):
    sql = "SELECT sex, COUNT(*) AS n FROM people WHERE age BETWEEN 2 AND 4 GROUP BY sex"
    session = dpsql.Session(create())
    session.plan({"one": sql}, budget=BUDGET)
    first = len(sent)
    session.plan({f"s{i}": f"{sql} -- {i}" for i in range(9)}, budget=BUDGET)
    assert len(sent) == first


def test_ten_ordinary_statements_take_few_messages(sent):
    columns = ", ".join(
        f"c{i} UTINYINT NOT NULL CHECK (c{i} BETWEEN 0 AND {size - 1})"
        for i, size in enumerate(SIZES)
    )
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t ({columns}, x DOUBLE, y DOUBLE, z DECIMAL(9, 2))")
    session = dpsql.Session(con, schema=SCHEMA)
    session.plan(STATEMENTS, budget=BUDGET)
    assert len(sent) <= 60
    sent.clear()
    session.plan(STATEMENTS, budget=BUDGET)
    assert len(sent) <= 12
