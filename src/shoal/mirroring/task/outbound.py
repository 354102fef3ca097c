"""
Batches for the destination: copied as they came, rebuilt from decoded records, or joined.

A copied batch is a view of the fetch buffer. Others have memory of their own: see ``rebuilder.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UnsupportedBatch
from ...records import Codec, Decision, RecordBatch, verify_crc
from ...records.batch import DELETE_HORIZON, BatchHeader

__all__ = ["OutboundBatch", "copy_of"]


@dataclass(slots=True)
class OutboundBatch:
    """
    A batch on its way to the destination.

    Attributes:
        batch: Its header, and its bytes over the fetch buffer, or over memory of its own if it was decoded.
            :meth:`.OutboundQueue.put` stamps it.
        view: All of its bytes, header included.
        records_count: The number of records in the batch.
        source_start: The offset of its first record at the source.
        source_end: The next source offset after it.
        source_leader_epoch: The source's leader epoch of the batch.
        newest_ms: A time that is not after the one that the broker keeps for the producer; -1 if unknown.
        decision: The decision about the fetched batch.
        spans: The runs of source offsets in it, each as first and end; None if there is only one.
        destination_offset: The offset at which it has to land; set when it is stamped.

    """

    batch: RecordBatch
    view: memoryview
    records_count: int
    source_start: int
    source_end: int
    source_leader_epoch: int
    newest_ms: int
    decision: Decision = Decision.COPY
    spans: Sequence[tuple[int, int]] | None = None
    destination_offset: int = -1

    @property
    def can_be_smaller(self) -> bool:
        """Whether it can be sent as smaller ones: it was decoded anyway, and has several records."""
        return self.decision is not Decision.COPY and self.records_count > 1


def copy_of(batch: RecordBatch) -> OutboundBatch:
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
    return OutboundBatch(
        batch,
        batch.view,
        header.records_count,
        header.base_offset,
        header.next_offset,
        header.leader_epoch,
        _newest_create_time_ms(header),
    )


def _newest_create_time_ms(header: BatchHeader) -> int:
    """Return a time that is not after the newest record's create time; -1 if the header has none."""
    if not header.is_log_append_time:
        return header.max_timestamp
    # max_timestamp is the append time then. The first record's create time is known, unless
    # compaction wrote its horizon there (KIP-534).
    return -1 if header.attributes & DELETE_HORIZON else min(header.base_timestamp, header.max_timestamp)
