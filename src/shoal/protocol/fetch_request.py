"""
Fetch requests, v4 to v13: a mirror sends one for each record at a low load.

Kafka's definition is ``FetchRequest.json``:

====  =======================================================
 v    the request gained
====  =======================================================
 4    isolation level
 5    log start offset, of a follower
 7    session, and the partitions to forget (KIP-227)
 9    leader epoch
 11   rack, to read from a near replica (KIP-392)
 12   last fetched epoch, of a follower; flexible encoding (KIP-482)
 13   topic ids instead of names (KIP-516)
====  =======================================================
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .apis import ApiKey
from .primitives import INT32, write_array_length, write_string
from .topic_ids import write_topic

__all__ = ["FetchedFrom", "encode_fetch_request"]

_FLEXIBLE_FROM = 12
_LOG_START_FROM = 5
_SESSION_FROM = 7
_EPOCH_FROM = 9
_RACK_FROM = 11

_HEADER = struct.Struct(">hhi")
#: Replica id, maximum wait, minimum and maximum size, isolation level.
_LIMITS = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
#: Partition, leader epoch, offset, last fetched epoch, log start offset, maximum size, and no tagged fields.
_V12 = struct.Struct(">iiqiqiB")
_V9 = struct.Struct(">iiqqi")
_V5 = struct.Struct(">iqqi")
_V4 = struct.Struct(">iqi")

#: A consumer is no replica, and has no log and no last epoch.
_NO_REPLICA = _NO_OFFSET = _NO_EPOCH = -1


class FetchedFrom(NamedTuple):
    """A partition in a request, and the offset to fetch from."""

    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int


def encode_fetch_request(
    topics: Mapping[str, Sequence[FetchedFrom]] | Mapping[uuid.UUID, Sequence[FetchedFrom]],
    forgotten: Mapping[str, Sequence[int]] | Mapping[uuid.UUID, Sequence[int]],
    *,
    version: int,
    correlation_id: int,
    client_id: str,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int,
    session: tuple[int, int],
) -> bytes:
    """
    Encode a request of a consumer, its size first.

    Args:
        topics: The partitions to fetch. The keys are names, and from v13 on ids.
        forgotten: The numbers of the partitions to remove from the session, by the same keys; from v7 on.
        version: 4 to 13.
        correlation_id: The id that the response repeats.
        client_id: The client id in the request header.
        max_wait_ms: The longest time for which the broker waits for ``min_bytes``.
        min_bytes: The least size of a response without a wait.
        max_bytes: The largest size of a response with several batches.
        isolation_level: 0 for all records, 1 for committed ones.
        session: Id and epoch of the session; from v7 on.

    """
    flexible = version >= _FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    parts = [
        _HEADER.pack(ApiKey.FETCH, version, correlation_id),
        _client(client_id, flexible),
        _LIMITS.pack(_NO_REPLICA, max_wait_ms, min_bytes, max_bytes, isolation_level),
    ]
    if version >= _SESSION_FROM:
        parts.append(_SESSION.pack(*session))
    parts.append(write_array_length(len(topics), flexible))
    for topic, partitions in topics.items():
        parts += (write_topic(topic, flexible), write_array_length(len(partitions), flexible))
        parts += [_partition(version, each) for each in partitions]
        parts.append(tags)
    if version >= _SESSION_FROM:
        parts.append(write_array_length(len(forgotten), flexible))
        for topic, numbers in forgotten.items():
            parts += (write_topic(topic, flexible), write_array_length(len(numbers), flexible))
            parts += [*map(INT32.pack, numbers), tags]
    if version >= _RACK_FROM:
        parts.append(write_string("", flexible))
    parts.append(tags)
    return INT32.pack(sum(map(len, parts))) + b"".join(parts)


@lru_cache(maxsize=256)
def _client(client_id: str, flexible: bool) -> bytes:
    return write_string(client_id, compact=False) + (b"\0" if flexible else b"")  # never compact


def _partition(version: int, fetched: FetchedFrom) -> bytes:
    partition, leader_epoch, offset, max_bytes = fetched
    if version >= _FLEXIBLE_FROM:
        return _V12.pack(partition, leader_epoch, offset, _NO_EPOCH, _NO_OFFSET, max_bytes, 0)
    if version >= _EPOCH_FROM:
        return _V9.pack(partition, leader_epoch, offset, _NO_OFFSET, max_bytes)
    if version >= _LOG_START_FROM:
        return _V5.pack(partition, offset, _NO_OFFSET, max_bytes)
    return _V4.pack(partition, offset, max_bytes)
