"""The one list of Produce requests, against real Kafka: the embedded broker's expectations are Kafka's."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rig import KafkaCluster
from rig.agent import agent_jar
from shoal.error_codes import ErrorCode
from shoal.records import split
from tests.broker.conftest import create_and_await
from tests.broker.playing import ProduceCase, check
from tests.broker.produce_cases import CASES, MULTI_BATCH_CASES, MULTI_BATCH_CLIENT
from tests.broker.produce_recordings import name_of, recorded
from tests.broker.wire import Wire
from tests.integration.agent_versions import OLDEST_AND_NEWEST_NOW


@pytest.fixture(scope="module")
def wire(destination_cluster: KafkaCluster) -> Iterator[Wire]:
    with Wire(destination_cluster.bootstrap) as connected:
        yield connected


_numbers = itertools.count()


def new_topic(wire: Wire, case: ProduceCase) -> str:
    return create_and_await(wire, f"produce-case-{next(_numbers)}", 1, **case.config)


#: Recorded as accepted, by Kafka 4.1.0. 4.1.2 and 4.3.1 accept them, too; 4.2.2 and 4.4.0 do not.
NOW_REFUSED = [case for case in CASES if re.fullmatch("a record of negative length, (?!none)\\w+", case.name)]


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOW_REFUSED], ids=str)
def test_recorded_case_is_that_of_real_kafka(wire: Wire, case: ProduceCase) -> None:
    for version in case.versions:
        outcome = check(case, version, wire, wire, new_topic(wire, case))
        assert outcome == recorded()[name_of(case, version)]


@pytest.mark.parametrize("case", NOW_REFUSED, ids=str)
def test_case_that_kafka_has_refused_since_is_refused(wire: Wire, case: ProduceCase) -> None:
    refused = replace(case.requests[0], code=ErrorCode.INVALID_RECORD)
    check(replace(case, requests=[refused]), 12, wire, wire, new_topic(wire, case))


SEVERAL = [
    case for case in MULTI_BATCH_CASES if len(list(split(memoryview(case.requests[0].sent() or b"")))) > 1
]


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_batches_are_refused_by_stock_kafka(wire: Wire, case: ProduceCase) -> None:
    """A client may therefore send several batches to find out whether a broker accepts them."""
    refused = replace(case.requests[0], code=ErrorCode.INVALID_RECORD)
    check(replace(case, requests=[refused]), 12, wire, wire, new_topic(wire, case))


@pytest.fixture(scope="module", params=OLDEST_AND_NEWEST_NOW)
def taking(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(version=request.param, broker_jvm={1: [f"-javaagent:{agent_jar()}"]}) as cluster:
        yield cluster


@pytest.mark.parametrize("case", MULTI_BATCH_CASES, ids=str)
def test_recorded_case_on_kafka_with_the_agent_equals_the_embedded_broker(
    taking: KafkaCluster, case: ProduceCase
) -> None:
    with Wire(taking.bootstrap) as wire, Wire(taking.bootstrap, client_id=MULTI_BATCH_CLIENT) as asking:
        for version in case.versions:
            check(case, version, wire, asking, new_topic(wire, case))
