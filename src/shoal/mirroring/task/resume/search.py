"""The places in the source that follow a certain batch of the destination."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ....client.offsets import EARLIEST
from ....errors import CorruptBatch, UnsupportedBatch
from ....records import Decision, Record, RecordBatch
from .logs import PartitionLogs
from .tail import Tail

__all__ = ["SearchResult", "SourcePlace", "find", "find_by_records"]


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """
    A place in the source behind the destination's records.

    Attributes:
        source_offset: The next to mirror.
        source_leader_epoch: The leader epoch of the batch before it.
        runs: The spans on the way: source start, source end, and the number of records before it.

    """

    source_offset: int
    source_leader_epoch: int = -1
    runs: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """
    The result of a search for a batch.

    Attributes:
        places: The places behind it, one for each time that the source has it.
        compacted: Whether the log was compacted, so that a batch that is not
            found may have been changed.
        is_rest: Whether the source has no more than the batch's end there, as
            the first messages of its log.
        has_last_record: Whether a batch that was decoded has the last record
            of the batch, however the others are.

    """

    places: tuple[SourcePlace, ...]
    compacted: bool
    is_rest: bool = False
    has_last_record: bool = False


def find(logs: PartitionLogs, tail: Tail) -> SearchResult:
    """
    Look for the destination's last batch in the source.

    By its time at first, then everywhere: on a LogAppendTime topic the two sides' times differ. If batches
    are joined, it may be made of several. If it was made of messages of an old format, of which the source
    deleted the first since, the others show the place.
    """
    header = tail.header
    timestamp = -1 if header.is_log_append_time else header.max_timestamp
    by_time = logs.source_offset_at(timestamp) if timestamp >= 0 else -1
    earliest = logs.source_offset_at(EARLIEST)
    found = _search(logs, tail, max(by_time, earliest), is_all=by_time <= earliest)
    if not found.places and by_time > earliest:
        found = _search(logs, tail, earliest, is_all=True)
    if not found.places and logs.settings.rebatch is not None:
        found = find_by_records(logs, tail)
    return found


def find_by_records(logs: PartitionLogs, tail: Tail) -> SearchResult:
    """Look for the records of the last batch, however the source has batched them; decodes all of it."""
    earliest = logs.source_offset_at(EARLIEST)
    return _search(logs, tail, earliest, is_all=True, joined=True)


def _search(
    logs: PartitionLogs, tail: Tail, offset: int, *, is_all: bool, joined: bool = False
) -> SearchResult:
    """Look from an offset on, if ``is_all`` the log's first; ``joined`` decodes everything."""
    window = _Window(tail, is_all=is_all)
    places: list[SourcePlace] = []
    compacted = False
    for decision, batch in logs.source_batches(offset):
        compacted = compacted or batch.header.has_holes
        if decision.is_drop:
            continue
        if tail.is_copy_of(batch):
            places.append(SourcePlace(batch.header.next_offset, batch.header.leader_epoch))
        if batch.header.magic == 2 and not joined:
            window.clear()
        if joined or decision is not Decision.COPY or _may_be_recompressed(tail, batch):
            with suppress(UnsupportedBatch):  # nor was it mirrored then
                places += window.take(batch, logs.records_to_mirror(batch, 0))
    is_rest = not places and bool(window.places_of_rest)
    found = tuple(dict.fromkeys(window.places_of_rest if is_rest else places))
    return SearchResult(found, compacted, is_rest, window.has_last_record)


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
        self.places_of_rest: list[SourcePlace] = []
        self.has_last_record = False
        self._tail = tail
        self._is_all = is_all
        self._wanted: Sequence[Record] = ()
        with suppress(UnsupportedBatch, CorruptBatch):  # a copied batch is recognized without being decoded
            self._wanted = tail.records
        self._records: deque[Record] = deque(maxlen=len(self._wanted))

    def clear(self) -> None:
        self._records.clear()
        self._is_all = False

    def take(self, batch: RecordBatch, records: Sequence[Record]) -> list[SourcePlace]:
        """Go on by the records of a batch; return the places behind those with which the tail may end."""
        places = []
        for record in records:
            self._records.append(record)
            if not self._ends_alike():
                continue
            self.has_last_record = True
            if self._matches():
                end = batch.header.next_offset if record is records[-1] else record.offset + 1
                places.append(SourcePlace(end, batch.header.leader_epoch))
            elif self._is_all and batch.header.magic < 2 and self._is_rest():
                self.places_of_rest.append(SourcePlace(record.offset + 1, batch.header.leader_epoch))
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
