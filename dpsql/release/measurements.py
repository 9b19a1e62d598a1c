"""Noisy measurements as a Parquet table, for ledgers and for releases on disk.

A row is one of: a `space` that was measured (its attributes, the noise and the noisy integers), a
`factor` of the strategy of a block, the `reference` of an attribute, whose name may be followed by
a context, the `pivots` that tell contexts apart, the `cells` into which the values of an attribute
were merged, which `rows` counted: those with a value of the domain in every
named column, what was `described`: a hash of the domain of every column of the table, or where it
is cut, by which rule rows of units were `kept`, which `table` they are of if there are several
(a digest), a `difference` of the totals of two of them, or the `reading`: how answers follow. Rows
of one release have one number `source`; but sums of a measure have numbers of their own, after that
of the release, and a row `measure` with the measure and the largest magnitude of what a row adds.
All is read back with suspicion: files come from strangers.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import polars as pl

from dpsql.engines.base import LOW_BITS
from dpsql.errors import DpsqlError, InternalError, ReleaseFormatError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.differences import Condition, Difference
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace, Law
from dpsql.measurement.factors import (
    CenteredFactor,
    DenseFactor,
    IdentityFactor,
    IntegerFactor,
    UnitFactor,
)
from dpsql.measurement.narrow import MOST_KEPT, Kept, kept_integers
from dpsql.measurement.strategy import BlockStrategy
from dpsql.planner.reconstruction.sources import Reading, Source
from dpsql.planner.residuals.references import Reference
from dpsql.planner.residuals.spaces import References
from dpsql.schema.domain import CUT_AT, DERIVED, lines_of

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


# ── Parquet files from strangers, read into frames ───────────────────────────────────────────────
#
# They are read by Arrow. Polars' own reader ends the whole process when a file claims to need more
# memory than there is. A small file may hold very many equal values, so what it says to hold is
# compared with what is expected before any of it is read.


MAX_VALUES = 1 << 27
"""The most values, of lists one by one, that are read where the number of rows isn't known."""


def read_parquet(content: bytes, columns: Collection[str], rows: int | None = None) -> pl.DataFrame:
    """Read a Parquet file.

    Args:
        content: the file.
        columns: the names that its columns must have, those and no others if `rows` is None.
        rows: how many it must have, of plain values.

    Raises:
        ValueError: it is damaged, is not Parquet, or holds something other than is expected.
    """
    import pyarrow as pa  # slow to import, and needed for what was kept only
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if not _is_expected(file, columns, rows):
            raise ValueError
        table = file.read(use_threads=False)
        table.validate(full=True)
        frame = pl.from_arrow(table)
    except (
        pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError,
        pl.exceptions.PolarsError, pl.exceptions.PanicException,
    ):  # fmt: skip
        raise ValueError("not a Parquet file that can be read") from None
    if not isinstance(frame, pl.DataFrame):
        raise ValueError("not a table")
    return frame


def _is_expected(file: ParquetFile, columns: Collection[str], rows: int | None) -> bool:
    """Compare the footer of a file with what is expected of it."""
    names: list[str] = file.schema_arrow.names
    footer = file.metadata
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    counted: int = sum(group.num_rows for group in groups)
    values: int = sum(g.column(i).num_values for g in groups for i in range(g.num_columns))
    if rows is None:
        plain = names == list(columns) and counted == int(footer.num_rows)
        return plain and values <= MAX_VALUES
    return set(columns) <= set(names) and counted == rows and values <= rows * len(names)


# ── Strategies as rows of the table of measurements: factors, noise, and differences of totals ───
#
# What is read may be forged, so that all that doesn't fit is refused.


LAPLACE = "laplace "
"""Stands before the scale of Laplace noise; a number alone is the variance of Gaussian noise."""
COARSE = "coarse "
"""Stands before the bits that are rounded off and the variance of noise in wide integers."""
IDENTITY = "identity "
"""Stands before the scale of an identity; a number alone is that of a centered identity."""
UNITS = "units "
"""Stands before the three numbers of a strategy for counts of units: see `UnitFactor`."""
MAX_DIGITS = 100
"""Digits of a number in decimal text: noise variances are below 2^300."""
_LOW = (1 << LOW_BITS) - 1


