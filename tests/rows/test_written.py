"""What is written means what DuckDB means, under any macros, and nothing leaves its quotes."""

from __future__ import annotations

import re

import duckdb
import pytest

from dpsql.errors import DpsqlError, SqlLimitError, UnsupportedSqlError
from dpsql.rows.expression import (
    NOTHING,
    RowCall,
    RowCase,
    RowCast,
    RowColumn,
    RowConstant,
    canonical,
    columns,
)
from dpsql.rows.functions import FUNCTIONS
from dpsql.rows.types import RowType, row_type
from dpsql.rows.write import RowWriter, copies
from dpsql.sql.text.parse import parse_statement
from tests.helpers.calls import counted_calls
from tests.helpers.inserted import insert
from tests.rows.test_total import hostile_rows
from tests.rows.tools import TYPES, Random, benign, connect, create, parse, same, sql_of, written

SYNTAX = """
    between like ilike in coalesce try cast case and or not is isnull = < > <= >= <> != == nullif if
    ifnull extract position substring trim try_cast contains compare_in is_distinct_from prefix
    suffix encode lower constant_or_null
"""


TO_PLACES = re.compile(r"\bround\((?=.*, [012]\))")
"""Of doubles that lie near the middle, DuckDB 2.0.1 rounds others up than 2.0.0 and rows do."""


@pytest.fixture(scope="module")
def con():
    con = connect()
    create(con, benign(120))
    con.execute(
        "CREATE MACRO places(a) AS round(a), (a, b) AS CASE WHEN typeof(a) IN ('DOUBLE', 'FLOAT') "
        "THEN round(a * 10.0e0 ** b) / 10.0e0 ** b ELSE round(a, b) END"
    ).fetchall()
    return con


@pytest.fixture(scope="module")
def hostile():
    """The same rows, where macros have the names of all scalar functions and operators."""
    con = connect()
    create(con, benign(120))
    names = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'scalar'"
    ).fetchall()
    planted = 0
    for name in dict.fromkeys([*(n for (n,) in names), *SYNTAX.split()]):
        quoted = '"' + name.replace('"', '""') + '"'
        macro = f"CREATE MACRO {quoted}(a) AS 1, (a, b) AS 2, (a, b, c) AS 3"
        con.execute(macro).fetchall()
        planted += 1
    assert planted > 700
    assert con.execute("SELECT 1 + 1, 'a' LIKE 'b', lower('A')").fetchall() == [(2, 2, 1)]
    return con


def values(con, sql):
    return [v for (v,) in con.execute(f"SELECT {sql} FROM r ORDER BY row_number").fetchall()]


@pytest.mark.sampled(320)
@pytest.mark.parametrize("seed", range(1800))
def test_random_expressions_are_as_in_duckdb(con, hostile, seed):
    text = Random(seed).any(seed % 5)
    sql = written(con, text)
    found = values(con, sql.sql)
    try:
        expected = values(con, text)
    except Exception:
        return
    if not all(map(same, found, expected)) and TO_PLACES.search(text):
        expected = values(con, TO_PLACES.sub("places(", text))
    assert all(map(same, found, expected)), text
    if sql.type.name != "NULL":
        ((type_,),) = con.execute(f"SELECT typeof({sql.sql}) FROM r LIMIT 1").fetchall()
        assert type_ == sql.type.sql
    if seed % 4 == 0:
        assert all(map(same, values(hostile, sql.sql), expected)), text


@pytest.mark.sampled(120)
@pytest.mark.parametrize("seed", range(1800))
def test_random_expressions_of_statements_are_as_they_were_typed(con, seed):
    """Of a statement's tree all is written that DuckDB evaluates, on rows and beside them."""
    text = Random(seed).any(seed % 5)
    (parsed,) = parse_statement(f"SELECT {text} AS k FROM r").query.expressions
    again = parsed.this.sql(dialect="duckdb", comments=False, identify=True)
    try:
        expected = values(con, text)
    except Exception:
        return
    assert all(map(same, values(con, again), expected)), text


