"""Oversized, broken and mutated text: always a dpsql error, and soon."""

import random

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import (
    DpsqlError,
    ResourceLimitError,
    SqlError,
    SqlLimitError,
    SqlParseError,
    UnsupportedSqlError,
)
from dpsql.schema import Domain, Table
from dpsql.sql import assemble, compile_script, split_script
from dpsql.sql.text.limits import MAX_SCRIPT_BYTES
from tests.helpers.calls import counted_calls
from tests.helpers.described import read_table
from tests.sql import reference
from tests.sql.test_accepted import STATEMENTS
from tests.sql.test_refused import REFUSED

WHERE = "SELECT COUNT(*) FROM t WHERE "
TABLE = Table(
    "t",
    {
        "a": Domain.integers(0, 9_999),
        "b": Domain.integers(0, 9_999),
        "c": Domain.integers(0, 2**62),
        "f": Domain.boolean(),
    },
)


def compile_text(sql):
    return compile_script([("q", sql)], lambda parts: TABLE)


def columns(script):
    return [output.name for output in script.statements[0].direct]


@pytest.mark.parametrize(
    "sql",
    [
        WHERE + "(" * 50 + "f" + ")" * 50,
        WHERE + "(" * 5000 + "f" + ")" * 5000,
        WHERE + "NOT " * 150 + "f",
        WHERE + "NOT (" * 150 + "f" + ")" * 150,
        WHERE + "a = " + "- " * 3000 + "1",
        WHERE + "a = " + "(SELECT " * 150 + "1" + ")" * 150,
        WHERE + "CASE WHEN " * 150 + "f" + " THEN f END" * 150,
        WHERE + "a = " + " + ".join(["a"] * 3000) + " + 1",
        WHERE + " OR ".join(["a = 1"] * 200_000),
        WHERE + "a IN (" + ", ".join(["1"] * 200_000) + ")",
        "SELECT " + ", ".join(["COUNT(*)"] * 30_000) + " FROM t",
        WHERE + " OR ".join(["a = 1"] * 6_000),
        "x" * 10_000_000,
    ],
    ids=lambda sql: sql[:60],
)
def test_too_large_or_too_deep(sql):
    with counted_calls() as calls, pytest.raises(SqlLimitError) as caught:
        compile_text(sql)
    assert calls.count < 10**6
    assert caught.value.hint


@pytest.mark.parametrize(
    "condition",
    [
        " OR ".join(["a = 1"] * 2_000),
        "a IN (" + ", ".join(map(str, range(4_000))) + ")",
        " AND ".join(["NOT f"] * 3_000),
        "a = " + " + ".join(["1"] * 90),
        "(" * 30 + "f" + ")" * 30,
        "NOT " * 30 + "f",
    ],
    ids=lambda text: text[:30],
)
def test_large_but_allowed(condition):
    assert columns(compile_text(WHERE + condition)) == ["count"]


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " ",
        ";",
        ";;",
        "-- nothing",
        "/* */",
        "\x00",
        "SELECT\x00 1",
        "\ufeffSELECT COUNT(*) FROM t",
        "SELECT COUNT(*) FROM t WHERE a = '\ud800'",
        "\x1b[31m",
        None,
        3,
        b"SELECT",
        "“",
        "ＳＥＬＥＣＴ",
    ],
)
def test_not_a_statement(sql):
    with pytest.raises(SqlParseError) as caught:
        compile_text(sql)
    str(caught.value).encode()


def test_semicolons_at_the_end_are_fine():
    assert columns(compile_text("SELECT COUNT(*) FROM t ; ; -- the end")) == ["count"]


def test_what_has_too_many_joint_cells_is_computed_of_rows():
    script = compile_text(WHERE + "a < b")
    assert list(script.labels.values()) == ["(a < b)"]
    assert len(script.workload.domain) == 1


