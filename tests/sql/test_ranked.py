"""Percentiles by the places of rows are answered as quantiles, and equal DuckDB's answers."""

import random
from contextlib import nullcontext
from itertools import pairwise, product

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError, UnsupportedSqlError
from dpsql.hints import remedies_of
from tests.sql import reference

NO_NOISE = dpsql.Budget(rho=10**12)
NUMBERED = """
    SELECT g, x, y, row_number() OVER (ORDER BY x) AS rn, COUNT(*) OVER () AS n,
        row_number() OVER (ORDER BY x DESC) AS down, COUNT(y) OVER () AS known,
        row_number() OVER (ORDER BY y) AS yn,
        SUM(1) OVER (ORDER BY x ROWS UNBOUNDED PRECEDING) AS up,
        row_number() OVER (PARTITION BY g ORDER BY x) AS gn, COUNT(*) OVER (PARTITION BY g) AS gs,
        ntile(4) OVER (ORDER BY x) AS quarter, percent_rank() OVER (ORDER BY x) AS before,
        cume_dist() OVER (ORDER BY x) AS within, rank() OVER (ORDER BY x) AS r,
        COUNT(*) OVER (ORDER BY x) AS up_to
    FROM t
"""


def connect(seed, rows=None):
    rng = random.Random(seed)  # noqa: S311
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t (
            g VARCHAR NOT NULL CHECK (g IN ('a', 'b')),
            x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 30),
            y INTEGER CHECK (y BETWEEN 0 AND 30)
        )
    """)
    most = rng.choice([3, 30])
    made = [
        (rng.choice("ab"), rng.randint(0, most), None if rng.random() < 0.3 else rng.randint(0, 30))
        for _ in range(rows or rng.randint(20, 60))
    ]
    con.executemany("INSERT INTO t VALUES (?, ?, ?)", made)
    return con


CON = connect(1)


def exactly(con, statements):
    """Release statements with next to no noise, and compare with DuckDB's answers."""
    released = dpsql.Session(con).release(statements, budget=NO_NOISE)
    for name, sql in statements.items():
        theirs = con.execute(sql).fetchall()
        columns = [c[0] for c in con.description]
        ours = released[name].select(columns).rows()
        yield name, ours, theirs


