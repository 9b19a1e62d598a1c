"""How rows are drawn: by which columns, how evenly, and values in the cells that they stand for."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from dpsql import Domain
from dpsql.planner.reconstruction.cellwise import EntropyTables
from dpsql.release.synthesis import Cells, Draws, TwoTree, drawn, information, updated


class ExactTables(EntropyTables):
    """Tables of which the pairs are known: those of a joint table."""

    def __init__(self, joint: np.ndarray, known=lambda pair: True) -> None:
        super().__init__({chr(97 + i): n for i, n in enumerate(joint.shape)})
        self.joint, self._known = joint, known

    def true(self, attributes):
        names = list(self.sizes)
        return self.joint.sum(axis=tuple(i for i, n in enumerate(names) if n not in attributes))

    def total(self):
        return float(self.joint.sum())

    def single(self, attributes):
        return self.true(attributes)

    def known(self, attributes):
        return len(attributes) < 2 or (len(attributes) == 2 and self._known(attributes))

    def moved(self, attributes, expected):
        return self.true(attributes)


def counted(tables, codes, names):
    shape = [tables.sizes[name] for name in names]
    return np.histogramdd(
        np.stack([codes[name] for name in names], axis=1), [np.arange(n + 1) for n in shape]
    )[0]


def some(shape, seed=0):
    return np.random.default_rng(seed).gamma(0.3, size=shape) * 100


@pytest.mark.parametrize("shape", [(5,), (4, 6), (4, 3, 5)])
def test_up_to_three_columns_are_those_of_the_table_up_to_rounding(shape):
    """Of a cell m rows, each value of the next column m·P but for 1; so for up to three columns."""
    joint = some(shape)
    tables = ExactTables(joint)
    codes = drawn(tables, 100_000, Draws(1))
    for width in range(1, min(len(shape), 2) + 1):
        for names in combinations(tables.sizes, width):
            wanted = tables.true(names) * (100_000 / joint.sum())
            away = np.abs(counted(tables, codes, names) - wanted)
            if len(shape) < 3:
                assert away.max() <= 1 + width, names
            # Tables of three columns have the pairs about as near as fitting them ends.
            assert away.sum() < 0.002 * 100_000, names


def test_the_tree_has_the_edges_that_tell_most():
    """A chain a → b → c → d: each is joined to its neighbor."""
    chain = np.zeros((4, 4, 4, 4))
    steps = np.eye(4) * 20 + 1
    for a, b, c, d in np.ndindex(chain.shape):
        chain[a, b, c, d] = steps[a, b] * steps[b, c] * steps[c, d]
    found = TwoTree(ExactTables(chain)).steps
    joined = {frozenset((step.column, name)) for step in found for name in step.given}
    assert {frozenset("ab"), frozenset("bc"), frozenset("cd")} <= joined
    assert len(joined) == 2 * 4 - 3


def test_what_is_not_known_joins_nothing():
    tables = ExactTables(some((3, 3, 3)), known=lambda pair: pair == ("a", "c"))
    given = {step.column: step.given for step in TwoTree(tables).steps}
    assert given == {"a": (), "c": ("a",), "b": ()}


def test_updates_bring_pairs_nearer_that_are_not_of_the_tree():
    tables = ExactTables(some((6, 6, 6, 6, 6), seed=4))
    plain = drawn(tables, 20_000, Draws(2))
    moved = updated(plain, tables, 10, Draws(3))

    def away(codes):
        scale = 20_000 / tables.total()
        pairs = list(combinations(tables.sizes, 2))
        return sum(np.abs(counted(tables, codes, p) - tables.true(p) * scale).sum() for p in pairs)

    assert away(moved) < 0.5 * away(plain)
    assert {len(of) for of in moved.values()} == {20_000}
    again = updated(drawn(tables, 20_000, Draws(2)), tables, 10, Draws(3))
    assert all((again[name] == moved[name]).all() for name in moved)


def test_nothing_but_zeros():
    tables = ExactTables(np.zeros((3, 2)))
    codes = updated(drawn(tables, 10, Draws(1)), tables, 2, Draws(1))
    assert all(len(of) == 10 for of in codes.values())


def test_information():
    assert information(np.eye(4)) == pytest.approx(np.log(4))
    assert information(np.ones((4, 3))) == pytest.approx(0)
    assert information(np.zeros((4, 3))) == 0


def test_strata_are_even():
    groups = np.array([0] * 7 + [2] * 5 + [1])
    found = Draws(5).stratified(groups, 4)
    for group in range(3):
        own = np.sort(found[groups == group])
        assert (np.floor(own * len(own)) == np.arange(len(own))).all()
        assert np.ptp(own * len(own) % 1.0) < 1e-6
    assert ((found >= 0) & (found < 1)).all()


def test_draws_are_uniform_and_the_same_everywhere():
    found = Draws(1).uniform(100_000)
    assert abs(found.mean() - 0.5) < 0.005  # 5 standard errors
    assert np.histogram(found, 10, (0, 1))[0] == pytest.approx(10_000, abs=500)
    assert Draws(1).uniform(2).tolist() == Draws(1).uniform(3).tolist()[:2]
    assert sorted(Draws(None).order(50).tolist()) == list(range(50))
    assert Draws(7).order(20).tolist() == Draws(7).order(20).tolist()


DOMAINS = {
    "integers": Domain.integers(-3, 9).as_type("SMALLINT"),
    "large": Domain.integers(2**62, 2**62 + 5, nullable=True).as_type("UBIGINT"),
    "listed": Domain("INTEGER", (5, 3, 100), nullable=True),
    "boolean": Domain.boolean(nullable=True),
    "labels": Domain.labels(["<script>", "", "it's", "é"], nullable=True),
    "other": Domain.labels(["a", "b", "rest"], other="rest", nullable=True),
    "enum": Domain("ENUM", ("x y", '"', "z")),
    "decimals": Domain.decimals("-1.5", "1.5", "0.25"),
    "decimals of numbers": Domain.decimals("-1.5", "1.5", "0.25").of_column("DOUBLE"),
    "decimals of wider ones": Domain.decimals("0", "30", "10").of_column("DECIMAL(12,4)"),
    "days": Domain.dates("1969-12-30", "1970-01-03"),
    "weeks": Domain.dates("2024-01-01", "2024-03-01", "week", nullable=True),
    "months": Domain.dates("1899-01-01", "1900-03-01", "month"),
    "quarters": Domain.dates("2024-01-01", "2026-01-01", "quarter").of_column("TIMESTAMP"),
    "days of times": Domain.dates("1969-12-30", "1970-01-03").of_column("TIMESTAMP"),
    "hours": Domain.dates("1969-12-31", "1970-01-01", "hour").of_column("TIMESTAMP"),
    "minute": Domain.dates("2024-01-01 10:00", "2024-01-01 10:00", "minute"),
    "zone": Domain.dates("2024-03-30", "2024-04-01", "day", zone="Europe/Berlin").of_column(
        "TIMESTAMP WITH TIME ZONE"
    ),
    "hours of a zone": Domain.dates(
        "2024-10-26 00:00", "2024-10-26 23:00", "hour", zone="America/New_York"
    ).of_column("TIMESTAMP WITH TIME ZONE"),
    "bins": Domain.bins([-1.5, 0, 0.001, 7]),
    "bins of singles": Domain.bins([-1.5, 0.1, 0.3, 7]).of_column("FLOAT"),
    "bins of integers": Domain.bins([-10, 0, 5.5, 1e30], nullable=True).of_column("INTEGER"),
    "bins of cents": Domain.bins([-1, 0, 0.015, 1e9]).of_column("DECIMAL(6,2)"),
}


@pytest.mark.parametrize("kind", DOMAINS)
def test_values_lie_in_their_cells(kind):
    cells = Cells(kind, DOMAINS[kind])
    codes = np.tile(np.arange(DOMAINS[kind].size), 200)
    values = cells.values(codes, Draws(2))
    assert values.name == kind
    assert (values.is_null().to_numpy() == (codes >= cells.count)).all()
    assert cells.codes(values, leaves_out=False).tolist() == codes.tolist()
    assert cells.values(codes[:0], Draws(2)).dtype == values.dtype


@pytest.mark.parametrize(
    ("domain", "values", "codes"),
    [
        (Domain.integers(0, 3, outside="clamp"), [-5, 2, 99], [0, 2, 3]),
        (Domain.integers(0, 3, nullable=True), [-5, 2, None], [4, 2, 4]),
        (Domain.integers(0, 3), [-5, 2, None], [4, 2, 4]),
        (Domain.labels(["a", "r"], other="r"), ["a", "x", "r"], [0, 1, 1]),
        (Domain.bins([0, 1, 2], outside="clamp"), [-1.0, 1.0, 9.0], [0, 1, 1]),
        (
            Domain.decimals("0", "1", "0.5", outside="clamp").of_column("DOUBLE"),
            [-1, 0.25, 7],
            [0, 1, 2],
        ),
        (Domain.bins([0, 1, 2], nullable=True), [float("nan"), 2.0, None], [2, 1, 2]),
    ],
)
def test_values_outside_go_where_the_domain_says(domain, values, codes):
    found = Cells("x", domain).codes(pl.Series(values, strict=False), leaves_out=True)
    assert found.tolist() == codes
