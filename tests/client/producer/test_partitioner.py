"""The partition of a key is that of Java's producer."""

from __future__ import annotations

import pytest

from shoal.client.producer.partitioner import StickyPartitions, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_returns_kafka_s_hash(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected % 2**32


def test_partition_of_key_is_that_of_confluent_kafka() -> None:
    from confluent_kafka import Producer

    from shoal_broker import Broker

    keys = [b"%d" % number * (number % 7 + 1) for number in range(100)] + [b""]
    with Broker() as broker:
        broker.create_topic("topic", 7)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2"})
        sent: dict[bytes, int] = {}
        for key in keys:
            producer.produce("topic", key=key, on_delivery=lambda _, m: sent.update({m.key(): m.partition()}))
        producer.flush(10)
        del producer
    assert {key: partition_of_key(key, 7) for key in keys if key} == {k: p for k, p in sent.items() if k}


def test_sticky_partition_stays_until_move_on() -> None:
    sticky = StickyPartitions()
    first = sticky.get("topic", 3)
    assert {sticky.get("topic", 3) for _ in range(20)} == {first}
    sticky.move_on("topic", 3)
    assert sticky.get("topic", 3) != first
    sticky.move_on("single", 1)
    assert sticky.get("single", 1) == 0
    assert sticky.get("topic", 1) == 0  # a recreated topic with fewer
