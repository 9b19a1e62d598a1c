"""Releases from attached databases: the account is that of the file, by whatever way to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest

import dpsql
from dpsql.privacy import pointer
from tests.helpers.changes import change_while_planning
from tests.helpers.counting import counted
from tests.session.tools import AGES, BUDGET, BY_SEX, create

HUGE = dpsql.Budget(rho=1e8)


def by_sex(name: str) -> str:
    return BY_SEX.replace("people", name)


@pytest.fixture
def place(file):
    """The usual place of the account of `people.duckdb`."""
    return Path(f"{file}.ledger")


@pytest.fixture
def other(tmp_path):
    """Another database, with a table of the same name, and of other rows."""
    path = tmp_path / "other.duckdb"
    with create(path) as con:
        con.execute("DELETE FROM people WHERE age > 3").fetchall()
    return path


def connect(database=":memory:", **attached):
    con = duckdb.connect(database)
    for name, path in attached.items():
        con.execute(f"ATTACH '{path}' AS {name}").fetchall()
    return con


def spent(file):
    """Say how many charges of `BUDGET` the account of a database has, asked as its own."""
    with duckdb.connect(file) as con:
        return dpsql.Session(con).ledger.spent / BUDGET.mu_squared


@pytest.mark.parametrize("name", ["hr.people", "hr.main.people", 'HR."people"'])
def test_answers_are_those_of_the_attached_file(file, other, name):
    with connect(other, hr=file) as con:
        answer = dpsql.Session(con).query(by_sex(name), budget=HUGE)
        expected = con.sql("SELECT sex, count(*) FROM hr.people GROUP BY sex ORDER BY sex")
        assert [round(n) for n in answer.sort("sex")["n"]] == [n for _, n in expected.fetchall()]


def test_without_an_account_that_lasts_the_hint_says_where_it_is(file, place):
    """Also if there is none yet: the database can go on with the one that is begun for it."""
    with connect(hr=file) as con:
        for _ in range(2):
            with pytest.raises(dpsql.LedgerError, match="in memory only") as caught:
                dpsql.Session(con).query(by_sex("hr.people"), budget=BUDGET)
            assert str(caught.value.hint) == f'pass ledger="{place}".'
            session = dpsql.Session(con, ledger=place)
            session.query(by_sex("hr.people"), budget=BUDGET)
            assert session.ledger.dataset == "people.duckdb"
        # A plan without an account needs none.
        assert dpsql.plan(con, by_sex("hr.people"), budget=BUDGET).workload.count
    assert spent(file) == 2


def test_what_was_measured_is_known_by_the_file(file, other, place):
    """By whatever name it is attached, and never for another file's table of the same name."""
    with connect(other, hr=file) as con:
        session = dpsql.Session(con)
        session.query(by_sex("hr.people"), budget=BUDGET)
        assert session.query(by_sex("hr.main.people"), budget=0).height == 2
        with pytest.raises(dpsql.UndeterminedError):
            session.query(BY_SEX, budget=0)
        session.query(BY_SEX, budget=BUDGET)
    with connect(other, humans=file) as con:
        assert dpsql.Session(con).query(by_sex("humans.people"), budget=0).height == 2
    with connect(file) as con:
        assert dpsql.Session(con).query(BY_SEX, budget=0).height == 2


def test_rows_in_memory_are_not_taken_for_those_of_the_file(file, place):
    with connect(hr=file) as con:
        con.execute("CREATE TABLE people AS FROM hr.people LIMIT 3").fetchall()
        con.execute("DROP TABLE people").fetchall()
        con.execute("CREATE TABLE people (sex ENUM ('F', 'M') NOT NULL)").fetchall()
        session = dpsql.Session(con, ledger=place, vintage="2026")
        session.query(by_sex("hr.people"), budget=BUDGET)
        with pytest.raises(dpsql.StaleSchemaError):
            session.query(BY_SEX, budget=0)
        with pytest.raises(dpsql.UndeterminedError):
            dpsql.Session(con, ledger=place, vintage="2026", accept_schema=True).query(
                BY_SEX, budget=0
            )


def test_another_account_is_refused_with_a_hint_that_works(file, other, place, tmp_path):
    with connect(file) as con:
        dpsql.Session(con).query(BY_SEX, budget=BUDGET)
    for options in ({}, {"ledger": tmp_path / "fresh.ledger"}):
        with connect(":memory:" if options else other, hr=file) as con:
            with pytest.raises(dpsql.LedgerError, match="have their account in") as caught:
                dpsql.Session(con, **options).query(by_sex("hr.people"), budget=BUDGET)
            assert f'ledger="{place}"' in str(caught.value.hint)
    with connect(hr=file) as con:
        dpsql.Session(con, ledger=place).query(by_sex("hr.people"), budget=BUDGET)
    assert spent(file) == 2


