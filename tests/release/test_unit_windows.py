"""Windows over the rows of a unit: places, what comes before, running totals: columns of rows."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.errors import SqlError
from dpsql.request import Request, named
from dpsql.schema.names import quoted_name
from tests.release.test_private_joins import (
    HUGE,
    TABLES,
    answers,
    check_without_one,
    con,
    owned,
    session,
    shop,
    units,
)
from tests.release.test_rows_of_units import check_equal
from tests.release.test_sums_of_neighbors import charged, check_alike, recorded, spent

__all__ = ["con", "session"]

OF = "PARTITION BY customer_id"
LINE = f"OVER ({OF} ORDER BY id)"
FIRST = f"SELECT * FROM orders QUALIFY row_number() {LINE} = 1"


def counted(key, item, source="orders"):
    """Count rows by what a window says of them."""
    return f"SELECT {key} AS k, COUNT(*) AS n FROM (SELECT *, {item} AS w FROM {source}) GROUP BY 1"


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (1, counted("LEAST(w, 3)", f"row_number() {LINE}")),
        (1, counted("w = 1", f"rank() OVER ({OF} ORDER BY price DESC)")),
        (1, counted("LEAST(w, 2)", f"dense_rank() OVER ({OF} ORDER BY status NULLS FIRST)")),
        (1, counted("LEAST(w, 3)", f"ntile(3) {LINE}")),
        (1, counted("w <= 0.5", f"cume_dist() OVER ({OF} ORDER BY price NULLS FIRST)")),
        (1, counted("w < 0.4", f"percent_rank() OVER ({OF} ORDER BY status DESC)")),
        (1, counted("w > 7", f"lag(price, 1, -5) {LINE}")),
        (1, counted("w = 'f'", f"lead(status, 2) {LINE}")),
        (1, counted("w = status", f"lag(status) {LINE}")),
        (1, counted("w = 'f'", f"first_value(status) {LINE}")),
        (1, counted("w = 'f'", f"last_value(status) OVER ({OF} ORDER BY id DESC ROWS BETWEEN "
                    "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)")),
        (1, counted("w = 'f'", f"nth_value(status, 2) OVER ({OF} ORDER BY id ROWS BETWEEN 1 "
                    "PRECEDING AND 2 FOLLOWING)")),
        (1, counted("LEAST(w, 9)", f"COUNT(*) OVER ({OF})")),
        (1, counted("w > 300", f"SUM(price) {LINE}")),
        (1, counted("w > 300", f"SUM(price) OVER ({OF} ORDER BY price DESC)")),
        (1, counted("w > 100", f"SUM(price / 3) OVER ({OF} ORDER BY id)")),
        (1, counted("w > 30", f"AVG(price / 3) OVER ({OF}) - MIN(price / 3) OVER ({OF})")),
        (1, counted("w > 300", f"AVG(price) OVER ({OF} ORDER BY id ROWS BETWEEN 2 PRECEDING AND "
                    "CURRENT ROW)")),
        (1, counted("w > 300", f"MAX(price) OVER ({OF}, status)")),
        (1, counted("w = 'f'", f"MIN(status) OVER ({OF} ORDER BY price RANGE BETWEEN CURRENT ROW "
                    "AND UNBOUNDED FOLLOWING)")),
        (1, counted("LEAST(w, 3)", f"COUNT(DISTINCT status) OVER ({OF})")),
        (1, counted("LEAST(w, 3)", f"COUNT(*) FILTER (WHERE price > 7) {LINE}")),
        (1, counted("w", f"BOOL_OR(status = 'f') {LINE}")),
        (1, counted("LEAST(w, 4)", "COUNT(*) OVER (PARTITION BY order_id)", "items")),
        (1, counted("LEAST(w, 4)", "row_number() OVER (PARTITION BY id)", "customers")),
        # WHERE is before windows, QUALIFY after them.
        (1, f"SELECT status, COUNT(*) FROM (SELECT status FROM orders WHERE price > 7 QUALIFY "
            f"row_number() OVER ({OF} ORDER BY id DESC) = 1) GROUP BY 1"),
        (1, f"SELECT status, COUNT(*) FROM (SELECT *, row_number() {LINE} AS w FROM orders) WHERE "
            "price > 7 AND w = 1 GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM (SELECT status, row_number() OVER w AS k FROM (SELECT * "
            f"FROM orders WHERE price > 7) WINDOW w AS ({OF} ORDER BY id) QUALIFY k = 2) GROUP "
            "BY 1"),
        (1, f"WITH x AS ({FIRST}) SELECT status, COUNT(*) AS n, SUM(price) AS p FROM x GROUP BY 1"),
        (2, f"WITH x AS (SELECT *, row_number() OVER w AS k, COUNT(*) FILTER (WHERE status = 'f') "
            f"OVER w AS f, MAX(price) OVER ({OF}) AS m FROM orders WINDOW w AS ({OF} ORDER BY "
            "id)) SELECT LEAST(k, 2) AS k, f > 1 AS f, COUNT(*), AVG(price) FROM x WHERE price = m "
            "GROUP BY ALL"),
        (0, f"SELECT SUM(LEAST(k, 9)) FROM (SELECT row_number() {LINE} AS k FROM orders)"),
        # Windows over what windows have chosen.
        (1, f"SELECT status, COUNT(*) FROM (SELECT status, SUM(price) OVER ({OF}) AS s FROM "
            f"(SELECT * FROM orders QUALIFY row_number() {LINE} <= 2)) WHERE s > 300 GROUP BY 1"),
        (1, f"SELECT w, COUNT(*) FROM (SELECT LEAST(rank() OVER ({OF} ORDER BY s DESC), 3) AS w "
            f"FROM (SELECT *, SUM(price) {LINE} AS s FROM orders)) GROUP BY 1"),
        # Values of a column with a domain have its values.
        (2, f"SELECT status, w, COUNT(*) FROM (SELECT status, lag(status) {LINE} AS w FROM orders) "
            "GROUP BY ALL"),
        (1, counted("w", f"lag(status, 1, 'none') {LINE}")),
        (1, counted("w", f"first_value(region) {LINE}")),
        (1, counted("w", f"MIN(status) {LINE}")),
        (1, counted("LEAST(w, 7)", f"lag(price // 100) {LINE}")),
        (1, counted("w // 100", f"MAX(price) OVER ({OF})")),
        (1, counted("w", "lag(vip) OVER (PARTITION BY c.id ORDER BY o.id)",
                    "orders o JOIN customers c ON o.customer_id = c.id")),
        (0, f"SELECT SUM(price - w), AVG(w) FROM (SELECT price, lag(price) {LINE} AS w FROM "
            "orders)"),
        # The first of each.
        (0, "SELECT COUNT(*) FROM (SELECT DISTINCT ON (customer_id) status FROM orders ORDER BY "
            "customer_id, id) WHERE status = 'f'"),
        (1, "SELECT st, COUNT(*) FROM (SELECT DISTINCT ON (c) customer_id AS c, status AS st, "
            "price + 1 AS p FROM orders WHERE price > 7 ORDER BY c, p DESC, id) GROUP BY 1"),
        (1, "SELECT st, COUNT(*) FROM (SELECT DISTINCT ON (customer_id) id, status AS st FROM "
            "orders ORDER BY 1 DESC) GROUP BY 1"),
        (1, "SELECT st, COUNT(*) FROM (SELECT DISTINCT ON (customer_id, status) status AS st FROM "
            "orders) GROUP BY 1"),
        (1, "WITH x AS (SELECT DISTINCT ON (o.customer_id) * FROM orders o JOIN customers c ON "
            "o.customer_id = c.id ORDER BY o.id) SELECT vip, COUNT(*) FROM x GROUP BY 1"),
        # With what rows refer to, and what they have of other rows.
        (1, f"SELECT c.region, COUNT(*) FROM ({FIRST}) o JOIN customers c ON o.customer_id = c.id "
            "GROUP BY 1"),
        (2, "SELECT q, region, COUNT(*) FROM (SELECT c.region, LEAST(dense_rank() OVER (PARTITION "
            "BY c.id ORDER BY o.price), 3) AS q FROM orders o JOIN customers c ON o.customer_id = "
            "c.id WHERE c.vip) GROUP BY ALL"),
        (1, "SELECT LEAST(n, 4) AS n, SUM(qty) FROM (SELECT i.qty, COUNT(*) OVER (PARTITION BY "
            "o.customer_id) AS n FROM items i JOIN orders o ON i.order_id = o.id) GROUP BY 1"),
        (1, "SELECT status, COUNT(*) FROM (SELECT status, rank() OVER (PARTITION BY customer_id "
            "ORDER BY (SELECT COUNT(*) FROM items i WHERE i.order_id = o.id) DESC, o.id) AS s FROM "
            "orders o) WHERE s = 1 GROUP BY 1"),
        (1, f"SELECT name, COUNT(*) FROM ({FIRST}) o JOIN regions g ON g.code = o.region GROUP "
            "BY 1"),
        # Looked into for other rows.
        (1, f"SELECT c.region, COUNT(*) FROM customers c WHERE EXISTS (SELECT 1 FROM ({FIRST}) o "
            "WHERE o.customer_id = c.id AND o.status = 'f') GROUP BY 1"),
        (0, "SELECT COUNT(*) FROM customers c WHERE (SELECT MAX(d) FROM (SELECT customer_id, "
            f"price - lag(price) {LINE} AS d FROM orders) o WHERE o.customer_id = c.id) > 0"),
        (1, "SELECT p.s > 300 AS k, COUNT(*) FROM customers c JOIN (SELECT customer_id, "
            f"SUM(price) AS s FROM (SELECT * FROM orders QUALIFY row_number() {LINE} <= 2) GROUP "
            "BY 1) p ON p.customer_id = c.id GROUP BY 1"),
        # Units have a say with all of their rows.
        (1, f"SELECT status, COUNT(DISTINCT customer_id) FROM ({FIRST}) GROUP BY 1"),
    ],
)  # fmt: skip
def test_it_is_what_duckdb_says(con, session, keys, sql):
    check_equal(con, session, sql, keys)


FRAMES = [
    f"{kind} BETWEEN {start} AND {end}"
    for kind in ("ROWS", "RANGE")
    for start in ("UNBOUNDED PRECEDING", "1 PRECEDING", "CURRENT ROW")
    for end in ("CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
    if kind == "ROWS" or not any(edge.startswith("1") for edge in (start, end))
]


@pytest.mark.parametrize("frame", ["", *FRAMES])
def test_each_frame_is_meant_as_it_is_written(con, session, frame):
    """Each function over each frame, with an order that ties and one that doesn't, at once."""
    asked, n = [], 0
    for order in ("", "ORDER BY price", "ORDER BY id"):
        if frame.startswith("ROWS") and order != "ORDER BY id":
            continue  # which of equal rows are meant isn't said
        for call, least in (("SUM(price)", 250), ("COUNT(*)", 3), ("AVG(price)", 5)):
            n += 1
            window = f"{call} OVER ({OF} {order} {frame})"
            asked.append((f"w{n}", window, least))
    items = ", ".join(f"{window} AS {name}" for name, window, _ in asked)
    shown = ", ".join(
        f"COUNT(*) FILTER (WHERE {name} > {least}) AS {name}" for name, _, least in asked
    )
    sql = f"SELECT {shown} FROM (SELECT *, {items} FROM orders)"
    check_equal(con, session, sql, 0)