SHARES = ["0.1", "0.25", "0.5", "0.75", "0.9"]
EXACT = {
    "the first not before": "SELECT MIN(CASE WHEN rn < {p} * n THEN 99 ELSE x END) AS q FROM ({t})",
    "the other way": "SELECT MIN(CASE WHEN {p} * n <= rn THEN x END) AS q FROM ({t})",
    "filtered": "SELECT MIN(x) FILTER (WHERE rn >= n * {p}) AS q FROM ({t})",
    "if": "SELECT MIN(IF(rn >= n * {p}, x, NULL)) AS q FROM ({t})",
    "where": "SELECT MIN(x) AS q FROM ({t}) WHERE rn >= {p} * n",
    "divided": "SELECT MIN(x) AS q FROM ({t}) WHERE 1.0 * rn / n >= {p}",
    "of one more": "SELECT MIN(x) AS q FROM ({t}) WHERE 1.0 * rn / (n + 1) >= {p} * n / (n + 1)",
    "percents": "SELECT MIN(x) AS q FROM ({t}) WHERE rn * 100.0 / n >= 100 * {p}",
    "rounded up": "SELECT x AS q FROM ({t}) WHERE rn = CEIL({p} * n)",
    "distinct": "SELECT DISTINCT x AS q FROM ({t}) WHERE rn = CEIL({p} * n)::INT",
    "the first of the rest": "SELECT x AS q FROM ({t}) WHERE rn >= {p} * n ORDER BY rn LIMIT 1",
    "the least of the rest": "SELECT x AS q FROM ({t}) WHERE rn >= {p} * n ORDER BY x LIMIT 1",
    "running sums": "SELECT MIN(CASE WHEN up < {p} * n THEN 99 ELSE x END) AS q FROM ({t})",
    "running counts": "SELECT MIN(CASE WHEN up_to >= {p} * n THEN x END) AS q FROM ({t})",
    "cume_dist": "SELECT MIN(x) AS q FROM ({t}) WHERE within >= {p}",
    "counted again": """
        WITH r AS (SELECT x, row_number() OVER (ORDER BY x) AS rn FROM t WHERE x > 1)
        SELECT MIN(CASE WHEN rn < {p} * (SELECT COUNT(*) FROM r) THEN 99 ELSE x END) AS q FROM r
    """,
    "counted in the table": """
        SELECT MIN(CASE WHEN rn < {p} * n THEN 99 ELSE x END) AS q FROM (
            SELECT s.x, row_number() OVER (ORDER BY s.x) AS rn,
                (SELECT COUNT(*) FROM t WHERE x > 1) AS n
            FROM t AS s WHERE s.x > 1)
    """,
    "the last place": """
        SELECT MIN(x) FILTER (WHERE rn >= {p} * m) AS q FROM (
            SELECT *, MAX(rn) OVER () AS m
            FROM (SELECT x, row_number() OVER (ORDER BY x) AS rn FROM t))
    """,
    "several queries": """
        WITH a(v) AS (SELECT x * 2 FROM t), b AS (SELECT *, COUNT(*) OVER () AS n FROM a),
            c AS (SELECT n, v AS w, row_number() OVER (ORDER BY v) AS rn FROM b)
        SELECT MIN(CASE WHEN rn >= {p} * n THEN w + 1 END) AS q FROM c
    """,
    "a smaller sentinel": "SELECT MIN(CASE WHEN rn < {p} * n THEN 2 ELSE x END) AS q FROM ({t})",
    "without NULL": """
        SELECT MIN(CASE WHEN rn < {p} * n THEN 99 ELSE y END) AS q FROM (
            SELECT y, row_number() OVER (ORDER BY y) AS rn, COUNT(*) OVER () AS n
            FROM t WHERE y IS NOT NULL)
    """,
    "values counted": "SELECT MIN(y) FILTER (WHERE yn >= {p} * known) AS q FROM ({t})",
    "NULL last": "SELECT MIN(CASE WHEN yn < {p} * n THEN 99 ELSE y END) AS q FROM ({t})",
    "groups": "SELECT g, MIN(CASE WHEN gn >= {p} * gs THEN x END) AS q FROM ({t}) GROUP BY g",
    "some groups": """
        SELECT g, MAX(gs) AS size, AVG(x) AS mean,
            MIN(CASE WHEN gn < {p} * gs THEN 99 ELSE x END) AS q
        FROM ({t}) WHERE g = 'a' GROUP BY g HAVING MIN(x) FILTER (WHERE gn >= {p} * gs) >= 0
    """,
    "rows by group": "SELECT g, x AS q FROM ({t}) WHERE gn = CEIL({p} * gs)",
    "beside others": """
        SELECT n, MIN(x) AS low, ROUND(AVG(x), 3) AS mean,
            MIN(CASE WHEN rn < {p} * n THEN 99 ELSE x END) AS q, COUNT(*) AS rows
        FROM ({t}) GROUP BY n
    """,
    "a joined number": """
        SELECT MIN(CASE WHEN rn < {p} * n THEN 99 ELSE x END) AS q
        FROM (SELECT x, row_number() OVER (ORDER BY x) AS rn FROM t) AS a
        CROSS JOIN (SELECT COUNT(*) AS n FROM t) AS b
    """,
    "joined numbers": """
        WITH o AS (SELECT g, x, row_number() OVER w AS rn FROM t WHERE x > 0
                WINDOW w AS (PARTITION BY g ORDER BY g, x)),
            c AS (SELECT g, COUNT(*) AS n FROM t WHERE x > 0 GROUP BY g)
        SELECT c.g, MIN(CASE WHEN rn < {p} * n THEN 99 ELSE x END) AS q
        FROM o JOIN c ON o.g = c.g GROUP BY c.g
    """,
    "numbers of the same query": """
        WITH o AS (SELECT g, x, row_number() OVER (PARTITION BY g ORDER BY x) AS rn FROM t)
        SELECT g, MIN(x) AS q
        FROM o JOIN (SELECT g, COUNT(*) AS n FROM o GROUP BY g) AS c USING (g)
        WHERE rn >= {p} * n GROUP BY g
    """,
    "a number after a comma": """
        WITH o AS (SELECT x AS v, row_number() OVER (ORDER BY x) AS rn FROM t),
            c AS (SELECT COUNT(*) AS n FROM o)
        SELECT v AS q, n FROM c, o WHERE rn = CEIL({p} * c.n)
    """,
    "a window of its own": """
        SELECT MIN(x) FILTER (WHERE rn >= {p} * n) AS q FROM (
            SELECT x, row_number() OVER w AS rn, COUNT(*) OVER () AS n
            FROM t WINDOW w AS (ORDER BY x))
    """,
}
WITHIN_ONE = {
    "up to": "SELECT MAX(CASE WHEN rn <= {p} * n THEN x END) AS q FROM ({t})",
    "after": "SELECT MIN(CASE WHEN rn > {p} * n THEN x END) AS q FROM ({t})",
    "before": "SELECT MAX(x) AS q FROM ({t}) WHERE rn < {p} * n",
    "rounded": "SELECT x AS q FROM ({t}) WHERE rn = ROUND({p} * n)",
    "rounded down": "SELECT x AS q FROM ({t}) WHERE rn = FLOOR({p} * (n - 1)) + 1",
    "cast": "SELECT MAX(x) AS q FROM ({t}) WHERE rn = CAST({p} * n AS INT) + 1",
    "from the end": "SELECT MAX(CASE WHEN down >= (1 - {p}) * n THEN x END) AS q FROM ({t})",
    "percent_rank": "SELECT MAX(x) AS q FROM ({t}) WHERE before <= {p}",
    "rank": "SELECT MAX(x) AS q FROM ({t}) WHERE r <= {p} * n",
    "at least": "SELECT MAX(CASE WHEN rn > {p} * n THEN -1 ELSE x END) AS q FROM ({t})",
}
QUARTERS = {
    f"{of}(x) of {part}": f"SELECT {of}(CASE WHEN quarter = {part} THEN x END) AS q FROM ({{t}})"
    for of, part in product(["MIN", "MAX"], [1, 2, 3, 4])
}
MEDIANS = {
    "both": "SELECT AVG(x) AS q FROM ({t}) WHERE rn IN (FLOOR((n + 1) / 2), CEIL((n + 1) / 2))",
    "between": "SELECT AVG(x) AS q FROM ({t}) WHERE rn BETWEEN n / 2.0 AND n / 2.0 + 1",
    "doubled": "SELECT AVG(1.0 * x) AS q FROM ({t}) WHERE 2 * rn IN (n, n + 1, n + 2)",
    "by group": """
        SELECT g, AVG(x) AS q FROM ({t}) WHERE gn IN ((gs + 1) // 2, (gs + 2) // 2) GROUP BY g
    """,
}


