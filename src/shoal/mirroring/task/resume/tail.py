"""
The destination's last batch, and where the source has it.

Batches that were copied are told by their fingerprints. What was decoded
(cropped, rebuilt, recompressed by a broker) may have been cut into batches in
another way the last time: there the records themselves are compared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from ....client.offsets import EARLIEST, list_offsets
from ....client.scan import read_batches, read_decided
from ....error_codes import ErrorCode
from ....errors import BrokerError, CorruptBatch, ShoalError, UnsupportedBatch
from ....records import BatchHeader, Decision, Fingerprint, Record, RecordBatch, fingerprint, read_records
from ....topic_partition import TopicPartition
from ...model.offset_map import add_run
from ...model.position import MirrorPosition, ProducerIdentity
from ..partition import PartitionCopy
from ..rebuilder import records_to_mirror
from .logs import Clusters, DestinationLog
from .written import create_time_of

__all__ = [
    "Found",
    "Place",
    "Tail",
    "batches_at",
    "count_records",
    "find",
    "find_by_records",
    "follow",
    "holds_at",
    "is_by",
    "is_ours",
    "last_batch",
    "last_batch_by",
    "last_data_batch",
]

#: How far back, in offsets, to look for a last batch that compaction left behind.
_LOOK_BACK = (1, 100, 10_000, 1_000_000)


@dataclass(frozen=True)
class Tail:
    """
    The last batch of a destination partition; its bytes are its own.

    Attributes:
        batch: As it is there now: compaction may have taken records out of it.
        max_decompressed_bytes: How large it may become where it has to be decoded.

    """

    batch: RecordBatch
    max_decompressed_bytes: int

    @classmethod
    def of(cls, batch: RecordBatch, max_decompressed_bytes: int) -> Tail:
        """Copy a batch out of the buffer that it was fetched into."""
        return cls(RecordBatch(batch.header, memoryview(bytes(batch.view))), max_decompressed_bytes)

    @property
    def header(self) -> BatchHeader:
        return self.batch.header

    @cached_property
    def fingerprint(self) -> Fingerprint:
        return fingerprint(self.batch)

    @cached_property
    def records(self) -> Sequence[Record]:
        return read_records(self.batch, self.max_decompressed_bytes)

    def is_copy_of(self, batch: RecordBatch) -> bool:
        is_alike = batch.header.magic == 2 and batch.header.batch_length == self.header.batch_length
        return is_alike and fingerprint(batch) == self.fingerprint

    def is_same_record(self, ours: Record, source: Record) -> bool:
        """Whether a record of this batch is a certain one of the source; a cleaner may change its time."""
        create_time = create_time_of(self.header, ours)
        return create_time in (None, source.timestamp) and ours.body == source.body


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where the source goes on behind what the destination has.

    Attributes:
        source_offset: The next to mirror.
        source_leader_epoch: Of the batch before it.
        runs: What was walked over: source start, source end, and the number of records before it.

    """

    source_offset: int
    source_leader_epoch: int = -1
    runs: tuple[tuple[int, int, int], ...] = ()


def last_batch(clusters: Clusters, copy: PartitionCopy, log: DestinationLog) -> Tail | None:
    """
    Return the batch that ends where the log ended when it was asked; the log may have grown since.

    Where compaction took that one, the last one before; None where it took all that is looked at.

    Raises:
        BrokerError: Retriable: retention took it between two answers, or it is another log by now.

    """
    return _last(clusters, copy, log, _LOOK_BACK, lambda header: True)


def last_data_batch(clusters: Clusters, copy: PartitionCopy, log: DestinationLog) -> Tail | None:
    """Return the last batch that is no transaction marker; raises as :func:`last_batch`."""
    return _last(clusters, copy, log, _LOOK_BACK, lambda header: not header.is_control)


def last_batch_by(
    clusters: Clusters, copy: PartitionCopy, log: DestinationLog, identity: ProducerIdentity
) -> Tail | None:
    """Return the last batch in all the log that a producer identity wrote, wherever; raises likewise."""
    everything = log.end - log.start
    return _last(clusters, copy, log, (*_LOOK_BACK, everything), lambda header: is_by(header, identity))


