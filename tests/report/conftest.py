from __future__ import annotations

import pytest

import dpsql
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect


@pytest.fixture(scope="module")
def session() -> dpsql.Session:
    return dpsql.Session(connect(), schema=SCHEMA, budget=dpsql.Budget(epsilon=2, delta=1e-9))


@pytest.fixture(scope="module")
def release(session) -> dpsql.Release:
    return session.release(SCRIPT, budget=BUDGET, confidence=0.9)
