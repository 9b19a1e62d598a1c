"""Sums of measures from DuckDB against adding up in Python."""

from __future__ import annotations

import math
from fractions import Fraction
from unittest.mock import patch

import duckdb
import numpy as np
import pytest

from dpsql.engines.base import LOW_BITS
from dpsql.engines.duckdb.coding import words_of
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.sums import RowSum
from dpsql.errors import InternalError, UnsupportedSqlError
from dpsql.rows.expression import RowColumn, columns
from dpsql.rows.measure import RowMeasure, measure
from dpsql.rows.operands import cast
from dpsql.rows.types import RowType
from dpsql.rows.write import RowWriter
from dpsql.schema import Domain, Table
from dpsql.schema.units import ResolvedUnit
from tests.helpers.inserted import insert
from tests.rows.tools import parse


def value(sql):
    expression, most = parse(duckdb.connect(), sql), 2**31 - 1
    written = RowWriter({"v": "INTEGER", "w": "INTEGER"}).write(expression)
    return RowMeasure(
        cast(written, RowType("INTEGER")), Fraction(1), 0, -most, most, columns(expression),
        exact=True,
    )  # fmt: skip


K, L = Domain("INTEGER", range(3)), Domain("INTEGER", range(4))
MEASURES = {
    "v": value("coalesce(v, 0)"),
    "w": value("v * v"),
    "one": value("1"),
}
WANTED = [("k",), ("k", "v"), ("k", "l", "v"), ("v",), ("l", "w"), (), ("l", "one"), ("l",)]


@pytest.fixture
def rows():
    random = np.random.default_rng(5)
    return np.column_stack(
        [random.integers(0, n, 500) for n in (3, 4)] + [random.integers(-50, 50, 500)]
    )


def stored(rows):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (p INTEGER, k INTEGER, l INTEGER, v INTEGER)").fetchall()
    people = np.arange(len(rows)) // 2
    insert(con, "t", np.column_stack([people, rows]).tolist())
    return con


def table(unit=None):
    columns = {"k": K, "l": L}
    path = ("memory", "main", "t")
    undeclared = {"p": "INTEGER", "v": "INTEGER"}
    enforced = frozenset(columns)
    return Table("t", columns, undeclared, path, unit, enforced=enforced)


def added(rows, marginal):
    """Return what is expected, of shape (…, 1) for a measure."""
    values = {"v": rows[:, 2], "w": rows[:, 2] ** 2, "one": np.ones(len(rows), dtype=int)}
    keys = [name for name in marginal if name in "kl"]
    shape = [{"k": 3, "l": 4}[name] for name in keys]
    measure = next((name for name in marginal if name in values), None)
    result = np.zeros(shape, dtype=np.int64)
    of = np.ones(len(rows), dtype=int) if measure is None else values[measure]
    for row, value in zip(rows, of, strict=True):
        result[tuple(row["kl".index(name)] for name in keys)] += value
    return result if measure is None else result[..., None]


def test_sums_agree_with_python(rows):
    counted = DuckDBEngine(stored(rows)).marginals(table(), WANTED, measures=MEASURES)
    assert set(counted) == set(WANTED)
    for marginal in WANTED:
        np.testing.assert_array_equal(counted[marginal], added(rows, marginal))
        assert counted[marginal].dtype == np.int64


def test_counts_and_sums_of_the_same_keys_come_from_one_scan(rows):
    prepared = DuckDBEngine(stored(rows)).prepared(table(), WANTED, measures=MEASURES)
    assert len(prepared.needed) == 1


def test_of_each_unit_the_rows_that_are_kept_are_told_by_what_is_read(rows):
    unit = ResolvedUnit("p", "p", "INTEGER", (), 1)
    con = stored(np.zeros_like(rows))  # both rows of each agree in all that has a domain
    con.execute("UPDATE t SET v = rowid % 2").fetchall()
    before = DuckDBEngine(con).marginals(table(unit), [("k",), ("k", "v")], measures=MEASURES)
    con.execute("CREATE TABLE o AS SELECT * FROM t ORDER BY rowid DESC").fetchall()
    con.execute("DELETE FROM t").fetchall()
    con.execute("INSERT INTO t SELECT * FROM o").fetchall()
    after = DuckDBEngine(con).marginals(table(unit), [("k",), ("k", "v")], measures=MEASURES)
    assert before["k",][0] == 250
    np.testing.assert_array_equal(before["k", "v"], after["k", "v"])


