"""Reports: what a page has, what is escaped, what is refused; read without a browser."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import sys
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ArgumentError, LedgerError, ReleaseFormatError, printable
from dpsql.planner.plans.plan import digits
from dpsql.present import report, reported
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect
from tests.report.hostile import HOSTILE, hostile

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Parsed(HTMLParser):
    """A page: its tags with attributes, the texts outside of them, and whether tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def files(self) -> dict[str, bytes]:
        return {
            str(a["download"]): base64.b64decode(str(a["href"]).partition("base64,")[2])
            for a in self.all("a")
            if "download" in a
        }


def read(release: dpsql.Release, folder: Path, **options) -> Parsed:
    return Parsed(release.report(folder / "page.html", **options).read_text(encoding="utf-8"))


def test_a_page_says_what_was_asked_promised_and_charged(release, session, tmp_path):
    page = read(release, tmp_path, ledger=session.ledger, title="Small towns")
    assert "Small towns" in page.text
    for sql in SCRIPT.values():
        assert sql in page.text
    assert "ε = 1 at δ = 1e-9: any result of this release is at most e^ε = 2.72" in page.text
    assert "Each single row of people." in page.text
    assert "spent until now" in page.text
    assert "add or remove one row of people" in page.text
    receipt = release.receipt
    assert receipt is not None
    assert f"entry {receipt.seq} of ledger {receipt.ledger}" in page.text
    assert receipt.request in page.text
    for library, version in release.facts.versions.items():
        assert f"{library} {version}" in page.text
    for name in ("by sex", "born", "towns"):  # in the unit of the answer
        worst = release[name]["n_variance"].max() ** 0.5
        assert f"± {digits(worst)}" in page.text


def test_values_stand_with_their_errors_and_intervals(release, tmp_path):
    text = read(release, tmp_path).text
    assert "± 90 % interval" in text
    for row in release.show("born").iter_rows(named=True):
        ends = [row["n_lower"], row["n_upper"]]
        assert " to ".join(f"{float(end):,.{decimals(end)}f}" for end in ends) in text


def decimals(number: str) -> int:
    return len(number.partition(".")[2])


def test_without_the_ledger_nothing_is_said_of_what_is_left(release, tmp_path):
    text = read(release, tmp_path).text
    assert "spent until now" not in text
    assert "the ledger was not at hand" in text


def test_another_ledger_is_refused(release, tmp_path):
    other = dpsql.Session(connect(), schema=SCHEMA).ledger
    with pytest.raises(LedgerError):
        release.report(tmp_path / "page.html", ledger=other)
    assert not [*tmp_path.iterdir()]


def test_files_in_the_page_are_the_answers(release, tmp_path):
    page = read(release, tmp_path)
    files = page.files()
    names = {"by_sex": "by sex", "born": "born", "towns": "towns", "median": "median"}
    assert set(files) == {f"{n}.{e}" for n in names for e in ("csv", "parquet")} | {"metadata.json"}
    release.to_csv(tmp_path / "csv")
    for file, name in names.items():
        found = pl.read_parquet(io.BytesIO(files[f"{file}.parquet"]))
        assert_frame_equal(found, release[name])
        assert files[f"{file}.csv"] == (tmp_path / "csv" / f"{file}.csv").read_bytes()
    for content in files.values():
        assert hashlib.sha256(content).hexdigest() in page.texts


def test_a_loaded_release_has_the_same_page(release, tmp_path):
    release.save(tmp_path / "release")
    loaded = dpsql.Release.load(tmp_path / "release")
    page, again = read(release, tmp_path), read(loaded, tmp_path, overwrite=True)
    assert again.text == page.text
    assert {k: v for k, v in again.files().items() if k.endswith("csv")} == {
        k: v for k, v in page.files().items() if k.endswith("csv")
    }


