"""
Ranges that cannot be copied to their end, since a topic was deleted or the source's log ends earlier now.

A range without an end waits, and the driver finds these changes. A range with an end, as
of ``--once``, would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...client.cluster import Cluster
from ...client.offsets import log_end_offsets
from ..model.copy_options import CopySettings
from ..model.incidents import Incident, IncidentKind
from .fresh_metadata import FreshMetadata
from .partition import PartitionCopy

__all__ = ["end_deleted", "end_deleted_source", "ends_with_the_log"]

#: A copy is gone that stays gone for so long, if the driver is to create it again, which it does at the next
#: ``--refresh``.
_CREATION_S = 300.0


def end_deleted(copies: Iterable[PartitionCopy], metadata: FreshMetadata, settings: CopySettings) -> None:
    """End partitions that are not aligned and whose topic was deleted on either side."""
    for copy in copies:
        if not copy.range.is_open and not copy.state.is_aligned and not copy.state.is_over:
            end_deleted_source(copy, metadata, settings)
            if not copy.state.is_over:
                _end_deleted_copy(copy, metadata, settings)


def end_deleted_source(copy: PartitionCopy, metadata: FreshMetadata, settings: CopySettings) -> None:
    """End a partition if its source topic was deleted. Its position is committed no more."""
    if metadata.missing_at_source_s(copy) < settings.timing.deletion_confirmed_s:
        return
    kind, missing = IncidentKind.SOURCE_RESET, copy.range.end_offset - copy.next_offset
    reason = (
        f"topic {copy.source.topic} on {metadata.source} was deleted while it was mirrored, up to offset "
        f"{copy.next_offset} of {copy.range.end_offset}"
    )
    if copy.goes_on_after(
        kind,
        reason,
        missing,
        f"The copy keeps the mirrored records. {kind.continuing} counts the missing offsets as lost",
    ):
        copy.end_without_source()
    copy.lose_source()


def _end_deleted_copy(copy: PartitionCopy, metadata: FreshMetadata, settings: CopySettings) -> None:
    kind = IncidentKind.DESTINATION_LOSS
    is_created = settings.continues_after(kind)
    patience_s = _CREATION_S if is_created else settings.timing.deletion_confirmed_s
    if metadata.missing_at_destination_s(copy) >= patience_s:
        reason = f"topic {copy.destination.topic} on {metadata.destination} was deleted since it was mirrored"
        copy.stop_for(
            Incident(kind, reason),
            f"{kind.continuing} creates it again and mirrors the records that the source "
            "still has. A new group mirrors it as a new topic",
        )


def ends_with_the_log(copy: PartitionCopy, source: Cluster, settings: CopySettings) -> bool:
    """
    End a partition whose log ends before its range does, if everything that the log has was fetched.

    The plan checked that the log reached the end of the range. No leader in sync loses anything before a
    former high watermark: if the leader's log itself is shorter now, the source lost its tail. An older copy
    of a disk that was put back does this without an election.

    Args:
        copy: A partition of a pair, with nothing queued.

    Returns:
        False if the log may still have the records: its high watermark only lags behind.

    """
    log_end = log_end_offsets(source, [copy.source])[copy.source]
    end, fetched = copy.range.end_offset, copy.intake.fetch_offset
    if not isinstance(log_end, int) or log_end != fetched or log_end >= end:
        return False
    kind = IncidentKind.SOURCE_RESET
    reason = (
        f"its log on {source} ends at offset {log_end}, and it ended at {end} or later when this run was "
        "planned: the source lost its tail (unclean leader election?)"
    )
    if copy.goes_on_after(
        kind,
        reason,
        end - max(log_end, copy.range.start_offset),  # the offsets before the start were mirrored before
        "Everything before is mirrored, so the next start continues there. "
        f"{kind.continuing} counts the missing offsets as lost",
    ):
        copy.end_at(log_end)
    return True
