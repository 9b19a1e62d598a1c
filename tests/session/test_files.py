"""Releases from views of Parquet files: one account for a folder, and one state of its files."""

from __future__ import annotations

import os
import traceback

import duckdb
import polars
import pytest
from click.testing import CliRunner

import dpsql
from dpsql.cli import main
from tests.helpers.changes import change_while_planning
from tests.helpers.counting import counted
from tests.session.tools import BUDGET

HUGE = dpsql.Budget(rho=1e8)
SCHEMA = dpsql.Schema({"trips": {"hour": dpsql.Domain.integers(0, 3)}})
BY_HOUR = "SELECT hour, COUNT(*) AS n FROM trips GROUP BY hour"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "trips"
    folder.mkdir()
    for name in "ab":
        write(folder / f"{name}.parquet")
    return folder


def write(file, rows=40):
    query = f"SELECT i % 4 AS hour, i % 5 AS person FROM range({rows}) AS r(i)"
    with duckdb.connect() as con:
        con.execute(f"COPY ({query}) TO '{file}'").fetchall()


def connect(files, database=":memory:", name="trips"):
    con = duckdb.connect(database)
    con.execute(f"CREATE OR REPLACE VIEW {name} AS FROM '{files}'").fetchall()
    return con


def session(files, ledger=None, database=":memory:", **options):
    con = connect(files, database)
    return dpsql.Session(con, schema=SCHEMA, ledger=ledger, **options)


def account(folder):
    return folder.with_name("trips.ledger")


def test_answers_are_those_of_duckdb(folder):
    answer = session(folder / "*.parquet", account(folder)).query(BY_HOUR, budget=HUGE)
    assert [round(n) for n in answer["n"]] == [20] * 4


def test_an_account_in_memory_is_refused_with_a_hint_that_works(folder):
    for ask in ("plan", "query"):
        with pytest.raises(dpsql.LedgerError, match="in memory only") as caught:
            getattr(session(folder / "*.parquet"), ask)(BY_HOUR, budget=BUDGET)
        assert str(caught.value.hint) == f'pass ledger="{account(folder)}".'
    assert not account(folder).exists()
    assert session(folder / "*.parquet", account(folder)).query(BY_HOUR, budget=BUDGET).height == 4
    # A plan without an account needs none.
    con = connect(folder / "*.parquet")
    assert dpsql.plan(con, BY_HOUR, budget=BUDGET, schema=SCHEMA).workload.count >= 4


def test_all_names_of_a_folder_share_one_account(folder, tmp_path):
    total = dpsql.Budget(rho=4 * BUDGET.rho)
    link = tmp_path / "link"
    link.symlink_to(folder)
    write(tmp_path / "c.parquet")
    os.rename(tmp_path / "c.parquet", folder / "c.parquet")
    ways = [folder / "*.parquet", folder / "a.parquet", link / "b.parquet"]
    ways.append(tmp_path / "t*" / "c.parquet")
    session(ways[0], account(folder), budget=total)
    for way in ways:
        session(way, account(folder)).query(BY_HOUR, budget=BUDGET)
    for way in (*ways, folder / "?.parquet"):
        with pytest.raises(dpsql.BudgetError):
            session(way, account(folder)).query(BY_HOUR, budget=BUDGET)


@pytest.mark.parametrize("first", ["database", "folder"])
def test_a_second_account_is_refused(folder, tmp_path, first):
    files, database = folder / "*.parquet", tmp_path / "x.duckdb"
    asks = {
        "database": lambda: session(files, database=database),
        "folder": lambda: session(files, account(folder)),
    }
    made = asks.pop(first)()
    made.query(BY_HOUR, budget=BUDGET)
    made._data.declared.source.con.close()
    others = [*asks.values()]
    if first == "database":  # what is beside the folder leads to the one account
        through = others.pop()()
        through.query(BY_HOUR, budget=BUDGET)
        assert through.ledger.path == tmp_path / "x.duckdb.ledger"
        assert through.ledger.spent == 2 * BUDGET.mu_squared
    others.append(lambda: session(folder / "a.parquet", tmp_path / "fresh.ledger"))
    others.append(lambda: session(files, database=tmp_path / "y.duckdb"))
    for ask in others:
        with pytest.raises(dpsql.LedgerError) as caught:
            ask().query(BY_HOUR, budget=BUDGET)
        assert caught.value.hint
    in_folder = {"ledger": account(folder)}
    again = session(files, **({"database": database} if first == "database" else in_folder))
    assert again.ledger.spent == (1 + (first == "database")) * BUDGET.mu_squared
    again.query(BY_HOUR, budget=BUDGET)


