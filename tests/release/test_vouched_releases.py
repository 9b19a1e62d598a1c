"""A ledger vouches for releases of rows that are made of stored ones, and for nothing else."""

from __future__ import annotations

import duckdb
import pytest
from polars.testing import assert_frame_equal

import dpsql
from tests.helpers.inserted import insert
from tests.release.saved import reseal

BUDGET = dpsql.Budget(rho=1)
ROWS = {"people": 1, "visits": 4, "calls": 4, "bad": 4, "visits, calls": 6, "bad, calls": 6}
VISITS = "SELECT code, COUNT(*) AS n FROM visits GROUP BY code"
CALLS = "SELECT kind, COUNT(*) AS n FROM calls GROUP BY kind"
VIEW = "SELECT code, COUNT(*) AS n FROM bad GROUP BY code"
CHOSEN = """SELECT code, COUNT(*) AS n FROM (SELECT * FROM {} QUALIFY
    row_number() OVER (PARTITION BY person ORDER BY n) <= 2) GROUP BY code"""
SCRIPTS = {
    "view": VIEW,
    "average": "SELECT code, AVG(n) AS n FROM bad GROUP BY code",
    "units": "SELECT code, COUNT(DISTINCT person) AS n FROM bad GROUP BY code",
    "several": {"visits": VIEW, "calls": CALLS},
    "chosen": CHOSEN.format("visits"),
    "chosen of a view": CHOSEN.format("bad"),
    "pairs": "SELECT code, kind, COUNT(*) AS n FROM visits JOIN calls USING (person) GROUP BY ALL",
    "pairs of a view": "SELECT code, kind, COUNT(*) AS n FROM bad JOIN calls USING (person)"
    " GROUP BY ALL",
    "exists": "SELECT code, COUNT(*) AS n FROM visits AS v WHERE EXISTS"
    " (SELECT 1 FROM bad WHERE bad.person = v.person) GROUP BY code",
    "parent": "SELECT sex, COUNT(*) AS n FROM bad JOIN people ON id = person GROUP BY sex",
    "union": "SELECT code, COUNT(*) AS n FROM (SELECT code FROM bad UNION ALL SELECT kind FROM"
    " calls) GROUP BY code",
}


@pytest.fixture
def session(tmp_path):
    con = duckdb.connect(tmp_path / "data.duckdb")
    con.execute("""
        CREATE TABLE people (
            id INTEGER PRIMARY KEY, sex VARCHAR NOT NULL CHECK (sex IN ('F', 'M')));
        CREATE TABLE visits (
            person INTEGER REFERENCES people (id), n INTEGER CHECK (n BETWEEN 0 AND 9),
            code VARCHAR NOT NULL CHECK (code IN ('a', 'b')));
        CREATE TABLE calls (
            person INTEGER REFERENCES people (id),
            kind VARCHAR NOT NULL CHECK (kind IN ('a', 'b')));
        CREATE VIEW bad AS SELECT * FROM visits WHERE n > 1;
    """).fetchall()
    insert(con, "people", [(i, "FM"[i % 2]) for i in range(9)])
    insert(con, "visits", [(i % 9, i % 10, "ab"[i % 2]) for i in range(30)])
    insert(con, "calls", [(i % 9, "ab"[i % 2]) for i in range(30)])
    with con:
        yield dpsql.Session(
            con, unit="people", max_rows=ROWS, references={"bad.person": "people.id"}
        )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_ledger_vouches_for_a_release_of_rows_that_are_made(session, tmp_path, name):
    release = session.release(SCRIPTS[name], budget=BUDGET, out=tmp_path / "out")
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    assert list(loaded) == list(release)
    for statement, frame in release.items():
        assert_frame_equal(loaded[statement], frame)


@pytest.mark.parametrize("mechanism", ["gaussian", "aim"])
def test_whatever_the_mechanism(session, tmp_path, mechanism):
    script = {"visits": VIEW, "calls": CALLS}
    session.release(script, budget=BUDGET, mechanism=mechanism, out=tmp_path / "out")
    assert list(dpsql.Release.load(tmp_path / "out", ledger=session.ledger)) == [*script]


def test_a_ledger_vouches_for_how_many_units_are_cut(session, tmp_path):
    session.release(VIEW, budget=BUDGET, report_cut=True, out=tmp_path / "out")
    assert "units_cut" in dpsql.Release.load(tmp_path / "out", ledger=session.ledger)


def _swap(said):
    (code,) = (column for column in said["table"]["columns"] if column["name"] == "code")
    code["values"]["items"].reverse()


FORGED = {
    "other labels": _swap,
    "other rows below": lambda said: said["table"]["below"]["base"]["path"].append(
        said["table"]["below"]["base"]["path"].pop() + "2"
    ),
    "another column below": lambda said: (
        said["table"]["below"]["base"].update(undeclared=[]),
        said["table"]["below"]["base"].pop("order"),
    ),
    "nothing below": lambda said: said["table"].pop("below"),
    "more rows": lambda said: (
        said.update(contributions=5),
        said["table"]["unit"].update(max_rows=5),
    ),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_what_a_view_was_is_not_to_be_changed(session, tmp_path, forge):
    session.release(VIEW, budget=BUDGET, out=tmp_path / "out")
    reseal(tmp_path / "out", forge)
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
