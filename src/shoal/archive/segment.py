"""
A segment: batches as they were fetched, first on the local disk, then three files of the archive.

``.log`` is Kafka's own format: the batches one after the other. ``.txnindex`` is there if a transaction was
aborted in it. ``.json`` describes both, with their digests, and is written last: without it the others do not
count.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import accumulate
from pathlib import Path

import xxhash

from ..errors import CorruptBatch, StorageFailed
from ..records import (
    NO_END,
    PACKED_FINGERPRINT,
    CheckedCrcs,
    RecordBatch,
    Scan,
    Walked,
    fingerprint_plain,
    read_header,
    split,
)
from ..records.batch import MAX_TIMESTAMP_OFFSET
from ..records.legacy import read_timestamp
from . import description
from .aborted import OpenAborted
from .files import Store, read_whole, spare_cache, storage_failed
from .names import ObjectName

__all__ = ["OpenSegment", "SegmentFacts", "SegmentLost", "digest_of"]

_LARGEST_OFFSET = 2**63 - 1
_MAX_TIMESTAMP = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """
    The description of a segment: its ``.json``.

    Attributes:
        next_offset: The offset behind its last batch.
        follows: The offset up to which the archive had the partition before. It is less than the base offset
            if the source had deleted the records in between.
        batches: The number of batches.
        records: The number of records, control records included.
        log_bytes: The size of ``.log``.
        log_digest: The XXH3-128 of ``.log``, in hexadecimal digits.
        index_bytes: The size of ``.txnindex``; 0 if there is none.
        index_digest: Its XXH3-128.
        least_ms: The least base timestamp of its batches, in milliseconds since 1970; -1 if none has any.
        newest_ms: The newest timestamp of its batches; -1 if none has any.
        leader_epoch: The source's leader epoch of its last batch.
        aborted_later: ``[producer id, first offset]`` of aborted transactions whose marker is not in it.
        written_ms: The time at which it was written.

    """

    next_offset: int
    follows: int
    batches: int
    records: int
    log_bytes: int
    log_digest: str
    index_bytes: int
    index_digest: str
    least_ms: int
    newest_ms: int
    leader_epoch: int
    aborted_later: tuple[tuple[int, int], ...]
    written_ms: int

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) is int and not -1 <= value <= _LARGEST_OFFSET:
                raise ValueError(f"{each.name} {value} is out of range")


def digest_of(data: bytes) -> str:
    """Return the digest of an object."""
    return xxhash.xxh3_128(data).hexdigest()


class SegmentLost(StorageFailed):
    """Something else has deleted or cut a segment's local file: its batches have to be fetched again."""


