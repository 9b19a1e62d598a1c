"""What applications do in a cluster: each function is run in a process of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

import dpsql
from dpsql.engines.spark.engine import SparkCounting
from dpsql.engines.spark.files import PinnedFiles
from dpsql.engines.spark.source import SparkSource
from dpsql.errors import DpsqlError, ExecutionError
from dpsql.schema import EACH_ROW, Schema
from tests.engines.spark import test_lost_workers as lost
from tests.engines.spark import test_several_tables as several
from tests.engines.spark.test_sources import COLUMNS
from tests.helpers.clusters import executors

WAYS = ("sql", "workers")


def prepared(spark: Any, rows: str, way: str) -> Any:
    """Prepare the count of `test_lost_workers`."""
    source, schema = SparkSource(spark, partials=way), {f"parquet.{rows}": lost.DOMAINS}
    table = source.describe(("parquet", rows), Schema(schema), EACH_ROW)
    return source.engine().prepared(table, lost.WANTED)


def counted(spark: Any, rows: str, way: str) -> list[Any]:
    """Count the rows of `test_lost_workers`."""
    counting = prepared(spark, rows, way)
    with counting.engine.snapshot():
        counting.check()
        found = counting.run()
    return [found[of].tolist() for of in lost.WANTED]


def told(error: DpsqlError) -> list[str]:
    return [type(error).__name__, error.message, error.hint or ""]


@contextlib.contextmanager
def refused(into: list[Any]) -> Iterator[None]:
    """Keep the error that must come."""
    try:
        yield
    except DpsqlError as error:
        into.extend(told(error))


def everything(spark: Any, folder: str, address: str, bad: str) -> dict[str, Any]:
    """Count in both ways, and by a session; and be refused."""
    place, found, rows = Path(folder), dict[str, Any](), f"{folder}/rows"
    no_ledger = list[str]()
    with refused(no_ledger):
        spark.conf.set("spark.master", "local[1]")  # which says nothing of the application
        schema = {f"parquet.{rows}": lost.DOMAINS}
        dpsql.Session(spark, schema=schema, ledger=place / "rows.ledger")
    found["in a file"], found["made"] = no_ledger, (place / "rows.ledger").exists()
    for way in WAYS:
        found[way] = counted(spark, rows, way)
    context = spark.sparkContext
    found["processes"] = context._jsc.sc().getExecutorMemoryStatus().size()
    con = several.filled()
    named = several.in_folders(con, place / "shop")
    account = {"ledger": address, "dataset": "hr.people"}
    here = dpsql.Session(spark, schema=several.schema(named), **account)
    there = dpsql.Session(con, schema=several.schema({name: name for name in several.TABLES}))
    script = {name: several.SCRIPT[name] for name in ("left", "units_joined")}
    several.check_same((here, there, named), script)
    found["history"] = here.history["state"].to_list()
    context.pythonExec, found["bad"] = bad, []
    with refused(found["bad"]):
        prepared(spark, rows, "workers").check()
    return found


def elsewhere(spark: Any, places: list[list[str]]) -> list[list[str]]:
    """Describe tables of which executors have other files than this machine."""
    found = []
    for kind, place in places:
        found.append([])
        with refused(found[-1]):
            source = SparkSource(spark)
            source.describe((kind, place), Schema({f"{kind}.{place}": COLUMNS}), EACH_ROW)
    return found


# ── What goes wrong while rows are counted ───────────────────────────────────────────────────

SECONDS = 6.0
"""How long the slow part takes."""


def slow() -> None:
    """Let the first part of all rows that are read take some seconds, before its first row."""
    rows = PinnedFiles.rows
    nap = f"coalesce(reflect('java.lang.Thread', 'sleep', {int(SECONDS * 1000)}L), '') <> 'never'"
    first = "monotonically_increasing_id() = 0"

    def slowly(files: PinnedFiles, session: Any) -> Any:
        return rows(files, session).where(f"CASE WHEN {first} THEN {nap} ELSE true END")

    PinnedFiles.rows = slowly  # type: ignore[method-assign]


def _kill(_: Path, workers: Sequence[int]) -> None:
    time.sleep(SECONDS / 2)
    executors(workers)[0].kill()


def _lose_shuffled(folder: Path, _: Sequence[int]) -> None:
    """Remove what parts have left for the next stage, which waits for the slow one."""
    before, new, end = set(_shuffled(folder)), list[Path](), time.monotonic() + 2 * SECONDS
    while not new and time.monotonic() < end:
        time.sleep(0.01)
        new = [file for file in _shuffled(folder) if file not in before]
    for file in new:
        file.unlink()


def _shuffled(folder: Path) -> list[Path]:
    found = list[Path]()
    with contextlib.suppress(OSError):  # folders that Spark removes meanwhile
        found = list(folder.rglob("shuffle_*.data"))
    return found


HARMS: Mapping[str, Callable[[Path, Sequence[int]], None]] = {
    "speculation": lambda *_: None,
    "an executor is killed": _kill,
    "what was shuffled is lost": _lose_shuffled,
}


def harmed(
    spark: Any, folder: str, cluster: str, workers: Sequence[int], address: str
) -> dict[str, Any]:
    """Count while the first part is slow, and something goes wrong meanwhile."""
    found = dict[str, Any]()
    slow()
    for i, (name, harm) in enumerate(HARMS.items()):
        account = {"ledger": address, "dataset": f"shop{i}"}
        con, shop = several.filled(), Path(folder, f"shop{i}")
        named = several.in_folders(con, shop)
        here = dpsql.Session(spark, schema=several.schema(named), **account)
        there = dpsql.Session(con, schema=several.schema({of: of for of in several.TABLES}))
        script = {of: several.SCRIPT[of] for of in ("left", "running")}
        ways = {way: partial(counted, spark, f"{folder}/rows", way) for way in WAYS}
        ways["units"] = partial(several.check_same, (here, there, named), script)
        for way, count in ways.items():
            begun, run = time.time(), SparkCounting.run

            def meanwhile(counting: Any, run: Any = run, harm: Any = harm) -> Any:
                do = threading.Thread(target=harm, args=(Path(cluster), workers))
                do.start()
                try:
                    return run(counting)
                finally:
                    do.join()

            SparkCounting.run = meanwhile  # type: ignore[method-assign]
            counts = count()
            SparkCounting.run = run  # type: ignore[method-assign]
            found[f"{way}, {name}"] = {"counts": counts, "from": begun, "to": time.time()}
    spark.stop()
    return found


# ── A cluster that goes away ─────────────────────────────────────────────────────────────────


def abandoned(
    spark: Any, rows: str, address: str, pids: Sequence[int], masters: int
) -> dict[str, Any]:
    """Ask, and lose the first processes of the cluster after the charge, or all of it."""
    schema, budget = {f"parquet.{rows}": lost.DOMAINS}, dpsql.Budget(rho=10**9)
    session = dpsql.Session(spark, schema=schema, ledger=address, dataset="hr.people")
    run, answer = SparkCounting.run, list[int]()
    kept = pids[masters:]

    def gone(counting: Any) -> Any:
        if not kept:
            for process in executors(pids[1:]):
                process.kill()
        for pid in pids[:masters]:
            psutil.Process(pid).kill()
        return run(counting)

    SparkCounting.run = gone  # type: ignore[method-assign]
    failure = ""
    sql = f'SELECT a, COUNT(*) AS n FROM parquet."{rows}" GROUP BY a ORDER BY a'
    try:
        answer = session.query(sql, budget=budget)["n"].round().cast(int).to_list()
    except ExecutionError as error:
        failure = f"{error} {error.__context__} {error.__cause__}"
    states = session.history["state"].to_list()
    return {"answer": answer, "failure": failure, "states": states}
