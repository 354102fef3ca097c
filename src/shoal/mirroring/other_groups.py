"""
Find other consumer groups of the source cluster that hold positions of the same copies.

A mirror that is started with another ``--group`` finds copies without a position in its own group.
If a former group of shoal's has one, the error recommends to continue with that group.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from ..client.cluster import Cluster
from ..client.committed_offsets import committed_by_groups
from ..errors import ConfigError
from ..topic_partition import TopicPartition
from .model.position import MirrorPosition

__all__ = ["OtherGroups", "OtherPosition"]


class OtherPosition(NamedTuple):
    """
    The position of a copy in another group.

    Attributes:
        position: The position that the group committed.

    """

    group: str
    position: MirrorPosition


class OtherGroups:
    """The positions of some copies in other groups than the mirror's; searched once, when first asked."""

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        group: str,
        copies: Mapping[TopicPartition, TopicPartition],
    ) -> None:
        """
        Remember the copies; nothing is sent yet.

        Args:
            source: The source cluster, with metadata of the partitions.
            destination: The destination cluster, with metadata of the partitions.
            group: The mirror's own group, which is left out.
            copies: The destination's partitions by the source's.

        """
        self._source = source
        self._destination = destination
        self._group = group
        self._copies = copies

    def position_of(self, partition: TopicPartition) -> OtherPosition | None:
        """Return the position of a source partition's copy that came furthest; None if no group has any."""
        return self._found.get(partition)

    @cached_property
    def _found(self) -> dict[TopicPartition, OtherPosition]:
        found: dict[TopicPartition, OtherPosition] = {}
        for group, committed in committed_by_groups(self._source, self._copies):
            if group == self._group:
                continue
            for partition, each in committed.items():
                try:
                    position = MirrorPosition.from_committed(each)
                except ConfigError:
                    continue  # of a version of shoal that this one cannot read
                known = found.get(partition)
                if position is None or not self._is_of_these_topics(partition, position):
                    continue
                if known is None or known.position.source_offset < position.source_offset:
                    found[partition] = OtherPosition(group, position)
        return found

    def _is_of_these_topics(self, partition: TopicPartition, position: MirrorPosition) -> bool:
        """Whether a position names both topics as they are now; without topic ids nothing is proved."""
        ids = (
            topic_id(self._source, partition),
            topic_id(self._destination, self._copies[partition]),
        )
        return None not in ids and ids == (position.source_topic_id, position.destination_topic_id)


def topic_id(cluster: Cluster, partition: TopicPartition) -> str | None:
    """Return a topic's id as text; None if the cluster has none."""
    found = cluster.topic_id(partition.topic)
    return str(found) if found else None
