"""One pass over the rows against a statement for each block: equal counts, whatever rows hold."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.one_pass import (
    MOST_CELLS,
    OnePass,
    PassedBlock,
    PassedColumn,
    in_one_pass,
)
from dpsql.errors import InternalError
from dpsql.rows.measure import measure
from dpsql.schema import Domain, Schema, Table, Unit
from dpsql.schema.units import ResolvedUnit
from tests.engines import test_keys as of_keys
from tests.engines.test_bounded import MACROS, ROWS, SCHEMA, connect, fill
from tests.engines.test_codes import KINDS, RULES, rows
from tests.engines.test_interrupts import ctrl_c, interrupted
from tests.helpers.described import read_table
from tests.rows.test_total import hostile_rows
from tests.rows.tools import TYPES, benign, create, parse
from tests.rows.tools import connect as connect_rows

CHOICE = "dpsql.engines.duckdb.engine.in_one_pass"


@pytest.fixture
def ways(monkeypatch):
    """Count both ways, whatever is cheaper, and compare."""

    def same(con, table, wanted, merged=None, keys=None):
        found = []
        for choice in (lambda _, blocks: tuple(blocks), lambda _, blocks: ()):
            monkeypatch.setattr(CHOICE, choice)
            counting = DuckDBEngine(con).prepared(table, wanted, merged or {}, keys=keys or {})
            counting.check()
            found.append((counting, counting.run()))
        (once, counted), (apart, expected) = found
        assert any(isinstance(scan, OnePass) for scan in once.needed)
        assert not any(isinstance(scan, OnePass) for scan in apart.needed)
        for marginal in wanted:
            np.testing.assert_array_equal(counted[marginal], expected[marginal])
            assert counted[marginal].dtype == np.int64
        return counted

    return same


@pytest.mark.sampled(12)
@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("unit", [None, Unit("i", max_rows=2)])
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_values_of_every_domain(ways, kind, unit, hostile):
    domain, types = KINDS[kind]
    con = duckdb.connect()
    columns = [
        (f"x{j}_{r}", type_, replace(domain, nullable=nullable, outside=outside))
        for j, type_ in enumerate(types)
        for r, (nullable, outside) in enumerate(RULES)
    ]
    stored = {j: [text for text, _ in rows(type_)] for j, type_ in enumerate(types)}
    typed = ", ".join(f"{name} {type_}" for name, type_, _ in columns)
    con.execute(f"CREATE TABLE t (i UTINYINT CHECK (i <= 9), {typed})")
    for i in range(max(map(len, stored.values())) + 1):
        values = (
            (stored[int(name[1 : name.index("_")])] + ["NULL"])[i:][:1] or ["NULL"]
            for name, _, _ in columns
        )
        con.execute(f"INSERT INTO t VALUES ({i % 10}, {', '.join(v for (v,) in values)})")
    for macro in MACROS if hostile else ():
        con.execute(f"CREATE MACRO {macro}").fetchall()
    table = read_table(con, ("t",), Schema({"t": {n: d for n, _, d in columns}}), unit)
    wanted = [("i", name) for name, _, _ in columns] + [("i",), ()]
    counted = ways(con, table, wanted)
    assert counted[()] == counted["i",].sum() > 0
    halves = {name: np.arange(table.cells(name)) % 2 for name, _, _ in columns}
    ways(con, table, wanted, halves)


TEXTS = ["a", "A", "", "é", "e\u0301", "a\0", "'); DROP TABLE t; --", None]


def test_texts_under_collations_are_bytes(ways):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE, y VARCHAR, e ENUM ('u', 'v'))")
    con.executemany("INSERT INTO t VALUES (?, ?, 'u')", list(itertools.product(TEXTS, TEXTS)))
    con.execute("INSERT INTO t SELECT 'long ' || i, NULL, NULL FROM range(3000) AS t(i)")
    long = [f"long {i}" for i in range(999)]
    for domain in (
        Domain.labels(["a", "A", "é"]),
        Domain.labels(["a", "rest"], other="rest", nullable=True),
        Domain.labels([*long, "a", "e\u0301"]),
        Domain.labels(["a"], nullable=True, outside="drop"),
    ):
        table = read_table(con, ("t",), Schema({"t": {"x": domain, "y": domain}}))
        ways(con, table, [("x", "y"), ("e", "x"), ("e",)])


def test_rows_that_the_database_rules_out_are_in_no_block_of_that_column(ways):
    """As a column that is said to have no others is read: whatever it has."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i % 9 AS x, i % 2 AS y FROM range(900) AS t(i)")
    con.execute("INSERT INTO t VALUES (NULL, 1), (-3, 1), (9000, 0), (4, 7)")
    domains = {"x": Domain("BIGINT", range(2, 5)), "y": Domain("BIGINT", range(2))}
    enforced = frozenset(domains)
    table = Table("t", domains, path=("memory", "main", "t"), enforced=enforced)
    counted = ways(con, table, [("x", "y"), ("x",), ("y",)])
    assert counted["x", "y"].sum() == 300
    wide = {"x": Domain("BIGINT", range(2, 40_000)), "y": domains["y"]}
    ways(con, replace(table, columns=wide), [("x",), ("x", "y")])


