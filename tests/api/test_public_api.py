"""Nothing public changes by accident."""

from __future__ import annotations

import difflib

from tests.api.snapshot import PAGE, written


def test_the_public_api_is_what_is_written_down():
    """If the change is meant: python -m tests.api.snapshot, and a line in the changelog."""
    before, now = PAGE.read_text(encoding="utf-8").splitlines(), written().splitlines()
    changes = difflib.unified_diff(before, now, "written down", "as it is", lineterm="", n=2)
    assert before == now, "\n".join(changes)