def shared(spellings, seed):
    """Write each spelling with another share."""
    rng = random.Random(seed)  # noqa: S311
    shares = {name: rng.choice(SHARES) for name in spellings}
    return {f"{k} {p}": spellings[k].format(p=p, t=NUMBERED) for k, p in shares.items()}


@pytest.mark.parametrize("seed", range(2))
def test_quantiles_equal_what_is_written(seed):
    con = connect(seed)
    for name, ours, theirs in exactly(con, shared(EXACT | MEDIANS, seed)):
        assert len(ours) == len(theirs), name
        for one, other in zip(sorted(ours), sorted(theirs), strict=True):
            assert one == pytest.approx(other, abs=1e-2), name


@pytest.mark.parametrize("seed", range(2))
def test_quantiles_are_at_most_one_row_away(seed):
    con = connect(seed)
    values = sorted(x for (x,) in con.execute("SELECT x FROM t").fetchall())
    for name, ours, theirs in exactly(con, shared(WITHIN_ONE | QUARTERS, seed)):
        ((one,), *_), ((other,), *_) = ours, theirs
        places = [i for i, value in enumerate(values) if value == other]
        away = 2 if name in QUARTERS else 1
        assert one in values[max(places[0] - away, 0) : places[-1] + away + 1], name


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MIN(x) FILTER (WHERE rn >= 0.5 * (SELECT COUNT(*) FROM t WHERE x > 3)) FROM r",
        "SELECT MIN(x) FILTER (WHERE 2 * rn >= m) FROM r, (SELECT COUNT(*) m FROM t WHERE x > 3) c",
        "SELECT MIN(x) FILTER (WHERE gn >= m) FROM r, (SELECT g, COUNT(*) m FROM t GROUP BY g) c",
        "SELECT MIN(CASE WHEN rn < 5 THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 5000 THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 0.5 * 1370.25 THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(x) AS q FROM r WHERE rn >= 0.5 * n AND rn < 700",
        "SELECT MIN(x) AS q FROM r WHERE rn >= 0.5 * n + 200",
        "SELECT MIN(x) AS q FROM r WHERE rn >= 0.5 * n OR n > 5000",
        "SELECT AVG(rn) AS q FROM r",
        "SELECT SUM(CASE WHEN rn < 0.5 * n THEN x END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 0.5 * n THEN 99 ELSE y END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 0.5 * n THEN 99 ELSE -x END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 0.5 * n THEN y ELSE x END) AS q FROM r",
        "SELECT g, MIN(CASE WHEN rn < 0.5 * n THEN 99 ELSE x END) AS q FROM r GROUP BY g",
        "SELECT MIN(CASE WHEN gn < 0.5 * n THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(CASE WHEN gn < 0.5 * gs THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(CASE WHEN rn < 0.5 * n THEN 99 ELSE x END) AS q FROM r WHERE y > 3",
        "SELECT MIN(CASE WHEN rn < 0.5 * known THEN 99 ELSE x END) AS q FROM r",
        "SELECT MIN(x) AS q, COUNT(*) AS rows FROM r WHERE rn >= 0.5 * n",
        "SELECT x FROM r WHERE rn >= 0.5 * n",
        "SELECT y FROM r WHERE rn = CEIL(0.5 * n)",
        "SELECT x, rn FROM r WHERE rn = CEIL(0.5 * n)",
        "SELECT MAX(x) AS q FROM r WHERE within <= 0.5",
        "SELECT MIN(x) AS q FROM r WHERE before >= 0.5",
        "SELECT MIN(x) AS q FROM r WHERE r >= 0.5 * n",
        "SELECT MIN(x) AS q FROM r WHERE rn >= 0.5 * n AND n > 50",
        "SELECT MIN(x) AS q FROM r WHERE rn * rn >= 0.5 * n",
        "SELECT MIN(x) AS q FROM r WHERE rn >= 0.5 * n OR x > 3",
        "SELECT AVG(x) AS q FROM r WHERE rn <= 0.5 * n",
        "SELECT quarter, MIN(x) AS q FROM r GROUP BY quarter",
        "SELECT MIN(CASE WHEN rn < 0.5 * n THEN 99 ELSE x END) AS q FROM (SELECT * FROM r LIMIT 9)",
    ],
)
def test_other_uses_of_places_stay_refused(sql):
    with pytest.raises(UnsupportedSqlError):
        reference.compile_one(CON, f"WITH r AS ({NUMBERED}) {sql}")


