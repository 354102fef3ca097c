"""Fetch responses by hand, against literal bytes, against kio and, before v4, kafka-python's old messages."""

from __future__ import annotations

import datetime
import random
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import (
    FetchedPartition,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_response,
)
from shoal.protocol.topic_ids import NO_TOPIC_ID
from tests import kio_messages, old_messages
from tests.strategies import INT32, INT64
from tests.topic_ids import NAMES, id_of

VERSIONS = range(14)
OLD_VERSIONS = range(4)
EVERY_VERSION = pytest.mark.parametrize("version", VERSIONS)

NOTHING = memoryview(b"")

# One partition with an aborted transaction and a record set of five bytes that stand for batches.
LITERAL = {
    0: (
        b"\0\0\0\7"  # correlation id
        b"\0\0\0\1" + b"\0\6orders"  # topics
        b"\0\0\0\1" + b"\0\0\0\3" + b"\0\0"  # partition 3, no error
        b"\0\0\0\0\0\0\0\x0a"  # high watermark
        b"\0\0\0\5batch"
    ),
    1: (
        b"\0\0\0\7"
        b"\0\0\0\x64"  # throttle_time_ms
        b"\0\0\0\1" + b"\0\6orders"
        b"\0\0\0\1" + b"\0\0\0\3" + b"\0\0"
        b"\0\0\0\0\0\0\0\x0a"
        b"\0\0\0\5batch"
    ),
    4: (
        b"\0\0\0\7"  # correlation id
        b"\0\0\0\x64"  # throttle_time_ms
        b"\0\0\0\1" + b"\0\6orders"  # topics
        b"\0\0\0\1" + b"\0\0\0\3" + b"\0\0"  # partition 3, no error
        b"\0\0\0\0\0\0\0\x0a" + b"\0\0\0\0\0\0\0\x09"  # high watermark, last stable offset
        b"\0\0\0\1" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\2"  # aborted: producer 5 from offset 2
        b"\0\0\0\5batch"
    ),
    11: (
        b"\0\0\0\7" + b"\0\0\0\x64"
        b"\0\0" + b"\0\0\0\x2a"  # error code, session 42
        b"\0\0\0\1" + b"\0\6orders"
        b"\0\0\0\1" + b"\0\0\0\3" + b"\0\0"
        b"\0\0\0\0\0\0\0\x0a" + b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\0\0\0\0\1"  # log start offset
        b"\0\0\0\1" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\2"
        b"\0\0\0\2"  # preferred read replica
        b"\0\0\0\5batch"
    ),
    12: (
        b"\0\0\0\7" + b"\0"
        b"\0\0\0\x64" + b"\0\0" + b"\0\0\0\x2a"
        b"\2" + b"\7orders"
        b"\2" + b"\0\0\0\3" + b"\0\0"
        b"\0\0\0\0\0\0\0\x0a" + b"\0\0\0\0\0\0\0\x09"
        b"\0\0\0\0\0\0\0\1"
        b"\2" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\2" + b"\0"
        b"\0\0\0\2"
        b"\6batch" + b"\0" + b"\0" + b"\0"
    ),
}
ORDERS = id_of("orders")
LITERAL[13] = LITERAL[12].replace(b"\7orders", ORDERS.bytes)
LITERAL[3] = LITERAL[2] = LITERAL[1]
LITERAL_RESPONSE = {
    0: FetchResponse(0, 0, 0, [FetchedPartition("orders", 3, 0, 10, -1, -1, [], memoryview(b"batch"))]),
    1: FetchResponse(100, 0, 0, [FetchedPartition("orders", 3, 0, 10, -1, -1, [], memoryview(b"batch"))]),
    4: FetchResponse(
        100, 0, 0, [FetchedPartition("orders", 3, 0, 10, 9, -1, [(5, 2)], memoryview(b"batch"))]
    ),
    11: FetchResponse(
        100, 0, 42, [FetchedPartition("orders", 3, 0, 10, 9, 1, [(5, 2)], memoryview(b"batch"), 2)]
    ),
}
LITERAL_RESPONSE[3] = LITERAL_RESPONSE[2] = LITERAL_RESPONSE[1]
LITERAL_RESPONSE[12] = LITERAL_RESPONSE[11]
LITERAL_RESPONSE[13] = replace(
    LITERAL_RESPONSE[12],
    partitions=[
        replace(each, topic=str(ORDERS), topic_id=ORDERS) for each in LITERAL_RESPONSE[12].partitions
    ],
)


@pytest.mark.parametrize("version", LITERAL)
def test_response_has_literal_bytes(version: int) -> None:
    frame, response = LITERAL[version], LITERAL_RESPONSE[version]
    assert decode_fetch_response(memoryview(frame), version, NAMES) == response
    parts = encode_fetch_response(response, version, 7)
    assert b"".join(parts) == len(frame).to_bytes(4) + frame


