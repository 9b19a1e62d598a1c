"""Lists of files, as they were found: who they are, and whether they are still the same.

Guarantees:
    1. The files of a list are named by literal absolute paths without links and without anything
       that could be taken for a pattern.
    2. No file is in a list twice, by another name, a link or a hard link: its rows would count
       twice.
    3. Whose account a file is in depends on its own path alone (`root_of`), not on the view, the
       pattern or the connection that it is read by; but for one that is asked by its own path
       (`by_path`), whose account is beside it, unless its folder has one: see `privacy/place.py`.
    4. `FrozenFiles.check` fails if a file was written, replaced or removed since it was listed, as
       far as its number, size and times tell (the time of the last change of its status can't be
       set back). A release checks right before the charge, in which case nothing is charged, and
       after counting, in which case nothing is handed out. So all counts are of one state.

Not defended: rows that are in two files, as while a folder is rewritten into fewer files.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dpsql.engines.source import RefusedViewError
from dpsql.errors import StaleSchemaError
from dpsql.privacy.place import rows_alone

_MOST_FILES = 10_000
_MOST_ROOTS = 1_000
_PATTERN = re.compile(r"[*?\[\]{}\x00-\x1f]" if os.sep == "\\" else r"[*?\[\]{}\\\x00-\x1f]")
"""Parts of a path that may stand for more than one character."""
_PARTITION = re.compile(r"[^=/\\]+=[^=/\\]*")


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """A file, and what tells whether it was touched."""

    path: str
    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FrozenFiles:
    """The files of a view, each of them once."""

    files: tuple[FrozenFile, ...]
    alone: bool = False
    """Whether the account is beside the file, of which there is one, and not beside its folder."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the files."""
        return tuple(file.path for file in self.files)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders whose account they are in, or the file that has its own."""
        if self.alone:
            return tuple(map(Path, self.paths))
        return tuple(sorted({root_of(path) for path in self.paths}))

    @property
    def state(self) -> str:
        """A hash of which files there are, and when they were written."""
        return hashlib.sha256(repr(self.files).encode()).hexdigest()

    def by_path(self) -> FrozenFiles:
        """Return the files as they are asked by their own path: one alone may have an account.

        A part of the rows of a folder, by the names of folders, hasn't.
        """
        (first, *others) = map(Path, self.paths)
        alone = not others and root_of(str(first)) == first.parent and rows_alone(first)
        return replace(self, alone=alone)

    def check(self) -> None:
        """Check that all files are as they were.

        Raises:
            StaleSchemaError: one isn't.
        """
        try:
            same = all(_seen(file.path) == file.seen for file in self.files)
        except RefusedViewError:
            same = False
        if not same:
            raise StaleSchemaError(
                "A file was written or removed since it was listed.",
                hint="ask again, when nobody writes to it; rows of CSV in a new session.",
            )


def is_one_file(patterns: Sequence[str]) -> bool:
    """Whether what is asked is one file by its path, and no folder that happens to have one."""
    return len(patterns) == 1 and os.path.isfile(patterns[0])


def root_of(path: str) -> Path:
    """Return the folder that is the data set of a file: whose account its rows are in.

    It is the file's own folder, but that of all partitions where folders are called `key=value`.
    """
    folder = Path(path).parent
    while _PARTITION.fullmatch(folder.name):
        folder = folder.parent
    return folder


def frozen_files(paths: Iterable[str]) -> FrozenFiles:
    """Take files into a list, as they are now.

    Raises:
        RefusedViewError: there is no file, or something that isn't a file of this machine, or
            one of them twice.
    """
    listed = list(paths)
    if not listed or len(listed) > _MOST_FILES:
        what = "no file" if not listed else f"more than {_MOST_FILES:,} files"
        raise RefusedViewError(
            f"it reads {what} now", hint="does its path begin where this process runs?"
        )
    files = tuple(FrozenFile(path, _seen(path)) for path in map(os.path.realpath, listed))
    if len({file.path for file in files}) < len(files) or len({f.seen[:2] for f in files}) < len(
        files
    ):
        raise RefusedViewError(
            "a file is in it twice, by another path or a link", hint="name each file once."
        )
    frozen = FrozenFiles(files)
    if len(frozen.roots) > _MOST_ROOTS or not all(root.name for root in frozen.roots):
        raise RefusedViewError(
            f"its files are in more than {_MOST_ROOTS:,} folders, or in none",
            hint="put them into one folder, with or without folders named key=value in it.",
        )
    return frozen


def _seen(path: str) -> tuple[int, ...]:
    """Look at a file.

    Raises:
        RefusedViewError: it is none that can be named safely.
    """
    try:
        path.encode()
        status = os.stat(path)
    except (OSError, ValueError):
        status = None
    if status is None or not stat.S_ISREG(status.st_mode):
        raise RefusedViewError("it reads what is not a file of this machine")
    if _PATTERN.search(path):
        raise RefusedViewError(
            "a path in it has a character that may stand for others", hint="rename that file."
        )
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def partitions_of(frozen: FrozenFiles) -> tuple[str, ...]:
    """Name the columns that DuckDB can make of folders called `key=value`, of any of the files."""
    keys = (part.split("=")[0] for path in frozen.paths for part in _partitions(path))
    return tuple(dict.fromkeys(keys))


def check_partitions(given: Iterable[str], frozen: FrozenFiles) -> None:
    """Check that paths as DuckDB was given them have the same folders `key=value` as the files'.

    Where one of these is a link, or in the folder in which a path begins, they don't.

    Raises:
        RefusedViewError: they haven't.
    """
    if any(_partitions(a) != _partitions(b) for a, b in zip(given, frozen.paths, strict=True)):
        raise RefusedViewError(
            "its folders named key=value are others by their whole path, without links",
            hint="write that path in its definition, or hive_partitioning = false.",
        )


def _partitions(path: str) -> list[str]:
    return [folder for folder in Path(path).parent.parts if _PARTITION.fullmatch(folder)]
