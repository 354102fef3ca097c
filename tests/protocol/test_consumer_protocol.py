"""Subscriptions and assignments, byte by byte as Java's ``ConsumerProtocol`` writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ProtocolError
from shoal.protocol.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

#: Topics a and b, no user data, a-0 and a-2 owned since generation 7, no rack.
SUBSCRIPTION_V3 = bytes.fromhex(
    "0003"  # version
    "00000002 0001 61 0001 62"  # topics
    "ffffffff"  # user data: null
    "00000001 0001 61 00000002 00000000 00000002"  # owned partitions
    "00000007"  # generation
    "ffff"  # rack: null
)

#: CooperativeStickyAssignor adds its generation as user data.
COOPERATIVE_V3 = bytes.fromhex(
    "0003 00000001 0001 61 00000004 00000007 00000001 0001 61 00000001 00000001 00000007 ffff"
)

ASSIGNMENT_V3 = bytes.fromhex(
    "0003 00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 ffffffff"
)


def test_subscription_has_java_s_bytes() -> None:
    subscription = Subscription(["b", "a"], None, [("a", 2), ("a", 0)], 7)
    assert encode_subscription(subscription) == SUBSCRIPTION_V3
    assert decode_subscription(SUBSCRIPTION_V3) == Subscription(["a", "b"], None, [("a", 0), ("a", 2)], 7)
    cooperative = Subscription(["a"], b"\0\0\0\x07", [("a", 1)], 7)
    assert encode_subscription(cooperative) == COOPERATIVE_V3
    assert decode_subscription(COOPERATIVE_V3) == cooperative


@pytest.mark.parametrize(
    ("version", "encoded"),
    [
        (0, "0000 00000001 0001 61 ffffffff"),
        (1, "0001 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005"),
        (2, "0002 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003"),
        (3, "0003 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003 0002 7231"),
        (9, "0009 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003 0002 7231 abcd"),
    ],
)
def test_subscription_of_a_newer_version_is_read_as_the_newest_known(version: int, encoded: str) -> None:
    expected = Subscription(
        ["a"],
        None,
        [("a", 5)] if version >= 1 else [],
        3 if version >= 2 else -1,
        "r1" if version >= 3 else None,
    )
    assert decode_subscription(bytes.fromhex(encoded)) == expected
    if version <= 3:
        assert encode_subscription(expected, version) == bytes.fromhex(encoded)


def test_assignment_has_java_s_bytes() -> None:
    partitions = [("a", 0), ("a", 2), ("b", 1)]
    assert encode_assignment(partitions) == ASSIGNMENT_V3
    assert decode_assignment(ASSIGNMENT_V3) == partitions
    assert encode_assignment([]) == bytes.fromhex("0003 00000000 ffffffff")
    # The bytes of librdkafka and of clients before Kafka 2.4, and those of a forgotten member.
    assert decode_assignment(bytes.fromhex("0000 00000001 0001 61 00000001 00000004 ffffffff")) == [("a", 4)]
    assert decode_assignment(b"") == []


@pytest.mark.parametrize("data", [SUBSCRIPTION_V3, COOPERATIVE_V3])
def test_subscription_cut_short_is_refused(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_subscription(data[:size])


def test_assignment_cut_short_is_refused() -> None:
    for size in range(1, len(ASSIGNMENT_V3)):
        with pytest.raises(ProtocolError):
            decode_assignment(ASSIGNMENT_V3[:size])


@pytest.mark.parametrize("data", ["ffff 00000000", "0000 7fffffff", "0003 00000001 0001 ff ffffffff"])
def test_malformed_subscription_and_assignment_are_refused(data: str) -> None:
    with pytest.raises(ProtocolError):
        decode_subscription(bytes.fromhex(data))
    with pytest.raises(ProtocolError):
        decode_assignment(bytes.fromhex(data))


@given(st.binary(max_size=200) | st.binary(max_size=50).map(SUBSCRIPTION_V3[:20].__add__))
def test_arbitrary_bytes_are_decoded_or_refused(data: bytes) -> None:
    """Another member may send anything; every decoded value can be encoded again."""
    try:
        subscription = decode_subscription(data)
    except ProtocolError:
        pass
    else:
        again = encode_subscription(subscription)
        assert encode_subscription(decode_subscription(again)) == again
    try:
        partitions = decode_assignment(data)
    except ProtocolError:
        pass
    else:
        assert set(decode_assignment(encode_assignment(partitions))) == set(partitions)
