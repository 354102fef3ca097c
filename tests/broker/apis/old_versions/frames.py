"""Requests in old versions."""

from __future__ import annotations

import time

from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.wire import PATIENCE_S, Wire

OLD_VERSIONS = {"shoal.old.versions": "true"}

NOW = time.time_ns() // 1_000_000
DAY = 86_400_000


def position(wire: Wire, version: int, group: str, topic: str, partition: int = 0) -> tuple[int, str, int]:
    wanted = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestTopic
    topics = [wanted(name=topic, partition_indexes=[partition])]
    deadline = time.monotonic() + PATIENCE_S
    # A real coordinator that is not there yet answers with nothing at all.
    while not (answer := wire.call(ApiKey.OFFSET_FETCH, version, group_id=group, topics=topics)).topics:
        assert time.monotonic() < deadline
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.metadata, found.error_code
