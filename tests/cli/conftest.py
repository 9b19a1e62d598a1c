"""A small database on disk, and commands run on it in this process."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest
from click.testing import CliRunner, Result

from dpsql.cli import main

SCRIPT = """
-- name: by_sex
SELECT sex, COUNT(*) AS n FROM people GROUP BY sex;

-- name: ages
SELECT age, COUNT(*) AS n FROM people GROUP BY age;
"""
BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


class Commands:
    """Runs commands; the database and its ledger are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = folder / "people.duckdb"
        self.script = folder / "release.sql"
        self.ledger = folder / "people.duckdb.ledger"

    def run(self, *arguments: object, text: str | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=text)
        assert "Traceback" not in result.output
        return result

    def done(self, *arguments: object, text: str | None = None) -> str:
        """Run a command that must succeed, and return what it printed."""
        result = self.run(*arguments, text=text)
        assert result.exit_code == 0, result.output
        return result.stdout

    def document(self, *arguments: object) -> dict:
        return json.loads(self.done(*arguments, "--json"))


@cache
def stored(sql: str) -> bytes:
    """Return a file with a database: it is made once, and written for each test."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.duckdb"
        with duckdb.connect(path) as con:
            con.execute(sql).fetchall()
        return path.read_bytes()


PEOPLE = """
    CREATE TABLE people (
        sex ENUM('female', 'male') NOT NULL,
        age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 99),
        income INTEGER
    );
    INSERT INTO people SELECT 'female', i % 90, i FROM range(600) AS t(i);
    INSERT INTO people SELECT 'male', i % 90, i FROM range(400) AS t(i);
"""


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    found = Commands(tmp_path)
    found.db.write_bytes(stored(PEOPLE))
    found.script.write_text(SCRIPT, encoding="utf-8")
    return found
