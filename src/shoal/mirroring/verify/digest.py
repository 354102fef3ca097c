"""What is kept of a batch to compare it: a few numbers instead of its bytes."""

from __future__ import annotations

import enum
from typing import NamedTuple

from ...records import Codec, Decision, Fingerprint, RecordBatch, fingerprint
from ...records.batch import DELETE_HORIZON, LOG_APPEND_TIME

__all__ = [
    "Agreement",
    "Digest",
    "Likeness",
    "agree",
    "digest",
    "likeness",
    "may_hold_the_same",
    "why_not_decoded",
]


class Digest(NamedTuple):
    """
    A batch of one side, without its bytes.

    Attributes:
        base_offset: Of its first record.
        next_offset: The first offset after it.
        follows: ``next_offset`` of the digest before it on this side. What
            lies between (transaction markers, aborted batches, gaps) is not
            compared.
        gap_before: How many offsets between the two have no record in any
            batch: compaction took them, or deletion.
        records_count: None where only decoding tells.
        fingerprint: None where the bytes cannot be those of the other side.
        codec_id: Bits 0 to 2 of the attributes.
        recompressed: Whether the topic's ``compression.type`` makes its
            brokers write this codec, whatever a producer sends.
        first_timestamp: Of its first record, in milliseconds; None where the
            header does not say.
        undecoded: Why the batch would have to be decoded to be compared; None
            for most.
        damage: Why it does not match its own CRC; None for a sound one.

    """

    base_offset: int
    next_offset: int
    follows: int
    gap_before: int
    records_count: int | None
    fingerprint: Fingerprint | None
    codec_id: int
    recompressed: bool
    first_timestamp: int | None
    undecoded: str | None
    damage: str | None

    @property
    def records(self) -> int:
        """How many records it holds, or how many offsets it takes where only decoding tells."""
        return self.next_offset - self.base_offset if self.records_count is None else self.records_count


class Agreement(enum.Enum):
    """What can be said of two batches in the same place."""

    SAME = enum.auto()
    UNDECODED = enum.auto()
    NONE = enum.auto()


def digest(
    batch: RecordBatch,
    decision: Decision,
    *,
    follows: int,
    gap_before: int,
    damage: str | None,
    recompressed: bool = False,
) -> Digest:
    """Summarise a batch that is neither dropped nor empty; keeps no view of it."""
    header = batch.header
    if header.magic != 2 or decision is Decision.CROP:
        # Its copy would be another batch: how many records, only decoding tells.
        return Digest(
            header.base_offset,
            header.next_offset,
            follows,
            gap_before,
            None,
            None,
            header.codec_id,
            recompressed,
            None,
            _WHY_UNDECODED[decision],
            damage,
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
        recompressed,
        header.base_timestamp if is_telling else None,
        _WHY_UNDECODED[Decision.REBUILD_HOLES] if header.has_holes else None,
        damage,
    )


_WHY_UNDECODED = {
    Decision.CROP: "the mirror began in the middle of a batch",
    Decision.REBUILD_HOLES: "compaction took records out of a batch",
    Decision.REBUILD_MAGIC: "the message format is that of Kafka before 0.11",
}


def agree(source: Digest, destination: Digest) -> Agreement:
    """
    Compare a source batch with a destination batch.

    Returns:
        ``UNDECODED`` where the bytes cannot match (a broker recompressed
        them, compaction changed them, a mirror had to rebuild them), and the
        number of records and the time of the first do not contradict.

    """
    if source.fingerprint == destination.fingerprint and source.fingerprint is not None:
        return Agreement.SAME
    is_decodable = source.undecoded or destination.undecoded or _is_recompressed(source, destination)
    return Agreement.UNDECODED if is_decodable and may_hold_the_same(source, destination) else Agreement.NONE


def _is_recompressed(source: Digest, destination: Digest) -> bool:
    return destination.recompressed and source.codec_id != destination.codec_id


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

    Size, number of records and base timestamp; None where the copy would be another batch.
    """
    found = batch.fingerprint
    return None if found is None else (found.size, found.records_count, found.base_timestamp)


def why_not_decoded(source: Digest, destination: Digest) -> str:
    """Say why two batches that agree as ``UNDECODED`` cannot be compared by their bytes."""
    reason = source.undecoded or destination.undecoded
    if reason is not None:
        side = "source" if source.undecoded else "destination"
        return f"{reason} ({side}): they would have to be decoded"
    return (
        f"the destination's broker recompressed {_codec(source)} to {_codec(destination)}, as brokers do "
        "where compression.type is not producer: they would have to be decoded"
    )


def _codec(batch: Digest) -> str:
    try:
        return Codec(batch.codec_id).name.lower()
    except ValueError:
        return f"codec {batch.codec_id}"
