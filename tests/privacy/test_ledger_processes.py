"""Many threads and processes at one ledger, and processes that are killed."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction as Q
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import Budget, Ledger
from dpsql.privacy.store import Writing
from tests.privacy.ledger_tools import PURPOSE, killed, purpose, python, spend


def race(ledger_of: Callable[[], Ledger], threads: int, each: int) -> list[str]:
    results: list[str] = []

    def work() -> None:
        ledger = ledger_of()
        for _ in range(each):
            try:
                spend(ledger, 0.07)
                results.append("spent")
            except BudgetError:
                results.append("refused")

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


def test_threads(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    results = race(lambda: ledger, 4, 8)
    assert results.count("spent") == 14
    assert len(results) == 32
    assert ledger.remaining == Q(4, 100)


def test_what_is_being_charged_is_not_found_by_others(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question twice at once is charged twice: one charge is good for one measurement."""
    writing, other = ledger.store.writing, []

    @contextmanager
    def and_another() -> Iterator[Writing]:
        with writing() as now:
            yield now
        monkeypatch.undo()
        other.append(spend(ledger))  # after the first one's commit, before it knows

    monkeypatch.setattr(ledger.store, "writing", and_another)
    first = spend(ledger)
    assert {first.request, other[0].request} == {e.request for e in ledger.entries()}
    assert ledger.spent == Q(2, 5)


def test_a_charge_of_which_nobody_was_told_is_found_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing = ledger.store.writing

    @contextmanager
    def untold() -> Iterator[Writing]:
        with writing() as now:
            yield now
        raise LedgerError("The connection was lost.")

    monkeypatch.setattr(ledger.store, "writing", untold)
    with pytest.raises(LedgerError):
        spend(ledger)
    monkeypatch.undo()
    (lost,) = ledger.entries()
    assert spend(ledger, 0.2).request != lost.request
    assert spend(ledger, plan="another").request != lost.request
    assert spend(ledger).request == lost.request
    assert spend(ledger).request != lost.request
    assert len(ledger.entries()) == 4


def test_a_charge_that_failed_pays_for_one_equal_request(ledger: Ledger) -> None:
    first = spend(ledger)
    ledger.fail(first)
    ledger.abandon(first)
    with pytest.raises(LedgerError, match="used before"):
        ledger.release(first, b"1")
    with pytest.raises(LedgerError, match="Nothing was released"):
        ledger.deliver(first)
    assert ledger.undelivered(PURPOSE, Q(1, 5)) is None
    assert spend(ledger, 0.2).request != first.request
    for name in ("plan", "script", "table", "schema", "vintage"):
        accept = {name: "another"}
        other = ledger.charge(
            Q(1, 5), asked=Budget(rho=0.1), purpose=purpose(**accept), accept_schema=True
        )
        assert other.request != first.request
    spent = ledger.spent
    again = ledger.charge(Q(1, 5), asked=Budget(rho=0.1), purpose=PURPOSE, accept_schema=True)
    assert (again, ledger.spent) == (first, spent)
    ledger.fail(again)  # a second time it is not noted
    assert ledger.entries()[0].state == "retried"
    assert spend(ledger).request != first.request
    ledger.release(again, b"1")
    ledger.fail(again)
    ledger.deliver(again)
    assert ledger.entries()[0].state == "delivered"
    assert ledger.audit().contents == 1


def test_of_many_that_ask_again_one_takes_a_failed_charge_over(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=0.07))
    ledger.fail(spend(ledger, 0.07))
    results = race(lambda: ledger, 6, 2)
    assert sorted(results) == ["refused"] * 11 + ["spent"]
    assert [entry.state for entry in ledger.entries()] == ["retried"]
    assert ledger.remaining == 0


