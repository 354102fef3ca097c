"""The vectors of removed versions match their index, as read by kafka-python's former messages."""

from operator import attrgetter
from typing import Any

from tests import old_messages
from tests.each_case import each_case
from tests.vectors import Vector, removed_vectors

EVERY_VECTOR = each_case("recorded", removed_vectors(), attrgetter("name"))


@EVERY_VECTOR
def test_second_codec_decodes_and_encodes_the_same_bytes(recorded: Vector) -> None:
    is_request = recorded.direction == "request"
    message_class: Any = old_messages.schema(recorded.api_key, recorded.version, is_request=is_request)
    message = message_class.decode(recorded.frame, header=True)
    assert message.encode(header=True) == recorded.frame


def test_vectors_cover_every_removed_version() -> None:
    assert {(each.api, each.version) for each in removed_vectors()} >= {
        *(("Produce", version) for version in range(3)),
        *(("Fetch", version) for version in range(4)),
        *(("OffsetCommit", version) for version in range(2)),
        *(("CreateTopics", version) for version in range(2)),
        *(("OffsetForLeaderEpoch", version) for version in range(2)),
        *((api, 0) for api in ("ListOffsets", "OffsetFetch", "DeleteTopics", "DescribeConfigs")),
    }
