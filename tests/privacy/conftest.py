from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.privacy import Ledger
from tests.helpers import postgres


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "adult.duckdb.ledger"


@pytest.fixture(params=["memory", "file", pytest.param("server", marks=pytest.mark.postgres)])
def ledger(request: pytest.FixtureRequest, path: Path) -> Ledger:
    if request.param == "server":
        return postgres.begun(request.getfixturevalue("address"), "adult")
    return Ledger.open(path if request.param == "file" else None, dataset="adult")
