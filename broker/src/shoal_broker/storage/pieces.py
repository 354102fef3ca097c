"""Records of a batch, decompressed piece by piece, as Kafka's broker does."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import cramjam

from shoal.errors import CorruptBatch, ExpandsTooFar
from shoal.records import Codec, decompress
from shoal.records.compression import MalformedFrame, gzip_pieces, snappy_blocks

from .lz4_frame import lz4_blocks

__all__ = ["decompressed_pieces"]

_ZSTD_PIECE = 1 << 18


def decompressed_pieces(codec: Codec, data: memoryview, limit_bytes: int) -> Iterator[bytes]:
    """
    Decompress a stream piece by piece.

    Pieces before an error are valid. A piece has at most 256 KiB of gzip, a block of snappy (whose
    ratio is below 22) or of LZ4 (4 MiB). Only of zstd, whose library has no such interface, all of it is in
    memory meanwhile. Data that is not compressed is one piece.

    Unlike :func:`shoal.records.decompress` this takes one frame of LZ4, of independent blocks, and ignores
    bytes behind it.

    Raises:
        CorruptBatch: The data cannot be decompressed.
        UnsupportedBatch: More than ``limit_bytes`` would come out.

    """
    if codec is Codec.NONE or not len(data):
        yield bytes(data)
        return
    left = limit_bytes
    for piece in _pieces(codec, data, limit_bytes):
        left -= len(piece)
        if left < 0:
            raise _too_large(limit_bytes)
        yield piece


def _pieces(codec: Codec, data: memoryview, limit_bytes: int) -> Iterator[bytes]:
    try:
        match codec:
            case Codec.GZIP:
                yield from gzip_pieces(data)
            case Codec.SNAPPY:
                for block in snappy_blocks(data):
                    if cramjam.snappy.decompress_raw_len(block) > limit_bytes:
                        raise _too_large(limit_bytes)
                    yield bytes(cramjam.snappy.decompress_raw(block))
            case Codec.LZ4:
                yield from lz4_blocks(data)
            case _:
                whole = memoryview(decompress(codec, data, limit_bytes))
                yield from (bytes(whole[at : at + _ZSTD_PIECE]) for at in range(0, len(whole), _ZSTD_PIECE))
    except (cramjam.DecompressionError, zlib.error, MalformedFrame) as error:
        raise CorruptBatch(f"its records are not {codec.name.lower()}: {error}") from error


def _too_large(limit_bytes: int) -> ExpandsTooFar:
    return ExpandsTooFar(f"its records expand to more than {limit_bytes} bytes", 0)
