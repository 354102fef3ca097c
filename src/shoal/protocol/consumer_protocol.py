"""
Subscriptions and assignments, which the members of a group exchange through the coordinator.

The coordinator passes these bytes on without decoding them. Kafka's definitions are
``ConsumerProtocolSubscription.json`` and ``ConsumerProtocolAssignment.json``; kafka-python has their classes.
The version comes first. Newer versions only add fields at the end: a newer version is read as version 3, and
the bytes after it are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import ProtocolError
from .codec import decode_fields
from .primitives import INT16, unpack

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "Subscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
]

#: The type under which consumers join a group; Kafka's tools describe no other.
CONSUMER_PROTOCOL_TYPE = "consumer"

#: The newest version that shoal writes and reads.
_VERSION = 3


class Subscription(NamedTuple):
    """
    The subscription of a member, as far as shoal's assignors use it.

    Attributes:
        topics: The names of the topics.
        user_data: Data of the assignor; None for null.

    """

    topics: Sequence[str]
    user_data: bytes | None = None


def encode_subscription(topics: Iterable[str], user_data: bytes | None = None) -> bytes:
    """Encode the subscription of a member that owns no partitions, as Java's client does."""
    message = _class("Subscription")(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=[],
        generation_id=-1,
        rack_id=None,
        version=_VERSION,
    )
    return bytes(message.encode(version=_VERSION))


def decode_subscription(data: bytes | memoryview) -> Subscription:
    """
    Decode a subscription of another member.

    Raises:
        ProtocolError: The bytes are incomplete or malformed.

    """
    message = _decoded("Subscription", data)
    user_data = message.user_data
    return Subscription(list(message.topics), None if user_data is None else bytes(user_data))


def encode_assignment(partitions: Iterable[tuple[str, int]]) -> bytes:
    """Encode the assignment of a member without user data; topics in the order of their first partition."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    assignment = _class("Assignment")
    entries = [assignment.TopicPartition(topic=topic, partitions=by_topic[topic]) for topic in by_topic]
    message = assignment(assigned_partitions=entries, user_data=None, version=_VERSION)
    return bytes(message.encode(version=_VERSION))


def decode_assignment(data: bytes | memoryview) -> list[tuple[str, int]]:
    """
    Decode the assignment of a member; no bytes are an empty assignment.

    Raises:
        ProtocolError: The bytes are incomplete or malformed.

    """
    if not len(data):
        # If a leader does not list a member, the coordinator sends it no bytes.
        return []
    assigned = _decoded("Assignment", data).assigned_partitions
    return [(each.topic, number) for each in assigned for number in each.partitions]


@cache
def _class(name: str) -> Any:
    import_module("kafka")  # it loads the others: see codec
    return getattr(import_module("kafka.protocol.consumer.metadata"), f"ConsumerProtocol{name}")


def _decoded(name: str, data: bytes | memoryview) -> Any:
    frame = memoryview(data)
    (version,) = unpack(INT16, frame, 0)
    if version < 0:
        raise ProtocolError(f"version {version} of a consumer's subscription or assignment")
    return decode_fields(_class(name), min(version, _VERSION), frame, INT16.size)
