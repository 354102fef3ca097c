"""
One side's log as digests: fetch, walk, check each batch's CRC, keep a few numbers.

The next fetch is under way while the batches of the last one are checked. What
time can heal is tried again; a batch that does not match its CRC is fetched
once more, so that the network is not taken for the disk.

A batch that has to be decoded is decoded where it was received, if it is the
last one that was handed out; else it is fetched again, and those behind it
with it.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress

from ..client.backoff import Backoff
from ..client.cluster import Cluster, is_transient
from ..client.config import IsolationLevel
from ..client.fetch import Fetcher, FetchFrom
from ..error_codes import ErrorCode
from ..errors import (
    BrokerError,
    CorruptBatch,
    ProtocolError,
    ShoalError,
    Stopped,
    UnsupportedBatch,
    raise_for,
)
from ..protocol.fetch import FetchedPartition
from ..records import (
    HEADER_SIZE,
    AbortedTransactions,
    Decision,
    RecordBatch,
    decide,
    read_header,
    read_records,
    split,
    verify_crc,
)
from ..records.batch import LOG_OVERHEAD, MAGIC_OFFSET
from ..topic_partition import TopicPartition
from .digest import Digest, digest
from .errors import DamagedLog, NotDecodable
from .report import Side
from .side import Decoded

__all__ = ["LogReader"]

_BUFFER_BYTES = 4 * 1024 * 1024
_MAX_WAIT_MS = 200

#: What is fetched again: a batch, and what lies behind it.
_AGAIN_BYTES = 1024 * 1024


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
        max_decompressed_bytes: int,
    ) -> None:
        """
        Args:
            side: Whose.
            cluster: With metadata of the partition.
            partition: Which.
            isolation_level: What counts as aborted, and is left out.
            patience_s: How long to retry without any progress.
            stop: Set by whoever wants no more.
            max_decompressed_bytes: The most that a batch may expand to.
        """
        self.side = side
        self.cluster = cluster
        self.partition = partition
        self.bytes_read = 0
        self._isolation_level = isolation_level
        self._patience_s = patience_s
        self._stop = stop
        self._max_decompressed_bytes = max_decompressed_bytes
        self._idle: Fetcher | None = None
        self._again: Fetcher | None = None
        #: Batches in a buffer: the last that was handed out, and what was fetched again.
        self._current: RecordBatch | None = None
        self._fetched_again: dict[int, RecordBatch] = {}

    def digests(self, start_offset: int, end_offset: int, *, crop_at: int = 0) -> Generator[Digest]:
        """
        Yield a digest of each batch that a mirror would copy, or would have to rebuild.

        Args:
            start_offset: Where to begin; the first batch may begin before it.
            end_offset: The first offset that is not wanted.
            crop_at: Where the comparison begins; records before it do not
                count, though they may be in the same batch.

        Raises:
            BrokerError: ``OFFSET_OUT_OF_RANGE`` where the log begins later by
                now, or whatever else the leader says for too long.
            DamagedLog: What is fetched cannot be split into batches.
            Disconnected: For too long.
            Stopped: By the event.

        """
        walk = _Walk(start_offset, end_offset, crop_at)
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
            self._ask(fetcher, walk.offset)
            while True:
                self._current = None
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
                    self._ask(fetcher, following)
                yield from self._walk_through(walk, fetched)
                if is_last:
                    break
        except BaseException:
            fetcher.close()
            raise
        self._idle = fetcher

    def close(self) -> None:
        """Close the connections that are kept between two readings."""
        for fetcher in (self._idle, self._again):
            if fetcher is not None:
                fetcher.close()
        self._idle = self._again = None

    def decode(self, batch: Digest) -> Decoded:
        """
        Return the records of a batch that was handed out.

        Raises:
            NotDecodable: It is too large, or damaged; says which and why.
            ShoalError: It cannot be fetched any more.

        """
        found = self._current
        if found is None or not _is(found, batch):
            found = self._fetch_again(batch)
        try:
            records = read_records(found, self._max_decompressed_bytes)
        except (CorruptBatch, UnsupportedBatch) as error:
            raise NotDecodable(f"{self._name(batch)} cannot be decoded: {error.reason}") from error
        if records and records[0].offset < batch.base_offset:
            records = [record for record in records if record.offset >= batch.base_offset]
        # Of magic 1, the records themselves have it.
        is_appended = found.header.magic == 2 and found.header.is_log_append_time
        return Decoded(records, found.header.max_timestamp if is_appended else None)

    def _fetch_again(self, batch: Digest) -> RecordBatch:
        backoff, since = Backoff(), time.monotonic()
        while True:
            found = self._fetched_again.get(batch.next_offset)
            if found is not None and _is(found, batch):
                return found
            try:
                self._fetched_again = self._fetch_batches(batch)
            except ShoalError as error:
                delay_s = backoff.next_delay_s()
                if not is_transient(error) or time.monotonic() + delay_s - since > self._patience_s:
                    raise
                self._pause(delay_s)
                self._find_leader()

    def _fetch_batches(self, batch: Digest) -> dict[int, RecordBatch]:
        """
        Fetch batches from one on; return them by the offset after each.

        Raises:
            NotDecodable: It is not there any more, or it is damaged now.

        """
        self._fetched_again = {}
        fetcher, self._again = self._again or self._fetcher(_AGAIN_BYTES), None
        try:
            self._ask(fetcher, batch.next_offset - 1)
            fetched = self._receive(fetcher, batch.base_offset)
        except BaseException:
            fetcher.close()
            raise
        self._again = fetcher
        sound: dict[int, RecordBatch] = {}
        with suppress(CorruptBatch):
            for found in split(fetched.record_set):
                verify_crc(found)
                sound[found.header.next_offset] = found
        if batch.next_offset not in sound or not _is(sound[batch.next_offset], batch):
            raise NotDecodable(f"{self._name(batch)} is not what it was when it was read first")
        return sound

    def _name(self, batch: Digest) -> str:
        return f"the {self.side.value}'s batch at offset {batch.base_offset}"

    def _fetcher(self, buffer_bytes: int | None = None) -> Fetcher:
        return Fetcher(
            self.cluster.connect(self.cluster.partition(self.partition).leader),
            buffer_bytes=buffer_bytes or _BUFFER_BYTES,
            isolation_level=self._isolation_level,
            max_wait_ms=_MAX_WAIT_MS,
            in_session=False,
        )

    def _ask(self, fetcher: Fetcher, offset: int) -> None:
        topic_id = self.cluster.topic_id(self.partition.topic)
        fetcher.ask(FetchFrom(self.partition, offset, topic_id=topic_id))
        fetcher.send()

    def _receive(self, fetcher: Fetcher, offset: int) -> FetchedPartition:
        if self._stop.is_set():
            raise Stopped
        where = f"fetching {self.partition} at offset {offset} from {self.cluster}"
        partitions = fetcher.receive().partitions
        if len(partitions) != 1:
            raise ProtocolError(f"{where}: an answer for {len(partitions)} partitions")
        fetched = partitions[0]
        raise_for(fetched.error_code, where)
        self.bytes_read += len(fetched.record_set)
        return fetched

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
            decision = decide(batch.header, walk.crop_at, aborted)
            if decision is Decision.DROP_CONTROL and aborted is not None and not damage:
                aborted.see_marker(batch)
            if walk.step(batch, decision, damage):
                self._current = batch
                yield walk.digest(batch, decision, damage)

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
            self._ask(fetcher, batch.header.base_offset)
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
        crop_at: Records before it do not count.

    """

    def __init__(self, offset: int, end_offset: int, crop_at: int) -> None:
        self.offset = offset
        self.end_offset = end_offset
        self.crop_at = crop_at
        self._start = offset
        self._follows = offset
        self._gap = 0

    def step(self, batch: RecordBatch, decision: Decision, damage: str | None) -> bool:
        """Go on past a batch; return whether it is to be compared."""
        header = batch.header
        if header.last_offset < self.offset:
            return False
        # A compressed message of magic 0 or 1 says where it ends, not where it begins.
        if (header.magic == 2 or not header.codec_id) and header.base_offset > self.offset:
            self._gap += header.base_offset - self.offset
        # Of a compressed one, all that is not before it may be inside.
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


def _is(batch: RecordBatch, wanted: Digest) -> bool:
    """Whether a batch is the one that was summarised."""
    return batch.header.next_offset == wanted.next_offset and batch.header.codec_id == wanted.codec_id


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
