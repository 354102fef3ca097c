"""Fetch requests of every version that a consumer sends, against Kafka's own schema and against bytes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol import codec
from shoal.protocol.apis import CLIENT_VERSIONS, ApiKey
from shoal.protocol.fetch_request import FetchedFrom, encode_fetch_request
from shoal.protocol.topic_ids import TOPIC_IDS_FROM
from tests.fuzz.effort import effort

VERSIONS = range(CLIENT_VERSIONS[ApiKey.FETCH][0], CLIENT_VERSIONS[ApiKey.FETCH][1] + 1)

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
FETCHED = st.builds(FetchedFrom, INT32, INT32, INT64, INT32)


def test_request_of_v13_has_these_bytes() -> None:
    topic = uuid.UUID(int=5)
    request = encode_fetch_request(
        {topic: [FetchedFrom(2, 7, 300, 1024)]},
        {topic: [3]},
        version=13,
        correlation_id=9,
        client_id="shoal",
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=4096,
        isolation_level=1,
        session=(11, 12),
    )
    assert request.hex(" ") == (
        "00 00 00 76 "  # size.
        "00 01 00 0d 00 00 00 09 00 05 73 68 6f 61 6c 00 "  # key, version, correlation id, client id, tags.
        "ff ff ff ff 00 00 01 f4 00 00 00 01 00 00 10 00 01 "  # no replica, wait, sizes, read_committed.
        "00 00 00 0b 00 00 00 0c "  # session.
        "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05 02 "  # one topic, its id, one partition.
        "00 00 00 02 00 00 00 07 00 00 00 00 00 00 01 2c "  # number, leader epoch, offset.
        "ff ff ff ff ff ff ff ff ff ff ff ff 00 00 04 00 00 00 "  # no epoch, no log start, size, tags.
        "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 05 02 00 00 00 03 00 "  # forgotten.
        "01 00"  # no rack, tags.
    )


@pytest.mark.parametrize("version", VERSIONS)
@given(
    topics=st.dictionaries(st.integers(1, 99), st.lists(FETCHED, max_size=3), max_size=3),
    forgotten=st.dictionaries(st.integers(1, 99), st.lists(INT32, max_size=3), max_size=2),
    limits=st.tuples(INT32, INT32, INT32, st.integers(0, 1)),
    session=st.tuples(INT32, INT32),
)
@effort(30)
def test_request_is_that_of_kafka_s_schema(
    version: int,
    topics: dict[int, list[FetchedFrom]],
    forgotten: dict[int, list[int]],
    limits: tuple[int, int, int, int],
    session: tuple[int, int],
) -> None:
    """Fields that a version lacks have the defaults of the schema."""
    lists_ids = version >= TOPIC_IDS_FROM
    has_epochs, has_sessions = version >= 9, version >= 7
    key = "topic_id" if lists_ids else "topic"

    def named(number: int) -> Any:
        return uuid.UUID(int=number) if lists_ids else f"topic-{number}"

    schema = codec.request_class(ApiKey.FETCH)
    max_wait_ms, min_bytes, max_bytes, isolation_level = limits
    expected = codec.encode_request(
        schema(
            version=version,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            **({"session_id": session[0], "session_epoch": session[1]} if has_sessions else {}),
            topics=[
                schema.FetchTopic(
                    **{key: named(topic)},
                    partitions=[
                        schema.FetchTopic.FetchPartition(
                            partition=each.partition,
                            fetch_offset=each.offset,
                            partition_max_bytes=each.max_bytes,
                            **({"current_leader_epoch": each.leader_epoch} if has_epochs else {}),
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in topics.items()
            ],
            forgotten_topics_data=[
                schema.ForgottenTopic(**{key: named(topic)}, partitions=numbers)
                for topic, numbers in forgotten.items()
            ]
            if has_sessions
            else [],
            rack_id="",
        ),
        9,
        "shoal",
    )
    request = encode_fetch_request(
        {named(topic): partitions for topic, partitions in topics.items()},
        {named(topic): numbers for topic, numbers in forgotten.items()},
        version=version,
        correlation_id=9,
        client_id="shoal",
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session=session,
    )
    assert request == expected
