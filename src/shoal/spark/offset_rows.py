"""
The rows of ``rows=offsets``: the offset maps of a mirror's partitions, one row for each stretch.

A stretch is what lies between two milestones (:mod:`shoal.mirroring.model.offset_map`). The maps are in the
committed positions of the mirror's group, so one task reads them all, and no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from shoal.client.cluster import Cluster, patiently
from shoal.client.coordinator import MemberId
from shoal.errors import ConfigError
from shoal.mirroring.model.offset_map import Exactness, Milestone, OffsetMap, Stretch, TakenOffsets
from shoal.mirroring.model.options import default_group
from shoal.mirroring.model.position import MirrorPosition, is_another_topic
from shoal.mirroring.positions import GroupPositions
from shoal.spark.options import ReadOptions, names_of_spark
from shoal.spark.planning import PATIENCE_S, Planner
from shoal.topic_partition import TopicPartition

__all__ = ["OffsetRow", "offset_rows", "rows_of"]

#: The values of :data:`~shoal.spark.rows.OFFSETS` after the topic's names and the partition.
OffsetRow = tuple[int, int | None, int, int, str, str]

#: Arithmetic does not translate the offsets: shoal would count records of the source.
_COUNTED = "counted"


def offset_rows(options: ReadOptions) -> Iterator[tuple[str, int, str, int, int | None, int, int, str, str]]:
    """
    Yield the rows of all selected partitions that have a position.

    Raises:
        ConfigError: The group has no position of any of them, or one of a topic that was created again.
        ShoalError: A cluster does not respond, or refuses to show the group.

    """
    with Cluster(options.source) as cluster:
        group = options.group or _default_group(cluster, options)
        planner = Planner(options)

        def positions() -> dict[TopicPartition, MirrorPosition]:
            return GroupPositions(cluster, group, MemberId).read(planner.partitions(cluster))

        found = patiently(positions, patience_s=PATIENCE_S)
        if not found:
            raise ConfigError(
                f"option group: {group!r} has no position of a mirror for the selected topics on {cluster}. "
                "Set it to the mirror's group"
            )
        destinations = planner.destinations(cluster, {each.topic for each in found})
        for partition, position in sorted(found.items(), key=lambda each: each[0]):
            if is_another_topic(position.source_topic_id, cluster.metadata.topics[partition.topic].topic_id):
                raise ConfigError(
                    f"topic {partition.topic} on {cluster} was created again since group {group!r} mirrored "
                    "it: its offset map is that of the former topic. Run the mirror first"
                )
            for row in rows_of(position.offsets):
                yield partition.topic, partition.partition, destinations[partition.topic], *row


@names_of_spark()
def _default_group(source: Cluster, options: ReadOptions) -> str:
    assert options.destination is not None  # checked with the options
    with Cluster(options.destination) as destination:
        for cluster in (source, destination):
            patiently(cluster.refresh, patience_s=PATIENCE_S)
        return default_group(source.metadata.cluster_id, destination.metadata.cluster_id)


def rows_of(offsets: OffsetMap) -> list[OffsetRow]:
    """Return a row for each stretch of a map, and one for the position, which has no end at the source."""
    rows: list[OffsetRow] = [
        (
            begin.source,
            end.source,
            begin.destination,
            end.destination,
            end.stretch.name.lower(),
            _exactness_of(offsets, begin, end),
        )
        for begin, end in pairwise(offsets.milestones)
    ]
    last = offsets.milestones[-1]
    behind = (last.destination, Stretch.KNOWN.name.lower(), Exactness.AHEAD.value)
    return [*rows, (last.source, None, last.destination, *behind)]


def _exactness_of(offsets: OffsetMap, begin: Milestone, end: Milestone) -> str:
    """Return how exactly arithmetic translates the source offsets from one milestone to before the next."""
    asked = _Asked()
    is_repeated = offsets.to_destination(begin.source, asked).exactness is not Exactness.EXACT
    if begin.source == end.source or is_repeated:
        return Exactness.AT_LEAST.value
    # If arithmetic finds the translation of one offset in between, it finds them all.
    found = offsets.to_destination(min(begin.source + 1, end.source - 1), asked)
    return _COUNTED if asked.was_asked else found.exactness.value


class _Asked:
    """Takes note of the question which source offsets a copy would take, instead of an answer."""

    was_asked = False

    def count(self, first: int, end: int) -> TakenOffsets | None:
        self.was_asked = True
        return None

    def nth(self, first: int, number: int) -> int:
        raise IndexError(number)
