"""Domains of many values: cut where statements ask, by the same rules as if written out."""

from __future__ import annotations

import random
import re

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.sql.lowering import by_rows

HUGE = dpsql.Budget(rho=1e12)
POLICIES = {
    "drop": {},
    "null": {"nullable": True},
    "clamp": {"outside": "clamp"},
    "clamp or null": {"nullable": True, "outside": "clamp"},
    "drop or null": {"nullable": True, "outside": "drop"},
}
DOMAINS = {
    "INTEGER": lambda **rules: dpsql.Domain.integers(0, 300, **rules),
    "DECIMAL(9,2)": lambda **rules: dpsql.Domain.decimals("0", "3", "0.01", **rules),
    "DATE": lambda **rules: dpsql.Domain.dates("2024-01-01", "2024-10-27", **rules),
}
VALUE = {
    "INTEGER": "{}",
    "DECIMAL(9,2)": "{} / 100.0",
    "DATE": "DATE '2024-01-01' + ({})::INTEGER",
}
"""The value of a number, of which 0 and 300 are the ends of the domain."""


def statements(rng: random.Random, type_: str) -> list[str]:
    """Write some statements over `x`, whose constants lie in the domain, at its ends and beyond."""

    def value() -> str:
        number = rng.choice([-5, -1, 0, 1, 120, 299, 300, 301, 310])
        return VALUE[type_].format(number) if type_ == "DATE" else str(number / SCALE[type_])

    def condition() -> str:
        return rng.choice(
            [
                f"x {rng.choice(['<', '<=', '>', '>=', '='])} {value()}",
                f"x BETWEEN {value()} AND {value()}",
                f"x NOT IN ({value()}, {value()})",
                f"(x > {value()} OR x IS NULL)",
                f"(x < {value()} AND v < 4)",
                "x IS NOT NULL",
                "x IS NULL",
            ]
        )

    def case() -> str:
        return f"CASE WHEN {condition()} THEN 'low' WHEN {condition()} THEN 'mid' ELSE 'high' END"

    joined = "t RIGHT JOIN u ON t.g = u.g"
    return [
        f"SELECT COUNT(*) AS n FROM t WHERE {condition()} AND ({condition()} OR v < 3)",
        f"SELECT {case()} AS k, COUNT(*) AS n FROM t GROUP BY k",
        f"SELECT g, {condition()} AS k, COUNT(*) AS n FROM t "
        f"WHERE ({condition()} OR x > {value()}) GROUP BY g, k",
        f"SELECT g, COUNT(*) FILTER (WHERE {condition()}) AS n, COUNT(x) AS m FROM t GROUP BY g",
        f"SELECT COUNT(*) AS n, SUM(CASE WHEN {condition()} THEN v ELSE 1 END) AS s FROM t",
        f"SELECT u.h, COUNT(*) AS n FROM t JOIN u USING (g) "
        f"WHERE ({condition()} OR x > {value()} OR v < 3) GROUP BY h",
        f"SELECT u.h, COUNT(t.g) AS n FROM {joined} AND {condition()} GROUP BY h",
    ]


SCALE = {"INTEGER": 1, "DECIMAL(9,2)": 100}


@pytest.fixture(scope="module", params=list(DOMAINS))
def table(request: pytest.FixtureRequest) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A table whose values are in the domain, at both ends, beyond them, and NULL."""
    type_ = request.param
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE t (g VARCHAR NOT NULL CHECK (g IN ('a', 'b')), x {type_}, "
        "v INTEGER NOT NULL CHECK (v BETWEEN 0 AND 9));"
        "CREATE TABLE u AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('c', 3)) AS x(g, h)"
    )
    numbers = [None, -1, -2, 0, 0, 1, 300, 300, 299, 301, 307, *range(7, 300, 13)]
    for i, number in enumerate(numbers):
        x = "NULL" if number is None else VALUE[type_].format(number)
        con.execute(f"INSERT INTO t VALUES ('{'ab'[i % 2]}', {x}, {i % 10})")
    return con, type_


@pytest.mark.sampled(10)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_long_domain_answers_as_one_that_is_written_out(table, policy, seed, monkeypatch):
    con, type_ = table
    schema = dpsql.Schema({"t": {"x": DOMAINS[type_](**POLICIES[policy])}})
    session = {"schema": schema, "accept_schema": True, "public": ["u"]}

    script = {f"s{i}": s for i, s in enumerate(statements(random.Random(seed), type_))}  # noqa: S311

    def answers() -> dict[str, list[tuple[object, ...]]]:
        release = dpsql.Session(con, **session).release(script, budget=HUGE)
        return {sql: _rows(release[name]) for name, sql in script.items()}

    written_out = answers()
    monkeypatch.setattr(by_rows, "MAX_CELLS", 100)
    assert answers() == written_out


def _rows(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return the groups that have rows: of others, more are known where a line is cut."""
    asked = [name for name in frame.columns if name in {"g", "h", "k", "n", "m", "s"}]
    rows = [tuple(map(_rounded, row)) for row in frame.select(asked).rows()]
    return sorted([row for row in rows if any(type(v) is int and v for v in row)], key=repr)


