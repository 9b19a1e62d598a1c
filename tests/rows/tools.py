"""Tables with odd rows, and random expressions as SQL, for the tests of `dpsql/rows/`."""

from __future__ import annotations

import json
import math
import random

import duckdb

from dpsql.engines.duckdb.sums import RowSum
from dpsql.rows.read import read_expression
from dpsql.rows.write import RowWriter

TYPES = {
    "o": "BOOLEAN", "a": "TINYINT", "i": "INTEGER", "b": "BIGINT", "u": "UBIGINT", "h": "HUGEINT",
    "p": "DECIMAL(15,2)", "q": "DECIMAL(4,2)", "w": "DECIMAL(38,10)", "f": "FLOAT", "x": "DOUBLE",
    "s": "VARCHAR", "e": "ENUM('red', 'green', 'a%b_c')", "d": "DATE", "t": "TIMESTAMP",
}  # fmt: skip
HOSTILE = {
    "o": ["true", "false"],
    "a": ["-128", "127", "0", "-1"],
    "i": ["-2147483648", "2147483647", "0", "-1"],
    "b": ["-9223372036854775808", "9223372036854775807", "0", "-1"],
    "u": ["0", "18446744073709551615"],
    "h": [str(-(2**127)), str(2**127 - 1), "0", "-1"],
    "p": ["9999999999999.99", "-9999999999999.99", "0", "0.01"],
    "q": ["99.99", "-99.99", "0", "-0.01", "9.99"],
    "w": ["9" * 28 + ".9999999999", "-" + "9" * 28 + ".9999999999", "0", "0.0000000001"],
    "f": ["nan", "inf", "-inf", "3.4028235e38", "-3.4028235e38", "1e-45", "-0.0"],
    "x": ["nan", "inf", "-inf", "1.7976931348623157e308", "-1.7976931348623157e308", "5e-324",
          "-0.0", "9223372036854775807", "9.3e18", "0.5"],
    "s": ["", " ", "%", "_", "'", "1", "1e400", "nan", "true", "2020-02-30", "2020-01-31", "\\",
          "ß\u0130\u01c5\U0001f986e\u0301", "a" * 10_000, "(" * 50, "\n\t", "9" * 60, "infinity",
          "a\x00b", "-", "2020-01-01 25:00:00"],
    "e": ["red", "a%b_c"],
    "d": ["infinity", "-infinity", "5877642-06-25 (BC)", "5881580-07-10", "0044-03-15 (BC)",
          "2020-02-29", "9999-12-31", "10000-01-01"],
    "t": ["infinity", "-infinity", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806",
          "1969-12-31 23:59:59.999999", "0044-03-15 (BC) 12:00:00"],
}  # fmt: skip


def sql_of(value):
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


def create(con, rows, name="r"):
    """Make a table of rows, each a mapping from columns to text."""
    listed = ", ".join(f'"{column}" {type_}' for column, type_ in TYPES.items())
    con.execute(f"CREATE OR REPLACE TABLE {name} (row_number INTEGER, {listed})").fetchall()
    insert(con, rows, name)


def insert(con, rows, name="r", first=0):
    for start in range(0, len(rows), 500):
        some = rows[start : start + 500]
        values = ", ".join(
            f"({first + start + k}, "
            + ", ".join(f"{sql_of(row.get(column))}::{TYPES[column]}" for column in TYPES)
            + ")"
            for k, row in enumerate(some)
        )
        con.execute(f"INSERT INTO {name} VALUES {values}").fetchall()


