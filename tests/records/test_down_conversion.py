"""Batches of magic 2, and messages of magic 1, as messages that old clients read, record by record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.fetch import decode_fetch_response
from shoal.records import Codec, split
from shoal.records.down_conversion import DownConversion
from tests.records.down_conversions import (
    EVERY_CODEC,
    EVERY_MAGIC,
    MIXED,
    OLD_CODECS,
    OLD_MAGICS,
    Values,
    as_seen,
    conversion,
    converted,
    data_records,
    of,
    offsets_of,
    read,
    read_by_kafka_python,
)
from tests.strategies import INT64
from tests.vectors import Vector, old_vectors
from tests.world.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, marker, whole_messages

# The conversion of one batch, byte by byte.


def test_messages_have_literal_bytes() -> None:
    """As kafka-python's builder of the time writes them."""
    source = of([Record(b"v", b"k")], base_offset=5)
    assert whole_messages(converted(source, 0)) == [
        bytes.fromhex("0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76")
    ]
    assert whole_messages(converted(source, 1)) == [
        bytes.fromhex("0000000000000005 00000018 5eaf63dc 01 00 00000174876e8000 00000001 6b 00000001 76")
    ]


# Unchanged messages, and messages of magic 1.


def _recorded(magic: int) -> Iterator[tuple[Vector, bytes]]:
    for vector in old_vectors():
        if vector.api == "Fetch" and vector.direction == "response" and vector.version == 12:
            response = decode_fetch_response(memoryview(vector.frame), vector.version)
            record_set = bytes(response.partitions[0].record_set)
            if {each.header.magic for each in split(memoryview(record_set))} == {magic}:
                yield vector, record_set


@pytest.mark.parametrize(("stored", "magic"), [(0, 0), (0, 1), (1, 1)])
def test_messages_readable_by_the_client_are_unchanged(stored: int, magic: int) -> None:
    found = list(_recorded(stored))
    assert len(found) >= 8
    for _, record_set in found:
        whole = b"".join(bytes(each.view) for each in split(memoryview(record_set)))
        assert converted(record_set, magic)[: len(whole)] == whole


# Dropped batches and records.


@EVERY_MAGIC
def test_uncompressed_records_before_the_fetch_offset_are_dropped(magic: int) -> None:
    """Some clients take each message for one that they asked for."""
    source = batch(5, base_offset=10) + batch(5, base_offset=15)
    data = converted(source, magic, fetch_offset=13, source_bytes=1000)
    assert offsets_of(data) == [13, 14, *range(15, 20)]


@EVERY_MAGIC
@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_compressed_records_before_the_fetch_offset_are_kept(magic: int, codec: Codec) -> None:
    source = of(MIXED, codec, base_offset=10)
    assert converted(source, magic, fetch_offset=13) == converted(source, magic, fetch_offset=10)


@EVERY_MAGIC
@EVERY_CODEC
def test_batch_without_records_from_the_fetch_offset_is_dropped(magic: int, codec: Codec) -> None:
    """Compaction took its last records: given the others, a client would ask for the same again."""
    holed = batch(5, base_offset=10, codec=codec, holes=(3, 4))
    assert conversion(holed, magic, fetch_offset=13).size == 0
    assert conversion(holed, magic, fetch_offset=13).next_offset == 15
    behind = batch(5, base_offset=15, codec=codec)
    assert converted(holed + behind, magic, fetch_offset=13).startswith(
        whole_messages(converted(behind, magic, fetch_offset=15))[0]
    )


@pytest.mark.parametrize(
    ("record_set", "next_offset"),
    [
        (b"", 4),
        (b"\0" * 7, 4),
        (batch(3, base_offset=4)[:-1], 4),
        (marker(1, 5, base_offset=4), 5),
        (of([], base_offset=4, last_offset_delta=6), 11),
        (marker(1, 5, base_offset=4) + of([], base_offset=5, last_offset_delta=1), 7),
        (marker(1, 5, base_offset=4) + batch(3, base_offset=5)[:-1], 5),
    ],
)
def test_record_set_without_convertible_records_has_only_a_next_offset(
    record_set: bytes, next_offset: int
) -> None:
    found = conversion(record_set, fetch_offset=4)
    assert found.size == 0
    assert found.next_offset == next_offset
    assert list(found.chunks()) == []


# Whatever the records.


PARTS = st.none() | st.binary(max_size=20) | st.binary(min_size=60, max_size=140)


@st.composite
def _logs(draw: st.DrawFn) -> bytes:
    """Draw batches as a log has them: of any codec, with holes and headers, of markers too."""
    found = bytearray()
    offset = draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(1, 5))):
        records = []
        delta = 0
        for _ in range(draw(st.integers(0, 6))):
            delta += draw(st.integers(0, 3))
            headers = draw(st.lists(st.tuples(st.text(max_size=3), PARTS), max_size=2))
            timestamp_delta = draw(st.integers(-100, 20_000) | INT64)
            records.append(Record(draw(PARTS), draw(PARTS), headers, delta, timestamp_delta))
            delta += 1
        last = delta + draw(st.integers(0, 3))
        flags = draw(st.sampled_from((0, 0, LOG_APPEND_TIME, CONTROL | TRANSACTIONAL)))
        found += of(
            records,
            Codec.NONE if flags & CONTROL else draw(st.sampled_from(OLD_CODECS)),
            base_offset=offset,
            last_offset_delta=last,
            base_timestamp=draw(INT64),
            max_timestamp=draw(INT64),
            flags=flags,
        )
        offset += last + 1
    return bytes(found)


@given(_logs(), st.sampled_from(OLD_MAGICS), st.integers(0, 400))
def test_arbitrary_records_are_converted_unchanged(source: bytes, magic: int, chunk_bytes: int) -> None:
    expected = as_seen(data_records(source), magic)
    found = DownConversion(
        memoryview(source), magic=magic, fetch_offset=0, source_bytes=1 << 16, chunk_bytes=chunk_bytes
    )
    data = b"".join(found.chunks())
    assert read_by_kafka_python(data) == expected
    assert read(data) == expected
    assert bool(found.size) == bool(expected)


@given(_logs(), st.sampled_from(OLD_MAGICS), st.integers(0, 400), st.data())
def test_client_with_any_limit_reads_to_the_end(
    source: bytes, magic: int, chunk_bytes: int, data: st.DataObject
) -> None:
    """A response may announce less than all; the client fetches the rest."""
    expected = as_seen(data_records(source), magic)
    found: list[Values] = []
    offset = 0
    while True:
        rest = b"".join(
            bytes(each.view) for each in split(memoryview(source)) if each.header.next_offset > offset
        )
        under_way = DownConversion(
            memoryview(rest),
            magic=magic,
            fetch_offset=offset,
            source_bytes=data.draw(st.integers(0, len(rest))),
            chunk_bytes=chunk_bytes,
        )
        if not under_way.size:
            break
        sent = b"".join(under_way.chunks())
        assert len(sent) == under_way.size
        new = [values for values in read_by_kafka_python(sent) if values[0] >= offset]
        assert new
        found += new
        offset = new[-1][0] + 1
    assert found == expected
