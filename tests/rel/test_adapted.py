"""The rows that tables count today are those of their relations, row for row."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from dpsql.engines.duckdb.relations import DuckDBRelations
from dpsql.errors import DpsqlError
from tests.helpers.random_databases import RandomDatabase, RandomQuestions
from tests.rel.adapted import Adapter, NotAdaptedError
from tests.release.test_random_databases import counted_tables, kept, read_of


def by_relation(con, table, names):
    relation, ids = Adapter().of(table, names)
    query = DuckDBRelations().query(relation, [ids[name] for name in names])
    columns = [query.columns[ids[name]] for name in names]
    listed = ", ".join(f"encode({column}::VARCHAR)" for column in columns)
    return Counter(con.execute(f"SELECT {listed or 1} FROM ({query.sql})").fetchall())


def compared(seed):
    """Compare the tables of one script; return how many were."""
    rng = random.Random(seed)  # noqa: S311
    database = RandomDatabase(rng)
    script = RandomQuestions(rng, database.kinds).script()
    con = database.connect()
    try:
        tables = counted_tables(con, database, script)
    except DpsqlError:
        return 0
    done = 0
    for counted in tables:
        table = counted.without_keys
        names = read_of(rng, table)
        try:
            found = by_relation(con, table, names)
        except NotAdaptedError:
            continue
        assert found == kept(con, table, names), (script, table.name, names)
        done += 1
    return done


@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 16), pytest.param(16, 300, marks=pytest.mark.long)],
    ids=["some", "many"],
)
def test_rows_are_those_that_are_counted_today(first, last):
    done = 0
    for seed in range(first, last):
        done += compared(seed)
    assert done > (last - first) / 4
