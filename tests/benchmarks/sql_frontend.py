"""Time the SQL front end: a long script, and all three-way ranges.

Run `python -m tests.benchmarks.sql_frontend`. Each case runs in a process of its own; wall seconds
and peak memory are printed. The three-way ranges are stated in SQL, by three joins with a public
table of ranges, and planned; their 129 billion answers are never written out.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import duckdb

import dpsql
from dpsql.sql import compile_script
from dpsql.sql.allow import check_allowed
from dpsql.sql.binding.tables import NamedTables
from dpsql.sql.outline import Outliner
from dpsql.sql.sandbox.database import Sandbox
from dpsql.sql.text.parse import parse_statement
from tests.helpers.described import read_table

CREATE = """
    CREATE TABLE adult (
        age INTEGER CHECK (age BETWEEN 0 AND 99), hours INTEGER CHECK (hours BETWEEN 0 AND 99),
        education_num INTEGER CHECK (education_num BETWEEN 0 AND 99),
        sex ENUM('Female', 'Male') NOT NULL, rich BOOLEAN NOT NULL
    )
"""
RANGES = """
    WITH r AS (SELECT a.x AS lo, b.x AS hi FROM range(100) a(x) JOIN range(100) b(x) ON a.x <= b.x)
    SELECT a.lo AS age_from, a.hi AS age_to, h.lo AS hours_from, h.hi AS hours_to,
        e.lo AS years_from, e.hi AS years_to, COUNT(*) AS n
    FROM adult JOIN r AS a ON age BETWEEN a.lo AND a.hi JOIN r AS h ON hours BETWEEN h.lo AND h.hi
        JOIN r AS e ON education_num BETWEEN e.lo AND e.hi
    GROUP BY ALL
"""
KINDS = (
    "SELECT sex, COUNT(*) AS n FROM adult WHERE age BETWEEN {low} AND {high} GROUP BY sex",
    "SELECT age // 10 AS decade, COUNT(*) AS n FROM adult WHERE hours > {low} GROUP BY decade",
    "SELECT rich, 100.0 * COUNT_IF(age > {low}) / COUNT(*) AS share FROM adult GROUP BY rich",
    "SELECT sex, AVG(hours) AS mean FROM adult WHERE age < {high} GROUP BY sex ORDER BY mean",
)


def script(statements: int) -> list[tuple[str, str]]:
    """Write a script of different statements, of four kinds."""
    return [
        (f"q{i}", KINDS[i % len(KINDS)].format(low=i % 40, high=i % 40 + 20 + i // 40))
        for i in range(statements)
    ]


def long_script() -> None:
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    statements = script(200)
    table = read_table(con, ("adult",))
    start = time.perf_counter()
    outliner = Outliner(NamedTables(Sandbox(), lambda parts: table, lambda parts: None))
    for _, sql in statements:
        parsed = parse_statement(sql)
        check_allowed(parsed)
        outliner.outline(parsed)
    bound = time.perf_counter() - start
    start = time.perf_counter()
    compiled = compile_script(statements, lambda parts: table)
    wall = time.perf_counter() - start
    count = len(compiled.workload.families)
    print(
        f"200 statements, {count} families: parsed and bound in {bound:.2f} s, "
        f"with their matrices in {wall:.2f} s"
    )


def three_way_ranges() -> None:
    con = duckdb.connect()
    con.execute(CREATE).fetchall()
    start = time.perf_counter()
    plan = dpsql.plan(con, RANGES, budget=dpsql.Budget(rho=0.5))
    wall = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{plan.workload.count:,} ranges: compiled and planned in {wall:.2f} s, "
        f"peak {peak:.0f} MB, rmse {plan.rmse:.4f}, gap {plan.gap:.1e}"
    )


def main() -> None:
    """Run each case in a fresh process."""
    for name in ("long_script", "three_way_ranges"):
        code = f"from tests.benchmarks import sql_frontend as b; b.{name}()"
        subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main()
