"""
The five codecs of a batch's records, in Kafka's framings, within bounds.

======  =================================================================
gzip    RFC 1952; a reader takes several members back to back
snappy  xerial's framing, as the Java client writes it: a header of 16
        bytes, then blocks of raw snappy, each behind its size; librdkafka
        writes one raw block without any of that
lz4     LZ4 frame 1.5.1 of independent blocks (Kafka's readers take no other)
zstd    RFC 8878; the Java client's frames do not say how much is in them
======  =================================================================

Written is what Kafka's own producer writes. Read is more than Kafka reads: any
flags, and frames back to back.

No reader relies on the size that a stream states: a few kilobytes can
stand for gigabytes. They decode into a buffer that grows by steps up to a
limit, and give up there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import xxhash

from ..errors import CorruptBatch, ExpandsTooFar
from .batch import Codec

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "MalformedFrame",
    "check_count",
    "compress",
    "compress_legacy_lz4",
    "decompress",
    "decompress_legacy_lz4",
    "gzip_pieces",
    "snappy_blocks",
]

#: The default of every option that limits a decompressed batch. Few batches of 1 MiB, the brokers' default
#: limit, shrink to less than a fiftieth.
DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024

Bytes = bytes | bytearray | memoryview

#: How much of a gzip stream is read at a time, and how much may come of it before it is looked at.
_GZIP_IN, _GZIP_OUT = 1 << 14, 1 << 18
_GZIP_MAGIC = b"\x1f\x8b"
#: ``wbits`` of zlib for its largest window, in gzip's wrapping.
_GZIP_WRAPPING = 31
#: ``java.util.zip.Deflater.DEFAULT_COMPRESSION`` and Kafka's default for zstd (``CompressionType``).
_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3

_INT32 = struct.Struct(">i")
_XERIAL_MAGIC = b"\x82SNAPPY\0"
#: Behind the magic: version 1, compatible with 1. Not checked when read: Redpanda writes them little-endian.
_XERIAL_HEADER = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
#: ``SnappyOutputStream``'s default.
_XERIAL_BLOCK = 32 << 10

#: Magic, independent blocks, at most 64 KiB each, the checksum of these two bytes (``Lz4BlockOutputStream``).
_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
#: The same with the checksum of the magic too (see :func:`decompress_legacy_lz4`).
_LEGACY_LZ4_HEADER = bytes.fromhex("04224d18 60 40 1a")
_LZ4_BLOCK = 64 << 10
_LZ4_SIZE = struct.Struct("<I")
_LZ4_INCOMPRESSIBLE = 0x80000000
_LZ4_END = b"\0\0\0\0"
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x08, 0x01

#: The first buffer is that many times the compressed size, and so is each next one of the last.
_GROWTH = 4
_SMALLEST_BUFFER = 1 << 16
#: A record's values take about 200 bytes of Python's memory, however small it
#: is: each counts as so many at least, or a batch of empty ones was a bomb too.
_COUNTS_AS_BYTES = 64

#: The error of Rust's standard library if a writer (our buffer) is full; tests pin that cramjam passes it on.
_BUFFER_FULL = "failed to write whole buffer"


def compress(codec: Codec, data: Bytes) -> bytes:
    """
    Return ``data`` as Kafka's producer would compress it.

    The same for the same input, as long as the libraries stay the same.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            # Unlike GzipFile's, this header has neither a time nor a name in it.
            stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WRAPPING)
            return stream.compress(data) + stream.flush()
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec: Codec, data: bytes | memoryview, limit_bytes: int, base_offset: int = 0) -> Bytes:
    """
    Decompress a stream.

    Args:
        codec: Bits 0 to 2 of the attributes.
        data: The compressed stream; nothing is decompressed to nothing.
        limit_bytes: The most that may come out. No more than that and one
            step of growth is ever allocated, whatever the stream says. Data
            that is not compressed is returned as it is, without a limit.
        base_offset: The batch's, for the errors.

    Raises:
        CorruptBatch: The data cannot be decompressed.
        UnsupportedBatch: More than ``limit_bytes`` would come out.

    """
    if codec == Codec.NONE or not len(data):
        return data
    try:
        return _DECOMPRESS[codec](memoryview(data), limit_bytes)
    except _OverLimit:
        raise _refusal("its records expand", limit_bytes, base_offset) from None
    except (cramjam.DecompressionError, zlib.error, MalformedFrame) as error:
        raise CorruptBatch(f"its records are not {codec.name.lower()}: {error}", base_offset) from error


def check_count(count: int, limit_bytes: int, base_offset: int) -> None:
    """
    Refuse a batch whose records take much more memory than bytes.

    Raises:
        UnsupportedBatch: Even as ``_COUNTS_AS_BYTES`` each they are more than ``limit_bytes``.

    """
    if count * _COUNTS_AS_BYTES > limit_bytes:
        raise _refusal(
            f"its {count} records expand, at {_COUNTS_AS_BYTES} bytes each,", limit_bytes, base_offset
        )


