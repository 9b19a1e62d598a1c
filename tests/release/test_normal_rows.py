"""Rows with columns that nodes add: they are those of their table, and are measured with it.

Every statement is compiled as a relation, also where another way would answer it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.errors import SchemaError, UnsupportedSqlError
from dpsql.rel.related import related_rows
from dpsql.request import Request, named
from dpsql.sql.algebra import normal
from dpsql.sql.algebra.counted import CountingSelects
from dpsql.sql.binding.tables import NamedTables
from tests.release.test_random_databases import kept

SHOP = """
CREATE TABLE c (id INTEGER PRIMARY KEY, b VARCHAR NOT NULL CHECK (b IN ('p', 'q')));
CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id),
  a VARCHAR NOT NULL CHECK (a IN ('p', 'q')), n INTEGER CHECK (n BETWEEN 0 AND 9));
CREATE TABLE v (id INTEGER PRIMARY KEY, cid INTEGER REFERENCES c (id), oid INTEGER REFERENCES o
  (id), k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 3));
CREATE TABLE s (id INTEGER PRIMARY KEY); CREATE TABLE names (k INTEGER, name VARCHAR);
INSERT INTO c SELECT i, CASE WHEN i % 2 = 0 THEN 'p' ELSE 'q' END FROM range(50) t (i);
INSERT INTO o SELECT i, i % 37, CASE WHEN i % 5 = 0 THEN 'p' ELSE 'q' END,
  CASE WHEN i % 11 = 0 THEN NULL ELSE i % 10 END FROM range(200) t (i);
