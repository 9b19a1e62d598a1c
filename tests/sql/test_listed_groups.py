"""Statements that list groups and count nothing: they are public, and cost nothing."""

import pytest

import dpsql
from dpsql.errors import SqlError
from tests.sql import reference

BUDGET = dpsql.Budget(rho=1)
LISTED = [
    "SELECT sex FROM people GROUP BY sex",
    "SELECT DISTINCT edu, sex FROM people ORDER BY edu LIMIT 3",
    "SELECT sex, edu FROM people GROUP BY ROLLUP (sex, edu)",
    "SELECT upper(s) AS u FROM (SELECT DISTINCT sex::VARCHAR AS s FROM people)",
]


@pytest.fixture
def session():
    return dpsql.Session(reference.connect(), public=reference.PUBLIC)


@pytest.mark.parametrize("sql", LISTED)
@pytest.mark.parametrize("mechanism", ["querysmasher", "hdmm", "aim"])
def test_nothing_is_charged(session, sql, mechanism):
    release = session.release(sql, budget=BUDGET, mechanism=mechanism)
    assert release.receipt is None
    assert session.ledger.spent == 0
    assert release["query"].height > 1
    assert {role for _, role, *_ in release.columns("query").rows()} == {"key"}
    notes = {note for *_, note in release.columns("query").rows()}
    assert all("whether they have rows or not" in note for note in notes)


@pytest.mark.parametrize("sql", LISTED)
def test_no_budget_is_needed(session, sql, tmp_path):
    release = session.release(sql, budget=0, out=str(tmp_path / "out"))
    loaded = dpsql.Release.load(tmp_path / "out")
    assert loaded["query"].equals(release["query"])
    assert session.plan(sql, budget=BUDGET).expected_error()["rows"].to_list() == [0]


def test_empty_groups_are_listed(session):
    con = reference.connect()
    con.execute("DELETE FROM people").fetchall()
    found = dpsql.Session(con).release("SELECT DISTINCT sex FROM people", budget=BUDGET)
    assert found["query"]["sex"].to_list() == ["Male", "Female"]


UNUSED = "WITH t AS (SELECT COUNT(*) AS n FROM people), r AS (SELECT * FROM regions) "
PUBLIC = [
    UNUSED + "SELECT level FROM r",
    UNUSED + "SELECT level, COUNT(*) AS n, AVG(cost) AS c FROM r GROUP BY level ORDER BY level",
    "WITH t AS (SELECT COUNT(*) AS n FROM people), u AS (SELECT n + 1 AS m FROM t) SELECT 1 AS one",
]


@pytest.mark.parametrize("sql", PUBLIC)
def test_answers_of_public_tables_alone_are_duckdbs(session, sql, tmp_path):
    """Noisy answers that nothing is made of aren't measured."""
    release = session.release(sql, budget=0, out=str(tmp_path / "out"))
    assert release.receipt is None
    theirs = reference.connect().execute(sql)
    assert release["query"].columns == [name for name, *_ in theirs.description]
    assert release["query"].rows() == theirs.fetchall()
    described = release.columns("query").rows()
    assert {tuple(rest) for _, *rest in described} == {
        ("key", None, "computed from public tables alone: exact, and free")
    }
    assert dpsql.Release.load(tmp_path / "out")["query"].equals(release["query"])


def test_public_tables_beside_counts(session):
    public = "SELECT level, SUM(cost) AS c FROM regions GROUP BY level ORDER BY level"
    script = {"a": public, "b": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"}
    both = session.release(script, budget=BUDGET)
    assert both["a"].rows() == [("high", 6.0), ("low", 1.5)]
    assert both["b"]["n_variance"].to_list() == pytest.approx([0.5, 0.5], rel=0.2)
    assert session.plan(script, budget=BUDGET).expected_error()["statement"].to_list() == ["b"]


def test_public_tables_with_no_private_one_are_duckdbs(session):
    with pytest.raises(SqlError, match="no private table is named") as error:
        session.release("SELECT level FROM regions", budget=0)
    assert "or ask DuckDB itself" in error.value.hint


def test_beside_counts(session):
    listed, counted = (
        "SELECT DISTINCT edu FROM people",
        "SELECT sex, COUNT(*) FROM people GROUP BY sex",
    )
    both = session.release({"a": listed, "b": counted}, budget=BUDGET)
    assert both.receipt is not None
    assert both["a"].height == 6
    assert both["b"]["count_variance"].to_list() == pytest.approx([0.5, 0.5], rel=0.2)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sex FROM people GROUP BY sex HAVING COUNT(*) > 100",
        "SELECT sex FROM people GROUP BY sex ORDER BY COUNT(*)",
        "SELECT edu FROM regions WHERE edu IN "
        "(SELECT edu FROM people GROUP BY edu HAVING COUNT(*) > 100)",
        "SELECT edu FROM regions UNION ALL SELECT edu FROM people GROUP BY 1 HAVING COUNT(*) > 9",
        "SELECT edu FROM regions INTERSECT SELECT edu FROM people GROUP BY 1 HAVING COUNT(*) > 9",
    ],
)
def test_groups_chosen_by_noise_are_charged(session, sql):
    assert session.release(sql, budget=BUDGET).receipt is not None


def test_groups_above_a_floor_are_charged(session):
    release = session.release(LISTED[0], budget=BUDGET, groups_above=2)
    assert release.receipt is not None
    *_, note = release.columns("query").row(0)
    assert "chosen by noisy values" in note


def test_what_is_counted_among_public_groups_is_refused(session):
    with pytest.raises(SqlError, match="Nothing that the statement returns depends on the rows"):
        session.plan("SELECT COUNT(*) FROM (SELECT DISTINCT sex FROM people)", budget=BUDGET)


def test_a_target_has_no_meaning(session):
    with pytest.raises(dpsql.DpsqlError, match="no error"):
        session.plan(LISTED[0], targets={"query": 3})
