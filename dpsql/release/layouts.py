"""The layout of an answer as a picture: which keys are along axes, and which have panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from dpsql.charts.axes import Scale
from dpsql.release.panels import scale_of

MOST_PANELS = 12


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys that are along axes, and those that have a panel for each of their groups."""

    keys: tuple[str, ...]
    scale: Scale
    """Of the first key, if it is the only one; two keys are labels."""
    by: tuple[str, ...] = ()


def layout_of(frame: pl.DataFrame, keys: Sequence[str]) -> Layout:
    """Choose the layout: a line along the one key of numbers or times, or labels of two keys."""
    scales = {key: scale_of(frame[key]) for key in keys}
    if len(keys) == 1:
        return Layout((keys[0],), scales[keys[0]])
    continuous = [key for key in keys if scales[key] != "nominal"]
    many = {key: frame[key].n_unique() for key in keys}
    if len(continuous) == 1:
        by = tuple(key for key in keys if key not in continuous)
        if frame.select(by).n_unique() <= MOST_PANELS:
            return Layout((continuous[0],), scales[continuous[0]], by)
    chosen = sorted(keys, key=lambda key: -many[key])[:2]  # in order, where they are equal
    down, over = chosen  # the longer side goes down the page
    return Layout((down, over), "nominal", tuple(key for key in keys if key not in chosen))


def sizes_of(frame: pl.DataFrame, by: Sequence[str], value: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return groups in order of appearance, and the sums of the magnitudes of a value in them."""
    size = "".join([*by, "size"])  # like none of the others
    own = frame.select(by).with_columns(finite(frame[value]).abs().alias(size))
    found = own.group_by(by, maintain_order=True).agg(pl.col(size).sum())
    return found.select(by), found[size]


def finite(column: pl.Series) -> pl.Series:
    """Return numbers as floats, and NULL where there are none."""
    found = column.cast(pl.Float64)
    return pl.select(pl.when(found.is_finite()).then(found)).to_series()
