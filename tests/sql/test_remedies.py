"""What a refusal could say to type is tried first: only what is answered is said."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.errors import Span, SqlError, SqlParseError
from dpsql.hints import Hint, first_that_works, instead, remedies_of, write
from dpsql.sql.frontend import MOST_SECONDS, MOST_TRIES, first_answered
from tests.sql import reference


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def refused(choices, answered=(), seconds=0.0):
    """Return what is proposed, and what was tried, where these statements are answered.

    Each try takes some CPU seconds.
    """
    tried = []

    def compiles(sql):
        tried.append(sql)
        if sql not in answered:
            raise SqlError("no")

    hint = first_that_works(choices, "think.")
    error = SqlError("no", sql="SELECT a FROM t", span=Span(7, 8), hint=hint)
    return first_answered(error, compiles, lambda: len(tried) * seconds), tried


def test_the_first_that_works_is_proposed():
    choices = [write("b"), write("c"), write("d")]
    hint, tried = refused(choices, {"SELECT c FROM t", "SELECT d FROM t"})
    assert hint == "write c."
    assert tried == ["SELECT b FROM t", "SELECT c FROM t"]
    assert [remedy.text for remedy in remedies_of(hint)] == ["c"]


def test_what_works_nowhere_is_not_proposed():
    hint, tried = refused([write("b"), write("c", of=(0, 15))])
    assert hint == "think."
    assert tried == ["SELECT b FROM t", "c"]
    assert not remedies_of(hint)


def test_few_are_tried():
    hint, tried = refused([write(f"c{i}") for i in range(100)])
    assert hint == "think."
    assert len(tried) == MOST_TRIES


def test_no_more_is_tried_after_half_a_second():
    hint, tried = refused([write(f"c{i}") for i in range(100)], seconds=MOST_SECONDS / 2)
    assert hint == "think."
    assert len(tried) == 3


def test_what_can_be_read_is_a_step_forward():
    error = SqlParseError("no", sql="(", span=Span(0, 1), hint=first_that_works([write("a")], "…"))

    def compiles(sql):
        raise SqlError("something else")

    assert first_answered(error, compiles) == "write a."


def test_a_hint_without_choices_stays():
    error = SqlError("no", sql="SELECT a", span=Span(7, 8), hint="use " + instead("b") + ".")
    assert first_answered(error, pytest.fail) is error.hint
    assert first_answered(SqlError("no", hint=Hint("think.")), pytest.fail) == "think."


def test_of_several_statements_the_refused_one_alone_is_tried(con):
    script = {"good": "SELECT COUNT(*) FROM people", "bad": "SELECT COUNT(*) FROM people WHERE sex"}
    with pytest.raises(SqlError) as error:
        dpsql.Session(con).plan(script, budget=dpsql.Budget(rho=1), weights={"good": 2})
    assert error.value.statement == "bad"
    assert (error.value.hint or "").startswith("write sex IS NOT NULL in place of sex.")


GROUPED = "SELECT sex, COUNT(*) AS n FROM people"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            f"{GROUPED} WHERE age > 30 AND COUNT(*) > 3 AND rich GROUP BY sex",
            "write WHERE age > 30 AND rich GROUP BY sex HAVING COUNT(*) > 3 in place of ",
        ),
        (
            f"{GROUPED} WHERE n > 3 GROUP BY sex HAVING SUM(age) > 1",
            "write GROUP BY sex HAVING SUM(age) > 1 AND n > 3 in place of ",
        ),
        (
            f"WITH a AS ({GROUPED} WHERE n > 3 GROUP BY sex) SELECT n FROM a",
            "write GROUP BY sex HAVING n > 3 in place of WHERE n > 3 GROUP BY sex.",
        ),
        (
            "SELECT sex COUNT(*) FROM people GROUP BY sex",
            "write sex, COUNT( in place of sex COUNT(.",
        ),
        ("SELECT COUNT(*) FORM people", "write FROM in place of FORM."),
        ("SELECT COUNT(*) FROM people WHERE age > 3)", "write 3 in place of 3)."),
        ("SELECT sex, COUNT(*) FROM people GROUP sex", "write GROUP BY in place of GROUP."),
        ("SELECT COUNT(*) FROM people WHERE joined = 'a'", "write joined = TRY_CAST('a' AS DATE)"),
        (f"{GROUPED} WHERE (n > 3 GROUP BY sex", "write 3) in place of 3."),
        ("SELECT COUNT(*) FROM people WHERE 1 <= age < 5", "write 1 <= age AND age < 5."),
        ("SELECT COUNT(*) FROM people WHERE age + 'x' > 4", "write age + TRY_CAST('x' AS INTEGER)"),
        ('SELECT COUNT(*) FROM people WHERE edu = "hs', 'write "hs" in place of "hs.'),
        ("SELECT COUNT(*) FROM people WHERE list_contains([20, 30], age)", "write age IN (20, 30)"),
    ],
)
def test_what_is_proposed_is_made_of_the_statement(con, sql, told):
    with pytest.raises(SqlError) as error:
        dpsql.Session(con).plan(sql, budget=dpsql.Budget(rho=1))
    assert (error.value.hint or "").startswith(told)
