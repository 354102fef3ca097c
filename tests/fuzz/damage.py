"""Damage well-formed bytes, especially lengths and counts, which parsers rely on.

The place is random: each number sooner or later replaces every length and count in the bytes.
"""

from __future__ import annotations

import struct

from hypothesis import strategies as st

__all__ = ["HUGE_NUMBERS", "garbage", "mutated"]

#: A parser must never trust such a length, count, offset or varint.
HUGE_NUMBERS = [
    *(struct.pack(">b", value) for value in (-128, -1, 0, 1, 127)),
    *(struct.pack(">h", value) for value in (-(2**15), -2, -1, 0, 1, 2**15 - 1)),
    *(struct.pack(">i", value) for value in (-(2**31), -2, -1, 0, 1, 2**31 - 1, 2**24)),
    *(struct.pack(">q", value) for value in (-(2**63), -2, -1, 0, 2**63 - 1, 2**62, 2**31)),
    b"\x80\x80\x80\x80\x08",  # 2^31 as a varint
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1: -1 if it is signed
    b"\xff\xff\xff\xff\x7f",
    b"\xff" * 9 + b"\x01",  # 2^64 - 1
    b"\x80" * 16 + b"\x01",
]


@st.composite
def mutated(draw: st.DrawFn, whole: bytes, most_changes: int = 3) -> bytes:
    """Draw a changed copy: flipped, truncated, overwritten, extended, with parts doubled or moved."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, most_changes))):
        position = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 6)):
            case 0 if position < len(data):
                data[position] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[position:]
            case 2:
                number = draw(st.sampled_from(HUGE_NUMBERS))
                data[position : position + len(number)] = number
            case 3:
                data[position:position] = draw(st.sampled_from(HUGE_NUMBERS))
            case 4:
                end = draw(st.integers(position, min(len(data), position + 64)))
                data[end:end] = data[position:end] * draw(st.integers(1, 8))
            case 5:
                del data[position : position + draw(st.integers(1, 16))]
            case _:
                data[position : position + draw(st.integers(0, 8))] = draw(st.binary(max_size=16))
    return bytes(data)


def garbage(most_bytes: int = 300) -> st.SearchStrategy[bytes]:
    """Draw bytes without any format, or a sequence of numbers that could be lengths."""
    numbers = st.lists(st.sampled_from(HUGE_NUMBERS) | st.binary(max_size=6), max_size=40)
    return st.binary(max_size=most_bytes) | numbers.map(b"".join)
