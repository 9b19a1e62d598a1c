"""Groups that exist, as declared: what is returned and computed with, and that counts stay."""

from pathlib import Path
from statistics import NormalDist

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import SchemaError
from dpsql.schema.declarations import parse_toml
from dpsql.schema.document import write_toml
from dpsql.schema.stored import table_from_json, table_to_json
from dpsql.sql import compile_script
from tests.helpers.described import read_table

ROOT = Path(__file__).parents[2]
PRECISE = dpsql.Budget(rho=10**10)
CALENDAR = dpsql.Schema({}, groups={"flights": [(("Month", "day"), "calendar")]})
GROUPED = "SELECT month, day, COUNT(*) AS n FROM flights GROUP BY month, day"


@pytest.fixture(scope="module")
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE flights (
            year INTEGER NOT NULL CHECK (year BETWEEN 2012 AND 2013),
            month INTEGER NOT NULL CHECK (month BETWEEN 1 AND 12),
            day INTEGER NOT NULL CHECK (day BETWEEN 1 AND 31),
            carrier ENUM ('AA', 'DL', 'UA')
        );
        INSERT INTO flights SELECT year(d), month(d), day(d), ['AA', 'DL', 'UA'][1 + i % 4] FROM (
            SELECT DATE '2012-01-01' + (i * 7 % 731)::INTEGER AS d, i FROM range(20_000) r(i)
        );
        CREATE TABLE routes AS SELECT 'AA' AS carrier, 1::BIGINT AS month
            UNION ALL SELECT 'UA', 12 UNION ALL SELECT 'XX', 3;
    """).fetchall()
    return con


def frame(con, sql, schema, **options):
    return dpsql.query(con, sql, budget=PRECISE, schema=schema, **options)


def average(con, sql, schema):
    return frame(con, f"SELECT AVG(n) AS mean, COUNT(*) AS groups FROM ({sql})", schema)


def test_without_a_declaration_30_february_is_averaged_over(con):
    found = average(con, GROUPED, None)
    assert found["groups"][0] == 372
    assert found["mean"][0] == pytest.approx(20_000 / 372, abs=1e-3)


def test_with_it_answers_equal_duckdb(con):
    found = average(con, GROUPED, CALENDAR)
    mean, groups = con.execute(f"SELECT AVG(n), COUNT(*) FROM ({GROUPED})").fetchone()
    assert groups == 366
    assert found["groups"][0] == groups
    assert found["mean"][0] == pytest.approx(mean, abs=1e-3)
    assert found["mean_variance"][0] is not None


@pytest.mark.parametrize(
    ("sql", "ordered"),
    [
        (GROUPED, True),
        (f"{GROUPED} HAVING COUNT(*) > 40", True),
        (
            "SELECT month, day, AVG(COUNT(*)) OVER () AS n FROM flights GROUP BY month, day",
            True,
        ),
        ("SELECT month, day, COUNT(*) AS n FROM flights GROUP BY ROLLUP (month, day)", False),
        ("SELECT day, COUNT(*) AS n FROM flights GROUP BY day", True),
        ("SELECT month m, day, COUNT(*) AS n FROM flights WHERE month < 3 GROUP BY m, day", True),
        ("WITH c AS (SELECT month, day, COUNT(*) AS n FROM flights GROUP BY ALL) "
         "SELECT month, rank() OVER (ORDER BY count(*) DESC) AS r, SUM(n) AS n FROM c "
         "GROUP BY month ORDER BY month", True),
    ],
)  # fmt: skip
def test_groups_and_windows_are_those_of_duckdb(con, sql, ordered):
    ours = frame(con, sql, CALENDAR)
    names = [name for name in ours.columns if not name.endswith("_variance")]
    rows = [(*row[:-1], round(row[-1], 2)) for row in ours.select(names).rows()]
    theirs = [(*row[:-1], round(row[-1], 2)) for row in con.execute(sql).fetchall()]
    assert len(rows) == len(theirs)
    assert set(rows) == set(theirs)
    assert not ordered or rows == sorted(rows)


def test_a_calendar_with_years_knows_leap_years(con):
    schema = dpsql.Schema({}, groups={"flights": [(("year", "month", "day"), "calendar")]})
    found = frame(con, "SELECT year, month, day, COUNT(*) AS n FROM flights GROUP BY ALL", schema)
    assert found.height == 731
    assert (2013, 2, 29) not in set(found.select("year", "month", "day").rows())


@pytest.mark.parametrize(
    ("of", "public"),
    [
        ("routes", ["routes"]),
        (pl.DataFrame({"month": [1, 12, 3], "more": 0, "Carrier": ["AA", "UA", "XX"]}), None),
        ([("AA", 1), ("UA", 12), (None, 4)], None),
    ],
)
def test_groups_of_a_public_table_a_frame_or_a_list(con, of, public):
    schema = dpsql.Schema({}, groups={"flights": [(("carrier", "month"), of)]})
    sql = "SELECT carrier, month, COUNT(*) AS n FROM flights GROUP BY carrier, month"
    found = frame(con, sql, schema, public=public)
    groups = found.select("carrier", "month").rows()
    assert [g for g in groups if g[0] is not None] == [("AA", 1), ("UA", 12)]
    assert sum(g[0] is None for g in groups) == 12  # a group of NULL may always exist


def test_what_is_counted_stays_the_same(con):
    def script(schema):
        return compile_script([("q", GROUPED)], lambda parts: read_table(con, parts, schema))

    one, other = script(None), script(CALENDAR)
    assert one.workload.domain == other.workload.domain
    assert [f.attributes for f in one.workload.families] == [
        f.attributes for f in other.workload.families
    ]
    assert one.table.fingerprint == other.table.fingerprint
    session = dpsql.Session(con, schema=CALENDAR)
    total = session.release("SELECT COUNT(*) AS n FROM flights", budget=PRECISE)["query"]["n"][0]
    assert total == pytest.approx(20_000, abs=0.01)


def test_saved_releases_keep_the_groups(con, tmp_path):
    session = dpsql.Session(con, schema=CALENDAR)
    session.release(GROUPED, budget=PRECISE).save(tmp_path / "saved")
    loaded = dpsql.Release.load(tmp_path / "saved")
    assert loaded.query(GROUPED).height == 366


OVER_GROUPS = [
    f"SELECT AVG(n) AS a FROM ({GROUPED})",
    f"SELECT COUNT(*) AS groups, SUM(n) AS n FROM ({GROUPED})",
    f"{GROUPED} ORDER BY month DESC LIMIT 3",
    f"SELECT *, rank() OVER (ORDER BY n) AS r FROM ({GROUPED})",
    "SELECT month, day, AVG(COUNT(*)) OVER () AS n FROM flights GROUP BY month, day",
]


@pytest.mark.parametrize("sql", OVER_GROUPS)
def test_empty_groups_that_take_part_are_noted(con, sql, tmp_path):
    release = dpsql.Session(con).release(sql, budget=PRECISE)
    assert "groups without rows" in str(release.columns("query")["reason"].to_list())
    assert "groups without rows" in release.summary()
    release.save(tmp_path / "saved")
    assert "groups without rows" in dpsql.Release.load(tmp_path / "saved").summary()
    declared = dpsql.Session(con, schema=CALENDAR).release(sql, budget=PRECISE)
    assert "groups without rows" not in declared.summary()
    above = sql.replace("GROUP BY month, day", "GROUP BY month, day HAVING COUNT(*) > 20")
    kept = dpsql.Session(con).release(above, budget=PRECISE)
    assert "groups without rows" not in kept.summary()


def test_sums_over_groups_and_groups_alone_need_no_note(con):
    for sql in (GROUPED, f"SELECT month, SUM(n) AS n FROM ({GROUPED}) GROUP BY month"):
        release = dpsql.Session(con).release(sql, budget=PRECISE)
        assert release.columns("query")["reason"].null_count() == 3 - ("SUM" in sql)
        assert "note " not in release.summary()


@pytest.mark.parametrize(
    "sql",
    [
        f"{GROUPED} HAVING COUNT(*) > 20",
        f"{GROUPED} ORDER BY n DESC LIMIT 3",
        f"SELECT month, n FROM ({GROUPED}) WHERE n > 20",
        f"WITH k AS ({GROUPED} HAVING COUNT(*) > 20) SELECT month, SUM(n) n FROM k GROUP BY month",
    ],
)
def test_values_that_noise_chose_are_noted(con, sql):
    release = dpsql.Session(con).release(sql, budget=PRECISE)
    assert "chosen by noisy values" in release.summary()
    assert release.columns("query")["reason"][-1] is not None


def test_groups_above_a_floor_are_ranked_and_limited(con):
    sql = """
        WITH k AS (SELECT month, day, COUNT(*) AS n FROM flights GROUP BY ALL HAVING COUNT(*) > 20)
        SELECT COUNT(*) AS groups, SUM(n) AS n, AVG(n) AS mean FROM k
    """
    found = frame(con, sql, None)
    groups, rows, mean = con.execute(sql).fetchone()
    assert (found["groups"][0], round(found["n"][0])) == (groups, rows)
    assert found["mean"][0] == pytest.approx(mean, abs=1e-3)


def test_the_documented_bias_of_what_is_chosen():
    """By the law of a normal variable that exceeds a threshold."""
    normal, page = NormalDist(), (ROOT / "docs/reference/sql/computing-with-answers.md").read_text()
    for above, returned, bias, held in (
        (2, 98, 0.06, 97), (1, 84, 0.29, 97), (0, 50, 0.80, 95), (-1, 16, 1.53, 84),
        (-2, 2, 2.37, 0),
    ):  # fmt: skip
        passed = 1 - normal.cdf(-above)
        assert round(100 * passed) == returned
        assert round(normal.pdf(above) / passed, 2) == bias
        inside = max(0.0, normal.cdf(1.96) - max(normal.cdf(-above), normal.cdf(-1.96)))
        assert round(100 * inside / passed) == held
        assert f"{bias:.2f}σ" in page


def test_schema_files_and_documents(con):
    text = """
