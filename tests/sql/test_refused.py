"""A corpus of queries that must be refused: which error, and which words it marks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpsql.errors
from dpsql.errors import SqlError, UnsupportedSqlError
from tests.sql import reference

_ENTRY = re.compile(r"^-- error: (\w+)\n-- span: (.*)\n", re.MULTILINE)


def corpus():
    entries = []
    for path in sorted((reference.FIXTURES / "refused").glob("*.sql")):
        parts = _ENTRY.split(path.read_text())[1:]
        entries += [
            (path.stem, kind, span.replace("\\n", "\n"), sql.strip("\n"))
            for kind, span, sql in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        ]
    return entries


REFUSED = corpus()


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def check(con, kind, span, sql):
    try:
        reference.compile_one(con, sql)
    except SqlError as error:
        found = error
    else:
        raise AssertionError(f"accepted: {sql}")
    if type(found) is not getattr(dpsql.errors, kind):
        raise AssertionError(f"{type(found)} in place of {kind}: {sql}")
    if found.sql != sql or found.span is None or sql[found.span.start : found.span.end] != span:
        raise AssertionError(f"another span: {found}")
    if not found.hint or found.message not in str(found):
        raise AssertionError(f"no hint: {found}")
    strange = unwritten(found)
    if strange:
        raise AssertionError(f"nobody wrote {strange}: {found}")


_OWN_NAMES = re.compile(r"\b__\w+|\b[a-z]\d{3,}\b")
_FUNCTIONS = re.compile(r"\b([a-z]\w*)(?:\(| (?:can't run|needs a constant)\b)")
_CAPITALS = re.compile(r"\b[A-Z][A-Z_]+\b")
_NEEDED = {"SQL", "SELECT", "FROM", "BY", "VARCHAR"}
"""What a refusal may say is lacking, or what something is."""


def unwritten(error):
    """Return names, functions and clauses of a refusal that aren't in its statement.

    What DuckDB says is its own, but for names that nobody gave.
    """
    own = set(_OWN_NAMES.findall(f"{error.message} {error.hint}"))
    message = "" if error.message.startswith("DuckDB can't") else error.message
    message = re.sub(r"'[^']*'", "", message)
    words = {*_FUNCTIONS.findall(message), *_CAPITALS.findall(message)} - _NEEDED
    written = error.sql.upper()
    return sorted(name for name in own | words if name.upper() not in written)


def test_enough_queries():
    assert len(REFUSED) >= 200


@pytest.mark.parametrize(
    ("kind", "span", "sql"), [e[1:] for e in REFUSED], ids=[f"{e[0]}: {e[3]}"[:90] for e in REFUSED]
)
def test_refused(con, kind, span, sql, caplog):
    check(con, kind, span, sql)
    assert not caplog.records


def test_refused_without_asserts():
    code = (
        "from tests.sql import test_refused as t\n"
        "con = t.reference.connect()\n"
        "for _, kind, span, sql in t.REFUSED[::9]: t.check(con, kind, span, sql)\n"
        "print(len(t.REFUSED[::9]))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(len(REFUSED[::9])), done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT sex, COUNT(*) FROM people WHERE sex = 'Femal' GROUP BY sex", "mean 'Female'?"),
        ("SELECT COUNT(*) FROM people WHERE edu = 'zz'", "'hs', 'ba', 'ma', 'phd''s', 'medium'."),
        ("SELECT COUNT(*) FROM people WHERE ages > 3", "did you mean age?"),
        ("SELECT COUNT(*) FROM peopel", "did you mean people?"),
        ("SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM peopel)", "mean people?"),
        ("SELECT MIN(age, 2) FROM people", "MIN(age) or MAX(age)"),
        ("SELECT MAX(age, 2) FROM people", "MIN(age) or MAX(age)"),
        ("SELECT ARG_MAX(age, hours) FROM people", "SELECT age, COUNT(*) … GROUP BY age"),
        ("SELECT MODE(age) FROM people", "SELECT age, COUNT(*) … GROUP BY age"),
        ("SELECT SUM(DISTINCT edu) FROM people", "SELECT edu, COUNT(*) … GROUP BY edu"),
        ("SELECT string_agg(edu, ',') FROM people", "SELECT edu, COUNT(*) … GROUP BY edu"),
        ("SELECT ANY_VALUE(edu) FROM people", "SELECT edu, COUNT(*) … GROUP BY edu"),
        ("SELECT BOOL_OR(rich) FROM people", "COUNT_IF(rich) / COUNT(*)"),
        ("SELECT SKEWNESS(age) FROM people", "COVAR_POP, COVAR_SAMP, CORR"),
        ("SELECT SUM(COUNT(*)) FROM people GROUP BY sex", "SELECT SUM(n) AS m FROM (SELECT sex"),
        ("SELECT COUNT(*) FROM people WHERE COUNT(*) > 3", "HAVING"),
        ("SELECT QUANTILE_DISC(age, hours) FROM people", "QUANTILE_DISC(age, 0.25)"),
        ("SELECT MEDIAN(joined) FROM people", "QUANTILE_DISC"),
        ("SELECT name, COUNT(*) FROM people GROUP BY name", "dpsql.Domain.labels"),
        ("SELECT income, COUNT(*) FROM people GROUP BY income", "dpsql.Domain.decimals"),
        ("SELECT AVG(income) FROM people", "dpsql.Domain.number(0, 200000)"),
        ("SELECT born + 1 AS b, COUNT(*) FROM people GROUP BY b", "dpsql.Domain.dates"),
        ("SELECT sex, age, COUNT(*) FROM people GROUP BY sex", "GROUP BY sex, age"),
        ("SELECT COUNT(*) FROM people a JOIN people b USING (age)", "into a column of this one"),
        ("SELECT COUNT(*) FROM people RIGHT JOIN bands ON age = lo", "people, COUNT(age), or"),
        ("SELECT edu, COUNT(*) FROM people, regions GROUP BY edu", "people.edu"),
        ("SELECT lo, COUNT(*) FROM people, bands, bands b GROUP BY lo", "bands.lo"),
        ("SELECT sex, COUNT(*) FROM people GROUP BY sex FETCH FIRST ROW WITH TIES", "LIMIT 10"),
        (
            "SELECT sex, SUM(COUNT(*)) OVER (ORDER BY ALL) AS n FROM people GROUP BY sex",
            "ORDER BY 1, 2",
        ),
        ("SELECT COUNT(*) FROM people WHERE joined < CURRENT_DATE", "write its value into the SQL"),
        ("SELECT COUNT(*) FROM people WHERE age = ?", "write the value itself"),
    ],
)
def test_says_what_to_write_instead(con, sql, says):
    with pytest.raises(SqlError) as caught:
        reference.compile_one(con, sql)
    assert says in (caught.value.hint or "")


def test_message_shows_the_place(con):
    with pytest.raises(UnsupportedSqlError) as caught:
        reference.compile_one(
            con, "SELECT sex, COUNT(*)\nFROM people\nGROUP BY sex FETCH FIRST ROW WITH TIES"
        )
    assert str(caught.value) == (
        "This FETCH is not supported.\n"
        "  line 3: GROUP BY sex FETCH FIRST ROW WITH TIES\n"
        "                       ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "Hint: write FETCH FIRST 10 ROWS ONLY, or LIMIT 10."
    )
