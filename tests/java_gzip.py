"""The one byte by which Java's gzip streams differ from zlib's: the operating system in their header.

RFC 1952 has a byte for it, which readers ignore: zlib writes 3 for Unix, Java since 16 writes 255 for
unknown (JDK-8244706).
"""

import zlib

__all__ = ["with_javas_gzip_header"]

_CODEC_MASK, _GZIP = 0x07, 1
_OPERATING_SYSTEM = 9
_UNKNOWN = 255


def with_javas_gzip_header(messages: bytes) -> bytes:
    """Return whole messages of magic 0 and 1 as Java compresses them, with right CRCs."""
    changed = bytearray(messages)
    position = 0
    while position < len(changed):
        end = position + 12 + int.from_bytes(changed[position + 8 : position + 12])
        magic, attributes = changed[position + 16 : position + 18]
        if attributes & _CODEC_MASK == _GZIP:
            # After the timestamp, and the lengths of key and value.
            stream = position + 18 + 8 * magic + 8
            assert changed[stream : stream + 2] == b"\x1f\x8b"
            changed[stream + _OPERATING_SYSTEM] = _UNKNOWN
            changed[position + 12 : position + 16] = zlib.crc32(changed[position + 16 : end]).to_bytes(4)
        position = end
    return bytes(changed)
