"""A real broker that forgets producers: the reason for which old records go one request at a time.

Records 30 days old expire with the default ``producer.id.expiration.ms``, a day. Only the check, by default
every ten minutes, comes sooner here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rig import KafkaCluster
from rig.agent import agent_jar
from rig.load import create_topic
from rig.wait import wait_until
from shoal.error_codes import ErrorCode
from tests.broker.numbered_batches import numbered
from tests.broker.wire import Wire
from tests.conformance.test_produce import describe_producers
from tests.world.batches import batch

NOW_MS = int(time.time() * 1000)
OLD_MS = NOW_MS - 30 * 86_400_000


@pytest.fixture(scope="module")
def forgetful() -> Iterator[KafkaCluster]:
    """A broker with the agent that checks for expired producers every 50 ms."""
    config = {"producer.id.expiration.check.interval.ms": 50}
    with KafkaCluster(config=config, broker_jvm={1: [f"-javaagent:{agent_jar()}"]}) as cluster:
        yield cluster


def await_forgotten(wire: Wire, topic: str) -> None:
    wait_until(lambda: not describe_producers(wire, topic), "the broker to forget its producers")


@pytest.mark.parametrize(
    ("timestamp", "error"),
    [(NOW_MS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), (OLD_MS, ErrorCode.NONE)],
    ids=["remembers", "forgot"],
)
def test_request_of_a_forgotten_producer_without_predecessor_is_accepted(
    forgetful: KafkaCluster, topic: str, timestamp: int, error: ErrorCode
) -> None:
    create_topic(forgetful.bootstrap, topic)
    first, _, third = (
        batch(base_timestamp=timestamp, producer_id=7, producer_epoch=0, base_sequence=number)
        for number in range(3)
    )
    with Wire(forgetful.bootstrap) as wire:
        assert wire.produce(topic, first).error_code == ErrorCode.NONE
        if timestamp == OLD_MS:
            await_forgotten(wire, topic)
        assert wire.produce(topic, third).error_code == error


def test_agent_recognizes_the_repeated_batches_of_a_forgotten_producer(
    forgetful: KafkaCluster, topic: str
) -> None:
    create_topic(forgetful.bootstrap, topic)
    batches = numbered(0, 1, 1, 1, 1)
    with Wire(forgetful.bootstrap, client_id="shoal-multi-batch") as wire:

        def produced(*built: bytearray) -> tuple[ErrorCode, int]:
            answer = wire.produce(topic, b"".join(built))
            await_forgotten(wire, topic)
            return ErrorCode(answer.error_code), answer.base_offset

        assert produced(*batches[:2]) == (ErrorCode.NONE, 0)
        assert produced(*batches[:2]) == (ErrorCode.NONE, 0)
        assert produced(*numbered(4, 1, 1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert produced(*batches[1:]) == (ErrorCode.NONE, 1)
        assert wire.end_offset(topic) == 4
