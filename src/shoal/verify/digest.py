"""The numbers that are kept of a batch, or of one of its records, to compare it without its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from ..records import PACKED_FINGERPRINT, Decision, Fingerprint, Record, RecordBatch, fingerprint
from ..records.batch import DELETE_HORIZON, LOG_APPEND_TIME

__all__ = [
    "UNCOMPARED_TIME",
    "Digest",
    "DigestRun",
    "Digests",
    "Entry",
    "are_pair",
    "are_same",
    "begin_pair",
    "count_of",
    "digest",
    "entry",
    "last_of",
    "resemble",
    "unreadable_entry",
]


#: The time of an entry if the destination writes its own.
UNCOMPARED_TIME = -1


class Digest(NamedTuple):
    """
    A batch of one side without its bytes.

    Attributes:
        base_offset: The offset of its first record that counts.
        next_offset: The first offset after it.
        follows: ``next_offset`` of the digest before it on this side. Transaction
            markers, aborted batches and gaps between the two are not compared.
        gap_before: The number of offsets between the two without a record,
            since compaction or DeleteRecords took them.
        records_count: None if the header does not have it.
        fingerprint: None if the copy cannot have the same bytes.
        codec_id: Bits 0 to 2 of the attributes.
        first_timestamp: Its first record's, in milliseconds; None if the
            header does not have it.
        undecoded: The reason that decoding failed, once that was tried.
        damage: The reason that it does not match its own CRC; None for a sound one.

    """

    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    records_count: int | None
    fingerprint: Fingerprint | None
    codec_id: int
    first_timestamp: int | None
    undecoded: str | None = None
    damage: str | None = None

    @property
    def records(self) -> int:
        """The number of its records, or of its offsets if that is not known."""
        return self.next_offset - self.base_offset if self.records_count is None else self.records_count

    @property
    def batch(self) -> Digest:
        """As an entry's: the batch itself."""
        return self

    @property
    def is_first(self) -> bool:
        """As an entry's: a batch begins here."""
        return True

    @property
    def is_last(self) -> bool:
        """As an entry's: a batch ends here."""
        return True

    @property
    def is_readable(self) -> bool:
        """Whether its records can be compared, as far as is known."""
        return not (self.damage or self.undecoded)


_ROW_BYTES = PACKED_FINGERPRINT.size
#: The index of the records count among the 32-bit words of a row, and how many words a row has.
_COUNT_WORD, _ROW_WORDS = 2, _ROW_BYTES // 4


@dataclass(frozen=True, slots=True)
class DigestRun:
    """
    Plain batches of one side that follow each other without a gap, as rows of 24 bytes.

    Equal batches have equal rows, so two runs are compared as bytes. The digest
    of a batch is made only if it is wanted.

    Attributes:
        rows: As :attr:`~shoal.records.PlainFingerprints.packed`.
        begin: The index of the first row that counts.
        end: The index after the last.
        base_offset: The first batch's.
        next_offset: The first offset after the last batch.
        follows, gap_before: As in the first batch's digest.
        is_telling: Whether the base timestamps are those of the first records.

    """

    rows: bytes
    begin: int
    end: int
    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    is_telling: bool

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def records(self) -> int:
        """The number of records."""
        return self.next_offset - self.base_offset

    def split(self, count: int) -> tuple[DigestRun, DigestRun | None]:
        """Return the first batches, ``count`` of them at most, and the others if there are any."""
        middle = self.begin + count
        if middle >= self.end:
            return self, None
        words = memoryview(self.rows).cast("I")
        counts = words[self.begin * _ROW_WORDS + _COUNT_WORD : middle * _ROW_WORDS : _ROW_WORDS]
        offset = self.base_offset + sum(counts)
        return (
            replace(self, end=middle, next_offset=offset),
            replace(self, begin=middle, base_offset=offset, follows=offset, gap_before=0),
        )

    def last(self, most: int) -> DigestRun:
        """Return the last batches, ``most`` of them at most."""
        _, rest = self.split(max(0, len(self) - most)) if len(self) > most else (None, self)
        return rest or self

    def same_as(self, other: DigestRun) -> int:
        """Return how many batches are the same from the beginning of both on."""
        same, differing = 0, min(len(self), len(other))
        if self._slice(0, differing) == other._slice(0, differing):
            return differing
        # The first difference is between the two.
        while differing - same > 1:
            middle = (same + differing) // 2
            if self._slice(same, middle) == other._slice(same, middle):
                same = middle
            else:
                differing = middle
        return same

    def _slice(self, begin: int, end: int) -> bytes:
        return self.rows[(self.begin + begin) * _ROW_BYTES : (self.begin + end) * _ROW_BYTES]

    def digests(self) -> Iterator[Digest]:
        """Yield the digest of each batch."""
        offset, follows, gap_before = self.base_offset, self.follows, self.gap_before
        rows = PACKED_FINGERPRINT.iter_unpack(self._slice(0, len(self)))
        for crc, size, count, codec_id, base_timestamp in rows:
            found = Fingerprint(crc, size, count, base_timestamp)
            first_timestamp = base_timestamp if self.is_telling else None
            yield Digest(offset, offset + count, follows, gap_before, count, found, codec_id, first_timestamp)
            offset += count
            follows, gap_before = offset, 0


#: One batch, or many in a row.
Digests: TypeAlias = Digest | DigestRun


def count_of(found: Digests) -> int:
    """Return the number of batches."""
    return len(found) if isinstance(found, DigestRun) else 1


