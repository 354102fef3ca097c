"""Errors after which the raw producer loses, repeats or reorders no record."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Literal

import pytest

from shoal import RawProducer, RecordMetadata
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, DeliveryTimedOut, Disconnected
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.client.producer.produced import producer, values
from tests.world import batches
from tests.world.contents import batches_of
from tests.world.faults import answers
from tests.world.history import History
from tests.world.logs import lagging, lose_tail


def test_refused_batch_leaves_the_others_in_order(broker: Broker) -> None:
    with producer(broker, batch_size=1) as ours:
        futures: list[Future[RecordMetadata]] = []
        refused = []
        for number in range(60):
            if number % 20 == 10:
                futures[-1].result(10)
                refused.append(broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.INVALID_TIMESTAMP))
            futures.append(ours.send("topic", b"%d" % number, partition=0))
        assert ours.flush(20)
    failed = [number for number, future in enumerate(futures) if future.exception()]
    assert len(failed) == 3
    assert all("INVALID_TIMESTAMP" in str(futures[number].exception()) for number in failed)
    assert values(broker) == [b"%d" % number for number in range(60) if number not in failed]
    # The batch after a failed one begins a new epoch, which fences requests in flight of the old one.
    epochs = [batch.header.producer_epoch for batch in batches_of(broker.log("topic", 0))]
    assert epochs == sorted(epochs)
    assert epochs[-1] >= 1


def test_unknown_producer_id_is_recovered(broker: Broker) -> None:
    with producer(broker, batch_size=1) as ours:
        ours.send("topic", b"a", partition=0).result(10)
        for code in (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH):
            broker.faults.add(ApiKey.PRODUCE, error=code)
            assert ours.send("topic", b"b", partition=0).result(10)
    assert values(broker) == [b"a", b"b", b"b"]


#: Any acknowledgement arrives within this time, on a busy machine as well.
TIMEOUTS = {"request_timeout_ms": 1500, "delivery_timeout_ms": 3000}


def test_batch_after_delivery_timeout_fails_and_later_ones_are_sent(broker: Broker) -> None:
    with producer(broker, batch_size=1, **TIMEOUTS) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        fault = broker.faults.add(ApiKey.PRODUCE, drop="before", times=None)
        late = [ours.send("topic", b"late %d" % number, partition=0) for number in range(3)]
        for future in late:
            error = future.exception(20)
            assert isinstance(error, DeliveryTimedOut)
            assert "delivery.timeout.ms=3000" in str(error)
        assert late[0].exception().is_in_doubt  # type: ignore[union-attr]
        broker.faults.remove(fault)
        after = [ours.send("topic", b"after %d" % number, partition=0) for number in range(5)]
        assert ours.flush(20)
        assert [future.exception() for future in after] == [None] * 5
    stored = [value for value in values(broker) if not (value or b"").startswith(b"late")]
    assert stored == [b"before", *(b"after %d" % number for number in range(5))]


def test_written_batch_in_doubt_is_not_repeated(broker: Broker) -> None:
    with producer(broker, batch_size=1, **TIMEOUTS) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        fault = broker.faults.add(ApiKey.PRODUCE, drop="after", times=None)
        late = ours.send("topic", b"late", partition=0)
        assert isinstance(late.exception(20), DeliveryTimedOut)
        broker.faults.remove(fault)
        assert ours.send("topic", b"after", partition=0).result(10).offset == 2
    assert values(broker) == [b"before", b"late", b"after"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)
def test_batch_that_was_refused_after_it_was_written_is_in_doubt(broker: Broker, code: ErrorCode) -> None:
    with producer(broker, request_timeout_ms=500, delivery_timeout_ms=1000) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        broker.faults.add(ApiKey.PRODUCE, error=code, effect="after")
        broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        error = ours.send("topic", b"late", partition=0).exception(20)
    assert isinstance(error, DeliveryTimedOut)
    assert error.is_in_doubt
    assert values(broker) == [b"before", b"late"]


def test_unauthorized_topic_raises(broker: Broker) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with producer(broker) as ours:
        with pytest.raises(BrokerError, match="producing to topic-0"):
            ours.send("topic", b"x", partition=0).result(10)
        ours.send("topic", b"x", partition=0).result(10)
    broker.faults.add(ApiKey.INIT_PRODUCER_ID, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    with producer(broker) as ours:
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            ours.send("topic", b"x", partition=0).result(10)
        with pytest.raises(BrokerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            ours.send("topic", b"x", partition=0)


def test_missing_topic_or_partition_raises_after_max_block_ms(broker: Broker) -> None:
    with producer(broker, max_block_ms=1500) as ours:
        with pytest.raises(BrokerError, match=r"'nowhere'.*max\.block\.ms=1500"):
            ours.send("nowhere", b"x")
        with pytest.raises(BrokerError, match=r"topic-2.*2.*partitions"):
            ours.send("topic", b"x", partition=2)
        threading.Timer(0.1, broker.create_topic, ["late"]).start()
        with producer(broker, max_block_ms=20_000) as patient:
            assert patient.send("late", b"x").result(10).offset == 0


def for_another_partition(response: Any) -> Any:
    response.responses[0].partition_responses[0].index = 1
    return response


def for_a_thousand_partitions(response: Any) -> Any:
    response.responses[0].partition_responses *= 1000
    return response


@pytest.mark.parametrize("lie", [for_another_partition, for_a_thousand_partitions])
def test_answer_for_partitions_that_were_not_sent_counts_for_none(
    broker: Broker, lie: Callable[[Any], Any]
) -> None:
    with producer(broker) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        answers(broker, ApiKey.PRODUCE, lie)
        assert ours.send("topic", b"after", partition=0).result(10).offset == 1
    assert values(broker) == [b"before", b"after"]


def test_batch_that_the_leader_reports_as_written_is_acknowledged(broker: Broker) -> None:
    duplicate = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    broker.faults.add(ApiKey.PRODUCE, error=duplicate, effect="after")
    with producer(broker) as ours:
        assert ours.send("topic", b"a", partition=0).result(10).offset == -1
        assert ours.send("topic", b"b", partition=0).result(10).offset == 1
    assert values(broker) == [b"a", b"b"]


def test_cluster_that_has_no_producer_id_yet_is_asked_again(broker: Broker) -> None:
    asked = broker.faults.add(ApiKey.INIT_PRODUCER_ID, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    with producer(broker) as ours:
        assert ours.send("topic", b"a", partition=0).result(10).offset == 0
    assert asked.hits == 2


def test_lost_connection_fails_a_batch_without_retries_and_later_ones_are_sent(broker: Broker) -> None:
    with producer(broker, retries=0) as ours:
        ours.send("topic", b"before", partition=0).result(10)
        broker.faults.add(ApiKey.PRODUCE, drop="before")
        with pytest.raises(Disconnected):
            ours.send("topic", b"lost", partition=0).result(10)
        assert ours.send("topic", b"after", partition=0).result(10).offset == 1
    assert values(broker) == [b"before", b"after"]


def _old(value: bytes) -> bytes:
    """Return a batch whose producer a leader forgets."""
    return bytes(batches.batch([value], base_timestamp=int(time.time() * 1000) - 3 * _DAY_MS))


_DAY_MS = 86_400_000

#: Time to forget the producer before the next attempt.
PAUSES = {"send_raw_bytes": True, "retry_backoff_ms": 400, "retry_backoff_max_ms": 400}


def _lose_answer(
    broker: Broker, ours: RawProducer, drop: Literal["before", "after"] = "after"
) -> Future[RecordMetadata]:
    """Send an old batch whose answer is lost; then the leader forgets the producer."""
    lost = broker.faults.add(ApiKey.PRODUCE, drop=drop, partition=0)
    sent = ours.send("topic", _old(b"late"), partition=0)
    assert broker.faults.wait_for(lost)
    # As in a clean restart; else at a check every 10 minutes.
    broker.log("topic", 0).forget_expired_producers(int(time.time() * 1000), _DAY_MS)
    return sent


@pytest.mark.parametrize("drop", ["before", "after"])
@pytest.mark.parametrize("is_first", [True, False])
def test_old_batch_in_doubt_is_written_once_if_the_leader_forgot_the_producer(
    broker: Broker, is_first: bool, drop: Literal["before", "after"]
) -> None:
    with producer(broker, **PAUSES) as ours:
        ours.send("topic", _old(b"of another partition"), partition=1).result(10)
        if not is_first:
            ours.send("topic", _old(b"before"), partition=0).result(10)
        assert _lose_answer(broker, ours, drop).result(10).offset == (0 if is_first else 1)
        ours.send("topic", _old(b"after"), partition=0).result(10)
    assert values(broker) == [*([] if is_first else [b"before"]), b"late", b"after"]


def test_old_batch_is_looked_for_behind_foreign_records_and_deleted_ones(broker: Broker) -> None:
    History(broker.log("topic", 0)).plain(5)
    broker.log("topic", 0).delete_records(3)
    with producer(broker, **PAUSES) as ours:
        assert _lose_answer(broker, ours).result(10).offset == 5
    assert broker.log("topic", 0).log_end_offset == 6


def test_old_batch_in_doubt_waits_for_the_followers(broker: Broker) -> None:
    log = lagging(broker, "topic", 1)
    log.lag_ends()
    with producer(broker, **PAUSES) as ours:
        ours.send("topic", _old(b"before"), partition=0).result(10)
        log.lags_at(1)
        sent = _lose_answer(broker, ours)
        with pytest.raises(TimeoutError):
            sent.result(1.5)
        log.lag_ends()
        assert sent.result(10).offset == 1
    assert values(broker) == [b"before", b"late"]


@pytest.mark.parametrize("reason", ["READ", "offsets 2 to 1", "offsets 0 to 0"])
def test_old_batch_is_not_repeated_if_the_log_cannot_tell(broker: Broker, reason: str) -> None:
    log = broker.log("topic", 0)
    with producer(broker, **PAUSES) as ours:
        for number in range(2 if "0 to 0" in reason else 1):
            ours.send("topic", _old(b"%d" % number), partition=0).result(10)
        sent = _lose_answer(broker, ours)
        if reason == "READ":
            broker.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif "2 to 1" in reason:
            log.delete_records(2)
        else:
            log = lose_tail(broker, "topic", 1)
        end = log.log_end_offset
        error = sent.exception(10)
        assert isinstance(error, DeliveryTimedOut)
        assert error.is_in_doubt
        assert error.reason is not None
        assert reason in error.reason
        assert "It may be written nevertheless" in str(error)
        assert log.log_end_offset == end
        ours.send("topic", _old(b"after"), partition=0).result(10)
    assert values(broker)[-1] == b"after"
    assert log.log_end_offset == end + 1


def test_batches_are_queued_while_the_sender_looks_for_old_ones(broker: Broker) -> None:
    interval_s = sys.getswitchinterval()
    batch = bytes(batches.batch([b"x"], base_timestamp=int(time.time() * 1000)))
    with producer(broker, send_raw_bytes=True) as ours:
        ours.partitions_for("topic")
        broker.faults.add(ApiKey.API_VERSIONS, delay_s=0.2)
        futures = [ours.send("topic", batch, partition=0)]
        sys.setswitchinterval(1e-6)
        try:
            while not futures[0].done():
                futures.append(ours.send("topic", batch, partition=0))
        finally:
            sys.setswitchinterval(interval_s)
        assert [each.result(30).offset for each in futures] == list(range(len(futures)))
