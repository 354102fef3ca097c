"""The one list of Produce requests, against the embedded broker, or any (see ``conftest``)."""

import os
from collections.abc import Iterator

import pytest

from shoal.broker import Broker
from tests.broker.conftest import NewTopic, create_and_await
from tests.broker.produce_cases import CASES, MULTI_BATCH_CASES, MULTI_BATCH_CLIENT, ProduceCase, check
from tests.broker.wire import Wire


def _versions(cases: list[ProduceCase]) -> pytest.MarkDecorator:
    every = [(case, version) for case in cases for version in case.versions]
    return pytest.mark.parametrize(("case", "version"), every, ids=[f"{case}-v{v}" for case, v in every])


@_versions([*CASES])
def test_a_broker_answers_and_keeps_as_kafka_does(
    wire: Wire, new_topic: NewTopic, case: ProduceCase, version: int
) -> None:
    check(case, version, wire, wire, new_topic(**case.config))


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


@_versions([*MULTI_BATCH_CASES])
def test_a_broker_that_takes_several_batches_does_so(
    multi_batch_address: str, asking: Wire, unique: str, case: ProduceCase, version: int
) -> None:
    with Wire(multi_batch_address) as wire:
        check(case, version, wire, asking, create_and_await(wire, unique, 1, **case.config))
