"""Files of accounts: how they appear, and what errors of files mean. Trusted.

Guarantees:
    1. What is `published` appears under its name in one atomic step, complete and readable only
       by its owner; the first that is put at a place stays there. Its name is durable then.
    2. Nothing but `LedgerError` leaves `ledger_errors`.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpsql.errors import LedgerError, printable

_HINTS = {
    "SQLITE_READONLY": "make the ledger and its folder writable for this user.",
    "SQLITE_CANTOPEN": "check that the folder of the ledger exists and can be written to.",
    "SQLITE_FULL": "free some disk space, then ask again.",
    "SQLITE_BUSY": "another process holds the ledger; wait for it to end, then ask again.",
    "SQLITE_IOERR": "check the disk; if the ledger is on a network drive, put it on a local one.",
}
_RESTORE = "if this file should be a ledger, restore its newest copy; else name another file."
_SYSTEM_HINTS = {
    errno.ENOENT: "create the folder first; if the ledger was there before, restore it.",
    errno.EACCES: "make the ledger and its folder writable for this user.",
    errno.EROFS: "make the ledger and its folder writable for this user.",
    errno.ENOSPC: "free some disk space, then ask again.",
}
_OTHER_SYSTEM_HINT = "keep the ledger on a local disk of the usual kind."


def create_text(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a small text file, unless there is something at its place already."""
    with published(path) as draft, open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.chmod(draft, mode)
        os.fsync(file.fileno())


def replace_text(path: Path, text: str, *, mode: int) -> None:
    """Write a small text file in the place of a file, which stays beside it as `….moved`."""
    draft = _draft_of(path)
    create_text(draft, text, mode=mode)
    with suppress(FileExistsError):
        os.link(path, path.with_name(f"{path.name}.moved"))
    os.replace(draft, path)
    sync_folder(path.parent)


@contextmanager
def published(path: Path) -> Iterator[Path]:
    """Let a file be written apart, then give it its name: whoever finds it finds it complete."""
    draft = _draft_of(path)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        yield draft
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink()
    sync_folder(path.parent)


def _draft_of(path: Path) -> Path:
    """Return a new name beside a file, which listings leave out."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")


def sync_folder(folder: Path) -> None:
    """Make the file's name durable. Only POSIX systems can, and need to."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def ledger_errors(path: Path | str | None) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into a `LedgerError` with a hint."""
    where = "The ledger in memory" if path is None else f"The ledger {printable(str(path))}"
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        hint = next((h for prefix, h in _HINTS.items() if name.startswith(prefix)), _RESTORE)
        raise LedgerError(f"{where} can't be used: {error}.", hint=hint) from None
    except OSError as error:
        hint = _SYSTEM_HINTS.get(error.errno or 0, _OTHER_SYSTEM_HINT)
        raise LedgerError(f"{where} can't be used: {error.strerror}.", hint=hint) from None
    except ValueError as error:
        raise LedgerError(
            f"{where} can't be used: {error}.", hint="use a plain file name."
        ) from None
