"""Releases of earlier formats, as those versions wrote them.

Of format 2, with its ledger, by commit 8e72129:

`waits` counts 90 rows by clinic. `wait` has a domain that the database doesn't enforce: in format 2
rows without a value of it were left out of all measurements. The interval of the median in `south`
is the defect of that version: it ends at the first value whose count is too large.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.privacy import Ledger
from tests.release.saved import refused, reseal

FIXTURES = Path(__file__).parents[1] / "fixtures"
SAVED = FIXTURES / "release_of_format_2"
VALUES = ["clinic", "n", "n_variance", "mean", "mean_variance", "middle"]


@pytest.fixture
def ledger(tmp_path):
    return shutil.copyfile(FIXTURES / "release_of_format_2.ledger", tmp_path / "ledger")


@pytest.fixture
def release():
    return dpsql.Release.load(SAVED)


def test_frames_are_as_they_were_saved(release):
    assert_frame_equal(release["waits"], pl.read_parquet(SAVED / "waits.parquet"))
    assert release.columns("waits")["reason"].to_list() == [None] * 4


def test_a_plan_is_not_kept_but_what_was_known_of_its_error(release):
    """The gap is the one that was certified then; nobody had looked for losses."""
    assert release.plan is None
    assert release.facts.gap == pytest.approx(1.966e-4, rel=1e-3)
    assert release.facts.warning is None
    assert "1.97e-04, of the objective: total weighted variance" in release.summary()
    errors = release.facts.expected
    assert errors.columns == ["statement", "rows", "rmse", "worst_standard_error"]
    assert errors["rmse"][0] == pytest.approx(4, abs=1)


def test_answers_are_the_same_and_intervals_are_made_anew(release):
    saved = release["waits"]
    anew = release.query(release.facts.statements["waits"], confidence=0.95)
    assert_frame_equal(anew.select(VALUES), saved.select(VALUES))
    before, after = (
        frame.filter(pl.col("clinic") == "south").row(0, named=True) for frame in (saved, anew)
    )
    assert (before["middle_lower"], before["middle_upper"]) == (1, 5)
    assert (after["middle_lower"], after["middle_upper"]) == (1, 9)
    assert after["mean_lower"] < before["mean_lower"] < before["mean_upper"] < after["mean_upper"]
    assert_frame_equal(anew.select("n_lower", "n_upper"), saved.select("n_lower", "n_upper"))


def test_its_rows_are_those_that_it_counted(release):
    """Also a statement that doesn't name the column has only the rows that were measured."""
    assert release.facts.guards == {"waits": ("wait",)}
    total = release.query("SELECT COUNT(*) AS n FROM visits")["n"][0]
    assert total == pytest.approx(release["waits"]["n"].sum())


def test_a_release_of_format_2_is_saved_in_the_format_of_today(release, tmp_path):
    again = dpsql.Release.load(release.save(tmp_path / "again"))
    assert_frame_equal(again["waits"], release["waits"])
    assert again.facts.gap == release.facts.gap
    assert '"format": 4' in (tmp_path / "again" / "release.json").read_text()


def test_the_ledger_holds_its_charge(release, ledger):
    dpsql.Release.load(SAVED, ledger=ledger)
    (entry,) = Ledger.existing(ledger).entries()
    assert entry.seq == release.receipt.seq
    assert entry.mu_squared == release.charged.mu_squared


def test_noise_that_was_told_in_words_has_a_name(tmp_path):
    """The table of this one has a domain of every other kind, a unit, and Laplace noise."""
    saved = FIXTURES / "laplace_release_of_format_2"
    release = dpsql.Release.load(saved)
    assert_frame_equal(release["members"], pl.read_parquet(saved / "members.parquet"))
    assert release.facts.laplace
    said = json.loads((saved / "release.json").read_text(encoding="utf-8"))
    assert (said["mechanism"]["noise"], said["neighbours"]) == (
        release.facts.noise,
        release.neighbours,
    )
    again = json.loads((release.save(tmp_path / "again") / "release.json").read_text())
    assert again["mechanism"]["noise"] == "laplace"
    assert again["table"] == said["table"]


@pytest.mark.parametrize("noise", ["", "Gaussian", "none"])
def test_noise_without_a_known_name_is_refused(tmp_path, noise):
    folder = shutil.copytree(SAVED, tmp_path / "release")
    reseal(folder, lambda said: said["mechanism"].update(noise=noise))
    refused(folder)


def test_a_release_of_format_3_answers_as_it_did(tmp_path):
    """It counts rows without a value of the domain where a statement doesn't name the column."""
    saved = FIXTURES / "release_of_format_3"
    release = dpsql.Release.load(saved)
    for name in ("waits", "old"):
        assert_frame_equal(release[name], pl.read_parquet(saved / f"{name}.parquet"))
    assert_frame_equal(release.query(release.facts.statements["old"]), release["old"])
    # One mean is divided by noise: its variance says nothing, and is not said any more.
    founded = pl.col("n") >= 3 * pl.col("n_variance").sqrt()
    now = pl.when(founded).then("mean_variance").alias("mean_variance")
    waits = release.query(release.facts.statements["waits"])
    assert waits["mean_variance"].null_count() == 1
    assert_frame_equal(waits, release["waits"].with_columns(now))
    assert release.facts.guards == {"waits": ("wait",), "old": ("age",)}
    again = release.save(tmp_path / "again")
    assert_frame_equal(dpsql.Release.load(again)["old"], release["old"])
    assert json.loads((again / "release.json").read_text())["format"] == 4
