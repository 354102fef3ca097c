"""Clients that do not ask for several batches, beside one that does.

`tests/conformance` runs with the agent, too: it shows that the agent makes no other difference for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from rig import KafkaCluster, create_topic, dump_partition, read_topic
from rig.agent import agent_jar
from shoal.error_codes import ErrorCode
from tests.integration.agent_versions import EVERY_LINE
from tests.integration.raw_producer import RawProducer, following

pytestmark = pytest.mark.long

LEAST_APPENDED = 6


@pytest.mark.parametrize("version", EVERY_LINE)
@pytest.mark.timeout(600)
def test_ordinary_and_marked_clients_share_a_partition(version: str, topic: str) -> None:
    """The marked one gets an error after each write of another client, and no record is lost or doubled."""
    with KafkaCluster(version=version, broker_jvm={1: [f"-javaagent:{agent_jar()}"]}) as kafka:
        create_topic(kafka.bootstrap, topic)
        done = threading.Event()
        ordinary: dict[str, Callable[[], int]] = {
            "plain": lambda: send_many(kafka, topic, "plain", {"compression.type": "snappy"}),
            "idempotent": lambda: send_many(kafka, topic, "idempotent", {"enable.idempotence": True}),
            "transactional": lambda: send_transactions(kafka, topic, "transactional"),
        }
        with ThreadPoolExecutor() as pool:
            marked = pool.submit(append_until, kafka, topic, done)
            sent = {name: pool.submit(run) for name, run in ordinary.items()}
            counts = {name: future.result() for name, future in sent.items()}
            done.set()
            appended, refused = marked.result()
        read = read_topic(kafka.bootstrap, topic)[0]
        for name, count in counts.items():
            assert [each.value for each in read if each.key == name.encode()] == values(name, count)
        assert appended >= LEAST_APPENDED
        assert refused > 0
        theirs = {name.encode() for name in counts}
        assert len([each for each in read if each.key not in theirs]) == appended * 60
        assert all(each.is_valid for each in dump_partition(kafka.partition_dir(topic, 0)))


def values(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def send_many(kafka: KafkaCluster, topic: str, name: str, config: dict[str, object]) -> int:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0, **config})
    failed: list[object] = []
    for value in values(name, 4_000):
        producer.produce(
            topic,
            value,
            name.encode(),
            0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0.001)
    assert producer.flush(120) == 0
    assert failed == []
    return 4_000


def send_transactions(kafka: KafkaCluster, topic: str, name: str) -> int:
    config: dict[str, object] = {"transactional.id": f"{topic}-{name}", "log_level": 0}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **config})
    producer.init_transactions(60)
    sent = values(name, 400)
    for first in range(0, 400, 20):
        producer.begin_transaction()
        for value in sent[first : first + 20]:
            producer.produce(topic, value, name.encode(), 0)
        producer.commit_transaction(60)
    return 400


def append_until(kafka: KafkaCluster, topic: str, done: threading.Event) -> tuple[int, int]:
    """Append 20 batches at a time at the log's end; return the numbers of successes and of refusals."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    partition = TopicPartition(topic, 0)
    appended = refused = 0
    with RawProducer(kafka.bootstrap) as producer:
        # After the others have ended, no write comes between.
        while not done.is_set() or appended < LEAST_APPENDED:
            (found,) = admin.list_offsets({partition: OffsetSpec.latest()}).values()
            end = found.result().offset
            # If a producer id wrote before, it has to continue its own sequence, regardless of other writes.
            batches = following(end, 20, producer_id=5_000_000 + appended + refused)
            code, base_offset = producer.offer(topic, batches)
            if code is ErrorCode.NONE:
                assert base_offset == end
                appended += 1
            else:
                assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                refused += 1
    return appended, refused