def test_pairs_of_rows_have_places_too():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE people (id INTEGER PRIMARY KEY); "
        "CREATE TABLE trips (p INTEGER REFERENCES people (id), day INTEGER); "
        "CREATE TABLE calls (p INTEGER REFERENCES people (id), n INTEGER);"
        "INSERT INTO people SELECT i FROM range(9) AS t(i);"
        "INSERT INTO trips SELECT i % 9, i FROM range(20) AS t(i);"
        "INSERT INTO calls SELECT i % 8, 100 * i FROM range(30) AS t(i)"
    )
    rows = {"trips": 9, "calls": 9, "calls, trips": 99}
    session = dpsql.Session(con, unit=dpsql.Unit("people", max_rows=rows))
    sql = (
        "SELECT LEAST(w, 4) AS k, COUNT(*) AS n FROM (SELECT rank() OVER (PARTITION BY {} ORDER BY "
        "day + n) AS w FROM trips t JOIN calls c ON t.p = c.p) GROUP BY 1"
    )
    for column in ("t.p", "c.p"):
        found = dict(answers(session, sql.format(column)).rows())
        assert found == pytest.approx(dict(con.execute(sql.format(column)).fetchall()), abs=0.1)
    with pytest.raises(SqlError, match="single rows") as caught:
        session.query(sql.format("day"), budget=HUGE)
    assert "PARTITION BY t.p …" in caught.value.hint


