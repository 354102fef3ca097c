"""
Ranges that cannot be copied to their end, since a topic was deleted.

A range without an end waits, and the driver finds that. A range with an end, as of ``--once``, would wait for
ever.
"""

from __future__ import annotations

from ...client.cluster import Cluster
from ...error_codes import ErrorCode
from ...errors import PartitionStopped
from ..model.copy_options import CopySettings
from ..model.incidents import IncidentKind
from .partition import PartitionCopy
from .trouble import Trouble

__all__ = ["end_deleted"]

#: A copy is gone that stays gone for so long, if the driver is to create it again, which it does at the next
#: ``--refresh``.
_CREATION_S = 300.0


def end_deleted(copy: PartitionCopy, source: Cluster, destination: Cluster, settings: CopySettings) -> None:
    """
    End a partition whose topic was deleted on either side, by the newest metadata.

    Raises:
        PartitionStopped: The topic was deleted, and the policy is to stop.

    """
    if copy.range.is_open or _end_deleted_source(copy, source, settings):
        return
    kind, topic = IncidentKind.DESTINATION_LOSS, copy.destination.topic
    confirmed_s = settings.timing.deletion_confirmed_s
    patience_s = _CREATION_S if settings.continues_after(kind) else confirmed_s
    if _missing_s(copy, destination, topic, Trouble.NO_COPY) >= patience_s:
        raise PartitionStopped(
            *copy.source,
            copy.next_offset,
            f"topic {topic} on {destination} was deleted since it was mirrored. {kind.continuing} creates it "
            "again and mirrors the records that the source still has. A new group mirrors it as a new topic",
            can_heal=False,
            cause=kind,
        )


def _end_deleted_source(copy: PartitionCopy, source: Cluster, settings: CopySettings) -> bool:
    """
    End a partition if its source topic was deleted; return whether it was. Its position is committed no more.

    Raises:
        PartitionStopped: The topic was deleted, and the policy is to stop.

    """
    missing_s = _missing_s(copy, source, copy.source.topic, Trouble.NO_SOURCE)
    if missing_s < settings.timing.deletion_confirmed_s:
        return False
    copy.lose_source()
    kind, end = IncidentKind.SOURCE_RESET, copy.range.end_offset
    reason = (
        f"topic {copy.source.topic} on {source} was deleted while it was mirrored, up to offset "
        f"{copy.next_offset} of {end}"
    )
    advice = f"The copy keeps the mirrored records. {kind.continuing} counts the missing offsets as lost"
    copy.meet(kind, reason, advice)
    copy.report_continued(kind, reason, end - copy.next_offset)
    copy.end_without_source()
    return True


def _missing_s(copy: PartitionCopy, cluster: Cluster, topic: str, trouble: Trouble) -> float:
    """Return for how long a cluster has not had a topic; a broker that has just started may not know it."""
    if cluster.metadata.errors.get(topic) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        copy.troubles.end(copy.next_offset, trouble)
        return -1.0
    return copy.troubles.meet(copy.next_offset, trouble).lasted_s
