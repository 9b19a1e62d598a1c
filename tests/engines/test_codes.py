"""Codes of every kind of domain, column type and rule, against a slow oracle in Python."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.engines.duckdb.engine import Coding, DuckDBEngine, bounded_scan, scan
from dpsql.errors import SchemaError
from dpsql.schema import Domain, Schema, Unit
from tests.engines.test_bounded import MACROS
from tests.helpers.described import read_table

INF = math.inf
RULES = [(False, "drop"), (False, "clamp"), (True, "null"), (True, "drop"), (True, "clamp")]

INTEGERS = [0, 1, -1, 3, 4, 5, 9, 10, 11, 12, 49, 50, 51, 100, 127, -128]
DECIMALS = [
    "0", "0.04", "0.05", "0.06", "0.1", "0.12", "0.13", "0.24", "0.25", "0.26", "0.99", "1", "1.01",
    "5", "14.9", "15", "50", "50.1", "-0.1", "-0.01", "-99.99", "99.99",
]  # fmt: skip
DOUBLES = [
    0.0, -0.0, 5e-324, -5e-324, 0.1, 0.3, 0.7, 0.1 + 0.2, 0.05, 0.15, 0.25, 0.9, 1.0, 10.0, 50.0,
    math.nextafter(1.0, 0), math.nextafter(1.0, 2), math.nextafter(10.0, 0), 1e300, -1e300,
    1.7976931348623157e308, INF, -INF, math.nan,
]  # fmt: skip
DAYS = [
    "2020-01-01", "2019-12-31", "2020-02-29", "2020-03-31", "2020-12-28", "2020-12-31",
    "2021-01-01", "2021-01-03", "2021-01-04", "0001-01-01", "9999-12-31", "2020-06-30",
    "2020-07-01",
]  # fmt: skip
FAR_DAYS = ["infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", "0044-03-15 (BC)"]
NEW_YORK = "America/New_York"
FAR_TIMES = ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"]


TIMES = [f"{d} {t}" for d in DAYS for t in ("00:00:00", "05:59:59.999999", "23:59:59.999999")]
CHANGES = [
    "2020-03-08 06:59:59", "2020-03-08 07:00:00", "2020-11-01 05:59:59", "2020-11-01 06:00:00",
    "2020-11-01 06:59:59", "2020-11-01 07:00:00",
]  # fmt: skip
"""Instants at which the clock in New York is put forward and back."""


def in_new_york(text):
    """Return what the clock shows there."""
    if text.startswith("0001"):
        return -INF
    there = datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone(ZoneInfo(NEW_YORK))
    return there.replace(tzinfo=None)


def far(text):
    return -INF if text.startswith("-") or "BC" in text else INF


def rows(type_):
    """SQL text and what the oracle sees of it, for hostile values of a type."""
    if type_ == "DATE":
        known = [(f"'{d}'::DATE", date.fromisoformat(d)) for d in DAYS]
        return known + [(f"'{d}'::DATE", far(d)) for d in FAR_DAYS]
    if type_ == "TIMESTAMP":
        return [(f"'{t}'::TIMESTAMP", datetime.fromisoformat(t)) for t in TIMES] + [
            (f"'{t}'::TIMESTAMP", far(t)) for t in FAR_TIMES
        ]
    if type_ == "TIMESTAMPTZ":
        known = [(f"'{t}+00'::TIMESTAMPTZ", in_new_york(t)) for t in (*TIMES, *CHANGES)]
        ends = (("", t) if t.endswith("infinity") else ("+00", t) for t in FAR_TIMES)
        return known + [(f"'{t}{zone}'::TIMESTAMPTZ", far(t)) for zone, t in ends]
    if type_ == "DOUBLE":
        return [(f"'{v!r}'::DOUBLE", v) for v in DOUBLES]
    if type_ == "FLOAT":
        small = [float(np.float32(v)) for v in DOUBLES if not 1e38 < abs(v) < INF]
        return [(f"'{v!r}'::DOUBLE::FLOAT", v) for v in small]
    if type_.startswith("DECIMAL"):
        ends = ["9" * 36 + ".99", "-" + "9" * 36 + ".99"] if "38" in type_ else []
        scale = int(type_[:-1].split(",")[1])
        fitting = [v for v in DECIMALS + ends if len(v.partition(".")[2]) <= scale]
        return [(f"'{v}'::{type_}", Decimal(v)) for v in fitting]
    bits = {"TINYINT": 8, "UTINYINT": 8, "INTEGER": 32, "BIGINT": 64, "UBIGINT": 64}[type_]
    low, high = (0, 2**bits - 1) if type_[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    values = [v for v in [*INTEGERS, low, high] if low <= v <= high]
    return [(f"'{v}'::{type_}", v) for v in values]


def place(domain, type_, value):
    """Give the cell of a value that is not NULL; -1, n or None if it is below, above or nowhere."""
    values = domain.values
    if isinstance(value, float) and math.isnan(value):
        return None
    if domain.type == "DOUBLE":
        edges, x = [*values, domain.uppers[-1]], float(value)
        if type_ == "FLOAT":
            edges = [float(np.float32(edge)) for edge in edges]
        if not edges[0] <= x <= edges[-1]:
            return -1 if x < edges[0] else len(values)
        return max(i for i, e in enumerate(values) if e <= x)
    if domain.type == "DATE" and isinstance(value, datetime):
        value = value.date()
    if domain.type in {"DATE", "TIMESTAMP"}:
        for i, first in enumerate(values):
            last = domain.uppers[i] if domain.uppers else first
            if not isinstance(value, float) and first <= value <= last:
                return i
        below = value == -INF or (value != INF and value < values[0])
        above = value == INF or (value != -INF and value > (domain.uppers or values)[-1])
        return -1 if below else len(values) if above else None
    if domain.type.startswith("DECIMAL"):
        return nearest(values, type_, value)
    if value in values:
        return list(values).index(value)
    return -1 if value < values[0] else len(values) if value > values[-1] else None


def nearest(values, type_, value):
    low, high = values[0], values[-1]
    if type_ in {"DOUBLE", "FLOAT"}:
        ends = [float(np.float32(float(v))) if type_ == "FLOAT" else float(v) for v in (low, high)]
        if not ends[0] <= value <= ends[1]:
            return -1 if value < ends[0] else len(values)
        step = float(values[1] - low) if len(values) > 1 else 1.0
        return min(max(math.floor((value - float(low)) / step + 0.5), 0), len(values) - 1)
    if not low <= value <= high:
        return -1 if value < low else len(values)
    distances = [abs(Fraction(v) - Fraction(value)) for v in values]
    return max(i for i, d in enumerate(distances) if d == min(distances))


def cell(domain, type_, value):
    """Give the cell of a value, by the rules of `Domain`'s docstring."""
    count = len(domain.values)
    null = count if domain.nullable else None
    if value is None:
        return null
    found = place(domain, type_, value)
    if found is not None and 0 <= found < count:
        return found
    if domain.outside == "drop":
        return None
    if domain.outside == "null" or found is None:
        return null
    return min(max(found, 0), count - 1)


