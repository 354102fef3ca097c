"""
The answer about the committed offsets of several groups: OffsetFetch 8, decoded only as far as it changed.

A mirror reads the offsets of all its groups every few seconds, and most of them are those of the last time.
So a group whose bytes are the same keeps its object. In a group that changed, each unchanged topic keeps its
own. The caller compares by identity.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import ProtocolError
from .primitives import (
    INT16,
    INT32,
    expect_end,
    read_array_length,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
    unpack,
)

__all__ = ["SEVERAL_GROUPS_FROM", "CommittedValue", "FetchedGroup", "FetchedTopic", "decode_groups"]

#: From this version of OffsetFetch on, a request may name several groups (KIP-709, Kafka 3.0).
SEVERAL_GROUPS_FROM = 8

#: ``partition_index``, ``committed_offset`` and ``committed_leader_epoch``.
_PARTITION = struct.Struct(">iqi")


class CommittedValue(NamedTuple):
    """
    A partition's entry.

    Attributes:
        offset: The committed offset; -1 if there is none.
        error_code: The code of the partition, or 0.

    """

    offset: int
    metadata: str
    error_code: int


@dataclass(frozen=True, slots=True, eq=False)
class FetchedTopic:
    """
    The offsets of one topic; the same object as long as the answer has the same bytes.

    Attributes:
        raw: The bytes in the answer.
        partitions: The entries by partition.

    """

    raw: bytes
    partitions: Mapping[int, CommittedValue]


@dataclass(frozen=True, slots=True, eq=False)
class FetchedGroup:
    """
    The offsets of one group; the same object as long as the answer has the same bytes.

    Attributes:
        raw: The bytes in the answer.
        topics: The topics by name.
        error_code: The code of the group, or 0.

    """

    raw: bytes
    topics: Mapping[str, FetchedTopic]
    error_code: int


def decode_groups(frame: bytes, known: Mapping[str, FetchedGroup]) -> dict[str, FetchedGroup]:
    """
    Decode a response of version 8, from the correlation id on.

    Args:
        frame: The response, without its size.
        known: The groups of an earlier answer; those with the same bytes are returned as they are.

    Raises:
        ProtocolError: The response is incomplete, malformed, or longer than its fields.

    """
    view = memoryview(frame)
    # The correlation id, the header's tagged fields, and throttle_time_ms.
    position = skip_tagged_fields(view, INT32.size) + INT32.size
    count, position = read_array_length(view, position, compact=True)
    groups: dict[str, FetchedGroup] = {}
    for _ in range(count):
        name, behind_name = read_string(view, position, compact=True)
        before = known.get(name)
        if before is not None and _is_at(frame, position, before.raw):
            groups[name] = before
            position += len(before.raw)
        else:
            groups[name] = _decode_group(frame, view, position, behind_name, before)
            position += len(groups[name].raw)
    expect_end(view, skip_tagged_fields(view, position))
    return groups


def _is_at(frame: bytes, position: int, raw: bytes) -> bool:
    """Whether the frame has these bytes. An entry shows its own end, so equal bytes are an equal entry."""
    return bool(raw) and frame.startswith(raw, position)


def _decode_group(
    frame: bytes, view: memoryview, start: int, position: int, before: FetchedGroup | None
) -> FetchedGroup:
    known = before.topics if before is not None else {}
    count, position = read_array_length(view, position, compact=True)
    topics: dict[str, FetchedTopic] = {}
    for _ in range(count):
        name, behind_name = read_string(view, position, compact=True)
        topic = known.get(name)
        if topic is None or not _is_at(frame, position, topic.raw):
            topic = _decode_topic(frame, view, position, behind_name)
        topics[name] = topic
        position += len(topic.raw)
    (error_code,) = unpack(INT16, view, position)
    position = skip_tagged_fields(view, position + INT16.size)
    return FetchedGroup(frame[start:position], topics, error_code)


def _decode_topic(frame: bytes, view: memoryview, start: int, position: int) -> FetchedTopic:
    count, position = read_array_length(view, position, compact=True)
    partitions: dict[int, CommittedValue] = {}
    for _ in range(count):
        index, offset, _ = unpack(_PARTITION, view, position)
        metadata, position = read_nullable_string(view, position + _PARTITION.size, compact=True)
        (error_code,) = unpack(INT16, view, position)
        position = skip_tagged_fields(view, position + INT16.size)
        partitions[index] = CommittedValue(offset, metadata or "", error_code)
    position = skip_tagged_fields(view, position)
    if position > len(frame):
        raise ProtocolError(f"the message ends at {len(frame)}, and its fields at {position}")
    return FetchedTopic(frame[start:position], partitions)
