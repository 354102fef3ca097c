"""A cluster: leaders, coordinators, and lost connections."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from shoal.client.cluster import Cluster, is_transient, patiently
from shoal.client.config import ClientConfig
from shoal.client.offsets import EARLIEST, LATEST, list_offsets, log_end_offsets
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ConfigError, Disconnected, ProtocolError, ShoalError, Stopped
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world.clusters import config_of
from tests.world.faults import answers, leads_elsewhere, second_node

FIRST = TopicPartition("topic", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("topic", 2)
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("source", broker)) as cluster:
        yield cluster


def unreachable() -> Address:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Address(*listener.getsockname())


# Metadata


def test_refresh_of_some_topics_keeps_the_others(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("other")
    cluster.refresh()
    broker.topics.delete(broker.topics.topic("other"))
    assert set(cluster.refresh(["topic"]).topics) == {"topic", "other"}
    assert set(cluster.refresh(["other"]).topics) == {"topic"}
    with pytest.raises(BrokerError, match=r"other-0.*UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.partition(TopicPartition("other", 0))


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_inaccessible_topic_raises_its_error(broker: Broker, cluster: Cluster, code: ErrorCode) -> None:
    broker.faults.add(ApiKey.METADATA, error=code)
    cluster.refresh(["topic"])
    with pytest.raises(BrokerError, match=code.name) as raised:
        cluster.partition(FIRST)
    assert not is_transient(raised.value)


def test_partition_without_a_leader_is_retriable(broker: Broker, cluster: Cluster) -> None:
    def leaderless(response: object) -> object:
        for topic in response.topics:  # type: ignore[attr-defined]
            for partition in topic.partitions:
                partition.error_code, partition.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
        return response

    answers(broker, ApiKey.METADATA, leaderless)
    cluster.refresh(["topic"])
    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"):
        cluster.partition(FIRST)
    cluster.refresh(["topic"])
    assert cluster.partition(FIRST).leader == broker.node_id


def test_refresh_without_reachable_bootstrap_server_names_each() -> None:
    addresses = (unreachable(), unreachable())
    with Cluster(ClientConfig("source", addresses)) as cluster:
        with pytest.raises(Disconnected) as raised:
            cluster.refresh()
        for address in addresses:
            assert str(address) in str(raised.value)
        assert "the source cluster" in str(raised.value)
        with pytest.raises(Disconnected):
            cluster.any_connection()


# Brokers that stall


#: As little as a broker of this process may need on a busy machine, to answer in.
LITTLE_PATIENCE = Timing(anyone_patience_s=2.0)


class Stalled:
    """A peer that accepts connections and never responds, like a broker after SIGSTOP."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())

    def came(self) -> int:
        """Return how many have connected since the last question."""
        self._listener.setblocking(False)
        came = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
                came += 1
        return came

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def stalled() -> Iterator[Stalled]:
    with contextlib.closing(Stalled()) as listener:
        yield listener


def test_refresh_skips_a_stalled_broker_if_others_respond(broker: Broker, stalled: Stalled) -> None:
    servers = (stalled.address, Address(broker.host, broker.port))
    # The test would end by its own timeout before that of a request.
    config = ClientConfig("source", servers, request_timeout_ms=3_600_000, timing=LITTLE_PATIENCE)
    with Cluster(config) as cluster:
        assert "topic" in cluster.refresh().topics


def test_refresh_asks_the_last_responding_broker_first(broker: Broker, stalled: Stalled) -> None:
    config = ClientConfig(
        "source", (stalled.address, Address(broker.host, broker.port)), timing=LITTLE_PATIENCE
    )
    with Cluster(config) as cluster:
        cluster.refresh()
    assert stalled.came() == 1
    for _ in range(3):
        with Cluster(config) as another:
            another.refresh()
    assert stalled.came() == 0


def test_refresh_drops_a_last_responding_broker_that_stalls(broker: Broker) -> None:
    with second_node(broker) as second:
        # The test would end by its own timeout before that of a request.
        config = replace(
            config_of("source", broker, second), request_timeout_ms=3_600_000, timing=LITTLE_PATIENCE
        )
        with Cluster(config) as cluster:
            cluster.refresh()
            stall = broker.faults.add(ApiKey.METADATA, delay_s=600.0, times=None)
            assert "topic" in cluster.refresh().topics
        with Cluster(config) as another:
            another.refresh()
        assert stall.hits == 1