def test_the_first_account_stays_that_of_the_file(file, other, place):
    """It was begun beside another database; the file's own sessions go on with it."""
    with connect(other, hr=file) as con:
        dpsql.Session(con, budget=dpsql.Budget(rho=2 * BUDGET.rho)).query(
            by_sex("hr.people"), budget=BUDGET
        )
    assert pointer.followed(place) == other.with_name("other.duckdb.ledger")
    with connect(file) as con:
        dpsql.Session(con).query(BY_SEX, budget=BUDGET)
        with pytest.raises(dpsql.BudgetError):
            dpsql.Session(con).query(BY_SEX, budget=BUDGET)
    with connect(hr=file) as con, pytest.raises(dpsql.BudgetError):
        dpsql.Session(con, ledger=place).query(by_sex("hr.people"), budget=BUDGET)


def test_a_folder_that_can_not_be_written_to_needs_a_ledger(file, other, monkeypatch):
    monkeypatch.setattr(pointer.os, "access", lambda *_: False)
    with connect(other, hr=file) as con:
        session = dpsql.Session(con)
        with pytest.raises(dpsql.LedgerError, match="Nothing can be written beside") as caught:
            session.query(by_sex("hr.people"), budget=BUDGET)
        assert "USE" in str(caught.value.hint)
        assert session.ledger.spent == 0
        con.execute("USE hr").fetchall()
        own = dpsql.Session(con, ledger=file.with_name("kept.ledger"))
        assert own.query(BY_SEX, budget=BUDGET).height == 2


def test_one_release_is_from_one_file(file, other):
    with connect(other, hr=file) as con:
        with pytest.raises(dpsql.SqlError, match=r"over people: one|hr\.main\.people") as caught:
            dpsql.Session(con).release([BY_SEX, by_sex("hr.people")], budget=BUDGET)
        assert "in its own call" in str(caught.value.hint)
        joined = "SELECT COUNT(*) FROM people JOIN hr.people AS h USING (person)"
        with pytest.raises(dpsql.DpsqlError) as caught:
            dpsql.Session(con).query(joined, budget=BUDGET)
        assert caught.value.hint


def test_public_tables_of_any_attached_database(file, other):
    towns = "CREATE TABLE pub.towns AS SELECT * FROM (VALUES ('F', 'x'), ('M', 'y')) AS t(sex, k)"
    sql = "SELECT k, COUNT(*) AS n FROM hr.people JOIN pub.towns USING (sex) GROUP BY k"
    with connect(other, hr=file) as con:
        con.execute("ATTACH ':memory:' AS pub").fetchall()
        con.execute(towns).fetchall()
        session = dpsql.Session(con, public="pub.towns")
        assert session.query(sql, budget=HUGE)["k"].to_list() == ["x", "y"]
        public = dpsql.Session(con, public="hr.people")
        with pytest.raises(dpsql.SchemaError, match="private, and is also named as public"):
            public.query(by_sex("hr.main.people"), budget=BUDGET)


def test_declarations_name_the_database_as_the_hint_does(file, other):
    with connect(other, hr=file) as con:
        con.execute("ALTER TABLE hr.people ADD COLUMN hours INTEGER").fetchall()
        sql = "SELECT hours, COUNT(*) AS n FROM hr.people GROUP BY hours"
        with pytest.raises(dpsql.DpsqlError) as caught:
            dpsql.Session(con).query(sql, budget=BUDGET)
        assert '"hr.main.people": {"hours"' in str(caught.value.hint)
        for name in ("hr.people", "hr.main.people"):
            schema = dpsql.Schema({name: {"hours": dpsql.Domain.integers(0, 3, nullable=True)}})
            plan = dpsql.plan(con, sql, budget=BUDGET, schema=schema)
            assert plan.workload.count == 5
        misspelled = dpsql.Schema({"hr.main.peopel": {"hours": dpsql.Domain.integers(0, 3)}})
        with pytest.raises(dpsql.SchemaError):
            dpsql.plan(con, sql, budget=BUDGET, schema=misspelled)


def test_comments_of_an_attached_table_hold(file, other):
    with connect(other, hr=file) as con:
        con.execute(
            'COMMENT ON TABLE hr.people IS \'dpsql: {"unit": "person", "max_rows": 2}\''
        ).fetchall()
        session = dpsql.Session(con)
        session.query(by_sex("hr.people"), budget=BUDGET)
        assert session.ledger.protected.units == 1


