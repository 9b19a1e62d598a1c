"""Frames of our own from `dpsql.query` to the first integer of noise.

python -m tests.benchmarks.frames
"""

from __future__ import annotations

import traceback
from pathlib import Path
from unittest.mock import patch

import duckdb

import dpsql
from dpsql.measurement import narrow

PACKAGE = Path(dpsql.__file__).parent
SAMPLERS = {"rounded_gaussian": {"rho": 1}, "discrete_laplace": {"epsilon": 1, "delta": 0}}
"""Where noise is drawn, and a budget for which it is."""
TABLE = """
    CREATE TYPE sex AS ENUM ('F', 'M');
    CREATE TABLE people AS SELECT 'F'::sex AS sex FROM range(100);
"""
SQL = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


def frames(sampler: str) -> list[str]:
    """Return the frames below a public call when the first noise is drawn, outermost first."""
    found: list[str] = []
    draw = getattr(narrow, sampler)

    def look(*given):
        if not found:
            stack = traceback.extract_stack()[:-1]
            own = [f for f in stack if PACKAGE in Path(f.filename).parents]
            found.extend(f"{Path(f.filename).relative_to(PACKAGE)}:{f.name}" for f in own)
            found.append(sampler)
        return draw(*given)

    with duckdb.connect() as con:
        con.execute(TABLE).fetchall()
        mechanism = "laplace" if sampler == "discrete_laplace" else "querysmasher"
        budget = dpsql.Budget(**SAMPLERS[sampler])
        with patch.object(narrow, sampler, look):
            dpsql.query(con, SQL, budget=budget, mechanism=mechanism)
    return found


if __name__ == "__main__":
    for sampler in SAMPLERS:
        print(*frames(sampler), sep="\n", end="\n\n")
