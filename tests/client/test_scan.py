"""One partition, read from its leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.connection import Connection
from shoal.client.fetch import Fetcher
from shoal.client.offsets import LATEST, list_offsets
from shoal.client.scan import look_for_gap, read_decided, read_one_batch_each
from shoal.errors import Unreachable
from shoal.protocol.apis import ApiKey
from shoal.records import Decision, RecordBatch
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.hostile.liar import saying
from tests.world import batches
from tests.world.contents import batches_of
from tests.world.history import History
from tests.world.logs import may_compact

PARTITION = TopicPartition("topic", 0)
COMMITTED = IsolationLevel.READ_COMMITTED


def test_reader_repeats_a_throttled_request(broker: Broker, cluster: Cluster) -> None:
    History(broker.log(*PARTITION)).plain(2)
    answers = 0

    def throttle(message: Any) -> None:
        nonlocal answers
        answers += 1
        if answers <= 2:
            message.throttle_time_ms, message.responses = 1, []

    with saying(broker, ApiKey.FETCH, throttle):
        found = list(read_decided(cluster, PARTITION, 0, COMMITTED))
    assert [decision for decision, _ in found] == [Decision.COPY]
    assert answers == 3


def test_read_decided_continues_over_several_responses(broker: Broker, cluster: Cluster) -> None:
    history = History(broker.log(*PARTITION))
    for _ in range(5):
        history.store(batches.batch([bytes(40_000)], base_offset=history.next_offset))
    found = read_decided(cluster, PARTITION, 1, COMMITTED, 100_000)
    assert [batch.header.base_offset for _, batch in found] == [1, 2, 3, 4]


@pytest.mark.parametrize(("local_start", "is_gap"), [(0, True), (3, True), (4, False)])
def test_records_in_remote_storage_are_no_gap(
    broker: Broker, cluster: Cluster, local_start: int, is_gap: bool
) -> None:
    """A read from there may take so long that the broker answers without records."""
    may_compact(broker)
    History(broker.log(*PARTITION)).plain(3).gap_at_the_end(2)

    def lies_elsewhere(message: Any) -> None:
        message.topics[0].partitions[0].offset = local_start

    impatient = replace(cluster.config, request_timeout_ms=200)
    with saying(broker, ApiKey.LIST_OFFSETS, lies_elsewhere), Cluster(impatient) as asking:
        asking.refresh()
        assert look_for_gap(asking, PARTITION, 3, COMMITTED).is_gap_to(5) is is_gap


# One batch of each of many partitions


@pytest.fixture
def many(broker: Broker, cluster: Cluster) -> list[TopicPartition]:
    """Partitions with three batches each, of which the second has the offset 1."""
    broker.create_topic("many", 300)
    for log in broker.topics.topic("many").logs:
        History(log).plain(1, 2, 1)
    cluster.refresh(["many"])
    return [TopicPartition("many", number) for number in range(300)]


def test_batches_of_many_partitions_come_by_one_connection(
    broker: Broker, cluster: Cluster, many: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[int] = []
    connect = cluster.connect

    def counted(node_id: int) -> Connection:
        connected.append(node_id)
        return connect(node_id)

    monkeypatch.setattr(cluster, "connect", counted)
    found = read_one_batch_each(cluster, dict.fromkeys(many, 2))
    assert len(connected) == 1
    assert found.keys() == set(many)
    for partition, batch in found.items():
        assert isinstance(batch, RecordBatch)
        (_, expected, _) = batches_of(broker.log(*partition))
        assert (batch.header.base_offset, bytes(batch.view)) == (1, bytes(expected.view))


def test_partition_without_a_small_batch_at_its_offset_is_missing(
    broker: Broker, cluster: Cluster, many: list[TopicPartition]
) -> None:
    several = many[:6]
    large = batches.batch([bytes(100_000)], base_offset=4)
    for partition in several[2:4]:  # an answer has the first batch whatever its size
        broker.log(*partition).store(memoryview(bytearray(large)))
    History(broker.log(*several[4])).gap(3).plain(1)
    offsets = dict.fromkeys(several, 2) | dict.fromkeys(several[2:5], 4) | {several[5]: 99}
    found = read_one_batch_each(cluster, offsets)
    assert found.keys() == set(several[:2])


def test_partitions_of_a_leader_that_does_not_answer_get_its_error(
    broker: Broker, cluster: Cluster, many: list[TopicPartition]
) -> None:
    broker.stop()
    found = read_one_batch_each(cluster, dict.fromkeys(many[:3], 2))
    assert [type(each) for each in found.values()] == [Unreachable] * 3


# The connection


def test_read_decided_interrupted_before_the_response_leaves_no_response_for_others(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(broker.log(*PARTITION)).plain(1, 2)

    def interrupt(fetcher: Fetcher) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Fetcher, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(read_decided(cluster, PARTITION, 0, COMMITTED))
    assert list_offsets(cluster, {PARTITION: LATEST}) == {PARTITION: 3}
