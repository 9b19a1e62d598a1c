"""Settings of a connection: what changes the meaning of SQL is refused, no count depends on any."""

import duckdb
import pytest

import dpsql
from dpsql.engines.duckdb.catalog import MEANING
from dpsql.engines.duckdb.settings import quiet_and_fast
from dpsql.engines.duckdb.views import describe_table
from dpsql.errors import SchemaError
from dpsql.sql import split_script
from tests.helpers.changes import change_while_planning
from tests.helpers.counting import recorded_statements
from tests.helpers.described import DuckDBCatalog

HUGE = dpsql.Budget(rho=10**12)
UNIT = dpsql.Unit("u", 3, max_groups=2)
STATEMENTS = """
    SELECT g, COUNT(DISTINCT u) AS n FROM t GROUP BY g;
    SELECT SUM(a / 2) AS x, SUM(a // 2) AS y, SUM(b) AS z FROM t;
    SELECT COUNT_IF(x / b > 1) AS n, COUNT_IF(ln(x) IS NULL) AS m, COUNT_IF(x / 0 > 5) AS k FROM t;
    SELECT COUNT(*) AS n FROM t WHERE s = 'a' OR s LIKE 'B%' OR s < 'c';
    SELECT s IS NULL AS k, a IS NULL AS l, COUNT(*) AS n FROM t GROUP BY ALL;
    SELECT COUNT(*) AS n FROM t WHERE d >= DATE '2024-01-03' AND month(d) = 1;
    SELECT k, COUNT(*) AS n FROM (SELECT
        LEAST(row_number() OVER (PARTITION BY u ORDER BY a, b), 4) AS k FROM t) GROUP BY k;
    SELECT f, SUM(v) AS n FROM files GROUP BY f;
"""
VALUES = {
    "default_order": "DESC", "default_null_order": "sqlite", "null_order": "NULLS_FIRST",
    "default_collation": "nocase.noaccent", "dialect_compatibility_mode": "spark",
    "TimeZone": "Asia/Tokyo", "Calendar": "japanese", "preserve_identifier_case": "uppercase",
    "arrow_output_version": "1.5", "disabled_optimizers": "filter_pushdown, statistics_propagation",
    "explain_output": "ALL", "profiling_coverage": "ALL", "memory_limit": "1GB",
    "max_memory": "1GB", "threads": 1, "worker_threads": 1, "perfect_ht_threshold": 1,
    "ordered_aggregate_threshold": 1, "nested_loop_join_threshold": 0, "merge_join_threshold": 0,
    "index_scan_percentage": 1.0, "late_materialization_max_rows": 0, "pivot_filter_threshold": 0,
    "schema": "other", "search_path": "other", "streaming_buffer_size": "1KB",
    "validate_external_file_cache": "NO_VALIDATION", "file_search_path": "/nowhere",
}  # fmt: skip
"""Values that aren't the default, of settings that aren't switches."""
ALONE = {
    "lock_configuration", "enable_external_access", "allow_community_extensions", "enable_logging",
    "ieee_floating_point_ops",
}  # fmt: skip
"""Switches that can't be put back, or print; and the one on which counts depend: it is refused."""


def settings():
    with duckdb.connect() as con:
        rows = con.execute("SELECT name, value, input_type FROM duckdb_settings() ORDER BY ALL")
        for name, value, kind in rows.fetchall():
            if kind == "BOOLEAN" and name not in ALONE:
                yield name, value not in ("true", "1")
            elif name in VALUES:
                yield name, VALUES[name]
        yield from (("error_on_division_by_zero", False), ("old_implicit_casting", True))  # hidden


def likely(setting):
    """Sort first what is likeliest to matter; of the others a sample will do."""
    return setting[0] not in MEANING, setting[0] not in VALUES, setting[0]


def made(con, folder):
    con.execute("""
        CREATE TABLE t(u INTEGER, g INTEGER NOT NULL CHECK (g BETWEEN 0 AND 9),
            a INTEGER CHECK (a BETWEEN -3 AND 3), b INTEGER CHECK (b BETWEEN 0 AND 3),
            x DOUBLE, s VARCHAR, d TIMESTAMP, i TIMESTAMPTZ);
        INSERT INTO t SELECT n // 10, n % 10, CASE n % 8 WHEN 0 THEN NULL ELSE n % 7 - 3 END, n % 4,
            CASE n % 9 WHEN 0 THEN 'nan' WHEN 1 THEN 'inf' WHEN 2 THEN NULL
            ELSE (n - 50)::VARCHAR END::DOUBLE,
            ['a', 'A', 'á', 'b', 'B', 'ß', NULL][n % 7 + 1],
            TIMESTAMP '2024-01-01' + INTERVAL (n) HOUR, TIMESTAMPTZ '2024-01-01 00:00:00+00'
        FROM range(300) r(n);
        CREATE SCHEMA other
    """)
    path = folder / "f.parquet"
    con.execute(f"COPY (SELECT n % 3 AS f, n % 2 AS v, n AS u FROM range(12) r(n)) TO '{path}'")
    con.execute(f"CREATE VIEW files AS FROM read_parquet('{path}')")


