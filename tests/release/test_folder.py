"""Releases on disk: written whole or not at all, and read back equal."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.answers import frames
from dpsql.errors import ReleaseFormatError
from dpsql.present import disk, formats
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, assert_same, connect, refused, reseal

# ── round trips ────────────────────────────────────────────────────────────────────────────


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


def test_adjusted_columns_are_saved_and_loaded(tmp_path):
    session, sql = dpsql.Session(connect(), schema=SCHEMA), {"born": SCRIPT["born"]}
    options = {"nonnegative": True, "integers": True}
    release = session.release(sql, budget=BUDGET, out=tmp_path / "out", **options)
    loaded = dpsql.Release.load(tmp_path / "out", ledger=session.ledger)
    assert_same(release, loaded)
    adjusted = loaded["born"]["n_adjusted"]
    assert adjusted.min() >= 0
    assert (adjusted == adjusted.round()).all()
    roles = dict(loaded.columns("born").select("column", "role").rows())
    assert roles == {"born": "key", "height": "key", "n": "value", "n_adjusted": "adjusted"}
    assert "biased" in loaded.summary()
    again = session.release(sql, budget=0, **options)
    assert_frame_equal(again["born"], release["born"], rel_tol=1e-9)


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
        patched.setattr(formats, "BATCH", 5)
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
    with pytest.raises((ReleaseFormatError, dpsql.ArgumentError)) as caught:
        session.release(SCRIPT, budget=BUDGET, out=target)
    assert isinstance(caught.value, dpsql.ArgumentError) == (how == "null")
    assert caught.value.hint
    assert "\x00" not in str(caught.value)
    assert session.ledger.entries() == ()
    with pytest.raises(type(caught.value)):
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
    real = disk.sync_folder

    def sync(path: Path) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out" / "theirs").write_text("theirs")
        real(path)

    spent, sql = session.ledger.spent, {"born": SCRIPT["born"]}
    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_folder", sync)
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


def test_what_killed_processes_left_is_removed(release, tmp_path):
    """By whoever writes to the same name, and nothing else."""
    code = (
        "import os, sys; from pathlib import Path; from dpsql.present.disk import draft_of\n"
        "with draft_of(Path(sys.argv[1])) as draft:\n"
        "    (draft / 'noisy.parquet').write_text('1'); print(draft.name, flush=True); os._exit(9)"
    )
    out, other = tmp_path / "out[1]", tmp_path / "out[1].b"
    for place in (out, other):
        subprocess.run([sys.executable, "-c", code, place], check=False)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert [name.startswith(".out[1].") for name in left] == [True, True]
    elsewhere = tmp_path / left[0].replace(left[0].split(".")[2].split("_")[0], "0" * 16)
    unlike = tmp_path / ".out[1].notes"
    with disk.draft_of(out) as own:  # of this process: another thread may be at work
        for folder_ in (elsewhere, unlike):
            folder_.mkdir()
        release.save(out)
        names = {path.name for path in tmp_path.iterdir()}
    assert own.name in names
    assert {elsewhere.name, unlike.name, out.name} <= names
    assert len(names & set(left)) == 1
    release.save(other)
    assert {p.name for p in tmp_path.iterdir()} == {
        "out[1]", "out[1].b", elsewhere.name, unlike.name,
    }  # fmt: skip


@pytest.mark.parametrize("moment", range(3))
def test_an_interrupt_leaves_no_draft(tmp_path, monkeypatch, moment):
    real, calls = Path.mkdir, []

    def mkdir(self, *args, **kwargs):
        calls.append(self)
        if moment == 0:
            raise KeyboardInterrupt
        real(self, *args, **kwargs)
        if moment == 1:
            raise KeyboardInterrupt

    def use():
        with disk.draft_of(tmp_path / "out") as draft:
            (draft / "noisy.parquet").write_text("1")
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(KeyboardInterrupt):
        use()
    assert calls
    assert list(tmp_path.iterdir()) == []


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
    with pytest.raises(dpsql.ArgumentError):
        dpsql.Release.load(Path(f"{tmp_path}\x00"))


def test_a_file_that_changes_after_loading(saved):
    loaded = dpsql.Release.load(saved)
    (saved / "born.parquet").write_bytes((saved / "towns.parquet").read_bytes())
    with pytest.raises(ReleaseFormatError, match="was changed"):
        loaded["born"]
    with pytest.raises(KeyError):
        loaded["nothing"]
