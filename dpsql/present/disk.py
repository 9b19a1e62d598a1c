"""Output to disk: folders and files that appear at once and complete.

Nothing that exists is overwritten, unless a caller says that it may be; and then it is moved away
as a whole, and put back if its place can't be taken.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsql.errors import ReleaseFormatError, printable
from dpsql.privacy import owner
from dpsql.privacy.files import sync_folder


def as_json(document: Mapping[str, Any]) -> str:
    """Write a document as JSON."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


# ── Drafts: hidden folders, which move to their names when they are complete ─────────────────────
#
# A draft's name says which process made it. Where that was killed, the next one that writes to the
# same name removes what it left: it may hold what was measured, and was never handed out.


_BETWEEN = "_"
"""Between the parts of a process's name, where a colon can't stand in the name of a file."""
_MADE = re.compile(r"([0-9a-f]{16}_[0-9]+_[0-9a-z.-]+)\.[0-9a-f]{8}")
_LONGEST = 100
"""Characters of the release's own name in that of a draft, whose name would else be too long."""


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Make a folder beside a release's place, for its owner only; remove what is left of it."""
    path = path.absolute()
    process = owner.this_process().replace(":", _BETWEEN)
    draft = path.with_name(f"{_beginning(path)}{process}.{uuid.uuid4().hex[:8]}")
    try:  # named before it is made, so that an interrupt at any moment leaves nothing
        draft.mkdir(mode=0o700)
        yield draft
    finally:
        if draft.exists():
            shutil.rmtree(draft, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove the drafts of a release that were left by processes which have ended."""
    path = path.absolute()
    beginning = _beginning(path)
    for left in path.parent.glob(f"{glob.escape(beginning)}*"):
        made = _MADE.fullmatch(left.name.removeprefix(beginning))
        if made is None:
            continue
        process = made[1].replace(_BETWEEN, ":")
        if process != owner.this_process() and owner.is_gone(process, request=""):
            shutil.rmtree(left, ignore_errors=True)


def _beginning(path: Path) -> str:
    return f".{path.name[:_LONGEST]}."


MAX_NAME = 64
"""Characters of a statement's name that the name of its file has."""

MOST_BYTES = 10_000_000
"""Bytes of a page for people, if nothing else is said."""

_PORTS = (f"{kind}{i}" for kind in ("com", "lpt") for i in range(10))
_RESERVED = frozenset({"con", "prn", "aux", "nul", *_PORTS})
"""Names that Windows keeps for devices."""


def plain_names(statements: Iterable[str]) -> dict[str, str]:
    """Give each statement a name that is safe everywhere: lower case, and of no other one."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for statement in statements:
        base = re.sub(r"[^a-z0-9]+", "_", statement.lower())[:MAX_NAME].strip("_") or "query"
        base = f"{base}_" if base in _RESERVED else base
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[statement] = name
    return names


def check_target(path: Path) -> None:
    """Check that a folder could be written, before anything is charged for what is in it.

    Raises:
        ReleaseFormatError: it exists and isn't an empty folder, or can't be made.
    """
    with system_errors(path):
        if path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
            raise exists(path)
        _check_writable(path)


def check_file(path: Path) -> None:
    """Check that a file could be written, before anything is charged for what is in it.

    Raises:
        ReleaseFormatError: it exists, or can't be made.
    """
    with system_errors(path):
        if path.is_symlink() or path.exists():
            raise exists(path)
        _check_writable(path)


def _check_writable(path: Path) -> None:
    sweep(path)
    with draft_of(path) as draft:
        draft.rmdir()


@contextmanager
def new_folder(path: Path, *, replaced: bool = False) -> Iterator[Path]:
    """Make a folder: what is written to the one that is yielded appears whole or not at all.

    Args:
        path: its place.
        replaced: whether a folder that is there makes room for it.

    Raises:
        ReleaseFormatError: it exists and isn't an empty folder, or can't be written.
    """
    with system_errors(path):
        if not replaced:
            check_target(path)
        with draft_of(path) as draft:
            yield draft
            sync_folder(draft)
            with _moved_away(path, if_there=replaced):
                try:
                    os.rename(draft, path)  # onto nothing, or an empty folder: atomic in both cases
                except OSError:
                    if path.exists():
                        raise exists(path) from None
                    raise
        sync_folder(path.parent)


@contextmanager
def new_file(path: Path, *, replaced: bool = False) -> Iterator[Path]:
    """Make a file: what is written to the one that is yielded appears whole or not at all.

    Args:
        path: its place.
        replaced: whether a file that is there makes room for it.

    Raises:
        ReleaseFormatError: it exists, or can't be written.
    """
    with system_errors(path):
        if not replaced:
            check_file(path)
        with draft_of(path) as draft:
            # Its own ending, as DuckDB calls a database after its file.
            made = draft / f"draft{path.suffix[:16]}"
            yield made
            if replaced:
                os.replace(made, path)
            else:
                _put(made, path)
        sync_folder(path.parent)


def _put(made: Path, path: Path) -> None:
    """Move a file to its place, where there is none."""
    try:
        os.link(made, path)  # unlike a rename it overwrites nothing
    except FileExistsError:
        raise exists(path) from None
    except OSError:  # a file system without links
        if path.exists():
            raise exists(path) from None
        os.rename(made, path)


@contextmanager
def _moved_away(path: Path, *, if_there: bool) -> Iterator[None]:
    """Move a folder away, and remove it when another one has taken its place."""
    if not if_there or not path.exists():
        yield
        return
    from shutil import rmtree

    away = path.absolute().with_name(f".replaced.{uuid.uuid4().hex}")
    os.rename(path, away)
    try:
        yield
    except BaseException:
        os.rename(away, path)
        raise
    rmtree(away, ignore_errors=True)


def exists(path: Path) -> ReleaseFormatError:
    """Word that a place is taken."""
    return ReleaseFormatError(
        f"{printable(str(path))} exists already.",
        hint="name another place: nothing is overwritten.",
    )


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system raises into a `ReleaseFormatError`."""
    try:
        yield
    except FileNotFoundError:
        raise ReleaseFormatError(
            f"{printable(str(path))}: there is no such place.",
            hint="check the path: the folder above what is written must be there.",
        ) from None
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "the path can't be used"
        raise ReleaseFormatError(
            f"{printable(str(path))} can't be used: {what}.",
            hint="check the free space and the rights on the folder above.",
        ) from None


@contextmanager
def created(path: Path) -> Iterator[Any]:
    """Create a file, and see it on disk."""
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(handle, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, content: bytes | memoryview) -> None:
    """Create a file with some content."""
    with created(path) as file:
        file.write(content)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
