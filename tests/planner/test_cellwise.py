"""Tables without negative cells: of largest entropy, with a prior for each cell."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize

import dpsql
from dpsql.engines.base import Counted
from dpsql.measurement import measure as measuring
from dpsql.measurement.measure import measure
from dpsql.planner.mechanisms.aim_rounds import cut_off
from dpsql.planner.reconstruction.cellwise import (
    LOG_SCALES,
    POWERS,
    CellwiseTables,
    Unbiased,
    agree,
    likeliest,
    nearest_running,
    shrunk_by_cell,
)
from tests.helpers.charging import pay
from tests.helpers.mechanisms import planned_by
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive.tools import all_marginals, marginals_of

SIZES = {"a": 6, "b": 4, "c": 5}
PAIRS = list(itertools.combinations(SIZES, 2))


def made_up(seed: int, rows: int = 3000, sizes=SIZES) -> dict[str, np.ndarray]:
    """Draw rows of skew columns that depend on each other."""
    rng = np.random.default_rng(seed)
    first = rng.geometric(0.4, rows)
    return {a: np.minimum((first * rng.integers(1, 3, rows) - 1) // (i + 1), n - 1)
            for i, (a, n) in enumerate(sizes.items())}  # fmt: skip


def fitted(codes, sizes, measured, asked, rho, seed, monkeypatch, mechanism="residualplanner"):
    """Measure marginals; return their tables, and the unbiased estimates."""
    monkeypatch.setattr(measuring, "fresh_bits", lambda: SeededBits(seed))
    plan = planned_by(mechanism, all_marginals(sizes, measured), dpsql.Budget(rho=rho))
    spaces = [space for block in plan.certified.blocks for space in block.spaces]
    noisy = measure(pay(plan), Counted(marginals_of(codes, sizes, spaces), 1))
    values = plan.values(noisy.values)
    unbiased = Unbiased(
        sizes, sizes, plan.reconstruction, lambda names: plan.reconstruction.marginal(names, values)
    )
    return CellwiseTables(unbiased, asked), unbiased


@pytest.mark.parametrize("seed", range(5))
def test_tables_are_not_negative_and_agree_with_single_columns(seed, monkeypatch):
    tables, unbiased = fitted(made_up(seed), SIZES, PAIRS, PAIRS, 0.001, seed, monkeypatch)
    assert min(unbiased.estimates(pair).min() for pair in PAIRS) < 0
    total = float(tables.table(()))
    assert total == pytest.approx(float(unbiased.estimates(())))
    for pair in PAIRS:
        table = tables.table(pair)
        assert table.min() >= 0
        for axis, name in enumerate(pair):
            assert table.sum(axis=1 - axis) == pytest.approx(
                tables.table((name,)), abs=1e-9 * total
            )
    triple = tables.table(tuple(SIZES))
    assert triple.min() >= 0
    for axis, name in enumerate(SIZES):
        others = tuple(i for i in range(3) if i != axis)
        assert triple.sum(axis=others) == pytest.approx(tables.table((name,)), abs=1e-9 * total)


def test_with_a_huge_budget_they_are_the_counts(monkeypatch):
    codes = made_up(1)
    tables, _ = fitted(codes, SIZES, PAIRS, PAIRS, 10**7, 1, monkeypatch)
    for pair, counts in marginals_of(codes, SIZES, PAIRS).items():
        assert np.abs(tables.table(pair) - counts).max() < 0.02


def test_estimates_that_are_all_noise_move_little():
    rng = np.random.default_rng(3)
    expected = 20 * np.outer(rng.gamma(1, 1, 60), rng.gamma(1, 1, 50))
    noise = rng.normal(0, 1e3, expected.shape)
    moved = shrunk_by_cell(expected + noise, expected, np.full(expected.shape, 1e6))
    assert moved.sum() == pytest.approx(expected.sum())
    assert np.abs(moved - expected).mean() < 0.02 * np.abs(noise).mean()


def test_the_prior_is_the_likeliest_of_all_on_the_grid():
    rng = np.random.default_rng(0)
    expected = rng.gamma(0.3, 30, (20, 15))
    noise = rng.uniform(20, 60, expected.shape)
    truth = rng.normal(expected, np.sqrt(0.2 * expected))
    noisy = rng.normal(truth, np.sqrt(noise))

    def worth(log: float, power: float) -> float:
        spread = math.exp(log) * np.maximum(expected, 1e-12) ** power + noise
        return float((np.log(spread) + (noisy - expected) ** 2 / spread).sum())

    log, power = min(itertools.product(LOG_SCALES, POWERS), key=lambda pair: worth(*pair))
    prior = math.exp(log) * np.maximum(expected, 1e-12) ** power
    mean = expected + (noisy - expected) * prior / (prior + noise)
    oracle = likeliest(mean, prior * noise / (prior + noise), expected.sum())
    assert shrunk_by_cell(noisy, expected, noise) == pytest.approx(
        np.maximum(oracle, 1e-9 * expected)
    )
    assert np.square(oracle - truth).mean() < np.square(noisy - truth).mean() / 2


@pytest.mark.parametrize("seed", range(8))
def test_the_likeliest_table_is_that_of_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    means, variances = rng.normal(2, 5, 6), rng.uniform(0.1, 9, 6)
    found = likeliest(means, variances, 12.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(12)
    oracle = minimize(
        lambda x: (np.square(x - means) / variances).sum(), np.full(6, 2.0), method="SLSQP",
        bounds=[(0, None)] * 6, constraints={"type": "eq", "fun": lambda x: x.sum() - 12},
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    assert found == pytest.approx(oracle.x, abs=1e-4)
    assert not likeliest(means, variances, 0.0).any()


def test_many_cells_are_looked_at_in_part(monkeypatch):
    from dpsql.planner.reconstruction import cellwise

    rng = np.random.default_rng(1)
    expected = rng.gamma(0.3, 30, (200, 150))
    noisy = rng.normal(expected, 5 + np.sqrt(expected))
    noise = np.full(expected.shape, 25.0)
    every = shrunk_by_cell(noisy, expected, noise)
    monkeypatch.setattr(cellwise, "LOOKED_AT", 4000)
    some = shrunk_by_cell(noisy, expected, noise)
    assert np.abs(some - every).sum() < 0.05 * np.abs(noisy - every).sum()


@pytest.mark.parametrize("seed", range(8))
def test_single_columns_are_the_nearest_by_running_totals(seed):
    rng = np.random.default_rng(seed)
    truth = rng.multinomial(200, rng.dirichlet(np.full(7, 0.3))).astype(float)
    noisy = truth + rng.normal(0, 15, 7)
    found = nearest_running(noisy, 200.0)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(200)
    oracle = minimize(
        lambda x: np.square(np.cumsum(x - noisy)[:-1]).sum(), np.full(7, 200 / 7), method="SLSQP",
        bounds=[(0, None)] * 7, constraints={"type": "eq", "fun": lambda x: x.sum() - 200},
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    far = np.square(np.cumsum(found - noisy)[:-1]).sum()
    assert far <= np.square(np.cumsum(oracle.x - noisy)[:-1]).sum() * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("seed", range(20))
def test_running_totals_never_get_worse(seed):
    """Whatever the noise is, if the total is right: the tables are a convex set."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 200))
    truth = rng.multinomial(5000, rng.dirichlet(np.full(n, rng.choice([0.02, 0.3, 3])))).astype(
        float
    )
    noisy = truth + rng.normal(0, 10.0 ** rng.integers(0, 4), n)
    noisy += (5000 - noisy.sum()) / n
    found = nearest_running(noisy, 5000.0)

    def off(x):
        return np.square(np.cumsum(x - truth)).sum()

    assert off(found) <= off(noisy) * (1 + 1e-9)


