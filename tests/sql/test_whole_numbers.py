"""Noisy answers that are integers in SQL: compared, and written, as the nearest whole numbers."""

import itertools
import random

import duckdb
import pytest

import dpsql

WHOLE = (
    "COUNT(*)", "COUNT(h)", "COUNT(DISTINCT id)", "COUNT(*) FILTER (WHERE a > 0)",
    "COUNT_IF(a = 1)", "SUM(h)", "SUM(h * 2 - a)", "SUM(CASE WHEN a = 1 THEN h ELSE 0 END)",
    "SUM(y)", "SUM(b)",
    "COUNT(*) - SUM(h)", "-COUNT(*)", "2 * COUNT(*) + 1", "ABS(COUNT(*))", "MIN(h)", "MAX(h)",
    "QUANTILE_DISC(h, 0.5)", "GREATEST(COUNT(*), SUM(h))", "COALESCE(SUM(h), 0)",
    "CASE WHEN COUNT(*) > 1 THEN COUNT(h) ELSE 0 END", "CAST(AVG(h) AS INTEGER)",
    "SUM(COUNT(*)) OVER (ORDER BY a)", "lag(COUNT(*)) OVER (ORDER BY a)",
)  # fmt: skip
FRACTIONS = (
    "AVG(h)", "SUM(x)", "SUM(d)", "1.5 * COUNT(*)", "SUM(CAST(h AS DOUBLE))", "SUM(h + x)",
    "AVG(COUNT(*)) OVER (ORDER BY a)", "COUNT(*) + AVG(h)", "SUM(h * 0.5)",
)  # fmt: skip
"""Of these the text is that of the number, or of what is computed of whole numbers."""
WAYS = (
    "CAST({} AS VARCHAR)", "TRY_CAST({} AS TEXT)", "({})::VARCHAR", "'' || ({})", "({}) || ''",
    "concat({})", "concat_ws('-', {})",
)  # fmt: skip
PLACES = (
    "SELECT a, {value} AS v, {text} FROM p GROUP BY a",
    "SELECT a, v, {outer} FROM (SELECT a, {value} AS v FROM p GROUP BY a)",
    "WITH q AS (SELECT a, {value} AS v FROM p GROUP BY a), r (k, w) AS (SELECT * FROM q) "
    "SELECT k, w, {renamed} FROM r",
    "SELECT a, v, {outer} FROM (SELECT a, {value} AS v FROM p GROUP BY a "
    "UNION ALL SELECT 9, {value} AS v FROM p GROUP BY a) ORDER BY a",
    "SELECT a, {value} AS v, {outer} FROM p GROUP BY a",
)


