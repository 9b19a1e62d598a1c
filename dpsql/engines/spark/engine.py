"""Exact counts from Apache Spark: one job, and one look at each row, for all that is counted.

Codes are columns of Spark's SQL (`columns.py`). What is done with them is one of two things:

- *In SQL:* each row gives the key of its cell in each block, by `explode`, and these are counted by
  GROUP BY. It needs nothing on the workers, and is faster for few blocks.
- *In workers:* NumPy counts the codes of a part of the rows in all blocks (`partials.py`), and
  sums of parts are added up by key in Spark. It is faster for many.

Rows with units are those of a relation (`relations.py`). Units by groups are counted by a job of
their own each (`units.py`).

Either way keys come back with BIGINT counts as rows of the job, and are put into arrays as those of
any engine are (`cover.tally`).
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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
from dpsql.engines.key_scores import KeyScores, ScoredKeys, scored_keys
from dpsql.engines.lakes import folded_by_spark
from dpsql.engines.ranked import RankedRows, Ranking, RankWindow
from dpsql.engines.spark.bounded import check_units
from dpsql.engines.spark.coding import ComputedRow, class_of, placed
from dpsql.engines.spark.distinct import CountedValues
from dpsql.engines.spark.jobs import cancelled, ended_apart, followed, given_up
from dpsql.engines.spark.key_scores import KEY as KEY_BYTES
from dpsql.engines.spark.key_scores import SCORE, UNITS, ScoredExpression
from dpsql.engines.spark.partials import (
    COUNT,
    KEY,
    SCHEMA,
    CodedAxis,
    CodedBlock,
    attempts,
    partial_counts,
    split,
)
from dpsql.engines.spark.relations import kept_rows
from dpsql.engines.spark.sessions import functions_of, is_here_alone, quiet
from dpsql.engines.spark.sql.text import array, quoted, whole
from dpsql.engines.spark.tables import SparkTables
from dpsql.engines.spark.units import CountedUnits, counts_by_key
from dpsql.errors import DpsqlError, InternalError, ResourceLimitError, UnsupportedSqlError
from dpsql.rel.distinct import DistinctValues
from dpsql.rel.ranked import RankedValues
from dpsql.rows.expression import RowExpression
from dpsql.schema import Table
from dpsql.schema.grain import paths_read
from dpsql.workload.unit_groups import groups_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from dpsql.engines.spark.ranked import RankedColumn

Partials = Literal["auto", "sql", "workers"]
"""The way in which parts of the rows are counted."""
_BATCH = 100_000
"""Keys that are looked at together."""
FEW_BLOCKS = 7
"""As many as are counted in SQL."""
_MOST_KEYS = 2**62
_RANKED = "ranked"
_PROBED, _TRIES = 10_000, 3
"""Rows of our own, so that no part of them is empty, and how often they are counted for a try."""


class SparkEngine(Engine):
    """Counts marginals by jobs of Spark."""

    def __init__(
        self, tables: SparkTables, *, on_step: Step | None = None, partials: Partials = "auto"
    ) -> None:
        self.tables, self.on_step, self.partials = tables, on_step, partials

    def snapshot(self) -> AbstractContextManager[None]:
        """Let everything that is read inside be of one state; see `Engine.snapshot`."""
        return self.tables.snapshot()

    def counting(self, wanted: Wanted) -> SparkCounting:
        """Write what counts every wanted marginal; see `Engine.prepared`.

        Raises:
            UnsupportedSqlError: it needs what Spark doesn't compute yet.
            ResourceLimitError: there are too many cells.
        """
        table, sizes = wanted.table, wanted.sizes
        _check_supported(table, wanted.keys)
        check_units(table)
        of_units = tuple(_counted(wanted, each) for each in wanted.of_units)
        counted = placed(wanted)
        shapes = {block: tuple(sizes[a] for a in block) for block in counted}
        if sum(map(math.prod, shapes.values())) >= _MOST_KEYS:
            raise ResourceLimitError(
                "There are too many cells to be counted.", hint="group by fewer columns."
            )
        used = [name for name in sizes if any(name in block for block in counted)]
        added = {name for of in counted.values() for name in of}
        measures = {name: of for name, of in wanted.measures.items() if name in added}
        computed = ComputedRow.of(table, used, measures, wanted.keys)
        places = {name: f"c{i}" for i, name in enumerate(used)}
        blocks = _coded_blocks(wanted, shapes, places)
        return SparkCounting(self, wanted, computed, places, blocks, shapes, counted, of_units)

    def key_scores(
        self, table: Table, key: RowExpression, weights: Sequence[int]
    ) -> SparkKeyScores:
        """Write what scores keys; see `Engine.key_scores`.

        Raises:
            UnsupportedSqlError: it needs what Spark doesn't compute yet.
        """
        _check_supported(table, {})
        check_units(table)
        return SparkKeyScores(self, ScoredExpression(table, key, tuple(weights)))

    def ranking(
        self, table: Table, values: RankedValues, merged: Merged, measures: Measures, keys: Keys
    ) -> SparkRanking:
        """Write what puts rows in order; see `Engine.ranking`.

        Raises:
            UnsupportedSqlError: it needs what Spark doesn't compute yet.
            ResourceLimitError: there are too many cells.
        """
        from dpsql.engines.spark.ranked import RankedColumn  # which few releases need

        _check_supported(table, keys)
        check_units(table)
        marginal, units = (groups_of(_RANKED), _RANKED), {_RANKED: values}
        wanted = Wanted(table, (marginal,), merged, measures, keys, units, False, ())
        return SparkRanking(self, RankedColumn.of(wanted, values))


def _counted(wanted: Wanted, marginal: Marginal) -> CountedUnits | CountedValues:
    """Say how units by groups are counted, or distinct values of their rows."""
    (groups,) = (wanted.units[name] for name in marginal if name in wanted.units)
    if isinstance(groups, DistinctValues):
        return CountedValues.of(wanted, marginal, groups)
    return CountedUnits.of(wanted, marginal)


def _coded_blocks(
    wanted: Wanted, shapes: Mapping[Marginal, tuple[int, ...]], places: Mapping[str, str]
) -> tuple[CodedBlock, ...]:
    """Give numbers to the cells of all blocks, one block after the other."""
    blocks, offset = list[CodedBlock](), 0
    for block, shape in shapes.items():
        axes = tuple(
            CodedAxis(places[a], wanted.table.cells(a), wanted.merged.get(a)) for a in block
        )
        blocks.append(CodedBlock(axes, math.prod(shape), offset))
        offset += math.prod(shape)
    return tuple(blocks)


def _check_supported(table: Table, keys: Keys) -> None:
    what = None
    if not table.derived.keys() - table.joined <= keys.keys():
        what = "keys that nothing computes"
    elif any(table_read.origin is not None and not table_read.made_of for table_read in table.read):
        what = "views"
    if what is not None:
        raise UnsupportedSqlError(
            f"Spark doesn't count {what} yet.",
            hint="group by columns of tables, or expressions of them, and ask for COUNT(*), SUM or "
            "AVG.",
        )
    for table_read in table.read:
        names = [*table_read.columns, *table_read.undeclared]
        if len({folded_by_spark(name) for name in names}) < len(names):
            raise UnsupportedSqlError(
                "Spark can't tell columns apart whose names differ in case only.",
                hint="rename one of them where they are stored.",
            )


@dataclass(frozen=True, slots=True)
class SparkCounting(Counting):
    """A count of some marginals, to be analyzed before it is run."""

    engine: SparkEngine
    wanted: Wanted
    computed: ComputedRow
    """Expressions that are computed of a row."""
    places: Mapping[str, str]
    """Attribute → the column of its code."""
    blocks: tuple[CodedBlock, ...]
    shapes: Mapping[Marginal, tuple[int, ...]]
    """Marginal that is counted → its shape, in the order of the blocks."""
    measures: Mapping[Marginal, Sequence[str]]
    """The measures that are added up in its cells."""
    of_units: tuple[CountedUnits | CountedValues, ...]

    def check(self) -> None:
        """Have Spark analyze what `run` would run; see `Counting.check`."""
        with self.engine.snapshot(), quiet():
            if not _holds(lambda: all(job.schema for job in self._jobs())):
                raise InternalError("Spark refuses a counting statement; nothing was charged")
            if self._in_workers and not _holds(self._probe):
                raise _no_workers(self.engine.tables.session)

    def run(self) -> Counted:
        """Count the marginals that were prepared; see `Counting.run`."""
        session, tell = self.engine.tables.session, self.engine.on_step
        heard = cancelled(session), given_up(session), followed(session, tell)
        with self.engine.snapshot(), quiet(), heard[0], ended_apart(), heard[1], heard[2]:
            answers = [job.toArrow() for job in self._jobs()]
            for path in paths_read(self.wanted.table):
                self.engine.tables.check_unchanged(path)
        counted, above = self._tallied(answers[0]) if self.blocks else ({}, {})
        for each, rows in zip(
            self.of_units, answers[len(answers) - len(self.of_units) :], strict=True
        ):
            counted[each.marginal] = each.tallied(rows)
        return self.wanted.counted(counted, above)

    def _tallied(self, answer: pa.Table) -> tuple[dict[Marginal, Counts], dict[Marginal, Counts]]:
        """Return the counts and sums of rows that were found, and higher words of these."""
        counted, summed = dict[Marginal, Counts](), dict[Marginal, Words]()
        keys, rows = counts_by_key(answer)
        parts = zip(self.blocks, split(self.blocks, keys, rows), strict=True)
        for (block, shape), (coded, (cells, added)) in zip(self.shapes.items(), parts, strict=True):
            counted[block] = tally(shape, cells, added)
            for name in self.measures[block]:
                totals = self.computed.totals(name, answer, coded.holds(keys))
                summed[*block, name] = tally_sums((*shape, 1), cells, totals)
        words = roll_up_sums(self.wanted.measured, summed, self.wanted.measures.keys())
        low = {marginal: low_word(sums) for marginal, sums in words.items()}
        above = {marginal: high for marginal, (high, _) in words.items()}
        return roll_up([m for m in self.wanted.of_rows if m not in words], counted) | low, above

    @property
    def _in_workers(self) -> bool:
        way = "sql" if self.wanted.measures else self.engine.partials
        return way == "workers" or (way == "auto" and len(self.blocks) > FEW_BLOCKS)

    def _jobs(self) -> list[DataFrame]:
        """Build all jobs: that of the rows, and one for each count of units; reads nothing."""
        tables = self.engine.tables
        rows = [self._job()] if self.blocks else []
        return [*rows, *(each.job(tables) for each in self.of_units)]

    def _job(self) -> DataFrame:
        """Build the job, whose rows are keys and counts; reads nothing."""
        tables = self.engine.tables
        functions = functions_of(tables.session)
        if self.wanted.table.unit is None:
            rows = tables.rows(self.wanted.table)
        else:
            rows = kept_rows(tables, self.wanted.table, self.computed.read)
        coded = self.computed.selected(rows, self.places)
        if self._in_workers:
            computed = coded.mapInArrow(partial_counts(self.blocks), SCHEMA)
            added = [functions.sum(COUNT).cast("bigint").alias(COUNT)]
        else:
            keys = functions.explode(functions.expr(array([self._key(b) for b in self.blocks])))
            computed = coded.select(*self.computed.summands, keys.alias(KEY))
            added = [functions.count(functions.lit(1)).alias(COUNT), *self.computed.summed(coded)]
        return computed.groupBy(KEY).agg(*added)

    def _key(self, block: CodedBlock) -> str:
        """Write the number of a row's cell among those of all blocks; -1 if it is in none."""
        key = whole(0)
        for axis in block.axes:
            code = quoted(axis.place)
            if axis.classes is not None:
                code = class_of(code, axis.classes)
            key = f"({key} * {whole(axis.size)} + {code})"
        inside = [
            f"{quoted(axis.place)} BETWEEN {whole(0)} AND {whole(axis.codes - 1)}"
            for axis in block.axes
        ]
        place = f"({key} + {whole(block.offset)})"
        if not inside:
            return place
        return f"CASE WHEN {' AND '.join(inside)} THEN {place} ELSE {whole(-1)} END"

    def _probe(self) -> bool:
        """Whether workers have what they need, tried on rows of our own, by all that are there.

        There are as many parts as cores, so that each executor gets some. One that can't count
        would be given others' parts again and again, until Spark gives up, after the charge: so
        no part may need a second attempt. What else makes one, such as speculation, doesn't go on.
        """
        rows = self.engine.tables.session.range(_PROBED).selectExpr("id")
        count = attempts(partial_counts([CodedBlock((CodedAxis("id", 1),), 1, 0)]))
        tried = rows.mapInArrow(count, SCHEMA)
        return any(not any(row[COUNT] for row in tried.collect()) for _ in range(_TRIES))


