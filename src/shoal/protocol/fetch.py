"""
Fetch responses, v0 to v13; record sets are views of the frame.

Kafka's definition is ``FetchResponse.json``:

====  =======================================================
 v    the response gained
====  =======================================================
 1    throttle time
 4    last stable offset and aborted transactions; batches of magic 2
 5    log start offset
 7    error code and session id (KIP-227)
 11   preferred read replica (KIP-392)
 12   flexible encoding (KIP-482)
 13   topic ids instead of names (KIP-516)
====  =======================================================

Before v4 the record sets are messages of magic 0 and 1; Kafka 4 no longer supports these versions.
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

#: The size of a batch's header: a batch of a transaction has at least these bytes.
_BATCH_OVERHEAD = 61

#: The most aborted transactions of a partition that began before the fetched batches.
_MOST_LONG_TRANSACTIONS = 65536

#: The first versions whose clients read messages of magic 1, and batches of magic 2.
MAGIC_1_FROM, MAGIC_2_FROM = 2, 4
#: The first version with a limit for the whole response. From it on, clients change the order of the
#: partitions in their requests, so that the limit starves none (KIP-74).
LIMITED_FROM = 3
FLEXIBLE_FROM = 12

_PARTITION = struct.Struct(">ihq")
_ABORTED = struct.Struct(">qq")
_SESSION = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """
    One partition of a Fetch response.

    Attributes:
        topic: The topic's name; empty if the broker that responds has no topic with this id.
        error_code: The error code, or 0 if there was no fetch error.
        high_watermark: The offset after the last record that all in-sync replicas have.
        last_stable_offset: The offset up to which the state of all transactional records is decided, aborted
            or committed: the start of the oldest open transaction, or the high watermark; -1 before v4.
        log_start_offset: The first offset of the log; -1 before v5.
        aborted_transactions: ``(producer_id, first_offset)`` pairs; empty with
            ``read_uncommitted`` and before v4.
        record_set: The batches one after the other, the last one perhaps incomplete; a view. An encoder
            passes any object with a length through to the code that sends the parts.
        preferred_read_replica: The replica that the consumer should fetch from next, or -1; from v11 on.
        topic_id: The topic's id; None before v13.

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
        """Return the end of the readable records: with ``committed``, the last stable offset."""
        return self.last_stable_offset if committed else self.high_watermark


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A Fetch response; error code and session id are 0 before v7, the throttle time before v1."""

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
        names: The names of the request's topics by id, from v13 on.
        most_partitions: The number of partitions in the request; None for no bound. Each becomes objects of
            some hundred bytes, and the frame of a hostile broker has room for millions.

    Returns:
        Record sets as views of ``frame``: valid until its buffer is reused.

    Raises:
        ProtocolError: The response is incomplete, malformed or longer than its fields. Or it has a topic id
            that the request does not have, or too many partitions or aborted transactions.

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
    """Return the most aborted transactions of a partition: those in its batches, and longer ones."""
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

    Fields that the version does not have are left out, such as the response's error code before v7.

    An empty sequence of aborted transactions is sent as null, as a broker does if the isolation level is
    ``read_uncommitted``.

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