INSERT INTO v SELECT i, i % 41, CASE WHEN i % 4 > 0 THEN i % 200 END, i % 4 FROM range(160) t (i);
INSERT INTO names VALUES (0, 'x'), (1, 'y'), (2, NULL);
"""
UNIT = dpsql.Unit("c", max_rows={"c": 1, "o": 12, "v": 12, "o, o": 90})
LARGE, BUDGET = dpsql.Budget(rho=10**10), dpsql.Budget(rho=Fraction(1, 2))


@pytest.fixture
def shop():
    con = duckdb.connect()
    con.execute(SHOP)
    return con


@pytest.fixture
def asked(shop):
    return dpsql.Session(shop, unit=UNIT, public=["names"])


def tables_of(asked, *statements):
    script = {f"s{number}": sql for number, sql in enumerate(statements)}
    return asked._data.declared.compile(Request(named(script), BUDGET)).tables


COUNTS = "SELECT {} AS x, COUNT(*) AS n FROM o AS a{} GROUP BY 1"
OF_ORDERS = {
    "parent": COUNTS.format("c.b", " JOIN c ON c.id = a.cid"),
    "left parent": COUNTS.format("c.b", " LEFT JOIN c ON c.id = a.cid"),
    "using": "SELECT a, COUNT(*) AS n FROM o AS a NATURAL LEFT JOIN (SELECT id AS cid, b FROM c) "
    "GROUP BY a",
    "exists": COUNTS.format("EXISTS (SELECT 1 FROM v WHERE v.cid = a.cid AND v.k > a.n)", ""),
    "semi": "SELECT a, COUNT(*) AS n FROM o AS a SEMI JOIN v ON v.cid = a.cid AND k = n GROUP BY a",
    "number": COUNTS.format("LEAST((SELECT COUNT(*) FROM v WHERE v.cid = a.cid), 3)", ""),
    "window": "SELECT w, COUNT(*) AS n FROM (SELECT *, lag(n) OVER (PARTITION BY cid ORDER BY id) "
    "AS w FROM o) GROUP BY w",
    "window of a window": "SELECT w, COUNT(*) AS n FROM (SELECT *, MAX(u) OVER (PARTITION BY cid) "
    "AS w FROM (SELECT *, lag(n) OVER (PARTITION BY cid ORDER BY id) AS u FROM o)) GROUP BY w",
    "window of what is met": "SELECT w, COUNT(*) AS n FROM (SELECT *, MAX(u) OVER (PARTITION BY "
    "cid) AS w FROM (SELECT *, (SELECT MIN(k) FROM v WHERE v.oid = o.id AND v.cid = o.cid) AS u "
    "FROM o)) GROUP BY w",
    "group": "SELECT g.k, COUNT(*) AS n FROM o JOIN (SELECT cid, MIN(k) AS k FROM v GROUP BY cid) "
    "AS g ON g.cid = o.cid WHERE o.n > 2 GROUP BY g.k",
    "left group": "SELECT g.k, COUNT(*) AS n FROM o LEFT JOIN (SELECT cid, MIN(k) AS k FROM v "
    "WHERE k > 1 GROUP BY cid) AS g ON g.cid = o.cid GROUP BY g.k",
    "units": "SELECT m, COUNT(DISTINCT g.cid) AS n FROM o JOIN (SELECT cid, MAX(k) AS m FROM v "
    "GROUP BY cid) AS g ON g.cid = o.cid WHERE m > 2 GROUP BY m",
}


@pytest.mark.parametrize("sql", OF_ORDERS.values(), ids=OF_ORDERS)
def test_they_are_rows_of_the_table_and_answers_those_of_the_database(shop, asked, sql):
    (table,) = tables_of(asked, sql)
    assert related_rows(table) is None
    assert table.path[-1] == "o"
    wanted = {tuple(row[:-1]): row[-1] for row in shop.execute(sql).fetchall()}
    columns = [column[0] for column in shop.description]
    found = asked.query(sql, budget=LARGE).select(columns).rows()
    rounded = {tuple(row[:-1]): round(row[-1]) for row in found}
    assert {key: n for key, n in rounded.items() if n or key in wanted} == wanted


def test_all_that_is_asked_of_a_table_is_measured_together(asked):
    """So many statements cost as much as the one that says all that they say."""
    statements = [sql for name, sql in OF_ORDERS.items() if name != "units"]
    (table,) = tables_of(asked, "SELECT a, COUNT(*) AS n FROM o GROUP BY a", *statements)
    assert len(table.added) >= 8
    script = {"all": "SELECT COUNT(*) AS n FROM o", "e": OF_ORDERS["exists"]}
    once = asked.release(script, budget=LARGE)
    assert once["all"]["n"].round().to_list() == [200]
    assert asked.query(OF_ORDERS["exists"], budget=0)["n"].sum() == pytest.approx(200, abs=0.1)


SAME = {
    "exists": [
        "SELECT COUNT(*) AS n FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND n > 3)",
        "SELECT COUNT(*) AS m FROM c AS d WHERE EXISTS (SELECT * FROM o AS p WHERE p.n > 3 AND "
        "d.id = p.cid)",
        "SELECT COUNT(*) FROM c SEMI JOIN (SELECT cid AS x, n AS y FROM o) AS q ON x = id AND "
        "y > 3",
        "SELECT COUNT(*) FROM c WHERE id IN (SELECT cid FROM o WHERE n > 3)",
    ],
    "window": [
        "SELECT x, COUNT(*) AS n FROM (SELECT MAX(n) OVER (PARTITION BY cid) AS x FROM o) GROUP "
        "BY x",
        "SELECT y, COUNT(*) FROM (SELECT a, MAX(p.n) OVER (PARTITION BY p.cid) AS y FROM o AS p) "
        "GROUP BY y",
    ],
}
OTHER = [
    "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND n > 4)",
    "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND n >= 3)",
    "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND id > 3)",
    "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM v WHERE v.cid = c.id AND k > 3)",
    "SELECT COUNT(*) FROM c WHERE (SELECT COUNT(*) FROM o WHERE o.cid = c.id AND n > 3) > 1",
    "SELECT COUNT(*) FROM c WHERE (SELECT MAX(n) FROM o WHERE o.cid = c.id AND n > 3) > 1",
    "SELECT COUNT(*) FROM c WHERE (SELECT MIN(n) FROM o WHERE o.cid = c.id AND n > 3) > 1",
    "SELECT COUNT(*) FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.cid = c.id AND b = 'p' AND n > "
    "3)",
]


def added_to(asked, sql):
    (table,) = tables_of(asked, sql)
    return [one.name for one in table.added]


@pytest.mark.parametrize("statements", SAME.values(), ids=SAME)
def test_what_is_the_same_has_one_name(asked, statements):
    first, *others = (added_to(asked, sql) for sql in statements)
    assert len(first) == 1
    assert all(names == first for names in others)


def test_what_is_another_has_another_name(asked):
    names = [added_to(asked, sql) for sql in [*(sql for sql, *_ in SAME.values()), *OTHER]]
    assert all(len(of) == 1 for of in names)
    assert len({name for (name,) in names}) == len(names)


def test_a_bound_keeps_rows_before_anything_is_joined_with_them(shop):
    """Which orders count doesn't depend on what is asked of them."""
    unit = dpsql.Unit("c", max_rows={"c": 1, "o": 2, "v": 3})
    asked = dpsql.Session(shop, unit=unit)
    plain = kept(shop, tables_of(asked, "SELECT a, COUNT(*) FROM o GROUP BY a")[0], ["id"])
    assert plain.total() == 2 * 37
    for name in ("parent", "exists", "number", "group"):
        (table,) = tables_of(asked, OF_ORDERS[name])
        assert kept(shop, table, ["id"]) == plain
        names = ["id", *(name for name in table.computed)]
        assert Counter(row[:1] for row in kept(shop, table, names).elements()) == plain