class OpenSegment:
    """
    Batches of one partition that are on the local disk, and not archived yet.

    Attributes:
        next_offset: The offset behind its last batch.
        size: The bytes of its batches.
        began_at: The time of its first batch, on the monotonic clock.
        batches: The number of batches.
        records: The number of records.
        is_closed: Whether its file may have its name in the archive, so that it takes no batches any more.

    """

    def __init__(self, file: Path, offset: int, aborted: OpenAborted, *, follows: int) -> None:
        """
        Begin without batches.

        Args:
            file: The file for the batches, which does not exist.
            offset: The offset of the partition from which batches come.
            aborted: The partition's aborted transactions.
            follows: The offset up to which the archive has the partition.

        """
        self._file = file
        self._aborted = aborted
        self._follows = follows
        self._base_offset = self.next_offset = offset
        self._index = bytearray()
        self._digest = xxhash.xxh3_128()
        self.size = self.batches = self.records = 0
        self._least_ms = self._newest_ms = self._leader_epoch = -1
        self.began_at = time.monotonic()
        self.is_closed = False
        #: The name of the ``.log`` that the archive has, and its description.
        self._published: tuple[ObjectName, SegmentFacts] | None = None

    def take(self, record_set: memoryview, log_end: int = NO_END) -> int:
        """
        Add the whole batches of a record set that end behind :attr:`next_offset`; return their bytes.

        Args:
            record_set: The batches.
            log_end: The high watermark of the response.

        Raises:
            CorruptBatch: A batch is damaged, or is not behind the one before it. All before it are added.
            StorageFailed: The local disk does not take them, and the segment is of no use.

        """
        wanted = record_set[_behind(record_set, self.next_offset) :]
        plain = partial(self._take_plain, wanted)
        scan = Scan(wanted, self.next_offset, None, log_end=log_end, crcs=CheckedCrcs.ALL, plain=plain)
        try:
            for _, batch in scan:
                if batch is not None:
                    self._take_one(batch)
            return scan.position
        finally:
            if scan.position:
                self._append(wanted[: scan.position])

    def _take_plain(
        self, record_set: memoryview, position: int, end_offset: int, transactional: bool
    ) -> Walked[None] | None:
        """Count plain batches whose CRCs are right, from a position on."""
        first_offset = self.next_offset
        rows = fingerprint_plain(
            record_set,
            position,
            first_offset=first_offset,
            end_offset=end_offset,
            transactional=transactional,
        )
        if not rows:
            return None
        # Whole columns, since a loop over the batches would take longer than their checksums.
        _, sizes, counts, _, base_times_ms = zip(*PACKED_FINGERPRINT.iter_unpack(rows), strict=True)
        positions = list(accumulate(sizes, initial=position))
        last = positions[-2]
        newest_ms = _MAX_TIMESTAMP.unpack_from
        self._see_times(
            min(base_times_ms),
            max(newest_ms(record_set, at + MAX_TIMESTAMP_OFFSET)[0] for at in positions[:-1]),
        )
        self.batches += len(sizes)
        self.records += sum(counts)
        self.next_offset = first_offset + sum(counts)
        self._leader_epoch = read_header(record_set, last).leader_epoch
        return Walked(None, int(positions[-1]), self.next_offset)

    def _take_one(self, batch: RecordBatch) -> None:
        """Count one batch of any kind."""
        header = batch.header
        is_modern = header.magic == 2
        if self.batches and is_modern and header.base_offset < self.next_offset:
            raise CorruptBatch(
                f"a batch from {header.base_offset} on follows one that ends at {self.next_offset}",
                header.base_offset,
            )
        entry = self._aborted.see(batch)
        if entry is not None:
            self._index += entry.encode()
        if not self.batches and is_modern:
            self._base_offset = header.base_offset
        self.batches += 1
        self.records += header.records_count
        self.next_offset = header.next_offset
        self._leader_epoch = header.leader_epoch
        if is_modern:
            self._see_times(header.base_timestamp, header.max_timestamp)
        else:
            self._see_times(*[read_timestamp(batch)] * 2)

    def _see_times(self, base_ms: int, newest_ms: int) -> None:
        if newest_ms >= 0:
            self._newest_ms = max(self._newest_ms, newest_ms)
            least_ms = min(base_ms, newest_ms)
            self._least_ms = least_ms if self._least_ms < 0 else min(self._least_ms, least_ms)

    def _append(self, view: memoryview) -> None:
        try:
            # Opened for each: a task of a thousand partitions has no thousand open files.
            with self._file.open("ab", buffering=0) as file:
                left = view
                while left:
                    left = left[file.write(left) :]
                spare_cache(file.fileno(), self.size, self.size + len(view))
        except OSError as error:
            raise storage_failed(f"the local disk ({self._file.parent})", error) from error
        self._digest.update(view)
        self.size += len(view)

    def pass_over(self, offset: int) -> None:
        """Let the segment end at a later offset: the source has no batch before it."""
        self.next_offset = max(self.next_offset, offset)

    def publish(
        self, store: Store, directory: str, generation: int, may_count: Callable[[], object]
    ) -> tuple[ObjectName, SegmentFacts]:
        """
        Write the segment's files; this closes it, and may be tried again.

        A later attempt continues behind the files that were written: a store that takes no small file for an
        hour, such as a full disk, does not get another ``.log`` at each attempt.

        Args:
            directory: The path of the partition.
            generation: That of the new object.
            may_count: Called before the last file is written; raises if the segment may not count.

        Raises:
            SegmentLost: The local file lacks batches, and the segment is of no use.
            ShoalError: The store does not take them, or ``may_count`` raises.

        """
        self.is_closed = True
        is_again = self._published is not None
        if self._published is None:
            # Random: whatever an earlier attempt has left, or still sends, has another name.
            name = ObjectName(self._base_offset, generation, secrets.randbelow(2**31))
            try:
                self._check_file()
                store.write(f"{directory}/{name}.log", self._file)
            except FileNotFoundError as error:
                self._check_file()
                raise storage_failed(f"{store.url}/{directory}", error) from error
            self._published = name, self._facts()
        name, facts = self._published
        if self._index:
            _write_small(store, f"{directory}/{name}.txnindex", bytes(self._index), is_again=is_again)
        may_count()
        _write_small(store, f"{directory}/{name}.json", description.encode(facts), is_again=is_again)
        return name, facts

    def _check_file(self) -> None:
        """Compare the local file's size with what was written: later batches make a deleted one again."""
        found = self._file.stat().st_size if self._file.is_file() else 0
        if found != self.size:
            reason = (
                f"it has {found:,} bytes, but {self.size:,} were written: something else deleted or cut it. "
                "Its batches are fetched again. Let nothing clean the directory while a mirror runs"
            )
            raise SegmentLost(str(self._file), reason)

    def _facts(self) -> SegmentFacts:
        index = bytes(self._index)
        return SegmentFacts(
            next_offset=self.next_offset,
            follows=self._follows,
            batches=self.batches,
            records=self.records,
            log_bytes=self.size,
            log_digest=self._digest.hexdigest(),
            index_bytes=len(index),
            index_digest=digest_of(index) if index else "",
            least_ms=self._least_ms,
            newest_ms=self._newest_ms,
            leader_epoch=self._leader_epoch,
            aborted_later=tuple(self._aborted.before(self.next_offset)),
            written_ms=description.now_ms(),
        )

    def drop(self) -> None:
        """Delete the local file, unless its disk takes nothing any more: its name is not used again."""
        with suppress(OSError):
            self._file.unlink()


def _write_small(store: Store, path: str, data: bytes, *, is_again: bool) -> None:
    """Write a file; an earlier attempt may have done it although its answer was lost."""
    if is_again:
        with suppress(FileNotFoundError), closing(store.open(path)) as file:
            if read_whole(file) == data:
                return
    store.write(path, data)


def _behind(record_set: memoryview, offset: int) -> int:
    """Return the position of the first batch that ends behind an offset: a source may send earlier ones."""
    position = 0
    for batch in split(record_set):
        if batch.header.last_offset >= offset:
            break
        position += len(batch.view)
    return position