def test_an_enum_has_an_order_of_its_own():
    con = duckdb.connect()
    con.execute("CREATE TYPE size AS ENUM ('small', 'large', 'huge')")
    con.execute("CREATE TABLE t (p INTEGER, s size, n INTEGER NOT NULL CHECK (n IN (0, 1)))")
    con.execute("INSERT INTO t VALUES (1, 'huge', 0), (1, 'small', 1), (2, 'large', 1)")
    session = dpsql.Session(con, unit="p", max_rows=3)
    inner = "SELECT n, rank() OVER (PARTITION BY p ORDER BY s) AS k FROM t"
    sql = f"SELECT n, COUNT(*) FROM ({inner}) WHERE k = 1 GROUP BY 1 ORDER BY 1"
    assert answers(session, sql)["count"].to_list() == pytest.approx([0, 2], abs=0.1)


def test_windows_look_at_all_rows_of_a_unit_however_many_count(con):
    """One order of each customer counts, with the number of all of them."""
    session = dpsql.Session(con, schema=units(orders=1))
    sql = counted("LEAST(w, 9)", f"COUNT(*) OVER ({OF})")
    found = dict(answers(session, sql).rows())
    true = "SELECT n, COUNT(*) FROM (SELECT COUNT(*) n FROM orders WHERE customer_id IS NOT NULL "
    for n, customers in con.execute(f"{true} GROUP BY customer_id) GROUP BY 1").fetchall():
        assert found.pop(n) == pytest.approx(customers, abs=0.1)
    assert all(abs(n) < 0.1 for n in found.values())
    # Each customer's first order is looked at, whichever order counts.
    chosen = FIRST.replace("row_number", "rank")
    sql = f"SELECT status, COUNT(DISTINCT customer_id) AS n FROM ({chosen}) GROUP BY 1"
    rows = session.plan({"q": f"SELECT COUNT(*) AS n FROM ({chosen})"}, budget=HUGE)
    assert "counts only if it is one of them" in rows.notes[0]
    check_equal(con, session, sql, 1)
    first = answers(session, f"SELECT COUNT(*) AS n FROM ({chosen})")["n"][0]
    assert first < answers(session, "SELECT COUNT(*) AS n FROM orders")["n"][0] - 1


