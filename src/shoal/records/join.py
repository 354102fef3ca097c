"""
Joins small batches without a Python object for each record, where the native module is.

The reference is :func:`~shoal.records.read_records` with :func:`~shoal.records.write_batches` and
:func:`~shoal.records.stamp`: the joined batches are the same, byte by byte.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import CorruptBatch, UnsupportedBatch
from ..native import NATIVE
from .batch import ATTRIBUTES_OFFSET, CODEC_MASK, Codec
from .compression import Bytes, decompress
from .plain import ENTRY

__all__ = ["Joined", "join_plain"]


class Joined(NamedTuple):
    """
    The batches that plain ones became, stamped and uncompressed.

    Attributes:
        end: The position behind the last that was joined; that of the first if there is none.
        records_count: The number of records in all of them.
        entries: An :data:`~shoal.records.ENTRY` for each joined batch.
        batches: The joined batches, one behind the other: a view of the memory that they were written to.
        codec: The codec of the batches that they were.

    """

    end: int
    records_count: int
    entries: bytes
    batches: memoryview
    codec: Codec


def join_plain(
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
    below_bytes: int,
    to: memoryview,
) -> Joined | None:
    """
    Join plain batches of one codec, whose checksums match.

    The last ones before another batch are left if they are not enough; at the end of the record set they are
    joined.

    Args:
        record_set: See :func:`~shoal.records.split`.
        position: The position of the first batch in it.
        first_offset: The offset that this batch must begin at.
        end_offset: Batches that end behind it are left.
        base_sequence: The sequence of the first joined batch; the others continue it.
        transactional: See :func:`~shoal.records.stamp_plain`.
        append_time: See there.
        below_bytes: A batch of this size is not joined, and batches of this size together are enough.
        to: Memory for the joined batches. No more than its size is written, nor decompressed for it, at a
            time.

    Returns:
        None if the native module is not there.

    """
    if NATIVE is None:
        return None
    end, records_count, entries = NATIVE.join_plain(
        record_set,
        position,
        first_offset=first_offset,
        end_offset=end_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        append_time=append_time,
        below_bytes=below_bytes,
        to=to,
        decompress=_decompress,
    )
    codec_id = record_set[position + ATTRIBUTES_OFFSET + 1] & CODEC_MASK if entries else Codec.NONE
    size = sum(size for size, *_ in ENTRY.iter_unpack(entries))
    return Joined(end, records_count, entries, to[:size], Codec(codec_id))


def _decompress(codec_id: int, records: bytes, limit_bytes: int) -> Bytes | None:
    try:
        return decompress(Codec(codec_id), records, limit_bytes)
    except (CorruptBatch, UnsupportedBatch):
        return None
