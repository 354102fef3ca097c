"""
Read the batches of one partition: all of them, or a sample of runs.

A sample has up to four runs: at the log's start, at a third and two thirds of its offsets, and at its end.
The last one shows the producers of today. Its first offset follows from the mean size of the offsets in the
other three. Readers see all batches of the log, those of open and aborted transactions included.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.offsets import EARLIEST, LogOffsets, answered, list_offsets
from ..client.scan import read_decided
from ..error_codes import ErrorCode
from ..errors import BrokerError, CorruptBatch, UnsupportedBatch
from ..records import Codec, RecordBatch, decompress
from ..records.aborted import read_marker
from ..topic_partition import TopicPartition
from .facts import Facts, RatioSample, codec_name

__all__ = ["PartitionPlan", "PartitionReading", "marker_of"]

_RUNS = 4

#: A smaller buffer would be filled by one batch of an ordinary topic.
_LEAST_BUFFER_BYTES = 64 * 1024
_BUFFER_BYTES = 4 * 1024 * 1024

#: A batch that decompresses to more does not count for the ratio.
_MOST_UNCOMPRESSED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """
    A partition to read.

    Attributes:
        partition: The partition.
        log: Its offsets.
        ratio_batches: The number of batches to decompress for the ratio, besides the first of each codec; 0
            for none at all.

    """

    partition: TopicPartition
    log: LogOffsets
    ratio_batches: int


@dataclass(slots=True)
class PartitionReading:
    """
    Counts the batches of one partition.

    Attributes:
        cluster: The cluster, with metadata of the partition.
        plan: The partition.
        facts: The counts to add to. All batches are counted from where the last of its runs ends.
        is_stopped: Returns whether to end early.

    """

    cluster: Cluster
    plan: PartitionPlan
    facts: Facts
    is_stopped: Callable[[], bool] = lambda: False

    def read(self, most_bytes: int | None) -> None:
        """
        Count the batches of a few runs, or all batches.

        Args:
            most_bytes: The bytes to read, about; None for all.

        Raises:
            BrokerError: The leader refuses the request.
            CorruptBatch: A header that no broker sends, or a marker with a wrong CRC.

        """
        try:
            self._read_runs(most_bytes)
        except BrokerError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or self.facts.batches:
                raise
            # Retention was faster: the reading begins at the new start.
            partition, log = self.plan.partition, self.plan.log
            moved = answered(list_offsets(self.cluster, {partition: EARLIEST}))[partition]
            self.facts.runs.clear()
            self.plan = replace(self.plan, log=log._replace(start=min(moved, log.end)))
            self._read_runs(most_bytes)

    def _read_runs(self, most_bytes: int | None) -> None:
        (start, _, end), facts, batches = self.plan.log, self.facts, self.plan.ratio_batches
        if most_bytes is None:
            self._read_run(facts.runs[-1][1] if facts.runs else start, None, batches)
            return
        run_bytes = max(1, most_bytes // _RUNS)
        reached = start
        for number in range(_RUNS - 1):
            place = max(reached, start + (end - start) * number // (_RUNS - 1))
            # The batches to decompress are spread over the runs.
            reached = self._read_run(place, run_bytes, -(-batches * (number + 1) // _RUNS))
        mean = (facts.size + facts.control_size) / facts.spanned if facts.spanned else 1.0
        last = end - max(1, int(run_bytes / max(mean, 1e-9)))
        self._read_run(max(reached, last), run_bytes, batches)

    def _read_run(self, start: int, most_bytes: int | None, ratio_batches: int) -> int:
        """Count the batches from an offset on; return the offset behind the last one."""
        end, facts = self.plan.log.end, self.facts
        if start >= end:
            return start
        facts.begin_run(start)
        size, level = 0, IsolationLevel.READ_UNCOMMITTED
        buffer_bytes = _BUFFER_BYTES if most_bytes is None else max(most_bytes, _LEAST_BUFFER_BYTES)
        found = read_decided(self.cluster, self.plan.partition, start, level, buffer_bytes)
        with closing(found) as batches:
            for _, batch in batches:
                header = batch.header
                if header.begins_at(facts.runs[-1][1]) >= end:
                    facts.end_run(end)
                    break
                facts.see(header, marker_of(batch))
                if self.plan.ratio_batches:
                    _measure(batch, facts, ratio_batches)
                size += header.size
                is_enough = most_bytes is not None and size >= most_bytes
                if header.next_offset >= end or is_enough or self.is_stopped():
                    break
            else:
                # The log has no more records: compaction removed the last offsets.
                facts.end_run(end)
        return facts.runs[-1][1]


def marker_of(batch: RecordBatch) -> int | None:
    """Return the type of a transaction marker; None for any other batch, and for one without its record."""
    header = batch.header
    if header.magic != 2 or not header.is_control or not header.records_count:
        return None
    try:
        return read_marker(batch)
    except CorruptBatch:
        return None


def _measure(batch: RecordBatch, facts: Facts, most: int) -> None:
    """Decompress a batch to count its bytes, unless there were enough; the first of each codec always."""
    header = batch.header
    if header.magic != 2 or header.is_control or not 0 < header.codec_id <= Codec.ZSTD:
        return
    payload, codec = batch.payload, codec_name(header.codec_id)
    if not header.records_count or not len(payload):
        return
    if facts.opened[codec] and facts.opened.total() >= most:
        return
    facts.opened[codec] += 1
    try:
        records = decompress(
            Codec(header.codec_id), payload, _MOST_UNCOMPRESSED_BYTES, base_offset=header.base_offset
        )
    except (CorruptBatch, UnsupportedBatch):
        return  # the header counts all the same; verify is what finds damage
    facts.measure(codec, RatioSample(1, len(payload), len(records)))
