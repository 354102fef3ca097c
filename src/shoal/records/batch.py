"""
A record batch of magic 2: its header as values, its bytes as a view.

=====  ===  ====================  ========================================
 at    len  field                 covered by the CRC
=====  ===  ====================  ========================================
   0     8  base_offset           no: a broker rewrites it
   8     4  batch_length          no; the size of the batch, less 12
  12     4  leader_epoch          no: a broker rewrites it
  16     1  magic                 no
  17     4  crc                   CRC-32C of everything from 21 on
  21     2  attributes            yes
  23     4  last_offset_delta     yes
  27     8  base_timestamp        yes
  35     8  max_timestamp         yes
  43     8  producer_id           yes
  51     2  producer_epoch        yes
  53     4  base_sequence         yes
  57     4  records_count         yes
  61        records               yes; one compressed stream if there is a codec
=====  ===  ====================  ========================================

All numbers are big-endian. The layout is that of Kafka's ``DefaultRecordBatch``
(Kafka 0.11, KIP-98). "The CRC covers the data from the attributes to the end of
the batch", and so excludes the leader epoch: "to avoid the need to recompute the
CRC when this field is assigned for every batch". Magic 0 and 1 share the first
17 bytes, but have their CRC in the place of the leader epoch.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import CorruptBatch

__all__ = [
    "HEADER_SIZE",
    "BatchHeader",
    "Codec",
    "RecordBatch",
    "batch_at",
    "has_several",
    "read_header",
    "split",
]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 61

#: Offset and length, which `batch_length` does not count ("log overhead").
LOG_OVERHEAD = 12

# The offsets of fields in the header, for readers and writers of one of them.
LENGTH_OFFSET = 8
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
#: The first byte under the CRC.
ATTRIBUTES_OFFSET = 21
LAST_OFFSET_DELTA_OFFSET = 23
MAX_TIMESTAMP_OFFSET = 35
#: The producer's epoch and the base sequence follow its id.
PRODUCER_ID_OFFSET = 43
RECORDS_COUNT_OFFSET = 57

#: The smallest message of magic 0: CRC, magic, attributes, two null lengths.
_SMALLEST_LEGACY_LENGTH = 14

#: Offsets are of 64 bits, and so is the one after a batch's last: it is fetched from, and committed.
OFFSET_LIMIT = 2**63 - 2**31

#: The end of a range without one: behind every offset.
NO_END = 2**63 - 1

#: A named tuple's own constructors call this, and take twice as long; :func:`batch_at` calls it each time.
_new = tuple.__new__

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class Codec(enum.IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """
    The 61 bytes in front of a batch's records, in their order.

    For a message of magic 0 or 1 it has offset, length, CRC, magic, and in the
    attributes the codec. With magic 1 they have the LogAppendTime bit, too.
    The offset of a compressed message is that of the last message in it.

    Attributes:
        base_offset: The offset of the first record; a producer sends 0.
        batch_length: The number of bytes behind this field.
        leader_epoch: The epoch of the leader that appended the batch, "set by the broker upon receipt of
            a produce request" and unused before; -1 if unknown (KIP-101).
        magic: 2; 0 and 1 are messages (KIP-32 added magic 1).
        crc: CRC-32C from the attributes to the end.
        attributes: Codec (bits 0 to 2), timestamp type (3: LogAppendTime), transactional (4), control
            batch (5), delete horizon (6: ``base_timestamp`` is the horizon, KIP-534).
        last_offset_delta: The last offset, less ``base_offset``. Compaction "preserves the first and last
            offset/sequence numbers from the original batch".
        base_timestamp: The time to which the records' timestamp deltas are relative, in milliseconds.
        max_timestamp: The largest timestamp of the records, or with LogAppendTime the append time of all.
        producer_id: The id that the broker assigned by InitProducerId; -1 for none (KIP-98).
        producer_epoch: The epoch of that id: a newer one fences this producer.
        base_sequence: The sequence of the first record, which shows duplicates; -1 for none.
        records_count: The number of records; compaction may leave 0.

    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The last offset of the batch's range; compaction may have removed its record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    def begins_at(self, follows: int) -> int:
        """
        Return the offset at which the batch begins.

        A compressed message of magic 0 or 1 shows only its last offset: it begins where the batch before it
        ends.
        """
        return self.base_offset if self.magic == 2 or not self.codec_id else follows

    @property
    def codec_id(self) -> int:
        """Bits 0 to 2 of the attributes; 5 to 7 are no codec (see :class:`Codec`)."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether ``max_timestamp`` is the time of all records, set by the broker."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def append_time(self) -> int | None:
        """The broker's time of all records; None if each has its own, as in magic 0 and 1."""
        return self.max_timestamp if self.magic == 2 and self.is_log_append_time else None

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, such as a transaction marker, and no data."""
        return bool(self.attributes & CONTROL)

    @property
    def has_holes(self) -> bool:
        """Whether offsets inside have no record, because compaction removed it."""
        return self.records_count != self.last_offset_delta + 1


class RecordBatch(NamedTuple):
    """A batch: its header's values as they were fetched, and a view of all its bytes."""

    header: BatchHeader
    view: memoryview

    @property
    def payload(self) -> memoryview:
        """A view of the records, still compressed."""
        return self.view[HEADER_SIZE:]


