"""Workers and executors that die while they count: the same counts, or an error; never others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.spark import engine
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import ExecutionError, UnsupportedSqlError
from dpsql.schema import EACH_ROW, Domain, Schema
from tests.helpers import spark as sparks
from tests.helpers.described import read_table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
DOMAINS = {"a": Domain.integers(0, 9), "b": Domain.integers(0, 99), "c": Domain.boolean()}
WANTED = [(), ("a",), ("b", "c"), ("a", "b")]
FILES, ROWS = 4, 150_000
MOMENTS = ("when some rows are counted", "when all counts are handed out")


def make(folder: Path) -> None:
    """Write rows of which no two cells have equally many."""
    folder.mkdir()
    con = duckdb.connect()
    for i in range(FILES):
        con.execute(f"""
            COPY (
                SELECT (range * range % 7)::INTEGER AS a, (range % (range % 97 + 1))::INTEGER AS b,
                    range % 5 < {i} AS c FROM range({ROWS})
            ) TO '{folder}/{i}.parquet' (ROW_GROUP_SIZE {ROWS // 3})
        """).fetchall()


def dying(marker: Path, moment: str, part: int, *, executor: bool = False):
    """Let the first worker that counts a part die, or the executor that has it."""
    made, name, whole = engine.partial_counts, str(marker), moment == MOMENTS[1]

    def partial_counts(blocks):
        count = made(blocks)

        def die():
            import os
            import signal

            from pyspark import TaskContext

            if TaskContext.get().partitionId() != part:
                return
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            process = os.getpid()
            for _ in range(2 * executor):  # the worker's parent is a daemon, whose is the executor
                with open(f"/proc/{process}/stat") as file:
                    process = int(file.read().rpartition(")")[2].split()[1])
            os.kill(process, signal.SIGKILL)
            signal.pause()

        def counting(batches):
            def some():
                for batch in batches:
                    yield batch
                    if not whole:
                        die()

            yield from count(some())
            if whole:
                die()

        return counting

    return partial_counts


def expected(folder: Path):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS FROM '{folder}/*.parquet'").fetchall()
    return DuckDBEngine(con).marginals(read_table(con, ("t",), Schema({"t": DOMAINS})), WANTED)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_dies_gives_no_answer(spark, tmp_path, monkeypatch, moment):
    """Where Spark tries nothing again; what was charged for it is told, and stays charged."""
    folder, run = tmp_path / "rows", engine.SparkCounting.run
    make(folder)
    monkeypatch.setattr(engine, "FEW_BLOCKS", 0)

    def run_and_die(counting):
        with monkeypatch.context() as patched:
            dead = dying(tmp_path / "died", moment, 0)
            patched.setattr(engine, "partial_counts", dead)
            return run(counting)

    monkeypatch.setattr(engine.SparkCounting, "run", run_and_die)
    schema = {f"parquet.{folder}": DOMAINS}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "rows.ledger")
    asked = {"budget": dpsql.Budget(rho=10**9)}
    sql = f'SELECT a, b, COUNT(*) AS n FROM parquet."{folder}" GROUP BY a, b ORDER BY a, b'
    with pytest.raises(ExecutionError):
        session.query(sql, **asked)
    assert (tmp_path / "died").exists()
    assert session.history["state"].to_list() == ["failed"]
    assert session.ledger.spent == asked["budget"].mu_squared
    again = session.query(sql, **asked)
    found = np.round(again["n"].to_numpy()).reshape(10, 100)
    np.testing.assert_array_equal(found, expected(folder)["a", "b"][:10, :100])
    assert session.history["state"].to_list() == ["delivered"]
    assert session.ledger.spent == asked["budget"].mu_squared


def test_another_python_than_that_of_this_process_is_seen_before_the_charge(
    spark, tmp_path, monkeypatch
):
    make(tmp_path / "rows")
    monkeypatch.setattr(engine, "FEW_BLOCKS", 0)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    schema = {f"parquet.{tmp_path}/rows": DOMAINS}
    session = dpsql.Session(spark, schema=schema, ledger=tmp_path / "rows.ledger")
    sql = f'SELECT a, COUNT(*) AS n FROM parquet."{tmp_path}/rows" GROUP BY a'
    with pytest.raises(UnsupportedSqlError, match="Python workers") as caught:
        session.query(sql, budget=dpsql.Budget(rho=1))
    assert f"os.environ['PYSPARK_PYTHON'] = {sys.executable!r}" in caught.value.hint
    assert session.history.is_empty()


@pytest.mark.long
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1024]"])
def test_what_died_is_counted_again(tmp_path, master, moment):
    code = "import sys; from tests.engines.spark.test_lost_workers import main; main(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), master, moment],
        capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["died"]
    for counts, wanted in zip(found["counts"], expected(tmp_path / "rows").values(), strict=True):
        np.testing.assert_array_equal(counts, wanted)


def main(folder: str, master: str, moment: str) -> None:
    """Count in a Spark of its own, in which something dies."""
    rows, marker = Path(folder, "rows"), Path(folder, "died")
    make(rows)
    small = {"spark__sql__files__openCostInBytes": "0", "spark__executor__memory": "512m"}
    small["spark__sql__files__maxPartitionBytes"] = "100k"
    with sparks.session(Path(folder), master, **small) as spark:
        source, schema = SparkSource(spark, partials="workers"), {f"parquet.{rows}": DOMAINS}
        table = source.describe(("parquet", str(rows)), Schema(schema), EACH_ROW)
        counting = source.engine().prepared(table, WANTED)
        counting.check()
        engine.partial_counts = dying(marker, moment, 2, executor="cluster" in master)
        counts = counting.run()
    print(json.dumps({"counts": [of.tolist() for of in counts.values()], "died": marker.exists()}))
