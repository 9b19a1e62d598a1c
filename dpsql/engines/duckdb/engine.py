"""Counts from DuckDB, by statements that the library builds from the schema alone.

The private connection never sees a text that an analyst wrote: identifiers come from the catalog
and are quoted, values of domains are bound parameters or constants that are written here, and what
is added up is SQL that `dpsql/rows/` made of a checked tree. Only counts and sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.engines.base import (
    Counted,
    Counting,
    Counts,
    Engine,
    Keys,
    Marginal,
    Measures,
    Merged,
    Step,
    Units,
    Words,
)
from dpsql.engines.cover import cover, low_word, roll_up, roll_up_sums, tally, tally_sums
from dpsql.engines.duckdb.bounded import KEPT, kept_rows
from dpsql.engines.duckdb.coding import Coding, words_of
from dpsql.engines.duckdb.columns import Parameters, source_of, whole
from dpsql.engines.duckdb.fetching import check_bound, fetch
from dpsql.engines.duckdb.one_pass import OnePass, in_one_pass, one_pass
from dpsql.engines.duckdb.settings import quiet_and_fast
from dpsql.engines.duckdb.sums import RowSum, zero_or_one
from dpsql.engines.duckdb.units import count_units
from dpsql.engines.interrupts import EndedStatementError
from dpsql.engines.names import unused
from dpsql.errors import InternalError
from dpsql.rows.typed import call
from dpsql.schema import Table
from dpsql.schema.grain import origins
from dpsql.schema.names import quoted_name
from dpsql.workload.spread import SpreadRows, spreads_of

Sums = Mapping[str, RowSum]
"""Measure → what is added up of each row."""


class DuckDBEngine(Engine):
    """Counts marginals on the caller's own connection, in one read transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, *, on_step: Step | None = None) -> None:
        self.con = con
        self.on_step = on_step
        self._within_snapshot = False

    def prepared(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
        measures: Measures = MappingProxyType({}),
        keys: Keys = MappingProxyType({}),
        units: Units = MappingProxyType({}),
        *,
        total_apart: bool = False,
    ) -> DuckDBCounting:
        """Build the statements that count every wanted marginal; see `Engine.prepared`."""
        coding = Coding(table, merged, keys)
        rows, of_units = list[Marginal](), list[Marginal]()
        for marginal in wanted:
            (rows if units.keys().isdisjoint(marginal) else of_units).append(marginal)
        if rows and not table.is_bounded:
            raise InternalError("nothing bounds the rows of units in this table")
        needed = scans(coding, rows, measures, total_apart=total_apart) if rows else []
        needed += [Scan(*count_units(coding, each, units, measures)) for each in of_units]
        return DuckDBCounting(
            self,
            table,
            tuple(wanted),
            tuple(needed),
            {name: value.bound for name, value in measures.items()},
            {name: groups.most for name, groups in units.items()},
            spreads_of(table, merged),
        )

    def marginals(
        self,
        table: Table,
        wanted: Sequence[Marginal],
        merged: Merged = MappingProxyType({}),
        measures: Measures = MappingProxyType({}),
        keys: Keys = MappingProxyType({}),
    ) -> Counted:
        """Count every wanted marginal, at once: what tests compare with other ways to count."""
        return self.prepared(table, wanted, merged, measures, keys).run()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Begin a read transaction, unless the caller has one; see `Engine.snapshot`.

        Within a snapshot of this engine it is that one.

        Raises:
            SchemaError: the connection is closed, busy, or in a failed transaction.
            ResourceLimitError: profiling is on and can't be switched off; it would print counts.
        """
        if self._within_snapshot:
            yield
            return
        with quiet_and_fast(self.con):
            owned = self._outside()
            # Ctrl-C may come at any line, so also before the first end: then the second is reached.
            try:
                try:
                    if owned:
                        fetch(self.con, "BEGIN TRANSACTION")
                    self._within_snapshot = True
                    yield
                finally:
                    self._end(owned)
            finally:
                self._within_snapshot = False
                self._end(owned)

    def _outside(self) -> bool:
        """Whether the caller has no transaction open: otherwise the snapshot is the caller's.

        Just trying would not do, because a nested BEGIN aborts the caller's transaction. Outside
        a transaction every statement has a transaction number of its own.
        """
        number = "SELECT system.main.txid_current()"
        return fetch(self.con, number) != fetch(self.con, number)

    def _end(self, owned: bool) -> None:
        """End our transaction, if it is open, whatever interrupts come meanwhile."""
        while owned:
            try:
                self.con.rollback()
            except duckdb.Error as error:
                owned = isinstance(error, duckdb.InterruptException)
            else:
                return


@contextmanager
def ended_apart() -> Iterator[None]:
    """Tell statements that were ended from outside, by `interrupt`, from those that failed.

    Raises:
        EndedStatementError: one was, or DuckDB doesn't say why it ended: Arrow, by which long
            results are read, has one error for all that may happen.
    """
    try:
        yield
    except (duckdb.InterruptException, OSError):
        raise EndedStatementError from None


@dataclass(frozen=True, slots=True)
class DuckDBCounting(Counting):
    """The statements that count some marginals, to be bound before they are run."""

    engine: DuckDBEngine
    table: Table
    wanted: tuple[Marginal, ...]
    needed: tuple[Scan | OnePass, ...]
    bounds: Mapping[str, int]
    """Measure → the largest magnitude of what a row adds."""
    units: Mapping[str, int]
    """Where units are counted → in how many groups one is at most."""
    spreads: tuple[SpreadRows, ...]
    """How far apart the rows of a unit are."""

    def check(self) -> None:
        """Have DuckDB bind what `run` would run; see `Counting.check`."""
        with self.engine.snapshot():
            for scan in self.needed:
                scan.check(self.engine.con)

    def run(self) -> Counted:
        """Count the marginals that were prepared, on one snapshot; see `Counting.run`."""
        counted: dict[Marginal, Counts] = {}
        summed: dict[Marginal, Words] = {}
        with self.engine.snapshot(), ended_apart():
            done = 0
            for scan in self.needed:
                counts, sums = scan.run(self.engine.con, partial(self._tell, done))
                counted, summed = counted | counts, summed | sums
                done += scan.steps
                self._tell(done, 0)
            for origin in origins(self.table):
                origin.check_unchanged()
        measured = [m for m in self.wanted if not self.bounds.keys().isdisjoint(m)]
        words = roll_up_sums(measured, summed, self.bounds.keys())
        rest = [m for m in self.wanted if m not in words]
        return Counted(
            roll_up(rest, counted, self.units.keys())
            | {marginal: low_word(sums) for marginal, sums in words.items()},
            self.table.contributions,
            self.bounds,
            self.units,
            self.spreads,
            above={marginal: high for marginal, (high, _) in words.items()},
        )

    def _tell(self, before: int, step: int) -> None:
        if self.engine.on_step is not None:
            self.engine.on_step(before + step, sum(scan.steps for scan in self.needed))


@dataclass(frozen=True, slots=True)
class Scan:
    """One statement that counts blocks, as rows of (block, key, n, m0, h0, m1, h1, …).

    Keys are mixed-radix, n is the number of rows in that cell, and 2^28·h0 + m0, … are sums of
    their values of measures.
    """

    sql: str
    parameters: tuple[Any, ...]
    shapes: Mapping[Marginal, tuple[int, ...]]
    measures: Mapping[Marginal, tuple[str, ...]] = field(default_factory=dict)
    """Which measures are added up in a block, in the order of m0, m1, …"""
    truths: Mapping[str, int] = field(default_factory=dict)
    """Those of them that are keys, with the cell of what is true: of the rows of a block's cell, in
    how many such a key is true."""

    @property
    def steps(self) -> int:
        """The number of steps in which progress is told."""
        return 1

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have DuckDB bind the statement and its parameters; see `fetching.check_bound`."""
        check_bound(con, self.sql, self.parameters)

    def run(
        self, con: duckdb.DuckDBPyConnection, on_step: Callable[[int], None] = lambda _: None
    ) -> tuple[dict[Marginal, Counts], dict[Marginal, Words]]:
        """Run the statement, in one step; return the rows of each cell, and sums, by block."""
        found = con.execute(self.sql, list(self.parameters)).fetchnumpy()
        blocks = np.ma.filled(found["block"], -1).astype(np.int64)
        keys = np.ma.filled(found["key"], -1).astype(np.int64)
        counted: dict[Marginal, Counts] = {}
        summed: dict[Marginal, Words] = {}
        for number, (block, shape) in enumerate(self.shapes.items()):
            here = blocks == number

            def read(column: str, here: NDArray[np.bool_] = here) -> Counts:
                """Return a column of BIGINTs, of the rows of this block."""
                return np.ma.filled(found[column], 0)[here].astype(np.int64)

            counted[block] = tally(shape, keys[here], read("n"))
            for i, name in enumerate(self.measures.get(block, ())):
                words = read(f"h{i}"), read(f"m{i}")
                sums = tally_sums((*shape, 1), keys[here], words)
                if name not in self.truths:
                    summed[*block, name] = sums
                    continue
                true = low_word(sums)
                both = [counted[block][..., None] - true, true]
                cells = both if self.truths[name] else both[::-1]
                counted[*block, name] = np.concatenate(cells, axis=-1)
        return counted, summed


