"""
One side's log as digests: fetch, walk, check each batch's CRC, keep a few numbers.

The next fetch is under way while the batches of the last one are checked. What
time can heal is tried again; a batch that does not match its CRC is fetched
once more, so that the network is not taken for the disk.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Generator, Iterator, Set

from ...client.backoff import Backoff
from ...client.cluster import Cluster, is_transient
from ...client.config import IsolationLevel
from ...client.connection import raise_for
from ...client.fetch import Fetcher, FetchFrom
from ...client.metadata import TopicPartition
from ...errors import BrokerError, CorruptBatch, ErrorCode, ShoalError, Stopped
from ...protocol.fetch import FetchedPartition
from ...records import (
    HEADER_SIZE,
    AbortedTransactions,
    Decision,
    RecordBatch,
    decide,
    read_header,
    split,
    verify_crc,
)
from ...records.batch import LOG_OVERHEAD, MAGIC_OFFSET
from .digest import Digest, digest
from .errors import DamagedLog
from .report import Side

__all__ = ["LogReader"]

_BUFFER_BYTES = 4 * 1024 * 1024
_MAX_WAIT_MS = 200


class LogReader:
    """
    Reads one partition of one cluster, for one thread.

    Attributes:
        side: Whose.
        partition: Which.
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
        recompressed_to: Set[int] = frozenset(),
    ) -> None:
        """
        Args:
            side: Whose.
            cluster: With metadata of the partition.
            partition: Which.
            isolation_level: What counts as aborted, and is left out.
            patience_s: How long to retry without any progress.
            stop: Set by whoever wants no more.
            recompressed_to: Codecs that its brokers write, whatever a producer sends.
        """
        self.side = side
        self.cluster = cluster
        self.partition = partition
        self.bytes_read = 0
        self._isolation_level = isolation_level
        self._patience_s = patience_s
        self._stop = stop
        self._recompressed_to = recompressed_to
        self._idle: Fetcher | None = None

    def digests(self, start_offset: int, end_offset: int, *, mirrored_from: int = 0) -> Generator[Digest]:
        """
        Yield a digest of each batch that a mirror would copy, or would have to rebuild.

        Args:
            start_offset: Where to begin; the first batch may begin before it.
            end_offset: The first offset that is not wanted.
            mirrored_from: Where a mirror began; from a batch that begins
                before it, records would have to be taken out.

        Raises:
            BrokerError: ``OFFSET_OUT_OF_RANGE`` where the log begins later by
                now, or whatever else the leader says for too long.
            DamagedLog: What is fetched cannot be split into batches.
            Disconnected: For too long.
            Stopped: By the event.

        """
        walk = _Walk(start_offset, end_offset, mirrored_from)
        backoff = Backoff()
        reached, since = start_offset, time.monotonic()
        while walk.offset < end_offset:
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
                self._find_leader()

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _find_leader(self) -> None:
        try:
            self.cluster.refresh([self.partition.topic])
        except ShoalError as error:
            if not is_transient(error):
                raise

    def _until_broken(self, walk: _Walk) -> Iterator[Digest]:
        fetcher, self._idle = self._idle or self._fetcher(), None
        try:
            fetcher.send([FetchFrom(self.partition, walk.offset)])
            while True:
                fetched = self._receive(fetcher, walk.offset)
                following = _end_of(fetched.record_set, walk.offset)
                if following == walk.offset:
                    where = (
                        f"fetching {self.partition} at offset {walk.offset} from {self.cluster}: nothing came"
                    )
                    raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, where)
                # Asked for before these are checked, so that nobody waits for the other.
                is_last = following >= walk.end_offset
                if not is_last:
                    fetcher.send([FetchFrom(self.partition, following)])
                yield from self._walk_through(walk, fetched)
                if is_last:
                    break
        except BaseException:
            fetcher.close()
            raise
        self._idle = fetcher

    def close(self) -> None:
        """Close the connection that is kept between two readings."""
        if self._idle is not None:
            self._idle.close()
            self._idle = None

    def _fetcher(self) -> Fetcher:
        return Fetcher(
            self.cluster.connect(self.cluster.partition(self.partition).leader),
            buffer_bytes=_BUFFER_BYTES,
            isolation_level=self._isolation_level,
            max_wait_ms=_MAX_WAIT_MS,
        )

    def _receive(self, fetcher: Fetcher, offset: int) -> FetchedPartition:
        if self._stop.is_set():
            raise Stopped
        (fetched,) = fetcher.receive().partitions
        raise_for(fetched.error_code, f"fetching {self.partition} at offset {offset} from {self.cluster}")
        self.bytes_read += len(fetched.record_set)
        return fetched

    def _nothing_came(self, offset: int) -> BrokerError:
        return BrokerError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"fetching {self.partition} at offset {offset} from {self.cluster}",
        )

    def _walk_through(self, walk: _Walk, fetched: FetchedPartition) -> Iterator[Digest]:
        aborted = (
            AbortedTransactions(fetched.aborted_transactions)
            if self._isolation_level is IsolationLevel.READ_COMMITTED
            else None
        )
        position = 0
        for fetched_batch in _split(fetched.record_set):
            position += fetched_batch.header.size
            if fetched_batch.header.base_offset >= walk.end_offset:
                walk.offset = walk.end_offset
                return
            batch, damage = self._checked(fetched_batch)
            if damage:
                batch = _ended_by(batch, fetched.record_set[position:])
            decision = decide(batch.header, walk.mirrored_from, aborted)
            if decision is Decision.DROP_CONTROL and aborted is not None and not damage:
                aborted.see_marker(batch)
            if walk.step(batch, decision, damage):
                recompressed = batch.header.codec_id in self._recompressed_to
                yield walk.digest(batch, decision, damage, recompressed)

    def _checked(self, batch: RecordBatch) -> tuple[RecordBatch, str | None]:
        """Verify a batch's CRC; return the batch, fetched again if need be, and the damage if any."""
        try:
            verify_crc(batch)
        except CorruptBatch as error:
            return self._second_look(batch, error)
        return batch, None

    def _second_look(self, batch: RecordBatch, first: CorruptBatch) -> tuple[RecordBatch, str | None]:
        fetcher = self._fetcher()
        try:
            fetcher.send([FetchFrom(self.partition, batch.header.base_offset)])
            again = next(split(self._receive(fetcher, batch.header.base_offset).record_set))
            verify_crc(again)
        except CorruptBatch as error:
            return batch, error.reason
        except (ShoalError, StopIteration):
            return batch, first.reason
        finally:
            fetcher.close()
        return again, None


