"""Records of facts: each field of `Facts` shows where its record says, and is read as it was."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from fractions import Fraction

import polars as pl
import pytest

import dpsql
from dpsql.answers.facts import (
    BoundedColumn,
    DrawnQuantiles,
    Earlier,
    Facts,
    FoundColumn,
    FoundRound,
    ReleasedValue,
)
from dpsql.planner.reconstruction.base import EXPECTED
from dpsql.present.records import FACTS, In, document_of, facts_in, lines_of
from dpsql.present.report import page_of
from dpsql.present.summary import summarize
from dpsql.privacy import Purpose, Receipt
from dpsql.rel.related import ReadTable
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect

DIGEST = "ab" * 32
OTHERS = {
    "neighbours": "another change",
    "statements": {"by sex": "SELECT 1 AS n"},
    "expected": pl.DataFrame([("by sex", 1, 0.25, 0.5)], schema=EXPECTED, orient="row"),
    "budget": dpsql.Budget(mu=Fraction(1, 7)),
    "guards": {"by sex": ("sex", "member")},
    "notes": {"by sex": ("it is a note",)},
    "privacy_cost": Fraction(1, 7),
    "receipt": Receipt("cd" * 16, 7, "ef" * 16, Fraction(1, 7), Purpose(*[DIGEST] * 6)),
    "rmse": 0.25,
    "gap": 0.25,
    "spaces": 77,
    "whole": True,
    "objective": "another objective",
    "vintage": "2020",
    "earlier": (Earlier(3, "ab" * 16, Fraction(1, 7), "2020-01-01T00:00:00+00:00"),),
    "found": (
        FoundColumn(
            ("memory", "main", "t"),
            "city",
            (FoundRound(Fraction(1, 7), Fraction(1, 10**9), 1, 1),),
            Earlier(2, "cd" * 16, Fraction(1, 7), "2020-01-01T00:00:00+00:00", Fraction(1, 10**9)),
        ),
    ),
    "bounded": (
        BoundedColumn(
            ("memory", "main", "t"),
            "x",
            "-4",
            "128.5",
            (Earlier(1, "ef" * 16, Fraction(1, 9), "2020-01-01T00:00:00+00:00"),),
        ),
    ),
    "drawn": (
        DrawnQuantiles(
            ("memory", "main", "t"),
            "MEDIAN(x)",
            "quantile 5",
            (("by sex", 0, 0, 1),),
            Fraction(1, 2),
            "INTEGER",
            -9,
            99,
            (7, 12),
            Fraction(1, 3),
            Earlier(4, "ef" * 16, Fraction(1, 9), "2020-01-01T00:00:00+00:00"),
        ),
    ),
    "valued": (
        ReleasedValue(
            "SELECT (SELECT AVG(x) FROM t) AS value",
            "(2.5)",
            (Earlier(5, "ef" * 16, Fraction(1, 9), "2020-01-01T00:00:00+00:00"),),
        ),
    ),
    "confidence": 0.5,
    "nonnegative": True,
    "integers": True,
    "groups_above": 1.5,
    "suppress_below": 7.5,
    "created": "2020-01-01T00:00:00+00:00",
    "versions": {"python": "4"},
    "mechanism": "hdmm",
    "laplace": True,
    "warning": "it loses accuracy",
}
"""A value of each fact that is another one than that of the release."""
NOT_IN_SUMMARIES = {"read", "privacy_cost", "rmse", "confidence", "groups_above", "statements"}
"""Those that are told beside each statement, or by what else is there."""


@pytest.fixture(scope="module")
def release():
    return dpsql.Session(connect(), schema=SCHEMA).release(
        {"by sex": SCRIPT["by sex"]}, budget=BUDGET
    )


@pytest.fixture(scope="module")
def facts(release):
    return release.facts


def changed_in(facts, name):
    """Return facts of which one is another."""
    table = replace(facts.table, name="persons", path=("memory", "main", "persons"))
    read = (ReadTable(table, frozenset({frozenset({"sex"})})),)
    return replace(
        facts, **{name: {**OTHERS, "table": table, "others": (table,), "read": read}[name]}
    )


@pytest.mark.parametrize("name", [field.name for field in fields(Facts)])
def test_a_fact_shows_where_its_record_says(facts, name):
    changed = changed_in(facts, name)
    shows = In(0)
    for fact in FACTS:
        if fact.attribute.split(".")[0] == name:
            shows |= fact.shows
    for which in In.BOTH:
        differs = document_of(changed, which) != document_of(facts, which)
        of_tables = name in {"table", "others"}  # metadata say more of them, as `tables`
        assert differs == (which in shows or of_tables)
    assert (summarize(changed) != summarize(facts)) == (name not in NOT_IN_SUMMARIES)


@pytest.mark.parametrize("name", [field.name for field in fields(Facts)])
def test_a_fact_is_read_as_it_was_written(facts, name):
    changed = changed_in(facts, name)
    document = document_of(changed, In.RELEASE)
    again = facts_in(json.loads(json.dumps(document)))
    assert document_of(again, In.RELEASE) == document
    kept = any(fact.attribute == name and In.RELEASE in fact.shows for fact in FACTS)
    if name == "expected":
        assert again.expected.equals(changed.expected)
    else:
        assert getattr(again, name) == (getattr(changed, name) if kept else None)


def test_lines_are_on_pages_too(facts, release):
    changed = replace(facts, receipt=OTHERS["receipt"], earlier=OTHERS["earlier"])
    frames, measurements = release._all
    told = page_of(changed, frames, measurements, None, None, 10**7).provenance
    lines = [*lines_of(changed, "Privacy", "Limits", "page")]
    assert [label for label, _ in lines] == ["ledger", "request", "rests also on", "versions"]
    assert set(lines) <= set(told)