@pytest.fixture(scope="module")
def con():
    """Return a table of all kinds of numbers, with NULLs."""
    rng = random.Random(5)  # noqa: S311
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE p (id INTEGER NOT NULL, a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 2), "
        "h INTEGER CHECK (h BETWEEN 0 AND 9), b BOOLEAN NOT NULL, x DOUBLE, d DECIMAL(6, 2), "
        "y BIGINT)"
    )
    for i in range(300):
        h = rng.choice([None, *range(10)])
        row = (i % 90, i % 3, h, rng.random() < 0.5, rng.random(), i / 4, rng.randrange(50))
        con.execute("INSERT INTO p VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    return con


def released(con, sql, rho):
    known = {"x": dpsql.Domain.number(0, 1), "d": dpsql.Domain.number(0, 75)}
    schema = dpsql.Schema({"p": known | {"y": dpsql.Domain.number(0, 50)}})
    unit = dpsql.Unit("id", max_rows=9)
    return dpsql.query(con, sql, budget=dpsql.Budget(rho=rho), schema=schema, unit=unit)


def cases(values):
    """Return a statement for each value, in one of the places, with text made of it in all ways."""
    for value, place in zip(values, itertools.cycle(PLACES)):
        texts = {"text": value, "outer": "v", "renamed": "w"}
        listed = {
            name: ", ".join(f"{way.format(of)} AS t{i}" for i, way in enumerate(WAYS))
            for name, of in texts.items()
        }
        yield place.format(value=value, **listed)


def texts_of(frame):
    """Return each value with its texts, in the order of `WAYS`."""
    value, *_ = (name for name in frame.columns if name in {"v", "w"})
    return [
        (number, texts)
        for number, *texts in frame.select(value, *(f"t{i}" for i in range(len(WAYS)))).rows()
    ]


@pytest.mark.parametrize("sql", [*cases(WHOLE)])
def test_the_text_of_an_integer_is_that_of_the_nearest_whole_number(con, sql):
    for number, texts in texts_of(released(con, sql, 3)):
        whole = None if number is None else str(round(number))
        assert texts[:-2] == [whole] * (len(WAYS) - 2), sql
        assert texts[-2:] == [whole or ""] * 2, sql
    exact = {tuple(row[-len(WAYS) :]) for row in con.execute(sql).fetchall()}
    assert exact == {tuple(texts) for _, texts in texts_of(released(con, sql, 1e12))}, sql


@pytest.mark.parametrize("sql", [*cases(FRACTIONS)])
def test_the_text_of_other_numbers_has_their_fractions(con, sql):
    found = texts_of(released(con, sql, 3))
    assert any(texts[0] != str(round(number)) for number, texts in found), sql
    assert all(len(set(texts)) == 1 for _, texts in found), sql
    if "1.5 *" not in sql:  # which is computed of whole numbers
        assert all(float(texts[0]) == pytest.approx(number) for number, texts in found), sql


def test_texts_side_by_side_agree(con):
    sql = "SELECT COUNT(*)::TEXT AS n, COUNT(h)::TEXT AS m, (1.0 * COUNT(*) / COUNT(h))::TEXT AS q"
    ((n, m, q),) = released(con, sql + " FROM p", 3).select("n", "m", "q").rows()
    assert float(q) == int(n) / int(m)


def test_numbers_beside_texts_keep_their_fractions_and_variances(con):
    plain = released(con, "SELECT COUNT(*) AS n FROM p", 3)
    beside = released(con, "SELECT COUNT(*) AS n, 'n: ' || COUNT(*) AS t FROM p", 3)
    assert beside["n_variance"].to_list() == pytest.approx(plain["n_variance"].to_list())
    assert beside["n"][0] != round(beside["n"][0])
    assert beside["t_variance"].to_list() == [None]
    assert beside["t"][0] == f"n: {round(beside['n'][0])}"


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT (SELECT COUNT(*) FROM p) || '' AS t", "300"),
        ("SELECT string_agg(n, ',' ORDER BY a) AS t FROM "
         "(SELECT a, COUNT(*) AS n FROM p GROUP BY a)", "100,100,100"),
        ("SELECT string_agg(DISTINCT n, ',') AS t FROM "
         "(SELECT a, COUNT(*) AS n FROM p GROUP BY a)", "100"),
        ("SELECT lpad(COUNT(*)::VARCHAR, 5, '0') AS t FROM p", "00300"),
        ("SELECT max(s) AS t FROM (SELECT 'x' || COUNT(*) AS s FROM p WHERE EXISTS "
         "(SELECT 1 FROM p AS o WHERE o.id = p.id))", "x300"),
    ],
)  # fmt: skip
def test_texts_in_other_places(con, sql, text):
    assert released(con, sql, 1e12)["t"].to_list() == [text]


