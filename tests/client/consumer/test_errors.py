"""Errors of leaders, batches and logs, as the raw consumer raises them or continues after them."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from shoal import Committed, TopicPartition
from shoal.client.consumer.fetching import Fetching
from shoal.client.consumer.partitions import ConsumedPartition
from shoal.error_codes import ErrorCode
from shoal.errors import AccessRefused, BrokerError, CorruptBatch, UnsupportedBatch
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal_broker import Broker, BrokerCluster
from tests.client.consumer.consumed import FIRST, consumer, raw, take
from tests.world import batches
from tests.world.faults import Held
from tests.world.history import History
from tests.world.logs import lose_tail
from tests.world.waiting import wait_until


def test_consumer_follows_stopped_and_restarted_nodes() -> None:
    with BrokerCluster(2) as cluster:
        cluster.create_topic("topic", 1)
        log = History(cluster.nodes[0].log("topic", 0))
        with consumer(cluster, request_timeout_ms=2000) as ours:
            ours.assign([FIRST])
            for node_id in (1, 2):
                log.plain(1, leader_epoch=log.log.leader_epoch)
                take(ours, 1)
                cluster.stop_node(node_id)
                log.plain(1, leader_epoch=log.log.leader_epoch)
                take(ours, 1)
                cluster.start_node(node_id)


@pytest.mark.parametrize("drop", ["before", "within"])
def test_fetch_on_a_lost_connection_is_repeated(log: History, broker: Broker, drop: str) -> None:
    log.plain(2, 2)
    for _ in range(3):
        broker.faults.add(ApiKey.FETCH, drop=drop)  # type: ignore[arg-type]
    with consumer(broker) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in take(ours, 4)] == [0, 1, 2, 3]


def test_fetch_without_an_answer_is_repeated_after_the_request_timeout(log: History, broker: Broker) -> None:
    log.plain(3)
    silent = Held(broker, ApiKey.FETCH, times=1)
    with consumer(broker, request_timeout_ms=500) as ours:
        ours.assign([FIRST])
        take(ours, 3)
    silent.release()


def test_leader_may_wait_longer_for_records_than_a_request_lasts(log: History, broker: Broker) -> None:
    fetches = broker.faults.add(ApiKey.FETCH, times=None)
    with consumer(broker, request_timeout_ms=300, fetch_max_wait_ms=60_000) as ours:
        ours.assign([FIRST])
        assert ours.poll(2.0) == []
        assert fetches.hits == 1
        log.plain(3)
        assert len(ours.poll(20.0)) == 3


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_transient_errors_are_retried(log: History, broker: Broker, api: ApiKey, code: ErrorCode) -> None:
    log.plain(2)
    fault = broker.faults.add(api, error=code)
    with consumer(broker, group_id="group") as ours:
        ours.assign([FIRST])
        take(ours, 2)
    assert fault.hits == 1


def test_partition_that_failed_is_put_off() -> None:
    state = ConsumedPartition(FIRST)
    state.put_off()
    assert state.retry_at > time.monotonic()


def test_truncated_log_resets_the_position(broker: Broker) -> None:
    with BrokerCluster(1) as cluster:
        cluster.create_topic("topic", 1)
        log = History(cluster.nodes[0].log("topic", 0))
        log.plain(2, 2)
        with consumer(cluster) as ours:
            ours.assign([FIRST])
            take(ours, 4)
            shorter = lose_tail(cluster.nodes[0], "topic", 2)
            cluster.move_leader("topic", 0, 1)
            again = History(shorter)
            again.plain(1, leader_epoch=shorter.leader_epoch)
            wait_until(lambda: ours.poll(0.05) is not None and ours.position(FIRST) == 3)


def test_truncated_log_without_reset_raises() -> None:
    with BrokerCluster(1) as cluster:
        cluster.create_topic("topic", 1)
        History(cluster.nodes[0].log("topic", 0)).plain(2, 2)
        with consumer(cluster, auto_offset_reset="none") as ours:
            ours.assign([FIRST])
            ours.seek(FIRST, 0)
            take(ours, 4)
            shorter = lose_tail(cluster.nodes[0], "topic", 2)
            cluster.move_leader("topic", 0, 1)
            with pytest.raises(BrokerError, match=r"topic-0.*4.*2.*continue"):
                take(ours, 1)
            History(shorter).plain(1, leader_epoch=shorter.leader_epoch)
            ours.seek(FIRST, 2)
            assert [record.offset for record in take(ours, 1)] == [2]


def test_missing_topic_is_read_once_created(broker: Broker) -> None:
    with consumer(broker) as ours:
        ours.assign([("late", 0)])
        ours.seek(("late", 0), 0)
        assert ours.poll(0.3) == []
        broker.create_topic("late")
        History(broker.log("late", 0)).plain(2)
        take(ours, 2)


def test_damaged_batch_raises_after_earlier_records_and_can_be_skipped(log: History, broker: Broker) -> None:
    log.plain(2)
    damaged = log.batch(3)
    damaged[-1] ^= 1
    log.store(damaged)
    log.plain(2)
    for raw_bytes in (False, True):
        with consumer(broker, fetch_raw_bytes=raw_bytes) as ours:
            ours.assign([FIRST])
            before = take(ours, 1)
            assert before[-1].offset == 1
            for _ in range(2):
                with pytest.raises(CorruptBatch, match=r"topic-0.*offset.*1.*CRC"):
                    take(ours, 1)
            ours.seek(FIRST, 5)
            assert take(ours, 1)[-1].offset in (5, 6)
    with consumer(broker, fetch_raw_bytes=True, check_crcs=False) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in raw(ours, 3)] == [1, 4, 6]


def test_batch_beyond_the_decompression_limit_raises_only_if_decompressed(
    log: History, broker: Broker
) -> None:
    stored = batches.batch([b"x" * 1_000_000], codec=Codec.GZIP, base_timestamp=log.base_timestamp)
    log.store(stored)
    small = {"shoal_max_decompressed_bytes": 10_000}
    with consumer(broker, **small) as ours:
        ours.assign([FIRST])
        with pytest.raises(UnsupportedBatch, match=r"topic-0.*shoal\.max\.decompressed\.bytes"):
            take(ours, 1)
    with consumer(broker, fetch_raw_bytes=True, **small) as ours:
        ours.assign([FIRST])
        assert raw(ours, 1)[0].value == stored


def test_collected_records_are_returned_before_a_fetch_error(
    log: History, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.plain(2)
    with consumer(broker) as ours:
        ours.assign([FIRST])
        send = Fetching.send

        def refused_behind_the_first(
            fetching: Fetching, states: Mapping[TopicPartition, ConsumedPartition]
        ) -> None:
            if states[FIRST].position:
                raise AccessRefused("a broker", "its password was changed")
            send(fetching, states)

        monkeypatch.setattr(Fetching, "send", refused_behind_the_first)
        assert [record.offset for record in take(ours, 2)] == [0, 1]
        with pytest.raises(AccessRefused):
            ours.poll(20)


@pytest.mark.parametrize("goes_on", [False, True])
def test_records_of_an_interrupted_poll_are_returned_again(
    log: History, broker: Broker, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    def interrupted(_: Fetching, states: Mapping[TopicPartition, ConsumedPartition]) -> None:
        assert states[FIRST].position == 4, "nothing was collected"
        raise KeyboardInterrupt

    log.plain(5)
    with consumer(broker, group_id="group", enable_auto_commit=True, max_poll_records=2) as ours:
        ours.assign([FIRST])
        assert [record.offset for record in take(ours, 2)] == [0, 1]
        with monkeypatch.context() as patch:
            patch.setattr(Fetching, "send", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ours.poll(5)
        if goes_on:
            assert [record.offset for record in take(ours, 2)] == [2, 3]
    with consumer(broker, group_id="group") as ours:
        assert ours.committed(FIRST) == {FIRST: Committed(4 if goes_on else 2, "")}


def test_unauthorized_topic_raises(log: History, broker: Broker) -> None:
    log.plain(1)
    broker.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with consumer(broker) as ours:
        ours.assign([FIRST])
        with pytest.raises(BrokerError, match=r"fetching.*topic-0.*0"):
            take(ours, 1)
        take(ours, 1)
