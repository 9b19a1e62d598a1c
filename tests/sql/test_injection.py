"""Text in quotes stays in quotes: nothing that anyone writes becomes SQL of its own."""

import itertools
import random

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.errors import DpsqlError, SqlError
from dpsql.sql.sandbox.database import Sandbox
from tests.sql import reference

MARK = "zq"
TEXTS = (
    "zq) OR (1=1", "zq; SELECT 1", "zq' || 'x", 'zq"" || ""x', "zq--", "zq/*", "zq\\' OR 1=1",
    "zq$$", "zq, 2) || version() || CAST(1 AS DECIMAL(9", "zq FROM joined)::VARCHAR || version()",
    "zq(x), (SELECT version() AS v) AS c", "zqé'", "zq😀\"",
)  # fmt: skip
FORMS = ('"{}"', "'{}'", "$${}$$", "$q${}$q$", "/*{}*/", "E'{}'", "e'{}'", "U&'{}'", "x'{}'",
         "b'{}'", "r'{}'", "[{}]", "`{}`", "@{}", "--{}\n", "{}", '"{}" "x"')  # fmt: skip
PREDICATES = (
    "EXTRACT({} FROM joined) = 1", "date_trunc({}, joined) = joined", "date_part({}, joined) = 1",
    "date_diff({}, joined, joined) = 1", "joined + INTERVAL 1 {} = joined",
    "joined + INTERVAL {} = joined", "joined + INTERVAL {} DAY = joined",
    "joined + INTERVAL '1' {} = joined", "joined - INTERVAL (1) {} = joined", "CAST(age AS {}) = 1",
    "CAST(age AS DECIMAL({},2)) = 1", "CAST(age AS DECIMAL(10,{})) = 1", "age::{} = 1",
    "CAST(sex AS VARCHAR({})) = 'a'", "TRIM(BOTH {} FROM size) = 'a'", "TRIM({} size) = 'a'",
    "size SIMILAR TO {}", "size LIKE {} ESCAPE {}", "size GLOB {}",
    "regexp_matches(size, {}, {})", "regexp_replace(size, {}, {}, {}) = 'a'",
    "strftime(joined, {}) = 'a'", "strptime(size, {}) = joined", "concat_ws({}, size) = 'a'",
    "chr({}) = size", "{} = size", "{}(age) = 1", "age IN ({})", "position({} IN size) = 1",
    "substring(size FROM {} FOR {}) = 'a'", "overlay(size PLACING {} FROM 1) = 'a'",
    "translate(size, {}, {}) = 'a'", "round(age, {}) = 1", "log({}, age) = 1",
    "size AT TIME ZONE {} = 'a'", "age = ANY({})", "people.{} = 1", "{}.age = 1", "people.age.{}",
    "CASE {} WHEN 1 THEN true END", "IF({}, true, false)", "DATE {} = joined",
    "TIMESTAMP {} = joined",
    "size COLLATE {} = 'a'", "age IS {}", "age IS NOT DISTINCT FROM {}", "age BETWEEN {} AND {}",
    "EXISTS (SELECT 1 FROM {})", "age IN (SELECT x FROM (VALUES ({})) v(x))",
    "age IN (SELECT x FROM (VALUES (1)) v({}))",
    "age IN (SELECT {} FROM generate_series(1,2) {}(x))",
    "age IN (SELECT x AS {} FROM (VALUES (1)) {}(x))", "age IN (SELECT {} FROM bands {})",
    "age IN (SELECT * FROM unnest([{}]))", "age IN (SELECT sum(x) OVER {} FROM (VALUES (1)) v(x))",
    "age IN (SELECT lo FROM bands ORDER BY lo NULLS {} LIMIT {})", "1{} = age", "age{} = 1",
)  # fmt: skip
FRAMES = (
    "SELECT COUNT(*) AS n FROM people WHERE {P}",
    "SELECT {P} AS k, COUNT(*) AS n FROM people GROUP BY {P}",
    "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex HAVING COUNT(*) > {}",
    "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age ROWS BETWEEN {} PRECEDING AND CURRENT ROW) AS n "
    "FROM people GROUP BY age",
    "SELECT COUNT(*) AS {} FROM people", "SELECT age {}, COUNT(*) n FROM people GROUP BY age",
    "SELECT age AS {}, COUNT(*) AS n FROM people GROUP BY age ORDER BY {}",
    "WITH {} AS (SELECT age, COUNT(*) AS n FROM people GROUP BY age) SELECT n FROM {}",
    "WITH {} AS (SELECT 1 AS a) SELECT a, COUNT(*) AS n FROM people JOIN {} ON true GROUP BY a",
    "WITH q AS (SELECT 1 AS a) SELECT COUNT(*) AS n FROM people JOIN q AS {} ON true",
    "WITH q({}) AS (SELECT 1) SELECT {}, COUNT(*) AS n FROM people, q GROUP BY {}",
    "SELECT COUNT(*) AS n FROM people AS {}", "SELECT COUNT(*) AS n FROM people LIMIT {}",
    "SELECT COUNT(*) AS n FROM people JOIN (VALUES (1)) AS {}({}) ON true",
    "SELECT COUNT(*) AS n FROM people JOIN bands USING ({})",
    "SELECT COUNT(*) AS n FROM people JOIN bands AS b({}) ON age = b.{}",
    "SELECT COUNT(*) AS n FROM people {} JOIN bands ON age = lo",
    "SELECT age, COUNT(*) AS n, lag(COUNT(*), {}) OVER w AS l FROM people GROUP BY age "
    "WINDOW w AS (ORDER BY age)",
    "SELECT age, COUNT(*) AS n, rank() OVER {} AS r FROM people GROUP BY age "
    "WINDOW {} AS (ORDER BY age)",
    "SELECT age, COUNT(*) AS n FROM people GROUP BY {} (age)",
    "SELECT age, COUNT(*) AS n FROM people GROUP BY age ORDER BY n NULLS {}",
    "SELECT COUNT(*) AS n FROM people TABLESAMPLE {}",
    "SELECT n::{} AS x FROM (SELECT COUNT(*) AS n FROM people) q",
    "SELECT q.n FROM (SELECT age, COUNT(*) AS n FROM people GROUP BY age) AS {}",
    "SELECT {}.n FROM (SELECT COUNT(*) AS n FROM people) AS {}",
    "SELECT q.{} FROM (SELECT COUNT(*) AS {} FROM people) AS q",
    "SELECT sqrt({}) AS r FROM (SELECT COUNT(*) AS {} FROM people) AS q",
    "SELECT string_agg(n, {}) AS s FROM (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) q",
    "SELECT QUANTILE_CONT(age, {}) AS n FROM people",
    "SELECT COUNT(*) FILTER (WHERE {}) AS n FROM people", "SELECT {} COUNT(*) AS n FROM people",
)  # fmt: skip


