"""
Where an LZ4 frame ends: Kafka's reader (``Lz4BlockInputStream``) does not look at what follows.

::

    magic (4), flags, block descriptor, content size (8, if the flags say so), header checksum
    blocks: size (int32, little-endian; the highest bit says uncompressed), bytes, checksum (4, if …)
    a size of 0, content checksum (4, if …)
"""

from __future__ import annotations

import struct

__all__ = ["lz4_frame_size"]

_BLOCK_SIZE = struct.Struct("<I")
_UNCOMPRESSED = 0x80000000

_FLAGS_OFFSET = 4
_BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x10, 0x08, 0x04


def lz4_frame_size(data: memoryview) -> int:
    """Return how many bytes belong to the frame that some bytes begin with; all where it does not end."""
    if len(data) <= _FLAGS_OFFSET:
        return len(data)
    flags = data[_FLAGS_OFFSET]
    position = _FLAGS_OFFSET + 3 + (8 if flags & _CONTENT_SIZE else 0)
    checksum_bytes = 4 if flags & _BLOCK_CHECKSUM else 0
    while position + _BLOCK_SIZE.size <= len(data):
        size: int = _BLOCK_SIZE.unpack_from(data, position)[0] & ~_UNCOMPRESSED
        position += _BLOCK_SIZE.size
        if size == 0:
            return min(position + (4 if flags & _CONTENT_CHECKSUM else 0), len(data))
        position += size + checksum_bytes
    return len(data)
