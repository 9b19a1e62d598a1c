from __future__ import annotations

import copy
import math
import pickle
import re
from decimal import Decimal
from fractions import Fraction as Q
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import BudgetError
from dpsql.privacy import Budget
from dpsql.privacy.conversions import delta_of


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (1, Q(1)),
        (0.1, Q(1, 10)),
        (Decimal("0.1"), Q(1, 10)),
        (Q(1, 3), Q(1, 3)),
        (np.int64(3), Q(3)),
        (np.uint8(3), Q(3)),
        (np.float64(0.1), Q(1, 10)),
        (np.float32(0.1), Q(1, 10)),
        (1e-9, Q(1, 10**9)),
        (Decimal("1E-9"), Q(1, 10**9)),
    ],
)
def test_numbers_are_taken_exactly(given_: object, expected: Q) -> None:
    budget = Budget(rho=given_)
    assert budget.rho == expected
    assert budget.mu_squared == 2 * expected
    assert type(budget.rho) is Q
    assert Budget(mu=given_).mu_squared == expected**2 if expected >= Q(1, 10**6) else True


def test_ten_tenths_are_exactly_one() -> None:
    assert sum(Budget(rho=0.1).rho for _ in range(10)) == 1 == Budget(rho=1).rho


def test_the_three_forms() -> None:
    assert Budget(rho=0.5).mu_squared == Budget(mu=1).mu_squared == 1
    stated = Budget(epsilon=1, delta=1e-9)
    assert (stated.form, stated.epsilon, stated.delta) == ("epsilon", 1, Q(1, 10**9))
    assert delta_of(stated.mu_squared, Q(1)) <= 1e-9
    assert stated.epsilon_at(1e-9) == 1.0
    assert Budget(mu=1).epsilon_at(1e-6) == pytest.approx(4.886554117462212, rel=1e-15)
    assert Budget(mu=1).delta_at(1) == pytest.approx(0.12693673750664395, rel=1e-15)
    assert [Budget(rho=1).form, Budget(mu=1).form] == ["rho", "mu"]
    assert Budget(rho=1).epsilon is None is Budget(mu=1).delta


bad = [
    {}, {"rho": 0}, {"rho": -1}, {"rho": math.nan}, {"rho": math.inf}, {"rho": -math.inf},
    {"rho": "1"}, {"rho": True}, {"rho": None}, {"rho": 1j}, {"rho": [1]}, {"rho": b"1"},
    {"rho": np.array([1.0])}, {"rho": np.array(1.0)}, {"rho": np.bool_(True)},
    {"rho": np.float64("nan")}, {"rho": np.complex128(1)}, {"rho": np.datetime64("2020-01-01")},
    {"rho": Decimal("NaN")}, {"rho": Decimal("sNaN")}, {"rho": Decimal("Infinity")},
    {"rho": Decimal("1e999999999")}, {"rho": Decimal("1e-999999999")}, {"rho": 10**100_000},
    {"rho": Q(10**5000 + 1, 10**5000)}, {"mu": Q(2**1400 + 1, 2**1400)},
    {"rho": 1e-320}, {"rho": 1e300}, {"rho": 4e-13},
    {"rho": 1e15}, {"mu": 1e-7}, {"mu": 1e8}, {"mu": 0}, {"mu": 1e300}, {"mu": "x" * 1000},
    {"rho": 1, "mu": 1}, {"rho": 1, "epsilon": 1, "delta": 1e-9}, {"rho": 1, "delta": 1e-9},
    {"rho": 1, "mu": None}, {"epsilon": 1}, {"delta": 1e-9}, {"eps": 1}, {"sigma\x1b[31m": 1},
    {"epsilon": 1, "delta": 1}, {"epsilon": 1, "delta": 2},
    {"epsilon": 1, "delta": -1e-9}, {"epsilon": 1, "delta": math.nan},
    {"epsilon": 1, "delta": None}, {"epsilon": 1, "delta": "1e-9"}, {"epsilon": 0, "delta": 1e-9},
    {"epsilon": math.inf, "delta": 1e-9}, {"epsilon": 1e300, "delta": 1e-9},
    {"epsilon": 1e-320, "delta": 1e-9}, {"epsilon": 1e-320, "delta": 0.1},
    {"epsilon": -1, "delta": 1e-9}, {"epsilon": 1e-9, "delta": 1e-9},
]  # fmt: skip


@pytest.mark.parametrize("given_", bad, ids=lambda d: repr(list(d))[:40])
def test_everything_else_is_refused_with_a_hint_that_works(given_: dict[str, object]) -> None:
    with pytest.raises(BudgetError) as caught:
        Budget(**given_)
    hint = caught.value.hint
    assert hint is not None
    examples = re.findall(r"dpsql\.Budget\([^)]*\)", hint)
    assert examples
    for example in examples:
        assert isinstance(eval(example, {"dpsql": SimpleNamespace(Budget=Budget)}), Budget)  # noqa: S307
    assert len(str(caught.value)) < 400
    assert str(caught.value).replace("\n", "").isprintable()


def test_positional_amounts_are_refused() -> None:
    with pytest.raises(BudgetError, match="must be named"):
        Budget(0.5)  # type: ignore[call-overload]


