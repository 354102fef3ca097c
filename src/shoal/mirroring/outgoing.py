"""Batches for the destination: fetched ones as they are, and those that were made of decoded records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import UnsupportedBatch
from ..records import Codec, Decision, Record, RecordBatch, verify_crc, write_batches
from ..records.batch import DELETE_HORIZON, BatchHeader
from .decoding import records_to_mirror
from .runs import spans_of
from .settings import CopySettings

__all__ = ["Outgoing", "Rebuilder", "copy_of"]

#: Messages of magic 0 and 1 that are not compressed come one by one; so many bytes of them make a batch.
_GROUP_BYTES = 256 * 1024

#: No limit for a batch that was decoded, as long as the destination refused none.
_NO_LIMIT = 2**31 - 1


@dataclass(slots=True)
class Outgoing:
    """
    A batch on its way to the destination.

    Attributes:
        batch: To be stamped, and stamped then: over the fetch buffer, or over
            memory of its own where it was decoded.
        source_start: The offset of its first record at the source.
        source_end: The next source offset after it.
        source_leader_epoch: In which it was written at the source.
        newest_ms: A timestamp that the broker takes for this batch's, or an older one.
        decision: What became of the fetched batch.
        spans: Runs of source offsets, first and end, that follow one another
            in it; None where there is only one.
        destination_offset: Where it has to land; known when it is stamped.

    """

    batch: RecordBatch
    source_start: int
    source_end: int
    source_leader_epoch: int
    newest_ms: int
    decision: Decision = Decision.COPY
    spans: Sequence[tuple[int, int]] | None = None
    destination_offset: int = -1

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        return self.batch.view

    @property
    def records_count(self) -> int:
        return self.batch.header.records_count


def copy_of(batch: RecordBatch) -> Outgoing:
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
    return Outgoing(
        batch, header.base_offset, header.next_offset, header.leader_epoch, _newest_create_time_ms(header)
    )


def _newest_create_time_ms(header: BatchHeader) -> int:
    """Return a time that is not after the newest record's create time; -1 where the header does not tell."""
    if not header.is_log_append_time:
        return header.max_timestamp
    # max_timestamp is the append time then. The first record's create time is known, unless
    # compaction wrote its horizon there (KIP-534).
    return -1 if header.attributes & DELETE_HORIZON else min(header.base_timestamp, header.max_timestamp)


class Rebuilder:
    """
    Makes new batches of those that cannot go out as they are.

    Messages of magic 0 and 1 are gathered: :meth:`gathered` has to be called
    before anything else goes out, and before the partition counts as copied up to here.

    Attributes:
        most_bytes: The largest batch to make, unless one record is larger.

    """

    def __init__(self, settings: CopySettings) -> None:
        self.most_bytes = _NO_LIMIT
        self._settings = settings
        self._group: list[Record] = []
        self._group_bytes = 0

    def take(self, batch: RecordBatch, decision: Decision, start_offset: int) -> Iterator[Outgoing]:
        """
        Decode a batch and yield what goes out of it from an offset on, and what was gathered before.

        Raises:
            CorruptBatch: It does not parse, or its CRC is wrong.
            UnsupportedBatch: It cannot be decoded, or only into too many bytes.

        """
        header = batch.header
        records = records_to_mirror(batch, start_offset, self._settings)
        if header.magic != 2 and header.codec_id == Codec.NONE:
            self._group += records
            self._group_bytes += header.size
            if self._group_bytes >= _GROUP_BYTES:
                yield from self.gathered()
        elif records:
            yield from self.gathered()
            *before, last = self._write(records, decision, Codec(header.codec_id), header.leader_epoch)
            # The offsets behind its last record, up to the batch's end, are dealt with, too.
            last.source_end = header.next_offset
            yield from (*before, last)

    def gathered(self) -> Iterator[Outgoing]:
        """Yield a batch of the messages that were gathered, if there are any."""
        group, self._group, self._group_bytes = self._group, [], 0
        if group:
            yield from self._write(group, Decision.REBUILD_MAGIC, Codec.NONE, -1)

    def forget(self) -> None:
        """Throw away what was gathered: it will be fetched again."""
        self._group, self._group_bytes = [], 0

    def _write(
        self, records: Sequence[Record], decision: Decision, codec: Codec, leader_epoch: int
    ) -> Iterator[Outgoing]:
        for piece, batch in write_batches(records, codec, self.most_bytes):
            first, last = piece[0].offset, piece[-1].offset
            newest_ms = batch.header.max_timestamp
            yield Outgoing(batch, first, last + 1, leader_epoch, newest_ms, decision, spans_of(piece))
