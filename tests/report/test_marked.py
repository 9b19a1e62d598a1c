"""Values that mean little, in pictures: hollow or left out, on the scale of the others."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.answers.frames import DIVIDED, MARKS, NOISE, SUPPRESSED, as_read
from dpsql.charts.specs import Figure, Grid, Points
from dpsql.charts.svg import drawn
from dpsql.present.pictures import chart_of

DAYS = [dt.date(2024, 1, 1 + i) for i in range(16)]
KEYS: dict[str, dict[str, list[Any]]] = {
    "bars": {"k": [f"label {i}" for i in range(16)]},
    "a line of numbers": {"k": [*range(16)]},
    "a line of times": {"k": DAYS},
    "two keys": {"k": [*"abcdefgh"], "sex": ["f", "m"]},
    "panels": {"k": DAYS[:14], "sex": ["f", "m"]},
    "too wide for numbers": {"k": [f"a{i}" for i in range(16)], "o": [f"b{i}" for i in range(14)]},
}
SURE, ABSURD = 40.0, 4_470.0
"""Values that say something, and one that doesn't."""


def numbers(node: Any, *names: str) -> Iterator[float]:
    """Yield what is drawn in a chart of Vega-Lite under some names."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in names and isinstance(value, (int, float)):
                yield value
            yield from numbers(value, *names)
    elif isinstance(node, list):
        for each in node:
            yield from numbers(each, *names)


def marked(keys: dict[str, list[Any]], mark: str, every: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return an answer of which every so many values are marked and absurd, and its marks."""
    frame = pl.DataFrame([*product(*keys.values())], schema=[*keys], orient="row")
    weak = pl.int_range(pl.len()) % every == 1
    size = pl.when(weak).then(ABSURD).otherwise(SURE)
    frame = frame.with_columns(
        size.alias("n"),
        pl.when(weak).then(9 * ABSURD**2).otherwise(1.0).alias("n_variance"),
        (size - pl.when(weak).then(6 * ABSURD).otherwise(2.0)).alias("n_lower"),
        (size + pl.when(weak).then(6 * ABSURD).otherwise(2.0)).alias("n_upper"),
    )
    marks = frame.select(
        pl.when(weak).then(pl.lit(mark, dtype=MARKS)).otherwise(None).cast(MARKS).alias("n")
    )
    return frame, marks


def picture(frame: pl.DataFrame, keys: dict[str, list[Any]], marks: pl.DataFrame) -> Figure:
    described = pl.DataFrame({"column": [*keys, "n"], "role": ["key"] * len(keys) + ["value"]})
    found = chart_of(frame, described, 0.95, marks=marks)
    assert found is not None
    return found


@pytest.mark.parametrize("mark", [NOISE, DIVIDED, SUPPRESSED])
@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("kind", KEYS)
def test_marked_values_decide_no_scale_and_are_not_drawn_as_others_are(kind, every, mark):
    keys = KEYS[kind]
    frame, marks = marked(keys, mark, every)
    found = picture(frame, keys, marks)
    for panel in found.panels:
        assert max(map(abs, panel.span or (0, 0))) <= SURE + 2
        names = ("value", "low", "high") if isinstance(panel.shown, Points) else ("size",)
        assert max(numbers(panel.spec, *names), default=0) <= SURE + 2
    page = drawn(found)
    if mark != NOISE or isinstance(found.panels[0].shown, Points):
        assert "4,470" not in page
    weak = marks["n"].len() - marks["n"].null_count()
    if mark == NOISE:
        assert "less than its own standard error from zero" in found.words
    else:
        assert f"Left out: {weak:,} that say nothing" in found.words
        assert f"{marks['n'].null_count()} values from 40 to 40" in found.words


@pytest.mark.parametrize("kind", ["bars", "two keys"])
def test_where_all_is_noise_the_scale_is_that_of_all(kind):
    frame, marks = marked(KEYS[kind], NOISE, 2)
    every = marks.with_columns(pl.lit(NOISE, dtype=MARKS).alias("n"))
    (panel,) = picture(frame, KEYS[kind], every).panels
    assert panel.span is not None
    assert panel.span[1] >= ABSURD


def test_hollow_marks_are_outlines():
    frame, marks = marked(KEYS["bars"], NOISE, 5)
    page = drawn(picture(frame, KEYS["bars"], marks))
    outlines = re.findall(r'<rect [^>]*fill="none" stroke="var\(--one\)"', page)
    assert len(outlines) == marks["n"].len() - marks["n"].null_count()


def test_standard_errors_of_two_keys_are_said_once_if_they_are_the_same():
    keys = {"age": ["young", "old"], "sex": ["f", "m"]}
    frame = pl.DataFrame([*product(*keys.values())], schema=[*keys], orient="row")
    frame = frame.with_columns(pl.Series("n", [400.0, 300.0, 200.0, 100.0]))
    marks = pl.DataFrame({"n": [None] * 4}, schema={"n": MARKS})
    said = []
    for variances in ([9.0] * 4, [9.0, 9.0, 25.0, 25.0], [9.0, 25.0] * 2, [9.0, 25.0, 25.0, 9.0]):
        own = frame.with_columns(pl.Series("n_variance", variances))
        (panel,) = picture(own, keys, marks).panels
        assert isinstance(panel.shown, Grid)
        said.append((panel.shown.each, dict(panel.shown.beside), dict(panel.shown.below)))
    assert said == [
        ("each with a standard error of 3.0", {}, {}),
        ("", {"young": "3.0", "old": "5.0"}, {}),
        ("", {}, {"f": "3.0", "m": "5.0"}),
        ("with standard errors of 3.0 to 5.0", {}, {}),
    ]


@pytest.fixture(scope="module")
def pay() -> dpsql.Release:
    """Return averages by year, with rows in every second year alone."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE t (year INTEGER NOT NULL CHECK (year BETWEEN 1990 AND 2019), pay DOUBLE)"
    )
    con.execute("INSERT INTO t SELECT 1990 + 2 * (i % 15), 20 + i % 40 FROM range(6000) x(i)")
    schema = dpsql.Schema({"t": {"pay": dpsql.Domain.number(0, 100)}})
    session = dpsql.Session(con, schema=schema, accept_schema=True)
    return session.release(
        {"pay": "SELECT year, AVG(pay) AS m FROM t GROUP BY year"},
        budget=dpsql.Budget(epsilon=1, delta=1e-9),
        confidence=0.95,
    )


def test_averages_of_groups_without_rows_are_left_out_of_plots_and_reports(pay, tmp_path):
    """Seen before: 30 of 30 values from -504 to 4,470, of which 15 said nothing."""
    marks = pay.marks("pay")["m"]
    shown = [*numbers(pay.plot("pay").to_dict(), "value", "low", "high")]
    assert marks.null_count() >= 12
    assert min(shown) >= 0
    assert max(shown) <= 100
    values = [*numbers(pay.plot("pay").to_dict(), "value")]
    assert len(values) <= 2 * marks.null_count()
    pay.save(tmp_path / "saved")
    again = dpsql.Release.load(tmp_path / "saved")
    assert [*numbers(again.plot("pay").to_dict(), "value")] == values


def test_averages_are_read_within_their_declared_range(pay):
    frame, _ = as_read(pay._frames, "pay")
    assert frame["m"].is_between(0, 100).all()
    beyond = ~pay["pay"]["m"].is_between(0, 100)
    assert frame.filter(~beyond)["m"].equals(pay["pay"].filter(~beyond)["m"])
