"""``shoal mirror`` where tasks run in executors of their own: on this machine alone, and on a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from two_brokers import TwoBrokers, content_of, wait_until

TIMEOUT_S = 240
PARTITIONS = 4
RECORDS = 1_000


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    with TwoBrokers.started() as started:
        started.source.create_topic("orders", PARTITIONS)
        load(started)
        yield started


def load(brokers: TwoBrokers) -> None:
    producer = Producer({"bootstrap.servers": brokers.source.bootstrap, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("orders", f"record {number}", key=f"{number}", partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def assert_copied(brokers: TwoBrokers, records: int) -> None:
    """Compare record by record, as another client decodes them."""
    copies = [content_of(brokers.destination.log("orders", each)) for each in range(PARTITIONS)]
    assert copies == [content_of(brokers.source.log("orders", each)) for each in range(PARTITIONS)]
    assert sum(map(len, copies)) == records


class Mirror:
    """A running ``shoal mirror``, whose caches and checkpoint are its own."""

    def __init__(self, brokers: TwoBrokers, room: Path, *args: str) -> None:
        # A file where their directory should be: no class data archive is made after each test.
        for home in ("state", "cache"):
            (room / home / "shoal").mkdir(parents=True, exist_ok=True)
            (room / home / "shoal" / "class-archives").touch()
        between = ["--from", brokers.source.bootstrap, "--to", brokers.destination.bootstrap]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "mirror", *between, "--topics", "orders", "--json", *args],
            env={
                **os.environ,
                "XDG_STATE_HOME": str(room / "state"),
                "XDG_CACHE_HOME": str(room / "cache"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self) -> tuple[int, str, dict[str, Any]]:
        """Wait for its end; return its exit code, what it said on stderr and its last line."""
        out, err = self.process.communicate(timeout=TIMEOUT_S)
        lines = out.splitlines()
        return self.process.returncode, err, json.loads(lines[-1]) if lines else {}

    def executors(self) -> list[str]:
        """Return the command lines of the executors on this machine whose driver is a child of this one."""
        return [each for each in _command_lines(self.process.pid) if "CoarseGrainedExecutorBackend" in each]


def _command_lines(process_id: int) -> list[str]:
    lines = []
    for process in psutil.Process(process_id).children(recursive=True):
        try:
            lines.append(" ".join(process.cmdline()))
        except psutil.NoSuchProcess:
            continue
    return lines


@contextmanager
def running(mirror: Mirror) -> Iterator[Mirror]:
    try:
        yield mirror
    finally:
        if mirror.process.poll() is None:
            mirror.process.kill()
            mirror.process.communicate()


def test_a_mirror_copies_once_by_executors_of_their_own(brokers: TwoBrokers, tmp_path: Path) -> None:
    mirror = Mirror(brokers, tmp_path, "--master", "local-cluster[2,1,1024]", "--once")
    with running(mirror):
        code, err, summary = mirror.result()
    assert (code, err, summary["records"]) == (0, "", RECORDS)
    assert_copied(brokers, RECORDS)


def test_a_mirror_runs_on_by_executors_of_their_own_and_ends_well(
    brokers: TwoBrokers, tmp_path: Path
) -> None:
    with running(Mirror(brokers, tmp_path, "--master", "local-cluster[2,1,1024]")) as mirror:
        wait_until(lambda: copied(brokers) == RECORDS, TIMEOUT_S)
        assert len(mirror.executors()) == 2
        load(brokers)
        wait_until(lambda: copied(brokers) == 2 * RECORDS, TIMEOUT_S)
        mirror.process.terminate()
        code, err, summary = mirror.result()
    assert (code, err, summary["records"]) == (0, "", 2 * RECORDS)
    assert_copied(brokers, 2 * RECORDS)


def copied(brokers: TwoBrokers) -> int:
    topic = brokers.destination.topics.get("orders")
    return sum(log.log_end_offset for log in topic.logs) if topic else 0


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Run a master and a worker as an administrator would; yield the master's address."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environ = {**os.environ, "SPARK_WORKER_DIR": str(directory / "work")}

    @contextmanager
    def daemon(name: str, *args: str) -> Iterator[Path]:
        log = directory / f"{name}.log"
        command = [str(spark_class), *args]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environ, stdout=output, stderr=output, start_new_session=True
            )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)

    here = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with daemon("master", "org.apache.spark.deploy.master.Master", *here) as log:
        address = said(log, r"Starting Spark master at (spark://\S+)")
        size = ["--cores", "2", "--memory", "2g"]
        with daemon("worker", "org.apache.spark.deploy.worker.Worker", *here, *size, address) as worker_log:
            said(worker_log, r"(Successfully registered with master)")
            yield address


def said(log: Path, pattern: str) -> str:
    """Wait until a log says something; return what."""
    found: list[str] = []

    def look() -> bool:
        found[:] = re.findall(pattern, log.read_text())
        return bool(found)

    wait_until(look, TIMEOUT_S)
    return found[0]


def test_a_mirror_runs_on_a_standalone_cluster(brokers: TwoBrokers, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        mirror = Mirror(brokers, tmp_path, "--master", master, "--once")
        with running(mirror):
            code, err, summary = mirror.result()
        executors = list((tmp_path / "work").glob("app-*/*/stderr"))
    assert (code, err, summary["records"]) == (0, "", RECORDS)
    assert_copied(brokers, RECORDS)
    # Not in the driver's own process.
    assert executors
