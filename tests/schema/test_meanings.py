"""What names of the owner mean: the one thing that was named, whatever tables there are."""

from __future__ import annotations

import re
from itertools import combinations, islice, product

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError
from dpsql.schema.facts import StoredKey, StoredKeys
from dpsql.schema.references import resolve_unit
from dpsql.schema.units import Unit

PLACE = ("d", "a")
"""The schema is called as a table and as columns are."""
NAMES = ("a", "b")
COLUMNS = ("a", "b", "a.b")
OWN = "t"


def schemas():
    """Yield all schemas of a table and two others, whose names collide in all ways.

    Each of the others has a key, and the table refers to it by any of its columns or by none; one
    of the others may refer to the next.
    """
    listed = [c for n in (1, 2) for c in combinations(COLUMNS, n)]
    for own, other, key in product(listed, listed, COLUMNS):
        if key not in other:
            continue
        for to_a, to_b, further in product((None, *own), (None, *own), (False, True)):
            columns = {OWN: own, "a": other, "b": ("id", "a")}
            keys = [StoredKey("a", "PRIMARY KEY", (key,)), StoredKey("b", "PRIMARY KEY", ("id",))]
            keys += [StoredKey(OWN, "FOREIGN KEY", (c,), "a", (key,)) for c in [to_a] if c]
            keys += [StoredKey(OWN, "FOREIGN KEY", (c,), "b", ("id",)) for c in [to_b] if c]
            keys += [StoredKey("b", "FOREIGN KEY", ("a",), "a", (key,))] * further
            typed = {table: dict.fromkeys(names, "INTEGER") for table, names in columns.items()}
            yield StoredKeys(typed, tuple(keys))


def spellings(stored):
    """Return every way to write a table or columns → what it says, by writing all of them out."""
    found = {}

    def write(text, *meant):
        found.setdefault(text, set()).add(meant)

    for table, columns in stored.columns.items():
        for before in ("", "a.", "d.a."):
            write(before + table, table)
            for column in columns:
                write(f"{before}{table}.{column}", table, column)
    for column in stored.columns[OWN]:
        write(column, OWN, column)
    return found


def stands_for(stored, table, column):
    """Return what a column has the values of: itself, and all that it refers to, and on."""
    met, pending = set(), [(table, column)]
    while pending:
        at = pending.pop()
        if at not in met:
            met.add(at)
            pending += [
                (key.parent, key.keys[0])
                for key in stored.keys
                if key.kind == "FOREIGN KEY" and (key.table, key.columns[0]) == at
            ]
    return met


def is_right(stored, unit, meant):
    """Whether a unit that was found has the values of each thing that its name may mean."""
    holder = unit.joins[-1].path[-1] if unit.joins else OWN
    met = stands_for(stored, holder, unit.column)
    primary = {k.table: k.columns[0] for k in stored.keys if k.kind == "PRIMARY KEY"}
    ids = {(one[0], one[1] if len(one) > 1 else primary.get(one[0])) for one in meant}
    return ids <= met


