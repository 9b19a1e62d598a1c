"""Drafts of releases: hidden folders, from which a release moves to its name when it is complete.

A draft's name says which process made it. Where that was killed, the next one that writes to the
same name removes what it left: it may hold what was measured, and was never handed out.
"""

from __future__ import annotations

import glob
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpsql.privacy import owner

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