COMPARED = (
    "SELECT a FROM p GROUP BY a HAVING {} = 100",
    "SELECT a FROM p GROUP BY a HAVING {} >= 100",
    "SELECT a FROM p GROUP BY a HAVING NOT {} > 100",
    "SELECT a FROM p GROUP BY a HAVING {} < 101 AND {} <> 99",
    "SELECT a FROM p GROUP BY a HAVING {} BETWEEN 100 AND 100",
    "SELECT a FROM p GROUP BY a HAVING {} IN (99, 100)",
    "SELECT a FROM p GROUP BY a HAVING {} % 10 = 0",
    "SELECT a FROM p GROUP BY a HAVING {} // 10 = 10",
    "SELECT a, CASE {} WHEN 100 THEN 'y' ELSE 'n' END AS c FROM p GROUP BY a",
    "SELECT a, CASE WHEN {} = 100 THEN 'y' ELSE 'n' END AS c FROM p GROUP BY a",
    "SELECT a, {} IS NOT DISTINCT FROM 100 AS c FROM p GROUP BY a",
    "SELECT a, RANK() OVER (ORDER BY {} DESC) AS r FROM p GROUP BY a",
    "SELECT a, r FROM (SELECT a, DENSE_RANK() OVER (ORDER BY {}) AS r FROM p GROUP BY a) "
    "WHERE r < 2",
    "SELECT a, ROW_NUMBER() OVER (ORDER BY {} DESC, a DESC) AS r FROM p GROUP BY a",
    "SELECT a FROM (SELECT a, {} AS n FROM p GROUP BY a) ORDER BY n DESC, a DESC LIMIT 1",
    "SELECT n, COUNT(*) AS c FROM (SELECT a, {} AS n FROM p GROUP BY a) GROUP BY n",
    "SELECT n, COUNT(*) AS c FROM (SELECT a, {} AS n FROM p GROUP BY a) GROUP BY 1 HAVING n > 0",
    "SELECT COUNT(DISTINCT n) AS c FROM (SELECT a, {} AS n FROM p GROUP BY a)",
    "WITH q AS (SELECT a, {} AS n FROM p GROUP BY a) SELECT a FROM q "
    "WHERE n = (SELECT MAX(n) FROM q)",
    "WITH q AS (SELECT a, {} AS n FROM p GROUP BY a) SELECT x.a FROM q x JOIN q y ON x.a > y.a "
    "AND x.n = y.n",
)
"""Each group has 100 rows, so that all of these are about ties."""


@pytest.mark.parametrize("sql", COMPARED)
@pytest.mark.parametrize("value", ["COUNT(*)", "COUNT(*) + SUM(h) - SUM(h)"])
def test_integers_are_compared_as_whole_numbers(con, sql, value):
    asked = sql.replace("{}", f"({value})")
    exact = con.execute(asked).fetchall()
    names = [column[0] for column in con.description]
    assert sorted(released(con, asked, 1e12).select(names).rows()) == sorted(exact)


def test_groups_are_chosen_by_the_nearest_whole_number(con):
    every = released(con, "SELECT h, COUNT(*) AS n FROM p GROUP BY h", 3)["n"].to_list()
    assert any(n != round(n) for n in every)
    sql = "SELECT h, COUNT(*) AS n FROM p GROUP BY h HAVING COUNT(*) {} 30 -- {}"
    for sign, holds in (("=", int.__eq__), (">=", int.__ge__), ("<", int.__lt__)):
        for turn in range(5):
            for n in released(con, sql.format(sign, turn), 0.5)["n"].to_list():
                assert holds(round(n), 30)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a, CASE WHEN COUNT(*) >= 0 THEN sqrt(COUNT(*)) END AS v FROM p GROUP BY a",
        "SELECT a, CASE WHEN COUNT(*) > 0 THEN SUM(h) / COUNT(*) END AS v FROM p GROUP BY a",
        "SELECT a, SUM(h) / NULLIF(COUNT(*), 0) AS v FROM p GROUP BY a",
        "SELECT a, AVG(h) AS v FROM p GROUP BY a",
        "SELECT a, COUNT(*) AS v FROM p GROUP BY a ORDER BY COUNT(*) DESC LIMIT 2",
    ],
)
def test_guards_and_order_are_of_the_numbers_themselves(con, sql):
    found = released(con, sql, 3)
    assert all(v is not None and v != round(v) for v in found["v"].to_list())
    assert all(variance is not None for variance in found["v_variance"].to_list())
