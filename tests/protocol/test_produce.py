"""Produce by hand, against literal bytes, kio and kafka-python."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import encode_request, request_class
from shoal.protocol.produce import (
    ProducedPartition,
    ProduceOutcome,
    ProduceRequest,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
)
from shoal.protocol.topic_ids import NO_TOPIC_ID, TOPIC_IDS_FROM
from tests import kio_messages, old_messages
from tests.strategies import INT16, INT32
from tests.topic_ids import NAMES, id_of

VERSIONS = range(14)
OLD_VERSIONS = range(3)
KIO_VERSIONS = range(3, 14)

Topics = dict[str, list[tuple[int, list[memoryview]]]]

LITERAL: dict[int, bytes] = {
    2: (
        b"\0\0\0\2" + b"\0\0\0\x09" + b"\0\5shoal"  # API 0, version 2; correlation id; client id
        b"\xff\xff" + b"\0\0\x75\x30"  # acks=all, 30 s
        b"\0\0\0\2"
        b"\0\6orders" + b"\0\0\0\2"
        b"\0\0\0\0" + b"\0\0\0\5" + b"first"
        b"\0\0\0\3" + b"\0\0\0\x0a" + b"onetwothre"
        b"\0\1x" + b"\0\0\0\1"
        b"\0\0\0\1" + b"\0\0\0\0"
    ),
    7: (
        b"\0\0\0\7" + b"\0\0\0\x09" + b"\0\5shoal"  # API 0, version 7; correlation id; client id
        b"\xff\xff" + b"\xff\xff" + b"\0\0\x75\x30"  # no transaction, acks=all, 30 s
        b"\0\0\0\2"
        b"\0\6orders" + b"\0\0\0\2"
        b"\0\0\0\0" + b"\0\0\0\5" + b"first"
        b"\0\0\0\3" + b"\0\0\0\x0a" + b"onetwothre"
        b"\0\1x" + b"\0\0\0\1"
        b"\0\0\0\1" + b"\0\0\0\0"
    ),
    9: (
        b"\0\0\0\x09" + b"\0\0\0\x09" + b"\0\5shoal" + b"\0"
        b"\0" + b"\xff\xff" + b"\0\0\x75\x30"
        b"\3"
        b"\7orders" + b"\3"
        b"\0\0\0\0" + b"\6" + b"first" + b"\0"
        b"\0\0\0\3" + b"\x0b" + b"onetwothre" + b"\0" + b"\0"
        b"\2x" + b"\2"
        b"\0\0\0\1" + b"\1" + b"\0" + b"\0" + b"\0"
    ),
}
LITERAL[13] = (
    LITERAL[9]
    .replace(b"\0\0\0\x09", b"\0\0\0\x0d", 1)
    .replace(b"\7orders", id_of("orders").bytes)
    .replace(b"\2x", id_of("x").bytes)
)
LITERAL_TOPICS: Topics = {
    "orders": [(0, [memoryview(b"first")]), (3, [memoryview(b"one"), memoryview(b"twothre")])],
    "x": [(1, [])],
}
LITERAL_REQUEST = ProduceRequest(
    None,
    -1,
    30_000,
    [
        ProducedPartition("orders", 0, memoryview(b"first")),
        ProducedPartition("orders", 3, memoryview(b"onetwothre")),
        ProducedPartition("x", 1, memoryview(b"")),
    ],
)


def encode(
    topics: Topics, version: int, client_id: str = "shoal", acks: int = -1, timeout_ms: int = 30_000
) -> list[bytes | memoryview]:
    by_id = {id_of(name): partitions for name, partitions in topics.items()}
    return encode_produce_request(
        by_id if version >= TOPIC_IDS_FROM else topics,
        version=version,
        correlation_id=9,
        client_id=client_id,
        acks=acks,
        timeout_ms=timeout_ms,
    )


def frame_of(parts: list[bytes | memoryview]) -> bytes:
    frame = b"".join(parts[1:])
    assert int.from_bytes(parts[0]) == len(frame)
    return frame


@pytest.mark.parametrize("version", LITERAL)
def test_request_has_literal_bytes(version: int) -> None:
    assert frame_of(encode(LITERAL_TOPICS, version)) == LITERAL[version]
    names = {id_of(name): name for name in LITERAL_TOPICS}
    read = decode_produce_request(memoryview(LITERAL[version]), version, names=names)
    by_name = [replace(each, topic_id=None) for each in read.partitions]
    assert replace(read, partitions=by_name) == LITERAL_REQUEST
    ids = [id_of(each.topic) if version >= TOPIC_IDS_FROM else None for each in read.partitions]
    assert [each.topic_id for each in read.partitions] == ids


def test_unknown_topic_id_has_no_name() -> None:
    request = decode_produce_request(memoryview(LITERAL[13]), 13, names={id_of("x"): "x"})
    assert [(each.topic, each.topic_id) for each in request.partitions] == [
        ("", id_of("orders")),
        ("", id_of("orders")),
        ("x", id_of("x")),
    ]


def all_topics() -> st.SearchStrategy[Topics]:
    record_sets = st.lists(st.binary(max_size=200).map(lambda drawn: memoryview(drawn)), max_size=3)
    partitions = st.dictionaries(st.integers(0, 2**31 - 1), record_sets, max_size=3).map(
        lambda drawn: list(drawn.items())
    )
    return st.dictionaries(st.sampled_from(["orders", "κ", "x" * 200, ""]), partitions, max_size=3)


def by_kio(topics: Topics, version: int, client_id: str, acks: int, timeout_ms: int) -> bytes:
    schema = kio_messages.request_schema(ApiKey.PRODUCE, version)
    nested = kio_messages.nested(schema)
    return kio_messages.encode_request(
        schema(
            transactional_id=None,
            acks=acks,
            timeout=timedelta(milliseconds=timeout_ms),
            topic_data=tuple(
                nested.TopicProduceData(
                    **({"topic_id": id_of(name)} if version >= TOPIC_IDS_FROM else {"name": name}),
                    partition_data=tuple(
                        nested.PartitionProduceData(index=partition, records=b"".join(batches))
                        for partition, batches in partitions
                    ),
                )
                for name, partitions in topics.items()
            ),
        ),
        9,
        client_id,
    )


def by_kafka_python(topics: Topics, version: int, client_id: str, acks: int, timeout_ms: int) -> bytes:
    request = request_class(ApiKey.PRODUCE)
    topic = request.TopicProduceData
    message = request(
        version=version,
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            topic(
                version=version,
                **({"topic_id": id_of(name)} if version >= TOPIC_IDS_FROM else {"name": name}),
                partition_data=[
                    topic.PartitionProduceData(version=version, index=partition, records=b"".join(batches))
                    for partition, batches in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )
    return encode_request(message, 9, client_id)[4:]


def by_old_kafka_python(topics: Topics, version: int, client_id: str, acks: int, timeout_ms: int) -> bytes:
    schema = old_messages.schema(ApiKey.PRODUCE, version, is_request=True)
    message = schema(
        acks,
        timeout_ms,
        [
            (name, [(partition, b"".join(batches)) for partition, batches in partitions])
            for name, partitions in topics.items()
        ],
    )
    return old_messages.encode_request(message, 9, client_id)


Encoder = Callable[[Topics, int, str, int, int], bytes]
ENCODERS = [(version, by_old_kafka_python) for version in OLD_VERSIONS]
ENCODERS += [(version, by_kio) for version in KIO_VERSIONS]
ENCODERS += [(version, by_kafka_python) for version in VERSIONS]


@pytest.mark.parametrize(("version", "theirs"), ENCODERS)
@settings(max_examples=20)
@given(all_topics(), st.sampled_from(["", "shoal", "κ"]), INT16, INT32)
def test_request_has_the_bytes_of_another_library(
    version: int, theirs: Encoder, topics: Topics, client_id: str, acks: int, timeout_ms: int
) -> None:
    ours = frame_of(encode(topics, version, client_id, acks, timeout_ms))
    assert ours == theirs(topics, version, client_id, acks, timeout_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_are_not_copied(version: int) -> None:
    parts = encode(LITERAL_TOPICS, version)
    views = [view for partitions in LITERAL_TOPICS.values() for _, batches in partitions for view in batches]
    assert [part for part in parts if isinstance(part, memoryview)] == views
    assert all(any(part is view for part in parts) for view in views)


@pytest.mark.parametrize("version", VERSIONS)
def test_partition_listed_twice_is_refused(version: int) -> None:
    """A broker keeps the last of them, drops the other and reports success."""
    twice: Topics = {"orders": [(0, [memoryview(b"lost")]), (1, []), (0, [memoryview(b"kept")])]}
    topic = id_of("orders") if version >= TOPIC_IDS_FROM else "orders"
    with pytest.raises(ValueError, match=rf"partition.*'{topic}'"):
        encode(twice, version)


def test_same_partition_of_two_topics_is_accepted() -> None:
    both: Topics = {"a": [(0, [memoryview(b"first")])], "b": [(0, [memoryview(b"second")])]}
    decoded = decode_produce_request(memoryview(frame_of(encode(both, 12))), 12)
    assert [(each.topic, each.partition) for each in decoded.partitions] == [("a", 0), ("b", 0)]


def _topic_id(topic: Any) -> uuid.UUID | None:
    """Return the id of a topic of kio's, which reads one of zeros as null."""
    return (topic.topic_id or NO_TOPIC_ID) if hasattr(topic, "topic_id") else None


