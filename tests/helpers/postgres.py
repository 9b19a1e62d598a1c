"""A PostgreSQL server of the tests' own, from the packages of the system."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from dpsql.privacy import Ledger
from dpsql.privacy.postgres import create

NEEDED = ("initdb", "pg_ctl", "pg_basebackup")
MISSING = (
    "There is no PostgreSQL server here, so the tests of ledgers in PostgreSQL are left out. "
    "To run them: apt-get install postgresql"
)


@cache
def programs() -> Path | None:
    """Find the folder of initdb and pg_ctl; Debian keeps them out of the PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((f for f in folders if all((f / name).exists() for name in NEEDED)), None)


def is_there() -> bool:
    """Whether a server can be run."""
    return programs() is not None


class Postgres:
    """A server in a folder of its own. It refuses to run as root, so it has another user then."""

    def __init__(self, folder: Path, *, made: bool = True) -> None:
        self.folder, self.data = folder, folder / "data"
        self.user = "postgres"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._as: dict[str, object] = {}
        if os.getuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            account = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(folder, account.pw_uid, account.pw_gid)
            self._as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        if made:
            self._make()

    def _make(self) -> None:
        self.run(
            "initdb", "-D", self.data, "-U", self.user, "-A", "trust", "-E", "UTF8",
            "--no-locale", "--no-sync",
        )  # fmt: skip
        (self.data / "pg_hba.conf").write_text(
            "host all secretive 127.0.0.1/32 scram-sha-256\n"
            "host all all 127.0.0.1/32 trust\n"
            "host replication all 127.0.0.1/32 trust\n"
        )

    def run(self, program: str, *arguments: object) -> None:
        """Run one of PostgreSQL's programs."""
        folder = programs()
        assert folder is not None, MISSING
        done = subprocess.run(
            [folder / program, *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False, cwd=self.folder, **self._as,
        )  # type: ignore[call-overload]  # fmt: skip
        assert done.returncode == 0, done.stdout

    def start(self, **settings: str) -> None:
        """Start it, with settings besides the usual ones."""
        given = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "60",
            "shared_buffers": "32MB",
            **settings,
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in given.items())
        log = self.folder / "log"
        self.run("pg_ctl", "-D", self.data, "-l", log, "-w", "-t", "120", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: `immediate` is a crash."""
        self.run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def query(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as a superuser, and return its rows."""
        with psycopg.connect(self.address(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def address(self, database: str = "postgres", user: str | None = None) -> str:
        """Give the address of a database."""
        return f"postgresql://{user or self.user}@127.0.0.1:{self.port}/{database}"


def begun(address: str, dataset: str) -> Ledger:
    """Begin a ledger."""
    store, _ = create(address, dataset)
    return Ledger(store)


@contextmanager
def standby(primary: Postgres) -> Iterator[Postgres]:
    """Run a copy of a server that follows it."""
    with _folder("dpsql-standby-") as folder:
        found = Postgres(folder, made=False)
        found.run(
            "pg_basebackup", "-h", "127.0.0.1", "-p", primary.port, "-U", primary.user,
            "-D", found.data, "-R", "--no-sync", "-c", "fast",
        )  # fmt: skip
        with _running(found):
            yield found


@contextmanager
def server(**settings: str) -> Iterator[Postgres]:
    """Run a server for as long as the block lasts."""
    with _folder("dpsql-postgres-") as folder, _running(Postgres(folder), **settings) as found:
        yield found


@contextmanager
def _folder(prefix: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(found: Postgres, **settings: str) -> Iterator[Postgres]:
    found.start(**settings)
    try:
        yield found
    finally:
        found.stop("immediate")
