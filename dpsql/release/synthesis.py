"""Rows that are made up, so that they are like those of a table as far as a release says.

Whatever is made of noisy answers costs nothing. What was not measured is not in these rows: columns
that no measurement connects are independent, given what connects them.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dpsql.errors import ArgumentError, ResourceLimitError, SchemaError, printable, shown
from dpsql.hints import option
from dpsql.linalg.arrays import Array, Ints
from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction.cellwise import Attributes, EntropyTables
from dpsql.planner.reconstruction.cellwise import Table as Joint
from dpsql.release.relations import ReleasedRelation, ReleasedTables
from dpsql.schema import Domain
from dpsql.schema.domain import INTEGER_TYPES, TIMES, ZONED
from dpsql.schema.names import closest
from dpsql.schema.sequences import DecimalRange, type_range
from dpsql.schema.table import Table

MAX_VALUES = 1 << 28
"""Rows times columns: 2 GiB."""
MAX_UPDATES = 1_000


def table_named(tables: Sequence[Table], name: str | None) -> Table:
    """Return the table of a release that is meant; the only one, if none is named.

    Raises:
        ArgumentError, SchemaError: there are several, or none of that name.
    """
    listed = [table.name for table in tables]
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None:
        raise ArgumentError(
            f"This release is of several tables: {printable(', '.join(listed))}.",
            hint="name the one whose rows are meant: " + option("table", listed[0]) + ".",
        )
    if not isinstance(name, str):
        raise ArgumentError(
            f"table is the name of a table, not {shown(name)}.",
            hint="for example " + option("table", listed[0]) + ".",
        )
    matching = [table for table in tables if table.name == name]
    matching = matching or [table for table in tables if table.is_called(tuple(name.split(".")))]
    if len(matching) != 1:
        what = "no table" if not matching else "several tables"
        raise SchemaError(f"This release has {what} {printable(name)}.", hint=closest(name, listed))
    return matching[0]


@one_thread
def synthetic(
    relation: ReleasedRelation, rows: int | None, updates: int, seed: int | None
) -> pl.DataFrame:
    """Make rows up; see `Release.synthetic`."""
    _check_number("updates", updates, MAX_UPDATES)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ArgumentError(
            f"seed is a whole number, not {shown(seed)}.", hint="for example " + option("seed", 1)
        )
    columns = len(relation.columns)
    if rows is not None:
        _check_number("rows", rows, MAX_VALUES // max(columns, 1))
    if not columns:
        raise SchemaError(
            f"This release says nothing about the columns of {printable(relation.table.name)}.",
            hint="release counts by the columns that are wanted: GROUP BY.",
        )
    tables = relation.tables
    if rows is None:
        rows = round(float(tables.table(())))
        _check_size(rows, columns)
    draws = Draws(seed)
    codes = drawn(tables, rows, draws)
    if updates:
        codes = updated(codes, tables, updates, draws)
    frames = []
    for name in relation.columns:
        cells = Cells(name, relation.table.columns[name])
        among = codes.get(name, np.zeros(rows, dtype=np.int64))
        frames.append(cells.values(_within(among, relation.classes[name], draws), draws))
    return pl.DataFrame(frames)


def _within(codes: Ints, classes: Ints, draws: Draws) -> Ints:
    """Choose one of the cells of the domain that measurements don't tell apart, evenly."""
    count = int(classes.max()) + 1
    if count == len(classes):
        return codes
    members = np.argsort(classes, kind="stable")
    sizes = np.bincount(classes, minlength=count)
    begins = np.cumsum(sizes) - sizes
    at = draws.stratified(codes, count) * sizes[codes]
    return np.asarray(members[begins[codes] + at.astype(np.int64)])


def _check_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ArgumentError(
            f"{name} is a whole number from 0, not {shown(value)}.",
            hint="for example " + option(name, 10) + ".",
        )
    if value > most:
        raise ResourceLimitError(
            f"{name} is {value:,}, more than {most:,}.",
            hint="for example " + option(name, most) + ".",
        )


def _check_size(rows: int, columns: int) -> None:
    most = MAX_VALUES // columns
    if rows > most:
        raise ResourceLimitError(
            f"The release says that there are {rows:,} rows, more than the {most:,} that are made "
            "up at once.",
            hint="ask for fewer: " + option("rows", most) + ".",
        )


