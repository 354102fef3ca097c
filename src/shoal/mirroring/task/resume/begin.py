"""The first position of a partition without a committed one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.incidents import Incident
from ...model.offset_map import OffsetMap
from ...model.position import MirrorPosition, ProducerIdentity
from ...other_groups import topic_id
from .logs import Clusters, PartitionLogs
from .nonempty import behind_what_is_there
from .search import SourcePlace

if TYPE_CHECKING:
    from ...other_groups import OtherGroups

__all__ = ["begin", "first_position", "new_identity"]


def begin(
    logs: PartitionLogs,
    incidents: list[Incident],
    others: OtherGroups,
    consumed: int | None = None,
) -> MirrorPosition:
    """
    Choose the first position and the writer.

    Args:
        logs: Both logs of the partition.
        incidents: The incidents that are found are added here.
        others: The positions that other groups have of the same copies.
        consumed: The position of a consumer of the group: everything before it counts as mirrored.
            None for none.

    Raises:
        PartitionStopped: The destination has records, and nothing shows the place behind them in the source.

    """
    place, crc = SourcePlace(logs.copy.range.start_offset if consumed is None else consumed), None
    if consumed is None and not logs.settings.allows_other_writers and logs.log.end > 0:
        place, crc = behind_what_is_there(logs, incidents, others)
    return first_position(logs, place, crc)


def first_position(logs: PartitionLogs, place: SourcePlace, last_batch: int | None) -> MirrorPosition:
    """
    Return a partition's first position, with a writer that is new to the destination.

    Args:
        logs: Both logs of the partition.
        place: The place in the source behind the end of the destination's log.
        last_batch: The CRC of the fingerprint of the destination's last batch, if the source has it.

    """
    clusters, copy, end = logs.clusters, logs.copy, logs.log.end
    return MirrorPosition(
        source_offset=place.source_offset,
        destination_offset=end,
        identity=new_identity(clusters),
        origin=(place.source_offset, end),
        last_batch=last_batch,
        source_topic_id=topic_id(clusters.source, copy.source),
        destination_topic_id=topic_id(clusters.destination, copy.destination),
        destination_leader_epoch=clusters.destination.partition(copy.destination).leader_epoch,
        rules=clusters.settings.rules,
        source_leader_epoch=place.source_leader_epoch,
        first_start=clusters.settings.first_start,
        milestones=OffsetMap.begun_at(
            place.source_offset,
            end,
            is_whole=end == 0,
            is_repeated=clusters.settings.allows_other_writers,
        ),
    )


def new_identity(clusters: Clusters, base: int = 0) -> ProducerIdentity:
    """Return a writer that has written to no partition; for ``base`` see :class:`ProducerIdentity`."""
    return ProducerIdentity(*clusters.new_producer, base)
