"""The demo as a user runs it: in a pipe, and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.docs.pages import README, blocks, layout
from tests.release.adult import EXAMPLES

pytestmark = pytest.mark.slow  # a demo takes long
COMMAND = [sys.executable, "-m", "dpsql.cli", "demo"]


@pytest.fixture(scope="module")
def piped() -> str:
    result = subprocess.run(
        COMMAND, capture_output=True, encoding="utf-8", check=True,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert result.stderr == ""
    return result.stdout


def test_the_readme_shows_what_is_printed(piped):
    """The table of expected errors is deterministic; of the rest, only the layout is."""
    (shown,) = [
        b.code for b in blocks(README) if b.language == "text" and "Expected error" in b.code
    ]
    fresh, table = piped.splitlines(), shown.splitlines()
    end = fresh.index("")
    assert end > 10
    assert table[:end] == fresh[:end]
    lines = iter(layout(piped))
    for line in layout(shown.replace("[…]", "")):
        assert line in lines, f"the demo no longer prints: {line}"


def test_errors_come_before_answers_and_the_account_last(piped):
    expected, first, charged = (
        piped.index(text) for text in ("Expected error", "by_sex: 2 rows", "charged")
    )
    assert expected < first < charged
    assert "left" in piped[charged:]


def test_every_statement_is_printed(piped):
    script = (EXAMPLES / "adult_release.sql").read_text(encoding="utf-8")
    names = [line.split()[-1] for line in script.splitlines() if line.startswith("-- name:")]
    assert len(names) >= 8
    for name in names:
        assert f"{name}: " in piped


def test_a_pipe_gets_no_progress_and_no_escape_codes(piped):
    assert "\x1b" not in piped
    assert "planning" not in piped


@pytest.mark.long
def test_a_terminal_gets_a_progress_display():
    """From the file in the repository, which is the same demo.

    By default `tests/cli/test_processes.py` looks at a terminal, with a release that takes less.
    """
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    command = [sys.executable, str(EXAMPLES / "demo.py")]
    process = subprocess.Popen(command, stdout=child, stderr=child, env=environment)
    os.close(child)
    shown = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:  # the end of a terminal on Linux
            break
        if not piece:
            break
        shown += piece
    os.close(parent)
    assert process.wait() == 0
    assert b"planning" in shown
    assert b"counting" in shown
    assert b"Expected error" in shown


def test_the_version_is_told():
    result = subprocess.run(
        [sys.executable, "-m", "dpsql.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert "0.1.0" in result.stdout
