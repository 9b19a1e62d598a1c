"""Names that the library gives in its own SQL, as those of tables, columns, aliases and CTEs.

Those that begin with two underscores can't be written in a statement; tables may have them all the
same, and then columns get to others by their places. All others can be written. Which ones there
are is read from the library's files, so that new ones are tried as well.
"""

import random
import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.schema.names import RESERVED, as_called, aside, folded
from dpsql.sql.binding.core import Role
from tests.sql import reference

FILES = sorted((Path(dpsql.__file__).parent / "sql").rglob("*.py"))
TEXTS = [file.read_text() for file in FILES]
STEM = re.compile(r"\b__([a-z]+)(?:_?\{|[\"' ,.)])")
OWN = sorted({*Role, *(stem for text in TEXTS for stem in STEM.findall(text))})
RESERVED_NAMES = [f"__{stem}{end}" for stem in OWN for end in ("", "0", "1", "2", "0_0", "0_row")]
"""All in one table, so that each of them is beside all others."""
PLAIN_NAMES = sorted(
    {name for text in TEXTS for name in re.findall(r"\b(?:AS|FROM|JOIN) ([a-z]+)\b", text)}
    | {f"{letter}{i}" for letter in "bcdekmnpsuvwx" for i in range(2)}
    | {"cell", "ord", "row", "code", "value", "upper", "pos", "low", "high", "peers"}
)
"""Names of tables, columns and CTEs in the sandbox and in scans, and the like."""

