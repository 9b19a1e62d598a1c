"""Which rows count where units are bounded: an oracle in Python, and neighbours of every kind."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.errors import InternalError
from dpsql.schema import Domain, Schema, Unit
from tests.helpers.described import read_table

SCHEMA = Schema({"t": {"s": Domain.labels(["a", "A", "ab"])}})
COLUMNS = "p VARCHAR, s VARCHAR, n INTEGER CHECK (n BETWEEN 0 AND 3), b BOOLEAN"


def connect(rows, columns=COLUMNS, settings=""):
    con = duckdb.connect()
    con.execute(settings).fetchall() if settings else None
    con.execute(f"CREATE TABLE t ({columns})").fetchall()
    fill(con, rows)
    return con


def fill(con, rows):
    """Put these rows in the place of all others: a new database for each example takes long."""
    con.execute("DELETE FROM t").fetchall()
    if rows:  # by column, which is far faster than by row
        texts = [
            [None if v is None else str(v) for v in column] for column in zip(*rows, strict=True)
        ]
        lists = ", ".join("unnest(?::VARCHAR[])" for _ in texts)
        con.execute(f"INSERT INTO t SELECT {lists}", texts).fetchall()


def marginals(con, k, wanted=(("s", "n", "b"),), key="p", schema=SCHEMA):
    table = read_table(con, ("t",), schema, Unit(key, k))
    return DuckDBEngine(con).marginals(table, list(wanted))


def kept(rows, k):
    """Keep k rows of each unit by the rule that `dpsql/engines/duckdb/bounded.py` states."""
    units = defaultdict(list)
    for row in rows:
        if row[0] is not None:
            units[row[0]].append(row[1:])
    return [row for name, owned in units.items() for row in kept_of(name, owned, k)]


def kept_of(name, owned, k):
    """Keep k rows of one unit."""
    n = len(owned)
    if n <= k:
        return owned
    lined_up = sorted(owned, key=lambda row: [(v is not None, key(v)) for v in row])
    id_ = "".join(chr(c) if 32 <= c < 127 else f"\\x{c:02X}" for c in name.encode())
    m = int.from_bytes(hashlib.md5(id_.encode()).digest(), "little")  # noqa: S324
    s, a, b = m % 2**62 % n, m // 2**64 % 2**31, m // 2**96 % 2**31
    result = []
    for r, row in enumerate(lined_up):
        q = (r + s) % n
        j = q * k // n
        first, after = -(-j * n // k), -(-(j + 1) * n // k)
        if q == first + (a * j + b) % (2**31 - 1) % (after - first):
            result.append(row)
    return result


def key(value):
    return b"" if value is None else value.encode() if isinstance(value, str) else value


def expected(rows, k):
    counts = np.zeros((4, 5, 3), dtype=np.int64)  # the last label's cell is for other texts
    for s, n, b in kept(rows, k):
        label = {"a": 0, "A": 1, "ab": 2}.get(s, 3)
        counts[label, 4 if n is None else n, 2 if b is None else int(b)] += 1
    return counts


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["u", "U", "v", "ü", "", "u|1", None]),
        st.sampled_from(["a", "A", "ab", "1:a", "-", None]),
        st.sampled_from([0, 1, 2, 3, None]),
        st.sampled_from([True, False, None]),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def refilled():
    """Give the counts of any rows of the same table."""
    con = connect([])
    tables = {k: read_table(con, ("t",), SCHEMA, Unit("p", k)) for k in range(1, 5)}

    def counts(rows, k):
        fill(con, rows)
        return DuckDBEngine(con).marginals(tables[k], [("s", "n", "b")])["s", "n", "b"]

    return counts


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ROWS, st.integers(1, 4))
def test_the_rows_of_the_oracle_are_kept(refilled, rows, k):
    counts = refilled(rows, k)
    np.testing.assert_array_equal(counts, expected(rows, k))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(ROWS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_unit_adds_at_most_k_rows_and_moves_no_others(refilled, rows, k, shuffled):
    """Whatever the order of storage: neighbours differ by rows of one unit, at most k of them."""
    whole = refilled(rows, k)
    for unit in {row[0] for row in rows}:
        rest = [row for row in rows if row[0] != unit]
        shuffled.shuffle(rest)
        difference = whole - refilled(rest, k)
        assert (difference >= 0).all()
        assert difference.sum() <= (0 if unit is None else k)


@pytest.mark.parametrize("collation", ["NOCASE", "NFC", "DE"])
def test_a_collation_makes_no_two_units_one(collation):
    """If it did, removing 'u' could let more rows of 'U' in."""
    rows = [("u", "a", 0, True), ("U", "A", 1, False), ("u", "a", 2, True), ("U", "A", 3, True)]
    plain = marginals(connect(rows), 1)["s", "n", "b"]
    assert plain.sum() == 2
    collated = f"p VARCHAR COLLATE {collation}, s VARCHAR COLLATE {collation}, n INTEGER CHECK "
    collated += "(n BETWEEN 0 AND 3), b BOOLEAN"
    try:
        con = connect(rows, collated)
    except duckdb.Error:
        pytest.skip("this collation is not built in")
    np.testing.assert_array_equal(marginals(con, 1)["s", "n", "b"], plain)


def test_a_collation_of_the_connection_makes_no_two_units_one():
    rows = [("u", "a", 0, True), ("U", "A", 0, True), ("u", "A", 0, True), ("U", "a", 0, True)]
    plain = marginals(connect(rows), 1)["s", "n", "b"]
    con = connect(rows, settings="SET default_collation = 'NOCASE'")
    np.testing.assert_array_equal(marginals(con, 1)["s", "n", "b"], plain)


def test_all_statements_see_the_same_rows():
    """Also those of columns that drop rows, and whichever columns are asked for."""
    rows = [
        (str(i % 40), ("a", "A", "ab")[i * i % 7 % 3], i * 31 % 11 % 4, True) for i in range(400)
    ]
    con = connect(rows)
    joint = marginals(con, 3)["s", "n", "b"]
    assert joint.sum() == 120
    for wanted in ([("s",)], [("n",), ("b",)], [()], [("n", "s")]):
        for marginal, counts in marginals(con, 3, wanted).items():
            axes = [("s", "n", "b").index(a) for a in marginal]
            summed = joint.sum(axis=tuple(i for i in range(3) if i not in axes))
            order = [sorted(axes).index(a) for a in axes]
            np.testing.assert_array_equal(counts, summed.transpose(order) if axes else summed)


def test_the_sample_does_not_prefer_values():
    """A person with as many rows of each of two kinds keeps either with the same chance."""
    rows = [(str(i), s, 0, True) for i in range(2000) for s in ("a", "ab")]
    first, _, second, _ = marginals(connect(rows), 1, [("s",)])["s",].tolist()
    assert first + second == 2000
    assert abs(first - 1000) < 4.5 * np.sqrt(500)


def test_copies_of_a_row_count_for_themselves():
    """A person with nine equal rows and one other keeps the other in a tenth of cases."""
    rows = [(str(i), "a", 0, True) for i in range(2000) for _ in range(9)]
    rows += [(str(i), "ab", 0, True) for i in range(2000)]
    other = marginals(connect(rows), 1, [("s",)])["s",][2]
    assert abs(other - 200) < 4.5 * np.sqrt(180)


def test_every_row_of_a_unit_is_kept_with_the_same_chance():
    """Wherever it stands among the others: at the ends, and where k doesn't divide the rows."""
    n, k, units = 7, 3, 3000
    con = connect([], "p VARCHAR, v INTEGER CHECK (v BETWEEN 0 AND 6)")
    con.execute(
        f"INSERT INTO t SELECT i // {n}, i % {n} FROM range({n * units}) AS r(i)"
    ).fetchall()
    counts = marginals(con, k, [("v",)], schema=None)["v",][:n]
    assert counts.sum() == k * units
    chance = k / n
    assert np.abs(counts - units * chance).max() < 4.5 * np.sqrt(units * chance * (1 - chance))


