"""The results of ``poll``: records, or whole batches in the place of records (KIP-712)."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import CorruptBatch, UnsupportedBatch
from ...protocol.fetch import FetchedPartition
from ...records import (
    AbortedTransactions,
    BatchHeader,
    CheckedCrcs,
    Codec,
    Decision,
    RecordBatch,
    Scan,
    read_key_value_headers,
    read_records,
    verify_crc,
    write_batch,
)
from ...topic_partition import TopicPartition
from ..config import IsolationLevel
from ..properties import reason_with_property
from ..receiving import FetchedBytes
from .settings import ConsumerSettings

__all__ = ["AnyRecord", "ConsumerRecord", "RawRecord", "TimestampType", "read_fetched"]


class TimestampType(enum.Enum):
    """The meaning of a record's timestamp."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class _InLog:
    """The place of a record, or of a batch; ``offset`` is the last offset that it takes."""

    topic: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, as a pair."""
        return TopicPartition(self.topic, self.partition)

    @property
    def next_offset(self) -> int:
        """The offset to commit after processing."""
        return self.offset + 1


@dataclass(frozen=True, slots=True)
class ConsumerRecord(_InLog):
    """
    A decoded record.

    Attributes:
        topic: The name of its topic.
        partition: Its partition.
        offset: Its offset.
        timestamp: Milliseconds since 1970, -1 for none.
        timestamp_type: LOG_APPEND_TIME if the broker set the timestamp, CREATE_TIME if the producer did.
        key: The key's bytes, or None.
        value: The value's bytes, or None for a tombstone.
        headers: Names and values, in their order.
        leader_epoch: The epoch of the leader that wrote it, -1 if its message format has none.

    Examples:
        >>> import shoal
        >>> consumer = shoal.RawConsumer({
        ...     "bootstrap.servers": "localhost:9092",
        ...     "auto.offset.reset": "earliest",
        ... })
        >>> with consumer:
        ...     consumer.assign([("orders", 0)])
        ...     record = next(consumer)
        >>> record.topic_partition, record.offset, record.key, record.value
        (TopicPartition(topic='orders', partition=0), 0, b'alice', b'1 x tea')

    """

    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RawRecord(_InLog):
    """
    A whole record batch, not decompressed, in the place of a record (KIP-712).

    Attributes:
        topic: The name of its topic.
        partition: Its partition.
        offset: The last offset in the batch.
        base_offset: The first offset in the batch.
        record_count: The number of records, fewer than offsets if compaction removed some.
        codec: The codec of its records.
        max_timestamp: Milliseconds since 1970, -1 for none.
        timestamp_type: LOG_APPEND_TIME if the broker set the timestamps, CREATE_TIME if the producer did.
        value: All bytes of the batch, header included: a read-only view. While the view exists, the whole
            response that contained the batch stays in memory.
        leader_epoch: The epoch of the leader that wrote it.

    Examples:
        A raw producer sends it on as it is:

        >>> import shoal
        >>> cluster = {"bootstrap.servers": "localhost:9092"}
        >>> consumer = shoal.RawConsumer(
        ...     cluster | {"fetch.raw.bytes": True, "auto.offset.reset": "earliest"}
        ... )
        >>> with consumer, shoal.RawProducer(cluster | {"send.raw.bytes": True}) as producer:
        ...     consumer.assign([("orders", 0)])
        ...     batch = next(consumer)
        ...     copied = producer.send("copies", batch).result()
        >>> batch.next_offset, copied.base_offset, copied.offset
        (3, 0, 2)

    """

    base_offset: int
    record_count: int
    codec: Codec
    max_timestamp: int
    timestamp_type: TimestampType
    value: memoryview
    leader_epoch: int

    @property
    def key(self) -> None:
        """None: a batch has no key."""

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Empty: a batch has no headers."""
        return ()


AnyRecord = ConsumerRecord | RawRecord