@pytest.mark.parametrize("limit", ["0.0", "-0.0", "5.0", "nan", "inf", "-inf"])
@pytest.mark.parametrize("functions", [["least"], ["greatest"], ["greatest", "least"]])
def test_what_is_cut_off_at_a_constant_is_so_bit_by_bit(con, functions, limit):
    tree, text = RowColumn("x"), "x"
    for function in functions:
        tree = RowCall(function, (tree, RowConstant("DOUBLE", limit)))
        text = f"{function}({text}, '{limit}'::DOUBLE)"
    sql = RowWriter(TYPES).write(tree).sql
    assert "system.main" not in sql  # no call, which takes three times as long
    numbers = "VALUES (NULL), ('nan'), ('inf'), ('-inf'), ('0.0'), ('-0.0'), ('4.9'), ('1e300')"
    shown = f"SELECT ({{}})::VARCHAR FROM (SELECT v::DOUBLE AS x FROM ({numbers}) n(v))"
    assert con.execute(shown.format(sql)).fetchall() == con.execute(shown.format(text)).fetchall()


@pytest.mark.parametrize(
    "text",
    [
        "p * (1 - q) * (1 + q)", "x / 0", "p / q", "i % 7", "b // 10", "s SIMILAR TO 'a.*'",
        "extract('year' FROM t)", "CASE i WHEN 3 THEN 'a' ELSE 'b' END", "s LIKE 'a_c'",
        "s NOT ILIKE '%B%'", "o IS NOT TRUE", "e = 'red'",
        "d BETWEEN '2000-01-01' AND '2020-01-01'",
        "i::VARCHAR = '5'", "d - DATE '2000-01-01'",
        "q IN (0.05, 0.06)", "f = 0.125", "s < 'b'", "least(greatest(floor(x / 10), -5), 5)",
        "q BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", "date_trunc('week', d)", "x IS NULL", "i != 3",
        "round(x / 3, 2)", "a ** 2", "yearweek(d)", "p::INTEGER", "trunc(p)",
        "t::DATE > '2001-01-01'", "t < TIMESTAMP '2021-03-04'", "t >= '2020-02-29'",
        "t >= TIMESTAMP '2020-02-29 12:30'", "t <= '2021-03-04T05:06:07'",
        "d < TIMESTAMP '2021-03-04 12:00'", "t > DATE '2020-02-29'",
    ],
)  # fmt: skip
def test_expressions_people_write(con, hostile, text):
    sql = written(con, text).sql
    expected = values(con, text)
    assert all(map(same, values(con, sql), expected))
    assert all(map(same, values(hostile, sql), expected))


def test_settings_of_the_session_make_no_error():
    con = connect()
    create(con, benign(60))
    texts = ["ln(x)", "x / 0", "i // (i - i)", "i % 0", "sqrt(x)", "asin(x)", "s = 'ABC'",
             "s LIKE 'A%'", "x % 0", "s IN ('ABC')", "s BETWEEN 'A' AND 'B'"]  # fmt: skip
    texts = {text: written(con, text).sql for text in texts}
    before = {text: values(con, sql) for text, sql in texts.items()}
    for setting in ("ieee_floating_point_ops = false", "error_on_division_by_zero = false",
                    "default_collation = 'nocase'", "integer_division = true",
                    "TimeZone = 'Asia/Tokyo'"):  # fmt: skip
        con.execute(f"SET {setting}").fetchall()
        for text, sql in texts.items():
            found = values(con, sql)
            assert found == before[text] or "'" not in text


NAMES = ['a"b', "a'b", 'x" FROM r; --', "ü", '""', "a\\", "$1", "select", "a\nb", "🦆", "?"]


