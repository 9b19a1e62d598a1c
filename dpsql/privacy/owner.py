"""The process that made a charge, and whether it is still at work on it.

Nothing of that guards privacy: handing the same stored release out twice gives nothing new away. A
process that ends between storing its answer and handing it out leaves an answer that was paid
for. This tells it from one that is about to hand its own answer out.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from dpsql.errors import LedgerError

_in_flight: set[str] = set()
"""Requests that this process charged and has not handed out. Sets are safe to share by threads; a
forked child inherits the requests of its parent, whose owner it is not."""

_doubted: dict[Hashable, tuple[str, str]] = {}
"""Charges → the process, and the request. A forked child inherits these, too."""

_UNKNOWN = "unknown"


def this_process() -> str:
    """Name this process, as `host:pid:start`, the host by a digest of its name."""
    return _named(os.getpid())


def begin(request: str) -> None:
    """Note that this process works on a request."""
    _in_flight.add(request)


def end(request: str) -> None:
    """Note that this process works on a request no more."""
    _in_flight.discard(request)


@contextmanager
def doubting(what: Hashable, request: str) -> Iterator[None]:
    """Note, if the block fails, that it may have recorded a charge for something all the same.

    Only then: what is still being charged is of whoever charges it.
    """
    try:
        yield
    except (LedgerError, KeyboardInterrupt):
        _doubted[what] = this_process(), request
        raise


def settle(what: Hashable) -> str:
    """Return the charge of which this process wasn't told whether it was recorded, at most once.

    Nothing was measured with it, as its call has failed. Empty if there is none.
    """
    process, request = _doubted.pop(what, ("", ""))
    return request if process == this_process() else ""


def is_gone(owner: str, request: str) -> bool:
    """Tell whether nobody works any more on a request that the owner charged.

    An owner that can't be looked at, such as one on another host, counts as alive.
    """
    if owner == this_process():
        return request not in _in_flight
    host, *process = owner.split(":")
    if host != _host() or len(process) != 2 or process[1] == _UNKNOWN:
        return False
    pid, start = process
    try:
        return _start(int(pid)) != start
    except PermissionError:
        return False


@lru_cache(maxsize=1)  # of one process: a forked child has another number
def _named(pid: int) -> str:
    return f"{_host()}:{pid}:{_start(pid) or _UNKNOWN}"


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]


def _start(pid: int) -> str | None:
    """Say when a process began, in a text that stays the same; None if it has ended.

    Raises:
        PermissionError: it lives, and this process may not know more.
    """
    return _start_on_linux(pid) if sys.platform == "linux" else _start_elsewhere(pid)


def _start_on_linux(pid: int) -> str | None:
    """Count in ticks since the system booted, which don't move when its clock is set."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets, and may hold any character.
    state, *fields = stat.rpartition(b")")[2].decode().split()
    return None if state in "ZX" else f"{_boot()}{fields[18]}"


def _boot() -> str:
    """Name this start of the system; kernels that don't say so are taken to run for good."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8] + "-"
    except FileNotFoundError:
        return ""


def _start_elsewhere(pid: int) -> str | None:
    import psutil  # few systems need it

    try:
        process = psutil.Process(pid)
        ended = process.status() == psutil.STATUS_ZOMBIE
        return None if ended else str(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        raise PermissionError from None
