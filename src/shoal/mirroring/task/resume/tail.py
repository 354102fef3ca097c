"""The last batches of a destination partition, and who wrote them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....records import BatchHeader
from ...model.position import ProducerIdentity
from .logs import PartitionLogs

__all__ = ["is_by", "is_ours", "last_batch", "last_batch_by"]

#: The distances from the log's end, in offsets, at which the search for the last batch begins: compaction may
#: have removed the records behind it.
_LOOK_BACK = (1, 100, 10_000, 1_000_000)


def last_batch(logs: PartitionLogs) -> BatchHeader | None:
    """
    Return the header of the batch at the log's end, as of the request for it; the log may have grown since.

    If compaction removed that one, the last one before; None if it removed all in the searched distance.

    Raises:
        BrokerError: Retriable: retention deleted it between two answers, or the log is another by now.

    """
    return _last(logs, _LOOK_BACK, lambda header: True)


def last_batch_by(logs: PartitionLogs, identity: ProducerIdentity) -> BatchHeader | None:
    """Return the header of the last batch that this producer identity wrote; raises as :func:`last_batch`."""
    everything = logs.log.end - logs.log.start
    return _last(logs, (*_LOOK_BACK, everything), lambda header: is_by(header, identity))


def _last(
    logs: PartitionLogs,
    distances: Sequence[int],
    is_wanted: Callable[[BatchHeader], bool],
) -> BatchHeader | None:
    """Search the offsets behind each distance from the end that the one before did not cover."""
    log = logs.log
    looked_from = log.end
    for distance in distances:
        if looked_from <= log.start:
            break
        looked_from, upper = max(log.start, log.end - distance), looked_from
        found: BatchHeader | None = None
        for batch in logs.destination_batches(looked_from):
            if batch.header.base_offset >= upper:
                break
            if batch.header.next_offset > log.end:
                # Two elections between two answers: this is not the log whose end was asked for.
                raise logs.changed()
            if is_wanted(batch.header):
                found = batch.header
        if found is not None:
            return found
    return None


def is_ours(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a batch was written by a producer identity at the place that its sequence says."""
    return is_by(header, identity) and header.base_sequence == identity.sequence(header.base_offset)


def is_by(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a producer identity wrote a batch, at any offset."""
    writer = (header.producer_id, header.producer_epoch)
    return writer == (identity.producer_id, identity.producer_epoch)
