"""What the tests of the ledger have in common."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import Budget, Ledger, Purpose, Receipt
from dpsql.privacy.sqlite import tables

CONTENT = bytes(range(256)) * 40


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def purpose(**fields: str) -> Purpose:
    """A purpose of which some fields have been named: `purpose(schema="another")`."""
    names = dict.fromkeys(("plan", "script", "table", "schema", "unit", "vintage"), "")
    return Purpose(**{n: digest(n + fields.get(n, "")) for n in names | fields})


PURPOSE = purpose()


def spend(ledger: Ledger, rho: object = 0.1, **fields: str) -> Receipt:
    asked = Budget(rho=rho)  # type: ignore[call-overload]
    return ledger.charge(asked.mu_squared, asked=asked, purpose=purpose(**fields))


def answer(
    ledger: Ledger, content: bytes | None = CONTENT, rho: object = 0.1, **fields: str
) -> Receipt:
    """Charge and release, but don't deliver."""
    receipt = spend(ledger, rho, **fields)
    ledger.release(receipt, content)
    return receipt


def refused(path: Path | None, match: str | None = None, dataset: str = "adult") -> LedgerError:
    with pytest.raises(LedgerError, match=match) as caught:
        Ledger.open(path, dataset=dataset)
    assert caught.value.hint
    return caught.value


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def unguarded(statement: str) -> list[str]:
    """Change or delete rows, and put back the trigger that forbids it."""
    words = statement.split()
    table = words[1] if words[0] == "UPDATE" else words[2]
    name = f"{table}_{words[0].lower()}"
    return [
        f"DROP TRIGGER {name}",
        statement,
        *tables.guards(table, words[0].lower()),
    ]


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def python(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Run code in a process of its own; it may use these tools."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2], **options,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


_KILLING = """
    def killed_at(moment, path):
        steps = 0
        def trace(frame, event, argument):
            nonlocal steps
            if "dpsql/privacy" not in frame.f_code.co_filename:
                return None
            steps += 1
            if steps == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        work(path)
        sys.settrace(None)
        return steps

    folder, moments = sys.argv[1], [int(m) for m in sys.argv[2].split()]
    print(killed_at(0, folder + "/whole"))
    for moment in moments:
        child = os.fork()
        if child == 0:
            killed_at(moment, f"{folder}/{moment}")
            os._exit(0)
        if os.waitpid(child, 0)[1] != signal.SIGKILL:
            sys.exit(f"{moment} was not reached")
"""


def killed(program: str, folder: Path, moments: list[int]) -> int:
    """Kill a process that works at a ledger at each of some steps; return how many there are.

    Args:
        program: it imports `os`, `signal` and `sys`, and has `work(path)`.
        folder: where the ledgers are, one for each moment.
        moments: the steps.
    """
    child = python(program + _KILLING, folder, " ".join(map(str, moments)))
    out, err = child.communicate(timeout=500)
    assert child.returncode == 0, err
    return int(out)
