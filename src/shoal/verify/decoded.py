"""
Records of two sides whose batches are not the same, compared one by one. No I/O.

A mirror crops and rebuilds batches, and a broker may recompress them: then
the same records are in other batches. Where both sides are in step and their
next batches are not the same, they are decoded side by side, one batch at a
time, until a batch ends on both sides at once (:func:`compare_decoded`). As
long as the records are the same, nothing is searched for: so a copy that is
equal is never taken for another, wherever it was cut.

From the first difference on, records are digests like batches, and compared
by :mod:`.diff` as batches are (:class:`RecordStream`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..records import Record
from .digest import Digest, record_digest
from .errors import NotDecodable
from .finding import Finding, Kind
from .look_ahead import LookAhead

__all__ = ["Decoded", "Decoder", "Decoders", "RecordStream", "Times", "compare_decoded"]

#: A record that cannot be read takes its place in a stream, but a damaged
#: header may claim any number of them.
_MOST_UNREADABLE = 1_000_000


@dataclass(frozen=True, slots=True)
class Decoded:
    """
    A batch's records.

    Attributes:
        records: Those that count, with their create times.
        append_time: That of the batch, where it is LogAppendTime; None else.

    """

    records: list[Record]
    append_time: int | None


class Decoder(Protocol):
    """Whoever can get at the bytes of a batch again."""

    def decode(self, batch: Digest) -> Decoded:
        """
        Return a batch's records.

        Raises:
            NotDecodable: It is too large, or damaged.
            ShoalError: It cannot be fetched any more.

        """
        ...


#: The source's, and the destination's.
Decoders = tuple[Decoder, Decoder]


class _Cursor:
    """One side's batches, decoded one at a time."""

    def __init__(self, batches: LookAhead, decoder: Decoder) -> None:
        self.batch: Decoded | None = None
        self.index = 0
        self._batches = batches
        self._decoder = decoder

    def load(self) -> bool:
        """Decode the next batch, unless there is one; return whether there is."""
        if self.batch is not None:
            return True
        first = self._batches.first()
        if first is None or first.damage or first.undecoded:
            return False
        try:
            self.batch = self._decoder.decode(first)
        except NotDecodable as error:
            self._batches.replace(0, first._replace(undecoded=str(error)))
            return False
        return True

    @property
    def is_through(self) -> bool:
        return self.batch is not None and self.index == len(self.batch.records)

    def pop(self) -> Digest:
        """Take the batch, all of whose records were found on the other side."""
        assert self.batch is not None
        batch = self._batches.pop()._replace(records_count=len(self.batch.records))
        self.batch, self.index = None, 0
        return batch


def compare_decoded(
    source: LookAhead, destination: LookAhead, decoders: Decoders
) -> Generator[Finding, None, tuple[int, int] | None]:
    """
    Compare record by record, from where both sides are in step until they are again.

    Takes the batches whose records are all the same, and no others.

    Yields:
        A finding ``DECODED`` for each of them.

    Returns:
        None where both are in step again. Else how many records of the next
        batches are to be passed over: in front of these something is not the
        same, or cannot be decoded, or one side is at its end. One of the two
        is 0, and what lies just behind the place is the same as far as that
        batch reaches back.

    """
    ours, theirs = _Cursor(source, decoders[0]), _Cursor(destination, decoders[1])
    while ours.load() and theirs.load():
        assert ours.batch is not None
        assert theirs.batch is not None
        same = _same_records(ours.batch, ours.index, theirs.batch, theirs.index)
        ours.index += same
        theirs.index += same
        if not (ours.is_through or theirs.is_through):
            break
        place = source.position, destination.position
        if ours.is_through:
            yield Finding(Kind.DECODED, (ours.pop(),), (), *place)
        if theirs.is_through:
            yield Finding(Kind.DECODED, (), (theirs.pop(),), *place)
        if ours.batch is None and theirs.batch is None:
            return None
    # Back to where the later of the two batches begins: whoever looks for what
    # is not the same should know what was before it.
    back = min(ours.index, theirs.index)
    return ours.index - back, theirs.index - back


def _same_records(ours: Decoded, i: int, theirs: Decoded, j: int) -> int:
    """Return how many records are the same, from two indexes on."""
    count = min(len(ours.records) - i, len(theirs.records) - j)
    is_timed, append_time = theirs.append_time is None, ours.append_time
    for index in range(count):
        _, timestamp, body = ours.records[i + index]
        _, other_timestamp, other_body = theirs.records[j + index]
        if body != other_body:
            return index
        if timestamp != other_timestamp and is_timed and other_timestamp != append_time:
            return index
    return count