def partitions(version: int) -> st.SearchStrategy[FetchedPartition]:
    """Draw the fields of a version; decoding leaves the rest at their defaults."""
    drawn = st.builds(
        FetchedPartition,
        topic=st.sampled_from(["", "orders", "κ", "x" * 200]),
        partition=INT32,
        error_code=st.sampled_from(list(ErrorCode)),
        high_watermark=INT64,
        last_stable_offset=INT64 if version >= 4 else st.just(-1),
        log_start_offset=INT64 if version >= 5 else st.just(-1),
        aborted_transactions=st.lists(st.tuples(INT64, INT64), max_size=3 if version >= 4 else 0),
        record_set=st.sampled_from([NOTHING, memoryview(b"batch"), memoryview(b"x" * 300)]),
        preferred_read_replica=INT32 if version >= 11 else st.just(-1),
    )
    return drawn.map(by_id) if version >= 13 else drawn


def by_id(fetched: FetchedPartition) -> FetchedPartition:
    topic_id = id_of(fetched.topic)
    return replace(fetched, topic=str(topic_id), topic_id=topic_id)


def by_topic(fetched: list[FetchedPartition]) -> list[FetchedPartition]:
    """Bring the partitions of a topic together, as encoding does."""
    topics = [each.topic for each in fetched]
    return sorted(fetched, key=lambda each: topics.index(each.topic))


def responses(version: int) -> st.SearchStrategy[tuple[int, FetchResponse]]:
    return st.tuples(
        st.just(version),
        st.builds(
            FetchResponse,
            throttle_time_ms=INT32 if version >= 1 else st.just(0),
            error_code=st.sampled_from(list(ErrorCode)) if version >= 7 else st.just(0),
            session_id=INT32 if version >= 7 else st.just(0),
            partitions=st.lists(partitions(version), max_size=4).map(by_topic),
        ),
    )


RESPONSES = st.one_of([responses(version) for version in VERSIONS])
RESPONSES_OF_KIO = st.one_of([responses(version) for version in VERSIONS if version not in OLD_VERSIONS])
MANY = settings(max_examples=300)


def frame_of(response: FetchResponse, version: int) -> bytes:
    size, *parts = encode_fetch_response(response, version, 7)
    frame = b"".join(parts)
    assert int.from_bytes(size) == len(frame)
    return frame


@MANY
@given(RESPONSES)
def test_response_encoded_and_decoded_is_equal(drawn: tuple[int, FetchResponse]) -> None:
    version, response = drawn
    assert decode_fetch_response(memoryview(frame_of(response, version)), version, NAMES) == response


def from_kio(message: Any) -> FetchResponse:
    """Convert kio's message to ours; a null array or record set is empty, a null id has zeros."""
    by_id = message.__version__ >= 13
    return FetchResponse(
        throttle_time_ms=message.throttle_time // datetime.timedelta(milliseconds=1),
        error_code=getattr(message, "error_code", 0),
        session_id=getattr(message, "session_id", 0),
        partitions=[
            FetchedPartition(
                topic=str(topic.topic_id or NO_TOPIC_ID) if by_id else topic.topic,
                topic_id=(topic.topic_id or NO_TOPIC_ID) if by_id else None,
                partition=each.partition_index,
                error_code=each.error_code,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=getattr(each, "log_start_offset", -1),
                aborted_transactions=[
                    (aborted.producer_id, aborted.first_offset) for aborted in each.aborted_transactions or ()
                ],
                record_set=memoryview(each.records or b""),
                preferred_read_replica=getattr(each, "preferred_read_replica", -1),
            )
            for topic in message.responses
            for each in topic.partitions
        ],
    )


def from_old(message: Any) -> FetchResponse:
    """Convert a message of kafka-python's old class to ours."""
    return FetchResponse(
        throttle_time_ms=getattr(message, "throttle_time_ms", 0),
        error_code=0,
        session_id=0,
        partitions=[
            FetchedPartition(topic, partition, error, high_watermark, -1, -1, [], memoryview(records))
            for topic, partitions in message.responses
            for partition, error, high_watermark, records in partitions
        ],
    )


def another_librarys(version: int, draw: random.Random) -> tuple[Any, bytes]:
    """Make up a response, and have the library write it."""
    if version in OLD_VERSIONS:
        schema = old_messages.schema(ApiKey.FETCH, version, is_request=False)
        message = old_messages.random_message(schema, draw)
        return from_old(message), old_messages.encode_response(message, 7)
    message = kio_messages.random_message(kio_messages.response_schema(ApiKey.FETCH, version), draw)
    return from_kio(message), kio_messages.encode_response(message, 7)


@EVERY_VERSION
def test_kio_response_is_decoded_as_kio_decodes_it(version: int) -> None:
    draw = random.Random(version)
    for _ in range(100):
        response, frame = another_librarys(version, draw)
        assert decode_fetch_response(memoryview(frame), version, NAMES) == response