KINDS = {
    "range": (Domain.integers(0, 10), ["TINYINT", "UTINYINT", "INTEGER", "BIGINT", "UBIGINT"]),
    "a list of integers": (Domain("INTEGER", (1, 4, 50)), ["INTEGER", "BIGINT"]),
    "tens": (Domain.decimals(0, 50, 10), ["TINYINT", "INTEGER", "UBIGINT", "DECIMAL(5,1)"]),
    "one decimal": (Domain.decimals("0.25", "0.25", 1), ["DECIMAL(4,2)", "DOUBLE"]),
    "decimals": (Domain.decimals("0", "1", "0.05"), ["DECIMAL(4,2)", "DECIMAL(9,3)", "DOUBLE"]),
    "odd step": (Domain.decimals("-0.01", "0.98", "0.03"), ["DECIMAL(38,2)", "DOUBLE", "FLOAT"]),
    "tenths": (Domain.decimals("0.1", "0.7", "0.1"), ["DOUBLE", "FLOAT", "DECIMAL(18,2)"]),
    "bins": (Domain.bins([-0.0, 0.1, 0.3, 1, 10]), ["DOUBLE", "FLOAT", "DECIMAL(4,2)", "INTEGER"]),
    "wide bins": (Domain.bins([-1e300, -5e-324, 5e-324, 1e300]), ["DOUBLE", "BIGINT"]),
    "one bin": (Domain.bins([0, 50]), ["DOUBLE", "UTINYINT", "DECIMAL(38,2)"]),
    "days": (Domain.dates("2020-01-01", "2020-12-31"), ["DATE", "TIMESTAMP"]),
    "weeks": (Domain.dates("2020-01-01", "2021-01-03", "week"), ["DATE", "TIMESTAMP"]),
    "months": (Domain.dates("2020-01-15", "2020-12-01", "month"), ["DATE", "TIMESTAMP"]),
    "quarters": (Domain.dates("2020-02-15", "2021-01-03", "quarter"), ["DATE", "TIMESTAMP"]),
    "years": (Domain.dates("2019-06-01", "2020-06-01", "year"), ["DATE", "TIMESTAMP"]),
    "all years": (Domain.dates("0001-06-01", "9999-06-01", "year"), ["DATE"]),
    "hours": (Domain.dates("2020-02-28 21:15", "2020-02-29 06:00", "hour"), ["TIMESTAMP"]),
    "minutes": (Domain.dates("2019-12-31 23:50", "2020-01-01 06:10", "minute"), ["TIMESTAMP"]),
    "days there": (Domain.dates("2020-02-28", "2020-11-01", zone=NEW_YORK), ["TIMESTAMPTZ"]),
    "hours there": (
        Domain.dates("2020-10-31 23:00", "2020-11-01 02:00", "hour", zone=NEW_YORK),
        ["TIMESTAMPTZ"],
    ),
    "minutes there": (
        Domain.dates("2020-03-08 01:30", "2020-03-08 03:30", "minute", zone=NEW_YORK),
        ["TIMESTAMPTZ"],
    ),
    "listed days": (
        Domain("DATE", (date(2020, 1, 1), date(2020, 3, 31), date(2020, 12, 31))),
        ["DATE", "TIMESTAMP"],
    ),
    "a long list of integers": (
        Domain("INTEGER", (1, 4, *range(11, 127, 13), *range(200, 9000, 100), 10**6)),
        ["INTEGER", "UBIGINT"],
    ),
    "a long list of days": (
        Domain("DATE", tuple(date(2019, 12, 29) + timedelta(days=3 * i) for i in range(250))),
        ["DATE", "TIMESTAMP"],
    ),
}
CASES = [(kind, type_) for kind, (_, types) in KINDS.items() for type_ in types]


