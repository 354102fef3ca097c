"""
New batches for the destination, from the records of fetched ones that cannot be copied, or are to be joined.

A batch that is to be joined waits until the joined one is large enough, or the response has no more batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import UnsupportedBatch
from ...records import Codec, Decision, Record, RecordBatch, write_batches
from ...records.batch import BatchHeader
from ..model.copy_options import CopySettings
from ..model.offset_map import spans_of
from .outbound import OutboundBatch, copy_of

__all__ = ["Rebuilder"]

#: Messages of magic 0 and 1 that are not compressed come one by one; so many bytes of them make a batch.
_GROUP_BYTES = 256 * 1024

#: The most runs of offsets without a gap in one batch. The position's map has an entry for each, and the
#: metadata of a commit have room for some 300.
_MOST_RUNS = 100

#: No limit for a decoded batch, as long as the destination has refused none.
_NO_LIMIT = 2**31 - 1


class Rebuilder:
    """
    Makes new batches of those that cannot go out as they are, or are to be joined.

    Messages of magic 0 and 1, and batches to be joined, are gathered: :meth:`gathered` has to be called
    before anything else goes out, and before the partition counts as copied up to here.

    Attributes:
        most_bytes: The largest batch to make, unless one record is larger.

    """

    def __init__(self, settings: CopySettings) -> None:
        self.most_bytes = _NO_LIMIT
        self._settings = settings
        self._group: _Group | None = None

    def take(
        self, batch: RecordBatch, decision: Decision, start_offset: int, *, apart: bool = False
    ) -> Iterator[OutboundBatch]:
        """
        Decode a batch; yield the batches to send, from an offset on, with the records gathered before.

        Args:
            batch: As it was fetched.
            decision: Why it is decoded.
            start_offset: The first offset to mirror.
            apart: Whether each record becomes a batch of its own; only if everything is decoded.

        Raises:
            CorruptBatch: The batch does not parse, or its CRC is wrong.
            UnsupportedBatch: The batch cannot be decoded, or only into too many bytes.

        """
        header = batch.header
        try:
            records = self._settings.records_to_mirror(batch, start_offset)
        except UnsupportedBatch:
            if decision is not Decision.JOIN or self._decodes_all:
                raise
            yield from self.gathered()
            yield copy_of(batch)  # nothing asks for it to be decoded
            return
        if self._decodes_all:
            decision = Decision.JOIN
        codec = self._codec_of(header, decision)
        if apart:
            yield from self.gathered()
            for record in records:
                yield from self._write([record], decision, codec, header.leader_epoch, record.offset + 1)
        elif decision is Decision.JOIN or (header.magic != 2 and header.codec_id == Codec.NONE):
            yield from self._gather(batch, records, decision, codec)
        elif records:
            yield from self.gathered()
            yield from self._write(records, decision, codec, header.leader_epoch, header.next_offset)

    def _codec_of(self, header: BatchHeader, decision: Decision) -> Codec:
        rebatch = self._settings.rebatch
        if decision is Decision.JOIN and rebatch is not None and rebatch.codec is not None:
            return rebatch.codec
        return Codec(header.codec_id)

    def _gather(
        self, batch: RecordBatch, records: Sequence[Record], decision: Decision, codec: Codec
    ) -> Iterator[OutboundBatch]:
        group = self._group
        if group is not None and not (
            group.is_alike(decision, codec, batch)
            and group.fits(records, self._settings.max_decompressed_bytes)
        ):
            yield from self.gathered()
            group = None
        if group is None:
            group = self._group = _Group(decision, codec)
        group.add(batch, records)
        rebatch = self._settings.rebatch
        enough = rebatch.below_bytes if rebatch and decision is Decision.JOIN else _GROUP_BYTES
        if group.fetched_bytes >= enough:
            yield from self.gathered()

    @property
    def _decodes_all(self) -> bool:
        return self._settings.rebatch is not None and self._settings.rebatch.everything

    @property
    def is_gathering(self) -> bool:
        """Whether there are gathered records for the next batch."""
        return self._group is not None

    def gathered(self) -> Iterator[OutboundBatch]:
        """Yield the gathered records as a batch, if there are any."""
        group, self._group = self._group, None
        if group is None or not group.records:
            return
        header = group.last.header
        if group.is_one_that_can_stay and not self._decodes_all:
            yield copy_of(group.last)
        elif group.decision is Decision.JOIN:
            yield from self._write(
                group.records, Decision.JOIN, group.codec, header.leader_epoch, header.next_offset
            )
        else:
            last = group.records[-1].offset
            yield from self._write(group.records, group.decision, group.codec, -1, last + 1)

    @property
    def _most_bytes(self) -> int:
        rebatch = self._settings.rebatch
        return min(self.most_bytes, rebatch.below_bytes) if rebatch and self._decodes_all else self.most_bytes

    def forget(self) -> None:
        """Drop the gathered records. The task fetches them again."""
        self._group = None

    def _write(
        self, records: Sequence[Record], decision: Decision, codec: Codec, leader_epoch: int, source_end: int
    ) -> Iterator[OutboundBatch]:
        """Yield batches of records; all offsets behind the last, up to ``source_end``, are dealt with."""
        *before, last = (
            OutboundBatch(
                batch,
                batch.view,
                batch.header.records_count,
                piece[0].offset,
                piece[-1].offset + 1,
                leader_epoch,
                batch.header.max_timestamp,
                decision,
                spans_of(piece),
            )
            for few in _with_few_runs(records)
            for piece, batch in write_batches(few, codec, self._most_bytes)
        )
        last.source_end = source_end
        yield from (*before, last)


class _Group:
    """
    Decoded batches that will become one.

    Attributes:
        decision: The decision about all its records.
        codec: The codec of the batch that it becomes.
        records: All of them.
        fetched_bytes: How large they were as they came.
        last: The last batch that was added.

    """

    def __init__(self, decision: Decision, codec: Codec) -> None:
        self.decision = decision
        self.codec = codec
        self.records: list[Record] = []
        self.fetched_bytes = 0
        self.last: RecordBatch
        self._batches = 0
        self._runs = 0
        self._decoded_bytes = 0

    def is_alike(self, decision: Decision, codec: Codec, batch: RecordBatch) -> bool:
        # No batch has records of two leader epochs: each begins a run of the position's map.
        is_same_epoch = self.last.header.leader_epoch == batch.header.leader_epoch
        return self.decision is decision and self.codec is codec and is_same_epoch

    def fits(self, records: Sequence[Record], most_decoded_bytes: int) -> bool:
        """Whether the batch stays smaller than the largest that may be decoded, and has not too many runs."""
        has_few_runs = self._runs_with(records) <= _MOST_RUNS
        return has_few_runs and self._decoded_bytes + _bytes_of(records) <= most_decoded_bytes

    def _runs_with(self, records: Sequence[Record]) -> int:
        """Return the number of runs of offsets without a gap, with these records behind the others."""
        is_next = bool(self.records and records) and self.records[-1].offset + 1 == records[0].offset
        return self._runs + len(spans_of(records)) - is_next

    def add(self, batch: RecordBatch, records: Sequence[Record]) -> None:
        self._runs = self._runs_with(records)
        self.records += records
        self.fetched_bytes += batch.header.size
        self.last = batch
        self._batches += 1
        self._decoded_bytes += _bytes_of(records)

    @property
    def is_one_that_can_stay(self) -> bool:
        """Whether there was nothing to join it with, and nothing to change."""
        alone = self.decision is Decision.JOIN and self._batches == 1
        return alone and self.last.header.codec_id == self.codec


def _with_few_runs(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in parts of at most :data:`_MOST_RUNS` runs."""
    spans = spans_of(records)
    begin = 0
    for first in range(0, len(spans), _MOST_RUNS):
        end = begin + sum(end - start for start, end in spans[first : first + _MOST_RUNS])
        yield records[begin:end]
        begin = end


def _bytes_of(records: Sequence[Record]) -> int:
    return sum(len(record.body) for record in records)
