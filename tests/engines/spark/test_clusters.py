"""A cluster: a master, and executors in processes of their own, which needn't have dpsql."""

from __future__ import annotations

import json
import platform
import shutil
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpsql.privacy import begin_named
from tests.engines.spark import on_clusters as on
from tests.engines.spark import test_lost_workers as lost
from tests.engines.spark.test_sources import ROWS, folder
from tests.helpers import clusters
from tests.helpers import spark as sparks

deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.spark
FUNCTIONS = "tests.engines.spark.on_clusters"
MISSING = """
import os
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["WITHOUT"].split():
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
"""
"""What makes packages missing in a Python."""


def python(place, without):
    """Make a Python without some packages; $LESS are those that it hasn't on some machine."""
    place.mkdir()
    (place / "sitecustomize.py").write_text(MISSING)
    program = place / "python"
    program.write_text(
        f'#!/bin/sh\nexport WITHOUT="{without}" PYTHONPATH="{place}:$PYTHONPATH"\n'
        f'exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program


def check(counts, wanted):
    for found, of in zip(counts, wanted.values(), strict=True):
        np.testing.assert_array_equal(found, of)


@pytest.mark.postgres
def test_two_workers_count_what_duckdb_counts(tmp_path, address, monkeypatch):
    """By SQL and by Python workers without dpsql; one machine of two without NumPy is seen.

    A ledger in a file is refused, whatever the session's settings say of the master.
    """
    begin_named("hr.people", address)
    lost.make(tmp_path / "rows")
    monkeypatch.setenv("PYSPARK_PYTHON", str(python(tmp_path / "python", "dpsql pandas")))
    bad = python(tmp_path / "bad", "dpsql $LESS")
    with clusters.cluster(tmp_path / "cluster", {"LESS": "scipy"}, {"LESS": "numpy"}) as cluster:
        found = clusters.application(
            tmp_path, cluster.url, f"{FUNCTIONS}:everything", str(tmp_path), address, str(bad)
        )
    assert found["in a file"][0] == "LedgerError"
    assert "several machines" in found["in a file"][1]
    assert not found["made"]
    for way in on.WAYS:
        check(found[way], lost.expected(tmp_path / "rows"))
    assert found["processes"] == 3  # two executors, and the driver
    assert found["history"] == ["delivered"]
    kind, message, hint = found["bad"]
    assert kind == "UnsupportedSqlError"
    assert "not on all of its machines" in message
    assert f"Python {'.'.join(platform.python_version_tuple()[:2])}" in hint


@pytest.mark.long
@pytest.mark.skipif(not clusters.can_mount(), reason="needs the right to mount a folder")
def test_what_executors_find_elsewhere_is_refused(tmp_path):
    """Other files under the same names would be counted, and missing ones fail after a charge."""
    here, there = tmp_path / "here", tmp_path / "there"
    for name in ("same", "others", "gone"):
        folder(here / name, ROWS)
    for name in ("same", "others"):
        deltalake.write_deltalake(str(here / f"{name}_delta"), ROWS)
    shutil.copytree(here, there)
    (there / "gone" / "0.parquet").unlink()
    for place in ("others", "others_delta"):
        for path in (there / place).glob("*.parquet"):
            pq.write_table(pa.concat_tables([ROWS, ROWS]), path)
    places = [
        ["parquet", f"{here}/same"], ["delta", f"{here}/same_delta"],
        ["parquet", f"{here}/others"], ["delta", f"{here}/others_delta"],
        ["parquet", f"{here}/gone"],
    ]  # fmt: skip
    with clusters.cluster(tmp_path / "cluster", here=here, there=there) as cluster:
        found = clusters.application(tmp_path, cluster.url, f"{FUNCTIONS}:elsewhere", places)
    assert found[:2] == [[], []]
    for kind, message, hint in found[2:4]:
        assert (kind, "another table here" in message) == ("SchemaError", True)
        assert "s3://" in hint
    kind, message, hint = found[4]
    assert (kind, "can't be listed" in message) == ("SchemaError", True)
    assert "each machine" in hint


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_server_of_connect_counts_on_its_cluster(tmp_path, monkeypatch):
    """Its own environment says which Python executors run, and not that of its clients."""
    lost.make(tmp_path / "rows")
    less = str(python(tmp_path / "python", "dpsql pandas"))
    monkeypatch.setenv("PYSPARK_PYTHON", less)
    with (
        clusters.cluster(tmp_path / "cluster") as cluster,
        clusters.server(tmp_path / "server", cluster.url) as (_, port),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
        with sparks.connected(port) as far:
            found = [on.counted(far, str(tmp_path / "rows"), way) for way in on.WAYS]
        ran = [
            " ".join(child.cmdline())
            for executor in clusters.executors(cluster.pids[1:])
            for child in executor.children(recursive=True)
        ]
    for counts in found:
        check(counts, lost.expected(tmp_path / "rows"))
    assert any("pyspark.daemon" in line for line in ran)


def events(folder):
    """Read what Spark wrote of its work."""
    (log,) = folder.iterdir()
    return [json.loads(line) for line in log.read_text().splitlines()]


def seen(of, name):
    """When something went wrong, in the words of Spark's log: in seconds."""
    kind, task, stage = of["Event"], of.get("Task Info", {}), of.get("Stage Info", {})
    if name == "speculation":
        return task.get("Launch Time") if task.get("Speculative") else None
    if name == "an executor is killed":
        return of.get("Timestamp") if kind == "SparkListenerExecutorRemoved" else None
    again = kind == "SparkListenerStageSubmitted" and stage.get("Stage Attempt ID", 0) > 0
    return stage.get("Submission Time") if again else None


@pytest.mark.long
@pytest.mark.postgres
def test_what_runs_twice_is_counted_once(tmp_path, address):
    """Tasks by speculation, those of an executor that is killed, and stages that were lost."""
    for i in range(len(on.HARMS)):
        begin_named(f"shop{i}", address)
    lost.make(tmp_path / "rows")
    (tmp_path / "events").mkdir()
    settings = {
        "spark.speculation": "true", "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1", "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.efficiency.enabled": "false",
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{tmp_path}/events",
        "spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false",
    }  # fmt: skip
    place = tmp_path / "cluster"
    with clusters.cluster(place) as cluster:
        given = [str(tmp_path), str(place), cluster.pids[1:], address]
        of = f"{FUNCTIONS}:harmed"
        found = clusters.application(
            tmp_path, cluster.url, of, *given, settings=settings, seconds=900
        )
    wrote, wanted = events(tmp_path / "events"), lost.expected(tmp_path / "rows")
    assert len(found) == 3 * len(on.HARMS)
    for case, one in found.items():
        way, _, name = case.partition(", ")
        if way in on.WAYS:  # units are of one file, so that no part waits for others
            check(one["counts"], wanted)
            times = [when / 1000 for when in (seen(event, name) for event in wrote) if when]
            assert any(one["from"] < when < one["to"] for when in times), case


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.parametrize("gone", ["the master", "all of it"])
def test_a_cluster_that_goes_away_after_the_charge(tmp_path, address, gone):
    """Executors count to the end without a master; where both are gone, nobody waits for ever."""
    begin_named("hr.people", address)
    lost.make(tmp_path / "rows")
    with clusters.cluster(tmp_path / "cluster") as cluster:
        masters = 1 if gone == "the master" else len(cluster.pids)
        given = [str(tmp_path / "rows"), address, cluster.pids, masters]
        found = clusters.application(tmp_path, cluster.url, f"{FUNCTIONS}:abandoned", *given)
    if gone == "the master":
        wanted = lost.expected(tmp_path / "rows")["a",]
        assert found["answer"] == wanted[: len(found["answer"])].tolist()
        assert len(found["answer"]) == 10
        assert found["states"] == ["delivered"]
    else:
        assert (found["answer"], found["states"]) == ([], ["failed"])
        assert found["failure"].endswith(" None None")