def statements(rng):
    """Yield statements with a text in a form of quotes at some place, in random order."""
    shapes = []
    for frame in FRAMES:
        if "{P}" in frame:
            shapes += [frame.replace("{P}", predicate) for predicate in PREDICATES]
        else:
            shapes.append(frame)
    every = list(itertools.product(shapes, (*FORMS, *4 * FORMS[:2]), TEXTS))
    rng.shuffle(every)
    for shape, form, text in every:
        yield shape.replace("{}", form.format(text))


def outside(sql):
    """Return the parts of a text, as DuckDB cuts it, that show the mark outside of quotes."""
    data = sql.encode()  # offsets are those of bytes
    starts = [at for at, _ in duckdb.tokenize(sql)]
    parts = [data[a:b].decode() for a, b in itertools.pairwise([*starts, len(data)])]
    return [part for part in parts if MARK in part.lower() and part[0] not in "'\""]


class Listener:
    """Takes note of all texts that a sandbox is given."""

    def __init__(self, monkeypatch):
        self.heard = []
        real = Sandbox._ask

        def listen(sandbox, kind, *, query="", **rest):
            self.heard.append(query)
            return real(sandbox, kind, query=query, **rest)

        monkeypatch.setattr(Sandbox, "_ask", listen)

    def marked(self):
        return [sql for sql in self.heard if MARK in sql.lower()]

    def check(self):
        assert [sql for sql in self.heard if outside(sql)] == []


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def attack(monkeypatch, con, seed, count):
    listener = Listener(monkeypatch)
    accepted = 0
    for sql in itertools.islice(statements(random.Random(seed)), count):  # noqa: S311
        listener.heard.clear()
        try:
            reference.compile_one(con, sql)
            accepted += 1
        except DpsqlError:
            pass
        assert [text for text in listener.heard if outside(text)] == [], sql
    return accepted


def test_texts_of_the_analyst_stay_in_quotes(monkeypatch, con):
    assert attack(monkeypatch, con, 0, 400) > 25


@pytest.mark.long
def test_all_texts_of_the_analyst_stay_in_quotes(monkeypatch, con):
    assert attack(monkeypatch, con, 1, 40_000) > 1_000


JOINED = "SELECT v, COUNT(*) AS n FROM people JOIN (VALUES (1)) AS {} ON true GROUP BY v"
WAYS_OUT = [
    (JOINED, "$$b(x), (select version() as v) as c$$"),
    (JOINED, "$zq$b(x), (select version() as v) as c$zq$"),
    (JOINED, "E'b(x), (select version() as v) as c'"),
    (
        "SELECT EXTRACT({} FROM joined) AS k, COUNT(*) AS n FROM people GROUP BY 1",
        "\"YEAR FROM DATE '2020-01-01') || version() || EXTRACT(YEAR\"",
    ),
    (
        "SELECT {} AS k, COUNT(*) AS n FROM people GROUP BY 1",
        'CAST(age AS DECIMAL("9,2)) || (version()) || CAST(1 AS DECIMAL(9",2))',
    ),
    ("SELECT age, COUNT(*), rank() OVER {} FROM people GROUP BY age", "$$w, error(version())$$"),
]


