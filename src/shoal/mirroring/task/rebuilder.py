"""
New batches for the destination, from the records of fetched ones that cannot be copied, or are to be joined.

Whatever is decoded is joined with what is alike: it waits until the joined batch is large enough, or the
response has no more batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...errors import UnsupportedBatch
from ...records import HEADER_SIZE, Codec, Decision, Record, RecordBatch, verify_crc, write_batches
from ..model.acknowledged import spans_of
from ..model.copy_options import CopySettings
from .progress import Outgoing, Progress

__all__ = ["Rebuilder", "as_it_came"]

#: So many bytes of what is decoded in any case make a batch: messages of magic 0 and 1 come one by one.
_GROUP_BYTES = 256 * 1024

#: The most runs of offsets without a gap in one batch. The position's map has an entry for each, and the
#: metadata of a commit have room for some 300, by Kafka's default.
_MOST_RUNS = 100


class Rebuilder:
    """
    Makes new batches of those that cannot go out as they are, or are to be joined.

    Their records are gathered: :meth:`gathered` has to be called before anything else goes out, and before
    the partition counts as copied up to here.
    """

    def __init__(self, settings: CopySettings, progress: Progress) -> None:
        """Make batches that are not larger than the partition's progress allows, unless one record is."""
        self._settings = settings
        self._progress = progress
        self._group: _Group | None = None
        self._joining = settings.joining

    def take(
        self, batch: RecordBatch, decision: Decision, start_offset: int, end_offset: int
    ) -> Iterator[Outgoing]:
        """
        Decode a batch; yield the batches to send, with the records gathered before.

        Args:
            batch: As it was fetched.
            decision: Why it is decoded.
            start_offset: The first offset to mirror.
            end_offset: The first offset behind it not to mirror.

        Raises:
            CorruptBatch: The batch does not parse, or its CRC is wrong.
            UnsupportedBatch: The batch cannot be decoded, or only into too many bytes.

        """
        try:
            records = self._settings.records_to_mirror(batch, start_offset, end_offset)
        except UnsupportedBatch:
            if decision is not Decision.JOIN or self._joining.everything:
                raise
            yield from self.gathered()
            yield as_it_came(batch)  # nothing asks for it to be decoded
            return
        if self._joining.everything:
            decision = Decision.JOIN
        group = _Group(decision, self._codec_of(batch, decision), batch, records)
        most_bytes, most_runs = self._settings.max_decompressed_bytes, self._most_runs
        if self._group is not None and not self._group.add(group, most_bytes, most_runs):
            yield from self.gathered()
        self._group = self._group or group
        enough = self._joining.below_bytes if decision is Decision.JOIN else _GROUP_BYTES
        if self._group.fetched_bytes >= enough or self._group.runs >= most_runs:
            yield from self.gathered()

    @property
    def _most_runs(self) -> int:
        return min(_MOST_RUNS, self._progress.most_runs)

    def _codec_of(self, batch: RecordBatch, decision: Decision) -> Codec:
        if decision is Decision.JOIN and self._joining.codec is not None:
            return self._joining.codec
        return Codec(batch.header.codec_id)

    @property
    def is_gathering(self) -> bool:
        """Whether there are gathered records for the next batch."""
        return self._group is not None

    def gathered(self) -> Iterator[Outgoing]:
        """Yield the gathered records as a batch, if there are any."""
        group, self._group = self._group, None
        if group is None or not group.records:
            return
        if group.can_stay and not self._joining.everything:
            yield as_it_came(group.last)
            return
        yield from self._write(group)

    def forget(self) -> None:
        """Drop the gathered records. The task fetches them again."""
        self._group = None

    def _write(self, group: _Group) -> Iterator[Outgoing]:
        most_bytes = max(HEADER_SIZE + 1, self._progress.most_bytes_at(group.records[0].offset))
        if self._joining.everything:
            most_bytes = min(most_bytes, self._joining.below_bytes)
        leader_epoch = group.last.header.leader_epoch
        for few in _with_few_runs(group.records, self._most_runs):
            for piece, batch in write_batches(few, group.codec, most_bytes):
                yield Outgoing(batch, spans_of(piece), leader_epoch, group.decision)


@dataclass(slots=True)
class _Group:
    """
    Decoded batches that will become one.

    Attributes:
        decision: The decision about all its records.
        codec: The codec of the batch that it becomes.
        last: The last batch that was added.
        records: All of them.
        fetched_bytes: How large they were as they came.
        runs: At least the number of their runs of offsets without a gap.

    """

    decision: Decision
    codec: Codec
    last: RecordBatch
    records: list[Record]
    fetched_bytes: int = field(init=False)
    runs: int = field(init=False)
    _decoded_bytes: int = field(init=False)
    _batches: int = 1

    def __post_init__(self) -> None:
        self.fetched_bytes = self.last.header.size
        self.runs = len(spans_of(self.records))
        self._decoded_bytes = sum(len(each.body) for each in self.records)

    def add(self, other: _Group, most_decoded_bytes: int, most_runs: int) -> bool:
        """Add another one behind it; return whether the two are alike, and do not become too large."""
        # No batch has records of two leader epochs: each begins a run of the position's map.
        ours, theirs = ((each.decision, each.codec, each.last.header.leader_epoch) for each in (self, other))
        decoded_bytes, runs = self._decoded_bytes + other._decoded_bytes, self.runs + other.runs
        if ours != theirs or decoded_bytes > most_decoded_bytes or runs > most_runs:
            return False
        self._decoded_bytes, self.runs = decoded_bytes, runs
        self.records += other.records
        self.last = other.last
        self.fetched_bytes += other.fetched_bytes
        self._batches += 1
        return True

    @property
    def can_stay(self) -> bool:
        """Whether there was nothing to join it with, and nothing to change."""
        is_alone = self.decision is Decision.JOIN and self._batches == 1
        return is_alone and self.last.header.codec_id == self.codec


def _with_few_runs(records: Sequence[Record], most_runs: int) -> Iterator[Sequence[Record]]:
    """Yield the records in parts of at most so many runs."""
    spans = spans_of(records)
    begin = 0
    for first in range(0, len(spans), most_runs):
        end = begin + sum(end - start for start, end in spans[first : first + most_runs])
        yield records[begin:end]
        begin = end


def as_it_came(batch: RecordBatch) -> Outgoing:
    """
    Let a fetched batch go out as it is.

    Raises:
        CorruptBatch: Its codec is none, and its CRC is wrong.
        UnsupportedBatch: Its codec is none.

    """
    header = batch.header
    if header.codec_id > Codec.ZSTD:
        verify_crc(batch)
        raise UnsupportedBatch(
            f"its codec is {header.codec_id}, which Kafka does not have", header.base_offset
        )
    span = header.base_offset, header.next_offset
    return Outgoing(batch, [span], header.leader_epoch, Decision.COPY)
