"""The Adult extract, as the demo loads it."""

from __future__ import annotations

import runpy
from functools import cache
from itertools import combinations
from pathlib import Path

import duckdb

EXAMPLES = Path(__file__).parents[2] / "examples"


@cache
def demo_module():
    return runpy.run_path(str(EXAMPLES / "demo.py"))


def connect(path=":memory:") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(path)
    demo_module()["load_adult"](con)
    return con


CATEGORIES = ("workclass", "education_num", "marital_status", "race", "sex")


def census_task() -> dict[str, str]:
    """All 1- and 2-way group-bys over five columns, and the age distribution: 677 answers."""
    task = {}
    for keys in [*combinations(CATEGORIES, 1), *combinations(CATEGORIES, 2)]:
        listed = ", ".join(keys)
        task["_by_".join(keys)] = f"SELECT {listed}, COUNT(*) AS n FROM adult GROUP BY {listed}"
    task["age_cdf"] = "SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS n FROM adult GROUP BY age"
    return task