@pytest.mark.parametrize(("frame", "text"), WAYS_OUT, ids=[text for _, text in WAYS_OUT])
def test_known_ways_out_are_refused(monkeypatch, con, frame, text):
    listener = Listener(monkeypatch)
    sql = frame.format(text)
    with pytest.raises(SqlError) as caught:
        reference.compile_one(con, sql)
    assert sql[caught.value.span.start : caught.value.span.end] == text
    assert caught.value.hint
    assert listener.heard == []


# ── texts of the owner ─────────────────────────────────────────────────────────────────────────

HOSTILE = ("zq'); DROP TABLE x; --", 'zq" || version() || "', "zq$$ || error('zq') || $$", "zq\\'",
           "zq/*", "*/zq", "zq', 'zq", "zq;\n--", "E'zq'", "zq😀'", "zq''", 'zq""')  # fmt: skip


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def named(text):
    return '"' + text.replace('"', '""') + '"'


class Spoken:
    """A connection that takes note of what it is asked."""

    def __init__(self, con):
        self._con = con
        self.seen = []

    def execute(self, sql, parameters=()):
        self.seen.append(sql)
        return self._con.execute(sql, list(parameters))

    def sql(self, sql):
        self.seen.append(sql)
        return self._con.sql(sql)

    def __getattr__(self, name):
        return getattr(self._con, name)


def owned(labels, table, column):
    """A database whose labels, names, comments and public table have hostile texts."""
    con = duckdb.connect()
    listed = ", ".join(map(quoted, labels))
    checked = named("k" + column)
    con.execute(
        f"CREATE TABLE {named(table)} ({named(column)} ENUM({listed}), {checked} VARCHAR NOT NULL "
        f"CHECK ({checked} IN ({listed})), age INTEGER CHECK (age BETWEEN 0 AND 9))"
    )
    for label in labels:
        row = [label, label, 3]
        con.execute(f"INSERT INTO {named(table)} VALUES (?, ?, ?)", row)
    con.execute(f"COMMENT ON TABLE {named(table)} IS {quoted(labels[0])}")
    con.execute(f"COMMENT ON COLUMN {named(table)}.{named(column)} IS {quoted(labels[0])}")
    return con


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_the_owner_stay_in_quotes(monkeypatch, text):
    listener = Listener(monkeypatch)
    labels = [text, f"x{text}", "plain"]
    con = Spoken(owned(labels, f"t{text}", f"c{text}"))
    public = {f"p{text}": pl.DataFrame({f"c{text}": labels, f"w{text}": [text, "a", "b"]})}
    key, table, alias = named(f"c{text}"), named(f"t{text}"), "a" + text.replace("\n", " ")
    session = dpsql.Session(con, budget=dpsql.Budget(rho=100), public=public)
    answers = [
        session.query(
            f"SELECT {key} AS {named(alias)}, COUNT(*) AS n FROM {table} GROUP BY {key}",
            budget=dpsql.Budget(rho=10),
        ),
        session.query(
            f"SELECT b.{named('w' + text)} AS w, COUNT(*) AS n FROM {table} p JOIN "
            f"{named('p' + text)} b ON p.{named('kc' + text)} = b.{key} "
            f"WHERE p.{key} <> {quoted('x' + text)} GROUP BY w HAVING COUNT(*) > -9",
            budget=dpsql.Budget(rho=10),
        ),
    ]
    assert answers[0][alias].to_list() == [*labels, None]
    assert set(answers[1]["w"]) <= {text, "a", "b"}
    assert listener.marked()
    listener.check()
    assert [sql for sql in con.seen if outside(sql)] == []


def test_texts_of_a_schema_file_stay_in_quotes(monkeypatch, tmp_path):
    listener = Listener(monkeypatch)
    for text in HOSTILE:
        con = duckdb.connect()
        con.execute(f"CREATE TABLE {named('t' + text)} ({named('c' + text)} VARCHAR)")
        con.execute(f"INSERT INTO {named('t' + text)} VALUES (?), ('b')", [text])
        spoken = Spoken(con)
        labels = [text, "b"]
        schema = dpsql.Schema({f"t{text}": {f"c{text}": dpsql.Domain.labels(labels)}})
        frame = dpsql.query(
            spoken,
            f"SELECT {named('c' + text)} AS k, COUNT(*) AS n FROM {named('t' + text)} GROUP BY k",
            schema=schema,
            budget=dpsql.Budget(rho=1e6),
        )
        assert labels == frame["k"].to_list()[:2]
        assert [sql for sql in spoken.seen if outside(sql)] == []
    listener.check()
