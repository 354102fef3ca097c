"""
One pass over the source's log of a partition, for all offsets that its map leaves open.

A header has the number of its batch's records. So shoal decodes two sorts of batches: those of an old format,
and those with holes that an offset lies in. Any log takes the memory of one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import TypeAlias

from ...client.cluster import Cluster
from ...client.config import IsolationLevel
from ...client.scan import read_answers, read_first_of_each
from ...error_codes import ErrorCode
from ...errors import BrokerError, CorruptBatch, ShoalError, UnsupportedBatch
from ...records import Decision, Record, RecordBatch
from ...topic_partition import TopicPartition
from ..model.acknowledged import spans_of
from ..model.counting import Counting, Piece

__all__ = ["Scan", "scan_all"]

_BUFFER_BYTES = 1024 * 1024

#: A count that begins this far behind the last one has a request of its own.
_NEAR_OFFSETS = 10_000

_DROPPED_WHOLE = frozenset({Decision.DROP_CONTROL, Decision.DROP_ABORTED})

#: Returns the records that a copy takes of a batch, from an offset on.
RecordsOf: TypeAlias = Callable[[RecordBatch, int], Sequence[Record]]


class Scan:
    """The counts in one partition."""

    def __init__(self, countings: Iterable[Counting], records_of: RecordsOf) -> None:
        """
        Prepare.

        Args:
            countings: The counts, ascending. None begins before another one ends.
            records_of: Decodes a batch.

        """
        self._left = [each for each in countings if not each.is_over]
        self._records_of = records_of
        self.position = 0

    @property
    def wanted(self) -> int | None:
        """The offset from which on the log has to be read; None if nothing is left to count."""
        return self._left[0].at if self._left else None

    def read(self, batches: Iterable[tuple[Decision, RecordBatch]]) -> None:
        """
        Count batches, ascending.

        Raises:
            CorruptBatch: A batch that has to be decoded is damaged.
            UnsupportedBatch: A batch cannot be decoded.

        """
        for decision, batch in batches:
            header = batch.header
            self.position = header.next_offset
            while self._left and self._left[0].at < header.next_offset:
                counting = self._left[0]
                for piece in self._pieces(decision, batch, counting):
                    counting.add(piece)
                if not counting.is_over:
                    break
                del self._left[0]
            if not self._left:
                return

    def end_log(self) -> None:
        """End all counts: the log has no more batches."""
        for counting in self._left:
            counting.end_log()
        self._left.clear()

    def _pieces(self, decision: Decision, batch: RecordBatch, counting: Counting) -> Iterator[Piece]:
        header = batch.header
        start, end = header.base_offset, header.next_offset
        if decision in _DROPPED_WHOLE:
            yield Piece(start, end, 0, is_complete=True)
        elif header.magic == 2 and not header.has_holes:
            yield Piece(start, end, end - start, is_complete=True)
        elif decision.is_drop or (
            header.magic == 2 and not counting.splits(start, end, header.records_count)
        ):
            records = 0 if decision.is_drop else header.records_count
            yield Piece(start, end, records, is_complete=False)
        else:
            for first, behind in spans_of(self._records_of(batch, counting.at)):
                yield Piece(first, behind, behind - first, is_complete=True)
            if counting.at < end:
                yield Piece(counting.at, end, 0, is_complete=False)


def scan_all(
    cluster: Cluster, scans: Mapping[TopicPartition, Scan], isolation_level: IsolationLevel
) -> dict[TopicPartition, ShoalError]:
    """
    Read the log of each partition as far as its counts need it.

    Many groups are near the end of many partitions. So the first batches of all partitions come by few
    requests.

    Args:
        cluster: The cluster, with metadata of the partitions.
        isolation_level: That of the mirror.

    Returns:
        The error of each partition whose leader does not answer. A batch that cannot be decoded, and a log
        that has lost its beginning meanwhile, only end the count.

    """
    wanted = {each: offset for each, scan in scans.items() if (offset := scan.wanted) is not None}
    failed: dict[TopicPartition, ShoalError] = {}
    if len(wanted) > 1:
        with closing(read_first_of_each(cluster, wanted, isolation_level)) as answers:
            for partition, batches in answers:
                # A leader that did not answer is asked again below.
                if not isinstance(batches, ShoalError):
                    with suppress(CorruptBatch, UnsupportedBatch):
                        scans[partition].read(batches)
    for partition, scan in scans.items():
        try:
            _read_on(cluster, partition, scan, isolation_level)
        except (CorruptBatch, UnsupportedBatch):
            continue
        except BrokerError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                failed[partition] = error
        except ShoalError as error:
            failed[partition] = error
    return failed


def _read_on(cluster: Cluster, partition: TopicPartition, scan: Scan, level: IsolationLevel) -> None:
    """Read until nothing is left to count, or the log ends."""
    while (offset := scan.wanted) is not None:
        with closing(read_answers(cluster, partition, offset, level, _BUFFER_BYTES)) as answers:
            for batches in answers:
                scan.read(batches)
                if scan.wanted is None or scan.wanted > scan.position + _NEAR_OFFSETS:
                    break
            else:
                scan.end_log()
