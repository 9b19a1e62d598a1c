"""Commands as processes: pipes, terminals and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from dpsql.cli.application import Exit
from tests.cli.conftest import BY_SEX, Commands

DPSQL = [sys.executable, "-m", "dpsql.cli"]

PAUSED = """
import sys, time
from pathlib import Path
import dpsql.engines.duckdb.engine as engine
import dpsql.engines.duckdb.one_pass as one_pass
import dpsql.planner.mechanisms.querysmasher as querysmasher
import dpsql.release.folder as folder
from dpsql.cli import main

def reached(*args, **kwargs):
    Path({mark!r}).touch()
    {wait}

{where} = reached
main({arguments!r}, prog_name="dpsql")
"""
PHASES = {
    "planning": ("querysmasher.plan", "time.sleep(60)"),
    # A statement of DuckDB that would run for hours, as counting a huge table would.
    "counting": (
        "engine.CountingScan.run = one_pass.OnePass.run",
        "args[1].execute('SELECT count(*) FROM range(100000000) AS a(x), range(100000000) AS b(y)"
        " WHERE (x * y) % 7 = 3').fetchall()",
    ),
    "writing": ("folder._write_all", "time.sleep(60)"),
}
LEFT = {"planning": [], "counting": ["charged"], "writing": ["released"]}
"""Phase → states of the ledger's entries after an interrupt."""


def release(commands: Commands) -> list[str]:
    return ["release", str(commands.script), "--db", str(commands.db), "--rho", "0.5",
            "--out", str(commands.folder / "out")]  # fmt: skip


def interrupt(commands: Commands, phase: str) -> tuple[int, str, str]:
    """Send Ctrl-C to a release in a phase; return its exit code and what it printed."""
    mark = commands.folder / "reached"
    where, wait = PHASES[phase]
    code = PAUSED.format(mark=str(mark), wait=wait, where=where, arguments=release(commands))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_ends_a_release_and_publishes_nothing(commands, phase):
    commands.done("ledger", "init", "--db", commands.db, "--rho", "1")
    code, output, errors = interrupt(commands, phase)
    assert code == Exit.INTERRUPTED, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert output == ""
    left = {path.name for path in commands.folder.iterdir()}
    assert left == {"people.duckdb", "people.duckdb.ledger", "release.sql", "reached"}
    found = commands.document("ledger", "--db", commands.db)
    assert [entry["state"] for entry in found["entries"]] == LEFT[phase]


def test_what_was_paid_for_is_handed_out_by_the_same_command(commands):
    interrupt(commands, "writing")
    text = commands.done(*release(commands))
    assert "2 statements" in text
    (entry,) = commands.document("ledger", "--db", commands.db)["entries"]
    assert entry["state"] == "delivered"


def test_a_reader_that_goes_away_is_no_error(commands):
    sql = "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex"
    process = subprocess.Popen(
        [*DPSQL, "query", sql, "--db", str(commands.db), "--rho", "1", "--csv"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == Exit.OK, errors
    assert "Error" not in errors


def test_progress_is_for_terminals(commands):
    piped = subprocess.run([*DPSQL, *release(commands)], capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    parent, child = pty.openpty()
    arguments = [*release(commands)[:-1], str(commands.folder / "second"), "--json"]
    process = subprocess.Popen(
        [*DPSQL, *arguments], stdout=subprocess.PIPE, stderr=child, text=True,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(child)
    shown = drain(parent)
    found = json.load(process.stdout)
    process.stdout.close()
    assert process.wait(60) == Exit.OK
    assert b"planning" in shown
    assert b"counting" in shown
    assert found["statements"] == ["by_sex", "ages"]


def drain(terminal: int) -> bytes:
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the end of a terminal on Linux
            piece = b""
        if not piece:
            os.close(terminal)
            return shown
        shown += piece


def test_exit_codes_reach_the_shell(commands):
    arguments = [*DPSQL, "query", "--db", str(commands.db), "--rho", "1", "SELECT 1 +"]
    result = subprocess.run(arguments, capture_output=True, text=True)
    assert result.returncode == Exit.SQL
    assert "Traceback" not in result.stderr


def test_an_encoding_without_greek_gets_escapes(commands):
    result = subprocess.run(
        [*DPSQL, "query", BY_SEX, "--db", str(commands.db), "--rho", "1"], check=True,
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert b"charged: \\u03c1 = 1" in result.stderr
