"""What the ledger keeps of releases, and to whom it hands it out."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import Audit, Budget, Entry, Ledger, owner
from tests.privacy.ledger_tools import (
    CONTENT,
    PURPOSE,
    answer,
    edit,
    purpose,
    python,
    spend,
    unguarded,
)

COST = Q(1, 5)


def contents(ledger: Ledger, **fields: str) -> list[bytes]:
    wanted = purpose(**fields)
    found = ledger.measurements(table=wanted.table, unit=wanted.unit, vintage=wanted.vintage)
    return [content for _, content in found]


@pytest.mark.parametrize("content", [b"", b"x", CONTENT, bytes(3_000_000)])
def test_what_was_stored_is_read(ledger: Ledger, content: bytes) -> None:
    answer(ledger, content)
    (entry,) = ledger.entries()
    assert ledger.content(entry) == content
    assert ledger.audit() == Audit(entries=1, events=3, contents=1, content_bytes=len(content))
    assert contents(ledger) == [content]


def test_what_is_not_kept(ledger: Ledger) -> None:
    receipt = spend(ledger)
    (before,) = ledger.entries()
    assert ledger.content(before) is None
    ledger.release(receipt, None)
    (entry,) = ledger.entries()
    assert (entry.state, entry.content, entry.released) == ("released", "", 3)
    assert ledger.content(entry) is None
    assert contents(ledger) == []
    ledger.abandon(receipt)
    assert ledger.undelivered(PURPOSE, COST) is None


def test_an_entry_that_was_read_before_the_release(ledger: Ledger) -> None:
    receipt = spend(ledger)
    (before,) = ledger.entries()
    ledger.release(receipt, CONTENT)
    assert ledger.content(before) == CONTENT
    for forged in (replace(before, mu_squared=Q(1)), replace(before, plan="ab")):
        with pytest.raises(LedgerError, match="does not hold"):
            ledger.content(forged)


def test_contents_that_are_too_long(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ledger.store.most == (2**26 if ledger.store.is_shared else 2**29)
    receipt = spend(ledger)
    monkeypatch.setattr(type(ledger._store), "most", 10)
    ledger.release(receipt, b"x" * 11)
    (entry,) = ledger.entries()
    digest = hashlib.sha256(b"x" * 11).hexdigest()
    assert (entry.content, entry.unkept, entry.digest) == ("", digest, digest)
    assert ledger.content(entry) is None
    assert contents(ledger) == []
    for again in (b"x" * 11, b"y" * 11, b"x", None):
        with pytest.raises(LedgerError, match="used before"):
            ledger.release(receipt, again)
    assert ledger.audit().contents == 0
    ledger.deliver(receipt)
    other = spend(ledger)
    ledger.release(other, b"x" * 10)
    assert ledger.entries()[1].digest == ledger.entries()[1].content


def test_measurements_of_one_table_unit_and_vintage(ledger: Ledger) -> None:
    answer(ledger, b"1", plan="a", script="a")
    ledger.deliver(answer(ledger, b"2", plan="b"))
    answer(ledger, b"3", table="other")
    answer(ledger, b"4", table="other", vintage="other")
    spend(ledger)
    answer(ledger, None)
    asked = Budget(rho=0.1)
    receipt = ledger.charge(
        asked.mu_squared, asked=asked, purpose=purpose(schema="new"), accept_schema=True
    )
    ledger.release(receipt, b"5")
    assert contents(ledger) == [b"1", b"2", b"5"]
    assert contents(ledger, table="other") == [b"3"]
    assert contents(ledger, table="other", vintage="other") == [b"4"]
    assert contents(ledger, vintage="other") == contents(ledger, unit="other") == []
    found = ledger.measurements(table=PURPOSE.table, unit=PURPOSE.unit, vintage=PURPOSE.vintage)
    assert [entry.plan for entry, _ in found][:2] == [
        purpose(plan="a").plan, purpose(plan="b").plan,
    ]  # fmt: skip
    assert [entry.schema == PURPOSE.schema for entry, _ in found] == [True, True, False]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE measurement SET content = x'00' WHERE seq = 3",
        "UPDATE measurement SET seq = 99 WHERE seq = 3",
        "DELETE FROM measurement WHERE seq = 3",
    ],
)
def test_a_changed_content_is_noticed(path: Path, statement: str) -> None:
    ledger = Ledger.open(path, dataset="adult")
    receipt = answer(ledger, b"first")  # so short that no page is freed, see test_ledger_damage
    second = answer(ledger, b"second", script="second")
    edit(path, *unguarded(statement))
    for held in (receipt, second):
        ledger.abandon(held)
    changed, intact = ledger.entries()
    for use in (
        lambda: ledger.content(changed),
        lambda: ledger.undelivered(PURPOSE, COST),
        lambda: contents(ledger),
        ledger.audit,
    ):
        with pytest.raises(LedgerError, match="damaged"):
            use()
    assert ledger.content(intact) == b"second"
    found = ledger.undelivered(purpose(script="second"), COST)
    assert found is not None
    assert found[1] == b"second"


def test_an_audit_finds_contents_that_no_entry_names(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    answer(ledger)
    edit(path, "INSERT INTO measurement VALUES (7, x'00')")
    spend(ledger)
    with pytest.raises(LedgerError, match="no entry names"):
        ledger.audit()


# Releases that nobody was handed


def test_an_answer_in_flight_is_not_given_to_another_request(ledger: Ledger) -> None:
    receipt = spend(ledger)
    assert ledger.undelivered(PURPOSE, COST) is None  # nothing is released
    ledger.release(receipt, CONTENT)
    assert ledger.undelivered(PURPOSE, COST) is None  # this process is about to hand it out
    ledger.abandon(receipt)
    assert ledger.undelivered(PURPOSE, COST) == (receipt, CONTENT)
    spent = ledger.spent
    ledger.deliver(receipt)
    assert ledger.undelivered(PURPOSE, COST) is None
    assert ledger.spent == spent


def test_the_newest_with_the_same_question_and_cost(ledger: Ledger) -> None:
    for content, fields in (
        (b"old", {}),
        (b"new", {"plan": "another"}),
        (b"1", {"script": "other"}),
        (b"2", {"vintage": "other"}),
        (b"3", {"table": "other", "schema": "other", "unit": "other"}),
    ):
        ledger.abandon(answer(ledger, content, **fields))
    newest = ledger.undelivered(PURPOSE, COST)
    assert newest is not None
    receipt, content = newest
    assert (receipt.plan, content) == (purpose(plan="another").plan, b"new")
    assert ledger.undelivered(PURPOSE, COST + Q(1, 10**9)) is None
    assert ledger.undelivered(purpose(schema="other"), COST) is None
    ledger.deliver(receipt)
    older = ledger.undelivered(PURPOSE, COST)
    assert older is not None
    assert older[1] == b"old"  # it was paid for as well


def test_a_cost_that_was_rounded_up_is_found_again(ledger: Ledger) -> None:
    cost = Q(1, 7)
    receipt = ledger.charge(cost, asked=Budget(rho=1), purpose=PURPOSE)
    assert receipt.mu_squared != cost
    ledger.release(receipt, CONTENT)
    ledger.abandon(receipt)
    for amount in (cost, receipt.mu_squared):
        assert ledger.undelivered(PURPOSE, amount) == (receipt, CONTENT)


ANSWER = """
    import os, sys, time
    from dpsql.privacy import Ledger
    from tests.privacy.ledger_tools import answer
    answer(Ledger.open(sys.argv[1], dataset="adult"))
    print("answered", flush=True)
    sys.stdin.read()
    os._exit(1)
