"""Wrong arguments of public calls: each ends in an error of the library's own, before a charge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import duckdb
import polars as pl
import pytest

import dpsql

BUDGET = dpsql.Budget(rho=0.1)
SQL = "SELECT COUNT(*) AS n FROM people"
WRONG: tuple[Any, ...] = (True, float("nan"), "marginal", [1], pl.DataFrame({"a": [1]}))


def _con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE people (sex ENUM('F', 'M') NOT NULL, person INTEGER)").fetchall()
    con.execute("INSERT INTO people VALUES ('F', 1), ('M', 2)").fetchall()
    return con


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with _con() as con:
        yield con


def calls(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[Callable[..., Any], tuple, dict]]:
    session = dpsql.Session(con)
    budget = {"budget": BUDGET}
    return {
        "query": (dpsql.query, (con, SQL), budget),
        "plan": (dpsql.plan, (con, SQL), budget),
        "compare": (dpsql.compare, (con, SQL), {**budget, "mechanisms": ["gaussian"]}),
        "Session": (dpsql.Session, (con,), {}),
        "Session.plan": (session.plan, (SQL,), budget),
        "Session.release": (session.release, (SQL,), budget),
    }


def wrong_calls(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Give every public call with one argument replaced by everything that it can't be."""
    for name, (function, positional, given) in calls(con).items():
        parameters = inspect.signature(function).parameters
        right = dict(zip(parameters, positional, strict=False)) | given
        for parameter in parameters:
            for value in WRONG:
                if parameter in {"out", "ledger"} and isinstance(value, str):
                    continue  # a path
                if parameter == "progress" and callable(value):
                    continue  # an error of the caller's own function is the caller's
                shown = f"{name}({parameter}={type(value).__name__})"
                yield shown, partial(function, **{**right, parameter: value})


def test_no_wrong_argument_ends_in_an_error_of_another_kind(con):
    refused, odd = 0, []
    for shown, call in wrong_calls(con):
        try:
            call()
        except dpsql.DpsqlError as error:
            refused += error.hint is not None
        except Exception as error:
            odd.append((shown, repr(error)))
    assert not odd
    assert refused > 200


@pytest.mark.parametrize(
    ("call", "kind", "message", "hint"),
    [
        (lambda c: dpsql.query(c, SQL), dpsql.BudgetError, "query needs a budget",
         "budget=dpsql.Budget(epsilon=1, delta=1e-9)"),
        (lambda c: dpsql.query(c, SQL, epsilon=1), dpsql.ArgumentError, "query takes no epsilon",
         "budget=dpsql.Budget(epsilon=1, delta=1e-9)"),
        (lambda c: dpsql.Session(c, rho=0.5), dpsql.ArgumentError, "Session takes no rho",
         "budget=dpsql.Budget(rho=0.5)"),
        (lambda c: dpsql.plan(c, SQL, budgt=BUDGET), dpsql.ArgumentError, "takes no budgt",
         "did you mean budget?"),
        (lambda c: dpsql.query(c, budget=BUDGET), dpsql.ArgumentError, "needs statements",
         "query(con, statements, budget)"),
        (lambda c: dpsql.compare(c, SQL), dpsql.BudgetError, "needs a budget", "rho=0.5"),
        (lambda c: dpsql.Session(c).query(SQL), dpsql.BudgetError, "needs a budget", "mu=1"),
        (lambda c: dpsql.Session(c).release(SQL, BUDGET), dpsql.ArgumentError,
         "takes only statements without a name", "name the others: budget=…"),
        (lambda c: dpsql.Session(c).release(SQL, budget=BUDGET, weights="marginals"),
         dpsql.SqlError, "Weights map statements to numbers", 'weights={"query": 5}'),
        (lambda c: dpsql.Session(c, ledger=3), dpsql.ArgumentError, "ledger is not a path: 3",
         'for example ledger='),
        (lambda c: dpsql.Domain.integers(0), dpsql.ArgumentError, "needs high", "integers(low, h"),
        (lambda c: dpsql.Domain.labels(label=["a"]), dpsql.ArgumentError, "no label", "labels?"),
        (lambda c: dpsql.Budget(epsilon=1), dpsql.BudgetError, "needs both", "delta=1e-9"),
        (lambda c: dpsql.Schema(), dpsql.ArgumentError, "Schema needs tables", "Schema(tables)"),
        (lambda c: dpsql.Schema({}, unit={}), dpsql.ArgumentError, "no unit", "units?"),
    ],
)  # fmt: skip
def test_a_call_that_does_not_fit_says_what_to_pass(con, call, kind, message, hint):
    with pytest.raises(kind) as error:
        call(con)
    assert isinstance(error.value, dpsql.DpsqlError)
    assert message in error.value.message
    assert hint in error.value.hint
    assert error.value.__context__ is None or error.value.__suppress_context__


def test_frames_are_asked_like_everything_else():
    frame = pl.DataFrame({"sex": ["F"]}, schema={"sex": pl.Enum(["F", "M"])})
    with pytest.raises(dpsql.BudgetError, match="needs a budget"):
        frame.dp.sql("SELECT COUNT(*) FROM self")
    with pytest.raises(dpsql.ArgumentError, match="takes no epsilon"):
        frame.dp.sql("SELECT COUNT(*) FROM self", epsilon=1)