def test_statements_with_windows_are_planned_with_those_without(session):
    script = {
        "plain": "SELECT status, COUNT(*) AS n FROM orders GROUP BY 1",
        "first": f"SELECT status, COUNT(*) AS n FROM ({FIRST}) GROUP BY 1",
        "both": f"SELECT status, k, COUNT(*) AS n FROM (SELECT *, row_number() {LINE} = 1 AS k "
        "FROM orders) GROUP BY ALL",
    }
    session.release({"both": script["both"]}, budget=dpsql.Budget(rho=1))
    assert session.query(script["plain"], budget=0).height == 4
    release = session.release(script, budget=dpsql.Budget(rho=1))
    assert release["first"].columns == ["status", "n", "n_variance"]


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT status, COUNT(*) AS n FROM ({FIRST}) GROUP BY 1",
        "SELECT status, COUNT(*) AS n FROM orders o WHERE EXISTS (SELECT 1 FROM orders p WHERE "
        "p.customer_id = o.customer_id AND p.price > o.price) GROUP BY 1",
    ],
)
def test_a_release_answers_again_what_it_was_asked(session, sql, tmp_path):
    release = session.release({"q": sql}, budget=dpsql.Budget(rho=1))
    release.save(tmp_path / "out")
    for known in (release, dpsql.Release.load(tmp_path / "out")):
        assert known.query(sql).rows() == release["q"].rows()


