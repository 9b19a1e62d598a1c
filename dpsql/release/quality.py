"""The distance of rows from what a release says, and of that from the truth, as far as known."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import polars as pl

from dpsql.errors import ArgumentError, SchemaError, printable, shown
from dpsql.linalg.arrays import Ints
from dpsql.linalg.threads import one_thread
from dpsql.planner.reconstruction.entropy import Attributes, EntropyTables
from dpsql.release.relations import ReleasedRelation, ReleasedTables
from dpsql.release.synthesis import Cells, pairs, too_large

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
    found = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    return [pair for pair in found if too_large(tables.sizes, pair) and tables.known(pair)]


def _codes(relation: ReleasedRelation, frame: object) -> Mapping[str, Ints]:
    """Return the cell of each row, among those that measurements tell apart."""
    if not isinstance(frame, pl.DataFrame):
        raise ArgumentError(
            f"Rows are a Polars frame, not {shown(frame)}.",
            hint="pass what release.synthetic() returns.",
        )
    if not frame.height:
        raise ArgumentError("The frame has no rows.", hint="pass some.")
    found = {}
    for name in relation.tables.sizes:
        if name not in frame.columns:
            raise SchemaError(
                f"The frame has no column {printable(name)}.",
                hint="pass rows as synthetic() returns them.",
            )
        cells = Cells(name, relation.table.columns[name])
        leaves_out = relation.table.leaves_out(name)
        found[name] = relation.classes[name][cells.codes(frame[name], leaves_out=leaves_out)]
    return found


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
