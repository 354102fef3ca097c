"""A converted record set as the response to an old client: its size, its chunks, its errors."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable

import pytest

from shoal.error_codes import ErrorCode
from shoal.errors import CorruptBatch, NotConvertible, UnsupportedBatch
from shoal.records import Codec
from shoal.records.down_conversion import DownConversion
from tests.records.down_conversions import (
    EVERY_MAGIC,
    MIXED,
    OVERFLOW_OFFSET,
    conversion,
    converted,
    messages_and_padding,
    of,
    offsets_of,
    read,
    read_by_kafka_python,
    transactions,
)
from tests.world.batches import CONTROL, Record, batch, marker, message, raw_batch, whole_messages

# The size and the padding.


def test_announced_size_includes_a_larger_first_batch() -> None:
    source = of([Record(b"", None, offset_delta=delta) for delta in range(100)])
    data = converted(source)
    assert len(data) == 100 * 34 > len(source)


@pytest.mark.parametrize("missing", [*range(1, 14), 60, 61, 62, 1000])
def test_remaining_bytes_are_the_front_of_a_longer_batch(missing: int) -> None:
    source = of(MIXED, Codec.SNAPPY)
    (wrapping,) = whole_messages(converted(source))
    found = DownConversion(memoryview(source), magic=1, fetch_offset=0, source_bytes=len(wrapping) + missing)
    data = b"".join(found.chunks())
    length = max(missing + 1, 61)
    padding = (OVERFLOW_OFFSET + length.to_bytes(4)).ljust(missing, b"\0")[:missing]
    assert data == wrapping + padding
    assert read_by_kafka_python(data) == read(wrapping)


def test_messages_beyond_the_announced_size_are_cut() -> None:
    batches = [batch(10, base_offset=10 * number) for number in range(4)]
    source = b"".join(bytes(each) for each in batches)
    all_messages = b"".join(b"".join(whole_messages(converted(each))) for each in batches)
    assert len(all_messages) > len(source)
    for chunk_bytes in (0, 1, len(batches[0]), 3 * len(batches[0]), 1 << 20):
        assert converted(source, chunk_bytes=chunk_bytes) == all_messages[: len(source)]


def test_conversion_ends_at_a_cut_batch() -> None:
    whole = batch(3, base_offset=5)
    for cut in (1, 11, 20, 61, len(whole) - 1):
        source = whole + whole[:cut]
        assert messages_and_padding(converted(source, 1))[0] == messages_and_padding(converted(whole, 1))[0]
        assert len(converted(source, 1)) == max(len(source), len(converted(whole, 1)))


# Chunks.


def source_of(count: int, codec: Codec = Codec.NONE, records: int = 5) -> memoryview:
    parts = [batch(records, base_offset=records * number, codec=codec) for number in range(count)]
    return memoryview(b"".join(parts))


def test_chunks_have_whole_batches_of_at_most_chunk_bytes() -> None:
    source = source_of(12)
    size = len(source) // 12
    found = DownConversion(source, magic=1, fetch_offset=0, source_bytes=10_000, chunk_bytes=3 * size + 1)
    assert found.next_offset == 5
    chunks = []
    taken = []
    for chunk in found.chunks():
        chunks.append(bytes(chunk))
        taken.append(found.next_offset // 5)
    # The first batch, converted before; then three by three.
    assert taken[:5] == [1, 4, 7, 10, 12]
    counts = [len(whole_messages(chunk)) for chunk in chunks]
    assert counts[:5] == [5, 15, 15, 15, 10]
    assert offsets_of(b"".join(chunks)) == [*range(60)]


def test_chunks_are_alive_one_at_a_time() -> None:
    batches = [batch([b"x" * 15_000], base_offset=number) for number in range(300)]
    source = b"".join(batches)

    def peak(chunk_bytes: int) -> int:
        found = DownConversion(memoryview(source), magic=1, fetch_offset=0, chunk_bytes=chunk_bytes)
        tracemalloc.start()
        try:
            assert sum(len(chunk) for chunk in found.chunks()) == len(source)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # A batch, the copy of its records, the record and the message: each at most 16 KiB.
    # Other threads of this process allocate meanwhile, which is in some of the measurements.
    assert min(peak(16 * 1024) for _ in range(5)) < 7 * 16 * 1024
    assert peak(1 << 30) > len(source)


def test_next_offset_follows_the_last_read_batch() -> None:
    found = DownConversion(source_of(4), magic=1, fetch_offset=0, source_bytes=10_000, chunk_bytes=0)
    chunks = found.chunks()
    assert found.next_offset == 5
    assert [found.next_offset for _ in itertools.islice(chunks, 4)] == [5, 10, 15, 20]


def test_release_drops_the_first_batch() -> None:
    source = bytes(transactions()) + bytes(batch(50, base_offset=9, codec=Codec.LZ4))
    for aborted in (None, [(7, 0)]):
        expected = converted(source, aborted=aborted)
        found = conversion(source, aborted=aborted)
        found.release()
        assert b"".join(found.chunks()) == expected


# Inconvertible batches.


def _with_wrong_crc(base_offset: int = 0) -> bytearray:
    wrong = batch(3, base_offset=base_offset)
    wrong[-1] ^= 1
    return wrong


def _with_a_flipped_control_bit(base_offset: int = 0) -> bytearray:
    """Return a batch that would be dropped if its CRC was not checked."""
    wrong = batch(3, base_offset=base_offset)
    wrong[22] ^= CONTROL
    return wrong


def _bomb(base_offset: int = 0) -> bytearray:
    return batch([b"\0" * 100_000] * 50, base_offset=base_offset, codec=Codec.GZIP)


def _zstd(base_offset: int = 0) -> bytearray:
    return batch(3, base_offset=base_offset, codec=Codec.ZSTD)


def _unknown_codec(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(b"x", base_offset=base_offset, attributes=5))


def _not_gzip(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(b"no gzip", base_offset=base_offset, attributes=Codec.GZIP))


def _impossible_length(base_offset: int = 0) -> bytes:
    return bytes(raw_batch(base_offset=base_offset, batch_length=-1))


Build = Callable[[int], bytes | bytearray]

REFUSED: list[tuple[Build, ErrorCode]] = [
    (_zstd, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    (_with_wrong_crc, ErrorCode.CORRUPT_MESSAGE),
    (_with_a_flipped_control_bit, ErrorCode.CORRUPT_MESSAGE),
    (_not_gzip, ErrorCode.CORRUPT_MESSAGE),
    (_impossible_length, ErrorCode.CORRUPT_MESSAGE),
    (_bomb, ErrorCode.MESSAGE_TOO_LARGE),
    (_unknown_codec, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
]
EVERY_REFUSAL = pytest.mark.parametrize(
    ("build", "code"), REFUSED, ids=lambda each: getattr(each, "__name__", "")
)


@EVERY_MAGIC
@EVERY_REFUSAL
def test_inconvertible_first_batch_raises_with_error_code(build: Build, code: ErrorCode, magic: int) -> None:
    for before in (b"", bytes(marker(1, 5)), of([])):
        source = before + bytes(build(5)) + bytes(batch(2, base_offset=100))
        with pytest.raises(NotConvertible) as refused:
            conversion(source, magic, limit_bytes=1 << 20)
        assert refused.value.code == code
        assert isinstance(refused.value.__cause__, (CorruptBatch, UnsupportedBatch))


@EVERY_MAGIC
@EVERY_REFUSAL
@pytest.mark.parametrize("chunk_bytes", [0, 16 * 1024])
def test_inconvertible_later_batch_is_padded_and_raises_in_the_next_fetch(
    build: Build, code: ErrorCode, magic: int, chunk_bytes: int
) -> None:
    readable = bytes(source_of(3, Codec.LZ4, 4))
    refused = bytes(build(12))
    source = readable + refused + bytes(batch(2, base_offset=100))
    data = converted(source, magic, limit_bytes=1 << 20, chunk_bytes=chunk_bytes)
    assert offsets_of(data) == [*range(12)]
    with pytest.raises(NotConvertible) as error:
        conversion(source[len(readable) :], magic, fetch_offset=12, limit_bytes=1 << 20)
    assert error.value.code == code


def test_old_messages_with_newer_codecs_are_refused() -> None:
    for codec in (4, 5, 7):
        with pytest.raises(NotConvertible) as refused:
            conversion(message(1, attributes=codec), 1)
        assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_conversion_to_other_magics_raises() -> None:
    with pytest.raises(ValueError, match="magic 2"):
        conversion(batch(), 2)
