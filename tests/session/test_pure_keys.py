"""Keys that are found with Laplace noise, for a pure ε: what is charged, told, kept and counted."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest

import dpsql
from dpsql.privacy.conversions import mu_squared_of_pure
from dpsql.session import answer as answering
from dpsql.session import session as sessions

PURE = dpsql.Budget(epsilon=1, delta=0)
KEYS = dpsql.Keys(delta="1e-9")
SQL = "SELECT city AS k, COUNT(*) AS n FROM t GROUP BY 1"


@pytest.fixture
def con():
    con = duckdb.connect()
    con.execute("""
        CREATE TABLE t AS SELECT i AS id, i % 500 AS person, 'town ' || (i % 7) AS city, i % 9 AS n
        FROM range(7000) r (i);
        INSERT INTO t VALUES (9999, 7, 'rare', 5)
    """)
    return con


@pytest.mark.parametrize("mechanism", ["laplace", "hdmm"])
def test_keys_take_a_part_of_epsilon_and_the_rest_counts(con, mechanism):
    session = dpsql.Session(con)
    release = session.release({"a": SQL}, budget=PURE, keys=KEYS, mechanism=mechanism)
    assert set(release["a"]["k"]) == {f"town {i}" for i in range(7)} | {"(other)", None}
    rule = release.found_keys("t", "city").rule
    assert rule.epsilon == Fraction(1, 2)
    finding, counting = session.ledger.entries()
    half = mu_squared_of_pure(Fraction(1, 2))
    assert [finding.mu_squared, counting.mu_squared] == [half, half]
    assert [finding.delta, counting.delta] == [Fraction(1, 10**9), 0]
    assert half + half <= PURE.mu_squared
    for k, n, variance in release["a"].select("k", "n", "n_variance").rows():
        true = 1000 if k and k.startswith("town") else (k == "(other)")
        assert abs(n - true) < 25 * variance**0.5
        assert variance == pytest.approx(8, rel=0.05)


def test_all_of_epsilon_makes_a_histogram_with_noise_drawn_once(con):
    session = dpsql.Session(con)
    found = session.find_keys("t", "city", budget=PURE, keys=KEYS)
    (entry,) = session.ledger.entries()
    assert (entry.mu_squared, entry.delta) == (PURE.mu_squared, Fraction(1, 10**9))
    assert found.error == pytest.approx(2**0.5, rel=1e-5)
    assert (found.least(0.5), found.least(0.95)) == (22, 24)
    assert found.counts.columns == ["city", "units"]
    counts = dict(found.counts.rows())
    assert counts.keys() == {f"town {i}" for i in range(7)}
    assert max(abs(n - 1000) for n in counts.values()) < 40  # less than once in 10^11 tables
    again = session.find_keys("t", "city", budget=0)
    assert again.counts.equals(found.counts)
    assert len(session.ledger.entries()) == 1


def test_there_is_no_histogram_where_numbers_say_nothing_of_units(con):
    session = dpsql.Session(con, unit="person", max_rows=14)
    found = session.find_keys("t", "city", budget=dpsql.Budget(epsilon=8, delta=0), keys=KEYS)
    assert len(found.rule.rounds) == 2
    assert found.rule.epsilon == 8
    with pytest.raises(dpsql.SchemaError, match="several of them") as refused:
        _ = found.counts
    assert "statement" in refused.value.hint
    few = dpsql.Session(con).find_keys(
        "t", "city", budget=PURE, keys=dpsql.Keys(delta="1e-9", max_keys=3), refresh=True
    )
    with pytest.raises(dpsql.SchemaError, match="too many"):
        _ = few.counts


def test_gaussian_noise_makes_a_histogram_too(con):
    budget = dpsql.Budget(epsilon=1, delta=1e-9)
    found = dpsql.Session(con).find_keys("t", "city", budget=budget)
    assert found.error == pytest.approx(5.51, abs=0.01)
    assert max(abs(n - 1000) for n in found.counts["units"]) < 50


def test_releases_are_saved_and_loaded(con, tmp_path):
    session = dpsql.Session(con)
    release = session.release({"a": SQL}, budget=PURE, keys=KEYS, mechanism="laplace")
    release.save(tmp_path / "saved")
    saved = dpsql.Release.load(tmp_path / "saved", ledger=session.ledger)
    assert saved["a"].equals(release["a"])
    found = saved.found_keys("t", "city")
    assert found.rule == release.found_keys("t", "city").rule
    assert found.keys == release.found_keys("t", "city").keys


def test_units_with_several_keys_add_less_to_each(con):
    session = dpsql.Session(con, unit="person", max_rows=14)
    budget = dpsql.Budget(epsilon=20, delta=0)
    release = session.release({"a": SQL}, budget=budget, keys=KEYS, mechanism="laplace")
    assert set(release.found_keys("t", "city").keys) == {f"town {i}" for i in range(7)}
    entries = session.ledger.entries()
    assert sum(entry.mu_squared for entry in entries) <= budget.mu_squared
    assert sum(entry.delta for entry in entries) == Fraction(1, 10**9)


@pytest.mark.parametrize("pure", [True, False])
def test_as_little_is_spent_as_finds_keys_of_so_many_units(con, pure):
    budget = PURE if pure else dpsql.Budget(epsilon=1, delta=1e-9)
    keys = dpsql.Keys(at_least=100, delta="1e-10")
    rule = keys.rule(budget)
    assert rule.probability(100) >= 0.95 > rule.probability(99)
    found = dpsql.Session(con).find_keys("t", "city", budget=budget, keys=keys)
    assert found.rule == rule
    assert bool(rule.epsilon) == pure
    with pytest.raises(dpsql.errors.BudgetError, match="95 %"):
        dpsql.Keys(at_least=2, delta="1e-10").rule(budget)


def test_what_is_too_small_a_part_is_refused(con):
    keys = dpsql.Keys(share=1e-9, delta="1e-9")
    session = dpsql.Session(con)
    with pytest.raises(dpsql.errors.BudgetError, match="too small"):
        session.find_keys("t", "city", budget=PURE, keys=keys)
    with pytest.raises(dpsql.errors.BudgetError, match="leaves nothing"):
        session.release({"a": SQL}, budget=PURE, keys=dpsql.Keys(share=1, delta="1e-9"))
    assert session.history.is_empty()


def test_keys_stay_where_the_second_step_fails(con, monkeypatch):
    """What was found is kept, and the answer is asked for again without it being found anew."""
    session, real = dpsql.Session(con), answering.answer

    def failing(data, request):
        if data.declared.found:
            raise KeyboardInterrupt
        return real(data, request)

    monkeypatch.setattr(sessions, "answer", failing)
    given = {"budget": PURE, "keys": KEYS, "mechanism": "laplace"}
    with pytest.raises(KeyboardInterrupt):
        session.release({"a": SQL}, **given)
    monkeypatch.setattr(sessions, "answer", real)
    assert session.history.height == 1
    release = session.release({"a": SQL}, **given)
    assert session.history.height == 2
    assert release.found_keys("t", "city").keys


def test_an_account_pays_both_sums(con):
    total = dpsql.Budget(epsilon=3, delta=1e-6)
    session = dpsql.Session(con, budget=total, key_delta=1e-9)
    budget = dpsql.Budget(epsilon=0.4, delta=0)
    session.release({"a": SQL}, budget=budget, keys=dpsql.Keys(), mechanism="laplace")
    assert 0 < session.ledger.spent_delta <= Fraction(1, 10**9)
    with pytest.raises(dpsql.errors.BudgetError):
        session.find_keys("t", "n", budget=budget, keys=dpsql.Keys(delta="1e-8"))