@dataclass(frozen=True, slots=True)
class SparkKeyScores(KeyScores):
    """A job that scores the keys of a column; see `KeyScores`."""

    engine: SparkEngine
    scored: ScoredExpression

    @property
    def weights(self) -> Sequence[int]:
        """The number that a unit with 1, 2, … keys adds to the score of each."""
        return self.scored.weights

    def check(self) -> None:
        """Have Spark analyze what `run` would run; see `KeyScores.check`."""
        with self.engine.snapshot(), quiet():
            if not _holds(lambda: bool(self.scored.job(self.engine.tables).schema)):
                raise InternalError("Spark refuses a counting statement; nothing was charged")

    def run(self, known: Collection[bytes] = ()) -> Iterator[ScoredKeys]:
        """Score all keys that occur; see `KeyScores.run`."""
        tables = self.engine.tables
        heard = cancelled(tables.session), given_up(tables.session)
        with self.engine.snapshot(), quiet(), heard[0], ended_apart(), heard[1]:
            scores = self.scored.job(tables, known).toArrow()
            for path in paths_read(self.scored.table):
                tables.check_unchanged(path)
        for batch in scores.to_batches(_BATCH):
            if batch.num_rows:
                yield scored_keys(*(batch.column(name) for name in (KEY_BYTES, UNITS, SCORE)))


