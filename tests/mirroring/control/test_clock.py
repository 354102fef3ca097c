"""A wrong wall clock of a worker is found, named, and makes no record look younger than it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.coordinator import MemberId
from shoal.client.quorum import controller_ahead_ms
from shoal.mirroring.control import ControlConnection, ControlServer, ReferenceClock
from shoal.mirroring.control import client as task
from shoal.mirroring.control.protocol import wall_clock_ms
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import Api, BrokerState
from tests.driver_events import Events
from tests.sent_requests import SentRequests
from tests.two_brokers import NOW_MS, TwoBrokers, config_of

HOUR_MS = 3_600_000
_Response = response_class(ApiKey.DESCRIBE_QUORUM)
_Topic = _Response.TopicData
_Partition = _Topic.PartitionData


def with_quorum(broker: Broker, ahead_ms: float, *, error_code: int = 0, leader: int = 3) -> None:
    """Let a broker describe a quorum of two, whose leader's clock is ahead of ours."""

    def handle(broker: BrokerState, call: Call, request: Any) -> Any:
        now_ms = int(wall_clock_ms() + ahead_ms)
        voters = [
            _Partition.ReplicaState(
                replica_id=node,
                log_end_offset=7,
                last_fetch_timestamp=now_ms if node == 3 else 1,
                last_caught_up_timestamp=now_ms if node == 3 else 1,
            )
            for node in (2, 3)
        ]
        partition = _Partition(
            partition_index=0,
            error_code=error_code,
            leader_id=leader,
            leader_epoch=1,
            high_watermark=7,
            current_voters=voters,
            observers=[],
        )
        topic = _Topic(topic_name="__cluster_metadata", partitions=[partition])
        return _Response(version=call.version, error_code=0, topics=[topic])

    broker.apis = {**broker.apis, ApiKey.DESCRIBE_QUORUM: Api(ApiKey.DESCRIBE_QUORUM, 0, 1, handle)}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def ahead_of(broker: Broker) -> float | None:
    with Cluster(config_of("destination", broker)) as cluster:
        return controller_ahead_ms(cluster)


@pytest.mark.parametrize("ahead_ms", [0, HOUR_MS, -HOUR_MS])
def test_controller_ahead_is_read_from_the_quorums_leader(broker: Broker, ahead_ms: int) -> None:
    with_quorum(broker, ahead_ms)
    assert ahead_of(broker) == pytest.approx(ahead_ms, abs=2000)


def test_controller_ahead_without_quorum_information_is_unknown(broker: Broker) -> None:
    assert ahead_of(broker) is None  # without the API
    with_quorum(broker, 0, error_code=31)
    assert ahead_of(broker) is None  # without the ACL
    with_quorum(broker, 0, leader=9)
    assert ahead_of(broker) is None  # without a leader


def test_reference_clock_names_each_wrong_machine_once() -> None:
    warnings: list[str] = []
    clock = ReferenceClock(0.0, warnings.append)
    clock.compare("good:1", wall_clock_ms() + 1000)
    for process in ("bad:1", "bad:2", "worse:1"):
        clock.compare(process, wall_clock_ms() - 45 * 60_000)
    assert [each.partition(" its wall")[0] for each in warnings] == ["bad:1:", "worse:1:"]
    assert all(each in warnings[0] for each in ("45 min", "behind", "the destination's controller"))
    clock.compare("bad:3", wall_clock_ms())
    clock.compare("bad:4", wall_clock_ms() + 2 * HOUR_MS)  # wrong again
    assert all(each in warnings[-1] for each in ("bad:4:", "120 min", "ahead"))


def test_reference_clock_names_the_driver() -> None:
    warnings: list[str] = []
    assert ReferenceClock(HOUR_MS, warnings.append).now_ms() == pytest.approx(
        wall_clock_ms() + HOUR_MS, abs=500
    )
    (warning,) = warnings
    assert all(
        each in warning for each in ("the driver:", "60 min", "behind", "the destination's controller")
    )


def test_reference_clock_asks_the_destination(broker: Broker) -> None:
    warnings: list[str] = []
    ReferenceClock.of(config_of("destination", broker), warnings.append)
    assert warnings == []
    with_quorum(broker, -HOUR_MS)
    clock = ReferenceClock.of(config_of("destination", broker), warnings.append)
    assert clock.now_ms() == pytest.approx(wall_clock_ms() - HOUR_MS, abs=2000)
    assert len(warnings) == 1


@pytest.mark.parametrize(("worker_ahead_ms", "latest_ms"), [(-2 * HOUR_MS, 0), (HOUR_MS, HOUR_MS)])
def test_task_goes_by_the_later_of_both_clocks(
    worker_ahead_ms: int, latest_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    server = ControlServer("127.0.0.1", "token", Events(), clock=ReferenceClock(None, warnings.append))
    server.renew(MemberId(), 60.0)
    monkeypatch.setattr(task, "wall_clock_ms", lambda: wall_clock_ms() + worker_ahead_ms)
    with ControlConnection(server.address, "token") as control:
        assert control.now_ms() == pytest.approx(wall_clock_ms() + latest_ms, abs=2000)
    server.close()
    (warning,) = warnings
    assert "the driver's." in warning


def test_task_with_a_slow_clock_sends_old_records_one_by_one(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may have forgotten their producer; a worker 25 hours behind takes them for young."""
    (history,) = brokers.topic()
    history.base_timestamp = NOW_MS - 25 * HOUR_MS
    history.plain(*[1] * 30)
    monkeypatch.setattr(task, "wall_clock_ms", lambda: wall_clock_ms() - 25 * HOUR_MS)
    sent = SentRequests(monkeypatch)
    server = ControlServer("127.0.0.1", "token", Events())
    server.renew(MemberId(), 60.0)
    with ControlConnection(server.address, "token") as control:
        assert brokers.run(control=control).complete
    server.close()
    assert {len(each.before) for each in sent.requests} == {0}
    assert brokers.copied() == history.committed
