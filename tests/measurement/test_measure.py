"""Measurement: only what was paid for, in exact integers, with every noise call accounted for."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.engines.cover import roll_up
from dpsql.errors import InternalError, LedgerError
from dpsql.measurement import narrow as module
from dpsql.measurement.measure import ChargedPlan, measure
from dpsql.measurement.narrow import apply
from dpsql.planner.mechanisms.querysmasher import plan
from dpsql.privacy import Budget, Ledger
from dpsql.workload import Identity, Matrix, Prefix, Workload
from tests.helpers.charging import charge, pay
from tests.helpers.seeded import SeededBits
from tests.oracle import every_space, family_matrix, reconstruct, space_matrix

DOMAIN = {"a": 4, "b": 3, "c": 2}


@pytest.fixture(scope="module")
def planned():
    workload = Workload(DOMAIN)
    workload.add(["a", "c"], [Prefix(), Identity()])
    workload.add(["b"], [Identity()])
    workload.add(
        ["b", "a"], Matrix(np.add.outer(range(3), range(4)).ravel() <= np.array([[2], [3]]))
    )
    return plan(workload, Budget(rho=50))


def marginals_of(planned, counts):
    wanted = [space for _, space in every_space(planned.certified.blocks)]
    return Counted(roll_up(wanted, {tuple(DOMAIN): counts}), 1)


@pytest.fixture
def counts():
    return np.random.default_rng(7).integers(0, 50, tuple(DOMAIN.values()))


def test_blocks_are_applied_as_the_dense_matrices(planned, counts):
    marginals = marginals_of(planned, counts)
    for block, space in every_space(planned.certified.blocks):
        dense = space_matrix(block, space, DOMAIN) @ counts.ravel().astype(object)
        assert apply(block, marginals[space]).ravel().tolist() == dense.tolist()


@pytest.mark.parametrize("runs", [600, pytest.param(1500, marks=pytest.mark.long)])
def test_answers_are_unbiased_and_vary_as_stated(planned, counts, runs):
    """The mean and the covariance's diagonal over many releases, against the exact answers.

    600 runs see a variance that is wrong by 0.29, and 1,500 one that is wrong by 0.19.
    """
    marginals = marginals_of(planned, counts)
    bits = SeededBits(11)
    found = [[] for _ in planned.workload.families]
    for _ in range(runs):
        measured = measure(pay(planned), marginals, _bits=bits)
        for answers, family in zip(found, planned.workload.families, strict=True):
            answers.append(reconstruct(planned, measured, family))
    for index, family in enumerate(planned.workload.families):
        exact = (family_matrix(family, DOMAIN) @ counts.ravel()).reshape(family.shape)
        errors = np.array(found[index]) - exact
        stated = planned.variances[index]
        # Means within 4.5 standard errors; variances have a relative standard error √(2/runs).
        assert (np.abs(errors.mean(axis=0)) < 4.5 * np.sqrt(stated / runs)).all()
        ratio = np.square(errors).mean(axis=0) / stated
        assert (np.abs(ratio - 1) < 5 * np.sqrt(2 / runs)).all()


def test_neighbours_differ_within_the_sensitivity_and_in_nothing_else(planned, counts, monkeypatch):
    """Every noise call on neighboring tables: same order, shapes and scale; distance <= Δ."""
    measured = every_space(planned.certified.blocks)

    def record(of_counts):
        calls = []
        real = module.rounded_gaussian

        def recorder(variance, count, bits):
            calls.append((variance, count))
            return real(variance, count, bits)

        monkeypatch.setattr(module, "rounded_gaussian", recorder)
        marginals = marginals_of(planned, of_counts)
        measure(pay(planned), marginals, _bits=SeededBits(3))
        monkeypatch.setattr(module, "rounded_gaussian", real)
        exact = [apply(b, marginals[space]) for b, space in measured]
        return calls, exact

    calls, exact = record(counts)
    for cell in itertools.product(*(range(n) for n in DOMAIN.values())):
        neighbour = counts.copy()
        neighbour[cell] += 1
        other_calls, other = record(neighbour)
        assert other_calls == calls
        for (block, _), x, y in zip(measured, exact, other, strict=True):
            distance = sum(int(d) ** 2 for d in (y - x).ravel())
            assert distance <= block.sensitivity_squared


def test_a_receipt_for_another_plan_is_refused(planned):
    other = plan(Workload({"a": 2}).add(["a"], [Identity()]), planned.budget)
    ledger, receipt = charge(planned)
    with pytest.raises(InternalError, match="another plan"):
        ChargedPlan(other.certified, receipt, ledger)


def test_a_receipt_for_less_than_the_plan_costs_is_refused(planned):
    ledger, receipt = charge(planned)
    less = dataclasses.replace(receipt, mu_squared=planned.privacy_cost - Fraction(1, 10**12))
    with pytest.raises(InternalError, match="less"):
        ChargedPlan(planned.certified, less, ledger)


def test_a_receipt_that_the_ledger_does_not_hold_is_refused(planned):
    _, receipt = charge(planned)
    with pytest.raises(LedgerError, match="does not hold"):
        ChargedPlan(planned.certified, receipt, Ledger.open(None, dataset="test"))


def test_a_receipt_of_a_finished_release_is_refused(planned):
    ledger, receipt = charge(planned)
    ledger.release(receipt, b"")
    with pytest.raises(LedgerError, match="used before"):
        ChargedPlan(planned.certified, receipt, ledger)


def test_a_charged_plan_is_measured_once(planned, counts):
    charged, marginals = pay(planned), marginals_of(planned, counts)
    measure(charged, marginals, _bits=SeededBits(1))
    with pytest.raises(InternalError, match="once"):
        measure(charged, marginals, _bits=SeededBits(2))


def test_a_missing_or_misshapen_marginal_is_refused(planned, counts):
    marginals = marginals_of(planned, counts)
    with pytest.raises(InternalError, match="missing"):
        measure(pay(planned), Counted({}, 1), _bits=SeededBits(1))
    wrong = Counted({k: v.astype(np.int32) for k, v in marginals.items()}, 1)
    with pytest.raises(InternalError, match="shape or type"):
        measure(pay(planned), wrong, _bits=SeededBits(1))


@pytest.mark.parametrize("rows", [2, 0, 10**6])
def test_counts_with_another_number_of_rows_of_a_unit_are_refused(planned, counts, rows):
    """Whoever counted 2 rows of a person and paid for 1 would give away more than was paid for."""
    charged, marginals = pay(planned), marginals_of(planned, counts)
    with pytest.raises(InternalError, match="another number of rows"):
        measure(charged, Counted(marginals, rows))
    assert measure(charged, marginals).values  # it was not used up


def test_no_two_releases_have_the_same_noise(planned, counts):
    marginals = marginals_of(planned, counts)
    first, second = (measure(pay(planned), marginals) for _ in range(2))
    assert any((first.values[space] != second.values[space]).any() for space in first.values)


def test_noise_comes_from_fresh_bits_when_none_are_given(planned, counts, monkeypatch):
    """No global generator has any influence."""
    import random

    marginals = marginals_of(planned, counts)
    results = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        results.append(measure(pay(planned), marginals).values)
    assert any((results[0][s] != results[1][s]).any() for s in results[0])
