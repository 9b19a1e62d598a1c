"""How often intervals hold the truth, by the size of groups and by the budget.

Run it: python -m tests.benchmarks.coverage [draws [statement …]]

Rows of the Adult extract are dealt to twelve groups: three each of 5, 20, 100 and 1,000 rows. Every
statement is planned once, and measured as often as `draws` says with seeded noise. An entry has the
share of 95 % intervals that hold the answer without noise, the share of answers that are NULL, and
the median width of the intervals. In groups of 5 rows and with ε = 0.1 there is almost nothing to
know: counts have standard errors of 50 and more.

Entries rest on 3·draws intervals; with the 300 draws that are usual the standard error of a share
of 0.95 is 0.007, and more if what the groups of a draw share is noisy.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import duckdb
import numpy as np
import polars as pl

import dpsql
from tests.helpers.redrawn import Redrawn
from tests.release.adult import connect

SIZES = (5, 20, 100, 1000)
GROUPS = 12
EPSILONS = (0.1, 1.0, 10.0)
CREATE = f"""
    CREATE TABLE t (
        g INTEGER NOT NULL CHECK (g BETWEEN 0 AND {GROUPS - 1}),
        age SMALLINT NOT NULL CHECK (age BETWEEN 16 AND 100),
        hours SMALLINT NOT NULL CHECK (hours BETWEEN 1 AND 99),
        education TINYINT NOT NULL CHECK (education BETWEEN 1 AND 16),
        rich BOOLEAN NOT NULL
    )
"""
STATEMENTS = {
    name: f"SELECT g, {value} AS v FROM t GROUP BY g"
    for name, value in {
        "COUNT(*)": "COUNT(*)",
        "AVG(age)": "AVG(age)",
        "round(AVG(age), 1)": "round(AVG(age), 1)",
        "SUM(age) / COUNT(*)": "SUM(age) / COUNT(*)",
        "VAR_POP(age)": "VAR_POP(age)",
        "STDDEV(age)": "STDDEV(age)",
        "STDDEV(age) / AVG(age)": "STDDEV(age) / AVG(age)",
        "percent": "100.0 * COUNT_IF(rich) / COUNT(*)",
        "share of all": "COUNT(*) / SUM(COUNT(*)) OVER ()",
        "AVG by rich": "AVG(age) FILTER (WHERE rich) - AVG(age) FILTER (WHERE NOT rich)",
        "sqrt(COUNT(*))": "sqrt(COUNT(*))",
        "ln(COUNT(*))": "ln(COUNT(*))",
        "MEDIAN(age)": "MEDIAN(age)",
        "DISC(age, .5)": "QUANTILE_DISC(age, 0.5)",
        "CONT(age, .1)": "QUANTILE_CONT(age, 0.1)",
        "CONT(age, .9)": "QUANTILE_CONT(age, 0.9)",
        "DISC(hours, .25)": "QUANTILE_DISC(hours, 0.25)",
        "DISC(hours, .9)": "QUANTILE_DISC(hours, 0.9)",
        "MEDIAN(education)": "MEDIAN(education)",
    }.items()
}


@dataclass(frozen=True)
class Entry:
    """What came of one statement in groups of one size."""

    coverage: float
    nulls: float
    width: float


def groups() -> duckdb.DuckDBPyConnection:
    """Return a table of people of the Adult extract, dealt to groups by a hash."""
    con = connect()
    con.execute(CREATE).fetchall()
    ends = np.cumsum([SIZES[g % len(SIZES)] for g in range(GROUPS)]).tolist()
    con.execute(
        "INSERT INTO t SELECT (SELECT COUNT(*) FROM unnest(?) AS ends(n) WHERE n <= place), "
        "age, hours_per_week, education_num, income = '>50K' FROM (SELECT *, row_number() OVER "
        "(ORDER BY hash(age, hours_per_week, education_num, income, rowid)) - 1 AS place "
        f"FROM adult) WHERE place < {ends[-1]}",
        [ends],
    ).fetchall()
    return con


def measured(con: duckdb.DuckDBPyConnection, sql: str, epsilon: float, draws: int) -> list[Entry]:
    """Return an entry for each size of groups."""
    truth = [
        float("nan") if v is None else float(v) for _, v in sorted(con.execute(sql).fetchall())
    ]
    budget = dpsql.Budget(epsilon=epsilon, delta=1e-9)
    plan = Redrawn.of(con, {"q": sql}, budget=budget, confidence=0.95)
    found = {name: np.full((draws, GROUPS), np.nan) for name in ("v", "v_lower", "v_upper")}
    for i, release in enumerate(plan.draws(draws)):
        frame = release["q"].sort("g")
        for name, into in found.items():
            into[i] = frame[name].cast(pl.Float64).to_numpy()
    return [entry(found, np.array(truth), np.arange(GROUPS) % len(SIZES) == j) for j in range(4)]


def entry(found: dict[str, np.ndarray], truth: np.ndarray, mine: np.ndarray) -> Entry:
    """Compare the intervals of some groups with the truth; where it is NULL there is none."""
    mine = mine & ~np.isnan(truth)
    value, lower, upper = (found[name][:, mine] for name in ("v", "v_lower", "v_upper"))
    given = ~(np.isnan(lower) | np.isnan(upper))
    near = 1e-9 * (1 + np.abs(truth[mine]))
    held = (lower <= truth[mine] + near) & (truth[mine] - near <= upper)
    coverage = float(held[given].mean()) if given.any() else float("nan")
    width = float(np.median((upper - lower)[given])) if given.any() else float("nan")
    return Entry(coverage, float(np.isnan(value).mean()), width)


def main() -> None:
    """Print the table, row by row."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    chosen = sys.argv[2:] or list(STATEMENTS)
    con = groups()
    print(f"coverage (NULL) width, {draws} draws; groups of {SIZES} rows")
    start = time.process_time()
    for epsilon in EPSILONS:
        for name in chosen:
            entries = measured(con, STATEMENTS[name], epsilon, draws)
            shown = "".join(f"  {e.coverage:6.3f} ({e.nulls:.2f}) {e.width:8.4g}" for e in entries)
            print(f"ε {epsilon:<4} {name:24}{shown}", flush=True)
    print(f"{time.process_time() - start:.0f} CPU seconds")


if __name__ == "__main__":
    main()
