"""The probe measures the latency of a broker's requests, and survives a broker that is gone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.broker import Broker
from shoal.error_codes import ErrorCode
from shoal.mirroring.driver import latency
from shoal.mirroring.driver.latency import LatencyProbe
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.two_brokers import config_of, wait_until

pytestmark = pytest.mark.timeout(120)

PARTITIONS = [TopicPartition("topic", 0)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(latency, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(latency, "_REFRESH_S", 0.05)
    with Broker(cluster_id="source") as started:
        started.create_topic("topic", 1)
        yield started


def test_probe_measures_answers(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS) as probe:
        wait_until(lambda: probe.seconds is not None)
        broker.faults.add(ApiKey.LIST_OFFSETS, times=None, delay_s=0.3)
        wait_until(lambda: (probe.seconds or 0) >= 0.3)
        broker.faults.clear()
        wait_until(lambda: (probe.seconds or 1) < 0.3)


def test_request_without_an_answer_is_as_old_as_it_is(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS) as probe:
        wait_until(lambda: probe.seconds is not None)
        late = broker.faults.add(ApiKey.LIST_OFFSETS, delay_s=1.5)
        assert broker.faults.wait_for(late, timeout_s=60.0)
        wait_until(lambda: (probe.seconds or 0) > 0.2)


def test_error_counts_for_nothing(broker: Broker) -> None:
    asked = broker.faults.add(ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS) as probe:
        assert broker.faults.wait_for(asked, hits=3, timeout_s=60.0)
        assert probe.seconds is None


def test_probe_without_partitions_sends_no_request(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), list) as probe:
        assert probe.seconds is None
