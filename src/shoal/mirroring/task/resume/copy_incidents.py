"""
The incidents that the end of a copy's log shows.

That end is looked up in the committed map: the source continues behind the record before it. The last batch
has to be ours, at its sequence; as sequences have no gap, that proves all batches from the position on.
Anything else is an incident. No record is compared (docs/architecture.md).

The writer stays the same: a new one could not distinguish a late request of a dead process from its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ....errors import PartitionStopped
from ....records import BatchHeader
from ...model.incidents import IncidentKind
from ...model.offset_map import Exactness, OffsetMap
from ...model.position import SEQUENCES, MirrorPosition, is_another_topic
from ...model.runs import Run
from ...other_groups import topic_id
from .begin import new_identity
from .incidents import Continued, Incident, continued
from .logs import PartitionLogs

__all__ = ["at_destination"]

_EMPTY_TOPIC = "Mirror it with a new group into an empty topic"


class _OurEnd(NamedTuple):
    """
    The end of what our writer wrote.

    Attributes:
        destination_offset: The offset behind it; behind the position, as if no other program had written.
        next_sequence: The only one that a broker takes next, if it knows the writer.

    """

    destination_offset: int
    next_sequence: int


def at_destination(logs: PartitionLogs, position: MirrorPosition) -> Incident | None:
    """
    Find the incident that the copy's log shows; None if the map leads to its end.

    Raises:
        PartitionStopped: Something happened after which the mirror must not continue.
        ShoalError: The destination does not answer.

    """
    if is_another_topic(
        position.destination_topic_id, topic_id(logs.clusters.destination, logs.copy.destination)
    ):
        return _another_copy(logs, position)
    if logs.end < position.destination_offset:
        return _lost_tail(
            logs,
            position,
            f"ends at offset {logs.end}, but the acknowledged records, those before source offset "
            f"{position.source_offset}, end at {position.destination_offset}",
        )
    if logs.may_have_other_writers(position) or _is_ours_to_the_end(logs, position):
        return None
    return _other_writer(logs, position)


def _loss(
    logs: PartitionLogs, position: MirrorPosition, reason: str, mirror_again: Callable[[], Continued]
) -> Incident:
    """Return a loss of the destination; ``mirror_again`` returns where it began."""
    kind = IncidentKind.DESTINATION_LOSS

    def go_on() -> Continued:
        found = mirror_again()
        missing = logs.source_start - found.position.source_offset
        if missing <= 0:
            return found
        return Continued(continued(logs, found.position, logs.source_start), (found.lost or 0) + missing)

    # A number of records had at least as many offsets.
    lost_from = position.source_offset + min(0, logs.end - position.destination_offset)
    if not logs.end:
        lost_from = position.offsets.milestones[0].source
    advice = f"{kind.continuing} mirrors again the records that the source still has"
    return Incident(kind, reason, advice, go_on, lost_from)


def _lost_tail(
    logs: PartitionLogs, position: MirrorPosition, found: str, ours: _OurEnd | None = None
) -> Incident:
    """Return the loss of a tail, by what was found; our end is looked for if it is not known."""
    reason = f"{logs.name} {found}: the destination lost its tail (unclean leader election?)"

    def again() -> Continued:
        if logs.may_have_other_writers(position):
            return _before_the_loss(logs, position)
        our_end = ours or _our_end(logs, position, position.begin)
        return _behind(logs, position, our_end, IncidentKind.DESTINATION_LOSS)

    return _loss(logs, position, reason, again)


def _another_copy(logs: PartitionLogs, position: MirrorPosition) -> Incident:
    destination, topic, end = logs.clusters.destination, logs.copy.destination.topic, logs.end
    then, now = position.destination_topic_id, topic_id(destination, logs.copy.destination)
    reason = (
        f"topic {topic} on {destination} was deleted and created again since it was mirrored (its id "
        f"was {then} and is {now}), and now it ends at offset {end}"
    )
    if not end and logs.clusters.settings.continues_after(IncidentKind.DESTINATION_LOSS):
        # The mirror itself may have created it a moment ago.
        reason = (
            f"topic {topic} on {destination} was deleted since it was mirrored (its id was {then}), "
            "and the topic of this name is empty now"
        )
    first = position.offsets.milestones[0]

    def again() -> Continued:
        # A request that lists topics by name may land in the topic that was created meanwhile. To mirror
        # again what lies before its records would repeat them, and the broker takes no sequence but the next.
        late = None if logs.may_have_other_writers(position) else _our_end(logs, position, 0)
        if late is not None and not late.destination_offset:
            late = None
        begun = OffsetMap.begun_at(first.source, logs.start, is_whole=end == 0)
        ours = late or _OurEnd(0, end % SEQUENCES)
        found = _behind(logs, position, ours, IncidentKind.DESTINATION_LOSS, begun)
        anew = replace(found.position, destination_topic_id=now, before_cut=None)
        return Continued(anew, found.lost if late else first.destination)

    # All of the former topic is gone, however long the new one is.
    return replace(_loss(logs, position, reason, again), unmirrored_from=first.source)


def _is_ours_to_the_end(logs: PartitionLogs, position: MirrorPosition) -> bool:
    """Whether our writer wrote everything from the position on, if there is anything."""
    if logs.end == position.begin:
        return True
    if logs.last_batch is not None:
        return _is_ours(position, logs.last_batch)
    if logs.end == position.destination_offset:
        return True
    remembered = logs.last_sequence(position.identity.producer_id)
    if remembered is None:
        raise _stop(
            logs,
            position,
            f"{logs.name} has lost records from offset {position.destination_offset} on, by retention or "
            f"compaction, and nothing shows which program wrote them. {_EMPTY_TOPIC}",
        )
    return (remembered + 1) % SEQUENCES == position.identity.sequence(logs.end)


def _is_ours(position: MirrorPosition, header: BatchHeader) -> bool:
    """Whether our writer wrote a batch, at the place that its sequence says."""
    is_there = header.base_sequence == position.identity.sequence(header.base_offset)
    return is_there and _is_by_us(position, header)


def _is_by_us(position: MirrorPosition, header: BatchHeader) -> bool:
    identity = position.identity
    return (header.producer_id, header.producer_epoch) == (identity.producer_id, identity.producer_epoch)


def _other_writer(logs: PartitionLogs, position: MirrorPosition) -> Incident:
    """Return what other programs did: they wrote behind the position, or in place of what was before it."""
    here, end = position.destination_offset, logs.end
    before = logs.header_at(here - 1) if here > max(logs.start, position.begin) else None
    if before is not None and not _is_ours(position, before):
        found = (
            f"has records of another program before offset {here}, in place of those that were acknowledged"
        )
        return _lost_tail(logs, position, found)
    ours = _our_end(logs, position, here)
    if ours is not None and ours.destination_offset > end:
        place = f"before offset {ours.destination_offset}"
        found = f"ends at offset {end}, and its last batch is one that belongs {place}"
        return _lost_tail(logs, position, found, ours)
    kind, last = IncidentKind.FOREIGN_RECORDS, logs.last_batch
    return Incident(
        kind,
        f"{logs.name} has a foreign record at offset {end - 1 if last is None else last.base_offset}, behind "
        f"the mirror's records up to offset {here} (its log ends behind offset {end - 1}): another program "
        "wrote there",
        f"Stop that program. {kind.continuing} then leaves its records there and resumes behind them, "
        "and no record is copied twice. Otherwise mirror it with a new group into a topic that no other "
        "program writes to",
        lambda: _behind(logs, position, ours, kind),
    )


def _our_end(logs: PartitionLogs, position: MirrorPosition, known: int) -> _OurEnd | None:
    """
    Return where what our writer wrote ends; None if nothing shows it.

    The leader remembers our last sequence; if not, it is read from the copy's log.

    Args:
        known: A destination offset of which that is known already: it is not before this.

    """
    identity, here = position.identity, position.destination_offset
    last = logs.last_sequence(identity.producer_id)
    if last is None and max(known, logs.start) < logs.end:
        for header in logs.headers(max(known, logs.start)):
            if _is_by_us(position, header):
                last = header.base_sequence + header.last_offset_delta
    if last is None:
        end = min(known, logs.end)
        return _OurEnd(end, identity.sequence(end)) if logs.start <= known else None
    # By the sequence, not the place: less than 2^30 records away.
    ahead = (last + 1 - identity.sequence(here)) % SEQUENCES
    end = max(known, here + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES))
    if logs.last_batch is not None and _is_ours(position, logs.last_batch):
        end = logs.end  # a leader may remember more than its log has
    return _OurEnd(end, (last + 1) % SEQUENCES)


def _before_the_loss(logs: PartitionLogs, position: MirrorPosition) -> Continued:
    """Go on, as a new writer, before all records behind the log's end: these, and others, come again."""
    known = position.offsets
    source_offset = max(known.source_of(logs.end).offset, known.milestones[0].source)
    anew = continued(
        logs,
        position,
        source_offset,
        known.cut(source_offset, logs.end),
        identity=new_identity(logs.clusters, logs.end),
        source_leader_epoch=position.source_leader_epoch,
    )
    return Continued(anew)


