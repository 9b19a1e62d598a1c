"""Pictures of answers: which there are, and that nothing but shapes and texts gets into a page."""

from __future__ import annotations

import datetime as dt
import math
import re
from xml.etree import ElementTree as Xml

import polars as pl
import pytest

from dpsql.charts.svg import BARE, PAGE
from dpsql.charts.svg import drawn as drawn_of
from dpsql.present.pictures import MOST_BARS, chart_of
from tests.report.hostile import HOSTILE

LABELS = ["a", "b", HOSTILE]
NUMBERS = [1.5, None, math.inf]
DAYS = [dt.date(2020, 1, day) for day in range(1, 31)]


def described(**roles: str) -> pl.DataFrame:
    return pl.DataFrame({"column": [*roles], "role": [*roles.values()]})


def drawn(frame: pl.DataFrame, confidence: float | None = None, **roles: str) -> tuple[str, str]:
    found = chart_of(frame, described(**roles), confidence)
    assert found is not None
    return drawn_of(found), found.words


def texts(svg: str) -> set[str]:
    return {"".join(each.itertext()) for each in parsed(svg).iter() if not len(each)}


def parsed(svg: str) -> Xml.Element:
    return Xml.fromstring(f"<div>{svg}</div>")  # noqa: S314 (ours)


def test_labels_make_bars_with_intervals():
    frame = pl.DataFrame(
        {"k": LABELS, "n": [3.0, 2.0, 9.0], "n_lower": [1.0, 1.0, 8.0], "n_upper": [4.0, 3.0, 9.5]}
    )
    picture, words = drawn(frame, 0.9, k="key", n="value")
    assert words.startswith("Bars: n by k with 90 % intervals: 3 values from 2 to 9.")
    assert {"a", "b", "n", "k"} <= texts(picture)
    assert len(re.findall(r'stroke="var\(--ink\)" stroke-width="1.5"', picture)) == 3
    assert "<script" not in picture
    assert any(text.startswith("<script>alert") for text in texts(picture))


@pytest.mark.parametrize("keys", [DAYS, list(range(30))])
def test_times_and_numbers_make_a_line_with_a_band(keys):
    frame = pl.DataFrame({"k": keys, "n": [float(i) for i in range(30)], "n_variance": [4.0] * 30})
    picture, words = drawn(frame, k="key", n="value")
    assert words.startswith("A line: n by k with one standard error to each side: 30 values")
    assert "var(--one)" in picture


def test_two_keys_make_a_heat_map():
    frame = pl.DataFrame({"a": ["x", "y", "z"] * 2, "b": ["v"] * 3 + ["w"] * 3, "n": range(6)})
    picture, words = drawn(frame, a="key", b="key", n="value")
    assert words.startswith("A table: n by a and b: 6 values from 0 to 5. The darker, the farther")
    assert {"x", "y", "z", "v", "w"} <= texts(picture)
    assert {f"{i}" for i in range(6)} <= texts(picture)  # numbers are in their cells


def test_values_that_are_none_leave_gaps():
    frame = pl.DataFrame({"k": ["a", "b", None], "n": NUMBERS, "n_variance": NUMBERS})
    picture, words = drawn(frame, k="key", n="value")
    assert "1 value, 1.5." in words
    assert {"NULL", "no number"} <= texts(picture)
    none = frame.with_columns(n=pl.lit(None, dtype=pl.Float64))
    assert "none is known" in drawn(none, k="key", n="value")[1]


def test_what_no_picture_fits_has_none():
    many = pl.DataFrame({"k": [f"{i}" for i in range(MOST_BARS + 1)]}).with_columns(n=pl.lit(1.0))
    found = chart_of(many, described(k="key", n="value"), None)
    assert found is not None
    assert found.notes == (f"the {MOST_BARS} largest of {MOST_BARS + 1} rows",)
    one = pl.DataFrame({"n": [1.0]})
    assert chart_of(one, described(n="value"), None) is None
    words = pl.DataFrame({"k": ["a", "b"], "n": ["x", "y"]})
    assert chart_of(words, described(k="key", n="value"), None) is None
    alike = pl.DataFrame({"k": ["a", "a"], "n": [1.0, 2.0]})
    assert chart_of(alike, described(k="key", n="value"), None) is None


TAGS = {"div", "p", "svg", "rect", "line", "path", "circle", "text"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
LOOKS = {"style", "class", "role", "tabindex", "scope", "aria-label", "aria-hidden", "focusable"}


@pytest.mark.parametrize("keys", [("k",), ("k", "other"), ("day",), ("k", "other", "day")])
@pytest.mark.parametrize("colors", [PAGE, BARE])
def test_nothing_but_shapes_and_texts_gets_into_a_page(keys, colors):
    """Labels, names and numbers are texts: none becomes a tag, a style, an address or a script."""
    rows = {"k": LABELS * 10, "other": LABELS * 10, "day": DAYS}
    frame = pl.DataFrame({key: rows[key] for key in keys}).unique(maintain_order=True)
    frame = frame.with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias(HOSTILE))
    roles = {**dict.fromkeys(keys, "key"), HOSTILE: "value"}
    found = chart_of(frame, described(**roles), None)
    assert found is not None
    page = parsed(drawn_of(found, colors))
    for each in page.iter():
        assert each.tag.rpartition("}")[2] in TAGS
        names = {name for name in each.attrib if name in LOOKS}
        assert not {name for name in each.attrib if name.startswith("on") or "href" in name}
        for name in names - {"aria-label"}:
            assert "script" not in each.attrib[name]
            assert "url(" not in each.attrib[name]
    assert "\u202e" not in "".join(page.itertext())
