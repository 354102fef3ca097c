"""
The checks of a batch before it is written: Kafka's, in Kafka's order.

1. :func:`sole_batch` is ``ProduceRequest.validateRecords`` with the batch
   iterator below it (``ByteBufferLogInputStream``).
2. :func:`check_batch` is ``UnifiedLog.analyzeAndValidateRecords``: base
   offset, size, CRC, codec.
3. :func:`validate` is ``LogValidator``: counts, control batches, timestamps,
   keys; it returns the batch to write.

Sequences and epochs come after these, under the log's lock: :mod:`.producers`.

If the topic has another codec, the records are recompressed on the way, up to the limit.

As in Kafka, an uncompressed record's offset delta is not compared with its position in the batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.records import HEADER_SIZE, BatchHeader, Codec, Record, RecordBatch, read_header, verify_crc
from shoal.records.batch import LENGTH_OFFSET, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC_OFFSET

from ..api_error import ApiError
from ..config import TopicConfig
from .pieces import decompressed_pieces
from .walk import MalformedLength, MalformedRecord, WalkedRecord, walk
from .written import recompressed, with_fields

__all__ = [
    "MOST_DECOMPRESSED_BYTES",
    "check_batch",
    "check_crc",
    "iterate",
    "sole_batch",
    "validate",
    "walked",
    "with_header",
]

_LENGTH = struct.Struct(">i")
_SMALLEST_LENGTH = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: even a batch of magic 2 is compared with it first."""

_NO_TIMESTAMP = -1

#: Kafka reads a stream of any length. Here it is in memory as a whole.
MOST_DECOMPRESSED_BYTES = 1 << 28

#: For zstd, no bytes are an empty stream. The other codecs require a header.
_NEEDS_BYTES = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

#: Zstandard came with Produce v7 (KIP-110).
_ZSTD_FROM_VERSION = 7


def sole_batch(record_set: memoryview, version: int) -> RecordBatch:
    """
    Return the one batch that a record set of a Produce request must hold.

    Args:
        record_set: The record set of one partition. An incomplete batch at its end is dropped, as in Kafka.
        version: The version of the request.

    Raises:
        ApiError: With INVALID_RECORD for none, for two, and for magic 0 and 1;
            CORRUPT_MESSAGE for an invalid length or magic;
            UNKNOWN_SERVER_ERROR for one without a complete header;
            UNSUPPORTED_COMPRESSION_TYPE for zstd before v7.

    """
    batches = iterate(record_set)
    first = next(batches, None)
    if first is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition of a Produce request must have a record batch")
    if first[MAGIC_OFFSET] != 2:
        raise ApiError(
            ErrorCode.INVALID_RECORD, f"record batches must have magic 2, not {first[MAGIC_OFFSET]}"
        )
    batch = with_header(first)
    if version < _ZSTD_FROM_VERSION and batch.header.codec_id == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} cannot carry ZStandard")
    if next(batches, None) is not None:
        raise ApiError(
            ErrorCode.INVALID_RECORD, "a partition of a Produce request must have exactly one record batch"
        )
    return batch


def iterate(record_set: memoryview) -> Iterator[memoryview]:
    """
    Yield the bytes of each whole batch, of any magic, as ``ByteBufferLogInputStream`` does.

    Raises:
        ApiError: With CORRUPT_MESSAGE for an invalid length or magic.

    """
    position = 0
    while len(record_set) - position >= LOG_OVERHEAD:
        (length,) = _LENGTH.unpack_from(record_set, position + LENGTH_OFFSET)
        if length < _SMALLEST_LENGTH:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch of length {length} is shorter than any record"
            )
        if len(record_set) - position <= MAGIC_OFFSET:
            return
        magic = record_set[position + MAGIC_OFFSET]
        if magic > 2:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is not 0, 1 or 2")
        end = position + LOG_OVERHEAD + length
        if end > len(record_set):
            return
        yield record_set[position:end]
        position = end


def with_header(view: memoryview) -> RecordBatch:
    """
    Read the header of a batch of magic 2.

    Raises:
        ApiError: With UNKNOWN_SERVER_ERROR for a batch without a complete header.

    """
    if len(view) < HEADER_SIZE:
        # Kafka reads over its end: an IndexOutOfBoundsException, which has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {len(view)} bytes")
    return RecordBatch(read_header(view), view)


def check_batch(batch: RecordBatch, config: TopicConfig) -> None:
    """
    Check a batch against its CRC and the topic; reads the whole payload.

    Raises:
        ApiError: The first that applies: INVALID_RECORD, MESSAGE_TOO_LARGE,
            CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR.

    """
    header = batch.header
    if header.base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"the base offset of a batch from a client must be 0, not {header.base_offset}",
        )
    if header.size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size} bytes exceeds max.message.bytes, {config.max_message_bytes}",
        )
    check_crc(batch)
    _codec_of(header)


def check_crc(batch: RecordBatch) -> None:
    """
    Check a batch against its CRC.

    Raises:
        ApiError: With CORRUPT_MESSAGE.

    """
    try:
        verify_crc(batch)
    except CorruptBatch as error:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, error.reason) from error