def tried(stored, key):
    try:
        return resolve_unit(stored, (*PLACE, OWN), Unit(key, 1))
    except SchemaError as error:
        return error


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(8))
def test_every_spelling_of_a_unit_means_what_it_says_or_is_refused(part):
    """All of some thousand small schemas, and all names of their tables and columns."""
    outcomes = {"found": 0, "several": 0, "no way": 0}
    for number, stored in enumerate(islice(schemas(), part, None, 8)):
        for key, meant in spellings(stored).items():
            found = tried(stored, key)
            if not isinstance(found, SchemaError):
                outcomes["found"] += 1
                assert is_right(stored, found, meant), (stored, key, found)
            elif "may mean" in found.message:
                outcomes["several"] += 1
                assert len(meant) > 1, (stored, key)
                typed = re.findall(r'unit="([^"]*)"', str(found.hint))
                for text in typed if number % 5 == 0 else ():  # a hint is typed as it stands
                    again = tried(stored, text)
                    assert not isinstance(again, SchemaError) or "may mean" not in again.message
            else:
                outcomes["no way"] += 1
    assert min(outcomes.values()) > 100, outcomes


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        ATTACH ':memory:' AS s; CREATE SCHEMA memory.s; CREATE TABLE s.main.t (u INTEGER);
        CREATE TABLE memory.s.t (u INTEGER, m INTEGER CHECK (m BETWEEN 1 AND 9));
        CREATE TABLE "s.t" (u INTEGER); CREATE TABLE other (u INTEGER);
    """)
    return con


@pytest.mark.parametrize("how", ["max_rows", "tables", "units"])
def test_a_table_that_may_be_several_is_refused(con, how):
    """A table with a dot in its name, a schema and a database that are called alike."""
    given = {
        "max_rows": {"unit": dpsql.Unit("u", {"s.t": 3, "other": 2})},
        "tables": {"schema": {"s.t": {"u": dpsql.Domain.integers(0, 9)}}},
        "units": {"schema": dpsql.Schema({}, units={"s.t": dpsql.Unit("u", 3)})},
    }[how]
    with pytest.raises(SchemaError, match=r"A table is named s\.t, which may mean") as caught:
        dpsql.Session(con, **given).plan("SELECT COUNT(*) FROM memory.s.t", budget=BUDGET)
    assert caught.value.hint.startswith('write "main.s.t" or "t" or "s.main.t"')
    tables = {"main.s.t": '"s.t"', "t": "memory.s.t"}
    for rows, (text, table) in enumerate(tables.items(), start=2):
        session = dpsql.Session(con, unit=dpsql.Unit("u", {text: rows, "other": 9}))
        plan = session.plan(f"SELECT COUNT(*) AS n FROM {table}", budget=BUDGET)
        assert f"of which at most {rows} are kept; its rows are found" in plan.neighbours


BUDGET = dpsql.Budget(rho=1)


def test_columns_of_a_limit_that_may_be_several_are_refused():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE visits (u INTEGER, "m.m" INTEGER NOT NULL CHECK ("m.m" IN (1, 2)));
        CREATE TABLE m (u INTEGER, m INTEGER CHECK (m BETWEEN 1 AND 9));
    """)

    def plan(limits):
        unit = dpsql.Unit("u", 9, max_rows_per=limits)
        return dpsql.Session(con, unit=unit).plan("SELECT COUNT(*) FROM visits", budget=BUDGET)

    with pytest.raises(SchemaError, match="which may mean") as caught:
        plan({"m.m": 3})
    texts = re.findall(r'"([^"]*)"', caught.value.hint)
    assert texts == ["visits.m.m", "main.m.m"]
    for text in texts:
        plan({text: 3})


@pytest.mark.parametrize("where", ["argument", "comment", "file"])
def test_a_reference_that_may_be_several_is_refused(where, tmp_path):
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE people (id INTEGER); CREATE TABLE a ("b.c" INTEGER);
        CREATE TABLE "a.b" (c INTEGER);
    """)
    given = {"unit": dpsql.Unit("id", 3, references={"a.b.c": "people.id"})}
    if where == "comment":
        con.execute("""COMMENT ON TABLE a IS 'dpsql: {"references": {"b.c": "people.id"}}'""")
        given = {}
    elif where == "file":
        file = tmp_path / "schema.toml"
        file.write_text('[a.references]\n"b.c" = "people.id"\n')
        given = {"schema": dpsql.Schema.load(file)}
    with pytest.raises(SchemaError, match=r"may mean the column b\.c of a or the column c of a\.b"):
        dpsql.Session(con, **given).plan("SELECT COUNT(*) FROM people", budget=BUDGET)


def test_a_view_that_shows_a_column_named_as_a_table():
    """The view's column is one thing, the table another, unless the owner says that it refers."""
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE account (id INTEGER PRIMARY KEY);
        CREATE TABLE trans (account_id INTEGER REFERENCES account (id), partner INTEGER);
        CREATE VIEW v AS SELECT account_id, partner AS account FROM trans;
        CREATE VIEW w AS SELECT account_id AS account FROM trans;
    """)
    sql = "SELECT COUNT(*) AS n FROM "
    with pytest.raises(SchemaError, match="may mean the table account or the column account of v"):
        dpsql.Session(con, unit=dpsql.Unit("account", 3)).plan(sql + "v", budget=BUDGET)
    plan = dpsql.Session(con, unit=dpsql.Unit("v.account", 3)).plan(sql + "v", budget=BUDGET)
    assert plan.neighbours.endswith("rows are found in v by v.account")
    unit = dpsql.Unit("account", 3, references={"w.account": "account.id"})
    dpsql.Session(con, unit=unit).plan(sql + "w", budget=BUDGET)


@pytest.mark.parametrize("key", ["account", "main", "main.account"])
def test_the_bound_of_the_units_own_table(key):
    """A unit has one row there, if its table is meant; not if a column of that name is."""
    con = duckdb.connect()
    con.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, main INTEGER)")
    session = dpsql.Session(con, unit=dpsql.Unit(key, {"other": 3}))
    if key == "main":
        with pytest.raises(dpsql.DpsqlError, match="Nothing says how many rows"):
            session.plan("SELECT COUNT(*) AS n FROM account", budget=BUDGET)
        return
    plan = session.plan("SELECT COUNT(*) AS n FROM account", budget=BUDGET)
    assert plan.neighbours == (
        "add or remove one account.id with all of its rows, of which at most 1 is kept; its rows "
        "are found in account by account.id"
    )
