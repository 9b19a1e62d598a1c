"""Blocks contain all that is asked for, stay small, and compute a key once if that is cheaper."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import pytest

from dpsql.engines.duckdb.blocks import (
    MOST_CELLS,
    MOST_PLACES,
    MOST_SPREAD,
    GroupedRows,
    blocks_for,
)
from dpsql.engines.duckdb.coding import Coding
from dpsql.engines.duckdb.sums import RowSum
from dpsql.rows.expression import RowColumn
from dpsql.rows.key import line
from dpsql.rows.measure import measure
from dpsql.schema import Domain, Table

VALUE = measure(RowColumn("v"), {"v": "INTEGER"}, (Fraction(0), Fraction(50)), Fraction(1))
CUT = line("x", "DOUBLE", [0, 50], nullable=True).key


def coding_of(sizes):
    columns = {name: Domain("UTINYINT", range(n)) for name, n in sizes.items()}
    plain = Table("t", columns, {"x": "DOUBLE", "v": "INTEGER"}, ("memory", "main", "t"),
                  enforced=frozenset(columns))  # fmt: skip
    return Coding(plain.deriving({CUT.name: CUT.domain}, {CUT.name: CUT.digest}), {},
                  {CUT.name: CUT})  # fmt: skip


@pytest.mark.parametrize("total", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_every_place_is_in_a_block_with_what_is_added_up_there(seed, total):
    draw = random.Random(seed)  # noqa: S311
    coding = coding_of({name: draw.randint(1, 60) for name in "abcdef"})
    names, sums = [*"abcdef", CUT.name], {name: RowSum.made(VALUE) for name in "uvw"}
    places = [
        (tuple(draw.sample(names, draw.randint(0, 4))),
         {name: sums[name] for name in draw.sample("uvw", draw.choice([0, 0, 1]))})
        for _ in range(draw.randint(1, 15))
    ]  # fmt: skip
    blocks = blocks_for(coding, places, total=total)
    for own, added in places:
        fitting = [b for b in blocks if set(own) <= set(b) and added.keys() <= blocks[b].keys()]
        assert fitting[-1:] == [()] if total and not own else fitting
    largest = max(len(range(cells(coding, own))) for own, _ in places)
    assert all(cells(coding, block) <= max(MOST_CELLS, largest) for block in blocks)
    assert len(blocks) <= len({frozenset(own) for own, _ in places}) + total
    assert blocks == blocks_for(coding, places, total=total)


def cells(coding, block):
    product = 1
    for name in block:
        product *= coding.size(name)
    return product


def test_a_key_is_computed_once_where_a_larger_block_has_it():
    sizes = dict(zip("abcde", (4, 9, 6, 5, 2), strict=True))
    coding = coding_of(sizes)
    places = [(tuple("abcde"), {}), *(((name, CUT.name), {}) for name in sizes)]
    assert list(blocks_for(coding, places, total=False)) == [(*"abcde", CUT.name)]


def test_sums_are_added_up_in_few_groups():
    """Beside a block of many, which has all that they are asked by."""
    coding = coding_of(dict(zip("abcde", (4, 9, 6, 5, 20), strict=True)))
    sums = {name: RowSum.made(VALUE) for name in "uvw"}
    blocks = blocks_for(coding, [(tuple("abcde"), {}), (("a",), sums)], total=False)
    assert {block: set(added) for block, added in blocks.items()} == {
        tuple("abcde"): set(), ("a",): {"u", "v", "w"}
    }  # fmt: skip


@pytest.mark.parametrize("type_", ["UTINYINT", "INTEGER"])
def test_large_blocks_are_those_that_have_few_places(type_):
    """Of columns that aren't packed there are fewer cells in a block."""
    sizes = (2, 2, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20)
    columns = {f"c{i}": Domain(type_, range(n)) for i, n in enumerate(sizes)}
    coding = Coding(Table("t", columns, {}, ("memory", "main", "t"), enforced=frozenset(columns)))
    places = [(pair, {}) for pair in combinations(columns, 2)]
    blocks = blocks_for(coding, places, total=False)
    assert len(blocks) <= (8 if type_ == "UTINYINT" else 12)
    for block in blocks:
        spread = GroupedRows.of(coding, block, "").places > MOST_PLACES
        assert cells(coding, block) <= (MOST_SPREAD if spread else MOST_CELLS)