class ParquetRow(NamedTuple):
    """A row of the table."""

    source: int
    kind: str
    block: int
    names: list[str]
    axes: list[int]
    shape: list[int]
    number: str
    data: Ints


Rows = Sequence[tuple[dict[str, Any], Ints]]


def malformed() -> ReleaseFormatError:
    """Return the error for what wasn't written here."""
    return ReleaseFormatError(
        "The measurements can't be read: they are damaged, or of another version.",
        hint="use the release as it was written.",
    )


def factor_row(number: int, block: int, factor: IntegerFactor) -> ParquetRow:
    """Write a factor of a block."""
    axes, shape = list(factor.axes), list(factor.shape)
    nothing = np.zeros(0, dtype=np.int64)
    if factor.kind == DenseFactor.kind:
        return ParquetRow(number, "factor", block, [], axes, shape, "", factor.matrix.ravel())
    if isinstance(factor, UnitFactor):
        units = f"{UNITS}{factor.own} {factor.all} {factor.most}"
        return ParquetRow(number, "factor", block, [], axes, shape, units, nothing)
    scale = IDENTITY * (factor.kind == IdentityFactor.kind) + str(factor.scale)
    return ParquetRow(number, "factor", block, [], axes, shape, scale, nothing)


def factor_of(row: dict[str, Any], data: Ints) -> IntegerFactor:
    """Read a factor."""
    axes, shape = tuple(row["axes"]), tuple(row["shape"])
    if row["number"].startswith(IDENTITY):
        return IdentityFactor(axes, shape, whole_of(row["number"].removeprefix(IDENTITY)))
    if row["number"].startswith(UNITS):
        each, all_, most = map(whole_of, row["number"].removeprefix(UNITS).split(" "))
        return UnitFactor(axes, shape, each, all_, most)
    if row["number"]:
        return CenteredFactor(axes, shape, whole_of(row["number"]))
    return DenseFactor(axes, shape, data.reshape(-1, math.prod(shape)))


def written(noisy: Kept) -> Ints:
    """Write noisy integers. If not all fit 64 bits, first the higher words of all, then the lower.

    An integer is 2^28 times its higher word, and its lower one, which is from 0 to 2^28 − 1.
    """
    if noisy.dtype == np.int64:
        return noisy.ravel().astype(np.int64)
    values = noisy.ravel().tolist()
    high = [value >> LOW_BITS for value in values]
    return np.array(high + [value & _LOW for value in values], dtype=np.int64)


def read(data: Ints, shape: Sequence[int]) -> Kept:
    """Read what was `written`."""
    if data.size != 2 * math.prod(shape) or not data.size:
        return data.reshape(shape)
    high, low = np.split(data, 2)
    most = MOST_KEPT >> LOW_BITS
    if low.min() < 0 or low.max() > _LOW or high.min() < -most or high.max() > most:
        raise malformed()
    pairs = zip(high.tolist(), low.tolist(), strict=True)
    return kept_integers([(upper << LOW_BITS) + lower for upper, lower in pairs], shape)


def difference_rows(
    number: int, differences: Sequence[Difference], values: Mapping[frozenset[str], Kept]
) -> Iterator[ParquetRow]:
    """Write differences of totals, with their noisy numbers, and conditions for rows of them."""
    for place, one in enumerate(differences):
        times, most, law = list(one.times), list(one.rows), written_law(one.law)
        noisy = written(values[one.space])
        yield ParquetRow(number, "difference", -1, list(one.tables), times, most, law, noisy)
        for table, of in one.sides:
            if of is not None:
                names, cells = [table, *of.attributes], of.counted.astype(np.int64).ravel()
                yield ParquetRow(number, "condition", place, names, [], [*of.shape], "", cells)


def differences_of(
    rows: Rows, said: Rows
) -> tuple[tuple[Difference, ...], dict[frozenset[str], Kept]]:
    """Read differences of totals, with their noisy numbers, and conditions for rows of them."""
    differences: dict[Difference, Kept] = {}
    conditions = dict(_condition(row, data) for row, data in said)
    for place, (row, data) in enumerate(rows):
        (first, second), law = row["names"], law_of(row["number"])
        (a, b), (k, m) = row["axes"], row["shape"]
        if not isinstance(law, Gaussian):
            raise malformed()
        of = conditions.pop((place, first), None), conditions.pop((place, second), None)
        differences[Difference((first, second), (a, b), (k, m), law, of)] = read(data, (1,))
    values = {difference.space: data for difference, data in differences.items()}
    if len(values) < len(rows) or conditions:
        raise malformed()
    return tuple(differences), values