# ── Rows by a junction tree of width two: each column is drawn given two others, or one ──────────
#
# *The tree* (a two-tree). It starts with the pair of columns that tell most of each other, by the
# mutual information I of their table. Each further column c is attached to an edge (a, b) of the
# tree, the one with the largest I(a; c) + I(b; c), and makes two new edges. So 2d − 3 pairs of d
# columns are those of the tables, and of others what follows from them. Where the joint cells are
# too many, or the second column tells nothing, c is attached to one column; where none tells
# anything, to none.
#
# *The rows*. P(c | a, b) is read off the table of the three columns, of largest entropy given their
# pairs. Rows that are in one cell of (a, b) are spread over the cells of c evenly (systematic
# sampling): of m rows, m·P have a value, but for less than one. That has less variance than drawing
# each on its own.
#
# No cells but those of three columns are ever looked at, so it doesn't matter how many there are of
# all together.


MAX_PAIR = 1 << 20
"""Joint cells of a pair of columns that is looked at."""
MAX_TRIPLE = 1 << 23
"""Joint cells of the table by which a column is drawn: 64 MiB, and a few of its size beside it."""

Codes = dict[str, Ints]
"""Column → the cell of each row."""


@dataclass(frozen=True, slots=True)
class DrawnColumn:
    """A column that is drawn, and the columns on which its distribution depends."""

    column: str
    given: Attributes
    """Drawn before: none, one or two."""


class TwoTree:
    """In which order columns are drawn, and given which others.

    Args:
        tables: of the columns, in domain order.
    """

    def __init__(self, tables: EntropyTables) -> None:
        self._names = tuple(tables.sizes)
        self._sizes = np.array([tables.sizes[name] for name in self._names], dtype=np.float64)
        self._tells = told(tables)

    @property
    def steps(self) -> tuple[DrawnColumn, ...]:
        """The columns in the order in which they are drawn, each after the ones it depends on."""
        count = len(self._names)
        if not count:
            return ()
        at = int(np.argmax(self._tells)) if count > 1 else 0
        first, second = divmod(at, count)
        drawn_columns = [DrawnColumn(self._names[first], ())]
        inside, edges = [first], list[tuple[int, int]]()
        left = [i for i in range(count) if i != first]
        while left:
            given, column = (
                ((first,), second)
                if len(inside) == 1 and self._tells[first, second] > 0
                else self._next(inside, edges, left)
            )
            drawn_columns.append(
                DrawnColumn(self._names[column], tuple(self._names[i] for i in given))
            )
            edges += [(i, column) for i in given]
            inside.append(column)
            left.remove(column)
        return tuple(drawn_columns)

    def _next(
        self, inside: Sequence[int], edges: Sequence[tuple[int, int]], left: Sequence[int]
    ) -> tuple[tuple[int, ...], int]:
        """Return the next column, and what it is given."""
        alone = self._tells[np.ix_(inside, left)]
        best = int(np.argmax(alone))
        worth, (row, column) = float(alone.flat[best]), divmod(best, len(left))
        given: tuple[int, ...] = (inside[row],) if worth > 0 else ()
        if edges:
            ends = np.array(edges)
            both = self._tells[ends[:, 0]][:, left] + self._tells[ends[:, 1]][:, left]
            cells = np.prod(self._sizes[ends], axis=1)[:, None] * self._sizes[left]
            both[cells > MAX_TRIPLE] = 0.0
            at = int(np.argmax(both))
            if both.flat[at] > worth:
                edge, column = divmod(at, len(left))
                given = edges[edge]
        return given, left[column]


def told(tables: EntropyTables) -> Array:
    """Return what each column tells of each other one, in nats; 0 of what isn't known."""
    names = list(tables.sizes)
    told_of_pairs = np.zeros((len(names), len(names)))
    for pair in pairs(tables):
        i, j = map(names.index, pair)
        told_of_pairs[i, j] = told_of_pairs[j, i] = information(tables.table(pair))
    return told_of_pairs


def pairs(tables: EntropyTables) -> list[Attributes]:
    """Return the pairs of columns that were measured, and aren't too large."""
    return [
        pair
        for pair in combinations(tables.sizes, 2)
        if not too_large(tables.sizes, pair) and tables.known(pair)
    ]


def too_large(sizes: Mapping[str, int], pair: Attributes) -> bool:
    """Whether a pair has too many joint cells to be looked at."""
    return math.prod(sizes[name] for name in pair) > MAX_PAIR


