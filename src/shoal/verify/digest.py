"""What is kept of a batch, or of one of its records, to compare it: a few numbers instead of bytes."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ..records import Decision, Fingerprint, Record, RecordBatch, fingerprint
from ..records.batch import DELETE_HORIZON, LOG_APPEND_TIME

__all__ = [
    "Agreement",
    "Digest",
    "Likeness",
    "agree",
    "digest",
    "likeness",
    "may_hold_the_same",
    "record_digest",
    "resemble",
]


class Digest(NamedTuple):
    """
    A batch of one side without its bytes, or one record of a batch that was decoded.

    Attributes:
        base_offset: Of its first record that counts.
        next_offset: The first offset after it.
        follows: ``next_offset`` of the digest before it on this side. What
            lies between (transaction markers, aborted batches, gaps) is not
            compared.
        gap_before: How many offsets between the two have no record:
            compaction took them, or deletion.
        records_count: None where only decoding tells.
        fingerprint: None where the bytes cannot be those of the other side.
        codec_id: Bits 0 to 2 of the attributes.
        first_timestamp: Of its first record, in milliseconds; None where the
            header does not say.
        is_rebuilt: Whether a mirror has to make another batch of it.
        undecoded: Why it could not be decoded, once that was tried.
        damage: Why it does not match its own CRC; None for a sound one.
        is_record: It is one record.
        is_last: It is the last record of its batch.

    """

    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    records_count: int | None
    fingerprint: Fingerprint | None
    codec_id: int
    first_timestamp: int | None
    is_rebuilt: bool = False
    undecoded: str | None = None
    damage: str | None = None
    is_record: bool = False
    is_last: bool = False

    @property
    def records(self) -> int:
        """How many records it holds, or how many offsets it takes where only decoding tells."""
        return self.next_offset - self.base_offset if self.records_count is None else self.records_count


class Agreement(enum.Enum):
    """What can be said of two batches, or two records, in the same place."""

    SAME = enum.auto()
    UNDECODED = enum.auto()
    NONE = enum.auto()


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
        decision: What a mirror would do with it.
        start_offset: Of its first record that counts, if that is not its first.
        follows: See :class:`Digest`.
        gap_before: Likewise.
        damage: Likewise.

    """
    header = batch.header
    if header.magic != 2 or decision is Decision.CROP:
        # Its copy is another batch: how many records, only decoding tells.
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
            is_rebuilt=True,
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
        is_rebuilt=header.has_holes,
        damage=damage,
    )


def record_digest(
    record: Record, timestamp: int, *, follows: int, gap_before: int, codec_id: int, is_last: bool
) -> Digest:
    """
    Summarise a record.

    Args:
        record: The record.
        timestamp: The one that counts.
        follows: The offset after the record before it.
        gap_before: How many offsets lie between the two.
        codec_id: Of its batch.
        is_last: Whether it is the last of its batch.

    """
    # 64 bits of what it holds; of equal bytes, they are equal within a process.
    found = Fingerprint(hash(bytes(record.body)), len(record.body), 1, timestamp)
    return Digest(
        record.offset,
        record.offset + 1,
        follows,
        gap_before,
        1,
        found,
        codec_id,
        timestamp,
        is_record=True,
        is_last=is_last,
    )


def agree(source: Digest, destination: Digest) -> Agreement:
    """
    Compare a source batch with a destination batch, or two records.

    Returns:
        ``UNDECODED`` where one of them could not be decoded or is damaged,
        and the number of records and the time of the first do not contradict.

    """
    if source.fingerprint == destination.fingerprint and source.fingerprint is not None:
        return Agreement.SAME
    is_readable = not (source.undecoded or destination.undecoded or source.damage or destination.damage)
    if is_readable or None in (source.records_count, destination.records_count):
        return Agreement.NONE
    return Agreement.UNDECODED if may_hold_the_same(source, destination) else Agreement.NONE


def resemble(source: Digest, destination: Digest) -> bool:
    """
    Whether headers speak for two batches holding the same records, or bytes prove it.

    They speak for it where the bytes cannot match (a broker recompressed
    them, a mirror rebuilt them), and number and time of the first are the same.

    """
    agreement = agree(source, destination)
    if agreement is not Agreement.NONE or source.is_record:
        return agreement is not Agreement.NONE
    times = source.first_timestamp, destination.first_timestamp
    return (
        source.codec_id != destination.codec_id
        and None not in (*times, source.records_count, destination.records_count)
        and may_hold_the_same(source, destination)
    )


def may_hold_the_same(source: Digest, destination: Digest) -> bool:
    """Whether the number of records and the time of the first do not contradict."""
    times = source.first_timestamp, destination.first_timestamp
    if None not in times and times[0] != times[1]:
        return False
    if source.records_count is None or destination.records_count is None:
        return True
    # A batch with holes was copied before compaction, or rebuilt after it:
    # its copy has as many records as it had offsets then, or as it has records.
    return not _counts(source).isdisjoint(_counts(destination))


def _counts(batch: Digest) -> set[int]:
    return {batch.records, batch.next_offset - batch.base_offset}


Likeness = tuple[int, int, int]


def likeness(batch: Digest) -> Likeness | None:
    """
    Return what a batch and an altered copy of it have in common, as far as headers say.

    Size, number of records and base timestamp; None where the copy is another batch.
    """
    found = batch.fingerprint
    return None if found is None else (found.size, found.records_count, found.base_timestamp)
