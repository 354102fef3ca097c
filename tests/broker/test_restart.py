"""A broker that stops and starts again: state that it keeps, state that it drops, and its clients."""

import socket
import threading
from collections.abc import Iterator

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from tests.broker.wire import Wire
from tests.world.batches import TIMESTAMP, batch
from tests.world.waiting import wait_until


@pytest.fixture
def own() -> Iterator[Broker]:
    """A broker of the test's own, since it is stopped."""
    with Broker() as running:
        running.create_topic("topic")
        yield running


def with_producer(sequence: int, timestamp: int = TIMESTAMP) -> bytearray:
    return batch(producer_id=5, producer_epoch=0, base_sequence=sequence, base_timestamp=timestamp)


def test_restarted_broker_has_the_same_port_and_logs(own: Broker) -> None:
    address = own.bootstrap
    with Wire(address) as wire:
        wire.produce("topic", batch(3))
        own.stop()
        assert wire.receive_frame() is None
    with pytest.raises(ConnectionError):
        Wire(address)
    own.start()
    assert own.bootstrap == address
    with Wire(address) as wire:
        assert wire.end_offset("topic") == 3


def test_restart_begins_a_new_leader_epoch(own: Broker) -> None:
    with Wire(own.bootstrap) as wire:
        wire.produce("topic", batch(3))
    own.stop()
    own.start()
    with Wire(own.bootstrap) as wire:
        wire.produce("topic", batch(2))
        assert wire.fetch("topic", leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert wire.fetch("topic", leader_epoch=1).error_code == ErrorCode.NONE
        old, new = wire.end_of_epoch("topic", 0), wire.end_of_epoch("topic", 1)
        assert (old.leader_epoch, old.end_offset) == (0, 3)
        assert (new.leader_epoch, new.end_offset) == (1, 5)
        stored = wire.fetch("topic").record_set
        assert bytes(stored[12:16]) == b"\0\0\0\0"
        assert bytes(wire.fetch("topic", 3).record_set[12:16]) == b"\0\0\0\1"


def test_leader_epoch_without_records_leaves_no_trace(own: Broker) -> None:
    with Wire(own.bootstrap) as wire:
        wire.produce("topic", batch(3))
    for _ in range(2):
        own.stop()
        own.start()
    with Wire(own.bootstrap) as wire:
        found = wire.end_of_epoch("topic", 1)
        assert (found.leader_epoch, found.end_offset) == (0, 3)


def test_producer_continues_its_sequences_after_a_restart(own: Broker) -> None:
    own.config["producer.id.expiration.ms"] = str(2**31 - 1)
    fresh = now_ms()
    with Wire(own.bootstrap) as wire:
        wire.produce("topic", with_producer(0, fresh))
    own.stop()
    own.start()
    with Wire(own.bootstrap) as wire:
        again = wire.produce("topic", with_producer(0, fresh))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
        assert wire.produce("topic", with_producer(1, fresh)).base_offset == 1
        assert wire.produce("topic", with_producer(7, fresh)).error_code == (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )


def test_producer_with_old_batches_is_forgotten(own: Broker) -> None:
    with Wire(own.bootstrap) as wire:
        wire.produce("topic", with_producer(0))
    own.stop()
    own.start()
    with Wire(own.bootstrap) as wire:
        again = wire.produce("topic", with_producer(0))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 1), "written twice"


def test_old_producers_are_forgotten_without_a_restart() -> None:
    with Broker(config={"producer.id.expiration.check.interval.ms": "50"}) as own:
        log = own.create_topic("topic").logs[0]
        with Wire(own.bootstrap) as wire:
            wire.produce("topic", with_producer(0))
        wait_until(lambda: not log.producers())


def test_waiting_clients_are_disconnected_when_the_broker_stops(own: Broker) -> None:
    with Wire(own.bootstrap) as fetching, Wire(own.bootstrap) as joining:
        fetching.send_fetch([("topic", 0, 0)], max_wait_ms=600_000, min_bytes=1)
        first = joining.join("group", instance="one", rebalance_timeout_ms=600_000)
        assert first.error_code == ErrorCode.NONE
        with Wire(own.bootstrap) as second:
            second.join("group", instance="two", wait=False)
            own.stop()
            assert second.receive_frame() is None
        assert fetching.receive_frame() is None


def test_group_members_and_offsets_survive_a_restart(own: Broker) -> None:
    with Wire(own.bootstrap) as wire:
        wire.commit("group", "topic", 7)
        joined = wire.join("group", instance="one")
        wire.sync("group", joined.member_id, 1, instance="one", assignments={joined.member_id: b"all"})
    own.stop()
    own.start()
    with Wire(own.bootstrap) as wire:
        assert wire.committed("group", "topic").committed_offset == 7
        assert wire.heartbeat("group", joined.member_id, 1, instance="one") == ErrorCode.NONE


def test_start_on_a_used_port_raises_and_leaves_no_threads(own: Broker) -> None:
    threads = set(threading.enumerate())
    other = Broker(port=own.port)
    with pytest.raises(OSError, match="in use"):
        other.start()
    other.stop()
    # Those of other tests may end meanwhile.
    assert set(threading.enumerate()) <= threads


def test_stop_can_be_called_twice_and_before_start() -> None:
    broker = Broker()
    broker.stop()
    broker.start()
    broker.stop()
    broker.stop()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_address_beyond_loopback_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        Broker(address)


def test_unknown_host_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"resolve .*'nobody\.invalid'"):
        Broker("nobody.invalid")


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        Broker(config={"no.such.setting": "1"})


@pytest.mark.parametrize(
    ("name", "value"), [("shoal.multi.batch.client.id.prefix", ""), ("num.partitions", "1_0")]
)
def test_invalid_setting_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Broker(config={name: value})


@pytest.mark.parametrize("told", ["true", "True"])
def test_auto_create_topics_enable_creates_topics_on_first_use(told: str) -> None:
    config = {"auto.create.topics.enable": told, "num.partitions": "3"}
    with Broker(config=config) as own, Wire(own.bootstrap) as wire:
        wanted = request_class(ApiKey.METADATA).MetadataRequestTopic(name="new")
        for allowed, code, partitions in (
            (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
            (True, ErrorCode.NONE, 3),
        ):
            answer = wire.call(ApiKey.METADATA, 12, topics=[wanted], allow_auto_topic_creation=allowed)
            assert (answer.topics[0].error_code, len(answer.topics[0].partitions)) == (code, partitions)


def test_broker_listens_on_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        running = Broker("::1")
        running.start()
    except OSError:
        pytest.skip("no IPv6 loopback address here")
    assert running.bootstrap == f"[::1]:{running.port}"
    running.stop()
