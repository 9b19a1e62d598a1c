"""Statements with sums of rows on neighboring tables: recorded, and replayed.

A session is run on a table, and again on each of its neighbors, with noisy integers that are made
up: the same ones each time. Whatever else a session does and gives must then be the same, so it is
a function of these integers; and the exact answers of both tables must be as near as was charged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import DpsqlError, ExecutionError
from dpsql.measurement import certify
from dpsql.measurement.distributions import CoarseGaussian, Laplace
from dpsql.measurement.measure import NoisyMeasurements
from dpsql.measurement.narrow import apply
from dpsql.measurement.wide import exact_answers
from dpsql.session import planning
from tests.helpers.counting import recorded_statements
from tests.helpers.random_sums import (
    KNOWN,
    MECHANISMS,
    RandomSums,
    connect,
    fill,
    odd_rows,
    schema,
)
from tests.rows.tools import HOSTILE

BUDGET = dpsql.Budget(rho=Fraction(1, 2))
PURE = dpsql.Budget(epsilon=1, delta=0)
CASES = 360


@dataclass
class Recorded:
    """All that can be seen of a release but its exact answers, and these."""

    frames: dict = field(default_factory=dict)
    statements: list = field(default_factory=list)
    seen: list = field(default_factory=list)
    certified: object = None
    exact: list = field(default_factory=list)
    counts: dict = field(default_factory=dict)
    bounds: dict = field(default_factory=dict)
    units: dict = field(default_factory=dict)


def exact_answer(block, counts):
    wide = isinstance(block.law, CoarseGaussian)
    return [int(v) for v in (exact_answers if wide else apply)(block, counts).ravel()]


def recorded(con, asked, **how) -> Recorded:
    """Release a script of a database; see `recorded_in`."""
    return recorded_in(dpsql.Session(con, schema=asked["schema"]), asked["script"], **how)


def recorded_in(session, script, **how) -> Recorded:
    """Release a script, with made up integers in place of noisy ones."""
    found = Recorded()

    def look(charged, counted):
        charged.use_up(counted)
        certified, made_up = charged.certified, np.random.default_rng(1)
        found.certified = certified
        found.seen += [certified.digest, certified.privacy_cost, certified.contributions]
        found.seen += [sorted(counted), dict(counted.bounds), dict(counted.units)]
        found.counts, found.bounds = {name: counted[name] for name in counted}, counted.bounds
        found.units = counted.units
        found.seen += [(counted[name].shape, counted[name].dtype) for name in sorted(counted)]
        values = {}
        for block in certified.blocks:
            for space in block.spaces:
                found.exact.append((block, exact_answer(block, counted[space])))
                shape = apply(block, np.zeros(block.shape, dtype=np.int64)).shape
                values[frozenset(space)] = made_up.integers(-(10**6), 10**6, shape)
        for one in certified.differences:
            sides = zip(one.marginals, one.conditions, strict=True)
            totals = [
                int(
                    counted[names].sum() if of is None else counted[names][..., 0][of.counted].sum()
                )
                for names, of in sides
            ]
            found.exact.append((one, [one.times[0] * totals[0] - one.times[1] * totals[1]]))
            values[one.space] = made_up.integers(-(10**6), 10**6, 1)
        return NoisyMeasurements(certified, values)

    with patch.object(planning, "measure", look), recorded_statements() as found.statements:
        release = session.release(script, **how)
    found.frames = {name: release[name] for name in script}
    found.seen += [release.neighbours, release.receipt and release.receipt.mu_squared]
    found.seen += [release.plan.explain()]
    return found


def check_alike(one: Recorded, other: Recorded) -> None:
    """Check that all is the same which isn't an exact answer."""
    assert one.statements == other.statements
    assert one.seen == other.seen
    check_same_frames(one, other)


def check_same_frames(one: Recorded, other: Recorded) -> None:
    for name, frame in one.frames.items():
        assert_frame_equal(frame, other.frames[name], check_exact=True)