def decompress_legacy_lz4(data: bytes | memoryview, limit_bytes: int, base_offset: int = 0) -> Bytes:
    """
    Decompress the LZ4 frame of a message of magic 0, whatever checksum its descriptor has.

    Kafka's clients computed it over the frame's magic too, until 0.10
    (KAFKA-3160), and so a reader of magic 0 ignores it. Because no library has
    an option for that, this function corrects the checksum in a copy.

    Raises:
        CorruptBatch: The data cannot be decompressed.
        UnsupportedBatch: More than ``limit_bytes`` would come out.

    """
    frame = bytearray(data)
    if len(frame) > len(_LZ4_HEADER):
        flags = frame[4]
        end = 6 + 8 * bool(flags & _LZ4_CONTENT_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY)
        if end < len(frame):
            frame[end] = xxhash.xxh32_intdigest(bytes(frame[4:end])) >> 8 & 0xFF
    return decompress(Codec.LZ4, memoryview(frame), limit_bytes, base_offset)


def compress_legacy_lz4(data: Bytes) -> bytes:
    """Return ``data`` as the LZ4 frame that a reader of magic 0 may insist on: with the wrong checksum."""
    return _LEGACY_LZ4_HEADER + _compress_lz4(memoryview(data))[len(_LZ4_HEADER) :]


def _refusal(what: str, limit_bytes: int, base_offset: int) -> ExpandsTooFar:
    return ExpandsTooFar(
        f"{what} to more than {limit_bytes} bytes, the maximum size of a decompressed batch. Raise the "
        "maximum if the batch is not an attack",
        base_offset,
    )


class _OverLimit(Exception):
    """More would come out than is allowed."""


class MalformedFrame(Exception):
    """A stream that a module parses itself is malformed; the text has the reason."""


def _compress_snappy(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: memoryview) -> bytes:
    parts: list[Bytes] = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LZ4_SIZE.pack(len(block)), block)
        else:
            parts += (_LZ4_SIZE.pack(len(plain) | _LZ4_INCOMPRESSIBLE), plain)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_gzip(data: memoryview, limit_bytes: int) -> Bytes:
    out = bytearray()
    for piece in gzip_pieces(data):
        out += piece
        if len(out) > limit_bytes:
            raise _OverLimit
    return out


def gzip_pieces(data: memoryview) -> Iterator[bytes]:
    """
    Yield one member after another, by small pieces.

    Raises:
        MalformedFrame: The stream is cut short. zlib raises its own errors.

    zlib hands back what it did not use, and copies it for that: of a large
    piece with many empty members in it, that would be quadratic.
    """
    position, end = 0, len(data)
    while True:
        member = zlib.decompressobj(_GZIP_WRAPPING)
        while not member.eof:
            if position == end:
                raise MalformedFrame("it is cut short")
            piece: Bytes = data[position : position + _GZIP_IN]
            position += len(piece)
            while piece and not member.eof:
                yield member.decompress(piece, _GZIP_OUT)
                piece = member.unconsumed_tail
        position -= len(member.unused_data)
        # Java's GZIPInputStream ignores bytes that are no other member, too.
        if data[position : position + len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return


def _decompress_snappy(data: memoryview, limit_bytes: int) -> Bytes:
    """
    Decompress all blocks into one buffer of the size that they state.

    Only snappy states it for certain: a block that is not as long is refused.
    """
    # Twice over the blocks: a list of them would take a hundred times the memory of the smallest ones.
    total = 0
    for block in snappy_blocks(data):
        total += cramjam.snappy.decompress_raw_len(block)
        if total > limit_bytes:
            raise _OverLimit
    out = bytearray(total)
    view = memoryview(out)
    position = 0
    for block in snappy_blocks(data):
        size = cramjam.snappy.decompress_raw_len(block)
        cramjam.snappy.decompress_raw_into(block, view[position : position + size])
        position += size
    return out


def snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    """
    Yield the blocks of xerial streams, which may stand back to back with a header each; or all of it.

    Raises:
        MalformedFrame: A block is cut short.

    """
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data
        return
    position, end = 0, len(data)
    while position < end:
        if data[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise MalformedFrame("it ends in its header")
            continue
        if end - position < _INT32.size:
            raise MalformedFrame("it ends in the size of a block")
        size = _INT32.unpack_from(data, position)[0]
        position += _INT32.size
        if not 0 < size <= end - position:
            raise MalformedFrame(f"a block of {size} bytes, but only {end - position} are left")
        yield data[position : position + size]
        position += size


def _growing(decompress_into: Callable[[memoryview, bytearray], int]) -> Callable[[memoryview, int], Bytes]:
    """
    Decompress into larger and larger buffers until all fits.

    cramjam's own ``output_len`` is no limit, and its streaming interface has
    none; only a buffer of ours stops it. Starting over costs a third of the
    work at most, since each buffer is four times the last.
    """

    def decompressor(data: memoryview, limit_bytes: int) -> Bytes:
        size = max(len(data) * _GROWTH, _SMALLEST_BUFFER)
        while True:
            size = min(size, limit_bytes)
            out = bytearray(size)
            try:
                return memoryview(out)[: decompress_into(data, out)]
            except cramjam.DecompressionError as error:
                if _BUFFER_FULL not in str(error):
                    raise
            if size == limit_bytes:
                raise _OverLimit
            del out  # or there would be two for a moment
            size *= _GROWTH

    return decompressor


_DECOMPRESS = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _growing(cramjam.lz4.decompress_into),
    Codec.ZSTD: _growing(cramjam.zstd.decompress_into),
}