@pytest.mark.parametrize("name", NAMES)
def test_names_stay_in_their_quotes(name):
    con = connect()
    quoted = '"' + name.replace('"', '""') + '"'
    con.execute(f"CREATE TABLE t ({quoted} INTEGER, other INTEGER)").fetchall()
    con.execute("INSERT INTO t VALUES (7, 1)").fetchall()
    sql = RowWriter({name: "INTEGER"}).write(RowCall("abs", (RowColumn(name),))).sql
    assert con.execute(f"SELECT {sql} FROM t").fetchall() == [(7,)]


@pytest.mark.parametrize("text", [*NAMES, "'", "''", "';", "%", "_", "\\'", "$$", "/*", "--", "E'"])
def test_strings_stay_in_their_quotes(text):
    con = connect()
    con.execute("CREATE TABLE t (s VARCHAR)").fetchall()
    con.execute(f"INSERT INTO t VALUES ({sql_of(text)}), ('else')").fetchall()
    column, constant = RowColumn("s"), RowConstant("VARCHAR", text)
    writer = RowWriter({"s": "VARCHAR"})
    for name in ("=", "like", "ilike", "contains", "starts_with", "in"):
        sql = writer.write(RowCall(name, (column, constant))).sql
        first, *_ = con.execute(f"SELECT {sql} FROM t").fetchall()
        assert first == (True,)
    case = RowCase(((RowCall("is_null", (column,)), constant),), constant)
    assert con.execute(f"SELECT {writer.write(case).sql} FROM t").fetchall() == [(text,)] * 2


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INTEGER", "1; DROP TABLE t"), ("INTEGER", "1'"), ("INTEGER", ""), ("INTEGER", "1\n"),
        ("INTEGER", "٣"), ("INTEGER", "9" * 39), ("DECIMAL", "."), ("DECIMAL", "1.0)"),
        ("DECIMAL", "1.5\n"), ("DOUBLE", "1e99999"), ("DOUBLE", "1e400"), ("DOUBLE", "x"),
        ("BOOLEAN", "1"), ("DATE", "2020-02-30"), ("DATE", "today"), ("TIMESTAMP", "now"),
        ("TIMESTAMP", "2020-01-01 24:00:00"), ("VARCHAR", "a\0"), ("VARCHAR", "\ud800"),
        ("NULL", "x"), ("INTERVAL", "1"), ("VARCHAR", "x" * 100_001),
    ],
)  # fmt: skip
def test_constants_are_what_they_say(kind, text):
    with pytest.raises(UnsupportedSqlError):
        RowConstant(kind, text)


def test_trees_are_checked_when_they_are_made():
    for name in ("random", "current_setting", "system.main.abs", 'abs"(', "repeat", "error"):
        with pytest.raises(UnsupportedSqlError, match="can't run on rows"):
            RowCall(name, (NOTHING,))
    for bad in (lambda: RowCall("abs", ()), lambda: RowCase((), NOTHING), lambda: RowColumn(""),
                lambda: RowColumn("a\0"), lambda: RowType("DECIMAL", 39, 2),
                lambda: RowType("INTEGER); --"), lambda: row_type("TIMESTAMPTZ")):  # fmt: skip
        with pytest.raises(UnsupportedSqlError):
            bad()


def test_long_expressions_are_refused_in_time():
    deep = RowColumn("i")
    for _ in range(200):
        deep = RowCall("abs", (deep,))
    wide = RowCall("coalesce", (RowCall("coalesce", (RowColumn("i"),) * 900),) * 9)
    doubled = RowColumn("i")
    for _ in range(40):
        doubled = RowCall("nullif", (doubled, RowConstant("INTEGER", "1")))
    for expression in (deep, wide, doubled):
        with pytest.raises(SqlLimitError):
            RowWriter(TYPES).write(expression)