class _Walk:
    """
    Where a reader is in a log.

    Attributes:
        offset: The next to fetch.
        end_offset: The first that is not wanted.
        mirrored_from: Where a mirror began.

    """

    def __init__(self, offset: int, end_offset: int, mirrored_from: int) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.mirrored_from = mirrored_from
        self._follows = offset
        self._gap = 0

    def step(self, batch: RecordBatch, decision: Decision, damage: str | None) -> bool:
        """Go on past a batch; return whether it is to be compared."""
        header = batch.header
        if header.last_offset < self.offset:
            return False
        # A message of magic 0 or 1 says where it ends, not where it begins.
        if header.magic == 2 and header.base_offset > self.offset:
            self._gap += header.base_offset - self.offset
        self.offset = header.next_offset
        if header.last_offset < self.mirrored_from:
            return False
        if decision is Decision.DROP_EMPTY and not damage:
            self._gap += header.last_offset_delta + 1
        return not decision.is_drop or damage is not None

    def digest(
        self, batch: RecordBatch, decision: Decision, damage: str | None, recompressed: bool
    ) -> Digest:
        """Summarise the batch of the last step."""
        found = digest(
            batch,
            decision,
            follows=self._follows,
            gap_before=self._gap,
            damage=damage,
            recompressed=recompressed,
        )
        self._follows, self._gap = found.next_offset, 0
        return found


def _split(record_set: memoryview) -> Iterator[RecordBatch]:
    """
    Yield each whole batch, as :func:`~shoal.records.split` does, and those that it refuses for their count.

    Raises:
        CorruptBatch: Where a length or a magic leads nowhere.

    """
    while True:
        try:
            yield from split(record_set)
            return
        except CorruptBatch as error:
            batch = _damaged_batch(record_set[error.position :])
            if batch is None:
                raise
            yield batch
            record_set = record_set[error.position + batch.header.size :]


def _damaged_batch(data: memoryview) -> RecordBatch | None:
    """Return what ``data`` begins with as a batch, if its length and magic are those of one."""
    if len(data) < HEADER_SIZE or data[MAGIC_OFFSET] != 2:
        return None
    header = read_header(data)
    if header.base_offset < 0 or not HEADER_SIZE <= header.size <= len(data):
        return None
    return RecordBatch(header, data[: header.size])


def _ended_by(batch: RecordBatch, following: memoryview) -> RecordBatch:
    """Let a damaged batch end where the next begins, whatever its header says."""
    header = batch.header
    if len(following) < _OFFSET_AND_LENGTH.size:
        return batch
    delta = _OFFSET_AND_LENGTH.unpack_from(following)[0] - header.base_offset - 1
    return batch._replace(header=header._replace(last_offset_delta=delta)) if delta >= 0 else batch


_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


def _end_of(record_set: memoryview, offset: int) -> int:
    """Return the offset after the last whole batch; ``offset`` where there is none, or nonsense."""
    position, end, found = 0, len(record_set), offset
    while position + MAGIC_OFFSET < end:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(record_set, position)
        is_batch = record_set[position + MAGIC_OFFSET] == 2
        following = position + length + LOG_OVERHEAD
        if following > end or length < (HEADER_SIZE - LOG_OVERHEAD if is_batch else 1):
            break
        delta = (
            _LAST_OFFSET_DELTA.unpack_from(record_set, position + _LAST_OFFSET_DELTA_AT)[0] if is_batch else 0
        )
        offset = max(offset, base_offset + delta + 1)
        position = following
    return max(offset, found)
