"""
Produce, and responses to Fetch, are read and written by hand: the same as by the codec of all other messages.

``test_codec`` compares that codec with those of other libraries.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shoal.errors import ProtocolError
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.fetch import FetchedPartition, FetchResponse, decode_fetch_response, encode_fetch_response
from shoal.protocol.produce import (
    ProducedPartition,
    ProduceOutcome,
    ProduceRequest,
    decode_produce_request,
    decode_produce_response,
    encode_produce_request,
)
from shoal.protocol.topic_ids import NO_TOPIC_ID, TOPIC_IDS_FROM
from tests.each_case import each_case
from tests.protocol.frames import CASES, CLIENT_ID, CORRELATION_ID, Case
from tests.topic_ids import NAMES, id_of

ORDERS = id_of("orders")


def topic_of(topic: Any, version: int) -> tuple[str, uuid.UUID | None]:
    """Return the name and the id of a topic. The names of :data:`NAMES` are the ids; null is zeros."""
    if version < TOPIC_IDS_FROM:
        return topic.topic if hasattr(topic, "partitions") else topic.name, None
    topic_id = topic.topic_id or NO_TOPIC_ID
    return str(topic_id), topic_id


def request_of(message: Any, version: int) -> ProduceRequest:
    partitions = []
    for topic in message.topic_data:
        name, topic_id = topic_of(topic, version)
        partitions += [
            ProducedPartition(name, each.index, memoryview(each.records or b""), topic_id)
            for each in topic.partition_data
        ]
    transactional_id = message.transactional_id if version >= 3 else None
    return ProduceRequest(transactional_id, message.acks, message.timeout_ms, partitions)


def outcomes_of(message: Any, version: int) -> list[ProduceOutcome]:
    return [
        ProduceOutcome(
            topic_of(topic, version)[0],
            each.index,
            each.error_code,
            each.base_offset,
            each.log_append_time_ms,
            each.log_start_offset,
            each.error_message if version >= 8 else None,
        )
        for topic in message.responses
        for each in topic.partition_responses
    ]


def fetched_of(message: Any, version: int) -> FetchResponse:
    partitions = []
    for topic in message.responses:
        name, topic_id = topic_of(topic, version)
        partitions += [
            FetchedPartition(
                name,
                each.partition_index,
                each.error_code,
                each.high_watermark,
                each.last_stable_offset if version >= 4 else -1,
                each.log_start_offset if version >= 5 else -1,
                [(one.producer_id, one.first_offset) for one in each.aborted_transactions or ()]
                if version >= 4
                else [],
                memoryview(each.records or b""),
                each.preferred_read_replica if version >= 11 else -1,
                topic_id,
            )
            for each in topic.partitions
        ]
    return FetchResponse(
        message.throttle_time_ms if version >= 1 else 0,
        message.error_code if version >= 7 else 0,
        message.session_id if version >= 7 else 0,
        partitions,
    )


Read = Callable[[memoryview, int], Any]

#: By API and whether it is a request: how it is read by hand, and the same of the codec's message.
BY_HAND: dict[tuple[ApiKey, bool], tuple[Read, Callable[[Any, int], Any]]] = {
    (ApiKey.PRODUCE, True): (lambda f, v: decode_produce_request(f, v, names=NAMES), request_of),
    (ApiKey.PRODUCE, False): (lambda f, v: decode_produce_response(f, v, NAMES), outcomes_of),
    (ApiKey.FETCH, False): (lambda f, v: decode_fetch_response(f, v, NAMES), fetched_of),
}

#: The first version of each; 0 by default.
FROM = {(ApiKey.PRODUCE, False): CLIENT_VERSIONS[ApiKey.PRODUCE][0]}


def chosen(*which: tuple[ApiKey, bool]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return each_case(
        "case",
        [
            each
            for each in CASES
            if (each.api_key, each.is_request) in which
            and FROM.get((each.api_key, each.is_request), 0) <= each.version <= TOPIC_IDS_FROM
        ],
    )


def read(case: Case, frame: bytes) -> Any:
    return BY_HAND[case.api_key, case.is_request][0](memoryview(frame), case.version)


def converted(case: Case, frame: bytes) -> Any:
    return BY_HAND[case.api_key, case.is_request][1](case.decode(frame), case.version)


def frames(case: Case, count: int) -> list[bytes]:
    draw = random.Random(str(case))
    return [case.frame(draw) for _ in range(count)]


@chosen(*BY_HAND)
def test_frame_is_read_as_by_the_codec(case: Case) -> None:
    for frame in frames(case, 50):
        assert read(case, frame) == converted(case, frame)


@chosen(*BY_HAND)
def test_frame_cut_anywhere_is_refused(case: Case) -> None:
    for frame in frames(case, 5):
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError):
                read(case, frame[:cut])


@chosen(*BY_HAND)
def test_bytes_after_the_message_are_ignored_in_requests_and_refused_in_responses(case: Case) -> None:
    (frame,) = frames(case, 1)
    if case.is_request:
        assert read(case, frame + b"\0") == read(case, frame)
    else:
        with pytest.raises(ProtocolError):
            read(case, frame + b"\0")


def assert_written(case: Case, parts: Sequence[bytes | memoryview], expected: object) -> None:
    """Check a frame, in parts, by the codec: it reads the same, and writes the same bytes."""
    size, *rest = parts
    frame = b"".join(rest)
    assert int.from_bytes(size) == len(frame)
    assert converted(case, frame) == expected
    assert case.encode(case.decode(frame))[4:] == frame


@chosen((ApiKey.FETCH, False))
def test_response_is_written_as_by_the_codec_with_a_topic_s_partitions_together(case: Case) -> None:
    for frame in frames(case, 50):
        response: FetchResponse = read(case, frame)
        topics = [each.topic for each in response.partitions]
        together = sorted(response.partitions, key=lambda each: topics.index(each.topic))
        parts = encode_fetch_response(response, case.version, CORRELATION_ID)
        assert_written(case, parts, replace(response, partitions=together))


def produced(topics: Any, version: int, acks: int = -1, timeout_ms: int = 30_000) -> list[bytes | memoryview]:
    return encode_produce_request(
        topics,
        version=version,
        correlation_id=CORRELATION_ID,
        client_id=CLIENT_ID,
        acks=acks,
        timeout_ms=timeout_ms,
    )


@chosen((ApiKey.PRODUCE, True))
def test_request_of_a_client_is_written_as_by_the_codec_without_a_copy_of_a_batch(case: Case) -> None:
    for frame in frames(case, 50):
        drawn: ProduceRequest = read(case, frame)
        partitions = {(each.topic_id or each.topic, each.partition): each for each in drawn.partitions}
        topics: dict[str | uuid.UUID, list[tuple[int, list[memoryview]]]] = {}
        for (topic, partition), each in partitions.items():
            half = len(each.record_set) // 2
            batches = [each.record_set[:half], each.record_set[half:]]
            topics.setdefault(topic, []).append((partition, batches))
        expected = [partitions[topic, partition] for topic, each in topics.items() for partition, _ in each]
        parts = produced(topics, case.version, drawn.acks, drawn.timeout_ms)
        assert_written(case, parts, ProduceRequest(None, drawn.acks, drawn.timeout_ms, expected))
        views = [view for each in topics.values() for _, batches in each for view in batches]
        assert all(any(part is view for part in parts) for view in views)


@pytest.mark.parametrize("version", [2, 12, 13])
def test_partition_listed_twice_is_not_written(version: int) -> None:
    """A broker keeps the last of them, drops the other and reports success."""
    topic = ORDERS if version >= TOPIC_IDS_FROM else "orders"
    twice = {topic: [(0, [memoryview(b"lost")]), (1, []), (0, [memoryview(b"kept")])]}
    with pytest.raises(ValueError, match=rf"partition.*'{topic}'"):
        produced(twice, version)


def test_partition_listed_twice_by_a_client_is_read_twice() -> None:
    both = {"a": [(0, [memoryview(b"first")])], "b": [(0, [memoryview(b"second")])]}
    frame = b"".join(produced(both, 7)[1:]).replace(b"\0\1b", b"\0\1a")
    found = decode_produce_request(memoryview(frame), 7).partitions
    assert [(each.topic, each.partition) for each in found] == [("a", 0), ("a", 0)]


def fetched(topic: str = "orders", partition: int = 3) -> FetchedPartition:
    topic_id = id_of(topic)
    return FetchedPartition(topic, partition, 0, 10, 9, 1, [(5, 2)], memoryview(b"batch"), 2, topic_id)


def response_frame(version: int, *partitions: FetchedPartition) -> bytes:
    return b"".join(encode_fetch_response(FetchResponse(0, 0, 42, partitions), version, 7)[1:])


def test_record_sets_are_views() -> None:
    frame = bytearray(response_frame(12, fetched()))
    (found,) = decode_fetch_response(memoryview(frame), 12).partitions
    request = bytearray(b"".join(produced({"orders": [(3, [memoryview(b"batch")])]}, 9)[1:]))
    (sent,) = decode_produce_request(memoryview(request), 9).partitions
    for changed in (frame, request):
        changed[changed.index(b"batch")] = ord("B")
    assert bytes(found.record_set) == bytes(sent.record_set) == b"Batch"
    assert any(
        part is found.record_set for part in encode_fetch_response(FetchResponse(0, 0, 0, [found]), 12, 7)
    )


def test_topic_id_has_the_name_of_the_request_and_another_is_refused_or_nameless() -> None:
    frame = memoryview(response_frame(13, fetched()))
    (found,) = decode_fetch_response(frame, 13, {ORDERS: "orders"}).partitions
    assert (found.topic, found.topic_id) == ("orders", ORDERS)
    with pytest.raises(ProtocolError, match=f"{ORDERS}"):
        decode_fetch_response(frame, 13, {id_of("x"): "x"})
    request = memoryview(b"".join(produced({ORDERS: [(3, [])]}, 13)[1:]))
    (sent,) = decode_produce_request(request, 13, names={}).partitions
    assert (sent.topic, sent.topic_id) == ("", ORDERS)
    answered = next(each for each in CASES if str(each) == "PRODUCE-v13-response")
    outcome = next(each for each in frames(answered, 50) if read(answered, each))
    with pytest.raises(ProtocolError):
        decode_produce_response(memoryview(outcome), 13, {})


def test_tagged_fields_are_skipped_in_every_structure() -> None:
    tags = b"\2\0\1x\x63\0"
    plain = response_frame(12, fetched())
    frame = plain[:4] + tags + plain[5:-3] + tags * 3
    frame = frame.replace(b"\0\0\0\0\0\0\0\2\0", b"\0\0\0\0\0\0\0\2" + tags)
    assert decode_fetch_response(memoryview(frame), 12) == decode_fetch_response(memoryview(plain), 12)


# Bounds


def hostile_frame(topics: int, partitions: int, aborted: int) -> memoryview:
    """A response of version 4 with empty record sets."""
    entry = struct.pack(">ihqqi", 0, 0, 0, 0, aborted) + bytes(16 * aborted) + struct.pack(">i", 0)
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", partitions) + entry * partitions
    return memoryview(struct.pack(">iii", 7, 0, topics) + topic * topics)


def test_more_partitions_than_requested_are_not_decoded() -> None:
    assert len(decode_fetch_response(hostile_frame(2, 3, 0), 4, None, 6).partitions) == 6
    assert len(decode_fetch_response(hostile_frame(2, 3, 0), 4).partitions) == 6
    for topics, partitions in ((2, 3), (1, 6), (6, 0)):
        with pytest.raises(ProtocolError, match=r"5.*partitions"):
            decode_fetch_response(hostile_frame(topics, partitions, 0), 4, None, 5)


def test_more_outcomes_than_partitions_were_sent_are_not_decoded() -> None:
    answered = next(each for each in CASES if str(each) == "PRODUCE-v12-response")
    frame = next(each for each in frames(answered, 50) if len(read(answered, each)) > 1)
    sent = len(read(answered, frame))
    assert len(decode_produce_response(memoryview(frame), 12, None, sent)) == sent
    with pytest.raises(ProtocolError, match=f"{sent}.*{sent - 1}"):
        decode_produce_response(memoryview(frame), 12, None, sent - 1)


def test_more_aborted_transactions_than_possible_are_not_decoded() -> None:
    fitting = decode_fetch_response(hostile_frame(1, 1, 65536), 4, None, 1)
    assert len(fitting.partitions[0].aborted_transactions) == 65536
    with pytest.raises(ProtocolError, match=r"100000.*transactions"):
        decode_fetch_response(hostile_frame(1, 1, 100_000), 4, None, 1)
