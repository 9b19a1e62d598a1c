"""Processes that are killed, and calls that are interrupted, at any step of a release.

What must hold afterwards: a number that was seen anywhere was paid for, one charge has one noisy
answer, and an answer that was paid for and not handed out is handed out by the same call.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import duckdb
import polars as pl
import pytest

import dpsql
from dpsql.privacy import Ledger
from tests.privacy.ledger_tools import python
from tests.session.tools import (
    BUDGET,
    BY_AGE,
    BY_SEX,
    TOTAL,
    Steps,
    create,
    forked,
    key,
    landmarks,
    moments_of,
    warm_up,
)

ROOMS = (
    "session/", "privacy/", "measurement/measure.py", "engines/duckdb/engine.py",
    "release/folder.py", "present/disk.py", "release/assembly.py", "release/measurements.py",
)  # fmt: skip
SCRIPT = {"by_sex": BY_SEX, "by_age": BY_AGE}
DATABASE = "people.duckdb"
Answer = dict[str, list[tuple[object, ...]]]

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")


# ── what is killed ─────────────────────────────────────────────────────────────────────────


def answered(release: dpsql.Release) -> Answer:
    return {name: key(frame) for name, frame in release.items()}


def ask(folder: Path, out: str) -> dpsql.Release:
    """Ask the script, see its answer, and write down what was seen."""
    with duckdb.connect(folder / DATABASE) as con:
        session = dpsql.Session(con, budget=TOTAL)
        release = session.release(SCRIPT, budget=BUDGET, out=folder / out)
        line = json.dumps([release.receipt.request, answered(release)]) + "\n"
        with open(folder / "seen", "ab", buffering=0) as seen:
            seen.write(line.encode())
    return release


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: Path, out: str, moment: str) -> bool:
    """Ask in a process that is killed at a step; return whether it was reached.

    The parent has all modules, and no threads and no database yet.
    """

    def work() -> None:
        steps = Steps(ROOMS, moment, die)
        sys.settrace(steps)
        ask(folder, out)
        sys.settrace(None)
        (folder / "steps").write_text("\n".join(steps.moments))

    child = forked(work)
    status = os.waitpid(child, 0)[1]
    if status not in (0, signal.SIGKILL):
        sys.exit(f"step {moment}: {status}")
    return status == signal.SIGKILL


def run(folder: str, moments: str) -> None:
    """For each pair of steps ask twice, and kill the one who asks at these; "" is never."""
    warm_up()
    for i, pair in enumerate(json.loads(moments)):
        for j, moment in enumerate(pair):
            if not killed(Path(folder, str(i)), f"out_{j}", moment):
                break


# ── what is left ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A database on which something was released before."""
    folder = tmp_path_factory.mktemp("template")
    with create(folder / DATABASE) as con:
        session = dpsql.Session(con, budget=TOTAL)
        session.release({"by_sex": BY_SEX}, budget=BUDGET, out=folder / "earlier")
    return folder


def started(template: Path, folder: Path, moments: list[list[str]]) -> None:
    for i in range(len(moments)):
        shutil.copytree(template, folder / str(i))
    code = "import sys; from tests.session.test_crashes import run; run(*sys.argv[1:])"
    child = python(code, folder, json.dumps(moments))
    _, err = child.communicate(timeout=500)
    assert child.returncode == 0, err


def answers_seen(folder: Path, ledger: Ledger) -> list[tuple[str, Answer]]:
    """Every answer that anyone can have seen: request → answer. Folders must be whole."""
    file = folder / "seen"
    seen = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    found = [(request, {n: [*map(tuple, rows)] for n, rows in a.items()}) for request, a in seen]
    for out in folder.glob("out_*"):
        release = dpsql.Release.load(out, ledger=ledger)
        found.append((release.receipt.request, answered(release)))
    return found


def drafts(folder: Path) -> list[Answer]:
    """What stands in folders that were not finished, as far as it can be read."""
    found: list[Answer] = []
    for file in folder.glob(".out_*/by_*.parquet"):
        try:
            found.append({file.stem: key(pl.read_parquet(file))})
        except pl.exceptions.PolarsError:
            continue
    return found