def test_keys_of_each_row_go_along(ways):
    con = connect_rows()
    create(con, hostile_rows() + benign(200, seed=5))
    keys = of_keys.keys_of(con, of_keys.TEXTS)
    names = [name for name, key in keys.items() if key.domain.size > 2]
    wanted = list(itertools.combinations(names, 2))
    for unit in (None, ResolvedUnit("row_number", "row_number", "INTEGER", (), 3)):
        ways(con, of_keys.table(keys, unit), wanted, keys=keys)
        classes = {name: np.minimum(np.arange(keys[name].domain.size), 2) for name in names}
        ways(con, of_keys.table(keys, unit), wanted, classes, keys=keys)


def test_sums_are_added_up_by_duckdb_beside_the_pass(monkeypatch):
    con = connect_rows()
    create(con, benign(200, seed=5))
    value = measure(parse(con, "i"), TYPES, (Fraction(0), Fraction(100)), Fraction(1))
    table = Table(
        "r",
        {
            "e": Domain("ENUM", ("red", "green", "a%b_c"), nullable=True),
            "o": Domain.boolean(nullable=True),
        },
        {"row_number": "INTEGER", **TYPES},
        ("memory", "main", "r"),
    )
    wanted = [("e",), ("o",), ("e", "sum")]
    found = {}
    for unit in (None, ResolvedUnit("row_number", "row_number", "INTEGER", (), 1)):
        for choice in (lambda _, blocks: tuple(blocks), lambda _, blocks: ()):
            monkeypatch.setattr(CHOICE, choice)
            monkeypatch.setattr("dpsql.engines.duckdb.blocks.MOST_CELLS", 3)
            counting = DuckDBEngine(con).prepared(
                replace(table, unit=unit), wanted, measures={"sum": value}
            )
            passes = [scan for scan in counting.needed if isinstance(scan, OnePass)]
            assert len(passes) == (unit is None and choice(0, ["o"]) != ())
            counted = counting.run()
            for marginal in wanted:
                np.testing.assert_array_equal(
                    counted[marginal], found.setdefault(marginal, counted[marginal])
                )
    assert found["e", "sum"].any()


@pytest.fixture(scope="module")
def refilled():
    """Give the counts of any rows of the same table, by one pass."""
    con = connect([])
    tables = {k: read_table(con, ("t",), SCHEMA, Unit("p", k)) for k in range(1, 5)}

    def counts(given, k):
        fill(con, given)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CHOICE, lambda _, blocks: tuple(blocks))
            return DuckDBEngine(con).marginals(tables[k], [("s", "n", "b")])["s", "n", "b"]

    return counts


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ROWS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_unit_adds_at_most_k_rows_and_moves_no_others(refilled, given_rows, k, shuffled):
    whole = refilled(given_rows, k)
    for unit in {row[0] for row in given_rows}:
        rest = [row for row in given_rows if row[0] != unit]
        shuffled.shuffle(rest)
        difference = whole - refilled(rest, k)
        assert (difference >= 0).all()
        owned = sum(row[0] == unit for row in given_rows)
        assert difference.sum() == (0 if unit is None else min(k, owned))