def test_which_row_comes_first_of_equal_ones_is_told_by_all_of_their_columns():
    """The owner may store them otherwise: what is measured stays the same."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (p INTEGER, n INTEGER CHECK (n BETWEEN 0 AND 9), s VARCHAR)")
    con.execute(
        "INSERT INTO t SELECT i % 3, i % 2, chr((97 + i % 7)::INTEGER) FROM range(60) AS r(i)"
    )
    session = dpsql.Session(con, unit="p", max_rows=7)
    sql = (
        "SELECT LEAST(k, 3) AS k, s IN ('a', 'b') AS s, COUNT(*) AS c, SUM(n) AS v FROM (SELECT *, "
        "row_number() OVER (PARTITION BY p ORDER BY n) AS k FROM t) GROUP BY ALL"
    )
    before = answers(session, sql).rows()
    con.execute("CREATE TABLE other AS FROM t ORDER BY hash(rowid); DELETE FROM t")
    con.execute("INSERT INTO t FROM other")
    for mine, theirs in zip(answers(session, sql).rows(), before, strict=True):
        assert mine == pytest.approx(theirs, abs=0.1)


@pytest.mark.parametrize("name", ["u_unit", "u_unit_line", "uu_unit_line", "u_line", "t", "u_n"])
def test_no_column_is_taken_for_one_of_ours(name):
    con = duckdb.connect()
    con.execute(TABLES)
    shop(con)
    whole = owned(con)
    for each in (con, whole):
        each.execute(f"ALTER TABLE orders ADD COLUMN {name} INTEGER")
        each.execute(f"UPDATE orders SET {name} = -id")
    session = dpsql.Session(con, schema=units(orders=3))
    sql = f"SELECT {name} < -40 AS x, COUNT(DISTINCT customer_id) AS n FROM ({FIRST}) GROUP BY 1"
    found = answers(session, sql).rows()
    found = {key: n for key, n in found if n > 0.5}
    assert found == pytest.approx(dict(whole.execute(sql).fetchall()), abs=0.1)
    last = f"OVER ({OF} ORDER BY {name})"
    sql = f"SELECT COUNT(*) AS n FROM (SELECT * FROM orders QUALIFY row_number() {last} <= 99)"
    kept = sum(min(n, 3) for (n,) in whole.execute(
        "SELECT COUNT(*) FROM orders GROUP BY customer_id").fetchall())  # fmt: skip
    assert answers(session, sql)["n"][0] == pytest.approx(kept, abs=0.1)


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ("SELECT row_number() OVER () AS w FROM orders", "single rows"),
        ("SELECT row_number() OVER (ORDER BY id) AS w FROM orders", "single rows"),
        ("SELECT COUNT(*) OVER () AS w FROM orders", "single rows"),
        ("SELECT rank() OVER (PARTITION BY status ORDER BY id) AS w FROM orders", "single rows"),
        ("SELECT rank() OVER (PARTITION BY id + 0) AS w FROM orders", "single rows"),
        ("SELECT rank() OVER (PARTITION BY customer_id + 0) AS w FROM orders", "single rows"),
        ("SELECT rank() OVER (PARTITION BY COALESCE(customer_id, 1)) AS w FROM orders", "single"),
        ("SELECT rank() OVER (PARTITION BY city) AS w FROM stores", "can't stand here"),
        ("SELECT rank() OVER (PARTITION BY nothing) AS w FROM orders", "no column nothing"),
        (f"SELECT rank() OVER ({OF} ORDER BY nothing) AS w FROM orders", "no column nothing"),
        (f"SELECT rank() OVER ({OF}, price / 3) AS w FROM orders", "PARTITION BY DOUBLE"),
        (f"SELECT SUM(id / 3) OVER ({OF}) AS w FROM orders", "no public bounds"),
        (f"SELECT AVG(id::DOUBLE) OVER ({OF}) AS w FROM orders", "no public bounds"),
        (f"SELECT SUM(DISTINCT price) OVER ({OF}) AS w FROM orders", "DISTINCT in this window"),
        (f"SELECT COUNT(DISTINCT price) {LINE} AS w FROM orders", "COUNT.DISTINCT …. of some"),
        (f"SELECT ANY_VALUE(price) OVER ({OF}) AS w FROM orders", "not supported"),
        (f"SELECT MODE(price) OVER ({OF}) AS w FROM orders", "not supported"),
        (f"SELECT STDDEV(price) OVER ({OF}) AS w FROM orders", "This window is not supported"),
        (f"SELECT MEDIAN(price) OVER ({OF}) AS w FROM orders", "This window is not supported"),
        (f"SELECT COUNT_IF(price > 3) OVER ({OF}) AS w FROM orders", "This window is not supp"),
        (f"SELECT STRING_AGG(status, ',') OVER ({OF}) AS w FROM orders", "not supported"),
        (f"SELECT last_value(price) {LINE} AS w FROM orders", "equal in ORDER BY"),
        (f"SELECT nth_value(price, 2) {LINE} AS w FROM orders", "equal in ORDER BY"),
        (f"SELECT lag(price, id) {LINE} AS w FROM orders", "must be a constant"),
        (f"SELECT lag(price, -1) {LINE} AS w FROM orders", "must be a constant"),
        (f"SELECT lag(price, 10000000) {LINE} AS w FROM orders", "must be a constant"),
        (f"SELECT ntile(0) {LINE} AS w FROM orders", "must be a constant"),
        (f"SELECT lag(price IGNORE NULLS) {LINE} AS w FROM orders", "IGNORE NULLS"),
        (f"SELECT SUM(price) OVER ({OF} ORDER BY id RANGE BETWEEN 3 PRECEDING AND CURRENT ROW) AS "
         "w FROM orders", "This frame"),
        (f"SELECT SUM(price) OVER ({OF} ORDER BY id GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS "
         "w FROM orders", "frame|GROUPS|read in more"),
        (f"SELECT SUM(price) OVER ({OF} ORDER BY id ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING) AS "
         "w FROM orders", "This frame"),
        (f"SELECT SUM(price) OVER ({OF} ORDER BY id ROWS BETWEEN price PRECEDING AND CURRENT ROW) "
         "AS w FROM orders", "must be a constant"),
        (f"SELECT rank() OVER ({OF} ORDER BY rank() OVER ({OF})) AS w FROM orders", "can't stand"),
        (f"SELECT rank() OVER ({OF} ORDER BY random()) AS w FROM orders", "random"),
        (f"SELECT rank() OVER ({OF} ORDER BY rowid) AS w FROM orders", "singles out rows"),
        (f"SELECT 1 AS w FROM orders WHERE rank() OVER ({OF}) = 1", "can't stand here"),
        ("SELECT rank() OVER x AS w FROM orders", "no window x"),
        ("SELECT DISTINCT ON (status) price AS w FROM orders ORDER BY status, id", "single rows"),
        (f"SELECT DISTINCT ON (customer_id) price AS w FROM orders QUALIFY rank() OVER ({OF}) = 1",
         "This DISTINCT ON"),
        ("SELECT DISTINCT ON (city) id AS w FROM stores", "DISTINCT ON of single rows"),
        ("SELECT price AS w FROM orders QUALIFY price > 3 AND row_number() OVER () = 1", "single"),
    ],
)  # fmt: skip
def test_others_are_refused_before_the_charge(session, inner, said):
    with pytest.raises(SqlError, match=said) as caught:
        session.query(f"SELECT COUNT(*) FROM ({inner}) WHERE w > 1", budget=dpsql.Budget(rho=1))
    assert caught.value.hint
    assert not session.history.height


@pytest.mark.parametrize(
    "inner",
    [
        f"SELECT COUNT(*) OVER ({OF}) AS w FROM orders o JOIN regions g ON g.code = o.region",
        f"SELECT row_number() {LINE} AS w FROM orders o JOIN regions g ON g.code >= o.region "
        "WHERE g.code = 's'",
        f"SELECT w FROM items i JOIN (SELECT id, rank() OVER ({OF} ORDER BY price, id) AS w FROM "
        "orders) o ON i.order_id = o.id",
        f"SELECT w FROM (SELECT id, rank() {LINE} AS w FROM orders) o WHERE EXISTS (SELECT 1 "
        "FROM items i WHERE i.order_id = o.id AND i.qty > o.w)",
    ],
)
def test_windows_of_relations_are_what_duckdb_says(con, session, inner):
    check_equal(con, session, f"SELECT COUNT(*) FROM ({inner}) WHERE w > 1", 0)


def test_a_hint_names_what_tells_the_unit(session):
    for table, columns in {"orders": "customer_id", "items": "order_id", "customers": "id"}.items():
        bad = f"SELECT COUNT(*) AS n FROM (SELECT COUNT(*) OVER () AS w FROM {table}) WHERE w > 1"
        with pytest.raises(SqlError, match="single rows") as caught:
            session.query(bad, budget=HUGE)
        assert f"OVER (PARTITION BY {columns} …)" in caught.value.hint
        session.query(bad.replace("OVER ()", f"OVER (PARTITION BY {columns})"), budget=HUGE)


def test_a_place_lies_among_the_rows_that_count(con, session):
    rows = f"(SELECT row_number() {LINE} AS w FROM orders)"
    placed = f"SELECT w, COUNT(*) AS n FROM {rows} GROUP BY 1"
    found = {w: round(n) for w, n in answers(session, placed).rows() if round(n)}
    assert found == dict(owned(con).execute(placed).fetchall())
    added = f"SELECT SUM(w) AS s FROM {rows}"
    ((true,),) = owned(con).execute(added).fetchall()
    assert answers(session, added).item() == pytest.approx(float(true), rel=1e-4)


SCRIPTS = [
    {"a": f"SELECT status, COUNT(*) AS n, SUM(price) AS p FROM ({FIRST}) GROUP BY 1"},
    {"a": counted("LEAST(w, 3)", f"row_number() OVER ({OF} ORDER BY price)"),
     "b": counted("w = 'f'", f"lag(status) OVER ({OF} ORDER BY price DESC)")},
    {"a": f"SELECT c.region, COUNT(*) AS n FROM customers c WHERE EXISTS (SELECT 1 FROM ({FIRST}) "
          "o WHERE o.customer_id = c.id AND o.price > 7) GROUP BY 1"},
    {"a": "SELECT k, city, COUNT(*) AS n FROM (SELECT city, LEAST(COUNT(*) OVER (PARTITION BY "
          "o.customer_id, a.city), 3) AS k FROM orders o LEFT JOIN addresses a ON o.address_id = "
          "a.id) GROUP BY ALL"},
    {"a": counted("w > 300", f"SUM(price) OVER ({OF} ORDER BY status ROWS BETWEEN 1 PRECEDING AND "
                  "1 FOLLOWING)"),
     "b": counted("LEAST(w, 3)", "rank() OVER (PARTITION BY order_id ORDER BY qty)", "items")},
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(80))
def test_neighbors_differ_by_what_is_charged(seed):
    check_without_one(seed, SCRIPTS[seed % len(SCRIPTS)])


TIED = """
    CREATE TABLE t (p INTEGER, n INTEGER CHECK (n BETWEEN 0 AND 2),
        s VARCHAR CHECK (s IN ('a', 'b')), x INTEGER);
    INSERT INTO t SELECT hash(i) % 40, hash(i + 1) % 3, ['a', 'b'][1 + (hash(i + 2) % 3)::INTEGER],
        hash(i + 3) % 4 FROM range(900) AS r(i)
