"""Releases on disk: a folder that appears at once and complete, and is read with suspicion.

The folder has a Parquet file for each statement, the noisy integers of the release (and of those
on whose measurements it rests as well), and `release.json`, with the SHA-256 of every file.

Whoever can write the folder can also write new checksums. What can't be forged is in the ledger:
its chain of hashes holds the digest of the noisy integers, see `check_ledger`.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from dpsql.errors import LedgerError, ReleaseFormatError, ResourceLimitError, printable
from dpsql.planner.reconstruction.sources import Source
from dpsql.privacy import Entry, Ledger
from dpsql.privacy.files import sync_folder
from dpsql.privacy.purpose import ChargedTable
from dpsql.release.changes import same_columns, unchanged
from dpsql.release.document import MAX_BYTES, DescribedColumn, DescribedFile, malformed, read, write
from dpsql.release.drafts import draft_of, sweep
from dpsql.release.facts import Earlier, Facts
from dpsql.release.frames import DESCRIBED, Frames, slices
from dpsql.release.measurements import decode, encode
from dpsql.release.parquet import read_parquet
from dpsql.release.tables import identity_of
from dpsql.schema import Table

DOCUMENT = "release.json"
MEASUREMENTS = "release.measurements.parquet"
"""No statement's file can have this name, which has two dots."""
BATCH = 1_000_000
MAX_NAME = 64

_PORTS = (f"{kind}{i}" for kind in ("com", "lpt") for i in range(10))
_RESERVED = frozenset({"con", "prn", "aux", "nul", *_PORTS})
"""Names that Windows keeps for devices."""
_FILE = re.compile(r"[a-z0-9_]{1,80}\.parquet")


def file_names(statements: Iterable[str]) -> dict[str, str]:
    """Give each statement a file name that is safe everywhere: statement → file."""
    found: dict[str, str] = {}
    for statement in statements:
        base = re.sub(r"[^a-z0-9]+", "_", statement.lower())[:MAX_NAME].strip("_") or "query"
        base = f"{base}_" if base in _RESERVED else base
        name, number = base, 1
        while f"{name}.parquet" in found.values():
            number += 1
            name = f"{base}_{number}"
        found[statement] = f"{name}.parquet"
    return found


def check_target(path: Path) -> None:
    """Check that a release could be written to a folder, before anything is charged for it.

    Raises:
        ReleaseFormatError: it exists and isn't an empty folder, or can't be made.
    """
    with _system_errors(path):
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise _exists(path)
        sweep(path)
        with draft_of(path) as draft:
            draft.rmdir()


def save(facts: Facts, frames: Frames, content: bytes, path: Path) -> Path:
    """Write a release, with its noisy integers as `encode` writes them; see `Release.save`."""
    with _system_errors(path):
        check_target(path)
        with draft_of(path) as draft:
            files = _write_all(frames, content, draft)
            _write(draft / DOCUMENT, write(facts, files).encode())
            sync_folder(draft)
            try:
                os.rename(draft, path)  # onto nothing, or an empty folder: atomic in both cases
            except OSError:
                if path.exists():
                    raise _exists(path) from None
                raise
        sync_folder(path.parent)
    return path


