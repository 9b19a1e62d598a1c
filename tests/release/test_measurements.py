"""Noisy measurements as files: an exact round trip, and typed errors for anything else."""

from __future__ import annotations

import io
import math
import pickle
from contextlib import suppress
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import dpsql
from dpsql.answers.requery import requery
from dpsql.engines.base import RULE
from dpsql.errors import DpsqlError, InternalError, ReleaseFormatError
from dpsql.planner.reconstruction.sources import Source
from dpsql.release.measurements import SCHEMA, decode, encode
from dpsql.workload import Identity, Prefix, Workload

BUDGET = dpsql.Budget(rho=Fraction(1, 10))
TABLE = """
    CREATE TABLE people (
        sex ENUM ('F', 'M') NOT NULL, town ENUM ('A', 'B', 'C'),
        age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 19));
    INSERT INTO people
    SELECT ['F', 'M'][i % 2 + 1], CASE WHEN i % 5 > 0 THEN ['A', 'B', 'C'][i % 3 + 1] END, i % 20
    FROM range(200) AS t(i);
"""
SCRIPTS = {
    "cells": "SELECT sex, age, COUNT(*) AS n FROM people GROUP BY sex, age",
    "bands": "SELECT age // 5 AS band, COUNT(*) AS n FROM people GROUP BY ALL",
    "cumulative": "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM people GROUP BY age",
    "guarded": "SELECT town, COUNT(*) AS n FROM people WHERE town IS NOT NULL GROUP BY town",
    "total": "SELECT COUNT(*) AS n FROM people",
}


def released(*names: str) -> dpsql.Release:
    con = duckdb.connect()
    con.execute(TABLE).fetchall()
    session = dpsql.Session(con)
    session.release({name: SCRIPTS[name] for name in names}, budget=BUDGET)
    return session.release({name: SCRIPTS[name] for name in names}, budget=BUDGET)


@pytest.fixture(scope="module")
def release():
    return released("cells", "bands", "cumulative")


@pytest.fixture(scope="module")
def content(release):
    """Measurements of residual spaces, and of joint cells."""
    sources = (*released("cells").sources, release.sources[-1])
    assert {source.whole for source in sources} == {False, True}
    return encode(sources)


def parts(source: Source) -> list[Any]:
    """All that a source says, to be compared."""
    blocks = [
        (b.spaces, b.law.width, [(f.axes, f.shape, f.matrix.tolist()) for f in b.factors])
        for b in source.blocks
    ]
    references = {n: (r.weights.tolist(), r.uniform) for n, r in source.references.items()}
    values = {k: (v.shape, v.dtype, v.tolist()) for k, v in source.values.items()}
    merged = {n: of.tolist() for n, of in source.merged.items()}
    return [
        blocks,
        references,
        dict(source.sizes),
        merged,
        values,
        source.guards,
        dict(source.described),
        source.kept_by,
    ]


@pytest.mark.parametrize("names", [[n] for n in SCRIPTS] + [["cells", "bands"], ["cells", "total"]])
def test_round_trip(names):
    sources = released(*names).sources
    assert sources
    again = decode(encode(sources))
    assert [parts(source) for source in again] == [parts(source) for source in sources]
    assert encode(again) == encode(sources)


def test_by_which_rule_rows_of_units_were_kept():
    con = duckdb.connect()
    con.execute(TABLE).fetchall()
    session = dpsql.Session(con, unit="age", max_rows=2)
    sources = session.release(SCRIPTS["total"], budget=BUDGET).sources
    (again,) = decode(encode(sources))
    assert again.kept_by == sources[0].kept_by == RULE
    twice = pl.read_parquet(io.BytesIO(encode(sources)))
    refused(written(pl.concat([twice, twice.filter(pl.col("kind") == "kept")])))


def test_nothing_at_all():
    assert decode(encode(())) == ()


