"""The demo as a user runs it: in a pipe, and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.release.adult import EXAMPLES

COMMAND = [sys.executable, "-m", "dpsql.cli", "demo"]


@pytest.fixture(scope="module")
def piped() -> str:
    result = subprocess.run(COMMAND, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout


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


def test_a_terminal_gets_a_progress_display():
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(COMMAND, stdout=child, stderr=child, env=environment)
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