def information(table: Joint) -> float:
    """Return the mutual information of a table's two axes."""
    total = float(table.sum(dtype=np.float64))
    if total <= 0:
        return 0.0
    joint = table.astype(np.float64) / total
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    there = (joint > 0) & (apart > 0)
    return max(0.0, float((joint[there] * np.log(joint[there] / apart[there])).sum()))


def drawn(tables: EntropyTables, rows: int, draws: Draws) -> Codes:
    """Draw rows, column by column."""
    codes: Codes = {}
    for step in TwoTree(tables).steps:
        groups = np.zeros(rows, dtype=np.int64)
        for name in step.given:
            groups = groups * tables.sizes[name] + codes[name]
        codes[step.column] = _spread(_given(tables, step), groups, draws)
    return {name: codes[name] for name in tables.sizes}


def _given(tables: EntropyTables, step: DrawnColumn) -> Array:
    """Return the weights of a column's cells, for each joint cell of what it is given."""
    wanted = (*step.given, step.column)
    ordered = tuple(name for name in tables.sizes if name in wanted)
    table = tables.table(ordered).transpose([ordered.index(name) for name in wanted])
    weights = table.reshape(-1, tables.sizes[step.column]).astype(np.float64)
    empty = weights.sum(axis=1) <= 0
    if empty.any():
        weights[empty] = tables.table((step.column,))
    weights[weights.sum(axis=1) <= 0] = 1.0
    return weights


def _spread(weights: Array, groups: Ints, draws: Draws) -> Ints:
    """Give each row a cell, in proportion to the weights of its group.

    The running sums of all groups, each from its number to the next, ascend as one list.
    """
    count, cells = weights.shape
    running = np.cumsum(weights, axis=1)
    running /= running[:, -1:]
    running[:, -1] = 1.0
    running += np.arange(count)[:, None]
    key = groups + draws.stratified(groups, count)
    places = np.searchsorted(running.ravel(), key, side="right")
    return np.asarray(places - groups * cells)


# ── Gradual updates: rows are moved until pairs of columns are nearer to their tables ────────────
#
# In each round, for each pair in random order, some rows leave cells of which there are too many
# and go where there are too few: half of them become copies of rows that are there already, half of
# them get the two values and keep all others (Zhang, Wang, Li, Honorio, Backes, He, Chen and Zhang,
# "PrivSyn", USENIX Security 2021, gradual update). The first round moves all that is too much, and
# each further one a smaller part: 0.95 of that before.
#
# All pairs come nearer, also those that are not of the tree. What depends on three columns may get
# lost: a row that is changed in two columns keeps the third one.


DECAY = 0.95
"""The share of the round before that a round moves."""
COPIED = 0.5
"""The part of the rows that become copies."""


def updated(codes: Codes, tables: EntropyTables, rounds: int, draws: Draws) -> Codes:
    """Return rows whose pairs are nearer to their tables."""
    names, known = list(tables.sizes), pairs(tables)
    rows = np.stack([codes[name] for name in names]) if names else np.zeros((0, 0), dtype=np.int64)
    for number in range(rounds):
        for at in draws.order(len(known)):
            _move(rows, names, known[at], tables, DECAY**number, draws)
    return dict(zip(names, rows, strict=True))


def _move(
    rows: NDArray[np.int64],
    names: list[str],
    pair: Attributes,
    tables: EntropyTables,
    part: float,
    draws: Draws,
) -> None:
    """Move rows between the cells of a pair, in place."""
    (i, j), width = map(names.index, pair), tables.sizes[pair[1]]
    wanted = tables.table(pair).ravel().astype(np.float64)
    if not wanted.sum() > 0:
        return
    cells = rows[i] * width + rows[j]
    there = np.bincount(cells, minlength=len(wanted))
    lacking = wanted * (rows.shape[1] / wanted.sum()) - there
    missed = np.maximum(lacking, 0.0)
    if missed.sum() < 1:
        return
    leaving = np.floor(np.maximum(-lacking, 0.0) * part + draws.uniform(len(wanted)))
    by_cell = np.argsort(narrow(cells, len(wanted)), kind="stable")
    begins = np.cumsum(there) - there
    going = _some(by_cell, there, begins, leaving.astype(np.int64), draws)
    if not len(going):
        return
    going = going[draws.order(len(going))]
    goals = _goals(missed, len(going), draws)
    copies = (there[goals] > 0) & (draws.uniform(len(going)) < COPIED)
    changed, cell = going[~copies], goals[~copies]
    # What is copied is copied as it was, whatever else is moved.
    at = goals[copies]
    chosen = (draws.uniform(len(at)) * there[at]).astype(np.int64)
    copied = rows[:, by_cell[begins[at] + chosen]]
    rows[i, changed], rows[j, changed] = cell // width, cell % width
    rows[:, going[copies]] = copied