def test_names_that_may_mean_several(file, other):
    with connect(other, hr=file) as con:
        con.execute("CREATE SCHEMA hr").fetchall()
        con.execute("CREATE TABLE other.hr.people (a BOOLEAN)").fetchall()
        with pytest.raises(dpsql.SchemaError, match="ambiguous") as caught:
            dpsql.plan(con, by_sex("hr.people"), budget=BUDGET)
        assert "database.schema.table" in str(caught.value.hint)
        assert dpsql.plan(con, by_sex("hr.main.people"), budget=BUDGET).workload.count


def test_a_name_alone_is_of_the_current_database(file):
    with connect(hr=file) as con:
        for name in ("people", "peoples.people"):
            with pytest.raises(dpsql.SchemaError, match="no table") as caught:
                dpsql.plan(con, by_sex(name), budget=BUDGET)
            assert str(caught.value.hint) == "write hr.main.people."
        con.execute("CREATE VIEW hr.grown AS FROM people").fetchall()
        with pytest.raises(dpsql.SchemaError, match="no table") as caught:
            dpsql.plan(con, by_sex("grown"), budget=BUDGET)
        assert str(caught.value.hint) == "write hr.main.grown."
        assert dpsql.plan(con, by_sex("hr.main.grown"), budget=BUDGET).workload.count


def test_databases_in_memory_have_nothing_that_their_account_is_known_by(con):
    con.execute("ATTACH ':memory:' AS more").fetchall()
    con.execute("CREATE TABLE more.people AS FROM people").fetchall()
    for name in ("more.people", "more.main.people"):
        with pytest.raises(dpsql.SchemaError, match="another in-memory database") as caught:
            dpsql.Session(con).query(by_sex(name), budget=BUDGET)
        assert str(caught.value.hint) == "USE more; and make a new session."


@pytest.mark.parametrize("change", ["other file", "gone", "other table"])
def test_what_is_attached_may_not_change_after_planning(file, tmp_path, monkeypatch, change):
    """Another file under the same name has other rows, and another account."""
    shutil.copy(file, tmp_path / "copy.duckdb")
    with connect(tmp_path / "mine.duckdb", hr=file) as con:
        session = dpsql.Session(con)

        def change_something():
            if change == "other table":
                con.execute("ALTER TABLE hr.people ADD COLUMN more INTEGER").fetchall()
            else:
                con.execute("DETACH hr").fetchall()
            if change == "other file":
                con.execute(f"ATTACH '{tmp_path / 'copy.duckdb'}' AS hr").fetchall()

        change_while_planning(monkeypatch, change_something)
        with pytest.raises(dpsql.StaleSchemaError) as caught:
            session.query(by_sex("hr.people"), budget=BUDGET)
        assert caught.value.hint
        assert session.ledger.spent == 0


def test_all_counts_of_an_attached_table_are_of_one_state(file, other, monkeypatch):
    monkeypatch.setattr("dpsql.engines.duckdb.blocks.MOST_CELLS", 1)
    added = []
    with connect(other, hr=file) as con, con.cursor() as writer:

        def add_and_run(run, *given):
            added.append(writer.execute("INSERT INTO hr.people FROM hr.people").fetchall())
            return run(*given)

        with counted(add_and_run):
            release = dpsql.Session(con).release(
                {"sex": by_sex("hr.people"), "age": AGES.replace("people", "hr.people")},
                budget=HUGE,
            )
        assert len(added) > 1
        assert [round(release[name]["n"].sum()) for name in ("sex", "age")] == [300, 300]


def test_a_unit_by_way_of_a_foreign_key_is_of_the_attached_database(file, other):
    with connect(file) as con:
        con.execute("CREATE TABLE homes (home INTEGER PRIMARY KEY, owner INTEGER)").fetchall()
        con.execute("INSERT INTO homes SELECT i, i // 2 FROM range(20) AS t(i)").fetchall()
        con.execute(
            "CREATE TABLE bills (home INTEGER REFERENCES homes (home), paid BOOLEAN NOT NULL)"
        ).fetchall()
        con.execute("INSERT INTO bills SELECT i % 20, true FROM range(200) AS t(i)").fetchall()
    sql = "SELECT paid, COUNT(*) AS n FROM hr.bills GROUP BY paid"
    with connect(other, hr=file) as con:
        session = dpsql.Session(con, unit="homes.owner", max_rows=3)
        assert round(session.query(sql, budget=HUGE)["n"].sum()) == 30