def benign(count, seed=0):
    """Make rows with everyday values, and some NULL."""
    rng = random.Random(seed)  # noqa: S311
    rows = []
    for _ in range(count):
        row = {
            "o": rng.choice(["true", "false"]), "a": str(rng.randint(-9, 9)),
            "i": str(rng.randint(-1000, 1000)), "b": str(rng.randint(-1000, 10**6)),
            "u": str(rng.randint(0, 10**6)), "h": str(rng.randint(-1000, 1000)),
            "p": f"{rng.randint(-10**5, 10**7) / 100:.2f}",
            "q": f"{rng.randint(0, 1000) / 100:.2f}",
            "w": f"{rng.randint(-10**6, 10**6) / 1000:.3f}",
            "f": repr(rng.randint(-1000, 1000) / 8), "x": repr(rng.randint(-10**6, 10**6) / 64),
            "s": rng.choice(["abc", "aXc", "a%b", "", "Zürich", "a\nb", "12", "ABC_d", "été"]),
            "e": rng.choice(["red", "green", "a%b_c"]),
            "d": f"{rng.randint(1960, 2040)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
            "t": f"{rng.randint(1960, 2040)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} "
                 f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}.5",
        }  # fmt: skip
        rows.append({k: None if rng.random() < 0.07 else v for k, v in row.items()})
    return rows


def parse(con, text):
    """Read one expression as DuckDB does."""
    ((tree,),) = con.execute("SELECT json_serialize_sql(?)", [f"SELECT {text}"]).fetchall()
    document = json.loads(tree)
    assert document["error"] is False, document
    return read_expression(document["statements"][0]["node"]["select_list"][0])


def written(con, text):
    return RowWriter(TYPES).write(parse(con, text))


def of_each(measure, table, columns=""):
    """Write a query for v of each row of a table, and the columns `columns` beside it."""
    made = RowSum.made(measure)
    added = made.added("x_")
    total = made.total(f"COALESCE({added}, 0)", f"(({made.present('x_')}) IS NOT NULL)")
    rows = f"SELECT *, {made.computed('x_')} FROM {table}"
    return f"SELECT {total} AS v{columns} FROM ({rows})"


def same(first, second):
    """Whether two values are equal, doubles up to rounding."""
    if first is None or second is None:
        return first is second
    if isinstance(first, (bool, str)) or isinstance(second, (bool, str)):
        return first == second
    if isinstance(first, float) or isinstance(second, float):
        a, b = float(first), float(second)
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-6)
    return first == second


