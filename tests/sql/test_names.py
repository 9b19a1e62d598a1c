"""Names fold as DuckDB folds them: A to Z, and no other letter, wherever a name can stand."""

import duckdb
import pytest

import dpsql
from dpsql.engines.lakes import folded_by_spark
from dpsql.schema.names import capitals, folded
from tests.sql import reference

LETTERS = [("É", "é"), ("Σ", "σ"), ("Ж", "ж"), ("\u212a", "k"), ("İ", "i̇"), ("ẞ", "ß")]
"""Names that Python's small letters make one, and DuckDB doesn't."""

STATEMENTS = {
    "columns of a subquery": """
        SELECT SUM("{A}") AS x, SUM("{b}") AS y FROM (SELECT a AS "{A}", b AS "{b}" FROM t)""",
    "columns of a CTE": """
        WITH c AS (SELECT a AS "{A}", b AS "{b}" FROM t)
        SELECT "{b}", COUNT(*) AS n FROM c WHERE "{A}" = 1 GROUP BY "{b}" """,
    "names of CTEs": """
        WITH "{A}" AS (SELECT a AS x FROM t), "{b}" AS (SELECT b AS x FROM t)
        SELECT SUM(x) AS s FROM "{A}" """,
    "stored columns": 'SELECT "{b}", COUNT(*) AS n, SUM("{A}") AS s FROM stored GROUP BY "{b}"',
    "a stored table": 'SELECT COUNT(*) AS n FROM memory.main."{A}"',
    "a public table": 'SELECT "{b}", COUNT(*) AS n FROM t JOIN pub ON a = "{A}" GROUP BY 1',
    "aliases of tables": """
        SELECT "{A}".label, "{b}".label AS other, COUNT(*) AS n FROM t
        JOIN labels "{A}" ON t.a = "{A}".k JOIN labels "{b}" ON t.b = "{b}".k GROUP BY 1, 2""",
    "aliases of output": """
        SELECT a AS "{A}", b AS "{b}", COUNT(*) AS n FROM t GROUP BY "{A}", "{b}" """,
    "what is computed on answers": """
        SELECT "{A}" + 1 AS x, "{b}" FROM (SELECT COUNT(*) AS "{A}", SUM(b) AS "{b}" FROM t) """,
    "windows on answers": """
        SELECT a, SUM("{A}") OVER "{b}" AS x FROM (SELECT a, COUNT(*) AS "{A}" FROM t GROUP BY a)
        WINDOW "{A}" AS (ORDER BY a), "{b}" AS (ORDER BY a DESC)""",
    "USING": """
        SELECT "{A}", COUNT(*) AS n FROM (SELECT a AS "{A}", b AS "{b}" FROM t)
        JOIN pub USING ("{A}") GROUP BY "{A}" """,
    "PIVOT": """
        PIVOT (SELECT a AS "{A}", b AS "{b}" FROM t) ON "{A}" IN (0, 1)
        USING COUNT(*) AS n GROUP BY "{b}" """,
    "UNION": """
        SELECT "{A}", COUNT(*) AS n FROM
        (SELECT a AS "{A}", b AS "{b}" FROM t UNION ALL SELECT b - 5, a FROM t) GROUP BY 1""",
}


@pytest.fixture(scope="module", params=LETTERS, ids=lambda pair: "".join(pair))
def letters(request):
    return request.param


@pytest.fixture(scope="module")
def con(letters):
    capital, small = letters
    with duckdb.connect() as con:
        for name in ("stored", "t"):
            columns = (capital, small) if name == "stored" else ("a", "b")
            first, second = (f'"{column}"' for column in columns)
            con.execute(
                f"CREATE TABLE {name}({first} INTEGER NOT NULL CHECK ({first} BETWEEN 0 AND 1), "
                f"{second} INTEGER NOT NULL CHECK ({second} BETWEEN 5 AND 6)); "
                f"INSERT INTO {name} VALUES (0, 6), (1, 6), (1, 5), (1, 6)"
            )
        con.execute(f'CREATE TABLE pub("{capital}" INTEGER, "{small}" INTEGER)')
        con.execute("INSERT INTO pub VALUES (0, 5), (1, 6)")
        con.execute("CREATE TABLE labels(k INTEGER, label VARCHAR)")
        con.execute("INSERT INTO labels SELECT i, 'l' || i FROM range(7) r(i)")
        con.execute(f'CREATE TABLE "{small}"(a INTEGER CHECK (a BETWEEN 0 AND 1))')
        con.execute(f'CREATE TABLE "{capital}" AS SELECT a FROM t')
        yield con


@pytest.fixture(scope="module")
def session(con):
    return dpsql.Session(con, public=["pub", "labels"])


@pytest.mark.sampled(31)
@pytest.mark.parametrize("place", STATEMENTS)
def test_two_names_of_duckdb_are_two(con, session, letters, place):
    sql = STATEMENTS[place].format(A=letters[0], b=letters[1])
    assert reference.differences(con, sql, session) == []


def test_names_of_other_case_are_one():
    assert folded("ÉA") == folded("Éa") == "Éa"
    assert capitals("éa") == "éA"


def test_spark_ignores_the_case_of_all_letters():
    assert all(folded_by_spark(a) == folded_by_spark(b) for a, b in LETTERS)
    assert all(folded(a) != folded(b) for a, b in LETTERS)


BEGUN = [
    "CAST(a AS VARCHAR) || '-'", "-a + 1", "CASE WHEN a = 1 THEN 2 ELSE 3 END + 1",
    "NOT a > 0 AND a < 2", "CAST(CAST(a AS VARCHAR) AS INTEGER) + 1",
    "CAST(a AS INTEGER) BETWEEN 1 AND 2", "TRY_CAST(a AS INTEGER) IN (1, 2)",
    "CAST(a AS INTEGER) IS NULL", "1 + CASE WHEN a = 1 THEN 2 END", "(a + 1) * 2",
    "a::VARCHAR || '-'",
]  # fmt: skip


def test_a_column_is_called_by_all_that_was_written():
    """The words in front of the first operand, and behind the last one, too."""
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 3))").fetchall()
    sql = f"SELECT {', '.join(BEGUN)}, COUNT(*) AS n FROM t GROUP BY ALL"
    frame = dpsql.Session(con).query(sql, budget=dpsql.Budget(rho=1))
    assert frame.columns[: len(BEGUN)] == BEGUN