def _exists(path: Path) -> ReleaseFormatError:
    return ReleaseFormatError(
        f"{printable(str(path))} exists already.",
        hint="name a folder that doesn't; nothing is overwritten.",
    )


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system raises into a `ReleaseFormatError`."""
    try:
        yield
    except FileNotFoundError:
        raise ReleaseFormatError(
            f"{printable(str(path))}: there is no such folder, or none above it.",
            hint="create the folder above first, or check the path.",
        ) from None
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "the path can't be used"
        raise ReleaseFormatError(
            f"{printable(str(path))} can't be used: {what}.",
            hint="check the free space and the rights on the folder above.",
        ) from None


def _write_all(frames: Frames, content: bytes, folder: Path) -> dict[str, DescribedFile]:
    """Write all data files; say of each what it holds."""
    files: dict[str, DescribedFile] = {}
    for statement, name in file_names(frames.names).items():
        rows = _write_frame(frames, statement, folder / name)
        columns = tuple(DescribedColumn(**row) for row in frames.columns(statement).to_dicts())
        files[name] = DescribedFile(
            statement=statement, rows=rows, columns=columns, sha256=_hash(folder / name)
        )
    _write(folder / MEASUREMENTS, content)
    files[MEASUREMENTS] = DescribedFile(statement=None, sha256=_hash(folder / MEASUREMENTS))
    return files


def _write_frame(frames: Frames, statement: str, path: Path) -> int:
    """Write one frame, in batches if it is too large to be held; return its rows."""
    try:
        frame = frames.frame(statement)
    except ResourceLimitError:
        return _write_batches(frames, statement, path)
    content = io.BytesIO()
    frame.write_parquet(content)
    _write(path, content.getbuffer())
    return frame.height


def _write_batches(frames: Frames, statement: str, path: Path) -> int:
    import pyarrow.parquet as pq  # slow to import, and needed for large frames only

    rows, writer = 0, None
    with _created(path) as handle:
        for batch in frames.batches(statement, BATCH):
            table = batch.to_arrow()
            writer = writer or pq.ParquetWriter(handle, table.schema)
            writer.write_table(table)
            rows += batch.height
        if writer is not None:
            writer.close()
    return rows


@contextmanager
def _created(path: Path) -> Iterator[Any]:
    """Create a file, and see it on disk."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write(path: Path, content: bytes | memoryview) -> None:
    with _created(path) as file:
        file.write(content)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ── reading ────────────────────────────────────────────────────────────────────────────────


class StoredFrames:
    """Frames in a folder; each is checked again when it is read."""

    def __init__(self, files: Mapping[str, tuple[Path, DescribedFile]]) -> None:
        self._files = files

    @property
    def names(self) -> tuple[str, ...]:
        """The statements, in order."""
        return tuple(self._files)

    def frame(self, name: str) -> pl.DataFrame:
        """Read a frame.

        Raises:
            KeyError: there is no such statement.
            ReleaseFormatError: the file was changed.
        """
        path, said = self._files[name]
        with _system_errors(path):
            content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != said.sha256:
            raise malformed(f"{path.name} was changed")
        try:
            return read_parquet(content, [c.column for c in said.columns], said.rows)
        except ValueError:
            raise malformed(
                f"{path.name} can't be read, or does not hold what release.json says"
            ) from None

    def batches(self, name: str, rows: int) -> Iterator[pl.DataFrame]:
        """Yield slices of the frame."""
        yield from slices(self.frame(name), rows)

    def columns(self, name: str) -> pl.DataFrame:
        """Describe the columns of a frame."""
        columns = [msgspec.structs.astuple(c) for c in self._files[name][1].columns]
        return pl.DataFrame(columns, schema=dict.fromkeys(DESCRIBED, pl.String), orient="row")