def test_rows_in_pairs_are_not_kept_by_their_place_in_the_pair():
    """As would be if the same place was taken in each stretch."""
    units, days = 200, 40
    con = connect([], "p VARCHAR, d UTINYINT CHECK (d < 40), evening BOOLEAN NOT NULL")
    con.execute(
        f"INSERT INTO t SELECT i // {2 * days}, i // 2 % {days}, i % 2 = 1 "
        f"FROM range({units * 2 * days}) AS r(i)"
    ).fetchall()
    evenings = marginals(con, days, [("evening",)], schema=None)["evening",][1]
    assert abs(evenings - units * days / 2) < 4.5 * np.sqrt(units * days / 4)


def test_values_that_are_equal_and_not_the_same_are_told_apart():
    """Texts under a collation, the zeros of floats: who comes first must not be open."""
    con = connect([], "p INTEGER, s VARCHAR COLLATE NOCASE, x FLOAT, y DOUBLE")
    table = read_table(con, ("t",), Schema({"t": {"s": Domain.labels(["a"])}}), Unit("p", 3))
    shown = f"SELECT p, encode(s), x::VARCHAR, y::VARCHAR FROM ({kept_rows(table, 'psxy')})"
    found = []
    for order in ("ASC", "DESC"):
        con.execute("DELETE FROM t").fetchall()
        con.execute(
            "INSERT INTO t SELECT i, ['a', 'A'][1 + j % 2], ['0.0', '-0.0'][1 + j // 2 % 2], "
            "['0.0', '-0.0'][1 + j // 4] FROM range(300) AS r(i), range(8) AS q(j) "
            f"ORDER BY j {order}"
        ).fetchall()
        found.append(sorted(con.execute(shown).fetchall()))
    assert found[0] == found[1]
    assert len(found[0]) == 900
    assert len({row[1:] for row in found[0]}) == 8


