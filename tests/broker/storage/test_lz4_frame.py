"""LZ4 frames are read as Kafka's ``Lz4BlockInputStream`` reads them."""

from __future__ import annotations

import cramjam
import lz4.frame
import pytest

from shoal.errors import CorruptBatch
from shoal.records import Codec, compress
from shoal_broker.storage.lz4_frame import lz4_blocks

DATA = bytes(range(256)) * 1024


def frame(**options: object) -> bytes:
    return bytes(lz4.frame.compress(DATA, **{"block_linked": False, **options}))


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checksum", ["block_checksum", "content_checksum", "store_size"])
@pytest.mark.parametrize("is_set", [True, False])
def test_independent_blocks_of_any_flags_are_read(block_size: int, checksum: str, is_set: bool) -> None:
    data = frame(block_size=block_size, **{checksum: is_set})
    blocks = list(lz4_blocks(memoryview(data)))
    assert b"".join(blocks) == DATA
    assert max(map(len, blocks)) <= 1 << (8 + 2 * block_size)


def test_bytes_after_the_frame_are_ignored() -> None:
    assert b"".join(lz4_blocks(memoryview(compress(Codec.LZ4, DATA) + b"anything"))) == DATA


def test_linked_blocks_are_refused() -> None:
    with pytest.raises(CorruptBatch, match="flags"):
        list(lz4_blocks(memoryview(frame(block_linked=True))))


@pytest.mark.parametrize("size", [0, 5, 6, 7, 9, 100, -1, -4])
def test_frame_cut_short_is_refused(size: int) -> None:
    with pytest.raises(CorruptBatch):
        list(lz4_blocks(memoryview(compress(Codec.LZ4, DATA)[:size])))


@pytest.mark.parametrize(
    ("what", "at"), [("magic", 0), ("flags", 4), ("descriptor", 5), ("checksum", 6), ("block size", 10)]
)
def test_damaged_header_is_refused(what: str, at: int) -> None:
    damaged = bytearray(compress(Codec.LZ4, DATA))
    damaged[at] ^= 0x7F
    with pytest.raises(CorruptBatch):
        list(lz4_blocks(memoryview(damaged)))


def test_block_with_a_wrong_checksum_is_refused() -> None:
    damaged = bytearray(frame(block_checksum=True))
    damaged[40] ^= 1
    with pytest.raises(CorruptBatch):
        list(lz4_blocks(memoryview(damaged)))


def test_block_larger_than_its_descriptor_allows_is_refused() -> None:
    block = bytes(cramjam.lz4.compress_block(bytes(1 << 20), store_size=False))
    data = compress(Codec.LZ4, b"")[:7] + len(block).to_bytes(4, "little") + block + bytes(4)
    with pytest.raises(CorruptBatch, match="block"):
        list(lz4_blocks(memoryview(data)))
