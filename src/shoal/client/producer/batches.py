"""Batches to send: those that are filled record by record, and those that the caller passed whole."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import ConfigError, CorruptBatch, ShoalError, UnsupportedBatch
from ...records import (
    ENTRY,
    Codec,
    Record,
    RecordBatch,
    read_records,
    split,
    verify_crc,
    write_batch,
)
from ...topic_partition import TopicPartition
from ..properties import reason_with_property

__all__ = [
    "RECORD_OVERHEAD",
    "SEQUENCES",
    "TOGETHER",
    "PendingBatch",
    "RecordMetadata",
    "read_raw",
]

#: The rule of KIP-712.
TOGETHER = "fetch.raw.bytes and send.raw.bytes need to be turned on together"

#: A sequence has 31 bits.
SEQUENCES = 2**31

#: The largest overhead of a record besides key, value and headers: varints and attributes.
RECORD_OVERHEAD = 26


class RecordMetadata(NamedTuple):
    """
    The place of an acknowledged record or batch.

    Attributes:
        topic: The name of its topic.
        partition: Its partition.
        offset: The record's offset, or the batch's last one. -1 if the broker reports a duplicate without its
            offset.
        base_offset: The record's offset, or the batch's first one.
        timestamp: The record's, or the batch's largest one, in milliseconds since 1970.

    Examples:
        >>> import shoal
        >>> with shoal.RawProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        ...     sent = producer.send("payments", b"12.50", partition=0, timestamp_ms=1_700_000_000_000)
        >>> sent.result()
        RecordMetadata(topic='payments', partition=0, offset=0, base_offset=0, timestamp=1700000000000)

    """

    topic: str
    partition: int
    offset: int
    base_offset: int
    timestamp: int


@dataclass(slots=True, eq=False)
class PendingBatch:
    """
    A batch from the call of the producer to its outcome. Records can be added to it until it is written.

    Attributes:
        partition: The partition to write to.
        created_at: The start of ``delivery.timeout.ms``, by the monotonic clock.
        reserved_bytes: The batch's part of ``buffer.memory``.
        written: The batch, in memory of the producer's own: each attempt stamps it. None before.
        futures: The future of the whole batch, or of each of its records.
        records: The records of a batch that was filled record by record; none of one that came whole.
        sequence: The sequence of the first record, after the first attempt.
        landing: The offset at which the batch must land, if its leader compares sequences with the log's end.
        is_in_doubt: Whether the batch may be written although no answer confirmed it.
        outcome: The offset of the first record, -1 if the broker did not report it, or the error.
        is_done: Whether the futures are complete.

    """

    partition: TopicPartition
    created_at: float
    reserved_bytes: int = 0
    written: RecordBatch | None = None
    futures: list[Future[RecordMetadata]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    sequence: int | None = None
    landing: int | None = None
    is_in_doubt: bool = False
    outcome: int | ShoalError = -1
    is_done: bool = False

    def add(self, record: Record, future: Future[RecordMetadata], size: int) -> None:
        """Add a record with the future of its place, and the bytes that it may take."""
        self.records.append(record._replace(offset=len(self.records)))
        self.futures.append(future)
        self.reserved_bytes += size

    def write(self, codec: Codec) -> None:
        """Write the batch if it is not written yet; it takes no more records."""
        if self.written is None:
            self.written = write_batch(self.records, codec)

    @property
    def batch(self) -> RecordBatch:
        """The written batch."""
        assert self.written is not None
        return self.written

    @property
    def count(self) -> int:
        """The number of records, and so of sequences."""
        return self.batch.header.records_count

    @property
    def size(self) -> int:
        """The bytes on the wire."""
        return len(self.batch.view)

    @property
    def newest_ms(self) -> int:
        """A timestamp that is not after the newest one that a broker sees in it."""
        if self.written is None:
            return max(each.timestamp for each in self.records)
        # The broker drops an append time: the base timestamp is not after the newest create time.
        header = self.written.header
        return header.base_timestamp if header.is_log_append_time else header.max_timestamp

    @property
    def entry(self) -> bytes:
        """The batch's part of a lot's index."""
        return ENTRY.pack(self.size, self.count, self.newest_ms, -1)

    def complete(self) -> None:
        """Complete the futures with the outcome."""
        outcome = self.outcome
        if isinstance(outcome, ShoalError):
            for future in self.futures:
                future.set_exception(outcome)
        elif not self.records:
            last = outcome + self.count - 1 if outcome >= 0 else -1
            newest_ms = self.batch.header.max_timestamp
            self.futures[0].set_result(RecordMetadata(*self.partition, last, outcome, newest_ms))
        else:
            for number, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
                offset = outcome + number if outcome >= 0 else -1
                future.set_result(RecordMetadata(*self.partition, offset, offset, record.timestamp))


def read_raw(value: object, limit_bytes: int) -> RecordBatch:
    """
    Copy a value as a batch that brokers accept.

    A batch with holes left by compaction, and messages of magic 0 or 1, are written as a new batch, as a
    mirror does. A patched header would not match the records.

    Args:
        value: The bytes of one batch with its header.
        limit_bytes: The largest decompressed size of a batch that is rewritten.

    Raises:
        ConfigError: The value is not a batch.
        CorruptBatch: The CRC does not match, or the value has more or less than one batch.
        UnsupportedBatch: The batch is a control batch, has no records, or has an unknown codec.

    """
    batch = _only_batch(value)
    header = batch.header
    verify_crc(batch)
    if header.magic == 2 and header.is_control:
        raise UnsupportedBatch("it is a control batch, which means nothing elsewhere", header.base_offset)
    if header.records_count == 0:
        raise UnsupportedBatch("it has no records", header.base_offset)
    if header.codec_id > max(Codec):
        raise UnsupportedBatch(f"its codec {header.codec_id} is unknown", header.base_offset)
    if header.magic == 2 and not header.has_holes:
        return RecordBatch(header, memoryview(bytearray(batch.view)))
    try:
        records = read_records(batch, limit_bytes)
    except UnsupportedBatch as error:
        raise UnsupportedBatch(reason_with_property(error), error.base_offset) from error
    return write_batch(records, Codec(header.codec_id))


def _only_batch(value: object) -> RecordBatch:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ConfigError(
            f"send.raw.bytes=true takes the bytes of a batch, not {type(value).__name__}. " + TOGETHER
        )
    view = memoryview(value)
    if not view.contiguous:
        raise ConfigError("send.raw.bytes=true takes bytes that follow one another, not a view with steps")
    view = view.cast("B")
    try:
        batches = list(split(view))
    except CorruptBatch as error:
        raise ConfigError(f"the value is not a record batch ({error.reason}). {TOGETHER}") from error
    if not batches:
        raise ConfigError(f"the value of {len(view)} bytes is not a record batch. {TOGETHER}")
    if len(batches) > 1 or len(batches[0].view) != len(view):
        raise CorruptBatch(
            f"a value of {len(view)} bytes is not one batch: its first has {len(batches[0].view)}"
        )
    return batches[0]
