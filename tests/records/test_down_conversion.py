"""Batches of magic 2, and messages of magic 1, as messages that old clients read, record by record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch, NotConvertible
from shoal.protocol.fetch import decode_fetch_response
from shoal.records import Codec, split
from shoal.records.down_conversion import DownConversion, convert
from tests.batches import (
    CONTROL,
    LOG_APPEND_TIME,
    TIMESTAMP,
    TRANSACTIONAL,
    Record,
    batch,
    compressed,
    marker,
    message,
    patched,
    payload,
    raw_batch,
    whole_messages,
    wrapper,
)
from tests.each_case import each_case
from tests.records.down_conversions import (
    EVERY_CODEC,
    EVERY_MAGIC,
    LIMIT,
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
from tests.strategies import INT64, damaged
from tests.vectors import Vector, old_vectors, vectors


def as_messages(records: Sequence[Record], magic: int, *, base: int, **fields: int) -> list[bytes]:
    """Build each record as a message, with offsets from ``base`` on."""
    return [
        bytes(
            message(
                magic,
                record.value,
                key=record.key,
                offset=base + record.offset_delta,
                timestamp=fields.get("timestamp", TIMESTAMP + record.timestamp_delta),
                attributes=fields.get("attributes", 0),
            )
        )
        for record in records
    ]


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


@pytest.mark.parametrize("base_timestamp", [-(2**63), -(2**63) + 9, 2**63 - 10, 2**63 - 1])
def test_timestamps_wrap_around_at_64_bits_as_they_do_for_a_consumer(base_timestamp: int) -> None:
    records = [Record(timestamp_delta=-10), Record(offset_delta=1, timestamp_delta=10)]
    source = of(records, base_timestamp=base_timestamp, max_timestamp=0)
    assert read(converted(source, 1)) == read(source)


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


def test_log_with_all_three_formats_is_converted_to_one() -> None:
    parts = [
        bytes(message(0, b"zero", offset=0)),
        bytes(wrapper(1, Codec.GZIP, as_messages(MIXED, 1, base=0), offset=5)),
        bytes(batch(3, base_offset=6, codec=Codec.LZ4)),
    ]
    source = b"".join(parts)
    for magic in OLD_MAGICS:
        assert read(converted(source, magic, limit_bytes=LIMIT))[: 1 + 5] == as_seen(read(source), magic)[:6]
    assert converted(source, 1).startswith(parts[0] + parts[1])


def _fetched() -> Iterator[tuple[str, bytes]]:
    for vector in vectors():
        if vector.api == "Fetch" and vector.direction == "response" and vector.codec != "zstd":
            response = decode_fetch_response(memoryview(vector.frame), vector.version, vector.names)
            for partition in response.partitions:
                record_set = bytes(partition.record_set)
                found = list(split(memoryview(record_set)))
                if any(each.header.records_count and not each.header.is_control for each in found) and all(
                    each.header.codec_id != Codec.ZSTD for each in found
                ):
                    yield f"{vector.name}-{partition.topic}-{partition.partition}", record_set


@EVERY_MAGIC
@each_case("fetched", _fetched(), itemgetter(0))
def test_recorded_batches_are_converted_to_the_end(fetched: tuple[str, bytes], magic: int) -> None:
    """Read to its end as a client does: the next fetch begins behind the last whole message."""
    _, record_set = fetched
    expected = as_seen(data_records(record_set), magic)
    assert expected
    assert list(_read_on(record_set, magic)) == expected


def _read_on(record_set: bytes, magic: int) -> Iterator[Values]:
    """Fetch, from the batch with the next offset on, until there is nothing more."""
    offset = 0
    while True:
        rest = b"".join(
            bytes(each.view) for each in split(memoryview(record_set)) if each.header.next_offset > offset
        )
        found = [
            values
            for values in read_by_kafka_python(converted(rest, magic, fetch_offset=offset))
            if values[0] >= offset
        ]
        if not found:
            return
        yield from found
        offset = found[-1][0] + 1


# Dropped batches and records.


@EVERY_MAGIC
def test_transaction_markers_and_emptied_batches_are_dropped(magic: int) -> None:
    empty = of([], base_offset=3, last_offset_delta=1)
    source = (
        marker(1, 5, base_offset=0)
        + batch(2, base_offset=1)
        + empty
        + marker(0, 5, base_offset=5)
        + batch(1, base_offset=6)
    )
    assert read_by_kafka_python(converted(source, magic)) == as_seen(
        read(batch(2, base_offset=1) + batch(1, base_offset=6)), magic
    )


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


RECORDS = st.tuples(PARTS, PARTS).map(lambda parts: Record(*parts))


@given(damaged(st.lists(RECORDS, min_size=1, max_size=4).map(payload)), st.data())
def test_damaged_records_are_converted_or_refused(data: bytes, drawn: st.DataObject) -> None:
    """Behind a right CRC, as from a client that wrote them so."""
    codec = drawn.draw(st.sampled_from(OLD_CODECS))
    source = raw_batch(
        compressed(data, codec),
        attributes=codec,
        records_count=drawn.draw(st.integers(0, 5)),
        last_offset_delta=5,
    )
    (found,) = split(memoryview(source))
    magic = drawn.draw(st.sampled_from(OLD_MAGICS))
    try:
        messages = bytes(convert(found, magic, 0, LIMIT))
    except CorruptBatch as error:
        assert error.position == 0  # noqa: PT017
        return
    assert len(read_by_kafka_python(messages)) == found.header.records_count


def test_false_header_fields_are_detected() -> None:
    good = of(MIXED, Codec.NONE)
    for position, replacement in (
        (57, (4).to_bytes(4)),  # fewer records than there are
        (57, (6).to_bytes(4)),  # more
        (23, (3).to_bytes(4)),  # an offset behind the last
    ):
        lying = patched(good, position, replacement)
        with pytest.raises(NotConvertible) as refused:
            conversion(lying)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
