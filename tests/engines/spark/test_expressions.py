"""Expressions of rows in Spark: DuckDB's values, whatever rows hold; and what is refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark.engine import SparkEngine
from dpsql.engines.spark.sessions import own_session
from dpsql.engines.spark.sql.expressions import spark_sql
from dpsql.errors import DpsqlError, UnsupportedSqlError
from dpsql.rows.expression import RowCall, RowColumn, RowConstant
from dpsql.rows.key import line, row_key
from dpsql.rows.measure import bounded_columns, measure
from dpsql.rows.write import RowWriter
from dpsql.schema import Domain, Table
from dpsql.schema.units import ResolvedUnit
from tests.engines.spark.conftest import OneFile
from tests.helpers.inserted import insert
from tests.rows.test_total import hostile_rows
from tests.rows.tools import TYPES, Random, benign, connect, create, parse

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]

STORED = {name: type_ for name, type_ in TYPES.items() if name not in "uhe"}
"""Columns of types that Spark reads from a Parquet file."""

EQUAL = """
abs(b * b) ; abs(- b * b)
i + 1 ; b + b ; i * i ; b * i ; b - i ; p + q ; p * q ; p - 1 ; q * q * q ; d + 7 ; d - 7 ; 7 + d
d - DATE '2020-02-29' ; d + i ; - a ; - b ; - p ; - x ; x + 1 ; x * x ; x - p ; x / 2 ; x / x
i / a ; p / q ; b // 3 ; i // a ; i % a ; b % 7 ; b // -1 ; i // b ; abs(i) ; abs(p) ; abs(x)
sign(x) ; sign(i) ; sign(p) ; abs(b) ; round(p, 1) ; round(p) ; floor(p) ; ceil(p) ; trunc(p)
round(q) ; floor(q) ; round(x) ; floor(x) ; ceil(x) ; trunc(x) ; round(x, 2) ; round(x, -2)
round(p, -2) ; round(i, -1) ; round(i) ; round(w, 3) ; floor(w) ; isnan(x) ; isfinite(x) ; isinf(x)
lower(s) ; upper(s) ; trim(s) ; ltrim(s) ; rtrim(s) ; length(s) ; strlen(s) ; s || i ; s || 'x'
substring(s, 2, 3) ; substring(s, 1) ; substring(s, 3) ; left(s, 2) ; right(s, 2) ; right(s, 0)
left(s, 0) ; substring(s, 2, 0) ; contains(s, 'b') ; contains(s, '') ; starts_with(s, 'a')
ends_with(s, 'c') ; strpos(s, 'b') ; s LIKE 'a%' ; s LIKE '%b' ; s LIKE 'a%b' ; s LIKE '%a%b%'
s LIKE 'abc' ; s LIKE '%' ; s LIKE '' ; s ILIKE '%B%' ; s LIKE '%%b%%' ; s LIKE 'a%a' ; sqrt(x)
s NOT LIKE '%é%' ; s LIKE '%a%a%a%' ; s LIKE '''%' ; s LIKE '%\\' ; s = '''' ; s > 'a' ; s <> ''
date_part('hour', t) ; date_part('minute', t) ; date_part('second', t) ; year(d) ; month(d)
day(d) ; quarter(d) ; week(d) ; dayofweek(d) ; isodow(d) ; dayofyear(d) ; year(t) ; month(t)
day(t) ; week(t) ; dayofweek(t) ; hour(d) ; quarter(t) ; dayofyear(t) ; isodow(t) ; dayname(d)
monthname(d) ; dayname(t) ; date_trunc('month', d) ; date_trunc('month', t)
date_trunc('year', t) ; date_trunc('week', t) ; date_trunc('quarter', t) ; date_trunc('day', t)
CAST(t AS DATE) ; CAST(d AS TIMESTAMP) ; date_diff('day', d, t) ; date_diff('month', d, t)
date_diff('year', t, d) ; date_diff('quarter', d, t) ; d > '2001-01-01' ; t <= d ; t = d
date_diff('hour', d, t) ; date_diff('minute', t, d) ; date_diff('second', d, t)
t - d < INTERVAL 3 DAY ; date_diff('microsecond', t, d) ; date_diff('millisecond', d, t)
date_diff('day', d, DATE '2020-01-01') ; date_diff('quarter', DATE '2020-01-01', d)
date_diff('hour', DATE '2020-01-01', d) ; date_diff('second', d, DATE '2020-01-01')
date_diff('millisecond', DATE '2020-01-01', d) ; date_diff('microsecond', d, DATE '2020-01-01')
t + INTERVAL 1 MONTH ; d - INTERVAL 90 MINUTE ; t + INTERVAL '-13 months 5 days'
d + INTERVAL 1 YEAR > t ; t - INTERVAL 1 DAY
greatest(d, t) ; least(d, DATE '2020-01-01') ; i BETWEEN 1 AND p ; s IN ('a', 'abc') ; s IS NULL
coalesce(i, p) ; nullif(x, 0) ; nullif(i, 3) ; least(i, 5) ; greatest(i, b) ; greatest(x, 0)
least(x, i) ; CASE WHEN o THEN i ELSE x END ; NOT o AND true ; o OR i > 3 ; o = true
x IN (0, 1, 2.5) ; i IN (1, 2, NULL) ; x IN (0,1,2,3,4,5,6,7,8,9,10,11,12) ; x = 'nan' ; x > 'inf'
CAST(x AS INTEGER) ; CAST(x AS BIGINT) ; CAST(x AS TINYINT) ; CAST(p AS INTEGER)
CAST(p AS BIGINT) ; CAST(q AS TINYINT) ; CAST(b AS INTEGER) ; CAST(i AS TINYINT)
CAST(i AS DOUBLE) ; CAST(b AS DOUBLE) ; CAST(p AS DOUBLE) ; CAST(o AS TINYINT)
CAST(i AS BOOLEAN) ; CAST(b AS DECIMAL(18,3)) ; CAST(i AS DECIMAL(5,1)) ; CAST(w AS BIGINT)
CAST(p AS DECIMAL(10,4)) ; CAST(x AS UTINYINT) ; CAST(i AS UINTEGER) ; CAST(b AS UBIGINT)
CAST(b * b AS DOUBLE) ; CAST(b * b + i AS DOUBLE) / 100
CAST(b AS HUGEINT) ; CAST(p AS DECIMAL(5,2)) ; CAST(f AS DOUBLE) ; CAST(i AS VARCHAR)
CAST(p AS VARCHAR) ; CAST(q AS VARCHAR) ; CAST(o AS VARCHAR) ; CAST(b AS VARCHAR)
i IS DISTINCT FROM a ; x IS NOT DISTINCT FROM i ; p + 0.05 ; x > i ; p > i ; p = x ; q < p ; NULL
CASE WHEN i > 3 THEN 'a' WHEN i > 0 THEN 'b' END ; CASE WHEN s = 'abc' THEN NULL ELSE s END
CAST(round(x) AS INTEGER) ; CAST(floor(p / 10) AS INTEGER) ; floor(i / 10) * 10 ; p / 0 ; x / -0.0
""".replace("\n", " ; ")

REFUSED = {
    "pow(x, 2)": "pow", "ln(x)": "ln", "sin(x)": "sin", "exp(x)": "exp", "s LIKE 'a_'": "LIKE with",
    "regexp_matches(s, 'a')": "regexp_matches", "strftime(d, '%Y')": "strftime",
    "CAST(s AS INTEGER)": "VARCHAR to INTEGER", "CAST(x AS VARCHAR)": "DOUBLE to VARCHAR",
    "CAST(d AS VARCHAR)": "DATE to VARCHAR", "CAST(x AS DECIMAL(18,2))": "DOUBLE to DECIMAL",
    "CAST(p AS DECIMAL(9,1))": "to DECIMAL", "b * b * b": "38 digits", "w * p": "digits",
    "- w": "34 digits", "abs(w)": "34 digits",
    "f * 2": "FLOAT", "left(s, -1)": "left", "date_trunc('hour', t)": "date_trunc to hour",
    "date_part('epoch', t)": "date_part of epoch", "date_diff('week', d, t)": "date_diff in week",
    "strpos(s, '')": "strpos", "substring(s, -2, 1)": "substring",
}  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, spark):
    """Rows made to hurt, in DuckDB and as rows of Spark."""
    con, path = connect(), tmp_path_factory.mktemp("expressions") / "rows.parquet"
    create(con, benign(150) + hostile_rows())
    listed = ", ".join(STORED)
    con.execute(f"CREATE TABLE stored AS SELECT row_number, row_number % 3 AS k, {listed} FROM r")
    con.execute(f"COPY stored TO '{path}'")
    return con, own_session(spark).read.parquet(str(path)), path


def plain(column):
    """Return values of which infinite and far ones can be compared, too."""
    column = column.combine_chunks()
    if pa.types.is_date32(column.type):
        return column.view(pa.int32()).to_pylist()
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()
    return column.to_pylist()


def same(one, other, signed=True):
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        both = float(one), float(other)
        signs = [math.copysign(1, value) for value in both]
        return all(map(math.isnan, both)) or (
            both[0] == both[1] and (not signed or signs[0] == signs[1])
        )
    return one == other


def check_equal(hostile, texts):
    con = hostile[0]
    check_values(hostile, [(text, RowWriter(STORED).write(parse(con, text))) for text in texts])


def check_values(hostile, values, *, signed=True):
    """Compare values of pairs of what is asked and what is computed."""
    con, rows, _ = hostile
    for start in range(0, len(values), 25):
        some = values[start : start + 25]
        ours = ", ".join(f"{value.sql} AS c{i}" for i, (_, value) in enumerate(some))
        expected = con.sql(f"SELECT {ours} FROM stored ORDER BY row_number").to_arrow_table()
        theirs = [f"{spark_sql(value)} AS c{i}" for i, (_, value) in enumerate(some)]
        found = rows.orderBy("row_number").selectExpr(*theirs).toArrow()
        for i, (text, _) in enumerate(some):
            pairs = zip(plain(expected.column(i)), plain(found.column(i)), strict=True)
            wrong = [(number, pair) for number, pair in enumerate(pairs) if not same(*pair, signed)]
            assert not wrong, f"{text}: {wrong[:3]}"


def test_values_are_duckdbs_on_any_row(hostile):
    check_equal(hostile, [text for text in EQUAL.split(" ; ") if text.strip()])


def test_values_of_random_expressions_are_duckdbs(hostile):
    con, found, refused = hostile[0], [], 0
    for seed in range(120):
        text = Random(seed).any(1 + seed % 3)
        try:
            spark_sql(RowWriter(STORED).write(parse(con, text)))
        except DpsqlError:
            refused += 1
        else:
            found.append(text)
    assert len(found) > 60 > refused
    check_equal(hostile, found)


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_other_values_is_refused(text):
    value = RowWriter(STORED).write(parse(connect(), text))
    with pytest.raises(UnsupportedSqlError, match="Spark doesn't compute") as raised:
        spark_sql(value)
    assert REFUSED[text] in str(raised.value)
    assert raised.value.hint


def test_texts_that_are_no_utf8_fail_nothing(spark):
    session = own_session(spark)
    rows = session.sql(
        "SELECT CAST(X'FF41C3' AS STRING) AS s UNION ALL SELECT CAST(X'61' AS STRING)"
    )
    for text in ("lower(s)", "length(s)", "s LIKE '%A%'", "substring(s, 2, 1)", "trim(s)",
                 "strpos(s, 'A')", "right(s, 1)", "s || 'x' = 'a'", "s < 'b'"):  # fmt: skip
        value = spark_sql(RowWriter({"s": "VARCHAR"}).write(parse(connect(), text)))
        assert rows.where(f"({value}) IS NOT NULL").count() == 2


CUT = ["ab {} ", " {} ", " ä{} ", " 😀{} ", "  {} ", "x{}y", " A{} {} é{}"]
NO_UTF8 = [b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xe2", b"\xe2\x82", b"\xc3", b"\x80", b"\xff",
           b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\xf0\xf0", b""]  # fmt: skip
OF_TEXT = (
    "s ; lower(s) ; upper(s) ; trim(s) ; ltrim(s) ; rtrim(s) ; length(s) ; strlen(s) ; left(s, 3) ;"
    "right(s, 1) ; right(s, 2) ; right(s, 20) ; substring(s, 2, 3) ; substring(s, 3) ;"
    "substring(s, 3, 40) ; strpos(s, 'b') ; contains(s, 'a') ; starts_with(s, 'a') ;"
    "suffix(s, 'y') ; s LIKE '%a%' ; s LIKE 'a%b%' ; s || s ; left(s || s, 9) ;"
    "right(left(s, 4) || 'z', 3) ; coalesce(nullif(s, 'a'), 'b') ; s = 'x' ; s IN ('x', 'y') ;"
    "CASE WHEN s > 'b' THEN right(s, 3) ELSE left(lower(s), 20) END"
)


def test_nothing_is_read_behind_a_text_that_ends_within_a_character(spark, tmp_path):
    """Each value is DuckDB's of the text with U+FFFD in place of what is no UTF-8."""
    made = [part.encode().replace(b"{}", odd) for odd in NO_UTF8 for part in CUT]
    stored = [one for text in made for one in (text, b"the next row's")]
    shown = [one.decode(errors="replace") for one in stored]
    path = tmp_path / "rows.parquet"
    numbered = pa.table({"n": list(range(len(stored))), "s": stored})
    pq.write_table(numbered, path, use_dictionary=False, compression="none")
    con = connect()
    con.execute("CREATE TABLE stored (n BIGINT, s VARCHAR)")
    insert(con, "stored", list(enumerate(shown)))
    values = [RowWriter({"s": "VARCHAR"}).write(parse(con, text)) for text in OF_TEXT.split(";")]
    ours = ", ".join(f"{value.sql} AS c{i}" for i, value in enumerate(values))
    expected = con.sql(f"SELECT {ours} FROM stored ORDER BY n").fetchall()
    rows = own_session(spark).read.schema("n BIGINT, s STRING").parquet(str(path))
    theirs = [f"{spark_sql(value)} AS c{i}" for i, value in enumerate(values)]
    for _ in range(2):
        found = [tuple(row) for row in rows.orderBy("n").selectExpr(*theirs).collect()]
        for text, row, value in zip(stored, expected, found, strict=True):
            assert value == row, text


