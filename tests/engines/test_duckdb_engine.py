"""Counts from DuckDB against counting in Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpsql.engines.duckdb.coding import MOST_STORED
from dpsql.engines.duckdb.engine import Coding, DuckDBEngine, scan
from dpsql.errors import InternalError
from dpsql.rows.expression import RowColumn
from dpsql.rows.measure import measure
from dpsql.schema import Domain, Table
from dpsql.schema.names import quoted_name
from tests.helpers.described import current_database, read_table
from tests.helpers.inserted import insert

ROWS = [
    (-2, "x", True, "it's", 7),
    (3, "y", False, 'b"', 9),
    (3, "y", None, "it's", 7),
    (0, "x", True, "outside", 7),
    (99, "x", True, "it's", 7),
    (None, "x", True, 'b"', 255),
] * 3
TABLE = Table(
    "t",
    {
        "n": Domain("SMALLINT", range(-2, 4)),
        "e": Domain("ENUM", ("x", "y", "z")),
        'odd "name"': Domain("BOOLEAN", (False, True), nullable=True),
        "v": Domain("VARCHAR", ("it's", 'b"', "'); DROP TABLE t; --"), nullable=True),
        "u": Domain("UTINYINT", (7, 9)),
    },
    path=("memory", "main", "t"),
)


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("CREATE TYPE e AS ENUM ('x', 'y', 'z')").fetchall()
    con.execute('CREATE TABLE t (n SMALLINT, e e, "odd ""name""" BOOLEAN, v VARCHAR, u UTINYINT)')
    insert(con, "t", ROWS)
    return con


def expected(marginal):
    codes = []
    for row in ROWS:
        coded = {}
        for (name, domain), value in zip(TABLE.columns.items(), row, strict=True):
            values = list(domain.values)
            code = values.index(value) if value in values else None
            # The NULL cell, or the one of rows outside the domain.
            coded[name] = len(values) if code is None else code
        codes.append(tuple(coded[a] for a in marginal))
    counts = np.zeros([TABLE.cells(a) for a in marginal], dtype=np.int64)
    for cell, count in Counter(codes).items():
        counts[cell] = count
    return counts


@pytest.mark.parametrize(
    "wanted",
    [
        [()],
        [("n",), ()],
        [("e", "v"), ("v",)],
        [("n", "e"), ('odd "name"', "v"), ("u",)],
        [("n", "e", 'odd "name"', "v", "u")],
    ],
)
def test_counts_agree_with_python(con, wanted):
    counted = DuckDBEngine(con).marginals(TABLE, wanted)
    assert set(counted) == set(wanted)
    for marginal in wanted:
        np.testing.assert_array_equal(counted[marginal], expected(marginal))
        assert counted[marginal].dtype == np.int64


def test_marginals_of_one_call_are_consistent(con):
    counted = DuckDBEngine(con).marginals(TABLE, [("n",), ("e", "u"), ()])
    assert counted["n",].sum() == counted["e", "u"].sum() == counted[()]


def test_an_empty_table_is_counted(con):
    con.execute("DELETE FROM t").fetchall()
    assert DuckDBEngine(con).marginals(TABLE, [("n",)])["n",].sum() == 0


def test_the_callers_transaction_is_left_open(con):
    con.begin()
    con.execute("INSERT INTO t VALUES (1, 'z', false, NULL, 7)").fetchall()
    counted = DuckDBEngine(con).marginals(TABLE, [("e",)])
    assert counted["e",][2] == 1
    con.rollback()
    assert DuckDBEngine(con).marginals(TABLE, [("e",)])["e",][2] == 0


def test_all_scans_see_one_snapshot(con, monkeypatch):
    """Rows that another connection adds between two scans are not counted."""
    monkeypatch.setattr("dpsql.engines.duckdb.blocks.MOST_CELLS", 1)
    other = con.cursor()

    def add(done, of):
        assert of == 2
        other.execute("INSERT INTO t VALUES (1, 'z', false, NULL, 7)").fetchall()

    counted = DuckDBEngine(con, on_step=add).marginals(TABLE, [("e",), ("u",)])
    assert counted["e",].sum() == counted["u",].sum()


def test_a_read_only_database_can_be_counted(tmp_path):
    path = tmp_path / "data.duckdb"
    with duckdb.connect(path) as con:
        con.execute("CREATE TABLE t (u UTINYINT)").fetchall()
        con.execute("INSERT INTO t VALUES (7), (9), (7)").fetchall()
    con = duckdb.connect(path, read_only=True)
    table = Table("t", {"u": Domain("UTINYINT", (7, 9))}, path=("data", "main", "t"))
    assert DuckDBEngine(con).marginals(table, [("u",)])["u",].tolist() == [2, 1, 0]
    assert current_database(con) == (path.stem, path)
    con.close()