def validate(batch: RecordBatch, config: TopicConfig, now_ms: int) -> RecordBatch:
    """
    Check a batch's header against its records, and the records.

    Returns:
        The batch to write, at its place in the log: the given one, recompressed if the topic has another
        codec, with a header that agrees with its records (``setMaxTimestamp``).

    Raises:
        ApiError: With INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR
            or, if recompression made it too large, MESSAGE_TOO_LARGE.

    """
    header = batch.header
    _check_counts(header)
    codec = Codec(header.codec_id)
    target = codec if config.codec is None else config.codec
    records: list[Record] | None = None if target is codec else []
    max_timestamp = _check_records(batch, config, now_ms, records)
    if records is not None:
        batch = recompressed(header, records, target, config.max_message_bytes)
        header = batch.header
    # The high byte of the attributes is unused, and a changed header has 0 there.
    attributes = header.attributes & 0xFF & ~LOG_APPEND_TIME
    if config.log_append_time:
        return with_fields(batch, attributes=attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    if header.is_log_append_time or max_timestamp != header.max_timestamp:
        return with_fields(batch, attributes=attributes, max_timestamp=max_timestamp)
    return batch


def walked(
    batch: RecordBatch, *, with_lengths: bool = True, copy_to: list[Record] | None = None
) -> Iterator[WalkedRecord]:
    """
    Yield each record of a batch as :func:`~.walk.walk` does, with the errors of Kafka's readers.

    Raises:
        ApiError: With INVALID_RECORD or UNKNOWN_SERVER_ERROR for a damaged batch, or MESSAGE_TOO_LARGE if
            there are too many bytes.

    """
    try:
        yield from walk(batch.header, _decompressed(batch), with_lengths=with_lengths, copy_to=copy_to)
    except MalformedLength as error:
        is_stream = batch.header.codec_id != Codec.NONE
        code = ErrorCode.INVALID_RECORD if is_stream else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(code, str(error)) from error
    except MalformedRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error


def _decompressed(batch: RecordBatch) -> Iterator[bytes]:
    """Yield a batch's records as Kafka's readers decompress them, in pieces; raises as :func:`walked`."""
    payload, codec = batch.payload, _codec_of(batch.header)
    if not payload and codec in _NEEDS_BYTES:
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the empty value is not a {codec.name.lower()} stream"
        )
    try:
        yield from decompressed_pieces(codec, payload, MOST_DECOMPRESSED_BYTES)
    except CorruptBatch as error:
        # Kafka wraps the codec's exception in one that has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    except UnsupportedBatch as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error


def _codec_of(header: BatchHeader) -> Codec:
    """Return a batch's codec; raises ApiError with UNKNOWN_SERVER_ERROR if Kafka does not have it."""
    if header.codec_id > max(Codec):
        # CompressionType.forId throws an IllegalArgumentException, which has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id: {header.codec_id}")
    return Codec(header.codec_id)


def _check_counts(header: BatchHeader) -> None:
    """Check the counts and flags of a header, as ``LogValidator.validateBatch`` does for clients."""
    range_size = header.last_offset_delta + 1
    if range_size <= 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"an offset range of {range_size}")
    if header.records_count <= 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"a record count of {header.records_count}")
    if range_size != header.records_count:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{header.records_count} records do not fill an offset range of {range_size}",
        )
    if header.is_control:
        raise ApiError(ErrorCode.INVALID_RECORD, "clients are not allowed to write control records")
    if header.producer_id > -1 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"base sequence {header.base_sequence} with producer id {header.producer_id}",
        )


def _check_records(batch: RecordBatch, config: TopicConfig, now_ms: int, copy_to: list[Record] | None) -> int:
    """Check each record (``LogValidator.validateRecord``), and copy it; return the largest timestamp."""
    header = batch.header
    is_stream = header.codec_id != Codec.NONE
    without_key: list[int] = []
    out_of_time: list[int] = []
    max_timestamp = _NO_TIMESTAMP
    has_gaps = False
    # In a compressed batch that stays unchanged, Kafka skips keys and values, and checks no lengths.
    records = walked(batch, with_lengths=not is_stream or copy_to is not None, copy_to=copy_to)
    for number, (timestamp, offset_delta, has_key) in enumerate(records):
        if config.compacted and not has_key:
            without_key.append(number)
        elif not _is_timestamp_allowed(timestamp, header.is_log_append_time, config, now_ms):
            out_of_time.append(number)
        has_gaps = has_gaps or offset_delta != number
        if timestamp > max_timestamp or not number:
            max_timestamp = timestamp
    _raise_any(ErrorCode.INVALID_TIMESTAMP, out_of_time, "timestamp out of range")
    _raise_any(ErrorCode.INVALID_RECORD, without_key, "a compacted topic needs a key")
    if has_gaps and is_stream and copy_to is None:
        # KAFKA-9669: Kafka would rebuild the batch, but did not keep the keys and values.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records' offset deltas are not 0, 1, 2, …")
    return max_timestamp


def _raise_any(code: ErrorCode, numbers: Sequence[int], reason: str) -> None:
    if numbers:
        # Kafka's message shows at most three, too.
        raise ApiError(code, f"{len(numbers)} records: {reason}", [(each, reason) for each in numbers[:3]])


def _is_timestamp_allowed(timestamp: int, log_append_time: bool, config: TopicConfig, now_ms: int) -> bool:
    """Check as ``LogValidator.validateTimestamp``; ``log_append_time`` is the batch's own bit 3."""
    if not config.log_append_time and timestamp != _NO_TIMESTAMP:
        earliest = now_ms - config.timestamp_before_max_ms
        return earliest <= timestamp <= now_ms + config.timestamp_after_max_ms
    # Since Kafka 3.6 only this case refuses a client's LogAppendTime bit.
    return not log_append_time
