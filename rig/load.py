"""Create topics and load them, with confluent-kafka.

Every loader is deterministic, and returns the records that it sent, by partition, as a
``read_committed`` consumer must read them.

One flush makes one batch. The linger is so long that the client sends nothing before the flush. The
producer knows the topic's leaders before it gets the first record. Otherwise, it adds the records to
their partition one by one after the metadata response. A flush that started by then sends a smaller
batch. If compression would not make a batch smaller, librdkafka sends it uncompressed.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import le
from typing import Literal, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from rig.made_records import FIRST_TIMESTAMP, JsonValues, batches_of_every_size, random_records
from rig.record import Record
from rig.wait import wait_until

__all__ = [
    "CODECS",
    "Codec",
    "Loaded",
    "Producers",
    "alter_topic",
    "await_leaders",
    "await_markers",
    "create_topic",
    "load_aborted_transaction",
    "load_batch",
    "load_batches",
    "load_committed_transaction",
    "load_every_kind",
    "load_plain",
    "load_values",
    "send_batch",
    "send_batches",
    "transactional_producer",
]

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Loaded = dict[int, list[Record]]
"""Records by partition."""

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

_FLUSH_TIMEOUT_S = 120
_METADATA_TIMEOUT_S = 60
_BATCH_BY_FLUSH: dict[str, object] = {
    "linger.ms": 20_000,
    "batch.num.messages": 1_000_000,
    "batch.size": 2_000_000,
    "message.max.bytes": 2_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    # No log: failures are raised, and tests stop brokers on purpose.
    "log_level": 0,
}


class LoadFailed(Exception):
    """A record was not acknowledged; the text has librdkafka's reason."""


