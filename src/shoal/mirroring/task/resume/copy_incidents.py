"""
The incidents that the end of a copy's log shows.

That end is looked up in the committed map: the source continues behind the record before it. The last batch
has to be ours, at its sequence; as sequences have no gap, that proves all batches from the position on.
Anything else is an incident. No record is compared (docs/resume-protocol.md).

The writer stays the same: a new one could not distinguish a late request of a dead process from its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ....errors import PartitionStopped
from ....records import BatchHeader
from ...model.incidents import IncidentKind
from ...model.offset_map import Exactness, OffsetMap
from ...model.position import SEQUENCES, MirrorPosition, ProducerIdentity, is_another_topic
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
    end, settings = logs.log.end, logs.clusters.settings
    if is_another_topic(
        position.destination_topic_id, topic_id(logs.clusters.destination, logs.copy.destination)
    ):
        return _another_copy(logs, position)
    if end < position.destination_offset:
        reason = (
            f"{logs.name} ends at offset {end}, but the acknowledged records, those before source "
            f"offset {position.source_offset}, end at {position.destination_offset}: the destination "
            "lost its tail (unclean leader election?)"
        )
        again = _before_the_loss if settings.allows_other_writers else _behind_ours
        return _loss(logs, position, reason, lambda: again(logs, position))
    if settings.allows_other_writers or _is_ours_to_the_end(logs, position):
        return None
    return _other_writer(logs, position)


def _loss(
    logs: PartitionLogs, position: MirrorPosition, reason: str, mirror_again: Callable[[], Continued]
) -> Incident:
    """Return a loss of the destination; ``mirror_again`` returns where it began."""
    kind = IncidentKind.DESTINATION_LOSS

    def go_on() -> Continued:
        found, start = mirror_again(), logs.source.start
        missing = start - found.position.source_offset
        if missing <= 0:
            return found
        return Continued(continued(logs, found.position, start), (found.lost or 0) + missing)

    # A number of records had at least as many offsets.
    lost_from = position.source_offset + min(0, logs.log.end - position.destination_offset)
    if not logs.log.end:
        lost_from = position.offsets.milestones[0].source
    advice = f"{kind.continuing} mirrors again the records that the source still has"
    return Incident(kind, reason, advice, go_on, lost_from)


def _another_copy(logs: PartitionLogs, position: MirrorPosition) -> Incident:
    destination, topic, end = logs.clusters.destination, logs.copy.destination.topic, logs.log.end
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

    def again() -> Continued:
        late = None if logs.clusters.settings.allows_other_writers else _our_end(logs, position, 0)
        if late is not None and late.destination_offset:
            found = _behind_a_late_request(logs, position, late)
        else:
            found = _from_the_begin(logs, position)
        return found._replace(position=replace(found.position, destination_topic_id=now, before_cut=None))

    # All of the former topic is gone, however long the new one is.
    return replace(
        _loss(logs, position, reason, again), unmirrored_from=position.offsets.milestones[0].source
    )


def _from_the_begin(logs: PartitionLogs, position: MirrorPosition) -> Continued:
    first, end = position.offsets.milestones[0], logs.log.end
    begun = OffsetMap.begun_at(first.source, end, is_whole=end == 0)
    identity = replace(position.identity, base=0)
    return Continued(continued(logs, position, first.source, begun, identity=identity), first.destination)


def _behind_a_late_request(logs: PartitionLogs, position: MirrorPosition, ours: _OurEnd) -> Continued:
    """
    Go on behind our records in another topic, and count those as lost that the former one had before them.

    A request that lists topics by name may land in the topic that was created meanwhile. To mirror again what
    lies before its records would repeat them, and the broker takes no sequence but the next.
    """
    first, ends = position.offsets.milestones[0], ours.destination_offset
    begun = OffsetMap.begun_at(first.source, logs.log.start, is_whole=False)
    anew = continued(
        logs,
        position,
        _source_behind(logs, position, ends),
        begun,
        identity=_continuing(logs, position, ours),
    )
    landed = sum(each.last_offset_delta + 1 for each in _our_batches(logs, position, logs.log.start))
    return Continued(anew, max(0, max(ends, first.destination) - landed))


def _is_ours_to_the_end(logs: PartitionLogs, position: MirrorPosition) -> bool:
    """Whether our writer wrote everything from the position on, if there is anything."""
    end = logs.log.end
    if end == position.begin:
        return True
    if position.is_former and end != position.destination_offset:
        raise _stop(
            logs,
            position,
            f"an older version of shoal mirrored it, and {logs.name} has records behind its position, from "
            f"offset {position.destination_offset} on. Mirror up to the end with that version once. "
            "Otherwise use --adopt",
        )
    if logs.last_batch is not None:
        return _is_ours(position, logs.last_batch)
    if end == position.destination_offset:
        return True
    remembered = logs.last_sequence(position.identity.producer_id)
    if remembered is None:
        raise _stop(
            logs,
            position,
            f"{logs.name} has lost records from offset {position.destination_offset} on, by retention or "
            f"compaction, and nothing shows which program wrote them. {_EMPTY_TOPIC}",
        )
    return (remembered + 1) % SEQUENCES == position.identity.sequence(end)


def _is_ours(position: MirrorPosition, header: BatchHeader) -> bool:
    """Whether our writer wrote a batch, at the place that its sequence says."""
    is_there = header.base_sequence == position.identity.sequence(header.base_offset)
    return is_there and _is_by_us(position, header)


def _is_by_us(position: MirrorPosition, header: BatchHeader) -> bool:
    identity = position.identity
    return (header.producer_id, header.producer_epoch) == (identity.producer_id, identity.producer_epoch)


def _our_batches(logs: PartitionLogs, position: MirrorPosition, start: int) -> Iterator[BatchHeader]:
    """Yield the headers of our writer's batches from an offset on."""
    for header in logs.headers(start) if start < logs.log.end else ():
        if _is_by_us(position, header):
            yield header