def check(folder: Path, kills: int = 1) -> str:
    """Check what a killed process left, ask again, and say in which state it was found."""
    ledger = Ledger.existing(folder / f"{DATABASE}.ledger")
    first, *entries = ledger.entries()
    assert first.state == "delivered"
    assert ledger.spent == (1 + len(entries)) * BUDGET.mu_squared
    seen = answers_seen(folder, ledger)
    requests = {request for request, _ in seen}
    assert requests <= {entry.request for entry in entries}
    assert len(entries) <= len(requests) + kills
    assert requests >= {entry.request for entry in entries if entry.state == "delivered"}
    waiting = [entry for entry in entries if entry.state == "released"]
    assert len(waiting) <= 1

    release = ask(folder, "out_again")
    assert ledger.spent == (1 + len(entries) + (not waiting)) * BUDGET.mu_squared
    if waiting:
        assert release.receipt.request == waiting[0].request
    seen = answers_seen(folder, ledger)
    by_request = dict(seen)
    for request, answer in seen:
        assert by_request[request] == answer
    for part in drafts(folder):
        assert any(part.items() <= answer.items() for answer in by_request.values())
    assert {e.state for e in ledger.entries()} <= {"charged", "delivered"}
    return entries[-1].state if entries else "none"


def check_kills(template: Path, folder: Path, count: int, seed: int) -> None:
    (folder / "whole").mkdir()
    started(template, folder / "whole", [[""]])
    assert check(folder / "whole" / "0") == "delivered"
    steps = (folder / "whole" / "0" / "steps").read_text().splitlines()
    first, second = (landmarks(steps) + moments_of(steps, count, seed + i) for i in range(2))
    # In every sixth, the one who asks again is killed as well.
    moments = [
        [a, b] if i % 6 == 0 else [a] for i, (a, b) in enumerate(zip(first, second, strict=True))
    ]
    started(template, folder, moments)
    found = [check(folder / str(i), len(pair)) for i, pair in enumerate(moments)]
    assert set(found) >= {"none", "charged", "released"}


def test_kill(template, tmp_path):
    check_kills(template, tmp_path, 2, seed=1)


@pytest.mark.long
def test_kill_at_many_steps(template, tmp_path):
    check_kills(template, tmp_path, 200, seed=2)


# ── calls that are interrupted ─────────────────────────────────────────────────────────────


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted(session: dpsql.Session, folder: Path, out: str, moment: str) -> list[str]:
    """Release with Ctrl-C at a step; return the steps that were taken."""
    steps, before = Steps(ROOMS, moment, interrupt), sys.gettrace()
    sys.settrace(steps)
    try:
        session.release(SCRIPT, budget=BUDGET, out=folder / out)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return steps.moments


def check_interrupt(session: dpsql.Session, folder: Path, i: int, moment: str) -> str:
    """Interrupt a release, ask again in the same process, and say how far the first one got."""
    earlier = session.ledger.entries()
    interrupted(session, folder, f"out_{i}", moment)
    fresh = session.ledger.entries()[len(earlier) :]
    assert len(fresh) <= 1
    state = fresh[0].state if fresh else "none"
    assert (folder / f"out_{i}").exists() <= (state in ("released", "delivered"))
    spent = session.ledger.spent
    release = session.release(SCRIPT, budget=BUDGET, out=folder / f"again_{i}")
    if state == "released":
        assert release.receipt.request == fresh[0].request
        assert session.ledger.spent == spent
    else:
        assert session.ledger.spent == spent + BUDGET.mu_squared
    assert not list(folder.glob(".*"))
    if (folder / f"out_{i}").exists():
        first = dpsql.Release.load(folder / f"out_{i}", ledger=session.ledger)
        assert first.receipt.request == fresh[0].request
        assert state == "delivered" or answered(first) == answered(release)
    return state


def check_interrupts(folder: Path, count: int, seed: int) -> None:
    moments, found = [""], []
    for first in range(0, count, 20):  # with a new ledger every time, so that it stays short
        with create() as con:
            session = dpsql.Session(con)
            session.release({"by_sex": BY_SEX}, budget=BUDGET)
            if not first:
                steps = interrupted(session, folder, "whole", "")
                moments = landmarks(steps) + moments_of(steps, count - 2, seed)
            for i, moment in enumerate(moments[first : first + 20], start=first):
                found.append(check_interrupt(session, folder, i, moment))
            con.begin()  # no transaction was left open
            con.rollback()
    assert set(found) >= {"none", "charged", "released"}


# An interrupt while a generator is being closed is only reported, as with any Ctrl-C.
unraisable = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@unraisable
def test_interrupts(tmp_path):
    check_interrupts(tmp_path, 8, seed=3)


@unraisable
@pytest.mark.long
def test_interrupts_at_many_steps(tmp_path):
    check_interrupts(tmp_path, 400, seed=4)
