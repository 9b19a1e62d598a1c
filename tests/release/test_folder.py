"""Releases on disk: written whole or not at all, read back equal, and read with suspicion."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ReleaseFormatError
from dpsql.privacy import Ledger
from dpsql.release import document, folder, frames
from dpsql.release.measurements import decode, encode

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
TABLE = """
    CREATE TYPE sex AS ENUM ('F', 'M', 'it''s "x", ü');
    CREATE TABLE people (
        sex sex, born DATE NOT NULL, height DECIMAL(4, 1) NOT NULL, member BOOLEAN,
        town VARCHAR, age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 9));
    INSERT INTO people
    SELECT CASE WHEN i % 5 > 0 THEN ['F', 'M', 'it''s "x", ü'][i % 3 + 1] END,
        DATE '2020-01-01' + (i % 4)::INTEGER, 1.5 + i % 3, i % 2 = 0,
        ['a', 'b''c', '"d"'][i % 3 + 1], i % 10
    FROM range(200) AS t(i);
"""
SCHEMA = dpsql.Schema(
    {
        "people": {
            "born": dpsql.Domain.dates("2020-01-01", "2020-01-04"),
            "height": dpsql.Domain.decimals("1.5", "4.5", step="1.0"),
            "town": dpsql.Domain.labels(["a", "b'c", '"d"'], nullable=True),
        }
    }
)
SCRIPT = {
    "by sex": "SELECT sex, member, COUNT(*) AS n FROM people GROUP BY sex, member",
    "born": "SELECT born, height, COUNT(*) AS n FROM people GROUP BY born, height",
    "towns": "SELECT town, AVG(age) AS mean, COUNT(*) AS n FROM people GROUP BY town ORDER BY n",
    "median": "SELECT member, MEDIAN(age) AS m FROM people GROUP BY member",
}


def connect() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(TABLE).fetchall()
    return con


@pytest.fixture(scope="module")
def session():
    return dpsql.Session(connect(), schema=SCHEMA, vintage="2026-Q4")


@pytest.fixture(scope="module")
def release(session):
    return session.release(SCRIPT, budget=BUDGET, confidence=0.9)


@pytest.fixture(scope="module")
def original(release, tmp_path_factory):
    return release.save(tmp_path_factory.mktemp("saved") / "release")


@pytest.fixture
def saved(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")


def refused(path: Path, **options: Any) -> dpsql.DpsqlError:
    with pytest.raises(ReleaseFormatError) as caught:
        dpsql.Release.load(path, **options)
    assert caught.value.hint
    return caught.value


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change release.json as someone would who knows how it is sealed."""
    said = json.loads((path / "release.json").read_text())
    said.pop("sha256")
    change(said)
    said["sha256"] = document._digest(said)
    text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    (path / "release.json").write_text(text)