def _other_writer(logs: PartitionLogs, position: MirrorPosition) -> Incident:
    """Return what other programs did: they wrote behind the position, or in place of what was before it."""
    here, end = position.destination_offset, logs.log.end
    before = logs.header_at(here - 1) if here > max(logs.log.start, position.begin) else None
    if before is not None and not _is_ours(position, before):
        return _loss(
            logs,
            position,
            f"{logs.name} has records of another program before offset {here}, in place of those "
            "that were acknowledged: the destination lost its tail (unclean leader election?)",
            lambda: _behind_ours(logs, position),
        )
    ours = _our_end(logs, position, here)
    if ours is not None and ours.destination_offset > end:
        return _loss(
            logs,
            position,
            f"{logs.name} ends at offset {end}, and its last batch is one that belongs before "
            f"offset {ours.destination_offset}: the destination lost its tail (unclean leader election?)",
            lambda: _behind(logs, position, ours),
        )
    kind, last = IncidentKind.FOREIGN_RECORDS, logs.last_batch

    def behind_others() -> Continued:
        known = _known(logs, position, ours, kind)
        there = position.at(known.destination_offset)
        # Up to what this process saw landing, each record is where the map says.
        passed = position.at(min(max(here, logs.copy.landed_offset), known.destination_offset))
        identity, epoch = _continuing(logs, position, known), there.source_leader_epoch
        return Continued(
            continued(logs, passed, there.source_offset, identity=identity, source_leader_epoch=epoch)
        )

    return Incident(
        kind,
        f"{logs.name} has a foreign record at offset {end - 1 if last is None else last.base_offset}, behind "
        f"the mirror's records up to offset {here} (its log ends behind offset {end - 1}): another program "
        "wrote there",
        f"Stop that program. {kind.continuing} then leaves its records there and resumes behind them, "
        "and no record is copied twice. Otherwise mirror it with a new group into a topic that no other "
        "program writes to",
        behind_others,
    )