def test_rows_with_windows_are_kept_after_these(shop):
    """A window looks at all rows of a unit, also at those that don't count."""
    unit = dpsql.Unit("c", max_rows={"c": 1, "o": 1, "v": 3})
    (table,) = tables_of(dpsql.Session(shop, unit=unit), OF_ORDERS["window"])
    (name,) = table.computed
    rows = kept(shop, table, ["id", name])
    before = "lag(n) OVER (PARTITION BY cid ORDER BY id)"
    wanted = dict(shop.execute(f"SELECT id::VARCHAR, ({before})::VARCHAR FROM o").fetchall())
    assert rows.total() == 37
    assert {id_.decode(): None if w is None else w.decode() for id_, w in rows}.items() <= (
        wanted.items()
    )


def test_rows_that_are_chosen_by_place_have_a_bound_of_their_own(asked):
    sql = (
        "SELECT a, COUNT(*) AS n FROM (SELECT * FROM o QUALIFY row_number() OVER (PARTITION BY cid "
        "ORDER BY id) <= {}) GROUP BY a"
    )
    for places, most in ((1, 1), (2, 2), (40, 12)):
        (table,) = tables_of(asked, sql.format(places))
        assert related_rows(table) is not None
        assert table.unit_rows == most


# ── Numbers of rows ──────────────────────────────────────────────────────────────────────────────