def test_extreme_numbers():
    from dataclasses import replace

    (source,) = decode(encode(released("total").sources[:1]))
    extremes = [2**63 - 1, -(2**63)]
    for number in extremes:
        values = {k: np.full_like(v, number) for k, v in source.values.items()}
        (again,) = decode(encode((replace(source, values=values),)))
        assert all((v == number).all() for v in again.values.values())


@pytest.mark.parametrize("numbers", [[2**63, 0], [-(2**63) - 1, 5], [2**90, -(2**90)]])
def test_integers_of_more_than_64_bits(numbers):
    """They are written in two words, and those that fit are written as ever."""
    from dataclasses import replace

    (source,) = decode(encode(released("total").sources[:1]))
    values = {k: np.resize(np.array(numbers, object), v.shape) for k, v in source.values.items()}
    content = encode((replace(source, values=values),))
    (again,) = decode(content)
    for names, kept in values.items():
        held = again.values[names].ravel().tolist()
        assert held == kept.ravel().tolist()
        assert all(type(value) is int for value in held)
    frame = pl.read_parquet(io.BytesIO(content))
    data = frame.filter(pl.col("kind") == "space")["data"].to_list()
    assert [len(of) for of in data] == [2 * v.size for v in values.values()]


@pytest.mark.parametrize(
    "words", [[0, 2**28], [0, -1], [2**63 - 1, 0], [-(2**63), 0], [2**62 + 2, 0], [1, 2, 3]]
)
def test_words_that_no_integer_has_are_refused(words):
    content = encode(released("total").sources[:1])
    frame = pl.read_parquet(io.BytesIO(content))
    space = pl.col("kind") == "space"
    forged = pl.when(space).then(pl.lit(words, dtype=pl.List(pl.Int64))).otherwise(pl.col("data"))
    refused(written(frame.with_columns(forged.alias("data"))))


def test_what_was_only_planned_is_not_written():
    from dpsql.planner.reuse.past import source_of

    workload = Workload({"a": 3}).add(["a"], [Identity()]).add(["a"], [Prefix()])
    planned = source_of(dpsql.plan(workload, budget=BUDGET))
    with pytest.raises(InternalError):
        encode((planned,))


# ── what comes from strangers ──────────────────────────────────────────────────────────────


def refused(content: bytes) -> None:
    with pytest.raises(ReleaseFormatError) as caught:
        decode(content)
    assert caught.value.hint