class Random:
    """Random expressions as SQL text, by type."""

    def __init__(self, seed, hostile=False):
        self.rng = random.Random(seed)  # noqa: S311
        self.hostile = hostile

    def pick(self, *texts):
        return self.rng.choice(texts)

    def number(self, depth):
        if depth == 0:
            return self.pick(*"aibuhpqwfx", "1", "0", "2.5", "-7", "0.05", "1e2", "1000")
        n, r = self.number, depth - 1
        return self.pick(
            lambda: f"({n(r)} {self.pick('+', '-', '*')} {n(r)})",
            lambda: f"({n(r)} / {n(r)})",
            lambda: f"({self.integer(r)} {self.pick('//', '%')} {self.pick('3', '7', '-2', 'i')})",
            lambda: f"(- {n(r)})",
            lambda: f"{self.pick('abs', 'sign', 'floor', 'ceil', 'trunc', 'round')}({n(r)})",
            lambda: f"round({n(r)}, {self.pick('0', '1', '2')})",
            lambda: f"{self.pick('least', 'greatest')}({n(r)}, {n(r)})",
            lambda: f"CASE WHEN {self.condition(r)} THEN {n(r)} ELSE {n(r)} END",
            lambda: f"if({self.condition(r)}, {n(r)}, {n(r)})",
            lambda: f"coalesce({n(r)}, {n(r)})",
            lambda: f"nullif({n(r)}, {n(r)})",
            lambda: f"{self.pick('sqrt', 'ln', 'exp', 'log10', 'sin', 'atan', 'cbrt')}({n(r)})",
            lambda: f"pow({n(r)}, {self.pick('2', '0.5', '3')})",
            lambda: f"CAST({n(r)} AS {self.pick('DOUBLE', 'BIGINT', 'DECIMAL(18,3)', 'HUGEINT')})",
            lambda: self.integer(r),
        )()

    def integer(self, depth):
        if depth == 0:
            return self.pick(*"aibu", "5", "-3")
        r = depth - 1
        return self.pick(
            lambda: f"length({self.text(r)})",
            lambda: f"strpos({self.text(r)}, 'b')",
            lambda: f"date_part('{self.part()}', {self.time(r)})",
            lambda: f"{self.pick('year', 'month', 'hour', 'dayofweek')}({self.time(r)})",
            lambda: f"datediff('{self.unit()}', {self.time(r)}, {self.time(r)})",
            lambda: f"CAST({self.condition(r)} AS INTEGER)",
            lambda: f"({self.integer(r)} {self.pick('+', '-', '*')} {self.integer(r)})",
        )()

    def unit(self):
        return self.pick("day", "month", "hour")

    def part(self):
        return self.pick("year", "month", "day", "hour", "minute", "second", "dow", "quarter",
                         "doy",                         "isodow", "week")  # fmt: skip

    def text(self, depth):
        if depth == 0:
            return self.pick("s", "s", "e", "'aXc'")
        r = depth - 1
        return self.pick(
            lambda: f"{self.pick('lower', 'upper', 'trim')}({self.text(r)})",
            lambda: (
                f"substring({self.text(r)}, {self.pick('1', '2', '-2')}, {self.pick('1', '2')})"
            ),
            lambda: f"{self.pick('left', 'right')}({self.text(r)}, 2)",
            lambda: f"coalesce({self.text(r)}, 'none')",
            lambda: f"({self.text(r)} || {self.pick(self.text, self.number)(min(r, 1))})",
            lambda: f"CASE WHEN {self.condition(r)} THEN {self.text(r)} ELSE 'b' END",
            lambda: f"{self.pick('dayname', 'monthname')}({self.time(r)})",
            lambda: f"CAST({self.pick('i', 'p', 'd', 'o')} AS VARCHAR)",
        )()

    def time(self, depth):
        if depth == 0:
            return self.pick("d", "t", "DATE '2020-02-29'", "TIMESTAMP '2021-03-04 05:06:07'")
        r = depth - 1
        return self.pick(
            lambda: f"date_trunc('{self.pick('month', 'year', 'day', 'hour')}', {self.time(r)})",
            lambda: f"CAST({self.time(r)} AS DATE)",
            lambda: "(d + 7)",
            lambda: f"coalesce({self.time(r)}, {self.time(r)})",
        )()

    def condition(self, depth):
        if depth == 0:
            return self.pick("o", "i > 3", "s = 'abc'", "p BETWEEN 5 AND 5000.5", "true", "NULL")
        r, comparison = depth - 1, self.pick("=", "<>", "<", "<=", ">", ">=",
                                             "IS DISTINCT FROM")  # fmt: skip
        return self.pick(
            lambda: f"({self.number(r)} {comparison} {self.number(r)})",
            lambda: f"({self.text(r)} {comparison} {self.text(r)})",
            lambda: f"({self.time(r)} {comparison} {self.time(r)})",
            lambda: f"({self.condition(r)} {self.pick('AND', 'OR')} {self.condition(r)})",
            lambda: f"(NOT {self.condition(r)})",
            lambda: f"({self.pick(self.number, self.text, self.time)(r)} IS NULL)",
            lambda: f"({self.number(r)} {self.pick('', 'NOT')} BETWEEN {self.number(r)} AND 10)",
            lambda: f"({self.number(r)} {self.pick('', 'NOT')} IN (1, 2.5, {self.number(r)}))",
            lambda: f"({self.text(r)} IN ('abc', 'été', 'red'))",
            lambda: f"({self.text(r)} {self.pick('', 'NOT')} {self.pick('LIKE', 'ILIKE')} "
                    f"'{self.pick('a%', '_b%', '%B_', 'a.c', '%a%c%')}')",
            lambda: f"starts_with({self.text(r)}, 'a')",
            lambda: f"contains({self.text(r)}, 'b')",
            lambda: f"regexp_matches({self.text(r)}, '^a.c?$')",
            lambda: f"({self.time(r)} >= '2001-01-01')",
        )()  # fmt: skip

    def any(self, depth):
        return self.pick(self.number, self.integer, self.text, self.time, self.condition)(depth)


def connect():
    con = duckdb.connect()
    con.execute("SET threads = 1").fetchall()
    return con