SCHEMA = {
    "t": {"d": dpsql.Domain.dates("2024-01-01", "2024-01-31", nullable=True),
          "x": dpsql.Domain.number(-9, 9)},
    "files": {"f": dpsql.Domain.integers(0, 2), "v": dpsql.Domain.integers(0, 1)},
}  # fmt: skip


def session(con, folder, name="ledger"):
    return dpsql.Session(
        con, schema=SCHEMA, unit=UNIT, ledger=str(folder / name), accept_schema=True
    )


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A connection, the statements that count what was asked, and what they find."""
    folder = tmp_path_factory.mktemp("settings")
    with duckdb.connect() as con:
        made(con, folder)
        with recorded_statements() as statements:
            for name, sql in split_script(STATEMENTS):
                session(con, folder, name).release(sql, budget=HUGE)
        assert len(statements) >= 8
        yield con, statements, found(con, statements), described(con)


def found(con, statements):
    with quiet_and_fast(con):
        return [sorted(con.execute(sql, given).fetchall(), key=repr) for sql, given in statements]


def described(con):
    catalog = DuckDBCatalog(con)
    tables = [describe_table(catalog, ("memory", "main", n), None, UNIT) for n in ("t", "files")]
    return [(table.fingerprint, list(table.undeclared)) for table in tables]


@pytest.mark.sampled(20)
@pytest.mark.parametrize(("name", "value"), sorted(settings(), key=likely), ids=str)
def test_no_count_and_no_description_depends_on_a_setting(counting, name, value):
    con, statements, usual, tables = counting
    try:
        con.execute(f"SET {name} = '{value}'")
    except duckdb.Error:
        pytest.skip("this setting can't be changed here")
    try:
        assert found(con, statements) == usual
        assert described(con) == tables
    finally:
        con.execute(f"RESET {name}")


MEANT = {"integer_division": True, "ieee_floating_point_ops": False, "old_implicit_casting": True}
CHANGED = [(name, MEANT.get(name, VALUES.get(name))) for name in MEANING]


@pytest.mark.parametrize(
    ("name", "value", "scope"),
    [(*pair, "") for pair in CHANGED if pair[1] is not None]
    + [("integer_division", True, "SESSION"), ("default_order", "DESC", "GLOBAL")],
)
def test_what_changes_the_meaning_of_sql_is_refused_before_the_charge(tmp_path, name, value, scope):
    with duckdb.connect() as con:
        made(con, tmp_path)
        ask = session(con, tmp_path)
        ask.plan("SELECT SUM(a / 2) AS s FROM t", budget=HUGE)
        con.execute(f"SET {scope} {name} = '{value}'")
        for refused in (
            lambda: ask.plan("SELECT SUM(a / 2) AS s FROM t", budget=HUGE),
            lambda: ask.release("SELECT SUM(a / 2) AS s FROM t", budget=HUGE),
        ):
            with pytest.raises(SchemaError, match=f"The connection has {name} = ") as caught:
                refused()
        assert ask.ledger.spent == 0
        con.execute(caught.value.hint)
        answer = ask.query("SELECT SUM(a / 2) AS s FROM t", budget=HUGE)
        (expected,) = con.execute("SELECT SUM(a / 2) FROM t").fetchone()
        assert answer["s"][0] == pytest.approx(expected, abs=300)  # three rows of a unit count


def test_a_setting_that_changes_after_the_plan_is_seen_before_the_charge(tmp_path, monkeypatch):
    with duckdb.connect() as con:
        made(con, tmp_path)
        ask = session(con, tmp_path)
        change_while_planning(monkeypatch, lambda: con.execute("SET integer_division = true"))
        with pytest.raises(SchemaError, match="integer_division = true"):
            ask.release("SELECT g, COUNT(*) AS n FROM t GROUP BY g", budget=HUGE)
        assert ask.ledger.spent == 0


def test_a_locked_configuration_is_told(tmp_path):
    with duckdb.connect() as con:
        made(con, tmp_path)
        con.execute("SET default_order = 'DESC'; SET lock_configuration = true")
        with pytest.raises(SchemaError, match="default_order = DESC") as caught:
            session(con, tmp_path).plan("SELECT COUNT(*) AS n FROM t", budget=HUGE)
        assert caught.value.hint.startswith("open it again without that")
