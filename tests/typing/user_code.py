"""What a user may write, and the types that an editor shows for it. Read by mypy; never run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import assert_type

import duckdb
import numpy as np
import polars as pl

import dpsql
from dpsql.schema.domain import NumberBounds, UnknownBounds, UnknownKeys
from dpsql.workload import Family, Identity, Matrix, Prefix, Queries, Workload

con = duckdb.connect()
budget = dpsql.Budget(epsilon=1, delta=1e-9)
script = {"by_sex": "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"}


def budgets() -> None:
    assert_type(budget.rho, Fraction)
    assert_type(budget.mu, float)
    assert_type(budget.pure, bool)
    assert_type(budget.epsilon, Fraction | None)
    assert_type(dpsql.Budget(rho=0.5).epsilon_at(1e-9), float)


def one_shot() -> None:
    """One text gives a frame; several, or named ones, a release."""
    assert_type(dpsql.query(con, "SELECT COUNT(*) AS n FROM people", budget=budget), pl.DataFrame)
    assert_type(dpsql.query(con, "SELECT COUNT(*) AS n FROM people", budget=0), pl.DataFrame)
    assert_type(dpsql.query(con, script, budget=budget), dpsql.Release)
    assert_type(dpsql.query(con, [*script.values()], budget=budget), dpsql.Release)
    assert_type(dpsql.read_script("script.sql"), dict[str, str])


def plans() -> None:
    plan = assert_type(
        dpsql.plan(con, script, budget=budget, unit="person", max_rows=3), dpsql.Plan
    )
    assert_type(plan.expected_error(), pl.DataFrame)
    assert_type(plan.rmse, float)
    assert_type(plan.gap, float)
    assert_type(plan.privacy_cost, Fraction)
    assert_type(plan.explain(), str)
    assert_type(plan.warning, str | None)
    assert_type(dpsql.plan(con, script, targets={"by_sex": 10.0}), dpsql.Plan)
    comparison = assert_type(dpsql.compare(con, script, budget=budget), dpsql.Comparison)
    assert_type(comparison.frame, pl.DataFrame)


def sessions() -> None:
    session = dpsql.Session(con, budget=budget, ledger=Path("people.ledger"), unit=dpsql.EACH_ROW)
    assert_type(session.plan(script, budget=budget), dpsql.Plan)
    assert_type(session.query("SELECT 1", budget=budget), pl.DataFrame)
    assert_type(session.remaining, Fraction | None)
    assert_type(session.history, pl.DataFrame)
    assert_type(session.compare(script, budget=budget), dpsql.Comparison)
    release = assert_type(
        session.release(script, budget=budget, confidence=0.95, out="release"), dpsql.Release
    )
    assert_type(session.release(script, targets={"by_sex": 10}, at_most=budget), dpsql.Release)
    answers(release)


def answers(release: dpsql.Release) -> None:
    assert_type(release["by_sex"], pl.DataFrame)
    for name in release:
        assert_type(name, str)
    assert_type(release.batches("by_sex"), Iterator[pl.DataFrame])
    assert_type(release.query("SELECT COUNT(*) AS n FROM people", confidence=0.9), pl.DataFrame)
    assert_type(release.save("folder"), Path)
    assert_type(dpsql.Release.load("folder"), dpsql.Release)
    assert_type(release.charged, dpsql.Budget | None)
    assert_type(release.summary(), str)
    frames: Mapping[str, pl.DataFrame] = release
    assert_type(frames, Mapping[str, pl.DataFrame])


def schemas() -> None:
    ages = assert_type(dpsql.Domain.integers(0, 99, nullable=True), dpsql.Domain)
    assert_type(ages.size, int)
    schema = dpsql.Schema(
        {"people": {"age": ages, "sex": dpsql.Domain.labels(["f", "m"])}},
        units={"people": dpsql.Unit("person", 3)},
    )
    assert_type(
        schema["people"], Mapping[str, dpsql.Domain | NumberBounds | UnknownKeys | UnknownBounds]
    )
    amounts = assert_type(dpsql.Domain.number(0, "99.95"), NumberBounds)
    unknown = assert_type(dpsql.Domain.number(), UnknownBounds)
    towns = assert_type(dpsql.Domain.keys(other="elsewhere"), UnknownKeys)
    dpsql.Schema({"people": {"age": ages, "amount": amounts, "town": towns, "x": unknown}})
    assert_type(dpsql.Schema.load("schema.toml"), dpsql.Schema)
    dpsql.query(con, "SELECT COUNT(*) AS n FROM people", budget=budget, schema=schema)


def workloads() -> None:
    workload = Workload({"age": 100, "sex": 2})
    workload.add(["age", "sex"], [Prefix(), Identity()], weight=2.0, name="ages")
    workload.add(["age"], Matrix(np.eye(100)))
    assert_type(workload.families, tuple[Family, ...])
    assert_type(workload.families[0].blocks[0].queries, Queries)
    assert_type(dpsql.plan(workload, budget=budget), dpsql.Plan)


def errors() -> None:
    try:
        dpsql.query(con, "SELECT 1", budget=budget)
    except dpsql.SqlError as error:
        assert_type(error.hint, str | None)
        assert_type(error.sql, str | None)
    except dpsql.DpsqlError as error:
        assert_type(error.message, str)


def mistakes() -> None:
    """What a type checker refuses; an ignore that is not needed is an error itself."""
    dpsql.query(con, "SELECT 1")  # type: ignore[call-overload]
    dpsql.query(con, "SELECT 1", budget=1.5)  # type: ignore[call-overload]
    dpsql.plan(con, script, budget=budget, objective="least")  # type: ignore[arg-type]
    dpsql.plan(con, script, epsilon=1)  # type: ignore[call-arg]
    dpsql.Unit()  # type: ignore[call-arg]
    budget.mu_squared = Fraction(1)  # type: ignore[misc]
    dpsql.Domain.dates("2020-01-01", "2020-12-31", "decade")  # type: ignore[arg-type]
