"""Blocks: which of them are counted, by what they cost, and what their rows are grouped by.

A wanted marginal is summed from any block that has its attributes, and its measure. To have a key
computed twice costs as much as a block, and to add up in many groups more than in few. So each
marginal goes where it adds the least to what DuckDB takes for a row. What is chosen follows from
what is public: types, sizes, conditions of keys, and what is asked for.

DuckDB counts in a plain array, which has a place for each combination of what is grouped by, if it
knows the ends of that. For each column it takes a power of two, one value more than there are:
seven columns of 34,560 cells together are 2^21 places, of which most are empty and none is near
another. So where these are many, what is known to be small numbers is one number of mixed radix,
and is grouped by that: 34,560 cells are 2^16 places.

Guarantees:
    1. Packing never fails, whatever a row holds. *Proof.* What is packed are columns of types that
       have no sign and no more than 16 bits, and classes of cells, which are among constants that
       are written here, of such types. `Packing.of` takes a column only while the number that is
       made of the largest of these types' (of constants: of the largest of them) fits in 16 bits,
       and in 8 bits where it is computed in these. Each step is p·s + d of natural numbers, and at
       most what it is of the largest ones; no cast makes a type smaller. So nothing overflows, even
       of rows that a condition takes away, whenever DuckDB evaluates that. ∎
    2. Of rows that have a cell, groups are the same. *Proof.* Each of what is packed is from 0 to
       s - 1 then: a class is one of s constants, and of what is stored s is one more than the
       largest value. So (p // what follows) % s is it, and the groups of p are those of all that
       is packed together. Where one of them is NULL, p is NULL, and none of them is read: such a
       row has no key, and is in no cell, as without packing. ∎
    3. What is packed follows from what is public: types, domains, and classes of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dpsql.engines.base import Marginal
from dpsql.engines.duckdb.coding import Coding, Grouping
from dpsql.engines.duckdb.columns import CodedColumn, Parameters, whole
from dpsql.engines.duckdb.one_pass import reading_cost
from dpsql.engines.duckdb.settings import PERFECT_HASH_BITS
from dpsql.engines.duckdb.sums import RowSum
from dpsql.rows.typed import call

MOST_PLACES = 2**18
"""Places of a plain array up to which nothing is packed: they are as fast as they are."""
_TYPES = (("UTINYINT", 2**8), ("USMALLINT", 2**16))


@dataclass(frozen=True, slots=True)
class Packed:
    """A column of small numbers.

    Args:
        column: its name.
        size: how many numbers there are of rows that have a cell, from 0.
        most: the largest of any row.
    """

    column: str
    size: int
    most: int


@dataclass(frozen=True, slots=True)
class Packing:
    """Small numbers in one, of mixed radix, under a name."""

    name: str
    parts: tuple[Packed, ...]

    @classmethod
    def of(cls, name: str, given: Iterable[Packed]) -> Packing:
        """Pack as many as fit, in turn."""
        parts, most = list[Packed](), 0
        for part in given:
            larger = most * part.size + part.most
            if larger < _TYPES[-1][1]:
                parts.append(part)
                most = larger
        return cls(name, tuple(parts) if len(parts) > 1 else ())

    @property
    def sql(self) -> str:
        """Write the number of a row."""
        number, most = "", 0
        for part in self.parts:
            most = most * part.size + part.most
            type_ = next(sql for sql, end in _TYPES if most < end)
            digit = f"{part.column}::{type_}"
            number = (
                call("+", call("*", f"{number}::{type_}", whole(part.size, type_)), digit)
                if number
                else digit
            )
        return f"{number} AS {self.name}"

    @property
    def unpacked(self) -> list[str]:
        """Write the numbers that it was made of, under their names."""
        numbers, after = list[str](), 1
        for part in reversed(self.parts):
            first = call("//", f"{self.name}::BIGINT", whole(after, "BIGINT"))
            numbers.append(f"{call('%', first, whole(part.size, 'BIGINT'))} AS {part.column}")
            after *= part.size
        return numbers


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The SQL of the rows that are grouped for a block.

    Args:
        coding: how they get their cells.
        grouping: what they are grouped by.
        columns: attribute → what is stored of it, and its code; of those that aren't led to.
        groups: attribute → the column that tells its groups.
        packing: those of these columns that are grouped by together.
        places: of a plain array for what is grouped by.
    """

    coding: Coding
    grouping: Grouping
    columns: Mapping[str, CodedColumn]
    groups: Mapping[str, str]
    packing: Packing
    places: int

    @classmethod
    def of(cls, coding: Coding, keys: Marginal, prefix: str) -> GroupedRows:
        """Name the columns of some attributes, each beginning so."""
        grouping, places = coding.grouping(keys), {a: i for i, a in enumerate(keys)}
        columns = {
            a: coding.column(a, f"{prefix}k{i}") for a, i in places.items() if a not in grouping.led
        }
        stored = columns.keys() - grouping.classed
        groups = {a: f"{prefix}{'k' if a in stored else 'g'}{i}" for a, i in places.items()}
        values = [columns[a].values if a in stored else coding.size(a) for a in keys]
        small = list[Packed]()
        if _array(values) > MOST_PLACES:
            for a in keys:
                size, most = _numbers(coding, a, columns.get(a), classed=a not in stored)
                small += [Packed(groups[a], size, most)] if size else []
        # Constants first: they leave more room.
        packing = Packing.of(f"{prefix}p", sorted(small, key=lambda part: part.most - part.size))
        packed = {part.column for part in packing.parts}
        values = [n for a, n in zip(keys, values, strict=True) if groups[a] not in packed]
        values += [math.prod(part.size for part in packing.parts)] if packed else []
        return cls(coding, grouping, columns, groups, packing, _array(values))

    @property
    def by(self) -> list[str]:
        """The columns that are grouped by."""
        packed = {part.column for part in self.packing.parts}
        names = [name for name in self.groups.values() if name not in packed]
        return [*names, self.packing.name] if packed else names

    @property
    def selected(self) -> list[str]:
        """The columns of groups."""
        return [name for name in self.by if name != self.packing.name] + self.packing.unpacked

    def key(self, parameters: Parameters) -> str:
        """Write the number of a group's cell."""
        key = whole(0, "BIGINT")
        for attribute in self.groups:
            size = whole(self.coding.size(attribute), "BIGINT")
            key = call("+", call("*", key, size), self._code(attribute, parameters))
        return key

    def _code(self, attribute: str, parameters: Parameters) -> str:
        """Write the code of an attribute's cell, or of its class of cells."""
        if attribute not in self.columns or attribute in self.grouping.classed:
            return f"{self.groups[attribute]}::BIGINT"
        code = self.columns[attribute].code
        if attribute in self.coding.merged:
            return self.coding.class_of(code, attribute, parameters)
        return code

    def rows(self, source: str, computed: Sequence[str], parameters: Parameters) -> str:
        """Write the rows that have a cell, with what is grouped by and what is computed besides."""
        columns = self.columns.values()
        inside = " AND ".join(column.inside(parameters) for column in columns) or "true"
        stored = [f"{column.stored(parameters)} AS {column.alias}" for column in columns]
        stored += [f"{sql} AS {self.groups[a]}" for a, sql in self.grouping.led.items()]
        rows = f"SELECT {', '.join([*stored, *computed]) or '0'} FROM {source} WHERE {inside}"
        classes = [  # of what is stored, so that it isn't computed for each condition
            f"{self.coding.class_of_row(column, a, parameters)} AS {self.groups[a]}"
            for a, column in self.columns.items()
            if a in self.grouping.classed
        ]
        for made in (classes, [self.packing.sql] if self.packing.parts else []):
            if made:
                rows = f"SELECT *, {', '.join(made)} FROM ({rows})"
        return rows


