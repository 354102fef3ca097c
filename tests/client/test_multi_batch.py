"""Asking a broker whether it takes several batches in a request writes nothing, and doubts count as no."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.multi_batch import marked, query_multi_batch
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.records import split, stamp
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world import batches, faults
from tests.world.clusters import config_of
from tests.world.contents import batches_of

PLAIN, ODD = TopicPartition("topic", 1), TopicPartition("odd", 0)
STOCK, MULTI_BATCH = "false", "true"


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    takes = getattr(request, "param", MULTI_BATCH)
    with Broker(config={"shoal.multi.batch.produce": takes}) as running:
        running.create_topic("topic", 2)
        running.create_topic(
            "odd",
            1,
            {
                "cleanup.policy": "compact",
                "message.timestamp.type": "LogAppendTime",
                "compression.type": "gzip",
                "max.message.bytes": "70",
            },
        )
        yield running


def answers(broker: Broker, *partitions: TopicPartition, client_id: str | None = None) -> dict[Any, bool]:
    with Cluster(config_of("destination", broker)) as cluster:
        cluster.refresh()
        with cluster.connect(broker.node_id, client_id=client_id or marked("shoal")) as connection:
            return query_multi_batch(connection, dict.fromkeys(partitions))


def test_unmarked_client_is_refused_multi_batch(broker: Broker) -> None:
    assert answers(broker, PLAIN, client_id="shoal") == {PLAIN: False}


@pytest.mark.parametrize("broker", [STOCK], indirect=True)
def test_broker_that_checks_acks_first_counts_as_stock(broker: Broker) -> None:

    def refused(response: Any) -> Any:
        for each in response.responses[0].partition_responses:
            each.error_code = ErrorCode.INVALID_REQUIRED_ACKS
        return response

    has_odd_acks = {"to": lambda request: request.acks not in (-1, 0, 1)}
    faults.answers(broker, ApiKey.PRODUCE, refused, math.inf, **has_odd_acks)
    assert answers(broker, PLAIN) == {PLAIN: False}


@pytest.mark.parametrize("broker", [STOCK, MULTI_BATCH], indirect=True)
@pytest.mark.parametrize("records", [0, 3])
def test_probe_writes_nothing(broker: Broker, records: int) -> None:
    log = broker.log(*PLAIN)
    if records:
        batch = memoryview(batches.batch(records))
        stamp(next(iter(split(batch))), 9, 0, 0)
        log.store(batch)
    before = [bytes(each.view) for each in batches_of(log)]
    producers = log.producers()
    answers(broker, PLAIN, ODD)
    assert [bytes(each.view) for each in batches_of(log)] == before
    assert log.log_end_offset == records
    assert log.producers() == producers
    assert broker.log(*ODD).log_end_offset == 0


@pytest.mark.parametrize("broker", [STOCK, MULTI_BATCH], indirect=True)
def test_probe_accepted_with_any_acks_has_wrong_checksums(broker: Broker) -> None:
    """The probe also has wrong checksums."""
    codes = []

    def serve(request: Any, answer: Callable[[Any], Any]) -> Any:
        response = answer(replace(request, acks=-1))
        codes.append(response.responses[0].partition_responses[0].error_code)
        return response

    faults.serve_by(broker, ApiKey.PRODUCE, serve)
    assert answers(broker, PLAIN) == {PLAIN: False}
    assert set(codes) <= {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
    assert broker.log(*PLAIN).log_end_offset == 0
