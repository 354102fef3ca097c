"""A task's memory: the fetch buffer, and next to nothing else, however much it copies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.world import batches
from tests.world.clusters import TwoBrokers

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to tell the peak")
]

MIB = 1024 * 1024

BUFFER_BYTES = 16 * MIB

#: The memory of a task besides its buffer; 14 MiB were measured at first.
ALLOWED_BYTES = 64 * MIB

#: Prints the growth of resident memory during the copy.
TASK = """
import os, sys
from rig.process import forget_peak_rss_of, peak_rss_of
from tests.world.task import run_copy_task
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.copy_options import CopySettings

source, destination, buffer_bytes, *ends = sys.argv[1:]
settings = CopySettings(
    ClientConfig("source", tuple(parse_bootstrap(source))),
    ClientConfig("destination", tuple(parse_bootstrap(destination))),
    "group",
    "rules",
    fetch_buffer_bytes=int(buffer_bytes),
)
ranges = [CopyRange("topic", number, "topic", 0, int(end)) for number, end in enumerate(ends)]
forget_peak_rss_of(os.getpid())
before = peak_rss_of(os.getpid())
assert run_copy_task(ranges, settings).complete
print(peak_rss_of(os.getpid()) - before)
"""


@pytest.mark.parametrize(("size", "total"), [(4_000, 50 * MIB), (900_000, 120 * MIB)], ids=["small", "large"])
def test_fetch_buffer_is_the_only_large_allocation(brokers: TwoBrokers, size: int, total: int) -> None:
    partitions = 8
    histories = brokers.topic("topic", partitions)
    batch = batches.batch([bytes(size // 4)] * 4)
    for history in histories:
        for number in range(total // partitions // len(batch)):
            batch[:8] = (4 * number).to_bytes(8)
            history.log.store(memoryview(batch))
    ends = [history.log.log_end_offset for history in histories]
    command = [sys.executable, "-c", TASK, brokers.source.bootstrap, brokers.destination.bootstrap]
    arguments = [str(BUFFER_BYTES), *map(str, ends)]
    task = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
    assert [log.log_end_offset for log in brokers.destination.topics.topic("topic").logs] == ends
    assert int(task.stdout) <= BUFFER_BYTES + ALLOWED_BYTES


def test_batch_larger_than_the_buffer_is_held_once(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic("topic", max_message_bytes=str(40 * MIB))
    history.store(batches.batch([bytes(30 * MIB)]))
    history.plain(1)
    command = [sys.executable, "-c", TASK, brokers.source.bootstrap, brokers.destination.bootstrap]
    task = subprocess.run(
        [*command, str(MIB), str(history.next_offset)], check=True, capture_output=True, text=True
    )
    assert brokers.destination.log("topic").log_end_offset == 2
    assert int(task.stdout) <= 30 * MIB + ALLOWED_BYTES