def test_joint_domain_too_large():
    with pytest.raises(ResourceLimitError, match="100,000,000 cells"):
        compile_text(WHERE + "a < (SELECT b)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT c, COUNT(*) FROM t GROUP BY c",
        "SELECT a, b, COUNT(*) FROM t WHERE a < b GROUP BY a, b",
    ],
)
def test_domain_too_large(sql):
    with pytest.raises(ResourceLimitError):
        compile_text(sql)


def test_a_long_domain_is_cut_where_statements_ask():
    script = compile_text(WHERE + "c < 5")
    assert list(script.labels.values()) == ["(c < 5 AND c IS NOT NULL = true)"]
    assert [*dict(script.workload.domain).values()] == [2]


def test_matrix_too_large():
    table = Table("t", {"a": Domain.integers(0, 1_999), "b": Domain.integers(0, 999)})
    sql = "SELECT a, COUNT(*) FROM t WHERE (a * b) % 7 < 3 GROUP BY a"
    with pytest.raises(ResourceLimitError, match="coefficients"):
        compile_script([("q", sql)], lambda parts: table)


def test_statements_must_share_the_table():
    tables = {("t",): TABLE, ("u",): Table("u", TABLE.columns)}
    texts = [("a", "SELECT COUNT(*) FROM t"), ("b", "SELECT COUNT(*) FROM u")]
    with pytest.raises(SqlError, match="one script releases from one table") as caught:
        compile_script(texts, tables.__getitem__)
    assert caught.value.span == (21, 22)
    with pytest.raises(SqlError, match="one script releases from one table") as caught:
        compile_script([("a", "SELECT COUNT(*) - (SELECT COUNT(*) FROM u) FROM t")], tables.get)
    assert caught.value.span == (48, 49)


def test_no_statement_and_repeated_names():
    with pytest.raises(SqlError, match="no statement"):
        compile_script([], lambda parts: TABLE)
    with pytest.raises(SqlError, match="Two statements"):
        compile_script([("a", WHERE + "f"), ("A", WHERE + "f")], lambda parts: TABLE)
    with pytest.raises(SqlLimitError):
        compile_script([(str(i), WHERE + "f") for i in range(1001)], lambda parts: TABLE)


def mutations(count):
    rng = random.Random(7)  # noqa: S311
    texts = [sql for _, sql in STATEMENTS] + [entry[3] for entry in REFUSED]
    words = sorted({word for text in texts for word in text.split()})
    for _ in range(count):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at, to = sorted(rng.randint(0, len(text)) for _ in range(2))
            choice = rng.randrange(5)
            if choice == 0:
                text = text[:at] + text[min(to, at + 6) :]
            elif choice == 1:
                text = text[:at] + rng.choice(words) + " " + text[at:]
            elif choice == 2:
                text = text[:at] + rng.choice("'\"();,*-/.$?[]{}\x00\u202e:=<>é") + text[at:]
            elif choice == 3:
                text = text[:at] + text[at:to] + text[at:]
            else:
                other = rng.choice(texts)
                text = text[:at] + other[rng.randint(0, len(other)) :]
        yield text


def refusal(text, table):
    try:
        compile_script([("q", text)], lambda parts: table)
    except DpsqlError as error:
        return error
    return None


@pytest.mark.parametrize("count", [250, pytest.param(600, marks=pytest.mark.long)])
def test_mutated_text_gives_dpsql_errors_only(count, capfd, caplog):
    con = reference.connect()
    table = reference.read_table(con, ("people",))
    accepted = 0
    for text in mutations(count):
        error = refusal(text, table)
        accepted += error is None
        if isinstance(error, SqlError) and error.span is not None and error.sql is not None:
            assert 0 <= error.span.start <= error.span.end <= len(error.sql), text
        assert error is None or error.hint, text
    assert 0 < accepted < count / 2
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize("step", [24, pytest.param(1, marks=pytest.mark.long)])
def test_private_connection_only_sees_catalog_queries(step):
    con = reference.connect()
    public = {name: con.sql(f"FROM {name}").pl() for name in reference.PUBLIC}
    seen = []

    class Recorder:
        def execute(self, sql, parameters):
            seen.append((sql, tuple(parameters)))
            return con.execute(sql, parameters)

    table = read_table(Recorder(), ("people",))
    asked = len(seen)
    for name, sql in STATEMENTS[::step]:
        compile_script([(name, sql)], lambda parts: table, lambda parts: public.get(parts[0]))
    assert len(seen) == asked
    assert all("duckdb_" in sql or "current_database()" in sql for sql, _ in seen)
    assert not any("estimated_size" in sql for sql, _ in seen)