def load(path: Path) -> tuple[Facts, StoredFrames, bytes]:
    """Read a release, and check every file; see `Release.load`.

    Returns:
        Facts, frames, and the noisy integers as they were written.
    """
    with _system_errors(path):
        facts, said = read(_document(path / DOCUMENT))
        for name, file in said.items():
            _check_name(name, file)
            _check_plain(path / name)
            if _hash(path / name) != file.sha256:
                raise malformed(f"{name} was changed")
        frames = {
            file.statement: (path / name, file)
            for name, file in said.items()
            if file.statement is not None
        }
        if MEASUREMENTS not in said or set(frames) != set(facts.statements):
            raise malformed("files are missing")
        content = (path / MEASUREMENTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != said[MEASUREMENTS].sha256:
        raise malformed("the measurements were changed")
    return facts, StoredFrames(frames), content


def _document(path: Path) -> str:
    """Read release.json, which is a text of limited length."""
    _check_plain(path)
    if path.stat().st_size > MAX_BYTES:
        raise malformed("release.json is too large")
    try:
        return path.read_bytes().decode("utf-8", errors="strict")
    except UnicodeDecodeError:
        raise malformed("release.json is not a text") from None


def _check_plain(path: Path) -> None:
    """Refuse links, which lead elsewhere, and pipes and devices, which never end."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise malformed(f"{path.name} is not a plain file")


def _check_name(name: str, file: DescribedFile) -> None:
    """Check that release.json names no file outside of the folder, and says whose each is."""
    if not _FILE.fullmatch(name) and name != MEASUREMENTS:
        raise malformed("release.json names a file that can't be")
    if (file.statement is None) != (name == MEASUREMENTS):
        raise malformed("release.json does not say whose file one is")


def check_ledger(facts: Facts, content: bytes, ledger: Ledger) -> None:
    """Check that a ledger vouches for a release: for its charge, its table and what was measured.

    What a ledger did not keep, because it was too large, can't be compared.

    Raises:
        LedgerError: it does not.
    """
    entries = {entry.request: entry for entry in ledger.entries()}
    places = [_place(entries.get(e.request)) for e in facts.earlier]
    if places != list(facts.earlier):
        raise _forged()
    receipt = facts.receipt
    requests = [e.request for e in facts.earlier]
    if receipt is not None:
        ledger.verify(receipt)
        requests.append(receipt.request)
        said = None if facts.budget is None else facts.budget.mu_squared
        if said != receipt.mu_squared:
            raise _forged()
    elif facts.budget is not None:
        raise _forged()
    held, sources = [entries[request] for request in requests], decode(content)
    parts = _by_entry(facts, sources)
    if len(parts) != len(held) or not _are_of(facts, held, parts):
        raise _forged()
    for entry, part in zip(held, parts, strict=True):
        kept = ledger.content(entry)
        if kept is not None and encode(_kept_of(decode(kept), part)) != encode(part):
            raise _forged()


def _kept_of(kept: Sequence[Source], part: Sequence[Source]) -> list[Source]:
    """Return what is kept of the tables that a part is about.

    What was measured of a table alone doesn't say which one that was; its charge does.
    """
    if any(source.table for source in kept):
        named = {source.table for source in part}
        return [source for source in kept if source.table in named]
    return [replace(source, table=part[0].table) for source in kept]


def _by_entry(facts: Facts, sources: Sequence[Source]) -> list[Sequence[Source]]:
    """Divide sources by the charges for them: the last has what was measured of all tables.

    The rounds of an adaptive release have one entry together, too.
    """
    if facts.adaptive:
        return [sources]
    apart = len(sources) if facts.receipt is None else -len(facts.tables)
    own = [sources[apart:]] if facts.receipt is not None else []
    return [*((source,) for source in sources[:apart]), *own]


def _are_of(facts: Facts, held: Sequence[Entry], parts: Sequence[Sequence[Source]]) -> bool:
    """Whether charges were for the same rows, and measurements fit tables as they are described.

    Earlier ones may be of further tables, whose totals were compared with those of the release.
    Nothing is said of how these are described: it has to be the same for all charges.
    """
    several = {identity_of(table): table for table in facts.tables} if facts.others else {}
    asked = {"", *map(identity_of, facts.tables)}
    beside: dict[str, ChargedTable] = {}
    rows: dict[str, tuple[str, str, str]] = {}
    for entry, part in zip(held, parts, strict=True):
        own = facts.receipt is not None and entry is held[-1]
        if own and not several.keys() <= {source.table for source in part}:
            return False
        for source in part:
            if not own and source.table not in asked:
                other = entry.purpose.of(source.table)
                if other is None or beside.setdefault(source.table, other) != other:
                    return False
                continue
            (first, *others) = entry.purpose.tables
            charged = entry.purpose.of(source.table) if source.table or others else first
            table = several.get(source.table) if several else facts.table
            if charged is None or table is None:
                return False
            if rows.setdefault(charged.table if several else "", charged.rows) != charged.rows:
                return False
            if not _is_described(charged, source, table, own=own):
                return False
    return True


def _is_described(charged: ChargedTable, source: Source, table: Table, *, own: bool) -> bool:
    """Whether a table is described as it was when it was charged for and measured.

    A charge has the description of what is stored. How columns are described that were measured of
    a view, or of rows that are made of stored ones, is kept with the measurements.
    """
    stored = table.stored
    if charged.schema != stored.fingerprint:
        return not own and unchanged(source, table)
    if table.fingerprint == stored.fingerprint:
        return True
    return table.contributions == stored.contributions and same_columns(source, table)


def _place(entry: Entry | None) -> Earlier | None:
    return None if entry is None else Earlier.of(entry)


def _forged() -> LedgerError:
    return LedgerError(
        "The ledger holds something else for this release: the release was changed.",
        hint="get the folder again from whoever published it.",
    )
