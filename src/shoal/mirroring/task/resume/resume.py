"""
From a committed map to the position that matches both logs now.

The end of the copy's log is looked up in the map: the source continues behind the record before it. The last
batch has to be ours, at its sequence; as sequences have no gap, that proves all batches from the position on.
Anything else is an incident. To continue after one is one entry of the map: from the copy's end on, the
source offset at which the mirror continues. No record is compared (docs/resume-protocol.md).

After a reset of the source, a new writer continues: should a late request of before arrive, with records that
the source no longer has, it is a foreign one.

After another incident, the last sequence of our writer says where its records end. The leader remembers it;
if not, it is read from the copy's log behind the records that are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ....client.offsets import LATEST
from ....errors import PartitionStopped
from ....records import BatchHeader
from ...model.incidents import IncidentKind
from ...model.offset_map import Exactness, OffsetMap, Stretch
from ...model.position import SEQUENCES, MirrorPosition, ProducerIdentity, is_another_topic
from ...model.text import offsets
from ...other_groups import topic_id
from ..progress import count_runs
from .begin import new_identity
from .logs import PartitionLogs, offset_at

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
        range_end: The end of the range by the source's present log, if that is another one; else None.

    """

    def __init__(self, logs: PartitionLogs, position: MirrorPosition) -> None:
        """Begin at a committed map."""
        self._logs = logs
        self._clusters = logs.clusters
        self._copy = logs.copy
        self._log = logs.log
        self._committed = position
        self.position = position
        self.range_end: int | None = None
        #: The map by which the log's end was looked up; None if an incident moved the position.
        self._followed: MirrorPosition | None = None

    # Step by step

    def look_up_end(self) -> None:
        """
        Move the position to the end of the destination's log.

        Raises:
            PartitionStopped: Something happened after which the mirror must not continue.
            ShoalError: The destination does not answer.

        """
        position, end = self.position, self._log.end
        destination, topic = self._clusters.destination, self._copy.destination.topic
        then, now = position.destination_topic_id, topic_id(destination, self._copy.destination)
        if is_another_topic(then, now):
            reason = (
                f"topic {topic} on {destination} was deleted and created again since it was mirrored (its id "
                f"was {then} and is {now}), and now it ends at offset {end}"
            )
            if not end and self._clusters.settings.continues_after(IncidentKind.DESTINATION_LOSS):
                # The mirror itself may have created it a moment ago.
                reason = (
                    f"topic {topic} on {destination} was deleted since it was mirrored (its id was {then}), "
                    "and the topic of this name is empty now"
                )
            self._meet_loss(reason, self._mirror_again_from_the_begin)
        elif end < position.destination_offset:
            self._meet_loss(
                f"{self._logs.name} ends at offset {end}, but the acknowledged records, those before source "
                f"offset {position.source_offset}, end at {position.destination_offset}: the destination "
                "lost its tail (unclean leader election?)",
                self._mirror_again_before_the_loss
                if self._clusters.settings.allows_other_writers
                else self._mirror_again_behind_ours,
            )
        elif self._clusters.settings.allows_other_writers:
            # Whatever was written after the position is written again, by another: nothing to look up.
            self._continue_at(position.source_offset, identity=new_identity(self._clusters, end))
        elif self._is_ours_to_the_end():
            self._followed = position
            self.position = position.at(end)
        else:
            self._meet_others()

    def check_source(self, same_up_to: int | None) -> None:
        """
        Check that the source still has what was mirrored, and what is to be mirrored next.

        Args:
            same_up_to: The offset up to which the source's log is the one that was mirrored (KIP-320); None
                if nothing shows that.

        Raises:
            PartitionStopped, ShoalError: As :meth:`look_up_end`.

        """
        if not self._is_in_another_topic() and same_up_to is not None:
            self._check_source_tail(same_up_to)
        self._check_retention()
        self._check_range_end()

    def count_landed(self) -> None:
        """Count the offsets whose acknowledgement was lost, once the partition is about to be aligned."""
        followed = self._followed
        if followed is None:
            return
        begin = max(followed.destination_offset, self._landed_offset)
        count_runs(followed, begin, self._log.end, self._copy.counters)

    @property
    def _landed_offset(self) -> int:
        """The destination offset up to which this process counted acknowledgements; -1 before the first."""
        position = self._copy.position
        return -1 if position is None else position.destination_offset

    # Incidents

    def _stop(self, reason: str, cause: IncidentKind | None = None) -> PartitionStopped:
        return PartitionStopped(*self._copy.source, self.position.source_offset, reason, cause=cause)

    def _meet(self, kind: IncidentKind, reason: str, advice: str, unmirrored_from: int | None = None) -> None:
        """Meet an incident at the position; see :meth:`.PartitionCopy.meet`."""
        self._clusters.expect_same_topics(self._copy)
        offset = self.position.source_offset
        self._copy.meet(kind, reason, advice, offset=offset, unmirrored_from=unmirrored_from)

    def _meet_loss(self, reason: str, mirror_again: Callable[[], int]) -> None:
        """Meet a loss of the destination; ``mirror_again`` moves the position, and counts lost records."""
        kind, before = IncidentKind.DESTINATION_LOSS, self.position.source_offset
        # A number of records had at least as many offsets.
        lost_from = before + min(0, self._log.end - self.position.destination_offset)
        if not self._log.end:
            lost_from = self.position.offsets.milestones[0].source
        advice = f"{kind.continuing} mirrors again the records that the source still has"
        self._meet(kind, reason, advice, lost_from)
        lost, start = mirror_again(), self._logs.source.start
        if start > self.position.source_offset:
            lost = start - self.position.source_offset
            self._continue_at(start)
        if self.position.source_offset < before:
            again = offsets(self.position.source_offset, before - 1)
            reason = f"{reason}, and source {again} are copied again"
        self._copy.report_continued(kind, reason, lost)

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
        self._followed = None
        self.position = replace(
            self.position,
            source_offset=source_offset,
            source_leader_epoch=source_leader_epoch,
            destination_offset=end,
            identity=identity or self.position.identity,
            source_topic_id=topic_id(self._clusters.source, self._copy.source),
            destination_topic_id=topic_id(self._clusters.destination, self._copy.destination),
            begin=end,
            plan=(),
            is_former=False,
            milestones=kept.reached(source_offset, end, unaccounted),
        )

    # The destination

    def _is_ours_to_the_end(self) -> bool:
        """Whether our writer wrote everything from the position on, if there is anything."""
        position, end = self.position, self._log.end
        if end == position.begin:
            return True
        if position.is_former and end != position.destination_offset:
            raise self._stop(
                f"an older version of shoal mirrored it, and {self._logs.name} has records behind its "
                f"position, from offset {position.destination_offset} on. Mirror up to the end with that "
                f"version once. Otherwise use --adopt"
            )
        last = self._logs.last_batch
        if last is not None:
            return self._is_ours(last)
        if end == position.destination_offset:
            return True
        remembered = self._logs.last_sequence(position.identity.producer_id)
        if remembered is None:
            raise self._stop(
                f"{self._logs.name} has lost records from offset {position.destination_offset} on, by "
                f"retention or compaction, and nothing shows which program wrote them. {_EMPTY_TOPIC}"
            )
        return (remembered + 1) % SEQUENCES == position.identity.sequence(end)

    def _is_ours(self, header: BatchHeader) -> bool:
        """Whether our writer wrote a batch, at the place that its sequence says."""
        identity = self.position.identity
        return self._is_by_us(header) and header.base_sequence == identity.sequence(header.base_offset)

    def _is_by_us(self, header: BatchHeader) -> bool:
        identity = self.position.identity
        writer = (header.producer_id, header.producer_epoch)
        return writer == (identity.producer_id, identity.producer_epoch)

    def _meet_others(self) -> None:
        """Meet what other programs wrote behind the position, or in place of what was before it."""
        here, end = self.position.destination_offset, self._log.end
        before = self._logs.header_at(here - 1) if here > max(self._log.start, self.position.begin) else None
        if before is not None and not self._is_ours(before):
            self._meet_loss(
                f"{self._logs.name} has records of another program before offset {here}, in place of those "
                "that were acknowledged: the destination lost its tail (unclean leader election?)",
                self._mirror_again_behind_ours,
            )
            return
        ours = self._our_end(here)
        if ours is not None and ours.destination_offset > end:
            self._meet_loss(
                f"{self._logs.name} ends at offset {end}, and its last batch is one that belongs before "
                f"offset {ours.destination_offset}: the destination lost its tail (unclean leader election?)",
                lambda: self._mirror_again_behind(ours),
            )
            return
        kind, last = IncidentKind.FOREIGN_RECORDS, self._logs.last_batch
        found = end - 1 if last is None else last.base_offset
        reason = (
            f"{self._logs.name} has a foreign record at offset {found}, behind the mirror's records up to "
            f"offset {here} (its log ends behind offset {end - 1}): another program wrote there"
        )
        self._meet(
            kind,
            reason,
            f"Stop that program. {kind.continuing} then leaves its records there and resumes behind them, "
            "and no record is copied twice. Otherwise mirror it with a new group into a topic that no other "
            "program writes to",
        )
        self._go_on_behind_others(self._known(ours, kind))
        self._copy.report_continued(kind, reason)

    def _our_end(self, known: int) -> _OurEnd | None:
        """
        Return where what our writer wrote ends; None if nothing shows it.

        Args:
            known: A destination offset of which that is known already: it is not before this.

        """
        identity, here = self.position.identity, self.position.destination_offset
        last = self._logs.last_sequence(identity.producer_id)
        if last is None:
            start = max(known, self._log.start)
            for header in self._logs.headers(start) if start < self._log.end else ():
                if self._is_by_us(header):
                    last = header.base_sequence + header.last_offset_delta
        if last is not None:
            # By the sequence, not the place: less than 2^30 records away.
            ahead = (last + 1 - identity.sequence(here)) % SEQUENCES
            behind = here + (ahead if ahead < SEQUENCES // 2 else ahead - SEQUENCES)
            return _OurEnd(max(known, behind), (last + 1) % SEQUENCES)
        if self._log.start <= known:
            end = min(known, self._log.end)
            return _OurEnd(end, identity.sequence(end))
        return None

    def _known(self, ours: _OurEnd | None, cause: IncidentKind) -> _OurEnd:
        if ours is not None:
            return ours
        raise self._stop(
            f"{self._logs.name} ends at offset {self._log.end}, and neither its log nor its leader "
            f"(DescribeProducers) shows what the mirror has written. {_EMPTY_TOPIC}",
            cause,
        )

    def _mirror_again_from_the_begin(self) -> int:
        """Copy all again into another topic of the same name, behind what it has."""
        first = self.position.offsets.milestones[0]
        identity = replace(self.position.identity, base=0)
        milestones = OffsetMap.begun_at(first.source, self._log.end, is_whole=self._log.end == 0)
        self._continue_at(first.source, identity=identity, milestones=milestones)
        return first.destination

    def _mirror_again_before_the_loss(self) -> int:
        """Go on, as a new writer, before all records behind the log's end: these, and others, come again."""
        end, offsets = self._log.end, self.position.offsets
        source_offset = max(offsets.source_of(end).offset, offsets.milestones[0].source)
        kept = offsets.cut(source_offset, end)
        self._continue_at(source_offset, identity=new_identity(self._clusters, end), milestones=kept)
        return 0

    def _mirror_again_behind_ours(self) -> int:
        end, last = self._log.end, self._logs.last_batch
        ours = self._our_end(self.position.begin)
        if last is not None and self._is_ours(last):
            ours = _OurEnd(end, ours.next_sequence if ours else self.position.identity.sequence(end))
        return self._mirror_again_behind(self._known(ours, IncidentKind.DESTINATION_LOSS))

    def _mirror_again_behind(self, ours: _OurEnd) -> int:
        """Go on behind the last record that our writer still has in the log; return how many are missing."""
        end = self._log.end
        source_offset = self._source_behind(ours.destination_offset)
        kept = self.position.offsets.cut(source_offset, min(ours.destination_offset, end))
        self._continue_at(source_offset, identity=self._continuing_identity(ours), milestones=kept)
        begun_at = self._committed.offsets.milestones[0].destination
        return max(0, max(ours.destination_offset, begun_at) - end)

    def _source_behind(self, destination_offset: int) -> int:
        if destination_offset >= self._committed.destination_offset:
            return self._committed.at(destination_offset).source_offset
        first = self._committed.offsets.milestones[0]
        if destination_offset <= first.destination:
            return first.source
        found = self._committed.offsets.source_of(destination_offset)
        if found.exactness is not Exactness.EXACT:
            raise self._stop(
                f"{self._logs.name} lost its records from offset {destination_offset} on, and its mirror's "
                f"map is not exact so far back. {_EMPTY_TOPIC}",
                IncidentKind.DESTINATION_LOSS,
            )
        return found.offset

    def _continuing_identity(self, ours: _OurEnd) -> ProducerIdentity:
        # The writer stays the same: a new one could not distinguish a late request of a dead process from its
        # own.
        return replace(self.position.identity, base=self._log.end - ours.next_sequence)

    def _go_on_behind_others(self, ours: _OurEnd) -> None:
        landed = self._landed_offset
        if self.position.destination_offset < landed <= ours.destination_offset:
            self.position = self.position.at(landed)  # up to there, each record is where the map says
        there = self._committed.at(ours.destination_offset)
        self._continue_at(
            there.source_offset,
            source_leader_epoch=there.source_leader_epoch,
            identity=self._continuing_identity(ours),
        )

    # The source

    def _end_with_the_log(self) -> None:
        """Let a range that was made for another log end where the present one does."""
        if not self._copy.range.is_open:
            level = self._clusters.settings.source.isolation_level
            self.range_end = offset_at(self._clusters.source, self._copy.source, LATEST, level)

    def _is_in_another_topic(self) -> bool:
        source, partition, start = self._clusters.source, self._copy.source, self._logs.source.start
        then, now = self._committed.source_topic_id, topic_id(source, partition)
        if not is_another_topic(then, now):
            return False
        kind = IncidentKind.SOURCE_RESET
        reason = (
            f"topic {partition.topic} on {source} was deleted and created again since it was mirrored "
            f"before offset {self.position.source_offset} (its id was {then} and is {now})"
        )
        self._meet(
            kind,
            reason,
            f"{kind.continuing} mirrors the new topic behind the old one's records. Otherwise mirror it with "
            "a new group into an empty topic (--rename)",
            start,
        )
        self._end_with_the_log()
        # The former topic's offsets say nothing about this one.
        begun = OffsetMap.begun_at(start, self._log.end, is_whole=True)
        self._continue_at(start, identity=new_identity(self._clusters), milestones=begun)
        self._copy.report_continued(kind, reason, None)
        return True

    def _check_source_tail(self, same_up_to: int) -> None:
        source_offset = self.position.source_offset
        if same_up_to >= source_offset:
            return
        kind = IncidentKind.SOURCE_RESET
        reason = (
            f"its log on {self._clusters.source} is the one that was mirrored only before offset "
            f"{same_up_to}, and the offsets before {source_offset} were mirrored already: the source lost "
            "its tail (unclean leader election?)"
        )
        self._meet(
            kind,
            reason,
            f"{kind.continuing} copies the source's present records after those already mirrored. Otherwise "
            "mirror it with a new group into an empty topic",
            same_up_to,
        )
        if self._copy.range.end_offset <= source_offset:
            # The plan found nothing to copy, so the range's end is the position, and not that of a log.
            self._end_with_the_log()
        # Offsets of the source from there on are those of other records now.
        kept = self.position.offsets.cut(same_up_to, self._log.end)
        self._continue_at(same_up_to, identity=new_identity(self._clusters), milestones=kept)
        self._copy.report_continued(kind, reason)

    def _check_retention(self) -> None:
        start, source_offset = self._logs.source.start, self.position.source_offset
        if start <= source_offset:
            return
        kind = IncidentKind.SOURCE_RETENTION
        reason = (
            f"{self._clusters.source} does not have offset {source_offset} any more, its log begins at "
            f"{start}: its retention overtook the mirror"
        )
        advice = (
            f"{kind.continuing} resumes at {start}. Otherwise mirror it with a new group into an empty topic"
        )
        self._meet(kind, reason, advice)
        self._continue_at(start)
        self._copy.report_continued(kind, reason, start - source_offset)

    def _check_range_end(self) -> None:
        """
        End a range where the source's log ends, if everything that the log has was copied.

        The plan checked that the log reached the end of the range. No leader in sync loses anything before a
        former high watermark: if the leader's log itself is shorter now, the source lost its tail. An older
        copy of a disk that was put back does this without an election.
        """
        log_end, copied = self._logs.source.end, self._copy.range
        is_at_its_end = log_end is not None and log_end == self.position.source_offset < copied.end_offset
        if copied.is_open or log_end is None or not is_at_its_end or self.range_end is not None:
            return
        kind = IncidentKind.SOURCE_RESET
        reason = (
            f"its log on {self._clusters.source} ends at offset {log_end}, and it ended at "
            f"{copied.end_offset} or later when this run was planned: the source lost its tail (unclean "
            "leader election?)"
        )
        self._meet(
            kind,
            reason,
            "Everything before is mirrored, so the next start continues there. "
            f"{kind.continuing} counts the missing offsets as lost",
        )
        self.range_end = log_end
        # The offsets before the start were mirrored before.
        lost = copied.end_offset - max(log_end, copied.start_offset)
        self._copy.report_continued(kind, reason, lost)
