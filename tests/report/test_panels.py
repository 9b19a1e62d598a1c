"""Pictures of several panels, and labels, axes and orders in them."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pytest

from dpsql.charts.axes import round_numbers
from dpsql.charts.plots import plotted_panels
from dpsql.charts.specs import Figure
from dpsql.charts.svg import drawn
from dpsql.present.pictures import (
    LONGEST_LABEL,
    MOST_PANELS,
    MOST_SIDE,
    MOST_VALUES,
    Labels,
    chart_of,
)
from tests.report.hostile import HOSTILE

SIZES = ["small", "middle", "large"]
DAYS = [dt.date(2020, 1, 1) + dt.timedelta(days) for days in range(30)]


def table(keys: dict[str, Sequence[Any]], **values: float) -> pl.DataFrame:
    rows = [*itertools.product(*keys.values())]
    frame = pl.DataFrame(rows, schema=[*keys], orient="row")
    number = pl.int_range(pl.len()).cast(pl.Float64)
    return frame.with_columns((number * times).alias(name) for name, times in values.items())


def figure(frame: pl.DataFrame, *keys: str, panels: int = MOST_PANELS) -> Figure:
    roles = {
        name: "key" if name in keys else "value"
        for name in frame.columns
        if not name.endswith("_variance")
    }
    described = pl.DataFrame({"column": [*roles], "role": [*roles.values()]})
    found = chart_of(frame, described, None, panels=panels)
    assert found is not None
    assert plotted_panels(found, "n").to_dict()
    assert "<svg" in drawn(found) or "<table" in drawn(found)
    return found


def titles(found: Figure) -> list[str]:
    return [panel.title for panel in found.panels]


def named(node: Any, wanted: str) -> Iterator[Any]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == wanted:
                yield value
            yield from named(value, wanted)
    elif isinstance(node, list):
        for each in node:
            yield from named(each, wanted)


def shaded(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in rows_of(spec) if "size" in row]


def rows_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for data in named(spec, "values") for row in data if isinstance(row, dict)]


def test_each_value_has_a_panel_in_its_own_units():
    found = figure(table({"k": SIZES}, n=1.0, mean=0.5), "k")
    assert titles(found) == ["n", "mean"]
    assert found.words.startswith("Bars: n and mean by k: n: 3 values from 0 to 2. mean: 3 values")
    assert [row["value"] for row in rows_of(found.panels[1].spec)] == [0, 0.5, 1]


def test_of_many_values_the_first_are_drawn_and_that_is_said():
    found = figure(table({"k": SIZES}, **{f"n{i}": 1.0 for i in range(MOST_VALUES + 2)}), "k")
    assert titles(found) == [f"n{i}" for i in range(MOST_VALUES)]
    assert f"The first {MOST_VALUES} of {MOST_VALUES + 2} values." in found.words
    assert len(figure(table({"k": SIZES}, a=1, b=1, c=1), "k", panels=2).panels) == 2


def test_a_third_key_makes_a_heat_map_for_each_of_its_groups_with_the_same_shades():
    frame = table({"k": SIZES, "sex": ["f", "m"], "town": ["a", "b", "c", "d"]}, n=1.0)
    found = figure(frame, "k", "sex", "town")
    assert found.words.startswith("Tables: n by town and k, for each sex: 24 values from 0 to")
    assert titles(found) == ["sex: f", "sex: m"]
    shades = [list(named(panel.spec, "domain")) for panel in found.panels]
    assert shades[0] == shades[1]
    assert [0.0, 23.0] in shades[0]
    assert [len(shaded(panel.spec)) for panel in found.panels] == [12, 12]


def test_of_many_groups_the_largest_are_drawn_in_their_order():
    frame = table({"k": SIZES, "town": ["a", "b", "c"], "year": ["x", "y"]}, n=1.0)
    found = figure(frame.sort("n", descending=True), "k", "town", "year", panels=1)
    assert titles(found) == ["year: y"]
    assert "Of 2 groups by year the 1 with the largest numbers." in found.words
    many = table({"k": SIZES, "t": ["a", "b", "c"], "u": ["x", "y"], "v": [*range(9)]}, n=1.0)
    found = figure(many, "k", "t", "u", "v")
    assert len(found.panels) == 6
    assert titles(found)[0] == "t: a, u: x"
    assert titles(figure(many, "k", "t", "u", "v", panels=2)) == ["t: c, u: x", "t: c, u: y"]


def test_values_and_groups_share_the_panels():
    frame = table({"k": SIZES, "town": [*"abcde"], "year": [*"wxyz"]}, n=1.0, m=2.0, o=3.0, p=4.0)
    found = figure(frame, "k", "town", "year")
    assert len(found.panels) == MOST_PANELS
    assert titles(found)[:3] == ["n, k: small", "n, k: middle", "n, k: large"]


def test_times_make_a_line_for_each_group_with_the_same_axis():
    frame = table({"day": DAYS, "town": ["a", "b"]}, n=1.0).with_columns(n_variance=pl.lit(4.0))
    found = figure(frame, "day", "town")
    assert found.words.startswith("Lines: n by day, for each town with one standard error")
    assert titles(found) == ["town: a", "town: b"]
    for panel in found.panels:
        assert [0.0, 61.0] in list(named(panel.spec, "domain"))
    assert "2020-01-30" in str(found.panels[0].spec)


def test_a_line_far_from_zero_says_that_its_axis_begins_elsewhere():
    far = table({"day": DAYS}, n=0.1).with_columns(n=pl.col("n") + 100)
    assert "The axis doesn't begin at zero." in figure(far, "day").words
    assert "The axis" not in figure(table({"day": DAYS}, n=1.0), "day").words


def test_many_numbers_by_many_are_means_of_blocks():
    found = figure(table({"x": range(100), "y": range(60)}, n=1.0), "x", "y")
    assert "Means of 3 values of x each, of 100." in found.words
    assert "Means of 3 values of y each, of 60." in found.words
    rows = rows_of(found.spec)
    assert len(rows) == 34 * 20
    corner = [60 * i + j for i in range(3) for j in range(3)]
    assert rows[0] == {
        "row": "0 to 2", "column": "0 to 2", "size": sum(corner) / 9, "sign": "+",
    }  # fmt: skip
    assert {row["row"] for row in rows} >= {"96 to 98", "99 to 99"}


def test_blocks_keep_the_row_of_null():
    frame = table({"x": [None, *range(100)], "y": range(14)}, n=1.0)
    rows = rows_of(figure(frame, "x", "y").spec)
    assert {row["size"] for row in rows if row["row"] == "NULL"} == set(range(14))


def test_of_many_labels_those_with_the_largest_numbers_are_in_a_heat_map():
    frame = table({"x": [f"x{i:03}" for i in range(60)], "y": ["a", "b"]}, n=1.0)
    found = figure(frame, "x", "y")
    assert f"Of 60 values of x the {2 * MOST_SIDE} with the largest numbers" in found.words
    assert {row["row"] for row in rows_of(found.spec)} == {f"x{i:03}" for i in range(12, 60)}


def test_ordered_labels_keep_their_order_whatever_the_order_of_rows():
    frame = table({"k": SIZES, "year": [2022, 2020, 2021]}, n=1.0)
    frame = frame.with_columns(pl.col("k").cast(pl.Enum(SIZES))).sort("n", descending=True)
    domains = list(named(figure(frame, "k", "year").spec, "domain"))
    assert SIZES in domains
    assert ["2020", "2021", "2022"] in domains


def test_numbers_below_zero_have_a_color_and_noise_none():
    frame = table({"k": SIZES, "town": ["a", "b"]}, n=1.0).with_columns(n=pl.col("n") - 2.5)
    found = figure(frame.with_columns(n_variance=pl.lit(1.0)), "k", "town")
    rows = rows_of(found.spec)
    assert {row["sign"] for row in rows if "sign" in row} == {"+", "-"}
    assert [sum(name in row for row in rows) for name in ("sign", "text")] == [4, 6]
    assert "In italics and without shade: less than its own standard error" in found.words
    assert "Below zero in orange" in found.words.replace("; below", "; Below")
    assert "italics" not in figure(frame, "k", "town").words


def test_what_has_no_number_has_a_dash_in_a_heat_map():
    frame = table({"k": SIZES, "town": ["a", "b"]}, n=1.0)
    odd = frame.with_columns(n=pl.Series([1.0, None, math.nan, math.inf, 2.0, 3.0]))
    rows = rows_of(figure(odd, "k", "town").spec)
    assert [row for row in rows if not {"size", "text"} & {*row}] == [
        {"row": "small", "column": "b"},
        {"row": "middle", "column": "a"},
        {"row": "middle", "column": "b"},
    ]
    none = frame.with_columns(n=pl.lit(None, dtype=pl.Float64))
    assert "none is known" in figure(none, "k", "town").words


def test_large_numbers_are_told_in_a_unit_and_tiny_ones_in_powers():
    millions = str(figure(table({"k": SIZES}, n=4e6), "k").spec)
    assert "n (millions)" in millions
    assert "format(datum.value / 1000000, ',~g')" in millions
    assert "labelExpr" not in str(figure(table({"k": SIZES}, n=4e5), "k").spec)
    assert "'.3~g'" in str(figure(table({"k": SIZES}, n=1e-7), "k").spec)


def test_years_have_no_thousands_apart():
    picture = drawn(figure(table({"year": range(1990, 2020)}, n=1.0), "year"))
    assert ">2000<" in picture
    assert "1,990" not in picture


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["x" * 200 + "0", "x" * 200 + "1"], [f"{'x' * 18}…{'x' * 8}{i}" for i in (0, 1)]),
        (["x" * 100 + "1" + "y" * 99, "x" * 100 + "2" + "y" * 99], None),
        ([1.001, 1.002], ["1.001", "1.002"]),
        (["", " ", None], ['""', '" "', "NULL"]),
        (["a", 'a', "\u202ea"][1:], ["a", "�a"]),
        ([True, False], ["true", "false"]),
    ],
)  # fmt: skip
def test_labels_are_short_and_no_two_alike(values, labels):
    found = Labels(values).all
    assert len(set(found)) == len(values)
    assert max(map(len, found)) <= LONGEST_LABEL + 4
    assert labels is None or found == labels


@pytest.mark.parametrize("name", ["size", "row", "part", "key", "n_variance2", HOSTILE])
def test_keys_may_have_any_name(name):
    frame = table({name: SIZES, "sex": ["f", "m"], "town": ["a", "b"]}, n=1.0)
    shown = name.replace("\u202e", "�")[:60]
    assert shown in figure(frame, name, "sex", "town", panels=1).words
    wide = table({name: [f"{i}" for i in range(60)], "sex": ["f", "m"]}, n=1.0)
    assert f"Of 60 values of {shown}" in figure(wide, name, "sex").words


@pytest.mark.parametrize(
    ("span", "wanted"),
    [
        ((0, 9), [0, 2, 4, 6, 8]),
        ((0, 1), [0, 0.25, 0.5, 0.75, 1]),
        ((38, 42), [38, 39, 40, 41, 42]),
        ((5, 5), [5]),
        ((0, 3e12), [0, 1e12, 2e12, 3e12]),
    ],
)
def test_shades_are_told_for_round_numbers(span, wanted):
    assert round_numbers(*span) == pytest.approx(wanted)
