"""Sessions whose total sets δ aside, and what is shown of it."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import polars as pl
import pytest

import dpsql
from dpsql.answers.facts import Earlier
from dpsql.errors import BudgetError, LedgerError, ReleaseFormatError
from dpsql.present.account import account_card
from dpsql.present.summary import budget_forms, guessed, promised
from dpsql.privacy.conversions import mu_squared_of
from dpsql.privacy.purpose import EACH_ROW
from dpsql.release import Release, folder
from tests.privacy.ledger_tools import purpose
from tests.session.tools import BY_AGE, BY_SEX

STATED = dpsql.Budget(epsilon=1, delta=1e-9)
ASIDE = Q(1, 10**10)
SPLIT = STATED.setting_aside(ASIDE)
KEYS = replace(purpose(table="another"), unit=EACH_ROW)


def keys_found(session: dpsql.Session, delta: Q = ASIDE, rho: Q = Q(1, 1000)) -> None:
    """Charge as for keys that were found."""
    asked = dpsql.Budget(rho=rho)
    session.ledger.charge(asked.mu_squared, asked=asked, purpose=KEYS, delta=delta)


@pytest.fixture
def split(con) -> dpsql.Session:
    return dpsql.Session(con, budget=STATED, key_delta=ASIDE)


def test_a_release_of_what_the_total_states_fits(split):
    assert (split.ledger.total, split.remaining_delta) == (SPLIT.mu_squared, ASIDE)
    release = split.release({"by_sex": BY_SEX}, budget=STATED)
    assert (release.charged, release.charged.mu_squared) == (SPLIT, split.ledger.total)
    assert release.receipt.delta == 0
    assert (split.remaining, split.remaining_delta) == (0, ASIDE)
    with pytest.raises(BudgetError, match="Not enough budget"):
        split.query(BY_AGE, budget=dpsql.Budget(rho=1e-9))


def test_so_it_does_after_keys_were_found_with_their_part(con):
    session = dpsql.Session(con, budget=dpsql.Budget(rho=1), key_delta=1e-10)
    keys_found(session, rho=Q(1, 2))
    assert (session.remaining, session.remaining_delta) == (Q(1, 2), 0)
    release = session.release({"by_sex": BY_SEX}, budget=dpsql.Budget(rho=0.5))
    assert release.charged == dpsql.Budget(rho=0.5)
    assert (session.remaining, session.remaining_delta) == (0, 0)


def test_without_a_part_for_keys_all_is_as_it_was(con):
    session = dpsql.Session(con, budget=STATED, key_delta=0)
    assert (session.ledger.total, session.remaining_delta) == (STATED.mu_squared, 0)
    release = session.release({"by_sex": BY_SEX}, budget=STATED)
    assert release.charged == STATED
    assert session.remaining == 0


def test_a_new_total_sets_a_tenth_aside(con, tmp_path):
    of = {"budget": STATED, "ledger": tmp_path / "of.ledger"}
    session = dpsql.Session(con, **of)
    assert (session.ledger.total, session.remaining_delta) == (SPLIT.mu_squared, ASIDE)
    for again in ({}, {"key_delta": ASIDE}):
        assert dpsql.Session(con, **of, **again).remaining_delta == ASIDE


@pytest.mark.parametrize(
    ("budget", "key_delta", "expected"),
    [(STATED, 0, 0), (STATED, 1e-11, Q(1, 10**11)), (dpsql.Budget(rho=1), None, 0),
     (dpsql.Budget(rho=1), ASIDE, ASIDE)],
)  # fmt: skip
def test_it_does_nothing_else_than_is_said(con, budget, key_delta, expected):
    """Nor are totals in ρ refused, of which keys can't be found."""
    session = dpsql.Session(con, budget=budget, key_delta=key_delta)
    assert session.remaining_delta == expected


def test_a_total_that_comes_late_sets_nothing_aside(con, tmp_path):
    file = tmp_path / "of.ledger"
    dpsql.Session(con, ledger=file).query(BY_SEX, budget=dpsql.Budget(rho=0.001))
    session = dpsql.Session(con, budget=STATED, ledger=file)
    assert (session.ledger.total, session.remaining_delta) == (STATED.mu_squared, 0)