def _some(by_cell: Ints, there: Ints, begins: Ints, leaving: Ints, draws: Draws) -> Ints:
    """Return so many rows of each cell, which follow each other from a random one on.

    Args:
        by_cell: the rows, cell after cell.
        there: how many there are of each cell.
        begins: where each cell begins.
        leaving: how many are wanted of each cell.
        draws: for the first of each cell.
    """
    leaving = np.minimum(leaving, there)
    first = (draws.uniform(len(there)) * there).astype(np.int64)
    cell = np.repeat(np.arange(len(there)), leaving)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(leaving) - leaving, leaving)
    return np.asarray(by_cell[begins[cell] + (first[cell] + place) % there[cell]])


def _goals(lacking: Array, count: int, draws: Draws) -> Ints:
    """Return so many cells, in proportion to what they lack."""
    running = np.cumsum(lacking)
    places = (np.arange(count) + draws.uniform(1)) / count * running[-1]
    goals = np.searchsorted(running, places, side="right")
    return np.asarray(np.minimum(goals, np.flatnonzero(lacking)[-1]))


# ── Values within the cells of a column, and the cells of values ─────────────────────────────────
#
# A cell that stands for several values has them evenly, as nothing tells them apart: of cells that
# measurements don't tell apart each value of the domain; of bins all numbers between the edges that
# the column's type has; of weeks, months and so on each day, and of days and hours each
# microsecond. Rows that have no value of the domain have NULL. Types are those of the columns.


_INTEGERS = {
    "TINYINT": pl.Int8, "SMALLINT": pl.Int16, "INTEGER": pl.Int32, "BIGINT": pl.Int64,
    "UTINYINT": pl.UInt8, "USMALLINT": pl.UInt16, "UINTEGER": pl.UInt32, "UBIGINT": pl.UInt64,
}  # fmt: skip
_FLOATS = {"DOUBLE": pl.Float64, "FLOAT": pl.Float32}
_DAY = 86_400_000_000
"""Microseconds."""
_EPOCH = datetime(1970, 1, 1)
_OUTSIDE, _NULL = -1, -2


