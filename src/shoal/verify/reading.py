"""
One side's log as digests: fetch, verify each batch's CRC, keep a few numbers.

The next fetch is under way while the batches of the last one are checked.
Transient errors are retried. A batch that does not match its CRC is fetched
once more, so that the network is not taken for the disk.

To find the beginning of both sides, a reading stops early, and the comparison goes
on with it (:mod:`.tape`): no part of a log is fetched twice for that.

A batch that has to be decoded is decoded in the buffer, if it came with the last
one that was yielded; else it is fetched again, and those behind it with it.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing

from ..client.backoff import Backoff
from ..client.cluster import Cluster, is_transient, patiently
from ..client.config import IsolationLevel
from ..client.scan import PartitionReader
from ..error_codes import ErrorCode
from ..errors import BrokerError, CorruptBatch, ShoalError, Stopped, UnsupportedBatch
from ..mirroring.model.copy_options import CopyOptions
from ..protocol.fetch import FetchedPartition
from ..records import (
    HEADER_SIZE,
    PACKED_FINGERPRINT,
    AbortedTransactions,
    Decision,
    RecordBatch,
    decide,
    decide_checked,
    fingerprint_plain,
    split,
    verify_crc,
)
from ..topic_partition import TopicPartition
from .buffered import BufferedBatches
from .damage import end_of, ended_by, split_all
from .decoded import Decoded
from .digest import Digest, DigestRun, Digests, digest
from .errors import DamagedLog, NotDecodable
from .report import Side
from .tape import Tape

__all__ = ["LogReader"]

_BASE_OFFSET = struct.Struct(">q")

BUFFER_BYTES = 4 * 1024 * 1024

#: The buffer to fetch a batch again, and the batches behind it.
_AGAIN_BYTES = 1024 * 1024

#: Two readings are kept to go on with: from the log's beginning, and from the place that
#: times suggest. Each has a buffer.
_MOST_TAPES = 2


class LogReader:
    """
    Reads one partition of one cluster, for one thread.

    Attributes:
        side: The side that the cluster is.
        cluster: The cluster, with metadata of the partition.
        partition: The partition to read.
        bytes_read: Record sets so far.

    """

    def __init__(
        self,
        side: Side,
        cluster: Cluster,
        partition: TopicPartition,
        isolation_level: IsolationLevel,
        *,
        patience_s: float,
        stop: threading.Event,
        options: CopyOptions,
    ) -> None:
        """
        Connect when the first batch is wanted.

        Args:
            side: The side that the cluster is.
            cluster: The cluster, with metadata of the partition.
            partition: The partition to read.
            isolation_level: With ``read_committed``, aborted batches are left out.
            patience_s: How long to retry without any progress.
            stop: Ends the reading once it is set.
            options: The limits for decoding a batch.
        """
        self.side = side
        self.cluster = cluster
        self.partition = partition
        self.bytes_read = 0
        self._isolation_level = isolation_level
        self._patience_s = patience_s
        self._stop = stop
        self._options = options
        #: Connections that are kept between two readings.
        self._idle: PartitionReader | None = None
        self._again: PartitionReader | None = None
        self._tapes: list[Tape] = []
        self._buffered = BufferedBatches(memoryview(b""))
        self._fetched_again = BufferedBatches(memoryview(b""))

    @property
    def isolation_level(self) -> IsolationLevel:
        """With ``read_committed``, aborted batches are left out."""
        return self._isolation_level

    def close(self) -> None:
        """Close the connections that are kept between two readings."""
        self.forget()
        for reader in (self._idle, self._again):
            if reader is not None:
                reader.close()
        self._idle = self._again = None

    # Digests

    def digests(self, start_offset: int, end_offset: int, *, crop_at: int = 0) -> Generator[Digest]:
        """Yield the digests of :meth:`runs` one by one."""
        with closing(self.runs(start_offset, end_offset, crop_at=crop_at)) as runs:
            for found in runs:
                if isinstance(found, DigestRun):
                    yield from found.digests()
                else:
                    yield found

    def runs(self, start_offset: int, end_offset: int, *, crop_at: int = 0) -> Generator[Digests]:
        """
        Yield the digests of all batches that a mirror would copy, or would have to rebuild.

        Args:
            start_offset: The first offset; the first batch may begin before it.
            end_offset: The first offset that is not wanted.
            crop_at: The offset at which the comparison begins: records before it do not
                count, though they may be in the same batch.

        Raises:
            BrokerError: ``OFFSET_OUT_OF_RANGE`` if the log begins later by now, or another
                error that lasted too long.
            DamagedLog: A record set cannot be split into batches.
            Disconnected: For too long.
            Stopped: By the event.

        """
        if crop_at != start_offset:
            yield from self._fetched(_Walk(start_offset, end_offset, crop_at))
            return
        tape = next((each for each in self._tapes if each.has(start_offset, end_offset)), None)
        if tape is None:
            tape = Tape(start_offset, end_offset, self._fetched(_Walk(start_offset, end_offset, crop_at)))
            if len(self._tapes) == _MOST_TAPES:
                self._tapes.pop(0).close()
            self._tapes.append(tape)
        reached = yield from tape.play(start_offset)
        if reached < end_offset:
            yield from self._fetched(_Walk(reached, end_offset, reached))

    def forget(self) -> None:
        """Forget the digests that were read: the log has changed, or they are not wanted again."""
        for tape in self._tapes:
            tape.close()
        self._tapes = []

    def _fetched(self, walk: _Walk) -> Generator[Digests]:
        """Yield digests from the cluster; retry transient errors."""
        backoff = Backoff()
        reached, since = walk.offset, time.monotonic()
        while walk.offset < walk.end_offset:
            try:
                yield from self._until_broken(walk)
            except CorruptBatch as error:
                raise DamagedLog(self.side, self.partition, walk.offset, error.reason) from error
            except ShoalError as error:
                if walk.offset > reached:
                    reached, since = walk.offset, time.monotonic()
                    backoff.reset()
                delay_s = backoff.next_delay_s()
                if not is_transient(error) or time.monotonic() + delay_s - since > self._patience_s:
                    raise
                self._pause(delay_s)

    def _pause(self, seconds: float) -> None:
        """Wait before a retry, and find the leader again."""
        if self._stop.wait(seconds):
            raise Stopped
        try:
            self.cluster.refresh([self.partition.topic])
        except ShoalError as error:
            if not is_transient(error):
                raise

    def _until_broken(self, walk: _Walk) -> Iterator[Digests]:
        reader, self._idle = self._idle or self._connect(BUFFER_BYTES), None
        try:
            reader.ask(walk.offset)
            while True:
                self._buffered = BufferedBatches(memoryview(b""))
                fetched = self._receive(reader)
                following = end_of(fetched.record_set, walk.offset)
                if following == walk.offset:
                    where = f"fetching {self.partition} at offset {walk.offset} from {self.cluster}"
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where, "the answer has no batch")
                # Asked for before these are checked: broker and checks work at the same time.
                is_last = following >= walk.end_offset
                if not is_last:
                    reader.ask(following)
                yield from self._walk_through(walk, fetched)
                if is_last:
                    break
        except BaseException:
            reader.close()
            raise
        self._idle = reader

    def _connect(self, buffer_bytes: int) -> PartitionReader:
        return PartitionReader(self.cluster, self.partition, self._isolation_level, buffer_bytes)

    def _receive(self, reader: PartitionReader) -> FetchedPartition:
        if self._stop.is_set():
            raise Stopped
        fetched = reader.receive()
        self.bytes_read += len(fetched.record_set)
        return fetched

    def _walk_through(self, walk: _Walk, fetched: FetchedPartition) -> Iterator[Digests]:
        buffered = BufferedBatches(fetched.record_set)
        for found in self._digests_of(walk, fetched, buffered):
            self._buffered = buffered
            yield found

    def _digests_of(
        self, walk: _Walk, fetched: FetchedPartition, buffered: BufferedBatches
    ) -> Iterator[Digests]:
        """Yield runs of plain batches, and the others one by one."""
        record_set = fetched.record_set
        committed = self._isolation_level is IsolationLevel.READ_COMMITTED
        aborted = AbortedTransactions(fetched.aborted_transactions) if committed else None
        has_aborted = committed and bool(fetched.aborted_transactions)
        position = 0
        while position < len(record_set):
            run = walk.run(record_set, position, transactional=not has_aborted)
            if run is not None:
                position, digests = run
                yield digests
            fetched_batch = next(split_all(record_set[position:]), None)
            if fetched_batch is None:
                return
            position += fetched_batch.header.size
            if fetched_batch.header.base_offset >= walk.end_offset:
                walk.offset = walk.end_offset
                return
            batch, damage = self._checked(fetched_batch)
            if damage:
                batch = ended_by(batch, record_set[position:])
            elif batch is not fetched_batch:
                buffered.mend(batch)
            if damage:
                decision = decide(batch.header, walk.crop_at, aborted)
            else:
                decision = decide_checked(batch, walk.crop_at, aborted, crc_is_checked=False)
            if walk.step(batch, decision, damage):
                yield walk.digest(batch, decision, damage)

    def _checked(self, batch: RecordBatch) -> tuple[RecordBatch, str | None]:
        """Verify a batch's CRC; return the batch, fetched again if need be, and the damage if any."""
        try:
            verify_crc(batch)
        except CorruptBatch as error:
            return self._second_look(batch, error)
        return batch, None

    def _second_look(self, batch: RecordBatch, first: CorruptBatch) -> tuple[RecordBatch, str | None]:
        with closing(self._connect(BUFFER_BYTES)) as reader:
            try:
                reader.ask(batch.header.base_offset)
                again = next(split(self._receive(reader).record_set))
                verify_crc(again)
            except CorruptBatch as error:
                return batch, error.reason
            except (ShoalError, StopIteration):
                return batch, first.reason
        return again, None

    # Records

    def decode(self, batch: Digest) -> Decoded:
        """
        Return the records of a batch that was yielded.

        Raises:
            NotDecodable: The batch is too large, or damaged; the text names it and the reason.
            ShoalError: The batch cannot be fetched any more.

        """
        found = self._buffered.find(batch) or self._fetched_again.find(batch)
        if found is None:
            self._fetched_again = BufferedBatches(memoryview(b""))
            found = patiently(
                lambda: self._fetch_again(batch), patience_s=self._patience_s, pause=self._pause
            )
        try:
            records = self._options.decode(found)
        except (CorruptBatch, UnsupportedBatch) as error:
            raise NotDecodable(f"{self._name(batch)} cannot be decoded: {error.reason}") from error
        if records and records[0].offset < batch.base_offset:
            records = [record for record in records if record.offset >= batch.base_offset]
        # In magic 1, the records themselves have it.
        is_appended = found.header.magic == 2 and found.header.is_log_append_time
        return Decoded(records, found.header.max_timestamp if is_appended else None)

    def _fetch_again(self, batch: Digest) -> RecordBatch:
        """
        Fetch batches from one on, and return that one.

        Raises:
            NotDecodable: The batch is not there any more, or damaged now.

        """
        reader, self._again = self._again or self._connect(_AGAIN_BYTES), None
        try:
            reader.ask(batch.next_offset - 1)
            fetched = self._receive(reader)
        except BaseException:
            reader.close()
            raise
        self._again = reader
        self._fetched_again = BufferedBatches(fetched.record_set, are_checked=False)
        found = self._fetched_again.find(batch)
        if found is None:
            raise NotDecodable(f"{self._name(batch)} has changed since it was read first")
        return found

    def _name(self, batch: Digest) -> str:
        return f"the {self.side.value}'s batch at offset {batch.base_offset}"