def test_cutting_off_makes_running_totals_worse_where_this_does_not():
    rng = np.random.default_rng(5)
    truth = np.r_[np.full(20, 200.0), np.zeros(80)]
    errors = np.zeros(3)
    for _ in range(50):
        noisy = truth + rng.normal(0, 20, 100)
        noisy += (truth.sum() - noisy.sum()) / 100
        ways = noisy, nearest_running(noisy, truth.sum()), cut_off(noisy, truth.sum())
        errors += [np.square(np.cumsum(x - truth)).mean() for x in ways]
    assert errors[1] < errors[0] < errors[2]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 5), (2, 2, 2, 3)])
def test_tables_are_made_to_agree(shape):
    rng = np.random.default_rng(len(shape))
    target = rng.gamma(0.5, 10, shape)
    target[0] = 0
    axes = range(len(shape))
    margins = [target.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes]
    table = target * rng.uniform(0.5, 1.5, shape)
    before = table.copy()
    agree(table, margins)
    assert table.min() >= 0
    missed = 0.0
    for axis, margin in enumerate(margins):
        others = tuple(a for a in axes if a != axis)
        assert table.sum(axis=others) == pytest.approx(margin, abs=1e-9)
        missed += np.abs(before.sum(axis=others) - margin).sum()
    assert np.abs(table - before).sum() <= 4 * missed