@pytest.fixture(scope="module")
def con():
    """One database for all: a new one takes longer to describe than its rows to count."""
    return duckdb.connect()


@pytest.fixture(scope="module")
def hostile():
    """Another one, in which macros have the names of functions and operators."""
    con = duckdb.connect()
    for macro in MACROS:
        con.execute(f"CREATE MACRO {macro}").fetchall()
    return con


def store(con, columns, values):
    """Make the table of these rows, given as SQL."""
    con.execute(f"CREATE OR REPLACE TABLE t ({columns})").fetchall()
    con.execute(f"INSERT INTO t VALUES {', '.join(f'({value})' for value in values)}").fetchall()


def counted(con, domain, others=()):
    schema = Schema({"t": {"x": domain}})
    table = read_table(con, ("t",), schema)
    return DuckDBEngine(con).marginals(table, [("x", *others)])[("x", *others)]


def with_outside(domain, codes):
    """Count codes, None in one more cell after those of a domain that leaves rows out."""
    places = [domain.size if code is None else code for code in codes]
    return np.bincount(places, minlength=domain.size + (not domain.covers_all)).tolist()


@pytest.mark.sampled(36)
@pytest.mark.parametrize(("nullable", "outside"), RULES)
@pytest.mark.parametrize(("kind", "type_"), CASES)
def test_every_value_has_the_cell_of_the_oracle(con, hostile, kind, type_, nullable, outside):
    domain = replace(KINDS[kind][0], nullable=nullable, outside=outside)
    values = [*rows(type_), ("NULL", None)]
    columns = f"x {type_}, i UTINYINT CHECK (i <= {len(values) - 1})"
    listed = [f"{text}, {i}" for i, (text, _) in enumerate(values)]
    store(con, columns, listed)
    counts = counted(con, domain, ["i"])
    for i, (text, value) in enumerate(values):
        expected = cell(domain, type_, value)
        found = np.flatnonzero(counts[:, i]).tolist()
        assert found == [domain.size if expected is None else expected], text
    assert counted(con, domain).sum() == counts.sum() == len(values)
    store(hostile, columns, listed)
    np.testing.assert_array_equal(counted(hostile, domain, ["i"]), counts)