def test_places_in_public_tables_are_as_they_are():
    """Quantiles are the same up to one row; without noise that would be seen."""
    con = connect(1)
    con.execute("CREATE TABLE public AS SELECT range AS v FROM range(5)")
    sql = """
        SELECT MIN(x) FILTER (WHERE rn >= 0.5 * n) AS q, (
            SELECT MAX(v) FILTER (WHERE place <= 0.5 * many) FROM (
                SELECT v, row_number() OVER (ORDER BY v) AS place, COUNT(*) OVER () AS many
                FROM public)) AS fixed
        FROM (SELECT x, row_number() OVER (ORDER BY x) AS rn, COUNT(*) OVER () AS n FROM t)
    """
    released = dpsql.Session(con, public=["public"]).release(sql, budget=NO_NOISE)
    assert released["query"]["fixed"].to_list() == [1]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("SELECT v + v AS v FROM {0}", True),
        ("SELECT v, (SELECT COUNT(*) FROM {0}) FROM {0}", False),
    ],
)
def test_columns_of_inner_queries_are_read_a_bounded_number_of_times(more, refused):
    """Twice at each of 24 levels would be 2^24 times."""
    names = [f"q{i}" for i in range(25)]
    ctes = ["q0 AS (SELECT x AS v FROM t)"]
    ctes += [f"{to} AS ({more.format(of)})" for of, to in pairwise(names)]
    numbered = "SELECT v, row_number() OVER (ORDER BY v) AS rn, COUNT(*) OVER () AS n FROM q24"
    sql = f"SELECT MIN(v) FILTER (WHERE rn >= 0.5 * n) AS q FROM ({numbered})"
    with pytest.raises(SqlError) if refused else nullcontext():
        reference.compile_one(CON, f"WITH {', '.join(ctes)} {sql}")


