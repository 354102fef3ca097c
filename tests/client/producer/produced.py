"""Raw producers, batches for them, and the values that the broker stored."""

from __future__ import annotations

import time
from concurrent.futures import Future

from shoal import RawProducer, RecordMetadata
from shoal.records import Codec
from shoal_broker import Broker, BrokerCluster
from tests.world import batches
from tests.world.contents import content_of


def producer(broker: Broker | BrokerCluster, **changes: object) -> RawProducer:
    properties: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
    }
    properties.update({name.replace("_", "."): value for name, value in changes.items()})
    return RawProducer(properties)


def values(broker: Broker, partition: int = 0, topic: str = "topic") -> list[bytes | None]:
    return [each.value for each in content_of(broker.log(topic, partition))]


def results(futures: list[Future[RecordMetadata]]) -> list[int]:
    return [future.result(20).offset for future in futures]


def some_batches(count: int, records: int = 3, codec: Codec = Codec.NONE) -> list[bytes]:
    return [
        bytes(
            batches.batch(
                [b"%d of %d" % (number, each) for number in range(records)],
                codec=codec,
                base_offset=100 + each * records,
                base_timestamp=int(time.time() * 1000),
                producer_id=4711,
                producer_epoch=3,
                base_sequence=each * records,
            )
        )
        for each in range(count)
    ]


def expected_values(count: int, records: int = 3) -> list[bytes]:
    return [b"%d of %d" % (number, each) for each in range(count) for number in range(records)]