def test_hard_links_and_copies_are_data_sets_of_their_own(file, tmp_path):
    """As the promise says: nothing in a file tells them from others."""
    with duckdb.connect(file) as con:
        dpsql.Session(con, budget=BUDGET).query(BY_SEX, budget=BUDGET)
    os.link(file, tmp_path / "linked.duckdb")
    shutil.copy(file, tmp_path / "copied.duckdb")
    for name in ("linked", "copied"):
        path = tmp_path / f"{name}.duckdb"
        with connect(x=path) as con:
            session = dpsql.Session(con, ledger=f"{path}.ledger")
            session.query(by_sex("x.people"), budget=BUDGET)
            assert session.ledger.dataset == f"{name}.duckdb"


# ── the account can't be dodged ────────────────────────────────────────────────────────────


class Way(NamedTuple):
    """A way to a table whose budget is spent, and how it ends."""

    setup: str
    name: str
    ends: type[dpsql.DpsqlError]
    database: str = ":memory:"
    """The connection's own."""
    options: Mapping[str, object] = {}


SPENT, ELSEWHERE, REFUSED = dpsql.BudgetError, dpsql.LedgerError, dpsql.SchemaError
FRESH = {"ledger": "{folder}/fresh.ledger"}
ATTACH = "ATTACH '{file}' AS x"
WAYS = {
    "its own database": Way("", "people", SPENT, "{file}"),
    "its own, with another ledger": Way("", "people", ELSEWHERE, "{file}", FRESH),
    "USE": Way(f"{ATTACH}; USE x", "people", SPENT),
    "USE, another schema": Way(f"{ATTACH}; CREATE SCHEMA x.s; USE x.s", "main.people", SPENT),
    "attached, in memory": Way(ATTACH, "x.people", ELSEWHERE),
    "attached, another ledger": Way(ATTACH, "x.people", ELSEWHERE, options=FRESH),
    "attached elsewhere": Way(ATTACH, "x.people", ELSEWHERE, "{folder}/mine.duckdb"),
    "another name": Way("ATTACH '{file}' AS Fresh", "fresh.main.people", ELSEWHERE),
    "hostile name": Way("ATTACH '{file}' AS \"x.y \"\"z\"", '"x.y ""z".people', ELSEWHERE),
    "Unicode": Way("ATTACH '{file}' AS Ünï", '"Ünï".people', ELSEWHERE),
    "read only": Way(f"{ATTACH} (READ_ONLY)", "x.people", ELSEWHERE),
    "a link": Way("ATTACH '{folder}/link.duckdb' AS x", "x.people", ELSEWHERE),
    "a linked folder": Way("ATTACH '{folder}/linked/people.duckdb' AS x", "x.people", ELSEWHERE),
    "USE of a link": Way("ATTACH '{folder}/link.duckdb' AS x; USE x", "people", SPENT),
    "a relative path": Way("ATTACH '{relative}' AS x", "x.people", ELSEWHERE),
    "dots": Way("ATTACH '{folder}/../{inner}/./people.duckdb' AS x", "x.people", ELSEWHERE),
    "a view": Way("CREATE VIEW v AS SELECT sex, age + 1 AS a FROM people", "v", SPENT, "{file}"),
    "a view of another schema": Way(
        "CREATE SCHEMA s; CREATE VIEW s.people AS FROM main.people", "s.people", SPENT, "{file}"
    ),
    "a renamed view": Way(
        "CREATE VIEW v AS FROM people; ALTER VIEW v RENAME TO fresh", "fresh", SPENT, "{file}"
    ),
    "a view elsewhere": Way(
        f"{ATTACH}; CREATE VIEW people AS FROM x.people", "people", ELSEWHERE,
        "{folder}/mine.duckdb",
    ),
    "views of views": Way(
        f"{ATTACH}; CREATE VIEW x.low AS SELECT sex FROM people WHERE age > 2;"
        "CREATE SCHEMA s; CREATE VIEW s.high AS FROM x.low", "s.high", ELSEWHERE,
    ),
    "a quoted view, other case": Way(
        ATTACH + '; CREATE VIEW "Ü ""v""" AS FROM "X"."MAIN"."PEOPLE"', '"Ü ""v"""', ELSEWHERE
    ),
    "a view that is attached": Way(
        f"{ATTACH}; CREATE VIEW x.v AS FROM people", "x.v", ELSEWHERE, "{folder}/mine.duckdb"
    ),
    "a renamed table": Way(
        "ALTER TABLE people RENAME TO persons", "persons", SPENT, "{file}"
    ),
    "another table": Way("CREATE TABLE copied AS FROM people", "copied", SPENT, "{file}"),
    "a temporary view": Way("CREATE TEMP VIEW v AS FROM people", "v", REFUSED, "{file}"),
    "a temporary view, in full": Way(
        "CREATE TEMP VIEW v AS FROM people", "temp.main.v", REFUSED, "{file}"
    ),
    "a temporary table": Way("CREATE TEMP TABLE c AS FROM people", "c", REFUSED, "{file}"),
    "a table macro": Way(
        "CREATE MACRO m() AS TABLE FROM people; CREATE VIEW v AS FROM m()", "v", REFUSED, "{file}"
    ),
    "query()": Way(
        "CREATE VIEW v AS FROM query('FROM people')", "v", REFUSED, "{file}"
    ),
    "memory": Way(
        f"{ATTACH}; ATTACH ':memory:' AS m; CREATE TABLE m.people AS FROM x.people", "m.people",
        REFUSED, "{folder}/mine.duckdb",
    ),
    "public": Way("", "people", REFUSED, "{file}", {"public": "main.people"}),
}  # fmt: skip


