"""
What a partition refuses, before anything is written: Kafka's checks in Kafka's order.

1. :func:`sole_batch` is ``ProduceRequest.validateRecords`` with the batch
   iterator below it (``ByteBufferLogInputStream``).
2. :func:`check_batch` is ``UnifiedLog.analyzeAndValidateRecords``: base
   offset, size, CRC, codec.
3. :func:`validate` is ``LogValidator``: counts, control batches, timestamps,
   keys; it says what the broker changes in the header.

Sequences and epochs come after these, under the log's lock: :mod:`.producers`.

A compressed batch is decompressed, and one of another codec than the topic's
is written anew (:mod:`.recompress`).

Where this is as lax as Kafka: an uncompressed record's own offset delta is not
compared with its place, so a header that lies about holes is stored as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..converting import Direction, counted
from ..errors import CorruptBatch, ErrorCode, UnsupportedBatch
from ..records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    Record,
    RecordBatch,
    decompress,
    read_header,
    verify_crc,
)
from ..records.down_conversion import ConvertedCounts
from .config import TopicConfig
from .lz4_frame import lz4_frame_size
from .recompress import recompressed
from .refusal import Refused
from .walk import MalformedLength, MalformedRecord, WalkedRecord, walk

__all__ = [
    "MOST_DECOMPRESSED_BYTES",
    "HeaderChange",
    "check_batch",
    "check_crc",
    "check_records",
    "check_size",
    "decompressed",
    "iterate",
    "sole_batch",
    "validate",
]

_LENGTH = struct.Struct(">i")
_LENGTH_OFFSET = 8
_LOG_OVERHEAD = 12
_MAGIC_OFFSET = 16
_SMALLEST_LENGTH = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: even a batch of magic 2 is held against it first."""

_NO_TIMESTAMP = -1
_LOG_APPEND_TIME = 0x08

#: Kafka reads a stream of any length; here it is in memory as a whole.
MOST_DECOMPRESSED_BYTES = 1 << 28

#: Of zstd no bytes are an empty stream; the readers of the others want a header.
_NEEDS_BYTES = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

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
    check_size(header, config)
    check_crc(batch)
    if header.codec_id > max(Codec):
        # CompressionType.forId throws an IllegalArgumentException, which has no code of its own.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id: {header.codec_id}")


def check_crc(batch: RecordBatch) -> None:
    """
    Check a batch against its CRC.

    Raises:
        Refused: With CORRUPT_MESSAGE.

    """
    try:
        verify_crc(batch)
    except CorruptBatch as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, error.reason) from error


def check_size(header: BatchHeader, config: TopicConfig) -> None:
    """
    Check a batch against the topic's limit.

    Raises:
        Refused: With MESSAGE_TOO_LARGE.

    """
    if header.size > config.max_message_bytes:
        raise Refused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes exceeds max.message.bytes, {config.max_message_bytes}",
        )


def validate(batch: RecordBatch, config: TopicConfig, now_ms: int) -> tuple[RecordBatch, HeaderChange | None]:
    """
    Check what a batch says about its records, and the records.

    Returns:
        The batch, or one in its place where the topic wants another codec;
        and what the broker changes in its header beside offset and leader
        epoch, if anything.

    Raises:
        Refused: With INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR
            or, where recompression made it too large, MESSAGE_TOO_LARGE.

    """
    header = batch.header
    _check_counts(header)
    codec = Codec(header.codec_id)
    target = codec if config.codec is None else config.codec
    data = decompressed(batch, codec)
    # Of a stream that is to stay as it is Kafka skips the keys and values, and with them a check.
    records = _checked_records(
        header, data, config, now_ms, with_lengths=codec is Codec.NONE or target is not codec
    )
    if target is not codec:
        batch = _recompressed(header, data, records, target, config)
        header = batch.header
    elif codec is not Codec.NONE and any(
        record.offset_delta != number for number, record in enumerate(records)
    ):
        # KAFKA-9669: Kafka would build the batch anew, but kept no keys and values while it read them.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "the records' offset deltas are not 0, 1, 2, …")
    if config.log_append_time:
        return batch, HeaderChange(header.attributes & 0xFF | _LOG_APPEND_TIME, now_ms)
    max_timestamp = max(record.timestamp for record in records)
    if header.is_log_append_time or max_timestamp != header.max_timestamp:
        return batch, HeaderChange(header.attributes & 0xFF & ~_LOG_APPEND_TIME, max_timestamp)
    return batch, None


def decompressed(batch: RecordBatch, codec: Codec) -> bytes:
    """
    Return a batch's records as Kafka's readers find them.

    Raises:
        Refused: With UNKNOWN_SERVER_ERROR, or MESSAGE_TOO_LARGE where they are too many bytes.

    """
    payload = batch.payload
    if not payload and codec in _NEEDS_BYTES:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no bytes are no stream of {codec.name.lower()}")
    if codec is Codec.LZ4:
        payload = payload[: lz4_frame_size(payload)]
    try:
        return bytes(decompress(codec, payload, MOST_DECOMPRESSED_BYTES))
    except CorruptBatch as error:
        # Kafka wraps the codec's exception in one that has no code of its own.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    except UnsupportedBatch as error:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error


def _recompressed(
    header: BatchHeader, data: bytes, walked: Sequence[WalkedRecord], codec: Codec, config: TopicConfig
) -> RecordBatch:
    with counted(Direction.PRODUCE) as tally:
        records = [
            Record(number, record.timestamp, data[record.body_start : record.end])
            for number, record in enumerate(walked)
        ]
        batch = recompressed(header, records, codec)
        tally.add(ConvertedCounts(1, len(records), header.size, batch.header.size))
    check_size(batch.header, config)
    return batch


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


def _checked_records(
    header: BatchHeader, data: bytes, config: TopicConfig, now_ms: int, *, with_lengths: bool
) -> Sequence[WalkedRecord]:
    """Look at each record: ``LogValidator.validateRecord``."""
    try:
        records = list(walk(header, data, with_lengths=with_lengths))
    except MalformedLength as error:
        is_stream = header.codec_id != Codec.NONE
        code = ErrorCode.INVALID_RECORD if is_stream else ErrorCode.UNKNOWN_SERVER_ERROR
        raise Refused(code, str(error)) from error
    except MalformedRecord as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from error
    log_append_time = header.is_log_append_time
    check_records(((each.has_key, each.timestamp, log_append_time) for each in records), config, now_ms)
    return records


def check_records(records: Iterable[tuple[bool, int, bool]], config: TopicConfig, now_ms: int) -> None:
    """
    Check records against the topic's rules for keys and timestamps: ``processRecordErrors``.

    Args:
        records: Of each whether it has a key, its timestamp, and whether it
            says that this is an append time.
        config: The topic's.
        now_ms: The broker's time.

    Raises:
        Refused: With INVALID_TIMESTAMP or INVALID_RECORD.

    """
    without_key: list[int] = []
    out_of_time: list[int] = []
    for index, (has_key, timestamp, is_append_time) in enumerate(records):
        if config.compacted and not has_key:
            without_key.append(index)
        elif not _is_timestamp_allowed(timestamp, is_append_time, config, now_ms):
            out_of_time.append(index)
    if out_of_time:
        raise _refused_records(ErrorCode.INVALID_TIMESTAMP, "timestamp out of range", out_of_time)
    if without_key:
        raise _refused_records(ErrorCode.INVALID_RECORD, "a compacted topic needs a key", without_key)


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