def _array(values: Iterable[int]) -> int:
    """Return the places of a plain array for columns of so many values."""
    return math.prod(2 ** (n + 1).bit_length() for n in values)


def _numbers(
    coding: Coding, attribute: str, column: CodedColumn | None, *, classed: bool
) -> tuple[int, int]:
    """Say of what an attribute is grouped by whether it is small numbers.

    Returns:
        How many there are of rows that have a cell, and the largest of any row; 0, 0 if it isn't.
    """
    if not classed and column is not None:
        return column.numbers
    if column is not None and column.class_is_code(coding.classes(attribute)):
        return 0, 0
    return coding.size(attribute), coding.size(attribute) - 1


# ── The choice of blocks, by what they cost ──


Sums = Mapping[str, RowSum]
"""Measure → what is added up of each row."""

MOST_CELLS, MOST_SPREAD = 2**16, 20_000
"""Blocks are merged up to this many cells; up to so many where these are spread over more places of
a plain array than `grouped.MOST_PLACES`. A wanted marginal may be larger on its own."""
_BLOCK, _KEY, _CLASS = 8.0, 1.5, 5.0
"""Nanoseconds of a processor for a row, of a statement; of each of its keys; where what is stored
is of more values than cells, to find which of these it is in."""
_COUNT, _SUM = 0.5, 1.5
_NEAR = 256
"""To find a group, and one more for each sum, each time that there are twice as many as `_NEAR`:
these are no longer at hand."""
_ADDED = 7.0
"""To add up a sum."""
_HASHED, _PLACES = 20.0, 10.0
"""To look for a group that has no place in a plain array; for all places of the largest of these,
which are looked through by themselves."""


