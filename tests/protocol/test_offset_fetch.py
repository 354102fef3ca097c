"""OffsetFetch 8 about several groups, against bytes of a real broker (Kafka 4.1.0)."""

from __future__ import annotations

import struct

import pytest

from shoal.errors import ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import decode_response, response_class
from shoal.protocol.offset_fetch import CommittedValue, FetchedGroup, decode_groups

#: Of a classic group, a KIP-848 group, a share group, and a name that no group has. Partition 0 was committed
#: as 2 with the metadata "meta", partition 1 as 5 without.
FRAME = bytes.fromhex(
    "00000006"  # the correlation id
    "00"  # the header's tagged fields
    "00000000"  # throttle_time_ms
    "05"
    "0a636c61737369632d67"  # classic-g
    "020274"  # one topic: t
    "03"  # two partitions
    "000000000000000000000002ffffffff056d657461000000"
    "000000010000000000000005000000000100000000000000"
    "0b636f6e73756d65722d67"  # consumer-g
    "02027403"
    "000000000000000000000002ffffffff056d657461000000"
    "000000010000000000000005000000000100000000000000"
    "0873686172652d6701000000"  # share-g
    "056e6f70650100000000"  # nope
)

META = CommittedValue(2, "meta", 0)


def other_offset(frame: bytes, group: bytes) -> bytes:
    """Return the frame with another offset of a group's partition 0."""
    position = frame.index(struct.pack(">iq", 0, 2), frame.index(group)) + 4
    return frame[:position] + struct.pack(">q", 3) + frame[position + 8 :]


def test_decode_groups_of_a_broker_returns_their_offsets() -> None:
    groups = decode_groups(FRAME, {})
    assert list(groups) == ["classic-g", "consumer-g", "share-g", "nope"]
    for name in ("classic-g", "consumer-g"):
        assert groups[name].topics["t"].partitions == {0: META, 1: CommittedValue(5, "", 0)}
        assert groups[name].error_code == 0
    assert groups["share-g"].topics == groups["nope"].topics == {}


def test_decode_groups_returns_the_values_of_the_library() -> None:
    response = decode_response(ApiKey.OFFSET_FETCH, 8, memoryview(FRAME))
    for group, found in zip(response.groups, decode_groups(FRAME, {}).items(), strict=True):
        assert group.group_id == found[0]
        theirs = {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata, each.error_code)
            for topic in group.topics
            for each in topic.partitions
        }
        assert theirs == {
            (topic, number): tuple(value)
            for topic, fetched in found[1].topics.items()
            for number, value in fetched.partitions.items()
        }


def test_decode_groups_with_the_same_bytes_keeps_the_objects() -> None:
    before = decode_groups(FRAME, {})
    again = decode_groups(b"\x00\x00\x00\x07" + FRAME[4:], before)
    assert all(again[name] is before[name] for name in before)


def test_decode_groups_with_one_change_keeps_the_other_objects() -> None:
    before = decode_groups(FRAME, {})
    after = decode_groups(other_offset(FRAME, b"consumer-g"), before)
    assert [name for name in before if after[name] is not before[name]] == ["consumer-g"]
    assert after["consumer-g"].topics["t"].partitions[0] == META._replace(offset=3)


def test_decode_groups_keeps_the_topics_that_are_the_same() -> None:
    response_of = response_class(ApiKey.OFFSET_FETCH)
    group_of = response_of.OffsetFetchResponseGroup
    topic_of = group_of.OffsetFetchResponseTopics

    def frame(offset: int, names: str) -> bytes:
        topics = [
            topic_of(
                name=name,
                partitions=[
                    topic_of.OffsetFetchResponsePartitions(
                        partition_index=0,
                        committed_offset=offset if name == "a" else 7,
                        committed_leader_epoch=-1,
                        metadata=None,
                        error_code=0,
                    )
                ],
            )
            for name in names
        ]
        response = response_of(version=8, groups=[group_of(group_id="g", topics=topics, error_code=0)])
        response.with_header(1)
        return bytes(response.encode(header=True))

    before = decode_groups(frame(1, "abc"), {})
    after = decode_groups(frame(2, "cba"), before)
    assert after["g"].topics["a"].partitions == {0: CommittedValue(2, "", 0)}
    assert all(after["g"].topics[name] is before["g"].topics[name] for name in "bc")


@pytest.mark.parametrize("known", [{}, decode_groups(FRAME, {})])
def test_decode_groups_of_any_part_of_an_answer_raises(known: dict[str, FetchedGroup]) -> None:
    for end in range(4, len(FRAME)):
        with pytest.raises(ProtocolError):
            decode_groups(FRAME[:end], known)
    with pytest.raises(ProtocolError, match="its fields end"):
        decode_groups(FRAME + b"\x00", known)


def test_decode_groups_with_empty_known_bytes_decodes_the_answer() -> None:
    """A broker of an older version answered before, and its bytes were not kept."""
    known = {"classic-g": FetchedGroup(b"", {}, 0)}
    assert decode_groups(FRAME, known)["classic-g"].topics["t"].partitions[0] == META