def test_nothing_leads_out_of_the_page(release, tmp_path):
    page = read(release, tmp_path)
    assert not page.all("script")
    assert not page.all("link")
    assert not page.all("img")
    policy = next(m["content"] for m in page.all("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'")
    for _, attributes in page.tags:
        assert not {name for name in attributes if name.startswith("on")}
        for name in ("href", "src", "action", "xlink:href", "srcset"):
            assert str(attributes.get(name, "#")).startswith(("#", "data:"))


def test_hostile_names_and_labels_are_texts(tmp_path):
    page = read(hostile(), tmp_path, title=HOSTILE)
    assert not page.all("script")
    assert not page.all("img")
    shown = HOSTILE.replace("\u202e", "�")
    assert page.text.count(shown) > 8
    assert "49" not in page.text.replace(shown, "").split()
    assert "\u202e" not in page.text
    assert not {name for _, a in page.tags for name in a if name.startswith("on")}


def test_a_file_that_exists_stays(release, tmp_path):
    place = tmp_path / "page.html"
    place.write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ReleaseFormatError) as caught:
            release.report(place, overwrite=overwrite)
        assert caught.value.hint
    assert place.read_text() == "mine"
    link = tmp_path / "link.html"
    link.symlink_to(place)
    with pytest.raises(ReleaseFormatError):
        release.report(link, overwrite=True)
    with pytest.raises(ReleaseFormatError):
        release.report(tmp_path / "no" / "page.html")
    with pytest.raises(ReleaseFormatError):
        release.report(tmp_path, overwrite=True)


def test_a_report_is_replaced_if_that_is_said(release, tmp_path):
    place = release.report(tmp_path / "page.html", title="first")
    with pytest.raises(ReleaseFormatError) as caught:
        release.report(place, title="second")
    assert "overwrite=True" in str(caught.value.hint)
    assert "first" in place.read_text()
    release.report(place, title="second", overwrite=True)
    assert "second" in place.read_text()
    assert [*tmp_path.iterdir()] == [place]


def test_nothing_is_left_of_a_page_that_failed(release, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(reported, "write", fails)
    with pytest.raises(ReleaseFormatError, match="No space left"):
        release.report(tmp_path / "page.html")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("title", ["", "  ", 7, "x" * 301])
def test_a_title_is_a_short_text(release, tmp_path, title):
    with pytest.raises(ArgumentError) as caught:
        release.report(tmp_path / "page.html", title=title)
    assert "title=" in str(caught.value.hint)


def test_without_jinja2_the_error_says_what_to_install(release, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ReleaseFormatError) as caught:
        release.report(tmp_path / "page.html")
    assert "dpsql[report]" in str(caught.value.hint)
    assert not [*tmp_path.iterdir()]


class Frames:
    """Frames that are given, of which nothing can be answered again."""

    def __init__(self, given: dict[str, pl.DataFrame], roles: dict[str, str]) -> None:
        self.given, self.roles = given, roles

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.given)

    def frame(self, name: str) -> pl.DataFrame:
        return self.given[name]

    def batches(self, name: str, rows: int):
        yield self.given[name].head(rows)

    def columns(self, name: str) -> pl.DataFrame:
        roles = {c: self.roles[c] for c in self.given[name].columns if c in self.roles}
        return pl.DataFrame({"column": [*roles], "role": [*roles.values()]}).with_columns(
            variance=pl.lit("exact"), reason=pl.lit(None, dtype=pl.String)
        )

    def supported(self, name: str):
        raise dpsql.UndeterminedError("no")


def given(release: dpsql.Release, frames: Frames) -> dpsql.Release:
    from dataclasses import replace

    facts = replace(
        release.facts,
        statements=dict.fromkeys(frames.names, "SELECT 1"),
        expected=release.facts.expected.clear(),
        notes={},
        guards={},
    )
    return dpsql.Release(facts, frames, b"", None)


def test_an_empty_release_has_a_page(release, tmp_path):
    text = read(given(release, Frames({}, {})), tmp_path).text
    assert "Nothing: the release has no statements." in text


def test_numbers_that_are_none_are_words(release, tmp_path):
    odd = pl.DataFrame(
        {
            "k": ["a", "b", "c", None],
            "n": [1.0, math.nan, math.inf, None],
            "n_variance": [math.inf, math.nan, 4.0, None],
            "n_lower": [-math.inf, math.nan, 0.5, None],
            "n_upper": [math.inf, math.nan, 0.75, None],
        }
    )
    roles = {"k": "key", "n": "value"}
    made = given(release, Frames({"odd": odd, "none": odd.clear()}, roles))
    text = read(made, tmp_path).text
    assert "minus infinite to infinite" in text
    assert "not known" in text
    assert "NULL" in text  # the key


