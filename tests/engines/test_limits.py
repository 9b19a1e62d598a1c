"""How many rows of a unit are kept that agree in some columns: no more than its limits allow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.duckdb.columns import Parameters
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.schema import Domain, Schema, Unit
from dpsql.schema.units import RowLimit
from dpsql.workload.spread import SpreadRows, spreads_of
from tests.engines.test_bounded import COLUMNS, ROWS, SCHEMA, connect, fill
from tests.helpers.described import read_table

S, N, SN = RowLimit(("s",), 2), RowLimit(("n",), 1), RowLimit(("s", "n"), 1)
LIMITS = [(S,), (N,), (SN,), (S, N), (SN, S), (N, S, SN)]


def limited(con, k, *limits, schema=SCHEMA):
    table = read_table(con, ("t",), schema, Unit("p", k))
    return replace(table, unit=replace(table.unit, limits=limits))


def kept(con, table, columns="psnb"):
    parameters = Parameters()
    sql = kept_rows(table, list(columns), parameters)
    return con.execute(sql, parameters.values).fetchall()


def cell(row, name):
    """Return the cell of one column: all texts without a label have one, and so do NULLs."""
    value = row["psnb".index(name)]
    return value if name != "s" or value in {"a", "A", "ab"} else None


@pytest.fixture(scope="module")
def con():
    return connect([])


@settings(deadline=None, max_examples=30)
@given(ROWS, st.integers(1, 5), st.sampled_from(LIMITS))
def test_no_more_are_kept_than_limits_allow(con, rows, k, limits):
    fill(con, rows)
    found = kept(con, limited(con, k, *limits))
    assert not Counter(found) - Counter(rows)
    assert max(Counter(row[0] for row in found).values(), default=0) <= k
    for limit in limits:
        agree = Counter((row[0], *(cell(row, name) for name in limit.columns)) for row in found)
        assert max(agree.values(), default=0) <= limit.rows


@settings(deadline=None, max_examples=30)
@given(ROWS, st.integers(1, 5), st.sampled_from(LIMITS))
def test_units_within_their_limits_keep_all(con, rows, k, limits):
    fill(con, rows)
    found = kept(con, limited(con, k, *limits))
    for name in {row[0] for row in rows} - {None}:
        own = [row for row in rows if row[0] == name]
        fits = len(own) <= k and all(
            max(Counter(tuple(cell(row, c) for c in limit.columns) for row in own).values())
            <= limit.rows
            for limit in limits
        )
        left = [row for row in found if row[0] == name]
        assert (Counter(left) == Counter(own)) or not fits
        assert left  # nobody is left out


@settings(deadline=None, max_examples=30)
@given(ROWS, ROWS, st.integers(1, 4), st.sampled_from(LIMITS))
def test_another_unit_changes_nothing(con, rows, others, k, limits):
    table = limited(con, k, *limits)
    fill(con, rows)
    before = Counter(kept(con, table))
    fill(con, [("gone", *row[1:]) for row in others] + rows[::-1])
    after = Counter(row for row in kept(con, table) if row[0] != "gone")
    assert before == after


@settings(deadline=None, max_examples=30)
@given(ROWS, st.sampled_from(LIMITS))
def test_counts_change_as_far_as_is_said(con, rows, limits):
    """Of the marginals that a limit is for: ‖x − x'‖² <= share·k² for each unit that goes."""
    table, wanted = limited(con, 4, *limits), [("s", "n", "b"), ("s",), ("n",)]
    fill(con, rows)
    whole = DuckDBEngine(con).marginals(table, wanted)
    fill(con, [row for row in rows if row[0] != "u"])
    fewer = DuckDBEngine(con).marginals(table, wanted)
    assert {s.attributes for s in whole.spreads} == {frozenset(one.columns) for one in limits}
    for marginal in wanted:
        change = np.abs(whole[marginal] - fewer[marginal])
        for spread in whole.spreads:
            if spread.attributes <= set(marginal):
                assert change.max() <= spread.share * 4
                assert np.square(change).sum() <= spread.share * 4**2