K = Domain("INTEGER", range(3))
TYPED = {name: type_ for name, type_ in STORED.items() if name != "k"}
UNIT = ResolvedUnit("i", "i", "INTEGER", (), 2)
ENDS = {"p": (-3, 1000), "q": (0, 1), "i": (-5, 300), "a": (-10, 100), "b": (0, 10**6)}
SUMS = {
    "p": (-3, 1000, Fraction(1, 100)), "i": (-5, 300, Fraction(1)),
    "x": (-10, 900, Fraction(1, 64)),
    "p * (1 - q)": (-3, 1000, Fraction(1, 10**4)), "b": (0, 10**6, Fraction(100)),
    "CASE WHEN s LIKE 'a%' THEN p END": (0, 1000, Fraction(1, 10)),
    "x * 3 - i": (-5, 1000, Fraction(1, 10)), "length(s)": (0, 50, Fraction(1)),
}  # fmt: skip
KEYS = [
    "i > 3",
    "month(d)",
    "s IN ('abc', 'été')",
    "CASE WHEN x > 1 THEN 'u' ELSE 'v' END",
    "p % 2",
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [None, UNIT], ids=["rows", "units"])
@pytest.mark.parametrize("partials", ["sql", "workers"])
def test_sums_and_keys_are_those_of_duckdb(hostile, spark, unit, partials):
    con, _, path = hostile
    measures, keys = {}, {}
    for text, (low, high, step) in SUMS.items():
        inside = {c: (Fraction(a), Fraction(z)) for c, (a, z) in ENDS.items()}
        value = bounded_columns(parse(con, text), TYPED, inside)
        measures[f"sum of {text}"] = measure(value, TYPED, (Fraction(low), Fraction(high)), step)
    for text in KEYS:
        key = row_key(parse(con, text), TYPED)
        if key is not None:
            keys[key.name] = key
    cut = line("x", "DOUBLE", [2**62, 2**63 - 10], nullable=True).key
    keys[cut.name] = cut
    domains = {name: key.domain for name, key in keys.items()}
    undeclared = {"row_number": "INTEGER", **TYPED}
    stored = Table("stored", {"k": K}, undeclared, ("memory", "main", "stored"), unit)
    table = stored.deriving(domains, {name: key.digest for name, key in keys.items()})
    names = list(keys)
    wanted = [(), ("k",), *(("k", name) for name in (*measures, *names)), (names[0], names[1])]
    wanted += [(name,) for name in measures] + [(names[0], next(iter(measures)))]
    expected = DuckDBEngine(con).marginals(table, wanted, measures=measures, keys=keys)
    engine = SparkEngine(OneFile(spark, path), partials=partials)
    prepared = engine.prepared(table, wanted, measures=measures, keys=keys)
    prepared.check()
    found = prepared.run()
    assert set(found) == set(wanted)
    assert dict(found.bounds) == dict(expected.bounds)
    for marginal in wanted:
        # Sums in larger steps are rounded in each group, of which DuckDB may make others.
        apart = max((measures[name].parts for name in marginal if name in measures), default=1) > 1
        np.testing.assert_allclose(found[marginal], expected[marginal], atol=9 * apart, rtol=0)
        assert found[marginal].dtype == np.int64
    assert expected["k",].sum() == (40 if unit else 0) or expected["k",].sum() > 100