CREATED = """
CREATE TABLE c (id INTEGER PRIMARY KEY, {checked} g VARCHAR NOT NULL CHECK (g IN ('a', 'b')));
CREATE TABLE t (x INTEGER, {further} g VARCHAR NOT NULL CHECK (g IN ('a', 'b', 'd')),
    k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 4), y INTEGER,
    person INTEGER NOT NULL REFERENCES c(id));
CREATE TABLE pub (k INTEGER, {further} label VARCHAR, lim INTEGER);
INSERT INTO c BY NAME SELECT nr AS id, CASE WHEN nr % 3 = 0 THEN 'a' ELSE 'b' END AS g
    FROM range(20) made(nr);
INSERT INTO t BY NAME SELECT CASE WHEN nr % 9 = 0 THEN NULL ELSE nr * 70001 - 50000 END AS x,
    {values} ['a', 'b', 'd'][1 + nr % 3] AS g, nr % 5 AS k, nr % 11 - 3 AS y, nr // 5 AS person
    FROM range(100) made(nr);
INSERT INTO pub BY NAME SELECT {values} k, label, lim FROM (VALUES (77, 0, 'u', 1), (2, 1, 'v', 2),
    (0, 2, 'u', 0), (3, 2, 'w', 3), (1, 7, 'v', 1)) made(nr, k, label, lim);
COMMENT ON TABLE c IS 'dpsql: {{"unit": "id", "max_rows": 1}}';
COMMENT ON COLUMN t.x IS
    'dpsql: {{"integers": [0, 40000000], "nullable": true, "outside": "drop"}}';
COMMENT ON COLUMN t.y IS 'dpsql: {{"number": [-3, 7]}}';
COMMENT ON TABLE t IS 'dpsql: {{"unit": "c.id", "max_rows": 8}}';
"""
STATEMENTS = """
SELECT g, SUM(y) AS n, AVG(y) AS m FROM t WHERE y > 1 GROUP BY g;
SELECT x > 500000 AS f, COUNT(*) AS n, COUNT(x) AS c FROM t GROUP BY 1;
SELECT g, COUNT(*) AS n FROM t WHERE EXISTS (
    SELECT 1 FROM pub WHERE pub.k = t.k AND lim > 1 AND t.g <> label) GROUP BY g;
SELECT (SELECT MAX(lim) FROM pub p WHERE p.k = t.k) AS b, COUNT(*) AS n FROM t GROUP BY 1;
SELECT g, COUNT(*) AS n FROM t WHERE k IN (SELECT p.k FROM pub p WHERE p.lim <= t.k) GROUP BY g;
SELECT label, COUNT(*) AS n FROM t JOIN pub ON t.k <= pub.lim AND EXISTS (
    SELECT 1 FROM pub q WHERE q.k = pub.k AND q.lim <> t.k) GROUP BY label;
SELECT label, COUNT(t.k) AS n, SUM(t.k) AS s FROM pub LEFT JOIN t ON t.k = pub.k GROUP BY label;
SELECT k, COUNT(*) AS n, (SELECT MAX(lim) FROM pub WHERE pub.k = t.k) AS m FROM t GROUP BY k
    HAVING COUNT(*) > (SELECT MAX(lim) FROM pub WHERE pub.k = t.k);
SELECT q.k, q.n * p.lim AS z, (SELECT SUM(lim) FROM pub WHERE pub.k = q.k) AS s
    FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) q JOIN pub p ON p.k = q.k WHERE label <> 'u';
WITH a AS (SELECT k, COUNT(*) AS n FROM t GROUP BY k), b AS (SELECT * FROM pub)
    SELECT k, n + lim AS z FROM a JOIN b USING (k) WHERE k < 2;
WITH b AS (SELECT * FROM pub) SELECT g, COUNT(*) AS n FROM t
    WHERE EXISTS (SELECT 1 FROM b WHERE b.k = t.k) GROUP BY g;
SELECT g, COUNT(*) AS n FROM (SELECT * FROM t WHERE y > 0) s WHERE x > 100000 GROUP BY g;
SELECT g, MEDIAN(k) AS m, SUM(y) / COUNT(*) AS s FROM t GROUP BY g;
SELECT c.g, COUNT(*) AS n FROM c WHERE EXISTS (
    SELECT 1 FROM t WHERE t.person = c.id AND t.k > 1 AND t.g = c.g) GROUP BY c.g;
SELECT LEAST((SELECT COUNT(*) FROM t WHERE t.person = c.id AND t.y > 0), 4) AS m, COUNT(*) AS n
    FROM c GROUP BY 1;
SELECT c.g, t.g AS h, COUNT(*) AS n FROM t JOIN c ON t.person = c.id GROUP BY 1, 2;
SELECT LEAST(p, 3) AS p, COUNT(*) AS n FROM (
    SELECT *, row_number() OVER (PARTITION BY person ORDER BY x) AS p FROM t) GROUP BY 1;
SELECT m, COUNT(*) AS n FROM (
    SELECT person, LEAST(COUNT(*), 6) AS m FROM t GROUP BY person) GROUP BY m;
SELECT k, SUM(COUNT(*)) OVER (ORDER BY k) AS n FROM t GROUP BY k;
SELECT s, COUNT(*) AS n FROM (SELECT g AS s FROM t UNION ALL SELECT g FROM t WHERE k > 2)
    GROUP BY s;
PIVOT t ON g IN ('a', 'b') USING COUNT(*) GROUP BY k;
"""
BY_PLACE = """
SELECT b::INTEGER > 50 AS q, COUNT(*) AS n FROM (SELECT * FROM t) AS s(a, b)
    WHERE a > 900000 OR a IS NULL GROUP BY 1;
WITH s(a, b, c, d) AS (SELECT * FROM t) SELECT COUNT(*) AS n FROM s
    WHERE d::INTEGER > 50 AND NOT a > 900000;
SELECT g, COUNT(*) AS n FROM t WHERE EXISTS (SELECT 1 FROM pub AS p(a, b, c)
    WHERE t.k = p.a AND p.c::INTEGER <> t.k) GROUP BY g;
SELECT p.b, COUNT(*) AS n FROM t JOIN (SELECT * FROM pub) AS p(a, b) ON t.k = p.a GROUP BY 1;
SELECT q.n, p.* FROM (SELECT k AS kk, COUNT(*) AS n FROM t GROUP BY 1) q JOIN pub p ON p.k = q.kk;
"""
"""Columns of reserved names are first behind `x` and `k`; others call them otherwise."""


