"""Families stay products, and structured queries stay structured: only what couples is joint.

Cells that no query tells apart are one: groups of a computed key are cells of their own.
"""

import pytest

from tests.sql import reference

CELLS, RUNS, DENSE = "Exchangeable", "Intervals", "Dense"


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def families(con, sql):
    script = reference.compile_one(con, sql)
    return [
        [(*b.attributes, type(b.queries).__name__, b.queries.rows) for b in family.blocks]
        for family in script.workload.families
    ]


@pytest.mark.parametrize(
    ("sql", "blocks"),
    [
        ("SELECT COUNT(*) FROM people", []),
        (
            "SELECT sex, edu, rich, COUNT(*) FROM people GROUP BY sex, edu, rich",
            [("sex", CELLS, 2), ("edu", CELLS, 6), ("rich", CELLS, 3)],
        ),
        (
            "SELECT sex, COUNT(*) FROM people WHERE age > 20 AND hours < 5 GROUP BY sex",
            [("sex", CELLS, 2), ("age", RUNS, 1), ("hours", RUNS, 1)],
        ),
        (
            "SELECT sex, COUNT(*) FROM people WHERE age > 20 AND age + hours < 35 GROUP BY sex",
            [("sex", CELLS, 2), ("age", "hours", DENSE, 1)],
        ),
        (
            "SELECT COUNT(*) FROM people WHERE (age > 20 OR hours < 5) AND sex = 'Male'",
            [("age", "hours", RUNS, 1), ("sex", RUNS, 1)],
        ),
        (
            "SELECT sex, age, COUNT(*) FROM people WHERE age BETWEEN 20 AND 29 GROUP BY sex, age",
            [("sex", CELLS, 2), ("age", RUNS, 10)],
        ),
        (
            "SELECT age < hours AS c, sex, COUNT(*) FROM people GROUP BY c, sex",
            [("age", "hours", CELLS, 2), ("sex", CELLS, 2)],
        ),
        (
            "SELECT age // 10 AS d, sex, COUNT(*) FROM people GROUP BY d, sex",
            [("age", CELLS, 5), ("sex", CELLS, 2)],
        ),
        ("SELECT month(joined) AS m, COUNT(*) FROM people GROUP BY m", [("joined", CELLS, 4)]),
        (
            "SELECT years % 3 = 1 AS odd, COUNT(*) FROM people GROUP BY odd",
            [("years", CELLS, 3)],
        ),
        (
            "SELECT COUNT(*) FROM people WHERE age + 2 * hours - 3 * years <= 30",
            [("age", "hours", "years", DENSE, 1)],
        ),
        # The paper's families.
        (
            "SELECT lo, hi, COUNT(*) FROM people JOIN bands ON age BETWEEN lo AND hi "
            "GROUP BY lo, hi",
            [("age", RUNS, 58)],
        ),
        (
            "SELECT sex, lo, hi, COUNT(*) FROM people JOIN bands ON age BETWEEN lo AND hi "
            "WHERE rich GROUP BY sex, lo, hi",
            [("sex", CELLS, 2), ("age", RUNS, 58), ("rich", RUNS, 1)],
        ),
        (
            "SELECT a.i AS x, b.i AS y, c.i AS z, COUNT(*) FROM people "
            "JOIN generate_series(20, 40, 5) a(i) ON age < a.i "
            "JOIN generate_series(2, 12, 2) b(i) ON hours < b.i "
            "JOIN (VALUES (1.0), (2.5), (4.5)) c(i) ON wage <= c.i GROUP BY x, y, z",
            [("age", RUNS, 5), ("hours", RUNS, 6), ("wage", RUNS, 3)],
        ),
        (
            "SELECT s.i, COUNT(*) FROM people JOIN range(13) s(i) ON (hours - s.i + 13) % 13 < 4 "
            "GROUP BY s.i",
            [("hours", RUNS, 13)],
        ),
        (
            "SELECT p.x, COUNT(*) FROM people JOIN (VALUES (20), (30)) p(x) "
            "ON abs(age - p.x) <= 3 GROUP BY p.x",
            [("age", RUNS, 2)],
        ),
        (
            "SELECT t.c, sex, COUNT(*) FROM people JOIN range(0, 24, 6) t(c) "
            "ON abs(age - 20 - hours) <= t.c GROUP BY t.c, sex",
            [("age", "hours", DENSE, 4), ("sex", CELLS, 2)],
        ),
        # Windows.
        (
            "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) FROM people GROUP BY age",
            [("age", RUNS, 25)],
        ),
        (
            "SELECT sex, age, SUM(COUNT(*)) OVER (PARTITION BY sex ORDER BY age DESC) "
            "FROM people GROUP BY sex, age",
            [("sex", CELLS, 2), ("age", RUNS, 25)],
        ),
        (
            "SELECT hours, SUM(COUNT(*)) OVER (ORDER BY hours ROWS BETWEEN 2 PRECEDING AND "
            "2 FOLLOWING) FROM people GROUP BY hours",
            [("hours", RUNS, 13)],
        ),
        (
            "SELECT age, AVG(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN 1 PRECEDING AND "
            "1 FOLLOWING) FROM people GROUP BY age",
            [("age", DENSE, 25)],
        ),
        # FILTER and CASE.
        (
            "SELECT sex, COUNT(*) FILTER (WHERE age > 20 AND hours < 5) FROM people GROUP BY sex",
            [("sex", CELLS, 2), ("age", RUNS, 1), ("hours", RUNS, 1)],
        ),
        (
            "SELECT sex, COUNT(*) FILTER (WHERE sex = 'Male' AND hours < 5) FROM people "
            "GROUP BY sex",
            [("sex", DENSE, 2), ("hours", RUNS, 1)],
        ),
        (
            "SELECT sex, SUM(CASE WHEN age > 30 AND rich THEN hours ELSE 0 END) FROM people "
            "GROUP BY sex",
            [("sex", CELLS, 2), ("age", RUNS, 1), ("rich", RUNS, 1), ("hours", DENSE, 1)],
        ),
        (
            "SELECT sex, SUM(hours * wage) FROM people GROUP BY sex",
            [("sex", CELLS, 2), ("hours", "wage", DENSE, 1)],
        ),
        (
            "SELECT sex, MEDIAN(hours) FROM people GROUP BY sex",
            [("sex", CELLS, 2), ("hours", RUNS, 13)],
        ),
        # Public tables without a condition multiply; they couple nothing.
        (
            "SELECT mark, sex, COUNT(*) FROM people, marks GROUP BY mark, sex",
            [("sex", RUNS, 10)],
        ),
        (
            "SELECT level, sex, COUNT(*) FROM people LEFT JOIN regions USING (edu) "
            "GROUP BY level, sex",
            [("edu", CELLS, 3), ("sex", CELLS, 2)],
        ),
    ],
)
def test_only_what_couples_is_joint(con, sql, blocks):
    (found,) = families(con, sql)
    assert found == blocks


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT COUNT(*), COUNT(1) AS b, COUNT(*) + 1 AS c, SUM(1) AS d FROM people", 2),
        ("SELECT VAR_POP(hours), STDDEV(hours), AVG(hours) FROM people", 3),
        ("SELECT sex, rich, COUNT(*) FROM people GROUP BY CUBE (sex, rich)", 4),
        ("SELECT sex, COUNT(*) / SUM(COUNT(*)) OVER () AS s FROM people GROUP BY sex", 2),
        ("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex HAVING n > 5 ORDER BY n", 1),
        (
            "SELECT COUNT(*) FROM people UNION ALL SELECT COUNT(*) FROM people WHERE rich",
            2,
        ),
    ],
)
def test_a_statistic_is_asked_for_once(con, sql, count):
    assert len(families(con, sql)) == count


def test_a_product_is_not_written_out(con):
    script = reference.compile_one(
        con,
        "SELECT age, joined, wage, hours, edu, COUNT(*) FROM people "
        "GROUP BY age, joined, wage, hours, edu",
    )
    (family,) = script.workload.families
    assert family.count == 25 * 34 * 41 * 13 * 6
    assert [block.queries.cells for block in family.blocks] == [25, 34, 41, 13, 6]