def test_what_overflows_is_refused_before_anything_is_read(spark, tmp_path):
    con = connect()
    made = measure(parse(con, "b * i"), STORED, (Fraction(0), Fraction(100)), Fraction(1))
    wide = measure(parse(con, "w * w"), STORED, (Fraction(0), Fraction(100)), Fraction(1))
    table = Table("t", {"k": K}, dict(STORED), ("memory", "main", "t"))
    engine = SparkEngine(OneFile(spark, tmp_path / "nowhere"))
    engine.prepared(table, [("k", "m")], measures={"m": made})
    with pytest.raises(UnsupportedSqlError, match="Spark doesn't compute"):
        engine.prepared(table, [("k", "m")], measures={"m": wide})


def test_names_of_columns_do_not_meet_those_of_the_job(spark, tmp_path):
    con = connect()
    names = ["v", "p", "q", "u_x0", "u_k0", "w0", "p0", "key", "n", "c0", "x"]
    listed = ", ".join(f"{i % 3} AS {name}" for i, name in enumerate(names))
    con.execute(f"CREATE TABLE stored AS SELECT {listed}")
    con.execute(f"COPY stored TO '{tmp_path / 'rows.parquet'}'")
    types = dict.fromkeys(names, "INTEGER")
    table = Table("stored", dict.fromkeys(names[3:8], K),
                  {name: "INTEGER" for name in names if name not in names[3:8]},
                  ("memory", "main", "stored"))  # fmt: skip
    key = row_key(parse(con, "sign(v + q) * x + n > 1"), types)
    held = table.deriving({key.name: key.domain}, {key.name: key.digest})
    made = measure(
        parse(con, "v + p + q + w0 + c0"), types, (Fraction(-9), Fraction(9)), Fraction(1, 4)
    )
    wanted = [("u_x0", "key", "s"), ("w0", key.name), ("p0",), ("u_k0", key.name, "s")]
    found = SparkEngine(OneFile(spark, tmp_path / "rows.parquet")).marginals(
        held, wanted, measures={"s": made}, keys={key.name: key}
    )
    expected = DuckDBEngine(con).marginals(held, wanted, measures={"s": made}, keys={key.name: key})
    for marginal in wanted:
        np.testing.assert_array_equal(found[marginal], expected[marginal])


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York"])
def test_clocks_show_what_they_do_in_duckdb(spark, tmp_path, zone):
    con, path = connect(), tmp_path / "instants.parquet"
    hours = "TIMESTAMPTZ '1970-01-01 00:00:00+00' + INTERVAL (i * 4001) MINUTE"
    far = "(NULL), ('9999-12-31 23:59:59.999999+00'::TIMESTAMPTZ), ('2013-11-03 05:30:00+00')"
    con.execute(f"CREATE TABLE z AS SELECT {hours} AS seen FROM range(9000) r(i)").fetchall()
    con.execute(f"INSERT INTO z VALUES {far}").fetchall()
    con.execute(f"COPY (SELECT row_number() OVER () AS n, seen FROM z) TO '{path}'").fetchall()
    clock = RowCall("clock", (RowColumn("seen"), RowConstant("VARCHAR", zone)))
    value = RowWriter({"seen": "TIMESTAMP WITH TIME ZONE"}).write(clock)
    expected = con.sql(f"SELECT {value.sql} AS c FROM '{path}' ORDER BY n").to_arrow_table()
    rows = own_session(spark).read.parquet(str(path)).orderBy("n")
    found = rows.selectExpr(f"{spark_sql(value)} AS c").toArrow()
    assert plain(found.column(0)) == plain(expected.column(0))
