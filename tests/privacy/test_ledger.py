from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction as Q
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import BudgetError, LedgerError
from dpsql.privacy import Budget, Ledger, Receipt, store
from dpsql.privacy import ledger as ledger_module

PLAN, SCHEMA = "ab" * 32, "cd" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "adult.duckdb.ledger"


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Ledger:
    return Ledger.open(path if request.param == "file" else None, dataset="adult")


def spend(ledger: Ledger, rho: object = 0.1) -> Receipt:
    asked = Budget(rho=rho)
    return ledger.charge(asked.mu_squared, asked=asked, plan=PLAN, schema=SCHEMA)


def refused(path: Path | None, match: str | None = None, dataset: str = "adult") -> LedgerError:
    with pytest.raises(LedgerError, match=match) as caught:
        Ledger.open(path, dataset=dataset)
    assert caught.value.hint
    return caught.value


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for statement in statements:
            connection.execute(statement)
    finally:
        connection.close()


def python(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # type: ignore[call-overload, no-any-return]  # fmt: skip


# What it counts


def test_a_new_ledger(ledger: Ledger) -> None:
    assert (ledger.total, ledger.spent, ledger.remaining) == (None, 0, None)
    assert ledger.entries() == ()
    assert len(ledger.id) == 32


def test_ten_tenths_are_all(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    for _ in range(10):
        spend(ledger)
    assert (ledger.total, ledger.spent, ledger.remaining) == (2, 2, 0)
    with pytest.raises(BudgetError, match=r"asked ρ = 5e-13, left ρ = 0, short by ρ = 5e-13"):
        spend(ledger, 5e-13)
    assert ledger.spent == 2
    assert len(ledger.entries()) == 10


def test_a_refusal_says_what_is_left_and_how_to_go_on(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=1))
    spend(ledger, 0.7)
    before = ledger.entries()
    with pytest.raises(BudgetError) as caught:
        spend(ledger, 0.5)
    assert caught.value.message == (
        "Not enough budget: asked ρ = 0.5, left ρ = 0.3, short by ρ = 0.2."
    )
    assert caught.value.hint == "ask for at most dpsql.Budget(rho=0.3)."
    for asked, offer in (
        (Budget(mu=1), r"dpsql\.Budget\(mu=0\.774596\)"),
        (Budget(epsilon=9, delta=1e-9), r"dpsql\.Budget\(epsilon=[\d.]+, delta=1e-9\)"),
    ):
        with pytest.raises(BudgetError, match=offer):
            ledger.charge(asked.mu_squared, asked=asked, plan=PLAN, schema=SCHEMA)
    assert ledger.entries() == before
    spend(ledger, 0.3)
    assert ledger.remaining == 0


def test_without_a_total_spending_is_recorded(ledger: Ledger) -> None:
    spend(ledger, 3)
    assert (ledger.spent, ledger.remaining) == (6, None)
    with pytest.raises(LedgerError, match="already"):
        ledger.set_total(Budget(rho=2))
    ledger.set_total(Budget(rho=3))
    assert ledger.remaining == 0


def test_the_total_is_fixed_once(ledger: Ledger) -> None:
    ledger.set_total(Budget(rho=0.5))
    ledger.set_total(Budget(rho=0.5))
    ledger.set_total(Budget(mu=1))  # the same amount
    for other in (Budget(rho=0.6), Budget(rho=0.4), Budget(epsilon=1, delta=1e-9)):
        with pytest.raises(LedgerError, match="fixed before") as caught:
            ledger.set_total(other)
        assert caught.value.hint
    assert ledger.total == 1


def test_receipts_and_states(ledger: Ledger) -> None:
    first, second = spend(ledger), spend(ledger)
    assert first.ledger == second.ledger == ledger.id
    assert (first.seq, second.seq) == (1, 2)
    assert first.request != second.request
    assert (first.mu_squared, first.plan, first.schema) == (Q(1, 5), PLAN, SCHEMA)
    ledger.mark_released(second)
    assert [e.state for e in ledger.entries()] == ["charged", "released"]
    entry = ledger.entries()[0]
    assert (entry.seq, entry.request, entry.mu_squared) == (1, first.request, Q(1, 5))
    assert entry.time.endswith("+00:00")
    with pytest.raises(LedgerError, match="before"):
        ledger.mark_released(second)
    ledger.mark_released(first)
    assert ledger.spent == Q(2, 5)


def test_foreign_receipts(ledger: Ledger) -> None:
    receipt = spend(ledger)
    ledger.verify(receipt)
    other = Ledger.open(None, dataset="adult")
    for held in (
        replace(receipt, ledger="0" * 32),
        replace(receipt, seq=7),
        replace(receipt, request="0" * 32),
        replace(receipt, mu_squared=Q(1, 10)),
        replace(receipt, plan="00"),
        spend(other),
    ):
        for use in (ledger.mark_released, ledger.verify):
            with pytest.raises(LedgerError, match="does not hold"):
                use(held)
    with pytest.raises(AttributeError):
        receipt.mu_squared = Q(0)  # type: ignore[misc]


def test_costs_below_what_was_asked_are_rounded_up_a_little(ledger: Ledger) -> None:
    asked = Budget(rho=0.5)
    cost = Q(10**40 - 1, 3 * 10**40)
    receipt = ledger.charge(cost, asked=asked, plan=PLAN, schema=SCHEMA)
    assert cost <= receipt.mu_squared < cost + Q(1, 10**30)
    assert ledger.spent == receipt.mu_squared
    # An amount that the grid can't hold is charged as it was stated, never more.
    third = Budget(rho=Q(1, 3))
    receipt = ledger.charge(third.mu_squared, asked=third, plan=PLAN, schema=SCHEMA)
    assert receipt.mu_squared == Q(2, 3)


@pytest.mark.parametrize("cost", [Q(0), Q(-1), 1, 0.5, float("nan"), "1", None, True])
def test_bad_costs(ledger: Ledger, cost: object) -> None:
    with pytest.raises(BudgetError):
        ledger.charge(cost, asked=Budget(rho=1), plan=PLAN, schema=SCHEMA)  # type: ignore[arg-type]
    assert ledger.spent == 0


def test_the_longest_amounts_can_be_read_again(ledger: Ledger) -> None:
    """Python refuses to read integers of more than 4,300 digits."""
    longest = (1 << 1399) + 1
    for amount in (Q(longest, 100 * (longest >> 8)), Q(longest >> 10, longest)):
        before = ledger.spent
        budget = Budget(mu=amount)
        ledger.charge(budget.mu_squared, asked=budget, plan="ab", schema="cd")
        assert ledger.spent == before + budget.mu_squared


def test_a_cost_above_what_was_asked(ledger: Ledger) -> None:
    with pytest.raises(BudgetError, match="more than was asked"):
        ledger.charge(Q(2), asked=Budget(rho=0.5), plan=PLAN, schema=SCHEMA)
    assert ledger.spent == 0


@pytest.mark.parametrize("digest", ["SELECT 1", "", "AB", "g" * 64, "a" * 200, None, "ab\n"])
def test_only_digests_are_kept(ledger: Ledger, digest: str) -> None:
    for plan, schema in ((digest, SCHEMA), (PLAN, digest)):
        with pytest.raises(LedgerError, match="digests"):
            ledger.charge(Q(1), asked=Budget(rho=1), plan=plan, schema=schema)


@given(st.lists(st.fractions(Q(1, 1000), 1, max_denominator=10**4), max_size=8))
@settings(max_examples=25, deadline=None)
def test_the_sum_never_passes_the_total(amounts: list[Q]) -> None:
    ledger = Ledger.open(None, dataset="t")
    ledger.set_total(Budget(rho=1))
    spent = Q(0)
    for rho in amounts:
        if spent + rho <= 1:
            spend(ledger, rho)
            spent += rho
        else:
            with pytest.raises(BudgetError):
                spend(ledger, rho)
    assert ledger.spent == 2 * spent == sum(e.mu_squared for e in ledger.entries())


# The file


def test_it_survives_reopening(path: Path) -> None:
    first = Ledger.open(path, dataset="adult")
    first.set_total(Budget(rho=1))
    receipt = spend(first)
    again = Ledger.open(str(path), dataset="adult")
    assert (again.id, again.total, again.spent) == (first.id, 2, Q(1, 5))
    again.mark_released(receipt)
    assert first.entries() == again.entries()
    assert os.listdir(path.parent) == [path.name]  # no draft, no journal


def test_only_the_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        Ledger.open(path, dataset="adult")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["a b", "x?mode=memory", "y#z", "100%", "é", "'quote\""])
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    spend(Ledger.open(tmp_path / name, dataset="adult"))
    assert os.listdir(tmp_path) == [name]
    assert Ledger.open(tmp_path / name, dataset="adult").spent == Q(1, 5)


