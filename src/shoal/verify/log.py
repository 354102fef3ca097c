"""
One side's log, read once: runs of plain batches as rows of bytes, all other batches one by one.

Left out on both sides alike are transaction markers, aborted batches, and batches that the log cleaner
emptied. The next fetch is under way while the batches of the last one are used. Transient errors are retried.
A batch that does not match its CRC is fetched once more, so that the network is not taken for the disk.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ..client.backoff import Backoff
from ..client.cluster import Cluster, is_transient, patiently
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, ask_offsets
from ..client.scan import PartitionReader, may_be_compacted
from ..error_codes import ErrorCode
from ..errors import (
    BeingDownloaded,
    BrokerError,
    CorruptBatch,
    ProtocolError,
    ShoalError,
    Stopped,
    UnsupportedBatch,
)
from ..mirroring.model.copy_options import CopyOptions
from ..protocol.fetch import FetchedPartition
from ..records import (
    HEADER_SIZE,
    PACKED_FINGERPRINT,
    AbortedTransactions,
    CheckedCrcs,
    Decision,
    Record,
    RecordBatch,
    Scan,
    Walked,
    WrongOffset,
    batch_at,
    fingerprint,
    fingerprint_plain,
    read_records_as,
    split,
)
from ..topic_partition import TopicPartition
from .errors import DamagedLog
from .findings import OffsetRange, Side

__all__ = ["BUFFER_BYTES", "ROW_BYTES", "Log", "LogRecord", "Run", "Unreadable"]

ROW_BYTES = PACKED_FINGERPRINT.size

_BASE_OFFSET = struct.Struct(">q")

#: The buffer of a fetch.
BUFFER_BYTES = 4 * 1024 * 1024

#: The most offsets that an unreadable batch stands for: its header may be wrong.
_MOST_UNREADABLE = 1_000_000


class Unreadable(NamedTuple):
    """
    A batch whose records cannot be read.

    Attributes:
        records: The number of its records.
        problem: Why they cannot be read, as a phrase.
        is_damaged: Whether it does not match its CRC.

    """

    records: int
    problem: str
    is_damaged: bool


class LogRecord(Record):
    """
    A record of one side, with what few records have besides: it costs the others nothing.

    The timestamp is its create time. The body is empty if it cannot be read.

    Attributes:
        append_time: That of its batch, if the batch is LogAppendTime; None otherwise.
        gap: The number of offsets before it that no record, marker or aborted batch has.
        unreadable: The batch that it stands for, if this cannot be read.

    """

    append_time: int | None = None
    gap: int = 0
    unreadable: Unreadable | None = None

    @property
    def records(self) -> int:
        """The number of records that it stands for."""
        return 1 if self.unreadable is None else self.unreadable.records


@dataclass(slots=True)
class Run:
    """
    Batches of one side that follow each other.

    Attributes:
        rows: A row of bytes for each batch: two batches with the same row have the same records. Empty for a
            single batch whose bytes a copy cannot have: it is cropped, damaged or of an old format.
        count: The number of batches.
        offset: The offset of the next batch.
        end: The offset behind the last batch.
        gap: The number of offsets before the first batch that no record, marker or aborted batch has.
        data: The bytes of the record set; valid until the next run is read.
        position: The position of the next batch in them.
        batch: The only batch, if it is not a plain one.
        damage: Why it does not match its CRC.
        at: The number of batches that were taken.

    """

    rows: bytes
    count: int
    offset: int
    end: int
    gap: int
    data: memoryview
    position: int = 0
    batch: RecordBatch | None = None
    damage: str | None = None
    at: int = 0

    def take(self, count: int) -> int:
        """Step over some batches; return how many records they have."""
        self.at += count
        if self.batch is not None:
            self.offset = self.end
            return self.batch.header.records_count
        # The words of a row: CRC, size, number of records, codec, and the time in two.
        words = memoryview(self.rows).cast("I")[(self.at - count) * 6 : self.at * 6]
        records = sum(words[2::6])
        self.position += sum(words[1::6])
        self.offset += records
        return records

    def next_batch(self) -> RecordBatch:
        """Return the next batch with its bytes."""
        return self.batch or next(split(self.data[self.position :]))


@dataclass(slots=True)
class Log:
    """
    Reads one partition of one cluster, for one thread.

    Attributes:
        side: The side that the cluster is.
        cluster: The cluster, with metadata of the partition.
        partition: The partition to read.
        isolation_level: With ``read_committed``, aborted batches are left out.
        offsets: Its offsets, from the log start to the end of the comparison.
        patience_s: How long to retry without any progress.
        stop: Ends the reading once it is set.
        options: The limits for decoding a batch.
        bytes_read: The number of bytes of record sets so far.
        damage: The damage at which :meth:`records` ended, if it has.

    """

    side: Side
    cluster: Cluster
    partition: TopicPartition
    isolation_level: IsolationLevel
    offsets: OffsetRange
    patience_s: float
    stop: threading.Event
    options: CopyOptions
    bytes_read: int = 0
    damage: DamagedLog | None = None

    def first_at(self, timestamp: int) -> int | None:
        """
        Return the first offset of a time or a later one, as the broker finds it; None if it finds none.

        Raises:
            ShoalError: The broker refuses, or does not answer.

        """
        found = ask_offsets(self.cluster, [self.partition], timestamp, self.patience_s)[self.partition]
        if isinstance(found, ShoalError):
            raise found
        return found if found >= 0 else None

    def held(self) -> OffsetRange:
        """Return the offsets behind the end that an open transaction may hold back from readers."""
        end = ask_offsets(self.cluster, [self.partition], LATEST, self.patience_s)[self.partition]
        return OffsetRange(self.offsets.end, max(self.offsets.end, end if isinstance(end, int) else 0))

    def may_be_compacted(self) -> bool:
        """Return whether the topic has the policy ``compact``, or does not show its policy."""
        ask = partial(may_be_compacted, self.cluster, self.partition.topic)
        try:
            return patiently(ask, patience_s=self.patience_s)
        except ProtocolError:  # a broker before 0.11
            return True

    # Runs

    def runs(self, start: int, end: int) -> Generator[Run]:
        """
        Yield all batches that have a record to compare, in order.

        Args:
            start: The first offset. Records before it do not count, though they may be in the same batch.
            end: The first offset that is not wanted.

        Raises:
            BrokerError: ``OFFSET_OUT_OF_RANGE`` if the log begins later by now, or another error that lasted
                too long.
            DamagedLog: A record set cannot be split into batches.
            Disconnected: For too long.
            Stopped: By the event.

        """
        walk = _Walk(start, end)
        backoff = Backoff()
        reached, since = walk.offset, time.monotonic()
        while walk.offset < end:
            try:
                yield from self._until_broken(walk)
            except CorruptBatch as error:
                raise DamagedLog(self.side, self.partition, walk.offset, error.reason) from error
            except ShoalError as error:
                if walk.offset > reached:
                    reached, since = walk.offset, time.monotonic()
                    backoff.reset()
                delay_s = backoff.next_delay_s()
                if not is_transient(error) or time.monotonic() + delay_s - since > self.patience_s:
                    raise
                self._pause(delay_s)

    def _pause(self, seconds: float) -> None:
        """Wait before a retry, and find the leader again."""
        if self.stop.wait(seconds):
            raise Stopped
        try:
            self.cluster.refresh([self.partition.topic])
        except ShoalError as error:
            if not is_transient(error):
                raise

    def _until_broken(self, walk: _Walk) -> Iterator[Run]:
        reader = PartitionReader(self.cluster, self.partition, self.isolation_level, BUFFER_BYTES)
        with closing(reader):
            reader.ask(walk.offset)
            while walk.offset < walk.end:
                if self.stop.is_set():
                    raise Stopped
                offset, suspect, gap, runs = walk.offset, walk.suspect, walk.gap, list[Run]()
                try:
                    fetched = reader.receive()
                except BeingDownloaded:  # an archive answers so after its wait
                    reader.ask(walk.offset)
                    continue
                self.bytes_read += len(fetched.record_set)
                try:
                    runs.extend(self._runs_of(walk, fetched))
                except CorruptBatch as error:
                    if isinstance(error, WrongOffset) and suspect != offset:
                        # All of the answer is fetched once more: nothing shows where its records belong.
                        walk.offset, walk.suspect, walk.gap = offset, offset, gap
                        reader.ask(walk.offset)
                        continue
                    yield from runs
                    raise
                if (offset, suspect) == (walk.offset, walk.suspect):
                    where = f"fetching {self.partition} at offset {walk.offset} from {self.cluster}"
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "the answer has no batch")
                if walk.offset < walk.end:
                    # Asked for before these are used: broker and comparison work at the same time.
                    reader.ask(walk.offset)
                yield from runs

    def _runs_of(self, walk: _Walk, fetched: FetchedPartition) -> Iterator[Run]:
        """Yield runs of plain batches, and the others one by one."""
        data = fetched.record_set
        is_committed = self.isolation_level is IsolationLevel.READ_COMMITTED
        scan = Scan(
            data,
            walk.offset,
            AbortedTransactions(fetched.aborted_transactions) if is_committed else None,
            end_offset=walk.end,
            log_end=fetched.high_watermark,
            crcs=CheckedCrcs.ALL,
            plain=partial(walk.plain_run, data),
        )
        while True:
            try:
                for decision, found in scan:
                    run = walk.single(found, decision) if isinstance(found, RecordBatch) else found
                    if run is not None:
                        yield run
                break
            except WrongOffset:
                raise
            except CorruptBatch as error:
                batch = batch_at(data, scan.position)
                if batch is None or walk.suspect != walk.offset:
                    # Fetched once more, to rule out the network.
                    walk.suspect = walk.offset
                    return
                batch = _ended_by(batch, data[scan.position + batch.header.size :])
                scan.go_past(batch)
                run = walk.single(batch, Decision.CROP, error.reason)
                if run is not None:
                    yield run
        if scan.is_over:
            walk.offset = walk.end

    # Records

    def decoded(self, run: Run, gap: int, end: int) -> list[LogRecord]:
        """
        Return the records of the next batch of a run.

        Args:
            run: The run.
            gap: The number of offsets before the batch without a record.
            end: The first offset that is not wanted.

        """
        batch, begin = run.next_batch(), run.offset
        header = batch.header
        try:
            if run.damage:
                raise CorruptBatch(run.damage, header.base_offset)
            found = read_records_as(LogRecord, batch, self.options.max_decompressed_bytes)
        except (CorruptBatch, UnsupportedBatch) as error:
            what = "is damaged" if run.damage else "cannot be decoded"
            problem = f"the {self.side.value}'s batch at offset {begin} {what}: {error.reason}"
            count = max(1, min(header.records_count, header.next_offset - begin, _MOST_UNREADABLE))
            wall = LogRecord(begin, -1, b"")
            wall.gap, wall.unreadable = gap, Unreadable(count, problem, bool(run.damage))
            return [wall]
        if run.batch:
            found = [each for each in found if begin <= each.offset < end]
        for each in found if header.append_time is not None else ():
            each.append_time = header.append_time
        behind = begin - gap
        for each in found if run.batch or gap else ():  # all batches but the plain ones may have holes
            if each.offset > behind:
                each.gap = each.offset - behind
            behind = each.offset + 1
        return found

    def records(self, start: int, end: int) -> Generator[LogRecord]:
        """Yield the records of a part of the log, without its gaps, up to the first that cannot be read."""
        with closing(self.runs(start, end)) as runs:
            try:
                for run in runs:
                    while run.at < run.count:
                        found = self.decoded(run, 0, end)
                        run.take(1)
                        yield from found
            except DamagedLog as error:
                self.damage = error  # the comparison itself reports it, if it gets there


def _ended_by(batch: RecordBatch, following: memoryview) -> RecordBatch:
    """Let a damaged batch end at the offset of the next one: its header may be wrong."""
    if len(following) < _BASE_OFFSET.size:
        return batch
    delta = _BASE_OFFSET.unpack_from(following)[0] - batch.header.base_offset - 1
    return batch._replace(header=batch.header._replace(last_offset_delta=delta)) if delta >= 0 else batch


class _Walk:
    """
    The position of a reader in a log.

    Attributes:
        start: Records before it do not count.
        end: The first offset that is not wanted.
        offset: The next offset to fetch.
        suspect: The offset at which a batch did not match its CRC, or an answer contradicts itself; it is
            fetched once more.
        gap: The number of offsets before it without a record, since the last run.

    """

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.offset = start
        self.suspect = -1
        self.gap = 0

    def plain_run(
        self, data: memoryview, position: int, end_offset: int, transactional: bool
    ) -> Walked[Run] | None:
        """Go on past the plain batches from a position on, and return them; None if there is none."""
        if len(data) - position < HEADER_SIZE:
            return None
        (base_offset,) = _BASE_OFFSET.unpack_from(data, position)
        if not max(self.offset, self.start) <= base_offset < end_offset:
            return None
        rows = fingerprint_plain(
            data, position, first_offset=base_offset, end_offset=end_offset, transactional=transactional
        )
        words = memoryview(rows).cast("I")
        end = base_offset + sum(words[2::6])
        if end > self.end:
            # The last batch ends behind the end: it is decoded.
            rows, last = rows[:-ROW_BYTES], rows[-ROW_BYTES:]
            end -= PACKED_FINGERPRINT.unpack(last)[2]
        if not rows:
            return None
        gap = self.gap + base_offset - self.offset
        self.offset, self.gap = end, 0
        count = len(rows) // ROW_BYTES
        run = Run(rows, count, base_offset, end, gap, data, position)
        return Walked(run, position + sum(words[1 : count * 6 : 6]), end)

    def single(self, batch: RecordBatch, decision: Decision, damage: str | None = None) -> Run | None:
        """Go on past a batch; return it if it has records to compare."""
        header = batch.header
        if header.last_offset < self.offset:
            return None
        begin = max(self.offset, header.begins_at(self.offset))
        self.gap += begin - self.offset
        self.offset = header.next_offset
        if header.last_offset < self.start:
            return None
        if decision is Decision.DROP_EMPTY:
            self.gap += header.last_offset_delta + 1
        if decision.is_drop:
            return None
        is_whole = header.magic == 2 and decision is not Decision.CROP
        rows = fingerprint(batch) if is_whole else b""
        gap, self.gap = self.gap, 0
        end = min(header.next_offset, max(self.end, begin + 1))
        return Run(rows, 1, begin, end, gap, batch.view, 0, batch, damage)
