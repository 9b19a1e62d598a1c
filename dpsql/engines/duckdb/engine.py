"""Counts from DuckDB, by statements that the library builds from the schema alone.

The private connection never sees a text that an analyst wrote: identifiers come from the catalog
and are quoted, values of domains are bound parameters or constants that are written here, and what
is added up is SQL that `dpsql/rows/` made of a checked tree. Only counts and sums come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import duckdb
import numpy as np
import numpy.ma  # which DuckDB's arrays are; not when the budget is gone
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
    Wanted,
    Words,
)
from dpsql.engines.cover import low_word, roll_up, roll_up_sums, tally, tally_sums
from dpsql.engines.duckdb.blocks import GroupedRows, Sums, blocks_for
from dpsql.engines.duckdb.catalog import check_bound, fetch
from dpsql.engines.duckdb.coding import Coding, words_of
from dpsql.engines.duckdb.columns import Parameters, source_of
from dpsql.engines.duckdb.key_scores import KeyScan
from dpsql.engines.duckdb.one_pass import OnePass, in_one_pass, one_pass
from dpsql.engines.duckdb.relations import kept_rows
from dpsql.engines.duckdb.settings import quiet_and_fast
from dpsql.engines.duckdb.sums import RowSum, zero_or_one
from dpsql.engines.duckdb.units import count_units
from dpsql.engines.interrupts import EndedStatementError
from dpsql.engines.key_scores import KeyScores, ScoredKeys
from dpsql.engines.ranked import RankedRows, Ranking, RankWindow
from dpsql.rel.distinct import DistinctValues
from dpsql.rel.ranked import RankedValues
from dpsql.rows.expression import RowExpression
from dpsql.schema import Table
from dpsql.schema.grain import origins
from dpsql.schema.names import quoted_name, unused

if TYPE_CHECKING:
    from dpsql.engines.duckdb.distinct import DistinctScan
    from dpsql.engines.duckdb.ranked import RankScan

KEPT = "kept"
"""The name of the rows that count. A name with fewer than three parts means it before it means a
table."""


class DuckDBEngine(Engine):
    """Counts marginals on the caller's own connection, in one read transaction."""

    def __init__(self, con: duckdb.DuckDBPyConnection, *, on_step: Step | None = None) -> None:
        self.con = con
        self.on_step = on_step
        self._within_snapshot = False

    def counting(self, wanted: Wanted) -> DuckDBCounting:
        """Build the statements that count every wanted marginal; see `Engine.prepared`."""
        coding = Coding(wanted.table, wanted.merged, wanted.keys)
        needed: list[CountingScan | OnePass | DistinctScan] = []
        needed += scans(coding, wanted) if wanted.of_rows else []
        needed += [_scan_of_units(coding, marginal, wanted) for marginal in wanted.of_units]
        return DuckDBCounting(self, wanted, tuple(needed))

    def key_scores(
        self, table: Table, key: RowExpression, weights: Sequence[int]
    ) -> DuckDBKeyScores:
        """Write what scores keys; see `Engine.key_scores`."""
        return DuckDBKeyScores(self, KeyScan(table, key, tuple(weights)))

    def ranking(
        self, table: Table, values: RankedValues, merged: Merged, measures: Measures, keys: Keys
    ) -> DuckDBRanking:
        """Write what puts rows in order; see `Engine.ranking`."""
        from dpsql.engines.duckdb.ranked import RankScan  # which few releases need

        return DuckDBRanking(self, RankScan.of(Coding(table, merged, keys), values, measures))

    def check_bound(self, scans: Iterable[_Scan], table: Table) -> None:
        """Have DuckDB bind the statements about a table that would be run, on one snapshot."""
        with self.snapshot():
            try:
                for scan in scans:
                    scan.check(self.con)
            finally:  # of files that were written just now DuckDB may bind nothing
                _check_unchanged(table)

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


def _check_unchanged(table: Table) -> None:
    """Check that files are as they were; see `Origin.check_unchanged`."""
    for origin in origins(table):
        origin.check_unchanged()


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


class _Scan(Protocol):
    """Statements that DuckDB can be asked to bind."""

    def check(self, con: duckdb.DuckDBPyConnection) -> None:
        """Have them bound; reads no row."""