class _Walk:
    """
    The position of a reader in a log.

    Attributes:
        offset: The next to fetch.
        end_offset: The first that is not wanted.
        crop_at: Records before it do not count.

    """

    def __init__(self, offset: int, end_offset: int, crop_at: int) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.crop_at = crop_at
        self._start = offset
        self._follows = offset
        self._gap = 0

    def run(
        self, record_set: memoryview, position: int, *, transactional: bool
    ) -> tuple[int, DigestRun] | None:
        """Go on past the plain batches from a position on; return their end there, and the batches."""
        if len(record_set) - position < HEADER_SIZE:
            return None
        (base_offset,) = _BASE_OFFSET.unpack_from(record_set, position)
        if not max(self.offset, self.crop_at) <= base_offset < self.end_offset:
            return None
        end, count, is_telling, rows = fingerprint_plain(
            record_set,
            position,
            first_offset=base_offset,
            end_offset=self.end_offset,
            transactional=transactional,
        )
        if not rows:
            return None
        next_offset = base_offset + count
        gap = self._gap + base_offset - self.offset
        batches = len(rows) // PACKED_FINGERPRINT.size
        found = DigestRun(rows, 0, batches, base_offset, next_offset, self._follows, gap, is_telling)
        self.offset = self._follows = next_offset
        self._gap = 0
        return end, found

    def step(self, batch: RecordBatch, decision: Decision, damage: str | None) -> bool:
        """Go on past a batch; return whether it is to be compared."""
        header = batch.header
        if header.last_offset < self.offset:
            return False
        # A compressed message of magic 0 or 1 has its last offset, not its first.
        if (header.magic == 2 or not header.codec_id) and header.base_offset > self.offset:
            self._gap += header.base_offset - self.offset
        # A compressed one may have any offset inside that is not before it.
        self._start = max(self.offset, self.crop_at)
        self.offset = header.next_offset
        if header.last_offset < self.crop_at:
            return False
        if decision is Decision.DROP_EMPTY and not damage:
            self._gap += header.last_offset_delta + 1
        return not decision.is_drop or damage is not None

    def digest(self, batch: RecordBatch, decision: Decision, damage: str | None) -> Digest:
        """Summarise the batch of the last step."""
        found = digest(
            batch, decision, self._start, follows=self._follows, gap_before=self._gap, damage=damage
        )
        self._follows, self._gap = found.next_offset, 0
        return found
