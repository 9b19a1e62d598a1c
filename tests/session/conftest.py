from __future__ import annotations

import pytest

import dpsql
from tests.session.tools import create


@pytest.fixture
def file(tmp_path):
    create(tmp_path / "people.duckdb").close()
    return tmp_path / "people.duckdb"


@pytest.fixture
def con():
    with create() as con:
        yield con


@pytest.fixture
def session(con):
    return dpsql.Session(con)
