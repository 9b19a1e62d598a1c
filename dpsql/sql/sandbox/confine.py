"""The rights that a process gives up for good: files, network, other programs, more memory.

Called once, when all that is needed has been loaded. What holds depends on the system:

- everywhere but on Windows: no file descriptor can be opened any more (RLIMIT_NOFILE is 0), so no
  file and no connection; no byte goes into a file (RLIMIT_FSIZE is 0); no core is dumped;
- on Linux: a bound on memory (RLIMIT_AS), and no new privileges;
- on Linux with x86-64: a seccomp filter, which lets pass a short list of system calls for memory,
  threads, clocks and the pipes that are open, and refuses all others.

On macOS the system ignores the bound on memory, and on Windows there is none of this.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
from pathlib import Path

MORE_BYTES = 3 * 2**30
"""Address space beyond what is in use: DuckDB's own limit, Arrow's copies, and some air."""

_NO_NEW_PRIVILEGES = 38
_SECCOMP = 317
_SET_FILTER, _ALL_THREADS = 1, 1
_X86_64 = 0xC000003E
_X32 = 0x40000000
_THREAD = 0x00010000
"""CLONE_THREAD: what is made is a thread of this process, and not another process."""
_CLONE, _CLONE3 = 56, 435
_TGKILL = 234
"""Sends a signal to a thread, which may be one of another process: of the owner's, for example."""
_CALLS = (
    0, 1, 20,  # read, write, writev: only on the pipes that are open
    3, 5, 8,  # close, fstat, lseek
    7, 271,  # poll, ppoll
    9, 10, 11, 12, 25, 28,  # mmap, mprotect, munmap, brk, mremap, madvise
    13, 14, 15, 131,  # rt_sigaction, rt_sigprocmask, rt_sigreturn, sigaltstack
    24, 204,  # sched_yield, sched_getaffinity
    35, 96, 98, 201, 228, 229, 230,  # nanosleep, times, getrusage, clocks
    39, 186,  # getpid, gettid
    60, 231, 219,  # exit, exit_group, restart_syscall
    202, 273, 324, 334,  # futex, set_robust_list, membarrier, rseq
    99, 318,  # sysinfo, getrandom
)  # fmt: skip
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def confine() -> list[str]:
    """Give up what a helper doesn't need; return what was given up, by name."""
    if sys.platform == "win32":
        return []
    done = []
    if sys.platform == "linux":
        done += _bounded_memory()
    done += _no_files()
    if sys.platform == "linux":
        done += _no_system_calls()
    return done


def _bounded_memory() -> list[str]:
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MORE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return ["memory"]


def _no_files() -> list[str]:
    import resource

    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE):
        resource.setrlimit(kind, (0, 0))
    return ["files", "network"]


def _no_system_calls() -> list[str]:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return []
    if platform.machine() != "x86_64" or struct.calcsize("P") != 8:
        return ["privileges"]
    code = _filter()
    program = _Program(len(code) // 8, code)
    with contextlib.suppress(AttributeError):
        if libc.syscall(_SECCOMP, _SET_FILTER, _ALL_THREADS, ctypes.byref(program)) == 0:
            return ["privileges", "system calls"]
    return ["privileges"]  # the system has no filters, or permits none here


def _filter() -> bytes:
    """Return the filter as a program of the kernel's packet filter.

    Each step has an operation, two distances to jump if it is true or false, and a number. The
    number of the system call stands at byte 0 of what is looked at, the architecture at 4, the
    lower half of the first argument at 16.
    """
    refused = _ERRNO | errno.EPERM
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, refused),
        (_EQUAL, 0, 1, _CLONE3),  # its flags are out of sight; the C library then takes clone
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        (_EQUAL, 0, 4, _CLONE),
        (_LOAD, 0, 0, 16),
        (_ANY_BIT, 0, 1, _THREAD),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refused),
        (_EQUAL, 0, 4, _TGKILL),
        (_LOAD, 0, 0, 16),
        (_EQUAL, 0, 1, os.getpid()),  # as abort does it
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refused),
    ]
    for call in _CALLS:
        steps += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ALLOW)]
    steps.append((_RETURN, 0, 0, refused))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