def test_a_unit_with_a_thousand_rows_counts_k_times():
    rows = [("u", "a", 1, True)] * 1000 + [(str(i), "ab", 2, False) for i in range(5)]
    for k in (1, 3, 999, 1000, 1001):
        counts = marginals(connect(rows), k, [("s",)])["s",]
        assert counts.tolist() == [min(k, 1000), 0, 5, 0]


def test_odd_names():
    columns = '"u_id" INTEGER, "a""; --" BOOLEAN NOT NULL, kept BOOLEAN, t0 BOOLEAN, u_copy BOOLEAN'
    con = connect([(1, True, True, True, True), (1, True, True, False, True)], columns)
    wanted = [("kept", "t0"), ('a"; --', "u_copy")]
    for key in ("u_id", 'a"; --', "t0"):
        found = marginals(con, 1, wanted, key, None)
        rows = 2 if key == "t0" else 1
        assert [counts.sum() for counts in found.values()] == [rows, rows]


@pytest.mark.parametrize(
    ("type_", "ids"),
    [
        ("UUID", ["'00000000-0000-0000-0000-000000000001'", "uuid()"]),
        ("BLOB", [r"'\x00\xff'::BLOB", "''::BLOB"]),
        ("HUGEINT", ["-(2::HUGEINT ** 126)::HUGEINT", "(2::HUGEINT ** 126)::HUGEINT"]),
        ("ENUM('x', 'y''')", ["'x'", "'y'''"]),
        ("DECIMAL(38,2)", ["1.10", "1.1"]),
        ("DATE", ["'infinity'", "'5877642-06-25 (BC)'"]),
        ("TIMESTAMP", ["'-infinity'", "'290309-12-22 (BC) 00:00:00'"]),
        ("VARCHAR", ["'a'", "chr(0)"]),
    ],
)  # fmt: skip
def test_ids_of_every_type(type_, ids):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (p {type_}, b BOOLEAN NOT NULL)").fetchall()
    for i in [*ids, "NULL", ids[0]]:
        con.execute(f"INSERT INTO t VALUES ({i}, true)").fetchall()
    distinct = con.execute("SELECT count(DISTINCT p) FROM t").fetchall()[0][0]
    assert marginals(con, 1, [("b",)], schema=None)["b",].tolist() == [0, distinct]


def test_a_table_in_which_no_other_column_has_a_domain():
    con = connect([(1,), (1,), (2,), (None,)], "p INTEGER")
    assert marginals(con, 1, [()], schema=None)[()] == 2
    assert marginals(con, 2, [()], schema=None)[()] == 3


def test_rows_outside_a_domain_are_kept_like_others():
    rows = [("u", "other", 1, True), ("v", "a", 1, True)]
    counts = marginals(connect(rows), 1, [("s", "n"), ("n",)])
    assert counts["s", "n"].sum(axis=0).tolist() == counts["n",].tolist()
    assert counts["n",].sum() == 2