def scans(
    coding: Coding,
    wanted: Sequence[Marginal],
    measures: Measures = MappingProxyType({}),
    *,
    total_apart: bool = False,
) -> list[Scan | OnePass]:
    """Build the statements that count what every wanted marginal is summed from.

    A key of two cells, of which one is of a few values, needs no groups: of the rows of a block's
    cell it is added up how many have one of these, as a measure of 0 and 1 is. The others are in
    its other cell. So a row changes the number of one of both by one. Where such a key says that an
    expression is there, which is added up beside it, just those rows are counted that add something
    to that: of any row one or none, so all of this holds, be it what the key says or not.

    Raises:
        InternalError: what is to be added up can't be told.
    """
    if any(sum(name in measures for name in marginal) > 1 for marginal in wanted):
        raise InternalError("a marginal is of one measure")
    if not measures.keys().isdisjoint(coding.table.columns):
        raise InternalError("a measure has the name of a column")
    sizes = {name: coding.size(name) for name in coding.table.columns}
    places: list[tuple[Marginal, dict[str, RowSum]]] = []
    """What is grouped by, and what is added up in the groups, for each marginal."""
    truths: dict[str, int] = {}
    for marginal in wanted:
        added = {n: RowSum.made(measures[n]) for n in marginal if n in measures}
        if not added and (truth := coding.truth(marginal)) is not None:
            read, there = coding.keys[truth].columns, coding.counted(truth)
            added = {truth: zero_or_one(coding.condition(truth), read, there)}
            truths[truth] = coding.true(truth)
        places.append((tuple(name for name in marginal if name not in added), added))
    blocks: dict[Marginal, dict[str, RowSum]] = {
        block: {} for block in cover([own for own, _ in places], sizes)
    }
    if total_apart and () in wanted:  # a row that has no cell of a key is in no block of that key
        blocks.setdefault((), {})
    groups = {block: coding.grouping(block).groups for block in blocks}
    for own, added in sorted(places, key=lambda place: -len(place[0])):
        fitting = [own] if own in blocks else [b for b in blocks if set(own) <= set(b)]
        # What is added up for groups, or grouped by itself, gives what they are together.
        if not any(added.keys() <= blocks[block].keys() | set(block) for block in fitting):
            blocks[min(fitting, key=groups.__getitem__)] |= added
    passed = in_one_pass(coding, [block for block, added in blocks.items() if not added])
    if coding.table.unit is not None and len(passed) < len(blocks):
        return [replace(bounded_scan(coding, blocks), truths=truths)]
    rest = {block: added for block, added in blocks.items() if block not in passed}
    found = [scan(coding, {block: added}) for block, added in rest.items()]
    of_all = [one_pass(coding, passed)] if passed else []
    return [*of_all, *(replace(each, truths=truths) for each in found)]


