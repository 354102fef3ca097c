"""
The copies of a mirror and their offset maps, from the positions in the mirror's group.

The map of a mirror that goes back begins at the cut. The offsets before are in the map of the mirror that led
there, read the other way round. Its group lies on the destination. A consumer that lags behind the cut needs
them. After more cuts, each of both mirrors has the maps of its former lives, too (:mod:`..cutover.failback`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...client.cluster import Cluster
from ...client.committed_offsets import Committed, kept_names
from ...client.config import IsolationLevel
from ...client.coordinator import MemberId
from ...client.group_offsets import CommittedValue, read_groups
from ...errors import BrokerError, ConfigError, ShoalError
from ...topic_partition import TopicPartition, by_topic
from ..model.copy_options import CopySettings, isolation_level_of
from ..model.offset_map import Milestone, OffsetMap, Question, Stretch
from ..model.options import default_group
from ..model.position import MirrorPosition, is_another_topic
from ..positions import GroupPositions
from ..prepare.copies import present_problem
from .translations import Asked, MirroredCopy, MirroredLog

__all__ = ["Copies"]


class Copies:
    """
    The copies of a mirror's topics.

    :meth:`read` reads the positions, and :meth:`copy_of` decodes those that are asked for: a position has
    hundreds of bytes, and most partitions have no news of a group.
    """

    def __init__(self, source: Cluster, destination: Cluster, settings: CopySettings) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster, whose group has the positions, or an archive.
            settings: The settings of the mirror.

        """
        self._source = source
        self._destination = destination
        self._settings = settings
        self._logs: dict[tuple[Cluster, IsolationLevel], MirroredLog] = {}
        self._topics: Mapping[str, str] = {}
        self._positions: Mapping[TopicPartition, CommittedValue] = {}
        self._copied: Mapping[str, Sequence[TopicPartition]] = {}
        self._decoded: dict[TopicPartition, tuple[CommittedValue, MirroredCopy | str]] = {}
        self._first_positions: Mapping[TopicPartition, MirrorPosition] | None = None
        self._first_maps: dict[TopicPartition, MirroredCopy | None] = {}

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
        self._first_positions = None
        self._first_maps.clear()
        group = self._settings.group
        answer = read_groups(self._source.keeper, [group], stable=True)[group]
        if isinstance(answer, ShoalError):
            raise answer
        if topics != self._topics:
            self._topics = dict(topics)
            self._decoded.clear()
        sources = {kept: name for name, kept in kept_names(self._source, topics).items()}
        self._positions = {
            TopicPartition(sources[topic], number): found
            for (topic, number), found in answer.items()
            if topic in sources
        }
        self._copied = by_topic(self._positions, lambda each: each)

    def copy_of(self, partition: TopicPartition) -> MirroredCopy | str:
        """Return the copy of a source partition, or a phrase: why its offsets have no translation."""
        committed = self._positions.get(partition)
        if committed is None or committed.offset < 0:
            return f"the mirror's group {self._settings.group!r} has no position of {partition}"
        decoded = self._decoded.get(partition)
        if decoded is None or decoded[0] != committed:
            decoded = committed, self._decode(partition, committed)
            self._decoded[partition] = decoded
        copy = decoded[1]
        return copy if isinstance(copy, str) else self._of_present_topics(copy)

    def kept_by(self, topic: str) -> Mapping[int, object]:
        """
        Return what keeps exact translations of a source topic's offsets as they are, by partition.

        Records move no offset of a copy. Another topic of one of both names does, and an incident may.
        """
        found: dict[int, object] = {}
        for partition in self._copied.get(topic, ()):
            copy = self.copy_of(partition)
            if isinstance(copy, MirroredCopy) and not copy.had_incident:
                found[partition.partition] = copy.topic_ids
            else:
                found[partition.partition] = copy
        return found

    def asked(self, copy: MirroredCopy, question: Question) -> Asked:
        """
        Return a question to the map that answers it best.

        Raises:
            ShoalError: The destination does not respond.

        """
        own, cut = Asked(copy, question), copy.cut
        if cut is None or question.offset >= (cut.source if question.is_source else cut.destination):
            return own
        if copy.source not in self._first_maps:
            self._first_maps[copy.source] = self._first_map(copy, cut)
        if (first := self._first_maps[copy.source]) is None:
            return own
        # The lives of both mirrors alternate: each knows what it copied itself.
        reverse = question._replace(is_source=not question.is_source)
        return max(own, Asked(first, reverse), key=lambda each: each.knowledge)

    def _decode(self, partition: TopicPartition, committed: CommittedValue) -> MirroredCopy | str:
        try:
            position = MirrorPosition.from_committed(Committed(committed.offset, committed.metadata))
        except ConfigError as error:
            return str(error)
        if position is None:
            return f"the mirror has not copied anything of {partition} yet"
        offsets = position.offsets
        ids = position.source_topic_id, position.destination_topic_id
        destination = TopicPartition(self._topics[partition.topic], partition.partition)
        # Counted as they were copied, whatever the isolation level of this program is.
        level = isolation_level_of(position.rules) or self._settings.source.isolation_level
        log, cut = self._log(self._source, level), None if offsets.is_whole else offsets.milestones[0]
        all_offsets, had_incident = position.all_offsets, _had_incident(offsets)
        return MirroredCopy(partition, destination, all_offsets, ids, log, had_incident, cut)

    def _of_present_topics(self, copy: MirroredCopy) -> MirroredCopy | str:
        """Return the copy if its position is one of the present topics."""
        source_id, copy_id = copy.topic_ids
        problem = present_problem(self._source, copy.source, source_id)
        return problem or present_problem(self._destination, copy.destination, copy_id) or copy

    # The mirror that led to a cut

    def _first_map(self, copy: MirroredCopy, cut: Milestone) -> MirroredCopy | None:
        """Return the map of the mirror that led to the cut of a copy; None if it is not there any more."""
        position = self._read_first().get(copy.destination)
        ids = copy.topic_ids[::-1]
        if position is None or position.destination_offset != cut.source:
            return None
        then = position.source_topic_id, position.destination_topic_id
        if position.source_offset > cut.destination or any(map(is_another_topic, then, ids)):
            return None
        level = isolation_level_of(position.rules)
        if level is None:
            return None
        log = self._log(self._destination, level)
        return MirroredCopy(copy.destination, copy.source, position.all_offsets, then, log)

    def _read_first(self) -> Mapping[TopicPartition, MirrorPosition]:
        """Return the positions of the groups that the first mirror may have had, read once in a round."""
        if self._first_positions is None:
            ids = self._destination.metadata.cluster_id, self._source.metadata.cluster_id
            groups = [self._settings.group]
            with suppress(ConfigError):  # a cluster without an id
                groups.append(default_group(*ids))
            self._first_positions = {}
            for group in groups:
                try:
                    state = GroupPositions(self._destination, group, MemberId).read_state()
                except (BrokerError, ConfigError):
                    continue  # not for this principal, or of another version of shoal
                self._first_positions = {**self._first_positions, **state.positions}
        return self._first_positions

    def _log(self, cluster: Cluster, level: IsolationLevel) -> MirroredLog:
        """Return the logs of a cluster as a mirror with this level reads them."""
        log = MirroredLog(cluster, level, self._settings.records_to_mirror)
        return self._logs.setdefault((cluster, level), log)


def _had_incident(offsets: OffsetMap) -> bool:
    """Whether a map knows of an incident, or does not know its beginning any more."""
    return not offsets.is_whole or any(each.stretch is not Stretch.KNOWN for each in offsets.milestones)
