"""Record sets some of whose batches are damaged: their lengths lead on to the next. No I/O."""

from __future__ import annotations

import struct

from ..records import HEADER_SIZE, RecordBatch
from ..records.batch import LAST_OFFSET_DELTA_OFFSET, LOG_OVERHEAD, MAGIC_OFFSET

__all__ = ["end_of", "ended_by"]

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")


def ended_by(batch: RecordBatch, following: memoryview) -> RecordBatch:
    """Let a damaged batch end at the offset of the next one: its header may be wrong."""
    header = batch.header
    if len(following) < _OFFSET_AND_LENGTH.size:
        return batch
    delta = _OFFSET_AND_LENGTH.unpack_from(following)[0] - header.base_offset - 1
    return batch._replace(header=header._replace(last_offset_delta=delta)) if delta >= 0 else batch


def end_of(record_set: memoryview, offset: int) -> int:
    """Return the offset after the last whole batch; ``offset`` if there is none, or nonsense."""
    position, end = 0, len(record_set)
    while position + MAGIC_OFFSET < end:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(record_set, position)
        is_batch = record_set[position + MAGIC_OFFSET] == 2
        following = position + length + LOG_OVERHEAD
        if following > end or length < (HEADER_SIZE - LOG_OVERHEAD if is_batch else 1):
            break
        delta = (
            _LAST_OFFSET_DELTA.unpack_from(record_set, position + LAST_OFFSET_DELTA_OFFSET)[0]
            if is_batch
            else 0
        )
        offset = max(offset, base_offset + delta + 1)
        position = following
    return offset
