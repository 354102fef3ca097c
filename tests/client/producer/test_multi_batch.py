"""The raw producer, and brokers that take several batches in a request."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future
from typing import Literal

import pytest

from shoal import RecordMetadata
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker, BrokerCluster
from tests.client.producer.produced import expected_values, producer, results, some_batches, values
from tests.world import batches
from tests.world.contents import batches_of


def test_multi_batch_broker_receives_several_batches_per_request(generous: Broker) -> None:
    # Each takes so long that more than one batch collects meanwhile.
    counted = generous.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.02)
    given = some_batches(200)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        futures = [ours.send("topic", each, partition=0) for each in given[1:]]
        assert ours.flush(20)
        assert results(futures) == [3 * number + 2 for number in range(1, 200)]
    assert values(generous) == expected_values(200)
    assert counted.hits < 100
    # Compare-and-append: each sequence is the offset of its batch.
    assert all(
        batch.header.base_sequence == batch.header.base_offset
        for batch in batches_of(generous.log("topic", 0))
    )


def test_stock_broker_receives_one_batch_per_request(broker: Broker) -> None:
    counted = broker.faults.add(ApiKey.PRODUCE, times=None)
    with producer(broker, send_raw_bytes=True) as ours:
        futures = [ours.send("topic", each, partition=0) for each in some_batches(50)]
    assert results(futures) == [3 * number + 2 for number in range(50)]
    assert counted.hits >= 50


def test_multi_batch_request_in_doubt_is_resolved_by_a_stock_broker(generous: Broker) -> None:
    given = some_batches(60, records=2)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        slow = generous.faults.add(ApiKey.PRODUCE, delay_s=0.3)
        futures = [ours.send("topic", each, partition=0) for each in given[1:3]]
        assert generous.faults.wait_for(slow)
        # Batches that collect meanwhile go in one request, whose response is lost after the write.
        lost = generous.faults.add(ApiKey.PRODUCE, drop="after", times=2)
        futures += [ours.send("topic", each, partition=0) for each in given[3:]]
        assert generous.faults.wait_for(lost)
        generous.config["shoal.multi.batch.produce"] = "false"
        assert ours.flush(20)
    assert results(futures) == [2 * number + 1 for number in range(1, 60)]
    assert values(generous) == expected_values(60, records=2)


def test_another_writer_makes_multi_batch_requests_smaller(generous: Broker) -> None:
    given = some_batches(300, records=1)
    with producer(generous, send_raw_bytes=True) as ours, producer(generous) as foreign:
        futures = []
        for number, each in enumerate(given):
            futures.append(ours.send("topic", each, partition=0))
            if number % 50 == 20:
                foreign.send("topic", b"foreign", partition=0).result(10)
        assert ours.flush(20)
    stored = values(generous)
    assert [value for value in stored if value != b"foreign"] == expected_values(300, records=1)
    assert stored.count(b"foreign") == 6
    assert [stored[offset] for offset in results(futures)] == expected_values(300, records=1)


def test_invalid_batch_among_several_is_named_and_the_others_are_written(generous: Broker) -> None:
    generous.create_topic("small", 1, {"max.message.bytes": "500"})
    large = bytes(batches.batch([b"x" * 1000], base_timestamp=int(time.time() * 1000)))
    given = some_batches(50, records=1)
    with producer(generous, send_raw_bytes=True) as ours:
        futures = [ours.send("small", each, partition=0) for each in given[:25]]
        refused = ours.send("small", large, partition=0)
        futures += [ours.send("small", each, partition=0) for each in given[25:]]
        assert ours.flush(20)
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        refused.result()
    assert [future.exception() for future in futures] == [None] * 50
    assert values(generous, topic="small") == expected_values(50, records=1)


def test_multi_batch_request_refused_repeatedly_is_split(generous: Broker) -> None:
    given = some_batches(40, records=1)
    with producer(generous, send_raw_bytes=True) as ours:
        ours.send("topic", given[0], partition=0).result(10)
        slow = generous.faults.add(ApiKey.PRODUCE, delay_s=0.2)
        futures = [ours.send("topic", each, partition=0) for each in given[1:3]]
        assert generous.faults.wait_for(slow)
        generous.faults.add(ApiKey.PRODUCE, error=ErrorCode.CORRUPT_MESSAGE, times=6)
        futures += [ours.send("topic", each, partition=0) for each in given[3:]]
        assert ours.flush(20)
    refused = [number for number, future in enumerate(futures, 1) if future.exception()]
    assert len(refused) < 5
    assert [value for value in expected_values(40, records=1) if value in set(values(generous))] == values(
        generous
    )
    assert len(values(generous)) == 40 - len(refused)


#: Whether the leader had written the batch that it answered so.
ANSWERED: list[tuple[ErrorCode, Literal["before", "after"]]] = [
    (ErrorCode.REQUEST_TIMED_OUT, "after"),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "after"),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, "before"),
    (ErrorCode.NOT_ENOUGH_REPLICAS, "before"),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "before"),
    (ErrorCode.CORRUPT_MESSAGE, "before"),
    (ErrorCode.INVALID_TIMESTAMP, "before"),
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("multi_batch", [False, True])
def test_acknowledged_records_under_random_faults_are_stored_once_in_order(
    seed: int, multi_batch: bool
) -> None:
    rng = random.Random(seed)
    with BrokerCluster(2, config={"shoal.multi.batch.produce": str(multi_batch).lower()}) as cluster:
        cluster.create_topic("topic", 2)
        given = some_batches(300, records=1)
        futures: list[Future[RecordMetadata]] = []
        with producer(cluster, send_raw_bytes=True, request_timeout_ms=3000) as ours:
            for number, each in enumerate(given):
                if rng.random() < 0.08:
                    node = rng.choice(cluster.nodes)
                    kind = rng.randrange(3)
                    if kind == 0:
                        node.faults.add(ApiKey.PRODUCE, drop=rng.choice(["before", "after", "within"]))
                    elif kind == 1:
                        code, effect = rng.choice(ANSWERED)
                        node.faults.add(ApiKey.PRODUCE, error=code, effect=effect)
                    else:
                        cluster.move_leader("topic", rng.randrange(2), rng.randrange(2) + 1)
                futures.append(ours.send("topic", each, partition=number % 2))
                if rng.random() < 0.05:
                    ours.flush(10)
            assert ours.flush(30)
        for partition in range(2):
            stored = values(cluster.nodes[0], partition)
            acknowledged = [
                b"0 of %d" % number
                for number, future in enumerate(futures)
                if number % 2 == partition and future.exception() is None
            ]
            # A batch whose answer was lost, and that is refused when it is sent again, may be there.
            assert len(set(stored)) == len(stored)
            assert [value for value in stored if value in set(acknowledged)] == acknowledged
            for number, future in enumerate(futures):
                if number % 2 == partition and future.exception() is None:
                    offset = future.result().offset
                    assert offset < 0 or stored[offset] == b"0 of %d" % number


def test_stock_broker_is_asked_once_about_a_topic(broker: Broker) -> None:
    opened = broker.faults.add(ApiKey.API_VERSIONS, times=None)
    (batch,) = some_batches(1)
    with producer(broker, send_raw_bytes=True) as ours:
        ours.send("topic", batch, partition=0).result(10)
        connections = opened.hits
        ours.send("topic", batch, partition=1).result(10)
        assert opened.hits == connections