"""


def test_an_answer_of_another_process_while_it_lives_and_after(path: Path) -> None:
    child = python(ANSWER, path, stdin=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == "answered\n"
    ledger = Ledger.open(path, dataset="adult")
    assert ledger.undelivered(PURPOSE, COST) is None
    child.communicate(timeout=30)
    found = ledger.undelivered(PURPOSE, COST)
    assert found is not None
    assert found[1] == CONTENT
    ledger.deliver(found[0])
    assert ledger.spent == COST
    assert ledger.undelivered(PURPOSE, COST) is None


def test_the_same_process_after_it_forgot(path: Path) -> None:
    """A number that now belongs to another process is not the owner's."""
    ledger = Ledger.open(path, dataset="adult")
    receipt = answer(ledger)
    (entry,) = ledger.entries()
    host, pid, start = entry.owner.split(":")
    assert (entry.owner, pid) == (owner.this_process(), str(os.getpid()))
    assert not owner.is_gone(entry.owner, receipt.request)
    assert owner.is_gone(f"{host}:{pid}:another-start", receipt.request)
    assert owner.is_gone(f"{host}:{2**22 + 1}:{start}", receipt.request)
    assert not owner.is_gone(f"{'0' * 16}:{pid}:another-start", receipt.request)  # not asked here
    assert not owner.is_gone(f"{host}:{pid}:unknown", receipt.request)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_another_owner(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    parents = answer(ledger, b"of the parent")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if ledger.undelivered(PURPOSE, COST) is None:  # the parent lives
                answer(ledger, b"of the child")
                code = 0 if ledger.undelivered(PURPOSE, COST) is None else 2
        finally:
            os._exit(code)
    # Ended, but not yet waited for: there is still a process of that number, which does nothing.
    deadline = time.monotonic() + 30
    while ledger.undelivered(PURPOSE, COST) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    found = ledger.undelivered(PURPOSE, COST)
    assert os.waitpid(child, 0)[1] == 0
    assert found is not None
    assert found[1] == b"of the child"
    ledger.deliver(found[0])
    assert ledger.undelivered(PURPOSE, COST) is None  # the parent's is in flight here
    ledger.deliver(parents)
    assert [e.state for e in ledger.entries()] == ["delivered", "delivered"]


@pytest.mark.parametrize("start", [owner._start, owner._start_elsewhere])
def test_when_processes_began(start: object) -> None:
    """The way of other systems than Linux works on Linux too."""
    child = python("import sys; print('ready', flush=True); sys.stdin.read()", stdin=-1)
    assert child.stdout is not None
    child.stdout.readline()
    began = start(child.pid)  # type: ignore[operator]
    assert began == start(child.pid) != start(os.getpid())  # type: ignore[operator]
    child.kill()
    child.communicate()
    assert start(child.pid) is None  # type: ignore[operator]


def test_a_process_that_can_not_be_looked_at_counts_as_alive(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(pid: int) -> str:
        raise PermissionError

    receipt = answer(ledger)
    ledger.abandon(receipt)
    other = ledger.entries()[0].owner.replace(":", ":1", 1)
    monkeypatch.setattr(owner, "_start", forbidden)
    assert not owner.is_gone(other, receipt.request)
    assert isinstance(ledger.entries()[0], Entry)
