"""
What a partition refuses, before anything is written: Kafka's checks in Kafka's order.

1. :func:`sole_batch` is ``ProduceRequest.validateRecords`` with the batch
   iterator below it (``ByteBufferLogInputStream``).
2. :func:`check_batch` is ``UnifiedLog.analyzeAndValidateRecords``: base
   offset, size, CRC, codec.
3. :func:`validate` is ``LogValidator``: counts, control batches, timestamps,
   keys; it says what the broker changes in the header.

Sequences and epochs come after these, under the log's lock: :mod:`.producers`.

A compressed batch is decompressed piece by piece, and its records are looked
at one by one: none of them is kept. A batch of another codec than the topic's
is written anew meanwhile (:mod:`.recompress`), as far as the topic would take it.

Where this is as lax as Kafka: an uncompressed record's own offset delta is not
compared with its place, so a header that lies about holes is stored as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...errors import CorruptBatch, UnsupportedBatch
from ...net.converting import Direction, counted, memory_turn
from ...records import HEADER_SIZE, BatchHeader, Codec, RecordBatch, decompress, read_header, verify_crc
from ...records.batch import LENGTH_OFFSET, LOG_OVERHEAD, MAGIC_OFFSET
from ...records.compression import decompressed_pieces
from ...records.down_conversion import ConvertedCounts
from ...records.rebuild import BatchWriter
from ..api_error import ApiError
from ..config import TopicConfig
from .recompress import recompressed
from .walk import MalformedLength, MalformedRecord, walk

__all__ = [
    "MOST_DECOMPRESSED_BYTES",
    "HeaderChange",
    "RecordErrors",
    "check_batch",
    "check_crc",
    "check_size",
    "decompressed",
    "iterate",
    "sole_batch",
    "validate",
]

_LENGTH = struct.Struct(">i")
_SMALLEST_LENGTH = 14
"""``LegacyRecord.RECORD_OVERHEAD_V0``: even a batch of magic 2 is held against it first."""

_NO_TIMESTAMP = -1
_LOG_APPEND_TIME = 0x08

#: Kafka reads a stream of any length. Here it would keep a processor busy for minutes, and of zstd be in
#: memory as a whole.
MOST_DECOMPRESSED_BYTES = 1 << 28

#: The same for records, at the 64 bytes each that :func:`...records.compression.check_count` counts for one.
_MOST_COMPRESSED_RECORDS = MOST_DECOMPRESSED_BYTES // 64

#: What zstd, whose library cannot stream, may have in memory for each connection; beyond, there are turns.
_WITHOUT_TURN_BYTES = 1 << 22

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
        ApiError: With INVALID_RECORD for none, for two, and for magic 0 and 1;
            CORRUPT_MESSAGE for a length or a magic that cannot be;
            UNKNOWN_SERVER_ERROR for one without a whole header;
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
    if len(first) < HEADER_SIZE:
        # Kafka reads over its end: an IndexOutOfBoundsException, which has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {len(first)} bytes")
    batch = RecordBatch(read_header(first), first)
    if version < _ZSTD_FROM_VERSION and batch.header.codec_id == Codec.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Produce v{version} cannot carry ZStandard")
    if next(batches, None) is not None:
        raise ApiError(
            ErrorCode.INVALID_RECORD, "a partition of a Produce request must have exactly one record batch"
        )
    return batch


def iterate(record_set: memoryview) -> Iterator[memoryview]:
    """
    Yield the bytes of each whole batch, of whatever magic, as ``ByteBufferLogInputStream`` finds them.

    Raises:
        ApiError: With CORRUPT_MESSAGE for a length or a magic that cannot be.

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
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is none of 0, 1 and 2")
        end = position + LOG_OVERHEAD + length
        if end > len(record_set):
            return
        yield record_set[position:end]
        position = end


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
    check_size(header, config)
    check_crc(batch)
    if header.codec_id > max(Codec):
        # CompressionType.forId throws an IllegalArgumentException, which has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"unknown compression type id: {header.codec_id}")


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


