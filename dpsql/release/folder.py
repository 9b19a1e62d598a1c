"""Releases on disk: a folder that appears at once and complete, and is read with suspicion.

The folder has a Parquet file for each statement, the noisy integers of the release (and of those
on whose measurements it rests as well), and `release.json`, with the SHA-256 of every file.

Whoever can write the folder can also write new checksums. What can't be forged is in the ledger:
its chain of hashes holds the digest of the noisy integers, see `check_ledger`.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl

from dpsql.errors import LedgerError
from dpsql.planner.reconstruction.sources import Source
from dpsql.privacy import Entry, Ledger
from dpsql.privacy.purpose import ChargedTable
from dpsql.release.changes import same_columns, unchanged
from dpsql.release.disk import digest_of, new_folder, plain_names, system_errors
from dpsql.release.disk import write as write_file
from dpsql.release.document import MAX_BYTES, DescribedColumn, DescribedFile, malformed, read, write
from dpsql.release.facts import Earlier, Facts
from dpsql.release.forms import write_parquet
from dpsql.release.frames import DESCRIBED, Frames, slices
from dpsql.release.measurements import decode, encode
from dpsql.release.parquet import read_parquet
from dpsql.release.tables import identity_of
from dpsql.schema import Table

DOCUMENT = "release.json"
MEASUREMENTS = "release.measurements.parquet"
"""No statement's file can have this name, which has two dots."""
_FILE = re.compile(r"[a-z0-9_]{1,80}\.parquet")


def save(facts: Facts, frames: Frames, content: bytes, path: Path) -> Path:
    """Write a release, with its noisy integers as `encode` writes them; see `Release.save`."""
    with new_folder(path) as draft:
        files = _write_all(frames, content, draft)
        write_file(draft / DOCUMENT, write(facts, files).encode())
    return path


def _write_all(frames: Frames, content: bytes, folder: Path) -> dict[str, DescribedFile]:
    """Write all data files; say of each what it holds."""
    files: dict[str, DescribedFile] = {}
    for statement, plain in plain_names(frames.names).items():
        name = f"{plain}.parquet"
        rows = write_parquet(frames, statement, folder / name).rows
        columns = tuple(DescribedColumn(**row) for row in frames.columns(statement).to_dicts())
        files[name] = DescribedFile(
            statement=statement, rows=rows, columns=columns, sha256=digest_of(folder / name)
        )
    write_file(folder / MEASUREMENTS, content)
    files[MEASUREMENTS] = DescribedFile(statement=None, sha256=digest_of(folder / MEASUREMENTS))
    return files


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
        with system_errors(path):
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
    with system_errors(path):
        facts, said = read(_document(path / DOCUMENT))
        for name, file in said.items():
            _check_name(name, file)
            _check_plain(path / name)
            if digest_of(path / name) != file.sha256:
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
