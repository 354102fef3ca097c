"""The ranges of a mirror, as its real driver plans them before a task begins."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.mirroring.assignment import Wanted
from shoal.mirroring.driver.places import Places
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.starts import Starts
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.prepare.changes import PreparedTopic
from shoal.topic_partition import TopicPartition
from tests.running_mirror import running
from tests.world.clusters import TOPIC, TwoBrokers

__all__ = ["planned_ranges"]


class _NoTasks:
    """Keeps what tasks would get."""

    is_done = False

    def __init__(self) -> None:
        self.ranges: list[CopyRange] = []

    def want(self, wanted: Mapping[TopicPartition, Wanted]) -> None:
        self.ranges = [each.range for _, each in sorted(wanted.items())]


def planned_ranges(brokers: TwoBrokers, *, once: bool = True) -> list[CopyRange]:
    """Return the ranges that a driver finds at its start: up to the present ends, or without ends."""
    settings, metrics, kept = brokers.settings, Metrics(), _NoTasks()
    options = brokers.options(
        TOPIC, group=settings.group, once=once, takes_over_offsets=settings.takes_over_offsets
    )
    partitions = len(brokers.source.topics.topic(TOPIC).logs)
    schedule = PartitionSchedule({TOPIC: PreparedTopic(TOPIC, TOPIC, partitions)}, metrics)
    mirror = running(options, schedule, metrics, control=kept)
    with Places(mirror, Starts(options, settings.group, options.topics)) as places:
        places.begin()
    return kept.ranges
