"""One partition, read from its leader."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.broker import Broker
from shoal.client.cluster import Cluster
from shoal.client.config import IsolationLevel
from shoal.client.scan import PartitionReader, read_decided
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal.records import Decision, split
from shoal.topic_partition import TopicPartition
from tests import batches
from tests.fuzz.test_client import said
from tests.two_brokers import History

pytestmark = pytest.mark.timeout(30)

PARTITION = TopicPartition("topic", 0)
COMMITTED = IsolationLevel.READ_COMMITTED


def test_reader_returns_batches_from_the_offset(broker: Broker, cluster: Cluster) -> None:
    History(broker.log(*PARTITION)).plain(1, 2)
    reader = PartitionReader(cluster, PARTITION, COMMITTED)
    for offset in (0, 1, 3):
        reader.ask(offset)
        fetched = reader.receive()
        found = [each.header.base_offset for each in split(fetched.record_set)]
        assert (found, fetched.high_watermark) == ([each for each in (0, 1) if each >= offset], 3)
    reader.ask(4)
    with pytest.raises(BrokerError, match="at offset 4") as caught:
        reader.receive()
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    reader.close()


def test_reader_repeats_a_throttled_request(broker: Broker, cluster: Cluster) -> None:
    History(broker.log(*PARTITION)).plain(2)
    answers = 0

    def throttle(message: Any) -> None:
        nonlocal answers
        answers += 1
        if answers <= 2:
            message.throttle_time_ms, message.responses = 1, []

    with said(broker, ApiKey.FETCH, throttle):
        found = list(read_decided(cluster, PARTITION, 0, COMMITTED))
    assert [decision for decision, _ in found] == [Decision.COPY]
    assert answers == 3


def test_read_decided_continues_over_several_responses(broker: Broker, cluster: Cluster) -> None:
    history = History(broker.log(*PARTITION))
    for _ in range(5):
        history.store(batches.batch([bytes(40_000)], base_offset=history.next_offset))
    found = read_decided(cluster, PARTITION, 1, COMMITTED, 100_000)
    assert [batch.header.base_offset for _, batch in found] == [1, 2, 3, 4]
