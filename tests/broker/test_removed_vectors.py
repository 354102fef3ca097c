"""The embedded broker gives the answers that Kafka 2.8.2 gave, in versions that Kafka 4 has removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import pytest
from kafka.record import MemoryRecords

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response
from shoal.protocol.fetch import decode_fetch_response
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.each_case import each_case
from tests.vectors import Vector, removed_vectors

#: The broker's address, the texts of errors, and `is_default`, which Kafka always sets to false.
_ITS_OWN = {"port", "error_message", "is_default"}


@pytest.fixture(scope="module")
def answers() -> Mapping[str, bytes]:
    """Play all recorded requests in their order, and return the answers by the responses' names."""
    found: dict[str, bytes] = {}
    with Broker(config={"shoal.old.versions": "true"}) as broker, Wire(broker.bootstrap) as wire:
        for recorded in removed_vectors():
            if recorded.name == "removed/produce-v0.request":
                broker.create_topic("produced", 2)
            if recorded.direction == "request":
                wire.send_bytes(recorded.size.to_bytes(4) + recorded.frame)
                frame = wire.receive_frame()
                assert frame is not None, recorded.name
                found[recorded.name.replace(".request", ".response")] = frame
    return found


RESPONSES = [each for each in removed_vectors() if each.direction == "response"]

#: Kafka kept the positions of version 0 in ZooKeeper, without metadata; here they are those of version 1.
IN_ZOOKEEPER = ("removed/offset_fetch-v0.response", "removed/offset_fetch-v1-none.response")
AT_THE_COORDINATOR = "removed/offset_fetch-v1.response"


@each_case("recorded", RESPONSES, attrgetter("name"))
def test_recorded_request_has_kafka_s_response(recorded: Vector, answers: Mapping[str, bytes]) -> None:
    answer = answers[recorded.name]
    if recorded.name in IN_ZOOKEEPER:
        (later,) = [each for each in RESPONSES if each.name == AT_THE_COORDINATOR]
        assert answer[4:] == later.frame[4:]
        return
    assert _meaning(recorded, answer) == _meaning(recorded, recorded.frame)
    if recorded.api in ("Produce", "ListOffsets", "OffsetCommit", "OffsetFetch", "OffsetForLeaderEpoch"):
        assert answer == recorded.frame


def _meaning(recorded: Vector, frame: bytes) -> Any:
    if recorded.api == "Fetch":
        return [
            (
                each.topic,
                each.partition,
                each.error_code,
                each.high_watermark,
                list(_messages(each.record_set)),
            )
            for each in decode_fetch_response(memoryview(frame), recorded.version).partitions
        ]
    return _plain(decode_response(ApiKey(recorded.api_key), recorded.version, memoryview(frame)))


def _messages(record_set: memoryview) -> Iterator[tuple[Any, ...]]:
    """Read whole messages; their compressed bytes depend on the library, not on Kafka."""
    records = MemoryRecords(bytes(record_set))
    while records.has_next():
        batch = records.next_batch()
        for record in batch:
            yield (
                batch.magic,
                batch.compression_type,
                record.offset,
                record.timestamp,
                record.key,
                record.value,
            )


def _plain(value: Any) -> Any:
    if hasattr(value, "unknown_tags"):
        return {
            name: _plain(getattr(value, name))
            for name, field in value.fields.items()
            if field.for_version_q(value.version) and name not in _ITS_OWN
        }
    if isinstance(value, (list, set)):
        return sorted((_plain(each) for each in value), key=repr)
    return value
