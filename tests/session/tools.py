"""A small database, and what the tests of sessions have in common."""

from __future__ import annotations

import os
import traceback
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import duckdb
import numpy as np
import polars as pl

import dpsql

PACKAGE = str(Path(dpsql.__file__).parent)
RHO = Fraction(1, 100)
BUDGET = dpsql.Budget(rho=RHO)
TOTAL = dpsql.Budget(rho=1)
BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
BY_AGE = "SELECT age, sex, COUNT(*) AS n FROM people GROUP BY age, sex"
AGES = "SELECT age, COUNT(*) AS n FROM people GROUP BY age"
BANDS = "SELECT age // 5 AS band, COUNT(*) AS n FROM people GROUP BY ALL"
WINDOW = "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM people GROUP BY age"
TABLE = """
    CREATE TYPE sex AS ENUM ('F', 'M');
    CREATE TABLE people (
        person INTEGER,
        sex sex NOT NULL,
        age INTEGER NOT NULL CHECK (age BETWEEN 0 AND 9),
        town VARCHAR CHECK (town IN ('A', 'B''s "x"', 'C')),
        income INTEGER NOT NULL CHECK (income BETWEEN 0 AND 100));
    INSERT INTO people
    SELECT i % 50, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END, i * 7 % 10,
        CASE WHEN i % 4 < 3 THEN ['A', 'B''s "x"', 'C'][i % 4 + 1] END, i * 13 % 101
    FROM range(300) AS t(i);
"""


def create(file: Path | None = None) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:" if file is None else file)
    con.execute(TABLE).fetchall()
    return con


def key(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """Its rows as plain values: the noisy answer itself."""
    return [tuple(map(str, row)) for row in frame.rows()]


def warm_up() -> None:
    """Load what a release needs, so that forked processes need not; start no threads."""
    import pyarrow.parquet  # noqa: F401

    import dpsql.session  # noqa: F401


def forked(work: Callable[[], object]) -> int:
    """Do something in a forked process, and return that one's number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


class Steps:
    """Notes the lines that some files of the package run, and acts at one of them."""

    def __init__(self, rooms: tuple[str, ...], moment: str, act: Callable[[], None]) -> None:
        self.moments: list[str] = []
        """Which lines they were, and for the how manieth time: `…/work.py:17 #2`.

        So a moment means the same in releases that take more or fewer steps before it.
        """
        self._times: Counter[str] = Counter()
        self._moment, self._act = moment, act
        self._prefixes = tuple(f"{PACKAGE}/{room}" for room in rooms)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._prefixes):
            return None
        line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._times[line] += 1
        self.moments.append(f"{line} #{self._times[line]}")
        if self.moments[-1] == self._moment:
            self._act()
        return self


def landmarks(moments: list[str]) -> list[str]:
    """The last step of measuring, when nothing is stored yet, and of saving."""
    rooms = ("/measurement/measure.py:", "/release/folder.py:")
    return [[moment for moment in moments if room in moment][-1] for room in rooms]


def moments_of(moments: list[str], count: int, seed: int) -> list[str]:
    """Choose some: lines first, so that those in loops are not all that is hit."""
    generator = np.random.default_rng(seed)
    places: dict[str, list[str]] = {}
    for moment in moments:
        places.setdefault(moment.split(" #")[0], []).append(moment)
    chosen = generator.choice(sorted(places), min(count, len(places)), replace=False)
    return [str(generator.choice(places[line])) for line in chosen.tolist()]
