"""Where the mirror of a partition begins that has no committed pair."""

from __future__ import annotations

from ...client.admin import init_producer_id
from ...client.cluster import Cluster
from ...client.metadata import TopicPartition
from ...errors import PartitionStopped
from ..incidents import Delivery, Incident, IncidentKind
from ..pair import Identity, Pair
from ..partition_copy import PartitionCopy
from .logs import Clusters, DestinationLog
from .tail import Place, find, last_batch

__all__ = ["begin", "new_identity", "topic_id"]


def begin(
    clusters: Clusters,
    copy: PartitionCopy,
    log: DestinationLog,
    incidents: list[Incident],
    consumed: int | None = None,
) -> Pair:
    """
    Choose where to begin, and who writes.

    Args:
        clusters: Whom to ask.
        copy: The partition.
        log: Its log at the destination.
        incidents: What was found on the way is added here.
        consumed: Where a consumer of the group was: everything before it counts as mirrored, wherever
            that may be. None for none.

    Raises:
        PartitionStopped: The destination holds something, and nothing shows where the source goes on.

    """
    place, crc = Place(copy.range.start_offset if consumed is None else consumed), None
    if consumed is None and clusters.settings.delivery is Delivery.EXACTLY_ONCE and log.end > 0:
        place, crc = _behind_what_is_there(clusters, copy, log, incidents)
    return Pair(
        source_offset=place.source_offset,
        destination_offset=log.end,
        identity=new_identity(clusters),
        origin=(place.source_offset, log.end),
        last_batch=crc,
        source_topic_id=topic_id(clusters.source, copy.source),
        destination_topic_id=topic_id(clusters.destination, copy.destination),
        destination_leader_epoch=clusters.destination.partition(copy.destination).leader_epoch,
        rules=clusters.settings.rules,
        source_leader_epoch=place.source_leader_epoch,
    )


def _behind_what_is_there(
    clusters: Clusters, copy: PartitionCopy, log: DestinationLog, incidents: list[Incident]
) -> tuple[Place, int | None]:
    """Look for the destination's tail: records of a mirror whose pair expired must not be copied again."""
    start = Place(copy.range.start_offset)
    tail = last_batch(clusters, copy, log)
    places = find(clusters, copy, tail).places if tail else ()
    if tail and len(places) == 1:
        return places[0], tail.fingerprint.crc
    if clusters.settings.allow_nonempty:
        return start, None
    if tail is None:
        what = f"held records up to offset {log.end}, all deleted since"
    else:
        times = "is not in the source" if not places else f"is {len(places)} times in the source"
        what = f"holds records up to offset {log.end}, and its last batch {times}"
    reason = (
        f"the group {clusters.settings.group!r} has no committed pair for it, and {copy.destination} on "
        f"{clusters.destination} {what}"
    )
    advice = "mirror into an empty topic (--rename), or give --allow-nonempty to copy behind what is there"
    if tail and not places:
        # Kafka deletes a topic's committed offsets together with the topic.
        kind = IncidentKind.SOURCE_RESET
        reason += ": was the topic deleted and created again at the source?"
        advice += f"; {kind.option} continue does so, too"
        if kind in clusters.settings.continue_on:
            incidents.append(Incident(kind, reason, lost=None, continued=True))
            return start, None
        incidents.append(Incident(kind, reason))
    raise PartitionStopped(*copy.source, copy.range.start_offset, f"{reason}; {advice}")


def new_identity(clusters: Clusters, base: int = 0) -> Identity:
    """Return a writer that nobody knows; ``base`` as in :class:`~shoal.mirroring.pair.Identity`."""
    producer_id, producer_epoch = init_producer_id(clusters.destination)
    return Identity(producer_id, producer_epoch, base)


def topic_id(cluster: Cluster, partition: TopicPartition) -> str | None:
    """Return a topic's id as text; None where the cluster has none."""
    topic = cluster.metadata.topics.get(partition.topic)
    return str(topic.topic_id) if topic and topic.topic_id else None