@pytest.mark.parametrize("version", OLD_VERSIONS)
@settings(max_examples=30)
@given(st.data())
def test_kio_decodes_an_old_response_and_encodes_the_same_bytes(version: int, data: st.DataObject) -> None:
    _, response = data.draw(responses(version))
    frame = frame_of(response, version)
    schema = old_messages.schema(ApiKey.FETCH, version, is_request=False)
    message = schema.decode(frame, header=True)
    assert message.header.correlation_id == 7
    assert from_old(message) == response
    assert old_messages.encode_response(message, 7) == frame


@MANY
@given(RESPONSES_OF_KIO)
def test_kio_decodes_our_response_and_encodes_the_same_bytes(
    drawn: tuple[int, FetchResponse],
) -> None:
    version, response = drawn
    frame = frame_of(response, version)
    header, message = kio_messages.decode(kio_messages.response_schema(ApiKey.FETCH, version), frame)
    assert header.correlation_id == 7
    assert from_kio(message) == response
    assert kio_messages.encode_response(message, 7) == frame


@EVERY_VERSION
def test_frame_cut_anywhere_is_refused(version: int) -> None:
    draw = random.Random(version)
    for _ in range(5):
        _, frame = another_librarys(version, draw)
        for cut in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_fetch_response(memoryview(frame[:cut]), version, NAMES)


@EVERY_VERSION
def test_frame_with_bytes_after_the_message_is_refused(version: int) -> None:
    frame = frame_of(LITERAL_RESPONSE[13 if version >= 13 else 4], version)
    with pytest.raises(ProtocolError, match=rf"{len(frame) + 1}.*{len(frame)}"):
        decode_fetch_response(memoryview(frame + b"\0"), version, NAMES)


def test_unrequested_topic_id_is_refused() -> None:
    with pytest.raises(ProtocolError, match=rf"{ORDERS}.*request"):
        decode_fetch_response(memoryview(LITERAL[13]), 13, {id_of("x"): "x"})


def test_topic_id_becomes_the_requested_name() -> None:
    (fetched,) = decode_fetch_response(memoryview(LITERAL[13]), 13, {ORDERS: "orders"}).partitions
    assert (fetched.topic, fetched.topic_id) == ("orders", ORDERS)


def test_null_arrays_and_record_sets_are_empty() -> None:
    frame = (
        LITERAL[4]
        .replace(b"\0\0\0\5batch", b"\xff\xff\xff\xff")
        .replace(b"\0\0\0\1" + b"\0\0\0\0\0\0\0\5" + b"\0\0\0\0\0\0\0\2", b"\xff\xff\xff\xff")
    )
    (fetched,) = decode_fetch_response(memoryview(frame), 4).partitions
    assert bytes(fetched.record_set) == b""
    assert fetched.aborted_transactions == []


def test_tagged_fields_are_skipped_in_every_structure() -> None:
    tags = b"\2\0\1x\x63\0"
    plain = LITERAL[12]
    frame = plain[:4] + tags + plain[5:-3] + tags * 3
    frame = frame.replace(b"\0\0\0\0\0\0\0\2\0", b"\0\0\0\0\0\0\0\2" + tags)
    assert decode_fetch_response(memoryview(frame), 12) == LITERAL_RESPONSE[12]


def test_record_set_is_not_copied_by_decode_or_encode() -> None:
    frame = bytearray(LITERAL[12])
    response = decode_fetch_response(memoryview(frame), 12)
    (fetched,) = response.partitions
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(fetched.record_set) == b"Batch"
    assert any(part is fetched.record_set for part in encode_fetch_response(response, 12, 7))


def test_no_aborted_transactions_are_written_as_null() -> None:
    partition = FetchedPartition("orders", 3, 0, 10, 9, -1, (), memoryview(b"batch"))
    frame = frame_of(FetchResponse(0, 0, 0, [partition]), 4)
    assert frame.endswith(b"\xff\xff\xff\xff" + b"\0\0\0\5batch")


def test_partitions_of_a_topic_are_written_together_in_their_order() -> None:
    def fetched(topic: str, partition: int) -> FetchedPartition:
        return FetchedPartition(topic, partition, 0, 0, 0, -1, [], NOTHING)

    response = FetchResponse(0, 0, 0, [fetched("b", 1), fetched("a", 0), fetched("b", 0)])
    decoded = decode_fetch_response(memoryview(frame_of(response, 12)), 12)
    assert [(each.topic, each.partition) for each in decoded.partitions] == [("b", 1), ("b", 0), ("a", 0)]


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


def test_more_aborted_transactions_than_possible_are_not_decoded() -> None:
    fitting = decode_fetch_response(hostile_frame(1, 1, 65536), 4, None, 1)
    assert len(fitting.partitions[0].aborted_transactions) == 65536
    with pytest.raises(ProtocolError, match=r"100000.*transactions"):
        decode_fetch_response(hostile_frame(1, 1, 100_000), 4, None, 1)
