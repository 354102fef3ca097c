"""The probe measures the latency of a broker's requests, and survives a broker that is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.driver.latency import LatencyProbe
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.two_brokers import config_of, wait_until

TIMING = Timing(probe_interval_s=0.01, probe_refresh_s=0.05)
PARTITIONS = [TopicPartition("topic", 0)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(cluster_id="source") as started:
        started.create_topic("topic", 1)
        yield started


def test_probe_measures_answers(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS, TIMING) as probe:
        wait_until(lambda: probe.seconds is not None)
        broker.faults.add(ApiKey.LIST_OFFSETS, times=None, delay_s=0.3)
        wait_until(lambda: (probe.seconds or 0) >= 0.3)
        broker.faults.clear()
        wait_until(lambda: (probe.seconds or 1) < 0.3)


def test_request_without_an_answer_is_as_old_as_it_is(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS, TIMING) as probe:
        wait_until(lambda: probe.seconds is not None)
        late = broker.faults.add(ApiKey.LIST_OFFSETS, delay_s=1.5)
        assert broker.faults.wait_for(late, timeout_s=60.0)
        wait_until(lambda: (probe.seconds or 0) > 0.2)


def test_broker_without_an_answer_counts_over_timeouts(broker: Broker) -> None:
    config = replace(config_of("source", broker), request_timeout_ms=1000)
    with LatencyProbe(config, lambda: PARTITIONS, TIMING) as probe:
        wait_until(lambda: probe.seconds is not None)
        broker.faults.add(ApiKey.LIST_OFFSETS, times=None, delay_s=5.0)
        wait_until(lambda: (probe.seconds or 0) > 0.8)
        ends_at = time.monotonic() + 2.5
        while time.monotonic() < ends_at:  # the first request times out meanwhile, and the second
            assert (probe.seconds or 0) > 0.8
            time.sleep(0.01)
        broker.faults.clear()
        wait_until(lambda: (probe.seconds or 1) < 0.3)


def test_first_request_without_an_answer_counts(broker: Broker) -> None:
    late = broker.faults.add(ApiKey.LIST_OFFSETS, delay_s=30.0)
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS, TIMING) as probe:
        wait_until(lambda: (probe.seconds or 0) > 0.3)
        assert late.hits == 1


def test_error_counts_for_nothing(broker: Broker) -> None:
    asked = broker.faults.add(ApiKey.LIST_OFFSETS, times=None, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with LatencyProbe(config_of("source", broker), lambda: PARTITIONS, TIMING) as probe:
        assert broker.faults.wait_for(asked, hits=3, timeout_s=60.0)
        wait_until(lambda: probe.seconds is None)


def test_probe_without_partitions_sends_no_request(broker: Broker) -> None:
    with LatencyProbe(config_of("source", broker), list, TIMING) as probe:
        assert probe.seconds is None