@dataclass(frozen=True, slots=True)
class SparkRanking(Ranking):
    """A job that puts rows in order; see `Ranking`."""

    engine: SparkEngine
    ranked: RankedColumn

    @property
    def contributions(self) -> int:
        """The most rows of one unit."""
        return self.ranked.units.table.contributions

    @property
    def values(self) -> RankedValues:
        """The values that are put in order."""
        return self.ranked.values

    def check(self) -> None:
        """Have Spark analyze what `run` would run; see `Ranking.check`."""
        windows = [RankWindow(self.values.probability, 0)]
        with self.engine.snapshot(), quiet():
            if not _holds(lambda: bool(self.ranked.job(self.engine.tables, windows).schema)):
                raise InternalError("Spark refuses a counting statement; nothing was charged")

    def run(self, windows: Sequence[RankWindow]) -> RankedRows:
        """Put the rows in order; see `Ranking.run`."""
        tables = self.engine.tables
        heard = cancelled(tables.session), given_up(tables.session)
        with self.engine.snapshot(), quiet(), heard[0], ended_apart(), heard[1]:
            ranks = self.ranked.job(tables, windows).toArrow()
            for path in paths_read(self.ranked.units.table):
                tables.check_unchanged(path)
        return self.ranked.ranks(ranks)


def _no_workers(session: SparkSession) -> UnsupportedSqlError:
    """Tell which Python Spark should run: by itself it looks for `python3`, as shells do."""
    if is_here_alone(session):
        return UnsupportedSqlError(
            "Python workers of this Spark don't run, or have no NumPy and PyArrow.",
            hint="name the Python of this process before Spark is started: "
            f"os.environ['PYSPARK_PYTHON'] = {sys.executable!r}.",
        )
    version = ".".join(platform.python_version_tuple()[:2])
    return UnsupportedSqlError(
        "Python workers of this Spark don't run, or have no NumPy and PyArrow: not on all of its "
        "machines.",
        hint=f"install both on each of them, for Python {version}, in what PYSPARK_PYTHON names "
        "where Spark's driver is started.",
    )


def _holds(step: Callable[[], bool]) -> bool:
    """Whether something is so; an error of Spark's says no, and nothing is kept of it."""
    try:
        return step()
    except DpsqlError:
        raise
    except Exception:
        return False