def read_header(record_set: memoryview, position: int = 0) -> BatchHeader:
    """Read the 61 bytes at ``position`` as a header of magic 2, without checking them; they must be there."""
    return _new(BatchHeader, HEADER.unpack_from(record_set, position))


def split(record_set: memoryview, *, has_offsets: bool = True) -> Iterator[RecordBatch]:
    """
    Yield each whole batch of a record set, in the order of the log.

    Args:
        record_set: Zero or more batches back to back, as in one partition of
            a Fetch response. The last may be cut short (KIP-74, and
            ``ByteBufferLogInputStream``): the iteration ends before it, and
            that is no error.
        has_offsets: False if the offsets are those of a producer of magic 0 or 1, which mean nothing.

    Yields:
        Views into ``record_set``; nothing is copied.

    Raises:
        CorruptBatch: A length, magic or count that no broker sends.

    """
    position = 0
    while (batch := batch_at(record_set, position, has_offsets=has_offsets)) is not None:
        yield batch
        position += len(batch.view)


def batch_at(record_set: memoryview, position: int, *, has_offsets: bool = True) -> RecordBatch | None:
    """
    Return the whole batch at a position of a record set; None if there is none. See :func:`split`.

    Raises:
        CorruptBatch: A length, magic or count that no broker sends.

    """
    end = len(record_set)
    if end - position <= MAGIC_OFFSET:
        return None
    if record_set[position + MAGIC_OFFSET] == 2:
        if end - position < HEADER_SIZE:
            return None
        header = read_header(record_set, position)
        _check(header, position)
    else:
        header = _legacy_header(record_set, position, has_offsets=has_offsets)
    following = position + header.batch_length + LOG_OVERHEAD
    if following > end:
        return None
    return _new(RecordBatch, (header, record_set[position:following]))


_LENGTH = struct.Struct(">i")


def has_several(record_set: memoryview) -> bool:
    """Whether bytes follow the first batch of a record set: a batch of any magic, whole or cut short."""
    if len(record_set) < LOG_OVERHEAD:
        return False
    (length,) = _LENGTH.unpack_from(record_set, LENGTH_OFFSET)
    return bool(0 < length < len(record_set) - LOG_OVERHEAD)


def _check(header: BatchHeader, position: int) -> None:
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"batch length {header.batch_length} is shorter than a header", position)
    if not 0 <= header.base_offset < OFFSET_LIMIT:
        raise CorruptBatch(
            f"base offset {header.base_offset} is negative, or none that is ever reached", position
        )
    # A holed batch keeps its range and so does an emptied one: there is always
    # an offset to go on from, and there are never more records than offsets.
    if header.last_offset_delta < 0 or not 0 <= header.records_count <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.records_count} records for an offset range of {header.last_offset_delta + 1}", position
        )


_LEGACY = struct.Struct(">qiIb")


def _legacy_header(record_set: memoryview, position: int, *, has_offsets: bool) -> BatchHeader:
    """Read the fields that a message of magic 0 or 1 has in common with a batch."""
    offset, length, crc, magic = _LEGACY.unpack_from(record_set, position)
    if magic not in (0, 1):
        raise CorruptBatch(f"magic {magic} is not 0, 1 or 2", position)
    if length < _SMALLEST_LEGACY_LENGTH:
        raise CorruptBatch(f"message length {length} is shorter than a message", position)
    if has_offsets and not 0 <= offset < OFFSET_LIMIT:
        raise CorruptBatch(f"offset {offset} is negative, or none that is ever reached", position)
    # A message that ends before its attributes is cut short, and is not yielded.
    attributes = record_set[position + _LEGACY.size] if position + _LEGACY.size < len(record_set) else 0
    attributes &= CODEC_MASK | LOG_APPEND_TIME if magic else CODEC_MASK
    return BatchHeader(offset, length, -1, magic, crc, attributes, 0, -1, -1, -1, -1, -1, 1)
