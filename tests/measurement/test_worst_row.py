"""The worst row: what is charged for all sets at once is what some row costs, and never less."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from dpsql.engines.base import Counted
from dpsql.errors import InternalError
from dpsql.measurement import worst_row as core
from dpsql.measurement.certify import CertifiedPlan, spent
from dpsql.measurement.distributions import Gaussian, Laplace
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    MeasureFactor,
    UnitFactor,
)
from dpsql.measurement.measure import measure
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.worst_row import CostTable, RowCost, row_cost, worst_row
from dpsql.privacy import Budget
from dpsql.rel.support import Support
from dpsql.workload.spread import SpreadRows
from tests.helpers.charging import pay
from tests.helpers.seeded import SeededBits

SIZES = (2, 3, 2, 3)


def some_tables(rng):
    """Yield tables of some of up to four attributes, whose numbers may all be alike."""
    left = list(rng.permutation(len(SIZES))[: rng.integers(1, 4)])
    yield CostTable((), np.array(int(rng.integers(0, 5)), dtype=object))
    while left:
        take = int(rng.integers(1, len(left) + 1))
        own, left = left[:take], left[take:]
        shape = [SIZES[a] for a in own]
        cells = rng.integers(0, 9, shape) if rng.random() < 0.8 else np.full(shape, 5)
        yield CostTable(tuple((f"a{a}", SIZES[a]) for a in own), cells.astype(object)).narrowed()


def some_costs(seed):
    rng = np.random.default_rng(seed)
    return [
        RowCost(tuple(some_tables(rng)), int(rng.integers(1, 20)))
        for _ in range(int(rng.integers(1, 6)))
    ]


def cost_in(cost, cell):
    numbers = (t.cells[tuple(cell[int(name[1])] for name, _ in t.axes)] for t in cost.tables)
    return Fraction(math.prod(map(int, numbers)), cost.width)


def over_all_cells(costs):
    cells = itertools.product(*map(range, SIZES))
    return max(sum(cost_in(cost, cell) for cost in costs) for cell in cells)


def added(costs):
    return sum((Fraction(cost.largest, cost.width) for cost in costs), Fraction(0))


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(400))
def test_elimination_finds_the_worst_of_all_cells(seed):
    costs = some_costs(seed)
    assert worst_row(costs) == over_all_cells(costs)
    assert worst_row(costs[1:]) <= worst_row(costs)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(400))
def test_no_division_and_no_order_makes_it_less(seed, monkeypatch):
    costs, rng = some_costs(seed), np.random.default_rng(seed)
    monkeypatch.setattr(core, "MOST_CELLS", int(rng.integers(1, 9)))

    def any_axis(tables):
        axes = sorted({axis for table in tables for axis in table.axes})
        return axes[int(rng.integers(len(axes)))] if axes else None

    monkeypatch.setattr(core, "_next", any_axis)
    assert over_all_cells(costs) <= worst_row(costs) <= added(costs)
    monkeypatch.setattr(core, "MOST_TABLES", 1)
    assert over_all_cells(costs) <= worst_row(costs) <= added(costs)
    monkeypatch.setattr(core, "MOST_BITS", 3)
    assert over_all_cells(costs) <= worst_row(costs)


@pytest.mark.parametrize("bits", [1, 20, 60])
def test_denominators_that_are_too_long_are_rounded_up(bits, monkeypatch):
    costs = some_costs(7)
    monkeypatch.setattr(core, "MOST_BITS", bits)
    assert 0 <= worst_row(costs) - over_all_cells(costs) <= Fraction(len(costs), 1 << bits)


def test_attributes_of_one_name_and_two_sizes_are_two():
    one, two = (
        RowCost((CostTable((("a", len(cells)),), np.array(cells, dtype=object)),), 1)
        for cells in ([0, 5], [5, 0, 0])
    )
    assert worst_row([one, two]) == 10
    assert worst_row([one, one]) == 10
    assert worst_row([]) == 0


# ── Plans: against all that units can change ─────────────────────────────────────────────────────


def some_block(rng, space, sizes, law):
    """Return a block over some attributes, the last of which may be a measure."""
    factors, axis = list[object](), 0
    names = [name for name in space if name in sizes]
    while axis < len(names):
        take = int(rng.integers(1, len(names) - axis + 1))
        shape = tuple(sizes[name] for name in names[axis : axis + take])
        axes = tuple(range(axis, axis + take))
        kind = rng.integers(4)
        if kind == 0 and take == 1 and shape[0] > 1:
            factors.append(CenteredFactor(axes, shape, 2))
        elif kind == 1 and take == 1:
            factors.append(IdentityFactor(axes, shape, 3))
        else:
            rows = rng.integers(-3, 4, (int(rng.integers(1, 4)), math.prod(shape)))
            factors.append(DenseFactor(axes, shape, rows * (rng.random(rows.shape) < 0.6)))
        axis += take
    if len(names) < len(space):
        factors.append(MeasureFactor((axis,), MEASURES[space[-1]]))
    return BlockStrategy((space,), tuple(factors), law)


MEASURES = {"v": 2, "w": 3}
CELLS = {"a": 2, "b": 3}
SPACES = (("a",), ("a", "b"), ("b", "v"), ("a", "v"), ("a", "w"), ("a", "b", "w"))


def some_blocks(seed):
    rng = np.random.default_rng(seed)
    pure = bool(rng.random() < 0.3)
    chosen = rng.permutation(len(SPACES))[: rng.integers(1, 5)]
    return [
        some_block(
            rng,
            SPACES[i],
            CELLS,
            (Laplace if pure else Gaussian)(int(rng.integers(1, 9))),
        )
        for i in chosen
    ]


def written(block):
    found = np.ones((1, 1), dtype=object)
    for factor in sorted(block.factors, key=lambda f: f.axes):
        found = np.kron(found, factor.matrix.astype(object))
    return found


def costs_of_units(blocks, rows, supports=()):
    """Yield what all units of so many rows cost: with all cells, and values at their bounds.

    But in cells where rows add nothing to a measure, values of it are 0.
    """
    keys = list(CELLS)
    values = [
        dict(zip(MEASURES, signs, strict=True)) for signs in itertools.product((-1, 1), repeat=2)
    ]
    each = [
        (dict(zip(keys, cell, strict=True)), signs)
        for cell in itertools.product(*map(range, CELLS.values()))
        for signs in values
    ]
    matrices = [written(block) for block in blocks]

    def change(block, row):
        cell, signs = row
        names = [name for name in block.spaces[0] if name in CELLS]
        at = np.ravel_multi_index([cell[n] for n in names], [CELLS[n] for n in names])
        measure = block.spaces[0][-1]
        if any(s.measure == measure and not s.cells[cell[s.attribute]] for s in supports):
            return int(at), 0
        return int(at), (signs[measure] * MEASURES[measure] if measure in MEASURES else 1)

    for unit in itertools.combinations_with_replacement(each, rows):
        total = Fraction(0)
        for block, matrix in zip(blocks, matrices, strict=True):
            moved = sum(matrix[:, at] * v for at, v in (change(block, row) for row in unit))
            pure = isinstance(block.law, Laplace)
            size = sum(abs(int(x)) if pure else int(x) ** 2 for x in moved)
            total += Fraction(size, block.law.width)
        yield total


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(200))
def test_what_is_charged_is_what_the_worst_unit_costs(seed):
    """Of counts and two measures by the same keys, a unit has k rows with any cells and values."""
    blocks = some_blocks(seed)
    pure = isinstance(blocks[0].law, Laplace)
    for rows in (1, 2):
        costs = spent(tuple(blocks), rows)
        assert max(costs_of_units(blocks, rows)) == costs
        assert costs == spent(tuple(blocks)) * (rows if pure else rows**2)
        assert costs <= sum(spent((block,), rows) for block in blocks)


def some_supports(seed):
    """Return the cells of up to three pairs of a measure and an attribute in which rows add."""
    rng = np.random.default_rng(seed)
    for _ in range(int(rng.integers(1, 4))):
        attribute = str(rng.choice([*CELLS]))
        cells = [bool(cell) for cell in rng.random(CELLS[attribute]) < 0.6]
        cells[int(rng.integers(len(cells)))] = True
        yield Support(str(rng.choice([*MEASURES])), attribute, tuple(cells))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(200))
def test_rows_outside_of_the_support_of_a_measure_pay_nothing_for_its_sums(seed):
    blocks, supports = some_blocks(seed), tuple(some_supports(seed))
    for rows in (1, 2):
        costs = spent(tuple(blocks), rows, supports=supports)
        assert max(costs_of_units(blocks, rows, supports)) == costs
        assert costs <= spent(tuple(blocks), rows)
        for left_out in range(len(supports)):
            fewer = supports[:left_out] + supports[left_out + 1 :]
            assert costs <= spent(tuple(blocks), rows, supports=fewer)


def valued(cells=(True, False)):
    """Plan counts of rows with a value and of those without, and sums of the former."""
    blocks = (
        BlockStrategy((("k",),), (IdentityFactor((0,), (2,), 1),), Gaussian(10**6)),
        BlockStrategy((("v",),), (MeasureFactor((0,), 3),), Gaussian(10**6)),
        BlockStrategy((("k", "l"),), (dense([[0, 2]]), dense([[1]], (1,))), Gaussian(10**6)),
    )
    supports = (Support("v", "k", cells),)
    return CertifiedPlan(blocks, Budget(rho=1), supports=supports)


def test_a_support_is_part_of_what_a_plan_costs_and_of_its_digest():
    assert valued().privacy_cost == Fraction(1 + 9, 10**6)
    assert valued((False, True)).privacy_cost == Fraction(1 + 9 + 4, 10**6)
    plain = CertifiedPlan(valued().blocks, Budget(rho=1))
    assert plain.privacy_cost == Fraction(1 + 9 + 4, 10**6)
    digests = {
        plan.digest for plan in (valued(), valued((False, True)), valued((True, True)), plain)
    }
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        ([], True),
        ([Support("v", "k", (True, False))], False),
        ([Support("w", "k", (True, False)), Support("v", "k", (True, False))], False),
        ([Support("v", "k", (True, True))], True),
        ([Support("v", "k", (False, True))], True),
        ([Support("v", "k", (True, False, False))], True),
        ([Support("v", "l", (True, False))], True),
        ([Support("w", "k", (True, False))], True),
    ],
)
def test_sums_to_which_rows_may_add_where_that_is_not_paid_for_are_refused(known, refused):
    """Those who count say in which cells rows add something, whatever was planned."""
    charged = pay(SimpleNamespace(certified=valued(), budget=Budget(rho=1)))
    shapes = {("k",): (2,), ("v",): (1,), ("k", "l"): (2, 1)}
    counts = {names: np.ones(shape, dtype=np.int64) for names, shape in shapes.items()}
    counted = Counted(counts, 1, {"v": 3}, supports=known)
    if refused:
        with pytest.raises(InternalError, match="cell in which that isn't paid for"):
            measure(charged, counted, _bits=SeededBits(1))
        return
    assert measure(charged, counted, _bits=SeededBits(1)).values


def exclusive(count, bound=1):
    """Return sums of different measures, each by a condition that excludes all others."""
    found = []
    for i in range(count):
        row = np.zeros((1, count), dtype=np.int64)
        row[0, i] = 1
        factors = DenseFactor((0,), (count,), row), MeasureFactor((1,), bound)
        found.append(BlockStrategy((("g", f"v{i}"),), factors, Gaussian(1000 + i)))
    return found


def test_a_thousand_sums_under_conditions_that_exclude_each_other_cost_as_much_as_one():
    assert spent(tuple(exclusive(1000, 9))) == Fraction(81, 1000)


def test_conditions_that_are_always_and_never_true():
    always = BlockStrategy((("g", "v"),), (dense([[1] * 4]), MeasureFactor((1,), 2)), Gaussian(10))
    never = BlockStrategy((("g", "w"),), (dense([[0] * 4]), MeasureFactor((1,), 5)), Gaussian(10))
    assert spent((always, never)) == Fraction(4, 10)
    assert spent((never,)) == 0
    assert spent((always, *exclusive(4))) == Fraction(4, 10) + Fraction(1, 1000)


def dense(rows, axes=(0,)):
    matrix = np.array(rows, dtype=np.int64)
    return DenseFactor(axes, (matrix.shape[1],), matrix)


def test_sets_without_a_common_attribute_and_weights_far_apart():
    one = BlockStrategy((("a",),), (dense([[1, 0]]),), Gaussian(1))
    two = BlockStrategy((("b",),), (dense([[0, 1 << 30, 0]]),), Gaussian(1))
    assert spent((one, two)) == 1 + (1 << 60)
    three = BlockStrategy((("a", "c"),), (dense([[0, 1]]), dense([[1 << 15]], (1,))), Gaussian(1))
    assert spent((one, three)) == 1 << 30
    assert spent((one, two, three)) == (1 << 60) + (1 << 30)


def test_units_and_rows_of_several_tables_are_charged_by_themselves():
    """A unit that is one record has several rows in several cells: no cell is the worst of all."""
    apart = [
        BlockStrategy((("t.g", "t"),), (dense([row]), MeasureFactor((1,), 1, rows)), Gaussian(10))
        for row, rows in (([1, 0], 1), ([0, 1], 1))
    ]
    assert spent((apart[0],)) + spent((apart[1],)) == Fraction(2, 10)
    of_three = BlockStrategy(
        (("t.g", "t.x"),), (dense([[0, 1]]), MeasureFactor((1,), 1, 3)), Gaussian(10)
    )
    assert spent((apart[0], of_three)) == Fraction(1 + 9, 10)
    units = BlockStrategy(
        (("g", "u"),),
        (UnitFactor((0,), (2,), 1, 0, 1), IdentityFactor((1,), (1,), 1)),
        Gaussian(10),
    )
    rows = [BlockStrategy((("g",),), (dense([[1, 0]]),), Gaussian(10))]
    assert spent((units, *rows), 3) == Fraction(1 + 9, 10)


def test_limits_on_rows_that_agree_are_used_where_they_say_less():
    limit = SpreadRows(frozenset("m"), Fraction(1, 4))
    by_month = BlockStrategy((("m",),), (IdentityFactor((0,), (12,), 1),), Gaussian(10))
    inside = BlockStrategy((("f",),), (dense([[1, 0]]),), Gaussian(10))
    outside = BlockStrategy((("f", "v"),), (dense([[0, 1]]), MeasureFactor((1,), 1)), Gaussian(10))
    alone = spent((by_month,), 4, (limit,))
    assert alone == Fraction(4, 10)  # four rows, of which one is in each cell
    assert spent((by_month, inside, outside), 4, (limit,)) == alone + Fraction(16, 10)


def test_norms_of_all_columns_are_exact():
    rng = np.random.default_rng(1)
    for bits in (3, 20, 31, 61):
        matrix = rng.integers(-(1 << bits), 1 << bits, (5, 6))
        factor = DenseFactor((0, 1), (2, 3), matrix)
        entries = matrix.astype(object)
        squares = (entries**2).sum(axis=0).reshape(2, 3)
        sums = np.abs(entries).sum(axis=0).reshape(2, 3)
        assert (factor.column_squares((0, 1)) == squares).all()
        assert (factor.column_sums((0, 1)) == sums).all()
        assert (factor.column_squares((1,)) == squares.max(axis=0)).all()
        assert factor.largest_column_norm_squared == squares.max()
        assert factor.largest_column_sum == sums.max()


@pytest.mark.parametrize("seed", range(40))
def test_costs_of_more_than_64_bits_are_exact(seed):
    """Also of factors without axes, as of a total: NumPy's products of bare numbers wrap around."""
    rng = np.random.default_rng(seed)
    entries, bound = rng.integers(1, 4, 3).tolist(), int(rng.integers(1 << 20, 1 << 25))
    factors = [
        DenseFactor((), (), np.array([[entries[0]]])),
        DenseFactor((0,), (2,), np.array([[entries[1], 0]])),
        DenseFactor((1,), (1,), np.array([[entries[2]]])),
        MeasureFactor((2,), bound),
    ]
    largest, width = math.prod(entries) * bound, int(rng.integers(1 << 40, 1 << 50))
    for law, cost in ((Laplace(width), largest), (Gaussian(width), largest**2)):
        block = BlockStrategy((("k", "l", "m"),), tuple(factors), law)
        exact = Fraction(cost, width)
        assert cost * width >= 1 << 62
        assert spent((block,)) == exact
        assert worst_row([row_cost(block).named(("k", "l", "m"))]) == exact
        for support in (("k", (True, False)), ("k", (True, True)), ("other", (True, False))):
            assert spent((block,), supports=(Support("m", *support),)) == exact
        assert spent((block,), supports=(Support("m", "k", (False, True)),)) == 0


