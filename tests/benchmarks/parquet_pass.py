"""All pairs of Adult's columns, counted of a folder of Parquet files, or of a stored table.

    python -m tests.benchmarks.parquet_pass [--rows 10000000] [--stored enum|text] [--unit]
        [--way both|one|many] [--folder FOLDER]

Counts by one pass and by a statement for each block, each in a process of its own, and prints
processor seconds and the peak of memory, and whether the counts are the same. Files are made of
Adult's rows, drawn with replacement, and kept in the folder if one is named: 20 bytes a row.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import duckdb

from dpsql.engines.duckdb import engine as engines
from dpsql.engines.duckdb.catalog import DuckDBCatalog
from dpsql.engines.duckdb.views import describe_table
from dpsql.schema import Domain, Schema, Unit

ADULT = Path(__file__).parents[2] / "examples" / "data" / "adult.parquet"
LABELS = (
    "workclass", "marital_status", "occupation", "relationship", "race", "sex", "native_country",
    "income",
)  # fmt: skip
NUMBERS = {
    "age": (16, 100), "fnlwgt_bin": (0, 99), "education_num": (1, 16),
    "capital_gain_bin": (0, 99), "capital_loss_bin": (0, 99), "hours_per_week": (1, 99),
}  # fmt: skip
PER_FILE = 1_250_000


def labels(con: duckdb.DuckDBPyConnection, column: str) -> list[str]:
    """List the values of a column of texts, of which the owner is taken to know that they are."""
    found = con.execute(f"SELECT DISTINCT {column} FROM '{ADULT}' ORDER BY 1").fetchall()
    return [value for (value,) in found]


def make_files(folder: Path, rows: int) -> None:
    """Write files, unless they are there already."""
    con = duckdb.connect(config={"threads": 2, "memory_limit": "3GB"})
    con.execute(f"CREATE TABLE a AS SELECT row_number() OVER () - 1 AS i, * FROM '{ADULT}'")
    ((known,),) = con.execute("SELECT count(*) FROM a").fetchall()
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, PER_FILE)):
        path = folder / f"part-{number:04}.parquet"
        if not path.exists():
            con.execute(
                f"COPY (SELECT a.* EXCLUDE (i), hash(r.i * 7 + 3) % {rows // 3} AS person FROM "
                f"(SELECT i, hash(i) % {known} AS j FROM "
                f"range({first}, {min(rows, first + PER_FILE)}) AS t(i)) AS r JOIN a ON a.i = r.j) "
                f"TO '{path}' (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 500000)"
            )


def make_table(folder: Path, stored: str) -> None:
    """Write a table of the files' rows, unless it is there already."""
    path = folder / f"{stored}.duckdb"
    if path.exists():
        return
    con = duckdb.connect(path, config={"threads": 2, "memory_limit": "3GB"})
    types = {}
    for name in LABELS:
        listed = ", ".join(f"'{label}'" for label in labels(con, name))
        types[name] = (
            f"ENUM ({listed})" if stored == "enum" else f"VARCHAR CHECK ({name} IN ({listed}))"
        )
    types |= {
        name: f"SMALLINT CHECK ({name} BETWEEN {a} AND {b})" for name, (a, b) in NUMBERS.items()
    }
    columns = ", ".join(f"{name} {type_} NOT NULL" for name, type_ in types.items())
    con.execute(f"CREATE TABLE t ({columns}, person BIGINT)")
    shown = ", ".join((*types, "person"))
    con.execute(f"INSERT INTO t SELECT {shown} FROM '{folder}/*.parquet'")
    con.close()


def count(folder: Path, way: str, stored: str | None, unit: bool) -> None:
    """Count, and print what it took."""
    if way == "many" and hasattr(engines, "in_one_pass"):
        engines.in_one_pass = lambda *_: ()
    con = duckdb.connect(
        folder / f"{stored}.duckdb" if stored else ":memory:", config={"threads": 2}
    )
    if not stored:
        con.execute(f"CREATE VIEW t AS FROM read_parquet('{folder}/*.parquet')")
    domains = {name: Domain.labels(labels(con, name)) for name in LABELS}
    domains |= {name: Domain.integers(*ends) for name, ends in NUMBERS.items()}
    whose = Unit("person", max_rows=2) if unit else None
    schema = None if stored else Schema({"t": domains})
    table = describe_table(DuckDBCatalog(con), ("t",), schema, whose)
    wanted = list(combinations((*LABELS, *NUMBERS), 2))
    wall, used = time.perf_counter(), cpu()
    counting = engines.DuckDBEngine(con).prepared(table, wanted)
    counted = counting.run()
    wall, used = time.perf_counter() - wall, cpu() - used
    digest = hashlib.sha256()
    for marginal in wanted:
        digest.update(counted[marginal].tobytes())
    status = Path("/proc/self/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) / 1024  # ru_maxrss is inherited
    print(
        f"{way:>5}: {used:7.2f} CPU s {wall:7.2f} s, peak {peak:6.0f} MB, "
        f"{len(counting.needed)} statements, load {os.getloadavg()[0]:.1f}, "
        f"{int(counted[wanted[0]].sum()):,} rows, counts {digest.hexdigest()[:12]}",
        flush=True,
    )


def cpu() -> float:
    """Return the processor seconds of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Make the data, then count in other processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--stored", choices=("enum", "text"))
    parser.add_argument("--unit", action="store_true")
    parser.add_argument("--way", choices=("both", "one", "many"), default="both")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", choices=("one", "many"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        count(given.folder, given.only, given.stored, given.unit)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        make_files(folder, given.rows)
        if given.stored:
            make_table(folder, given.stored)
        for way in ("one", "many") if given.way == "both" else (given.way,):
            again = [*sys.argv[1:], "--folder", str(folder), "--only", way]
            subprocess.run(
                [sys.executable, "-m", "tests.benchmarks.parquet_pass", *again], check=True
            )


if __name__ == "__main__":
    main()