def test_plans_comparisons_and_what_is_left_agree(split):
    half = dpsql.Budget(epsilon=0.5, delta=1e-9)
    plan = split.plan({"by_sex": BY_SEX}, budget=half)
    assert plan.budget.mu_squared == mu_squared_of(Q(1, 2), Q(9, 10**10))
    assert {each.key_delta for each in [plan.budget]} == {ASIDE}
    assert plan.error_by_budget().height
    compared = split.compare({"by_sex": BY_SEX}, budget=half, mechanisms=["querysmasher"])
    assert "1e-10 for keys" in compared.title
    frame = split.query(BY_SEX, budget=half)
    assert frame["n_variance"][0] == pytest.approx(plan.expected_error()["rmse"][0] ** 2, rel=0.01)
    with pytest.raises(BudgetError) as caught:
        split.query(BY_AGE, budget=STATED)
    offered = str(caught.value.hint).removeprefix("ask for at most dpsql.").removesuffix(".")
    split.query(BY_AGE, budget=eval(offered, {"Budget": dpsql.Budget}))  # noqa: S307
    assert 0 <= split.remaining < Q(1, 10**5)


def test_targets_keep_to_the_most(split):
    most = dpsql.Budget(epsilon=0.8, delta=1e-9)
    release = split.release({"by_sex": BY_SEX}, targets={"by_sex": 40}, at_most=most)
    assert release.charged.mu_squared <= split.ledger.understood(most).mu_squared
    with pytest.raises(BudgetError, match="more than the most"):
        split.release({"by_sex": BY_SEX}, targets={"by_sex": 1}, at_most=most)


@pytest.mark.parametrize("delta", [1e-10, 1e-11])
def test_a_release_with_less_delta_than_is_set_aside_stands_for_itself(con, split, delta):
    con.execute("CREATE TABLE trips AS SELECT 'line ' || (i % 3) AS line FROM range(9000) r (i)")
    small = dpsql.Budget(epsilon=Q(1, 2), delta=delta)
    assert split.release([BY_SEX], budget=small).charged == small
    assert split.ledger.spent == small.mu_squared
    by_line = "SELECT line, COUNT(*) AS n FROM trips GROUP BY line"
    small = dpsql.Budget(epsilon=Q(1, 3), delta=delta)
    before = split.ledger.spent
    split.query(by_line, budget=small, keys=dpsql.Keys())  # and for its keys
    assert 0 < split.ledger.spent_delta <= Q(str(delta)) / 10
    part = small.setting_aside(split.ledger.spent_delta)
    assert before + part.mu_squared - Q(1, 10**25) < split.ledger.spent <= before + part.mu_squared
    split.query(BY_SEX, budget=dpsql.Budget(epsilon=0.1, delta=0), mechanism="laplace")


@pytest.mark.parametrize(
    ("budget", "key_delta", "error"),
    [
        (None, 1e-10, "there is none"),
        (STATED, 1e-9, "nothing is left"),
        (STATED, -1, "strictly between 0 and 1"),
        (STATED, "1e-10", "must be a number"),
        (dpsql.Budget(rho=1), 1, "strictly between 0 and 1"),
    ],
)
def test_what_can_not_be_set_aside_begins_no_account(
    con_in_file, budget, key_delta, error, tmp_path
):
    with pytest.raises(BudgetError, match=error) as caught:
        dpsql.Session(con_in_file, budget=budget, key_delta=key_delta)
    assert caught.value.hint
    assert not [*tmp_path.glob("*.ledger")]


@pytest.fixture
def con_in_file(con, tmp_path) -> Path:
    con.execute(f"COPY people TO '{tmp_path}/people.parquet'")
    return tmp_path / "people.parquet"


def test_a_total_is_named_again_in_other_sessions(con_in_file):
    dpsql.Session(con_in_file, budget=STATED, key_delta=ASIDE).close()
    for again in ({}, {"budget": STATED}, {"budget": STATED, "key_delta": 1e-10}):
        with dpsql.Session(con_in_file, **again) as session:
            assert (session.ledger.total, session.remaining_delta) == (SPLIT.mu_squared, ASIDE)
            asked = dpsql.Budget(epsilon=0.1, delta=1e-9)
            release = session.release("SELECT COUNT(*) AS n FROM people", budget=asked)
            assert release.charged.key_delta == ASIDE
    for other in ({"budget": STATED, "key_delta": 0}, {"budget": dpsql.Budget(rho=1)}):
        with pytest.raises(LedgerError, match="fixed before"):
            dpsql.Session(con_in_file, **other)


def test_frames_have_it_too():
    frame = pl.DataFrame({"sex": pl.Series(["F", "M"], dtype=pl.Enum(["F", "M"]))})
    session = frame.dp.session(budget=STATED, key_delta=1e-10)
    assert session.remaining_delta == ASIDE


def test_an_interrupted_release_is_found_again(split, monkeypatch):
    monkeypatch.setattr(type(split.ledger), "deliver", lambda *_: None)
    budget = dpsql.Budget(epsilon=0.5, delta=1e-9)
    first = split.release(BY_SEX, budget=budget)
    split.ledger.abandon(first.receipt)
    again = split.release(BY_SEX, budget=budget)
    assert again.receipt == first.receipt
    assert again.charged == first.charged