def test_large_answers_are_cut_and_said_to_be(release, tmp_path):
    large = pl.select(k=pl.int_range(1_000_000), n=pl.lit(5.0)).with_columns(n_variance=pl.lit(1.0))
    made = given(release, Frames({"large": large}, {"k": "key", "n": "value"}))
    page = read(made, tmp_path)
    assert "the first 500 rows of 1,000,000" in page.text
    assert "too large for this page" in page.text
    assert set(page.files()) == {"metadata.json"}
    assert (tmp_path / "page.html").stat().st_size < 300_000


def test_files_are_left_out_when_there_is_no_more_room(release, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "FILE_SHARE", 1_500 / report.MOST_BYTES)
    page = read(release, tmp_path)
    kept = [content for name, content in page.files().items() if name != "metadata.json"]
    assert 0 < len(kept) < 2 * len(release)
    assert max(map(len, kept)) <= 1_500
    assert "There was no more room in this page for its" in page.text


def test_files_share_the_room():
    room = report.Room(3, 10_000)
    sizes = (1_501, 1_500, 1_400, 101, 100, 1)
    assert [room.takes(size) for size in sizes] == [False, True, True, False, True, False]
    assert [report.Room(3, 10_000).writes(cells) for cells in (200, 201)] == [True, False]


def test_pictures_beyond_what_is_drawn_are_said_to_be_left_out(release):
    room = report.Room(len(release), pictures=1)
    answers = [
        report.Answer(release.facts, release._frames, name, "file", room)
        for name in ("towns", "median")
    ]
    assert [each.picture() is not None for each in answers] == [True, False]
    (said,) = answers[1].left_out
    assert said.startswith("Only the first")


def test_marks_in_the_page_are_those_of_the_release(release, tmp_path):
    release.save(tmp_path / "release")
    for each in (release, dpsql.Release.load(tmp_path / "release"), release.suppressed(10)):
        room = report.Room(len(each))
        for name in each:
            found = report.Answer(each.facts, each._frames, name, "file", room)
            marks = each.marks(name)
            assert found.values == marks.height * marks.width
            shown = [[cell.mark for cell in row if cell.mark] for row in found.shown.rows]
            assert shown == [[mark for mark in row if mark] for row in marks.rows()]


def test_noise_is_marked_and_warned_of(tmp_path):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (a INTEGER NOT NULL CHECK (a BETWEEN 0 AND 999))")
    con.execute("INSERT INTO t SELECT 0 FROM range(100000)")
    script = {"sparse": "SELECT a, COUNT(*) AS n FROM t GROUP BY a"}
    release = dpsql.query(con, script, budget=BUDGET)
    text = read(release, tmp_path).text
    assert "Noise dominates the answers to sparse." in text
    marked = release.marks("sparse")["n"].drop_nulls().len()
    assert f"{marked:,} of 1,000 values" in text
    few = read(release.suppressed(10), tmp_path, overwrite=True).text
    assert "Values that rest on fewer than 10 rows are left out." in few
    assert "suppressed" in few


def test_a_text_that_can_be_shown_is_as_it_is_and_a_plain_one():
    from markupsafe import Markup

    assert type(printable(Markup("<b>"))) is str
    assert [printable(text) for text in ("a b", "a\tb", "a\x00b")] == ["a b", "a b", "a�b"]


def test_the_least_of_texts_has_no_standard_error(tmp_path):
    con = duckdb.connect()
    con.execute("CREATE TABLE t (k VARCHAR NOT NULL CHECK (k IN ('a', 'b', 'c')))")
    con.execute("INSERT INTO t SELECT ['a', 'b', 'c'][i % 3 + 1] FROM range(300) r (i)")
    session = dpsql.Session(con)
    release = session.release(["SELECT MIN(k) AS k FROM t"], budget=dpsql.Budget(rho=1))
    assert "MIN(k)" in release.report(tmp_path / "r.html").read_text("utf-8")