SHOP = """
    CREATE TABLE customers (id VARCHAR COLLATE NOCASE PRIMARY KEY, region VARCHAR);
    CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id VARCHAR REFERENCES customers(id));
    CREATE TABLE t (order_id INTEGER REFERENCES orders(id), s VARCHAR);
    INSERT INTO customers VALUES ('ann', 'n'), ('bob', NULL), ('eve', 'n');
    INSERT INTO orders VALUES (1, 'ann'), (2, 'ann'), (3, 'bob'), (4, NULL), (5, 'eve');
    INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, 'a'), (3, 'A'), (3, 'A'), (4, 'ab'), (NULL, 'ab'),
        (5, 'ab'), (5, 'a');
"""


@pytest.mark.parametrize(
    ("key", "k", "total"),
    [
        ("orders", 1, 5),  # the rows of the order of nobody have an order
        ("orders", 2, 8),
        ("customers", 1, 3),
        ("customers", 2, 6),
        ("customers", 9, 7),
        ("orders.customer_id", 2, 6),
        ("customers.region", 1, 1),
        ("customers.region", 9, 5),
    ],
)
def test_units_in_other_tables(key, k, total):
    con = duckdb.connect()
    con.execute(SHOP).fetchall()
    assert marginals(con, k, [("s",)], key)["s",].sum() == total


def test_a_table_on_the_way_may_have_any_names():
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE crowded (u_id INTEGER PRIMARY KEY, u_n BIGINT, u_s BIGINT, u_a BIGINT, "
        "u_b BIGINT, u_q BIGINT, n INTEGER)"
    ).fetchall()
    con.execute("CREATE TABLE t (c INTEGER REFERENCES crowded(u_id), s VARCHAR)").fetchall()
    con.execute("INSERT INTO crowded SELECT i, 0, 0, 0, 0, 0, 0 FROM range(3) AS r(i)").fetchall()
    con.execute("INSERT INTO t SELECT i % 3, 'a' FROM range(20) AS r(i)").fetchall()
    assert marginals(con, 4, [("s",)], "crowded")["s",].sum() == 12


def test_removing_a_customer_with_all_orders_and_items():
    con = duckdb.connect()
    con.execute(SHOP).fetchall()
    before = marginals(con, 2, [("s",)], "customers")["s",]
    for table, condition in (("t", "order_id IN (1, 2)"), ("orders", "id IN (1, 2)")):
        con.execute(f"DELETE FROM {table} WHERE {condition}").fetchall()
    after = marginals(con, 2, [("s",)], "customers")["s",]
    assert (before - after).tolist() == [2, 0, 0, 0]


@pytest.fixture(scope="module")
def shop():
    con = duckdb.connect()
    con.execute(SHOP.split("INSERT")[0]).fetchall()
    con.execute("INSERT INTO customers SELECT range, NULL FROM range(3)").fetchall()
    return con


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["a", "A", "ab"])), max_size=25),
    st.integers(1, 3),
)
def test_a_customer_adds_at_most_k_items(shop, owners, items, k):
    """Two steps away, with orders of nobody and items of no order."""
    for table in ("t", "orders"):
        shop.execute(f"DELETE FROM {table}").fetchall()
    shop.execute("INSERT INTO orders SELECT unnest(?), unnest(?::VARCHAR[])",
                 [list(range(len(owners))), owners]).fetchall()  # fmt: skip

    def counts(without):
        placed = [(o if o < len(owners) else None, s) for o, s in items]
        left = [(o, s) for o, s in placed if o is None or owners[o] not in without]
        shop.execute("DELETE FROM t").fetchall()
        shop.execute("INSERT INTO t SELECT unnest(?::INTEGER[]), unnest(?::VARCHAR[])",
                     [[o for o, _ in left], [s for _, s in left]]).fetchall()  # fmt: skip
        return marginals(shop, k, [("s",)], "customers")["s",], left

    whole, _ = counts(set())
    for customer in range(3):
        rest, left = counts({customer})
        difference = whole - rest
        assert (difference >= 0).all()
        assert difference.sum() == min(k, len(items) - len(left))