def test_nothing_is_made_of_nothing(monkeypatch):
    tables, _ = fitted(made_up(0, 0), SIZES, PAIRS, PAIRS, 1000, 0, monkeypatch)
    monkeypatch.setattr(CellwiseTables, "total", lambda self: 0.0)
    for names in [("a",), *PAIRS, tuple(SIZES)]:
        assert not tables.table(names).any()


def test_columns_that_nothing_connects_are_independent(monkeypatch):
    tables, _ = fitted(made_up(2), SIZES, [("a",), ("b", "c")], [("a", "b")], 1, 2, monkeypatch)
    a, b = tables.table(("a",)), tables.table(("b",))
    assert tables.table(("a", "b")) == pytest.approx(np.outer(a, b) / a.sum())


def test_columns_of_which_nothing_is_known_are_even(monkeypatch):
    tables, _ = fitted(made_up(2), SIZES, [("a", "b")], [("a", "c")], 1, 2, monkeypatch)
    found = tables.table(("a", "c"))
    assert found == pytest.approx(np.repeat(tables.table(("a",))[:, None] / 5, 5, axis=1))


def test_only_what_others_are_made_of_is_kept(monkeypatch):
    asked = [("a", "b"), tuple(SIZES)]
    tables, _ = fitted(made_up(2), SIZES, PAIRS, asked, 1, 2, monkeypatch)
    assert tables.table(("a", "b")) is tables.table(("a", "b"))
    assert tables.table(tuple(SIZES)) is not tables.table(tuple(SIZES))


@pytest.mark.parametrize("mechanism", ["querysmasher", "residualplanner+", "fourier"])
def test_any_measurements_of_residual_spaces_do(mechanism, monkeypatch):
    codes = made_up(3)
    tables, unbiased = fitted(codes, SIZES, PAIRS, PAIRS, 0.01, 3, monkeypatch, mechanism)
    truth = marginals_of(codes, SIZES, PAIRS)
    better, worse = (
        sum(np.abs(of(pair) - truth[pair]).sum() for pair in PAIRS)
        for of in (tables.table, unbiased.estimates)
    )
    assert better < worse


def classes(seed: int, sizes, rows: int = 5000) -> dict[str, np.ndarray]:
    """Draw rows of five kinds, whose columns are independent of each other."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(5, rows, p=rng.dirichlet(np.full(5, 2.0)))
    codes = {}
    for name, n in sizes.items():
        shares = np.cumsum(rng.dirichlet(np.full(n, 0.4), 5), axis=1)
        codes[name] = np.minimum((rng.random(rows)[:, None] > shares[kind]).sum(axis=1), n - 1)
    return codes


def test_on_made_up_domains_they_are_better_than_projections(monkeypatch):
    """A projection is the nearest table to an unbiased one."""
    ours, projected = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = {name: int(rng.integers(2, 30)) for name in "abcd"}
        pairs = list(itertools.combinations(sizes, 2))
        codes = classes(seed, sizes)
        tables, unbiased = fitted(codes, sizes, pairs, pairs, 0.005, seed, monkeypatch)
        total = float(tables.table(()))
        truth = marginals_of(codes, sizes, pairs)
        ours.append(np.mean([np.abs(tables.table(p) - truth[p]).sum() for p in pairs]))
        nearest = {p: cut_off(unbiased.estimates(p), total) for p in pairs}
        projected.append(np.mean([np.abs(nearest[p] - truth[p]).sum() for p in pairs]))
    assert np.mean(ours) < 0.9 * np.mean(projected)
    assert sum(a < b for a, b in zip(ours, projected, strict=True)) >= 18
