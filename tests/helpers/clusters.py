"""A Spark of several processes, as on several machines: a master, workers, servers of Connect.

All of it is on 127.0.0.1, and ends with the block that it was started in.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parents[2]
_PYSPARK = importlib.util.find_spec("pyspark")
HOME = Path(_PYSPARK.origin).parent if _PYSPARK and _PYSPARK.origin else Path()
HERE = "127.0.0.1"
HOSTS = (HERE, "localhost")
"""What workers call themselves. A task is tried twice at a time on hosts with two names only."""
SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.ui.enabled": "false", "spark.driver.host": HERE, "spark.driver.bindAddress": HERE,
    "spark.driver.memory": "1g", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2", "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": SMALL, "spark.executor.extraJavaOptions": SMALL,
    "spark.sql.files.openCostInBytes": "0", "spark.sql.files.maxPartitionBytes": "200k",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}  # fmt: skip
"""Those of an application with small partitions, so that each executor has some."""


@cache
def can_mount() -> bool:
    """Whether a process here may have other files than the others."""
    unshare = shutil.which("unshare")
    return (
        bool(unshare) and not subprocess.run([unshare, "--mount", "true"], check=False).returncode
    )


def free_port() -> int:
    """Find a port that nobody has."""
    with socket.socket() as found:
        found.bind((HERE, 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master with workers, each a process that runs executors as processes of their own."""

    url: str
    """What applications call it."""
    master: psutil.Process
    workers: tuple[psutil.Process, ...]

    @property
    def pids(self) -> list[int]:
        """Who they are, the master first."""
        return [self.master.pid, *(worker.pid for worker in self.workers)]


def executors(workers: Sequence[int]) -> list[psutil.Process]:
    """Find the processes that run tasks."""
    found = [child for pid in workers for child in psutil.Process(pid).children()]
    return [child for child in found if "CoarseGrainedExecutorBackend" in " ".join(_line(child))]


def _line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


class Started:
    """Processes that end together, whatever happens.

    Args:
        folder: where they write to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, list[psutil.Popen]()

    def start(self, name: str, command: Sequence[object], **env: str) -> psutil.Popen:
        """Start one, which writes to a file of its name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = psutil.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**_env(self.folder), **os.environ, **env}, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def listens(self, name: str, port: int, seconds: float = 120) -> None:
        """Wait until the process that was started last listens at a port.

        Raises:
            RuntimeError: it ended, or doesn't in time.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.processes[-1].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HERE, port), 1):
                return
            time.sleep(0.1)
        raise RuntimeError(f"nobody listens at {port}: {self.told(name)}")

    def told(self, name: str) -> str:
        """Return the end of what a process wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-6000:]

    def end(self) -> None:
        """End all of them, with what they started."""
        found = list[psutil.Process](self.processes)
        for process in self.processes:
            with contextlib.suppress(psutil.Error):
                found += process.children(recursive=True)
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=20)


@contextmanager
def started(folder: Path) -> Iterator[Started]:
    """End what is started inside."""
    folder.mkdir(exist_ok=True)
    found = Started(folder)
    try:
        yield found
    finally:
        found.end()


