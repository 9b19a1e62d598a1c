"""The promise in words: its numbers are those of the accountant, and none is too good."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from statistics import NormalDist

import duckdb
import pytest

import dpsql
from dpsql.present.summary import guessed, not_protected, promised
from dpsql.schema import Table

ROWS = Table("t", {})
NEIGHBORS = "add or remove one row of t"


def epsilon_in(text: str) -> float:
    found = re.search(r"ε = ([0-9.e+-]+) at δ = 1e-9", text)
    assert found is not None
    return float(found[1])


def said(budget: dpsql.Budget | None, *earlier: Fraction) -> str:
    both = [(mu_squared, Fraction(0)) for mu_squared in earlier]
    return " ".join(answer for _, answer in promised(budget, [ROWS], NEIGHBORS, both))


@pytest.mark.parametrize("mu", [0.01, 0.5, 1, 4])
def test_a_guess_is_no_better_than_the_best_test(mu):
    """Of N(0, 1) and N(μ, 1) the best test compares with μ/2; by (ε, δ) none is better."""
    budget = dpsql.Budget(mu=mu)
    best = guessed(budget)
    assert best == pytest.approx(NormalDist().cdf(mu / 2))
    for epsilon in (0, 0.1, 1, 3):
        advantage = (math.expm1(epsilon) + 2 * budget.delta_at(epsilon)) / (math.exp(epsilon) + 1)
        assert 2 * best - 1 <= advantage + 1e-9  # Kairouz, Oh and Viswanath, 2015


def test_numbers_are_those_of_the_budget():
    text = said(dpsql.Budget(epsilon=1, delta=1e-9))
    assert "ε = 1 at δ = 1e-9" in text
    assert "e^ε = 2.72 times" in text
    assert NEIGHBORS in text
    pure = said(dpsql.Budget(epsilon=0.5, delta=0))
    assert "ε = 0.5: each possible result" in pure
    assert "δ" not in pure
    assert "at most 62.3 of 100" in pure  # e^0.5 / (1 + e^0.5) is 0.62245…
    by_rho = dpsql.Budget(rho=0.02)
    assert 1 <= epsilon_in(said(by_rho)) / by_rho.epsilon_at(1e-9) < 1.001


def test_what_earlier_releases_were_charged_counts_together():
    budget, earlier = dpsql.Budget(mu=0.3), Fraction(16, 100)
    text = said(budget, earlier)
    together = dpsql.Budget(mu=0.5)
    assert 1 <= epsilon_in(text) / together.epsilon_at(1e-9) < 1.001
    assert f"{math.ceil(1000 * guessed(together)) / 10:.1f} of 100" in text
    assert f"{math.ceil(1000 * guessed(budget)) / 10:.1f} of 100" not in text
    free = said(None, earlier)
    assert "Nothing: all answers follow" in free
    assert 1 <= epsilon_in(free) / dpsql.Budget(mu=0.4).epsilon_at(1e-9) < 1.001


def test_a_release_that_rests_on_another_says_so(tmp_path):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (id INT, a BOOLEAN NOT NULL)")
    con.execute("INSERT INTO t SELECT i % 50, i % 2 = 0 FROM range(200) AS r(i)")
    session = dpsql.Session(con, unit="id", max_rows=3)
    budget = dpsql.Budget(mu=1)
    script = {"a": "SELECT a, COUNT(*) AS n FROM t GROUP BY a"}
    first = session.release(script, budget=budget)
    second = session.release(script, budget=budget)
    pages = [
        each.report(tmp_path / f"{i}.html").read_text(encoding="utf-8")
        for i, each in enumerate((first, second))
    ]
    assert "measurements of earlier releases" not in pages[0]
    assert "measurements of earlier releases" in pages[1]
    for page in pages:
        assert "Each unit, identified by id, with all of its rows in t" in page
        assert "of which at most 3 count" in page
        assert "Rows beyond the bound. They are not counted, so totals may be too low" in page


def test_several_rows_of_a_person_are_only_promised_with_units():
    assert any("several rows in t, as persons" in text for text in not_protected([ROWS]))