EIGHT = """
    import os, sys
    from dpsql.errors import BudgetError
    from dpsql.privacy import Budget, Ledger
    from tests.privacy.ledger_tools import CONTENT, spend

    def work(path, rho, each, state):
        ledger, done = Ledger.open(path, dataset="adult"), 0
        ledger.set_total(Budget(rho=int(rho)))
        for _ in range(int(each)):
            try:
                receipt = spend(ledger, 0.07)
            except BudgetError:
                continue
            done += 1
            if state == "delivered":
                ledger.release(receipt, CONTENT)
                ledger.deliver(receipt)
        return done

    go, start = os.pipe()
    for _ in range(8):
        if os.fork() == 0:
            os.close(start)
            os.read(go, 1)  # until the last one has this end
            os.write(1, b"%d\\n" % work(*sys.argv[1:]))
            os._exit(0)
    os.close(start)
    for _ in range(8):
        os.wait()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("rho", "each", "fit", "state"),
    [
        (3, 10, 42, "charged"),
        (3, 10, 42, "delivered"),
        pytest.param(20, 100, 285, "charged", marks=pytest.mark.long),
        pytest.param(6, 20, 85, "delivered", marks=pytest.mark.long),
    ],
)
def test_processes_that_create_and_spend_at_once(
    path: Path, rho: int, each: int, fit: int, state: str
) -> None:
    """A race between reading and writing would let more through than ⌊ρ / 0.07⌋."""
    child = python(EIGHT, path, rho, each, state)
    out, err = child.communicate(timeout=120)
    done = [int(line) for line in out.split()]
    assert (len(done), sum(done)) == (8, fit), err
    ledger = Ledger.open(path, dataset="adult")
    entries = ledger.entries()
    assert ledger.spent == fit * Q(14, 100) == sum(e.mu_squared for e in entries)
    assert (len(entries), {e.state for e in entries}) == (fit, {state})
    assert ledger.audit().contents == (fit if state == "delivered" else 0)
    assert os.listdir(path.parent) == [path.name]


# Processes that are killed

KILLED = """
    import hashlib, os, signal, sys
    from pathlib import Path
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import spend

    def work(path):
        ledger = Ledger.open(path, dataset="adult")
        with open(path + ".diary", "w", buffering=1) as diary:
            for _ in range(2):
                receipt = spend(ledger)
                measured = os.urandom(10_000)
                digest = hashlib.sha256(measured).hexdigest()
                print("measured", receipt.request, digest, file=diary)
                ledger.release(receipt, measured)
                print("released", receipt.request, digest, file=diary)
                ledger.deliver(receipt)
                print("delivered", receipt.request, digest, file=diary)
"""


def check_what_is_left(path: Path) -> str:
    """Check a ledger against the diary of the process that was killed; say how far it got."""
    diary = path.with_name(f"{path.name}.diary")
    lines = [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []
    ledger = Ledger.open(path, dataset="adult")
    entries = {entry.request: entry for entry in ledger.entries()}
    assert ledger.spent == len(entries) * Q(1, 5)
    states = ["charged", "released", "delivered"]
    for step, request, content in lines:
        entry = entries[request]  # whatever was measured was charged
        assert states.index(entry.state) >= states.index("charged" if step == "measured" else step)
        assert entry.content == content or (step == "measured" and not entry.content)
    kept = ledger.audit().contents
    assert kept == sum(entry.state != "charged" for entry in entries.values())

    waiting = [entry for entry in entries.values() if entry.state == "released"]
    found = ledger.undelivered(PURPOSE, Q(1, 5))
    assert len(waiting) == (found is not None) <= 1
    if found is not None:
        receipt, content = found
        assert receipt.request == waiting[0].request
        assert ["measured", receipt.request, hashlib.sha256(content).hexdigest()] in lines
        assert ledger.undelivered(PURPOSE, Q(1, 5)) == found
        ledger.deliver(receipt)
    assert ledger.undelivered(PURPOSE, Q(1, 5)) is None
    assert ledger.spent == len(entries) * Q(1, 5)
    spend(ledger)
    return max(entries.values(), key=lambda e: e.seq).state if entries else "opened"


def check_kills(folder: Path, count: int, seed: int) -> None:
    (folder / "before").mkdir()
    steps = killed(KILLED, folder / "before", [])
    moments = sorted(
        int(m) for m in 1 + np.random.default_rng(seed).choice(steps - 2, count, False)
    )
    assert killed(KILLED, folder, moments) == steps
    assert check_what_is_left(folder / "whole") == "delivered"
    reached = [check_what_is_left(folder / str(moment)) for moment in moments]
    assert set(reached) == {"opened", "charged", "released", "delivered"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")
def test_kill(tmp_path: Path) -> None:
    check_kills(tmp_path, 25, seed=1)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")
def test_kill_at_many_steps(tmp_path: Path) -> None:
    check_kills(tmp_path, 200, seed=2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forks(path: Path) -> None:
    on_disk, in_memory = Ledger.open(path, dataset="a"), Ledger.open(None, dataset="a")
    on_disk.set_total(Budget(rho=0.3))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            spend(on_disk, 0.2)
            try:
                spend(in_memory)
            except LedgerError:
                code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(BudgetError):
        spend(on_disk, 0.2)
    assert on_disk.spent == Q(4, 10)
    assert in_memory.spent == 0
