"""
The incidents that a source's log shows: it lost what was mirrored, or what was to be mirrored next.

After a reset of the source, a new writer continues: should a late request of before arrive, with records that
the source no longer has, it is a foreign one.
"""

from __future__ import annotations

from ....client.offsets import LATEST
from ...model.incidents import IncidentKind
from ...model.offset_map import OffsetMap
from ...model.position import MirrorPosition, is_another_topic
from ...other_groups import topic_id
from .begin import new_identity
from .incidents import Continued, Incident, continued
from .logs import PartitionLogs, offset_at

__all__ = ["at_source", "end_before_range"]


def at_source(logs: PartitionLogs, position: MirrorPosition, same_up_to: int | None) -> Incident | None:
    """
    Find what the source has lost of that which was mirrored, or is to be mirrored next.

    Args:
        logs: Both logs.
        position: The position behind the incident at the destination, if there was one.
        same_up_to: The offset up to which the source's log is the one that was mirrored (KIP-320); None
            if nothing shows that.

    """
    if is_another_topic(position.source_topic_id, topic_id(logs.clusters.source, logs.copy.source)):
        return _another_source(logs, position)
    if same_up_to is not None and same_up_to < position.source_offset:
        return _lost_tail(logs, position, same_up_to)
    start = logs.source_start
    if start <= position.source_offset:
        return None
    kind, missing = IncidentKind.SOURCE_RETENTION, start - position.source_offset
    return Incident(
        kind,
        f"{logs.clusters.source} does not have offset {position.source_offset} any more, its log begins at "
        f"{start}: its retention overtook the mirror",
        f"{kind.continuing} resumes at {start}. Otherwise mirror it with a new group into an empty topic",
        lambda: Continued(continued(logs, position, start), missing),
    )


def _present_range_end(logs: PartitionLogs) -> int | None:
    """Return where a range ends that was made for another log: where the present one does."""
    if logs.copy.range.is_open:
        return None
    level = logs.clusters.settings.source.isolation_level
    return offset_at(logs.clusters.source, logs.copy.source, LATEST, level)


def _another_source(logs: PartitionLogs, position: MirrorPosition) -> Incident:
    source, start = logs.clusters.source, logs.source_start
    then, now = position.source_topic_id, topic_id(source, logs.copy.source)
    kind = IncidentKind.SOURCE_RESET

    def behind_the_copy() -> Continued:
        # The former topic's offsets say nothing about this one.
        begun = OffsetMap.begun_at(start, logs.end, is_whole=True)
        identity = new_identity(logs.clusters)
        anew = continued(
            logs, position, start, begun, identity=identity, source_topic_id=now, before_cut=None
        )
        return Continued(anew, None, _present_range_end(logs))

    return Incident(
        kind,
        f"topic {logs.copy.source.topic} on {source} was deleted and created again since it was mirrored "
        f"before offset {position.source_offset} (its id was {then} and is {now})",
        f"{kind.continuing} mirrors the new topic behind the old one's records. Otherwise mirror it with "
        "a new group into an empty topic (--rename)",
        behind_the_copy,
        start,
    )


def _lost_tail(logs: PartitionLogs, position: MirrorPosition, same_up_to: int) -> Incident:
    kind = IncidentKind.SOURCE_RESET

    def behind_the_copy() -> Continued:
        # If the plan found nothing to copy, the range's end is the position, and not that of a log.
        is_at_its_end = logs.copy.range.end_offset <= position.source_offset
        # Offsets of the source from there on are those of other records now.
        kept = position.offsets.cut(same_up_to, logs.end)
        anew = continued(logs, position, same_up_to, kept, identity=new_identity(logs.clusters))
        return Continued(anew, 0, _present_range_end(logs) if is_at_its_end else None)

    return Incident(
        kind,
        f"its log on {logs.clusters.source} is the one that was mirrored only before offset {same_up_to}, "
        f"and the offsets before {position.source_offset} were mirrored already: the source lost its tail "
        "(unclean leader election?)",
        f"{kind.continuing} copies the source's present records after those already mirrored. Otherwise "
        "mirror it with a new group into an empty topic",
        behind_the_copy,
        same_up_to,
    )


def end_before_range(logs: PartitionLogs, position: MirrorPosition) -> Incident | None:
    """
    Find that a range ends behind the source's log, though everything that the log has was copied.

    The plan checked that the log reached the end of the range. No leader in sync loses anything before a
    former high watermark: if the leader's log itself is shorter now, the source lost its tail. An older
    copy of a disk that was put back does this without an election.
    """
    log_end, copied = logs.source_end, logs.copy.range
    if copied.is_open or log_end is None or not log_end == position.source_offset < copied.end_offset:
        return None
    kind = IncidentKind.SOURCE_RESET
    # The offsets before the start were mirrored before.
    lost = copied.end_offset - max(log_end, copied.start_offset)
    return Incident(
        kind,
        f"its log on {logs.clusters.source} ends at offset {log_end}, and it ended at {copied.end_offset} or "
        "later when this run was planned: the source lost its tail (unclean leader election?)",
        "Everything before is mirrored, so the next start continues there. "
        f"{kind.continuing} counts the missing offsets as lost",
        lambda: Continued(position, lost, log_end),
    )
