"""The numbers that are kept of a batch, or of one of its records, to compare it without its bytes."""

from __future__ import annotations

from typing import NamedTuple

from ..records import Decision, Fingerprint, Record, RecordBatch, fingerprint
from ..records.batch import DELETE_HORIZON, LOG_APPEND_TIME

__all__ = [
    "UNCOMPARED_TIME",
    "Digest",
    "Entry",
    "are_pair",
    "are_same",
    "begin_pair",
    "digest",
    "entry",
    "resemble",
    "unreadable_entry",
]


#: The time of an entry if the destination writes its own.
UNCOMPARED_TIME = -1


class Digest(NamedTuple):
    """
    A batch of one side without its bytes.

    Attributes:
        base_offset: Of its first record that counts.
        next_offset: The first offset after it.
        follows: ``next_offset`` of the digest before it on this side. Transaction
            markers, aborted batches and gaps between the two are not compared.
        gap_before: The number of offsets between the two without a record,
            since compaction or DeleteRecords took them.
        records_count: None if the header does not have it.
        fingerprint: None if the copy cannot have the same bytes.
        codec_id: Bits 0 to 2 of the attributes.
        first_timestamp: Of its first record, in milliseconds; None if the
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


class Entry(NamedTuple):
    """
    A record of a batch that was decoded, without its bytes.

    Attributes:
        base_offset: Its offset.
        next_offset: The first offset after it.
        follows: ``next_offset`` of the record before it on this side.
        gap_before: The number of offsets between the two without a record.
        fingerprint: A hash of key, value and headers, their size, and the
            timestamp that counts; None if its batch cannot be read.
        batch: The batch that it is in.
        is_first: Whether its batch begins with it.
        is_last: Whether its batch ends with it.

    """

    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    fingerprint: Fingerprint | None
    batch: Digest
    is_first: bool
    is_last: bool

    @property
    def records(self) -> int:
        """One."""
        return 1

    @property
    def damage(self) -> str | None:
        """That of its batch."""
        return self.batch.damage

    @property
    def undecoded(self) -> str | None:
        """That of its batch."""
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
        batch: The batch.
        decision: The mirror's decision about it.
        start_offset: Of its first record that counts, if that is not its first.
        follows: See :class:`Digest`.
        gap_before: Likewise.
        damage: Likewise.

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
) -> Entry:
    """Summarise a record of a batch; ``timestamp`` is the one that counts."""
    # 64 bits; within a process, equal bytes have an equal hash.
    found = Fingerprint(hash(bytes(record.body)), len(record.body), 1, timestamp)
    return Entry(record.offset, record.offset + 1, follows, gap_before, found, batch, is_first, is_last)


def unreadable_entry(
    batch: Digest, offset: int, *, follows: int, gap_before: int, is_first: bool, is_last: bool
) -> Entry:
    """Return an entry in place of a record whose batch cannot be read."""
    end = batch.next_offset if is_last else offset + 1
    return Entry(offset, end, follows, gap_before, None, batch, is_first, is_last)


def are_same(source: Digest | Entry, destination: Digest | Entry) -> bool:
    """Whether their bytes say that two batches, or two records, are the same."""
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
