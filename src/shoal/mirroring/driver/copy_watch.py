"""
Find copies that were deleted or truncated while the mirror runs, also those that no task writes to.

The driver itself stops only a partition whose topic is gone: there is nothing that a task could align it
with. If such a topic had no position at any look, nothing was written to it: the driver creates it again, as
at the start. All other findings go to a task, which reads both logs and reports what it finds as an incident.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from ...client.cluster import Cluster
from ...client.coordinator import MemberId
from ...topic_partition import TopicPartition
from ..model.incidents import IncidentKind
from ..model.position import MirrorPosition, is_another_topic
from ..model.reports import left_out_report, stopped_report
from ..positions import GroupPositions
from ..prepare.copies import (
    CopyState,
    compare_copies,
    confirmed_deleted,
    deleted_copies,
    deleted_reason,
    stops_of_deleted,
)
from .lookout import Watch
from .running import Running

__all__ = ["CopyWatch"]


class CopyWatch(Watch):
    """
    Compares all copies at each look.

    The watch reacts once to each finding, since a task may still be working on it at the next look.
    A copy whose leader is silent at two looks is a finding, too: an idle task does not ask that leader.
    With ``--once`` it looks for deleted copies alone: the tasks find everything else, and stop by themselves.

    """

    failure = "the copies cannot be compared with the committed positions: "

    def __init__(self, mirror: Running, create_again: Callable[[Collection[str]], Iterable[str]]) -> None:
        """
        Prepare the first look.

        Args:
            create_again: A function that creates the copies of source topics, and returns warnings. It is
                called for topics that nothing was written to, or if the policy lets the mirror continue.

        """
        super().__init__(mirror)
        self._create_again = create_again
        self._positions: dict[TopicPartition, MirrorPosition] = {}
        self._reported: dict[TopicPartition, tuple[CopyState, MirrorPosition]] = {}
        #: The partitions whose copy's leader did not answer at the last look.
        self._unseen: set[TopicPartition] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare all copies once."""
        copies = self._schedule.copies()
        if not copies:
            return
        there = [each for each in copies if each.topic in source.metadata.topics]
        positions = GroupPositions(source, self._mirror.group, MemberId).read(there)
        # A position may get lost, and the copy after it: that it was written to shows from the one before.
        self._positions = {
            each: position for each, position in self._positions.items() if _is_of(position, each, source)
        } | positions
        destination.refresh({copies[partition].topic for partition in there})
        written = {each: self._positions[each] for each in there if each in self._positions}
        self._meet_deleted(written, copies, destination)
        self._create_unwritten({each: copies[each] for each in there}, written, destination)
        if self._options.once:
            return
        found = compare_copies(destination, positions, copies)
        # Records that follow a position are the mirror's own, and will be committed.
        lost = [each for each, state in found.items() if state in (CopyState.RECREATED, CopyState.SHORTER)]
        doubted = [*lost, *self._still_unseen(found)]
        self._doubt({partition: (found[partition], positions[partition]) for partition in doubted})

    def _still_unseen(self, found: Mapping[TopicPartition, CopyState]) -> Collection[TopicPartition]:
        """Return the partitions whose copy was silent at two looks, if no task has reported that."""
        before = self._unseen
        self._unseen = {each for each, state in found.items() if state is CopyState.UNSEEN}
        return (before & self._unseen).difference(self._schedule.in_trouble())

    def _meet_deleted(
        self,
        positions: Mapping[TopicPartition, MirrorPosition],
        copies: Mapping[TopicPartition, TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create the copies again that are gone, or stop their partitions."""
        topics = {copies[partition].topic for partition in positions}
        if self._options.continues_after(IncidentKind.DESTINATION_LOSS):
            gone = deleted_copies(destination, topics)
            if gone:
                self._create(gone, copies)
                destination.refresh(gone)
            return
        gone = confirmed_deleted(destination, topics, self.over.wait, self._options.timing)
        reasons = {
            partition: deleted_reason(copy.topic, destination)
            for partition, copy in copies.items()
            if copy.topic in gone
        }
        if reasons and not self.over.is_set():
            stops = stops_of_deleted(reasons, positions)
            self._schedule.apply(stopped_report(stops))
            self._plan_again(stops)

    def _create_unwritten(
        self,
        copies: Mapping[TopicPartition, TopicPartition],
        positions: Iterable[TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create copies again that are gone and have no position: nothing was written to them, or lost."""
        unwritten = {copy.topic for copy in copies.values()} - {copies[each].topic for each in positions}
        gone = confirmed_deleted(destination, unwritten, self.over.wait, self._options.timing)
        if gone and not self.over.is_set():
            self._create(gone, copies)

    def _create(self, gone: Collection[str], copies: Mapping[TopicPartition, TopicPartition]) -> None:
        topics = sorted({each.topic for each, copy in copies.items() if copy.topic in gone})
        for warning in self._create_again(topics):
            self._warn(warning)
        for topic in sorted(gone):
            self._mirror.notify(f"topic {topic} was deleted at the destination, and is created again")

    def _doubt(self, found: Mapping[TopicPartition, tuple[CopyState, MirrorPosition]]) -> None:
        news = {
            partition: f"{partition.topic}'s copy to be aligned: it {state.value}"
            for partition, (state, position) in found.items()
            if self._reported.get(partition) != (state, position)
        }
        self._reported = dict(found)
        if news:
            self._schedule.apply(left_out_report(news))
            self._plan_again(news)

    def _plan_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Have tasks begin these partitions again, without a position, so that they read both logs."""
        self._mirror.control.recall(partitions)
        self._schedule.on_news()


def _is_of(position: MirrorPosition, partition: TopicPartition, source: Cluster) -> bool:
    """Whether a position is of the source's present topic: Kafka deletes positions with their topic."""
    topic = source.metadata.topics.get(partition.topic)
    return topic is not None and not is_another_topic(position.source_topic_id, topic.topic_id)