def create_topic(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and wait until every partition's leader answers for it."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    new = NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
    admin.create_topics([new])[topic].result()
    await_leaders(bootstrap, topic, partitions)


def await_leaders(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until every partition's leader answers for it.

    Metadata names a leader before that broker has received its new role, and until then it rejects requests.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}

    def leaders_answer() -> bool:
        try:
            for answer in admin.list_offsets(latest, request_timeout=10).values():
                answer.result()
        except KafkaException:
            return False
        return True

    # A broker opens the logs of a thousand partitions one after the other.
    wait_until(leaders_answer, f"leaders of {topic}", _METADATA_TIMEOUT_S + 0.1 * partitions)


def alter_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    """Change some of a topic's configuration without touching the other settings or the records."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result()


def load_batch(
    bootstrap: str,
    topic: str,
    partition: int,
    records: Sequence[Record],
    codec: Codec = "none",
    idempotent: bool = False,
) -> Loaded:
    """Send these records to one partition as one batch, if they fit.

    An idempotent producer takes half a second more: librdkafka looks for a producer id twice a second.
    """
    producer = _producer(bootstrap, codec, idempotent)
    send_batch(producer, topic, partition, records)
    return {partition: list(records)}


def load_batches(bootstrap: str, topic: str, batches: Iterable[tuple[int, Sequence[Record], Codec]]) -> None:
    """Send batches one after the other, as `load_batch` does; each has a partition, records and a codec."""
    producers: dict[Codec, Producer] = {}
    for partition, records, codec in batches:
        if codec not in producers:
            producers[codec] = _producer(bootstrap, codec, idempotent=False)
        send_batch(producers[codec], topic, partition, records)


def transactional_producer(
    bootstrap: str, transactional_id: str, codec: Codec = "none", timeout_ms: int = 60_000
) -> Producer:
    """Return a producer after ``init_transactions``, for tests that control transactions themselves.

    Args:
        timeout_ms: The broker aborts a transaction that is open for longer; at most 900,000.
    """
    more = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms}
    producer = _producer(bootstrap, codec, idempotent=True, more=more)
    producer.init_transactions(60)
    return producer


def load_committed_transaction(
    bootstrap: str,
    topic: str,
    records: Loaded,
    codec: Codec = "none",
    transactional_id: str = "committed",
) -> Loaded:
    """Send one batch to each partition in a transaction and commit it."""
    Producers.of(bootstrap, topic, [], transactional_id, codec).commit(records)
    await_markers(bootstrap, topic, records)
    return records


def await_markers(bootstrap: str, topic: str, partitions: Iterable[int]) -> list[int]:
    """Wait until some partitions have no open transaction, and return their ends.

    A coordinator writes the markers after its response to the commit or abort.
    """
    every: list[int] = []
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}

    def ends(isolation: IsolationLevel) -> list[int]:
        asked = admin.list_offsets(latest, isolation_level=isolation, request_timeout=10)
        return [asked[partition].result().offset for partition in latest]

    def are_written() -> bool:
        try:
            every[:] = ends(IsolationLevel.READ_UNCOMMITTED)  # first, since others may write during the check
            return all(map(le, every, ends(IsolationLevel.READ_COMMITTED)))
        except KafkaException:
            return False  # a partition's leader is moving

    wait_until(are_written, f"the last markers of {topic}", _METADATA_TIMEOUT_S)
    return every


def load_aborted_transaction(
    bootstrap: str,
    topic: str,
    records: Loaded,
    codec: Codec = "none",
    transactional_id: str = "aborted",
) -> Loaded:
    """Send one batch to each partition in a transaction and abort it; no record remains visible."""
    Producers.of(bootstrap, topic, [], transactional_id, codec).abort(records)
    await_markers(bootstrap, topic, records)
    return {partition: [] for partition in records}


@dataclass(frozen=True)
class Producers:
    """The producers of a topic.

    Attributes:
        idempotent: One for each codec.
        plain: One for each codec.
        transactional: One, with a codec of its own.
    """

    topic: str
    idempotent: Sequence[Producer]
    plain: Sequence[Producer]
    transactional: Producer

    @classmethod
    def of(
        cls, bootstrap: str, topic: str, codecs: Sequence[Codec], transactional_id: str, codec: Codec
    ) -> Self:
        """Connect them.

        Args:
            codecs: Those of the idempotent and of the plain ones.
            codec: That of the transactional one.
        """
        idempotent, plain = ([_producer(bootstrap, each, kind) for each in codecs] for kind in (True, False))
        return cls(topic, idempotent, plain, transactional_producer(bootstrap, transactional_id, codec))

    def send(self, producer: Producer, records: Loaded) -> None:
        """Send one batch to each partition by one of the producers."""
        send_batches(producer, self.topic, records)

    def commit(self, records: Loaded) -> None:
        """Send one batch to each partition in a transaction that is committed."""
        self.transactional.begin_transaction()
        self.send(self.transactional, records)
        self.transactional.commit_transaction(60)

    def abort(self, *records: Loaded, between: tuple[Producer, Loaded] | None = None) -> None:
        """Send batches in a transaction that is aborted; after the first one, another producer sends its own.

        Each is flushed: otherwise librdkafka's abort would drop it before it reaches the log.
        """
        self.transactional.begin_transaction()
        for number, each in enumerate(records):
            self.send(self.transactional, each)
            if between and number == 0:
                self.send(*between)
        self.transactional.abort_transaction(60)


def load_every_kind(
    bootstrap: str,
    topic: str,
    partitions: int = 4,
    codecs: Sequence[Codec] = CODECS,
    create: bool = True,
) -> Loaded:
    """Create a topic and load it with every kind of batch that a Kafka 4 client can make.

    For each of the codecs: batches of 1 record to about 1 MB, by idempotent and plain producers; one
    record of about 900 KB; a committed transaction; and an aborted one, with batches of other producers
    between its own. About 12 MB with all codecs.

    Args:
        create: False to add to an existing topic.
    """
    if create:
        create_topic(bootstrap, topic, partitions)
    rng = random.Random(0)
    loaded: Loaded = {partition: [] for partition in range(partitions)}
    with ThreadPoolExecutor() as starters:  # since producer ids take most of the time
        by_codec = list(starters.map(partial(_producers, bootstrap, topic), codecs))
    for number, producers in enumerate(by_codec):
        for step, records in enumerate(batches_of_every_size(rng)):
            partition = (number + step) % partitions
            of_kind = (producers.idempotent, producers.plain)[step % 2]
            producers.send(of_kind[0], {partition: records})
            loaded[partition] += records
        for each in _load_transactions(producers, rng, loaded):
            for partition, records in each.items():
                loaded[partition] += records
    await_markers(bootstrap, topic, loaded)
    return loaded


def _producers(bootstrap: str, topic: str, codec: Codec) -> Producers:
    return Producers.of(bootstrap, topic, [codec], f"{topic}-{codec}", codec)


def _load_transactions(
    producers: Producers, rng: random.Random, partitions: Iterable[int]
) -> tuple[Loaded, Loaded]:
    """Commit a transaction in every partition, and abort one that another producer's batches interrupt."""
    committed, between, *aborted = (
        {partition: random_records(rng, count, size) for partition in partitions}
        for count, size in ((7, 200), (3, 100), (5, 200), (1, 50))
    )
    producers.commit(committed)
    producers.abort(*aborted, between=(producers.idempotent[0], between))
    return committed, between


def load_plain(
    bootstrap: str,
    topic: str,
    codec: Codec,
    records_per_batch: int,
    total_bytes: int,
    partitions: int = 4,
    create: bool = True,
    first_timestamp_ms: int = FIRST_TIMESTAMP,
    records_per_transaction: int | None = None,
) -> int:
    """Load a large topic quickly: records of 1,000 bytes, JSON of random words and a running number.

    Every batch has exactly ``records_per_batch`` records; only the last of a partition may have fewer.

    Args:
        total_bytes: Size of all values, before compression.
        create: False to add to an existing topic.
        first_timestamp_ms: Timestamp of the first record; each following one is a millisecond later.
        records_per_transaction: As for `load_values`.

    Returns:
        Number of records sent.
    """
    if create:
        create_topic(bootstrap, topic, partitions)
    count = total_bytes // 1000
    values = JsonValues(random.Random(0))
    records = (
        (number // records_per_batch % partitions, first_timestamp_ms + number, values.numbered(number))
        for number in range(count)
    )
    load_values(bootstrap, topic, codec, records_per_batch, records, partitions, records_per_transaction)
    return count


def load_values(
    bootstrap: str,
    topic: str,
    codec: Codec,
    records_per_batch: int,
    records: Iterable[tuple[int, int, bytes | str]],
    partitions: int = 1,
    records_per_transaction: int | None = None,
) -> None:
    """Send values quickly, with idempotent producers.

    Every batch has exactly ``records_per_batch`` records; only the last of a partition may have fewer.

    Args:
        records: Partition, timestamp in milliseconds and value of each.
        partitions: Number of partitions that may have a batch in flight.
        records_per_transaction: Commit them in transactions of this size. None for no transactions.

    Raises:
        LoadFailed: The broker did not acknowledge all records.
    """
    failures: list[KafkaError] = []
    delivered = _collect(failures)
    limits: dict[str, object] = {
        "batch.num.messages": records_per_batch,
        # Limits the producer's queue; if it is full, the loader waits for librdkafka to catch up.
        "queue.buffering.max.messages": max(20_000, 4 * records_per_batch * partitions),
        # Only failures call back: a callback for each record would halve the speed.
        "delivery.report.only.error": True,
    }
    if records_per_transaction is not None:
        limits["transactional.id"] = topic
    producer = _producer(bootstrap, codec, idempotent=True, more=limits)
    if records_per_transaction is not None:
        producer.init_transactions(60)
        producer.begin_transaction()
    _know(producer, topic)
    for number, (partition, timestamp_ms, value) in enumerate(records):
        if records_per_transaction is not None and number and number % records_per_transaction == 0:
            producer.commit_transaction(60)
            producer.begin_transaction()
        while True:
            try:
                producer.produce(
                    topic, value, partition=partition, timestamp=timestamp_ms, on_delivery=delivered
                )
                break
            except BufferError:
                producer.poll(0.1)
    _flush(producer, failures)
    if records_per_transaction is not None:
        producer.commit_transaction(60)


def _producer(
    bootstrap: str, codec: Codec, idempotent: bool, more: Mapping[str, object] | None = None
) -> Producer:
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "compression.codec": codec,
        "enable.idempotence": idempotent,
        "acks": "all",
        **_BATCH_BY_FLUSH,
        **(more or {}),
    }
    return Producer(config)


def send_batch(producer: Producer, topic: str, partition: int, records: Sequence[Record]) -> None:
    """Send these records with a producer of long linger, and wait for their acknowledgement."""
    send_batches(producer, topic, {partition: records})


def send_batches(producer: Producer, topic: str, records: Mapping[int, Sequence[Record]]) -> None:
    """Send one batch to each partition, as `send_batch` does."""
    failures: list[KafkaError] = []
    delivered = _collect(failures)
    _know(producer, topic)
    for partition, of_partition in records.items():
        for record in of_partition:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=delivered,
            )
    _flush(producer, failures)


def _collect(failures: list[KafkaError]) -> Callable[[KafkaError | None, Message], None]:
    """Return a delivery callback that collects failures."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    return delivered


def _know(producer: Producer, topic: str) -> None:
    """Fetch a topic's metadata into a producer, so that records go straight to their partitions."""

    def knows() -> bool:
        try:
            producer.list_topics(topic, 10)
        except KafkaException:
            return False  # the broker that was asked is down
        return True

    wait_until(knows, f"metadata of {topic}", _METADATA_TIMEOUT_S)


def _flush(producer: Producer, failures: Sequence[KafkaError]) -> None:
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if failures or unsent:
        raise LoadFailed(f"{len(failures)} records failed, {unsent} unsent: {failures[:1]}")
