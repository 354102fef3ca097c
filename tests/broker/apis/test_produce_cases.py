"""
The one list of Produce requests, against the embedded broker, or any (see ``conftest``).

The list has the kept bytes. Real Kafka's answers and batches are recorded (``produce_recordings``).
"""

import os
from collections.abc import Callable, Iterator, Sequence

import pytest

from shoal_broker import Broker
from tests.broker.conftest import NewTopic, create_and_await
from tests.broker.playing import ProduceCase, check
from tests.broker.produce_cases import CASES, MULTI_BATCH_CASES, MULTI_BATCH_CLIENT
from tests.broker.produce_recordings import name_of, recorded
from tests.broker.wire import Wire
from tests.each_case import each_case

Versioned = tuple[ProduceCase, int]


def _versions(cases: Sequence[ProduceCase]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    every = [(case, version) for case in cases for version in case.versions]
    return each_case("versioned", every, lambda each: f"{each[0]}-v{each[1]}")


@_versions(CASES)
def test_recorded_case_has_kafka_s_response_and_log(
    wire: Wire, new_topic: NewTopic, versioned: Versioned
) -> None:
    case, version = versioned
    outcome = check(case, version, wire, wire, new_topic(**case.config))
    assert outcome == recorded()[name_of(case, version)]


@pytest.fixture(scope="module")
def multi_batch_address() -> Iterator[str]:
    """A broker that takes several batches; of a real one, that has the agent, the address is given."""
    if "SHOAL_TEST_BROKER" in os.environ:
        if "SHOAL_TEST_MULTI_BATCH" not in os.environ:
            pytest.skip("SHOAL_TEST_MULTI_BATCH does not say that the broker takes several batches")
        yield os.environ["SHOAL_TEST_BROKER"]
        return
    with Broker(config={"shoal.multi.batch.produce": "true"}) as running:
        yield running.bootstrap


@pytest.fixture
def asking(multi_batch_address: str) -> Iterator[Wire]:
    with Wire(multi_batch_address, client_id=MULTI_BATCH_CLIENT) as connected:
        yield connected


@_versions(MULTI_BATCH_CASES)
def test_recorded_case_on_a_multi_batch_broker_has_its_response_and_log(
    multi_batch_address: str, asking: Wire, unique: str, versioned: Versioned
) -> None:
    case, version = versioned
    topic = f"{unique}-v{version}-{MULTI_BATCH_CASES.index(case)}"
    with Wire(multi_batch_address) as wire:
        check(case, version, wire, asking, create_and_await(wire, topic, 1, **case.config))
