"""Each listed function over every pair of types, on hostile rows: DuckDB's own type and value."""

from __future__ import annotations

import itertools

import duckdb
import pyarrow as pa
import pytest

from dpsql.errors import DpsqlError
from dpsql.rows.functions import FUNCTIONS
from dpsql.rows.types import COARSE
from dpsql.rows.write import RowWriter
from tests.rows.tools import parse

ENDS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127", "0", "-1", "7"],
    "SMALLINT": ["-32768", "32767", "0", "3"],
    "INTEGER": ["-2147483648", "2147483647", "0", "-1", "3"],
    "BIGINT": [str(-(2**63)), str(2**63 - 1), "0", "-1", "5", "9007199254740993"],
    "HUGEINT": ["-" + "9" * 38, "9" * 38, "0", "-1", "4"],
    "UTINYINT": ["0", "255", "3"],
    "UINTEGER": ["0", "4294967295", "3"],
    "UBIGINT": ["0", "18446744073709551615", "6"],
    "DECIMAL(4,2)": ["99.99", "-99.99", "0", "-0.01", "9.99", "0.05"],
    "DECIMAL(15,2)": ["9999999999999.99", "-9999999999999.99", "0", "0.01", "1.25"],
    "DECIMAL(18,2)": ["9999999999999999.99", "-9999999999999999.99", "0", "100", "0.05"],
    "DECIMAL(18,0)": ["9" * 18, "-" + "9" * 18, "0", "3"],
    "DECIMAL(18,18)": ["0." + "9" * 18, "-0." + "9" * 18, "0", "0.5"],
    "DECIMAL(19,3)": ["9" * 16 + ".999", "-" + "9" * 16 + ".999", "0", "0.001"],
    "DECIMAL(38,10)": ["9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10, "0", "2.5"],
    "DECIMAL(38,0)": ["9" * 38, "-" + "9" * 38, "0", "7"],
    "FLOAT": ["nan", "inf", "-inf", "3.4028235e38", "-3.4028235e38", "1e-45", "-0.0", "0", "0.1",
              "0.7", "16777217"],
    "DOUBLE": ["nan", "inf", "-inf", "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324",
               "-0.0", "0", "0.1", "9223372036854775807", "9.3e18", "0.5"],
    "VARCHAR": ["", " ", "1", "1e400", "nan", "true", "2020-01-31", "a", "ß", "A%"],
    "DATE": ["infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", "2020-02-29"],
    "TIMESTAMP": ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00",
                  "294247-01-10 04:00:54.775806", "1969-12-31 23:59:59.999999"],
    "TIMESTAMP_S": ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54",
                    "1969-12-31 23:59:59"],
    "TIMESTAMP_MS": ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00",
                     "294247-01-10 04:00:54.775", "1969-12-31 23:59:59.999"],
    "TIMESTAMP_NS": ["infinity", "-infinity", "1677-09-22 00:12:43.145224193",
                     "2262-04-11 23:47:16.854775", "1969-12-31 23:59:59.9999996",
                     "1970-01-01 00:00:00.0000005", "2024-02-29 10:00:00"],
    "TIME": ["00:00:00", "24:00:00", "23:59:59.999999", "10:30:00.5"],
}  # fmt: skip
"""Of each type its ends, and what else is odd; NULL is beside them in any case."""

OF_TWO = """
    {a} + {b} ; {a} - {b} ; {a} * {b} ; {a} / {b} ; {a} // {b} ; {a} % {b} ; {a} = {b} ; {a} < {b}
    ; {a} >= {b} ; {a} > {b} ; {a} <= {b} ; {a} <> {b} ; {a} IS DISTINCT FROM {b}
    ; {a} IS NOT DISTINCT FROM {b} ; {a} IN ({b}) ; {a} BETWEEN {b} AND {a} ; {a} || {b}
    ; least({a}, {b}) ; greatest({a}, {b}) ; coalesce({a}, {b}) ; nullif({a}, {b})
    ; pow({a}, {b}) ; atan2({a}, {b}) ; CASE WHEN {a} IS NULL THEN {b} ELSE {a} END
    ; date_diff('day', {a}, {b}) ; {a} AND {b} ; {a} OR {b} ; ({a} + {b}) / 3 > 0.3
"""
OF_ONE = """
    abs sign round floor ceil trunc sqrt cbrt exp ln log10 log2 sin cos tan asin acos atan radians
    degrees isnan isfinite isinf bit_count lower upper trim ltrim rtrim length strlen
    dayname monthname
"""
CONSTANTS = ["1", "2.5", "-3", "0.1", "0", "1000000000000", "1e3", "3000000000", "0.05", "true"]
MORE = """
    -{a} ; NOT {a} ; {a} IS NULL ; round({a}, 1) ; round({a}, 2) ; round({a}, -1) ; round({a}, 0)
    ; round({a}, 5) ; {a} LIKE 'a%' ; {a} ILIKE 'a%' ; contains({a}, 'a') ; starts_with({a}, 'a')
    ; ends_with({a}, 'a') ; strpos({a}, 'a') ; substring({a}, 2, 1) ; left({a}, 1) ; right({a}, 1)
    ; regexp_matches({a}, 'a') ; regexp_full_match({a}, 'a+') ; date_part('year', {a})
    ; date_part('week', {a}) ; date_part('hour', {a}) ; date_trunc('month', {a})
    ; strftime({a}, '%Y-%m') ; {a} + INTERVAL 1 MONTH ; {a} - INTERVAL 3 HOUR
    ; {a} + 1 > 5 ; NOT {a} + 1 > 5
"""
DOCUMENTED = {
    "strftime(": "isfinite(a)",
    "'hour', a": "a::VARCHAR <> '24:00:00'",
    "'week', a": "a > '5877641-01-04 (BC)'",
}
"""Functions that are NULL where DuckDB has a value: of infinite times, where 2.0.0 has none, and
of 24:00:00, which no clock shows.
"""
INTEGERS = {f"{sign}{name}INT" for sign in ("", "U") for name in ("TINY", "SMALL", "BIG", "HUGE")}
INTEGERS |= {"INTEGER", "UINTEGER"}


