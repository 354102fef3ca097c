"""One decision per batch, from its header."""

from __future__ import annotations

import enum

from .aborted import AbortedTransactions
from .batch import BatchHeader

__all__ = ["Decision", "decide"]


class Decision(enum.Enum):
    """What becomes of a batch; the value is its name in progress and summaries."""

    COPY = "copied"
    DROP_CONTROL = "dropped: control"
    DROP_ABORTED = "dropped: aborted"
    DROP_EMPTY = "dropped: empty"
    CROP = "cropped"
    REBUILD_HOLES = "rebuilt: holes"
    REBUILD_MAGIC = "rebuilt: old format"
    REBUILD_APPEND_TIME = "rebuilt: append time"
    JOIN = "joined"

    @property
    def is_drop(self) -> bool:
        return self in _DROPS


_DROPS = frozenset({Decision.DROP_CONTROL, Decision.DROP_ABORTED, Decision.DROP_EMPTY})


def decide(
    header: BatchHeader,
    start_offset: int,
    aborted: AbortedTransactions | None,
    *,
    keep_append_time: bool = False,
    join_below_bytes: int = 0,
) -> Decision:
    """
    Say what becomes of a batch.

    Args:
        header: The batch, as fetched.
        start_offset: The first offset that is wanted; the batch ends at it or
            later.
        aborted: What the Fetch response said about aborted transactions, told
            of every batch before this one; None with ``read_uncommitted``.
        keep_append_time: Whether records of a LogAppendTime batch are to have
            its append time: only decoding it can do that.
        join_below_bytes: Batches that are smaller are joined with those before and behind.

    Returns:
        The first that applies, in the order of the checks: a control batch is
        a marker whatever else it is, and an aborted batch may have holes.

    """
    if header.magic != 2:
        return Decision.REBUILD_MAGIC
    if header.is_control:
        return Decision.DROP_CONTROL
    if aborted is not None and aborted.covers(header):
        return Decision.DROP_ABORTED
    if header.records_count == 0:
        return Decision.DROP_EMPTY
    if header.base_offset < start_offset:
        return Decision.CROP
    if header.has_holes:
        return Decision.REBUILD_HOLES
    if keep_append_time and header.is_log_append_time:
        return Decision.REBUILD_APPEND_TIME
    if header.size < join_below_bytes:
        return Decision.JOIN
    return Decision.COPY
