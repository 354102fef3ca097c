"""Batches of magic 2 for clients that read magic 0 or 1."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from batches import batch, marker

from shoal.errors import ErrorCode, NotConvertible
from shoal.records import Codec, read_key_value_headers, read_records, split
from shoal.records.down_conversion import DownConversion

LIMIT = 1 << 20
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


Values = tuple[int, int, bytes | None, bytes | None]


def _whole_messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a record set as a client finds them: until one is cut short."""
    position = 0
    while position + 12 <= len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        if end > len(data):
            return
        yield data[position:end]
        position = end


def _values(data: bytes | bytearray) -> list[Values]:
    return [
        (record.offset, record.timestamp, *read_key_value_headers(record)[:2])
        for message in _whole_messages(bytes(data))
        for each in split(memoryview(message))
        for record in read_records(each, LIMIT)
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_records_keep_offset_key_and_value(magic: int, codec: Codec) -> None:
    source = batch(5, base_offset=7, codec=codec) + batch(3, base_offset=12, codec=codec)
    conversion = DownConversion(
        [memoryview(source)], magic=magic, fetch_offset=7, source_bytes=len(source), chunk_bytes=50
    )
    data = b"".join(conversion.chunks())
    assert len(data) == conversion.size
    expected = _values(source)
    if magic == 0:
        expected = [(offset, -1, key, value) for offset, _, key, value in expected]
    got = _values(data)
    assert got == expected[: len(got)]
    assert len(got) >= 5 or codec is Codec.NONE


def test_zstd_first_is_refused() -> None:
    source = marker(1, 5) + batch(5, base_offset=7, codec=Codec.ZSTD)
    with pytest.raises(NotConvertible) as error:
        DownConversion([memoryview(source)], magic=1, fetch_offset=0, source_bytes=len(source))
    assert error.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
