"""More random statements at next to no noise: whether every interval holds DuckDB's answer.

python -m tests.benchmarks.random_intervals [FIRST LAST]

The seeds of `tests/release/test_random_intervals.py` end where these begin: 1,200 to 1,500 are
tried if nothing else is said. Each line is an interval that fails; the last one has how many
statements and intervals there were, and CPU seconds.
"""

from __future__ import annotations

import sys
import time

import dpsql
from tests.release.test_random_intervals import SCRIPTS, check, intervals


def main(first: int = SCRIPTS, last: int = SCRIPTS + 300) -> int:
    """Try the seeds of a range; return how many statements have an interval that fails."""
    tried, refused, failed = 0, 0, set[int]()
    for seed in range(first, last):
        try:
            for answer, ours, where in intervals(seed):
                tried += 1
                try:
                    check(answer, ours, where)
                except AssertionError:
                    failed.add(seed)
                    print(f"seed {seed}: {answer} beside {ours}: {where}", flush=True)
        except dpsql.errors.ResourceLimitError:
            refused += 1
    print(
        f"{last - first} statements, {refused} refused, {tried} intervals; "
        f"{len(failed)} statements fail; {time.process_time():.0f} CPU s"
    )
    return len(failed)


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))