BESIDE = {
    kind: (
        types[0],
        [replace(d, nullable=nullable, outside=outside) for nullable, outside in RULES],
    )
    for kind, (d, types) in KINDS.items()
}
BESIDE["labels"] = (
    "VARCHAR",
    [
        Domain.labels(["a", "b"]),
        Domain.labels(["a", "b"], nullable=True),
        Domain.labels(["a", "b"], nullable=True, outside="drop"),
        Domain.labels(["a", "b", "rest"], other="rest"),
        Domain.labels(["a", "b", "rest"], other="rest", nullable=True),
        Domain.labels([f"c{i}" for i in range(999)] + ["a", "A"]),
        Domain.labels([f"c{i}" for i in range(999)] + ["a", "A", "rest"], other="rest"),
    ],
)
BESIDE |= {f"{t} of the catalog": (t, [None]) for t in ("BOOLEAN", "ENUM('a', 'b')")}
TEXTS = ["'a'", "'b'", "'a'"]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("unit", [None, Unit("i", max_rows=2)])
@pytest.mark.parametrize("kind", BESIDE)
def test_rows_are_the_same_in_and_beside_the_block(con, kind, unit):
    """Which columns are counted by decides in which cell a row is, not whether it counts."""
    type_, domains = BESIDE[kind]
    values = {
        "BOOLEAN": ["true", "false"], "VARCHAR": [*TEXTS, "'A'", "''"], "ENUM('a', 'b')": TEXTS,
    }.get(type_) or [text for text, _ in rows(type_)]  # fmt: skip
    listed = [f"{i}, {x}" for i, x in enumerate([*values, "NULL"])]
    store(con, f"i UTINYINT CHECK (i <= {len(values)}), x {type_}", listed)
    for domain in domains:
        schema = Schema({"t": {"x": domain}}) if domain is not None else None
        table = read_table(con, ("t",), schema, unit)
        for merged in ({}, {"x": np.arange(table.cells("x")) % 2}):
            build = scan if unit is None else bounded_scan
            blocks = {("i",): {}, ("x",): {}, ("i", "x"): {}}
            counting = build(Coding(table, merged), blocks)
            counting.check(con)
            counted, _ = counting.run(con)
            assert (counted["i",] == counted["i", "x"].sum(axis=1)).all()
            assert (counted["x",] == counted["i", "x"].sum(axis=0)).all()
        engine = DuckDBEngine(con)
        engine.prepared(table, [("i",)]).check()
        assert (engine.marginals(table, [("i",)])["i",] == counted["i",]).all()
        assert counted["i",].sum() == len(values) + 1


