"""
The records around a difference, on both sides, for the page.

Keys, values and headers are hidden unless the user wants them. Then a record has their sizes, and a keyed
hash. The key is random and is thrown away: equal contents have equal hashes within one report. No
list of likely values can be tried against them.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..errors import CorruptBatch, ShoalError
from ..mirroring.model.copy_options import CopyOptions
from ..records import Record, read_key_value_headers
from ..topic_partition import TopicPartition
from .errors import NotDecodable
from .logs import ask_logs
from .reading import LogReader
from .report import OffsetRange, PartitionReport, Side
from .shown_records import RecordWindow, ShownContent, ShownRecord

__all__ = ["WindowReader"]

#: The number of differences of a partition with a window, and of all partitions together.
_MOST_OF_PARTITION, _MOST_WINDOWS = 10, 200

#: The records before a difference, of it, and behind it.
_BEFORE, _INSIDE, _BEHIND = 3, 6, 3

#: Where to begin to look for the records before a difference: there may be gaps.
_OFFSETS_BEFORE = 64

#: The most characters of a key or value that are shown.
_MOST_TEXT = 200


@dataclass(slots=True)
class _Log:
    reader: LogReader
    offsets: OffsetRange


class WindowReader:
    """Reads the records around the differences of a report."""

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        *,
        options: CopyOptions,
        patience_s: float,
        show_values: bool,
    ) -> None:
        """
        Prepare to read, by clusters that belong to this thread.

        Args:
            source: The source cluster.
            destination: The destination cluster.
            options: The limits for decoding a batch.
            patience_s: How long to retry transient errors.
            show_values: Whether windows have keys, values and headers.
        """
        self._clusters = {Side.SOURCE: source, Side.DESTINATION: destination}
        self._options = options
        self._patience_s = patience_s
        self._show_values = show_values
        self._key = secrets.token_bytes(32)
        self._left = _MOST_WINDOWS

    def with_windows(self, report: PartitionReport) -> PartitionReport:
        """Return a report with the windows of its first differences; without them if they cannot be read."""
        wanted = report.differences[: min(_MOST_OF_PARTITION, self._left)]
        if not wanted:
            return report
        self._left -= len(wanted)
        sides: list[list[tuple[ShownRecord, ...]]] = []
        for side, partition in ((Side.SOURCE, report.source), (Side.DESTINATION, report.destination)):
            ranges = [each.source if side is Side.SOURCE else each.destination for each in wanted]
            sides.append(self._windows(side, partition, ranges))
        windows = tuple(
            RecordWindow(index, ours, theirs) for index, (ours, theirs) in enumerate(zip(*sides, strict=True))
        )
        return replace(report, windows=windows)

    def _windows(
        self, side: Side, partition: TopicPartition, ranges: Iterable[OffsetRange]
    ) -> list[tuple[ShownRecord, ...]]:
        cluster = self._clusters[side]
        try:
            cluster.refresh([partition.topic])
            # The comparison has read all of these records, so the end for its reader bounds them.
            committed = IsolationLevel.READ_COMMITTED
            level = cluster.config.isolation_level if side is Side.SOURCE else committed
            offsets = ask_logs(cluster, [partition], level, self._patience_s)[partition]
        except ShoalError as error:
            offsets = error
        if isinstance(offsets, ShoalError):
            return [() for _ in ranges]
        reader = LogReader(
            side,
            cluster,
            partition,
            level,
            patience_s=self._patience_s,
            stop=threading.Event(),
            options=self._options,
        )
        with closing(reader):
            return [self._window(_Log(reader, offsets), each) for each in ranges]

    def _window(self, log: _Log, around: OffsetRange) -> tuple[ShownRecord, ...]:
        before: deque[ShownRecord] = deque(maxlen=_BEFORE)
        inside: list[ShownRecord] = []
        behind: list[ShownRecord] = []
        try:
            for each in self._records(log, around.start - _OFFSETS_BEFORE):
                if each.offset < around.start:
                    before.append(each)
                elif each.offset < around.end and len(inside) < _INSIDE:
                    inside.append(replace(each, differs=True))
                else:
                    break
            for each in self._records(log, around.end):
                behind.append(each)
                if len(behind) == _BEHIND:
                    break
        except ShoalError:
            pass  # as many as there are
        return *before, *inside, *behind

    def _records(self, log: _Log, start: int) -> Iterator[ShownRecord]:
        start = max(start, log.offsets.start)
        if start >= log.offsets.end:
            return
        with closing(log.reader.digests(start, log.offsets.end, crop_at=start)) as batches:
            for batch in batches:
                try:
                    if batch.damage:
                        raise NotDecodable(batch.damage)
                    records = log.reader.decode(batch).records
                except NotDecodable as error:
                    yield ShownRecord(batch.base_offset, None, None, None, None, False, str(error))
                    continue
                yield from map(self._shown, records)

    def _shown(self, record: Record) -> ShownRecord:
        try:
            key, value, headers = read_key_value_headers(record)
        except CorruptBatch as error:
            return ShownRecord(record.offset, record.timestamp, None, None, None, False, error.reason)
        packed = b"".join(
            name + b"=" + (b"null" if content is None else content) + b"\n" for name, content in headers
        )
        return ShownRecord(
            record.offset,
            record.timestamp,
            self._content(key),
            self._content(value),
            self._content(packed) if headers else None,
        )

    def _content(self, content: bytes | None) -> ShownContent | None:
        if content is None:
            return None
        digest = hashlib.blake2b(content, digest_size=6, key=self._key).hexdigest()
        return ShownContent(len(content), digest, _text(content) if self._show_values else None)


def _text(content: bytes) -> str:
    """Return the beginning of some bytes as text; others than text in hexadecimal."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = f"0x{content.hex()}"
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