# ── whatever the database returns ──────────────────────────────────────────────────────────

CODES = st.lists(st.tuples(st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=30)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(CODES, st.integers(0, 127), st.sampled_from([1, 7, 1000, 32767]))
def test_a_row_adds_one_to_one_cell_or_nothing(codes, first, second):
    columns = PassedColumn(first, None), PassedColumn(second, None)
    block = PassedBlock((0, 1), (first, second))

    def count(some):
        arrays = [
            np.array([row[i] for row in some], dtype=type_)
            for i, type_ in enumerate((np.int8 if first < 128 else np.int16, np.int16))
        ]
        arrays[1] = arrays[1].astype(np.int8) if second < 128 else arrays[1]
        read = [column.read(array) for column, array in zip(columns, arrays, strict=True)]
        return block.count(len(some), [r[0] for r in read], [r[1] for r in read])

    whole = count(codes)
    assert whole.shape == (block.cells,)
    for i in range(len(codes)):
        less = whole - count(codes[:i] + codes[i + 1 :])
        assert (less >= 0).all()
        assert less.sum() <= 1


def large(con, count=350_000):
    con.execute(
        "CREATE TABLE big AS SELECT (i % 7)::TINYINT AS x, (hash(i) % 300)::SMALLINT AS y, "
        f"(i % 2)::TINYINT AS z FROM range({count}) AS t(i)"
    )
    domains = {
        "x": Domain("TINYINT", range(5)),
        "y": Domain("SMALLINT", range(300)),
        "z": Domain("TINYINT", range(2)),
    }
    return Table("big", domains, path=("memory", "main", "big"))


def test_many_batches_add_up(ways, monkeypatch):
    con = duckdb.connect()
    monkeypatch.setattr("dpsql.engines.duckdb.one_pass.BATCH", 4096)
    counted = ways(con, large(con), [("x", "y"), ("y", "z"), ("x", "z"), ()])
    assert counted[()] == counted["y", "z"].sum() == 350_000


def once(monkeypatch):
    monkeypatch.setattr(CHOICE, lambda _, blocks: tuple(blocks))
    monkeypatch.setattr("dpsql.engines.duckdb.blocks.MOST_CELLS", 1)
    monkeypatch.setattr("dpsql.engines.duckdb.one_pass.BATCH", 4096)


def test_steps_are_as_many_as_blocks_and_tell_no_number_of_rows(monkeypatch):
    once(monkeypatch)
    con = duckdb.connect()
    table, told = large(con, 2_000_000), []
    DuckDBEngine(con, on_step=lambda *step: told.append(step)).marginals(
        table, [("x",), ("y",), ("z",)]
    )
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (3, 3)
    assert len(told) > 1


def test_one_snapshot(monkeypatch):
    once(monkeypatch)
    con = duckdb.connect()
    table = large(con, 2_000_000)
    other, added = con.cursor(), []

    def add(done, of):
        added.append(done)
        other.execute("INSERT INTO big VALUES (1, 1, 1)").fetchall()

    counted = DuckDBEngine(con, on_step=add).marginals(table, [("x",), ("y",), ("z",)])
    assert len(added) > 1
    assert counted["x",].sum() == counted["y",].sum() == counted["z",].sum() == 2_000_000


def test_ctrl_c_ends_a_pass_and_the_connection_is_of_use_after_it(monkeypatch):
    once(monkeypatch)
    con = duckdb.connect()
    table, begun = large(con, 3_000_000), threading.Event()
    monkeypatch.setattr(PassedBlock, "count", slowly(PassedBlock.count, begun))

    def press():
        begun.wait(60)
        ctrl_c()

    threading.Thread(target=press, daemon=True).start()
    error = interrupted(lambda: DuckDBEngine(con).marginals(table, [("x",), ("y",), ("z",)]), con)
    assert isinstance(error, KeyboardInterrupt)
    assert con.execute("SELECT count(*) FROM big").fetchall() == [(3_000_000,)]


def slowly(count, begun):
    def counted(self, number, codes, lost):
        begun.set()
        threading.Event().wait(0.01)
        return count(self, number, codes, lost)

    return counted


def test_a_locked_configuration_and_a_callers_transaction(monkeypatch):
    once(monkeypatch)
    con = duckdb.connect()
    table = large(con, 1000)
    con.execute("SET lock_configuration = true")
    con.begin()
    con.execute("INSERT INTO big VALUES (1, 1, 1)")
    assert DuckDBEngine(con).marginals(table, [("x",), ("y",)])["y",].sum() == 1001
    con.rollback()
    assert DuckDBEngine(con).marginals(table, [("x",), ("y",)])["y",].sum() == 1000


def test_what_is_no_cell_is_in_no_block(ways):
    """Also where a column isn't of the type that it is said to be."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i * 100000 AS x, 1 AS y FROM range(3) AS t(i)")
    columns = {"x": Domain.boolean(), "y": Domain("INTEGER", range(2))}
    table = Table("t", columns, path=("memory", "main", "t"), enforced=frozenset("xy"))
    assert ways(con, table, [("x",), ("y",)])["x",].tolist() == [1, 0]


def test_a_statement_that_is_refused_is_noticed_before(monkeypatch):
    once(monkeypatch)
    con = duckdb.connect()
    counting = DuckDBEngine(con).prepared(large(con, 10), [("x",), ("y",)])
    con.execute("ALTER TABLE big RENAME COLUMN y TO gone")
    with pytest.raises(InternalError, match="nothing was charged"):
        counting.check()


# ── which way is taken ─────────────────────────────────────────────────────────────────────


def domains_of(count):
    return {f"c{i}": Domain("ENUM", ("a", "b", "c")) for i in range(count)}


def test_the_choice_is_of_blocks_and_types_and_not_of_rows():
    table = Table("t", domains_of(12), path=("memory", "main", "t"))
    pairs = list(itertools.combinations(table.columns, 2))
    assert in_one_pass(Coding(table), pairs) == tuple(pairs)
    assert in_one_pass(Coding(table), pairs[:1]) == ()
    assert in_one_pass(Coding(table), [()]) == in_one_pass(Coding(table), []) == ()
    singles = [(name,) for name in table.columns]
    assert in_one_pass(Coding(table), singles) == ()  # each column is read once anyway


def test_rows_make_no_difference_to_the_statements():
    con = duckdb.connect()
    table = large(con)
    wanted = list(itertools.combinations(table.columns, 2)) * 1
    before = DuckDBEngine(con).prepared(table, wanted).needed
    con.execute("DELETE FROM big")
    assert DuckDBEngine(con).prepared(table, wanted).needed == before


def test_large_blocks_and_domains_are_grouped():
    wide = Domain("BIGINT", range(MOST_CELLS))
    table = Table(
        "t",
        {**domains_of(12), "w": wide, "h": Domain("BIGINT", range(2**32))},
        path=("memory", "main", "t"),
        enforced=frozenset({"w", *domains_of(12)}),
    )
    pairs = list(itertools.combinations(domains_of(12), 2))
    found = in_one_pass(Coding(table), [*pairs, ("w",), ("w", "c1"), ("h",)])
    assert found == (*pairs, ("w",))
    classes = {"h": np.zeros(1, dtype=np.int64)}
    assert ("h",) not in in_one_pass(Coding(table, classes), [*pairs, ("h",)])