def merges(cells):
    """Ways to count cells together: none, every other one, few runs, two changed round."""
    at, swapped = np.arange(cells), np.r_[1 : min(cells, 2), 0, 2:cells]
    ways = [at % 2, at * 3 // cells, (at >= cells // 3) & (at <= cells // 2), swapped]
    return [{}, *({"x": np.unique(way, return_inverse=True)[1]} for way in ways)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("most", [10**12, 0])
@pytest.mark.parametrize("kind", BESIDE)
def test_rows_find_the_classes_of_their_groups(con, hostile, monkeypatch, kind, most):
    """Whether what is stored is grouped by, or classes: then of no more groups than cells."""
    type_, domains = BESIDE[kind]
    values = {
        "BOOLEAN": ["true", "false"], "VARCHAR": [*TEXTS, "'A'", "''"], "ENUM('a', 'b')": TEXTS,
    }.get(type_) or [text for text, _ in rows(type_)]  # fmt: skip
    for place in (con, hostile):
        store(place, f"x {type_}", [*values, "NULL"])
    monkeypatch.setattr("dpsql.engines.duckdb.coding.MOST_STORED", most)
    for domain in domains:
        table = read_table(con, ("t",), Schema({"t": {"x": domain}}) if domain else None)
        each = (
            counted(con, domain) if domain else DuckDBEngine(con).marginals(table, [("x",)])["x",]
        )
        for merged in merges(table.cells("x")):
            classes = merged.get("x", np.arange(table.cells("x")))
            counting = scan(Coding(table, merged), {("x",): {}})
            together = np.bincount(classes, each).tolist()
            for place in (con, hostile):
                assert counting.run(place)[0]["x",].tolist() == together
            returned = f"SELECT count(*) FROM ({counting.sql})"
            ((groups,),) = con.execute(returned, list(counting.parameters)).fetchall()
            assert most or groups <= len(together)


@pytest.mark.parametrize("nullable", [False, True])
def test_strings_outside_the_list_go_to_the_other_label(nullable):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x VARCHAR COLLATE NOCASE)").fetchall()
    con.execute("INSERT INTO t VALUES ('a'), ('A'), ('rest'), (''), ('é'), (NULL)").fetchall()
    domain = Domain.labels(["rest", "a"], other="rest", nullable=nullable)
    assert counted(con, domain).tolist() == [4, 1, 1]  # the last one is NULL, or outside


def test_a_long_list_is_compared_as_bytes_whatever_columns_are_called():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (listed_ VARCHAR COLLATE NOCASE, place_ INTEGER)").fetchall()
    con.execute("INSERT INTO t SELECT 'c' || range % 100, 1 FROM range(1000)").fetchall()
    con.execute("INSERT INTO t VALUES ('C1', 1), ('c100', 1), ('', 1), (NULL, 1)").fetchall()
    domain = Domain.labels([f"c{i}" for i in range(100)])
    table = read_table(con, ("t",), Schema({"t": {"listed_": domain}}))
    counts = DuckDBEngine(con).marginals(table, [("listed_",)])["listed_",]
    assert counts.tolist() == [10] * 100 + [4]


def test_strings_outside_are_counted_beside_a_null_cell():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x VARCHAR)").fetchall()
    con.execute("INSERT INTO t VALUES ('a'), ('b'), (NULL)").fetchall()
    assert counted(con, Domain.labels(["a"], nullable=True, outside="drop")).tolist() == [1, 1, 1]


def test_every_row_counts_in_every_marginal():
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x DOUBLE, b BOOLEAN NOT NULL)").fetchall()
    con.execute("INSERT INTO t VALUES (1, true), (99, true), (NULL, false)").fetchall()
    schema = Schema({"t": {"x": Domain.bins([0, 9], nullable=True, outside="drop")}})
    table = read_table(con, ("t",), schema)
    counts = DuckDBEngine(con).marginals(table, [("x", "b"), ("b",), ("x",)])
    assert counts["x", "b"].tolist() == [[0, 1], [1, 0], [0, 1]]
    assert counts["b",].tolist() == [1, 2]
    assert counts["x",].tolist() == [1, 1, 1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=12, unique=True
    ),
    st.lists(st.floats(), min_size=1, max_size=30),
    st.sampled_from(RULES),
)
def test_bins_agree_with_comparisons_of_doubles(con, edges, values, rule):
    edges = sorted({e + 0.0 for e in edges})
    if len(edges) < 2:
        return
    domain = Domain.bins(edges, nullable=rule[0], outside=rule[1])
    values += [*edges, *(math.nextafter(e, -INF) for e in edges)]
    con.execute("CREATE OR REPLACE TABLE t (x DOUBLE)").fetchall()
    con.execute("INSERT INTO t SELECT unnest(?::DOUBLE[])", [values]).fetchall()
    codes = [cell(domain, "DOUBLE", value) for value in values]
    assert counted(con, domain).tolist() == with_outside(domain, codes)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.integers(0, 6), st.integers(-(10**36), 10**36), st.integers(1, 10**6), st.integers(1, 50),
    st.lists(st.integers(-60, 10**8), min_size=1, max_size=20), st.sampled_from(RULES),
)  # fmt: skip
def test_grids_are_exact_in_wide_decimals(con, scale, low, step, count, offsets, rule):
    unit = Fraction(1, 10**scale)
    texts = [Decimal(f"{v}E-{scale}") for v in (low, low + step * (count - 1), step)]
    domain = Domain.decimals(*texts, nullable=rule[0], outside=rule[1])
    stored = [low + offset % (step * count + 40) - 20 for offset in offsets]
    texts = [f"{Decimal(f'{value}E-{scale}'):f}" for value in stored]
    con.execute(f"CREATE OR REPLACE TABLE t (x DECIMAL(38,{scale}))").fetchall()
    con.execute("INSERT INTO t SELECT unnest(?::VARCHAR[])", [texts]).fetchall()
    codes = [cell(domain, f"DECIMAL(38,{scale})", value * unit) for value in stored]
    assert counted(con, domain).tolist() == with_outside(domain, codes)