def last_of(found: Digests, most: int) -> Iterator[Digest]:
    """Yield the last batches, ``most`` of them at most."""
    return found.last(most).digests() if isinstance(found, DigestRun) else iter((found,))


class Entry(NamedTuple):
    """
    A record of a batch that was decoded, without its bytes.

    Attributes:
        next_offset: The first offset after it.
        follows: ``next_offset`` of the record before it on this side.
        gap_before: The number of offsets between the two without a record.
        fingerprint: A hash of key, value and headers, their size, and the
            timestamp that counts; None if its batch cannot be read.
        batch: The batch that it is in.
        is_first: Whether its batch begins with it.
        is_last: Whether its batch ends with it.
        append_time: Its batch's, if that is LogAppendTime; None otherwise.

    """

    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    fingerprint: Fingerprint | None
    batch: Digest
    is_first: bool
    is_last: bool
    append_time: int | None = None

    @property
    def records(self) -> int:
        """One."""
        return 1

    @property
    def damage(self) -> str | None:
        """The batch's value."""
        return self.batch.damage

    @property
    def undecoded(self) -> str | None:
        """The batch's value."""
        return self.batch.undecoded

    @property
    def first_timestamp(self) -> int | None:
        """Its time; if it cannot be read, its batch's if it is the first there, else None."""
        if self.fingerprint is not None:
            return self.fingerprint.base_timestamp
        return self.batch.first_timestamp if self.is_first else None


def digest(
    batch: RecordBatch,
    decision: Decision,
    start_offset: int,
    *,
    follows: int,
    gap_before: int,
    damage: str | None,
) -> Digest:
    """
    Summarise a batch that is neither dropped nor empty; keeps no view of it.

    Args:
        decision: The mirror's decision about it.
        start_offset: The offset of its first record that counts, if that is not its first.
        follows, gap_before, damage: See :class:`Digest`.

    """
    header = batch.header
    if header.magic != 2 or decision is Decision.CROP:
        # Its copy is another batch, and the header does not have its number of records.
        is_message = header.magic != 2 and not header.codec_id
        return Digest(
            header.base_offset if is_message else start_offset,
            header.next_offset,
            follows,
            gap_before,
            1 if is_message else None,
            None,
            header.codec_id,
            None,
            damage=damage,
        )
    # On a LogAppendTime topic a broker that recompresses writes its own time;
    # under a delete horizon base_timestamp is that (KIP-534); and the cleaner
    # takes the first record that it keeps.
    is_telling = not (header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) or header.has_holes)
    return Digest(
        header.base_offset,
        header.next_offset,
        follows,
        gap_before,
        header.records_count,
        fingerprint(batch),
        header.codec_id,
        header.base_timestamp if is_telling else None,
        damage=damage,
    )


def entry(
    record: Record,
    timestamp: int,
    batch: Digest,
    *,
    follows: int,
    gap_before: int,
    is_first: bool = False,
    is_last: bool = False,
    append_time: int | None = None,
) -> Entry:
    """Summarise a record of a batch; ``timestamp`` is the one that counts."""
    # 64 bits; within a process, equal bytes have an equal hash.
    found = Fingerprint(hash(bytes(record.body)), len(record.body), 1, timestamp)
    return Entry(
        record.offset, record.offset + 1, follows, gap_before, found, batch, is_first, is_last, append_time
    )


def unreadable_entry(
    batch: Digest, offset: int, *, follows: int, gap_before: int, is_first: bool, is_last: bool
) -> Entry:
    """Return an entry in place of a record whose batch cannot be read."""
    end = batch.next_offset if is_last else offset + 1
    return Entry(offset, end, follows, gap_before, None, batch, is_first, is_last)


def are_same(source: Digest | Entry, destination: Digest | Entry) -> bool:
    """Whether two batches, or two records, are the same by their bytes."""
    return source.fingerprint == destination.fingerprint and source.fingerprint is not None


def are_pair(source: Entry, destination: Entry) -> bool:
    """Whether two records are the same, or one cannot be read and no time contradicts."""
    if source.fingerprint is not None and destination.fingerprint is not None:
        return source.fingerprint == destination.fingerprint
    return _have_one_time(source, destination) is not False


def begin_pair(source: Entry, destination: Entry) -> bool:
    """Whether two records are the same, or one cannot be read and their times are the same."""
    if source.fingerprint is not None and destination.fingerprint is not None:
        return source.fingerprint == destination.fingerprint
    return _have_one_time(source, destination) is True


def _have_one_time(source: Entry, destination: Entry) -> bool | None:
    """Compare times; None if that of one is unknown."""
    times = source.first_timestamp, destination.first_timestamp
    return None if None in times or UNCOMPARED_TIME in times else times[0] == times[1]


def resemble(source: Digest, destination: Digest) -> bool:
    """
    Whether headers suggest that two batches hold the same records in another codec.

    Number of records and time of the first are the same.
    """
    times = source.first_timestamp, destination.first_timestamp
    if source.codec_id == destination.codec_id or None in times or times[0] != times[1]:
        return False
    if source.records_count is None or destination.records_count is None:
        return False
    # A batch with holes was copied before compaction, or rebuilt after it:
    # its copy has as many records as it had offsets then, or as it has records.
    return not _counts(source).isdisjoint(_counts(destination))


def _counts(batch: Digest) -> set[int]:
    return {batch.records, batch.next_offset - batch.base_offset}
