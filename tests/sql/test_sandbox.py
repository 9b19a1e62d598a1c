"""The sandbox runs what is listed, reaches no file, and holds public things only."""

import duckdb
import polars as pl
import pytest
from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.schema import Domain
from dpsql.sql.binding.expressions import AGGREGATES
from dpsql.sql.sandbox import worker
from dpsql.sql.sandbox.database import NotListedError, Sandbox, SandboxError
from tests.sql import reference


@pytest.fixture
def sandbox():
    return Sandbox()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".tmp" / "spilled.tmp").write_text("a private row")
    duckdb.connect("private.duckdb").execute("CREATE TABLE secret AS SELECT 42 AS x")
    return tmp_path


FILES = [
    "SELECT * FROM read_blob('{}')", "SELECT * FROM read_text('{}')", "SELECT * FROM glob('{}')",
    "SELECT * FROM read_csv('{}')", "SELECT * FROM read_parquet('{}')", "SELECT * FROM '{}'",
    "SELECT * FROM sniff_csv('{}')", "SELECT * FROM parquet_metadata('{}')",
    "COPY (SELECT 1) TO '{}'", "COPY x FROM '{}'", "ATTACH '{}' AS zq", "IMPORT DATABASE '{}'",
    "EXPORT DATABASE '{}'", "LOAD '{}'", "CALL enable_logging(storage='file', storage_path='{}')",
    "SET temp_directory='{}'", "SET disabled_filesystems=''", "SET enable_external_access=true",
    "SET allowed_directories=['{}']", "PRAGMA profiling_output='{}'", "INSTALL httpfs",
]  # fmt: skip
PLACES = [".tmp/spilled.tmp", ".tmp/*", "*", "private.duckdb", ":memory:", ":memory:.wal",
          "/etc/hostname", "/proc/self/environ", "/dev/stdout", "https://localhost:1/x",
          "new.csv", ".tmp/new.csv", "/var/new.csv"]  # fmt: skip


def test_reaches_no_file(tmp_path, folder):
    before = sorted(path.name for path in tmp_path.rglob("*"))
    con = worker.connect()
    allowed = con.execute(
        "SELECT unnest(current_setting('allowed_directories') || current_setting('allowed_paths'))"
    ).fetchall()
    places = [*PLACES, *(path for (path,) in allowed)]
    reached = []
    for statement in FILES:
        for place in places:
            sql = statement.format(place)
            try:  # straight to DuckDB, as if nothing checked the text
                found = con.execute(sql).fetchall()
            except duckdb.Error:
                continue
            if not (sql.startswith("ATTACH ':memory:'") and found == []):
                reached.append(sql)
    assert reached == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1; SELECT 2",
        "CREATE TABLE x AS SELECT 1",
        "DROP TABLE __domain_1",
        "SELECT random()",
        "SELECT now()",
        "SELECT uuid()",
        "SELECT version()",
        "SELECT error('x')",
        "SELECT sleep_ms(1)",
        "SELECT current_setting('threads')",
        "SELECT getvariable('x')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_tables",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM main.__domain_1",
        "SELECT main.abs(1)",
        "SELECT (SELECT random())",
        "SELECT list_transform([1], lambda x : x + random())",
        "SELECT 1 ORDER BY random()",
        "SELECT 1 LIMIT (SELECT (random() * 9)::INTEGER)",
        "SELECT sum(1) OVER (ORDER BY random())",
        "SELECT sum(1) FILTER (WHERE random() > 0)",
        "SELECT CASE WHEN true THEN now() END",
        "SELECT 1 FROM generate_series(1, 3) TABLESAMPLE 1",
        "SELECT COLUMNS('a') FROM __domain_1",
        "SELECT 'a' COLLATE nocase = 'A'",
        "SELECT 'a' COLLATE \"C.nocase\" = 'A'",
        "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a",
        "WITH sqlite_master AS (SELECT * FROM sqlite_master) SELECT 1",
        "SELECT * FROM (WITH duckdb_tables AS (SELECT 1) SELECT 1), duckdb_tables",
        'WITH "duc\u212adb_tables" AS (SELECT 1) SELECT * FROM duckdb_tables',
        'WITH "\u212a" AS (SELECT 1) SELECT * FROM k',
        "PIVOT __domain_1 ON value",
        "SUMMARIZE __domain_1",
        "EXPLAIN SELECT 1",
        "",
    ],
)
def test_runs_what_is_listed_only(sandbox, query):
    sandbox.domain(0, Domain.integers(0, 9))
    for run in (sandbox.rows, sandbox.arrays, sandbox.frame, sandbox.types):
        with pytest.raises(NotListedError):
            run(query)
    with pytest.raises(NotListedError):
        sandbox.create("__axis_9", query)
    with pytest.raises(NotListedError):
        sandbox.create("__axis_9", query, view=True)


