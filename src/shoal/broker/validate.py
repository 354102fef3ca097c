"""
What a partition refuses, before anything is written: Kafka's checks in Kafka's order.

1. :func:`sole_batch` is ``ProduceRequest.validateRecords`` with the batch
   iterator below it (``ByteBufferLogInputStream``).
2. :func:`check_batch` is ``UnifiedLog.analyzeAndValidateRecords``: base
   offset, size, CRC, codec.
3. :func:`validate` is ``LogValidator``: counts, control batches, timestamps,
   keys; it says what the broker changes in the header.

Sequences and epochs come after these, under the log's lock: :mod:`.producers`.

Where this is less than Kafka: it does not decompress. Of a compressed batch it
believes the header's count and timestamps, where Kafka walks the records (and
puts a wrong ``max_timestamp`` right); a payload that is no valid stream of its
codec is stored; the records' keys are not looked for on a compacted topic; and
a batch is never recompressed, whatever the topic's ``compression.type``.

Where this is as lax as Kafka: an uncompressed record's own offset delta is not
compared with its place, so a header that lies about holes is stored as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import CorruptBatch, ErrorCode
from ..records import HEADER_SIZE, BatchHeader, Codec, RecordBatch, read_header, verify_crc
from .config import TopicConfig
from .refusal import Refused
from .walk import MalformedRecord, walk

__all__ = ["HeaderChange", "check_batch", "iterate", "sole_batch", "validate"]

_LENGTH = struct.Struct(">i")
_LENGTH_OFFSET = 8
_LOG_OVERHEAD = 12
_MAGIC_OFFSET = 16
_SMALLEST_LENGTH = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: even a batch of magic 2 is held against it first."""

_NO_TIMESTAMP = -1
_LOG_APPEND_TIME = 0x08

#: Zstandard came with Produce v7 (KIP-110).
_ZSTD_FROM_VERSION = 7


class HeaderChange(NamedTuple):
    """
    What the broker writes over a batch's header, the CRC with it (``setMaxTimestamp``).

    Attributes:
        attributes: The low byte as it was, but for bit 3; the others are unused and become 0.
        max_timestamp: In milliseconds.

    """

    attributes: int
    max_timestamp: int


def sole_batch(record_set: memoryview, version: int) -> RecordBatch:
    """
    Return the one batch that a record set of a Produce request must hold.

    Args:
        record_set: As it came. A batch that is cut short at its end counts
            for nothing and is dropped without a word, as in Kafka.
        version: Of the request.

    Raises:
        Refused: With INVALID_RECORD for none, for two, and for magic 0 and 1;
            CORRUPT_MESSAGE for a length or a magic that cannot be;
            UNKNOWN_SERVER_ERROR for one without a whole header;
            UNSUPPORTED_COMPRESSION_TYPE for zstd before v7.

    """
    batches = iterate(record_set)
    first = next(batches, None)
    if first is None:
        raise Refused(ErrorCode.INVALID_RECORD, "a partition of a Produce request must have a record batch")
    if first[_MAGIC_OFFSET] != 2:
        raise Refused(
            ErrorCode.INVALID_RECORD, f"record batches must have magic 2, not {first[_MAGIC_OFFSET]}"
        )
    if len(first) < HEADER_SIZE:
        # Kafka reads over its end: an IndexOutOfBoundsException, which has no code of its own.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {len(first)} bytes")
    batch = RecordBatch(read_header(first), first)
    if version < _ZSTD_FROM_VERSION and batch.header.codec_id == Codec.ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} cannot carry ZStandard")
    if next(batches, None) is not None:
        raise Refused(
            ErrorCode.INVALID_RECORD, "a partition of a Produce request must have exactly one record batch"
        )
    return batch