def _behind(
    logs: PartitionLogs,
    position: MirrorPosition,
    ours: _OurEnd | None,
    kind: IncidentKind,
    kept: OffsetMap | None = None,
) -> Continued:
    """
    Go on behind the last record of our writer, and count those that the log does not have any more.

    Args:
        ours: Where its records end; None if nothing shows that.
        kind: The incident, for the stop without an end of ours, or without an exact place of it.
        kept: The map up to there; None for the position's.

    Raises:
        PartitionStopped: Nothing shows where to go on.

    """
    if ours is None:
        raise _stop(
            logs,
            position,
            f"{logs.name} ends at offset {logs.end}, and neither its log nor its leader "
            f"(DescribeProducers) shows what the mirror has written. {_EMPTY_TOPIC}",
            kind,
        )
    ends = ours.destination_offset
    there = _looked_up(logs, position, ends)
    # Up to what this process saw landing, each record is where the map says.
    landed = min(
        max(position.destination_offset, logs.copy.landed_offset), max(ends, position.destination_offset)
    )
    kept = kept or position.at(landed).offsets.cut(there.source, min(ends, _in_place_to(logs, position)))
    anew = continued(
        logs,
        position,
        there.source,
        kept,
        identity=replace(position.identity, base=logs.end - ours.next_sequence),
        source_leader_epoch=there.leader_epoch,
        plan=_still_planned(position, ends, logs.end),
    )
    begun_at = position.offsets.milestones[0].destination
    return Continued(anew, max(0, max(ends, begun_at) - logs.end))


