"""From a committed position to the one that matches both logs now, through the incidents in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....errors import PartitionStopped
from ....records import fingerprint
from ...model.incidents import Incident, IncidentKind
from ...model.offset_map import OffsetMap, Stretch
from ...model.position import MirrorPosition, is_another_topic
from ...model.text import offsets
from ...other_groups import OtherGroups, topic_id
from .already_mirrored import place_behind_already_mirrored
from .begin import new_identity
from .foreign import are_copies
from .logs import PartitionLogs, SourceLog
from .lost_tail import again_behind, again_from_the_origin
from .own_records import OwnRecords, own_records
from .places import Places, Undecided, WrittenRun
from .search import SourcePlace
from .tail import Tail, holds_at, is_by, is_ours, last_batch, last_batch_by

__all__ = ["Resumption"]


class Resumption:
    """
    One partition's way from its committed position to its position now.

    Attributes:
        position: The one that was committed; moved by each step of :meth:`run`.

    """

    def __init__(
        self,
        logs: PartitionLogs,
        position: MirrorPosition,
        source: SourceLog,
        incidents: list[Incident],
        others: OtherGroups,
    ) -> None:
        """Begin at a committed position; incidents on the way are added to ``incidents``."""
        self._others = others
        self._logs = logs
        self._clusters = logs.clusters
        self._copy = logs.copy
        self._source = source
        self._log = logs.log
        self.position = position
        self._incidents = incidents
        self._places = Places(logs, source)

    def run(self) -> MirrorPosition:
        """
        Return the position that describes the destination as it is now.

        Raises:
            PartitionStopped: Something happened after which the mirror must not continue.
            ShoalError: A cluster does not answer.

        """
        self._check_rules()
        self._check_destination()
        self._check_source()
        if self._clusters.settings.allows_other_writers:
            # Whatever was written after the position is written again, by another: nothing to compare.
            self._go_to_the_end(identity=new_identity(self._clusters, self._log.end))
        elif self._written > 0:
            self._skip_written()
        else:
            self._check_last_batch()
        self._check_retention()
        return self.position

    @property
    def _written(self) -> int:
        """How many records the destination has past the position."""
        return self._log.end - self.position.destination_offset

    # Incidents

    def _stop(self, reason: str, cause: IncidentKind | None = None) -> PartitionStopped:
        return PartitionStopped(*self._copy.source, self.position.source_offset, reason, cause=cause)

    def _meet(
        self,
        kind: IncidentKind,
        reason: str,
        go_on: Callable[[], int | None] | None,
        advice: str,
        unmirrored_from: int | None = None,
    ) -> None:
        """
        Report an incident; then continue, if its policy allows that, or stop the partition.

        Args:
            reason: The finding, with its offsets.
            go_on: Moves the position to the offset at which the mirror continues, and returns the number of
                lost records. None: no option allows to continue.
            advice: The remedy if the partition stops.
            unmirrored_from: If the partition stops: the first source offset whose record is missing at the
                destination. None: the position's.

        Raises:
            PartitionStopped: The policy is to stop, or ``go_on`` is None.
            BrokerError: Retriable: the finding is about another topic of this name.

        """
        self._clusters.expect_same_topics(self._copy)
        if go_on is None or not self._copy.continues_after(kind):
            self._incidents.append(Incident(kind, reason))
            where = *self._copy.source, self.position.source_offset
            sentence = f"{reason}. {advice}"
            raise PartitionStopped(*where, sentence, unmirrored_from, can_heal=False, cause=kind)
        before = self.position.source_offset
        lost = go_on()
        if kind is IncidentKind.DESTINATION_LOSS and self.position.source_offset < before:
            again = offsets(self.position.source_offset, before - 1)
            reason = f"{reason}, and source {again} are copied again"
        self._incidents.append(Incident(kind, reason, lost, continued=True))

    @property
    def _behind(self) -> str:
        """The destination's offsets behind the position, as a phrase with their last one."""
        return offsets(self.position.destination_offset, self._log.end - 1)

    def _continuing(self, kind: IncidentKind) -> str:
        return self._clusters.settings.surface.continuing(kind)

    def _option(self, field: str) -> str:
        return self._clusters.settings.surface.option(field)

    def _check_rules(self) -> None:
        settings = self._clusters.settings
        if self.position.rules != settings.rules:
            if settings.takes_over_offsets and self._written == 0:
                self.position = replace(self.position, rules=settings.rules)
                return
            raise self._stop(
                f"group {self._clusters.settings.group!r} mirrored it by other rules, such as another "
                "isolation.level. Use the same options as before, or mirror with a new group into an empty "
                "topic"
            )

    # The destination

    def _check_destination(self) -> None:
        destination, partition = self._clusters.destination, self._copy.destination
        then, now = self.position.destination_topic_id, topic_id(destination, partition)
        if is_another_topic(then, now):
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
        elif self._written < 0:
            reason = (
                f"{partition} on {destination} ends at offset {self._log.end}, but the acknowledged records, "
                f"those before source offset {self.position.source_offset}, end at "
                f"{self.position.destination_offset}: the destination lost its tail "
                "(unclean leader election?)"
            )
        else:
            return
        self._meet_loss(reason)

    def _meet_loss(self, reason: str) -> None:
        self._meet(
            IncidentKind.DESTINATION_LOSS,
            reason,
            self._mirror_again,
            f"{self._continuing(IncidentKind.DESTINATION_LOSS)} mirrors again the records that the source "
            "still has",
            self._lost_from(),
        )

    def _lost_from(self) -> int:
        """Return the source offset from which on records are missing at the destination, or a later one."""
        if self._log.end == 0:
            return self._source.start
        # A number of records had at least as many offsets.
        return max(self._source.start, self.position.source_offset + min(0, self._written))

    def _mirror_again(self) -> int | None:
        """Resume behind our last batch in the destination; return the number of records that are lost."""
        before = self.position
        ours = last_batch_by(self._logs, before.identity)
        if ours is None:
            again = again_from_the_origin(self._places, before, is_another_topic=self._is_another_topic())
            self._go_to_the_end()
        else:
            again = again_behind(self._places, before, ours)
            # Our sequences continue at their end, even if others have written behind it.
            next_sequence = ours.header.base_sequence + ours.header.last_offset_delta + 1
            self._go_to_the_end(identity=replace(before.identity, base=self._log.end - next_sequence))
        place = again.place
        origin = (place.source_offset, self._log.end) if again.is_before_origin else before.origin
        self.position = replace(
            self.position,
            source_offset=place.source_offset,
            source_leader_epoch=place.source_leader_epoch,
            origin=origin,
            milestones=self._map_before_loss(before, ours, place),
        )
        return again.lost

    def _map_before_loss(self, before: MirrorPosition, ours: Tail | None, place: SourcePlace) -> OffsetMap:
        """Return what is left of the offset map, if the destination has nothing of ours behind a batch."""
        place_offset, end = place.source_offset, self._log.end
        # A batch that was sent before the loss may have arrived after it, at a place that says nothing.
        is_where_it_was = (
            ours is not None
            and is_ours(ours.header, before.identity)
            and ours.header.next_offset <= before.destination_offset
            and place_offset <= before.source_offset
        )
        if ours is None or not is_where_it_was:
            is_repeated = self._unaccounted is Stretch.REPEATED
            return OffsetMap.begun_at(place_offset, end, is_whole=end == 0, is_repeated=is_repeated)
        kept = before.offsets.cut(place_offset, ours.header.next_offset)
        return kept.reached(place_offset, end, self._unaccounted)

    def _is_another_topic(self) -> bool:
        """Whether the destination topic was deleted and created again since it was mirrored."""
        then = self.position.destination_topic_id
        now = topic_id(self._clusters.destination, self._copy.destination)
        return is_another_topic(then, now)

    @property
    def _unaccounted(self) -> Stretch:
        """How far a stretch is trusted whose records nothing accounts for."""
        return Stretch.REPEATED if self._clusters.settings.allows_other_writers else Stretch.BROKEN

    def _go_to_the_end(self, **changes: Any) -> None:
        """Let the next record land at the destination's end, whatever lies before it."""
        self.position = self.position.moved(
            self._unaccounted,
            destination_offset=self._log.end,
            destination_topic_id=topic_id(self._clusters.destination, self._copy.destination),
            last_batch=None,
            **changes,
        )

    # The source

    def _check_source(self) -> None:
        source, partition = self._clusters.source, self._copy.source
        then, now = self.position.source_topic_id, topic_id(source, partition)
        if is_another_topic(then, now):
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"topic {partition.topic} on {source} was deleted and created again since it was mirrored "
                f"before offset {self.position.source_offset} (its id was {then} and is {now})",
                self._go_on_in_new_topic,
                f"{self._continuing(IncidentKind.SOURCE_RESET)} mirrors the new topic behind the old one's "
                "records. Otherwise mirror it with a new group into an empty topic "
                f"({self._option('rename')})",
                self._source.start,
            )
        elif self._source.same_up_to is not None and self._source.same_up_to < self.position.source_offset:
            same_up_to = self._source.same_up_to
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"its log on {source} is the one that was mirrored only before offset {same_up_to}, and "
                f"the offsets before {self.position.source_offset} were mirrored already: the source lost "
                "its tail (unclean leader election?)",
                lambda: self._go_on_before_the_lost_tail(same_up_to),
                f"{self._continuing(IncidentKind.SOURCE_RESET)} copies the source's present records after "
                "those already mirrored. Otherwise mirror it with a new group into an empty topic",
                same_up_to,
            )

    def _go_on_in_new_topic(self) -> None:
        self._copy.end_with_the_log()
        self._go_on_at_source(self._source.start, lost=None)
        # The former topic's offsets say nothing about this one.
        origin = self.position.source_offset, self.position.destination_offset
        has_all_before = origin[0] == self._source.start
        begun = OffsetMap.begun_at(*origin, is_whole=has_all_before)
        self.position = replace(self.position, origin=origin, milestones=begun)

    def _go_on_before_the_lost_tail(self, same_up_to: int) -> int | None:
        if self._copy.range.end_offset <= self.position.source_offset:
            # The plan found nothing to copy, so the range's end is the position, and not that of a log.
            self._copy.end_with_the_log()
        return self._go_on_at_source(same_up_to, lost=0)

    def _go_on_at_source(self, offset: int, *, lost: int | None) -> int | None:
        already = place_behind_already_mirrored(self._places, self.position, offset)
        place = already or SourcePlace(offset)
        by_another = self._is_by_another()
        # Offsets of the source from there on are those of other records now.
        kept = self.position.offsets.cut(offset, self.position.destination_offset)
        self._go_to_the_end(
            source_offset=place.source_offset,
            source_leader_epoch=place.source_leader_epoch,
            source_topic_id=topic_id(self._clusters.source, self._copy.source),
        )
        reached = kept.reached(place.source_offset, self._log.end, self._unaccounted)
        self.position = replace(self.position, milestones=reached)
        if by_another:
            self._write_as_another()
        return lost

    def _is_by_another(self) -> bool:
        """Whether another program wrote the last batch behind the position."""
        tail = last_batch(self._logs) if self._written > 0 else None
        return tail is not None and not is_ours(tail.header, self.position.identity)

    def _write_as_another(self) -> None:
        """
        Let a new writer begin at the position, behind the records that another group of this topic mirrored.

        The broker would refuse the former one's next sequence: it does not follow the last that it wrote.
        """
        origin = self.position.source_offset, self.position.destination_offset
        self.position = replace(self.position, identity=new_identity(self._clusters), origin=origin)

    def _check_retention(self) -> None:
        missing = self._source.start - self.position.source_offset
        if missing <= 0:
            return
        source = self._clusters.source
        self._meet(
            IncidentKind.SOURCE_RETENTION,
            f"{source} does not have offset {self.position.source_offset} any more, its log begins at "
            f"{self._source.start}: its retention overtook the mirror",
            self._skip_deleted,
            f"{self._continuing(IncidentKind.SOURCE_RETENTION)} resumes at {self._source.start}. Otherwise "
            "mirror it with a new group into an empty topic",
        )

    def _skip_deleted(self) -> int:
        lost = self._source.start - self.position.source_offset
        self.position = self.position.moved(source_offset=self._source.start, source_leader_epoch=-1)
        return lost

    # Records written after the position

    def _skip_written(self) -> None:
        """Walk the source from the position over exactly as many records as the destination has past it."""
        tail = last_batch(self._logs)
        if tail is None or tail.header.next_offset <= self.position.destination_offset:
            self._go_on_behind_deleted()
            return
        place = self._place_behind(self._places.run_behind(self.position, tail, self._log.end))
        if place:
            by_us = is_ours(tail.header, self.position.identity)
            stretch = Stretch.KNOWN if by_us else Stretch.UNPROVED
            is_each_there = sum(end - start for start, end, _ in place.runs) == self._written
            self._settle(place, tail, stretch if is_each_there else Stretch.BROKEN)
            if not by_us:
                self._write_as_another()
        elif is_ours(tail.header, self.position.identity):
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"{self._copy.destination} on {self._clusters.destination} holds records at {self._behind} "
                f"that were mirrored from source "
                f"offset {self.position.source_offset} on and not committed, and the source does not have "
                "them now: compaction, retention or an election changed the source meanwhile",
                None,
                "Mirror it with a new group into an empty topic",
            )
        else:
            self._meet_foreign_records(tail.header.base_offset)

    def _go_on_behind_deleted(self) -> None:
        """Go on behind written records that the destination has deleted, all of them."""
        if self._own_records().run.size == self._written:
            self._go_on_behind_others()
        else:
            self._meet_foreign_records(self.position.destination_offset)

    def _place_behind(self, run: WrittenRun) -> SourcePlace | None:
        """Return the place behind the records that were written past the position."""
        try:
            return self._places.behind(self.position, run)
        except Undecided as error:
            kind = IncidentKind.SOURCE_RESET
            reason = (
                f"{self._copy.destination} on {self._clusters.destination} holds records at {self._behind} "
                f"that were mirrored from source "
                f"offset {self.position.source_offset} on and not committed: {error}"
            )
            self._incidents.append(Incident(kind, reason))
            advice = "Mirror it with a new group into an empty topic"
            raise self._stop(f"{reason}. {advice}", kind) from None

    def _settle(self, place: SourcePlace, tail: Tail, stretch: Stretch) -> None:
        """Put the position behind the written records, and count their offsets."""
        for start, end, before in place.runs:  # the acknowledgements were lost
            self._copy.count_run(start, end, self.position.destination_offset + before)
        self.position = self.position.moved(
            stretch,
            source_offset=place.source_offset,
            source_leader_epoch=place.source_leader_epoch,
            destination_offset=self._log.end,
            last_batch=tail.fingerprint.crc,
        )

    # Other writers

    def _check_last_batch(self) -> None:
        """Check the last acknowledged batch, if the destination still has it."""
        if self.position.last_batch is None:
            return
        tail = last_batch(self._logs)
        if tail is None or is_ours(tail.header, self.position.identity):
            return
        if tail.header.next_offset < self._log.end:
            return  # compaction took the last one, and the one before may be of another time
        if tail.fingerprint.crc == self.position.last_batch and not is_by(
            tail.header, self.position.identity
        ):
            return
        self._meet_foreign_records(tail.header.base_offset)

    def _meet_foreign_records(self, first_offset: int) -> None:
        if self._lost_what_was_acknowledged():
            self._meet_loss(
                f"{self._copy.destination} on {self._clusters.destination} does not hold before offset "
                f"{self.position.destination_offset} the acknowledged records, those before source offset "
                f"{self.position.source_offset}: it lost its tail (unclean leader election?), and another "
                "program wrote there"
            )
            return
        self._check_other_group()
        reason = (
            f"{self._copy.destination} on {self._clusters.destination} has a foreign record at offset "
            f"{self._first_foreign(first_offset)}, where the mirror's records from source offset "
            f"{self.position.source_offset} on belong (its log ends behind offset {self._log.end - 1}): "
            "another program wrote there"
        )
        advice = (
            f"Stop that program. {self._continuing(IncidentKind.FOREIGN_RECORDS)} then leaves its records "
            "there and resumes behind them, and no record is copied twice. Otherwise mirror it with a new "
            "group into a topic that no other program writes to"
        )
        if are_copies(self._places, self.position):
            reason = f"{reason}. The source has some of these records, too: another mirror wrote them"
            advice = (
                "Stop that mirror, and mirror the topic with a new group into an empty topic "
                f"({self._option('rename')}). {self._continuing(IncidentKind.FOREIGN_RECORDS)} resumes "
                "behind them, and mirrors these records again"
            )
        self._meet(IncidentKind.FOREIGN_RECORDS, reason, self._go_on_behind_others, advice)

    def _first_foreign(self, known: int) -> int:
        """Return the offset of the first foreign record; one is known."""
        begin = self.position.destination_offset
        if known < begin:
            return known
        foreign = (
            each.header.base_offset
            for each in self._places.destination_batches(begin)
            if not is_by(each.header, self.position.identity)
        )
        return next(foreign, known)

    def _check_other_group(self) -> None:
        """Stop under every policy if a group that is further wrote there: its records would be doubled."""
        other = self._others.position_of(self._copy.source)
        if other is None or other.position.destination_offset <= self.position.destination_offset:
            return
        reason = (
            f"{self._copy.destination} on {self._clusters.destination} holds records at {self._behind} "
            "that follow the records mirrored before "
            f"source offset {self.position.source_offset}, but are not in the source as they were. "
            f"Group {other.group!r} holds the position of this copy, before "
            f"source offset {other.position.source_offset}"
        )
        kind = IncidentKind.FOREIGN_RECORDS
        self._incidents.append(Incident(kind, reason))
        advice = f"Use group {other.group!r} to continue there"
        where = *self._copy.source, self.position.source_offset
        raise PartitionStopped(*where, f"{reason}. {advice}", can_heal=False, cause=kind)

    def _lost_what_was_acknowledged(self) -> bool:
        """Whether others wrote not behind our last acknowledged batch, but in its place."""
        last = holds_at(self._logs, self.position.destination_offset - 1)
        if self.position.last_batch is None or last is None or is_ours(last.header, self.position.identity):
            return False
        return fingerprint(last).crc != self.position.last_batch

    def _go_on_behind_others(self) -> int:
        """Find our records among those of others; our sequences continue behind all of them."""
        own = self._own_records()
        # The writer stays the same: a new one could not distinguish a late request of a dead process
        # from its own.
        identity = replace(self.position.identity, base=self._log.end - own.next_sequence)
        if not own.run.size:
            self._go_to_the_end(identity=identity)
            return 0
        place = self._place_behind(own.run)
        if place is None:
            raise self._stop(
                f"{self._copy.destination} on {self._clusters.destination} holds records of other programs "
                f"at {self._behind}, and the "
                f"{own.run.size} mirrored ones among them do not follow source offset "
                f"{self.position.source_offset}. Mirror it with a new group into an empty topic"
            )
        self._go_to_the_end(
            source_offset=place.source_offset,
            source_leader_epoch=place.source_leader_epoch,
            identity=identity,
        )
        return 0

    def _own_records(self) -> OwnRecords:
        try:
            return own_records(self._places, self.position)
        except Undecided as error:
            raise self._stop(
                f"{self._copy.destination} on {self._clusters.destination} has lost records from offset "
                f"{self.position.destination_offset} on, which were not committed: retention or compaction "
                f"removed them, and {error}. Mirror it with a new group into an empty topic "
                f"({self._option('start')} sets its first offset)"
            ) from None
