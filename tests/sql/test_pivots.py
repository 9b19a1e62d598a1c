"""PIVOT and UNPIVOT are the SELECTs that they stand for: names, variances, sizes."""

import polars as pl
import pytest

import dpsql
from dpsql.errors import SqlLimitError
from dpsql.sql import split_script
from tests.sql import reference

NAMED = dict(split_script((reference.FIXTURES / "accepted" / "pivots.sql").read_text()))
COUNTED = "SELECT sex, edu, COUNT(*) AS n FROM people GROUP BY sex, edu"


@pytest.fixture(scope="module")
def con():
    return reference.connect()


@pytest.mark.parametrize("name", NAMED)
def test_columns_have_duckdbs_names(con, name):
    (statement,) = reference.compile_one(con, NAMED[name]).statements
    theirs = [name for name, *_ in con.execute(NAMED[name]).description]
    assert [output.name for output in statement.outputs] == theirs


def test_a_pivot_is_as_accurate_as_what_it_stands_for(con):
    session = dpsql.Session(con, public=reference.PUBLIC)
    written = """
        SELECT edu, SUM(n) FILTER (WHERE sex = 'Female') AS "Female",
            SUM(n) FILTER (WHERE sex = 'Male') AS "Male"
        FROM ({}) GROUP BY edu
    """
    frames = session.release(
        {
            "pivot": f"PIVOT ({COUNTED}) ON sex USING SUM(n) GROUP BY edu",
            "written": written.format(COUNTED),
            "unpivot": f"""
                WITH wide AS (PIVOT ({COUNTED}) ON sex USING SUM(n))
                UNPIVOT wide ON "Female", "Male" INTO NAME sex VALUE n
            """,
            "plain": COUNTED,
        },
        budget=dpsql.Budget(rho=1),
    )
    assert frames["pivot"].sort("edu").equals(frames["written"].sort("edu"))
    assert set(frames.columns("pivot")["variance"]) == {None, "exact"}
    keys = ["edu", pl.col("sex").cast(pl.String)]
    back, plain = (frames[name].sort(keys) for name in ("unpivot", "plain"))
    assert back["n"].to_list() == pytest.approx(plain["n"].to_list())
    assert back["n_variance"].to_list() == pytest.approx(plain["n_variance"].to_list())
    assert frames.columns("unpivot")["reason"].to_list() == [None, None, None]


def test_values_are_those_of_the_domain(con):
    """Groups are public, and so are the columns that are made of them."""
    sql = "PIVOT (SELECT sex, COUNT(*) AS n FROM people WHERE sex = 'Male' GROUP BY sex) ON sex"
    (statement,) = reference.compile_one(con, sql + " USING SUM(n)").statements
    assert [output.name for output in statement.outputs] == ["Female", "Male"]


@pytest.mark.parametrize("deep", [1, 2, 3, 5])
def test_what_is_written_out_is_bounded(con, deep):
    """A pivot of pivots grows with each level, and each multiplies its lists."""
    values = ", ".join(f"'{i}'" for i in range(150))
    listed = ", ".join(f"edu IN ({values})" for _ in range(deep + 1))
    with pytest.raises(SqlLimitError, match="too many columns"):
        reference.compile_one(con, f"PIVOT ({COUNTED}) ON {listed} USING SUM(n)")
