"""Tables fitted to measurements: the best ones, not negative, whole, and consistent."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from dpsql.answers import leastsquares
from dpsql.answers.adjusted import MAX_JOINT_CELLS, Observation, fit_table
from dpsql.errors import InternalError, ResourceLimitError
from dpsql.linalg.matrices import Dense
from dpsql.measurement.factors import CenteredFactor, DenseFactor


def dense(axes, shape, matrix) -> DenseFactor:
    return DenseFactor(tuple(axes), tuple(shape), np.array(matrix, dtype=np.int64))


class Reals:
    """A factor whose rows are no integers, over axes in any order."""

    def __init__(self, axes, shape, matrix) -> None:
        self.axes, self.shape, self.matrix = tuple(axes), tuple(shape), np.asarray(matrix)
        self.real = Dense(self.matrix)


def written_out(observation, domain) -> np.ndarray:
    """The measurements over all joint cells as a matrix, in units of their standard deviation."""
    product = np.ones((1, 1))
    for factor in observation.factors:
        product = np.kron(product, factor.matrix)
    order = [observation.names[axis] for f in observation.factors for axis in f.axes]
    sizes = [domain[name] for name in order]
    rows = product.reshape(-1, *sizes)
    names = list(domain)
    rows = rows.transpose(0, *(1 + order.index(name) for name in names if name in order))
    shape = [domain[name] if name in order else 1 for name in names]
    full = np.broadcast_to(rows.reshape(-1, *shape), (len(rows), *domain.values()))
    return full.reshape(len(rows), -1) / math.sqrt(observation.noise)


def system(observations, domain) -> tuple[np.ndarray, np.ndarray]:
    matrix = np.vstack([written_out(o, domain) for o in observations])
    y = np.concatenate([np.ravel(o.values) / math.sqrt(o.noise) for o in observations])
    return matrix, y


def best_table(matrix, y) -> np.ndarray:
    """The best table without negative counts whose total is that of least squares without bounds.

    The total is asked for by a row that weighs far more than all others.
    """
    total = np.linalg.lstsq(matrix, y)[0].sum()
    weight = 1e4 * np.linalg.norm(matrix, 2)
    held = np.vstack([matrix, np.full((1, matrix.shape[1]), weight)])
    asked = np.append(y, weight * total)
    return lsq_linear(held, asked, bounds=(0, np.inf), method="bvls", tol=1e-15).x


def on_simplex(x, total) -> np.ndarray:
    """The nearest point without negative numbers that sums to a total."""
    ordered = np.sort(x)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(x) + 1)
    return np.maximum(x - over[np.flatnonzero(ordered > over)[-1]], 0)


def loss(matrix, y, x) -> float:
    return 0.5 * float(np.sum((matrix @ np.ravel(x) - y) ** 2))


def random_problem(seed) -> tuple[list[Observation], dict[str, int]]:
    """Three attributes, connected, with factors of every kind and noise of many sizes."""
    rng = np.random.default_rng(seed)
    domain = {"a": 3, "b": int(rng.integers(1, 4)), "c": 4}
    truth = rng.poisson(rng.choice([0.2, 3.0, 40.0], size=tuple(domain.values())))

    def observe(names, factors) -> Observation:
        noise = float(rng.choice([0.5, 9.0, 400.0]))
        blank = Observation(names, factors, 1.0, np.zeros(1))
        exact = written_out(blank, domain) @ truth.ravel()
        return Observation(names, factors, noise, exact + rng.normal(size=len(exact)) * noise**0.5)

    def real(axes, sizes) -> Reals:
        return Reals(axes, sizes, rng.normal(size=(3, math.prod(sizes))))

    return [
        observe((), (dense((), (), [[2]]),)),
        observe(("a",), (CenteredFactor((0,), (3,), 2),)),
        observe(("c",), (dense((0,), (4,), np.tri(4)),)),
        observe(("b", "a"), (real((1, 0), (3, domain["b"])),)),
        observe(("c", "a"), (real((1,), (3,)), CenteredFactor((0,), (4,), 1))),
        observe(("b", "c", "a"), (real((2, 0), (3, domain["b"])), real((1,), (4,)))),
    ], domain


def identities(truth, names, ways, sigma, rng) -> list[Observation]:
    """Measure every marginal over so many attributes, and the total."""
    found = []
    for chosen in itertools.chain(*(itertools.combinations(range(len(names)), k) for k in ways)):
        dropped = tuple(i for i in range(len(names)) if i not in chosen)
        exact = truth.sum(axis=dropped, keepdims=not chosen).astype(float)
        sizes = [truth.shape[i] for i in chosen]
        factors = [dense((i,), (n,), np.eye(n)) for i, n in enumerate(sizes)]
        noisy = exact.reshape(sizes or [1]) + rng.normal(size=sizes or [1]) * sigma
        its = tuple(names[i] for i in chosen)
        found.append(Observation(its, tuple(factors) or (dense((), (), [[1]]),), sigma**2, noisy))
    return found


def sparse_truth(shape, seed, rows=3000) -> np.ndarray:
    """Rows in a few of the cells, as in real tables."""
    rng = np.random.default_rng(seed)
    weights = reduce(np.multiply.outer, [rng.dirichlet(np.full(n, 0.3)) for n in shape])
    return rng.multinomial(rows, (weights / weights.sum()).ravel()).reshape(shape)


def some_of(count, few) -> list:
    """Some seeds of many by default: of those with which it takes no seconds."""
    return [*few, *(pytest.param(i, marks=pytest.mark.long) for i in range(count) if i not in few)]


class TestOptimality:
    @pytest.mark.parametrize("seed", some_of(25, (9, 11, 14, 15, 21, 23)))
    def test_nothing_fits_better(self, seed):
        observations, domain = random_problem(seed)
        matrix, y = system(observations, domain)
        best = best_table(matrix, y)
        found = fit_table(observations, domain, nonnegative=True, integers=False)
        x = found.marginal(list(domain))
        assert x.min() >= 0
        assert loss(matrix, y, x) <= loss(matrix, y, best) * (1 + 1e-4) + 1e-4
        # What is measured is the same at all minima.
        assert matrix @ x.ravel() == pytest.approx(matrix @ best, rel=0.02, abs=0.2)

    @pytest.mark.parametrize("seed", range(8))
    def test_without_bounds_it_is_least_squares(self, seed):
        observations, domain = random_problem(seed)
        matrix, y = system(observations, domain)
        best = np.linalg.lstsq(matrix, y)[0]
        x = fit_table(observations, domain, nonnegative=False, integers=False).marginal([*domain])
        assert loss(matrix, y, x) == pytest.approx(loss(matrix, y, best), rel=1e-6, abs=1e-6)
        assert x.ravel() == pytest.approx(best, rel=1e-4, abs=1e-4)  # both are the shortest

    def test_more_cells_than_are_taken_at_a_time(self, monkeypatch):
        rng = np.random.default_rng(1)
        names, shape = ("a", "b", "c", "d"), (6, 5, 4, 3)
        monkeypatch.setattr(leastsquares, "LEAST_CELLS", 64)
        truth = sparse_truth(shape, 1)
        observations = identities(truth, names, (0, 1, 2), 8.0, rng)
        domain = dict(zip(names, shape, strict=True))
        x = fit_table(observations, domain, nonnegative=True, integers=False).marginal(names)
        matrix, y = system(observations, domain)
        gradient = matrix.T @ (matrix @ x.ravel() - y)
        value = loss(matrix, y, x)
        # By convexity, no table of the same total is better by more than this.
        bound = gradient @ x.ravel() - x.sum() * gradient.min()
        assert bound <= 0.05 * value
        # Long and plain projected gradients gain nothing on it.
        step, best = 1 / np.linalg.norm(matrix, 2) ** 2, x.ravel()
        for _ in range(300):
            best = on_simplex(best - step * (matrix.T @ (matrix @ best - y)), x.sum())
        assert value <= loss(matrix, y, best) * (1 + 1e-4)

    def test_precise_measurements_are_met(self):
        truth = sparse_truth((6, 5, 4), 2)
        rng = np.random.default_rng(0)
        observations = identities(truth, ("a", "b", "c"), (0, 1, 2, 3), 1e-4, rng)
        domain = {"a": 6, "b": 5, "c": 4}
        x = fit_table(observations, domain, nonnegative=True, integers=False).marginal(["a", "c"])
        assert x == pytest.approx(truth.sum(axis=1), abs=0.01)

    def test_the_total_stays(self):
        """What is cut off below zero is taken from other cells, not added to the total."""
        truth = np.zeros(400)
        truth[:20] = 25.0
        rng = np.random.default_rng(4)
        observations = identities(truth, ("a",), (0, 1), 20.0, rng)
        domain = {"a": 400}
        free = fit_table(observations, domain, nonnegative=False, integers=False)
        found = fit_table(observations, domain, nonnegative=True, integers=False)
        assert found.total == pytest.approx(free.total, rel=1e-6)
        assert found.marginal(["a"]).sum() == pytest.approx(found.total)
        clipped = np.maximum(free.marginal(["a"]), 0)
        assert clipped.sum() > 5 * found.total
        errors = [np.mean((x - truth) ** 2) for x in (found.marginal(["a"]), clipped)]
        assert errors[0] < 0.3 * errors[1]

    def test_a_total_that_is_not_measured_is_free(self):
        one = dense((0,), (3,), [[1, 0, 0]])
        observations = [Observation(("a",), (one,), 1.0, np.array([5.0]))]
        found = fit_table(observations, {"a": 3}, nonnegative=True, integers=False)
        assert found.marginal(["a"])[0] == pytest.approx(5.0)

    def test_the_noise_weighs(self):
        one = dense((0,), (1,), [[1]])
        observations = [
            Observation(("a",), (one,), 1.0, np.array([10.0])),
            Observation(("a",), (one,), 4.0, np.array([20.0])),
        ]
        found = fit_table(observations, {"a": 1}, nonnegative=True, integers=False)
        assert found.marginal(["a"]) == pytest.approx([12.0])


class TestComponents:
    """Attributes that no measurement connects."""

    DOMAIN = {"a": 5, "x": 4, "b": 3, "free": 6, "y": 3}  # noqa: RUF012

    def observations(self, seed) -> list[Observation]:
        rng = np.random.default_rng(seed)
        first, second = sparse_truth((5, 3), seed, 500), sparse_truth((4, 3), seed + 1, 500)
        total = identities(first, ("a", "b"), (0,), 3.0, rng)
        one = identities(first, ("a", "b"), (1, 2), 6.0, rng)
        return total + one + identities(second, ("x", "y"), (1, 2), 20.0, rng)

    @pytest.mark.parametrize("integers", [False, True])
    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_all_totals_are_one(self, nonnegative, integers):
        found = fit_table(
            self.observations(0), self.DOMAIN, nonnegative=nonnegative, integers=integers
        )
        sets = [(), ("a",), ("y",), ("free",), ("b", "a"), ("x", "a"), ("y", "b", "free", "a")]
        totals = [float(found.marginal(names).sum()) for names in sets]
        assert totals == pytest.approx([found.total] * len(sets), rel=1e-9)
        assert 450 < found.total < 550
        if integers:
            assert totals == [found.total] * len(sets)

    @pytest.mark.parametrize("integers", [False, True])
    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_joint_tables_have_the_components_as_marginals(self, nonnegative, integers):
        found = fit_table(
            self.observations(1), self.DOMAIN, nonnegative=nonnegative, integers=integers
        )
        joint = found.marginal(("y", "a", "free"))
        assert joint.shape == (3, 5, 6)
        for axes, names in (((1, 2), ("y",)), ((0, 2), ("a",)), ((0, 1), ("free",))):
            assert joint.sum(axis=axes) == pytest.approx(found.marginal(names), abs=1e-6)
        if nonnegative:
            assert joint.min() >= 0
        if integers:
            assert np.array_equal(joint, np.rint(joint))

    def test_the_total_is_the_best_one_for_all(self):
        observations = self.observations(2)
        domain = {name: n for name, n in self.DOMAIN.items() if name != "free"}
        found = fit_table(observations, domain, nonnegative=True, integers=False)
        # The same problem with one joint table, which can stand for any two of one total.
        matrix, y = system(observations, domain)
        best = best_table(matrix, y)
        value = loss(matrix, y, found.marginal(list(domain)))
        assert value <= loss(matrix, y, best) * (1 + 1e-4) + 1e-4

    def test_nothing_is_known_but_the_total(self):
        total = identities(np.array([13]), ("a",), (0,), 0.25, np.random.default_rng(3))
        for integers in (False, True):
            found = fit_table(total, {"a": 5}, nonnegative=True, integers=integers)
            counts = found.marginal(["a"])
            assert counts.sum() == pytest.approx(found.total)
            assert counts.max() - counts.min() <= (1 if integers else 1e-9)
        assert found.marginal([]) == found.total == round(float(total[0].values[0]))

    def test_a_negative_total(self):
        total = [Observation((), (dense((), (), [[1]]),), 1.0, np.array([-3.4]))]
        assert (
            fit_table(total, {"a": 2}, nonnegative=True, integers=False).marginal(["a"]).sum() == 0
        )
        found = fit_table(total, {"a": 2}, nonnegative=False, integers=True)
        assert found.marginal(["a"]).tolist() == [-2, -1]

    def test_nothing_is_known_at_all(self):
        found = fit_table([], {"a": 3, "b": 2}, nonnegative=True, integers=True)
        assert not found.marginal(["b", "a"]).any()
        assert found.marginal(["b", "a"]).shape == (2, 3)


class TestWholeNumbers:
    NAMES, SHAPE = ("a", "b", "c", "d"), (7, 6, 5, 4)
    DOMAIN = dict(zip(NAMES, SHAPE, strict=True))  # noqa: RUF012

    def fit(self, seed, sigma, *, nonnegative, integers):
        truth = sparse_truth(self.SHAPE, seed)
        rng = np.random.default_rng(seed)
        observations = identities(truth, self.NAMES, (0, 1, 2), sigma, rng)
        return fit_table(observations, self.DOMAIN, nonnegative=nonnegative, integers=integers)

    @pytest.mark.parametrize(
        ("sigma", "nonnegative"),
        [
            (1.0, True),
            (15.0, False),
            *(
                pytest.param(*case, marks=pytest.mark.long)
                for case in [(0.1, False), (0.1, True), (15.0, True), (2.0, False), (2.0, True)]
            ),
        ],
    )
    def test_they_are_whole_and_near(self, sigma, nonnegative):
        fitted, whole = (
            self.fit(5, sigma, nonnegative=nonnegative, integers=integers)
            for integers in (False, True)
        )
        joint = whole.marginal(self.NAMES)
        assert np.array_equal(joint, np.rint(joint))
        assert joint.min() >= 0 or not nonnegative
        assert whole.total == joint.sum() == round(fitted.total)
        for name in self.NAMES:
            assert np.abs(whole.marginal([name]) - fitted.marginal([name])).max() < 2
        for names in itertools.combinations(self.NAMES, 2):
            moved = whole.marginal(names) - fitted.marginal(names)
            assert np.sqrt(np.mean(moved**2)) < 0.5 + 0.3 * sigma

    def test_moving_units_helps(self, monkeypatch):
        fitted = self.fit(6, 0.1, nonnegative=True, integers=False)

        def moved() -> tuple[float, float]:
            """The largest change of a one-way count, and the typical one of a two-way count."""
            whole = self.fit(6, 0.1, nonnegative=True, integers=True)
            off = [
                [np.ravel(whole.marginal(names) - fitted.marginal(names)) for names in chosen]
                for chosen in (itertools.combinations(self.NAMES, k) for k in (1, 2))
            ]
            one, two = map(np.concatenate, off)
            return float(np.abs(one).max()), float(np.sqrt(np.mean(two**2)))

        largest, typical = moved()
        assert largest < 1.5
        assert typical < 0.3
        monkeypatch.setattr("dpsql.answers.leastsquares.MAX_MOVES", 0)
        monkeypatch.setattr("dpsql.answers.leastsquares.MAX_SINGLES", 0)
        without = moved()
        assert without[0] > 3 * largest
        assert without[1] > 2 * typical

    def test_marginals_agree_exactly(self):
        whole = self.fit(7, 6.0, nonnegative=True, integers=True)
        for names in itertools.combinations(self.NAMES, 2):
            both = whole.marginal(names)
            assert np.array_equal(both.sum(axis=1), whole.marginal(names[:1]))
            assert np.array_equal(both.T, whole.marginal(names[::-1]))


class TestWorth:
    @pytest.mark.parametrize("seeds", [1, pytest.param(4, marks=pytest.mark.long)])
    def test_it_is_nearer_to_sparse_truth_than_clipping_is(self, seeds):
        names, shape = ("a", "b", "c"), (12, 10, 6)
        clipped, fitted, whole = [], [], []
        for seed in range(seeds):
            truth = sparse_truth(shape, seed)
            rng = np.random.default_rng(seed)
            observations = identities(truth, names, (0, 1, 2), 10.0, rng)
            domain = dict(zip(names, shape, strict=True))
            fits = [
                fit_table(observations, domain, nonnegative=True, integers=integers)
                for integers in (False, True)
            ]
            for o in observations[4:]:
                exact = truth.sum(axis=tuple(i for i, n in enumerate(names) if n not in o.names))
                clipped.append(np.mean((np.maximum(o.values, 0) - exact) ** 2))
                for results, fit in zip((fitted, whole), fits, strict=True):
                    results.append(np.mean((fit.marginal(o.names) - exact) ** 2))
        assert np.mean(fitted) < 0.6 * np.mean(clipped)
        assert np.mean(whole) < 0.6 * np.mean(clipped)

    def test_the_same_input_gives_the_same_tables(self):
        observations, domain = random_problem(9)
        one, other = (
            fit_table(observations, domain, nonnegative=True, integers=False) for _ in range(2)
        )
        assert np.array_equal(one.marginal(list(domain)), other.marginal(list(domain)))


class TestLimits:
    def test_too_many_joint_cells(self):
        def pair(one, other) -> Observation:
            factors = (dense((0,), (3000,), np.ones((1, 3000))),)
            factors += (dense((1,), (3000,), np.ones((1, 3000))),)
            return Observation((one, other), factors, 1.0, np.zeros((1, 1)))

        domain = {"a": 3000, "b": 3000, "c": 3000}
        with pytest.raises(ResourceLimitError) as raised:
            fit_table([pair("c", "a")], domain, nonnegative=True, integers=False)
        assert "a, c have 9,000,000 joint cells" in raised.value.message
        assert f"{MAX_JOINT_CELLS:,}" in raised.value.message
        assert raised.value.hint is not None

    @pytest.mark.parametrize(
        ("shape", "noise", "value", "message"),
        [
            ((4,), 1.0, 0.0, "fit the domain"),
            ((3,), 0.0, 0.0, "noise"),
            ((3,), 1.0, np.nan, "finite"),
        ],
    )
    def test_what_no_plan_measures(self, shape, noise, value, message):
        factor = dense((0,), shape, np.ones((1, *shape)))
        observation = Observation(("a",), (factor,), noise, np.array([value]))
        with pytest.raises(InternalError, match=message):
            fit_table([observation], {"a": 3}, nonnegative=True, integers=False)