def _condition(row: Mapping[str, Any], data: Ints) -> tuple[tuple[int, str], Condition]:
    """Read a condition, with the place of the difference that it is of and the table."""
    table, *names = row["names"]
    shape = tuple(row["shape"])
    if len(data) != math.prod(shape) or not np.isin(data, (0, 1)).all():
        raise malformed()
    of = Condition(tuple(names), shape, data.astype(np.uint8).tobytes())
    return (row["block"], table), of


def written_law(law: Law) -> str:
    """Write a law of noise."""
    if isinstance(law, CoarseGaussian):
        return f"{COARSE}{law.shift} {law.squared}"
    return LAPLACE * isinstance(law, Laplace) + str(law.width)


def law_of(text: str) -> Law:
    """Read a law of noise."""
    if text.startswith(COARSE):
        shift, squared = text.removeprefix(COARSE).split(" ")
        return CoarseGaussian(whole_of(squared), whole_of(shift))
    if text.startswith(LAPLACE):
        return Laplace(whole_of(text.removeprefix(LAPLACE)))
    return Gaussian(whole_of(text))


def whole_of(text: str) -> int:
    """Read a whole number that isn't negative."""
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise malformed()
    return int(text)


SCHEMA: dict[str, pl.DataType] = {
    "source": pl.Int64(),
    "kind": pl.String(),
    "block": pl.Int64(),
    "names": pl.List(pl.String),
    "axes": pl.List(pl.Int64),
    "shape": pl.List(pl.Int64),
    "number": pl.String(),
    "data": pl.List(pl.Int64),
}
KINDS = frozenset(
    {
        "space",
        "factor",
        "reference",
        "pivots",
        "cells",
        "rows",
        "described",
        "rests_on",
        "reading",
        "measure",
        "kept",
        "table",
        "difference",
        "condition",
    }
)
_HASH = re.compile(f"(?:{DERIVED})?[0-9a-f]{{64}}|{DERIVED}{CUT_AT}")


def encode(sources: Sequence[Source]) -> bytes:
    """Write the measurements of one or more releases.

    Raises:
        InternalError: one has no values: it was only planned.
    """
    rows: list[ParquetRow] = []
    numbers = itertools.count()
    for source in (looked_at.kept or looked_at for looked_at in sources):
        rows += _rows(next(numbers), source)
        for measure, sums in source.measures.items():
            number, nothing = next(numbers), np.zeros(0, dtype=np.int64)
            bound = str(sums.bound)
            rows.append(ParquetRow(number, "measure", -1, [measure], [], [], bound, nothing))
            rows += _rows(number, sums)
    columns = [
        pl.Series(name, [getattr(row, name) for row in rows], dtype=dtype)
        for name, dtype in SCHEMA.items()
    ]
    content = io.BytesIO()
    pl.DataFrame(columns).write_parquet(content, compression="zstd", statistics=False)
    return content.getvalue()


def _rows(number: int, source: Source) -> Iterator[ParquetRow]:
    if source.values is None:
        raise InternalError("measurements that were not made can't be written")
    for i, block in enumerate(source.blocks):
        for names in block.spaces:
            values = source.values[frozenset(names)]
            shape, law = list(values.shape), written_law(block.law)
            yield ParquetRow(number, "space", i, list(names), [], shape, law, written(values))
        for factor in block.factors:
            yield factor_row(number, i, factor)
    references, nothing = References.of(source.references), np.zeros(0, dtype=np.int64)
    for name, reference in references.items():
        yield _reference_row(number, [name], reference)
    for (name, context), reference in references.special.items():
        yield _reference_row(number, [name, *sorted(context)], reference)
    if references.pivots:
        yield ParquetRow(number, "pivots", -1, sorted(references.pivots), [], [], "", nothing)
    yield ParquetRow(number, "rows", -1, sorted(source.guards), [], [], "", nothing)
    for name, domain in source.described.items():
        yield ParquetRow(number, "described", -1, [name], [], [], domain, nothing)
    if source.kept_by:
        yield ParquetRow(number, "kept", -1, [source.kept_by], [], [], "", nothing)
    if source.table:
        yield ParquetRow(number, "table", -1, [source.table], [], [], "", nothing)
    yield from difference_rows(number, source.differences, source.values)
    yield ParquetRow(number, "reading", -1, [source.reading], [], [], "", nothing)
    yield ParquetRow(number, "rests_on", -1, list(source.rests_on), [], [], "", nothing)
    for name, n in source.sizes.items():
        classes = source.merged.get(name, np.zeros(0, dtype=np.int64))
        yield ParquetRow(number, "cells", -1, [name], [], [n], "", classes)


