"""
Produce requests, v7 to v12, by hand: record sets go out as the views they came in.

The layout is the same from v3 on; v9 made it flexible (``ProduceRequest.json``).
Topics go by name up to v12.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from .apis import ApiKey
from .primitives import INT32, write_array_length, write_string, write_unsigned_varint

__all__ = ["encode_produce_request"]

FLEXIBLE_FROM = 9

_HEADER = struct.Struct(">hhi")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")


def encode_produce_request(
    topics: Mapping[str, Iterable[tuple[int, Sequence[memoryview]]]],
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
            A partition must be listed once only: a broker keeps the last of
            two, drops the other and reports success.
        version: 7 to 12.
        correlation_id: Comes back in the response.
        client_id: Of the request header.
        acks: -1 for all in-sync replicas.
        timeout_ms: How long the broker may wait for them.

    Returns:
        The size, then header pieces and the batches alternately.

    """
    flexible = version >= FLEXIBLE_FROM
    tags = b"\0" if flexible else b""
    head = b"".join(
        (
            _HEADER.pack(ApiKey.PRODUCE, version, correlation_id),
            write_string(client_id, compact=False),  # never compact, in any header
            tags,
            b"\0" if flexible else b"\xff\xff",  # no transactional id
            _ACKS_AND_TIMEOUT.pack(acks, timeout_ms),
            write_array_length(len(topics), flexible),
        )
    )
    parts: list[bytes | memoryview] = []
    for topic, partitions in topics.items():
        entries = list(partitions)
        head += write_string(topic, flexible) + write_array_length(len(entries), flexible)
        for partition, batches in entries:
            size = sum(map(len, batches))
            length = write_unsigned_varint(size + 1) if flexible else INT32.pack(size)
            parts.append(head + INT32.pack(partition) + length)
            parts += batches
            head = tags
        head += tags
    parts.append(head + tags)
    return [INT32.pack(sum(map(len, parts))), *parts]
