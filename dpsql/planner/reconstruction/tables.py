"""Measurements of several tables: of all together, and of each as if it were the only one.

Together, each table's counts are a measure, and all attributes have names that tell tables apart
(`workload.workload`). So they are planned and put together as measures are. What is kept of them is
of each table by itself, without any of that: what was measured of a table is the same then,
whichever tables were asked beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from dpsql.measurement.differences import Difference
from dpsql.measurement.narrow import Kept
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.measured import Noisy
from dpsql.planner.reconstruction.sources import RESIDUALS, Source, without_axis
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.workload.workload import UnitTable

Rename = Callable[[str], str]


def together(pairs: Sequence[tuple[UnitTable, Source]]) -> Source:
    """Return what was measured of several tables as one source.

    Args:
        pairs: each table, and what was measured of it as if it were the only one.
    """
    measures: dict[str, Source] = {}
    for table, source in pairs:
        own = without_axis(source.values or {}, None, frozenset(source.measures))
        counts = replace(source, measures={}, values=own)
        measures[table.name] = _named(counts, table)
        for measure, sums in source.measures.items():
            measures[table.attribute(measure)] = _named(sums, table)
    found = chain.from_iterable(_with_axis(of, name).items() for name, of in measures.items())
    reading = next((source.reading for _, source in pairs), RESIDUALS)
    return Source((), {}, {}, values=dict(found), reading=reading, measures=measures)


def apart(source: Source, tables: Sequence[UnitTable]) -> tuple[Source, ...]:
    """Return what one source says of each table, as if it were the only one."""
    return tuple(_of(source, table) for table in tables)


def _of(source: Source, table: UnitTable) -> Source:
    def own(name: str) -> str:
        found = table.own(name)
        return name if found is None else found

    nothing = Source((), {}, {}, values={}, reading=source.reading)
    counts = _renamed(source.measures.get(table.name, nothing), own)
    sums = {
        own(measure): _renamed(of, own)
        for measure, of in source.measures.items()
        if table.own(measure) is not None
    }
    values = dict(counts.values or {})
    for measure, of in sums.items():
        values |= _with_axis(of, measure)
    bounds = {measure: replace(of, rows=1) for measure, of in sums.items()}
    return replace(counts, measures=bounds, values=values, rows=1)


def counts_of(blocks: Sequence[BlockStrategy], table: UnitTable) -> tuple[BlockStrategy, ...]:
    """Return the measurements of a table's counts among those of several, as if it were alone.

    The axis of the counts is the last one, as `of_measure` has put it.
    """

    def own(name: str) -> str:
        return table.own(name) or name

    return tuple(
        BlockStrategy(
            tuple(tuple(map(own, space[:-1])) for space in block.spaces),
            block.factors[:-1],
            block.law,
        )
        for block in blocks
        if all(space[-1:] == (table.name,) for space in block.spaces)
    )


def differences_in(
    sources: Sequence[Source], parts: Collection[str | None]
) -> tuple[tuple[Difference, ...], tuple[int, ...]]:
    """Return what sources say of the totals of two of some tables, and which of them says so."""
    found = [
        (difference, number)
        for number, source in enumerate(sources)
        for difference in source.differences
        if all(table in parts for table in difference.tables)
    ]
    return tuple(one for one, _ in found), tuple(number for _, number in found)


def with_values(source: Source, measured: Noisy) -> Source:
    """Give a source of several tables the noisy integers of its plan, part by part."""
    parts = {
        measure: replace(of, values=without_axis(measured, measure, source.measures.keys()))
        for measure, of in source.measures.items()
    }
    return replace(source, values=measured, measures=parts)


def _named(source: Source, table: UnitTable) -> Source:
    return replace(_renamed(source, table.attribute), rows=table.rows)


def _with_axis(source: Source, measure: str) -> dict[frozenset[str], Kept]:
    return {names | {measure}: y[..., None] for names, y in (source.values or {}).items()}


def _renamed(source: Source, rename: Rename) -> Source:
    """Give all attributes other names."""
    return replace(
        source,
        blocks=tuple(_block(block, rename) for block in source.blocks),
        references=_references(source.references, rename),
        sizes={rename(name): n for name, n in source.sizes.items()},
        merged={rename(name): of for name, of in source.merged.items()},
        values={frozenset(map(rename, names)): y for names, y in (source.values or {}).items()},
    )


def _block(block: BlockStrategy, rename: Rename) -> BlockStrategy:
    spaces = tuple(tuple(map(rename, space)) for space in block.spaces)
    return BlockStrategy(spaces, block.factors, block.law)


def _references(references: Mapping[str, Reference], rename: Rename) -> References:
    given = References.of(references)
    return References(
        {rename(name): reference for name, reference in given.items()},
        frozenset(map(rename, given.pivots)),
        {
            (rename(name), frozenset(map(rename, context))): reference
            for (name, context), reference in given.special.items()
        },
    )
