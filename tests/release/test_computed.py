"""Statements that compute on their answers: rehearsed, followed, and safe to read."""

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest

import dpsql
from tests.sql.people import PUBLIC, connect

BUDGET = dpsql.Budget(rho=1)
BY_SEX = "WITH q AS (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) "


@pytest.fixture(scope="module")
def con():
    return connect()


def session(con, total=None):
    return dpsql.Session(con, public=PUBLIC, budget=total)


@pytest.mark.parametrize(
    "sql",
    [
        BY_SEX + "SELECT sex, (SELECT n FROM q) AS x FROM q",
        "SELECT COUNT(*) > 'a' AS k FROM people",
        "SELECT ntile(-1) OVER (ORDER BY COUNT(*)) AS k FROM people GROUP BY sex",
    ],
)
def test_what_would_fail_is_not_charged(con, sql):
    own = session(con, dpsql.Budget(rho=10))
    with pytest.raises(dpsql.SqlError):
        own.query(sql, budget=BUDGET)
    assert own.remaining == 10


def test_failing_casts_and_divisions_are_null(con):
    sql = (
        "SELECT sex, (COUNT(*) * 1e300)::INT AS a, COUNT(*)::INT // 0 AS b FROM people GROUP BY sex"
    )
    frame = session(con).query(sql, budget=BUDGET)
    assert frame["a"].null_count() == frame["b"].null_count() == 2
    assert frame["a_variance"].null_count() == 2


def test_columns_say_what_their_variance_is(con):
    sql = (
        "SELECT sex, COUNT(*) AS n, AVG(age) AS mean, MEDIAN(age) AS median, COUNT(*) > 5 AS many "
        "FROM people GROUP BY sex ORDER BY n"
    )
    release = session(con).release(sql, budget=BUDGET)
    described = {name: (role, kind) for name, role, kind, _ in release.columns("query").rows()}
    assert described == {
        "sex": ("key", None),
        "n": ("value", "exact"),
        "mean": ("value", "approximate"),
        "median": ("value", "interval"),
        "many": ("value", "none"),
    }
    frame = release["query"]
    assert frame["median_variance"].null_count() == frame["many_variance"].null_count() == 2
    assert (frame["median_lower"] <= frame["median"]).all()
    assert (frame["median"] <= frame["median_upper"]).all()
    assert "truth value" in release.columns("query")["reason"][-1]


def test_noise_that_chooses_rows_is_not_called_exact(con):
    for sql in (
        BY_SEX + "SELECT SUM(n) AS s FROM q WHERE n > 500",
        BY_SEX + "SELECT round(n, -2) AS r, SUM(n) AS s FROM q GROUP BY r",
        BY_SEX + "SELECT SUM(n) AS s FROM (SELECT * FROM q ORDER BY n LIMIT 1)",
        BY_SEX + "SELECT sex, (SELECT q.n + SUM(o.n) FROM q AS o) AS s FROM q",
    ):
        described = session(con).release(sql, budget=BUDGET).columns("query")
        assert described.filter(pl.col("column") == "s")["variance"].to_list() == ["none"]


def test_aliases_carry_their_noise(con):
    sql = BY_SEX + "SELECT sex, n AS a, a * 2 AS m FROM q"
    frame = session(con).query(sql, budget=BUDGET)
    for m, a in zip(frame["m_variance"], frame["a_variance"], strict=True):
        assert m == pytest.approx(4 * a)


def test_names_of_the_analysts_do_not_clash_with_ours(con):
    sql = (
        "WITH q AS (SELECT sex, COUNT(*) AS c, 1::BIGINT AS i FROM people GROUP BY sex) "
        "SELECT sex, 2 * x.c AS m FROM q AS x"
    )
    assert session(con).query(sql, budget=BUDGET)["m_variance"].max() < 10


def test_threads_take_turns(con):
    sql = "SELECT age, hours, COUNT(*) + 0 AS n FROM people GROUP BY age, hours"
    release = session(con).release({"a": sql, "b": sql}, budget=BUDGET)
    with ThreadPoolExecutor(6) as pool:
        heights = list(pool.map(lambda name: release[name].height, "abababab"))
    assert set(heights) == {25 * 13}


def test_batches_of_a_computed_statement_are_slices(con):
    sql = "SELECT age, COUNT(*) AS n FROM people GROUP BY age ORDER BY n"
    release = session(con).release(sql, budget=BUDGET)
    assert pl.concat(release.batches("query", 7)).equals(release["query"])


def test_a_release_says_who_is_protected(con):
    release = session(con).release("SELECT COUNT(*) FROM people", budget=BUDGET)
    assert release.neighbours == "add or remove one row of people"
    assert release.neighbours in repr(release)


def test_public_tables_that_can_not_be_read(con):
    sql = "SELECT COUNT(*) FROM people JOIN nothing ON TRUE"
    with pytest.raises(dpsql.SchemaError, match="can't be read"):
        dpsql.Session(con, public=["nothing"]).query(sql, budget=BUDGET)
    for wrong in (3, {"x": 3}, [3]):
        with pytest.raises(dpsql.SchemaError, match="names"):
            dpsql.Session(con, public=wrong)


def test_public_frames_are_joined(con):
    bands = pl.DataFrame({"name": ["young", "old"], "lo": [17, 30], "hi": [29, 40]})
    own = dpsql.Session(con, public={"groups": bands})
    sql = (
        "SELECT g.name, COUNT(*) AS n FROM people JOIN groups AS g ON age BETWEEN g.lo AND g.hi "
        "GROUP BY g.name"
    )
    frame = own.query(sql, budget=dpsql.Budget(rho=10**10))
    exact = con.execute("SELECT COUNT(*) FROM people WHERE age BETWEEN 17 AND 29").fetchall()
    assert frame["name"].to_list() == ["young", "old"]
    assert frame["n"][0] == pytest.approx(exact[0][0], abs=0.01)