class TestScripts:
    def test_names_and_comments(self):
        text = (
            "-- a script\n-- name: by_sex\nSELECT 'a;b' -- name: not_this\n FROM t;\n\n"
            "SELECT 2 /* ; */;; /* name: third */ SELECT 3; -- name: last\nSELECT 4\n-- end"
        )
        assert split_script(text) == [
            ("by_sex", "SELECT 'a;b' -- name: not_this\n FROM t"),
            ("query_2", "SELECT 2"),
            ("third", "SELECT 3"),
            ("last", "SELECT 4"),
        ]

    @pytest.mark.parametrize("text", ["", ";", "-- name: x\n", "'", "\x00", 3])
    def test_nothing_to_split(self, text):
        with pytest.raises(SqlParseError):
            split_script(text)

    @pytest.mark.parametrize(
        "text",
        [
            "-- name: a\nSELECT 1; -- name: A\nSELECT 2",
            "-- name: query_2\nSELECT 1; SELECT 2",
            "-- name: a\n-- name: b\nSELECT 1",
            "-- name: ../x\nSELECT 1",
            "-- name:\nSELECT 1",
            "-- name: 1a\nSELECT 1",
            "-- name: " + "a" * 65 + "\nSELECT 1",
        ],
    )
    def test_bad_names(self, text):
        with pytest.raises(SqlError, match="name") as caught:
            split_script(text)
        assert caught.value.span is not None

    def test_limits(self):
        with pytest.raises(SqlLimitError):
            split_script("SELECT 1;" * 1001)
        with pytest.raises(SqlLimitError):
            split_script(" " * 1_000_001)

    def test_other_statements_are_kept_for_the_parser_to_refuse(self):
        (_, sql), *rest = split_script("EXPLAIN SELECT 1; SELECT 2")
        assert sql == "EXPLAIN SELECT 1"
        assert len(rest) == 1
        with pytest.raises(UnsupportedSqlError):
            compile_text(sql)