def iterate(record_set: memoryview) -> Iterator[memoryview]:
    """
    Yield the bytes of each whole batch, of whatever magic, as ``ByteBufferLogInputStream`` finds them.

    Raises:
        Refused: With CORRUPT_MESSAGE for a length or a magic that cannot be.

    """
    position = 0
    while len(record_set) - position >= _LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(record_set, position + _LENGTH_OFFSET)
        if length < _SMALLEST_LENGTH:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length} is shorter than any record")
        if len(record_set) - position <= _MAGIC_OFFSET:
            return
        magic = record_set[position + _MAGIC_OFFSET]
        if magic > 2:
            raise Refused(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is none of 0, 1 and 2")
        end = position + _LOG_OVERHEAD + length
        if end > len(record_set):
            return
        yield record_set[position:end]
        position = end


def check_batch(batch: RecordBatch, config: TopicConfig) -> None:
    """
    Check a batch against its CRC and the topic; reads the whole payload.

    Raises:
        Refused: The first that applies: INVALID_RECORD, MESSAGE_TOO_LARGE,
            CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR.

    """
    header = batch.header
    if header.base_offset != 0:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch from a client must be 0, not {header.base_offset}",
        )
    if header.size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes exceeds max.message.bytes, {config.max_message_bytes}",
        )
    try:
        verify_crc(batch)
    except CorruptBatch as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, error.reason) from error
    if header.codec_id > max(Codec):
        # CompressionType.forId throws an IllegalArgumentException, which has no code of its own.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id: {header.codec_id}")


def validate(batch: RecordBatch, config: TopicConfig, now_ms: int) -> HeaderChange | None:
    """
    Check what a batch says about its records, and the records where they can be read.

    Returns:
        What the broker changes in the header beside offset and leader epoch, if anything.

    Raises:
        Refused: With INVALID_RECORD or INVALID_TIMESTAMP.

    """
    header = batch.header
    _check_counts(header)
    if header.codec_id == Codec.NONE:
        max_timestamp = _check_records(batch, config, now_ms)
    else:
        _check_timestamps_of_header(header, config, now_ms)
        max_timestamp = header.max_timestamp
    if config.log_append_time:
        return HeaderChange(header.attributes & 0xFF | _LOG_APPEND_TIME, now_ms)
    if header.is_log_append_time or max_timestamp != header.max_timestamp:
        return HeaderChange(header.attributes & 0xFF & ~_LOG_APPEND_TIME, max_timestamp)
    return None


def _check_counts(header: BatchHeader) -> None:
    """``LogValidator.validateBatch``, for a client."""
    range_size = header.last_offset_delta + 1
    if range_size <= 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"an offset range of {range_size}")
    if header.records_count <= 0:
        raise Refused(ErrorCode.INVALID_RECORD, f"a record count of {header.records_count}")
    if range_size != header.records_count:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records do not fill an offset range of {range_size}",
        )
    if header.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"base sequence {header.base_sequence} with producer id {header.producer_id}",
        )


def _check_records(batch: RecordBatch, config: TopicConfig, now_ms: int) -> int:
    """Walk an uncompressed batch; return its largest timestamp."""
    max_timestamp = _NO_TIMESTAMP
    without_key: list[int] = []
    out_of_time: list[int] = []
    log_append_time = batch.header.is_log_append_time
    try:
        for index, record in enumerate(walk(batch.header, batch.payload)):
            if config.compacted and not record.has_key:
                without_key.append(index)
            if not _is_timestamp_allowed(record.timestamp, log_append_time, config, now_ms):
                out_of_time.append(index)
            max_timestamp = max(max_timestamp, record.timestamp)
    except MalformedRecord as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from error
    if without_key:
        raise _refused_records(ErrorCode.INVALID_RECORD, "a compacted topic needs a key", without_key)
    if out_of_time:
        raise _refused_records(ErrorCode.INVALID_TIMESTAMP, "timestamp out of range", out_of_time)
    return max_timestamp


def _check_timestamps_of_header(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    earliest = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    for timestamp in (earliest, header.max_timestamp):
        if not _is_timestamp_allowed(timestamp, header.is_log_append_time, config, now_ms):
            raise _refused_records(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} out of range", [0])


def _is_timestamp_allowed(timestamp: int, log_append_time: bool, config: TopicConfig, now_ms: int) -> bool:
    """``LogValidator.validateTimestamp``; ``log_append_time`` is the batch's own bit 3."""
    if not config.log_append_time and timestamp != _NO_TIMESTAMP:
        earliest = now_ms - config.timestamp_before_max_ms
        return earliest <= timestamp <= now_ms + config.timestamp_after_max_ms
    # Since Kafka 3.6 a client's LogAppendTime bit is wrong here alone.
    return not log_append_time


def _refused_records(code: ErrorCode, reason: str, indexes: list[int]) -> Refused:
    # Kafka's message shows three at most too.
    errors = [(index, reason) for index in indexes[:3]]
    return Refused(code, f"{len(indexes)} records: {reason}", errors)
