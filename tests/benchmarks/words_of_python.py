"""Words that are found in texts of many words: by two rounds, and by one.

    python -m tests.benchmarks.words_of_python

The texts are those of Python's standard library, which every reader of this has: a unit is a
function of its sources, and its keys are the words in it, of which ten count. By one round as many
are found as its noise makes expected for the scores that the engine gives; by two rounds, those of
a session. It fails if two rounds find less than 1.3 times as many.
"""

from __future__ import annotations

import ast
import math
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist

import duckdb
import polars as pl

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.source import DuckDBSource
from dpsql.privacy.keys import KeyRound
from dpsql.rows.expression import RowColumn

BUDGET = dpsql.Budget(epsilon=1, delta=1e-9)
MOST = 10
LEAST_GAIN = 1.3
_WORD = re.compile(r"[a-z]{2,}")


def functions() -> Iterator[str]:
    """Yield the source of each function of the standard library, in the order of its files."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            text = path.read_text("utf-8")
            tree = ast.parse(text)
        except (SyntaxError, ValueError):  # some are there to be no Python
            continue
        lines = text.splitlines()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield "\n".join(lines[node.lineno - 1 : node.end_lineno])


def words() -> pl.DataFrame:
    """Return pairs of a function and a word of it, each once."""
    pairs = [
        (number, word)
        for number, source in enumerate(functions())
        for word in sorted(set(_WORD.findall(source.lower())))
    ]
    return pl.DataFrame(pairs, schema=["function", "word"], orient="row")


def by_one_round(con: duckdb.DuckDBPyConnection, unit: dpsql.Unit, rule: KeyRound) -> float:
    """Return how many words one round is expected to find."""
    table = DuckDBSource(con).describe(("words",), None, unit)
    scores = DuckDBEngine(con).key_scores(table, RowColumn("word"), rule.weights)
    found, sigma = 0.0, math.sqrt(rule.variance)
    for piece in scores.run():
        beyond = (piece.scores - rule.threshold + 0.5) / sigma
        found += sum(map(NormalDist().cdf, beyond.tolist()))
    return found


def main() -> None:
    """Print how many are found."""
    con, frame = duckdb.connect(), words()
    con.register("frame", frame)
    con.execute("CREATE TABLE words AS FROM frame")
    units, keys = frame["function"].n_unique(), frame["word"].n_unique()
    print(f"{units:,} functions, {keys:,} words, {len(frame) / units:.1f} in each", flush=True)
    unit = dpsql.Unit("function", max_rows=MOST)
    found = dpsql.Session(con, unit=unit).find_keys("words", "word", budget=BUDGET)
    one = by_one_round(con, unit, KeyRound(found.rule.mu_squared, found.rule.delta, MOST))
    gain = len(found) / one
    print(f"two rounds: {len(found):,}; one round: {one:,.0f}; {gain:.2f} times as many")
    sys.exit(gain < LEAST_GAIN)


if __name__ == "__main__":
    main()
