"""Faults that a test can add, and their number."""

import threading
import time
from collections.abc import Callable

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.batches import batch
from tests.broker.new_topic import NewTopic
from tests.broker.wire import Wire


def test_error_fault_is_returned_once_without_effect(wire: Wire, broker: Broker, topic: str) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert wire.produce(topic, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert wire.end_offset(topic) == 0
    assert wire.produce(topic, batch()).error_code == ErrorCode.NONE


def test_error_fault_after_the_effect_keeps_the_effect(wire: Wire, broker: Broker, topic: str) -> None:
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.REQUEST_TIMED_OUT, effect="after")
    assert wire.produce(topic, batch()).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert wire.end_offset(topic) == 1


@pytest.mark.parametrize(("drop", "written"), [("before", 0), ("after", 1)])
def test_drop_fault_closes_the_connection_before_or_after_the_effect(
    wire: Wire, broker: Broker, topic: str, drop: str, written: int
) -> None:
    broker.faults.add(ApiKey.PRODUCE, drop=drop)  # type: ignore[arg-type]
    with Wire(broker.bootstrap) as other:
        other.send(ApiKey.PRODUCE, 11, **other.produce_fields([(topic, 0, batch())]))
        assert other.receive_frame() is None
    assert wire.end_offset(topic) == written


def test_delay_fault_delays_the_response(wire: Wire, broker: Broker, topic: str) -> None:
    broker.faults.add(ApiKey.LIST_OFFSETS, delay_s=0.2)
    started = time.monotonic()
    assert wire.end_offset(topic) == 0
    assert time.monotonic() - started >= 0.2


def test_delayed_request_does_not_outlive_the_broker() -> None:
    with Broker() as own, Wire(own.bootstrap) as wire:
        fault = own.faults.add(ApiKey.METADATA, delay_s=600)
        wire.send(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False)
        assert own.faults.wait_for(fault)
        own.stop()
        assert wire.receive_frame() is None


def test_fault_applies_to_its_number_of_requests(wire: Wire, broker: Broker, topic: str) -> None:
    fault = broker.faults.add(ApiKey.PRODUCE, times=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    codes = [wire.produce(topic, batch()).error_code for _ in range(3)]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [ErrorCode.NONE]
    assert fault.hits == 2


def test_fault_without_number_stays_until_removed(wire: Wire, broker: Broker, topic: str) -> None:
    fault = broker.faults.add(ApiKey.PRODUCE, times=None, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for _ in range(3):
        assert wire.produce(topic, batch()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.faults.remove(fault)
    assert wire.produce(topic, batch()).error_code == ErrorCode.NONE


def test_fault_of_a_partition_applies_to_it_alone(wire: Wire, broker: Broker, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    broker.faults.add(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic, partition=1)
    assert wire.produce(topic, batch(), partition=0).error_code == ErrorCode.NONE
    response = wire.produce_all([(topic, number, batch()) for number in range(3)])
    codes = {
        each.index: each.error_code for found in response.responses for each in found.partition_responses
    }
    assert codes == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER, 2: ErrorCode.NONE}


def test_fault_of_a_client_applies_to_it_alone(wire: Wire, broker: Broker, topic: str) -> None:
    fault = broker.faults.add(ApiKey.PRODUCE, drop="after", client_id="other")
    with Wire(broker.bootstrap, client_id="other") as other:
        assert wire.produce(topic, batch()).error_code == ErrorCode.NONE
        other.send(ApiKey.PRODUCE, 11, **wire.produce_fields([(topic, 0, batch())]))
        assert other.receive_frame() is None
    assert wire.end_offset(topic) == 2
    assert fault.hits == 1


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT])
def test_other_partition_apis_return_fault_errors(
    wire: Wire, broker: Broker, topic: str, unique: str, api: ApiKey
) -> None:
    broker.faults.add(api, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=topic)
    answers: dict[ApiKey, Callable[[], int]] = {
        ApiKey.FETCH: lambda: wire.fetch(topic).error_code,
        ApiKey.LIST_OFFSETS: lambda: wire.list_offset(topic, -1).error_code,
        ApiKey.OFFSET_COMMIT: lambda: wire.commit(unique, topic, 1),
    }
    assert answers[api]() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answers[api]() == ErrorCode.NONE


def test_wait_for_returns_once_a_fault_was_hit(wire: Wire, broker: Broker, topic: str) -> None:
    fault = broker.faults.add(ApiKey.FETCH, delay_s=0.1)
    assert not broker.faults.wait_for(fault, timeout_s=0.01)
    fetching = threading.Thread(target=lambda: wire.fetch(topic))
    fetching.start()
    assert broker.faults.wait_for(fault)
    fetching.join()


def test_fault_unsupported_by_its_api_is_refused(broker: Broker) -> None:
    with pytest.raises(ValueError, match="Drop or delay"):
        broker.faults.add(ApiKey.API_VERSIONS, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    with pytest.raises(ValueError, match="after"):
        broker.faults.add(ApiKey.FETCH, error=ErrorCode.UNKNOWN_SERVER_ERROR, effect="after")
