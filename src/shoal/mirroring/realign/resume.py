"""From a committed pair to what the destination is now; and what may have happened in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ...client.admin import describe_topic_configs
from ...errors import BrokerError, ErrorCode, PartitionStopped
from ...records import BatchHeader, RecordBatch, fingerprint
from ..incidents import Delivery, Incident, IncidentKind
from ..pair import SEQUENCES, Pair
from ..partition_copy import PartitionCopy
from .begin import new_identity, topic_id
from .logs import Clusters, DestinationLog, SourceLog, source_end
from .merge import Merge
from .survivors import Survivors
from .tail import (
    Found,
    Place,
    Tail,
    batches_at,
    count_records,
    find,
    follow,
    holds_at,
    is_by,
    is_ours,
    last_batch,
    last_batch_by,
)
from .written import OutOfSight, WrittenBatch

__all__ = ["Resumption"]


class Resumption:
    """
    One partition's way from its pair to where it goes on.

    Attributes:
        pair: The one that was committed; moved by each step of :meth:`run`.

    """

    def __init__(
        self,
        clusters: Clusters,
        copy: PartitionCopy,
        pair: Pair,
        source: SourceLog,
        log: DestinationLog,
        incidents: list[Incident],
    ) -> None:
        """Take what is known of both logs; what is found on the way is added to ``incidents``."""
        self._clusters = clusters
        self._copy = copy
        self._source = source
        self._log = log
        self.pair = pair
        self._incidents = incidents

    def run(self) -> Pair:
        """
        Return the pair that describes the destination as it is now.

        Raises:
            PartitionStopped: Something happened after which the mirror may not go on.
            ShoalError: Somebody does not answer.

        """
        self._check_rules()
        self._check_destination()
        self._check_source()
        if self._clusters.settings.delivery is Delivery.AT_LEAST_ONCE:
            # Whatever was written after the pair is written again, by another: nothing to compare.
            self._go_to_the_end(identity=new_identity(self._clusters, self._log.end))
        elif self._written > 0:
            self._skip_written()
        else:
            self._check_last_batch()
        self._check_retention()
        return self.pair

    @property
    def _written(self) -> int:
        """How many records the destination has past the pair."""
        return self._log.end - self.pair.destination_offset

    # What may have happened

    def _stop(self, reason: str) -> PartitionStopped:
        return PartitionStopped(*self._copy.source, self.pair.source_offset, reason)

    def _meet(
        self,
        kind: IncidentKind,
        reason: str,
        go_on: Callable[[], int | None] | None,
        advice: str,
        unmirrored_from: int | None = None,
    ) -> None:
        """
        Meet an incident as its policy says.

        Args:
            kind: What it is.
            reason: What was found where.
            go_on: Moves the pair to where the mirror goes on; returns what is lost. None where nothing can.
            advice: What a person can do, where the partition stops.
            unmirrored_from: The source offset from which on records are missing then; None for the pair's.

        """
        if go_on is None or kind not in self._clusters.settings.continue_on:
            self._incidents.append(Incident(kind, reason))
            where = *self._copy.source, self.pair.source_offset
            raise PartitionStopped(*where, f"{reason}; {advice}", unmirrored_from, can_heal=False)
        lost = go_on()
        self._incidents.append(Incident(kind, reason, lost, continued=True))

    def _check_rules(self) -> None:
        settings = self._clusters.settings
        if self.pair.rules != settings.rules:
            if settings.takes_over_offsets and self._written == 0:
                self.pair = replace(self.pair, rules=settings.rules)
                return
            raise self._stop(
                f"group {self._clusters.settings.group!r} mirrored it by other rules (isolation.level and "
                "the like decide what is copied); use the options of then, or a new --group"
            )

    # The destination

    def _check_destination(self) -> None:
        destination, partition = self._clusters.destination, self._copy.destination
        then, now = self.pair.destination_topic_id, topic_id(destination, partition)
        if then and now and then != now:
            reason = (
                f"topic {partition.topic} on {destination} was deleted and created again since it was "
                f"mirrored (its id was {then} and is {now}); it ends at offset {self._log.end}"
            )
        elif self._written < 0:
            reason = (
                f"{partition} on {destination} ends at offset {self._log.end}, but what was mirrored and "
                f"acknowledged, up to source offset {self.pair.source_offset}, ends at "
                f"{self.pair.destination_offset}: the destination lost its tail (unclean leader election?)"
            )
        else:
            return
        self._meet_loss(reason)

    def _meet_loss(self, reason: str) -> None:
        self._meet(
            IncidentKind.DESTINATION_LOSS,
            reason,
            self._mirror_again,
            f"{IncidentKind.DESTINATION_LOSS.option} continue mirrors again what the source still has of it",
            self._lost_from(),
        )

    def _lost_from(self) -> int:
        """Return the source offset from which on records are missing at the destination, or a later one."""
        if self._log.end == 0:
            return self._source.start
        # So many records had at least as many offsets.
        return max(self._source.start, self.pair.source_offset + min(0, self._written))

    def _mirror_again(self) -> int | None:
        """Go on behind what the destination still has of ours; return how many records nobody has now."""
        before = self.pair
        ours = last_batch_by(self._clusters, self._copy, self._log, before.identity)
        if ours is None:
            self._go_to_the_end()
            if self._log.start == 0:  # nothing was deleted: there never was anything of ours in this log
                self.pair = replace(self.pair, source_offset=before.origin[0], source_leader_epoch=-1)
                return 0
            return None
        # Our sequences go on where they end now, whatever others have written behind.
        next_sequence = ours.header.base_sequence + ours.header.last_offset_delta + 1
        self._go_to_the_end(identity=replace(before.identity, base=self._log.end - next_sequence))
        gone = max(0, before.destination_offset - ours.header.next_offset)
        found = find(self._clusters, self._copy, ours)
        place = self._place_of(found, ours, before)
        if place is None and self._is_deleted(found, ours) and self._source.start <= before.source_offset:
            # All that the source still has came after it.
            start = self._source.start
            self.pair = replace(self.pair, source_offset=start, source_leader_epoch=-1)
            again = count_records(self._clusters, self._copy, start, before.source_offset)
            return max(0, gone - again)
        if place is None:
            return gone
        self.pair = replace(
            self.pair, source_offset=place.source_offset, source_leader_epoch=place.source_leader_epoch
        )
        if place.source_offset <= before.source_offset:
            return 0
        # It came after what was lost, which cannot be put in front of it any more.
        return max(0, before.destination_offset - ours.header.base_offset)

    def _place_of(self, found: Found, ours: Tail, pair: Pair) -> Place | None:
        """Return where the source goes on behind a batch of ours; None where nothing shows it."""
        places = found.places
        if len(places) == 1:
            return places[0]
        source_origin, destination_origin = pair.origin
        written = ours.header.next_offset - destination_origin
        if not places or self._source.start > source_origin or not is_ours(ours.header, pair.identity):
            return None
        # The same records are in several places: count from where the mirror began.
        origin = replace(pair, source_offset=source_origin, destination_offset=destination_origin)
        return self._follow(origin, written, ours, written - (ours.header.last_offset_delta + 1))

    def _go_to_the_end(self, **changes: object) -> None:
        """Let the next record land at the destination's end, whatever lies before it."""
        self.pair = replace(
            self.pair,
            destination_offset=self._log.end,
            destination_topic_id=topic_id(self._clusters.destination, self._copy.destination),
            last_batch=None,
            **changes,  # type: ignore[arg-type]
        )

    # The source

    def _check_source(self) -> None:
        source, partition = self._clusters.source, self._copy.source
        then, now = self.pair.source_topic_id, topic_id(source, partition)
        if then and now and then != now:
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"topic {partition.topic} on {source} was deleted and created again since it was mirrored up "
                f"to offset {self.pair.source_offset} (its id was {then} and is {now})",
                self._go_on_in_new_topic,
                f"{IncidentKind.SOURCE_RESET.option} continue mirrors the new topic behind the old one's "
                "records; or mirror it with a new --group, or under another name",
                self._source.start,
            )
        elif self._source.same_up_to is not None and self._source.same_up_to < self.pair.source_offset:
            same_up_to = self._source.same_up_to
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"its log on {source} is the one that was mirrored only up to offset {same_up_to}, and "
                f"{self.pair.source_offset} was mirrored already: the source lost its tail (unclean leader "
                "election?)",
                lambda: self._go_on_at_source(same_up_to, lost=0),
                f"{IncidentKind.SOURCE_RESET.option} continue mirrors what is there now behind what was "
                "there then; or mirror it with a new --group into an empty topic",
                same_up_to,
            )

    def _go_on_in_new_topic(self) -> None:
        self._copy.end_is_former = True
        self._go_on_at_source(self._source.start, lost=None)

    def _go_on_at_source(self, offset: int, *, lost: int | None) -> int | None:
        self._go_to_the_end(
            source_offset=offset,
            source_leader_epoch=-1,
            source_topic_id=topic_id(self._clusters.source, self._copy.source),
        )
        return lost

    def _check_retention(self) -> None:
        missing = self._source.start - self.pair.source_offset
        if missing <= 0:
            return
        source = self._clusters.source
        self._meet(
            IncidentKind.SOURCE_RETENTION,
            f"{source} does not have offset {self.pair.source_offset} any more, its log begins at "
            f"{self._source.start}: its retention overtook the mirror",
            self._skip_deleted,
            f"{IncidentKind.SOURCE_RETENTION.option} continue goes on at {self._source.start}; or mirror it "
            "with a new --group into an empty topic",
        )

    def _skip_deleted(self) -> int:
        lost = self._source.start - self.pair.source_offset
        self.pair = replace(self.pair, source_offset=self._source.start, source_leader_epoch=-1)
        return lost

    # What was written after the pair

    def _skip_written(self) -> None:
        """Walk the source from the pair over exactly what the destination has past it."""
        tail = last_batch(self._clusters, self._copy, self._log)
        if tail is None or tail.header.next_offset <= self.pair.destination_offset:
            raise self._stop(
                f"{self._copy.destination} on {self._clusters.destination} holds nothing any more of what "
                f"was mirrored from offset {self.pair.destination_offset} to {self._log.end} and not "
                "committed: retention or compaction took it, so nothing shows whose it was; mirror it with a "
                "new --group (--start says from where)"
            )
        place = self._place_behind(
            _Ours(
                self._written,
                tail,
                tail.header.base_offset - self.pair.destination_offset,
                partial(self._batches_from, self.pair),
            )
        )
        if place:
            self._settle(place, tail, landed=self.pair.destination_offset)
            if not is_ours(tail.header, self.pair.identity):
                # Another mirror of this topic went on behind ours. The broker would refuse our next
                # sequence: it is not the one behind the last that we wrote.
                self.pair = replace(self.pair, identity=new_identity(self._clusters))
        elif is_ours(tail.header, self.pair.identity):
            self._meet(
                IncidentKind.SOURCE_RESET,
                f"what {self._copy.destination} on {self._clusters.destination} holds from offset "
                f"{self.pair.destination_offset} to {self._log.end} was mirrored from source offset "
                f"{self.pair.source_offset} on and not committed, and is not to be found in the source now: "
                "compaction, retention or an election changed the source meanwhile",
                None,
                "mirror it with a new --group into an empty topic",
            )
        else:
            self._meet_foreign_records(tail)

    def _place_behind(self, ours: _Ours) -> Place | None:
        """Return where the source goes on behind so many records of ours; None if there is no such place."""
        tail, tail_index = ours.tail, ours.tail_index
        identity, landed = self.pair.identity, self.pair.destination_offset + tail_index
        if is_by(tail.header, identity) and tail.header.base_sequence != identity.sequence(landed):
            # A request of a dead process that came late, to a broker that had forgotten the writer, may
            # have left the right records in a wrong place: the sequence tells.
            return None
        if self._source.start <= self.pair.source_offset:
            place = self._follow(self.pair, ours.written, tail, tail_index)
            if place:
                return place
        # The source may have changed since, by compaction or retention: then their number says nothing.
        return self._place_among_survivors(ours)

    def _place_among_survivors(self, ours: _Ours) -> Place | None:
        """Compare all that was written with what the source still has."""
        with self._retention_is_faster():
            survivors = Survivors(
                self._clusters,
                self._copy,
                self.pair.source_offset,
                self._source.start,
                source_end(self._clusters, self._copy.source),
                ours.batches,
                ours.written,
            )
            try:
                return self._only_place(survivors)
            except OutOfSight:
                raise self._undecided(
                    "the source lost so many records since that there is too much to compare"
                ) from None

    def _only_place(self, survivors: Survivors) -> Place | None:
        only_deletes = self._only_deletes()
        if only_deletes and self._source.start <= self.pair.source_offset:
            place = _place_of(survivors.merge(is_unchanged=True))
            if place:
                return place
            # It was a compacted topic until lately.
        merge = survivors.merge(is_unchanged=False)
        first, last = merge.first, merge.last
        if first and last and first.survivors != last.survivors:
            if survivors.are_written(first, last, is_compacted=not only_deletes):
                return _place_of(merge)
            raise self._undecided(
                f"the source lost records since, and nothing shows whether it goes on at offset "
                f"{first.source_offset} or as late as {last.source_offset}"
            )
        return _place_of(merge)

    def _undecided(self, why: str) -> PartitionStopped:
        """Return the error for a place that is not certain: a wrong one loses or doubles records."""
        kind = IncidentKind.SOURCE_RESET
        reason = (
            f"{self._copy.destination} on {self._clusters.destination} holds from offset "
            f"{self.pair.destination_offset} to {self._log.end} what was mirrored from source offset "
            f"{self.pair.source_offset} on and not committed; {why}"
        )
        self._incidents.append(Incident(kind, reason))
        return self._stop(f"{reason}; mirror it with a new --group into an empty topic")

    def _is_deleted(self, found: Found, tail: Tail) -> bool:
        """Whether the source deleted what was looked for and not found, rather than changed it."""
        is_changed = found.compacted or tail.header.has_holes
        return not found.places and not is_changed and self._only_deletes()

    def _only_deletes(self) -> bool:
        """Whether the source never changes a batch: what is not to be found was deleted whole."""
        topic = self._copy.source.topic
        try:
            configs = describe_topic_configs(self._clusters.source, [topic])
        except BrokerError as error:
            if error.retriable:
                raise
            return False  # who may not know cannot tell
        policy = configs[topic].get("cleanup.policy")
        return policy is not None and policy.value == "delete"

    def _follow(self, pair: Pair, written: int, tail: Tail, tail_index: int) -> Place | None:
        with self._retention_is_faster():
            return follow(self._clusters, self._copy, pair, written, tail, tail_index)

    @contextmanager
    def _retention_is_faster(self) -> Iterator[None]:
        """Let the source delete what is being read."""
        try:
            yield
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            # The next try sees where the log begins now.
            raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, error.where, error.detail) from error

    def _settle(self, place: Place, tail: Tail, *, landed: int | None) -> None:
        """Put the pair behind what was written; tell of its offsets where they are known."""
        if landed is not None:
            for start, end, before in place.runs:  # nobody was told: the acknowledgements were lost
                self._copy.extend_runs(start, end, landed + before)
        self.pair = replace(
            self.pair,
            source_offset=place.source_offset,
            source_leader_epoch=place.source_leader_epoch,
            destination_offset=self._log.end,
            last_batch=tail.fingerprint.crc,
        )

    # Somebody else

    def _check_last_batch(self) -> None:
        """Check the last acknowledged batch, where there is anything left of it."""
        if self.pair.last_batch is None:
            return
        tail = last_batch(self._clusters, self._copy, self._log)
        if tail is None or is_ours(tail.header, self.pair.identity):
            return
        if tail.header.next_offset < self._log.end:
            return  # compaction took the last one, and the one before may be of another time
        if tail.fingerprint.crc == self.pair.last_batch and not is_by(tail.header, self.pair.identity):
            return
        self._meet_foreign_records(tail)

    def _meet_foreign_records(self, tail: Tail) -> None:
        if self._lost_what_was_acknowledged():
            self._meet_loss(
                f"{self._copy.destination} on {self._clusters.destination} does not hold before offset "
                f"{self.pair.destination_offset} what was mirrored and acknowledged there, up to source "
                f"offset {self.pair.source_offset}: it lost its tail (unclean leader election?), and "
                "somebody else wrote there"
            )
            return
        self._meet(
            IncidentKind.FOREIGN_RECORDS,
            f"{self._copy.destination} on {self._clusters.destination} holds records from offset "
            f"{min(self.pair.destination_offset, tail.header.base_offset)} to {self._log.end} that are not "
            f"what was mirrored up to source offset {self.pair.source_offset}, or follows it: somebody else "
            "wrote there",
            self._go_on_behind_others,
            f"{IncidentKind.FOREIGN_RECORDS.option} continue goes on behind them; or mirror it with a new "
            "--group into a topic that nobody else writes to",
        )

    def _lost_what_was_acknowledged(self) -> bool:
        """Whether others wrote not behind our last acknowledged batch, but in its place."""
        last = holds_at(self._clusters, self._copy, self._log, self.pair.destination_offset - 1)
        if self.pair.last_batch is None or last is None or is_ours(last.header, self.pair.identity):
            return False
        return fingerprint(last).crc != self.pair.last_batch

    def _go_on_behind_others(self) -> int:
        """Find what we wrote among what others wrote; our sequences go on behind all of it."""
        among, tail = self._ours_among_others()
        # The same writer goes on: a new one could not tell a request of a dead process, if it still
        # arrives, from its own.
        identity = replace(self.pair.identity, base=self._log.end - among.next_sequence)
        if tail is None:
            self._go_to_the_end(identity=identity)
            return 0
        tail_index = among.written - (tail.header.last_offset_delta + 1)
        place = self._place_behind(_Ours(among.written, tail, tail_index, self._batches_among_others))
        if place is None:
            raise self._stop(
                f"{self._copy.destination} on {self._clusters.destination} holds records of others from "
                f"offset {self.pair.destination_offset} to {self._log.end}, and those that were mirrored "
                f"among them, up to offset {tail.header.last_offset}, are not what follows source "
                f"offset {self.pair.source_offset}; mirror it with a new --group into an empty topic"
            )
        self._settle(place, tail, landed=None)
        self.pair = replace(self.pair, identity=identity, last_batch=None)
        return 0

    def _batches_from(self, pair: Pair) -> Generator[WrittenBatch]:
        """Yield what the destination has from a pair on."""
        for batch in self._destination_batches(pair.destination_offset):
            number = batch.header.base_offset - pair.destination_offset
            yield WrittenBatch(number, batch, is_ours(batch.header, pair.identity))

    def _destination_batches(self, offset: int) -> Iterator[RecordBatch]:
        """Yield what the destination has from an offset on, up to where its log ended."""
        start = max(offset, self._log.start)
        for batch in batches_at(self._clusters, self._copy, start):
            if batch.header.base_offset >= self._log.end:
                return
            yield batch

    def _ours_among_others(self) -> tuple[_Among, Tail | None]:
        """Look for what our writer wrote past the pair; return its last batch, too."""
        tail: Tail | None = None
        among = _Among.none_behind(self.pair)
        for batch in self._destination_batches(self.pair.destination_offset):
            if is_by(batch.header, self.pair.identity):
                among, follows = among.behind(batch.header)
                if follows:
                    tail = Tail.of(batch, self._clusters.settings.max_decompressed_bytes)
        return among, tail

    def _batches_among_others(self) -> Generator[WrittenBatch]:
        """Yield what our writer wrote past the pair, without a double."""
        among = _Among.none_behind(self.pair)
        for batch in self._destination_batches(self.pair.destination_offset):
            if is_by(batch.header, self.pair.identity):
                number = among.written
                among, follows = among.behind(batch.header)
                if follows:
                    yield WrittenBatch(number, batch, is_ours=True)