def scan(
    coding: Coding,
    blocks: Mapping[Marginal, Sums],
    source: str | None = None,
    parameters: Parameters | None = None,
) -> Scan:
    """Build the statement for some blocks, each with the measures that are added up in it.

    The inner queries group by the columns as they are stored, which DuckDB does fastest; codes
    are made of their few rows. Rows come from the table, unless there is another source, which may
    have parameters already.
    """
    parameters = Parameters() if parameters is None else parameters
    rows = source or source_of(coding.table)
    width = max(map(len, blocks.values()), default=0)
    parts = [
        _count(coding, (i, block, added, width), rows, parameters)
        for i, (block, added) in enumerate(blocks.items())
    ]
    shapes = {block: tuple(map(coding.size, block)) for block in blocks}
    measures = {block: tuple(added) for block, added in blocks.items()}
    return Scan(" UNION ALL ".join(parts), tuple(parameters.values), shapes, measures)


def bounded_scan(coding: Coding, blocks: Mapping[Marginal, Sums]) -> Scan:
    """Build one statement for all blocks, over the rows that count of each privacy unit.

    They are found once: that takes far longer than to count them, and for a single block they need
    not be stored. Keys are computed of those that are kept, so that they have no say in which these
    are.
    """
    names = {name for block in blocks for name in block}
    used = coding.read(names, [s.of for added in blocks.values() for s in added.values()])
    parameters = Parameters()
    kept = kept_rows(coding.table, used, parameters)
    counts = scan(coding, blocks, KEPT, parameters)
    once = "MATERIALIZED" if len(blocks) > 1 else "NOT MATERIALIZED"
    return replace(counts, sql=f"WITH {KEPT} AS {once} ({kept}) {counts.sql}")