@dataclass(frozen=True, slots=True)
class DuckDBCounting(Counting):
    """The statements that count some marginals, to be bound before they are run."""

    engine: DuckDBEngine
    wanted: Wanted
    needed: tuple[CountingScan | OnePass | DistinctScan, ...]

    def check(self) -> None:
        """Have DuckDB bind what `run` would run; see `Counting.check`."""
        self.engine.check_bound(self.needed, self.wanted.table)

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
            _check_unchanged(self.wanted.table)
        words = roll_up_sums(self.wanted.measured, summed, self.wanted.measures.keys())
        rest = [m for m in self.wanted.marginals if m not in words]
        return self.wanted.counted(
            roll_up(rest, counted, self.wanted.units.keys())
            | {marginal: low_word(sums) for marginal, sums in words.items()},
            above={marginal: high for marginal, (high, _) in words.items()},
        )

    def _tell(self, before: int, step: int) -> None:
        if self.engine.on_step is not None:
            self.engine.on_step(before + step, sum(scan.steps for scan in self.needed))


@dataclass(frozen=True, slots=True)
class DuckDBKeyScores(KeyScores):
    """The statements that score the keys of a column, on one snapshot; see `KeyScores`."""

    engine: DuckDBEngine
    scan: KeyScan

    @property
    def weights(self) -> Sequence[int]:
        """The number that a unit with 1, 2, … keys adds to the score of each."""
        return self.scan.weights

    def check(self) -> None:
        """Have DuckDB bind what `run` would run; see `KeyScores.check`."""
        self.engine.check_bound([self.scan], self.scan.table)

    def run(self, known: Collection[bytes] = ()) -> Iterator[ScoredKeys]:
        """Score all keys that occur; see `KeyScores.run`."""
        with self.engine.snapshot(), ended_apart():
            yield from self.scan.run(self.engine.con, known)
            _check_unchanged(self.scan.table)


@dataclass(frozen=True, slots=True)
class DuckDBRanking(Ranking):
    """The statement that puts rows in order, on one snapshot; see `Ranking`."""

    engine: DuckDBEngine
    scan: RankScan

    @property
    def contributions(self) -> int:
        """The most rows of one unit."""
        return self.scan.contributions

    @property
    def values(self) -> RankedValues:
        """The values that are put in order."""
        return self.scan.values

    def check(self) -> None:
        """Have DuckDB bind what `run` would run; see `Ranking.check`."""
        self.engine.check_bound([self.scan], self.scan.table)

    def run(self, windows: Sequence[RankWindow]) -> RankedRows:
        """Put the rows in order; see `Ranking.run`."""
        with self.engine.snapshot(), ended_apart():
            ranks = self.scan.run(self.engine.con, windows)
            _check_unchanged(self.scan.table)
        return ranks


@dataclass(frozen=True, slots=True)
class CountingScan:
    """One statement that counts blocks, as rows of (block, key, n, m0, h0, m1, h1, …).

    Keys are mixed-radix, n is the number of rows in that cell, and 2^28·h0 + m0, … are sums of
    their values of measures.
    """

    sql: str
    parameters: tuple[Any, ...]
    shapes: Mapping[Marginal, tuple[int, ...]]
    measures: Mapping[Marginal, tuple[str, ...]] = field(default_factory=dict)
    """The measures that are added up in a block, in the order of m0, m1, …"""
    truths: Mapping[str, int] = field(default_factory=dict)
    """Measures that are keys, each with its cell that means true: for a block's cell, the number of
    its rows in which such a key is true."""

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
        columns = con.execute(self.sql, list(self.parameters)).fetchnumpy()
        blocks = np.ma.filled(columns["block"], -1).astype(np.int64)
        keys = np.ma.filled(columns["key"], -1).astype(np.int64)
        counted: dict[Marginal, Counts] = {}
        summed: dict[Marginal, Words] = {}
        for number, (block, shape) in enumerate(self.shapes.items()):
            here = blocks == number

            def read(column: str, here: NDArray[np.bool_] = here) -> Counts:
                """Return a column of BIGINTs, of the rows of this block."""
                return np.ma.filled(columns[column], 0)[here].astype(np.int64)

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


def _scan_of_units(
    coding: Coding, marginal: Marginal, wanted: Wanted
) -> CountingScan | DistinctScan:
    """Build the statement that counts units by groups, or distinct values of their rows."""
    (name,) = (name for name in marginal if name in wanted.units)
    groups = wanted.units[name]
    if isinstance(groups, DistinctValues):
        from dpsql.engines.duckdb.distinct import DistinctScan  # which few releases need

        return DistinctScan.of(coding, marginal, name, groups, wanted.measures)
    return CountingScan(*count_units(coding, marginal, wanted.units, wanted.measures))