NUMBERS = [
    "COUNT(*)", "COUNT(n)", "COUNT(DISTINCT n)", "SUM(n)", "SUM(n + 3)", "COUNT(*) * 2 - 7",
    "COUNT(*) FILTER (WHERE a = 'p')",
]  # fmt: skip
OF_EACH = "(SELECT cid, {} AS x FROM o GROUP BY cid)"
COUNTED = "SELECT COUNT(*) AS n FROM "
FORMS = {
    "groups": f"{COUNTED} {OF_EACH} WHERE {{}}",
    "joined groups": f"{COUNTED} c JOIN {OF_EACH} AS g ON cid = c.id WHERE {{}}",
    "left joined": f"{COUNTED} c LEFT JOIN {OF_EACH} AS g ON cid = c.id WHERE {{}}",
    "subquery": f"{COUNTED} (SELECT c.id, (SELECT {{}} FROM o WHERE o.cid = c.id) AS x FROM c) "
    "WHERE {}",
    "groups of groups": f"{COUNTED} (SELECT cid, MAX(y) AS x FROM (SELECT cid, a, {{}} AS y FROM o "
    "GROUP BY cid, a) GROUP BY cid) WHERE {}",
    "groups of windows": f"{COUNTED} (SELECT cid, MAX(y) AS x FROM (SELECT cid, {{}} OVER "
    "(PARTITION BY cid) AS y FROM o) GROUP BY cid) WHERE {}",
    "put together": f"{COUNTED} (SELECT k + 1 AS x, cid FROM (SELECT cid, {{}} AS k FROM o GROUP "
    "BY cid) UNION ALL SELECT k, id FROM c, (SELECT 0 AS k)) WHERE {}",
}
CONDITIONS = [
    "x > 3", "x >= 6", "x BETWEEN 4 AND 30", "x IN (5, 6, 12)", "x <> 3", "LEAST(x, 9) > 5",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_conditions_see_all_rows_of_a_unit_however_many_count(shop, form, number):
    """Nobody has to keep to `max_rows`: it says how many rows of a unit count, and no more."""
    unit = dpsql.Unit("c", max_rows={"c": 1, "o": 3, "v": 3})
    asked = dpsql.Session(shop, unit=unit)
    if "OVER" in form and not number.endswith(")"):
        number = "SUM(n)"
    script = {said: form.format(number, said) for said in CONDITIONS}
    release = asked.release(script, budget=LARGE)
    for said, sql in script.items():
        (true,) = shop.execute(sql).fetchone()
        assert round(release[said]["n"][0]) == true, sql


def test_groups_by_places_see_all_rows(shop):
    unit = dpsql.Unit("c", max_rows={"c": 1, "o": 2})
    asked = dpsql.Session(shop, unit=unit)
    sql = (
        "SELECT LEAST(x, 9) AS x, COUNT(*) AS n FROM (SELECT cid, MAX(k) AS x FROM (SELECT cid, "
        "row_number() OVER (PARTITION BY cid ORDER BY id) AS k FROM o) GROUP BY cid) GROUP BY 1"
    )
    found = {x: round(n) for x, n in asked.query(sql, budget=LARGE)["x", "n"].rows() if round(n)}
    assert found == dict(shop.execute(sql).fetchall())


FIRST_TWO = (
    "(SELECT *, row_number() OVER (PARTITION BY cid ORDER BY id) AS r FROM o QUALIFY r <= 2) AS f"
)
WITH_PLACES = {
    "one met": f"SELECT a, COUNT(*) AS n FROM {FIRST_TWO} JOIN c ON c.id = f.cid GROUP BY a",
    "several met": f"SELECT a, COUNT(*) AS n FROM {FIRST_TWO} JOIN v ON v.cid = f.cid GROUP BY a",
    "several groups met": f"SELECT a, COUNT(*) AS n FROM {FIRST_TWO} LEFT JOIN (SELECT cid, k "
    "FROM v GROUP BY cid, k) AS g ON g.cid = f.cid GROUP BY a",
    "several public": f"SELECT a, COUNT(*) AS n FROM {FIRST_TWO} JOIN names ON k < r GROUP BY a",
    "by place": "SELECT r, COUNT(*) AS n FROM (SELECT row_number() OVER (PARTITION BY cid ORDER BY "
    "id) AS r FROM o) WHERE r <= 2 GROUP BY r",
    "between": "SELECT r, COUNT(*) AS n FROM (SELECT row_number() OVER (PARTITION BY cid ORDER BY "
    "id) AS r FROM o) WHERE r BETWEEN 2 AND 3 GROUP BY r",
    "one place": "SELECT r, COUNT(*) AS n FROM (SELECT row_number() OVER (PARTITION BY cid ORDER "
    "BY id) AS r FROM o) WHERE r = 3 GROUP BY r",
}


@pytest.mark.parametrize("sql", WITH_PLACES.values(), ids=WITH_PLACES)
def test_places_bound_no_rows_but_those_that_have_them(shop, sql):
    """Pairs of a row have its place, and there are more of them. No group has another place."""
    unit = dpsql.Unit("c", max_rows={"c": 1, "o": 12, "v": 12, "o, v": 90})
    asked = dpsql.Session(shop, unit=unit, public=["names"])
    wanted = dict(shop.execute(sql).fetchall())
    found = asked.query(sql, budget=LARGE)
    assert dict(zip(found[found.columns[0]], found["n"].round(), strict=True)) == wanted


WIDE = """
CREATE TABLE c (id INTEGER PRIMARY KEY);
CREATE TABLE p (a INTEGER, b INTEGER, cid INTEGER NOT NULL REFERENCES c (id), UNIQUE (a, b));
CREATE TABLE o (id INTEGER PRIMARY KEY, cid INTEGER NOT NULL REFERENCES c (id), a INTEGER, b
  INTEGER, FOREIGN KEY (a, b) REFERENCES p (a, b));
"""


@pytest.fixture
def wide():
    con = duckdb.connect()
    con.execute(WIDE)
    rows = {"o": 9, "p": 9, "o, o": 81, "o, p": 81, "o, o, p": 729}
    return dpsql.Session(con, unit=dpsql.Unit("c", max_rows={"c": 1, **rows}))


@pytest.mark.parametrize("joined", ["JOIN", "SEMI JOIN", "ANTI JOIN"])
def test_references_of_several_columns_may_lead_to_other_units(wide, joined):
    """So a note says that these rows are not met, whatever way the statement goes."""
    of = "(SELECT *, row_number() OVER (PARTITION BY cid ORDER BY a, b) AS r FROM p) AS p"
    for right in ("p", of):
        sql = f"SELECT COUNT(*) AS n FROM o {joined} {right} ON o.a = p.a AND o.b = p.b"
        notes = wide.plan(sql, budget=BUDGET).notes
        assert any("a, b" in note and "another unit" in note for note in notes)


@pytest.mark.parametrize("joined", ["JOIN", "LEFT JOIN", "SEMI JOIN"])
def test_a_reference_is_that_of_one_row(wide, joined):
    sql = (
        "SELECT COUNT(*) AS n FROM o AS x JOIN o AS y ON x.cid = y.cid "
        f"{joined} p ON x.a = p.a AND {{}}.b = p.b"
    )
    assert wide.plan(sql.format("x"), budget=BUDGET).notes
    with pytest.raises(UnsupportedSqlError, match="must say that both rows are of one unit"):
        wide.plan(sql.format("y"), budget=BUDGET)


# ── Units ────────────────────────────────────────────────────────────────────────────────────────


def test_rows_of_other_units_are_met_by_no_front_end(shop, monkeypatch):
    """The session itself looks at whose rows are met, whatever a front end has said of them."""
    units = {"o": dpsql.Unit("id", 3), "s": dpsql.Unit("id", 3)}
    asked = dpsql.Session(shop, schema=dpsql.Schema({}, units=units))
    monkeypatch.setattr(NamedTables, "check_same_units", lambda *_: None, raising=False)
    monkeypatch.setattr(normal._Normal, "__init__", trusting(normal._Normal.__init__))
    monkeypatch.setattr(CountingSelects, "_check_bounded", lambda *_: None)
    sql = "SELECT COUNT(*) AS n FROM o WHERE EXISTS (SELECT 1 FROM s WHERE s.id = o.id)"
    with pytest.raises(SchemaError, match="no FOREIGN KEYs say that these are the same"):
        asked.plan(sql, budget=BUDGET)


def trusting(init):
    """Let whoever describes tables refuse none."""

    def changed(self, of, tables):
        tables.check_same_units = lambda *_: None
        init(self, of, tables)

    return changed


# ── Units that go ────────────────────────────────────────────────────────────────────────────────

PAIRS = list(itertools.product(OF_ORDERS, (0, 4, 36)))


@pytest.mark.parametrize(("name", "gone"), PAIRS)
def test_a_unit_takes_its_own_rows_with_it_and_changes_no_others(name, gone):
    rows = []
    for without in (None, gone):
        con = duckdb.connect()
        con.execute(re.sub(r"PRIMARY KEY|REFERENCES \w\s+\(id\)", "", SHOP))
        if without is not None:
            con.execute(f"DELETE FROM v WHERE cid = {gone}; DELETE FROM o WHERE cid = {gone}")
            con.execute(f"DELETE FROM c WHERE id = {gone}")
        references = {"o.cid": "c.id", "v.cid": "c.id"}
        unit = dpsql.Unit("c", max_rows={"c": 1, "o": 3, "v": 3}, references=references)
        (table,) = tables_of(dpsql.Session(con, unit=unit, public=["names"]), OF_ORDERS[name])
        names = ["id", "n", *table.computed]
        rows.append(kept(con, table, names))
    before, after = rows
    assert after <= before
    assert 0 < (before - after).total() <= 3
