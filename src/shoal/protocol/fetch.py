"""
Fetch responses, v0 to v13, by hand: record sets stay views of the frame.

Per version (``FetchResponse.json``): v1 adds the throttle time, v4 the last
stable offset and the aborted transactions, v5 log_start_offset, v7 an error
code and a session id, v11 a preferred read replica; v12 is flexible. From v13
on a topic's id replaces its name (KIP-516). v0 to v3 carry messages of magic 0
and 1; Kafka 4 has removed them.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import ProtocolError
from .primitives import (
    INT32,
    INT64,
    expect_end,
    read_array_length,
    read_record_set,
    read_string,
    skip_tagged_fields,
    unpack,
    write_array_length,
    write_unsigned_varint,
)
from .topic_ids import NO_TOPIC_ID, TOPIC_IDS_FROM, name_of, read_topic_id, write_topic

__all__ = [
    "LIMITED_FROM",
    "MAGIC_1_FROM",
    "MAGIC_2_FROM",
    "FetchResponse",
    "FetchedPartition",
    "decode_fetch_response",
    "encode_fetch_response",
]

#: The least bytes of a batch of a transaction: its header.
_BATCH_OVERHEAD = 61

#: Transactions of a partition that began before what is fetched, and were aborted.
_MOST_LONG_TRANSACTIONS = 65536

#: From these versions on clients read messages of magic 1, and batches.
MAGIC_1_FROM, MAGIC_2_FROM = 2, 4
#: From this version on they tell how much they take in all, and see to it by the order of what they ask for
#: that each partition gets its turn (KIP-74).
LIMITED_FROM = 3
FLEXIBLE_FROM = 12

_PARTITION = struct.Struct(">ihq")
_ABORTED = struct.Struct(">qq")
_SESSION = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """
    One partition's part of a Fetch response.

    Attributes:
        topic: Its name; empty if the broker that answers has no topic with this id.
        error_code: Kafka's code, 0 for none.
        high_watermark: Offset after the last record that all in-sync replicas have.
        last_stable_offset: Offset of the first open transaction's first
            record, or the high watermark; -1 before v4.
        log_start_offset: -1 before v5.
        aborted_transactions: ``(producer_id, first_offset)`` pairs; empty with
            ``read_uncommitted`` and before v4.
        record_set: Batches back to back, the last perhaps cut short; a view.
            To be encoded, it is whatever has a length and whoever sends the
            parts knows how to send.
        preferred_read_replica: A broker to ask instead (KIP-392), or -1.
        topic_id: None before v13.

    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]]
    record_set: memoryview
    preferred_read_replica: int = -1
    topic_id: uuid.UUID | None = None

    def end_offset(self, *, committed: bool) -> int:
        """Return the offset up to which this fetch may read: with ``committed``, the last stable one."""
        return self.last_stable_offset if committed else self.high_watermark


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A whole Fetch response; the session fields are 0 before v7, the throttle time before v1."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: Sequence[FetchedPartition]


def decode_fetch_response(
    frame: memoryview,
    version: int,
    names: Mapping[uuid.UUID, str] | None = None,
    most_partitions: int | None = None,
) -> FetchResponse:
    """
    Decode a response from its correlation id on.

    Args:
        frame: The response without its size.
        version: 0 to 13.
        names: From v13 on: the names of the topics that the request lists by id.
        most_partitions: How many were asked for; None to take any number. Each becomes objects of some
            hundred bytes, and a hostile broker's frame has room for millions.

    Returns:
        Record sets as views of ``frame``: valid until its buffer is reused.

    Raises:
        ProtocolError: It is cut short, malformed or longer than its fields, has a topic id without a
            name, or more partitions or aborted transactions than it can have.

    """
    flexible = version >= FLEXIBLE_FROM
    position = INT32.size  # the correlation id
    if flexible:
        position = skip_tagged_fields(frame, position)
    throttle_time_ms = error_code = session_id = 0
    if version >= 1:
        (throttle_time_ms,) = unpack(INT32, frame, position)
        position += INT32.size
    if version >= 7:
        error_code, session_id = unpack(_SESSION, frame, position)
        position += _SESSION.size
    partitions: list[FetchedPartition] = []
    most_aborted = len(frame) if most_partitions is None else _most_aborted(frame)
    topics, position = read_array_length(frame, position, flexible)
    for _ in range(topics):
        topic_id = None
        if version >= TOPIC_IDS_FROM:
            topic_id, position = read_topic_id(frame, position)
            topic = name_of(topic_id, names)
        else:
            topic, position = read_string(frame, position, flexible)
        count, position = read_array_length(frame, position, flexible)
        if most_partitions is not None and (
            topics > most_partitions or len(partitions) + count > most_partitions
        ):
            raise ProtocolError(f"a Fetch response with more than the {most_partitions} partitions asked for")
        for _ in range(count):
            fetched, position = _decode_partition(frame, position, version, topic, topic_id, most_aborted)
            partitions.append(fetched)
        if flexible:
            position = skip_tagged_fields(frame, position)
    if flexible:
        position = skip_tagged_fields(frame, position)
    expect_end(frame, position)
    return FetchResponse(throttle_time_ms, error_code, session_id, partitions)


