"""Measurements of several releases put together: unbiased, and as accurate as is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answers.frames import AnsweredFrames
from dpsql.answers.requery import answers_of
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.measurement import measure as measuring
from dpsql.measurement.narrow import apply
from dpsql.planner.reconstruction.sources import Source, splits
from dpsql.sql.frontend import compile_script
from tests.helpers.seeded import SeededBits
from tests.session.tools import AGES, BANDS, BUDGET, BY_AGE, BY_SEX, WINDOW

# ── exactness ──────────────────────────────────────────────────────────────────────────────


def exact(con: duckdb.DuckDBPyConnection, release: dpsql.Release) -> list[Source]:
    """Return what the release measured, without noise."""
    table, found = release.facts.table, []
    for source in release.sources:
        spaces = [space for block in source.blocks for space in block.spaces]
        marginals = DuckDBEngine(con).marginals(table, spaces, merged=source.merged)
        values = {
            frozenset(space): apply(block, marginals[space])
            for block in source.blocks
            for space in block.spaces
        }
        found.append(replace(source, values=values))
    return found


class Estimator:
    """The linear map from measurements to the answers of one statement, written out."""

    def __init__(self, release: dpsql.Release, sql: str) -> None:
        self.sources = release.sources
        table = release.facts.table
        self._script = compile_script(
            [("query", sql)], lambda _: table, lambda _: None, split=lambda _: splits(self.sources)
        )

    def answers(self, sources: list[Source]) -> np.ndarray:
        frames = AnsweredFrames(self._script.statements, answers_of(self._script, sources))
        return frames.frame("query")["n"].to_numpy()

    def units(self) -> Iterator[tuple[list[Source], float]]:
        """Yield each measurement alone, as 1, with the variance of its noise."""
        zero = [
            replace(s, values={k: np.zeros_like(v) for k, v in s.values.items()})
            for s in self.sources
        ]
        for i, source in enumerate(zero):
            for block in source.blocks:
                for space in block.spaces:
                    values = source.values[frozenset(space)]
                    for place in np.ndindex(values.shape):
                        one = values.copy()
                        one[place] = 1
                        only = replace(source, values={**source.values, frozenset(space): one})
                        yield [*zero[:i], only, *zero[i + 1 :]], block.law.variance

    def variances(self) -> np.ndarray:
        parts = [self.answers(sources) ** 2 * noise for sources, noise in self.units()]
        return np.sum(parts, axis=0)


def counts(con: duckdb.DuckDBPyConnection, sql: str) -> np.ndarray:
    return np.array([row[-1] for row in con.execute(f"{sql} ORDER BY ALL").fetchall()], float)


SEQUENCES = {
    "bands, ages, bands": [BANDS, AGES, BANDS],
    "ages, bands": [AGES, BANDS],
    "sexes, cells, ages": [BY_SEX, BY_AGE, AGES],
    "cells, sexes": [BY_AGE, BY_SEX],
    "window, bands": [WINDOW, BANDS],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_combined_answers_are_unbiased_and_vary_as_stated(con, session, name):
    """Without noise the answers are the counts; by unit noise, their variances are as stated."""
    for k, sql in enumerate(SEQUENCES[name]):
        release = session.release(sql, budget=dpsql.Budget(rho=Fraction(1 + k, 50)))
        frame, estimator = release["query"], Estimator(release, sql)
        assert len(release.sources) == k + 1
        np.testing.assert_allclose(estimator.answers(exact(con, release)), counts(con, sql))
        np.testing.assert_allclose(estimator.answers(estimator.sources), frame["n"])
        np.testing.assert_allclose(estimator.variances(), frame["n_variance"], rtol=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("runs", [8, pytest.param(24, marks=pytest.mark.long)])
def test_merged_cells_over_many_releases(con, monkeypatch, runs):
    """Age bands, then single ages, then bands again: their errors have the stated size."""
    bits = SeededBits(7)
    monkeypatch.setattr(measuring, "fresh_bits", lambda: bits)
    errors = []
    for _ in range(runs):
        session = dpsql.Session(con)
        for sql in (BANDS, AGES, BANDS):
            frame = session.query(sql, budget=BUDGET)
            errors.append((frame["n"] - counts(con, sql)) / frame["n_variance"].sqrt())
    scaled = np.concatenate([e.to_numpy() for e in errors])
    last = np.array([e.to_numpy() for e in errors[2::3]])
    assert abs(scaled.mean()) < 4 / np.sqrt(scaled.size)
    assert 0.72 < np.square(scaled).mean() < 1.35
    assert 0.5 < np.square(last).mean() < 1.75


def test_what_is_asked_again_gets_more_accurate(session):
    worst = [session.query(AGES, budget=BUDGET)["n_variance"].max() for _ in range(4)]
    for k, variance in enumerate(worst):
        assert variance == pytest.approx(worst[0] / (k + 1), rel=0.02)


def test_bands_between_ages_help(session):
    first = session.query(BANDS, budget=BUDGET)["n_variance"].max()
    ages = session.query(AGES, budget=BUDGET)["n_variance"].max()
    last = session.query(BANDS, budget=BUDGET)["n_variance"].max()
    assert last < 0.5 * first
    assert ages < session.query(AGES, budget=BUDGET, reuse=False)["n_variance"].max()


# ── plans ──────────────────────────────────────────────────────────────────────────────────


def test_plans_know_the_past_and_spend_nothing(session):
    alone = session.plan(AGES, budget=BUDGET)
    session.release(BY_AGE, budget=BUDGET)
    spent = session.ledger.spent
    plan = session.plan(AGES, budget=BUDGET)
    assert plan.rmse < 0.85 * alone.rmse
    assert session.plan(AGES, budget=BUDGET, reuse=False).rmse == pytest.approx(alone.rmse)
    assert session.ledger.spent == spent
    frame = session.query(AGES, budget=BUDGET)
    expected = plan.expected_error()
    rmse = np.sqrt(frame["n_variance"].mean())
    assert expected["rmse"].to_list() == pytest.approx([rmse], rel=1e-6)


def test_targets_are_met_with_the_past(session):
    session.query(BY_AGE, budget=BUDGET)
    targets = {"ages": 9.0, "sexes": 4.0}
    most = dpsql.Budget(rho=1)
    release = session.release({"ages": AGES, "sexes": BY_SEX}, targets=targets, at_most=most)
    for name, largest in targets.items():
        assert np.sqrt(release[name]["n_variance"].max()) <= largest
    assert session.ledger.entries()[-1].mu_squared == release.charged.mu_squared