def test_what_is_shown_says_both(split):
    keys_found(split, Q(1, 2 * 10**11))
    split.query(BY_SEX, budget=dpsql.Budget(rho=0.001))
    assert split.history["delta"].to_list() == [5e-12, 0.0]
    assert split.history["rho"].to_list() == [0.001, 0.001]
    card = account_card(split.ledger)
    for words in ("δ = 5e-12 for keys", "δ = 9.5e-11 for keys", "δ = 1e-10 for keys", ">δ<"):
        assert words in card
    assert "ε = 1 at δ = 1e-9" in card
    far = account_card(split.ledger, delta=Q(1, 10**12))
    assert "ε" not in far
    assert "δ = 9.5e-11 for keys" in far


def test_what_is_shown_without_delta_says_nothing_of_it(session):
    session.query(BY_SEX, budget=dpsql.Budget(rho=0.001))
    assert "for keys" not in account_card(session.ledger)
    assert ">δ<" not in account_card(session.ledger)
    assert session.history["delta"].to_list() == [0.0]


def test_a_release_says_what_it_was_charged(split, tmp_path):
    release = split.release({"by_sex": BY_SEX}, budget=STATED)
    assert "ε = 1, δ = 1e-9 (1e-10 for keys) (as asked)" in release.summary()
    assert "δ = 1e-10 for keys" in release.summary()
    path = release.save(tmp_path / "out")
    document = json.loads((path / "release.json").read_text())
    assert document["format"] == folder.ASIDE
    assert document["budget"]["asked"] == {
        "form": "epsilon", "amount": "1", "delta": "1/1000000000", "key_delta": "1/10000000000",
    }  # fmt: skip
    assert [*document["budget"]["epsilon_at_delta"]] == ["1e-06", "1e-09"]
    loaded = Release.load(path, ledger=split.ledger)
    assert (loaded.charged, loaded.receipt) == (SPLIT, release.receipt)
    page = release.report(tmp_path / "out.html").read_text()
    assert page.count("1e-10 for keys") >= 2


def test_a_folder_whose_part_for_keys_was_changed_is_refused(split, tmp_path):
    path = split.release({"by_sex": BY_SEX}, budget=STATED).save(tmp_path / "out")
    text = (path / "release.json").read_text()
    document = json.loads(text)
    sealed = {name: of for name, of in document.items() if name != "sha256"}
    for aside in ("1/20000000000", "1/1000000000", "2/10000000000", 1e-10, "0", None):
        asked = {**document["budget"]["asked"], "key_delta": aside}
        forged = {**sealed, "budget": {**document["budget"], "asked": asked}}
        forged["sha256"] = folder._digest(forged)
        (path / "release.json").write_text(folder.as_json(forged))
        with pytest.raises((ReleaseFormatError, LedgerError)):
            Release.load(path, ledger=split.ledger)
    for number in (folder.FORMAT, folder.SEVERAL, 3, 7):
        forged = {**sealed, "format": number}
        forged["sha256"] = folder._digest(forged)
        (path / "release.json").write_text(folder.as_json(forged))
        with pytest.raises(ReleaseFormatError):
            Release.load(path)
    (path / "release.json").write_text(text)
    assert Release.load(path, ledger=split.ledger).charged == SPLIT


def test_words_about_a_budget_whose_delta_is_beside():
    budget = dpsql.Budget(rho=0.5).setting_aside(1e-8)
    forms = budget_forms(budget)
    assert forms[-1] == "δ = 1e-8 for keys, in what is said of ε"
    assert [form.partition(" at ")[2] for form in forms[1:-1]] == ["δ = 1e-6"]
    assert guessed(budget) == pytest.approx(guessed(dpsql.Budget(rho=0.5)) + 5e-9, abs=1e-15)
    ((_, meaning),) = [said for said in promised(budget, [], "", []) if "mean" in said[0]]
    assert "at δ = 1e-7" in meaning
    earlier = [(Q(1, 10), Q(1, 10**8)), (Q(1, 5), Q(0))]
    ((_, meaning),) = [said for said in promised(None, [], "", earlier) if "mean" in said[0]]
    both = dpsql.Budget(rho=Q(3, 20)).setting_aside(1e-8)
    assert f"ε = {both.epsilon_at(1e-7):.3g}"[:6] in meaning


def test_an_earlier_release_keeps_its_delta(split):
    keys_found(split)
    (entry,) = split.ledger.entries()
    assert Earlier.of(entry).delta == ASIDE