class Trap:
    """Would run code if it were unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("unpickled",)


def test_what_is_no_table_of_measurements(content):
    frame = pl.read_parquet(io.BytesIO(content))
    ipc = io.BytesIO()
    frame.write_ipc(ipc)
    for bad in (
        b"", b"PAR1", b"PAR1" * 3, content[:-1], content[1:], content + b"x", b"x" * 10_000,
        pickle.dumps(Trap()), ipc.getvalue(), b"{}", frame.write_json().encode(),
    ):  # fmt: skip
        refused(bad)


def written(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


def test_other_tables(content):
    frame = pl.read_parquet(io.BytesIO(content))
    others = [
        pl.DataFrame(),
        pl.DataFrame({"a": [1]}),
        frame.drop("data"),
        frame.with_columns(extra=pl.lit(1)),
        frame.with_columns(pl.col("source").cast(pl.Int32)),
        frame.with_columns(pl.col("number").cast(pl.Categorical)),
        frame.with_columns(pl.col("data").cast(pl.List(pl.Float64))),
        frame.with_columns(source=pl.lit(1, pl.Int64)),
        frame.with_columns(source=pl.lit(None, pl.Int64)),
        frame.with_columns(kind=pl.lit("other")),
        frame.with_columns(pl.col("kind").str.to_uppercase()),
        pl.concat([frame, frame]),
        frame.reverse(),
    ]
    for kind in frame["kind"].unique().to_list():
        if kind == "described":  # what isn't described goes with no other description
            continue
        if kind != "reference":  # without any it says that joint cells were measured
            others.append(frame.filter(pl.col("kind") != kind))
        first = frame.with_row_index().filter(pl.col("kind") == kind)["index"][0]
        others.append(frame.with_row_index().filter(pl.col("index") != first).drop("index"))
    for other in others:
        refused(written(other))


NUMBERS = [0, -1, 1, 2, 3, 7, 2**31, 2**62, -(2**63), 2**63 - 1]
TEXTS = [
    "",
    "0",
    "-1",
    "1",
    "x",
    "9" * 40,
    "9" * 41,
    "1/2",
    "٣",
    " 1",
    "1e5",
    "NaN",
    "sex",
    "ü\x00",
]


def mutated(value: Any, generator: np.random.Generator) -> Any:
    """Change a value of a row into another one of its type."""
    texts = isinstance(value, str) or (isinstance(value, list) and generator.random() < 0.5)
    if isinstance(value, str):
        return TEXTS[generator.integers(len(TEXTS))]
    if isinstance(value, int):
        return NUMBERS[generator.integers(len(NUMBERS))]
    changed = list(value)
    pool = TEXTS if texts and (not changed or isinstance(changed[0], str)) else NUMBERS
    new = pool[generator.integers(len(pool))]
    how = generator.integers(4)
    if how == 0 or not changed:
        changed.insert(int(generator.integers(len(changed) + 1)), new)
    elif how == 1:
        changed.pop(int(generator.integers(len(changed))))
    elif how == 2:
        changed[int(generator.integers(len(changed)))] = new
    else:
        changed.reverse()
    return changed


def of_type(name: str, value: Any) -> bool:
    inner = getattr(SCHEMA[name], "inner", None)
    kind = str if inner == pl.String or SCHEMA[name] == pl.String else int
    items = value if isinstance(value, list) else [value]
    return isinstance(value, list) == (inner is not None) and all(type(v) is kind for v in items)


@pytest.mark.parametrize("seed", range(4))
def test_tables_with_impossible_rows(release, content, seed):
    """Either it is refused as it is read, or all that is done with it fails in a typed way."""
    generator, refusals = np.random.default_rng(seed), 0
    rows = pl.read_parquet(io.BytesIO(content)).rows(named=True)
    names = list(SCHEMA)
    for _ in range(60):
        changed = [dict(row) for row in rows]
        row = changed[generator.integers(len(changed))]
        name = names[generator.integers(len(names))]
        value = mutated(row[name], generator)
        if not of_type(name, value):
            continue
        row[name] = value
        forged = written(pl.DataFrame(changed, schema=SCHEMA))
        try:
            sources = decode(forged)
        except ReleaseFormatError:
            refusals += 1
            continue
        with suppress(DpsqlError):
            requery(SCRIPTS["cells"], release.facts.tables, sources, {}, None)
    assert refusals > 12


def check_bytes(content: bytes, count: int, seed: int) -> None:
    generator, taken = np.random.default_rng(seed), 0
    for i in range(count):
        changed = bytearray(content)
        for _ in range(generator.integers(1, 4)):
            near_the_end = generator.integers(len(content) - 600, len(content))
            place = near_the_end if i % 2 else generator.integers(len(content))
            changed[place] = generator.integers(256)
        if i % 5 == 0:
            start = int(generator.integers(len(content)))
            del changed[start : start + int(generator.integers(1, 200))]
        with suppress(ReleaseFormatError):
            decode(bytes(changed))
            taken += 1
    assert taken < count / 2 + 50


def test_bytes_that_were_changed(content):
    check_bytes(content, 1_000, seed=1)


@pytest.mark.long
def test_many_bytes_that_were_changed(content):
    check_bytes(content, 20_000, seed=2)


def test_sizes_that_would_need_too_much_memory(content):
    """What a row claims is not believed before it is compared with what is there."""
    frame = pl.read_parquet(io.BytesIO(content))
    for kind in ("space", "factor", "cells", "reference"):
        for size in (2**31, 2**62, 2**63 - 1):
            shape = pl.when(pl.col("kind") == kind).then(pl.lit([size])).otherwise(pl.col("shape"))
            refused(written(frame.with_columns(shape=shape)))
    assert math.prod(frame.shape) > 0
