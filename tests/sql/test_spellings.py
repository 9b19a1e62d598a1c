"""Other spellings of a statement: names that mean something else, unknown columns, many of them.

That their answers are DuckDB's is seen in `test_accepted.py`.
"""

import pytest

import dpsql
from dpsql.errors import SqlError, SqlLimitError
from tests.sql import reference


@pytest.fixture(scope="module")
def con():
    return reference.connect()


@pytest.mark.parametrize(
    "sql",
    [
        "WITH people AS (SELECT sex AS a, edu AS b FROM people) SELECT y, COUNT(*) AS n FROM "
        "people AS p (x, y) GROUP BY y",
        "WITH regions AS (SELECT sex, edu FROM people) SELECT * EXCLUDE n FROM (SELECT edu, "
        "COUNT(*) AS n, COUNT(*) + 1 AS m FROM regions NATURAL JOIN (SELECT 'hs' AS edu) h GROUP "
        "BY edu)",
        'SELECT c, COUNT(*) AS n FROM (SELECT * EXCLUDE ("Odd ""Name""") RENAME (EDU AS c) FROM '
        "people) GROUP BY c",
        "SELECT n FROM (SELECT * EXCLUDE (SEX) FROM (SELECT sex, COUNT(*) AS n FROM people GROUP "
        "BY sex))",
        "SELECT x.sex, x.n, y.n AS m FROM (SELECT sex, COUNT(*) AS n FROM people GROUP BY 1) x, "
        "(SELECT v.* EXCLUDE sex FROM (SELECT sex, COUNT(*) AS n FROM people WHERE sex = 'Male' "
        "GROUP BY 1) v LIMIT 1) y",
    ],
)
def test_names_mean_what_they_do_in_duckdb(con, sql):
    assert reference.differences(con, sql) == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("FROM people", "single rows are never returned"),
        ("FROM people SELECT age", "outside of aggregates"),
        ("FROM people SELECT COUNT(*) FROM regions", "not well-formed"),
        ("SELECT COUNT(*) FROM (SELECT * EXCLUDE (nosuch) FROM people)", "no column nosuch"),
        ("SELECT COUNT(*) FROM (SELECT * REPLACE (1 AS nosuch) FROM people)", "no column nosuch"),
        ("SELECT * EXCLUDE (n) FROM nosuch", "which columns"),
        ("SELECT COUNT(*) FROM people NATURAL JOIN bands", "NATURAL"),
        ("SELECT COUNT(*) FROM people WHERE age > ANY (SELECT lo, lo FROM bands)", "all values of"),
        ("SELECT COUNT(*) FROM people WHERE age = ALL (SELECT * FROM bands)", "all values of a"),
        ("SELECT COUNT(*) FROM people WHERE age = ANY ([])", "all values of a list"),
        ("SELECT COUNT(*) FROM people WHERE age = ANY (age)", "all values of a list"),
        ("SELECT UNNEST([1]), UNNEST([2]) FROM (SELECT COUNT(*) FROM people)", "in a SELECT list"),
        ("SELECT UNNEST([age]) FROM people", "UNNEST"),
        ("SELECT COUNT(*) FROM nosuch AS p (a, b)", "no table nosuch"),
    ],
)
def test_others_are_refused(con, sql, said):
    with pytest.raises((SqlError, dpsql.SchemaError), match=said) as caught:
        dpsql.Session(con, public=["regions", "bands"]).plan({"q": sql}, budget=reference.PRECISE)
    assert caught.value.hint


def test_stars_of_stars_are_bounded(con):
    """Each doubles the columns of the one before."""
    queries = ["q0 AS (SELECT * EXCLUDE name FROM people)"]
    queries += [f"q{i + 1} AS (SELECT a.* EXCLUDE sex, b.* FROM q{i} a, q{i} b)" for i in range(20)]
    sql = f"WITH {', '.join(queries)} SELECT COUNT(*) FROM q20"
    with pytest.raises(SqlLimitError, match="too many columns"):
        dpsql.Session(con).plan({"q": sql}, budget=reference.PRECISE)
