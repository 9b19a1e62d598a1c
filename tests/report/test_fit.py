"""Pages are no larger than they may be: what is left out first, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import dpsql
from dpsql.errors import ArgumentError, ReleaseFormatError
from dpsql.present.page import Cell, Column, Download, Page, Picture, Section, Shown, fitted
from tests.report.test_report import Frames, Parsed, given, read

PLENTY = 10_000_000
SVG = f'<svg xmlns="http://www.w3.org/2000/svg"><g>{"<path/>" * 2_000}</g></svg>'


def section(name: str, *, rows: int = 400, file: int = 9_000) -> Section:
    table = Shown([Column("k", is_key=True)], [[Cell(f"row {i}")] for i in range(rows)], rows)
    return Section(
        name=name,
        anchor=name,
        sql=f"SELECT '{name}'",
        warnings=["Noise dominates."],
        shown=table,
        picture=Picture(SVG, f"Bars of {name}."),
        downloads=[
            Download(f"{name}.csv", "CSV", "text/csv", b"x" * file),
            Download(f"{name}.parquet", "Parquet", "text/plain", b"y" * (file // 2)),
        ],
    )


def page_with(*sections: Section) -> Page:
    return Page(
        title="title",
        subtitle="",
        key_facts=[],
        warnings=[],
        promised=[("Who is protected?", "All.")],
        not_protected=[],
        budget=[],
        spent=None,
        overview=Shown([Column("statement")], [[Cell(each.name)] for each in sections], 1),
        statements=sections,
        provenance=[],
        downloads=[Download("metadata.json", "JSON", "application/json", b"{}" * 50)],
    )


WHOLE = page_with(section("a"), section("b", rows=800, file=18_000))


def size(page: Page) -> int:
    return len(fitted(page, PLENTY))


def lacks(page: Page, most: int) -> list[str]:
    """Fit a page, and return what each statement is said to lack."""
    made = fitted(page, most)
    assert len(made) <= most
    text = Parsed(made.decode()).texts
    start = "Left out for the size of this page: "
    return [each.removeprefix(start) for each in text if each.startswith(start)]


def test_a_page_that_fits_is_whole():
    assert lacks(WHOLE, size(WHOLE)) == []
    assert "may have at most" not in fitted(WHOLE, PLENTY).decode()


def test_the_largest_file_goes_first_then_the_others_then_rows_then_pictures_then_tables():
    """Each step has what the one before has left out, and something more."""
    bare = [replace(s, downloads=(), shown=None, picture=None) for s in WHOLE.statements]
    least = size(replace(page_with(*bare), downloads=())) + 900
    steps: list[str] = []
    for most in range(size(WHOLE) - 1, least, -700):
        said = " | ".join(lacks(WHOLE, most))
        steps += [said] if said not in steps else []
    assert steps == [
        "CSV file.",
        "CSV file. | CSV file.",
        "CSV file. | CSV file, Parquet file.",
        "CSV file, Parquet file. | CSV file, Parquet file.",
        "CSV file, Parquet file. | CSV file, Parquet file, rows after the first 20.",
        "CSV file, Parquet file, rows after the first 20. | "
        "CSV file, Parquet file, rows after the first 20.",
        "CSV file, Parquet file, rows after the first 20, picture. | "
        "CSV file, Parquet file, rows after the first 20.",
        "CSV file, Parquet file, rows after the first 20, picture. | "
        "CSV file, Parquet file, rows after the first 20, picture.",
        "CSV file, Parquet file, rows after the first 20, picture, table. | "
        "CSV file, Parquet file, rows after the first 20, picture.",
        "CSV file, Parquet file, rows after the first 20, picture, table. | "
        "CSV file, Parquet file, rows after the first 20, picture, table.",
    ]


def test_what_is_left_out_is_counted_and_its_place_told():
    made = Parsed(fitted(WHOLE, size(WHOLE) - 60_000).decode())
    assert "this page may have at most" in made.text.lower()
    assert "Here these are 5 files, 1 long table; each statement says what it lacks." in made.text
    assert "Release.to_csv and to_parquet write all answers" in made.text
    assert "These are the first 20 rows of 800." in made.text
    assert not made.files()
    assert "a.csv" not in made.text  # nor its checksum


def test_what_is_asked_promised_and_warned_of_stays():
    bare = [replace(s, downloads=(), shown=None, picture=None) for s in WHOLE.statements]
    made = Parsed(fitted(WHOLE, size(replace(page_with(*bare), downloads=())) + 900).decode())
    for said in ("SELECT 'a'", "SELECT 'b'", "Noise dominates.", "Who is protected?"):
        assert said in made.text
    assert not made.files()
    assert not made.all("svg")


def test_too_little_for_what_stays_is_refused_with_what_would_do():
    with pytest.raises(ReleaseFormatError, match="without files, pictures and tables") as found:
        fitted(WHOLE, 5_000)
    hint = str(found.value.hint)
    enough = int(hint.removeprefix("pass max_bytes=").rstrip("."))
    assert len(fitted(WHOLE, enough)) <= enough


def large(release: dpsql.Release) -> dpsql.Release:
    """Return a release with more than 100,000 bytes of tables, and as many of files."""
    frame = pl.select(k=pl.int_range(900)).with_columns(n=pl.col("k") * 1.2345678)
    frames = {f"all_{i}": frame.with_columns(n_variance=pl.lit(1.5)) for i in range(4)}
    return given(release, Frames(frames, {"k": "key", "n": "value"}))


def test_a_report_is_no_larger_than_is_said(release, tmp_path):
    whole = read(large(release), tmp_path)
    assert (tmp_path / "page.html").stat().st_size > 200_000
    assert "Left out" not in whole.text
    small = read(large(release), tmp_path, max_bytes=120_000, overwrite=True)
    assert (tmp_path / "page.html").stat().st_size <= 120_000
    assert "This page may have at most 120,000 bytes" in small.text


def test_more_bytes_leave_more_room_for_files(release, tmp_path):
    frame = pl.select(k=pl.int_range(90_000)).with_columns(n=pl.col("k") * 1.2345678)
    made = given(release, Frames({"all": frame}, {"k": "key", "n": "value"}))
    files = read(made, tmp_path).files()
    assert "all.csv" not in files
    assert "all.csv" in read(made, tmp_path, max_bytes=30_000_000, overwrite=True).files()


def test_a_limit_below_what_always_stays_writes_nothing(release, tmp_path):
    names = [f"statement_{i}" for i in range(300)]
    frame = pl.DataFrame({"k": ["a", "b"], "n": [1.0, 2.0]})
    many = given(release, Frames(dict.fromkeys(names, frame), {"k": "key", "n": "value"}))
    with pytest.raises(ReleaseFormatError, match=r"may have 100,000\. Nothing was written"):
        many.report(tmp_path / "page.html", max_bytes=100_000)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("wrong", [99_999, 0, -1, True, 1e7, "10 MB"])
def test_a_limit_is_a_whole_number(release, tmp_path: Path, wrong):
    with pytest.raises(ArgumentError, match="at least 100,000") as found:
        release.report(tmp_path / "page.html", max_bytes=wrong)
    assert "max_bytes=10000000" in str(found.value.hint)
