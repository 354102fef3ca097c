"""The old vectors match their index, as read by kafka-python, which is independent of the broker."""

from operator import attrgetter
from typing import Any

from kafka.protocol.consumer import FetchResponse
from kafka.record.memory_records import MemoryRecords

from tests.each_case import each_case
from tests.vectors import Vector, old_vectors

RESPONSES = [each for each in old_vectors() if each.direction == "response"]
EVERY_RESPONSE = each_case("recorded", RESPONSES, attrgetter("name"))


@EVERY_RESPONSE
def test_kafka_python_finds_the_same_messages(recorded: Vector) -> None:
    assert found_by_kafka_python(recorded) == [
        (each["offset"], each["size"], each["magic"], each["crc_is_valid"], each["timestamp_type"])
        for messages in recorded.messages.values()
        for each in messages
    ]


def found_by_kafka_python(recorded: Vector) -> list[tuple[Any, ...]]:
    response = FetchResponse[recorded.version].decode(recorded.frame, header=True)
    (topic,) = response.responses
    (partition,) = topic.partitions
    records = MemoryRecords(bytes(partition.records))
    types = {None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
    found = []
    while (batch := records.next_batch()) is not None:
        if batch.magic < 2:
            type_name = types[batch.timestamp_type]
            found.append(
                (batch.base_offset, batch.size_in_bytes, batch.magic, batch.validate_crc(), type_name)
            )
    return found


@EVERY_RESPONSE
def test_consumer_s_records_are_those_of_the_messages(recorded: Vector) -> None:
    """Those that it reads from the partition and that lie in the response's messages."""
    assert recorded.records is not None
    for name, messages in recorded.messages.items():
        assert messages
        within = [record for message in messages for record in message["records"]]
        consumed = [
            [record["offset"], record["timestamp"] if record["timestamp_type"] != "none" else -1]
            for record in recorded.records[name]
            if within[0][0] <= record["offset"] <= within[-1][0]
        ]
        assert consumed == within


def test_vectors_cover_every_kind() -> None:
    messages = [each for vector in RESPONSES for found in vector.messages.values() for each in found]
    assert {(each["magic"], each["codec"]) for each in messages} == {
        (magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")
    }
    wrappers = [each for each in messages if len(each["records"]) > 1]
    assert any(each["records"][-1][0] - each["records"][0][0] + 1 > len(each["records"]) for each in wrappers)
    assert {each["timestamp_type"] for each in wrappers} == {"NoTimestampType", "CreateTime", "LogAppendTime"}
