"""
Records that are extra in one copy and missing in another: they were sent to the wrong topic or partition.

Java's producer 2.8.0 to 4.1.1 could do that (CVE-2026-35554), and MirrorMaker 2 writes by it. Each of the two
copies shows half of the fault. After all partitions were compared, this module reads the records that differ
once more. It looks for the extra ones among the missing ones of the others.

The right copy may have them as well: the producer's buffer was sent twice, once for the batch that it held
before. So extra records that are missing nowhere are searched in the other sources, near their times. The
copy of the source that has them is searched, too.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple, TypeAlias

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.logs import ask_offsets
from ..client.offsets import LATEST
from ..errors import ShoalError
from ..mirroring.model.copy_options import CopyOptions
from ..topic_partition import TopicPartition
from .findings import DifferenceKind, Elsewhere, OffsetRange, Side
from .log import Log
from .records import Key, keys_of
from .report import PartitionReport

__all__ = ["with_misrouted"]

#: The most offsets of a range, and of all ranges of one side, that are read for this.
_MOST_OF_RANGE, _MOST_OFFSETS = 20_000, 200_000

#: The kinds whose records one side has and the other lacks.
_KINDS = {
    Side.SOURCE: (DifferenceKind.MISSING, DifferenceKind.ALTERED),
    Side.DESTINATION: (DifferenceKind.EXTRA, DifferenceKind.ALTERED),
}

#: The most differences whose records are searched in the other sources, and how far behind the first of their
#: time in each of these.
_MOST_SEARCHES, _BEHIND = 20, 2_048


class _Record(NamedTuple):
    """
    A record that differs.

    Attributes:
        report: The index of its partition's report.
        difference: The index of its difference; None if the copy merely does not have it yet.
        offset: Its offset.

    """

    report: int
    difference: int | None
    offset: int


#: The other halves of differences, by the indexes of report and difference and the side of the other half.
_Halves: TypeAlias = dict[tuple[int, int | None, Side], list[_Record]]


def with_misrouted(
    reports: Sequence[PartitionReport],
    source: Cluster,
    destination: Cluster,
    *,
    options: CopyOptions,
    patience_s: float,
) -> list[PartitionReport]:
    """
    Return the reports, with the other partition in each difference whose records are there.

    Args:
        reports: The reports of all partitions.
        source: The source cluster, for this thread.
        destination: The destination cluster, for this thread.
        options: The limits for decoding a batch.
        patience_s: How long to retry transient errors.

    """
    if len(reports) < 2 or not any(report.differences for report in reports):
        return list(reports)
    search = _Search(reports, {Side.SOURCE: source, Side.DESTINATION: destination}, options, patience_s)
    missing: dict[Key, list[_Record]] = defaultdict(list)
    for record, keys in search.odd(Side.SOURCE):
        for key in keys:
            missing[key].append(record)
    halves: _Halves = defaultdict(list)
    unmatched: dict[tuple[int, int | None], set[Key]] = defaultdict(set)
    for record, keys in search.odd(Side.DESTINATION):
        like = _taken_from_another(missing, keys, record.report)
        if like is not None:
            halves[record.report, record.difference, Side.SOURCE].append(like)
            halves[like.report, like.difference, Side.DESTINATION].append(record)
        else:
            unmatched[record.report, record.difference].update(keys[:1])
    elsewhere = {
        place: search.in_others(place[0], keys) for place, keys in islice(unmatched.items(), _MOST_SEARCHES)
    }
    return [
        replace(
            report,
            differences=tuple(
                replace(
                    each, misrouted=search.other_half(halves, index, number) or elsewhere.get((index, number))
                )
                for number, each in enumerate(report.differences)
            ),
        )
        for index, report in enumerate(reports)
    ]


def _taken_from_another(
    missing: Mapping[Key, list[_Record]], keys: Iterable[Key], own: int
) -> _Record | None:
    """Take the first missing record of another partition that is the same; each is taken once."""
    for likes in (missing.get(key, []) for key in keys):
        like = next((each for each in likes if each.report != own), None)
        if like is not None:
            likes.remove(like)
            return like
    return None


class _Search:
    """Reads records of the partitions of some reports."""

    def __init__(
        self,
        reports: Sequence[PartitionReport],
        clusters: Mapping[Side, Cluster],
        options: CopyOptions,
        patience_s: float,
    ) -> None:
        self._reports = reports
        self._clusters = clusters
        self._options = options
        self._patience_s = patience_s

    def odd(self, side: Side) -> Iterator[tuple[_Record, tuple[Key, ...]]]:
        """Yield the records of a side that the other side does not have, up to a number of offsets."""
        left = _MOST_OFFSETS
        for index, report in enumerate(self._reports):
            ranges: list[tuple[int | None, OffsetRange]] = [
                (number, each.source if side is Side.SOURCE else each.destination)
                for number, each in enumerate(report.differences)
                if each.kind in _KINDS[side] and each.copy_of is None
            ]
            if side is Side.SOURCE and report.not_mirrored:
                ranges.append((None, report.not_mirrored))
            for number, (start, end) in ranges:
                size = min(end - start, _MOST_OF_RANGE, left)
                left -= size
                yield from self._records(side, index, number, OffsetRange(start, start + size))

    def _records(
        self, side: Side, index: int, difference: int | None, offsets: OffsetRange
    ) -> Iterator[tuple[_Record, tuple[Key, ...]]]:
        """Yield the records of a range and their keys, up to the first that cannot be read any more."""
        cluster, partition = self._clusters[side], self._partition(side, index)
        with suppress(ShoalError):  # the report has the difference, without its other half
            if partition.topic not in cluster.metadata.topics:
                cluster.refresh([partition.topic])
            level = self._level(side)
            log = Log(
                side, cluster, partition, level, offsets, self._patience_s, threading.Event(), self._options
            )
            with closing(log.records(*offsets)) as records:
                for each in records:
                    yield _Record(index, difference, each.offset), keys_of(each, side)

    def _partition(self, side: Side, index: int) -> TopicPartition:
        report = self._reports[index]
        return report.source if side is Side.SOURCE else report.destination

    def _level(self, side: Side) -> IsolationLevel:
        is_source = side is Side.SOURCE
        return self._clusters[side].config.isolation_level if is_source else IsolationLevel.READ_COMMITTED

    def other_half(self, halves: _Halves, report: int, difference: int) -> Elsewhere | None:
        """Return the partition that has most records of a difference."""
        for side in (Side.SOURCE, Side.DESTINATION):
            if found := halves.get((report, difference, side)):
                return self._elsewhere(side, found, is_missing=True)
        return None

    def _elsewhere(self, side: Side, found: Sequence[_Record], *, is_missing: bool | None) -> Elsewhere:
        ((most, count),) = Counter(each.report for each in found).most_common(1)
        offsets = [each.offset for each in found if each.report == most]
        there = OffsetRange(min(offsets), max(offsets) + 1)
        return Elsewhere(side, str(self._partition(side, most)), there, count, is_missing)

    def in_others(self, own: int, keys: Collection[Key]) -> Elsewhere | None:
        """Return the partition whose source has most of the keys that are missing in no copy."""
        times = [time for _, time in keys if time is not None and time >= 0]
        if not times or len(times) < len(keys):
            return None  # the destination writes its own times: nothing says where to look
        others = [index for index, report in enumerate(self._reports) if index != own and report.alignment]
        found = self._near(Side.SOURCE, others, keys, min(times))
        if not found:
            return None
        most = Counter(each.report for each in found).most_common(1)[0][0]
        is_copied = bool(self._near(Side.DESTINATION, [most], keys, min(times)))
        # Copies need not have them: an earlier comparison may have reported that they are missing.
        return self._elsewhere(Side.SOURCE, found, is_missing=False if is_copied else None)

    def _near(
        self, side: Side, reports: Collection[int], keys: Collection[Key], since_ms: int
    ) -> list[_Record]:
        """Return the records with some keys on one side of partitions, behind the first of a time."""
        cluster = self._clusters[side]
        partitions = {self._partition(side, index): index for index in reports}
        with suppress(ShoalError):
            cluster.refresh({partition.topic for partition in partitions})
        begins = ask_offsets(cluster, partitions, since_ms, self._patience_s)
        ends = ask_offsets(cluster, partitions, LATEST, self._patience_s, self._level(side))
        found = []
        for partition, index in partitions.items():
            start, end = begins[partition], ends[partition]
            # A reader would wait for records behind the end of the log.
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
                there = OffsetRange(start, min(end, start + len(keys) + _BEHIND))
                records = self._records(side, index, None, there)
                found += [record for record, here in records if not set(here).isdisjoint(keys)]
        return found
