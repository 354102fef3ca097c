"""
LZ4 frames as Kafka's reader takes them (``Lz4BlockInputStream``), block by block.

::

    magic (4), flags, block descriptor, content size (8, if the flags say so), header checksum
    blocks: size (int32, little-endian; the highest bit means uncompressed), bytes, checksum (4, if …)
    a size of 0, content checksum (4, if …)

Kafka takes independent blocks only, verifies the checksums of header and blocks, skips that of the
content, and ignores the bytes behind the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam
import xxhash

from shoal.errors import CorruptBatch

__all__ = ["lz4_blocks"]

_MAGIC = bytes.fromhex("04224d18")
_INT32 = struct.Struct("<I")
_UNCOMPRESSED = 0x80000000

_FLAGS_OFFSET, _DESCRIPTOR_OFFSET, _FIELDS_OFFSET = 4, 5, 6
#: Version 1; everything else of the flags but these three is refused.
_VERSION, _INDEPENDENT = 0x40, 0x20
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x10, 0x08, 0x04
_CONTENT_SIZE_BYTES = 8
#: The descriptor's four sizes, from 64 KiB to 4 MiB.
_BLOCK_BYTES = {code << 4: 1 << (8 + 2 * code) for code in range(4, 8)}


def lz4_blocks(frame: memoryview) -> Iterator[bytes]:
    """
    Yield the decompressed blocks of a frame, at most 4 MiB each.

    Raises:
        CorruptBatch: Kafka does not read such a frame.

    """
    most_bytes, has_checksums, position = _read_header(frame)
    buffer = bytearray(most_bytes)
    while True:
        size = _int32(frame, position)
        position += _INT32.size
        is_plain, size = bool(size & _UNCOMPRESSED), size & ~_UNCOMPRESSED
        if size == 0:
            return
        block = frame[position : position + size]
        if size > most_bytes or len(block) < size:
            raise CorruptBatch(f"an LZ4 block of {size} bytes at {position}")
        position += size
        if has_checksums:
            if xxhash.xxh32_intdigest(bytes(block)) != _int32(frame, position):
                raise CorruptBatch(f"an LZ4 block with a wrong checksum before {position}")
            position += _INT32.size
        if is_plain:
            yield bytes(block)
            continue
        try:
            count = cramjam.lz4.decompress_block_into(block, buffer)
        except cramjam.DecompressionError as error:
            raise CorruptBatch(f"an LZ4 block before {position}: {error}") from error
        yield bytes(memoryview(buffer)[:count])


def _read_header(frame: memoryview) -> tuple[int, bool, int]:
    """Return the largest block's size, whether blocks have checksums, and the position of the first one."""
    if len(frame) <= _FIELDS_OFFSET or frame[: len(_MAGIC)] != _MAGIC:
        raise CorruptBatch("its records are not an LZ4 frame")
    flags, most_bytes = frame[_FLAGS_OFFSET], _BLOCK_BYTES.get(frame[_DESCRIPTOR_OFFSET])
    known = _VERSION | _INDEPENDENT | _BLOCK_CHECKSUM | _CONTENT_SIZE | _CONTENT_CHECKSUM
    if flags & (_VERSION | _INDEPENDENT) != _VERSION | _INDEPENDENT or flags & ~known or most_bytes is None:
        raise CorruptBatch(f"an LZ4 frame with flags {flags} and descriptor {frame[_DESCRIPTOR_OFFSET]}")
    end = _FIELDS_OFFSET + (_CONTENT_SIZE_BYTES if flags & _CONTENT_SIZE else 0)
    if end >= len(frame):
        raise CorruptBatch("an LZ4 frame that ends in its header")
    if xxhash.xxh32_intdigest(bytes(frame[_FLAGS_OFFSET:end])) >> 8 & 0xFF != frame[end]:
        raise CorruptBatch("an LZ4 frame with a wrong header checksum")
    return most_bytes, bool(flags & _BLOCK_CHECKSUM), end + 1


def _int32(frame: memoryview, position: int) -> int:
    if len(frame) - position < _INT32.size:
        raise CorruptBatch(f"an LZ4 frame that ends at {len(frame)}, within a block")
    number: int = _INT32.unpack_from(frame, position)[0]
    return number
