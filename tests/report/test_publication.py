"""Tables for people: in office style, in Markdown and CSV, and standard errors said once."""

from __future__ import annotations

import csv

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.answers.frames import DIVIDED, MARKS, NOISE, SUPPRESSED
from dpsql.errors import ArgumentError
from dpsql.present.exports import Answered, as_markdown, as_office_csv
from tests.report.test_report import read


def answered(**columns: list[object]) -> Answered:
    """Return an answer of a key and the values m and n, with what is beside them."""
    frame = pl.DataFrame(columns)
    keys = [name for name in ("k", "sex") if name in columns]
    values = [name for name in ("n", "m") if name in columns]
    described = pl.DataFrame(
        {"column": keys + values, "role": ["key"] * len(keys) + ["value"] * len(values)}
    )
    marks = pl.DataFrame({name: [None] * frame.height for name in values}).cast(MARKS)
    return Answered(frame, marks, described, 0.9)


ONE = {"k": ["a", "b", "c", "d"], "n": [1234.4, 3.0, 88.0, None], "n_variance": [400.0] * 4}
MARKED = pl.DataFrame({"n": [None, NOISE, SUPPRESSED, None]}).cast(MARKS)


def test_an_office_writes_errors_in_brackets_and_flags_in_place_of_what_says_nothing():
    made = Answered(answered(**ONE).frame, MARKED, answered(**ONE).described, 0.9)
    table = made.table("office")
    assert [row[1].text for row in table.rows] == ["1,234 (20)", "3 (20) u", ":c", ":"]
    assert made.footnotes(table) == [
        "in brackets: the standard error of the noise that protects people",
        "u  low reliability: less than its own standard error from zero",
        ":c  not shown: rests on too few rows",
        ":  not available",
    ]
    rows = [*csv.reader(as_office_csv(made).splitlines())]
    assert rows[:2] == [["k", "n"], ["a", "1,234 (20)"]]
    assert rows[5:] == [[], *([note] for note in made.footnotes(table))]
    page = as_markdown("people", made, "office").splitlines()
    assert page[:6] == [
        "# people", "", "| k | n |", "| --- | ---: |", "| a | 1,234 (20) |", "| b | 3 (20) u |"
    ]  # fmt: skip


def test_what_is_divided_by_noise_is_not_shown():
    made = answered(k=["a"], n=[1e6], n_variance=[None])
    marks = pl.DataFrame({"n": [DIVIDED]}).cast(MARKS)
    (row,) = Answered(made.frame, marks, made.described, 0.9).table("office").rows
    assert row[1].text == ":u"


def test_quantiles_have_their_interval_in_square_brackets():
    made = answered(k=["a"], n=[35], n_variance=[None], n_lower=[33], n_upper=[36])
    table = made.table("office")
    assert table.rows[0][1].text == "35 [33 to 36]"
    assert made.footnotes(table) == ["in square brackets: the 90 % interval"]


def test_two_keys_stand_side_by_side_with_one_standard_error():
    made = answered(
        k=["young", "young", "old", "old"],
        sex=["f", "m"] * 2,
        n=[400.0, 300.0, 20.0, 10.0],
        n_variance=[9.0] * 4,
    )
    page = as_markdown("ages", made, "office")
    assert "n, each with a standard error of 3.0" in page
    assert "| young | 400.0 | 300.0 |" in page
    errors = pl.Series("n_variance", [9.0, 9.0, 25.0, 25.0])
    by_age = Answered(made.frame.with_columns(errors), made.marks, made.described, 0.9)
    assert "| old | 20.0 | 10.0 | (5.0) |" in as_markdown("ages", by_age, "office")


def test_columns_side_by_side_have_one_standard_error_if_it_is_the_same():
    both = {"n": [40.0, 30.0], "n_variance": [9.0, 4.0], "m": [4.0, 3.0], "m_variance": [9.0, 4.0]}
    table = answered(k=["a", "b"], **both).table("plain")
    assert [column.name for column in table.columns] == ["k", "n", "m", "standard error of each"]
    assert [row[3].text for row in table.rows] == ["3.0", "2.0"]
    other = answered(k=["a", "b"], **{**both, "m_variance": [9.0, 9.0]}).table("plain")
    assert [column.beside for column in other.columns] == [(), ("±",), ("±",)]


@pytest.mark.parametrize("text", ["<b>", "a|b", "[x](y)", "*a*", "_a_", "`a`", "# a", "a\nb\\"])
def test_labels_are_texts_in_markdown_and_csv(text):
    made = answered(k=[text, "other"], n=[1.0, 2.0], n_variance=[0.01, 0.01])
    row = as_markdown("t", made, "office").splitlines()[4]
    assert not any(part in row for part in ("<b>", "[x](", "*a*", " _a_", "`a`"))
    unescaped = row.replace("\\|", "").count("|")
    assert unescaped == 3
    assert [*csv.reader(as_office_csv(made).splitlines(keepends=True))][1][0] == text


def test_releases_are_written_so(release, tmp_path):
    assert (release.to_markdown(tmp_path / "md") / "towns.md").read_text().startswith("# towns")
    path = release.to_csv(tmp_path / "csv", style="office") / "towns.csv"
    assert "in brackets: the standard error" in path.read_text(encoding="utf-8")
    release.to_csv(tmp_path / "csv", overwrite=True)
    assert "in brackets" not in path.read_text(encoding="utf-8")
    page = read(release, tmp_path, style="office")
    assert "in brackets: the standard error" in page.text
    for call in (release.report, release.to_csv, release.to_markdown):
        with pytest.raises(ArgumentError, match="'plain' or 'office', not 'fancy'"):
            call(tmp_path / "x", style="fancy")


def test_answers_come_first_and_budgets_are_spelled_in_one_way(release, session, tmp_path):
    page = read(release, tmp_path, ledger=session.ledger)
    parts = ["90 % interval", "Who is protected?", "spent until now", "SHA-256 of the noisy"]
    places = [page.text.index(part) for part in parts]
    assert places == sorted(places)
    for wrong in ("rho", "epsilon", "delta =", "1e-09", "mu ="):
        assert wrong not in page.text, wrong
    for wrong in ("rho =", "epsilon =", "delta =", "1e-09"):
        assert wrong not in release.summary(), wrong


def test_no_average_is_shown_beyond_what_is_possible(tmp_path):
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (k INTEGER NOT NULL CHECK (k BETWEEN 0 AND 99), x SMALLINT NOT NULL "
        "CHECK (x BETWEEN 0 AND 5))"
    )
    con.execute("INSERT INTO t SELECT i % 100, 5 FROM range(4000) r(i)")
    script = {"means": "SELECT k, AVG(x) AS mean FROM t GROUP BY k"}
    release = dpsql.query(con, script, budget=dpsql.Budget(epsilon=1, delta=1e-9))
    assert release["means"]["mean"].max() == 5
    assert "biased" in release.columns("means").row(1, named=True)["reason"]
    assert "5.0" in read(release, tmp_path).text
