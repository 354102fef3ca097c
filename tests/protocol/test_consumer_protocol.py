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

#: Topics a and b, user data, no partitions, no generation, no rack.
SUBSCRIPTION_V3 = bytes.fromhex("0003 00000002 0001 61 0001 62 00000002 6869 00000000 ffffffff ffff")

ASSIGNMENT_V3 = bytes.fromhex(
    "0003 00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 ffffffff"
)


def test_subscription_has_java_s_bytes() -> None:
    assert encode_subscription(["b", "a"], b"hi") == SUBSCRIPTION_V3
    assert decode_subscription(SUBSCRIPTION_V3) == Subscription(["a", "b"], b"hi")


@pytest.mark.parametrize(
    "encoded",
    [
        "0000 00000001 0001 61 ffffffff",
        "0001 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005",
        "0002 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003",
        "0003 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003 0002 7231",
        "0009 00000001 0001 61 ffffffff 00000001 0001 61 00000001 00000005 00000003 0002 7231 abcd",
    ],
)
def test_subscription_of_a_newer_version_is_read_as_the_newest_known(encoded: str) -> None:
    assert decode_subscription(bytes.fromhex(encoded)) == Subscription(["a"], None)


def test_assignment_has_java_s_bytes() -> None:
    partitions = [("a", 0), ("a", 2), ("b", 1)]
    assert encode_assignment(partitions) == ASSIGNMENT_V3
    assert decode_assignment(ASSIGNMENT_V3) == partitions
    assert encode_assignment([]) == bytes.fromhex("0003 00000000 ffffffff")
    # The bytes of librdkafka and of clients before Kafka 2.4, and those of a forgotten member.
    assert decode_assignment(bytes.fromhex("0000 00000001 0001 61 00000001 00000004 ffffffff")) == [("a", 4)]
    assert decode_assignment(b"") == []


def test_subscription_cut_short_is_refused() -> None:
    for size in range(len(SUBSCRIPTION_V3)):
        with pytest.raises(ProtocolError):
            decode_subscription(SUBSCRIPTION_V3[:size])


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
        again = encode_subscription(*subscription)
        assert encode_subscription(*decode_subscription(again)) == again
    try:
        partitions = decode_assignment(data)
    except ProtocolError:
        pass
    else:
        assert set(decode_assignment(encode_assignment(partitions))) == set(partitions)
