"""
Produce requests and responses, v0 to v13; record sets are views, and are never copied.

Kafka's definitions are ``ProduceRequest.json`` and ``ProduceResponse.json``:

====  ==============================================  =========================================
 v    the request gained                              the response gained
====  ==============================================  =========================================
 1                                                    throttle time
 2                                                    log append time
 3    transactional id, and batches of magic 2
 5                                                    log start offset
 8                                                    record errors and error message
 9    flexible encoding (KIP-482)                     flexible encoding
 13   topic ids instead of names (KIP-516)            topic ids instead of names
====  ==============================================  =========================================

Before v3 the record sets are messages of magic 0 and 1; Kafka 4 no longer accepts these versions.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ..errors import ProtocolError
from .apis import ApiKey
from .primitives import (
    INT32,
    expect_end,
    read_array_length,
    read_nullable_string,
    read_record_set,
    read_string,
    skip_tagged_fields,
    unpack,
    write_array_length,
    write_string,
    write_unsigned_varint,
)
from .topic_ids import TOPIC_IDS_FROM, name_of, read_topic_id, write_topic

__all__ = [
    "MOST_IN_FLIGHT",
    "ProduceOutcome",
    "ProduceRequest",
    "ProducedPartition",
    "decode_produce_request",
    "decode_produce_response",
    "encode_produce_request",
    "read_acks",
]

#: The most requests in flight of an idempotent producer. A broker remembers the last 5 batches of a producer
#: id (ProducerStateEntry). It could not recognise more batches if they are sent again.
MOST_IN_FLIGHT = 5

TRANSACTIONAL_FROM = 3
FLEXIBLE_FROM = 9

_Partitions: TypeAlias = Iterable[tuple[int, Sequence[memoryview]]]

_HEADER = struct.Struct(">hhi")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


def encode_produce_request(
    topics: Mapping[str, _Partitions] | Mapping[uuid.UUID, _Partitions],
    *,
    version: int,
    correlation_id: int,
    client_id: str,
    acks: int,
    timeout_ms: int,
) -> list[bytes | memoryview]:
    """
    Encode a request as parts for ``sendmsg``; no batch is copied.

    Args:
        topics: For each topic ``(partition, batches)``, the batches in order.
            The keys are names, and from v13 on ids. A partition may be listed
            only once: a broker would keep the last of two entries, drop the
            other one and report success.
        version: 0 to 13.
        correlation_id: The id that the response repeats.
        client_id: The client id in the request header.
        acks: The number of acknowledgments that the leader requires before it
            responds: 0 for none, 1 for only the leader, -1 for the full ISR.
        timeout_ms: The broker's limit in milliseconds for these acknowledgments.

    Returns:
        The size, then header pieces and the batches alternately.

    Raises:
        ValueError: A partition is listed twice.

    """
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    head = _HEADER.pack(ApiKey.PRODUCE, version, correlation_id) + after_header(
        version, client_id, acks, timeout_ms, len(topics)
    )
    parts: list[bytes | memoryview] = []
    for topic, partitions in topics.items():
        entries = list(partitions)
        if len(dict(entries)) != len(entries):
            raise ValueError(f"a partition of {str(topic)!r} is listed twice in one Produce request")
        head += write_topic(topic, flexible) + write_array_length(len(entries), flexible)
        for partition, batches in entries:
            size = len(batches[0]) if len(batches) == 1 else sum(map(len, batches))
            length = write_unsigned_varint(size + 1) if flexible else INT32.pack(size)
            parts.append(head + INT32.pack(partition) + length)
            parts += batches
            head = tags
        head += tags
    parts.append(head + tags)
    return [INT32.pack(sum(map(len, parts))), *parts]


@lru_cache(maxsize=256)
def after_header(version: int, client_id: str, acks: int, timeout_ms: int, topics: int) -> bytes:
    """Encode the fields between the correlation id and the first topic: most requests share them."""
    flexible = version >= FLEXIBLE_FROM
    return b"".join(
        (
            write_string(client_id, compact=False),  # never compact, in any header
            b"\0" if flexible else b"",
            _no_transactional_id(version),
            _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
            write_array_length(topics, flexible),
        )
    )


def _no_transactional_id(version: int) -> bytes:
    if version < TRANSACTIONAL_FROM:
        return b""
    return b"\0" if version >= FLEXIBLE_FROM else b"\xff\xff"


@dataclass(frozen=True, slots=True)
class ProducedPartition:
    """
    One partition of a Produce request; a null record set becomes an empty one.

    Attributes:
        topic: The topic's name; empty if the broker has no topic with this id.
        topic_id: The topic's id; None before v13.

    """

    topic: str
    partition: int
    record_set: memoryview
    topic_id: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """
    A Produce request; if the client listed a partition twice, it is here twice.

    The transactional id is None before v3, and if the producer is not transactional.

    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    partitions: Sequence[ProducedPartition]