def check_size(header: BatchHeader, config: TopicConfig) -> None:
    """
    Check a batch against the topic's limit.

    Raises:
        ApiError: With MESSAGE_TOO_LARGE.

    """
    if header.size > config.max_message_bytes:
        raise ApiError(
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
        ApiError: With INVALID_RECORD, INVALID_TIMESTAMP, UNKNOWN_SERVER_ERROR
            or, where recompression made it too large, MESSAGE_TOO_LARGE.

    """
    header = batch.header
    _check_counts(header)
    codec = Codec(header.codec_id)
    target = codec if config.codec is None else config.codec
    if target is codec:
        max_timestamp = _check_records(batch, config, now_ms, None)
    else:
        with counted(Direction.PRODUCE) as tally:
            writer = BatchWriter(target, config.max_message_bytes)
            max_timestamp = _check_records(batch, config, now_ms, writer)
            batch = recompressed(header, writer)
            tally.add(ConvertedCounts(1, writer.count, header.size, batch.header.size))
        header = batch.header
    if config.log_append_time:
        return batch, HeaderChange(header.attributes & 0xFF | _LOG_APPEND_TIME, now_ms)
    if header.is_log_append_time or max_timestamp != header.max_timestamp:
        return batch, HeaderChange(header.attributes & 0xFF & ~_LOG_APPEND_TIME, max_timestamp)
    return batch, None


@contextmanager
def decompressed(batch: RecordBatch) -> Iterator[Iterator[bytes]]:
    """
    Give a batch's records as Kafka's readers find them, in pieces.

    Large ones of zstd are in memory as a whole until the context ends, and take a turn for it.

    Raises:
        ApiError: Also while the pieces are read: with UNKNOWN_SERVER_ERROR, or MESSAGE_TOO_LARGE where
            they are too many bytes.

    """
    payload, codec = batch.payload, Codec(batch.header.codec_id)
    if not payload and codec in _NEEDS_BYTES:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no bytes are no stream of {codec.name.lower()}")
    if codec is not Codec.ZSTD:
        yield _refusing(decompressed_pieces(codec, payload, MOST_DECOMPRESSED_BYTES))
        return
    try:
        small = bytes(decompress(codec, payload, _WITHOUT_TURN_BYTES))
    except CorruptBatch as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    except UnsupportedBatch:
        with memory_turn():
            yield _refusing(decompressed_pieces(codec, payload, MOST_DECOMPRESSED_BYTES))
    else:
        yield iter([small])


def _refusing(pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except CorruptBatch as error:
        # Kafka wraps the codec's exception in one that has no code of its own.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, error.reason) from error
    except UnsupportedBatch as error:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, error.reason) from error


def _check_counts(header: BatchHeader) -> None:
    """``LogValidator.validateBatch``, for a client."""
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


def _check_records(batch: RecordBatch, config: TopicConfig, now_ms: int, copy_to: BatchWriter | None) -> int:
    """Look at each record, ``LogValidator.validateRecord``, and copy it; return the largest timestamp."""
    header = batch.header
    is_stream = header.codec_id != Codec.NONE
    errors = RecordErrors(config, now_ms)
    log_append_time = header.is_log_append_time
    max_timestamp = _NO_TIMESTAMP
    has_gaps = False
    try:
        with decompressed(batch) as pieces:
            # Of a stream that is to stay as it is Kafka skips the keys and values, and with them a check.
            records = walk(header, pieces, with_lengths=not is_stream or copy_to is not None, copy_to=copy_to)
            for number, (timestamp, offset_delta, has_key) in enumerate(records):
                if number >= _MOST_COMPRESSED_RECORDS and is_stream:
                    raise ApiError(
                        ErrorCode.MESSAGE_TOO_LARGE,
                        f"more than {_MOST_COMPRESSED_RECORDS} compressed records",
                    )
                errors.look_at(has_key, timestamp, log_append_time)
                has_gaps = has_gaps or offset_delta != number
                if timestamp > max_timestamp or not number:
                    max_timestamp = timestamp
    except MalformedLength as error:
        code = ErrorCode.INVALID_RECORD if is_stream else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(code, str(error)) from error
    except MalformedRecord as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
    errors.raise_any()
    if has_gaps and is_stream and copy_to is None:
        # KAFKA-9669: Kafka would build the batch anew, but kept no keys and values while it read them.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the records' offset deltas are not 0, 1, 2, …")
    return max_timestamp


class RecordErrors:
    """What the topic's rules for keys and timestamps say of records: ``processRecordErrors``."""

    def __init__(self, config: TopicConfig, now_ms: int) -> None:
        self._config = config
        self._now_ms = now_ms
        self._number = 0
        self._without_key = _Found(ErrorCode.INVALID_RECORD, "a compacted topic needs a key")
        self._out_of_time = _Found(ErrorCode.INVALID_TIMESTAMP, "timestamp out of range")

    def look_at(self, has_key: bool, timestamp: int, is_append_time: bool) -> None:
        """Check the next record; ``is_append_time`` is what it says of its timestamp."""
        config = self._config
        if config.compacted and not has_key:
            self._without_key.add(self._number)
        elif not _is_timestamp_allowed(timestamp, is_append_time, config, self._now_ms):
            self._out_of_time.add(self._number)
        self._number += 1

    def raise_any(self) -> None:
        """
        Refuse the records if one of them was wrong.

        Raises:
            ApiError: With INVALID_TIMESTAMP or INVALID_RECORD.

        """
        self._out_of_time.raise_any()
        self._without_key.raise_any()


class _Found:
    """How many records have the same error, and the first of them."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        self._code, self._reason = code, reason
        self._count = 0
        self._first: list[int] = []

    def add(self, number: int) -> None:
        self._count += 1
        # Kafka's message shows three at most too.
        if len(self._first) < 3:
            self._first.append(number)

    def raise_any(self) -> None:
        if self._count:
            errors = [(number, self._reason) for number in self._first]
            raise ApiError(self._code, f"{self._count} records: {self._reason}", errors)


def _is_timestamp_allowed(timestamp: int, log_append_time: bool, config: TopicConfig, now_ms: int) -> bool:
    """``LogValidator.validateTimestamp``; ``log_append_time`` is the batch's own bit 3."""
    if not config.log_append_time and timestamp != _NO_TIMESTAMP:
        earliest = now_ms - config.timestamp_before_max_ms
        return earliest <= timestamp <= now_ms + config.timestamp_after_max_ms
    # Since Kafka 3.6 a client's LogAppendTime bit is wrong here alone.
    return not log_append_time
