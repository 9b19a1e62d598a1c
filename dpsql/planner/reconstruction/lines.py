"""Measurements along lines of columns, which may be cut at different places in each release.

An interval along more cuts lies within one along fewer of them. So what was measured along some
cuts is, along all of them, a measurement over merged cells like any other: a row is in the cell in
which it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpsql.planner.reconstruction.sources import Source
from dpsql.schema.cuts import DERIVED, MOST_CUTS, Cuts, coarser, cut_at, lines_of, together


def lines(source: Source) -> dict[str, Cuts]:
    """Return where columns were cut, for those that were measured along their lines."""
    return {name: of for name, of in lines_of(source.described).items() if name in source.sizes}


def common_cuts(sources: Sequence[Source], others: Mapping[str, Cuts]) -> dict[str, Cuts]:
    """Return all cuts of sources and of some lines; of a line with too many, only the latter."""
    found = together([others, *map(lines, sources)])
    return {n: cuts if len(cuts) <= MOST_CUTS else others.get(n, cuts) for n, cuts in found.items()}


def lies_on(source: Source, cuts: Mapping[str, Cuts]) -> bool:
    """Whether a source was measured along some of the given cuts of each line."""
    return all(set(of) <= set(cuts.get(name, of)) for name, of in lines(source).items())


def along(source: Source, cuts: Mapping[str, Cuts]) -> Source:
    """Look at a source along more cuts of some lines.

    Args:
        source: what was measured.
        cuts: line → all of the source's own cuts, and others.

    Raises:
        ValueError: it has other cells than its cuts say.
    """
    finer = {name: of for name, of in lines(source).items() if cuts.get(name, of) != of}
    if not finer:
        return source
    merged = dict(source.merged)
    for name, of in finer.items():
        cells = len(merged.get(name, range(source.sizes[name])))
        if cells - len(of) not in {1, 2}:
            raise ValueError
        within = np.array(coarser(cuts[name], of, nullable=cells - len(of) == 2), dtype=np.int64)
        merged[name] = merged[name][within] if name in merged else within
    measures = {
        measure: along(replace(sums, described=source.described), cuts)
        for measure, sums in source.measures.items()
    }
    now = {name: f"{DERIVED}{cut_at(cuts[name])}" for name in finer}
    return replace(
        source,
        merged=merged,
        described={**source.described, **now},
        measures=measures,
        kept=source.kept or source,
    )
