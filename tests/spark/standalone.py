"""A standalone Spark cluster on this machine: a master and a worker, each a JVM."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.spark.mirror_command import TIMEOUT_S
from tests.world.waiting import wait_until

__all__ = ["StandaloneCluster", "standalone_cluster"]


@dataclass(frozen=True)
class StandaloneCluster:
    """
    A running cluster.

    Attributes:
        address: The master's.
        worker: The worker's process.

    """

    address: str
    worker: psutil.Process

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the worker's executors and drivers."""
        return list(self.worker.children(recursive=True))


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[StandaloneCluster]:
    """Run a master and a worker as an administrator would."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environ = {**os.environ, "SPARK_WORKER_DIR": str(directory / "work")}

    @contextmanager
    def daemon(name: str, *args: str) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
        log = directory / f"{name}.log"
        command = [str(spark_class), *args]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environ, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield log, process
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)

    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with daemon("master", "org.apache.spark.deploy.master.Master", *here) as (log, _):
        address = _said(log, r"Starting Spark master at (spark://\S+)")
        size = ["--cores", "2", "--memory", "2g"]
        worker = "org.apache.spark.deploy.worker.Worker"
        with daemon("worker", worker, *here, *size, address) as (worker_log, process):
            _said(worker_log, r"(Successfully registered with master)")
            yield StandaloneCluster(address, psutil.Process(process.pid))


def _said(log: Path, pattern: str) -> str:
    """Wait for a pattern in a log; return its group."""
    found: list[str] = []

    def look() -> bool:
        found[:] = re.findall(pattern, log.read_text())
        return bool(found)

    wait_until(look, TIMEOUT_S)
    return found[0]
