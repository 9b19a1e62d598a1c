from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.privacy import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "adult.duckdb.ledger"


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Ledger:
    return Ledger.open(path if request.param == "file" else None, dataset="adult")
