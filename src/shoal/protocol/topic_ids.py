"""
Topics by id (KIP-516), as Fetch and Produce list them from v13 on.

If a topic is deleted and created again, it keeps its name and gets another id.
The broker compares the id. A client with the id of the former topic gets UNKNOWN_TOPIC_ID, and does not read
or write the new topic by mistake.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache

from ..errors import ProtocolError
from .primitives import write_string

__all__ = ["NO_TOPIC_ID", "TOPIC_IDS_FROM", "name_of", "read_topic_id", "write_topic"]

#: The first version of Fetch and Produce that lists topics by id instead of by name.
TOPIC_IDS_FROM = 13

NO_TOPIC_ID = uuid.UUID(int=0)

_SIZE = 16


def read_topic_id(buffer: memoryview, position: int) -> tuple[uuid.UUID, int]:
    """
    Read a topic's id; return it and the position after it.

    Raises:
        ProtocolError: The buffer ends within it.

    """
    end = position + _SIZE
    if end > len(buffer):
        raise ProtocolError(f"the message ends at {len(buffer)}, within a topic id")
    return _topic_id(bytes(buffer[position:end])), end


@lru_cache(maxsize=4096)
def _topic_id(data: bytes) -> uuid.UUID:
    # Cached: a UUID takes 0.7 us, and each response lists the same topics.
    return uuid.UUID(bytes=data)


def write_topic(topic: str | uuid.UUID, compact: bool) -> bytes:
    """Write a topic's id, or its name."""
    return topic.bytes if isinstance(topic, uuid.UUID) else write_string(topic, compact)


def name_of(topic_id: uuid.UUID, names: Mapping[uuid.UUID, str] | None) -> str:
    """
    Return the name of a topic that a response lists by id.

    Raises:
        ProtocolError: The request does not list it.

    """
    name = names.get(topic_id) if names is not None else None
    if name is None:
        raise ProtocolError(f"an answer for topic id {topic_id}, which the request does not list")
    return name
