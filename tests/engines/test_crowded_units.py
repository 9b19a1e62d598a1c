"""Many units with many rows, on several threads: no unit has a say in what is kept of another."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.request import Request, named
from dpsql.schema import Domain, Schema, Unit
from dpsql.schema.names import quoted_name
from tests.helpers.described import read_table
from tests.release.test_private_joins import TABLES, shop, units

SCHEMA = Schema(
    {
        "t": {
            "s": Domain.labels(["a", "b"]),
            "z": Domain.dates("2020-01-01", "2020-12-31", zone="UTC"),
        }
    }
)
UNITS, ROWS = 8_400, 30
COLUMNS = "p", "n", "s", "x", "w"
FILL = f"""
    INSERT INTO t SELECT i // {ROWS}, h % 3, ['a', 'A', 'b', 'é'][1 + h // 3 % 4],
        TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (h // 12 % 5) DAY,
        ['0.0', '-0.0', '1.5', 'nan'][1 + h // 60 % 4], h // 240 % 2
    FROM (SELECT i, (hash(i) % 480)::INTEGER AS h FROM range({UNITS * ROWS}) AS r(i))
"""
LARGE = "INSERT INTO t SELECT -1, i % 3, 'a', NULL, i % 7, i % 2 FROM range(1000) AS r(i)"


@pytest.fixture
def con():
    with duckdb.connect(config={"threads": 2}) as con:
        con.execute(
            "CREATE TABLE t (p BIGINT, n INTEGER CHECK (n BETWEEN 0 AND 2), s VARCHAR, "
            "z TIMESTAMPTZ, x DOUBLE, w BIGINT)"
        ).fetchall()
        yield con


def digests(con, k, columns=COLUMNS):
    """Return of each unit a hash of the rows that are kept, in any order, and their number."""
    rows = kept_rows(read_table(con, ("t",), SCHEMA, Unit("p", k)), columns)
    text = ", '|', ".join(f"coalesce({name}::VARCHAR, 'NULL')" for name in columns)
    each = f"md5(list_sort(list(md5(concat({text}))))::VARCHAR)"
    found = con.execute(f"SELECT p, {each}, count(*) FROM ({rows}) GROUP BY p").fetchall()
    return {p: (digest, count) for p, digest, count in found}


@pytest.mark.parametrize("k", [1, 7])
def test_removing_a_large_unit_changes_no_other(con, k):
    """With columns that have no domain, and rows stored otherwise."""
    for statement in (LARGE, FILL):
        con.execute(statement).fetchall()
    before = digests(con, k)
    assert digests(con, k) == before
    assert before.pop(-1)[1] == k
    assert {count for _, count in before.values()} == {k}
    con.execute("DELETE FROM t WHERE p = -1").fetchall()
    assert digests(con, k) == before
    con.execute("CREATE TABLE other AS FROM t ORDER BY hash(rowid)").fetchall()
    con.execute("DELETE FROM t").fetchall()
    con.execute("INSERT INTO t FROM other").fetchall()
    con.execute("SET threads = 1").fetchall()
    assert digests(con, k) == before


def test_rows_of_all_are_kept_where_no_unit_is_crowded(con):
    con.execute(FILL).fetchall()
    con.execute(f"UPDATE t SET p = NULL WHERE p >= {UNITS // 2}").fetchall()
    found = digests(con, ROWS)
    assert len(found) == UNITS // 2
    assert {count for _, count in found.values()} == {ROWS}


def test_with_little_memory(con, tmp_path):
    """What doesn't fit is written to files."""
    con.execute(FILL).fetchall()
    before = digests(con, 7, ("p", "s"))
    con.execute(f"SET temp_directory = '{tmp_path / 'spilled'}'").fetchall()
    con.execute("SET memory_limit = '64MB'").fetchall()
    counted = kept_rows(read_table(con, ("t",), SCHEMA, Unit("p", 7)), ["s"])
    ((rows,),) = con.execute(f"SELECT count(*) FROM ({counted})").fetchall()
    assert rows == sum(count for _, count in before.values())


def test_what_is_computed_of_a_units_rows_depends_on_no_other_unit():
    """Of rows that tie in all but what they refer to, in pieces that other units cut otherwise."""
    functions = (
        "COUNT(x.n), SUM(x.d), SUM(x.n), MIN(x.n), MAX(x.t), COUNT(*) FILTER (WHERE x.d > 1), "
        "AVG(x.d), BOOL_OR(x.d > 2), MIN(x.s), MAX(x.s), COUNT(DISTINCT x.s)"
    )
    asked = [f"(SELECT {one} FROM t x WHERE x.g = t.g{{}})" for one in functions.split(", ")]
    items = ", ".join(f"{one.format('')} IS NULL AS c{i}" for i, one in enumerate(asked))
    more = "x.g = t.g AND (x.d > t.d OR x.t < t.t) AND NOT EXISTS (SELECT 1 FROM t y WHERE y.g = "
    exists = f"EXISTS (SELECT 1 FROM t x WHERE {more}x.g AND y.n > x.n))"
    with duckdb.connect(config={"threads": 2}) as con:
        session = two_steps_away(
            con,
            "hash(i) % 3, hash(i + 1) % 7 / 2, "
            "TIMESTAMP '2020-01-01' + INTERVAL (hash(i + 2) % 9) DAY, "
            "'aAbB'[1 + (hash(i + 3) % 4)::BIGINT]",
        )
        sql = f"SELECT COUNT(*) FROM (SELECT {items}, {exists} AS e FROM t) WHERE "
        sql += " OR ".join([*(f"c{i}" for i in range(len(asked))), "e"])
        table = session._data.declared.compile(Request(named(sql), dpsql.Budget(rho=1))).table
        names = ["g", *(one.name for one in table.added)]
        assert len(names) == 2 + len(asked)

        check_without_the_large_one(con, table, names)


def two_steps_away(con, columns):
    """Fill rows whose unit is two keys away, of one large unit and many small ones."""
    con.execute(
        "CREATE TABLE p (id BIGINT PRIMARY KEY); "
        "CREATE TABLE g (id VARCHAR PRIMARY KEY, p BIGINT REFERENCES p (id)); "
        "CREATE TABLE t (g VARCHAR REFERENCES g (id), n INTEGER, d DECIMAL(9, 2), t TIMESTAMP, "
        "s VARCHAR)"
    )
    units = f"SELECT -1 AS u, i FROM range(1000) AS r(i) UNION ALL SELECT i // {ROWS}, i FROM "
    units += f"range({UNITS * ROWS // 2}) AS r(i)"  # more rows than DuckDB has in a piece
    con.execute(f"INSERT INTO p SELECT DISTINCT u FROM ({units})")
    con.execute(f"INSERT INTO g SELECT DISTINCT u || 'aA'[1 + i % 2], u FROM ({units})")
    con.execute(f"INSERT INTO t SELECT u || 'aA'[1 + i % 2], {columns} FROM ({units})")
    return dpsql.Session(con, unit=dpsql.Unit("p", max_rows={"g": 2, "t": 3}))


def check_without_the_large_one(con, table, names):
    """Remove a large unit, store rows otherwise, use one thread: no other unit's values change."""

    def values():
        rows = kept_rows(table, names)
        text = ", '|', ".join(f"coalesce({quoted_name(name)}::VARCHAR, '-')" for name in names)
        each = f"list_sort(list(concat({text})))::VARCHAR"
        unit = "regexp_extract(g, '-?[0-9]+')"
        return dict(con.execute(f"SELECT {unit}, {each} FROM ({rows}) GROUP BY 1").fetchall())

    before = values()
    assert len(before) == UNITS // 2 + 1
    con.execute("DELETE FROM t WHERE g LIKE '-1_'")
    del before["-1"]
    assert values() == before
    con.execute("CREATE TABLE other AS FROM t ORDER BY hash(rowid); DELETE FROM t")
    con.execute("INSERT INTO t FROM other")
    assert values() == before
    con.execute("SET threads = 1")
    assert values() == before


WINDOWS = [
    "row_number() OVER (PARTITION BY g.p ORDER BY n)",
    "ntile(3) OVER (PARTITION BY g.p ORDER BY d)",
    "rank() OVER (PARTITION BY g.p ORDER BY n)",
    "cume_dist() OVER (PARTITION BY t.g ORDER BY n DESC)",
    "lag(s) OVER (PARTITION BY g.p ORDER BY n)",
    "lead(d, 2) OVER (PARTITION BY g.p, n ORDER BY s)",
    "first_value(s) OVER (PARTITION BY g.p ORDER BY n, d)",
    "nth_value(t, 2) OVER (PARTITION BY g.p ORDER BY n ROWS BETWEEN 1 PRECEDING AND 3 FOLLOWING)",
    "SUM(d) OVER (PARTITION BY g.p ORDER BY n ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "AVG(d) OVER (PARTITION BY g.p ORDER BY n)",
    "COUNT(DISTINCT s) OVER (PARTITION BY g.p)",
    "MAX(s) OVER (PARTITION BY t.g)",
]


def test_what_rows_are_among_those_of_their_unit_depends_on_no_other_unit():
    """With many rows that are alike in all, of which it is left open which one comes first."""
    with duckdb.connect(config={"threads": 2}) as con:
        session = two_steps_away(
            con, "hash(i) % 3, hash(i + 1) % 2 / 2, NULL, 'aA'[1 + (hash(i + 3) % 2)::BIGINT]"
        )
        items = ", ".join(f"{one} IS NULL AS c{i}" for i, one in enumerate(WINDOWS))
        rows = f"SELECT {items} FROM t JOIN g ON t.g = g.id"
        sql = f"SELECT COUNT(*) FROM ({rows}) WHERE "
        sql += " OR ".join(f"c{i}" for i in range(len(WINDOWS)))
        table = session._data.declared.compile(Request(named(sql), dpsql.Budget(rho=1))).table
        names = ["g", *(one.name for one in table.added)]
        assert len(names) == 1 + len(WINDOWS)

        check_without_the_large_one(con, table, names)


def test_rows_on_the_way_to_the_unit_are_joined_once_for_all():
    """What they have is read where the unit is found; other rows are joined to those kept."""
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con)
    sql = "SELECT region, status, city, COUNT(*) AS n FROM items i JOIN orders o ON order_id = o.id"
    sql += " JOIN customers c ON o.customer_id = c.id JOIN addresses a ON o.address_id = a.id"
    schema = units(orders=3, items=5)
    asked = Request(named(sql.replace("region", "c.region") + " GROUP BY ALL"), dpsql.Budget(rho=1))
    table = dpsql.Session(con, schema=schema)._data.declared.compile(asked).table
    columns = ["qty", "order_id.status", "order_id.customer_id.region", "order_id.address_id.city"]
    rows = kept_rows(table, columns)
    assert [rows.count(f'"main"."{name}"') for name in ("items", "orders", "customers")] == [
        1,
        1,
        1,
    ]
    read = ", ".join(map(quoted_name, columns))
    of_all = read_table(con, ("items",), schema, schema.units["items"])
    alone = con.execute(f"SELECT qty FROM ({kept_rows(of_all, ['order_id', 'qty'])})").fetchall()
    found = con.execute(f"SELECT {read} FROM ({rows})").fetchall()
    assert sorted(map(str, alone)) == sorted(str((qty,)) for qty, *_ in found)
    whole = con.execute(
        "SELECT qty, status, c.region, a.city FROM items i JOIN orders o ON order_id = o.id "
        "JOIN customers c ON o.customer_id = c.id LEFT JOIN addresses a ON o.address_id = a.id "
        "AND a.customer_id = c.id"
    ).fetchall()
    assert Counter(found) < Counter(whole)