def dtype_of(domain: Domain) -> pl.DataType:
    """Return the type of a column."""
    type_ = domain.column_type or domain.type
    if type_ in _INTEGERS:
        return _INTEGERS[type_]()
    if type_ in _FLOATS:
        return _FLOATS[type_]()
    if type_.startswith("DECIMAL"):
        width, scale = type_.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return pl.Decimal(int(width), int(scale))
    if type_ == "ENUM":
        return pl.Enum([str(value) for value in domain.values])
    if type_ in TIMES:
        return pl.Datetime("us", domain.zone if type_ == ZONED else None)
    return {"BOOLEAN": pl.Boolean(), "DATE": pl.Date()}.get(type_, pl.String())


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column: those of its values, of NULL, and of what has neither."""

    name: str
    domain: Domain

    @cached_property
    def count(self) -> int:
        """The number of cells that hold values; further ones are NULL."""
        return self.domain.size - self.domain.nullable

    def values(self, codes: Ints, draws: Draws) -> pl.Series:
        """Return a value for the cell of each row."""
        dtype, filled = dtype_of(self.domain), codes < self.count
        at = np.minimum(codes, self.count - 1)
        if self._ends is not None:
            least, largest = (ends[at] for ends in self._ends)
            values_drawn = self._within(least, largest, draws.uniform(len(codes)), dtype)
        else:
            values_drawn = self._listed.gather(at).cast(dtype)
        both = pl.DataFrame({"value": values_drawn, "filled": filled})
        return both.select(pl.when("filled").then("value").alias(self.name)).to_series()

    def codes(self, column: pl.Series, *, leaves_out: bool) -> Ints:
        """Return the cell of each value.

        Args:
            column: values in the type of the column, or one that can be cast to it.
            leaves_out: whether there is a last cell for rows without a value of the domain.

        Raises:
            SchemaError: one has no cell.
        """
        try:
            given = column.cast(dtype_of(self.domain))
        except pl.exceptions.PolarsError:
            raise self._no_cells(f"is of the type {column.dtype}") from None
        places = np.where(given.is_null().to_numpy(), _NULL, self._found(given))
        rule = self.domain.outside
        if self.domain.other is not None:
            other = list(self.domain.values).index(self.domain.other)
            places = np.where(places == _OUTSIDE, other, places)
        elif rule == "null":
            places = np.where(places == _OUTSIDE, _NULL, places)
        last = self.domain.size if leaves_out else _OUTSIDE
        places = np.where(places == _NULL, self.count if self.domain.nullable else last, places)
        places = np.where(places == _OUTSIDE, last, places)
        if (places < 0).any():
            raise self._no_cells("has values that are not of its domain")
        return places.astype(np.int64)

    def _no_cells(self, why: str) -> SchemaError:
        return SchemaError(
            f"The column {printable(self.name)} {why}.",
            hint="pass rows as synthetic() returns them.",
        )

    @cached_property
    def _listed(self) -> pl.Series:
        """The value of each cell, where it has one."""
        values = self.domain.values
        if isinstance(values, range):
            return pl.Series(np.arange(values.start, values.stop))
        if isinstance(values, DecimalRange):
            type_ = pl.Decimal(38, values.scale)
            return pl.Series(list(values), dtype=type_)
        return pl.Series(list(values))

    @cached_property
    def _ends(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The least and the largest value of each cell, where it stands for several.

        Of days, in days; of times, in microseconds.
        """
        domain = self.domain
        values, uppers = domain.values, domain.values if domain.uppers is None else domain.uppers
        if domain.type == "DOUBLE":
            return np.array(values, dtype=np.float64), np.array(uppers, dtype=np.float64)
        if domain.type == "TIMESTAMP":
            return _instants(values), _instants(uppers)
        if domain.type != "DATE":
            return None
        least, largest = _days(values), _days(uppers)
        if domain.column_type in TIMES:
            return least * _DAY, largest * _DAY + (_DAY - 1)
        return least, largest

    def _within(
        self, least: NDArray[Any], largest: NDArray[Any], at: Array, dtype: pl.DataType
    ) -> pl.Series:
        """Return values between the ends of cells, by where they are between them."""
        if self.domain.type != "DOUBLE":
            numbers = pl.Series(least + (at * (largest - least + 1)).astype(np.int64))
            return numbers.cast(pl.Date) if dtype == pl.Date else self._times(numbers, dtype)
        scale = self._scale
        if scale is None:
            inside = np.clip(least * (1 - at) + largest * at, least, largest)
            return pl.Series(inside if dtype == pl.Float64 else _single(inside, largest))
        first, last = np.ceil(least * scale), np.floor(largest * scale)
        steps = np.clip(first + np.floor(at * (last - first + 1)), first, np.maximum(first, last))
        return pl.Series(self._possible(steps) / scale).cast(dtype)

    @cached_property
    def _scale(self) -> float | None:
        """The factor that makes numbers of the column whole; None if they needn't be whole."""
        type_ = self.domain.column_type or self.domain.type
        if type_ in _FLOATS:
            return None
        dtype = dtype_of(self.domain)
        return 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else 1.0

    def _possible(self, steps: Array) -> Array:
        """Keep whole numbers between those that a type has: edges may be beyond."""
        type_ = self.domain.column_type
        if type_ in INTEGER_TYPES:
            low, high = type_range(type_)
        else:
            dtype = dtype_of(self.domain)
            high = 10 ** (dtype.precision or 38) - 1 if isinstance(dtype, pl.Decimal) else 0
            low = -high
        least, most = float(low), float(high)
        most = most if int(most) <= high else math.nextafter(most, 0.0)
        return np.clip(steps, least, most)

    def _times(self, numbers: pl.Series, dtype: pl.DataType) -> pl.Series:
        """Return times that a clock showed, in the zone where it hangs."""
        shown = numbers.cast(pl.Datetime("us"))
        zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
        if zone is None:
            return shown
        kept = shown.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        later = shown.dt.offset_by("1h")  # where clocks are put forward, that hour is none
        moved = later.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        return kept.fill_null(moved)

    def _found(self, given: pl.Series) -> Ints:
        """Return the cell of each value, or that it is outside; of NULL, any."""
        values = self.domain.values
        if self._ends is not None:
            return self._between(self._numbers(given))
        if isinstance(values, range):
            numbers = given.fill_null(values.start).cast(pl.Int64).to_numpy()
            return self._clamped(numbers - values.start)
        if isinstance(values, DecimalRange):
            scaled = (
                given.cast(pl.Float64).fill_null(0).fill_nan(None).to_numpy() * 10.0**values.scale
            )
            steps = np.floor((scaled - values.low) / values.step + 0.5)
            inside = (scaled >= values.low) & (scaled <= values.high)
            low = np.where(scaled < values.low, -1, len(values))
            return self._clamped(np.where(inside, steps, low).astype(np.int64))
        listed = self._listed.cast(given.dtype)
        codes = given.replace_strict(
            listed, pl.Series(np.arange(len(listed))), default=_OUTSIDE, return_dtype=pl.Int64
        )
        return codes.fill_null(_OUTSIDE).to_numpy()

    def _numbers(self, given: pl.Series) -> NDArray[Any]:
        """Return values in the units of the ends; of NULL and NaN, the least."""
        if self.domain.type == "DOUBLE":
            return given.cast(pl.Float64).fill_nan(None).fill_null(-math.inf).to_numpy()
        if given.dtype == pl.Date:
            return given.cast(pl.Int64).fill_null(np.iinfo(np.int64).min).to_numpy()
        shown = given
        if isinstance(given.dtype, pl.Datetime) and given.dtype.time_zone is not None:
            shown = given.dt.replace_time_zone(None)
        return shown.cast(pl.Int64).fill_null(np.iinfo(np.int64).min).to_numpy()

    def _between(self, numbers: NDArray[Any]) -> Ints:
        ends = self._ends
        if ends is None:
            return np.full(len(numbers), _OUTSIDE)
        least, largest = ends
        order = np.argsort(least, kind="stable")
        place = np.searchsorted(least[order], numbers, side="right") - 1
        if self.domain.outside == "clamp":
            return order[np.clip(place, 0, len(order) - 1)]
        nearest = order[np.maximum(place, 0)]
        inside = (place >= 0) & (numbers <= largest[nearest])
        return np.where(inside, nearest, _OUTSIDE)

    def _clamped(self, codes: Ints) -> Ints:
        if self.domain.outside == "clamp":
            return np.clip(codes, 0, self.count - 1)
        return np.where((codes >= 0) & (codes < self.count), codes, _OUTSIDE)


