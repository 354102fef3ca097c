"""
Joins small batches without a Python object for each record, where the native module is.

The reference is :func:`~shoal.records.read_records` with :func:`~shoal.records.write_batches`: the joined
batch is the same, byte by byte.
"""

from __future__ import annotations

from typing import NamedTuple

from ..native import NATIVE
from .batch import Codec, RecordBatch
from .compression import compress
from .rebuild import batch_of_payload

__all__ = ["Joined", "join_plain"]


class Joined(NamedTuple):
    """
    Plain batches that follow one another, as the records of one.

    Attributes:
        end: The position behind the last of them; that of the first if there is none.
        batches_count: The number of batches.
        records_count: The number of records in all of them.
        base_timestamp: The create time of the first record in milliseconds.
        max_timestamp: The largest create time.
        leader_epoch: The leader epoch of all of them at the source.
        payload: The records of the joined batch, uncompressed.

    """

    end: int
    batches_count: int
    records_count: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int
    payload: bytes

    def to_batch(self, codec: Codec) -> RecordBatch:
        """Return the joined batch as ``write_batch`` does, over a writable buffer of its own."""
        payload = compress(codec, self.payload)
        return batch_of_payload(codec, self.records_count, self.base_timestamp, self.max_timestamp, payload)


def join_plain(
    record_set: memoryview,
    position: int,
    *,
    first_offset: int,
    end_offset: int,
    transactional: bool,
    below_bytes: int,
    most_bytes: int,
) -> Joined | None:
    """
    Join uncompressed plain batches whose checksums match, until they are enough.

    Args:
        record_set: See :func:`~shoal.records.split`.
        position: The position of the first batch in it.
        first_offset: The offset that this batch must begin at.
        end_offset: Batches that end behind it are left.
        transactional: See :func:`~shoal.records.stamp_plain`.
        below_bytes: A batch of this size is not joined, and batches of this size together are enough.
        most_bytes: The most bytes of the records' bodies.

    Returns:
        None if the native module is not there.

    """
    if NATIVE is None:
        return None
    return Joined(
        *NATIVE.join_plain(
            record_set,
            position,
            first_offset=first_offset,
            end_offset=end_offset,
            transactional=transactional,
            below_bytes=below_bytes,
            most_bytes=most_bytes,
        )
    )