def test_an_in_memory_database_has_no_path(con):
    assert current_database(con) == ("memory", None)


def test_a_collation_does_not_merge_values():
    """One row 'BOB' must not be able to move all rows 'bob' out of their cell."""
    con = duckdb.connect()
    con.execute("CREATE TABLE p (name VARCHAR COLLATE NOCASE)").fetchall()
    con.execute("INSERT INTO p VALUES ('BOB'), ('bob'), ('bob'), ('Ann'), (NULL)").fetchall()
    table = Table("p", {"name": Domain("VARCHAR", ("bob", "Ann"))}, path=("memory", "main", "p"))
    assert DuckDBEngine(con).marginals(table, [("name",)])["name",].tolist() == [2, 1, 2]


def test_the_callers_settings_are_put_back(con):
    before = con.execute("SELECT current_setting('perfect_ht_threshold')").fetchall()
    DuckDBEngine(con).marginals(TABLE, [("n", "e")])
    assert con.execute("SELECT current_setting('perfect_ht_threshold')").fetchall() == before


@pytest.mark.parametrize("bar", [True, False])
def test_no_bar_is_drawn_while_rows_are_counted_and_the_setting_is_kept(con, bar):
    con.execute(f"SET enable_progress_bar = {bar}").fetchall()
    drawn = "SELECT current_setting('enable_progress_bar_print')"
    shown = "SELECT current_setting('enable_progress_bar')"
    with DuckDBEngine(con).snapshot():
        assert con.execute(drawn).fetchall() == [(False,)]
    assert con.execute(drawn).fetchall() == [(True,)]
    assert con.execute(shown).fetchall() == [(bar,)]


def test_a_locked_configuration_is_counted_all_the_same(con):
    con.execute("SET lock_configuration = true").fetchall()
    assert DuckDBEngine(con).marginals(TABLE, [("e",)])["e",].sum() == len(ROWS)


def test_a_statement_that_is_refused_is_noticed_without_running_it(con):
    engine = DuckDBEngine(con)
    engine.prepared(TABLE, [("n", "v"), ("u",), ("e",)]).check()
    for broken in (
        replace(TABLE, columns={**TABLE.columns, "secret": Domain("SMALLINT", range(3))}),
        replace(TABLE, columns={"e": Domain("SMALLINT", range(3), nullable=True)}),
        replace(TABLE, path=("memory", "main", "gone")),
    ):
        with pytest.raises(InternalError, match="nothing was charged") as error:
            engine.prepared(broken, [tuple(broken.columns)[-1:]]).check()
        assert error.value.__context__ is None
        assert "secret" not in str(error.value)


def test_what_is_checked_is_neither_optimized_nor_run(con):
    """Statistics of columns are private too: a plan with its estimates is never made."""
    asked = []

    class Told:
        def execute(self, sql, parameters=()):
            asked.append(sql)
            return con.execute(sql, parameters)

    scan(Coding(TABLE), {("n", "v"): {}}).check(Told())
    (told,) = asked
    assert told.startswith("DESCRIBE SELECT")
    con.execute("CREATE VIEW failing AS SELECT error('a row was read')::SMALLINT AS n").fetchall()
    failing = Table(
        "failing", {"n": Domain("SMALLINT", range(3))}, path=("memory", "main", "failing")
    )
    DuckDBEngine(con).prepared(failing, [("n",)]).check()
    with pytest.raises(duckdb.Error, match="a row was read"):
        DuckDBEngine(con).marginals(failing, [("n",)])


def test_counts_are_not_shown(con):
    counted = DuckDBEngine(con).marginals(TABLE, [("n",)])
    assert repr(counted) == "<Counted: 1 marginals>"
    assert counted.contributions == 1


def test_identifiers_are_quoted():
    assert quoted_name('a"; DROP TABLE t; --') == '"a""; DROP TABLE t; --"'