@dataclass(frozen=True, slots=True)
class Times:
    """
    Which timestamps count where records are compared by their digests.

    Attributes:
        are_compared: Not where the destination writes its own.
        of_append: The source's records have the append times of their
            batches at the destination (``--keep-append-time``).

    """

    are_compared: bool = True
    of_append: bool = False

    @classmethod
    def seen(cls, source: Decoded | None, destination: Decoded | None) -> Times:
        """Find out from the batches in which both sides begin to differ."""
        if destination is None:
            return cls()
        append_time = source.append_time if source else None
        times = {record.timestamp for record in destination.records}
        return cls(destination.append_time is None, append_time is not None and append_time in times)

    def digest(self, record: Record, append_time: int | None) -> Digest:
        """Summarise a record by itself; ``append_time`` is that of its batch."""
        return record_digest(
            record,
            self.of(record, append_time),
            follows=record.offset,
            gap_before=0,
            codec_id=0,
            is_last=False,
        )

    def of(self, record: Record, append_time: int | None) -> int:
        """Return the time of a record that counts."""
        if not self.are_compared:
            return -1
        return append_time if self.of_append and append_time is not None else record.timestamp


class RecordStream:
    """
    One side's records as digests, from its next batch on. Iterate over it once.

    The batches stay where they are, until :meth:`take` is told how far they
    are compared.

    Attributes:
        start: The offset of the first record.

    """

    def __init__(self, batches: LookAhead, decoder: Decoder, skip: int) -> None:
        """
        Args:
            batches: That side's.
            decoder: Decodes them.
            skip: How many records to pass over.
        """
        self._batches = batches
        self._decoder = decoder
        self._skip = skip
        self._index = 0
        self.first = self._try_to_decode(0)
        self.start = batches.position
        if self.first is not None and skip:
            self.start = self.first.records[skip - 1].offset + 1

    def _try_to_decode(self, index: int) -> Decoded | None:
        batch = self._batches.at(index)
        if batch is None or batch.damage or batch.undecoded:
            return None
        try:
            return self._decoder.decode(batch)
        except NotDecodable as error:
            self._batches.replace(index, batch._replace(undecoded=str(error)))
            return None

    def passed_over(self) -> Digest | None:
        """Return the part of the first batch that is passed over, as a batch of its own."""
        batch = self._batches.first()
        if not self._skip or batch is None:
            return None
        return batch._replace(next_offset=self.start, records_count=self._skip, is_record=True)

    def passed(self, times: Times, most: int) -> list[Digest]:
        """Return the last so many of the records that are passed over."""
        if self.first is None:
            return []
        passed = self.first.records[max(0, self._skip - most) : self._skip]
        return [times.digest(record, self.first.append_time) for record in passed]

    def digests(self, times: Times) -> Iterator[Digest]:
        """
        Yield records; for a batch that cannot be read, as many as it has.

        Raises:
            ShoalError: What broke the batches off.

        """
        skip, end, holes = self._skip, self.start, 0
        while (batch := self._batches.at(self._index)) is not None:
            decoded, self.first = self.first or self._try_to_decode(self._index), None
            if decoded is None:
                yield from _unreadable(self._batches.at(self._index) or batch)
                end, holes = batch.next_offset, 0
            else:
                at = batch.base_offset
                holes += batch.gap_before
                if skip:
                    at, holes = end, 0
                last = len(decoded.records) - 1
                for number in range(skip, last + 1):
                    record = decoded.records[number]
                    yield record_digest(
                        record,
                        times.of(record, decoded.append_time),
                        follows=end,
                        gap_before=holes + record.offset - at,
                        codec_id=batch.codec_id,
                        is_last=number == last,
                    )
                    at = end = record.offset + 1
                    holes = 0
                holes += max(0, batch.next_offset - at)
                skip = 0
            self._index += 1
        if self._batches.failure is not None:
            raise self._batches.failure

    def take(self, position: int) -> None:
        """Take the batches all of whose records lie before an offset."""
        while self._index and (batch := self._batches.first()) and batch.next_offset <= position:
            self._batches.pop()
            self._index -= 1

    def take_begun(self, position: int) -> None:
        """Take the batches that begin before an offset, which is the end of one of them."""
        while (batch := self._batches.first()) and batch.base_offset < position:
            self._batches.pop()


def _unreadable(batch: Digest) -> Iterator[Digest]:
    """Yield what stands for the records of a batch that cannot be read."""
    count = min(batch.records, _MOST_UNREADABLE)
    for number in range(count):
        is_last = number + 1 == count
        offset = batch.base_offset + number
        yield batch._replace(
            base_offset=offset,
            next_offset=batch.next_offset if is_last else offset + 1,
            follows=offset if number else batch.follows,
            gap_before=0 if number else batch.gap_before,
            records_count=1,
            fingerprint=None,
            first_timestamp=None,
            is_record=True,
            is_last=is_last,
        )