@pytest.mark.sampled(16)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_no_way_to_a_table_gives_it_a_fresh_budget(file, place, way):
    with duckdb.connect(file) as con:
        dpsql.Session(con, budget=BUDGET).query(BY_SEX, budget=BUDGET)
    folder = file.parent
    (folder / "link.duckdb").symlink_to(file)
    (folder / "linked").symlink_to(folder, target_is_directory=True)
    known = {
        "file": file,
        "folder": folder,
        "inner": folder.name,
        "relative": os.path.relpath(file),
    }
    options = {k: v.format(**known) for k, v in way.options.items()}
    with duckdb.connect(way.database.format(**known)) as con:
        con.execute(way.setup.format(**known) or "SELECT 1").fetchall()
        with pytest.raises(way.ends) as caught:
            dpsql.Session(con, **options).query(by_sex(way.name), budget=BUDGET)
        assert caught.value.hint
        if way.ends is ELSEWHERE:
            assert str(place) in str(caught.value) + str(caught.value.hint)
    assert spent(file) == 1


def test_a_frame_of_the_rows_is_no_table(file):
    with duckdb.connect(file) as con:
        con.register("v", con.sql("FROM people").to_arrow_table())
        for name in ("v", "temp.main.v", "temp.v"):
            with pytest.raises(dpsql.SchemaError, match="registered frame"):
                dpsql.Session(con).query(by_sex(name), budget=BUDGET)


def test_columns_and_earlier_releases_know_the_table_by_all_of_its_names(file, other):
    with connect(other, hr=file) as con:
        release = dpsql.Session(con).release(by_sex("hr.people"), budget=HUGE)
        for name in ("hr.people", "HR.main.people", "main.people", "people"):
            assert release.query(by_sex(name))["n"].round().sum() == 300
        for name in ("hr.people", "hr.main.people", "people"):
            sql = f"SELECT {name}.sex, COUNT(*) AS n FROM hr.people GROUP BY {name}.sex"
            assert dpsql.Session(con).query(sql, budget=0).height == 2
        for name in ("other.people", "hr.persons", "hr.other.people"):
            with pytest.raises(dpsql.SchemaError):
                release.query(by_sex(name))


def test_hints_for_views_of_attached_databases_can_be_typed(file, other):
    with connect(other, hr=file) as con:
        con.execute("CREATE VIEW hr.few AS FROM people LIMIT 3").fetchall()
        with pytest.raises(dpsql.SchemaError, match="LIMIT") as caught:
            dpsql.plan(con, by_sex("hr.few"), budget=BUDGET)
        con.execute(str(caught.value.hint).split(": ")[-1]).fetchall()
        assert dpsql.plan(con, by_sex("few_stored"), budget=BUDGET).workload.count


def test_only_a_charge_decides_where_the_account_is(file, other, place):
    """A plan, or a question that is refused, leaves nothing beside the file."""
    with connect(other, hr=file) as con:
        session = dpsql.Session(con, budget=BUDGET)
        session.plan(by_sex("hr.people"), budget=BUDGET)
        with pytest.raises(dpsql.UndeterminedError):
            session.query(by_sex("hr.people"), budget=0)
        assert not place.exists()
        session.query(by_sex("hr.people"), budget=BUDGET)
        assert pointer.followed(place) == session.ledger.path
        assert session.query(by_sex("hr.people"), budget=0).height == 2
