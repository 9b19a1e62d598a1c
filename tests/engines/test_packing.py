"""Small numbers that are packed into one: groups are the same, and nothing fails of any row."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import numpy as np
import pytest

from dpsql.engines.duckdb.blocks import MOST_PLACES, Packed, Packing
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.engine import DuckDBEngine, scan
from dpsql.rows.expression import RowColumn
from dpsql.rows.key import line
from dpsql.rows.measure import measure
from dpsql.schema import Domain, Table
from dpsql.schema.units import ResolvedUnit
from tests.helpers.inserted import insert
from tests.rows.tools import connect

CHANGED = "dpsql.engines.duckdb.blocks.MOST_PLACES"
TYPES = {"UTINYINT": 2**8, "USMALLINT": 2**16, "INTEGER": 2**31}


@pytest.mark.parametrize("seed", range(20))
def test_any_numbers_of_their_types_are_packed_without_failing(seed):
    """Rows that a condition takes away may be computed, too."""
    draw, con = random.Random(seed), duckdb.connect()  # noqa: S311
    parts = []
    for i in range(7):
        size = draw.choice([1, 2, 3, 9, 40, 256])
        parts.append(Packed(f"c{i}", size, draw.choice([size - 1, 2**8 - 1, 2**16 - 1])))
    packing = Packing.of("p", parts)
    columns = [(f"{part.column} USMALLINT" if part.most >= 2**8 else f"{part.column} UTINYINT")
               for part in packing.parts]  # fmt: skip
    con.execute(f"CREATE TABLE t (n INTEGER, {', '.join(columns) or 'none INTEGER'})").fetchall()
    rows = [[part.most for part in packing.parts], [0 for _ in packing.parts]]
    rows += [[draw.randrange(part.size) for part in packing.parts] for _ in range(20)]
    for i, row in enumerate(rows):
        con.execute(f"INSERT INTO t VALUES ({', '.join(map(str, [i, *row] if row else [i, 0]))})")
    if not packing.parts:
        return
    inner = f"SELECT n, {packing.sql} FROM t"
    found = con.execute(
        f"SELECT {', '.join(packing.unpacked)} FROM ({inner}) ORDER BY n"
    ).fetchall()
    found = [row[::-1] for row in found]  # they come from the last to the first
    assert found[1:] == [tuple(row) for row in rows[1:]]


def drawn_table(draw):
    """Columns of all kinds of small numbers, with rows beside their domains, and cut doubles."""
    names, columns, types = list("abcdef"), {}, {}
    for name in names:
        types[name] = draw.choice(list(TYPES))
        low = draw.choice([0, 0, 3])
        values = range(low, low + draw.choice([1, 2, 5, 30]))
        nullable = draw.random() < 0.4
        outside = draw.choice(["drop", "clamp", *(["null"] if nullable else [])])
        columns[name] = Domain(types[name], values, nullable=nullable, outside=outside)
    types |= {"x": "DOUBLE", "y": "DOUBLE"}
    lines = {}
    for name in "xy":
        key = line(name, "DOUBLE", [0, draw.randrange(1, 50)], nullable=True).key
        lines[key.name] = key
    return names, columns, types, lines


def hostile(draw, types):
    """A value of a column: small ones, those at the ends of the type, and NULL."""
    row = []
    for type_ in types.values():
        if type_ == "DOUBLE":
            row.append(draw.choice([None, float("nan"), float("inf"), -1.0, 0.0, 7.5, 60.0]))
        else:
            row.append(draw.choice([None, 0, 1, 2, 3, 4, 5, 17, TYPES[type_] - 1]))
    return row


@pytest.mark.parametrize("unit", [None, ResolvedUnit("row_number", "row_number", "INTEGER", (), 3)])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_packed_has_the_groups_that_it_has_apart(seed, unit, monkeypatch):
    draw, con = random.Random(seed), connect()  # noqa: S311
    names, columns, types, lines = drawn_table(draw)
    con.execute(
        f"CREATE TABLE t (row_number INTEGER, {', '.join(f'{n} {t}' for n, t in types.items())})"
    ).fetchall()
    rows = [[draw.randrange(40), *hostile(draw, types)] for _ in range(150)]
    insert(con, "t", rows)
    plain = Table("t", columns, {"row_number": "INTEGER", **types}, ("memory", "main", "t"), unit)
    domains = {name: key.domain for name, key in lines.items()}
    table = plain.deriving(domains, {name: key.digest for name, key in lines.items()})
    value = measure(RowColumn("x"), types, (Fraction(0), Fraction(50)), Fraction(1, 16))
    merged = {}
    for name in draw.sample([*names, *lines], 4):
        drawn = [draw.randrange(2) for _ in range(table.cells(name))]
        merged[name] = np.unique(drawn, return_inverse=True)[1]
    wanted = [tuple(draw.sample([*names, *lines], n)) for n in (3, 5)]
    wanted.append((*draw.sample(names, 4), *lines))
    wanted += [(*wanted[0], "s")]
    found, texts = [], []
    for most in (0, 2**62):
        monkeypatch.setattr(CHANGED, most)
        prepared = DuckDBEngine(con).prepared(
            table, wanted, merged, measures={"s": value}, keys=lines
        )
        texts.append(" ".join(one.sql for one in prepared.needed))
        prepared.check()
        found.append(prepared.run())
    assert [" AS u_p FROM " in text for text in texts] == [True, False]
    for marginal in wanted:
        packed, apart = (each[marginal] for each in found)
        assert packed.tolist() == apart.tolist()


def test_large_blocks_of_small_numbers_are_counted_in_a_plain_array():
    """DuckDB's own is 2^21 places here, which is more than it may be."""
    con, sizes = connect(), (4, 9, 6, 5, 2, 4, 4)
    con.execute("SET perfect_ht_threshold = 20").fetchall()
    columns = {f"c{i}": Domain("UTINYINT", range(n)) for i, n in enumerate(sizes)}
    con.execute(f"CREATE TABLE t ({', '.join(f'{name} UTINYINT' for name in columns)})").fetchall()
    made = ", ".join(f"hash(i * {k + 7}) % {n}" for k, n in enumerate(sizes))
    con.execute(f"INSERT INTO t SELECT {made} FROM range(20000) r(i)").fetchall()
    own = Table("t", columns, {}, ("memory", "main", "t"), enforced=frozenset(columns))
    coding = Coding(own)
    one = scan(coding, {tuple(columns): {}})
    ((_, plan),) = con.execute(f"EXPLAIN {one.sql}", list(one.parameters)).fetchall()
    assert "PERFECT_HASH_GROUP_BY" in plan.upper().replace(" ", "_")
    assert one.run(con)[0][tuple(columns)].sum() == 20_000
    assert MOST_PLACES < 2**20