def check_equal_counts(one: Recorded, other: Recorded) -> None:
    """Check that marginals, whatever they are called, have the same integers."""
    assert [values for _, values in one.exact] == [values for _, values in other.exact]
    pairs = zip(one.counts.values(), other.counts.values(), strict=True)
    assert all(np.array_equal(counts, others) for counts, others in pairs)


def spent(one: Recorded, other: Recorded) -> Fraction:
    """What telling the exact answers of two tables apart takes: as μ², or as ε."""
    total = Fraction(0)
    for (block, ours), (_, theirs) in zip(one.exact, other.exact, strict=True):
        changes = [x - y for x, y in zip(ours, theirs, strict=True)]
        if isinstance(block.law, Laplace):
            total += Fraction(sum(map(abs, changes)), block.law.width)
        else:
            total += Fraction(sum(d * d for d in changes), block.law.width)
    return total


def charged(one: Recorded) -> Fraction:
    certified = one.certified
    how = certified.contributions, certified.spreads, certified.differences, certified.supports
    return certify.spent(certified.blocks, *how)


def neighbors(rng, rows, max_rows):
    """Yield tables without, with more, and with other rows of one person."""
    person = rng.choice(rows)[0]
    rest = [row for row in rows if row[0] != person]
    count = 1 if max_rows is None else rng.randint(1, 2 * max_rows)
    yield 1, rest if max_rows is not None else rows[1:]
    yield 1, [*rows, *((10**6, row) for row in odd_rows(rng, count))]
    changed = [(person, row) for row in odd_rows(rng, count)]
    yield 2, [*rest, *changed] if max_rows is not None else [*rows[1:], *changed]


def case(seed):
    """One table, one script, one mechanism; with or without a unit of several rows."""
    rng = random.Random(seed)  # noqa: S311
    max_rows = rng.choice([None, None, 1, 2, 3])
    rows = [(rng.randrange(8), row) for row in odd_rows(rng, 24)]
    asked = {"script": RandomSums(seed).script(), "schema": schema(max_rows)}
    mechanism = rng.choice(MECHANISMS)
    how = {"budget": PURE if mechanism == "laplace" else BUDGET, "mechanism": mechanism}
    return rng, rows, max_rows, asked, how


def check_neighbors(con, whole: Recorded, tables, asked, **how) -> None:
    for apart, rows in tables:
        fill(con, rows)
        replayed = recorded(con, asked, **how)
        check_alike(whole, replayed)
        # Other rows in the place of some are two steps apart.
        steps = apart if whole.certified.budget.pure else apart**2
        assert spent(whole, replayed) <= steps * charged(whole)


answered = []
"""Which cases were not refused."""


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(CASES))
def test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged(seed):
    rng, rows, max_rows, asked, how = case(seed)
    con = connect()
    fill(con, rows)
    try:
        whole = recorded(con, asked, **how)
    except ExecutionError:
        raise
    except DpsqlError:  # before the charge, for what the statement says: see below
        answered.append(False)
        return
    answered.append(True)
    if whole.certified is None:  # what is asked follows from the statement: nothing is read
        assert not whole.statements
        return
    check_neighbors(con, whole, neighbors(rng, rows, max_rows), asked, **how)


def test_most_random_statements_are_answered():
    assert not answered or sum(answered) >= len(answered) / 2


