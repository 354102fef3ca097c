"""
The batches of a fetched record set, in the order of the log, with the decision about each.

Every reader of a log needs the same four steps. It splits the record set, and
decides about each batch from its header. If it drops a batch, it verifies the
CRC. If that batch is a marker, it ends a transaction. :func:`scan` takes all
four steps. :func:`check_dropped` takes the last two, for readers that act
between the steps: the mirror's copy loop, the down-conversion, and verify, which
fetches a damaged batch again and then continues behind it.

The header alone decides whether a batch is dropped. So without the CRC a flipped
attribute bit would turn records into a marker, and lose them without an error.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from .aborted import AbortedTransactions
from .batch import RecordBatch, split
from .checksum import verify_crc
from .decide import Decision, decide

__all__ = ["CheckedCrcs", "check_dropped", "scan"]


class CheckedCrcs(enum.Enum):
    """The batches whose CRC a scan verifies."""

    NONE = "none"
    DROPPED = "dropped"
    ALL = "all"


def scan(
    record_set: memoryview,
    start_offset: int,
    transactions: Iterable[tuple[int, int]] | None,
    *,
    keep_append_time: bool = False,
    crcs: CheckedCrcs = CheckedCrcs.DROPPED,
) -> Iterator[tuple[Decision, RecordBatch]]:
    """
    Yield each batch that ends behind ``start_offset``, and the decision about it.

    Args:
        record_set: Zero or more batches back to back, the last perhaps cut short.
        start_offset: The first wanted offset. Each batch that is yielded moves it to its own end.
        transactions: ``(producer_id, first_offset)`` of the aborted transactions, as the Fetch
            response lists them; None with ``read_uncommitted``.
        keep_append_time: See :func:`~shoal.records.decide`.
        crcs: The batches whose CRC is verified.

    Yields:
        Views of ``record_set``; nothing is copied.

    Raises:
        CorruptBatch: A header that no broker sends, a wrong CRC, or a marker without a control record.

    """
    aborted = None if transactions is None else AbortedTransactions(transactions)
    for batch in split(record_set):
        decision = decide(batch.header, start_offset, aborted, keep_append_time=keep_append_time)
        if decision.is_drop:
            check_dropped(decision, batch, aborted, crc_is_checked=crcs is not CheckedCrcs.NONE)
        elif crcs is CheckedCrcs.ALL:
            verify_crc(batch)
        next_offset = batch.header.next_offset
        if next_offset > start_offset:
            yield decision, batch
            start_offset = next_offset


def check_dropped(
    decision: Decision,
    batch: RecordBatch,
    aborted: AbortedTransactions | None,
    *,
    crc_is_checked: bool = True,
) -> None:
    """
    Verify the CRC of a dropped batch, and let a marker end its transaction.

    Raises:
        CorruptBatch: The CRC is wrong, or the marker has no control record.

    """
    if crc_is_checked:
        verify_crc(batch)
    if decision is Decision.DROP_CONTROL and aborted is not None:
        aborted.see_marker(batch)