def scans(coding: Coding, wanted: Wanted) -> list[CountingScan | OnePass]:
    """Build the statements that count what every wanted marginal of rows is summed from.

    A key of two cells, of which one is of a few values, needs no groups: of the rows of a block's
    cell it is added up how many have one of these, as a measure of 0 and 1 is. The others are in
    its other cell. So a row changes the number of one of both by one. Where such a key says that an
    expression is there, which is added up beside it, just those rows are counted that add something
    to that: of any row one or none, so all of this holds, be it what the key says or not.

    Raises:
        InternalError: what is to be added up can't be told.
    """
    wanted.check_measures()
    places = [_place(coding, marginal, wanted.measures) for marginal in wanted.of_rows]
    names = (name for _, added in places for name in added if name not in wanted.measures)
    truths = {name: coding.true(name) for name in names}
    blocks = blocks_for(coding, places, total=wanted.total_apart and () in wanted.marginals)
    passed = in_one_pass(coding, [block for block, added in blocks.items() if not added])
    if coding.table.unit is not None and len(passed) < len(blocks):
        return [replace(bounded_scan(coding, blocks), truths=truths)]
    rest = {block: added for block, added in blocks.items() if block not in passed}
    planned = [scan(coding, {block: added}) for block, added in rest.items()]
    of_all = [one_pass(coding, passed)] if passed else []
    return [*of_all, *(replace(each, truths=truths) for each in planned)]


def _place(coding: Coding, marginal: Marginal, measures: Measures) -> tuple[Marginal, Sums]:
    """Return what is grouped by for a marginal, and what is added up in the groups."""
    added = {name: RowSum.made(measures[name]) for name in marginal if name in measures}
    if not added and (truth := coding.truth(marginal)) is not None:
        read, there = coding.keys[truth].columns, coding.counted(truth)
        added = {truth: zero_or_one(coding.condition(truth), read, there)}
    return tuple(name for name in marginal if name not in added), added


def scan(
    coding: Coding,
    blocks: Mapping[Marginal, Sums],
    source: str | None = None,
    parameters: Parameters | None = None,
) -> CountingScan:
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
    return CountingScan(" UNION ALL ".join(parts), tuple(parameters.values), shapes, measures)


def bounded_scan(coding: Coding, blocks: Mapping[Marginal, Sums]) -> CountingScan:
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
    # In the subquery columns of the table stand beside ours.
    prefix = unused([*coding.table.columns, *coding.table.undeclared])
    grouped = GroupedRows.of(coding, keys, prefix)
    key = grouped.key(parameters)
    computed, added = _summed(measures, prefix)
    rows = grouped.rows(source, computed, parameters)
    by = f"GROUP BY {', '.join(grouped.by)}" if keys else ""
    selected = [*grouped.selected, "system.main.count(*) AS n", *added]
    return (
        f"SELECT {number} AS block, ({key})::BIGINT AS key, n{_words(measures, width)} FROM "
        f"(SELECT {', '.join(selected)} FROM ({rows}) {by})"
    )


def _summed(measures: Sums, prefix: str) -> tuple[list[str], list[str]]:
    """Write what is computed of a row for its measures, and what is added up of that."""
    given = [(f"{prefix}x{i}", value) for i, value in enumerate(measures.values())]
    there = {value.of.there: value.present(x) for x, value in given if value.of.there}
    computed, added = list[str](), list[str]()
    for i, (x, value) in enumerate(given):
        if value.counted in there:
            added.append(f"system.main.count({there[value.counted]}) AS m{i}")
            continue
        computed.append(value.computed(x))
        added.append(f"system.main.sum({value.added(x)}) AS m{i}")
        if value.of.offset:
            added.append(f"system.main.count({value.present(x)}) AS c{i}")
    again = {name for value in measures.values() for name in value.read_again}
    return [*computed, *map(quoted_name, sorted(again))], added


def _words(measures: Sums, width: int) -> str:
    """Write both words of each sum, and zeros for those that other blocks have."""
    words = [words_of(value, f"m{i}", f"c{i}") for i, value in enumerate(measures.values())]
    words += [("0", "0")] * (width - len(words))
    return "".join(f", {low} AS m{i}, {high} AS h{i}" for i, (high, low) in enumerate(words))
