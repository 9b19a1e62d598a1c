"""Amounts: their sums, their order and their text."""

from __future__ import annotations

import json
from fractions import Fraction as Q
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.privacy.amount import EVERY, Amount, fraction

NAMED = ("aa", "bb", "cc")
parts = st.integers(0, 20).map(lambda n: Q(n, 7))
amounts = st.builds(
    Amount, st.dictionaries(st.sampled_from((EVERY, *NAMED)), parts, max_size=4), parts
)
EVERYBODY = (EVERY, *NAMED, "dd")
"""All roots that may be named, and one that never is."""


@given(amounts, amounts, amounts)
@settings(max_examples=50, deadline=None)
def test_sums_are_exact_in_any_order(a: Amount, b: Amount, c: Amount) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Amount() == a
    for root in EVERYBODY:
        assert (a + b).of(root) == a.of(root) + b.of(root)
    assert (a + b).delta == a.delta + b.delta


@given(amounts, amounts, amounts)
@settings(max_examples=100, deadline=None)
def test_an_amount_is_within_another_if_it_is_so_for_each_unit(
    a: Amount, b: Amount, c: Amount
) -> None:
    assert (a <= b) == (a.delta <= b.delta and all(a.of(r) <= b.of(r) for r in EVERYBODY))
    assert a <= a + b
    if a <= b:
        assert a + c <= b + c
        assert not (b <= a) or a == b
        assert not (b <= c) or a <= c


@given(amounts)
@settings(max_examples=50, deadline=None)
def test_an_amount_has_one_text(a: Amount) -> None:
    written = json.loads(json.dumps(a.document))
    assert Amount.read(written) == a
    assert Amount.read(written).document == written
    assert bool(a) == bool(written)


def test_what_counts_for_all_counts_for_each() -> None:
    limit, tenth = Amount({EVERY: Q(1)}, Q(1, 10**10)), Amount({EVERY: Q(1, 10)})
    spent = sum([tenth] * 9, Amount({"aa": Q(1, 10)}))
    assert spent.of("aa") == 1
    assert spent.of("bb") == spent.of(EVERY) == Q(9, 10)
    assert spent <= limit
    assert spent + Amount({"bb": Q(1, 10)}) <= limit
    assert not spent + Amount({"aa": Q(1, 10**30)}) <= limit
    assert not spent + tenth <= limit
    assert spent + Amount(delta=Q(1, 10**10)) <= limit
    assert not spent + Amount(delta=Q(1, 10**10) + Q(1, 10**40)) <= limit
    assert not Amount({"aa": Q(1)}) <= Amount({"bb": Q(2)})
    assert Amount({"aa": Q(1)}) <= Amount({EVERY: Q(1, 2), "aa": Q(1, 2)})


def test_parts_without_a_loss_are_left_out() -> None:
    assert Amount({"aa": Q(0), EVERY: Q(1)}) == Amount({EVERY: Q(1)})
    assert Amount({EVERY: Q(1)}) != Amount({"aa": Q(1)})
    assert not Amount({"aa": Q(0)})
    assert Amount({"aa": Q(0)}).document == {}


@pytest.mark.parametrize("part", [Q(-1, 10**30), 0.5, 1, True, None, "1/2"])
def test_parts_that_are_no_exact_losses(part: Any) -> None:
    for make in (lambda: Amount({EVERY: part}), lambda: Amount(delta=part)):
        with pytest.raises(InternalError, match="negative or inexact"):
            make()


def test_an_amount_does_not_change() -> None:
    mine = {EVERY: Q(1)}
    amount = Amount(mine)
    mine[EVERY] = Q(0)
    assert amount.of(EVERY) == 1
    with pytest.raises(TypeError):
        amount.mu_squared[EVERY] = Q(0)  # type: ignore[index]


@pytest.mark.parametrize("text", ["", "1", "1/0", "01/2", "-1/2", "1/2 ", " 1/2", "1.5/2", "１/2"])
def test_texts_that_are_no_fractions(text: str) -> None:
    with pytest.raises(ValueError, match="fraction"):
        fraction(text)
    with pytest.raises(ValueError):
        Amount.read({"mu_squared": {EVERY: text}})


@pytest.mark.parametrize("root", ["", "AB", "**", "name of a table", "a" * 129])
def test_roots_are_digests(root: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        Amount.read({"mu_squared": {root: "1/2"}})
