"""Mutated statements: only dpsql errors escape, and no text of theirs reaches the database."""

import itertools
import random
import re
import time

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError, InternalError, SqlError
from dpsql.sql.text.limits import tokenize
from tests.sql import reference
from tests.sql.test_accepted import STATEMENTS
from tests.sql.test_refused import REFUSED

SECONDS = 8
CANARIES = ("zanzibar", "'zanzibar'", '"zanzibar"', "70707070", "zanzibar.zanzibar", "AS zanzibar")
_WORDS = """
    SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET DISTINCT ALL UNION INTERSECT EXCEPT WITH
    AS JOIN LEFT SEMI ANTI CROSS LATERAL ON USING OVER PARTITION ROWS RANGE BETWEEN PRECEDING AND
    OR NOT IN IS NULL TRUE CASE WHEN THEN ELSE END FILTER ROLLUP CUBE GROUPING SETS VALUES EXISTS
    CAST INTERVAL DATE DESC NULLS FIRST QUALIFY WINDOW people bands regions age sex hours COUNT(*)
    SUM(age) AVG(wage) MEDIAN(hours) MAX(age) random() ( ) , ; * = < > + - / || :: . ? $1 [ ] { }
    @ # ! % ^ & 0 1 -1 1e308 0.5 'Male' '' "" /* -- /*+ \\ rowid duckdb_tables() read_csv('x')
    unnest([1,2])
"""
WORDS = _WORDS.split()


def pieces(sql):
    """Cut a statement into words, with the spaces behind them."""
    tokens = tokenize(sql)
    starts = [token.start for token in tokens] + [len(sql)]
    return [sql[a:b] for a, b in itertools.pairwise(starts)]


TEXTS = [sql for _, sql in STATEMENTS] + [entry[3] for entry in REFUSED]


def cut(texts):
    found = []
    for sql in texts:
        try:
            found.append(pieces(sql))
        except SqlError:
            continue
    return found


def mutated(rng, corpus):
    words = list(rng.choice(corpus))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, to = rng.randrange(len(words) + 1), rng.randrange(len(words) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(words) and to < len(words):
            words[at], words[to] = words[to], words[at]
        elif kind == 1:
            del words[at : at + rng.randint(1, 3)]
        elif kind == 2:
            words[at:at] = words[at : at + rng.randint(1, 6)]
        elif kind == 3:
            other = rng.choice(corpus)
            words = words[:at] + other[rng.randrange(len(other)) :]
        elif kind == 4:
            words.insert(at, rng.choice(WORDS) + " ")
        elif kind == 5 and at < len(words):
            words[at] = rng.choice(rng.choice(corpus))
        else:
            words.insert(at, rng.choice(CANARIES) + " ")
        if not words:
            words = ["SELECT "]
    return " ".join(words) if rng.random() < 0.5 else "".join(words)


class Recorder:
    """A connection that takes note of what it is asked."""

    def __init__(self, con):
        self._con = con
        self.seen = []

    def execute(self, sql, parameters=()):
        self.seen.append((sql, tuple(parameters)))
        return self._con.execute(sql, list(parameters))

    def __getattr__(self, name):
        return getattr(self._con, name)


def compile_text(con, sql):
    """Return the error, or None."""
    try:
        reference.compile_one(con, sql)
    except DpsqlError as error:
        return error
    return None


def fuzz(seed, count, seconds):
    """Compile mutated statements; return those that are accepted, and how many were tried."""
    rng, corpus = random.Random(seed), cut(TEXTS)  # noqa: S311
    recorder = Recorder(reference.connect())
    accepted, tried, until = [], 0, time.monotonic() + seconds
    while tried < count and time.monotonic() < until:
        tried += 1
        sql = mutated(rng, corpus)
        try:
            error = compile_text(recorder, sql)
        except Exception as escaped:
            raise AssertionError(f"{escaped!r} escaped: {sql}") from escaped
        assert not isinstance(error, InternalError), sql
        if error is None:
            accepted.append(sql)
            continue
        assert error.hint, sql
        if isinstance(error, SqlError) and error.span is not None and error.sql is not None:
            assert 0 <= error.span.start <= error.span.end <= len(error.sql), sql
        str(error).encode()
    # Names of tables are looked up in the catalog, and public tables are read; nothing else.
    for statement, _ in recorder.seen:
        public = re.search(r'FROM "(bands|regions|marks)"$', statement)
        assert public or "duckdb_" in statement or "current_database()" in statement
        assert "zanzibar" not in statement
        assert "70707070" not in statement
    return accepted, tried


def release_some(accepted, seconds):
    """Release statements; the private connection runs what the library builds, and only that."""
    con = Recorder(reference.connect())
    until, done = time.monotonic() + seconds, 0
    for sql in accepted:
        if time.monotonic() > until:
            break
        done += 1
        try:
            session = dpsql.Session(con, public=reference.PUBLIC)
            release = session.release(sql, budget=dpsql.Budget(rho=0.01))
            release["query"].height  # noqa: B018
            release.columns("query").height  # noqa: B018
        except DpsqlError as error:
            hint = error.hint
        except Exception as escaped:
            raise AssertionError(f"{escaped!r} escaped: {sql}") from escaped
        else:
            hint = "none needed"
        assert hint, sql
    aliases = re.compile(
        r"zanzibar|70707070|\bdecade\b|\bgrown\b|'Male'|'hs'|generate_series", re.I
    )
    for statement, parameters in con.seen:
        assert not aliases.search(statement), statement
        assert not any("70707070" in str(p) for p in parameters)
    return done


def test_mutated_statements(capfd, caplog):
    accepted, tried = fuzz(11, 200, SECONDS)
    assert tried > 20
    assert release_some(accepted[:12], SECONDS) or not accepted
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_many_mutated_statements(seed, capfd, caplog):
    accepted, tried = fuzz(100 + seed, 10_000, 120)
    assert tried > 500
    release_some(accepted, 120)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_the_private_connection_runs_no_text_of_the_analyst():
    """Every accepted statement: no alias, literal or function of it is in what the table runs."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (a INTEGER CHECK (a BETWEEN 0 AND 5), b BOOLEAN NOT NULL)"
    ).fetchall()
    con.execute("INSERT INTO t VALUES (1, true), (2, false)").fetchall()
    recorder = Recorder(con)
    session = dpsql.Session(recorder)
    sql = (
        "WITH zanzibar AS (SELECT 4321 AS v) SELECT a + 4321 AS zanzibar, COUNT(*) FILTER (WHERE "
        "a * 8765 > 3 AND sqrt(a) < 7) AS n, 'zanzibar' AS x FROM t JOIN zanzibar z ON a < v "
        "WHERE b OR a IN (1, 77) GROUP BY 1 HAVING n > -1e6 ORDER BY n LIMIT 65432"
    )
    session.release({"zanzibar": sql}, budget=dpsql.Budget(rho=1))
    text = "\n".join(f"{statement} {parameters}" for statement, parameters in recorder.seen)
    for word in ("zanzibar", "4321", "8765", "77", "65432", "sqrt", "FILTER", "HAVING", "JOIN"):
        assert word not in text, word
    assert "t" in text
