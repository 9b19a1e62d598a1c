"""A release of many types of keys, and what the tests of releases on disk have in common."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dpsql
from dpsql.errors import ReleaseFormatError
from dpsql.present import disk
from dpsql.release import folder

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
TABLE = """
    CREATE TYPE sex AS ENUM ('F', 'M', 'it''s "x", ü');
    CREATE TABLE people (
        sex sex, born DATE NOT NULL, height DECIMAL(4, 1) NOT NULL, member BOOLEAN,
        town VARCHAR, age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 9));
    INSERT INTO people
    SELECT CASE WHEN i % 5 > 0 THEN ['F', 'M', 'it''s "x", ü'][i % 3 + 1] END,
        DATE '2020-01-01' + (i % 4)::INTEGER, 1.5 + i % 3, i % 2 = 0,
        ['a', 'b''c', '"d"'][i % 3 + 1], i % 10
    FROM range(200) AS t(i);
"""
SCHEMA = dpsql.Schema(
    {
        "people": {
            "born": dpsql.Domain.dates("2020-01-01", "2020-01-04"),
            "height": dpsql.Domain.decimals("1.5", "4.5", step="1.0"),
            "town": dpsql.Domain.labels(["a", "b'c", '"d"'], nullable=True),
        }
    }
)
SCRIPT = {
    "by sex": "SELECT sex, member, COUNT(*) AS n FROM people GROUP BY sex, member",
    "born": "SELECT born, height, COUNT(*) AS n FROM people GROUP BY born, height",
    "towns": "SELECT town, AVG(age) AS mean, COUNT(*) AS n FROM people GROUP BY town ORDER BY n",
    "median": "SELECT member, MEDIAN(age) AS m FROM people GROUP BY member",
}


def connect() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(TABLE).fetchall()
    return con


def refused(path: Path, **options: Any) -> dpsql.DpsqlError:
    with pytest.raises(ReleaseFormatError) as caught:
        dpsql.Release.load(path, **options)
    assert caught.value.hint
    return caught.value


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change release.json as someone would who knows how it is sealed."""
    said = json.loads((path / "release.json").read_text())
    said.pop("sha256")
    change(said)
    said["sha256"] = folder._digest(said)
    text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
    (path / "release.json").write_text(text)


def replace_file(path: Path, name: str, content: bytes) -> None:
    (path / name).write_bytes(content)
    digest = disk.digest_of(path / name)
    reseal(path, lambda said: said["files"][name].update(sha256=digest))


def assert_same(one: dpsql.Release, other: dpsql.Release) -> None:
    assert list(one) == list(other)
    for name in one:
        assert_frame_equal(one[name], other[name], check_exact=True)
        assert_frame_equal(one.columns(name), other.columns(name))
    assert one.charged == other.charged
    assert one.charged.form == other.charged.form
    assert one.receipt == other.receipt
    assert one.neighbours == other.neighbours
    assert one.summary() == other.summary()


def io_parquet(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()