@pytest.mark.parametrize("length", [1, 3, 60, 1000])
@pytest.mark.parametrize("most", [110, 6000])
def test_cells_of_one_class_are_counted_together(length, most):
    """Whether there are few runs of one class, or one for each cell; of few cells, and of many."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER)").fetchall()
    con.execute("INSERT INTO t SELECT i * i % 217 - 95 FROM range(3000) r(i)").fetchall()
    con.execute("INSERT INTO t VALUES (NULL), (NULL)").fetchall()
    table = replace(TABLE, columns={"x": Domain("INTEGER", range(-90, most), nullable=True)})
    classes = np.arange(table.cells("x")) // length % 4
    engine = DuckDBEngine(con)
    each = engine.prepared(table, [("x",)]).run()["x",]
    together = engine.prepared(table, [("x",)], {"x": classes}).run()["x",]
    assert together.tolist() == np.bincount(classes, each).tolist()


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_no_scan_returns_many_more_rows_than_there_are_cells(columns):
    """Of conditions on columns of many values a few classes are asked, and no more is returned."""
    con = duckdb.connect()
    names = [f"c{i}" for i in range(columns)]
    declared = ", ".join(f"{n} INTEGER NOT NULL CHECK ({n} BETWEEN 0 AND 99)" for n in names)
    con.execute(f"CREATE TABLE t ({declared})").fetchall()
    values = ", ".join(f"hash(i * {k + 7}) % 100" for k in range(columns))
    con.execute(f"INSERT INTO t SELECT {values} FROM range(9000) r(i)").fetchall()
    table = read_table(con, ("t",))
    merged = {name: (np.arange(100) >= 50).astype(np.int64) for name in names}
    (one,) = DuckDBEngine(con).prepared(table, [tuple(names)], merged).needed
    returned = con.execute(f"SELECT count(*) FROM ({one.sql})", list(one.parameters)).fetchall()
    assert returned[0][0] <= max(2**columns, MOST_STORED)
    found = one.run(con)[0][tuple(names)]
    below = " AND ".join(f"{name} < 50" for name in names)
    assert con.execute(f"SELECT count(*) FROM t WHERE {below}").fetchall() == [(found.flat[0],)]
    assert found.sum() == 9000


def test_only_cells_that_are_counted_together_are_looked_for():
    """A column of which each cell is asked for is grouped by as it is, however large the block."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 99), "
                "b INTEGER NOT NULL CHECK (b BETWEEN 0 AND 29))").fetchall()  # fmt: skip
    table = read_table(con, ("t",))
    assert Coding(table).grouping(("a", "b")).classed == frozenset()
    halves = {"a": (np.arange(100) >= 50).astype(np.int64)}
    assert Coding(table, halves).grouping(("a", "b")).classed == {"a"}


@pytest.mark.parametrize("total_apart", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_sum_is_added_up_twice(seed, total_apart):
    """Whatever marginals a measure is asked in, if one of them has all the others."""
    con, random = duckdb.connect(), np.random.default_rng(seed)
    con.execute("CREATE TABLE t (a INTEGER, b INTEGER, c INTEGER, v INTEGER, w INTEGER)").fetchall()
    rows = random.integers(0, [9, 300, 300, 50, 50], (500, 5)).tolist()
    insert(con, "t", rows)
    keys = {n: Domain("INTEGER", range(size)) for n, size in (("a", 9), ("b", 300), ("c", 300))}
    types = dict.fromkeys("vw", "INTEGER")
    table = Table("t", keys, types, ("memory", "main", "t"))
    measures = {
        name: measure(RowColumn(name), types, (Fraction(0), Fraction(50)), Fraction(1))
        for name in types
    }
    widest = {"v": ("a", "b"), "w": ("c",)}
    wanted = [(*own[:n], name) for name, own in widest.items() for n in range(len(own) + 1)]
    wanted += [(), ("b",), ("c",), ("a", "c")]
    wanted = [wanted[i] for i in random.permutation(len(wanted))]
    counting = DuckDBEngine(con).prepared(table, wanted, measures=measures, total_apart=total_apart)
    added = [name for one in counting.needed for of in one.measures.values() for name in of]
    assert sorted(added) == (["v", "v", "w", "w"] if total_apart else ["v", "w"])
    found = counting.run()
    for marginal in wanted:
        *own, last = marginal or ("",)
        if last in measures:
            at = "vw".index(last) + 3
            summed = np.zeros([*(keys[name].size + 1 for name in own)], dtype=np.int64)
            for row in rows:
                cell = tuple(row["abc".index(name)] for name in own)
                summed[cell] += row[at] - 25
            assert found[marginal].reshape(-1)[: summed.size].sum() == summed.sum()
            if own == ["a"]:
                np.testing.assert_array_equal(found[marginal].reshape(summed.shape), summed)


@pytest.mark.parametrize("total_apart", [False, True])
def test_a_total_apart_is_of_rows_without_a_cell_too(con, total_apart):
    """What should be ruled out, and is there all the same, is in no cell of a column."""
    table = replace(TABLE, enforced=frozenset({"n", "e"}))
    wanted = [("n",), (), ("e",)]
    found = DuckDBEngine(con).prepared(table, wanted, total_apart=total_apart).run()
    assert found["n",].sum() == len(ROWS) - 6
    assert found["e",].sum() in {len(ROWS), len(ROWS) - 6}  # summed from what is counted with n
    assert not total_apart or found[()] == len(ROWS)
    alone = DuckDBEngine(con).prepared(table, [("n",)], total_apart=total_apart).run()
    assert list(alone) == [("n",)]