@pytest.mark.parametrize(
    "text",
    [
        "i = s", "s + 1", "upper(i)", "o + 1", "i AND o", "CASE WHEN i THEN 1 END", "d = 5",
        "coalesce(s, 1)", "i = 'five'", "d > 'yesterday'", "t - t", "s LIKE s", "round(x, i)",
        "substring(s, i)", "date_part(s, d)", "date_part('nanosecond', t)", "regexp_matches(s, s)",
        "CAST(d AS INTEGER)", "CAST(i AS DATE)", "least(s, 'b')",
    ],
)  # fmt: skip
def test_operands_of_other_types_are_refused(con, text):
    with pytest.raises(UnsupportedSqlError):
        written(con, text)


@pytest.mark.parametrize(
    "text",
    [
        "random()", "now()", "current_date()", "nextval('s')", "getvariable('x')", "error('x')",
        "repeat(s, 1000000)", "lpad(s, 9, s)", "levenshtein(s, s)", "sum(i)",
        "row_number() OVER ()",
        "(SELECT 1)", "[1]", "{'a': 1}", "i IN (SELECT 1)", "system.main.abs(i)", "r.i",
        "CAST(i AS TIMESTAMPTZ)", "t AT TIME ZONE 'UTC'", "s COLLATE nocase", "x -> 1",
        "i::INTERVAL",
        "$1", "md5(s)", "s[1:2]", "hash(i)", "sleep_ms(1)", "*", "sum(DISTINCT i)", "abs(x := i)",
        "1_000", "rowid()", "like(s, 'a')", "read_text('x')", "query('x')", "printf('%d', i)",
    ],
)  # fmt: skip
def test_what_is_not_listed_is_refused(con, text):
    with pytest.raises(UnsupportedSqlError):
        parse(con, text)


def test_canonical_texts_tell_expressions_apart(con):
    texts = [Random(seed).any(seed % 3) for seed in range(300)]
    expressions = {parse(con, text) for text in texts}
    assert len({canonical(expression) for expression in expressions}) == len(expressions)
    assert columns(parse(con, "CASE WHEN i > 1 THEN p END + q")) == {"i", "p", "q"}
    one, other = (RowCall("=", (RowColumn(n), RowConstant("VARCHAR", t)))
                  for n, t in (('a"', "b"), ("a", '"b')))  # fmt: skip
    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("text", [
    "s || 'x'", "i || p || q || x", "d || ' ' || t", "o || e", "NULL || s", "0.05 || '' || .5",
    "left(s, 2) || upper(s) || s || s || s || s || s || s",
])  # fmt: skip
def test_texts_are_put_together_as_in_duckdb(text):
    con = connect()
    create(con, benign(200, seed=4))
    ours = con.execute(f"SELECT {written(con, text).sql} FROM r").fetchall()
    assert ours == con.execute(f"SELECT ({text})::VARCHAR FROM r").fetchall()


@pytest.mark.parametrize("text", [
    " || ".join(["s"] * 9), "s || upper(s || s || lower(s || s || s) || s) || s || s",
    "left(s || s || s || s || s, 3) || right(s || s || s || s, 3)",
])  # fmt: skip
def test_texts_that_could_be_much_longer_than_those_of_the_row_are_refused(con, text):
    """Doubled again and again, a text of a megabyte would fill all memory."""
    with pytest.raises(SqlLimitError, match="more than 8 columns"):
        written(con, text)


def test_each_function_has_its_argument():
    assert all(len(listed.why) > 15 for listed in FUNCTIONS.values())
    with pytest.raises(DpsqlError):
        RowWriter({}).write(RowCast(RowColumn("nobody"), row_type("INTEGER")))