"""
CHOSEN = (
    "SELECT s, COUNT(*) AS c, SUM(n) AS v FROM (SELECT *, row_number() OVER (PARTITION BY p ORDER "
    "BY x) AS k, rank() OVER (PARTITION BY p ORDER BY s) AS q FROM t) WHERE k <= 3 OR q = 2 "
    "GROUP BY 1"
)
BOUNDS = [
    dpsql.Unit("p", 1),
    dpsql.Unit("p", 9),
    dpsql.Unit("p", 5, max_rows_per={"s": 2}),
    dpsql.Unit("p", 9, max_rows_per={"n": 3, "s": 2}),
]


@pytest.mark.parametrize("unit", BOUNDS)
def test_the_same_rows_count_with_windows_and_without(unit):
    con = duckdb.connect()
    con.execute(TIED).fetchall()
    session = dpsql.Session(con, unit=unit)
    table = session._data.declared.compile(Request(named(CHOSEN), HUGE)).table
    stored = ["p", "n", "s", "x"]

    def rows(names):
        parameters = Parameters()
        listed = ", ".join(map(quoted_name, names))
        sql = f"SELECT {listed} FROM ({kept_rows(table, names, parameters)})"
        return Counter(con.execute(sql, parameters.values).fetchall())

    whole = rows([*stored, *table.computed])
    assert len(table.computed) == 2
    for names, places in ((stored, [0, 1, 2, 3]), (["s", *table.computed], [2, 4, 5])):
        shown = Counter()
        for row, count in whole.items():
            shown[tuple(row[place] for place in places)] += count
        assert rows(names) == shown


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", BOUNDS[1:])
def test_neighbors_under_limits_differ_by_what_is_charged(unit):
    con = duckdb.connect()
    con.execute(TIED).fetchall()
    asked = {"script": {"a": CHOSEN}, "schema": dpsql.Schema({}, units={"t": unit})}
    how = {"budget": dpsql.Budget(rho=1)}
    whole, changes = recorded(con, asked, **how), []
    for person in range(0, 40, 4):
        con.execute(f"CREATE TEMP TABLE gone AS FROM t WHERE p = {person}").fetchall()
        con.execute(f"DELETE FROM t WHERE p = {person}").fetchall()
        fewer = recorded(con, asked, **how)
        check_alike(whole, fewer)
        changes.append(spent(whole, fewer))
        con.execute("INSERT INTO t FROM gone; DROP TABLE gone").fetchall()
    assert 0 < max(changes) <= charged(whole)
