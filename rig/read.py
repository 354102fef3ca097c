"""Read topics back with confluent-kafka, and compare them record by record."""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from rig.judge import compare
from rig.record import Record
from rig.wait import TimedOut, wait_until

__all__ = ["Isolation", "PartitionDigest", "assert_same_records", "digest_topic", "read_topic"]

Isolation = Literal["read_committed", "read_uncommitted"]

_TIMESTAMP_TYPES = {
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_QUERY_TIMEOUT_S = 60
_SILENCE_TIMEOUT_S = 60
# consume() returns no sooner than this unless it has all requested records.
_CONSUME_TIMEOUT_S = 0.1


class ReadFailed(Exception):
    """The topic could not be read to its end; the text has the last position."""


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """The digest that `digest_topic` computes for a partition.

    Attributes:
        count: Number of records.
        sha256: Hash over key, value, headers and timestamp of every record, in order; not offsets.
    """

    count: int
    sha256: str


def read_topic(
    bootstrap: str, topic: str, isolation: Isolation = "read_committed"
) -> dict[int, list[Record]]:
    """Read a topic from its beginning up to the end offsets at the start, with CRC checks.

    Raises:
        ReadFailed: An error, or no record for a minute.
    """
    records: dict[int, list[Record]] = {}
    for partition, of_partition in _batches(bootstrap, topic, isolation):
        records.setdefault(partition, []).extend(of_partition)
    return dict(sorted(records.items()))


def digest_topic(bootstrap: str, topic: str) -> dict[int, PartitionDigest]:
    """Hash a topic that is too big for `read_topic`; if digests are equal, the records are."""
    hashes: dict[int, hashlib._Hash] = {}
    counts: dict[int, int] = {}
    for partition, records in _batches(bootstrap, topic, "read_committed"):
        of_partition = hashes.setdefault(partition, hashlib.sha256())
        counts[partition] = counts.get(partition, 0) + len(records)
        for record in records:
            of_partition.update(_canonical(record))
    return {p: PartitionDigest(counts[p], hashes[p].hexdigest()) for p in sorted(hashes)}


def assert_same_records(
    source: Mapping[int, Sequence[Record]], destination: Mapping[int, Sequence[Record]]
) -> None:
    """Compare two readings by partition, order, key, value, headers and timestamp.

    Offsets may differ: a mirror drops transaction markers and aborted records.

    Raises:
        AssertionError: A record is missing, there twice, late, or foreign; the text names the first ones.
    """
    assert sorted(source) == sorted(destination), (
        f"partitions differ: {sorted(source)} in the source, {sorted(destination)} in the destination"
    )
    verdict = compare(source, destination)
    assert verdict.is_exact, "\n".join([str(verdict), *verdict.details])


def _batches(bootstrap: str, topic: str, isolation: Isolation) -> Iterator[tuple[int, list[Record]]]:
    """Yield ``(partition, records)``, at least once for each partition, in offset order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rig-read",  # required by librdkafka, never joined
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "log_level": 0,  # failures are raised
        }
    )
    with closing(consumer):
        ends = _end_offsets(consumer, topic)
        for partition in ends:
            yield partition, []
        yield from _read_until(consumer, topic, ends)


def _end_offsets(consumer: Consumer, topic: str) -> dict[int, int]:
    """Assign every partition from its beginning, and return their high watermarks."""
    found = consumer.list_topics(topic, timeout=_QUERY_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise ReadFailed(f"{topic}: {found.error}")
    ends: dict[int, int] = {}
    starts: list[TopicPartition] = []
    for partition in sorted(found.partitions):
        low, ends[partition] = _watermarks(consumer, TopicPartition(topic, partition))
        starts.append(TopicPartition(topic, partition, low))
    consumer.assign(starts)
    return ends


def _watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return the start and end offset; retry while the leader is moving to another broker."""
    found: list[tuple[int, int]] = []
    refusals: list[KafkaException] = []

    def is_answered() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(partition, timeout=10))
        except KafkaException as error:
            refusals.append(error)
        return bool(found)

    try:
        wait_until(is_answered, "its end offset", timeout_s=_QUERY_TIMEOUT_S, interval_s=0.2)
    except TimedOut as error:
        raise ReadFailed(f"{partition.topic}-{partition.partition}: {error}: {refusals[-1]}") from error
    return found[0]


def _read_until(
    consumer: Consumer, topic: str, ends: Mapping[int, int]
) -> Iterator[tuple[int, list[Record]]]:
    """Yield records until every partition has reached its end.

    A partition is complete if its last record was read, or if the consumer reached the end of the
    log: the last offsets may be markers and aborted records, which a consumer never returns.
    """
    unread = {partition for partition, end in ends.items() if end > 0}
    heard = time.monotonic()
    while unread:
        by_partition: dict[int, list[Record]] = {}
        for message in consumer.consume(10_000, timeout=_CONSUME_TIMEOUT_S):
            heard = time.monotonic()
            partition, offset = message.partition() or 0, message.offset() or 0
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise ReadFailed(f"{topic}-{partition} at {offset}: {error}")
            if error is None and offset < ends[partition]:
                by_partition.setdefault(partition, []).append(_record(message))
            if error is not None or offset >= ends[partition] - 1:
                unread.discard(partition)
        yield from by_partition.items()
        if time.monotonic() - heard > _SILENCE_TIMEOUT_S:
            raise ReadFailed(f"{topic}: silent for {_SILENCE_TIMEOUT_S} s; not at the end: {unread}")


def _record(message: Message) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp=timestamp,
        timestamp_type=_TIMESTAMP_TYPES.get(kind, "none"),
        offset=message.offset() or 0,
    )


def _canonical(record: Record) -> bytes:
    """Return bytes that differ for any two different records."""
    return repr((record.key, record.value, record.headers, record.timestamp)).encode()
