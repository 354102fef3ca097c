"""
Walks over plain batches, many at a time.

A plain batch has magic 2, no holes, and nothing but a codec in its attributes. It
begins at the end offset of the batch before it. All other batches need a decision
of their own, so a walk ends before the first of them. The caller may have decided
about two kinds: transactional batches, and those with LogAppendTime.

Each walk exists twice, here and in ``shoal.native``, with the same results.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from ..native import NATIVE
from .batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    OFFSET_LIMIT,
    TRANSACTIONAL,
    Codec,
)
from .stamp import stamp_bytes

__all__ = ["ENTRY", "plain_headers", "stamp_plain", "stamp_plain_in_python"]

#: A stamped batch: its size in bytes, number of records, ``max_timestamp``, leader epoch at the source. With
#: LogAppendTime, ``max_timestamp`` is the append time: the entry then has one that is not after the newest
#: create time.
ENTRY = struct.Struct("<IIqi")

_SEQUENCES = 2**31
_LARGEST_CODEC = max(Codec)


def stamp_plain_in_python(
    record_set: memoryview,
    position: int,
    *,
    first_offset: int,
    end_offset: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    append_time: bool,
) -> tuple[int, int, bytes]:
    """
    Stamp plain batches as :func:`~shoal.records.stamp` does, where they lie.

    Args:
        record_set: Writable; see :func:`~shoal.records.split`.
        position: The position of the first batch in it.
        first_offset: The offset that this batch must begin at.
        end_offset: The walk ends before a batch that ends behind it.
        base_sequence: The first batch's sequence; the others continue it.
        transactional: Whether transactional batches are plain: nothing of them was aborted.
        append_time: Whether batches with LogAppendTime are plain: their records keep their create times.

    Returns:
        The position behind the last plain batch, which is that of the first if there is none; the number of
        records in all of them; an :data:`ENTRY` for each.

    """
    pack_entry, records = ENTRY.pack, 0
    entries = []
    refused = ~(CODEC_MASK | (transactional and TRANSACTIONAL) | (append_time and LOG_APPEND_TIME))
    for header, begin, end in plain_headers(record_set, position, first_offset, refused):
        base_offset, _, epoch, _, _, attributes, _, first_ms, newest_ms, _, _, _, count = header
        if not 0 <= base_offset < OFFSET_LIMIT or base_offset + count > end_offset:
            break
        stamp_bytes(record_set[begin:end], attributes, producer_id, producer_epoch, base_sequence)
        if attributes & LOG_APPEND_TIME:
            newest_ms = min(first_ms, newest_ms)
        entries.append(pack_entry(end - begin, count, newest_ms, epoch))
        records += count
        base_sequence = (base_sequence + count) % _SEQUENCES
        position = end
    return position, records, b"".join(entries)


def plain_headers(
    record_set: memoryview, position: int, first_offset: int, refused: int
) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """
    Yield the header of each plain batch from a position on, and where the batch begins and ends.

    Args:
        record_set: See :func:`~shoal.records.split`.
        position: The position of the first batch in it.
        first_offset: The offset that this batch must begin at.
        refused: The attributes that a plain batch does not have.

    """
    unpack, end = HEADER.unpack_from, len(record_set)
    while end - position >= HEADER_SIZE:
        header = unpack(record_set, position)
        base_offset, length, _, magic, _, attributes, delta, _, _, _, _, _, count = header
        following = position + length + LOG_OVERHEAD
        if (
            base_offset != first_offset
            or magic != 2
            or attributes & refused
            or attributes & CODEC_MASK > _LARGEST_CODEC
            or count != delta + 1
            or count <= 0
            or length < HEADER_SIZE - LOG_OVERHEAD
            or following > end
        ):
            return
        yield header, position, following
        first_offset += count
        position = following


stamp_plain = stamp_plain_in_python if NATIVE is None else NATIVE.stamp_plain