def decode_produce_request(
    frame: memoryview,
    version: int,
    most_partitions: int | None = None,
    names: Mapping[uuid.UUID, str] | None = None,
) -> ProduceRequest:
    """
    Decode a request from its API key on. Bytes after the last field are ignored, as brokers do.

    Args:
        frame: The request without its size.
        version: 0 to 13.
        most_partitions: The bound of the partitions. An empty one has 8 bytes, but its objects take hundreds.
        names: The names of all topics by id, from v13 on.

    Returns:
        Record sets as views of ``frame``: valid until its buffer is reused.

    Raises:
        ProtocolError: The request is incomplete or malformed, or has too many partitions.

    """
    flexible = version >= FLEXIBLE_FROM
    transactional_id, acks, timeout_ms, position = _read_head(frame, version)
    partitions: list[ProducedPartition] = []
    topics, position = read_array_length(frame, position, flexible)
    for _ in range(topics):
        topic_id = None
        if version >= TOPIC_IDS_FROM:
            topic_id, position = read_topic_id(frame, position)
            topic = names.get(topic_id, "") if names is not None else ""
        else:
            topic, position = read_string(frame, position, flexible)
        count, position = read_array_length(frame, position, flexible)
        for _ in range(count):
            (partition,) = unpack(INT32, frame, position)
            record_set, position = read_record_set(frame, position + INT32.size, flexible)
            if flexible:
                position = skip_tagged_fields(frame, position)
            partitions.append(ProducedPartition(topic, partition, record_set, topic_id))
            if most_partitions is not None and len(partitions) > most_partitions:
                raise ProtocolError(f"a Produce request of more than {most_partitions} partitions")
        if flexible:
            position = skip_tagged_fields(frame, position)
    if flexible:
        skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def read_acks(frame: memoryview, version: int) -> int:
    """
    Read the acks of a request, of which only the beginning may be received.

    Raises:
        ProtocolError: The bytes end before the acks, or are malformed.

    """
    return _read_head(frame, version)[1]


def _read_head(frame: memoryview, version: int) -> tuple[str | None, int, int, int]:
    """Read transactional id, acks and timeout; return them and the position after them."""
    flexible = version >= FLEXIBLE_FROM
    _, position = read_nullable_string(frame, _HEADER.size, compact=False)  # the client id
    if flexible:
        position = skip_tagged_fields(frame, position)
    transactional_id = None
    if version >= TRANSACTIONAL_FROM:
        transactional_id, position = read_nullable_string(frame, position, flexible)
    acks, timeout_ms = unpack(_ACKS_AND_TIMEOUT, frame, position)
    return transactional_id, acks, timeout_ms, position + _ACKS_AND_TIMEOUT.size


class ProduceOutcome(NamedTuple):
    """
    One partition of a Produce response.

    Attributes:
        error_code: The error code, or 0 if there was no error.
        base_offset: The offset of the first record of the first batch, or -1 after an error.
        log_append_time_ms: The broker's time of the append if the topic has LogAppendTime; -1 for CreateTime.
        log_start_offset: The first offset of the partition's log, or -1.
        error_message: The message about the records for which the broker dropped the batch; from v8 on.

    """

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None


#: Partition, error code, base offset, log append time and log start offset.
_PRODUCED = struct.Struct(">ihqqq")


def decode_produce_response(
    frame: memoryview,
    version: int,
    names: Mapping[uuid.UUID, str] | None = None,
    most_partitions: int | None = None,
) -> list[ProduceOutcome]:
    """
    Decode a response from its correlation id on.

    The throttle time is not returned: if the broker throttles a connection, it stops reading from it
    (KIP-219).

    Args:
        frame: The response without its size.
        version: 7 to 13.
        names: The names of the request's topics by id, from v13 on.
        most_partitions: The number of partitions in the request; an outcome of 30 bytes takes 200 here.

    Raises:
        ProtocolError: The response is incomplete, malformed or longer than its fields, or it has a topic id
            or a partition that the request does not have.

    """
    flexible = version >= FLEXIBLE_FROM
    position = INT32.size  # the correlation id
    if flexible:
        position = skip_tagged_fields(frame, position)
    produced: list[ProduceOutcome] = []
    topics, position = read_array_length(frame, position, flexible)
    for _ in range(topics):
        if version >= TOPIC_IDS_FROM:
            topic_id, position = read_topic_id(frame, position)
            topic = name_of(topic_id, names)
        else:
            topic, position = read_string(frame, position, flexible)
        count, position = read_array_length(frame, position, flexible)
        if most_partitions is not None and len(produced) + count > most_partitions:
            raise ProtocolError(
                f"a Produce response about {len(produced) + count:,} partitions, of which the request has "
                f"{most_partitions:,}"
            )
        for _ in range(count):
            number, error_code, base_offset, appended_ms, log_start = unpack(_PRODUCED, frame, position)
            position += _PRODUCED.size
            message = None
            if version >= 8:
                message, position = _decode_errors(frame, position, flexible)
            produced.append(
                ProduceOutcome(topic, number, error_code, base_offset, appended_ms, log_start, message)
            )
        if flexible:
            position = skip_tagged_fields(frame, position)
    position += INT32.size  # throttle_time_ms
    if flexible:
        position = skip_tagged_fields(frame, position)
    expect_end(frame, position)
    return produced


def _decode_errors(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    """Skip the record errors, and return the error message for all of them."""
    errors, position = read_array_length(frame, position, flexible)
    for _ in range(errors):
        position += INT32.size  # the batch's index
        _, position = read_nullable_string(frame, position, flexible)
        if flexible:
            position = skip_tagged_fields(frame, position)
    message, position = read_nullable_string(frame, position, flexible)
    if flexible:
        position = skip_tagged_fields(frame, position)
    return message, position
