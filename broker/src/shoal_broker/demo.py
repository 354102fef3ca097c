"""
The parts of ``shoal-demo``: embedded clusters, topics of every kind, and a count of their records.

confluent-kafka (shoal's extra ``demo``) produces and counts the records, since a copy has to be readable for
the clients of other projects.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from shoal.errors import ConfigError, ShoalError

from .broker import Broker

__all__ = ["TOPICS", "DemoTopic", "Loaded", "cluster", "count", "load", "require_confluent_kafka"]

_START_TIMEOUT_S = 60.0
_CLIENT_TIMEOUT_S = 60.0

#: Different records in a topic. They repeat, but too far apart for a codec to notice.
_DIFFERENT_RECORDS = 2_000

_TRANSACTIONS = 12
#: One in this number of transactions is aborted.
_ABORTED = 4


@dataclass(frozen=True, slots=True)
class DemoTopic:
    """
    A topic of the demo.

    Attributes:
        partitions: The number of partitions.
        codec: The codec, by librdkafka's name.
        batch_bytes: The producer's ``batch.size``.
        share: The topic's share of the demo's bytes.
        transactional: Whether a transactional producer writes the records, and aborts some transactions.

    """

    name: str
    partitions: int
    codec: str
    batch_bytes: int
    share: float
    transactional: bool = False


TOPICS = (
    DemoTopic("images", 2, "none", 1_000_000, 0.20),
    DemoTopic("logs", 2, "gzip", 256_000, 0.18),
    DemoTopic("clicks", 4, "snappy", 64_000, 0.18),
    DemoTopic("orders", 4, "lz4", 16_384, 0.18),
    DemoTopic("metrics", 3, "zstd", 256_000, 0.18),
    DemoTopic("payments", 2, "zstd", 64_000, 0.08, transactional=True),
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """
    The records that were produced to a topic.

    Attributes:
        records: The number of committed records.
        aborted: The number of records of aborted transactions.
        value_bytes: The uncompressed size of the committed records' values.

    """

    records: int
    aborted: int
    value_bytes: int


@contextmanager
def cluster() -> Iterator[str]:
    """
    Run an embedded broker in a process of its own, and yield its bootstrap servers.

    So the mirror's CPU seconds do not include the broker's. The broker ends with this process.

    Raises:
        ShoalError: The broker did not start.

    """
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_serve, args=(its,), name="shoal-demo-broker", daemon=True)
    process.start()
    its.close()
    try:
        yield _bootstrap_from(ours)
    finally:
        ours.close()
        process.join()


def _bootstrap_from(connection: Connection) -> str:
    try:
        if connection.poll(_START_TIMEOUT_S):
            return str(connection.recv())
    except EOFError:
        pass
    raise ShoalError("the embedded broker did not start")


def _serve(connection: Connection) -> None:
    """Run a broker until the other end of the connection is closed."""
    # Ctrl-C reaches every process of the terminal, but the mirror still needs its brokers to finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Broker() as broker:
        connection.send(broker.bootstrap)
        # The parent sends nothing: this returns when the parent is gone.
        connection.poll(None)


def load(bootstrap: str, topic: DemoTopic, value_bytes: int) -> Loaded:
    """
    Create a topic and produce to it.

    Args:
        topic: The topic to create.
        value_bytes: About how much to produce, before compression.

    Raises:
        ShoalError: The broker refuses.

    """
    kafka = require_confluent_kafka()
    try:
        _create(bootstrap, topic)
        producer = kafka.Producer(
            {
                **_common(bootstrap),
                "compression.type": topic.codec,
                "batch.size": topic.batch_bytes,
                "linger.ms": 100,
                "enable.idempotence": True,
                **({"transactional.id": f"demo-{topic.name}"} if topic.transactional else {}),
            }
        )
        if topic.transactional:
            return _load_transactions(producer, topic, value_bytes)
        records, produced_bytes = _produce(producer, topic, value_bytes)
        _flush(producer)
        return Loaded(records, 0, produced_bytes)
    except kafka.KafkaException as error:
        raise ShoalError(f"loading {topic.name}: {error}") from error


def _create(bootstrap: str, topic: DemoTopic) -> None:
    admin_module = importlib.import_module("confluent_kafka.admin")
    admin = admin_module.AdminClient(_common(bootstrap))
    new = admin_module.NewTopic(topic.name, topic.partitions, 1)
    for future in admin.create_topics([new]).values():
        future.result(_CLIENT_TIMEOUT_S)


def _load_transactions(producer: Any, topic: DemoTopic, value_bytes: int) -> Loaded:
    """Produce in transactions; of the aborted ones, everything is in the log too."""
    producer.init_transactions(_CLIENT_TIMEOUT_S)
    records = aborted = produced_bytes = 0
    for number in range(1, _TRANSACTIONS + 1):
        producer.begin_transaction()
        sent, sent_bytes = _produce(producer, topic, value_bytes // _TRANSACTIONS)
        _flush(producer)
        if number % _ABORTED == 0:
            producer.abort_transaction(_CLIENT_TIMEOUT_S)
            aborted += sent
        else:
            producer.commit_transaction(_CLIENT_TIMEOUT_S)
            records += sent
            produced_bytes += sent_bytes
    return Loaded(records, aborted, produced_bytes)


def _produce(producer: Any, topic: DemoTopic, value_bytes: int) -> tuple[int, int]:
    """Produce until so many bytes are under way; return how many records and bytes are."""
    values = _values(topic)
    records = produced_bytes = 0
    while produced_bytes < value_bytes:
        value = values[records % len(values)]
        try:
            producer.produce(
                topic.name,
                value,
                key=f"{topic.name}-{records}",
                partition=records % topic.partitions,
                headers={"demo": topic.codec},
            )
        except BufferError:
            producer.poll(0.1)
            continue
        records += 1
        produced_bytes += len(value)
    return records, produced_bytes


def _flush(producer: Any) -> None:
    left = producer.flush(_CLIENT_TIMEOUT_S)
    if left:
        raise ShoalError(f"{left} records were not acknowledged in {_CLIENT_TIMEOUT_S:.0f} s")


@cache
def _values(topic: DemoTopic) -> list[bytes]:
    """Return JSON documents of about 1 kB that compress as documents do: to a fifth or so."""
    source = random.Random(topic.name)  # noqa: S311 (the same documents in each run)
    words = [f"{source.choice('bcdfghlmnprst')}{source.choice('aeiou')}{number:x}" for number in range(60)]
    return [
        json.dumps(
            {
                "id": f"{source.getrandbits(64):016x}",
                "topic": topic.name,
                "amount": source.randrange(10_000) / 100,
                "customer": {"name": source.choice(words), "city": source.choice(words)},
                "text": " ".join(source.choices(words, k=170)),
            }
        ).encode()
        for _ in range(_DIFFERENT_RECORDS)
    ]


def count(bootstrap: str, topics: Sequence[str]) -> dict[str, int]:
    """
    Read topics from end to end and count the records of each, committed ones only.

    Raises:
        ShoalError: The broker refuses.

    """
    kafka = require_confluent_kafka()
    consumer = kafka.Consumer(
        {
            **_common(bootstrap),
            "group.id": "shoal-demo-count",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        metadata = consumer.list_topics(timeout=_CLIENT_TIMEOUT_S).topics
        left = {(topic, partition) for topic in topics for partition in metadata[topic].partitions}
        consumer.assign([kafka.TopicPartition(*each, kafka.OFFSET_BEGINNING) for each in left])
        counts: Counter[str] = Counter(dict.fromkeys(topics, 0))
        while left:
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is None:
                    counts[message.topic()] += 1
                elif message.error().code() == kafka.KafkaError._PARTITION_EOF:
                    left.discard((message.topic(), message.partition()))
                else:
                    raise kafka.KafkaException(message.error())
        return dict(counts)
    except kafka.KafkaException as error:
        raise ShoalError(f"counting: {error}") from error
    finally:
        consumer.close()


def require_confluent_kafka() -> Any:
    """
    Return the module.

    Raises:
        ConfigError: confluent-kafka is not installed.

    """
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError:
        raise ConfigError("the demo needs confluent-kafka: pip install 'shoal[demo]'") from None


def _common(bootstrap: str) -> dict[str, object]:
    # Errors only: librdkafka would put its news on stderr.
    return {"bootstrap.servers": bootstrap, "log_level": 3}
