"""The rows that tables count are those that were counted before relations were written.

Ledgers and releases know which rows were kept by a rule alone (`engines/duckdb/bounded.py`), so the
digests here may change only where a new rule gets a new name. Those of `stored_rows.json` are of
the stored columns of stored tables, and as old as the rule. Those of `kept_rows.json` are of all
that statements read, by names: they also change where statements are compiled to other relations,
or columns have other names.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from dpsql.engines.others import stored_columns
from dpsql.errors import DpsqlError
from dpsql.rel.related import related_rows
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.release.test_random_databases import counted_tables, kept, read_of

KEPT = Path(__file__).with_name("kept_rows.json")
STORED = Path(__file__).with_name("stored_rows.json")


def counted(seed):
    """Return the tables whose rows a random script counts; none if it is refused."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    script = RandomQuestions(rng, database.kinds).script()
    con = database.connect()
    try:
        return rng, con, counted_tables(con, database, script)
    except DpsqlError:
        return rng, con, ()


def hashed(found):
    return hashlib.sha256(repr(found).encode()).hexdigest()


def digest(seed):
    """Return a hash of the rows that count in the tables of a script; empty if it is refused."""
    rng, con, tables = counted(seed)
    if not tables:
        return ""
    found = []
    for one in tables:
        table = one.without_keys
        names = read_of(rng, table)
        found.append((table.name, names, sorted(kept(con, table, names).items(), key=repr)))
    return hashed(found)


def digests_of_stored(seed):
    """Return the stored tables whose rows a script counts, with a hash of these rows.

    Of rows of relations there is none.
    """
    _, con, tables = counted(seed)
    found = {}
    for table in (one.without_keys for one in tables):
        if related_rows(table) is None:
            rows = [
                sorted(kept(con, table, names).items(), key=repr)
                for names in (list(table.alone.columns), stored_columns(table))
            ]
            found[table.name] = hashed([table.unit_rows, rows])
    return found


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


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 16), pytest.param(16, 200, marks=pytest.mark.long)],
    ids=["some", "many"],
)
def test_the_same_rows_of_stored_tables_are_kept_as_ever(first, last):
    known, compared = json.loads(STORED.read_text(encoding="utf-8")), 0
    for seed in range(first, last):
        found = digests_of_stored(seed)
        both = known[seed].keys() & found.keys()
        assert {name: found[name] for name in both} == {name: known[seed][name] for name in both}
        compared += len(both)
    assert compared > (last - first) / 2
