"""The work of one Spark task of shoal, without Spark: one worker with all partitions of a topic.

Usage: python -m bench.copy_loop SOURCE DESTINATION TOPIC COPY [--one-batch]
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.client.lot import Gate, open_gate
from shoal.mirroring.assignment import end_offsets, partitions_of
from shoal.mirroring.control.limit import Allowance
from shoal.mirroring.model.copy_options import CopySettings
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned, TaskReport
from shoal.mirroring.model.steering import UNSTEERED
from shoal.mirroring.task.task import follow_documents
from shoal.topic_partition import TopicPartition


class _Alone:
    """A control without a driver: some ranges, until all of them are left, and a lease that never ends."""

    interruptions = generation = 0
    steering, allowance = UNSTEERED, Allowance()

    def __init__(self, ranges: Sequence[CopyRange]) -> None:
        self._new = [Assigned(number, each) for number, each in enumerate(ranges, 1)]
        self.assignment = {each.range.source: each for each in self._new}
        self.done: dict[TopicPartition, bool] = {}
        self._all_left = threading.Event()

    @property
    def stop_requested(self) -> bool:
        return self._all_left.is_set()

    def take_new(self) -> Sequence[Assigned]:
        new, self._new = self._new, []
        return new

    def report(self, report: TaskReport) -> None:
        self.done |= dict.fromkeys((each.partition for each in report.partitions if each.stopped), False)
        self.done |= {each: left.is_done for each, left in report.leaves.items()}
        if self.done.keys() >= self.assignment.keys():
            self._all_left.set()

    def wait(self, seconds: float) -> None:
        self._all_left.wait(seconds)

    def on_document(self, call: Callable[[], object]) -> None:
        call()

    def check_lease(self) -> None:
        """Do nothing: it never ends."""

    raise_if_orphan = begin_generation = check_lease

    def open_gate(self) -> Gate:
        return open_gate()

    def close_gate(self, gate: Gate) -> None:
        """Do nothing: nothing closes it."""

    def membership(self) -> MemberId:
        return MemberId()


def copy_topic(
    source_servers: str, destination_servers: str, topic: str, copy: str, *, several_batches: bool = True
) -> bool:
    """Copy a topic up to its current end; return whether all of it is at the destination."""
    source, _ = ClientConfig.from_properties("source", {"bootstrap.servers": source_servers})
    destination, _ = ClientConfig.from_properties("destination", {"bootstrap.servers": destination_servers})
    with Cluster(source) as cluster:
        partitions = partitions_of(cluster, [topic])
        ends = end_offsets(cluster, partitions)
    ranges = [CopyRange(topic, each.partition, copy, 0, ends[each]) for each in partitions]
    settings = CopySettings(source, destination, copy, rules="bench", multi_batch=several_batches)
    control: Any = _Alone(ranges)
    follow_documents(settings, control)
    return all(control.done.get(each.source) for each in ranges)


def main() -> int:
    source_servers, destination_servers, topic, copy, *options = sys.argv[1:]
    several_batches = options != ["--one-batch"]
    return (
        0
        if copy_topic(source_servers, destination_servers, topic, copy, several_batches=several_batches)
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