def _last(
    clusters: Clusters,
    copy: PartitionCopy,
    log: DestinationLog,
    distances: Sequence[int],
    is_wanted: Callable[[BatchHeader], bool],
) -> Tail | None:
    """Look back by so many offsets, then by more."""
    looked_from = log.end
    for distance in distances:
        if looked_from <= log.start:
            break
        looked_from, upper = max(log.start, log.end - distance), looked_from
        found: Tail | None = None
        for batch in batches_at(clusters, copy, looked_from):
            if batch.header.base_offset >= upper:
                break
            if batch.header.next_offset > log.end:
                # Two elections between two answers: this is not the log whose end was asked for.
                raise _changed(clusters, copy)
            if is_wanted(batch.header):
                found = Tail.of(batch, clusters.settings.max_decompressed_bytes)
        if found is not None:
            return found
    return None


def holds_at(clusters: Clusters, copy: PartitionCopy, log: DestinationLog, offset: int) -> RecordBatch | None:
    """Return the destination's batch that has an offset; None where compaction or deletion took it."""
    if not log.start <= offset < log.end:
        return None
    for batch in batches_at(clusters, copy, offset):
        return batch if batch.header.base_offset <= offset else None
    return None


def batches_at(clusters: Clusters, copy: PartitionCopy, offset: int) -> Iterator[RecordBatch]:
    """Yield the destination's batches from an offset on that was in its log a moment ago."""
    try:
        yield from read_batches(clusters.destination, copy.destination, offset)
    except BrokerError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        raise _changed(clusters, copy) from error


def _changed(clusters: Clusters, copy: PartitionCopy) -> BrokerError:
    where = f"{copy.destination} on {clusters.destination}"
    return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "its log changed meanwhile")


