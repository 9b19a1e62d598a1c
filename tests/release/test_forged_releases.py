"""Releases from strangers: what was changed by someone who knows how a release is sealed."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ReleaseFormatError
from dpsql.privacy import Ledger
from dpsql.release import folder, measurements
from dpsql.release.measurements import SCHEMA, decode, encode
from tests.release.saved import SCRIPT, io_parquet, refused, replace_file, reseal

# ── forgery ────────────────────────────────────────────────────────────────────────────────


def forge_measurements(path: Path, which: int) -> None:
    """Move one noisy integer, and write every checksum anew."""
    name = "release.measurements.parquet"
    sources = decode((path / name).read_bytes())
    source = sources[which]
    next(iter(source.values.values())).ravel()[0] += 1
    replace_file(path, name, encode(sources))


def test_forged_measurements_are_noticed_with_the_ledger(session, saved):
    forge_measurements(saved, -1)
    assert list(dpsql.Release.load(saved)) == list(SCRIPT)
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(saved, ledger=session.ledger)


def test_a_receipt_cannot_be_left_out(session, saved):
    """Without one, all that answers rest on must be in the ledger as well."""
    forge_measurements(saved, -1)

    def without(said):
        said.update(ledger=None, budget=None)
        said["mechanism"].update(name=None, title=None)

    reseal(saved, without)
    with pytest.raises(dpsql.LedgerError):
        dpsql.Release.load(saved, ledger=session.ledger)


def test_a_forged_free_release(session, release, tmp_path):
    sql = {"towns": "SELECT town, COUNT(*) AS n FROM people GROUP BY town"}
    session.release(sql, budget=0, out=tmp_path / "free")
    dpsql.Release.load(tmp_path / "free", ledger=session.ledger)
    forge_measurements(tmp_path / "free", 0)
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(tmp_path / "free", ledger=session.ledger)


def test_a_free_release_of_another_table(session, release, tmp_path):
    sql = {"towns": "SELECT town, COUNT(*) AS n FROM people GROUP BY town"}
    session.release(sql, budget=0, out=tmp_path / "free")
    reseal(tmp_path / "free", lambda said: said["table"]["columns"][5]["values"].update(high=99))
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(tmp_path / "free", ledger=session.ledger)


def test_a_forged_frame_disagrees_with_the_measurements(session, saved):
    """The ledger vouches for measurements; whoever wants to be sure of a frame asks again."""
    frame = pl.read_parquet(saved / "born.parquet")
    replace_file(saved, "born.parquet", io_parquet(frame.with_columns(pl.col("n") + 1)))
    loaded = dpsql.Release.load(saved, ledger=session.ledger)
    honest = loaded.query(SCRIPT["born"], confidence=0.9)
    assert_frame_equal(honest, frame, rel_tol=1e-9)
    with pytest.raises(AssertionError):
        assert_frame_equal(loaded["born"], honest, rel_tol=1e-9)


CLAIMS = {
    "budget": lambda said: said["budget"]["asked"].update(amount="1/1000"),
    "charge": lambda said: said["ledger"].update(mu_squared="1/1000"),
    "entry": lambda said: said["ledger"].update(entry=1),
    "request": lambda said: said["ledger"].update(request="ab" * 16),
    "ledger": lambda said: said["ledger"].update(id="ab" * 16),
    "plan": lambda said: said["ledger"]["purpose"].update(plan="ab" * 32),
    "table": lambda said: said["table"]["columns"][5]["values"].update(high=99),
    "unit": lambda said: said["ledger"]["purpose"].update(unit="ab" * 32),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_claims_that_the_ledger_contradicts(session, saved, claim):
    reseal(saved, CLAIMS[claim])
    with pytest.raises((dpsql.LedgerError, ReleaseFormatError)):
        dpsql.Release.load(saved, ledger=session.ledger)


def test_a_purpose_that_no_charge_has_is_damage(saved):
    """It is told of the release: no ledger was asked."""
    reseal(saved, lambda said: said["ledger"]["purpose"].update(plan="none"))
    assert "says something impossible" in refused(saved).message


def test_another_ledger_is_not_enough(saved, tmp_path):
    other = Ledger.open(tmp_path / "other.ledger", dataset="people")
    with pytest.raises(dpsql.LedgerError, match="does not hold"):
        dpsql.Release.load(saved, ledger=other)
    with pytest.raises(dpsql.LedgerError, match="does not hold"):
        dpsql.Release.load(saved, ledger=tmp_path / "other.ledger")
    with pytest.raises(dpsql.LedgerError):
        dpsql.Release.load(saved, ledger=tmp_path / "missing.ledger")


# ── release.json from strangers ────────────────────────────────────────────────────────────

NASTY: list[Any] = [
    None, True, False, -1, 0, 2, 10**30, 10**400, 1.5, -0.0, 1e308, "", "x", "1/0", "-1", "0",
    "1" + "0" * 400, "1/" + "9" * 400, "é\u202e\x00", "\ud800", [], [[]], {},
    {"a": 1}, [1, "x", None],
]  # fmt: skip


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = [here] if here else []
    if isinstance(value, (dict, list)):
        for name, inner in items:
            found += (
                paths(inner, (*here, name)) if isinstance(inner, (dict, list)) else [(*here, name)]
            )
    return found


def mutate(said: dict[str, Any], generator: np.random.Generator) -> None:
    every = paths(said)
    for _ in range(int(generator.integers(1, 3))):
        *outer, last = every[generator.integers(len(every))]
        inner: Any = said
        try:
            for name in outer:
                inner = inner[name]
            if generator.random() < 0.2:
                del inner[last]
            else:
                inner[last] = NASTY[generator.integers(len(NASTY))]
        except (KeyError, IndexError, TypeError):
            continue


def look_at_everything(path: Path) -> None:
    loaded = dpsql.Release.load(path)
    assert isinstance(loaded.summary(), str)
    assert repr(loaded)
    for name in loaded:
        loaded.columns(name)
        loaded[name]
    loaded.query("SELECT COUNT(*) AS n FROM people")


@pytest.mark.parametrize("seed", range(4))
def test_documents_from_strangers(saved, original, seed):
    """Sealed as they should be; what is said may be anything. Only typed errors may come out."""
    generator, taken = np.random.default_rng(seed), 0
    text = (original / "release.json").read_text()
    for _ in range(150):
        (saved / "release.json").write_text(text)
        try:
            reseal(saved, lambda said: mutate(said, generator))
        except UnicodeEncodeError:  # half a character can't even be written
            continue
        with suppress(dpsql.DpsqlError):
            look_at_everything(saved)
            taken += 1
    assert 0 < taken < 150


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "1", '"x"', "{", "[" * 200_000, '{"format":' * 50_000, "NaN",
        '{"format": 1, "format": 1}', '{"format": NaN}', '{"format": 1e999}',
        '{"format": ' + "9" * 5_000 + "}", '{"format": true}', '{"format": 2}', '{"format": null}',
        '{"format": 1, "sha256": 5}', "\ufeff{}",
    ],
    ids=range(18),
)  # fmt: skip
def test_texts_that_are_no_documents(saved, text):
    (saved / "release.json").write_text(text)
    refused(saved)


def test_bytes_that_are_no_text(saved):
    (saved / "release.json").write_bytes(b"\xff\xfe{}")
    refused(saved)


def test_a_document_that_is_too_large(saved):
    with open(saved / "release.json", "r+b") as file:
        file.truncate(folder.MAX_BYTES + 1)
    assert "too large" in refused(saved).message


def test_duplicate_keys_and_numbers_that_are_none(saved):
    text = (saved / "release.json").read_text()
    for change in (
        ('"vintage": ', '"vintage": "x",\n  "vintage": '),
        ('"rmse": ', '"rmse": NaN, "old": '),
        ('"rmse": ', '"rmse": Infinity, "old": '),
        ('"rmse": ', '"rmse": 1e999, "old": '),
    ):
        assert change[0] in text
        (saved / "release.json").write_text(text.replace(*change, 1))
        refused(saved)


def of_all_columns(values):
    return {name: values(name, dtype) for name, dtype in SCHEMA.items()}


def nothing(_, dtype):
    values = pl.Series([[] if isinstance(dtype, pl.List) else None], dtype=dtype)
    return values.new_from_index(0, 3_000_000)


def one_list(name, dtype):
    return pl.Series([[0] * 3_000_000 if name == "data" else None], dtype=dtype)


BOMBS = {
    "a column of zeros": lambda: {"x": np.zeros(3_000_000, dtype=np.int64)},
    "all columns": lambda: of_all_columns(nothing),
    "one long list": lambda: of_all_columns(one_list),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_of_many_values_is_refused_unread(saved, monkeypatch, bomb):
    monkeypatch.setattr(measurements, "MAX_VALUES", 2_000_000)
    content = io_parquet(pl.DataFrame(BOMBS[bomb]()))
    assert len(content) < 50_000
    for name in ("release.measurements.parquet", "born.parquet"):
        replace_file(saved, name, content)

    def read(*_, **__):
        raise AssertionError("it was read")

    monkeypatch.setattr(pq.ParquetFile, "read", read)
    refused(saved)
    with pytest.raises(ValueError, match="can be read"):
        measurements.read_parquet(content, ["x"], 4)


def test_a_frame_that_is_not_what_is_said(saved):
    other = io_parquet(pl.DataFrame({"n": [1.0]}))
    replace_file(saved, "born.parquet", other)
    loaded = dpsql.Release.load(saved)
    with pytest.raises(ReleaseFormatError, match="does not hold"):
        loaded["born"]
    many = pl.DataFrame({name: [1.0] * 5 for name in ["n", "more"]})
    replace_file(saved, "born.parquet", io_parquet(many))
    with pytest.raises(ReleaseFormatError, match="does not hold"):
        dpsql.Release.load(saved)["born"]
    replace_file(saved, "born.parquet", b"PAR1 and nothing else PAR1")
    loaded = dpsql.Release.load(saved)
    with pytest.raises(ReleaseFormatError, match="can't be read"):
        loaded["born"]
    assert not math.isnan(loaded["towns"]["n"][0])