def _name(topic: Any) -> str:
    return str(_topic_id(topic) or topic.name)


def request_from_kio(message: Any) -> ProduceRequest:
    return ProduceRequest(
        message.transactional_id,
        message.acks,
        message.timeout // timedelta(milliseconds=1),
        [
            ProducedPartition(_name(topic), each.index, memoryview(each.records or b""), _topic_id(topic))
            for topic in message.topic_data
            for each in topic.partition_data
        ],
    )


def request_from_old(message: Any) -> ProduceRequest:
    return ProduceRequest(
        None,
        message.acks,
        message.timeout,
        [
            ProducedPartition(topic, partition, memoryview(records))
            for topic, partitions in message.topics
            for partition, records in partitions
        ],
    )


def other_requests(version: int, count: int) -> list[tuple[ProduceRequest, bytes]]:
    """Make up requests, and have another library write them."""
    draw = random.Random(version)
    if version in OLD_VERSIONS:
        old = old_messages.schema(ApiKey.PRODUCE, version, is_request=True)
        drawn = [old_messages.random_message(old, draw) for _ in range(count)]
        return [(request_from_old(each), old_messages.encode_request(each, 9, "client")) for each in drawn]
    schema = kio_messages.request_schema(ApiKey.PRODUCE, version)
    messages = [kio_messages.random_message(schema, draw) for _ in range(count)]
    return [
        (request_from_kio(each), kio_messages.encode_request(each, 9, draw.choice([None, "", "client"])))
        for each in messages
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_request_of_another_library_is_decoded_as_by_it(version: int) -> None:
    for request, frame in other_requests(version, 100):
        assert decode_produce_request(memoryview(frame), version, names=NAMES) == request


@pytest.mark.parametrize("version", VERSIONS)
def test_request_cut_anywhere_is_refused_and_trailing_bytes_are_ignored(version: int) -> None:
    """A broker ignores bytes after the last field."""
    for _, frame in other_requests(version, 5):
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_produce_request(memoryview(frame[:cut]), version, names=NAMES)
        whole = decode_produce_request(memoryview(frame), version, names=NAMES)
        assert decode_produce_request(memoryview(frame + b"\0"), version, names=NAMES) == whole


def test_request_s_record_set_is_a_view_of_the_frame() -> None:
    frame = bytearray(LITERAL[9])
    request = decode_produce_request(memoryview(frame), 9)
    frame[frame.index(b"first")] = ord("F")
    assert bytes(request.partitions[0].record_set) == b"First"


def test_decoded_request_keeps_a_repeated_partition() -> None:
    frame = LITERAL[7].replace(b"\0\0\0\3\0\0\0\x0a", b"\0\0\0\0\0\0\0\x0a")
    assert [each.partition for each in decode_produce_request(memoryview(frame), 7).partitions] == [0, 0, 1]


OUTCOME: dict[int, bytes] = {
    0: (
        b"\0\0\0\x09"
        b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\1"
        b"\0\0\0\3" + b"\0\0" + b"\0\0\0\0\0\0\3\xe8"  # partition 3, no error, base offset 1000
    ),
    1: (
        b"\0\0\0\x09"
        b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\1"
        b"\0\0\0\3" + b"\0\0" + b"\0\0\0\0\0\0\3\xe8"
        b"\0\0\0\x64"  # throttle_time_ms
    ),
    2: (
        b"\0\0\0\x09"
        b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\1"
        b"\0\0\0\3" + b"\0\0" + b"\0\0\0\0\0\0\3\xe8"
        b"\0\0\0\0\0\0\0\7"  # append time
        b"\0\0\0\x64"
    ),
    7: (
        b"\0\0\0\x09"
        b"\0\0\0\1" + b"\0\6orders" + b"\0\0\0\1"
        b"\0\0\0\3" + b"\0\0" + b"\0\0\0\0\0\0\3\xe8"  # partition 3, no error, base offset 1000
        b"\xff\xff\xff\xff\xff\xff\xff\xff" + b"\0\0\0\0\0\0\0\2"  # no append time; log start offset 2
        b"\0\0\0\0"  # throttle_time_ms
    ),
    9: (
        b"\0\0\0\x09" + b"\0"
        b"\2" + b"\7orders" + b"\2"
        b"\0\0\0\3" + b"\0\x57" + b"\xff\xff\xff\xff\xff\xff\xff\xff"  # error 87
        b"\xff\xff\xff\xff\xff\xff\xff\xff" + b"\0\0\0\0\0\0\0\2"
        b"\2" + b"\0\0\0\0" + b"\4key" + b"\0"  # the first record has an error of its own
        b"\5text" + b"\0" + b"\0"
        b"\0\0\0\0" + b"\0"
    ),
}


OUTCOME[13] = OUTCOME[9].replace(b"\7orders", id_of("orders").bytes)


def test_response_has_literal_bytes() -> None:
    for version in (0, 1):
        assert decode_produce_response(memoryview(OUTCOME[version]), version) == [
            ProduceOutcome("orders", 3, 0, 1000, -1, -1, None)
        ]
    assert decode_produce_response(memoryview(OUTCOME[2]), 2) == [
        ProduceOutcome("orders", 3, 0, 1000, 7, -1, None)
    ]
    assert decode_produce_response(memoryview(OUTCOME[7]), 7) == [
        ProduceOutcome("orders", 3, 0, 1000, -1, 2, None)
    ]
    for version in (9, 13):
        assert decode_produce_response(
            memoryview(OUTCOME[version]), version, {id_of("orders"): "orders"}
        ) == [ProduceOutcome("orders", 3, 87, -1, -1, 2, "text")]


def test_response_for_an_unsent_topic_id_is_refused() -> None:
    with pytest.raises(ProtocolError, match=f"{id_of('orders')}"):
        decode_produce_response(memoryview(OUTCOME[13]), 13, {})


def outcomes_from_kio(message: Any) -> list[ProduceOutcome]:
    return [
        ProduceOutcome(
            _name(topic),
            each.index,
            each.error_code,
            each.base_offset,
            -1 if each.log_append_time is None else round(each.log_append_time.timestamp() * 1000),
            getattr(each, "log_start_offset", -1),
            getattr(each, "error_message", None),
        )
        for topic in message.responses
        for each in topic.partition_responses
    ]


def outcomes_from_old(message: Any) -> list[ProduceOutcome]:
    return [
        ProduceOutcome(topic, partition, error, base_offset, times[0] if times else -1, -1, None)
        for topic, partitions in message.topics
        for partition, error, base_offset, *times in partitions
    ]


def other_responses(version: int, count: int) -> list[tuple[list[ProduceOutcome], bytes]]:
    """Make up responses, and have another library write them."""
    draw = random.Random(version)
    if version in OLD_VERSIONS:
        old = old_messages.schema(ApiKey.PRODUCE, version, is_request=False)
        drawn = [old_messages.random_message(old, draw) for _ in range(count)]
        return [(outcomes_from_old(each), old_messages.encode_response(each, 9)) for each in drawn]
    schema = kio_messages.response_schema(ApiKey.PRODUCE, version)
    messages = [kio_messages.random_message(schema, draw) for _ in range(count)]
    return [(outcomes_from_kio(each), kio_messages.encode_response(each, 9)) for each in messages]


@pytest.mark.parametrize("version", VERSIONS)
def test_response_of_another_library_is_decoded_as_by_it(version: int) -> None:
    for outcomes, frame in other_responses(version, 100):
        assert decode_produce_response(memoryview(frame), version, names=NAMES) == outcomes


@pytest.mark.parametrize("version", VERSIONS)
def test_response_cut_anywhere_or_with_trailing_bytes_is_refused(version: int) -> None:
    for _, frame in other_responses(version, 5):
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_produce_response(memoryview(frame[:cut]), version, names=NAMES)
        with pytest.raises(ProtocolError, match=r"fields.*end"):
            decode_produce_response(memoryview(frame + b"\0"), version, names=NAMES)
