"""A task's memory, however many partitions and objects it has."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from shoal.archive.segment import SegmentFacts
from shoal.client.config import ClientConfig
from shoal.mirroring.assignment import Wanted
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned
from shoal.mirroring.task.archiving.partition import ArchivedPartition
from shoal.protocol.fetch import FetchedPartition
from shoal.timing import DEFAULT_TIMING
from tests.archive.archives import new_archive, objects_of, plain
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.driver import TaskServer
from tests.world.waiting import wait_until

PARTITIONS = 1_000
BATCHES = 20
MIB = 1024 * 1024

#: The page promises 250 MB, and a worker of Spark has some more than this task.
ALLOWED_BYTES = 200 * MIB

#: Archives or restores as a task does, and prints the most memory that the process had.
TASK = """
import os, sys
from rig.process import peak_rss_of
from shoal.client.config import ClientConfig
from shoal.mirroring.control import ControlConnection
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.task.archiving import follow_documents
from tests.world.task import run_copy_task

source, destination, port, partitions, end = sys.argv[1:]
source = ClientConfig.given("source", source, None)
destination = ClientConfig.given("destination", destination, None)
settings = CopySettings(source.kept_by(destination), destination, "group", "rules")
if port != "0":
    follow_documents(settings, ControlConnection(("127.0.0.1", int(port)), "secret", 1))
else:
    ranges = [CopyRange("topic", number, "topic", 0, int(end)) for number in range(int(partitions))]
    assert run_copy_task(ranges, settings).complete
print(peak_rss_of(os.getpid()))
"""


def peak_of(source: str, destination: str, port: int, meanwhile: Callable[[], object]) -> int:
    """Return the most memory of a task in a process of its own."""
    arguments = [source, destination, str(port), str(PARTITIONS), str(BATCHES)]
    with subprocess.Popen(
        [sys.executable, "-c", TASK, *arguments], stdout=subprocess.PIPE, text=True
    ) as task:
        meanwhile()
        printed, _ = task.communicate(timeout=120)
    assert task.returncode == 0
    return int(printed)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux to tell the peak")
def test_task_of_a_thousand_partitions_has_little_memory(tmp_path: Path) -> None:
    archive = str(tmp_path / "archive")
    ClientConfig.given("destination", archive, None).open_archive(creates=True)
    ranges = [CopyRange("topic", number, "topic", 0, BATCHES) for number in range(PARTITIONS)]
    batch = batches.batch([bytes(4_000)])
    with TwoBrokers.started() as brokers, closing(TaskServer()) as driver:
        for history in brokers.topic("topic", PARTITIONS):
            for number in range(BATCHES):
                batch[:8] = number.to_bytes(8)
                history.log.store(memoryview(batch))

        def to_the_end() -> None:
            driver.server.want({each.source: Wanted(each, (0, 0), 1) for each in ranges})
            wait_until(lambda: driver.server.is_done, 120.0)
            driver.server.end_one(1)

        assert (
            peak_of(brokers.source.bootstrap, archive, driver.server.address[1], to_the_end) < ALLOWED_BYTES
        )
        assert len([*Path(archive).rglob("*.log")]) == PARTITIONS
        assert peak_of(archive, brokers.destination.bootstrap, 0, lambda: None) < ALLOWED_BYTES
        logs = brokers.destination.topics.topic("topic").logs
        assert {each.log_end_offset for each in logs} == {BATCHES}


def descriptions() -> int:
    """Return how many descriptions of segments are in memory."""
    gc.collect()
    return sum(isinstance(each, SegmentFacts) for each in gc.get_objects())


def test_partition_keeps_nothing_of_objects_that_are_archived(tmp_path: Path) -> None:
    """A service writes 144 a day of each partition."""
    archive, control, before = new_archive(tmp_path / "archive"), mock.Mock(), descriptions()
    control.driver.generation = 1
    each = ArchivedPartition(Assigned(0, CopyRange("orders", 0, "orders", 0, 2**63 - 1)), DEFAULT_TIMING)
    each.begin(objects_of(archive).place, None, 0)
    for offset in range(9):
        batch: Any = memoryview(plain(1, base_offset=offset))
        fetched = FetchedPartition("orders", 0, 0, offset + 1, offset + 1, 0, (), batch)
        each.take(fetched, lambda: tmp_path / "spool.log")
        each.publish(control)
    assert objects_of(archive).end_offset == 9
    assert descriptions() <= before + 1
