"""A session, a release of it, and a folder with that release."""

from __future__ import annotations

import shutil

import pytest

import dpsql
from tests.release.saved import BUDGET, SCHEMA, SCRIPT, connect


@pytest.fixture(scope="module")
def session():
    return dpsql.Session(connect(), schema=SCHEMA, vintage="2026-Q4")


@pytest.fixture(scope="module")
def release(session):
    return session.release(SCRIPT, budget=BUDGET, confidence=0.9)


@pytest.fixture(scope="module")
def original(release, tmp_path_factory):
    return release.save(tmp_path_factory.mktemp("saved") / "release")


@pytest.fixture
def saved(original, tmp_path):
    return shutil.copytree(original, tmp_path / "release")
