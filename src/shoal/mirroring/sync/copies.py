"""The copies of a mirror and their offset maps, from the positions in the mirror's group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.committed_offsets import Committed
from ...client.group_offsets import CommittedValue, FetchedGroup, GroupOffsetsReader
from ...errors import ConfigError, ShoalError
from ...topic_partition import TopicPartition
from ..model.offset_map import OffsetMap, Translation
from ..model.position import MirrorPosition, is_another_topic
from .offset_rules import Direction, had_incident
from .taken import SourceTaken, read_postponed
from .way_there import WayThere

__all__ = ["Copies", "MirroredCopy", "TakenOf"]

#: Returns the reader of a source partition that counts the offsets which a copy would take.
TakenOf: TypeAlias = Callable[[TopicPartition], SourceTaken]


@dataclass(frozen=True, slots=True)
class MirroredCopy:
    """
    A mirrored partition with its offset map.

    Attributes:
        had_incident: Whether something happened to the copy that may have moved offsets.
        topic_ids: The ids of both topics when the position was committed; None without topic ids.

    """

    source: TopicPartition
    destination: TopicPartition
    offsets: OffsetMap
    had_incident: bool
    topic_ids: tuple[str | None, str | None] = (None, None)


class Copies:
    """
    The copies of a mirror's topics.

    :meth:`read` reads the positions, and :meth:`copy_of` decodes those that are asked for: a position has
    hundreds of bytes, and most partitions have no news of a group.
    """

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        group: str,
        taken_of: TakenOf,
        way_there: WayThere | None = None,
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster, whose group has the positions.
            taken_of: Used if arithmetic is not enough for a translation.
            way_there: Translates offsets from before a cut-over, for a mirror that goes back.

        """
        self._source = source
        self._destination = destination
        self._group = group
        self._taken_of = taken_of
        self._way_there = way_there
        self._taken: dict[TopicPartition, SourceTaken] = {}
        self._postpones = True
        self._reader = GroupOffsetsReader(source)
        self._topics: Mapping[str, str] = {}
        self._sources: Mapping[str, str] = {}
        self._positions = FetchedGroup({})
        self._decoded: dict[TopicPartition, tuple[CommittedValue, MirroredCopy | str]] = {}

    def read(self, topics: Mapping[str, str]) -> None:
        """
        Read the positions, and the ids of the topics.

        Args:
            topics: The topics at the destination, by their names at the source.

        Raises:
            ShoalError: A cluster does not respond, or refuses to show the mirror's group.

        """
        self._source.refresh(topics)
        self._destination.refresh(topics.values())
        self._taken.clear()
        self._postpones = True
        if self._way_there is not None:
            self._way_there.forget()
        answer = self._reader.read([self._group], stable=True)[self._group]
        if isinstance(answer, ShoalError):
            raise answer
        if topics != self._topics:
            self._topics = dict(topics)
            self._sources = {destination: source for source, destination in topics.items()}
            self._decoded.clear()
        self._positions = answer

    def source_of(self, partition: TopicPartition, direction: Direction) -> TopicPartition | None:
        """Return the source partition of one whose groups are read; None if the mirror does not copy it."""
        if direction is Direction.FORWARD:
            return partition if partition.topic in self._topics else None
        source = self._sources.get(partition.topic)
        return None if source is None else TopicPartition(source, partition.partition)

    def counterpart_of(self, topic: str, direction: Direction) -> str | None:
        """Return the name at the other cluster; None if the mirror does not copy the topic."""
        return (self._topics if direction is Direction.FORWARD else self._sources).get(topic)

    def position_of(self, partition: TopicPartition) -> CommittedValue | None:
        """Return the mirror's committed offset of a source partition, with its metadata."""
        topic = self._positions.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def taken_of(self, partition: TopicPartition) -> SourceTaken:
        """
        Return the reader of a source partition; all groups of a round share its counts.

        At first it postpones counts; see :meth:`read_postponed`.
        """
        reader = self._taken.get(partition)
        if reader is None:
            reader = self._taken[partition] = self._taken_of(partition)
            reader.postpones = self._postpones
        return reader

    def has_postponed(self, partition: TopicPartition) -> bool:
        """Whether counts of a source partition are postponed."""
        reader = self._taken.get(partition)
        return reader is not None and reader.has_postponed

    def read_postponed(self) -> bool:
        """Read for all counts of the round so far; return whether there are any to be repeated."""
        self._postpones = False
        return read_postponed(self._source, self._taken, self._source.config.isolation_level)

    def before_cut(self, copy: MirroredCopy, offset: int, direction: Direction) -> Translation | None:
        """
        Translate an offset that lies before the map of a copy, if the mirror goes back from a cut-over.

        Raises:
            ShoalError: The destination does not respond.

        """
        cut = copy.offsets.milestones[0]
        begins_at = cut.source if direction is Direction.FORWARD else cut.destination
        if self._way_there is None or copy.offsets.is_whole or offset >= begins_at:
            return None
        return self._way_there.translate(copy.source, copy.destination, cut, offset, direction)

    def copy_of(self, partition: TopicPartition) -> MirroredCopy | str:
        """Return the copy of a source partition, or a phrase: why its offsets have no translation."""
        committed = self.position_of(partition)
        if committed is None or committed.offset < 0:
            return f"the mirror's group {self._group!r} has no position of {partition}"
        decoded = self._decoded.get(partition)
        if decoded is None or decoded[0] != committed:
            decoded = committed, self._decode(partition, committed)
            self._decoded[partition] = decoded
        copy = decoded[1]
        return copy if isinstance(copy, str) else self._of_present_topics(copy)

    def _decode(self, partition: TopicPartition, committed: CommittedValue) -> MirroredCopy | str:
        try:
            position = MirrorPosition.from_committed(Committed(committed.offset, committed.metadata))
        except ConfigError as error:
            return str(error)
        if position is None:
            return f"the mirror has not copied anything of {partition} yet"
        offsets = position.offsets
        return MirroredCopy(
            partition,
            TopicPartition(self._topics[partition.topic], partition.partition),
            offsets,
            had_incident(offsets),
            (position.source_topic_id, position.destination_topic_id),
        )

    def _of_present_topics(self, copy: MirroredCopy) -> MirroredCopy | str:
        """Return the copy if its position is one of the present topics; a topic may be created again."""
        for cluster, partition, then in (
            (self._source, copy.source, copy.topic_ids[0]),
            (self._destination, copy.destination, copy.topic_ids[1]),
        ):
            found = cluster.metadata.topics.get(partition.topic)
            if found is None or partition.partition not in found.partitions:
                return f"there is no {partition} on {cluster}"
            if is_another_topic(then, found.topic_id):
                return f"topic {partition.topic} on {cluster} was created again since it was mirrored"
        return copy