def _days(values: Sequence[Any]) -> Ints:
    return np.array([(value - _EPOCH.date()).days for value in values], dtype=np.int64)


def _instants(values: Sequence[Any]) -> Ints:
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    first = values[0] if isinstance(values[0], datetime) else _midnight(values[0])
    step = (values[1] - values[0]) if len(values) > 1 else (first - first)
    begin = first - _EPOCH
    micro = (begin.days * 86_400 + begin.seconds) * 1_000_000 + begin.microseconds
    width = (step.days * 86_400 + step.seconds) * 1_000_000 + step.microseconds
    return micro + np.arange(len(values), dtype=np.int64) * width


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def _single(numbers: Array, largest: Array) -> NDArray[np.float32]:
    """Round to single precision, without leaving a cell upwards."""
    rounded = numbers.astype(np.float32)
    return np.where(rounded > largest, np.nextafter(rounded, np.float32(-np.inf)), rounded)


# ── Numbers that follow from a seed: for rows that are made up, never for noise ──────────────────
#
# They are read off SHAKE-256 of the seed, so that they are the same on each machine and with each
# version of NumPy. Without a seed the operating system gives one.


_BITS = 53
_FROM = b"dpsql synthetic rows"


class Draws:
    """Uniform numbers, one stream after the other."""

    def __init__(self, seed: int | None) -> None:
        self._key = secrets.token_bytes(32) if seed is None else str(seed).encode()
        self._calls = 0

    def uniform(self, count: int) -> Array:
        """Return numbers from 0 to below 1."""
        return (self._words(count) >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS

    def order(self, count: int) -> Ints:
        """Return the numbers below `count` in a random order."""
        return np.argsort(self._words(count), kind="stable")

    def stratified(self, groups: Ints, count: int) -> Array:
        """Return a number from 0 to below 1 for each row, evenly spread within each group.

        Of m rows of a group, each of the m intervals of equal length has one, all at the same
        distance from its end: so of any interval of length p, there are mp of them but for less
        than one.

        Args:
            groups: the group of each row, below `count`.
            count: how many groups there may be.
        """
        order = self.order(len(groups))
        order = order[np.argsort(narrow(groups, count)[order], kind="stable")]
        groups_in_order = groups[order]
        rows = np.bincount(groups, minlength=count)
        begins = np.cumsum(rows) - rows
        places = np.empty(len(groups))
        place = np.arange(len(groups)) - begins[groups_in_order]
        places[order] = (place + self.uniform(count)[groups_in_order]) / rows[groups_in_order]
        return np.minimum(places, 1 - 2.0**-30)  # so far from 1 that a group's number can be added

    def _words(self, count: int) -> NDArray[np.uint64]:
        self._calls += 1
        told = b"%b/%d/%b" % (_FROM, self._calls, self._key)
        return np.frombuffer(hashlib.shake_256(told).digest(8 * count), dtype="<u8")


def narrow(numbers: Ints, count: int) -> NDArray[np.integer]:
    """Return numbers below `count` in few bytes: what has two is sorted in linear time."""
    return numbers.astype(np.uint16) if count <= 1 << 16 else numbers


# ── The distance of rows from what a release says, and of that from the truth, as far as known ───


QUALITY = {
    "columns": pl.List(pl.String()),
    "cells": pl.Int64(),
    "tv_to_fitted": pl.Float64(),
    "tv_noise_expected": pl.Float64(),
    "tv_estimated": pl.Float64(),
    "note": pl.String(),
}
"""The columns of `Release.synthetic_quality`."""
ALONE = "independent of all other columns: no pair with it was measured"
TOO_LARGE = "too many joint cells: what this pair says was left aside"


@one_thread
def quality(relation: ReleasedRelation, frame: pl.DataFrame) -> pl.DataFrame:
    """Compare rows with what a release says; see `Release.synthetic_quality`."""
    codes = _codes(relation, frame)
    tables = relation.tables
    measured = pairs(tables)
    met = {name for pair in measured for name in pair}
    rows: list[tuple[object, ...]] = []
    for name in tables.sizes:
        note = None if name in met or len(relation.columns) == 1 else ALONE
        rows.append((*_compared(tables, (name,), codes), note))
    rows += [(*_compared(tables, pair, codes), None) for pair in measured]
    for pair in _left_aside(tables):
        rows.append((list(pair), math.prod(tables.sizes[a] for a in pair), *[None] * 3, TOO_LARGE))
    for name, why in relation.left_out.items():
        rows.append(([name], *[None] * 4, f"left out: {why}"))
    return pl.DataFrame(rows, schema=QUALITY, orient="row")


def _left_aside(tables: EntropyTables) -> list[Attributes]:
    names = list(tables.sizes)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return [pair for pair in pairs if too_large(tables.sizes, pair) and tables.known(pair)]


def _codes(relation: ReleasedRelation, frame: object) -> Mapping[str, Ints]:
    """Return the cell of each row, among those that measurements tell apart."""
    if not isinstance(frame, pl.DataFrame):
        raise ArgumentError(
            f"Rows are a Polars frame, not {shown(frame)}.",
            hint="pass what release.synthetic() returns.",
        )
    if not frame.height:
        raise ArgumentError("The frame has no rows.", hint="pass some.")
    codes = {}
    for name in relation.tables.sizes:
        if name not in frame.columns:
            raise SchemaError(
                f"The frame has no column {printable(name)}.",
                hint="pass rows as synthetic() returns them.",
            )
        cells = Cells(name, relation.table.columns[name])
        leaves_out = relation.table.leaves_out(name)
        codes[name] = relation.classes[name][cells.codes(frame[name], leaves_out=leaves_out)]
    return codes


def _compared(
    tables: EntropyTables, names: Attributes, codes: Mapping[str, Ints]
) -> tuple[object, ...]:
    shape = tuple(tables.sizes[name] for name in names)
    cells = math.prod(shape)
    at = np.ravel_multi_index([codes[name] for name in names], shape)
    rows = np.bincount(at, minlength=cells) / len(at)
    fitted = tables.table(names).ravel().astype(np.float64)
    total = fitted.sum()
    away = float(np.abs(rows - (fitted / total if total > 0 else 1 / cells)).sum()) / 2
    noise = tables.noise(names) if isinstance(tables, ReleasedTables) else None
    if noise is None or not total > 0:
        return list(names), cells, away, None, None
    expected = min(1.0, noise / total / 2)
    return list(names), cells, away, expected, min(1.0, math.hypot(away, expected))
