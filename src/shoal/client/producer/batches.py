"""Batches to send: those that are filled record by record, and those that the caller passed whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import ConfigError, CorruptBatch, ShoalError, UnsupportedBatch
from ...records import (
    HEADER_SIZE,
    Codec,
    Record,
    RecordBatch,
    read_records,
    split,
    stamp,
    stamped_header,
    verify_crc,
    write_batch,
)
from ...topic_partition import TopicPartition
from ..properties import reason_with_property

__all__ = ["TOGETHER", "OrdinaryBatch", "PendingBatch", "RawBatch", "RecordMetadata", "read_raw"]

#: The rule of KIP-712.
TOGETHER = "fetch.raw.bytes and send.raw.bytes need to be turned on together"

#: The largest overhead of a record besides key, value and headers: varints and attributes.
RECORD_OVERHEAD = 26


class RecordMetadata(NamedTuple):
    """
    The place of an acknowledged record or batch.

    Attributes:
        topic: The name of its topic.
        partition: Its partition.
        offset: The record's offset, or the batch's last one. -1 with ``acks=0``.
        base_offset: The record's offset, or the batch's first one.
        timestamp: Milliseconds since 1970: the broker's on a LogAppendTime topic, else the record's.

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
class PendingBatch(ABC):
    """
    A batch from the call of the producer to its outcome.

    Attributes:
        partition: The partition to write to.
        created_at: The start of ``delivery.timeout.ms``, by the monotonic clock.
        reserved_bytes: The batch's part of ``buffer.memory``.
        sequence: The sequence of the first record, after an idempotent producer has sent it.
        landing: The offset of the first record if the batch is written; only if sequences are offsets.
        attempts: The number of requests with this batch.
        is_in_doubt: Whether the batch may be written although no response confirmed it.
        is_decided: Whether the outcome is known.
        is_done: Whether the futures are complete.
        parts: The two halves, if the batch was divided.

    """

    partition: TopicPartition
    created_at: float
    reserved_bytes: int = 0
    sequence: int | None = None
    landing: int | None = None
    attempts: int = 0
    is_in_doubt: bool = False
    is_decided: bool = False
    is_done: bool = False
    parts: Sequence[PendingBatch] = ()

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of records, and so of sequences."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The bytes on the wire, so far if more records may be added."""

    @property
    def is_open(self) -> bool:
        """Whether more records may be added."""
        return False

    @property
    def is_settled(self) -> bool:
        """Whether all futures are complete, also those of the parts."""
        return self.is_done and all(part.is_settled for part in self.parts)

    @abstractmethod
    def stamped(self, producer_id: int, epoch: int, sequence: int) -> Sequence[memoryview]:
        """Return the bytes in pieces for a producer id; all -1 if the producer is not idempotent."""

    @abstractmethod
    def acknowledge(self, base_offset: int, append_time_ms: int) -> None:
        """Complete the futures with offsets and the append time; -1 if the response has none."""

    @abstractmethod
    def fail(self, error: ShoalError) -> None:
        """Complete the futures with an error."""


