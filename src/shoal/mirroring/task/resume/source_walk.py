"""
The source from an offset on: the batches to mirror, and the offsets that have no record.

Each comparison with the destination keeps the same account of the source's offsets. Nothing was mirrored
of a marker or an aborted batch, whether it is still there or not. An offset that is missing, before a batch
or in it, may have had a record that was mirrored: compaction or retention removed it since.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

from ....errors import CorruptBatch, UnsupportedBatch
from ....records import Decision, Record, RecordBatch
from .logs import PartitionLogs
from .record_key import RecordKey

__all__ = ["SourceWalk", "keys_between"]

#: No limit of offsets or bytes.
_NO_LIMIT = 2**63


class SourceWalk:
    """
    A walk over one partition of the source.

    Attributes:
        offset: Everything before it is accounted for. Its user moves it behind each batch or record that it
            takes.
        bytes: The size of the batches that were read, those without records to mirror included.
        is_cut: Whether the walk ended early, since the batches were larger than the limit.

    """

    def __init__(
        self, logs: PartitionLogs, start_offset: int, end_offset: int = _NO_LIMIT, most_bytes: int = _NO_LIMIT
    ) -> None:
        self.offset = start_offset
        self.bytes = 0
        self.is_cut = False
        self._logs = logs
        self._end_offset = end_offset
        self._most_bytes = most_bytes
        self._gap = 0

    def batches(self) -> Generator[tuple[Decision, RecordBatch]]:
        """
        Yield each batch with records to mirror, and the decision about it.

        The last one may reach behind the end; of an old format, its records may all lie there.
        """
        with closing(self._logs.source_batches(self.offset, self._most_bytes)) as decided:
            for decision, batch in decided:
                header = batch.header
                # Messages of an old format show their offsets only when they are decoded.
                if self.offset >= self._end_offset or (
                    header.magic == 2 and header.base_offset >= self._end_offset
                ):
                    return
                self.bytes += len(batch.view)
                if self.bytes > self._most_bytes:
                    self.is_cut = True
                    return
                if not decision.is_drop:
                    yield decision, batch
                elif decision is not Decision.DROP_EMPTY:
                    self._gap = self.skip_to(header.base_offset)
                    self.offset = header.next_offset

    def skip_to(self, offset: int) -> int:
        """Account for all offsets before one; return how many of them have no record."""
        gap, self._gap = self._gap + max(0, offset - self.offset), 0
        self.offset = max(self.offset, offset)
        return gap

    def decode(self, batch: RecordBatch) -> list[Record]:
        """Return a batch's records to mirror from the walk's offset on; raises as ``records_to_mirror``."""
        return self._logs.records_to_mirror(batch, self.offset)


def keys_between(
    logs: PartitionLogs, start_offset: int, end_offset: int, *, skips_undecodable: bool = False
) -> Iterator[tuple[Record, RecordKey]]:
    """Yield the source's records to mirror between two offsets; raises as ``records_to_mirror``."""
    for _, batch in SourceWalk(logs, start_offset, end_offset).batches():
        try:
            records = logs.records_to_mirror(batch, start_offset)
        except (CorruptBatch, UnsupportedBatch):
            if not skips_undecodable:
                raise
            continue
        for record in records:
            if record.offset < end_offset:
                yield record, logs.mirrored_key(batch.header, record)
