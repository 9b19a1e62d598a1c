"""Pointers: small files that stand at a ledger's usual place and say where it really is. Trusted.

A pointer is a JSON text, `{"dpsql ledger": 3, "path": "/where/it/is", "data": "0123…"}`. It has a
random `data` of its own, by which the measurements of this database are told from those of others
whose pointers lead to the same ledger. Version 2 had none. In version 4 the ledger is in
PostgreSQL, and has its random identity, `"ledger": "4567…"`, in the place of the path.

Guarantees:
    1. A pointer names one file, by an absolute path. Anything that is not exactly such a text is
       refused: what is at the usual place is then neither a ledger nor a pointer.
    2. A ledger is never opened to see whether it is a pointer. Closing it would drop the locks
       that SQLite holds on it in this process; a ledger is at least `_LARGEST` bytes long, and
       a pointer is shorter.
    3. The first that is put at a place stays there, pointer or ledger.
"""

from __future__ import annotations

import json
import os
import re
import stat
import uuid
from pathlib import Path
from typing import NamedTuple

from dpsql.errors import LedgerError, printable
from dpsql.hints import option
from dpsql.privacy import refusals
from dpsql.privacy.files import create_text, replace_text, sync_folder

FORMAT = 3
_WITHOUT_DATA = 2
"""The version before."""
_SHARED = 4
"""The version of those to a ledger in PostgreSQL; the others are written as before."""
_FIELDS = {_WITHOUT_DATA: {"path"}, FORMAT: {"path", "data"}, _SHARED: {"ledger", "data"}}
"""Version → its fields besides the mark."""

_LARGEST = 4096
"""Pointers are shorter than this, in bytes: the size of one page of a ledger."""
_MARK = "dpsql ledger"
_RANDOM = re.compile(r"[0-9a-f]{32}")


class Pointer(NamedTuple):
    """The content of a pointer."""

    target: Path | None
    """The ledger's file."""
    data: str
    """Random; empty in pointers of version 2, and where the ledger stood itself."""
    ledger: str = ""
    """The identity of a ledger in PostgreSQL."""

    @property
    def uid(self) -> str:
        """The name by which a server knows the rows."""
        return self.data or self.ledger


def followed(path: Path) -> Path:
    """Give the path that a pointer names, or this path itself if there is no pointer.

    Raises:
        LedgerError: there is a pointer that is malformed, or to a ledger that is not there or not
            in a file.
        OSError: it can't be read.
    """
    pointer = read(path)
    if pointer is None:
        return path
    target = pointer.target
    if target is None:
        raise refusals.moved()
    if not os.path.exists(target):
        raise LedgerError(
            f"The ledger of this data set is kept in {printable(str(target))}, and is not there.",
            hint="restore it there. If it was moved, name its new place with "
            + option("ledger")
            + f" after removing {printable(str(path))}, which says where it was.",
        )
    beyond = read(target)
    if beyond is not None and beyond.ledger:
        raise refusals.moved()
    return target


def read(path: Path) -> Pointer | None:
    """Read the pointer at a place; None if there is none.

    Raises:
        LedgerError: it is malformed.
        OSError: it can't be read.
    """
    if not os.path.exists(path):
        return None
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size < _LARGEST:
        return None
    return _parsed(path.read_bytes()[:_LARGEST], path)


def text_for(target: Path) -> str:
    """Write the text of a pointer.

    Raises:
        LedgerError: the path is too long for one, or would disguise itself when shown.
    """
    text = json.dumps({_MARK: FORMAT, "path": str(target), "data": uuid.uuid4().hex})
    if len(text) >= _LARGEST or not _is_plain(str(target)):
        raise LedgerError(
            "The path of the ledger is too long, or has characters that can't be shown.",
            hint="choose a plain file name.",
        )
    return text


def leave_shared(path: Path, ledger: str) -> None:
    """Put a pointer to a ledger in PostgreSQL at a place, durably, unless something is there.

    All may read it, as it opens nothing: others ask the same rows in the same account.

    Raises:
        OSError: it can't be written.
    """
    text = json.dumps({_MARK: _SHARED, "ledger": ledger, "data": uuid.uuid4().hex})
    if os.path.lexists(path):
        sync_folder(path.parent)
    else:
        create_text(path, text, mode=0o644)


def put_for_moved(path: Path, ledger: str) -> None:
    """Put a pointer in the place of a ledger that was moved to PostgreSQL, in one atomic step.

    Raises:
        OSError: it can't be written.
    """
    replace_text(path, json.dumps({_MARK: _SHARED, "ledger": ledger, "data": ""}), mode=0o644)


def leave(path: Path, target: Path) -> None:
    """Put a pointer at a place, durably, unless there is something already.

    A folder that can't be written to gets none: nobody of this user's rights can begin another
    ledger there.

    Raises:
        LedgerError, OSError: there can't be such a pointer, or it can't be written.
    """
    if not os.access(path.parent, os.W_OK):
        return
    if os.path.lexists(path):
        sync_folder(path.parent)  # another process may have put it there just now
    else:
        create_text(path, text_for(target))


def _parsed(content: bytes, path: Path) -> Pointer:
    try:
        fields = json.loads(content.decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or _MARK not in fields:
        raise _malformed(path)
    version = fields.pop(_MARK)
    if type(version) is int and version > _SHARED:
        raise LedgerError(
            f"The pointer {printable(str(path))} has format version {version}; this dpsql knows "
            f"version {_SHARED}.",
            hint="update dpsql.",
        )
    if type(version) is not int or set(fields) != _FIELDS.get(version):
        raise _malformed(path)
    identities = [fields[name] for name in ("data", "ledger") if name in fields]
    if version == _SHARED and fields["data"] == "":
        identities.remove("")
    if not all(
        isinstance(identity, str) and _RANDOM.fullmatch(identity) for identity in identities
    ):
        raise _malformed(path)
    data, ledger = (str(fields.get(name, "")) for name in ("data", "ledger"))
    if version == _SHARED:
        return Pointer(None, data, ledger)
    if not _is_plain(fields["path"]):
        raise _malformed(path)
    return Pointer(Path(str(fields["path"])), data)


def _is_plain(target: object) -> bool:
    return isinstance(target, str) and target.isprintable() and os.path.isabs(target)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _malformed(path: Path) -> LedgerError:
    return LedgerError(
        f"The file {printable(str(path))} is neither a ledger nor a pointer to one.",
        hint="restore the newest copy of the ledger. A new one would forget what was spent.",
    )
