"""Releases by every mechanism: answers, errors, what is kept, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import BudgetError, MechanismError, UndeterminedError
from dpsql.measurement.certify import is_laplace
from dpsql.planner.plans.traits import MECHANISMS
from tests.session.tools import AGES, BY_SEX, TABLE, create

GAUSSIAN, PURE = dpsql.Budget(rho=0.1), dpsql.Budget(epsilon=2, delta=0)
SCRIPT = {
    "sexes": BY_SEX,
    "ages": AGES,
    "both": "SELECT town, sex, COUNT(*) AS n FROM people GROUP BY town, sex",
    "shares": "SELECT town, COUNT(*) / SUM(COUNT(*)) OVER () AS share, COUNT(*) AS n FROM people "
    "GROUP BY town",
    "old": "SELECT COUNT(*) AS n FROM people WHERE age >= 4",
    "middle": "SELECT MEDIAN(age) AS m FROM people",
}
MARGINALS = {name: SCRIPT[name] for name in ("sexes", "ages", "both")}
CASES = [
    ("querysmasher", GAUSSIAN, SCRIPT),
    ("residualplanner", GAUSSIAN, MARGINALS),
    ("residualplanner+", GAUSSIAN, SCRIPT),
    ("fourier", GAUSSIAN, SCRIPT),
    ("hdmm", GAUSSIAN, SCRIPT),
    ("hdmm", PURE, SCRIPT),
    ("gaussian", GAUSSIAN, SCRIPT),
    ("laplace", PURE, SCRIPT),
]
IDS = [f"{name} {budget}" for name, budget, _ in CASES]
MARGINAL_CASES = [case for case in CASES if MECHANISMS[case[0]].measures_marginals]
MARGINAL_IDS = [f"{name} {budget}" for name, budget, _ in MARGINAL_CASES]


@pytest.fixture
def session():
    with create() as con:
        yield dpsql.Session(con)


def test_no_mechanism_is_left_out():
    known = {name for name, *_ in CASES} | {"aim", "pairs"}
    assert known == set(MECHANISMS), "add it to CASES"


@pytest.mark.parametrize(("mechanism", "budget", "script"), CASES, ids=IDS)
def test_answers_have_the_planned_errors(session, mechanism, budget, script):
    """One release: standardised errors of all counts have mean 0 and variance 1, about."""
    plan = session.plan(script, budget=budget, mechanism=mechanism)
    release = session.release(script, budget=budget, mechanism=mechanism)
    assert plan.mechanism == mechanism
    assert is_laplace(plan.certified.blocks) == budget.pure
    assert release.facts.mechanism == mechanism
    assert release.receipt.mu_squared == budget.mu_squared
    assert plan.privacy_cost <= budget.mu_squared
    (row,) = plan.expected_error().filter(pl.col("statement") == "ages").to_dicts()
    ages = release["ages"]
    exact = 30.0  # rows of each age
    assert ages["n_variance"].mean() == pytest.approx(row["rmse"] ** 2, rel=1e-9)
    errors = (ages["n"] - exact) / ages["n_variance"].sqrt()
    assert errors.abs().max() < 8
    assert (ages["n"] - exact).abs().max() > 1e-6
    assert MECHANISMS[mechanism].title in release.summary()
    assert release.columns("ages")["variance"].to_list() == [None, "exact"]


@pytest.mark.sampled(1)
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("mechanism", "budget"), [("hdmm", PURE), ("laplace", PURE), ("gaussian", GAUSSIAN)]
)
def test_intervals_hold_the_truth(mechanism, budget):
    """Also with Laplace noise, whose tails are heavier: at least 95 of 100 times."""
    held: list[bool] = []
    with create() as con:
        for _ in range(25):
            session = dpsql.Session(con)
            release = session.release(
                {"ages": AGES}, budget=budget, confidence=0.95, mechanism=mechanism
            )
            frame = release["ages"]
            held += ((frame["n_lower"] <= 30) & (frame["n_upper"] >= 30)).to_list()
    # 250 answers, of which those of one release may be correlated.
    assert 0.87 < np.mean(held) <= 1


def test_laplace_intervals_are_wider(session):
    reaches = {}
    for mechanism, budget in (("gaussian", GAUSSIAN), ("laplace", PURE)):
        release = session.release(
            {"sexes": BY_SEX}, budget=budget, confidence=0.99, mechanism=mechanism
        )
        frame = release["sexes"]
        reach = (frame["n_upper"] - frame["n"]) / frame["n_variance"].sqrt()
        reaches[mechanism] = reach.mean()
    assert reaches["gaussian"] == pytest.approx(2.5758, rel=1e-3)
    assert reaches["laplace"] == pytest.approx(math.log(100) / math.sqrt(2), rel=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("mechanism", "budget", "script"), CASES, ids=IDS)
def test_a_release_is_written_read_and_asked_more(session, tmp_path, mechanism, budget, script):
    release = session.release(script, budget=budget, mechanism=mechanism, out=tmp_path / "r")
    loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
    assert loaded.facts.mechanism == mechanism
    assert loaded.charged == budget
    for name in script:
        assert_frame_equal(loaded[name], release[name])
        assert_frame_equal(loaded.query(script[name]), release[name], rel_tol=1e-9, abs_tol=1e-9)
    # A sum over one column of a marginal over two follows too, with its variance.
    towns = loaded.query("SELECT town, COUNT(*) AS n FROM people GROUP BY town")
    assert towns["n_variance"].min() > 0
    free = session.release({"sexes": BY_SEX}, budget=0)
    assert_frame_equal(free["sexes"], release["sexes"], rel_tol=1e-9, abs_tol=1e-9)
    assert free.charged is None


@pytest.mark.parametrize(("mechanism", "budget", "script"), MARGINAL_CASES, ids=MARGINAL_IDS)
def test_what_was_not_measured_is_named(session, mechanism, budget, script):
    release = session.release({"ages": AGES}, budget=budget, mechanism=mechanism)
    with pytest.raises(UndeterminedError, match="sex"):
        release.query(BY_SEX)
    with pytest.raises(UndeterminedError, match="sex"):
        session.query(BY_SEX, budget=0)
    coarse = session.release({"old": SCRIPT["old"]}, budget=budget, mechanism=mechanism)
    with pytest.raises(UndeterminedError, match="age"):
        coarse.query(AGES)


@pytest.mark.parametrize(("mechanism", "budget", "script"), MARGINAL_CASES, ids=MARGINAL_IDS)
def test_querysmasher_leaves_measurements_aside_that_dont_combine(
    session, mechanism, budget, script
):
    session.release(script, budget=budget, mechanism=mechanism)
    again = session.plan(script, budget=GAUSSIAN)
    fresh = session.plan(script, budget=GAUSSIAN, reuse=False)
    assert again.given is None
    assert again.rmse == pytest.approx(fresh.rmse, rel=1e-9)


def test_residual_spaces_of_other_mechanisms_are_built_on(session):
    session.release(MARGINALS, budget=GAUSSIAN, mechanism="residualplanner")
    again = session.plan(MARGINALS, budget=GAUSSIAN)
    fresh = session.plan(MARGINALS, budget=GAUSSIAN, reuse=False)
    assert again.rmse == pytest.approx(fresh.rmse / math.sqrt(2), rel=0.02)


BIASED = [("aim", GAUSSIAN, SCRIPT), ("pairs", GAUSSIAN, SCRIPT)]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("mechanism", "budget", "script"), [*CASES, *BIASED], ids=[*IDS, "aim", "pairs"]
)
def test_what_was_measured_and_not_handed_out_is_there(
    monkeypatch, session, mechanism, budget, script
):
    """The disk fails after the charge: the same call hands the answers out, at no cost."""

    def fail(*arguments, **more):
        raise OSError

    with monkeypatch.context() as broken:
        broken.setattr(dpsql.Release, "save", fail)
        with pytest.raises(OSError):
            session.release(script, budget=budget, mechanism=mechanism, out="never")
    spent = session.ledger.spent
    assert spent == budget.mu_squared
    release = session.release(script, budget=budget, mechanism=mechanism)
    assert session.ledger.spent == spent
    assert release.facts.mechanism == mechanism
    assert release.receipt is not None
    assert release["ages"]["n"].is_not_null().all()
    assert ("n_variance" in release["ages"].columns) == (mechanism not in {"aim", "pairs"})
    assert session.release(script, budget=budget, mechanism=mechanism).receipt != release.receipt


@pytest.mark.parametrize("mechanism", ["aim", "pairs"])
def test_estimates_that_were_not_handed_out_are_the_same(monkeypatch, session, mechanism):
    seen = []
    real = dpsql.Release.save

    def fail(release, path):
        seen.append(release["ages"])
        raise OSError

    monkeypatch.setattr(dpsql.Release, "save", fail)
    with pytest.raises(OSError):
        session.release(SCRIPT, budget=GAUSSIAN, mechanism=mechanism, out="never")
    monkeypatch.setattr(dpsql.Release, "save", real)
    again = session.release(SCRIPT, budget=GAUSSIAN, mechanism=mechanism)
    assert_frame_equal(again["ages"], seen[0], rel_tol=1e-6)


def test_a_request_by_another_mechanism_is_another_request(session):
    first = session.release(MARGINALS, budget=GAUSSIAN, mechanism="gaussian")
    second = session.release(MARGINALS, budget=GAUSSIAN, mechanism="residualplanner")
    assert first.receipt.purpose.script != second.receipt.purpose.script


class TestAim:
    def test_answers_have_no_variances(self, session):
        release = session.release(SCRIPT, budget=GAUSSIAN, mechanism="aim")
        assert release["sexes"].columns == ["sex", "n"]
        assert release["middle"].columns == ["m"]
        assert release["shares"].columns == ["town", "share", "n"]
        described = release.columns("shares")
        assert described["variance"].to_list() == [None, "none", "none"]
        assert described["reason"].drop_nulls().unique().to_list() == [
            "biased: chosen and fitted by the data"
        ]
        for name in ("sexes", "ages", "both"):
            assert (release[name]["n"] >= 0).all()
        assert release["sexes"]["n"].sum() == pytest.approx(300, abs=60)
        assert release.facts.rmse is None
        assert "biased" in release.summary()
        assert next(iter(release.batches("ages", 4))).columns == ["age", "n"]

    def test_it_is_near_with_a_large_budget(self, session):
        release = session.release(SCRIPT, budget=dpsql.Budget(rho=1000), mechanism="aim")
        assert (release["ages"]["n"] - 30).abs().max() < 2
        assert release["old"]["n"][0] == pytest.approx(180, abs=3)

    def test_it_is_written_and_read_and_not_asked_more(self, session, tmp_path):
        release = session.release(
            {"ages": AGES}, budget=GAUSSIAN, mechanism="aim", out=tmp_path / "r"
        )
        loaded = dpsql.Release.load(tmp_path / "r", ledger=session.ledger)
        assert_frame_equal(loaded["ages"], release["ages"])
        assert loaded.facts.adaptive
        assert loaded.summary() == release.summary()
        for ask in (release.query, loaded.query, lambda sql: session.query(sql, budget=0)):
            with pytest.raises(UndeterminedError):
                ask(AGES)

    def test_the_whole_budget_is_charged_and_it_is_noted(self, session):
        session.release({"ages": AGES}, budget=GAUSSIAN, mechanism="aim")
        (entry,) = session.ledger.entries()
        assert entry.mu_squared == GAUSSIAN.mu_squared
        assert entry.state == "delivered"
        assert entry.content

    def test_there_is_no_plan(self, session):
        with pytest.raises(MechanismError, match="no expected errors"):
            session.plan({"ages": AGES}, budget=GAUSSIAN, mechanism="aim")

    @pytest.mark.parametrize(
        "more",
        [{"confidence": 0.9}, {"nonnegative": True}, {"integers": True}, {"objective": "largest"}],
    )
    def test_wishes_that_it_cant_fulfil(self, session, more):
        with pytest.raises(MechanismError, match="AIM"):
            session.release({"ages": AGES}, budget=GAUSSIAN, mechanism="aim", **more)
        assert not session.ledger.entries()


# ── what is refused ────────────────────────────────────────────────────────────────────────


REFUSED = [
    ("residualplanner", GAUSSIAN, {"old": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n "
                                          "FROM people GROUP BY age", "q": SCRIPT["middle"]}),
    ("laplace", GAUSSIAN, MARGINALS),
    ("laplace", dpsql.Budget(epsilon=1, delta=1e-6), MARGINALS),
    ("gaussian", PURE, MARGINALS),
    ("querysmasher", PURE, MARGINALS),
    ("residualplanner", PURE, MARGINALS),
    ("residualplanner+", PURE, MARGINALS),
    ("fourier", PURE, MARGINALS),
    ("aim", PURE, MARGINALS),
    ("pairs", PURE, MARGINALS),
]  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("mechanism", "budget", "script"), REFUSED)
def test_refusals_say_why_and_who_can(session, mechanism, budget, script):
    with pytest.raises(MechanismError) as caught:
        session.release(script, budget=budget, mechanism=mechanism)
    error = caught.value
    assert MECHANISMS[mechanism].title in error.message
    names = error.hint.removeprefix("mechanisms that can: ").rstrip(".").split(", ")
    assert names
    assert mechanism not in names
    for name in names:  # the hint works when typed
        with create() as con:
            assert dpsql.Session(con).release(script, budget=budget, mechanism=name).charged
    assert not session.ledger.entries()


@pytest.mark.parametrize("name", ["smasher", "", None, 3, "AIM"])
def test_unknown_names(session, name):
    for call in (session.plan, session.release):
        with pytest.raises(MechanismError, match="no mechanism"):
            call({"ages": AGES}, budget=GAUSSIAN, mechanism=name)


@pytest.mark.parametrize(
    "more",
    [
        {"targets": {"ages": 3.0}, "at_most": GAUSSIAN},
        {"budget": 0},
        {"budget": GAUSSIAN, "objective": "largest"},
    ],
)
def test_options_that_only_some_have(session, more):
    with pytest.raises(MechanismError):
        session.release({"ages": AGES}, mechanism="hdmm", **more)


def test_adjusted_columns_are_made_from_residual_spaces(session):
    release = session.release(
        MARGINALS, budget=GAUSSIAN, mechanism="residualplanner", nonnegative=True
    )
    assert (release["ages"]["n_adjusted"] >= 0).all()
    with pytest.raises(MechanismError, match="adjusted"):
        session.release(MARGINALS, budget=GAUSSIAN, mechanism="hdmm", nonnegative=True)


def test_the_total_of_a_session_is_not_pure():
    with create() as con, pytest.raises(BudgetError, match="pure"):
        dpsql.Session(con, budget=PURE)


def test_pure_and_gaussian_charges_add_up():
    with create() as con:
        session = dpsql.Session(con, budget=dpsql.Budget(rho=1))
        pure = dpsql.Budget(epsilon=1, delta=0)
        session.release(MARGINALS, budget=pure, mechanism="laplace")
        session.release(MARGINALS, budget=GAUSSIAN)
        assert session.ledger.spent == pure.mu_squared + GAUSSIAN.mu_squared
        with pytest.raises(BudgetError, match="short by"):
            session.release(MARGINALS, budget=pure, mechanism="laplace")


# ── comparing ──────────────────────────────────────────────────────────────────────────────


def test_a_comparison_touches_no_row_and_no_account(session):
    found = session.compare(SCRIPT, budget=GAUSSIAN)
    assert not session.ledger.entries()
    frame = found.frame
    assert set(MECHANISMS) | {"querysmasher (uniform)"} == set(frame["mechanism"])
    known = frame.drop_nulls("rmse")
    assert known["rmse"].round_sig_figs(6).is_sorted()
    assert (known["lower_bound"] <= known["rmse"] * (1 + 1e-9)).all()
    assert known["note"].null_count() == known.height
    for row in frame.iter_rows(named=True):
        if row["rmse"] is None:
            assert row["note"]
        elif "(" not in row["mechanism"]:
            plan = session.plan(SCRIPT, budget=GAUSSIAN, mechanism=row["mechanism"], reuse=False)
            assert plan.rmse == pytest.approx(row["rmse"], rel=1e-9)


def test_a_script_of_a_person_with_several_rows():
    """Neighbours matter to all mechanisms alike: three rows of a person cost more."""
    with create() as con:
        one = dpsql.compare(con, MARGINALS, budget=GAUSSIAN)
        three = dpsql.compare(con, MARGINALS, budget=GAUSSIAN, unit="person", max_rows=3)
    both = one.frame.join(three.frame, on="mechanism", suffix="_three").drop_nulls("rmse")
    ratios = both["rmse_three"] / both["rmse"]
    assert both.height >= 6
    assert ratios.to_list() == pytest.approx([3.0] * both.height, rel=1e-3)


def test_the_table_of_the_tests_is_as_assumed():
    with create() as con:
        counts = con.execute("SELECT count(*) FROM people GROUP BY age").fetchall()
    assert counts == [(30,)] * 10
    assert "people" in TABLE