def _our_end(logs: PartitionLogs, position: MirrorPosition, known: int) -> _OurEnd | None:
    """
    Return where what our writer wrote ends; None if nothing shows it.

    The leader remembers our last sequence; if not, it is read from the copy's log.

    Args:
        known: A destination offset of which that is known already: it is not before this.

    """
    identity, here, log = position.identity, position.destination_offset, logs.log
    last = logs.last_sequence(identity.producer_id)
    if last is None:
        for header in _our_batches(logs, position, max(known, log.start)):
            last = header.base_sequence + header.last_offset_delta
    if last is not None:
        # By the sequence, not the place: less than 2^30 records away.
        ahead = (last + 1 - identity.sequence(here)) % SEQUENCES
        behind = here + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
        return _OurEnd(max(known, behind), (last + 1) % SEQUENCES)
    end = min(known, log.end)
    return _OurEnd(end, identity.sequence(end)) if log.start <= known else None


def _known(
    logs: PartitionLogs, position: MirrorPosition, ours: _OurEnd | None, cause: IncidentKind
) -> _OurEnd:
    if ours is not None:
        return ours
    raise _stop(
        logs,
        position,
        f"{logs.name} ends at offset {logs.log.end}, and neither its log nor its leader "
        f"(DescribeProducers) shows what the mirror has written. {_EMPTY_TOPIC}",
        cause,
    )


def _before_the_loss(logs: PartitionLogs, position: MirrorPosition) -> Continued:
    """Go on, as a new writer, before all records behind the log's end: these, and others, come again."""
    end, known = logs.log.end, position.offsets
    source_offset = max(known.source_of(end).offset, known.milestones[0].source)
    identity = new_identity(logs.clusters, end)
    return Continued(
        continued(logs, position, source_offset, known.cut(source_offset, end), identity=identity)
    )


def _behind_ours(logs: PartitionLogs, position: MirrorPosition) -> Continued:
    end, last = logs.log.end, logs.last_batch
    ours = _our_end(logs, position, position.begin)
    if last is not None and _is_ours(position, last):
        ours = _OurEnd(end, ours.next_sequence if ours else position.identity.sequence(end))
    return _behind(logs, position, _known(logs, position, ours, IncidentKind.DESTINATION_LOSS))


def _behind(logs: PartitionLogs, position: MirrorPosition, ours: _OurEnd) -> Continued:
    """Go on behind the last record that our writer still has in the log, and count those that are missing."""
    end, ends = logs.log.end, ours.destination_offset
    source_offset = _source_behind(logs, position, ends)
    kept = position.offsets.cut(source_offset, min(ends, end))
    identity = _continuing(logs, position, ours)
    begun_at = position.offsets.milestones[0].destination
    return Continued(
        continued(logs, position, source_offset, kept, identity=identity), max(0, max(ends, begun_at) - end)
    )


def _source_behind(logs: PartitionLogs, position: MirrorPosition, destination_offset: int) -> int:
    if destination_offset >= position.destination_offset:
        return position.at(destination_offset).source_offset
    first = position.offsets.milestones[0]
    if destination_offset <= first.destination:
        return first.source
    found = position.offsets.source_of(destination_offset)
    if found.exactness is Exactness.EXACT:
        return found.offset
    raise _stop(
        logs,
        position,
        f"{logs.name} lost its records from offset {destination_offset} on, and its mirror's map is not "
        f"exact so far back. {_EMPTY_TOPIC}",
        IncidentKind.DESTINATION_LOSS,
    )


def _continuing(logs: PartitionLogs, position: MirrorPosition, ours: _OurEnd) -> ProducerIdentity:
    return replace(position.identity, base=logs.log.end - ours.next_sequence)


def _stop(
    logs: PartitionLogs, position: MirrorPosition, reason: str, cause: IncidentKind | None = None
) -> PartitionStopped:
    return PartitionStopped(*logs.copy.source, position.source_offset, reason, cause=cause)
