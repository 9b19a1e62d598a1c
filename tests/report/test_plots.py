"""`Release.plot`: charts of Altair, of any names, of any number of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

import dpsql
from dpsql.charts.plots import plotted, plotted_panels
from dpsql.charts.specs import Figure, Panel
from dpsql.present.pictures import MOST_POINTS, MOST_VALUES, chart_of, chart_wanted
from tests.report.hostile import HOSTILE, hostile

OWN = {"key", "value", "low", "high", "limit", "row", "column", "size", "sign", "text"}


@pytest.fixture(scope="module")
def release() -> dpsql.Release:
    return hostile()


def named(node: Any, wanted: str) -> Iterator[Any]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == wanted:
                yield value
            else:
                yield from named(value, wanted)
    elif isinstance(node, list):
        for each in node:
            yield from named(each, wanted)


def described(**roles: str) -> pl.DataFrame:
    return pl.DataFrame({"column": list(roles), "role": list(roles.values())})


def test_no_name_becomes_a_field_or_an_expression(release):
    made = release.plot(HOSTILE).to_dict()
    assert set(named(made, "field")) <= OWN
    for what in ("expr", "calculate", "filter", "url", "href", "transform"):
        assert not list(named(made, what))
    assert "\u202e" not in str(made)
    assert str(made["title"]["text"]).startswith("<script>")


def test_a_plot_is_drawn_here_without_a_network(release, tmp_path):
    place = tmp_path / "plot.svg"
    release.plot(HOSTILE).save(str(place))
    drawn = place.read_text(encoding="utf-8")
    assert drawn.startswith("<svg")
    assert "<script" not in drawn


def test_another_statement_and_another_value_are_refused(release):
    with pytest.raises(KeyError):
        release.plot("other")
    with pytest.raises(dpsql.PlotError, match="has no value other") as found:
        release.plot(HOSTILE, "other")
    assert "its values are" in (found.value.hint or "")


def test_what_has_no_picture_is_refused_with_a_way_on():
    frame = pl.DataFrame({"n": [1.0]})
    with pytest.raises(dpsql.PlotError, match="1 rows and 0 keys") as found:
        chart_wanted("all", frame, described(n="value"), None, None)
    assert "release.query" in (found.value.hint or "")


def test_without_altair_a_hint_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(dpsql.PlotError, match="altair is not installed") as found:
        plotted(Figure((Panel({}),), "nothing"), "n")
    assert found.value.hint == 'pip install "dpsql[plots]"'


def several(values: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    names = [f"n{i}" for i in range(values)]
    frame = pl.DataFrame({"k": ["a", "b"], **{each: [1.0, 2.0] for each in names}})
    return frame, described(k="key", **dict.fromkeys(names, "value"))


def test_all_values_are_drawn_or_those_that_are_named():
    frame, columns = several(3)
    found = plotted_panels(chart_wanted("all", frame, columns, None, None), "all").to_dict()
    assert [panel["title"]["text"] for panel in found["concat"]] == ["n0", "n1", "n2"]
    assert found["title"]["text"] == "all"
    two = chart_wanted("all", frame, columns, None, ["n2", "n0"])
    assert [panel.title for panel in two.panels] == ["n2", "n0"]
    one = plotted_panels(chart_wanted("all", frame, columns, None, "n1"), "all").to_dict()
    assert "concat" not in one


def test_a_panel_for_each_value_is_drawn_by_altair_too(tmp_path):
    place = tmp_path / "plot.svg"
    frame, columns = several(2)
    plotted_panels(chart_wanted("all", frame, columns, None, None), "all").save(str(place))
    assert ">n1</text>" in place.read_text(encoding="utf-8")


@pytest.mark.parametrize("wanted", [[], [f"n{i}" for i in range(MOST_VALUES + 1)]])
def test_no_value_and_too_many_are_refused(wanted):
    frame, columns = several(MOST_VALUES + 1)
    with pytest.raises(dpsql.PlotError, match="one value to 6") as found:
        chart_wanted("all", frame, columns, None, wanted)
    assert "value=['n0'," in (found.value.hint or "")


@pytest.mark.parametrize("wanted", [7, ["n0", 7]])
def test_a_value_is_a_name(wanted):
    frame, columns = several(2)
    with pytest.raises(dpsql.PlotError, match="has no value 7"):
        chart_wanted("all", frame, columns, None, wanted)


def test_a_million_rows_are_summed_up_along_a_line():
    rows = 1_000_000
    frame = pl.DataFrame({"k": range(rows)}).with_columns(n=pl.col("k").cast(pl.Float64))
    found = chart_of(frame, described(k="key", n="value"), None)
    assert found is not None
    assert any("means of" in note and "1,000,000" in note for note in found.notes)
    assert all(len(values) <= MOST_POINTS for values in named(found.spec, "values"))
    assert plotted(found, "n").to_dict()["title"]["subtitle"] == [*found.notes]


def test_infinite_values_and_variances_leave_gaps():
    numbers = [1.0, float("nan"), float("inf")]
    frame = pl.DataFrame({"k": ["a", "b", "c"], "n": numbers, "n_variance": numbers[::-1]})
    found = chart_of(frame, described(k="key", n="value"), None)
    assert found is not None
    shown = [row for rows in named(found.spec, "values") for row in rows]
    assert {"key": "b"} in shown  # that it has no number
    assert not any(row.get("high") in numbers[1:] for row in shown)