def test_a_script_of_many_wide_conditions_is_refused_before_it_fills_the_memory(monkeypatch):
    """By a limit of a 64th, which the fifth statement exceeds as it would the whole one."""
    monkeypatch.setattr(assemble, "MAX_SCRIPT_ENTRIES", assemble.MAX_SCRIPT_ENTRIES // 64)
    statements = [(f"q{i}", f"{WHERE}a * b % 1009 < {1000 + i}") for i in range(5)]
    domains = {"a": Domain.integers(0, 249), "b": Domain.integers(0, 249)}
    with pytest.raises(ResourceLimitError, match="coefficients together") as error:
        compile_script(statements, lambda parts: Table("t", domains))
    assert "fewer statements at a time" in error.value.hint


NESTED = ("INT(", "DATE (", "DECIMAL(", "STRUCT(", "UNION(", "CAST(", "foo(", "ARRAY[", "INT[")


@pytest.mark.parametrize("opening", NESTED)
def test_nested_calls_are_refused_before_they_take_exponential_time(opening):
    closing = "]" if "[" in opening else ")"
    sql = f"SELECT COUNT(*) FROM people WHERE {opening * 31}rich{closing * 31}"
    with pytest.raises(SqlError) as error:
        reference.compile_one(None, sql)
    assert error.value.hint


def test_calls_may_be_nested_as_conversions_nest_them():
    calls = "CAST(ROUND(" * 5 + "a" + ", 1) AS DOUBLE)" * 5
    (statement,) = compile_text(f"SELECT SUM({calls}) AS total FROM t").statements
    assert [output.name for output in statement.outputs] == ["total"]


CHAINED = {
    "all": " UNION ALL ".join(f"SELECT {i % 40} AS x, '{i % 7}' AS g" for i in range(119)),
    "distinct": " UNION ".join(f"SELECT {i % 40} AS x, '{i % 7}' AS g" for i in range(300)),
    "ordered": " UNION ALL ".join(f"SELECT {i} AS x, 'a' AS g" for i in range(50))
    + " ORDER BY x DESC LIMIT 20",
    "mixed": "SELECT 20 AS x, 'a' AS g UNION SELECT 21, 'a' EXCEPT SELECT 21, 'a' UNION ALL "
    + " UNION ALL ".join(f"SELECT {i % 40}, '{i % 7}'" for i in range(60)),
    "by itself": " UNION ALL ".join(f"SELECT {i}, 'a'" for i in range(17, 40)),
}


@pytest.mark.parametrize("name", CHAINED)
def test_chains_of_union_are_not_deep(name):
    counted = "SELECT g, COUNT(*) AS n FROM people JOIN w ON age = x GROUP BY g"
    con = reference.connect()
    assert not reference.differences(con, f"WITH w(x, g) AS ({CHAINED[name]}) {counted}")


@pytest.mark.parametrize(
    "joins",
    [
        " JOIN people" * 9,
        " JOIN people" * 10 + " ON 1 = 1",
        (" JOIN people" * 4 + " JOIN people ON 1 = 1") * 4,
        " JOIN (SELECT DISTINCT ON (age) age FROM people) q" * 9,
        " JOIN (SELECT DISTINCT ON (age) age FROM people JOIN people) q" * 5,
        " LEFT JOIN people" * 9,
        " JOIN people" * 4 + " JOIN people ON " + " AND ".join(["rich"] * 4_000),
        " JOIN people USING (age)" * 33,
        " CROSS JOIN people" * 33,
    ],
)
def test_many_joins_are_refused_before_they_take_exponential_time(joins):
    with pytest.raises(SqlLimitError, match="joins") as error:
        reference.compile_one(None, f"SELECT COUNT(*) FROM people{joins}")
    assert error.value.hint


@pytest.mark.parametrize(
    "joins",
    [
        " JOIN v{} USING (age)",
        " JOIN v{} ON v{}.age = people.age",
        " CROSS JOIN v{}",
        " LEFT JOIN (SELECT v{}.age FROM v{} CROSS JOIN v0 w) q{} ON q{}.age = people.age",
    ],
)
def test_joins_with_conditions_may_be_many(joins):
    """As many as star schemas have, and DuckDB's number."""
    count = 16 if "SELECT" in joins else 30
    public = {f"v{i}": pl.DataFrame({"age": [i % 3]}) for i in range(count)}
    sql = "SELECT COUNT(*) FROM people" + "".join(joins.replace("{}", str(i)) for i in range(count))
    con = duckdb.connect()
    con.execute("CREATE TABLE people (age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 2))")
    con.execute("INSERT INTO people SELECT i % 3 FROM range(9) r(i)")
    found = dpsql.query(con, sql, budget=dpsql.Budget(rho=1e6), public=public)
    for name, frame in public.items():
        con.execute(f"CREATE TABLE {name} AS SELECT {frame['age'][0]} AS age")
    assert found["count"][0] == pytest.approx(con.execute(sql).fetchone()[0], abs=0.1)


@pytest.mark.parametrize("where", ["@", "NOT @", "@ < 3 AND rich", "rich = @"])
def test_an_operator_without_its_operand(where):
    with pytest.raises(SqlError) as error:
        reference.compile_one(None, f"SELECT COUNT(*) FROM people WHERE {where}")
    assert error.value.hint


@pytest.mark.parametrize("character", ["a", "é"])
def test_no_more_of_a_script_is_read_than_may_be_in_it(tmp_path, character):
    file = tmp_path / "script.sql"
    with file.open("wb") as long:
        long.write(b"SELECT 1 -- " + character.encode() * MAX_SCRIPT_BYTES)
        long.truncate(1 << 40)  # as far as the file system lets it be: nothing is written
    with pytest.raises(SqlLimitError, match="1,000,000 bytes"):
        dpsql.read_script(file)
    file.write_bytes(b"SELECT COUNT(*) FROM t \xff")
    with pytest.raises(SqlParseError, match="UTF-8"):
        dpsql.read_script(file)


SMALL = Table("t", {"a": Domain.integers(0, 9), "b": Domain.integers(0, 9)})


def nested(query, depth):
    """Return a query of private rows around another, and so on, so many times."""
    inner = "t"
    for level in range(depth):
        inner = query.replace("@", inner if level == 0 else f"({inner}) AS q{level}")
    return f"SELECT a, COUNT(*) AS n FROM ({inner}) AS r GROUP BY a"


def chained(query, depth):
    """Return the same as a chain of CTEs."""
    names = [f"w{level}" for level in range(depth)]
    parts = zip(names, ["t", *names], strict=False)
    ctes = ", ".join(f"{name} AS ({query.replace('@', of)})" for name, of in parts)
    return f"WITH {ctes} SELECT a, COUNT(*) AS n FROM {names[-1]} GROUP BY a"


def calls_of_python(sql):
    """Return how many functions of Python compiling a statement calls, and why it is refused."""
    refused = None
    with counted_calls() as calls:
        try:
            compile_script([("q", sql)], lambda parts: SMALL)
        except SqlError as error:
            refused = error
    return calls.count, refused


@pytest.mark.sampled(6)
@pytest.mark.parametrize("written", [nested, chained])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM @",
        "SELECT a, b FROM @ WHERE a > 1",
        "SELECT * FROM @",
        "SELECT DISTINCT a FROM @",
        "SELECT a, MAX(b) AS b FROM @ GROUP BY a",
        "SELECT a FROM @ LIMIT 3",
        "WITH w AS (SELECT a FROM @) SELECT a FROM w",
        "SELECT a FROM @ UNION ALL SELECT b FROM t",
    ],
)
def test_work_grows_with_the_text_of_nested_queries_and_not_exponentially(written, query):
    compile_text(nested("SELECT a FROM @", 1))  # what is imported isn't counted
    four, eight = (calls_of_python(written(query, depth))[0] for depth in (4, 8))
    assert eight < 4 * four + 20_000  # were each level thrice the last, it would be 81 times