def test_which_rows_of_a_unit_are_kept_does_not_depend_on_what_is_read():
    """Of rows that agree in all that has a domain, each release must keep the same ones.

    The answers of two releases are put together. Here v and w of a row always agree, so that two
    sums of the same rows do.
    """
    con = duckdb.connect()
    con.execute("CREATE TABLE t (p INTEGER, k INTEGER, l INTEGER, v INTEGER, w INTEGER)")
    con.execute("INSERT INTO t SELECT i // 5, 0, 0, i, (7919 * i) % 1000 FROM range(1000) r(i)")
    known = Table(
        "t", {"k": K, "l": L}, {"p": "INTEGER", "v": "INTEGER", "w": "INTEGER"},
        ("memory", "main", "t"), ResolvedUnit("p", "p", "INTEGER", (), 2),
        enforced=frozenset({"k", "l"}),
    )  # fmt: skip
    of_v = value("(v * 7919) % 1000")
    of_w = value("w")
    one = DuckDBEngine(con).marginals(known, [("s",)], measures={"s": of_v})
    other = DuckDBEngine(con).marginals(known, [("s",)], measures={"s": of_w})
    both = DuckDBEngine(con).marginals(known, [("s",), ("z",)], measures={"s": of_v, "z": of_w})
    assert one["s",] == other["s",] == both["s",] == both["z",]


def test_columns_that_no_expression_can_read_decide_nothing():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (p INTEGER, k INTEGER, l INTEGER, v INTEGER, b BLOB, m INTEGER[])")
    con.execute("INSERT INTO t SELECT i // 5, 0, 0, i, 'x', [i] FROM range(100) r(i)")
    undeclared = {"p": "INTEGER", "v": "INTEGER", "b": "BLOB", "m": "INTEGER[]"}
    unit = ResolvedUnit("p", "p", "INTEGER", (), 2)
    known = Table("t", {"k": K, "l": L}, undeclared, ("memory", "main", "t"), unit)
    counted = DuckDBEngine(con).marginals(known, [("k", "v"), ("k",)], measures=MEASURES)
    assert counted["k",].sum() == 40


def test_what_is_added_up_is_told_by_one_name():
    both = [("k", "v", "w")]
    with pytest.raises(InternalError, match="of one measure"):
        DuckDBEngine(duckdb.connect()).prepared(table(), both, measures=MEASURES)
    named = {"k": MEASURES["v"]}
    with pytest.raises(InternalError, match="name of a column"):
        DuckDBEngine(duckdb.connect()).prepared(table(), [("k",)], measures=named)


def test_what_counted_says_how_much_a_row_may_add(rows):
    counted = DuckDBEngine(stored(rows)).marginals(table(), WANTED, measures=MEASURES)
    assert dict(counted.bounds) == {name: value.bound for name, value in MEASURES.items()}


SHIFTS = {
    "as it is": (Fraction(-5), Fraction(10), Fraction(1, 100), True),
    "far from zero": (Fraction(900), Fraction(1000), Fraction(1, 100), True),
    "from zero": (Fraction(0), Fraction(1000), Fraction(1, 100), False),
    "in binary steps": (Fraction(-3), Fraction(1000), Fraction(1, 2**18), True),
    "wide": (Fraction(-(10**6)), Fraction(10**6), Fraction(1, 1024), False),
}