def test_rows_without_a_value_have_places():
    """They are the last rows, which can't be said of a quantile: so there must be none."""
    sql = f"SELECT MIN(y) FILTER (WHERE yn >= 0.9 * n) AS q FROM ({NUMBERED})"
    with pytest.raises(UnsupportedSqlError, match="without a value"):
        reference.compile_one(CON, sql)


VISITS = """
    CREATE TABLE v (person INTEGER NOT NULL, day INTEGER NOT NULL CHECK (day BETWEEN 0 AND 9))
"""
PERSONS = "SELECT COUNT(DISTINCT person) FROM v WHERE day > 2"


@pytest.mark.parametrize("share", ["0.25", "0.5"])
@pytest.mark.parametrize(
    ("number", "among", "right"),
    [
        (PERSONS, "day > 2", True),
        (PERSONS, "day > 3", False),
        (PERSONS.replace("person", "day"), "day > 2", False),
        (f"{PERSONS} GROUP BY day", "day > 2", False),
    ],
)
def test_persons_that_are_counted_are_the_groups_of_their_rows(number, among, right, share):
    con = duckdb.connect()
    con.execute(VISITS)
    rng = random.Random(7)  # noqa: S311
    rows = [(p, rng.randint(0, 9)) for p in range(60) for _ in range(rng.randint(0, 6))]
    con.executemany("INSERT INTO v VALUES (?, ?)", rows)
    sql = f"""
        SELECT MIN(CASE WHEN rn < {share} * n THEN 999 ELSE k END) AS q FROM (
            SELECT COUNT(*) AS k, row_number() OVER (ORDER BY COUNT(*)) AS rn, ({number}) AS n
            FROM v AS w WHERE w.{among} GROUP BY w.person)
    """
    session = dpsql.Session(con, unit=dpsql.Unit("person", max_rows=6))
    with nullcontext() if right else pytest.raises(SqlError):
        found = session.release(sql, budget=NO_NOISE)["query"]["q"].to_list()
        assert found == [row[0] for row in con.execute(sql).fetchall()]


@pytest.mark.parametrize("window", ["row_number()", "percent_rank()", "cume_dist()", "ntile(4)"])
def test_a_refused_place_proposes_a_quantile(window):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INTEGER, x INTEGER NOT NULL CHECK (x BETWEEN 0 AND 30))")
    session = dpsql.Session(con, unit=dpsql.Unit("id", max_rows=2))
    sql = f"SELECT AVG(r) AS q FROM (SELECT {window} OVER (ORDER BY x) AS r FROM t)"
    with pytest.raises(UnsupportedSqlError) as caught:
        session.release(sql, budget=NO_NOISE)
    (typed,) = [remedy.text for remedy in remedies_of(caught.value.hint)][:1]
    assert typed == "SELECT QUANTILE_DISC(x, 0.25) AS quartile …"
    session.plan(typed.replace("…", "FROM t"), budget=NO_NOISE)
