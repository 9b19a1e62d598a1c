"""A whole run: what it may look at, what it spends, and how good its answers are."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement.certify import privacy_cost
from dpsql.measurement.exponential import selection_cost
from dpsql.measurement.guarded import GuardedCounts
from dpsql.planner.mechanisms import aim_rounds as adaptive
from dpsql.planner.mechanisms.aim import AdaptivePlan
from dpsql.planner.mechanisms.aim_rounds import Estimates, block_of, run
from dpsql.privacy import Budget
from dpsql.workload import Identity, Prefix, Workload
from tests.helpers import charging
from tests.helpers.seeded import SeededBits
from tests.measurement.adaptive.tools import all_marginals, marginals_of, pay

SIZES = {"a": 6, "b": 4, "c": 5, "d": 3, "e": 20}
PAIRS = list(combinations(SIZES, 2))
TRIPLES = list(combinations(SIZES, 3))


def rows(count: int, seed: int = 1) -> dict[str, np.ndarray]:
    """People of which b follows a, and d follows b and c; e is skewed and says nothing."""
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 6, count)
    b = (a // 2 + (generator.random(count) < 0.15)) % 4
    c = generator.integers(0, 5, count)
    d = (b + c + (generator.random(count) < 0.2)) % 3
    e = (generator.random(count) ** 3 * 20).astype(np.int64)
    return {"a": a, "b": b, "c": c, "d": d, "e": e}


def released(sets, budget, *, count=5000, seed=7, contributions=1):
    planned = AdaptivePlan(all_marginals(SIZES, sets), budget, contributions=contributions)
    counted = marginals_of(rows(count), SIZES, planned.marginals)
    truth = Counted(counted, planned.contributions)
    return run(pay(planned), truth, _bits=SeededBits(seed)), truth


def distance(truth, answer):
    parts = [np.abs(answer(names) - counts).sum() / counts.sum() for names, counts in truth.items()]
    return float(np.mean(parts))


@pytest.mark.parametrize("rho", ["1e-9", "0.0001", "0.01", "1", "1e8"])
@pytest.mark.parametrize("contributions", [1, 3])
def test_the_rounds_spend_nearly_all_and_never_more(rho, contributions):
    budget = Budget(rho=Fraction(rho))
    estimates, _ = released(TRIPLES, budget, contributions=contributions)
    assert estimates.spent <= budget.mu_squared
    assert estimates.rounds[0].chosen is None
    chosen = [r.chosen for r in estimates.rounds[1:]]
    assert chosen
    assert all(any(set(r) <= set(t) for t in TRIPLES) for r in chosen)
    assert all(set(m.attributes) <= set(r.chosen) for r in estimates.rounds[1:] for m in r.measured)
    if rho == "0.01":
        assert estimates.spent > Fraction(99, 100) * budget.mu_squared


def test_what_is_asked_depends_on_what_came_out_alone(monkeypatch):
    """Two tables that have nothing in common, and the same outputs: the same questions."""
    planned = AdaptivePlan(all_marginals(SIZES, TRIPLES), Budget(rho=0.5))

    def questions(truth):
        generator, asked = np.random.default_rng(5), []

        def measure(self, block):
            self._allowance.spend(block.privacy_cost)
            asked.append((block.spaces, block.law, [f.content for f in block.factors]))
            return generator.integers(-9000, 9000, block.shape) + 1_000_000 * (not block.spaces[0])

        def choose(self, candidates, epsilon):
            asked.append((tuple(candidates), epsilon))
            return int(generator.integers(len(candidates)))

        def compare(self, attributes, estimate):
            asked.append((attributes, estimate.tobytes()))

        for name, replaced in (("measure", measure), ("choose", choose), ("compare", compare)):
            monkeypatch.setattr(GuardedCounts, name, replaced)
        estimates = run(pay(planned), truth, _bits=SeededBits(0))
        return asked, [estimates.marginal(names).tobytes() for names in TRIPLES]

    one = marginals_of(rows(5000), SIZES, TRIPLES)
    other = Counted({names: np.zeros_like(counts) for names, counts in one.items()}, 1)
    asked, answers = questions(one)
    assert len(asked) > 50
    assert questions(other) == (asked, answers)


def test_answers_beat_the_linear_estimates_and_independence():
    estimates, truth = released(TRIPLES, Budget(rho=0.02))
    fitted, linear = distance(truth, estimates.marginal), distance(truth, estimates.linear)

    def independent(names):
        shares = [truth_of(truth, (a,)) / 5000 for a in names]
        return 5000 * np.multiply.outer(np.multiply.outer(*shares[:2]), shares[2])

    assert fitted < 0.75 * distance(truth, independent)
    assert fitted < 0.75 * linear


def truth_of(truth, names):
    larger = next(t for t in truth if set(names) <= set(t))
    return truth[larger].sum(axis=tuple(i for i, a in enumerate(larger) if a not in names))


def test_what_matters_is_chosen_and_what_says_nothing_is_not():
    estimates, _ = released(PAIRS, Budget(rho=0.05))
    chosen = {frozenset(r.chosen) for r in estimates.rounds[1:]}
    assert {frozenset("ab"), frozenset("bd")} <= chosen
    assert not any("e" in pair for pair in chosen if len(pair) == 2)


def test_a_large_budget_gives_the_counts():
    estimates, truth = released(PAIRS, Budget(rho=1e7))
    assert distance(truth, estimates.marginal) < 0.01
    estimates, truth = released([("a",), ("e",)], Budget(rho=1e7))
    assert distance(truth, estimates.marginal) < 0.001
    assert len(estimates.rounds) == 1


def test_answers_are_tables_in_any_order_of_attributes():
    sizes = {"a": 6, "one": 1, "b": 4}
    workload = Workload(sizes).add(["b", "one", "a"], [Prefix(), Identity(), Identity()])
    planned = AdaptivePlan(workload, Budget(rho=1))
    assert planned.marginals == (("a", "b"),)
    truth = marginals_of(rows(500), SIZES, [("a", "b")])
    estimates = run(pay(planned), truth, _bits=SeededBits(1))
    table = estimates.marginal(("a", "b"))
    assert table.dtype == np.float64
    assert (table >= 0).all()
    assert estimates.marginal(("b", "one", "a")).shape == (4, 1, 6)
    assert (estimates.marginal(("b", "one", "a"))[:, 0] == table.T).all()
    assert estimates.marginal(("one",)) == pytest.approx(table.sum(), rel=1e-3)
    assert estimates.linear(("b",)).shape == (4,)
    with pytest.raises(InternalError, match="not estimated"):
        estimates.marginal(("a", "c"))


def test_the_total_alone_is_measured_once():
    planned = AdaptivePlan(Workload(SIZES).add([], []), Budget(mu=2))
    estimates = run(pay(planned), Counted({(): np.array(5000)}, 1), _bits=SeededBits(3))
    (only,) = estimates.rounds
    assert [m.attributes for m in only.measured] == [()]
    assert Fraction(99, 100) * planned.privacy_cost < only.cost <= planned.privacy_cost
    assert abs(estimates.marginal(()) - 5000) < 4


def test_estimates_can_be_made_again_from_the_rounds():
    estimates, _ = released(TRIPLES, Budget(rho=0.1))
    again = Estimates.of(estimates.plan, estimates.measured)
    assert (again.rounds, again.spent) == ((), 0)
    for names in TRIPLES:
        assert np.array_equal(again.marginal(names), estimates.marginal(names))
        assert np.array_equal(again.linear(names), estimates.linear(names))


def test_the_log_tells_what_was_spent():
    """Each round's cost is that of its choice and its measurements, to the last digit."""
    estimates, _ = released(TRIPLES, Budget(rho=0.1), contributions=2)
    for r in estimates.rounds:
        blocks = tuple(block_of(m.attributes, SIZES, m.variance) for m in r.measured)
        assert r.cost == selection_cost(r.epsilon) + privacy_cost(blocks, 2)


