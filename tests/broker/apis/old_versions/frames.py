"""Old versions in tests: which there are, and records as their clients read and write them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka.record import MemoryRecords

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from shoal.records import Codec, split
from tests.broker.wire import PATIENCE_S, Wire

OLD_VERSIONS = {"shoal.old.versions": "true"}

FETCH = pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
PRODUCE = pytest.mark.parametrize("version", range(3))
OLD_CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def values(record_set: memoryview, magic: int) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    """Read messages as another library does: offset, timestamp, key and value of each."""
    found = []
    messages = MemoryRecords(bytes(record_set))
    while messages.has_next():
        for record in messages.next_batch():
            assert record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    position = 0
    while position + 17 <= len(record_set) and record_set[position : position + 8] != b"\xff" * 8:
        assert record_set[position + 16] == magic
        position += 12 + int.from_bytes(record_set[position + 8 : position + 12])
    return found


def offsets(record_set: memoryview, magic: int) -> list[int]:
    return [offset for offset, *_ in values(record_set, magic)]


def read_all(wire: Wire, topic: str, version: int, magic: int, **options: int) -> list[tuple[Any, ...]]:
    """
    Fetch to the end, as a client does.

    Records that are longer after conversion are cut at the announced length, and fetched again.
    """
    found: list[tuple[Any, ...]] = []
    offset = 0
    while True:
        fetched = wire.fetch(topic, offset, version=version, **options)
        assert fetched.error_code == ErrorCode.NONE
        if not fetched.record_set:
            return found
        some = [each for each in values(fetched.record_set, magic) if each[0] >= offset]
        assert some, f"no progress at {offset}"
        found += some
        offset = found[-1][0] + 1


def stored(wire: Wire, topic: str) -> list[Any]:
    """Read the batches of a partition as new clients do."""
    fetched = wire.fetch(topic, version=12)
    assert fetched.error_code == ErrorCode.NONE
    return list(split(memoryview(bytes(fetched.record_set))))


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