def test_texts_may_be_said_to_be_bytes(sandbox):
    """So expressions of rows search them, whatever collation is set where the rows are."""
    query = """SELECT system.main."contains"(('aB') COLLATE "C", 'b')"""
    assert sandbox.rows(query) == [(False,)]


@pytest.mark.parametrize("query", ["SELECT", "SELECT 'a", "SELECT 1 FROM"])
def test_what_duckdb_cant_read_is_an_error_of_sql(sandbox, query):
    with pytest.raises(SandboxError):
        sandbox.rows(query)


NILADIC = """
    current_catalog current_date current_role current_schema current_time current_timestamp
    current_user localtime localtimestamp session_user user
"""


@pytest.mark.parametrize("name", NILADIC.split())
def test_names_are_no_functions(sandbox, name):
    """DuckDB takes the name of no column, in quotes too, for a function of the clock or session."""
    with pytest.raises(SandboxError, match="no column"):
        sandbox.rows(f'SELECT "{name}" FROM (VALUES (1)) v(x)')
    assert sandbox.rows(f'SELECT "{name}" FROM (VALUES (1)) v("{name}")') == [(1,)]


def test_takes_no_other_name_for_a_table(sandbox):
    for name in ("x", "__axis_1 AS SELECT random(); --", '"__axis_1"', "__axis_1\n"):
        with pytest.raises(SandboxError, match="not a name"):
            sandbox.create(name, "SELECT 1")
        with pytest.raises(SandboxError, match="not a name"):
            sandbox.drop(name)


def test_keeps_and_returns_frames(sandbox):
    frame = pl.DataFrame(
        {"s": ["a", None, "c'\""], "e": pl.Series(["x", "y", None], dtype=pl.Enum(["y", "x"]))}
    ).with_columns(d=pl.Series(["2026-01-31", None, "2026-02-01"]).str.to_date(), f=pl.lit(0.5))
    sandbox.store("__public_1", frame)
    found = sandbox.frame("SELECT * FROM __public_1")
    assert found.equals(frame)
    assert sandbox.arrays("SELECT f FROM __public_1")["f"].tolist() == [0.5] * 3
    sandbox.drop("__public_1")
    with pytest.raises(SandboxError):
        sandbox.frame("SELECT * FROM __public_1")


def test_every_aggregate_of_the_front_end_may_run(sandbox):
    """What the front end lets through is listed here too; what it doesn't is refused with words."""
    sandbox.create("__axis_1", "SELECT 1 AS x, true AS b")
    column = exp.column
    one = {exp.First, exp.Last}  # of their arguments the other is the dialects' own
    for kind in AGGREGATES:
        name = "b" if kind in {exp.LogicalAnd, exp.LogicalOr, exp.CountIf} else "x"
        given = {
            key: column(name) if key == "this" else exp.Literal.number(1)
            for key in kind.arg_types
            if key in {"this", "quantile"} or (key == "expression" and kind not in one)
        }
        assert sandbox.types(f"SELECT {kind(**given).sql('duckdb')} AS a FROM __axis_1")


@pytest.mark.parametrize("call", ["hll(a)", "approx_top_k(a, 2)"])
@pytest.mark.parametrize(
    "frame",
    [
        "SELECT COUNT(*) AS n FROM people JOIN (SELECT {} AS b FROM (VALUES (1)) v(a)) q ON true",
        "SELECT {} AS b FROM (SELECT age AS a, COUNT(*) AS n FROM people GROUP BY age) q",
    ],
)
def test_other_aggregates_are_refused_by_name(frame, call):
    with pytest.raises(UnsupportedSqlError, match="is not supported"):
        reference.compile_one(reference.connect(), frame.format(call))
