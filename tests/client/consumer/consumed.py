"""Raw consumers, and their records."""

from __future__ import annotations

import time

from shoal import ConsumerRecord, RawConsumer, RawRecord, TopicPartition
from shoal_broker import Broker, BrokerCluster

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


def consumer(broker: Broker | BrokerCluster, **changes: object) -> RawConsumer:
    properties: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 50,
        "session.timeout.ms": 6000,
        "fetch.max.wait.ms": 50,
    }
    properties.update({name.replace("_", "."): value for name, value in changes.items()})
    return RawConsumer(properties)


def take(given: RawConsumer, count: int, timeout_s: float = 20.0) -> list[ConsumerRecord | RawRecord]:
    """Poll until there are so many."""
    records: list[ConsumerRecord | RawRecord] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count}"
        records += given.poll(0.2)
    return records


def raw(given: RawConsumer, count: int) -> list[RawRecord]:
    records = take(given, count)
    assert all(isinstance(record, RawRecord) for record in records)
    return records  # type: ignore[return-value]
