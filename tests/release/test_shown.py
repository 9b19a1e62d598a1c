"""Values are shown with the digits that their errors leave a meaning, and stored with all."""

from __future__ import annotations

import math
from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.present.shown import decimals_of, shown_frame, shown_rows, shown_value, with_errors
from tests.release.saved import BUDGET, SCHEMA, connect


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (16206.57, 20.04, "16207"),
        (16206.57, 9.6, "16206.6"),
        (0.041183, 0.0057, "0.0412"),
        (0.041183, 0.057, "0.041"),
        (-0.04, 20.0, "0"),
        (1234.5, 4000.0, "1234"),
        (-1.5, 1.0, "-1.5"),
        (2.0, 1e-30, "2.000000000000"),
    ],
)
def test_two_digits_of_the_error_are_shown(value, error, shown):
    assert str(shown_value(value, decimals_of(error))) == shown


@pytest.mark.parametrize("error", [None, math.nan, math.inf, 0.0, -1.0])
def test_where_no_error_is_known_nothing_is_rounded(error):
    assert shown_value(1.23456, decimals_of(error)) == 1.23456


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 1e300, 3, "x", True])
def test_what_is_no_plain_number_stays(value):
    assert shown_value(value, 1) is value


def test_all_that_belongs_to_a_value_is_rounded_alike():
    frame = pl.DataFrame(
        {
            "k": ["a", "b"],
            "n": [10.26, None],
            "n_variance": [4.0, None],
            "n_lower": [6.34, None],
            "n_upper": [14.18, None],
            "n_adjusted": [10.26, 0.06],
            "other": [0.123456, 0.5],
            "k_variance": ["x", "y"],
        }
    )
    kept = frame.clone()
    assert shown_rows(frame) == [
        (
            "a",
            Decimal("10.3"),
            4.0,
            Decimal("6.3"),
            Decimal("14.2"),
            Decimal("10.3"),
            0.123456,
            "x",
        ),
        ("b", None, None, None, None, 0.06, 0.5, "y"),
    ]
    found = shown_frame(frame)
    assert found["n"].to_list() == ["10.3", None]
    assert found["n_standard_error"].to_list() == ["2.0", None]
    assert {"n_variance"} == {*frame.columns} - {*found.columns}
    assert with_errors(found).columns == found.columns
    assert found["other"].to_list() == frame["other"].to_list()
    assert_frame_equal(frame, kept)
    assert shown_frame(frame.clear()).shape == (0, 8)


def test_releases_show_few_digits_and_have_all():
    sql = "SELECT member, COUNT(*) AS n FROM people GROUP BY member"
    release = dpsql.Session(connect(), schema=SCHEMA).release({"n": sql}, budget=BUDGET)
    frame = release["n"]
    texts = [f"{value:.1f}" for value in frame["n"]]
    assert frame["n_variance"].is_between(1, 99).all()
    assert release.show("n")["n"].cast(pl.Float64).to_list() == [*map(float, texts)]
    html = release._repr_html_()
    assert f">{frame['n'][0]:.2f}<" not in html
    assert f">{release.show('n')['n'][0]}<" in html
    assert release["n"].schema["n"] == pl.Float64
    with pytest.raises(KeyError):
        release.show("nothing")
