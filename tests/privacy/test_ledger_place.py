"""Where a data set's ledger is: one place, on which everyone agrees."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from dpsql.errors import LedgerError
from dpsql.privacy import (
    Ledger,
    data_id,
    join,
    join_database,
    join_stored,
    ledger_path,
    open_ledger,
    place,
    pointer,
)
from tests.privacy.ledger_tools import PURPOSE, python, spend


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "adult.duckdb"
    path.parent.mkdir()
    path.write_bytes(b"a database")
    return path


@pytest.fixture
def usual(database: Path) -> Path:
    return database.with_name("adult.duckdb.ledger")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    (tmp_path / "accounts").mkdir()
    return tmp_path / "accounts" / "adult.ledger"


def refused(database: Path, given: Path | str | None, match: str) -> LedgerError:
    """Both ways of asking refuse it, and nothing is changed."""
    before = sorted(database.parent.iterdir())
    for ask in (ledger_path, open_ledger):
        with pytest.raises(LedgerError, match=match) as caught:
            ask(database, given)
        assert caught.value.hint
    assert sorted(database.parent.iterdir()) == before
    return caught.value


def test_beside_the_database(database: Path, usual: Path) -> None:
    assert ledger_path(database) == usual
    assert not usual.exists()
    ledger = open_ledger(str(database))
    assert (ledger.path, ledger.dataset) == (usual, "adult.duckdb")
    spend(ledger)
    assert [open_ledger(database, g).id for g in (None, usual, str(usual))] == [ledger.id] * 3
    assert sorted(p.name for p in database.parent.iterdir()) == [database.name, usual.name]


def test_databases_in_memory(elsewhere: Path) -> None:
    assert ledger_path(None) is None
    one, other = open_ledger(None), open_ledger(None)
    assert one.path is None
    assert one.id != other.id
    assert ledger_path(None, elsewhere) == elsewhere
    assert open_ledger(None, elsewhere).dataset == ":memory:"
    assert os.listdir(elsewhere.parent) == [elsewhere.name]


def test_a_pointer_stands_for_a_ledger_elsewhere(
    database: Path, usual: Path, elsewhere: Path
) -> None:
    assert ledger_path(database, elsewhere) == elsewhere
    assert not usual.exists()
    ledger = open_ledger(database, elsewhere)
    assert (ledger.path, ledger.dataset) == (elsewhere, "adult.duckdb")
    said = json.loads(usual.read_text())
    assert said == {"dpsql ledger": 3, "path": str(elsewhere), "data": data_id(database)}
    assert stat.S_IMODE(usual.stat().st_mode) == 0o600
    for given in (None, elsewhere, usual, os.path.relpath(elsewhere)):
        assert ledger_path(database, given) == elsewhere
        assert open_ledger(database, given).id == ledger.id
    assert Ledger.existing(usual).id == Ledger.open(usual, dataset="adult.duckdb").id == ledger.id
    assert sorted(p.name for p in database.parent.iterdir()) == [database.name, usual.name]


def test_a_second_ledger_is_refused(database: Path, usual: Path, elsewhere: Path) -> None:
    ledger = open_ledger(database)
    assert "leave ledger= out" in str(refused(database, elsewhere, "has its ledger in"))
    assert not elsewhere.exists()
    usual.rename(elsewhere)  # what the hint says
    assert open_ledger(database, elsewhere).id == ledger.id
    assert open_ledger(database).id == ledger.id


def test_a_third_place_is_refused(database: Path, usual: Path, elsewhere: Path) -> None:
    ledger = open_ledger(database, elsewhere)
    third = elsewhere.with_name("third.ledger")
    hint = str(refused(database, third, "has its ledger in"))
    assert f"remove {usual}" in hint
    assert not third.exists()
    elsewhere.rename(third)  # what the hint says
    refused(database, None, "is not there")
    refused(database, third, "is not there")
    usual.unlink()
    assert open_ledger(database, third).id == open_ledger(database).id == ledger.id


def test_a_pointer_to_nothing(database: Path, elsewhere: Path) -> None:
    open_ledger(database, elsewhere)
    elsewhere.rename(elsewhere.with_name("away"))
    for given in (None, elsewhere):
        assert "restore it there" in str(refused(database, given, "is not there"))
    with pytest.raises(LedgerError, match="is not there"):
        Ledger.existing(database.with_name("adult.duckdb.ledger"))
    elsewhere.with_name("away").rename(elsewhere)
    open_ledger(database)


def test_a_ledger_of_another_data_set_leaves_no_pointer(
    database: Path, usual: Path, elsewhere: Path
) -> None:
    Ledger.open(elsewhere, dataset="other.duckdb")
    with pytest.raises(LedgerError, match="another data set"):
        open_ledger(database, elsewhere)
    for impossible in (elsewhere.parent, elsewhere / "below", elsewhere.parent / "no" / "folder"):
        with pytest.raises(LedgerError):
            open_ledger(database, impossible)
    assert not usual.exists()
    open_ledger(database)


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "\udcff", "x" * 240])
def test_names_that_no_pointer_can_hold(database: Path, elsewhere: Path, name: str) -> None:
    deep = elsewhere.parent
    if name.startswith("x"):
        for _ in range(17):
            deep = deep / name
    with pytest.raises(LedgerError):
        open_ledger(database, deep / name)
    assert os.listdir(database.parent) == [database.name]
    assert os.listdir(elsewhere.parent) == []


# Links


def test_links_lead_to_the_same_ledger(tmp_path: Path, database: Path, usual: Path) -> None:
    (tmp_path / "links").mkdir()
    by_file = tmp_path / "links" / "other.duckdb"
    by_file.symlink_to(database)
    (tmp_path / "folder").symlink_to(database.parent)
    ledger = open_ledger(by_file)
    assert ledger.path == usual
    for same in (database, by_file, tmp_path / "folder" / database.name):
        assert open_ledger(same).id == ledger.id
        assert open_ledger(same, tmp_path / "folder" / usual.name).path == usual
    assert os.listdir(tmp_path / "links") == [by_file.name]


def test_a_link_at_the_usual_place(database: Path, usual: Path, elsewhere: Path) -> None:
    ledger = Ledger.open(elsewhere, dataset=database.name)
    usual.symlink_to(elsewhere)
    for given in (None, usual, elsewhere):
        assert open_ledger(database, given).id == ledger.id
        assert ledger_path(database, given) == elsewhere
    elsewhere.unlink()
    for given in (None, usual, elsewhere):
        refused(database, given, "a link to a file that is not there")


def test_links_to_nothing_are_not_filled(database: Path, elsewhere: Path) -> None:
    link = elsewhere.with_name("link")
    link.symlink_to(elsewhere)
    refused(database, link, "a link to a file that is not there")
    link.unlink()
    link.symlink_to(link)
    refused(database, link, "link")


# Hostile pointers

PLAIN = {"dpsql ledger": 2, "path": "/nowhere/adult.ledger"}


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[]",
        b"null",
        b"2",
        b"\xff\xfe",
        b"[" * 4000,
        b'{"a":' * 800,
        b"9" * 4000,
        b"SQLite format 3\0" + b"\0" * 100,
        json.dumps(PLAIN).encode()[:-1],
        json.dumps(PLAIN).encode() + b"x",
        json.dumps(PLAIN).encode("utf-16"),
        json.dumps(PLAIN | {"more": 1}).encode(),
        json.dumps(PLAIN | {"dpsql ledger": 3}).encode(),
        json.dumps(PLAIN | {"data": "0" * 32}).encode(),
        *(
            json.dumps(PLAIN | {"dpsql ledger": 3, "data": data}).encode()
            for data in ("", "0" * 31, "0" * 31 + "G", 7, None, ["0" * 32])
        ),
        b'{"dpsql ledger": 2, "path": "/a", "path": "/b"}',
        b'{"dpsql ledger": 2}',
        *(
            json.dumps(PLAIN | {"dpsql ledger": version}).encode()
            for version in (True, 1, 0, -2, 2.0, "2", None, [2], float("nan"))
        ),
        *(
            json.dumps(PLAIN | {"path": path}).encode()
            for path in (
                "",
                "x.ledger",
                "../x",
                "~/x",
                7,
                None,
                ["/x"],
                "/a\0b",
                "/a\nb",
                "/\ud800",
            )
        ),
    ],
)
def test_malformed_pointers(database: Path, usual: Path, elsewhere: Path, content: bytes) -> None:
    usual.write_bytes(content)
    for given in (None, elsewhere):
        refused(database, given, "neither a ledger nor a pointer")
    with pytest.raises(LedgerError, match="neither a ledger nor a pointer"):
        Ledger.existing(usual)
    assert usual.read_bytes() == content
    assert not elsewhere.exists()


def test_a_pointer_of_a_newer_version(database: Path, usual: Path) -> None:
    usual.write_text(json.dumps(PLAIN | {"dpsql ledger": 5}))
    assert "update" in str(refused(database, None, "format version 5"))


def test_databases_that_share_a_ledger_are_told_apart(
    tmp_path: Path, database: Path, usual: Path, elsewhere: Path
) -> None:
    other = tmp_path / "later" / database.name
    other.parent.mkdir()
    other.write_bytes(b"another")
    ledger = open_ledger(database)
    assert open_ledger(other, usual).id == ledger.id
    assert data_id(database) == ""
    assert len(data_id(other)) == 32
    assert data_id(other) == data_id(other)
    copied = tmp_path / "copied" / database.name
    shutil.copytree(other.parent, copied.parent)  # with its pointer: the same rows
    assert data_id(copied) == data_id(other)
    moved = tmp_path / "moved" / database.name
    shutil.copytree(database.parent, moved.parent)  # with its ledger
    assert data_id(moved) == ""
    assert data_id(None) != data_id(None)


def test_a_pointer_of_the_version_before_is_followed(
    database: Path, usual: Path, elsewhere: Path
) -> None:
    ledger = Ledger.open(elsewhere, dataset=database.name)
    usual.write_text(json.dumps({"dpsql ledger": 2, "path": str(elsewhere)}))
    assert open_ledger(database).id == ledger.id
    assert data_id(database) == ""
    assert json.loads(usual.read_text())["dpsql ledger"] == 2


def test_without_a_pointer_the_path_tells_databases_apart(
    tmp_path: Path, database: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "later" / database.name
    other.parent.mkdir()
    monkeypatch.setattr(pointer.os, "access", lambda *_: False)
    assert open_ledger(database, elsewhere).id == open_ledger(other, elsewhere).id
    assert len({data_id(database), data_id(other), ""}) == 3
    assert data_id(database) == data_id(str(database))


def test_pointers_to_what_is_no_ledger(database: Path, usual: Path, elsewhere: Path) -> None:
    other = sqlite3.connect(elsewhere.with_name("other"))
    other.execute("CREATE TABLE t (x)")
    other.close()
    elsewhere.write_text("text " * 2000)
    for target in (
        Path("/dev/null"), Path("/dev/zero"), elsewhere, elsewhere.with_name("other"), usual,
        elsewhere.parent, database,
    ):  # fmt: skip
        usual.write_text(json.dumps(PLAIN | {"path": str(target)}))
        with pytest.raises(LedgerError):
            open_ledger(database)
    assert database.read_bytes() == b"a database"
    assert elsewhere.read_text() == "text " * 2000


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b" " * 5000, b" " * 10**6])
def test_files_that_are_no_pointers(database: Path, usual: Path, content: bytes) -> None:
    usual.write_bytes(content)
    with pytest.raises(LedgerError):
        open_ledger(database)
    assert usual.read_bytes() == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hold_it_up(database: Path, usual: Path) -> None:
    os.mkfifo(usual)
    with pytest.raises(LedgerError):
        open_ledger(database)


def test_the_locks_of_a_ledger_are_not_dropped(database: Path, usual: Path) -> None:
    """Opening and closing the file would let another process in."""
    ledger = open_ledger(database)
    with ledger._store.writing():
        assert ledger_path(database) == usual
        child = python(
            "import sqlite3, sys\n"
            "c = sqlite3.connect(sys.argv[1], timeout=0.1, isolation_level=None)\n"
            "c.execute('BEGIN IMMEDIATE')\n",
            usual,
        )
        assert "database is locked" in child.communicate(timeout=30)[1]


# Folders that can't be written to, crashes, races


def test_a_read_only_folder_gets_no_pointer(
    database: Path, usual: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path != database.parent and real(path, mode)
    )
    ledger = open_ledger(database, elsewhere)
    assert not usual.exists()
    monkeypatch.undo()
    assert open_ledger(database, elsewhere).id == ledger.id
    assert usual.exists()  # as soon as that is possible


def test_a_full_disk_leaves_no_second_ledger(
    database: Path, usual: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pointer, "create_text", full)
    with pytest.raises(LedgerError, match="No space left") as caught:
        open_ledger(database, elsewhere)
    assert "free some disk space" in str(caught.value.hint)
    monkeypatch.undo()
    assert open_ledger(database).path == usual  # nothing was spent from the other one
    refused(database, elsewhere, "has its ledger in")


KILLED = """
    import os, signal, sys
    from dpsql.privacy import open_ledger

    def opened_until(moment, database, given):
        steps = 0
        def trace(frame, event, argument):
            nonlocal steps
            if "privacy" not in frame.f_code.co_filename:
                return None
            steps += 1
            if steps == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return trace
        sys.settrace(trace)
        open_ledger(database, given)
        sys.settrace(None)
        return steps

    folder = sys.argv[1]
    def names(moment):
        os.mkdir(f"{folder}/{moment}")
        return f"{folder}/{moment}/adult.duckdb", f"{folder}/{moment}/elsewhere"
    steps = opened_until(0, *names(0))
    for moment in range(1, steps, 13):
        child = os.fork()
        if child == 0:
            opened_until(moment, *names(moment))
        os.waitpid(child, 0)
    print(steps)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="uses fork and SIGKILL")
