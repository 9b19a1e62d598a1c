"""The rows that tables count are those that were counted before relations were written.

Ledgers and releases know which rows were kept by a rule alone (`engines/duckdb/bounded.py`), so the
digests here may change only where a new rule gets a new name.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from dpsql.errors import DpsqlError
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.release.test_random_databases import counted_tables, kept, read_of

KEPT = Path(__file__).with_name("kept_rows.json")


def digest(seed):
    """Return a hash of the rows that count in the tables of a script; empty if it is refused."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    script = RandomQuestions(rng, database.kinds).script()
    con = database.connect()
    try:
        tables = counted_tables(con, database, script)
    except DpsqlError:
        return ""
    found = []
    for counted in tables:
        table = counted.without_keys
        names = read_of(rng, table)
        found.append((table.name, names, sorted(kept(con, table, names).items(), key=repr)))
    return hashlib.sha256(repr(found).encode()).hexdigest()


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 16), pytest.param(16, 200, marks=pytest.mark.long)],
    ids=["some", "many"],
)
def test_the_same_rows_are_kept_as_ever(first, last):
    known = json.loads(KEPT.read_text(encoding="utf-8"))
    for seed in range(first, last):  # those that were refused then may be answered now
        assert known[seed] in {"", digest(seed)}, seed
    assert sum(map(bool, known)) > len(known) / 4
