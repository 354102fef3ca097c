"""
Compare the group's positions with the destination's topics: was a copy deleted or truncated since then?

A task asks this of each partition that it aligns. The driver asks for all others: when it plans a run with an
end, and at each refresh of a mirror without one (:mod:`..driver.lookout`). That is one OffsetFetch
request, one Metadata request, and one OffsetForLeaderEpoch request for each destination broker, however many
partitions there are.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from ...client.cluster import Cluster
from ...client.offsets import log_end_offsets
from ...error_codes import ErrorCode
from ...errors import PartitionStopped
from ...timing import Timing
from ...topic_partition import TopicPartition
from ..model.incidents import Incident, IncidentKind
from ..model.position import MirrorPosition, is_another_topic

__all__ = [
    "CopyState",
    "compare_copies",
    "confirmed_deleted",
    "deleted_copies",
    "deleted_reason",
    "present_problem",
    "stops_of_deleted",
]


class CopyState(enum.Enum):
    """How a copy differs from its committed position; the value completes a sentence that begins with it."""

    DELETED = "was deleted at the destination"
    RECREATED = "was deleted and created again at the destination"
    SHORTER = "ends before its last acknowledged record"
    LONGER = "holds more records than the committed position"
    UNSEEN = "has a leader that does not answer, so nothing shows whether it is complete"

    @property
    def is_loss(self) -> bool:
        """Whether records of the copy are missing."""
        return self not in (CopyState.LONGER, CopyState.UNSEEN)


def compare_copies(
    destination: Cluster,
    positions: Mapping[TopicPartition, MirrorPosition],
    copies: Mapping[TopicPartition, TopicPartition],
) -> dict[TopicPartition, CopyState]:
    """
    Compare positions with the topics and the log ends of the destination.

    Args:
        destination: With metadata of the copies that is newer than the positions. A mirror at work commits
            after the destination has acknowledged: what is asked later holds at least what a position says.
        positions: As committed, by source partition.
        copies: The destination partitions by source partition.

    Returns:
        The source partitions whose copy differs, or whose leader does not answer.

    """
    found = {
        partition: state
        for partition, position in positions.items()
        if (state := _state_of_topic(destination, copies[partition], position)) is not None
    }
    asked = {partition: copies[partition] for partition in positions if partition not in found}
    ends = log_end_offsets(destination, asked.values())
    for partition, copy in asked.items():
        end, expected = ends[copy], positions[partition].destination_offset
        if not isinstance(end, int):
            found[partition] = CopyState.UNSEEN
        elif end != expected:
            found[partition] = CopyState.SHORTER if end < expected else CopyState.LONGER
    return found


def _state_of_topic(destination: Cluster, copy: TopicPartition, position: MirrorPosition) -> CopyState | None:
    """Return what the metadata alone shows; None if nothing."""
    if copy.topic in deleted_copies(destination, [copy.topic]):
        return CopyState.DELETED
    topic = destination.metadata.topics.get(copy.topic)
    if topic is None:
        return None  # not authorized, for example: no sign of a loss
    if is_another_topic(position.destination_topic_id, topic.topic_id):
        return CopyState.RECREATED
    return None if copy.partition in topic.partitions else CopyState.RECREATED


def present_problem(cluster: Cluster, partition: TopicPartition, topic_id: str | None) -> str:
    """Return a phrase if a partition is not of the topic of a position; a topic may be created again."""
    found = cluster.metadata.topics.get(partition.topic)
    if found is None or partition.partition not in found.partitions:
        return f"there is no {partition} on {cluster}"
    if is_another_topic(topic_id, found.topic_id):
        return f"topic {partition.topic} on {cluster} was created again since it was mirrored"
    return ""


def deleted_copies(destination: Cluster, topics: Iterable[str]) -> set[str]:
    """Return those topics that the destination does not have, by its last metadata of them."""
    errors = destination.metadata.errors
    return {topic for topic in topics if errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def confirmed_deleted(
    destination: Cluster, topics: Iterable[str], pause: Callable[[float], object], timing: Timing
) -> set[str]:
    """Return those topics that the destination still does not have when it is asked once more."""
    topics = deleted_copies(destination, topics)
    if topics:
        pause(timing.deletion_confirmed_s)
        destination.refresh(topics)
    return deleted_copies(destination, topics)


def deleted_reason(topic: str, destination: Cluster) -> str:
    """Return the report of each partition of a topic that is gone."""
    return f"topic {topic} on {destination} was deleted since it was mirrored"


def stops_of_deleted(
    reasons: Mapping[TopicPartition, str],
    positions: Mapping[TopicPartition, MirrorPosition],
) -> dict[TopicPartition, tuple[PartitionStopped, Incident]]:
    """
    Return how partitions stop whose copies are gone.

    Args:
        reasons: By source partition; see :func:`deleted_reason`.
        positions: The committed ones; a partition that was added since the deletion has none.

    """
    kind = IncidentKind.DESTINATION_LOSS
    advice = (
        f"{kind.continuing} creates it again and mirrors the records that the source still has. A "
        "new group mirrors it as a new topic"
    )
    stops = {}
    for partition, reason in reasons.items():
        position = positions.get(partition)
        reached, unmirrored_from = (position.source_offset, position.origin[0]) if position else (0, None)
        sentence = f"{reason}. {advice}"
        stopped = PartitionStopped(*partition, reached, sentence, unmirrored_from, can_heal=False, cause=kind)
        stops[partition] = stopped, Incident(kind, reason)
    return stops