@pytest.mark.parametrize("written", [nested, chained])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT a + a AS a FROM @",
        "SELECT CASE WHEN a > 2 THEN a ELSE a - 1 END AS a FROM @",
        "SELECT a + a AS b, b + b AS c, c + c AS a FROM @",
    ],
)
def test_what_columns_stand_for_is_bounded(written, query):
    compile_text(nested("SELECT a FROM @", 1))
    calls, refused = calls_of_python(written(query, 24))
    assert isinstance(refused, SqlLimitError)
    assert "10,000 parts" in str(refused)
    assert calls < 1_200_000  # columns are bound where they are listed, also those that nobody uses


@pytest.mark.parametrize("first", ["a", "COUNT(*)"])
def test_what_names_of_the_list_stand_for_is_bounded(first):
    names = ", ".join(f"c{i} + c{i} AS c{i + 1}" for i in range(30))
    calls, refused = calls_of_python(f"SELECT {first} AS c0, {names} FROM t GROUP BY ALL")
    assert isinstance(refused, SqlLimitError)
    assert calls < 1_000_000


@pytest.mark.parametrize("text", ["3 days ago", "- 1 day", "+1 day", "1 day 02:00:00"])
def test_intervals_of_which_the_parser_leaves_something_out_are_refused(text):
    """It reads one number and one unit, and takes them for all of the text."""
    with pytest.raises(UnsupportedSqlError, match="and nothing else"):
        compile_text(WHERE + f"DATE '2020-01-01' < DATE '2020-01-02' + INTERVAL '{text}'")
