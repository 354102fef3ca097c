"""The one list of Produce requests, on each server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import split
from tests.broker.new_topic import NewTopic
from tests.broker.wire import Wire
from tests.conformance.conftest import Connect
from tests.conformance.playing import ProduceCase, check
from tests.conformance.produce_cases import CASES, MULTI_BATCH_CASES, MULTI_BATCH_CLIENT
from tests.conformance.servers import Server

SEVERAL = [
    case for case in MULTI_BATCH_CASES if len(list(split(memoryview(case.requests[0].sent() or b"")))) > 1
]


def versions(case: ProduceCase, server: Server) -> set[int]:
    """Return the versions in which a case is sent: the case's own, or the newest that the server has."""
    return {min(each, server.newest.get(ApiKey.PRODUCE, each)) for each in case.versions}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_case_has_kafka_s_response_and_log(
    server: Server, wire: Wire, new_topic: NewTopic, case: ProduceCase
) -> None:
    for version in versions(case, server):
        check(case, version, wire, wire, new_topic(**case.config))


@pytest.mark.several_batches
@pytest.mark.parametrize("case", MULTI_BATCH_CASES, ids=str)
def test_case_of_several_batches_has_its_response_and_log(
    wire: Wire, connect: Connect, new_topic: NewTopic, case: ProduceCase
) -> None:
    asking = connect(MULTI_BATCH_CLIENT)
    for version in case.versions:
        check(case, version, wire, asking, new_topic(**case.config))


@pytest.mark.one_batch
@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_several_batches_are_refused_by_a_stock_broker(
    server: Server, wire: Wire, connect: Connect, new_topic: NewTopic, case: ProduceCase
) -> None:
    """A client may therefore send several batches to find out whether a broker accepts them."""
    refused = replace(case.requests[0], code=ErrorCode.INVALID_RECORD)
    version = max(versions(case, server))
    check(
        replace(case, requests=[refused]),
        version,
        wire,
        connect(MULTI_BATCH_CLIENT),
        new_topic(**case.config),
    )