@dataclass(slots=True)
class _Block:
    """A block: its keys, and the sums of each of its groups."""

    keys: frozenset[str]
    added: dict[str, RowSum] = field(default_factory=dict)


def blocks_for(
    coding: Coding, places: Sequence[tuple[Marginal, Sums]], *, total: bool
) -> dict[Marginal, Sums]:
    """Choose blocks that contain every place, with what is added up there.

    Greedy: from the places of the most cells down, each goes where that adds the least cost, if the
    block stays within `MOST_CELLS`; or into a block of its own.

    Args:
        coding: how rows get their cells.
        places: what is grouped by for each wanted marginal, and what is added up.
        total: whether all rows are counted by themselves: one that has no cell of a key is in no
            block of that key.
    """
    costs, blocks = _Costs(coding), list[_Block]()
    all_rows = _Block(frozenset())
    for marginal, added in sorted(places, key=lambda place: (-costs.cells(place[0]), place[0])):
        if total and not marginal:
            all_rows.added |= added
            continue
        keys = frozenset(marginal)
        # What is added up for groups, or grouped by itself, gives what they are together.
        if any(keys <= b.keys and added.keys() <= b.added.keys() | b.keys for b in blocks):
            continue
        best, least = None, costs.of(keys, len(added))
        for block in blocks:
            joint, more = block.keys | keys, {**block.added, **added}
            if joint == block.keys or costs.is_small(joint):
                dearer = costs.of(joint, len(more)) - costs.of(block.keys, len(block.added))
                if dearer < least:
                    best, least = block, dearer
        if best is None:
            blocks.append(best := _Block(keys))
        best.keys |= keys
        best.added |= added
    sums: dict[Marginal, dict[str, RowSum]] = {}
    for block in [*blocks, all_rows] if total else blocks:
        within = any(block.keys < other.keys for other in blocks)
        if block.added or not within or block is all_rows:
            names = tuple(a for a in coding.table.columns if a in block.keys)
            sums[names] = sums.get(names, {}) | block.added
    return dict(sums)


class _Costs:
    """Costs of blocks, in nanoseconds of a processor for a row."""

    def __init__(self, coding: Coding) -> None:
        self._coding = coding
        self._sizes: dict[str, int] = {}
        self._made: dict[frozenset[str], GroupedRows] = {}
        self._known: dict[frozenset[str], tuple[float, float]] = {}

    def cells(self, keys: Marginal | frozenset[str]) -> int:
        """Return the number of cells of a block."""
        for name in keys:
            if name not in self._sizes:
                self._sizes[name] = self._coding.size(name)
        return math.prod(self._sizes[name] for name in keys)

    def is_small(self, keys: frozenset[str]) -> bool:
        """Whether marginals may be put together in a block."""
        cells = self.cells(keys)
        if cells <= min(MOST_CELLS, MOST_SPREAD):
            return True
        return cells <= MOST_CELLS and self._rows(keys).places <= MOST_PLACES

    def of(self, keys: frozenset[str], sums: int) -> float:
        """Return what it costs to group a row, and to add up so many sums."""
        if keys not in self._known:
            self._known[keys] = self._grouped(keys)
        grouped, doublings = self._known[keys]
        return grouped + _COUNT * doublings + sums * (_ADDED + _SUM * doublings)

    def _grouped(self, keys: frozenset[str]) -> tuple[float, float]:
        rows = self._rows(keys)
        cost = _BLOCK + _CLASS * len(rows.grouping.classed)
        for name in keys:
            cost += _KEY + (
                _CLASS if name in rows.grouping.led else reading_cost(self._coding, name)
            )
        full = rows.places / 2**PERFECT_HASH_BITS
        cost += _HASHED if full > 1 else _PLACES * full
        return cost, max(0.0, math.log2(max(self.cells(keys), 1) / _NEAR))

    def _rows(self, keys: frozenset[str]) -> GroupedRows:
        if keys not in self._made:
            self._made[keys] = GroupedRows.of(self._coding, tuple(sorted(keys)), "")
        return self._made[keys]
