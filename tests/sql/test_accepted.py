"""Every accepted query, answered at a huge budget, equals DuckDB's own answer."""

import pytest

from dpsql.sql import split_script
from tests.sql import reference

STATEMENTS = [
    (f"{path.stem}/{name}", sql)
    for path in sorted((reference.FIXTURES / "accepted").glob("*.sql"))
    for name, sql in split_script(path.read_text())
]


@pytest.fixture(scope="module")
def con():
    return reference.connect()


def test_enough_queries():
    assert len(STATEMENTS) >= 300


@pytest.mark.sampled(40)
@pytest.mark.parametrize(("name", "sql"), STATEMENTS, ids=[name for name, _ in STATEMENTS])
def test_equals_duckdb(con, name, sql):
    assert reference.differences(con, sql) == []