@dataclass(slots=True, eq=False)
class RawBatch(PendingBatch):
    """A whole batch of the caller: the header is rewritten, the payload remains the caller's view."""

    batch: RecordBatch = field(kw_only=True)
    future: Future[RecordMetadata] = field(kw_only=True)

    @property
    def count(self) -> int:
        """See :class:`PendingBatch`."""
        return self.batch.header.records_count

    @property
    def size(self) -> int:
        """See :class:`PendingBatch`."""
        return len(self.batch.view)

    def stamped(self, producer_id: int, epoch: int, sequence: int) -> Sequence[memoryview]:
        """See :class:`PendingBatch`."""
        head = stamped_header(self.batch, producer_id, epoch, sequence)
        return head, self.batch.view[HEADER_SIZE:]

    def acknowledge(self, base_offset: int, append_time_ms: int) -> None:
        """See :class:`PendingBatch`."""
        last = base_offset + self.count - 1 if base_offset >= 0 else -1
        timestamp = append_time_ms if append_time_ms >= 0 else self.batch.header.max_timestamp
        self.future.set_result(RecordMetadata(*self.partition, last, base_offset, timestamp))

    def fail(self, error: ShoalError) -> None:
        """See :class:`PendingBatch`."""
        self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class OrdinaryBatch(PendingBatch):
    """Records that are collected and then written as one batch."""

    codec: Codec = field(kw_only=True)
    records: list[Record] = field(default_factory=list)
    futures: list[Future[RecordMetadata]] = field(default_factory=list)
    bytes_count: int = HEADER_SIZE
    written: RecordBatch | None = None

    @property
    def count(self) -> int:
        """See :class:`PendingBatch`."""
        return len(self.records)

    @property
    def size(self) -> int:
        """See :class:`PendingBatch`."""
        return len(self.written.view) if self.written is not None else self.bytes_count

    @property
    def is_open(self) -> bool:
        """See :class:`PendingBatch`."""
        return self.written is None

    def add(self, record: Record, future: Future[RecordMetadata]) -> None:
        """Add a record with the future of its place."""
        self.records.append(record._replace(offset=len(self.records)))
        self.futures.append(future)
        self.bytes_count += len(record.body) + RECORD_OVERHEAD

    def write(self) -> None:
        """Close the batch, and encode its records."""
        if self.written is None:
            self.written = write_batch(self.records, self.codec)

    def stamped(self, producer_id: int, epoch: int, sequence: int) -> Sequence[memoryview]:
        """See :class:`PendingBatch`."""
        self.write()
        assert self.written is not None
        stamp(self.written, producer_id, epoch, sequence)
        return (self.written.view,)

    def halves(self) -> tuple[OrdinaryBatch, OrdinaryBatch]:
        """Return two batches with the records: the broker refused this one as too large."""
        middle = self.count // 2
        parts: list[OrdinaryBatch] = []
        for start, end in ((0, middle), (middle, self.count)):
            part = OrdinaryBatch(self.partition, self.created_at, codec=self.codec)
            for record, future in zip(self.records[start:end], self.futures[start:end], strict=True):
                part.add(record, future)
            part.write()
            parts.append(part)
        first, second = self.parts = parts
        first.reserved_bytes = self.reserved_bytes * middle // self.count
        second.reserved_bytes = self.reserved_bytes - first.reserved_bytes
        first.sequence = self.sequence
        second.sequence = None if self.sequence is None else (self.sequence + middle) % 2**31
        return first, second

    def acknowledge(self, base_offset: int, append_time_ms: int) -> None:
        """See :class:`PendingBatch`."""
        for number, (record, future) in enumerate(zip(self.records, self.futures, strict=True)):
            offset = base_offset + number if base_offset >= 0 else -1
            timestamp = append_time_ms if append_time_ms >= 0 else record.timestamp
            future.set_result(RecordMetadata(*self.partition, offset, offset, timestamp))

    def fail(self, error: ShoalError) -> None:
        """See :class:`PendingBatch`."""
        for future in self.futures:
            future.set_exception(error)


def read_raw(value: object, limit_bytes: int) -> RecordBatch:
    """
    Read a value as a batch that brokers accept.

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
    whole = sum(len(batch.view) for batch in batches)
    if len(batches) > 1 or whole != len(view):
        raise CorruptBatch(
            f"a value of {len(view)} bytes is not one batch: its first has {len(batches[0].view)}"
        )
    batch = batches[0]
    header = batch.header
    verify_crc(batch)
    if header.magic == 2 and header.is_control:
        raise UnsupportedBatch("it is a control batch, which means nothing elsewhere", header.base_offset)
    if header.records_count == 0:
        raise UnsupportedBatch("it has no records", header.base_offset)
    if header.codec_id > max(Codec):
        raise UnsupportedBatch(f"its codec {header.codec_id} is unknown", header.base_offset)
    if header.magic != 2 or header.has_holes:
        try:
            records = read_records(batch, limit_bytes)
        except UnsupportedBatch as error:
            raise UnsupportedBatch(reason_with_property(error), error.base_offset) from error
        return write_batch(records, Codec(header.codec_id))
    return batch