def test_bad_arguments_of_reports() -> None:
    for delta in (0, 1, math.nan, "x", None, True):
        with pytest.raises(BudgetError):
            Budget(mu=1).epsilon_at(delta)
    for epsilon in (-1, math.nan, "x"):
        with pytest.raises(BudgetError):
            Budget(mu=1).delta_at(epsilon)
    assert 0 < Budget(mu=1).delta_at(0) < 0.383


def test_values() -> None:
    assert Budget(rho=0.5) == Budget(rho=Q(1, 2)) == Budget(rho=Decimal("0.50"))
    assert hash(Budget(rho=0.5)) == hash(Budget(rho=Q(1, 2)))
    assert Budget(rho=0.5) != Budget(mu=1)  # the same amount, stated otherwise
    assert Budget(epsilon=1, delta=1e-9) != Budget(epsilon=1, delta=1e-8)
    budget = Budget(epsilon=1, delta=1e-9)
    assert pickle.loads(pickle.dumps(budget)) == budget == copy.deepcopy(budget)  # noqa: S301
    with pytest.raises(AttributeError):
        budget.mu_squared = Q(100)  # type: ignore[misc]


def test_mu_is_rounded_up() -> None:
    assert Budget(mu=1).mu == 1.0
    for text in ("0.1", "0.3", "1e-5", "12345.678", "2e7"):
        budget = Budget(mu=Decimal(text))
        assert Q(budget.mu) >= budget.amount
        assert Q(math.nextafter(budget.mu, 0)) < budget.amount
    assert Budget(rho=1).mu == math.nextafter(math.sqrt(2), 0) or Q(Budget(rho=1).mu) ** 2 >= 2


def test_written_forms() -> None:
    assert repr(Budget(rho=0.5)) == "Budget(rho=0.5)"
    assert repr(Budget(mu=1.0)) == "Budget(mu=1)"
    assert repr(Budget(epsilon=1, delta=1e-9)) == "Budget(epsilon=1, delta=1e-9)"
    assert repr(Budget(rho=Q(1, 3))) == "Budget(rho=Fraction(1, 3))"
    assert str(Budget(epsilon=1, delta=1e-9)) == "ε = 1, δ = 1e-9"
    assert str(Budget(rho=0.5)) == "ρ = 0.5"
    assert str(Budget(mu=Q(1, 3))) == "μ = 0.333334"


amounts = st.one_of(
    st.floats(1e-5, 1e6), st.fractions(Q(1, 1000), 1000, max_denominator=10**6),
    st.integers(1, 10**6), st.decimals(Decimal("0.001"), 1000, places=8),
)  # fmt: skip


@given(amounts, st.sampled_from(["rho", "mu", "epsilon"]))
@settings(max_examples=60, deadline=None)
def test_repr_reads_back(amount: object, form: str) -> None:
    extra = {"delta": Q(1, 10**9)} if form == "epsilon" else {}
    budget = Budget(**{form: amount}, **extra)
    assert eval(repr(budget), {"Budget": Budget, "Fraction": Q}) == budget  # noqa: S307


def test_amounts_in_the_form_of_the_budget() -> None:
    rho, mu = Budget(rho=0.5), Budget(mu=1)
    assert rho.describe(Q(6, 10)) == "ρ = 0.3"
    assert rho.describe(Q(2, 3)) == "ρ = 0.333334"
    assert rho.describe(Q(2, 3), up=False) == "ρ = 0.333333"
    assert rho.describe(Q(0)) == "ρ = 0"
    assert rho.describe(Q(-1, 5), up=False) == "ρ = -0.1"
    assert mu.describe(Q(1, 4)) == "μ = 0.5 (ρ = 0.125)"
    assert mu.describe(Q(2), up=False) == "μ = 1.41421 (ρ = 1)"
    assert mu.describe(Q(2)) == "μ = 1.41422 (ρ = 1)"
    stated = Budget(epsilon=1, delta=1e-9)
    assert stated.describe(stated.mu_squared) == "ε = 1 at δ = 1e-9 (ρ = 0.0165575)"
    assert re.fullmatch(r"ε = [\d.]+ at δ = 1e-9 \(ρ = 0.5\)", stated.describe(Q(1)))
    assert rho.describe(Q(2, 10**12)) == "ρ = 1e-12"


@given(st.fractions(Q(1, 10**9), 10**6), st.sampled_from(["rho", "mu", "epsilon"]))
@settings(max_examples=60, deadline=None)
def test_what_is_left_is_never_overstated(left: Q, form: str) -> None:
    extra = {"delta": Q(1, 10**9)} if form == "epsilon" else {}
    offered = Budget(**{form: 1}, **extra).at_most(left)
    if offered is not None:
        assert offered.form == form
        assert offered.mu_squared <= left
        assert offered.mu_squared == pytest.approx(float(left), rel=1e-4)
    else:
        assert left < Q(1, 10**6)


def test_nothing_left() -> None:
    for budget in (Budget(rho=1), Budget(mu=1), Budget(epsilon=1, delta=1e-9)):
        assert budget.at_most(Q(0)) is None
        assert budget.at_most(Q(-1)) is None
        assert budget.at_most(Q(1, 10**13)) is None
