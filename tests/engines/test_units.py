"""Units by groups: a unit is once in each, in as many as is said, and changes nothing of others."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import InternalError
from dpsql.request import Request, named
from dpsql.workload.unit_groups import GroupedCells, UnitGroups, groups_of
from tests.helpers.inserted import insert

BUDGET = dpsql.Budget(rho=1)
NAME = "units 1"
MARGINAL = (groups_of(NAME), NAME)
SCHEMA = dpsql.Schema(
    {
        "t": {
            "a": dpsql.Domain.integers(0, 5, nullable=True),
            "s": dpsql.Domain.labels(["x", "y", "z"]),
        }
    }
)


def filled(kind="INTEGER", units=40, seed=1, without=None):
    """Make a table in which units have some rows, or none, and others have no unit."""
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (id {kind}, a INTEGER, s VARCHAR, w DOUBLE)").fetchall()
    rows = []
    for unit in [*range(units), None]:
        for _ in range(rng.choice([0, 1, 3, 30])):
            row = (rng.choice([None, *range(7)]), rng.choice("xyzq"), rng.choice([None, 1.5, -2]))
            if unit != without or unit is None:
                rows.append((text(kind, unit), *row))
    insert(con, "t", rows)
    return con


def text(kind, unit):
    if unit is None or kind == "INTEGER":
        return unit
    return ("a" if unit % 2 else "A") * (unit // 2 + 1)


def table_of(con, max_rows=3):
    unit = dpsql.Unit("id", max_rows=max_rows)
    session = dpsql.Session(con, schema=SCHEMA, unit=unit)
    script = named("SELECT COUNT(*) AS n FROM t")
    return session._data.declared.compile(Request(script, BUDGET)).table


def by(groups, most):
    """Return the groups of a joint cell of `a` (of 7) and `s` (of 4), some in none or in two."""
    cells = np.array([*range(28), 5, 9])
    numbers = np.array([i % groups for i in range(28)] + [(5 + 1) % groups, (9 + 1) % groups])
    kept = cells % 7 != 3
    block = GroupedCells(("a", "s"), (7, 4), cells[kept], numbers[kept])
    return UnitGroups((block,), groups, most)


def counted(con, groups):
    table = table_of(con)
    counting = DuckDBEngine(con).prepared(table, [MARGINAL], units={NAME: groups})
    counting.check()
    found = counting.run()
    assert found.units == {NAME: groups.most}
    assert found[MARGINAL].shape == (groups.count, 1)
    return found[MARGINAL].ravel()


def true_groups(con, groups):
    """Return the groups of each unit, told from rows here."""
    (block,) = groups.blocks
    by_cell = {}
    for cell, group in zip(block.cells, block.groups, strict=True):
        by_cell.setdefault(int(cell), set()).add(int(group))
    found = {}
    for unit, a, s in con.execute("SELECT id, a, s FROM t WHERE id IS NOT NULL").fetchall():
        first = 6 if a is None or a > 5 else a
        second = "xyz".find(s) if s in "xyz" else 3
        found.setdefault(unit, set()).update(by_cell.get(first * 4 + second, ()))
    return found


@pytest.mark.parametrize("kind", ["INTEGER", "VARCHAR", "VARCHAR COLLATE NOCASE"])
@pytest.mark.parametrize("groups", [1, 3, 9])
def test_a_unit_is_in_the_groups_that_its_rows_are_in(kind, groups):
    con = filled(kind)
    asked = by(groups, groups)
    true = true_groups(con, asked)
    want = [sum(group in own for own in true.values()) for group in range(groups)]
    assert counted(con, asked).tolist() == want


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["INTEGER", "VARCHAR COLLATE NOCASE"])
@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_removing_a_unit_takes_it_from_as_many_groups_as_is_said(kind, most):
    asked, sizes = by(9, most), []
    con = filled(kind)
    before, true = counted(con, asked), true_groups(con, asked)
    for unit in range(0, 40, 6):
        after = counted(filled(kind, without=unit), asked)
        change = before - after
        assert set(change.tolist()) <= {0, 1}
        own = true.get(text(kind, unit), set())
        assert set(np.flatnonzero(change).tolist()) <= own
        assert change.sum() == min(most, len(own))
        sizes.append(int(change.sum()))
    assert max(sizes) == most


def test_which_groups_count_does_not_depend_on_the_order_of_rows():
    con = filled()
    before = counted(con, by(9, 2))
    con.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM t ORDER BY hash(a, s, id)").fetchall()
    for threads in (1, 2):
        con.execute(f"SET threads = {threads}").fetchall()
        assert counted(con, by(9, 2)).tolist() == before.tolist()


def test_groups_are_dropped_without_regard_to_which_they_are():
    """Of units that are in all of 6 groups, 2 are kept of each: a third of them in every group."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, a INTEGER, s VARCHAR, w DOUBLE)").fetchall()
    con.execute("INSERT INTO t SELECT i // 6, i % 6, 'x', 1 FROM range(18000) AS r(i)").fetchall()
    block = GroupedCells(("a",), (7,), np.arange(6), np.arange(6))
    found = counted(con, UnitGroups((block,), 6, 2))
    assert found.sum() == 6000
    assert np.abs(found - 1000).max() < 5 * np.sqrt(3000 * 2 / 9)


def test_other_units_stay_where_they_are_on_several_threads():
    """10,000 units with 30 rows, and without one of 1,000 rows: as many as others are kept."""
    con = duckdb.connect(config={"threads": 2})
    con.execute("CREATE TABLE t (id INTEGER, a INTEGER, s VARCHAR, w DOUBLE)").fetchall()
    con.execute(
        "INSERT INTO t SELECT i // 30, hash(i) % 6, ['x', 'y', 'z'][1 + (hash(-i) % 3)::INT], 1 "
        "FROM range(300000) AS r(i)"
    ).fetchall()
    con.execute("INSERT INTO t SELECT -1, i % 6, 'x', 1 FROM range(1000) AS r(i)").fetchall()
    before = [counted(con, by(9, most)) for most in (9, 3)]
    assert [counted(con, by(9, most)).tolist() for most in (9, 3)] == [b.tolist() for b in before]
    con.execute("DELETE FROM t WHERE id = -1").fetchall()
    for most, of in zip((9, 3), before, strict=True):
        change = of - counted(con, by(9, most))
        assert set(change.tolist()) <= {0, 1}
        assert change.sum() <= most


@pytest.mark.parametrize(
    "marginal", [(NAME,), (groups_of(NAME),), (*MARGINAL, "a"), ("a", NAME)], ids=str
)
def test_units_are_counted_by_their_groups_and_nothing_else(marginal):
    con = filled()
    with pytest.raises((InternalError, KeyError)):
        DuckDBEngine(con).prepared(table_of(con), [marginal], units={NAME: by(9, 9)})


def test_rows_without_units_have_none():
    con = filled()
    session = dpsql.Session(con, schema=SCHEMA)
    script = named("SELECT COUNT(*) AS n FROM t")
    table = session._data.declared.compile(Request(script, BUDGET)).table
    with pytest.raises(InternalError, match="no units"):
        DuckDBEngine(con).prepared(table, [MARGINAL], units={NAME: by(9, 9)})