def _env(folder: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": HERE, "SPARK_LOCAL_DIRS": str(folder),
        "SPARK_DAEMON_MEMORY": "1g",
        "SPARK_DAEMON_JAVA_OPTS": f"{SMALL} -Dspark.master.rest.enabled=false",
        "OPENBLAS_NUM_THREADS": "1", "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip


def _with(mounts: Mapping[Path, Path], command: Sequence[object]) -> list[object]:
    """Let a command find other folders where some are."""
    if not mounts:
        return list(command)
    mount = [f"mount --bind '{there}' '{here}'" for here, there in mounts.items()]
    return ["unshare", "--mount", "sh", "-c", f'{" && ".join(mount)} && exec "$@"', "sh", *command]


@contextmanager
def cluster(folder: Path, *workers: Mapping[str, str], **mounts: Path) -> Iterator[Cluster]:
    """Run a standalone cluster.

    Args:
        folder: where it writes to.
        workers: what each of them has in its environment, and its executors, too.
        mounts: `here` and `there`: the folder in whose place workers find another one.
    """
    port, places = free_port(), {mounts["here"]: mounts["there"]} if mounts else {}
    run = [HOME / "bin" / "spark-class"]
    url = f"spark://{HERE}:{port}"
    common = ["--webui-port", 0, "--host"]
    with started(folder) as all_of_it:
        of = "org.apache.spark.deploy.master.Master"
        master = all_of_it.start("master", [*run, of, *common, HERE, "--port", port])
        all_of_it.listens("master", port)
        of = "org.apache.spark.deploy.worker.Worker"
        ran = []
        for i, env in enumerate(workers or ({}, {})):
            own = [
                HOSTS[i % 2],
                "--cores",
                1,
                "--memory",
                "600M",
                "--work-dir",
                folder / f"work{i}",
                url,
            ]
            command = _with(places, [*run, of, *common, *own])
            ran.append(all_of_it.start(f"worker{i}", command, **env))
        yield Cluster(url, master, tuple(ran))


@contextmanager
def server(
    folder: Path, master: str = "local[1]", *, port: int = 0, **mounts: Path
) -> Iterator[tuple[psutil.Popen, int]]:
    """Run a server of Spark Connect, as on another machine; give its process and port.

    Args:
        folder: where it writes to.
        master: who counts.
        port: where it listens; a free one if 0.
        mounts: `here` and `there`: the folder in whose place it finds another one.
    """
    port = port or free_port()
    with started(folder) as all_of_it:
        process = all_of_it.start("server", serving(folder, master, port, **mounts))
        all_of_it.listens("server", port)
        yield process, port


def serving(folder: Path, master: str, port: int, **mounts: Path) -> list[object]:
    """Write the command that runs a server; see `server`."""
    places = {mounts["here"]: mounts["there"]} if mounts else {}
    settings = {
        **SETTINGS, "spark.connect.grpc.binding.address": HERE,
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }  # fmt: skip
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [
        HOME / "bin" / "spark-class", "org.apache.spark.deploy.SparkSubmit", "--master", master,
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *conf,
        "spark-internal",
    ]  # fmt: skip
    return _with(places, command)


def application(
    folder: Path, url: str, function: str, *arguments: object, seconds: float = 300,
    settings: Mapping[str, str] | None = None,
) -> Any:  # fmt: skip
    """Run `module:name` in an application of its own, and return what it returns, as JSON has it.

    Args:
        folder: where it writes to.
        url: the master.
        function: gets a classic session, and the arguments.
        arguments: these, as JSON has them.
        seconds: after which it is ended.
        settings: more than `SETTINGS`.
    """
    of = {"url": url, "function": function, "arguments": arguments, "settings": settings or {}}
    answer = folder / f"{function.partition(':')[2]}.json"
    answer.unlink(missing_ok=True)
    with started(folder) as all_of_it:
        command = [sys.executable, "-m", "tests.helpers.clusters", json.dumps(of), answer]
        process = all_of_it.start("application", command)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(seconds)
        assert answer.exists(), all_of_it.told("application")
    return json.loads(answer.read_text())


def _main(of: dict[str, Any], answer: Path) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(of["url"])
    more = {"spark.sql.warehouse.dir": str(answer.parent / "warehouse"), **of["settings"]}
    for name, value in {**SETTINGS, **more}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    module, _, name = of["function"].partition(":")
    found = getattr(importlib.import_module(module), name)(spark, *of["arguments"])
    answer.with_suffix(".part").write_text(json.dumps(found))
    answer.with_suffix(".part").rename(answer)
    os._exit(0)  # whoever started it ends the rest


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), Path(sys.argv[2]))