def replace_file(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    digest = folder._hash(path / name)
    reseal(path, lambda said: said["files"][name].update(sha256=digest))


# ── round trips ────────────────────────────────────────────────────────────────────────────


def assert_same(one: dpsql.Release, other: dpsql.Release) -> None:
    assert list(one) == list(other)
    for name in one:
        assert_frame_equal(one[name], other[name], check_exact=True)
        assert_frame_equal(one.columns(name), other.columns(name))
    assert one.charged == other.charged
    assert one.charged.form == other.charged.form
    assert one.receipt == other.receipt
    assert one.neighbours == other.neighbours
    assert one.summary() == other.summary()


def test_round_trip(release, session, original, tmp_path, monkeypatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("loading opens no database")

    with monkeypatch.context() as patched:
        patched.setattr(duckdb, "connect", never)
        loaded = dpsql.Release.load(original, ledger=session.ledger)
        assert_same(release, loaded)
    assert loaded.plan is None
    assert loaded["by sex"].schema["sex"] == pl.Enum(["F", "M", 'it\'s "x", ü'])
    assert loaded["born"].schema["born"] == pl.Date
    assert loaded["born"].schema["height"].is_decimal()
    assert loaded["by sex"]["member"].null_count() == 4
    for sql in (*SCRIPT.values(), "SELECT COUNT(*) AS n FROM people WHERE town = 'b''c'"):
        assert_frame_equal(release.query(sql), loaded.query(sql), rel_tol=1e-9)

    again = dpsql.Release.load(loaded.save(tmp_path / "again"), ledger=session.ledger)
    assert_same(release, again)
    for file in os.listdir(original):
        assert (original / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_a_free_release_is_saved_and_loaded(session, release, tmp_path):
    sql = {"towns": "SELECT town, COUNT(*) AS n FROM people GROUP BY town"}
    free = session.release(sql, budget=0, out=tmp_path / "free")
    loaded = dpsql.Release.load(tmp_path / "free", ledger=session.ledger)
    assert loaded.charged is None
    assert loaded.receipt is None
    assert_frame_equal(free["towns"], loaded["towns"])
    assert loaded.summary() == free.summary()
    assert "nothing was charged" in loaded.summary()
    assert f"entry {release.receipt.seq}" in loaded.summary()


def test_large_frames_are_written_in_batches(release, tmp_path, monkeypatch):
    expected = release["born"]
    sql = {"born": SCRIPT["born"]}
    fresh = dpsql.Session(connect(), schema=SCHEMA).release(sql, budget=BUDGET)
    expected = fresh["born"]
    fresh._frames._frames.clear()
    with monkeypatch.context() as patched:
        patched.setattr(frames, "MAX_CELLS", 5)
        patched.setattr(folder, "BATCH", 5)
        with pytest.raises(dpsql.ResourceLimitError):
            fresh["born"]
        fresh.save(tmp_path / "large")
    loaded = dpsql.Release.load(tmp_path / "large")
    assert_frame_equal(loaded["born"], expected)
    batches = list(loaded.batches("born", 5))
    assert [b.height for b in batches] == [5, 5, 5, 1]
    assert_frame_equal(pl.concat(batches), expected)


def test_nothing_in_the_folder_can_run(original):
    names = sorted(os.listdir(original))
    assert names == [
        "born.parquet", "by_sex.parquet", "median.parquet", "release.json",
        "release.measurements.parquet", "towns.parquet",
    ]  # fmt: skip
    for name in names:
        head = (original / name).read_bytes()[:4]
        assert head == (b"PAR1" if name.endswith(".parquet") else b"{\n  ")
        assert (original / name).stat().st_mode & 0o777 == 0o600


# ── names ──────────────────────────────────────────────────────────────────────────────────

HOSTILE_NAMES = [
    "../../etc/x", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\x00b", "con", "NUL.txt",
    "a", "a!", "release", "release.json", "release.measurements", "é" * 300, "x" * 300,
    "x" * 301, "\u202etxt.exe", "~root", "$(id)", "-rf", "a\nb",
]  # fmt: skip


def test_statement_names_stay_in_the_folder(tmp_path):
    sql = "SELECT COUNT(*) AS n FROM people"
    statements = dict.fromkeys(HOSTILE_NAMES, sql)
    session = dpsql.Session(connect(), schema=SCHEMA)
    (tmp_path / "inner").mkdir()
    release = session.release(statements, budget=BUDGET, out=tmp_path / "inner" / "out")
    assert os.listdir(tmp_path) == ["inner"]
    assert os.listdir(tmp_path / "inner") == ["out"]
    files = os.listdir(tmp_path / "inner" / "out")
    assert len(files) == len(HOSTILE_NAMES) + 2
    stems = {name.split(".")[0] for name in files}
    assert not stems & {"con", "nul", ""}
    assert all(name.isascii() and len(name) < 100 and name == name.lower() for name in files)
    loaded = dpsql.Release.load(tmp_path / "inner" / "out", ledger=session.ledger)
    assert list(loaded) == HOSTILE_NAMES
    assert_frame_equal(loaded["../../etc/x"], release["../../etc/x"])
    assert loaded.summary().isprintable() or "\x00" not in loaded.summary()


@pytest.mark.parametrize(
    "name", ["../outside.parquet", "/etc/passwd", "sub/by_sex.parquet", "..", "", "a\x00.parquet"]
)
def test_files_outside_of_the_folder_are_not_read(saved, name):
    (saved.parent / "outside.parquet").write_bytes((saved / "by_sex.parquet").read_bytes())
    (saved / "sub").mkdir()
    shutil.copy(saved / "by_sex.parquet", saved / "sub")

    def rename(said: dict[str, Any]) -> None:
        said["files"][name] = said["files"].pop("by_sex.parquet")

    reseal(saved, rename)
    refused(saved)


@pytest.mark.parametrize("name", ["by_sex.parquet", "release.json", "release.measurements.parquet"])
@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_only_plain_files_are_read(saved, name, kind):
    os.rename(saved / name, saved.parent / name)
    if kind == "link":
        (saved / name).symlink_to(saved.parent / name)
    elif kind == "fifo":
        os.mkfifo(saved / name)
    else:
        (saved / name).mkdir()
    refused(saved)


# ── targets ────────────────────────────────────────────────────────────────────────────────


def occupy(path: Path, how: str) -> Path:
    if how == "file":
        path.write_text("mine")
    elif how == "folder":
        path.mkdir()
        (path / "mine").write_text("mine")
    elif how == "link":
        (path.parent / "elsewhere").mkdir()
        path.symlink_to(path.parent / "elsewhere")
    elif how == "dangling link":
        path.symlink_to(path.parent / "nowhere")
    elif how == "no parent":
        return path / "below"
    elif how == "parent is a file":
        path.write_text("mine")
        return path / "below"
    elif how == "null":
        return Path(f"{path}\x00")
    elif how == "long":
        return path.with_name("x" * 300)
    elif how == "here":
        return path.parent / "."
    return path


def snapshot(path: Path) -> list[tuple[str, bytes]]:
    return sorted((str(p), p.read_bytes() if p.is_file() else b"") for p in path.rglob("*"))


OCCUPIED = [
    "file", "folder", "link", "dangling link", "no parent", "parent is a file", "null", "long",
    "here",
]  # fmt: skip


@pytest.mark.parametrize("how", OCCUPIED)
def test_targets_that_cannot_be_written_are_refused_before_the_charge(release, tmp_path, how):
    (tmp_path / "kept").write_text("kept")
    target = occupy(tmp_path / "out", how)
    before = snapshot(tmp_path)
    session = dpsql.Session(connect(), schema=SCHEMA)
    with pytest.raises(ReleaseFormatError) as caught:
        session.release(SCRIPT, budget=BUDGET, out=target)
    assert caught.value.hint
    assert "\x00" not in str(caught.value)
    assert session.ledger.entries() == ()
    with pytest.raises(ReleaseFormatError):
        release.save(target)
    assert snapshot(tmp_path) == before


def test_an_empty_folder_is_a_target(release, tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    assert release.save("out") == Path("out")
    assert_same(release, dpsql.Release.load("out"))
    assert os.listdir(tmp_path) == ["out"]


def test_a_target_that_appears_in_between_is_not_overwritten(session, tmp_path, monkeypatch):
    """Another process makes the folder after the check: what it wrote stays."""
    real = folder._sync

    def sync(path: Path) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "theirs").write_text("theirs")
        real(path)

    spent, sql = session.ledger.spent, {"born": SCRIPT["born"]}
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_sync", sync)
        with pytest.raises(ReleaseFormatError, match="exists already"):
            session.release(sql, budget=BUDGET, out=tmp_path / "out")
    assert snapshot(tmp_path) == [
        (str(tmp_path / "out"), b""), (str(tmp_path / "out" / "theirs"), b"theirs")
    ]  # fmt: skip
    later = session.release(sql, budget=BUDGET, out=tmp_path / "second")
    assert session.ledger.spent == spent + later.receipt.mu_squared
    assert session.ledger.entries()[-1].state == "delivered"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(release, tmp_path):
    (tmp_path / "closed").mkdir(0o500)
    with pytest.raises(ReleaseFormatError, match="ermission"):
        release.save(tmp_path / "closed" / "out")


class Failing:
    """Lets one call of the operating system fail."""

    def __init__(self, name: str, after: int) -> None:
        self.real, self.left = getattr(os, name), after

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*arguments, **options)


def failing_save(release: dpsql.Release, path: Path) -> bool:
    """Save, and return whether that went well; if not, the error must say why."""
    try:
        release.save(path)
    except ReleaseFormatError as error:
        caught = error
    else:
        return True
    assert "No space left" in caught.message
    assert "free space" in caught.hint
    return False


@pytest.mark.parametrize("call", ["mkdir", "open", "fsync", "rename"])
def test_a_full_disk_leaves_nothing(release, tmp_path, monkeypatch, call):
    """Wherever the disk is full; then, with space, all is well."""
    for after in range(20):
        with monkeypatch.context() as patched:
            patched.setattr(os, call, Failing(call, after))
            if failing_save(release, tmp_path / "out"):
                break
        assert [p.name for p in tmp_path.iterdir()] in ([], ["out"])
        if (tmp_path / "out").exists():  # all that failed is to make its name durable
            assert_same(release, dpsql.Release.load(tmp_path / "out"))
            shutil.rmtree(tmp_path / "out")
    assert 0 < after < 19
    assert_same(release, dpsql.Release.load(tmp_path / "out"))


def test_files_may_not_grow(release, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(ReleaseFormatError, match="too large"):
            release.save(tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


# ── damage ─────────────────────────────────────────────────────────────────────────────────

FILES = ["born.parquet", "release.json", "release.measurements.parquet", "towns.parquet"]


@pytest.mark.parametrize("name", FILES)
def test_any_changed_byte_is_noticed(saved, name):
    content = (saved / name).read_bytes()
    generator = np.random.default_rng(len(content))
    places = {0, len(content) - 1, *generator.integers(len(content), size=100).tolist()}
    if name == "release.json":  # also where it doesn't change what the JSON says
        places |= {i for i, byte in enumerate(content) if byte in b" \n"} if len(content) else set()
        places = set(sorted(places)[:400:2]) | {len(content) - 1}
    for place in places:
        changed = bytearray(content)
        flip = 0x20 ^ 0x09 if content[place : place + 1] == b" " else generator.integers(1, 256)
        changed[place] ^= int(flip)
        (saved / name).write_bytes(changed)
        refused(saved)
    (saved / name).write_bytes(content)
    assert list(dpsql.Release.load(saved)) == list(SCRIPT)


@pytest.mark.parametrize("name", FILES)
def test_half_written_files(saved, name):
    content = (saved / name).read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 1):
        (saved / name).write_bytes(content[:length])
        refused(saved)
    (saved / name).write_bytes(content + b"\n")
    refused(saved)
    (saved / name).unlink()
    refused(saved)


def test_what_is_no_release(tmp_path):
    refused(tmp_path)
    refused(tmp_path / "nothing")
    (tmp_path / "release.json").write_text("{}")
    refused(tmp_path)
    refused(tmp_path / "release.json")
    refused(Path(f"{tmp_path}\x00"))


def test_a_file_that_changes_after_loading(saved):
    loaded = dpsql.Release.load(saved)
    (saved / "born.parquet").write_bytes((saved / "towns.parquet").read_bytes())
    with pytest.raises(ReleaseFormatError, match="was changed"):
        loaded["born"]
    with pytest.raises(KeyError):
        loaded["nothing"]


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
    reseal(saved, lambda said: said.update(ledger=None, budget=None))
    with pytest.raises(dpsql.LedgerError):
        dpsql.Release.load(saved, ledger=session.ledger)


def test_a_forged_free_release(session, release, tmp_path):
    sql = {"towns": "SELECT town, COUNT(*) AS n FROM people GROUP BY town"}
    session.release(sql, budget=0, out=tmp_path / "free")
    dpsql.Release.load(tmp_path / "free", ledger=session.ledger)
    forge_measurements(tmp_path / "free", 0)
    with pytest.raises(dpsql.LedgerError, match="was changed"):
        dpsql.Release.load(tmp_path / "free", ledger=session.ledger)


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
        file.truncate(document.MAX_BYTES + 1)
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


def test_a_frame_that_is_not_what_is_said(saved):
    other = io_parquet(pl.DataFrame({"n": [1.0]}))
    replace_file(saved, "born.parquet", other)
    loaded = dpsql.Release.load(saved)
    with pytest.raises(ReleaseFormatError, match="does not hold"):
        loaded["born"]
    replace_file(saved, "born.parquet", b"PAR1 and nothing else PAR1")
    loaded = dpsql.Release.load(saved)
    with pytest.raises(ReleaseFormatError, match="can't be read"):
        loaded["born"]
    assert not math.isnan(loaded["towns"]["n"][0])


def io_parquet(frame: pl.DataFrame) -> bytes:
    import io

    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()