def is_ours(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a batch was written by a producer identity at the place that its sequence says."""
    return is_by(header, identity) and header.base_sequence == identity.sequence(header.base_offset)


def is_by(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a producer identity wrote a batch, wherever."""
    writer = (header.producer_id, header.producer_epoch)
    return writer == (identity.producer_id, identity.producer_epoch)


def follow(
    clusters: Clusters, copy: PartitionCopy, pair: MirrorPosition, written: int, tail: Tail, tail_index: int
) -> Place | None:
    """
    Walk the source from the pair over exactly so many records, as they are mirrored.

    Args:
        clusters: Whom to ask.
        copy: The partition.
        pair: Where to begin.
        written: How many records the mirror wrote after the pair.
        tail: The last batch of them that the destination still has.
        tail_index: The first of them that its offsets cover; negative where
            it begins before the pair.

    Returns:
        Where the source goes on. None if the tail is not what it has there, or if offsets are missing on
        the way: compaction may have taken records since, so that their number says nothing.

    """
    walk = _Walk(clusters, pair, written, tail, tail_index)
    level = clusters.settings.source.isolation_level
    for decision, batch in read_decided(
        clusters.source,
        copy.source,
        pair.source_offset,
        level,
        keep_append_time=clusters.settings.keep_append_time,
    ):
        if walk.take(decision, batch):
            return walk.end()
    return None


def count_records(clusters: Clusters, copy: PartitionCopy, start_offset: int, end_offset: int) -> int:
    """Return how many records the source has to mirror from one offset to before another."""
    return sum(counts_of_batches(clusters, copy, start_offset, end_offset))


def counts_of_batches(
    clusters: Clusters, copy: PartitionCopy, start_offset: int, end_offset: int
) -> Iterator[int]:
    """Yield how many records there are to mirror in each batch of the source between two offsets."""
    level = clusters.settings.source.isolation_level
    for decision, batch in read_decided(clusters.source, copy.source, start_offset, level):
        if batch.header.base_offset >= end_offset:
            break
        if decision is Decision.COPY:
            # What is copied has no holes. The end may lie in it: the mirror of a copy that was cut in another
            # way begins there.
            yield min(batch.header.next_offset, end_offset) - batch.header.base_offset
        elif not decision.is_drop:
            records = records_to_mirror(batch, start_offset, clusters.settings)
            yield sum(record.offset < end_offset for record in records)


class _Walk:
    """Counts records of the source, and keeps those that the tail should hold."""

    def __init__(
        self, clusters: Clusters, pair: MirrorPosition, written: int, tail: Tail, tail_index: int
    ) -> None:
        self._settings = clusters.settings
        self._position = pair.source_offset
        self._source_leader_epoch = pair.source_leader_epoch
        self._left = written
        self._count = 0
        self._identity = pair.identity
        self._tail = tail
        self._tail_index = tail_index
        self._expected: dict[int, Record] = {}
        self._is_copy = False
        self._runs: list[list[int]] = []
        self._offset = pair.source_offset
        self._has_gap = False

    def take(self, decision: Decision, batch: RecordBatch) -> bool:
        """
        Count a batch in.

        Returns:
            Whether that is all: as many records as there should be, or a batch
            that cannot be there in part, or offsets that are missing.

        """
        header = batch.header
        records = None if decision.is_drop else self._decode(decision, batch)
        if self._is_behind_gap(decision, header, records):
            self._has_gap = True
            return True
        self._offset = header.next_offset
        if decision.is_drop:
            return False
        count = header.records_count if records is None else len(records)
        if records is None and count > self._left:
            return True  # what cannot have been decoded is there whole, or not at all
        if self._count == self._tail_index and count == self._left and self._tail.is_copy_of(batch):
            self._is_copy = True
        elif self._count + count > self._tail_index:
            whole = records_to_mirror(batch, self._position, self._settings) if records is None else records
            self._expect(whole)
        if records is None or count <= self._left:
            self._position = header.next_offset
        else:
            records = records[: self._left]
            count = self._left
            self._position = records[-1].offset + 1
        self._add_runs(header, records)
        self._source_leader_epoch = header.leader_epoch
        self._count += count
        self._left -= count
        return self._left == 0

    def _is_behind_gap(self, decision: Decision, header: BatchHeader, records: list[Record] | None) -> bool:
        """Whether offsets are missing that may have had records to mirror: before a batch, or in it."""
        if header.magic != 2 and records:
            return records[-1].offset - self._offset + 1 != len(records)
        has_holes = decision is Decision.DROP_EMPTY or (not decision.is_drop and header.has_holes)
        return has_holes or header.base_offset > self._offset

    def _decode(self, decision: Decision, batch: RecordBatch) -> list[Record] | None:
        """Return a batch's records where it is not copied as it is: it may be there in part."""
        if decision is not Decision.COPY:
            return records_to_mirror(batch, self._position, self._settings)
        if batch.header.records_count <= self._left:
            return None
        # It may have been joined with those before it, and what came of them cut (--rebatch, also of then).
        with suppress(UnsupportedBatch):
            return records_to_mirror(batch, self._position, self._settings)
        return None

    def _expect(self, records: Sequence[Record]) -> None:
        for index, record in enumerate(records, self._count):
            if index >= self._tail_index:
                self._expected[index] = record

    def _add_runs(self, header: BatchHeader, records: Sequence[Record] | None) -> None:
        if records is None:
            add_run(self._runs, header.base_offset, header.next_offset, self._count)
            return
        for index, record in enumerate(records, self._count):
            add_run(self._runs, record.offset, record.offset + 1, index)

    def end(self) -> Place | None:
        """Return where the walk ended, if it is long enough and the tail is what the source has."""
        if self._has_gap or self._left or not (self._is_copy or self._matches()):
            return None
        runs = tuple((start, end, before) for start, end, before in self._runs)
        return Place(self._position, self._source_leader_epoch, runs)

    def _matches(self) -> bool:
        first = self._tail.header.base_offset
        try:
            records = self._tail.records
        except (CorruptBatch, UnsupportedBatch):
            return False
        for record in records:
            index = self._tail_index + record.offset - first
            if index < 0:
                continue  # before the pair: it was acknowledged
            expected = self._expected.get(index)
            if expected is None or not self._tail.is_same_record(record, expected):
                return False
        # Compaction may have left an empty batch, to remember the writer's sequence by.
        return bool(records) or is_ours(self._tail.header, self._identity)


# Where there is no pair, or it leads nowhere


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a search for a batch came to.

    Attributes:
        places: Those behind it, each time that it is there.
        compacted: Whether the log shows that compaction was there: what is
            not found may have been changed.
        is_rest: Whether the source has no more than the batch's end there, as
            the first messages of its log.
        has_last_record: Whether a batch that was decoded has the last record
            of the batch, however the others are.

    """

    places: tuple[Place, ...]
    compacted: bool
    is_rest: bool = False
    has_last_record: bool = False


def find(clusters: Clusters, copy: PartitionCopy, tail: Tail) -> Found:
    """
    Look for the destination's last batch in the source.

    By its time at first, then everywhere: on a LogAppendTime topic the two sides' times differ. If batches
    are joined, it may be made of several. If it was made of messages of an old format, of which the source
    deleted the first since, the others show the place.
    """
    header = tail.header
    timestamp = -1 if header.is_log_append_time else header.max_timestamp
    by_time = _offset_at(clusters, copy.source, timestamp) if timestamp >= 0 else -1
    earliest = _offset_at(clusters, copy.source, EARLIEST)
    found = _search(clusters, copy, tail, max(by_time, earliest), is_all=by_time <= earliest)
    if not found.places and by_time > earliest:
        found = _search(clusters, copy, tail, earliest, is_all=True)
    if not found.places and clusters.settings.rebatch is not None:
        found = find_by_records(clusters, copy, tail)
    return found


def find_by_records(clusters: Clusters, copy: PartitionCopy, tail: Tail) -> Found:
    """Look for the records of the last batch, however the source has batched them; decodes all of it."""
    earliest = _offset_at(clusters, copy.source, EARLIEST)
    return _search(clusters, copy, tail, earliest, is_all=True, joined=True)


def _offset_at(clusters: Clusters, partition: TopicPartition, timestamp: int) -> int:
    offset = list_offsets(clusters.source, {partition: timestamp})[partition]
    if isinstance(offset, ShoalError):
        raise offset
    return offset


def _search(
    clusters: Clusters, copy: PartitionCopy, tail: Tail, offset: int, *, is_all: bool, joined: bool = False
) -> Found:
    """Look from an offset on, if ``is_all`` the log's first; ``joined`` decodes everything."""
    level = clusters.settings.source.isolation_level
    keep = clusters.settings.keep_append_time
    window = _Window(tail, is_all=is_all)
    places: list[Place] = []
    compacted = False
    for decision, batch in read_decided(clusters.source, copy.source, offset, level, keep_append_time=keep):
        compacted = compacted or batch.header.has_holes
        if decision.is_drop:
            continue
        if tail.is_copy_of(batch):
            places.append(Place(batch.header.next_offset, batch.header.leader_epoch))
        if batch.header.magic == 2 and not joined:
            window.clear()
        if joined or decision is not Decision.COPY or _may_be_recompressed(tail, batch):
            with suppress(UnsupportedBatch):  # nor was it mirrored then
                places += window.take(batch, records_to_mirror(batch, 0, clusters.settings))
    is_rest = not places and bool(window.places_of_rest)
    found = tuple(dict.fromkeys(window.places_of_rest if is_rest else places))
    return Found(found, compacted, is_rest, window.has_last_record)


def _may_be_recompressed(tail: Tail, batch: RecordBatch) -> bool:
    """Whether the destination's broker may have made one batch of the other."""
    return (
        tail.header.codec_id != batch.header.codec_id
        and tail.header.records_count == batch.header.records_count
    )


class _Window:
    """
    The source's newest records, as many as the tail has: several messages may have made one batch.

    Attributes:
        places_of_rest: The places behind the source's first messages if the tail ends with these: the source
            may have deleted those before them. Only of magic 0 and 1: a batch of magic 2 is deleted whole.
        has_last_record: Whether the tail's last record was among those that were taken.

    """

    def __init__(self, tail: Tail, *, is_all: bool) -> None:
        self.places_of_rest: list[Place] = []
        self.has_last_record = False
        self._tail = tail
        self._is_all = is_all
        self._wanted: Sequence[Record] = ()
        with suppress(UnsupportedBatch, CorruptBatch):  # what was copied is known without being decoded
            self._wanted = tail.records
        self._records: deque[Record] = deque(maxlen=len(self._wanted))

    def clear(self) -> None:
        self._records.clear()
        self._is_all = False

    def take(self, batch: RecordBatch, records: Sequence[Record]) -> list[Place]:
        """Go on by the records of a batch; return the places behind those with which the tail may end."""
        places = []
        for record in records:
            self._records.append(record)
            if not self._ends_alike():
                continue
            self.has_last_record = True
            if self._matches():
                end = batch.header.next_offset if record is records[-1] else record.offset + 1
                places.append(Place(end, batch.header.leader_epoch))
            elif self._is_all and batch.header.magic < 2 and self._is_rest():
                self.places_of_rest.append(Place(record.offset + 1, batch.header.leader_epoch))
        return places

    def _matches(self) -> bool:
        return 0 < len(self._wanted) == len(self._records) and self._are_the_last()

    def _is_rest(self) -> bool:
        return len(self._records) < len(self._wanted) and self._are_the_last()

    def _ends_alike(self) -> bool:
        return bool(self._wanted) and self._tail.is_same_record(self._wanted[-1], self._records[-1])

    def _are_the_last(self) -> bool:
        """Whether the tail ends with the records in the window."""
        from_the_end = zip(reversed(self._wanted), reversed(self._records), strict=False)
        return all(self._tail.is_same_record(*each) for each in from_the_end)