def listed(text):
    return [one.strip() for one in text.split(";")]


def expressions(types):
    if len(types) == 2:
        return [text.format(a="a", b="b") for text in listed(OF_TWO)]
    found = [f"{name}(a)" for name in OF_ONE.split()] + [
        text.format(a="a") for text in listed(MORE)
    ]
    for constant, text in itertools.product(CONSTANTS, listed(OF_TWO)):
        found += [text.format(a="a", b=constant), text.format(a=constant, b="a")]
    return found + [f"CAST(a AS {type_})" for type_ in ENDS if type_ not in COARSE]


def kind(type_):
    """Tell types apart as far as values do: those of integers are as wide as need be."""
    if type_ in INTEGERS:
        return "integer"
    if type_ in {"TIMESTAMP_S", "TIMESTAMP_MS"}:  # which are read as TIMESTAMP
        return "TIMESTAMP"
    return f"DECIMAL of {type_.split(',')[1]}" if type_.startswith("DECIMAL") else type_


def create(con, types):
    names = dict(zip("ab", types, strict=False))
    con.execute(f"CREATE TABLE r ({', '.join(f'{n} {t}' for n, t in names.items())})")
    marks = ", ".join(f"?::{type_}" for type_ in types)
    rows = itertools.product(*([*ENDS[type_], None] for type_ in types))
    con.executemany(f"INSERT INTO r VALUES ({marks})", list(map(list, rows)))
    return names


PAIRS = [(one,) for one in ENDS] + list(itertools.product(ENDS, repeat=2))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("types", PAIRS, ids=" and ".join)
def test_types_and_values_are_those_of_duckdb(types):
    """Where DuckDB has a value it is ours, bit by bit; where it fails, ours is NULL or exact."""
    with duckdb.connect(config={"threads": 1}) as con:
        names, asked = create(con, types), 0
        for text in expressions(types):
            try:
                ((told,),) = con.execute(f"SELECT typeof({text}) FROM r LIMIT 1").fetchall()
                ours = RowWriter(names).write(parse(con, text))
            except (duckdb.Error, DpsqlError):
                continue  # one of them has no such expression
            asked += 1
            assert kind(ours.type.sql) == kind(told), text
            shown = f"TRY({text})::{ours.type.sql}::VARCHAR"
            both = f"SELECT *, {shown} AS x, ({ours.sql})::VARCHAR AS y FROM r"
            wrong = f"SELECT * FROM ({both}) WHERE x IS NOT NULL AND y IS DISTINCT FROM x"
            wrong += "".join(f" AND {but}" for call, but in DOCUMENTED.items() if call in text)
            assert con.execute(wrong).fetchall() == [], text
            if told == "BOOLEAN":
                truths = "count_if(t), count_if(NOT t), count_if(t IS NULL), count(*)"
                counts = f"SELECT {truths} FROM (SELECT {ours.sql} AS t FROM r)"
                ((yes, no, unknown, rows),) = con.execute(counts).fetchall()
                assert yes + no + unknown == rows
        assert asked


BITS = [
    *(0, 1, -1, 5, 86_400_000_000, 86_400_000_001, 2**31, -(2**31), 2**62, -(2**62)),
    *(2**63 - 1, -(2**63), 1 - 2**63),
    *(9_223_372_036_855, 9_223_372_036_854_775, 9_223_372_036_854_776),
]
STORED = {
    "TIMESTAMP_S": pa.timestamp("s"),
    "TIMESTAMP_MS": pa.timestamp("ms"),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP_NS": pa.timestamp("ns"),
    "TIME": pa.time64("us"),
}


@pytest.mark.parametrize("type_", STORED)
def test_whatever_bits_are_stored_nothing_fails(type_):
    """Frames bring times in that no text stands for, of which DuckDB's own casts fail for good."""
    with duckdb.connect(config={"threads": 1}) as con:
        con.register("bits", pa.table({"a": pa.array(BITS, pa.int64()).cast(STORED[type_])}))
        con.execute(f"CREATE TABLE r (a {type_}, b {type_})")
        con.execute("INSERT INTO r SELECT one.a, two.a FROM bits AS one, bits AS two")
        for types in ((type_,), (type_, type_)):
            for text in expressions(types):
                try:
                    ours = RowWriter(dict.fromkeys("ab", type_)).write(parse(con, text))
                except (duckdb.Error, DpsqlError):
                    continue
                assert len(con.execute(f"SELECT hash({ours.sql}) FROM r").fetchall()) == 256, text


def test_every_listed_function_is_asked():
    con = duckdb.connect()
    texts = [*expressions(("INTEGER",)), *expressions(("INTEGER", "DATE"))]
    found = set()
    for text in texts:
        found |= functions(parse(con, text))
    assert found == set(FUNCTIONS) - {"bounded", "clock"}  # which nobody writes


def functions(node):
    children = getattr(node, "arguments", None) or getattr(node, "cases", ())
    inner = [c for child in children for c in (child if isinstance(child, tuple) else (child,))]
    inner += [getattr(node, name) for name in ("otherwise", "value") if hasattr(node, name)]
    own = {node.function} if hasattr(node, "function") else set()
    return own.union(*map(functions, inner)) if inner else own