def test_only_a_charge_decides_where_the_account_is(folder, tmp_path):
    asked = session(folder / "*.parquet", database=tmp_path / "x.duckdb")
    asked.plan(BY_HOUR, budget=BUDGET)
    assert not account(folder).exists()
    asked.query(BY_HOUR, budget=BUDGET)
    assert account(folder).exists()
    assert asked.query(BY_HOUR, budget=0).height == 4


def test_one_unit_is_protected_by_whatever_pattern(folder):
    first = session(folder / "*.parquet", account(folder), unit="person", max_rows=2)
    first.query(BY_HOUR, budget=BUDGET)
    for other in ({}, {"unit": dpsql.EACH_ROW}, {"unit": "hour", "max_rows": 2}):
        with pytest.raises(dpsql.LedgerError):
            session(folder / "a.parquet", account(folder), **other).query(BY_HOUR, budget=BUDGET)


CHANGES = {
    "added": lambda folder: write(folder / "c.parquet"),
    "removed": lambda folder: (folder / "a.parquet").unlink(),
    "written": lambda folder: write(folder / "a.parquet", 80),
    "touched": lambda folder: os.utime(folder / "b.parquet", ns=(1, 1)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_before_the_charge_cost_nothing(folder, monkeypatch, change):
    asked = session(folder / "*.parquet", account(folder))
    change_while_planning(monkeypatch, lambda: change(folder))
    with pytest.raises(dpsql.StaleSchemaError, match="Files of trips"):
        asked.query(BY_HOUR, budget=BUDGET)
    assert asked.ledger.spent == 0
    monkeypatch.undo()
    assert asked.query(BY_HOUR, budget=BUDGET).height == 4


@pytest.mark.parametrize("when", ["before counting", "after counting"])
@pytest.mark.parametrize("name", ["removed", "written", "touched"])
def test_changes_after_the_charge_hand_nothing_out(folder, name, when):
    asked = session(folder / "*.parquet", account(folder))

    def run_and_change(run, *given):
        if when == "before counting":
            CHANGES[name](folder)
        found = run(*given)
        if when == "after counting":
            CHANGES[name](folder)
        return found

    with counted(run_and_change), pytest.raises(dpsql.ExecutionError) as caught:
        asked.query(BY_HOUR, budget=BUDGET)
    assert asked.ledger.spent == BUDGET.mu_squared
    assert [entry.state for entry in asked.ledger.entries()] == ["failed"]
    shown = "".join(traceback.format_exception(caught.value))
    assert "parquet" not in shown
    assert caught.value.__context__ is None


def test_a_file_that_comes_during_the_release_is_not_counted(folder):
    asked = session(folder / "*.parquet", account(folder))

    def add_and_run(run, *given):
        CHANGES["added"](folder)
        return run(*given)

    with counted(add_and_run):
        assert round(asked.query(BY_HOUR, budget=HUGE)["n"].sum()) == 80


def test_measurements_of_other_files_are_not_used(folder):
    asked = session(folder / "*.parquet", account(folder))
    asked.query(BY_HOUR, budget=BUDGET)
    assert asked.query(BY_HOUR, budget=0).height == 4
    with pytest.raises(dpsql.UndeterminedError):
        session(folder / "a.parquet", account(folder)).query(BY_HOUR, budget=0)
    CHANGES["touched"](folder)
    with pytest.raises(dpsql.UndeterminedError):
        asked.query(BY_HOUR, budget=0)


def test_the_owner_may_name_the_state_of_files(folder):
    named = session(folder / "*.parquet", account(folder), vintage="2026")
    named.query(BY_HOUR, budget=BUDGET)
    CHANGES["touched"](folder)
    assert named.query(BY_HOUR, budget=0).height == 4
    for other, options in ((folder / "a.parquet", {"vintage": "2026"}), (folder / "*.parquet", {})):
        with pytest.raises(dpsql.UndeterminedError):
            session(other, account(folder), **options).query(BY_HOUR, budget=0)


def test_no_path_of_the_owner_is_in_what_is_saved(folder, tmp_path):
    asked = session(folder / "*.parquet", account(folder))
    release = asked.release({"n": BY_HOUR}, budget=BUDGET)
    release.save(tmp_path / "r")
    for file in (tmp_path / "r").rglob("*"):
        if file.is_file():
            assert str(folder).encode() not in file.read_bytes()
            assert b"a.parquet" not in file.read_bytes()
    assert dpsql.Release.load(tmp_path / "r")["n"].equals(release["n"])


def test_two_views_of_one_folder_with_other_columns(folder):
    """They are two tables of one account."""
    with duckdb.connect() as con:
        late = "SELECT true AS late FROM range(9)"
        con.execute(f"COPY ({late}) TO '{folder}/late.parquet'").fetchall()
    asked = session(folder / "[ab].parquet", account(folder))
    asked.query(BY_HOUR, budget=BUDGET)
    asked._data.declared.source.con.execute(
        f"CREATE VIEW others AS FROM '{folder}/late.parquet'"
    ).fetchall()
    asked.query("SELECT late, COUNT(*) AS n FROM others GROUP BY late", budget=BUDGET)
    assert asked.ledger.spent == 2 * BUDGET.mu_squared


def test_the_command_line(folder, tmp_path):
    database, declared = tmp_path / "x.duckdb", tmp_path / "schema.toml"
    connect(folder / "*.parquet", database).close()
    declared.write_text("[trips.columns]\nhour = { integers = [0, 3] }\n")
    for arguments in (
        ["schema", "--db", database, "--schema", declared],
        ["query", BY_HOUR, "--db", database, "--rho", "0.1", "--schema", declared],
    ):
        result = CliRunner().invoke(main, list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        assert "hour" in result.output
    assert account(folder).exists()


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_a_registered_frame_is_refused_with_a_hint_that_works(library):
    pytest.importorskip(library)
    with duckdb.connect() as con:
        made = con.sql("SELECT i % 2 = 0 AS even FROM range(10) AS r(i)")
        frame = {"pyarrow": made.to_arrow_table, "pandas": made.df, "polars": made.pl}[library]()
        con.register("frame", frame)
        with pytest.raises(dpsql.SchemaError, match="may be replaced") as caught:
            dpsql.Session(con).query("SELECT COUNT(*) FROM frame", budget=BUDGET)
        assert "polars.DataFrame(frame).dp.session()" in str(caught.value.hint)
        asked = polars.DataFrame(frame).dp.session()
        sql = "SELECT even, COUNT(*) AS n FROM self GROUP BY even"
        assert asked.query(sql, budget=BUDGET).height == 3


def test_a_frame_that_takes_a_name_between_plan_and_release_is_not_counted(monkeypatch):
    """The rows are those of the stored table that was planned for, whatever has its name alone."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE people AS SELECT i % 2 = 0 AS even FROM range(10) AS r(i)")
        frame = con.sql("SELECT true AS even FROM range(99)").to_arrow_table()
        sql = "SELECT even, COUNT(*) AS n FROM people GROUP BY even"
        asked = dpsql.Session(con)
        change_while_planning(monkeypatch, lambda: con.register("people", frame))
        assert round(asked.query(sql, budget=HUGE)["n"].sum()) == 10
        # Now the name may mean both, so nothing is charged.
        for other in (frame, frame.slice(1)):
            con.register("people", other)
            with pytest.raises(dpsql.SchemaError, match="hides the stored table") as caught:
                asked.query(sql, budget=BUDGET)
            assert "main.people" in str(caught.value.hint)
        assert asked.ledger.spent == HUGE.mu_squared


@pytest.mark.parametrize("rows", [0, 3])
def test_variables_of_python_are_no_tables(rows):
    with duckdb.connect() as con:
        frame = con.sql(f"SELECT true AS even FROM range({rows})").to_arrow_table()
        assert con.sql("FROM frame").fetchall() == [(True,)] * frame.num_rows
        for made in ("", "CREATE TABLE unlike (a BOOLEAN)"):
            con.execute(made or "SELECT 1").fetchall()
            with pytest.raises(dpsql.SchemaError, match="no table frame") as caught:
                dpsql.Session(con).query("SELECT COUNT(*) FROM frame", budget=BUDGET)
            hint = str(caught.value.hint)
            assert "CREATE TABLE frame_stored AS FROM frame;" in hint
        con.execute("CREATE TABLE frame_stored AS FROM frame").fetchall()
        assert dpsql.Session(con).query("SELECT COUNT(*) FROM frame_stored", budget=BUDGET).height


def test_why_frames_are_refused_types_and_labels_are_found_in_rows():
    """If this fails, what is public of a registered frame can be thought of anew."""
    pandas = pytest.importorskip("pandas")
    with duckdb.connect() as con:
        types = []
        for rows in ([1, 2], [1, "x"]):
            con.register("frame", pandas.DataFrame({"a": pandas.Series(rows, dtype=object)}))
            types += con.sql("DESCRIBE frame").fetchall()[0][1:2]
        assert types == ["INTEGER", "VARCHAR"]
        con.register("frame", pandas.DataFrame({"a": pandas.Categorical(["x", "y"])}))
        assert con.sql("DESCRIBE frame").fetchall()[0][1] == "ENUM('x', 'y')"


@pytest.mark.parametrize(
    ("sql", "numbers"),
    [
        ("SELECT x < 10 AS k, COUNT(*) AS n FROM v GROUP BY k ORDER BY k", False),
        ("SELECT COUNT(*) AS n FROM v WHERE x > 10", False),
        ("SELECT COUNT(*) AS n FROM v WHERE isnan(x)", False),
        ("SELECT COUNT(*) AS n FROM v WHERE x BETWEEN 0 AND 5", False),
        ("SELECT SUM(CASE WHEN x < 10 THEN 1 ELSE 0 END) AS n FROM v", False),
        ("SELECT SUM(x) AS n FROM v", True),
    ],
)
def test_one_row_moves_no_other_whatever_files_say_of_their_largest_value(tmp_path, sql, numbers):
    """Parquet leaves NaN out of it, as Polars writes it, and DuckDB takes it for the truth."""
    schema = {"v": {"x": dpsql.Domain.number(0, 10)}} if numbers else {}
    found = []
    for more in ([], [50.0]):
        folder = tmp_path / str(len(more))
        folder.mkdir()
        values = [0.0, 1.0, 2.0, *([float("nan")] * 100), *more]
        polars.DataFrame({"x": values}).write_parquet(folder / "p.parquet")
        con = connect(folder / "p.parquet", name="v")
        asked = dpsql.Session(con, schema=schema, ledger=tmp_path / f"{len(more)}.ledger")
        found.append([round(n) for n in asked.query(sql, budget=HUGE)["n"]])
        with duckdb.connect() as table:
            table.execute("CREATE TABLE v (x DOUBLE)")
            table.executemany("INSERT INTO v VALUES (?)", [[value] for value in values])
            true = table.sql(sql).fetchall()
        expected = [row[-1] for row in true if row[-1]]
        assert numbers or [n for n in found[-1] if n] == expected
    without, with_it = found
    assert sum(abs(n - m) for n, m in zip(without, with_it, strict=True)) <= (10 if numbers else 1)
