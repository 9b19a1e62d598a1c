"""Parquet files of this machine, to be read with times that are the numbers they are stored as.

DuckDB makes microseconds of the milliseconds of a file while it reads them, and looks whether a
time of day is within a day. There is no option against that, and one value that is none makes it
fail for all rows. So it is given the same file, but for some bytes at its end.

Guarantees:
    1. Reading a column of such times fails for no value of a row.
    2. What is read are the bytes of the file but for those of its footer that `footers.py` names,
       all that were asked for, or an error.

*Proof of 1.* `footers.py` changes what is said of the column's meaning, and no place, no length and
not how it is stored: as integers of 32 or 64 bits. So DuckDB reads the same pages of the same bits,
but by the rule for integers, which takes any bits for one; so it does with what a file says of
their least and largest values. That it takes just these columns for integers is looked at for each
file, before anything is charged (`files.py`). ∎
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from typing import Any

import duckdb
from fsspec import AbstractFileSystem

from dpsql.engines.duckdb.footers import PROTOCOL, times_in

_REGISTERING = threading.Lock()
"""Connections of several threads may be to one database."""
_END = b"PAR1"
_BEHIND = 8
"""The bytes behind a footer: how long it is, and the name of the format."""


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Let a connection read paths of `PROTOCOL`: all of its database can, then.

    That is Parquet files which this process may read, and none where `enable_external_access` is
    false.
    """
    with _REGISTERING:
        if not con.filesystem_is_registered(PROTOCOL):
            con.register_filesystem(_Files())


class _Files(AbstractFileSystem):  # type: ignore[misc]  # without types
    """The files, as DuckDB asks for them."""

    protocol = PROTOCOL
    cachable = False

    def open(self, path: str, mode: str = "rb", **_: Any) -> _File:
        """Open a file, to read it."""
        if mode != "rb":
            raise PermissionError("files are only read")
        return _File(_stored(path))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return how large a file is."""
        return {"name": path, "size": os.stat(_stored(path)).st_size, "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return when a file was changed: also if it says that it is older, as a copy may."""
        status = os.stat(_stored(path))
        return datetime.fromtimestamp(max(status.st_mtime, status.st_ctime), UTC)

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return a path as it is: none is a pattern, see `frozen.py`."""
        return [path]


def _stored(path: str) -> str:
    return path.removeprefix(f"{PROTOCOL}://")


class _File:
    """A file that several threads read: each of them goes to a place, and reads there."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - DuckDB closes it
        self._lock = threading.Lock()
        self._places: dict[int, int] = {}
        try:
            self._changed = self._changes()
        except BaseException:
            self.close()
            raise

    def _changes(self) -> dict[int, int]:
        """Return the bytes that are changed, by their place in the file.

        Raises:
            ValueError: it is no Parquet file as they usually are.
        """
        size = os.fstat(self._file.fileno()).st_size
        behind = self._bytes(size - _BEHIND, _BEHIND)
        begin = size - _BEHIND - int.from_bytes(behind[:4], "little")
        if not behind.endswith(_END) or begin < 0:
            raise ValueError("a file isn't Parquet")
        footer = self._bytes(begin, size - _BEHIND - begin)
        return {begin + place: byte for place, byte in times_in(bytes(footer)).items()}

    def seek(self, place: int) -> int:
        """Go to a place, with the thread that asks for it."""
        self._places[threading.get_ident()] = place
        return place

    def read(self, size: int) -> bytes:
        """Read as many bytes as are asked for.

        Raises:
            OSError: there are fewer; DuckDB would take for them what its memory holds there.
        """
        thread = threading.get_ident()
        start = self._places.get(thread, 0)
        content = self._bytes(start, size)
        if len(content) < size:
            raise OSError("a file has become shorter")
        for place, byte in self._changed.items():
            if 0 <= place - start < len(content):
                content[place - start] = byte
        self._places[thread] = start + size
        return bytes(content)

    def _bytes(self, start: int, size: int) -> bytearray:
        content = bytearray()
        with self._lock:
            self._file.seek(start)
            while len(content) < size and (piece := self._file.read(size - len(content))):
                content += piece
        return content

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def __del__(self) -> None:
        """Close it, as DuckDB forgets files without closing them."""
        if hasattr(self, "_file"):
            self._file.close()