def _still_planned(position: MirrorPosition, ends: int, log_end: int) -> tuple[Run, ...]:
    """Return the runs behind our end, where a late request of the same writer would land by now (KEEP)."""
    by = log_end - ends
    plan = position.at(max(ends, position.destination_offset)).plan
    return tuple(run._replace(destination=run.destination + by) for run in plan)


def _in_place_to(logs: PartitionLogs, position: MirrorPosition) -> int:
    """Return the offset from which on our own late requests have landed before their places; else the end."""
    end, header = logs.end, logs.last_batch
    while header is not None and _is_by_us(position, header) and not _is_ours(position, header):
        end = header.base_offset
        header = logs.header_at(end - 1) if end > max(logs.start, position.begin) else None
    return end


def _looked_up(logs: PartitionLogs, position: MirrorPosition, destination_offset: int) -> Run:
    """Look up where the source continues at a destination offset, also at one before the position."""
    if destination_offset >= position.destination_offset:
        return position.at(destination_offset).here
    first = position.offsets.milestones[0]
    found = position.offsets.source_of(max(destination_offset, first.destination))
    if found.exactness is Exactness.EXACT:
        # At least the epoch of the record before: it shows whether the source has lost that.
        return Run(destination_offset, found.offset, position.source_leader_epoch)
    raise _stop(
        logs,
        position,
        f"{logs.name} lost its records from offset {destination_offset} on, and its mirror's map is not "
        f"exact so far back. {_EMPTY_TOPIC}",
        IncidentKind.DESTINATION_LOSS,
    )


def _stop(
    logs: PartitionLogs, position: MirrorPosition, reason: str, cause: IncidentKind | None = None
) -> PartitionStopped:
    return PartitionStopped(*logs.copy.source, position.source_offset, reason, cause=cause)