def test_costs_are_of_integers_of_any_size():
    with pytest.raises(InternalError, match="Python's integers"):
        CostTable((("a", 2),), np.array([1, 2]))


def test_columns_of_very_many_cells_count_by_the_longest(monkeypatch):
    from dpsql.measurement import factors

    monkeypatch.setattr(factors, "MOST_STRETCHED", 1)
    block = exclusive(3, 2)[0]
    assert not row_cost(block).varies
    assert spent(tuple(exclusive(3, 2))) == sum(spent((b,)) for b in exclusive(3, 2))


@pytest.mark.parametrize(
    ("rows", "refused"), [({"t": 1, "t.x": 1}, False), ({"t": 1, "t.x": 3}, True), ({"t": 1}, True)]
)
def test_sums_of_several_rows_of_a_unit_are_not_paid_for_as_one_row(rows, refused):
    """Of several tables a unit is one record: who counts must say that it has one row."""
    block = BlockStrategy(
        (("t.g", "t.x"),), (dense([[1, 0]]), MeasureFactor((1,), 6)), Gaussian(10**6)
    )
    plan = CertifiedPlan((block,), Budget(rho=1))
    charged = pay(SimpleNamespace(certified=plan, budget=Budget(rho=1)))
    own = {name: n for name, n in rows.items() if name != "t"}
    counts = {("t.g", "t.x"): np.ones((2, 1), dtype=np.int64)}
    counted = Counted(counts, 1, {"t": 1, "t.x": 6}, totals={"t": 1}, rows=own)
    if refused:
        with pytest.raises(InternalError, match="more rows in a sum than is paid for"):
            measure(charged, counted, _bits=SeededBits(1))
        return
    assert measure(charged, counted, _bits=SeededBits(1)).values