[flights]
groups = [
    { columns = ["month", "day"], of = "calendar" },
    { columns = ["carrier", "month"], rows = [["AA", 1], ["UA", 12]] },
]
"""
    declared = parse_toml(text)
    schema = dpsql.Schema(declared.tables, groups=declared.groups)
    table = read_table(con, ("flights",), schema)
    assert table.groups[1].of == (("AA", "1"), ("UA", "12"))
    assert table_from_json(table_to_json(table)) == table
    again = parse_toml(write_toml([table]))
    assert (
        read_table(con, ("flights",), dpsql.Schema({}, groups=again.groups)).groups == table.groups
    )


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"flights": (("month", "day"), "calendar")}, "does not name columns"),
        ({"flights": ["calendar"]}, "not a declaration of groups"),
        ({"flights": [(("month", "dya"), "calendar")]}, "not a column with a domain"),
        ({"flights": [(("month",), "calendar")]}, "A calendar needs"),
        ({"flights": [(("carrier", "day"), "calendar")]}, "not of whole numbers"),
        ({"flights": [(("month", "MONTH"), "calendar")]}, "each once"),
        ({"flights": [(("month", "day"), [])]}, "No combination"),
        ({"flights": [(("month", "day"), [(1, 2, 3)])]}, "not a combination of 2"),
        ({"flights": [(("month", "day"), [(1, {})])]}, "not a value of a column"),
        ({"flights": [(("month", "day"), pl.DataFrame({"month": [1]}))]}, "has no column day"),
        ({"flights": [(("carrier",), "routes")]}, "not a public table"),
        ({"flights": [(("carrier",), [("XX",)])]}, "has values of its columns"),
        ({"flight": [(("carrier",), [("AA",)])]}, "There is no table flight"),
        ({"flights": 3}, "The groups of flights are 3"),
    ],
)
def test_wrong_declarations_are_refused(con, groups, message):
    with pytest.raises(SchemaError, match=message) as error:
        frame(con, GROUPED, dpsql.Schema({}, groups=groups))
    assert error.value.hint
