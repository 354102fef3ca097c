"""The first position of a partition without a committed one."""

from __future__ import annotations

from ....errors import PartitionStopped
from ...model.incidents import IncidentKind
from ...model.offset_map import OffsetMap
from ...model.position import MirrorPosition, ProducerIdentity
from ...other_groups import topic_id
from .incidents import Continued, Incident
from .logs import Clusters, PartitionLogs, present_end

__all__ = ["begin", "first_position", "new_identity"]


def begin(logs: PartitionLogs, consumed: int | None = None) -> MirrorPosition:
    """
    Choose the first position and the writer.

    Args:
        logs: Both logs of the partition.
        consumed: The position of a consumer of the group: everything before it counts as mirrored.
            None for none.

    Raises:
        PartitionStopped: The destination has records, and nothing says where the source continues.

    """
    settings = logs.clusters.settings
    if consumed is not None:
        return first_position(logs, consumed)
    if logs.start == logs.end or settings.allows_other_writers:
        return first_position(logs, logs.copy.range.start_offset)
    return _behind_records(logs)


def _behind_records(logs: PartitionLogs) -> MirrorPosition:
    """Begin behind the records of a former source topic, if the policy allows that; else stop."""
    clusters, copy = logs.clusters, logs.copy
    what = (
        f"group {clusters.settings.group!r} has no committed position for it, and {logs.name} has records "
        f"from offset {logs.start} to {logs.end - 1}"
    )
    end = present_end(clusters.source, copy.source)
    if end < logs.end:
        # Kafka deletes a topic's positions with it. A source that was never so long is another topic.
        kind = IncidentKind.SOURCE_RESET
        again = Incident(
            kind,
            f"{what}, but the source ends at offset {end}: its topic was created again",
            f"{kind.continuing} mirrors it behind the copy's records, or use an empty topic (--rename)",
            # All of it, also with --start latest: Kafka deleted the memory of the first start, too.
            lambda: Continued(first_position(logs, logs.source_start, may_repeat=True), None),
        )
        return again.meet(logs, copy.range.start_offset).position
    raise PartitionStopped(
        *copy.source,
        copy.range.start_offset,
        f"{what}. Use the group that mirrored them, or --adopt to compare the whole copy with the source and "
        "continue behind it, or mirror into an empty topic (--rename)",
        can_heal=False,
    )


def first_position(
    logs: PartitionLogs, source_offset: int, source_leader_epoch: int = -1, *, may_repeat: bool = False
) -> MirrorPosition:
    """
    Return a partition's first position, with a writer that is new to the destination.

    Args:
        logs: Both logs of the partition.
        source_offset: The source offset of the next record, which lands at the end of the destination's log.
        source_leader_epoch: The leader epoch of the record before it; -1 if it is not known.
        may_repeat: Whether the destination may have copies of the same records already.

    """
    clusters, copy, end = logs.clusters, logs.copy, logs.end
    settings = clusters.settings
    return MirrorPosition(
        source_offset=source_offset,
        destination_offset=end,
        identity=new_identity(clusters),
        origin=(source_offset, end),
        source_topic_id=topic_id(clusters.source, copy.source),
        destination_topic_id=topic_id(clusters.destination, copy.destination),
        rules=settings.rules,
        source_leader_epoch=source_leader_epoch,
        first_start=settings.first_start,
        milestones=OffsetMap.begun_at(
            source_offset,
            end,
            is_repeated=may_repeat or settings.allows_other_writers,
        ),
        begin=end,
        is_plain=settings.allows_other_writers,
    )


def new_identity(clusters: Clusters, base: int = 0) -> ProducerIdentity:
    """Return a writer that has written to no partition; for ``base`` see :class:`ProducerIdentity`."""
    return ProducerIdentity(*clusters.new_producer, base)