def _rounded(value: object) -> object:
    return round(value) if isinstance(value, float) else value


@pytest.mark.parametrize("policy", POLICIES)
def test_no_list_is_made_of_a_long_domain(policy):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER)")
    rows = [None, -1, 0, 5, 999_999, 1_000_000, 4_999_999, 5_000_000, 40_000_000, 40_000_001]
    con.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
    domain = dpsql.Domain.integers(0, 40_000_000, **POLICIES[policy])
    schema = dpsql.Schema({"t": {"x": domain}})
    sql = (
        "SELECT CASE WHEN x < 1000000 THEN 'low' WHEN x < 5000000 THEN 'mid' ELSE 'high' END AS k, "
        "COUNT(*) AS n FROM t GROUP BY k"
    )
    plan = dpsql.plan(con, sql, budget=HUGE, schema=schema)
    assert max(plan.workload.domain.values()) <= 7
    frame = dpsql.query(con, sql, budget=HUGE, schema=schema, accept_schema=True)
    found = {k: round(n) for k, n in frame.select("k", "n").rows()}
    assert (
        found
        == {
            "drop": {"low": 3, "mid": 2, "high": 2},
            "null": {"low": 3, "mid": 2, "high": 5},
            "clamp": {"low": 4, "mid": 2, "high": 3},
            "clamp or null": {"low": 4, "mid": 2, "high": 4},
            "drop or null": {"low": 3, "mid": 2, "high": 3},
        }[policy]
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_sums_of_a_long_domain_are_of_what_its_values_count_as(policy):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (x INTEGER, g INTEGER NOT NULL CHECK (g IN (0, 1)))")
    rows = [None, -500_000, 0, 5, 999_999, 1_000_000, 5_000_000, 40_000_000, 80_000_000]
    con.executemany("INSERT INTO t VALUES (?, ?)", [(row, i % 2) for i, row in enumerate(rows)])
    domain = dpsql.Domain.integers(0, 40_000_000, **POLICIES[policy])
    session = dpsql.Session(con, schema=dpsql.Schema({"t": {"x": domain}}), accept_schema=True)
    sql = "SELECT {} COUNT(*) AS n, COUNT(x) AS m, SUM(x) AS s, AVG(x) AS a FROM t WHERE {} {}"
    inside = "CASE WHEN x BETWEEN 0 AND 40000000 THEN x END"
    seen = inside if "clamp" not in policy else "x"
    counted = inside if "clamp" not in policy else "greatest(least(x, 40000000), 0)"
    counted = f"CASE WHEN x IS NOT NULL THEN {counted} END"
    kept = {"drop": "x IS NOT NULL", "clamp": "x IS NOT NULL"}.get(policy, "true")
    kept = "(x IS NOT NULL OR stored IS NULL)" if policy == "drop or null" else kept
    for keys, condition, group in (
        ("", "true", ""),
        ("g,", "x > 3 OR x IS NULL", "GROUP BY g"),
        ("g,", "x < 1000000", "GROUP BY g"),
        ("g, x >= 40000000 AS k,", "x <> 5", "GROUP BY g, k"),
    ):
        as_seen = f"(SELECT g, x AS stored, {seen} AS x, {counted} AS c FROM t) AS t"
        true = con.execute(
            f"SELECT {keys} COUNT(*), COUNT(c), SUM(c), AVG(c) FROM {as_seen} "
            f"WHERE ({condition}) AND {kept} {group}"
        ).fetchall()
        frame = session.query(sql.format(keys, condition, group), budget=HUGE)
        asked = [name for name in frame.columns if name in {"g", "k", "n", "m", "s", "a"}]
        names = len(asked) - 4
        found = {row[:names]: row[names:] for row in frame.select(asked).rows()}
        for row in true:
            ours = found[row[:names]]
            assert list(map(round, ours[:2])) == list(row[names : names + 2])
            assert ours[2] == pytest.approx(float(row[-2] or 0), rel=1e-3, abs=500)
            if row[-1] is not None:
                assert ours[3] == pytest.approx(row[-1], rel=1e-3, abs=500)


def test_each_value_of_a_long_domain_is_refused_and_rounded_ones_are_answered():
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT 400 * range::INTEGER AS x FROM range(100000)")
    session = dpsql.Session(
        con, schema={"t": {"x": dpsql.Domain.integers(0, 40_000_000)}}, accept_schema=True
    )
    asked, sql, group = "{}, COUNT(*)", "SELECT {} FROM t {}", "GROUP BY 1 ORDER BY 1"
    with pytest.raises(dpsql.errors.ResourceLimitError, match="40,000,001 values of x") as refused:
        session.query(sql.format(asked.format("x"), group), budget=HUGE)
    rounded = re.search(r"write (.*) in place of x", str(refused.value))[1]
    asked = asked.format(rounded)
    found = session.query(sql.format(asked, group), budget=HUGE)
    true = con.execute(sql.format(asked, group)).fetchall()
    columns = [
        name for name in found.columns if not name.endswith(("_lower", "_upper", "_variance"))
    ]
    kept = [row for row in found.select(columns).rows() if round(row[-1])]
    assert [tuple(map(round, row)) for row in kept] == [tuple(map(round, row)) for row in true]
