"""
Compare what was mirrored with what the destination holds: was a copy deleted, or cut, since then?

A task asks this of each partition that it aligns. A partition with nothing to
copy has no task, or one that was aligned long ago, so the driver asks as well:
when it plans a run with an end, and at each refresh of a mirror without one.
That is one OffsetFetch request, one Metadata request, and one
OffsetForLeaderEpoch request for each destination broker, however many
partitions there are.

The driver itself stops only a partition whose topic is gone: there is nothing
that a task could align it with. A topic that is gone and had no pair at any
look was never written to: the driver creates it again, as at the start. All
else it hands to a task, which reads both logs and meets what it finds as an
incident.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Collection, Iterable, Mapping

from ...client.cluster import Cluster, is_transient
from ...client.coordinator import MemberId
from ...client.offsets import log_end_offsets
from ...error_codes import ErrorCode
from ...errors import PartitionStopped, ShoalError
from ...topic_partition import TopicPartition
from ..model.incidents import Incident, IncidentKind
from ..model.options import MirrorOptions
from ..model.position import MirrorPosition
from ..positions import GroupPositions

__all__ = [
    "CopyState",
    "CopyWatch",
    "compare_copies",
    "confirmed_deleted",
    "deleted_copies",
    "deleted_reason",
    "stops_of_deleted",
]

#: A broker that has just started may not have all metadata yet: a topic is gone that is gone twice.
_CONFIRMATION_S = 2.0


class CopyState(enum.Enum):
    """How a copy differs from its committed pair; the value completes a sentence that begins with it."""

    DELETED = "was deleted at the destination"
    RECREATED = "was deleted and created again at the destination"
    SHORTER = "ends before what was mirrored and acknowledged"
    LONGER = "holds more than what was mirrored and committed"

    @property
    def is_loss(self) -> bool:
        return self is not CopyState.LONGER


def compare_copies(
    destination: Cluster,
    pairs: Mapping[TopicPartition, MirrorPosition],
    copies: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, CopyState]:
    """
    Compare pairs with the topics and the log ends of the destination.

    Args:
        destination: With metadata of the copies that is newer than the pairs. A mirror at work commits
            after the destination has acknowledged: what is asked later holds at least what a pair says.
        pairs: As committed, by source partition.
        copies: The destination partitions by source partition.

    Returns:
        The source partitions whose copy differs. One whose leader does not answer is left out.

    """
    found = {
        partition: state
        for partition, pair in pairs.items()
        if (state := _state_of_topic(destination, copies[partition], pair)) is not None
    }
    asked = {partition: copies[partition] for partition in pairs if partition not in found}
    ends = log_end_offsets(destination, asked.values())
    for partition, copy in asked.items():
        end, expected = ends[copy], pairs[partition].destination_offset
        if isinstance(end, int) and end != expected:
            found[partition] = CopyState.SHORTER if end < expected else CopyState.LONGER
    return found


def _state_of_topic(destination: Cluster, copy: TopicPartition, pair: MirrorPosition) -> CopyState | None:
    """Return what the metadata alone shows; None if nothing."""
    if copy.topic in deleted_copies(destination, [copy.topic]):
        return CopyState.DELETED
    topic = destination.metadata.topics.get(copy.topic)
    if topic is None:
        return None  # not authorized, for example: no sign of a loss
    if pair.destination_topic_id and topic.topic_id and pair.destination_topic_id != str(topic.topic_id):
        return CopyState.RECREATED
    return None if copy.partition in topic.partitions else CopyState.RECREATED


def deleted_copies(destination: Cluster, topics: Iterable[str]) -> set[str]:
    """Return those topics that the destination does not have, by its last metadata of them."""
    errors = destination.metadata.errors
    return {topic for topic in topics if errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def confirmed_deleted(
    destination: Cluster, topics: Iterable[str], pause: Callable[[float], object]
) -> set[str]:
    """Return those topics that the destination still does not have when it is asked once more."""
    topics = deleted_copies(destination, topics)
    if topics:
        pause(_CONFIRMATION_S)
        destination.refresh(topics)
    return deleted_copies(destination, topics)


def deleted_reason(topic: str, destination: Cluster) -> str:
    """Return what is reported of each partition of a topic that is gone."""
    return f"topic {topic} on {destination} was deleted since it was mirrored"


def stops_of_deleted(
    reasons: Mapping[TopicPartition, str], pairs: Mapping[TopicPartition, MirrorPosition]
) -> dict[TopicPartition, tuple[PartitionStopped, Incident]]:
    """
    Return how partitions stop whose copies are gone.

    Args:
        reasons: By source partition; see :func:`deleted_reason`.
        pairs: The committed ones; a partition that was added since the deletion has none.

    """
    kind = IncidentKind.DESTINATION_LOSS
    advice = (
        f"{kind.option} continue creates it again and mirrors again what the source still has of it; with a "
        "new --group it is mirrored as a new topic"
    )
    stops = {}
    for partition, reason in reasons.items():
        pair = pairs.get(partition)
        reached, unmirrored_from = (pair.source_offset, pair.origin[0]) if pair else (0, None)
        sentence = f"{reason}; {advice}"
        stopped = PartitionStopped(*partition, reached, sentence, unmirrored_from, can_heal=False)
        stops[partition] = stopped, Incident(kind, reason)
    return stops


def _is_of(pair: MirrorPosition, partition: TopicPartition, source: Cluster) -> bool:
    """Whether a pair is of the topic that the source has now: Kafka deletes positions with their topic."""
    topic = source.metadata.topics.get(partition.topic)
    if topic is None:
        return False
    return not (pair.source_topic_id and topic.topic_id) or pair.source_topic_id == str(topic.topic_id)


class CopyWatch:
    """
    A thread on the driver that compares all copies every so often, until the ``with`` block ends.

    Each finding is reported once: what a task makes of it may take longer than the next look is away.

    """

    def __init__(
        self,
        options: MirrorOptions,
        group: str,
        copies: Callable[[], Mapping[TopicPartition, TopicPartition]],
        create_again: Callable[[Collection[str]], Iterable[str]],
        on_deleted: Callable[[Mapping[TopicPartition, tuple[PartitionStopped, Incident]]], object],
        on_doubt: Callable[[Mapping[TopicPartition, str]], object],
        on_warning: Callable[[str], object],
        on_notice: Callable[[str], object],
    ) -> None:
        """
        Prepare to look each ``refresh_s``.

        Args:
            options: Of the mirror.
            group: Whose pairs count.
            copies: Returns what is mirrored and not stopped: the copies by source partition.
            create_again: Creates the copies of source topics, if nothing was written to them yet, or if the
                policy lets the mirror continue; returns what is to be warned of.
            on_deleted: Receives the partitions that have to stop, if not.
            on_doubt: Receives the partitions that a task has to align, with what was found.
            on_warning: Receives why nothing can be compared, and what a copy lacks that is created again;
                each sentence once.
            on_notice: Receives which topics are created again.

        """
        self._options = options
        self._group = group
        self._copies = copies
        self._create_again = create_again
        self._on_deleted = on_deleted
        self._on_doubt = on_doubt
        self._on_warning = on_warning
        self._on_notice = on_notice
        self._pairs: dict[TopicPartition, MirrorPosition] = {}
        self._reported: dict[TopicPartition, tuple[CopyState, MirrorPosition]] = {}
        self._warned: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="shoal-copies", daemon=True)

    def __enter__(self) -> CopyWatch:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        # It may wait for a broker's answer, which changes nothing any more.
        self._thread.join(timeout=1.0)

    def _keep_looking(self) -> None:
        options = self._options
        with (
            Cluster(options.source.impatient()) as source,
            Cluster(options.destination.impatient()) as destination,
        ):
            while not self._over.wait(options.refresh_s):
                try:
                    self.look(source, destination)
                except Exception as error:  # a mirror of months does not end for it
                    if not (isinstance(error, ShoalError) and is_transient(error)):
                        self._warn(f"the copies cannot be compared with what was mirrored: {error}")

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Compare all copies once."""
        copies = self._copies()
        if not copies:
            return
        source.refresh({partition.topic for partition in copies})
        there = [each for each in copies if each.topic in source.metadata.topics]
        pairs = GroupPositions(source, self._group, MemberId).read(there)
        # A position may get lost, and the copy after it: that it was written to shows from the one before.
        self._pairs = {each: pair for each, pair in self._pairs.items() if _is_of(pair, each, source)} | pairs
        destination.refresh({copies[partition].topic for partition in there})
        written = {each: self._pairs[each] for each in there if each in self._pairs}
        self._meet_deleted(written, copies, destination)
        self._create_unwritten({each: copies[each] for each in there}, written, destination)
        found = compare_copies(destination, pairs, copies)
        # Records that follow a pair are the mirror's own, and will be committed.
        lost = {
            each: state for each, state in found.items() if state in (CopyState.RECREATED, CopyState.SHORTER)
        }
        self._doubt({partition: (state, pairs[partition]) for partition, state in lost.items()})

    def _meet_deleted(
        self,
        pairs: Mapping[TopicPartition, MirrorPosition],
        copies: Mapping[TopicPartition, TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create the copies again that are gone, or stop their partitions."""
        topics = {copies[partition].topic for partition in pairs}
        if IncidentKind.DESTINATION_LOSS in self._options.continue_on:
            gone = deleted_copies(destination, topics)
            if gone:
                self._create(gone, copies)
                destination.refresh(gone)
            return
        gone = confirmed_deleted(destination, topics, self._over.wait)
        reasons = {
            partition: deleted_reason(copy.topic, destination)
            for partition, copy in copies.items()
            if copy.topic in gone
        }
        if reasons and not self._over.is_set():
            self._on_deleted(stops_of_deleted(reasons, pairs))

    def _create_unwritten(
        self,
        copies: Mapping[TopicPartition, TopicPartition],
        pairs: Iterable[TopicPartition],
        destination: Cluster,
    ) -> None:
        """Create the copies again that are gone and have no pair: nothing was written to them, or lost."""
        unwritten = {copy.topic for copy in copies.values()} - {copies[each].topic for each in pairs}
        gone = confirmed_deleted(destination, unwritten, self._over.wait)
        if gone and not self._over.is_set():
            self._create(gone, copies)

    def _create(self, gone: Collection[str], copies: Mapping[TopicPartition, TopicPartition]) -> None:
        topics = sorted({each.topic for each, copy in copies.items() if copy.topic in gone})
        for warning in self._create_again(topics):
            self._warn(warning)
        for topic in sorted(gone):
            self._on_notice(f"topic {topic} was deleted at the destination, and is created again")

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._on_warning(sentence)

    def _doubt(self, found: Mapping[TopicPartition, tuple[CopyState, MirrorPosition]]) -> None:
        news = {
            partition: f"{partition.topic}'s copy to be aligned: it {state.value}"
            for partition, (state, pair) in found.items()
            if self._reported.get(partition) != (state, pair)
        }
        self._reported = dict(found)
        if news:
            self._on_doubt(news)
