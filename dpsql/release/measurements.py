"""Noisy measurements as a Parquet table, for ledgers and for releases on disk.

A row is one of: a `space` that was measured (its attributes, the noise and the noisy integers), a
`factor` of the strategy of a block, the `reference` of an attribute, whose name may be followed by
a context, the `pivots` that tell contexts apart, the `cells` into which the values of an attribute
were merged, which `rows` counted: those with a value of the domain in every
named column, what was `described`: a hash of the domain of every column of the table, or where it
is cut, by which rule rows of units were `kept`, which `table` they are of if there are several
(a digest), or the `reading`: how answers follow. Rows of one
release have one number `source`; but sums of a measure have numbers of their own, after that of the
release, and a row `measure` with the measure and the largest magnitude of what a row adds.
All is read back with suspicion: files come from strangers.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import polars as pl

from dpsql.errors import DpsqlError, InternalError, ReleaseFormatError
from dpsql.linalg.arrays import Ints
from dpsql.measurement.distributions import CoarseGaussian, Gaussian, Laplace, Law
from dpsql.measurement.factors import CenteredFactor, DenseFactor, IdentityFactor, IntegerFactor
from dpsql.measurement.strategy import BlockStrategy
from dpsql.measurement.units import UnitFactor
from dpsql.planner.reconstruction.sources import Reading, Source
from dpsql.planner.residuals.contexts import References
from dpsql.planner.residuals.references import Reference
from dpsql.release.parquet import read_parquet
from dpsql.schema.cuts import CUT_AT, DERIVED, lines_of

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
LAPLACE = "laplace "
"""Stands before the scale of Laplace noise; a number alone is the variance of Gaussian noise."""
COARSE = "coarse "
"""Stands before the bits that are rounded off and the variance of noise in wide integers."""
IDENTITY = "identity "
"""Stands before the scale of an identity; a number alone is that of a centered identity."""
UNITS = "units "
"""Stands before the three numbers of a strategy for counts of units: see `UnitFactor`."""
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
    }
)
MAX_DIGITS = 100
"""Of a number in decimal text: noise variances are below 2^300."""

_HASH = re.compile(f"(?:{DERIVED})?[0-9a-f]{{64}}|{DERIVED}{CUT_AT}")


class _ParquetRow(NamedTuple):
    source: int
    kind: str
    block: int
    names: list[str]
    axes: list[int]
    shape: list[int]
    number: str
    data: Ints


def encode(sources: Sequence[Source]) -> bytes:
    """Write the measurements of one or more releases.

    Raises:
        InternalError: one has no values: it was only planned.
    """
    rows: list[_ParquetRow] = []
    numbers = itertools.count()
    for source in (looked_at.kept or looked_at for looked_at in sources):
        rows += _rows(next(numbers), source)
        for measure, sums in source.measures.items():
            number, nothing = next(numbers), np.zeros(0, dtype=np.int64)
            bound = str(sums.bound)
            rows.append(_ParquetRow(number, "measure", -1, [measure], [], [], bound, nothing))
            rows += _rows(number, sums)
    columns = [
        pl.Series(name, [getattr(row, name) for row in rows], dtype=dtype)
        for name, dtype in SCHEMA.items()
    ]
    written = io.BytesIO()
    pl.DataFrame(columns).write_parquet(written, compression="zstd", statistics=False)
    return written.getvalue()


def _rows(number: int, source: Source) -> Iterator[_ParquetRow]:
    if source.values is None:
        raise InternalError("measurements that were not made can't be written")
    for i, block in enumerate(source.blocks):
        for names in block.spaces:
            values = source.values[frozenset(names)]
            shape, law = list(values.shape), _written(block.law)
            yield _ParquetRow(number, "space", i, list(names), [], shape, law, values.ravel())
        for factor in block.factors:
            yield _factor_row(number, i, factor)
    references, nothing = References.of(source.references), np.zeros(0, dtype=np.int64)
    for name, reference in references.items():
        yield _reference_row(number, [name], reference)
    for (name, context), reference in references.special.items():
        yield _reference_row(number, [name, *sorted(context)], reference)
    if references.pivots:
        yield _ParquetRow(number, "pivots", -1, sorted(references.pivots), [], [], "", nothing)
    yield _ParquetRow(number, "rows", -1, sorted(source.guards), [], [], "", nothing)
    for name, domain in source.described.items():
        yield _ParquetRow(number, "described", -1, [name], [], [], domain, nothing)
    if source.kept_by:
        yield _ParquetRow(number, "kept", -1, [source.kept_by], [], [], "", nothing)
    if source.table:
        yield _ParquetRow(number, "table", -1, [source.table], [], [], "", nothing)
    yield _ParquetRow(number, "reading", -1, [source.reading], [], [], "", nothing)
    yield _ParquetRow(number, "rests_on", -1, list(source.rests_on), [], [], "", nothing)
    for name, n in source.sizes.items():
        classes = source.merged.get(name, np.zeros(0, dtype=np.int64))
        yield _ParquetRow(number, "cells", -1, [name], [], [n], "", classes)


def _reference_row(number: int, names: list[str], reference: Reference) -> _ParquetRow:
    n, numerators = len(reference.weights), None if reference.uniform else reference.numerators
    data = np.zeros(0, dtype=np.int64) if numerators is None else numerators
    return _ParquetRow(number, "reference", -1, names, [], [n], "", data)


def _factor_row(number: int, block: int, factor: IntegerFactor) -> _ParquetRow:
    axes, shape = list(factor.axes), list(factor.shape)
    nothing = np.zeros(0, dtype=np.int64)
    if factor.kind == DenseFactor.kind:
        return _ParquetRow(number, "factor", block, [], axes, shape, "", factor.matrix.ravel())
    if isinstance(factor, UnitFactor):
        units = f"{UNITS}{factor.own} {factor.all} {factor.most}"
        return _ParquetRow(number, "factor", block, [], axes, shape, units, nothing)
    scale = IDENTITY * (factor.kind == IdentityFactor.kind) + str(factor.scale)
    return _ParquetRow(number, "factor", block, [], axes, shape, scale, nothing)


def decode(content: bytes) -> tuple[Source, ...]:
    """Read what `encode` wrote.

    Raises:
        ReleaseFormatError: it is not that.
    """
    try:
        frame = read_parquet(content, SCHEMA)
        if dict(frame.schema) != SCHEMA or frame.null_count().sum_horizontal()[0]:
            raise _malformed()
        numbers = frame["source"].unique(maintain_order=True).to_list()
        if numbers != list(range(len(numbers))):
            raise _malformed()
        return _together(_source(frame.filter(pl.col("source") == i)) for i in numbers)
    except DpsqlError:
        raise
    except (
        pl.exceptions.PolarsError, InternalError, ValueError, KeyError, OverflowError, IndexError,
        TypeError, MemoryError,
    ):  # fmt: skip
        raise _malformed() from None


def _together(found: Iterable[tuple[str | None, Source]]) -> tuple[Source, ...]:
    """Give sums of measures to the release that comes before them."""
    sources: list[Source] = []
    for measure, source in found:
        if measure is None:
            sources.append(source)
            continue
        before = sources[-1]
        if measure in before.measures or any(measure in s.sizes for s in (before, source)):
            raise _malformed()
        with_axis = {n | {measure}: y[..., None] for n, y in (source.values or {}).items()}
        sources[-1] = replace(
            before,
            measures={**before.measures, measure: source},
            values={**(before.values or {}), **with_axis},
        )
        _ = sources[-1].measured  # makes the blocks that were paid for, which check the bound
    return tuple(sources)


def _malformed() -> ReleaseFormatError:
    return ReleaseFormatError(
        "The measurements can't be read: they are damaged, or of another version.",
        hint="use the release as it was written.",
    )


def _source(frame: pl.DataFrame) -> tuple[str | None, Source]:
    rows = frame.drop("data").iter_rows(named=True)
    kinds: dict[str, list[tuple[dict[str, Any], Ints]]] = defaultdict(list)
    for row, data in zip(rows, frame["data"], strict=True):
        kinds[row["kind"]].append((row, data.to_numpy().copy()))
    if set(kinds) - KINDS:
        raise _malformed()
    ((counted, _),), ((rested, _),), ((how, _),) = (
        kinds[kind] for kind in ("rows", "rests_on", "reading")
    )
    (reading,) = how["names"]
    if reading not in get_args(Reading):
        raise _malformed()
    sizes, merged = {}, {}
    for row, data in kinds["cells"]:
        (name,), (sizes[name],) = row["names"], row["shape"]
        if data.size:
            merged[name] = _classes(data, sizes[name])
    references = _references(kinds["reference"], kinds["pivots"])
    blocks, values = _blocks(kinds["space"], kinds["factor"])
    guards = frozenset(counted["names"])
    rests_on = tuple(rested["names"])
    described = dict(_described(row) for row, _ in kinds["described"])
    lines_of(described)  # which raises where cuts don't ascend
    kept, table = (_said(kinds.get(kind, ())) for kind in ("kept", "table"))
    if table and not _HASH.fullmatch(table):
        raise _malformed()
    source = Source(
        blocks,
        references,
        sizes,
        merged,
        values,
        guards,
        described,
        rests_on,
        reading,
        kept_by=kept,
        table=table,
    )
    _check(source)
    if "measure" not in kinds:
        return None, source
    ((row, _),) = kinds["measure"]
    (measure,) = row["names"]
    return measure, replace(source, bound=_whole(row["number"]))


def _said(rows: Rows) -> str:
    """Read the one text of a kind; empty if there is none."""
    (found,) = [name for row, _ in rows for name in row["names"]] or [""]
    return str(found)


def _described(row: dict[str, Any]) -> tuple[str, str]:
    (name,), domain = row["names"], row["number"]
    if domain and not _HASH.fullmatch(domain):
        raise _malformed()
    return name, domain


def _classes(data: Ints, count: int) -> Ints:
    if data.min() < 0 or int(data.max()) + 1 != count or len(np.unique(data)) != count:
        raise _malformed()
    return data


Rows = Sequence[tuple[dict[str, Any], Ints]]


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
            raise _malformed()
        if len(reference.weights) != len(usual[name].weights):
            raise _malformed()
    return References(usual, pivots, special)


def _reference(row: dict[str, Any], data: Ints) -> Reference:
    (n,) = row["shape"]
    if n < 1:
        raise _malformed()
    if not data.size:
        return Reference.of_cells(n)
    if len(data) != n or int(data.sum()) < 1:
        raise _malformed()
    return Reference.of_integers(data)


def _blocks(
    spaces: Rows, factors: Rows
) -> tuple[tuple[BlockStrategy, ...], dict[frozenset[str], Ints]]:
    by_block: dict[int, list[IntegerFactor]] = defaultdict(list)
    for row, data in factors:
        by_block[row["block"]].append(_factor(row, data))
    named: dict[int, list[tuple[str, ...]]] = defaultdict(list)
    laws: dict[int, Law] = {}
    values: dict[frozenset[str], Ints] = {}
    for row, data in spaces:
        number, names, law = row["block"], tuple(row["names"]), _law(row["number"])
        if frozenset(names) in values or laws.setdefault(number, law) != law:
            raise _malformed()
        named[number].append(names)
        values[frozenset(names)] = data.reshape(row["shape"])
    if set(named) != set(by_block):
        raise _malformed()
    blocks = tuple(
        BlockStrategy(tuple(named[i]), tuple(by_block[i]), laws[i]) for i in sorted(named)
    )
    return blocks, values


def _factor(row: dict[str, Any], data: Ints) -> IntegerFactor:
    axes, shape = tuple(row["axes"]), tuple(row["shape"])
    if row["number"].startswith(IDENTITY):
        return IdentityFactor(axes, shape, _whole(row["number"].removeprefix(IDENTITY)))
    if row["number"].startswith(UNITS):
        own, all_, most = map(_whole, row["number"].removeprefix(UNITS).split(" "))
        return UnitFactor(axes, shape, own, all_, most)
    if row["number"]:
        return CenteredFactor(axes, shape, _whole(row["number"]))
    return DenseFactor(axes, shape, data.reshape(-1, math.prod(shape)))


def _written(law: Law) -> str:
    if isinstance(law, CoarseGaussian):
        return f"{COARSE}{law.shift} {law.squared}"
    return LAPLACE * isinstance(law, Laplace) + str(law.width)


def _law(text: str) -> Law:
    if text.startswith(COARSE):
        shift, squared = text.removeprefix(COARSE).split(" ")
        return CoarseGaussian(_whole(squared), _whole(shift))
    if text.startswith(LAPLACE):
        return Laplace(_whole(text.removeprefix(LAPLACE)))
    return Gaussian(_whole(text))


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


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > MAX_DIGITS:
        raise _malformed()
    return int(text)


def _check(source: Source) -> None:
    """Check that all parts of a source fit together."""
    if any(n < 1 for n in source.sizes.values()) or not _readable(source):
        raise _malformed()
    for block in source.blocks:
        rows = tuple(f.measurements for f in block.factors)
        for names in block.spaces:
            if any(source.sizes.get(a) != n for a, n in zip(names, block.shape, strict=True)):
                raise _malformed()
            if source.values is None or source.values[frozenset(names)].shape != rows:
                raise _malformed()
    for name, reference in source.references.items():
        if source.sizes.get(name) != len(reference.weights):
            raise _malformed()
    known = set(source.references) if source.references else set(source.attributes)
    if set(source.sizes) != set(source.attributes) or not source.attributes <= known:
        raise _malformed()
