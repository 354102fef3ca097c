"""
The batches of a fetched record set, in the order of the log, with the decision about each.

Every reader of a log needs the same four steps. It splits the record set, and
decides about each batch from its header. If it drops a batch, it verifies the
CRC. If that batch is a marker, it ends a transaction. :func:`decide_checked` takes
the last three for one batch, and :func:`scan` all four for a record set.

Two readers cannot take their batches from :func:`scan`:

- The mirror's intake stamps plain batches where they lie, many in one call. Only
  those between two such walks are split and decided one by one.
- Verify digests plain batches likewise. It continues behind a damaged batch,
  which :func:`split` refuses, and a damaged marker ends no transaction.

The header alone decides whether a batch is dropped. So without the CRC a flipped
attribute bit would turn records into a marker, and lose them without an error.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator

from .aborted import AbortedTransactions
from .batch import NO_END, RecordBatch, split
from .checksum import verify_crc
from .decide import Decision, decide

__all__ = ["CheckedCrcs", "decide_checked", "scan"]


class CheckedCrcs(enum.Enum):
    """The batches whose CRC a scan verifies."""

    NONE = "none"
    DROPPED = "dropped"
    ALL = "all"


def scan(
    record_set: memoryview,
    start_offset: int,
    transactions: Iterable[tuple[int, int]] | AbortedTransactions | None,
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
            response lists them, or those that are left of several record sets; None with
            ``read_uncommitted``.
        keep_append_time: See :func:`~shoal.records.decide`.
        crcs: The batches whose CRC is verified.

    Yields:
        Views of ``record_set``; nothing is copied.

    Raises:
        CorruptBatch: A header that no broker sends, a wrong CRC, or a marker without a control record.

    """
    aborted = transactions
    if aborted is not None and not isinstance(aborted, AbortedTransactions):
        aborted = AbortedTransactions(aborted)
    for batch in split(record_set):
        if crcs is CheckedCrcs.ALL:
            verify_crc(batch)
        decision = decide_checked(
            batch,
            start_offset,
            aborted,
            keep_append_time=keep_append_time,
            crc_is_checked=crcs is CheckedCrcs.DROPPED,
        )
        next_offset = batch.header.next_offset
        if next_offset > start_offset:
            yield decision, batch
            start_offset = next_offset


def decide_checked(
    batch: RecordBatch,
    start_offset: int,
    aborted: AbortedTransactions | None,
    *,
    end_offset: int = NO_END,
    keep_append_time: bool = False,
    join_below_bytes: int = 0,
    crc_is_checked: bool = True,
) -> Decision:
    """
    Decide about a batch; if it is dropped, verify its CRC, and let a marker end its transaction.

    Args:
        batch: The batch, after every batch before it.
        start_offset: See :func:`~shoal.records.decide`, as for the next four.
        aborted: The response's aborted transactions.
        end_offset: The first offset that is not wanted any more.
        keep_append_time: Whether append times are kept.
        join_below_bytes: The size below which batches are joined.
        crc_is_checked: False if the caller verifies the CRC, or does not need it.

    Raises:
        CorruptBatch: The CRC of a dropped batch is wrong, or a marker has no control record.

    """
    decision = decide(
        batch.header,
        start_offset,
        aborted,
        end_offset=end_offset,
        keep_append_time=keep_append_time,
        join_below_bytes=join_below_bytes,
    )
    if decision is Decision.COPY or not decision.is_drop:
        return decision  # most are copied, and is_drop costs a Python call for the enum's hash
    if crc_is_checked:
        verify_crc(batch)
    if decision is Decision.DROP_CONTROL and aborted is not None:
        aborted.see_marker(batch)
    return decision
