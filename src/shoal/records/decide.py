"""
One decision per batch, from its header.

Plain batches never reach :func:`decide`: ``plain.py`` stamps those for which the answer is always COPY.
"""

from __future__ import annotations

import enum

from .aborted import AbortedTransactions
from .batch import NO_END, BatchHeader

__all__ = ["Decision", "decide"]


class Decision(enum.StrEnum):
    """The treatment of a batch; the value is its name in progress and summaries."""

    COPY = "copied"
    DROP_CONTROL = "dropped: control"
    DROP_ABORTED = "dropped: aborted"
    DROP_EMPTY = "dropped: empty"
    CROP = "cropped"
    REBUILD_HOLES = "rebuilt: holes"
    REBUILD_MAGIC = "rebuilt: old format"
    REBUILD_APPEND_TIME = "rebuilt: append time"
    JOIN = "joined"
    #: Counts offsets, not batches: the log ends with them, and the source sent no batch that has them.
    SKIP_GAP = "skipped: gap"

    @property
    def is_drop(self) -> bool:
        """Whether nothing of the batch is mirrored."""
        return self in _DROPS


_DROPS = frozenset({Decision.DROP_CONTROL, Decision.DROP_ABORTED, Decision.DROP_EMPTY, Decision.SKIP_GAP})


def decide(
    header: BatchHeader,
    start_offset: int,
    aborted: AbortedTransactions | None,
    *,
    end_offset: int = NO_END,
    keep_append_time: bool = False,
) -> Decision:
    """
    Decide how to treat a batch.

    Args:
        header: The batch, as fetched.
        start_offset: The first wanted offset; the batch ends at it or later.
        aborted: The response's aborted transactions, after every batch before
            this one; None with ``read_uncommitted``.
        end_offset: The first offset that is not wanted any more; the batch begins
            before it.
        keep_append_time: Whether the records of a LogAppendTime batch get its
            append time, which requires decoding.

    Returns:
        The first decision that applies, in the order of the checks: a control
        batch is a marker even if it is aborted, and an aborted batch may have holes.

    """
    if header.magic != 2:
        return Decision.REBUILD_MAGIC
    if header.is_control:
        return Decision.DROP_CONTROL
    if aborted is not None and aborted.covers(header):
        return Decision.DROP_ABORTED
    if header.records_count == 0:
        return Decision.DROP_EMPTY
    if header.base_offset < start_offset or header.next_offset > end_offset:
        return Decision.CROP
    if header.has_holes:
        return Decision.REBUILD_HOLES
    if keep_append_time and header.is_log_append_time:
        return Decision.REBUILD_APPEND_TIME
    return Decision.COPY