@pytest.mark.parametrize("how", SHIFTS)
@pytest.mark.parametrize(
    "text", ["p", "p * (1 - q)", "x", "p * p * p", "i", "CASE WHEN i > 1 THEN p END"]
)
def test_what_is_taken_off_of_each_row_is_put_back_in_sums(text, how):
    """Whatever a row holds: nothing, too much, or what its type can't compute."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (k INTEGER, p DECIMAL(15,2), q DECIMAL(15,2), x DOUBLE, i INTEGER)")
    con.execute("""
        INSERT INTO t SELECT i % 3, (i * 7919 % 120000 - 10000) / 100, i % 10 / 100,
            i * 31 % 1100 - 50.5, i % 1200 - 100 FROM range(600) r(i)
    """)
    con.execute("""
        INSERT INTO t VALUES (0, NULL, NULL, NULL, NULL), (1, 9999999999999.99, -1, 'nan', 7),
            (2, -9999999999999.99, 2, 'inf', 0), (2, 0, 0, '-inf', 0), (7, 1, 1, 1, 1),
            (1, 0, 0, 0, 0)
    """)
    low, high, step, centered = SHIFTS[how]
    types = {"p": "DECIMAL(15,2)", "q": "DECIMAL(15,2)", "x": "DOUBLE", "i": "INTEGER"}
    made = measure(parse(con, text), types, (low, high), step, centered=centered)
    known = Table("t", {"k": K}, types, ("memory", "main", "t"))
    found = DuckDBEngine(con).marginals(known, [("k", "s"), ("s",), ("k",)], measures={"s": made})
    assert found["k", "s"].shape == (4, 1)
    summed = [0] * 4
    exact = text.replace("p", "p::DOUBLE").replace("i", "i::DOUBLE") if "p *" in text else text
    for key, value in con.execute(f"SELECT k, ({exact})::DOUBLE FROM t").fetchall():
        if value is None or math.isnan(value):
            continue
        least, most = made.low + made.middle, made.high + made.middle
        steps = min(max(value / float(step), least), most)
        summed[key if key < 3 else 3] += round(steps) - made.middle
    # A step for each row, where doubles are rounded to it from a half.
    np.testing.assert_allclose(found["k", "s"].ravel(), summed, atol=300, rtol=0)
    assert found["s",].sum() == found["k", "s"].sum()


@pytest.mark.parametrize("low", [-1000, 0])
@pytest.mark.parametrize("parts", [10, 1000])
def test_rows_move_sums_that_are_rounded_by_no_more_than_is_paid_for(parts, low):
    """In marginals of any scan, whatever they are rounded with: also where they lie in two."""
    random = np.random.default_rng(parts)
    con = duckdb.connect()
    con.execute("CREATE TABLE t (k INTEGER, l INTEGER, p DECIMAL(15,2))")
    keys, cents = random.integers(0, 5, (60, 2)), random.integers(-120_000, 120_000, 60)
    rows = [
        (*map(int, pair), None if i % 9 == 0 else f"{cents[i] / 100:.2f}")
        for i, pair in enumerate(keys)
    ]
    rows += [(0, 0, "99999999.99"), (0, 1, "-99999999.99"), (1, 1, "5.00"), (1, 1, "4.99")]
    made = measure(RowColumn("p"), {"p": "DECIMAL(15,2)"}, (Fraction(low), Fraction(1000)),
                   Fraction(parts, 100))  # fmt: skip
    assert made.parts == parts
    known = Table("t", {"k": K, "l": L}, {"p": "DECIMAL(15,2)"}, ("memory", "main", "t"))
    wanted = [("k", "s"), ("l", "s"), ("k", "l", "s"), ("s",)]

    def counted(rows):
        con.execute("DELETE FROM t")
        listed = ", ".join(f"({k}, {m}, {p or 'NULL'})" for k, m, p in rows)
        con.execute(f"INSERT INTO t VALUES {listed}")
        with patch("dpsql.engines.duckdb.blocks.MOST_CELLS", 4):  # so each is scanned by itself
            return DuckDBEngine(con).marginals(known, wanted, measures={"s": made})

    full = counted(rows)
    for many in (1, 1, 1, 2, 7):
        gone = {int(i) for i in random.permutation(len(rows))[:many]} | {len(rows) - many}
        left = counted([row for i, row in enumerate(rows) if i not in gone])
        for marginal in wanted:
            moved = np.abs(full[marginal] - left[marginal])
            assert moved.sum() <= len(gone) * made.bound
            assert np.count_nonzero(moved) <= len(gone)
    for marginal in wanted:  # and means what it says, but for half a step for each group
        exact = [min(max(Fraction(p), low), 1000) for _, _, p in rows if p is not None]
        steps = sum(exact) / made.step - len(exact) * made.middle
        assert abs(int(full[marginal].sum()) - steps) <= Fraction(20, 2)


DOUBLES = [
    (5, 10, Fraction(1, 4)), (-10, -5, Fraction(1, 4)), (5, 10, Fraction(1, 10)),
    (10**9, 10**9 + 1, Fraction(1, 2**20)), (0, 2**29, Fraction(1, 2)), (0, 3 * 10**9, Fraction(2)),
    (-1, 1, Fraction(1, 2**30)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "times"), [("x", 1), ("x * 3 - i", 3)])
@pytest.mark.parametrize(("low", "high", "step"), DOUBLES)
@pytest.mark.parametrize("centered", [False, True])
def test_a_row_moves_a_sum_by_what_it_adds_whatever_double_it_has(
    text, times, low, high, step, centered
):
    """Be it the only one that isn't too small, of a group that has a sum of NULL before."""
    con = duckdb.connect()
    types = {"x": "DOUBLE", "i": "INTEGER"}
    bounds = (Fraction(low), Fraction(high))
    try:
        made = measure(parse(con, text), types, bounds, step, centered=centered)
    except UnsupportedSqlError:  # too many steps from zero
        assert not centered
        return
    near = [math.nextafter(end, to) for end in (low, high) for to in (-math.inf, end, math.inf)]
    near += [float(end + step * part / 4) for end in (low, high) for part in range(-6, 7)]
    values = [*near, -1e308, 1e308, 5e-324, -0.0, math.inf, -math.inf, math.nan, None]
    before = [[], [-1e308], [None, math.nan], [math.inf], [float(low)] * 3, [low - 5.0] * 2]
    groups = [[*rows, value / times if value else value] for rows in before for value in values]
    groups += before
    con.execute("CREATE TABLE t (k INTEGER, x DOUBLE, i INTEGER)")
    listed = ((k, x) for k, rows in enumerate(groups) for x in rows)
    texts = (f"({k}, {'NULL' if x is None else repr(repr(x))}::DOUBLE, 0)" for k, x in listed)
    con.execute(f"INSERT INTO t VALUES {', '.join(texts)}")
    k = Domain("INTEGER", range(len(groups)))
    known = Table("t", {"k": k}, types, ("memory", "main", "t"), enforced=frozenset({"k"}))
    found = DuckDBEngine(con).marginals(known, [("k", "s")], measures={"s": made})
    sums = found["k", "s"].ravel().tolist()
    for i, total in enumerate(sums[: -len(before)]):
        v, value = total - sums[len(sums) - len(before) + i // len(values)], values[i % len(values)]
        assert made.low <= v <= made.high
        if value is None or math.isnan(value):
            assert v == 0
        else:
            expected = min(max(value / float(step) - made.middle, made.low), made.high)
            assert abs(v - expected) <= 0.51


def test_names_of_columns_do_not_meet_those_of_the_scan():
    con = duckdb.connect()
    names = ["u_k0", "u_x0", "u_x0r", "n", "m0", "k0", "kept", "uu_x0"]
    listed = ", ".join(f"{name} INTEGER" for name in names)
    con.execute(f"CREATE TABLE t ({listed})")
    con.execute(f"INSERT INTO t VALUES ({', '.join(str(i % 3) for i in range(len(names)))})")
    known = Table("t", dict.fromkeys(names[:5], K), dict.fromkeys(names[5:], "INTEGER"),
                  ("memory", "main", "t"))  # fmt: skip
    for step in (Fraction(1), Fraction(1, 4)):
        made = measure(parse(con, "u_x0 + n + kept"), dict.fromkeys(names, "INTEGER"),
                       (Fraction(-9), Fraction(9)), step)  # fmt: skip
        wanted = [("u_k0", "n", "s"), ("u_x0r",), ("m0", "u_x0", "s")]
        found = DuckDBEngine(con).marginals(known, wanted, measures={"s": made})
        assert found["u_k0", "n", "s"].ravel().nonzero()[0].tolist() == [0 * 4 + 0]
        assert found["u_k0", "n", "s"].sum() == 1 / step
        assert found["m0", "u_x0", "s"].sum() == 1 / step


EDGES = [2**b + e for b in (28, 31, 53, 62, 63, 64, 84, 90) for e in (-1, 0, 1)]


@pytest.mark.parametrize("most", [*EDGES, 2**120])
def test_both_words_of_a_sum_are_exact_and_end_where_they_must(most):
    """Whatever the sum of a group is: DuckDB's integers of 128 bits hold more."""
    con, ends = duckdb.connect(), 2**90
    high, low = words_of(RowSum.made(MEASURES["one"]), "m", "c")
    for exact in (most, -most):
        found = con.execute(f"SELECT {high}, {low} FROM (SELECT '{exact}'::HUGEINT AS m, 0 AS c)")
        assert [str(type_) for _, type_, *_ in found.description] == ["BIGINT", "BIGINT"]
        inside = min(max(exact, -ends), ends)
        assert found.fetchone() == (inside >> LOW_BITS, inside % 2**LOW_BITS)
    missing = con.execute(f"SELECT {high}, {low} FROM (SELECT NULL::HUGEINT AS m, 0 AS c)")
    assert missing.fetchone() == (0, 0)


@pytest.mark.parametrize("times", [2**33 + 1, 2**40 + 3, 2**60 - 1])
def test_sums_that_64_bits_do_not_hold_come_in_two_words(rows, times):
    """As if each row stood for many."""
    plain = RowSum.total

    def many(self, summed, count):
        return f"({plain(self, summed, count)} * '{times}'::HUGEINT)"

    with patch.object(RowSum, "total", many):
        counted = DuckDBEngine(stored(rows)).marginals(table(), WANTED, measures=MEASURES)
    sums = [marginal for marginal in WANTED if not MEASURES.keys().isdisjoint(marginal)]
    assert set(counted.above) == set(sums)
    for marginal in sums:
        exact = added(rows, marginal).astype(object) * times
        np.testing.assert_array_equal(counted.above[marginal], exact >> LOW_BITS)
        wrapped = (exact + 2**63) % 2**64 - 2**63
        np.testing.assert_array_equal(counted[marginal], wrapped.astype(np.int64))
    assert max(abs(added(rows, ("l", "w")).astype(object) * times).ravel()) > 2**45