@settings(deadline=None, max_examples=20)
@given(ROWS, st.sampled_from(LIMITS), st.lists(st.integers(0, 1), min_size=3, max_size=3))
def test_cells_that_are_counted_together_change_as_far_as_is_said(con, rows, limits, pairs):
    """No class has more rows of a unit than its cells may have, whoever comes or goes."""
    table = limited(con, 4, *limits)
    of = np.unique(pairs, return_inverse=True)[1][: table.cells("s")]
    merged = {"s": np.resize(of, table.cells("s"))}
    merged = {"s": np.unique(merged["s"], return_inverse=True)[1].astype(np.int64)}
    fill(con, rows)
    whole = DuckDBEngine(con).marginals(table, [("s",)], merged)
    fill(con, [row for row in rows if row[0] != "u"])
    fewer = DuckDBEngine(con).marginals(table, [("s",)], merged)
    change = np.abs(whole["s",] - fewer["s",])
    for spread in whole.spreads:
        if spread.attributes == {"s"}:
            ((_, sizes),) = spread.classes
            assert (change <= np.minimum(spread.share * 4 * np.array(sizes), 4)).all()


@pytest.mark.parametrize(
    ("type_", "value", "domain", "expected"),
    [
        ("INTEGER", "i % 40", Domain.integers(5, 9, outside="clamp"), [3, 1, 1, 1, 3, 0]),
        ("INTEGER", "i % 40", Domain.bins([0, 10, 40]), [3, 3, 0]),
        ("INTEGER", "i % 40", Domain.integers(0, 1), [1, 1, 3]),
        ("TIMESTAMP", "TIMESTAMP '2024-01-01' + to_hours(i % 40)",
         Domain.dates("2024-01-01", "2024-01-02"), [3, 3, 0]),
        ("BOOLEAN", "CASE WHEN i % 40 < 7 THEN i % 2 = 0 END", Domain.boolean(nullable=True),
         [3, 3, 3]),
    ],
)  # fmt: skip
def test_cells_are_those_that_are_counted(type_, value, domain, expected):
    """Rows that lie in one cell agree, whatever is stored; those without one are kept apart."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (p INTEGER, x {type_})")
    con.execute(f"INSERT INTO t SELECT i // 40, {value} FROM range(400) AS r(i)")
    table = limited(con, 30, RowLimit(("x",), 3), schema=Schema({"t": {"x": domain}}))
    counts = DuckDBEngine(con).marginals(table, [("x",)])["x",]
    assert counts.tolist() == [10 * n for n in expected]


def test_what_is_counted_together_is_said_to_be():
    con = connect([])
    table = limited(con, 4, S, SN)
    both, some = {frozenset("s"), frozenset("sn")}, np.array([0, 1, 1])
    assert {s.attributes for s in spreads_of(table, {})} == both
    assert spreads_of(table, {"b": some}) == spreads_of(table, {})
    assert [s.classes for s in spreads_of(table, {"n": some})] == [(), (("n", (1, 2)),)]
    assert [s.classes for s in spreads_of(table, {"s": some})] == 2 * [(("s", (1, 2)),)]
    assert spreads_of(table, {})[0] == SpreadRows(frozenset("s"), Fraction(2, 4))


def test_a_limit_above_the_bound_says_nothing():
    con = connect([("u", "a", 1, True)] * 5)
    table = limited(con, 3, RowLimit(("s",), 7))
    assert not spreads_of(table, {})
    assert len(kept(con, table)) == 3


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_have_no_say(threads):
    con = connect([], COLUMNS, f"SET threads = {threads}")
    con.execute(
        "INSERT INTO t SELECT 'u' || i // 300, ['a', 'A', 'ab', '?'][1 + i % 4], i * 7 % 5 % 4, "
        "i % 3 = 0 FROM range(60000) AS r(i)"
    )
    table = limited(con, 40, RowLimit(("s",), 15), RowLimit(("s", "n"), 6))
    found = Counter(kept(con, table))
    con.execute("CREATE TABLE again AS SELECT * FROM t ORDER BY hash(p || n::VARCHAR || s), b DESC")
    con.execute("DELETE FROM t; INSERT INTO t SELECT * FROM again")
    assert Counter(kept(con, table)) == found
    assert sum(found.values()) == 200 * 40