def test_in_a_read_only_database_and_an_open_transaction(tmp_path):
    path = tmp_path / "data.duckdb"
    with duckdb.connect(path) as con:
        con.execute(f"CREATE TABLE t ({COLUMNS})").fetchall()
        con.execute("INSERT INTO t VALUES ('u', 'a', 1, true), ('u', 'a', 1, true)").fetchall()
    with duckdb.connect(path, read_only=True) as con:
        con.begin()
        assert marginals(con, 1, [("b",)])["b",].tolist() == [0, 1, 0]
        con.rollback()
    assert [p.name for p in tmp_path.iterdir()] == ["data.duckdb"]


MACROS = [
    "md5(x) AS '0'", "encode(x) AS 'same'::BLOB", "strlen(x) AS 0", "row_number() AS 0",
    "count() AS 9", "concat(a, b, c) AS ''", '"||"(a, b) AS NULL', '"+"(a, b) AS 0',
    '"-"(a, b) AS 0, (a) AS 7', '"*"(a, b) AS 0', '"//"(a, b) AS 0', '"/"(a, b) AS 0',
    '"<="(a, b) AS true', '"="(a, b) AS true', "least(a, b) AS a", "greatest(a, b) AS a",
    "floor(a) AS 0", "isnan(a) AS false", "year(a) AS 0", "month(a) AS 0", "replace(a, b, c) AS a",
    "min(a) AS 0", "list_extract(a, b) AS NULL", "range(a, b) AS TABLE SELECT 1",
]  # fmt: skip


def test_hostile_macros_change_nothing():
    """Not even those that take the place of operators."""
    rows = [("u", "a", 1, True), ("u", "A", 2, True), ("v", "a", 3, None), ("v", "ab", 0, False)]
    plain = marginals(connect(rows), 1)["s", "n", "b"]
    con = connect(rows)
    for macro in MACROS:
        con.execute(f"CREATE MACRO {macro}").fetchall()
    np.testing.assert_array_equal(marginals(con, 1)["s", "n", "b"], plain)


def test_progress_is_told():
    told = []
    con = connect([("u", "a", 1, True)])
    table = read_table(con, ("t",), SCHEMA, Unit("p", 1))
    DuckDBEngine(con, on_step=lambda *step: told.append(step)).marginals(table, [("s",), ("n",)])
    assert told == [(1, 1)]


def test_a_table_without_a_unit_has_no_bounded_rows():
    with pytest.raises(InternalError):
        kept_rows(read_table(connect([]), ("t",)), ["b"])


@pytest.mark.parametrize("setting", ["default_order = 'DESC'", "TimeZone = 'Asia/Tokyo'"])
def test_settings_of_the_connection_choose_no_other_rows(setting):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t AS SELECT i % 20 AS p, i // 20 % 4 AS n, i * 13 % 100 AS w, "
        "TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL (i * 7) HOUR AS z FROM range(400) AS r(i)"
    ).fetchall()
    zoned = Domain.dates("2020-01-01", "2021-12-31", zone="UTC")
    schema = Schema({"t": {"n": Domain.integers(0, 3), "z": zoned}})
    sql = kept_rows(read_table(con, ("t",), schema, Unit("p", 2)), ["n", "w"])
    before = sorted(con.execute(sql).fetchall())
    con.execute(f"SET {setting}").fetchall()
    assert sorted(con.execute(sql).fetchall()) == before


def test_no_marginal_has_more_rows_of_a_unit_than_a_total_apart():
    """Of rows that have no cell of a column, though the database should see to it."""
    rows = [("u", "a", 1, None), ("u", "-", 2, None), ("u", "-", 3, True), ("v", "-", 0, None)]
    con = connect(
        [*rows, ("u", "ab", 9, None)], columns=COLUMNS.replace(" CHECK (n BETWEEN 0 AND 3)", "")
    )
    schema = Schema({"t": {"s": Domain.labels(["a", "A", "ab"]), "n": Domain("INTEGER", range(4))}})
    table = read_table(con, ("t",), schema, Unit("p", 3))
    table = replace(table, enforced=frozenset({"s", "n"}))
    found = DuckDBEngine(con).prepared(table, [("s",), ("n",), ()], total_apart=True).run()
    assert found[()] == 3 + 1
    assert found["n",].sum() <= found[()]
    assert found["s",].sum() < found[()]
