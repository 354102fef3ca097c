"""
Ranges that cannot be copied to their end, since the source topic was deleted.

A range without an end waits, and the driver finds that. A range with an end, as of ``--once``, would wait for
ever. The driver finds a deleted copy, too (:mod:`...driver.lookout`).
"""

from __future__ import annotations

from ...client.cluster import Cluster
from ...error_codes import ErrorCode
from ..model.copy_options import CopySettings
from ..model.incidents import IncidentKind
from .partition import PartitionCopy
from .trouble import Trouble

__all__ = ["end_deleted"]


def end_deleted(copy: PartitionCopy, source: Cluster, settings: CopySettings) -> None:
    """
    End a partition whose source topic was deleted, by the newest metadata. Its position is committed no more.

    Raises:
        PartitionStopped: The topic was deleted, and the policy is to stop.

    """
    if copy.range.is_open:
        return
    topic, begin, end = copy.source.topic, copy.next_offset, copy.range.end_offset
    if source.metadata.errors.get(topic) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        copy.troubles.end(Trouble.NO_SOURCE)
        return
    # A broker that has just started may not know it.
    if copy.troubles.meet(begin, Trouble.NO_SOURCE).lasted_s < settings.timing.deletion_confirmed_s:
        return
    copy.lose_source()
    kind = IncidentKind.SOURCE_RESET
    reason = f"topic {topic} on {source} was deleted while it was mirrored, up to offset {begin} of {end}"
    advice = f"The copy keeps the mirrored records. {kind.continuing} counts the missing offsets as lost"
    copy.meet(kind, reason, advice)
    copy.report_continued(kind, reason, end - begin)
    copy.end_without_source()