UNIONS = {
    "counts": "SELECT a, COUNT(*) AS n FROM (SELECT a FROM r WHERE x > 3 UNION ALL SELECT a FROM r "
    "UNION ALL SELECT 2 FROM r WHERE q IS NULL) AS s GROUP BY a",
    "sums": "SELECT k, SUM(x) AS s, COUNT(q) AS n FROM (SELECT 'all' AS k, x, q FROM r UNION ALL "
    "SELECT 'some', x, q FROM r WHERE i > 5 OR a = 1) AS s GROUP BY k",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_several_queries_return_are_paid_for_as_often(seed):
    rng, rows, max_rows, asked, how = case(seed)
    con = connect()
    fill(con, rows)
    asked["script"] = UNIONS
    whole = recorded(con, asked, **how)
    check_neighbors(con, whole, neighbors(rng, rows, max_rows), asked, **how)


def with_values_counted(column):
    """Ask for averages of a column, and for counts of all rows and of those with a value."""
    return {
        "all": f"SELECT AVG({column}) AS m, COUNT(*) AS n FROM r",
        "groups": f"SELECT a, SUM({column}) AS s, COUNT({column}) AS c FROM r GROUP BY a",
    }


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mechanism", ["querysmasher", "laplace"])
@pytest.mark.parametrize("max_rows", [None, 2])
@pytest.mark.parametrize("column", sorted(KNOWN))
def test_rows_without_a_value_are_charged_for_counts_and_those_with_one_for_sums(
    column, max_rows, mechanism
):
    rng = random.Random(f"{column} {max_rows}")  # noqa: S311
    rows = [(rng.randrange(8), row) for row in odd_rows(rng, 12)]
    asked = {"script": with_values_counted(column), "schema": schema(max_rows)}
    how = {"budget": PURE if mechanism == "laplace" else BUDGET, "mechanism": mechanism}
    con = connect()
    fill(con, rows)
    whole = recorded(con, asked, **how)
    assert {one.measure for one in whole.certified.supports}
    others = [[*rows, (10**6, {column: value})] for value in (None, *HOSTILE[column])]
    check_neighbors(con, whole, ((1, other) for other in others), asked, **how)
    check_neighbors(con, whole, neighbors(rng, rows, max_rows), asked, **how)


@pytest.mark.parametrize("column", sorted(KNOWN))
def test_rows_add_nothing_outside_of_what_is_said_to_be_the_support(column):
    con = connect()
    asked = {"script": with_values_counted(column), "schema": schema(None)}
    for value in (None, *HOSTILE[column]):
        fill(con, [(1, {column: value})])
        whole, outside = recorded(con, asked, budget=BUDGET), set()
        assert whole.certified.supports
        for support in whole.certified.supports:
            by = next(names for names in whole.counts if support.attribute in names)
            cells = np.moveaxis(whole.counts[by], by.index(support.attribute), 0)
            (cell,) = np.flatnonzero(cells.reshape(len(support.cells), -1).any(axis=1))
            outside |= set() if support.cells[cell] else {support.measure}
        assert bool(outside) == (value in {None, "nan"})
        sums = (counts for names, counts in whole.counts.items() if outside & {*names})
        assert not any(of.any() for of in sums)


@pytest.mark.parametrize("max_rows", [None, 3])
@pytest.mark.parametrize("mechanism", ["querysmasher", "laplace"])
def test_what_is_charged_is_reached_by_rows_at_the_bounds(max_rows, mechanism):
    """A unit whose rows all add the most, in one cell, of an answer that is measured alone."""
    con = connect()
    budget = PURE if mechanism == "laplace" else BUDGET
    asked = {"script": {"s": "SELECT SUM(least(greatest(x, 0), 64)) AS v FROM r"}}
    asked["schema"] = schema(max_rows)
    fill(con, [(1, {"x": "1"})])
    whole = recorded(con, asked, budget=budget, mechanism=mechanism)
    more = [(2, {"x": "inf"})] * (1 if max_rows is None else 9)
    fill(con, [(1, {"x": "1"}), *more])
    other = recorded(con, asked, budget=budget, mechanism=mechanism)
    assert spent(whole, other) == charged(whole)


def test_the_recorder_sees_a_difference():
    """So that the tests above could fail: two tables that are no neighbors."""
    con = connect()
    asked = {"script": {"s": "SELECT SUM(q) AS v FROM r"}, "schema": schema(None)}
    fill(con, [(1, {"q": "1"})])
    one = recorded(con, asked, budget=BUDGET)
    fill(con, [(1, {"q": "10"})] * 3)
    assert spent(one, recorded(con, asked, budget=BUDGET)) > charged(one)