def _reference_row(number: int, names: list[str], reference: Reference) -> ParquetRow:
    n, numerators = len(reference.weights), None if reference.uniform else reference.numerators
    data = np.zeros(0, dtype=np.int64) if numerators is None else numerators
    return ParquetRow(number, "reference", -1, names, [], [n], "", data)


def decode(content: bytes) -> tuple[Source, ...]:
    """Read what `encode` wrote.

    Raises:
        ReleaseFormatError: it is not that.
    """
    try:
        frame = read_parquet(content, SCHEMA)
        if dict(frame.schema) != SCHEMA or frame.null_count().sum_horizontal()[0]:
            raise malformed()
        numbers = frame["source"].unique(maintain_order=True).to_list()
        if numbers != list(range(len(numbers))):
            raise malformed()
        return _together(_source(frame.filter(pl.col("source") == i)) for i in numbers)
    except DpsqlError:
        raise
    except (
        pl.exceptions.PolarsError, InternalError, ValueError, KeyError, OverflowError, IndexError,
        TypeError, MemoryError,
    ):  # fmt: skip
        raise malformed() from None


def _together(parts: Iterable[tuple[str | None, Source]]) -> tuple[Source, ...]:
    """Give sums of measures to the release that comes before them."""
    sources: list[Source] = []
    for measure, source in parts:
        if measure is None:
            sources.append(source)
            continue
        before = sources[-1]
        if measure in before.measures or any(measure in s.sizes for s in (before, source)):
            raise malformed()
        with_axis = {n | {measure}: y[..., None] for n, y in (source.values or {}).items()}
        sources[-1] = replace(
            before,
            measures={**before.measures, measure: source},
            values={**(before.values or {}), **with_axis},
        )
        _ = sources[-1].measured  # makes the blocks that were paid for, which check the bound
    return tuple(sources)


def _source(frame: pl.DataFrame) -> tuple[str | None, Source]:
    rows = frame.drop("data").iter_rows(named=True)
    kinds: dict[str, list[tuple[dict[str, Any], Ints]]] = defaultdict(list)
    for row, data in zip(rows, frame["data"], strict=True):
        kinds[row["kind"]].append((row, data.to_numpy().copy()))
    if set(kinds) - KINDS:
        raise malformed()
    ((counted, _),), ((rested, _),), ((how, _),) = (
        kinds[kind] for kind in ("rows", "rests_on", "reading")
    )
    (reading,) = how["names"]
    if reading not in get_args(Reading):
        raise malformed()
    sizes, merged = {}, {}
    for row, data in kinds["cells"]:
        (name,), (sizes[name],) = row["names"], row["shape"]
        if data.size:
            merged[name] = _classes(data, sizes[name])
    references = _references(kinds["reference"], kinds["pivots"])
    blocks, values = _blocks(kinds["space"], kinds["factor"])
    said = kinds.get("condition", [])
    differences, compared = differences_of(kinds["difference"], said)
    guards = frozenset(counted["names"])
    rests_on = tuple(rested["names"])
    described = dict(_described(row) for row, _ in kinds["described"])
    lines_of(described)  # which raises where cuts don't ascend
    kept, table = (_said(kinds.get(kind, ())) for kind in ("kept", "table"))
    if table and not _HASH.fullmatch(table):
        raise malformed()
    source = Source(
        blocks,
        references,
        sizes,
        merged,
        {**values, **compared},
        guards,
        described,
        rests_on,
        reading,
        kept_by=kept,
        table=table,
        differences=differences,
    )
    _check(source)
    if "measure" not in kinds:
        return None, source
    ((row, _),) = kinds["measure"]
    (measure,) = row["names"]
    return measure, replace(source, bound=whole_of(row["number"]))


