"""`dpsql report`, and `--report` of commands that answer."""

from __future__ import annotations

import json

import pytest

LARGE = ("--rho", "500")


@pytest.fixture
def saved(commands):
    out = commands.folder / "out"
    commands.done("release", commands.script, "--db", commands.db, *LARGE, "--out", out)
    return out


def test_a_folder_becomes_a_page(commands, saved):
    said = commands.done("report", saved, "--title", "Two <statements>")
    place = commands.folder / "out.html"
    assert said == f"{place}: 2 statements\n"
    text = place.read_text(encoding="utf-8")
    assert "<title>Two &lt;statements&gt;</title>" in text
    assert "spent until now" not in text
    assert commands.run("report", saved).exit_code == 7
    assert "--overwrite" in commands.run("report", saved).stderr
    again = commands.document("report", saved, "--ledger", commands.ledger, "--overwrite")
    assert again == {"out": str(place), "statements": ["by_sex", "ages"]}
    assert "spent until now" in place.read_text(encoding="utf-8")


def test_values_of_few_rows_are_left_out_if_that_is_said(commands, saved):
    place = commands.folder / "few.html"
    commands.done("report", saved, "--out", place, "--suppress-below", "500")
    assert "fewer than 500 rows are left out" in place.read_text(encoding="utf-8")


def test_a_release_is_reported_as_it_is_made(commands):
    out, place = commands.folder / "out", commands.folder / "page.html"
    asked = ("release", commands.script, "--db", commands.db, *LARGE, "--out", out)
    said = json.loads(commands.done(*asked, "--report", place, "--json"))
    assert said["written"] == [str(place)]
    assert "spent until now" in place.read_text(encoding="utf-8")
    shown = commands.folder / "shown.html"
    commands.done("show", out, "--report", shown)
    assert shown.exists()


def test_a_page_has_the_same_styles_however_it_is_made(commands, saved):
    """By one option: beside `--report` it gives the page that `dpsql report` gives."""
    folder, office = commands.folder, ("--style", "office")
    asked = ("release", commands.script, "--db", commands.db, *LARGE, "--out", folder / "office")
    commands.done(*asked, "--report", folder / "made.html", *office)
    commands.done("show", folder / "office", "--report", folder / "shown.html", *office)
    commands.done("report", folder / "office", "--out", folder / "reported.html", *office)
    shown, reported = ((folder / f"{n}.html").read_text("utf-8") for n in ("shown", "reported"))
    assert shown == reported
    made, plain = folder / "made.html", folder / "plain.html"
    commands.done("show", saved, "--report", plain)
    written = "the standard error of the noise that protects people"
    assert [written in p.read_text("utf-8") for p in (made, plain)] == [True, False]
    alone = commands.run("show", saved, *office)
    assert "--style is for --report:" in alone.stderr
    assert commands.run("show", saved, "--report", plain, "--style", "fancy").exit_code == 2


def test_a_page_is_no_larger_than_is_said(commands, saved):
    place = commands.folder / "small.html"
    commands.done("report", saved, "--out", place, "--max-bytes", "100000")
    assert place.stat().st_size <= 100_000
    commands.done("show", saved, "--report", commands.folder / "two.html", "--max-bytes", "100000")
    wrong = commands.run("report", saved, "--out", commands.folder / "no.html", "--max-bytes", "9")
    assert "max_bytes is a whole number of at least 100,000" in wrong.stderr
    assert "--max-bytes 10000000" in wrong.stderr
    alone = commands.run("show", saved, "--max-bytes", "100000")
    assert "--max-bytes is for --report:" in alone.stderr


def test_a_size_that_no_page_has_is_refused_before_the_charge(commands):
    out, place = commands.folder / "out", commands.folder / "page.html"
    asked = ("release", commands.script, "--db", commands.db, *LARGE, "--out", out)
    assert commands.run(*asked, "--report", place, "--max-bytes", "9").exit_code != 0
    assert not out.exists()
    assert not commands.ledger.exists()


def test_a_place_that_is_taken_is_refused_before_the_charge(commands):
    out, place = commands.folder / "out", commands.folder / "page.html"
    place.write_text("mine")
    asked = ("release", commands.script, "--db", commands.db, *LARGE, "--out", out)
    for more in ((), ("--overwrite",)):
        result = commands.run(*asked, "--report", place, *more)
        assert result.exit_code == 7
    assert place.read_text() == "mine"
    assert not out.exists()
    assert not commands.ledger.exists()


def test_the_demo_leaves_a_report_if_that_is_said(commands):
    place = commands.folder / "demo.html"
    said = commands.done("demo", "--report", place)
    assert said.endswith(f"report: {place}\n")
    assert "The Adult census extract" in place.read_text(encoding="utf-8")
    assert commands.run("demo", "--report", place).exit_code == 7
