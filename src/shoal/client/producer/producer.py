"""The raw producer: Kafka's producer, whose records may be whole batches (KIP-712)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Self

from ...error_codes import ErrorCode
from ...errors import BrokerError, ConfigError, ShoalError
from ...records import Record, write_body
from ...topic_partition import TopicPartition
from ..consumer.records import ConsumerRecord, RawRecord
from ..receiving import FetchedBytes
from .batches import TOGETHER, RecordMetadata, read_raw
from .sender import Sender
from .settings import ProducerSettings

__all__ = ["RawProducer", "partition_of_key"]

_LONGEST_BLOCK_S = 1e9

_INT64_MAX = 2**63 - 1

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]


class RawProducer:
    """
    Write records, or whole batches as they are.

    Threads may share a producer. Use it as a context manager, which flushes at the end.

    Examples:
        >>> import shoal
        >>> with shoal.RawProducer({"bootstrap.servers": "localhost:9092"}) as producer:
        ...     acknowledged = producer.send("payments", b"12.50", key=b"alice", partition=0)
        >>> acknowledged.result().offset
        0

    """

    def __init__(self, properties: Mapping[str, object] | ProducerSettings) -> None:
        """
        Read a configuration, and start the thread that sends.

        Args:
            properties: Properties of Java's producer, such as ``bootstrap.servers``, ``acks`` and
                ``send.raw.bytes`` (docs/python.md), or the settings that were read from them.

        Raises:
            ConfigError: A property is unknown (the message names the nearest one) or unsupported, or
                values are invalid or contradict each other.

        """
        self._settings = (
            properties
            if isinstance(properties, ProducerSettings)
            else ProducerSettings.from_properties(properties)
        )
        self._is_closed = False
        self._sender = Sender(self._settings)
        self._sender.start()

    def send(
        self,
        topic: str,
        value: bytes | bytearray | memoryview | RawRecord | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """
        Queue a record, or with ``send.raw.bytes=true`` a whole batch, without decompressing it.

        Args:
            topic: The topic to write to.
            value: The record's value, a batch's bytes (header included), or a consumer's raw record. The
                producer copies it.
            key: The key, which selects the partition by Java's hash. Records without a key go to the
                partitions in turn, a batch to each.
            partition: The partition. Required for a batch's bytes; a raw record's own one by default.
            headers: Names and values.
            timestamp_ms: Milliseconds since 1970, by default the present time.

        Returns:
            A future of its place, or of the error. The future's callbacks run in the sending thread, so
            they must not wait.

        Raises:
            ConfigError: The value does not fit ``send.raw.bytes``, or an argument has a wrong type.
            ValueError: The producer is closed.
            CorruptBatch: The batch's CRC does not match.
            UnsupportedBatch: No client may send such a batch.
            BufferFull: ``buffer.memory`` had no room within ``max.block.ms``.
            LargerThanBuffer: There will never be room for it.
            BrokerError: The topic or the partition did not exist within that time.

        """
        self._check_open()
        if self._sender.failure is not None:
            raise self._sender.failure
        deadline = self._deadline()
        future: Future[RecordMetadata] = Future()
        future.set_running_or_notify_cancel()  # a queued record cannot be cancelled
        if self._settings.send_raw_bytes:
            if key is not None or timestamp_ms is not None or headers:
                raise ConfigError(
                    "a batch has no key, headers or timestamp: leave them out with send.raw.bytes=true"
                )
            self._send_raw(topic, value, partition, future, deadline)
        else:
            if timestamp_ms is None:
                timestamp_ms = time.time_ns() // 1_000_000
            elif not isinstance(timestamp_ms, int) or not -1 <= timestamp_ms <= _INT64_MAX:
                # In the sending thread, this error would end the producer.
                raise ConfigError(f"timestamp_ms={timestamp_ms!r} is not a number of milliseconds since 1970")
            key = _bytes_of("key", key)
            body = write_body(key, _ordinary(value), _encoded(headers))
            self._send_record(topic, key, partition, Record(0, timestamp_ms, body), future, deadline)
        return future

    def _send_raw(
        self,
        topic: str,
        value: object,
        partition: int | None,
        future: Future[RecordMetadata],
        deadline: float,
    ) -> None:
        if isinstance(value, RawRecord):
            partition = value.partition if partition is None else partition
            value = value.value
        elif isinstance(value, ConsumerRecord):
            raise ConfigError(
                "a record of a consumer without fetch.raw.bytes given to a producer with send.raw.bytes. "
                + TOGETHER
            )
        batch = read_raw(value, self._settings.max_decompressed_bytes)
        if partition is None:
            raise ConfigError("a batch has no key to choose a partition by: give send() the partition")
        self._check_partition(topic, partition, deadline)
        self._sender.queues.add_raw(TopicPartition(topic, partition), batch, future, deadline)

    def _send_record(
        self,
        topic: str,
        key: bytes | None,
        partition: int | None,
        record: Record,
        future: Future[RecordMetadata],
        deadline: float,
    ) -> None:
        count = self._check_partition(topic, partition, deadline)
        if partition is None:
            turn = self._sender.queues.turn_of
            partition = turn(topic, count) if key is None else partition_of_key(key, count)
        self._sender.queues.add(TopicPartition(topic, partition), record, future, deadline)

    def _check_partition(self, topic: str, partition: int | None, deadline: float) -> int:
        """Return the number of partitions of a topic; a given partition must be one of them."""
        # In the sending thread, these errors would end the producer.
        if not isinstance(topic, str) or not topic.isascii():
            raise ConfigError(f"topic={topic!r} is not a topic's name. Use text, of ASCII characters")
        if partition is not None and (not isinstance(partition, int) or partition < 0):
            raise ConfigError(f"partition={partition!r} is not a partition's number")
        count = self._sender.partitions_of(topic, partition or 0, max(0.0, deadline - time.monotonic()))
        if count is None:
            if self._sender.failure is not None:
                raise self._sender.failure
            self._check_open()  # closed meanwhile
            where = f"topic {topic!r} on the cluster at {self._settings.client.servers}"
            waited = f"not there in max.block.ms={self._settings.max_block_ms}"
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where, waited)
        if partition is not None and partition >= count:
            where = f"{topic}-{partition} on the cluster at {self._settings.client.servers}"
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, where, f"it has {count} partitions")
        return count

    @property
    def failure(self) -> ShoalError | None:
        """The error after which the producer cannot send, or None. All open futures raise it, too."""
        return self._sender.failure

    def partitions_for(self, topic: str) -> int:
        """Return a topic's number of partitions; wait for the topic up to ``max.block.ms``."""
        self._check_open()
        return self._check_partition(topic, None, self._deadline())

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("the producer is closed")

    def _deadline(self) -> float:
        """Return the end of ``max.block.ms``, by the monotonic clock."""
        # MirrorMaker's users set Java's Long.MAX_VALUE, which is more than a thread can wait.
        return time.monotonic() + min(self._settings.max_block_ms / 1000, _LONGEST_BLOCK_S)

    def flush(self, timeout_s: float | None = None) -> bool:
        """
        Send all queued records at once, and wait until each is acknowledged or has failed.

        Returns:
            False if ``timeout_s`` was too short.

        """
        return self._sender.queues.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, and close all connections. Records without an acknowledgement after ``timeout_s`` fail."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.flush(timeout_s)
        finally:
            self._sender.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key as Java's producer does (``BuiltInPartitioner.partitionForKey``)."""
    from kafka.partitioner.default import murmur2  # imported here: raw producers hash no key

    hashed: int = murmur2(key)
    return (hashed & 0x7FFFFFFF) % partitions


def _ordinary(value: object) -> bytes | None:
    """Return an ordinary record's value; refuse a batch of a raw consumer."""
    if isinstance(value, RawRecord) or (
        isinstance(value, memoryview) and isinstance(value.obj, FetchedBytes)
    ):
        raise ConfigError(
            "a batch of a consumer with fetch.raw.bytes given to a producer without send.raw.bytes. "
            + TOGETHER
        )
    return _bytes_of("value", value)


def _bytes_of(what: str, value: object) -> bytes | None:
    """Return a part of an ordinary record as a copy."""
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ConfigError(f"a record's {what} is bytes, not {type(value).__name__}. Encode it first")
    return bytes(value)


def _encoded(headers: object) -> list[tuple[bytes, bytes | None]]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    encoded: list[tuple[bytes, bytes | None]] = []
    for pair in pairs if isinstance(pairs, Iterable) else (headers,):
        match pair:
            case (str() as name, content):
                encoded.append((name.encode(), _bytes_of(f"header {name!r}", content)))
            case _:
                raise ConfigError(f"headers={headers!r}: they are names, as text, with values, as bytes")
    return encoded