@pytest.mark.parametrize(
    ("pattern", "added"),
    [
        ("(.{0,400}a){2}.{400}z", 1199), ("[0-9]{3}-[0-9]{4}", 5), (r"\d{3,}", 3), ("a{9}{9}", 80),
        ("((a{9}b){9}z){9}", 816), (r"\Q){5}(\E{3}", 2), ("[]{9}]{3}", 2), (r"\x{41}{4}", 3),
        (r"\{5}", 0), ("[[:alpha:]{5}]{2}", 1), ("a{0}b{1}c{,3}", 2), ("(ab)*{30}", 58),
        ("){9}", 8), ("(" * 4, 0), ("\\", 0), (r"[a\]{7}]{3}", 2), ("(a|b){60}(a|b){60}", 354),
    ],
)  # fmt: skip
def test_counted_repetitions_are_counted_as_if_written_out(con, pattern, added):
    """Of the first one, each character of a text takes RE2 30 microseconds."""
    assert copies(pattern) == added
    call = RowCall("regexp_matches", (RowColumn("s"), RowConstant("VARCHAR", pattern)))
    if added > 100:
        with pytest.raises(UnsupportedSqlError, match=f"add {added} parts") as found:
            RowWriter(TYPES).write(call)
        assert "length" in found.value.hint
    else:
        assert RowWriter(TYPES).write(call).type.name == "BOOLEAN"


@pytest.mark.parametrize("text", ["p * p * p", "w * w - p", "CASE WHEN o THEN w * w ELSE h END",
                                  "- (p * p * p)", "CAST(p * p * p AS DOUBLE)"])  # fmt: skip
def test_what_is_added_up_is_what_is_there(text):
    """Where DuckDB stops at an overflow, no row is added up that isn't counted."""
    con = connect()
    create(con, hostile_rows())
    value = parse(con, text)
    here = RowCall("not", (RowCall("is_null", (value,)),))
    number = RowCall("not", (RowCall("isnan", (value,)),))
    writer = RowWriter(TYPES)
    there, finite = (f"coalesce({writer.write(c).sql}, false)" for c in (here, number))
    added = f"coalesce({writer.write_double(value).sql} <= CAST('inf' AS DOUBLE), false)"
    wrong = f"({added}) <> ({there} AND {finite})"
    assert con.execute(f"SELECT count(*) FROM r WHERE {wrong}").fetchall() == [(0,)]
    missing = f"SELECT count(*) FROM r WHERE {writer.write(value).sql} IS NULL AND {there}"
    assert con.execute(missing).fetchall() > [(0,)] or "DOUBLE" in text


def test_nested_questions_are_written_once():
    """Each asks for its value as it is and as a double."""
    value = RowColumn("w")
    for _ in range(24):
        root = RowCall("sqrt", (RowCall("*", (value, RowColumn("w"))),))
        value = RowCall("+", (RowCast(root, row_type("DECIMAL(18,2)")), RowColumn("w")))
    with counted_calls() as calls:
        RowWriter(TYPES).write(RowCall("is_null", (value,)))
    assert calls.count < 10**5


@pytest.mark.parametrize(("pattern", "escape"), [
    ("a!%b!_%", "!"), ("%!%%", "!"), ("!!%", "!"), ("a\\%", "\\"), ("_.(*)[]$^", "x"),
    ("%\n_", "!"), ("%%", "%"), ("é!_%", "!"), ("a!", "!"),
])  # fmt: skip
def test_like_with_escape_is_duckdbs(pattern, escape):
    con = connect()
    texts = ["a%b_c", "aXbYc", "100%", "!", "!x", "a%", "a\\%", "x.(*)[]$^", "a\nb", "é_", "éé", "",
             "%", "\u00e9_ \U0001f986", None]  # fmt: skip
    con.execute("CREATE TABLE l (s VARCHAR)")
    insert(con, "l", [[text] for text in texts])
    asked = f"s LIKE {sql_of(pattern)} ESCAPE {sql_of(escape)}"
    try:
        expected = con.execute(f"SELECT {asked} FROM l").fetchall()
    except duckdb.Error:
        with pytest.raises(DpsqlError):
            parse(con, asked)
        return
    sql = RowWriter({"s": "VARCHAR"}).write(parse(con, asked)).sql
    assert con.execute(f"SELECT {sql} FROM l").fetchall() == expected