def _said(rows: Rows) -> str:
    """Read the one text of a kind; empty if there is none."""
    (found,) = [name for row, _ in rows for name in row["names"]] or [""]
    return str(found)


def _described(row: dict[str, Any]) -> tuple[str, str]:
    (name,), domain = row["names"], row["number"]
    if domain and not _HASH.fullmatch(domain):
        raise malformed()
    return name, domain


def _classes(data: Ints, count: int) -> Ints:
    if data.min() < 0 or int(data.max()) + 1 != count or len(np.unique(data)) != count:
        raise malformed()
    return data


def _references(rows: Rows, told_apart: Rows) -> References:
    usual: dict[str, Reference] = {}
    special: dict[tuple[str, frozenset[str]], Reference] = {}
    for row, data in rows:
        (name, *context), reference = row["names"], _reference(row, data)
        if context:
            special[name, frozenset(context)] = reference
        else:
            usual[name] = reference
    pivots = frozenset(name for row, _ in told_apart for name in row["names"])
    for (name, where), reference in special.items():
        if name in pivots or name not in usual or not where <= pivots:
            raise malformed()
        if len(reference.weights) != len(usual[name].weights):
            raise malformed()
    return References(usual, pivots, special)


def _reference(row: dict[str, Any], data: Ints) -> Reference:
    (n,) = row["shape"]
    if n < 1:
        raise malformed()
    if not data.size:
        return Reference.of_cells(n)
    if len(data) != n or int(data.sum()) < 1:
        raise malformed()
    return Reference.of_integers(data)


def _blocks(
    spaces: Rows, factors: Rows
) -> tuple[tuple[BlockStrategy, ...], dict[frozenset[str], Kept]]:
    by_block: dict[int, list[IntegerFactor]] = defaultdict(list)
    for row, data in factors:
        by_block[row["block"]].append(factor_of(row, data))
    named: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    laws: dict[int, Law] = {}
    values: dict[frozenset[str], Kept] = {}
    for row, data in spaces:
        number, names, law = row["block"], tuple(row["names"]), law_of(row["number"])
        if frozenset(names) in values or laws.setdefault(number, law) != law:
            raise malformed()
        named[number].append(names)
        values[frozenset(names)] = read(data, row["shape"])
    if set(named) != set(by_block):
        raise malformed()
    blocks = tuple(
        BlockStrategy(tuple(named[i]), tuple(by_block[i]), laws[i]) for i in sorted(named)
    )
    return blocks, values


def _readable(source: Source) -> bool:
    """Whether all factors are of a kind from which answers follow in the source's way."""
    factors = [f for block in source.blocks for f in block.factors]
    kinds = {"pooled": IdentityFactor.kind, "adaptive": CenteredFactor.kind}
    if source.reading in kinds:
        # The total's own factor is of one cell.
        others = [f for f in factors if f.kind != DenseFactor.kind or f.matrix.shape != (1, 1)]
        return all(f.kind == kinds[source.reading] for f in others)
    identities = any(f.kind == IdentityFactor.kind for f in factors)
    return source.reading == "marginals" or not identities


def _check(source: Source) -> None:
    """Check that all parts of a source fit together."""
    fitting = (
        all(n >= 1 for n in source.sizes.values())
        and _readable(source)
        and all(_fits_block(source, block) for block in source.blocks)
        and all(_fits_difference(source, one) for one in source.differences)
        and all(source.sizes.get(a) == len(of.weights) for a, of in source.references.items())
        and set(source.sizes) == set(source.attributes)
        and (not source.references or source.attributes <= set(source.references))
    )
    if not fitting:
        raise malformed()


def _fits_block(source: Source, block: BlockStrategy) -> bool:
    """Whether what was measured of a block has the shape that its factors and attributes say."""
    if source.values is None:
        return False
    rows = tuple(f.measurements for f in block.factors)
    return all(
        tuple(map(source.sizes.get, names)) == tuple(block.shape)
        and source.values[frozenset(names)].shape == rows
        for names in block.spaces
    )


def _fits_difference(source: Source, difference: Difference) -> bool:
    """Whether a difference is of the table of the source, over cells that this has."""
    if source.table not in difference.tables or not all(map(_HASH.fullmatch, difference.tables)):
        return False
    side = dict(difference.sides)[source.table]
    return not side or side.shape == tuple(map(source.sizes.get, side.attributes))