def test_a_charge_is_run_once():
    planned = AdaptivePlan(all_marginals(SIZES, PAIRS), Budget(rho=1))
    truth = marginals_of(rows(100), SIZES, planned.marginals)
    charged = pay(planned)
    run(charged, truth, _bits=SeededBits(1))
    with pytest.raises(InternalError, match="once"):
        run(charged, truth, _bits=SeededBits(1))


@pytest.mark.parametrize(("paid", "counted"), [(1, 2), (3, 2)])
def test_counts_with_another_number_of_rows_of_a_unit_are_refused(paid, counted):
    planned = AdaptivePlan(all_marginals(SIZES, PAIRS), Budget(rho=1), contributions=paid)
    truth = Counted(marginals_of(rows(100), SIZES, planned.marginals), counted)
    with pytest.raises(InternalError, match="another number of rows"):
        run(pay(planned), truth)


def test_plans_of_another_kind_and_missing_marginals_are_refused():
    import dpsql

    other = dpsql.plan(all_marginals(SIZES, PAIRS), budget=Budget(rho=1))
    truth = marginals_of(rows(100), SIZES, PAIRS)
    with pytest.raises(InternalError, match="adaptive"):
        run(charging.pay(other), truth)
    planned = AdaptivePlan(all_marginals(SIZES, PAIRS), Budget(rho=1))
    with pytest.raises(InternalError, match="marginal"):
        run(pay(planned), Counted({names: truth[names] for names in PAIRS[1:]}, 1))
    with pytest.raises(InternalError, match="marginal"):
        run(pay(planned), Counted({**truth, ("a", "b"): truth[("a", "b")].T}, 1))


def test_counts_are_not_copied_or_changed(monkeypatch):
    planned = AdaptivePlan(all_marginals(SIZES, PAIRS), Budget(rho=1))
    truth = marginals_of(rows(100), SIZES, PAIRS)
    held = []

    def keep(counted, *rest):
        held.append(GuardedCounts(counted, *rest))
        return held[0]

    monkeypatch.setattr(adaptive, "GuardedCounts", keep)
    for counts in truth.values():
        counts.setflags(write=False)
    run(pay(planned), truth, _bits=SeededBits(1))
    kept = held[0]._marginals
    assert all(kept[names] is truth[names] for names in PAIRS)
    assert (kept[("a",)] == truth[("a", "b")].sum(axis=1)).all()
    assert kept[()] == 100