def test_refresh_waits_for_slow_brokers_if_all_are_slow(broker: Broker) -> None:
    with second_node(broker) as second:
        config = replace(config_of("source", broker, second), timing=Timing(anyone_patience_s=0.3))
        for node in (broker, second):
            node.faults.add(ApiKey.METADATA, delay_s=1.0, times=None)
        with Cluster(config) as cluster:
            assert "topic" in cluster.refresh().topics
            assert "topic" in cluster.refresh().topics


def test_connecting_is_visible_to_other_threads(stalled: Stalled) -> None:
    config = ClientConfig("source", (stalled.address,))
    with Cluster(config) as cluster, ThreadPoolExecutor() as threads:
        refreshed = threads.submit(cluster.refresh)
        while not refreshed.done() and cluster.connecting is None:
            time.sleep(0.001)
        assert cluster.connecting == stalled.address
        stalled.close()  # resets connections that were not accepted
        with pytest.raises(Disconnected):
            refreshed.result()
        assert cluster.connecting is None


# Connections


def test_unknown_node_is_retriable(cluster: Cluster) -> None:
    cluster.refresh()
    with pytest.raises(Disconnected, match=r"17.*cluster") as raised:
        cluster.connect(17)
    assert is_transient(raised.value)


@pytest.mark.parametrize(
    ("code", "retriable"),
    [(ErrorCode.COORDINATOR_NOT_AVAILABLE, True), (ErrorCode.GROUP_AUTHORIZATION_FAILED, False)],
)
def test_missing_coordinator_raises_its_error(
    broker: Broker, cluster: Cluster, code: ErrorCode, retriable: bool
) -> None:
    broker.faults.add(ApiKey.FIND_COORDINATOR, error=code)
    with pytest.raises(BrokerError, match=r"coordinator.*'group'") as raised:
        cluster.coordinator("group")
    assert is_transient(raised.value) is retriable


# Offsets


def test_list_offsets_asks_each_leader_and_returns_errors_by_partition(
    broker: Broker, cluster: Cluster
) -> None:
    leads_elsewhere(broker, "topic", 1)
    cluster.refresh(["topic"])
    second, missing = TopicPartition("topic", 1), TopicPartition("missing", 0)
    for answered in (
        list_offsets(cluster, dict.fromkeys([FIRST, second, missing], LATEST)),
        log_end_offsets(cluster, [FIRST, second, missing]),
    ):
        assert answered[FIRST] == 0
        assert isinstance(answered[second], Disconnected)
        assert isinstance(answered[missing], BrokerError)


@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_partition_missing_in_a_response_has_an_error(broker: Broker, cluster: Cluster, api: ApiKey) -> None:
    def cut(response: object) -> object:
        response.topics[0].partitions.pop()  # type: ignore[attr-defined]
        return response

    answers(broker, api, cut)
    cluster.refresh(["topic"])
    partitions = [FIRST, TopicPartition("topic", 1)]
    if api is ApiKey.LIST_OFFSETS:
        answered = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    else:
        answered = log_end_offsets(cluster, partitions)
    assert answered[FIRST] == 0
    assert isinstance(answered[partitions[1]], ProtocolError)


def test_unknown_leader_epoch_is_retriable(broker: Broker, cluster: Cluster) -> None:
    cluster.refresh(["topic"])
    broker.topics.begin_leader_epoch()
    answered = log_end_offsets(cluster, [FIRST])[FIRST]
    assert isinstance(answered, BrokerError)
    assert is_transient(answered)
    cluster.refresh(["topic"])
    assert log_end_offsets(cluster, [FIRST])[FIRST] == 0


# Patience


def failing(errors: list[ShoalError]) -> tuple[list[float], object]:
    waits: list[float] = []

    def operation() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    return waits, patiently(operation, patience_s=1000.0, pause=waits.append)


def test_transient_error_is_retried_with_growing_waits() -> None:
    waits, result = failing([Disconnected("a:1", "gone") for _ in range(12)])
    assert result == "done"
    for number, wait in enumerate(waits):
        longest = min(10.0, 0.1 * 2**number)
        assert longest / 2 <= wait <= longest


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, 12345])
def test_unknown_server_error_is_retried(code: int) -> None:
    assert failing([BrokerError(code, "somewhere")])[1] == "done"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("an option"),
        Stopped("an end"),
        ProtocolError("nonsense"),
        BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "somewhere"),
    ],
)
def test_permanent_error_raises_at_once(error: ShoalError) -> None:
    with pytest.raises(type(error)):
        failing([error])