def test_a_ledger_belongs_to_its_data_set(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    refused(path, "another data set", dataset="adult2")
    for name in ("", "a\nb", "\ud800", "x" * 2000, None):
        refused(None, "short text", dataset=name)  # type: ignore[arg-type]


def test_impossible_places(tmp_path: Path) -> None:
    assert "folder" in str(refused(tmp_path / "missing" / "ledger"))
    refused(tmp_path)
    refused(tmp_path / "nul\0byte")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file" / "ledger")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    refused(tmp_path / "dangling")


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"garbage" * 1000, b"SQLite format 3\0"])
def test_files_that_are_no_ledger(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refused(path)
    assert path.read_bytes() == content


def test_other_sqlite_files(path: Path) -> None:
    edit(path, "CREATE TABLE t (x)")
    refused(path, "not a ledger")


@pytest.mark.parametrize("keep", [0, 100, 4096, 0.5, -1])
def test_truncation(path: Path, keep: float) -> None:
    ledger = Ledger.open(path, dataset="adult")
    spend(ledger)
    content = path.read_bytes()
    size = int(len(content) * keep) if keep == 0.5 else int(keep) % len(content)
    path.write_bytes(content[:size])
    refused(path)
    with pytest.raises(LedgerError):
        spend(ledger)
    with pytest.raises(LedgerError):
        _ = ledger.spent


DROP = "DROP TRIGGER event_update"
RESTORE = next(sql for sql in store.DDL if "event_update" in sql)
FAR = "0" * 64


@pytest.mark.parametrize(
    "statements",
    [
        [DROP],
        [DROP, "UPDATE event SET mu_squared = '1/100' WHERE seq = 2", RESTORE],
        [DROP, "UPDATE event SET mu_squared = '-1/5' WHERE seq = 2", RESTORE],
        [DROP, "UPDATE event SET mu_squared = '0.2' WHERE seq = 2", RESTORE],
        [DROP, "UPDATE event SET mu_squared = '100/1' WHERE seq = 1", RESTORE],
        [DROP, "UPDATE event SET time = 'earlier' WHERE seq = 2", RESTORE],
        [DROP, f"UPDATE event SET hash = '{FAR}' WHERE seq = 3", RESTORE],
        [DROP, "UPDATE event SET kind = 'released' WHERE seq = 3", RESTORE],
        ["DROP TRIGGER event_delete", "DELETE FROM event WHERE seq = 3", store.DDL[5]],
        ["DROP TRIGGER event_delete", "DELETE FROM event WHERE seq = 2", store.DDL[5]],
        ["DROP TRIGGER event_delete", "DELETE FROM event", store.DDL[5]],
        [f"INSERT INTO event VALUES (4, 'charged', 'r', '-2/1', '', '', '', '{FAR}')"],
        [f"INSERT INTO event VALUES (9, 'charged', 'r', '1/1', '', '', '', '{FAR}')"],
        ["DROP TRIGGER meta_update", "UPDATE meta SET format = 0", store.DDL[4]],
        ["DROP TRIGGER meta_delete", "DELETE FROM meta", store.DDL[3]],
        ["INSERT INTO meta VALUES (1, 'x', 'adult')"],
        ["ALTER TABLE meta RENAME COLUMN format TO version"],
        ["CREATE TABLE more (x)"],
        ["DROP TABLE event"],
    ],
)
def test_tampering_is_noticed(path: Path, statements: list[str]) -> None:
    ledger = Ledger.open(path, dataset="adult")
    ledger.set_total(Budget(rho=1))
    spend(ledger)
    spend(ledger)
    edit(path, *statements)
    refused(path)
    for use in (lambda: spend(ledger), lambda: ledger.spent, ledger.entries):
        with pytest.raises(LedgerError):
            use()


def test_the_triggers_guard_the_rows(path: Path) -> None:
    spend(Ledger.open(path, dataset="adult"))
    for statement in ("DELETE FROM event", "UPDATE event SET mu_squared = '0/1'",
                      "DELETE FROM meta", "UPDATE meta SET format = 2"):  # fmt: skip
        with pytest.raises(sqlite3.IntegrityError, match="only appended to"):
            edit(path, statement)


def test_a_newer_format_is_named(path: Path) -> None:
    Ledger.open(path, dataset="adult")
    edit(path, "DROP TRIGGER meta_update", "UPDATE meta SET format = 7")
    assert "version 7" in str(refused(path))


def test_an_older_copy_is_noticed_by_who_knows_better(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    spend(ledger)
    old = path.read_bytes()
    receipt = spend(ledger)
    path.write_bytes(old)
    with pytest.raises(LedgerError, match="missing"):
        spend(ledger)
    rolled_back = Ledger.open(path, dataset="adult")  # undetectable, as documented …
    assert rolled_back.spent == Q(1, 5)
    spend(rolled_back)
    with pytest.raises(LedgerError, match="does not hold"):
        rolled_back.verify(receipt)  # … but for the receipt
    with pytest.raises(LedgerError, match="changed"):
        spend(ledger)  # the same length, another history


def test_a_replaced_or_deleted_ledger(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    path.unlink()
    with pytest.raises(LedgerError, match="No such file"):
        spend(ledger)
    Ledger.open(path, dataset="adult")
    with pytest.raises(LedgerError, match="replaced"):
        spend(ledger)


def test_a_journal_mode_that_others_set_is_set_back(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    edit(path, "PRAGMA journal_mode = WAL")
    spend(ledger)
    assert path.read_bytes()[18:20] == b"\x01\x01"  # the header's mark of a rollback journal
    connection = store.connect(path)
    assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
    connection.close()


def test_a_read_only_ledger_is_noticed_at_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(path, dataset="adult")
    monkeypatch.setattr(ledger_module, "connect", lambda p: store.connect(p, mode="ro"))
    assert "writable" in str(refused(path, "readonly"))
    with pytest.raises(LedgerError, match="readonly"):
        spend(ledger)
    assert ledger.spent == 0  # reading is still possible


@pytest.mark.skipif(os.name != "posix", reason="file size limits are a POSIX matter")
def test_a_full_disk(path: Path) -> None:
    spend(Ledger.open(path, dataset="adult"))
    size = path.stat().st_size
    child = python(
        """
        import resource, signal, sys
        from dpsql.errors import LedgerError
        from dpsql.privacy import Budget, Ledger
        path, size = sys.argv[1], int(sys.argv[2])
        ledger = Ledger.open(path, dataset="adult")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        asked = Budget(rho=1)
        for use in (
            lambda: ledger.charge(asked.mu_squared, asked=asked, plan="ab", schema="cd"),
            lambda: Ledger.open(path, dataset="adult"),
            lambda: Ledger.open(path + "2", dataset="adult"),
        ):
            try:
                use()
            except LedgerError as error:
                print("refused", error.hint)
        """,
        path, size,
    )  # fmt: skip
    out, err = child.communicate(timeout=30)
    assert out.count("refused") == 3, out + err
    assert Ledger.open(path, dataset="adult").spent == Q(1, 5)
    assert os.listdir(path.parent) == [path.name]


def test_a_lock_that_others_hold_too_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(path, dataset="adult")
    monkeypatch.setattr(store, "_TIMEOUT_SECONDS", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    try:
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="locked") as caught:
            spend(ledger)
        assert "another process" in str(caught.value)
    finally:
        holder.close()
    spend(ledger)


def test_a_failure_inside_a_transaction_charges_nothing(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Ledger._append

    def interrupted(self: Ledger, *arguments: object) -> None:
        append(self, *arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "_append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        spend(ledger)
    monkeypatch.undo()
    assert ledger.spent == 0
    spend(ledger)
    assert ledger.entries()[0].seq == 1


# Many at once


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


WORKER = """
    import sys
    from dpsql.errors import BudgetError
    from dpsql.privacy import Budget, Ledger
    sys.stdin.readline()
    ledger = Ledger.open(sys.argv[1], dataset="adult")
    ledger.set_total(Budget(rho=3))
    asked, done = Budget(rho=0.07), 0
    for _ in range(25):
        try:
            receipt = ledger.charge(asked.mu_squared, asked=asked, plan="ab", schema="cd")
            ledger.mark_released(receipt)
            done += 1
        except BudgetError:
            pass
    print(done)
"""


def test_processes_that_create_and_spend_at_once(path: Path) -> None:
    children = [python(WORKER, path, stdin=subprocess.PIPE) for _ in range(4)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    finished = [child.communicate(timeout=60) for child in children]
    assert sum(int(out) for out, _ in finished) == 42, finished  # floor(3 / 0.07)
    ledger = Ledger.open(path, dataset="adult")
    assert ledger.spent == 42 * Q(14, 100) == sum(e.mu_squared for e in ledger.entries())
    assert {e.state for e in ledger.entries()} == {"released"}
    assert os.listdir(path.parent) == [path.name]


KILLED = """
    import os, signal, sys
    from dpsql.privacy import Budget, Ledger, ledger as module
    moment, connect = sys.argv[2], module.connect

    def watched(path):
        connection = connect(path)
        def before(statement):
            if statement.startswith(moment):
                os.kill(os.getpid(), signal.SIGKILL)
        connection.set_trace_callback(before)
        return connection

    ledger = Ledger.open(sys.argv[1], dataset="adult")
    module.connect = watched
    asked = Budget(rho=0.1)
    ledger.charge(asked.mu_squared, asked=asked, plan="ab", schema="cd")
    print("charged", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(os.name != "posix", reason="uses SIGKILL")
@pytest.mark.parametrize(
    ("moment", "charged"), [("BEGIN", 0), ("INSERT", 0), ("COMMIT", 0), ("never", 1)]
)
def test_kill(path: Path, moment: str, charged: int) -> None:
    child = python(KILLED, path, moment)
    out, _ = child.communicate(timeout=30)
    assert child.returncode == -9
    assert out.count("charged") == charged
    ledger = Ledger.open(path, dataset="adult")
    assert ledger.spent == charged * Q(1, 5)
    spend(ledger)


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


def test_nothing_but_amounts_and_digests_is_kept(path: Path) -> None:
    ledger = Ledger.open(path, dataset="adult")
    ledger.mark_released(spend(ledger))
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT * FROM event").fetchall()
    connection.close()
    assert [row[1:2] + row[3:6] for row in rows] == [
        ("charged", "1/5", PLAN, SCHEMA),
        ("released", "0/1", PLAN, SCHEMA),
    ]