def _decode_partition(
    frame: memoryview,
    position: int,
    version: int,
    topic: str,
    topic_id: uuid.UUID | None,
    most_aborted: int,
) -> tuple[FetchedPartition, int]:
    flexible = version >= FLEXIBLE_FROM
    partition, error_code, high_watermark = unpack(_PARTITION, frame, position)
    position += _PARTITION.size
    last_stable_offset = log_start_offset = preferred_read_replica = -1
    aborted: list[tuple[int, int]] = []
    if version >= 4:
        (last_stable_offset,) = unpack(INT64, frame, position)
        position += INT64.size
    if version >= 5:
        (log_start_offset,) = unpack(INT64, frame, position)
        position += INT64.size
    if version >= 4:
        aborted, position = _decode_aborted(frame, position, flexible, most_aborted)
    if version >= 11:
        (preferred_read_replica,) = unpack(INT32, frame, position)
        position += INT32.size
    record_set, position = read_record_set(frame, position, flexible)
    if flexible:
        position = skip_tagged_fields(frame, position)
    fetched = FetchedPartition(
        topic,
        partition,
        error_code,
        high_watermark,
        last_stable_offset,
        log_start_offset,
        aborted,
        record_set,
        preferred_read_replica,
        topic_id,
    )
    return fetched, position


def _most_aborted(frame: memoryview) -> int:
    """Return how many aborted transactions a partition can have: those in its batches, and longer ones."""
    return _MOST_LONG_TRANSACTIONS + len(frame) // _BATCH_OVERHEAD


def _decode_aborted(
    frame: memoryview, position: int, flexible: bool, most: int
) -> tuple[list[tuple[int, int]], int]:
    aborted: list[tuple[int, int]] = []
    count, position = read_array_length(frame, position, flexible)
    if count > most:
        raise ProtocolError(f"a Fetch response with {count} aborted transactions in {len(frame)} bytes")
    for _ in range(count):
        producer_id, first_offset = unpack(_ABORTED, frame, position)
        position += _ABORTED.size
        if flexible:
            position = skip_tagged_fields(frame, position)
        aborted.append((producer_id, first_offset))
    return aborted, position


def encode_fetch_response(
    response: FetchResponse, version: int, correlation_id: int
) -> list[bytes | memoryview]:
    """
    Encode a response as parts for ``sendmsg``: the size, headers, and the record sets as they are.

    What a version has no room for is left out without a word: before v7 a
    response has no error of its own.

    An empty sequence of aborted transactions is sent as null, as a broker
    does where the isolation level is ``read_uncommitted``.

    """
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    head = [INT32.pack(correlation_id), tags]
    if version >= 1:
        head.append(INT32.pack(response.throttle_time_ms))
    if version >= 7:
        head.append(_SESSION.pack(response.error_code, response.session_id))
    by_id = version >= TOPIC_IDS_FROM
    by_topic: dict[str | uuid.UUID, list[FetchedPartition]] = {}
    for fetched in response.partitions:
        topic = (fetched.topic_id or NO_TOPIC_ID) if by_id else fetched.topic
        by_topic.setdefault(topic, []).append(fetched)
    head.append(write_array_length(len(by_topic), flexible))
    parts: list[bytes | memoryview] = [b"".join(head)]
    for topic, partitions in by_topic.items():
        parts.append(write_topic(topic, flexible) + write_array_length(len(partitions), flexible))
        for fetched in partitions:
            parts += _encode_partition(fetched, version)
        parts.append(tags)
    parts.append(tags)
    return [INT32.pack(sum(map(len, parts))), *parts]


def _encode_partition(fetched: FetchedPartition, version: int) -> list[bytes | memoryview]:
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    head = [_PARTITION.pack(fetched.partition, fetched.error_code, fetched.high_watermark)]
    if version >= 4:
        head.append(INT64.pack(fetched.last_stable_offset))
    if version >= 5:
        head.append(INT64.pack(fetched.log_start_offset))
    if version >= 4:
        aborted = fetched.aborted_transactions
        head.append(write_array_length(len(aborted) or -1, flexible))
        head += [_ABORTED.pack(*transaction) + tags for transaction in aborted]
    if version >= 11:
        head.append(INT32.pack(fetched.preferred_read_replica))
    size = len(fetched.record_set)
    head.append(write_unsigned_varint(size + 1) if flexible else INT32.pack(size))
    return [b"".join(head), fetched.record_set, tags]