def _place_of(merge: Merge) -> Place | None:
    """Return the last place where the mirror may have stood."""
    last = merge.last
    return Place(last.source_offset, last.source_leader_epoch, merge.runs) if last else None


class _Ours(NamedTuple):
    """
    What was written past a pair.

    Attributes:
        written: So many records.
        tail: The last batch of them that the destination still has.
        tail_index: The number of the record that its first offset stands for.
        batches: Begins to read all of them.

    """

    written: int
    tail: Tail
    tail_index: int
    batches: Callable[[], Generator[WrittenBatch]]


class _Among(NamedTuple):
    """
    What our writer wrote among others.

    Attributes:
        written: So many offsets, without a double.
        next_sequence: The only one that a broker takes next, if it knows the writer.
        expected: The one behind the last that is no double.

    """

    written: int
    next_sequence: int
    expected: int

    @classmethod
    def none_behind(cls, pair: Pair) -> _Among:
        """Begin at a pair."""
        sequence = pair.identity.sequence(pair.destination_offset)
        return cls(0, sequence, sequence)

    def behind(self, header: BatchHeader) -> tuple[_Among, bool]:
        """Go on behind a batch of our writer; return whether it follows the one before."""
        size = header.last_offset_delta + 1
        next_sequence = (header.base_sequence + size) % SEQUENCES
        if header.base_sequence == self.expected:
            return _Among(self.written + size, next_sequence, next_sequence), True
        # It came late, from a dead process, to a broker that had forgotten us: a double.
        return self._replace(next_sequence=next_sequence), False