def read_fetched(
    partition: TopicPartition, fetched: FetchedPartition, position: int, settings: ConsumerSettings
) -> Iterator[tuple[AnyRecord | None, int]]:
    """
    Read the fetched records of a partition, batch by batch.

    Args:
        fetched: Its part of the fetch response, in memory that the caller does not reuse.
        position: The first wanted offset; the first batch may begin before it.
        settings: The consumer's: batches or records, and whether CRCs are verified.

    Yields:
        A record and the position after it; or None and a position behind a
        dropped batch: control, empty, or aborted with ``read_committed``.

    Raises:
        CorruptBatch: A batch that no broker should send; the text names its partition.
        UnsupportedBatch: A batch to decode expands to more than the limit.

    """
    committed = settings.client.isolation_level is IsolationLevel.READ_COMMITTED
    aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
    crcs = CheckedCrcs.ALL if settings.check_crcs else CheckedCrcs.NONE
    read = _read_raw if settings.fetch_raw_bytes else _read_deep
    try:
        for decision, batch in Scan[RecordBatch](fetched.record_set, position, aborted, crcs=crcs):
            if not decision.is_drop:
                for record in read(partition, batch, decision, position, settings):
                    position = record.next_offset
                    yield record, position
            if position < batch.header.next_offset:
                position = batch.header.next_offset
                yield None, position
    except CorruptBatch as error:
        raise CorruptBatch(
            f"{partition}, after offset {position - 1}: {error.reason}", error.position
        ) from error
    except UnsupportedBatch as error:
        raise UnsupportedBatch(f"{partition}: {reason_with_property(error)}", error.base_offset) from error


def _timestamp_type(header: BatchHeader) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if header.is_log_append_time else TimestampType.CREATE_TIME


def _read_deep(
    partition: TopicPartition,
    batch: RecordBatch,
    decision: Decision,
    position: int,
    settings: ConsumerSettings,
) -> Iterator[ConsumerRecord]:
    header = batch.header
    append_time = header.append_time
    kind = _timestamp_type(header)
    for record in read_records(batch, settings.max_decompressed_bytes):
        if record.offset < position:
            continue
        key, value, headers = read_key_value_headers(record)
        yield ConsumerRecord(
            partition.topic,
            partition.partition,
            record.offset,
            record.timestamp if append_time is None else append_time,
            kind,
            key,
            value,
            tuple((name.decode("utf-8", "replace"), content) for name, content in headers),
            header.leader_epoch,
        )


def _read_raw(
    partition: TopicPartition,
    batch: RecordBatch,
    decision: Decision,
    position: int,
    settings: ConsumerSettings,
) -> Iterator[RawRecord]:
    header = batch.header
    if decision in (Decision.CROP, Decision.REBUILD_MAGIC):
        # The rest of a batch, or messages of an old format: these need a new batch.
        verify_crc(batch)
        decoded = read_records(batch, settings.max_decompressed_bytes)
        if records := [record for record in decoded if record.offset >= position]:
            written = write_batch(records, Codec(header.codec_id))
            memory = FetchedBytes(written.view)
            # The offset in the log; the CRC does not cover it.
            memory[0:8] = records[0].offset.to_bytes(8)
            log = (records[0].offset, records[-1].offset, header.leader_epoch)
            yield _raw(partition, written.header, memoryview(memory), *log)
        return
    if header.codec_id > max(Codec):
        raise UnsupportedBatch(f"its codec {header.codec_id} is unknown", header.base_offset)
    yield _raw(partition, header, batch.view, header.base_offset, header.last_offset, header.leader_epoch)


def _raw(
    partition: TopicPartition, header: BatchHeader, view: memoryview, first: int, last: int, epoch: int
) -> RawRecord:
    return RawRecord(
        partition.topic,
        partition.partition,
        last,
        first,
        header.records_count,
        Codec(header.codec_id),
        header.max_timestamp,
        _timestamp_type(header),
        view.toreadonly(),
        epoch,
    )
