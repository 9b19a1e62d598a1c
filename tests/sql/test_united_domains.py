"""Domains of columns of UNION ALL: the values of all of its queries, of whatever kinds."""

from __future__ import annotations

import itertools

import pytest

from dpsql.schema import Domain
from dpsql.sql.algebra.described import united

KINDS = {
    "integers": [Domain.integers(0, 3), Domain.integers(2, 7, nullable=True)],
    "clamped": [Domain.integers(0, 3, outside="clamp")],
    "decimals": [Domain.decimals("0", "2", "0.5"), Domain.decimals("1", "30", "0.5")],
    "other steps": [Domain.decimals("0", "2", "0.1"), Domain.decimals("0.25", "2.25", "0.5")],
    "dates": [Domain.dates("2024-01-01", "2024-01-09"), Domain.dates("2024-01-05", "2024-02-01")],
    "months": [Domain.dates("2024-01-01", "2024-03-01", grain="month")],
    "times": [
        Domain.dates("2024-01-01", "2024-01-09", grain="hour"),
        Domain.dates("2024-01-02", "2024-01-04", grain="hour"),
    ],
    "bins": [Domain.bins([0, 1, 2]), Domain.bins([0, 2, 4])],
    "labels": [Domain.labels(["b", "a"]), Domain.labels(["c", "a", "(other)"], other="(other)")],
    "enum": [Domain.labels(["x", "y"]).as_type("ENUM")],
    "boolean": [Domain.boolean(), Domain.boolean(nullable=True)],
}
DOMAINS = [domain for domains in KINDS.values() for domain in domains]


@pytest.mark.parametrize("first", DOMAINS, ids=str)
def test_it_has_the_values_of_all_or_is_unknown(first):
    for second in DOMAINS:
        found = united([first, second])
        if found is None:
            assert first != second
            continue
        assert {*first.values, *second.values} <= {*found.values}
        assert found.nullable == (first.nullable or second.nullable)


@pytest.mark.parametrize("kind", ["integers", "decimals", "dates", "boolean"])
def test_values_of_one_kind_are_known(kind):
    for one, other in itertools.product(KINDS[kind], repeat=2):
        assert united([one, other]) is not None


def test_steps_that_differ_have_no_common_grid():
    for one, other in itertools.combinations([*KINDS["decimals"], *KINDS["other steps"]][1:], 2):
        assert united([one, other]) is None


def test_nothing_is_known_where_one_is_unknown():
    assert united([DOMAINS[0], None]) is None
