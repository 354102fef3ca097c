"""The last batches of a destination partition, and who wrote them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....records import BatchHeader, Fingerprint, Record, RecordBatch, fingerprint
from ...model.copy_options import CopyOptions
from ...model.position import ProducerIdentity
from .logs import PartitionLogs
from .record_key import create_time_of

__all__ = ["Tail", "holds_at", "is_by", "is_ours", "last_batch", "last_batch_by", "last_data_batch"]

#: The distances from the log's end, in offsets, at which the search for the last batch begins: compaction may
#: have removed the records behind it.
_LOOK_BACK = (1, 100, 10_000, 1_000_000)


@dataclass(frozen=True)
class Tail:
    """
    The last batch of a destination partition; its bytes are its own.

    Attributes:
        batch: The batch as of now: compaction may have removed records from it.
        options: The limits for decoding it.

    """

    batch: RecordBatch
    options: CopyOptions

    @classmethod
    def of(cls, batch: RecordBatch, options: CopyOptions) -> Tail:
        """Copy a batch out of the buffer that it was fetched into."""
        return cls(RecordBatch(batch.header, memoryview(bytes(batch.view))), options)

    @property
    def header(self) -> BatchHeader:
        """The batch's header."""
        return self.batch.header

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The batch's fingerprint."""
        return fingerprint(self.batch)

    @cached_property
    def records(self) -> Sequence[Record]:
        """The batch's records; raises as ``CopyOptions.decode``."""
        return self.options.decode(self.batch)

    def is_copy_of(self, batch: RecordBatch) -> bool:
        """Whether this batch holds the same bytes as a batch of the source, apart from a stamp."""
        is_alike = batch.header.magic == 2 and batch.header.batch_length == self.header.batch_length
        return is_alike and fingerprint(batch) == self.fingerprint

    def is_same_record(self, ours: Record, source: Record) -> bool:
        """Whether a record of this batch is a certain one of the source; a cleaner may change its time."""
        create_time = create_time_of(self.header, ours)
        return create_time in (None, source.timestamp) and ours.body == source.body


def last_batch(logs: PartitionLogs) -> Tail | None:
    """
    Return the batch at the log's end, as of the request for it; the log may have grown since.

    If compaction removed that one, the last one before; None if it removed all in the searched distance.

    Raises:
        BrokerError: Retriable: retention deleted it between two answers, or the log is another by now.

    """
    return _last(logs, _LOOK_BACK, lambda header: True)


def last_data_batch(logs: PartitionLogs) -> Tail | None:
    """Return the last batch that is no transaction marker; raises as :func:`last_batch`."""
    return _last(logs, _LOOK_BACK, lambda header: not header.is_control)


def last_batch_by(logs: PartitionLogs, identity: ProducerIdentity) -> Tail | None:
    """Return the last batch in the log that this producer identity wrote; raises as :func:`last_batch`."""
    everything = logs.log.end - logs.log.start
    return _last(logs, (*_LOOK_BACK, everything), lambda header: is_by(header, identity))


def _last(
    logs: PartitionLogs,
    distances: Sequence[int],
    is_wanted: Callable[[BatchHeader], bool],
) -> Tail | None:
    """Search the offsets behind each distance from the end that the one before did not cover."""
    log = logs.log
    looked_from = log.end
    for distance in distances:
        if looked_from <= log.start:
            break
        looked_from, upper = max(log.start, log.end - distance), looked_from
        found: Tail | None = None
        for batch in logs.destination_batches(looked_from):
            if batch.header.base_offset >= upper:
                break
            if batch.header.next_offset > log.end:
                # Two elections between two answers: this is not the log whose end was asked for.
                raise logs.changed()
            if is_wanted(batch.header):
                found = Tail.of(batch, logs.settings)
        if found is not None:
            return found
    return None


def holds_at(logs: PartitionLogs, offset: int) -> RecordBatch | None:
    """Return the destination's batch that has an offset; None if compaction or retention removed it."""
    if not logs.log.start <= offset < logs.log.end:
        return None
    for batch in logs.destination_batches(offset):
        return batch if batch.header.base_offset <= offset else None
    return None


def is_ours(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a batch was written by a producer identity at the place that its sequence says."""
    return is_by(header, identity) and header.base_sequence == identity.sequence(header.base_offset)


def is_by(header: BatchHeader, identity: ProducerIdentity) -> bool:
    """Whether a producer identity wrote a batch, at any offset."""
    writer = (header.producer_id, header.producer_epoch)
    return writer == (identity.producer_id, identity.producer_epoch)