@pytest.mark.parametrize("grain", ["day", "week", "month", "quarter", "year"])
def test_periods_are_those_of_date_trunc(grain):
    domain = Domain.dates("1899-12-30", "1904-03-01", grain)
    days = [date(1899, 12, 1) + timedelta(days=i) for i in range(1700)]
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x DATE)").fetchall()
    con.execute("INSERT INTO t SELECT unnest(?::DATE[])", [days]).fetchall()
    sql = f"SELECT date_trunc('{grain}', x)::DATE, max(x), count(*) FROM t GROUP BY 1 ORDER BY 1"
    known = {first: (last, n) for first, last, n in con.execute(sql).fetchall()}
    counts = counted(con, domain)
    assert set(domain.values) <= set(known)
    inside = [known[first][1] for first in domain.values]
    assert counts.tolist() == [*inside, len(days) - sum(inside)]
    uppers = domain.uppers or domain.values
    assert list(uppers)[:-1] == [known[first][0] for first in domain.values][:-1]


def test_many_bins_are_found():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT (range + 0.5)::DOUBLE AS x FROM range(2000)").fetchall()
    assert counted(con, Domain.bins(range(2001))).tolist() == [1] * 2000 + [0]


@pytest.mark.parametrize(
    ("type_", "domain"),
    [
        ("DECIMAL(4,1)", Domain.decimals(0, 1, "0.05")),
        ("DECIMAL(4,1)", Domain.decimals(0, 1000, 1)),
        ("INTEGER", Domain.decimals(0, 1, "0.5")),
        ("UTINYINT", Domain.decimals(0, 300, 100)),
        ("DOUBLE", Domain.decimals(0, 2**50, 1)),
        ("VARCHAR", Domain.decimals(0, 1, 1)),
        ("TIMESTAMPTZ", Domain.dates("2020-01-01", "2020-12-31")),
        ("TIMESTAMPTZ", Domain.dates("2020-01-01", "2020-12-31", "hour")),
        ("TIMESTAMPTZ", Domain.dates("2020-01-01", "2020-12-31", zone="Europe/Berln")),
        ("TIMESTAMP", Domain.dates("2020-01-01", "2020-12-31", zone="UTC")),
        ("DATE", Domain.dates("2020-01-01", "2020-12-31", "hour")),
        ("DATE", Domain.dates("2020-01-01", "2020-12-31", zone="UTC")),
        ("VARCHAR", Domain.dates("2020-01-01", "2020-12-31")),
        ("DATE", Domain.bins([0, 1])),
        ("DOUBLE", Domain.integers(0, 1)),
        ("HUGEINT", Domain.bins([0, 1])),
    ],
)
def test_columns_that_cannot_hold_a_domain_are_refused(type_, domain):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (x {type_})").fetchall()
    with pytest.raises(SchemaError) as caught:
        read_table(con, ("t",), Schema({"t": {"x": domain}}))
    assert caught.value.hint


def test_the_clock_is_that_of_the_declared_zone_whatever_the_session_is_set_to():
    con = duckdb.connect()
    store(con, "x TIMESTAMPTZ", ["'2020-06-30 23:30:00+00'", "'2020-07-01 03:30:00+00'"])
    days = Domain.dates("2020-06-30", "2020-07-01", zone=NEW_YORK)
    for zone in ("UTC", "Asia/Tokyo", "Pacific/Honolulu"):
        con.execute(f"SET TimeZone = '{zone}'").fetchall()
        assert counted(con, days).tolist() == [2, 0, 0]
    con.execute("SET Calendar = 'ethiopic'").fetchall()
    with pytest.raises(SchemaError, match="not the Gregorian") as caught:
        counted(con, days)
    con.execute(caught.value.hint).fetchall()
    assert counted(con, days).tolist() == [2, 0, 0]


@pytest.mark.parametrize("type_", ["TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"])
def test_times_in_other_units_have_days(type_):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t (x {type_})").fetchall()
    con.execute("INSERT INTO t VALUES (TIMESTAMP '2020-01-02 23:59:59'), (NULL)").fetchall()
    days = Domain.dates("2020-01-01", "2020-01-03")
    assert read_table(con, ("t",), Schema({"t": {"x": days}})).columns["x"].timed
    assert counted(con, days).tolist() == [0, 1, 0, 1]