def test_killed_while_a_pointer_is_left(tmp_path: Path) -> None:
    child = python(KILLED, tmp_path)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    moments = range(1, int(out), 13)
    outcomes = []
    for moment in moments:
        folder = tmp_path / str(moment)
        ledger = open_ledger(folder / "adult.duckdb")  # by someone who knows of no other place
        spend(ledger)
        assert ledger.path is not None
        outcomes.append(ledger.path.name)
        if ledger.path.name == "elsewhere":
            assert open_ledger(folder / "adult.duckdb", folder / "elsewhere").spent > 0
        else:
            refused(folder / "adult.duckdb", folder / "elsewhere", "has its ledger in")
    assert set(outcomes) == {"elsewhere", "adult.duckdb.ledger"}
    assert outcomes == sorted(outcomes)  # the second one before the pointer, and not after


@pytest.mark.parametrize("first", ["ledger", "pointer to the same", "pointer to another"])
def test_another_process_is_first(
    database: Path, usual: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """It takes the usual place while this one creates its ledger elsewhere."""
    theirs = {"ledger": None, "pointer to the same": elsewhere}.get(
        first, elsewhere.with_name("another")
    )
    leave = pointer.leave

    def late(path: Path, target: Path) -> None:
        monkeypatch.undo()
        spend(open_ledger(database, theirs))
        leave(path, target)

    monkeypatch.setattr(place.pointer, "leave", late)
    if theirs == elsewhere:
        assert open_ledger(database, elsewhere).entries()[0].purpose == PURPOSE
        return
    with pytest.raises(LedgerError, match="has its ledger in"):
        open_ledger(database, elsewhere)
    assert len(open_ledger(database).entries()) == 1
    assert Ledger.existing(elsewhere).entries() == ()


def test_another_process_leaves_a_pointer_where_a_ledger_is_created(
    database: Path, usual: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpsql.privacy import ledger as module

    create = module.create_file

    def late(path: Path, dataset: str) -> None:
        monkeypatch.undo()
        spend(open_ledger(database, elsewhere))
        create(path, dataset)

    monkeypatch.setattr(module, "create_file", late)
    ledger = open_ledger(database)
    assert ledger.path == elsewhere
    assert len(ledger.entries()) == 1


def test_many_at_once_agree(database: Path, elsewhere: Path) -> None:
    """Half of them know of no other place, the others of one each."""
    begin = threading.Barrier(8)
    opened: list[str] = []

    def work(number: int) -> None:
        given = elsewhere.with_name(f"{number}.ledger") if number % 2 else None
        begin.wait()
        try:
            ledger = open_ledger(database, given)
        except LedgerError:
            return
        spend(ledger)
        opened.append(ledger.id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = open_ledger(database)
    assert set(opened) == {ledger.id}
    assert len(opened) == len(ledger.entries()) >= 4
    spent = [Ledger.existing(path).spent for path in elsewhere.parent.glob("*.ledger")]
    assert sum(s > 0 for s in spent) <= 1


class TestFolders:
    """Of the files that views read."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "files" / "trips").mkdir(parents=True)
        return tmp_path / "files" / "trips"

    def test_a_ledger_at_the_usual_place(self, folder: Path) -> None:
        ledger = open_ledger(None, folder.with_name("trips.ledger"))
        assert join([folder, folder], ledger) == ("", "")
        assert sorted(p.name for p in folder.parent.iterdir()) == ["trips", "trips.ledger"]

    def test_a_ledger_elsewhere_leaves_a_pointer(self, folder: Path, database: Path) -> None:
        ledger = open_ledger(database)
        (found,) = join([folder], ledger)
        assert len(found) == 32
        assert join([folder], ledger) == (found,)
        assert pointer.followed(folder.with_name("trips.ledger")) == ledger.path
        other = open_ledger(None, folder.with_name("other.ledger"))
        before = sorted(folder.parent.iterdir())
        with pytest.raises(LedgerError, match="have their account in") as caught:
            join([folder], other)
        assert str(ledger.path) in str(caught.value.hint)
        assert sorted(folder.parent.iterdir()) == before

    def test_the_first_of_two_at_once_is_the_one(
        self, folder: Path, elsewhere: Path, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = open_ledger(None, elsewhere), open_ledger(database)
        real = pointer.leave

        def leave(path: Path, target: Path) -> None:
            monkeypatch.setattr(pointer, "leave", real)
            join([folder], first)
            real(path, target)

        monkeypatch.setattr(pointer, "leave", leave)
        with pytest.raises(LedgerError, match="have their account in"):
            join([folder], second)
        join([folder], first)

    def test_nothing_is_decided_by_asking(self, folder: Path, database: Path) -> None:
        ledger, usual = open_ledger(database), folder.with_name("trips.ledger")
        assert len(join([folder], ledger, decide=False)) == 1
        assert not usual.exists()
        join([folder], open_ledger(None, usual))
        with pytest.raises(LedgerError, match="have their account in"):
            join([folder], ledger, decide=False)

    def test_all_of_several_or_none(self, folder: Path, database: Path) -> None:
        other = folder.parent / "others"
        other.mkdir()
        join([other], open_ledger(None, other.with_name("others.ledger")))
        with pytest.raises(LedgerError, match="have their account in"):
            join([folder, other], open_ledger(database))
        assert not folder.with_name("trips.ledger").exists()
        with pytest.raises(LedgerError, match="in memory only") as caught:
            join([folder, other], open_ledger(None))
        assert "others.ledger" in str(caught.value.hint)

    def test_memory_is_no_place(self, folder: Path) -> None:
        with pytest.raises(LedgerError, match="in memory only") as caught:
            join([folder], open_ledger(None))
        assert "trips.ledger" in str(caught.value.hint)
        assert list(folder.parent.iterdir()) == [folder]

    def test_links_and_damage(self, folder: Path, database: Path) -> None:
        ledger = open_ledger(database)
        found = join([folder], ledger)
        (folder.parent / "link").symlink_to(folder)
        assert join([folder.parent / "link"], ledger) == found
        folder.with_name("trips.ledger").write_text("nothing")
        with pytest.raises(LedgerError, match="neither a ledger nor a pointer"):
            join([folder], ledger)


class TestAttachedDatabases:
    """They are charged for in the account of a session on another database, or in memory."""

    @pytest.fixture
    def other(self, tmp_path: Path) -> Path:
        path = tmp_path / "others" / "hr.duckdb"
        path.parent.mkdir()
        path.write_bytes(b"a database")
        return path

    def test_the_first_account_is_that_of_its_own_sessions(
        self, database: Path, other: Path
    ) -> None:
        ledger = open_ledger(database)
        found = join_database(other, ledger)
        assert (len(found), found) == (32, data_id(other))
        own = open_ledger(other)  # a pointer has decided, so its name is not asked
        assert (own.id, own.dataset) == (ledger.id, "adult.duckdb")
        with pytest.raises(LedgerError, match="have their account in"):
            join_database(other, open_ledger(None, other.with_name("fresh.ledger")))

    def test_its_account_may_begin_in_memory(self, other: Path) -> None:
        usual = other.with_name("hr.duckdb.ledger")
        ledger = open_ledger(None, usual)
        assert ledger.dataset == "hr.duckdb"
        assert join_database(other, ledger) == ""
        assert open_ledger(other).id == open_ledger(None, usual).id == ledger.id

    def test_accounts_elsewhere_are_found_by_their_pointers(
        self, other: Path, elsewhere: Path
    ) -> None:
        ledger = open_ledger(other, elsewhere)
        again = open_ledger(None, other.with_name("hr.duckdb.ledger"))
        assert again.id == ledger.id
        assert len(join_database(other, again)) == 32

    def test_without_a_place_nothing_is_charged(
        self, database: Path, other: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ledger = open_ledger(database)
        monkeypatch.setattr(pointer.os, "access", lambda *_: False)
        with pytest.raises(LedgerError, match="Nothing can be written beside"):
            join_database(other, ledger)
        monkeypatch.undo()
        join_database(other, ledger)
        monkeypatch.setattr(pointer.os, "access", lambda *_: False)
        join_database(other, ledger)

    def test_a_ledger_is_still_of_one_name_where_nothing_has_decided(
        self, database: Path, other: Path, elsewhere: Path
    ) -> None:
        open_ledger(database, elsewhere)
        with pytest.raises(LedgerError, match="another data set"):
            open_ledger(other, elsewhere)
        assert not other.with_name("hr.duckdb.ledger").exists()


@pytest.mark.parametrize("uid", ["", "3f1e"])
def test_rows_on_other_machines_have_no_account_in_a_file(tmp_path, uid):
    """Nothing beside them would lead other sessions to it, so each would begin another one."""
    ledger = open_ledger(None, tmp_path / "mine.ledger")
    with pytest.raises(LedgerError, match="on this machine") as caught:
        join_stored((), uid, ledger)
    assert "postgresql://" in str(caught.value.hint)