def _count(
    coding: Coding,
    block: tuple[int, Marginal, Sums, int],
    source: str,
    parameters: Parameters,
) -> str:
    """Write the query for a block: its number, its keys, its measures, and how many others have.

    A subquery computes of each row what is grouped by and what is added up, so that nothing is
    computed twice.
    """
    number, keys, measures, width = block
    grouping = coding.grouping(keys)
    # In the subquery columns of the table stand beside ours.
    own = unused([*coding.table.columns, *coding.table.undeclared])
    columns = {
        a: coding.column(a, f"{own}k{i}") for i, a in enumerate(keys) if a not in grouping.led
    }
    groups = {
        a: f"{own}{'k' if a in columns.keys() - grouping.classed else 'g'}{i}"
        for i, a in enumerate(keys)
    }
    key = whole(0, "BIGINT")
    for attribute, group in groups.items():
        size = whole(coding.size(attribute), "BIGINT")
        code = f"{group}::BIGINT"
        if attribute in columns.keys() - grouping.classed:
            code = columns[attribute].code
            if attribute in coding.merged:
                code = coding.class_of(code, attribute, parameters)
        key = call("+", call("*", key, size), code)
    inside = " AND ".join(column.inside(parameters) for column in columns.values()) or "true"
    stored = [f"{column.stored(parameters)} AS {column.alias}" for column in columns.values()]
    stored += [f"{sql} AS {groups[a]}" for a, sql in grouping.led.items()]
    places = [f"{own}x{i}" for i in range(len(measures))]
    computed: list[str] = []
    again = {name for value in measures.values() for name in value.read_again}
    added: list[str] = []
    given = list(zip(places, measures.values(), strict=True))
    there = {value.of.there: value.present(x) for x, value in given if value.of.there}
    for i, (x, value) in enumerate(given):
        if value.counted in there:
            added.append(f"system.main.count({there[value.counted]}) AS m{i}")
            continue
        computed.append(value.computed(x))
        added.append(f"system.main.sum({value.added(x)}) AS m{i}")
        if value.of.offset:
            added.append(f"system.main.count({value.present(x)}) AS c{i}")
    words = [words_of(value, f"m{i}", f"c{i}") for i, value in enumerate(measures.values())]
    words += [("0", "0")] * (width - len(words))
    shown = "".join(f", {low} AS m{i}, {high} AS h{i}" for i, (high, low) in enumerate(words))
    rows = f"SELECT {', '.join([*stored, *computed, *map(quoted_name, sorted(again))]) or '0'}"
    rows = f"{rows} FROM {source} WHERE {inside}"
    if grouping.classed:  # of what is stored, so that it isn't computed for each condition
        classes = [
            f"{coding.class_of_row(columns[a], a, parameters)} AS {groups[a]}"
            for a in keys
            if a in grouping.classed
        ]
        rows = f"SELECT *, {', '.join(classes)} FROM ({rows})"
    by = f"GROUP BY {', '.join(groups.values())}" if keys else ""
    return (
        f"SELECT {number} AS block, ({key})::BIGINT AS key, n{shown} FROM "
        f"(SELECT {', '.join([*groups.values(), 'system.main.count(*) AS n', *added])} FROM "
        f"({rows}) {by})"
    )