def connect(names=(), type_="INTEGER"):
    distinct = list({folded(name): name for name in names}.values())
    con = duckdb.connect()
    con.execute(
        CREATED.format(
            further="".join(f'"{name}" {type_}, ' for name in distinct),
            checked="".join(f'"{n}" INTEGER CHECK ("{n}" BETWEEN 0 AND 9), ' for n in distinct[:3]),
            values="".join(f'(100 - nr)::{type_} AS "{name}", ' for name in distinct),
        )
    )
    return con


def different(con, script, part=slice(None), **given):
    session = dpsql.Session(con, **given)
    asked = [sql.strip() for sql in script.split(";") if sql.strip()][part]
    assert asked
    return {sql: found for sql in asked if (found := reference.differences(con, sql, session))}


def test_names_are_found():
    assert {"a", "w", "s", "r", "k", "e", "row", "cell", "left", "right"} <= set(OWN)
    assert {"j", "p", "x", "g", "o"} <= set(PLAIN_NAMES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("third", range(3))
@pytest.mark.parametrize("type_", ["INTEGER", "VARCHAR"])
def test_reserved_names_may_be_those_of_columns(type_, third):
    con = connect(RESERVED_NAMES, type_)
    assert different(con, STATEMENTS + BY_PLACE, slice(third, None, 3), public=["pub"]) == {}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(72))
def test_other_names_may_be_those_of_anything(seed):
    """Seeds below 24 are for a third of the statements, those below 48 for another one."""
    rng = random.Random(seed)  # noqa: S311
    called = [
        "x",
        "g",
        "k",
        "y",
        "person",
        "label",
        "lim",
        "p",
        "q",
        "n",
        "m",
        "s",
        "b",
        "a",
        "z",
        "f",
        "h",
        "c",
        "t",
        "pub",
    ]
    names = dict(zip(called, rng.sample(PLAIN_NAMES, len(called)), strict=True))
    words = re.compile(r"(?<![\w'\"])(" + "|".join(called) + r")(?![\w'\"])")

    def changed(text):
        return words.sub(lambda word: f'"{names[word[0]]}"', text)

    con = duckdb.connect()
    created = CREATED.format(further="", checked="", values="")
    con.execute(changed(created).replace('"c.id"', f'"{names["c"]}.id"'))
    third = slice(seed // 24, None, 3)
    assert different(con, changed(STATEMENTS), third, public=[names["pub"]]) == {}


def test_names_are_put_aside_and_back():
    names = ["__a0", "\x1f__a0", "\x1f\x1f__a0", "a", "_a", "\x1fa", "__", "É__"]
    put = [aside(name) for name in names]
    assert len(set(put)) == len(names)
    assert not any(name.startswith(RESERVED) for name in put)
    assert [as_called(name) for name in put] == names


def test_frames_keep_the_names_of_their_columns():
    con = connect()
    frame = pl.DataFrame({"k": [0, 1], "__a0": [3, 4], "\x1f__a0": [5, 6]})
    sql = "SELECT * FROM (SELECT k AS kk, COUNT(*) AS n FROM t GROUP BY 1) q JOIN pub ON k = kk"
    release = dpsql.Session(con, public={"pub": frame}).release(sql, budget=reference.PRECISE)
    assert release["query"].select("k", "__a0", "\x1f__a0").sort("k").equals(frame)


def test_a_reserved_name_is_refused_and_a_view_gives_another():
    con = connect(["__s0"])
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.UnsupportedSqlError, match="begins with __") as caught:
        session.release("SELECT COUNT(*) AS n FROM t WHERE __s0 > 50", budget=reference.PRECISE)
    assert "CREATE VIEW" in caught.value.hint
    con.execute("CREATE VIEW v AS SELECT x, __s0 AS h, g, person FROM t")
    sql = "SELECT g, COUNT(*) AS n FROM v WHERE h > 50 AND x > 900000 GROUP BY g"
    assert different(con, sql) == {}
