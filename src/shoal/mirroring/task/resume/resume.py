"""
From a committed map to the position that matches both logs now.

The end of the copy's log is looked up in the map: the source continues behind the record before it. The last
batch has to be ours, at its sequence; as sequences have no gap, that proves all batches from the position on.
Anything else is an incident. To continue after one is one entry of the map: from the copy's end on, the
source offset at which the mirror continues. No record is compared (docs/resume-protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ....client.broker_state import last_sequence
from ....client.offsets import log_end_offsets
from ....error_codes import ErrorCode
from ....errors import BrokerError, PartitionStopped
from ....records import BatchHeader
from ...model.incidents import Incident, IncidentKind
from ...model.offset_map import Exactness, OffsetMap, Stretch
from ...model.position import SEQUENCES, MirrorPosition, ProducerIdentity, is_another_topic
from ...model.text import offsets
from ...other_groups import topic_id
from .begin import new_identity
from .logs import PartitionLogs, SourceLog
from .tail import is_by, is_ours, last_batch, last_batch_by

__all__ = ["Resumption"]

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


class Resumption:
    """
    One partition's way from its committed map to its position now.

    Attributes:
        position: The one that was committed; moved by each step.

    """

    def __init__(self, logs: PartitionLogs, position: MirrorPosition, incidents: list[Incident]) -> None:
        """Begin at a committed map; incidents on the way are added to ``incidents``."""
        self._logs = logs
        self._clusters = logs.clusters
        self._copy = logs.copy
        self._log = logs.log
        self._committed = position
        self.position = position
        self._incidents = incidents
        #: The map by which the log's end was looked up; None if an incident moved the position.
        self._followed: MirrorPosition | None = None
        #: The loss of the destination, to be counted as soon as the source's start is known.
        self._lost_at: int | None = None

    # Step by step

    def look_up_end(self) -> None:
        """
        Move the position to the end of the destination's log; asks the source nothing.

        Raises:
            PartitionStopped: Something happened after which the mirror must not continue.
            ShoalError: The destination does not answer.

        """
        if self._clusters.settings.allows_other_writers:
            self._check_topic()
            # Whatever was written after the position is written again, by another: nothing to look up.
            self._continue_at(
                self.position.source_offset, identity=new_identity(self._clusters, self._log.end)
            )
        elif not (self._check_topic() or self._check_length() or self._check_tail()):
            self._followed = self.position
            self.position = self.position.at(self._log.end)

    def check_source(self, source: SourceLog) -> None:
        """
        Check that the source still has what was mirrored, and what is to be mirrored next.

        Args:
            source: The source's log; its ``same_up_to`` is for the position as it is now.

        Raises:
            PartitionStopped, ShoalError: As :meth:`look_up_end`.

        """
        if not self._check_source_topic(source):
            self._check_source_tail(source)
        self._check_retention(source)

    def count_landed(self) -> None:
        """Count the offsets whose acknowledgement was lost, once the partition is about to be aligned."""
        followed = self._followed
        if followed is None:
            return
        begin = max(followed.destination_offset, self._copy.landed_offset)
        while begin < self._log.end:
            run = followed.run_at(begin)
            later = (each.destination for each in followed.plan if each.destination > begin)
            end = min(self._log.end, next(later, self._log.end))
            self._copy.count_run(run.source_at(begin), run.source_at(end), begin)
            begin = end

    # Incidents

    def _stop(self, reason: str, cause: IncidentKind | None = None) -> PartitionStopped:
        return PartitionStopped(*self._copy.source, self.position.source_offset, reason, cause=cause)

    def _meet(
        self,
        kind: IncidentKind,
        reason: str,
        go_on: Callable[[], int | None],
        advice: str,
        unmirrored_from: int | None = None,
    ) -> None:
        """
        Report an incident; then continue, if its policy allows that, or stop the partition.

        Args:
            reason: The finding, with its offsets.
            go_on: Moves the position to the offset at which the mirror continues, and returns the number of
                lost records.
            advice: The remedy if the partition stops.
            unmirrored_from: If the partition stops: the first source offset whose record is missing at the
                destination. None: the position's.

        Raises:
            PartitionStopped: The policy is to stop.
            BrokerError: Retriable: the finding is about another topic of this name.

        """
        self._clusters.expect_same_topics(self._copy)
        if not self._copy.continues_after(kind):
            self._incidents.append(Incident(kind, reason))
            where = *self._copy.source, self.position.source_offset
            sentence = f"{reason}. {advice}"
            raise PartitionStopped(*where, sentence, unmirrored_from, can_heal=False, cause=kind)
        before = self.position.source_offset
        try:
            lost = go_on()
        except PartitionStopped:
            self._incidents.append(Incident(kind, reason))
            raise
        if kind is IncidentKind.DESTINATION_LOSS and self.position.source_offset < before:
            again = offsets(self.position.source_offset, before - 1)
            reason = f"{reason}, and source {again} are copied again"
        self._incidents.append(Incident(kind, reason, lost, continued=True))

    def _continue_at(
        self,
        source_offset: int,
        *,
        source_leader_epoch: int = -1,
        identity: ProducerIdentity | None = None,
        milestones: OffsetMap | None = None,
    ) -> None:
        """Let the map lead from the copy's end to a source offset, whatever lies before it."""
        end = self._log.end
        unaccounted = Stretch.REPEATED if self._clusters.settings.allows_other_writers else Stretch.BROKEN
        kept = self.position.offsets if milestones is None else milestones
        self.position = replace(
            self.position,
            source_offset=source_offset,
            source_leader_epoch=source_leader_epoch,
            destination_offset=end,
            identity=identity or self.position.identity,
            source_topic_id=topic_id(self._clusters.source, self._copy.source),
            destination_topic_id=topic_id(self._clusters.destination, self._copy.destination),
            last_batch=None,
            begin=end,
            plan=(),
            is_former=False,
            milestones=kept.reached(source_offset, end, unaccounted),
        )

    # The destination

    @property
    def _copy_name(self) -> str:
        return f"{self._copy.destination} on {self._clusters.destination}"

    def _check_topic(self) -> bool:
        destination, partition = self._clusters.destination, self._copy.destination
        then, now = self.position.destination_topic_id, topic_id(destination, partition)
        if not is_another_topic(then, now):
            return False
        reason = (
            f"topic {partition.topic} on {destination} was deleted and created again since it was "
            f"mirrored (its id was {then} and is {now}), and now it ends at offset {self._log.end}"
        )
        if self._copy.continues_after(IncidentKind.DESTINATION_LOSS) and not self._log.end:
            # The mirror itself may have created it a moment ago.
            reason = (
                f"topic {partition.topic} on {destination} was deleted since it was mirrored (its id was "
                f"{then}), and the topic of this name is empty now"
            )
        self._meet_loss(reason, self._mirror_again_from_the_begin)
        return True

    def _check_length(self) -> bool:
        missing = self.position.destination_offset - self._log.end
        if missing <= 0:
            return False
        self._meet_loss(
            f"{self._copy_name} ends at offset {self._log.end}, but the acknowledged records, "
            f"those before source offset {self.position.source_offset}, end at "
            f"{self.position.destination_offset}: the destination lost its tail "
            "(unclean leader election?)",
            lambda: self._mirror_again_behind(self._our_end()),
        )
        return True

    def _meet_loss(self, reason: str, go_on: Callable[[], int | None]) -> None:
        self._meet(
            IncidentKind.DESTINATION_LOSS,
            reason,
            go_on,
            f"{IncidentKind.DESTINATION_LOSS.continuing} mirrors again the records that the source still has",
            self._lost_from(),
        )

    def _lost_from(self) -> int:
        """Return the source offset from which on records are missing at the destination, or a later one."""
        if self._log.end == 0:
            return self.position.offsets.milestones[0].source
        # A number of records had at least as many offsets.
        return self.position.source_offset + min(0, self._log.end - self.position.destination_offset)

    def _mirror_again_from_the_begin(self) -> int | None:
        """Copy all again into another topic of the same name, behind what it has."""
        first = self.position.offsets.milestones[0]
        identity = replace(self.position.identity, base=0)
        milestones = OffsetMap.begun_at(first.source, self._log.end, is_whole=self._log.end == 0)
        self._lost_at = first.source
        self._continue_at(first.source, identity=identity, milestones=milestones)
        return first.destination

    def _mirror_again_behind(self, ours: _OurEnd) -> int:
        """Go on behind the last record that our writer still has in the log; return how many are missing."""
        source_offset = self._source_behind(ours.destination_offset)
        kept = self.position.offsets.cut(source_offset, min(ours.destination_offset, self._log.end))
        self._lost_at = source_offset
        self._continue_at(source_offset, identity=self._continuing_identity(ours), milestones=kept)
        begun_at = self._committed.offsets.milestones[0].destination
        return max(0, max(ours.destination_offset, begun_at) - self._log.end)

    def _source_behind(self, destination_offset: int) -> int:
        if destination_offset >= self._committed.destination_offset:
            return self._committed.at(destination_offset).source_offset
        first = self._committed.offsets.milestones[0]
        if destination_offset <= first.destination:
            return first.source
        found = self._committed.offsets.source_of(destination_offset)
        if found.exactness is not Exactness.EXACT:
            raise self._stop(
                f"{self._copy_name} lost its records from offset {destination_offset} on, and its mirror's "
                f"map is not exact so far back. {_EMPTY_TOPIC}",
                IncidentKind.DESTINATION_LOSS,
            )
        return found.offset

    def _continuing_identity(self, ours: _OurEnd) -> ProducerIdentity:
        # The writer stays the same: a new one could not distinguish a late request of a dead process from its
        # own.
        return replace(self.position.identity, base=self._log.end - ours.next_sequence)

    # The last batch

    def _check_tail(self) -> bool:
        """Check that the last batch is ours, at its sequence; return whether the mirror has moved on."""
        position, end = self.position, self._log.end
        if end == position.begin:
            return False
        if position.is_former and end != position.destination_offset:
            raise self._stop(
                f"an older version of shoal mirrored it, and {self._copy_name} has records behind its "
                f"position, from offset {position.destination_offset} on. Mirror up to the end with that "
                f"version once. Otherwise use --adopt"
            )
        tail = last_batch(self._logs)
        is_last_ours = tail is not None and is_ours(tail, position.identity)
        if tail is not None and tail.next_offset == end:
            if is_last_ours:
                return False
        elif end == position.destination_offset:
            return False
        else:
            last = self._last_sequence()
            if last is not None and (last + 1) % SEQUENCES == position.identity.sequence(end):
                return False  # our writer wrote up to the end, of which nothing is left
            if last is None and (tail is None or is_last_ours):
                left = position.destination_offset if tail is None else tail.next_offset
                raise self._stop(
                    f"{self._copy_name} has lost records from offset {left} on, by retention or compaction, "
                    f"and nothing shows which program wrote them. {_EMPTY_TOPIC}"
                )
        self._meet_foreign_records(tail)
        return True

    def _last_sequence(self) -> int | None:
        """Return the last sequence that the leader remembers of our writer; None if it remembers none."""
        destination, partition = self._clusters.destination, self._copy.destination
        try:
            last = last_sequence(destination, partition, self.position.identity.producer_id)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            return None
        # In this order: a late request may have arrived in between.
        if log_end_offsets(destination, [partition])[partition] != self._log.end:
            raise self._logs.changed()
        return last

    def _our_end(self) -> _OurEnd:
        """
        Return where what our writer wrote ends.

        Raises:
            PartitionStopped: Neither the log nor the leader's memory shows it.

        """
        identity, here = self.position.identity, self.position.destination_offset
        remembered = self._last_sequence()
        ours = last_batch_by(self._logs, identity)
        last = remembered if ours is None else ours.base_sequence + ours.last_offset_delta
        if self._log.end < here or self._is_overwritten(ours):
            end = self._end_of_acknowledged(last)
        elif last is not None:
            end = max(here, self._offset_behind(last))
        else:
            end = here if self._log.start <= here else None
        if end is None:
            raise self._stop(
                f"{self._copy_name} ends at offset {self._log.end}, and neither its log nor its leader "
                f"(DescribeProducers) shows what the mirror has written. {_EMPTY_TOPIC}"
            )
        known = last if remembered is None else remembered
        next_sequence = identity.sequence(end) if known is None else (known + 1) % SEQUENCES
        return _OurEnd(end, next_sequence)

    def _offset_behind(self, last_sequence: int) -> int:
        """Return the offset that belongs behind a sequence, which is less than 2^30 records away."""
        here = self.position.destination_offset
        ahead = (last_sequence + 1 - self.position.identity.sequence(here)) % SEQUENCES
        return here + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)

    def _is_overwritten(self, ours: BatchHeader | None) -> bool:
        """Whether another program's records are in place of those before the position, which the log lost."""
        start = max(self._log.start, self.position.begin, 0 if ours is None else ours.next_offset)
        if start >= min(self.position.destination_offset, self._log.end):
            return False
        first = next(self._logs.destination_batches(start), None)
        return first is not None and first.header.base_offset < self.position.destination_offset

    def _end_of_acknowledged(self, last_sequence: int | None) -> int | None:
        """Return where the records end that a log still has of those before the position; None if unknown."""
        log, begin = self._log, self.position.begin
        tail = last_batch(self._logs)
        if tail is None or is_ours(tail, self.position.identity):
            return log.end
        if last_sequence is not None:
            # Not by the place of its batch, which may have landed where acknowledged records were.
            return self._offset_behind(last_sequence)
        if log.end <= begin:
            return log.end  # all of ours is gone, and what others wrote before it is left
        return begin if log.start <= begin else None

    def _meet_foreign_records(self, tail: BatchHeader | None) -> None:
        if tail is not None and is_by(tail, self.position.identity):
            ours = self._our_end()
            if ours.destination_offset > self._log.end:
                self._meet_loss(
                    f"{self._copy_name} ends at offset {self._log.end}, and its last batch is one that "
                    f"belongs before offset {ours.destination_offset}: the destination lost its tail "
                    "(unclean leader election?)",
                    lambda: self._mirror_again_behind(ours),
                )
                return
        elif self._is_overwritten(last_batch_by(self._logs, self.position.identity)):
            self._meet_loss(
                f"{self._copy_name} has records of another program before offset "
                f"{self.position.destination_offset}, in place of those that were acknowledged: the "
                "destination lost its tail (unclean leader election?)",
                lambda: self._mirror_again_behind(self._our_end()),
            )
            return
        found = self._log.end - 1 if tail is None else tail.base_offset
        self._meet(
            IncidentKind.FOREIGN_RECORDS,
            f"{self._copy_name} has a foreign record at offset {found}, behind the mirror's records up to "
            f"offset {self.position.destination_offset} (its log ends behind offset {self._log.end - 1}): "
            "another program wrote there",
            self._go_on_behind_others,
            f"Stop that program. {IncidentKind.FOREIGN_RECORDS.continuing} then leaves its records "
            "there and resumes behind them, and no record is copied twice. Otherwise mirror it with a new "
            "group into a topic that no other program writes to",
        )

    def _go_on_behind_others(self) -> int:
        ours = self._our_end()
        landed = self._copy.landed_offset
        if self.position.destination_offset < landed <= ours.destination_offset:
            self.position = self.position.at(landed)  # up to there, each record is where the map says
        source = self._source_behind(ours.destination_offset)
        epoch = self._committed.source_leader_epoch
        if ours.destination_offset > self._committed.destination_offset:
            epoch = self._committed.at(ours.destination_offset).source_leader_epoch
        self._continue_at(source, source_leader_epoch=epoch, identity=self._continuing_identity(ours))
        return 0

    # The source

    def _check_source_topic(self, log: SourceLog) -> bool:
        source, partition = self._clusters.source, self._copy.source
        then, now = self._committed.source_topic_id, topic_id(source, partition)
        if not is_another_topic(then, now):
            return False
        self._meet(
            IncidentKind.SOURCE_RESET,
            f"topic {partition.topic} on {source} was deleted and created again since it was mirrored "
            f"before offset {self.position.source_offset} (its id was {then} and is {now})",
            lambda: self._go_on_in_new_topic(log.start),
            f"{IncidentKind.SOURCE_RESET.continuing} mirrors the new topic behind the old one's "
            "records. Otherwise mirror it with a new group into an empty topic "
            f"(--rename)",
            log.start,
        )
        return True

    def _go_on_in_new_topic(self, start: int) -> None:
        self._copy.end_with_the_log()
        # The former topic's offsets say nothing about this one.
        begun = OffsetMap.begun_at(start, self._log.end, is_whole=True)
        self._continue_at(start, milestones=begun)

    def _check_source_tail(self, log: SourceLog) -> None:
        same_up_to, source_offset = log.same_up_to, self.position.source_offset
        if same_up_to is None or same_up_to >= source_offset:
            return
        self._meet(
            IncidentKind.SOURCE_RESET,
            f"its log on {self._clusters.source} is the one that was mirrored only before offset "
            f"{same_up_to}, and the offsets before {source_offset} were mirrored already: the source lost "
            "its tail (unclean leader election?)",
            lambda: self._go_on_before_the_lost_tail(same_up_to),
            f"{IncidentKind.SOURCE_RESET.continuing} copies the source's present records after "
            "those already mirrored. Otherwise mirror it with a new group into an empty topic",
            same_up_to,
        )

    def _go_on_before_the_lost_tail(self, same_up_to: int) -> int:
        if self._copy.range.end_offset <= self.position.source_offset:
            # The plan found nothing to copy, so the range's end is the position, and not that of a log.
            self._copy.end_with_the_log()
        # Offsets of the source from there on are those of other records now.
        kept = self.position.offsets.cut(same_up_to, self._log.end)
        self._continue_at(same_up_to, milestones=kept)
        return 0

    def _check_retention(self, log: SourceLog) -> None:
        source_offset = self.position.source_offset
        if log.start <= source_offset:
            return
        if self._lost_at == source_offset and self._incidents:
            # A loss of the destination: the records that the source no longer has count there.
            last = self._incidents[-1]
            lost = log.start - source_offset
            self._incidents[-1] = replace(last, lost=lost)
            self._continue_at(log.start)
            return
        self._meet(
            IncidentKind.SOURCE_RETENTION,
            f"{self._clusters.source} does not have offset {source_offset} any more, its log begins at "
            f"{log.start}: its retention overtook the mirror",
            lambda: self._go_on_at_the_start(log.start),
            f"{IncidentKind.SOURCE_RETENTION.continuing} resumes at {log.start}. Otherwise mirror it "
            "with a new group into an empty topic",
        )

    def _go_on_at_the_start(self, start: int) -> int:
        lost = start - self.position.source_offset
        self._continue_at(start)
        return lost
