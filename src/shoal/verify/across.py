"""
Extra records that another source has: they were sent to the wrong topic or partition.

Java's producer 2.8.0 to 4.1.1 could do that (CVE-2026-35554), and MirrorMaker 2 writes by it. Each of the two
copies shows half of the fault. After all partitions were compared, this module reads the extra records once
more, and searches them in the other sources near their times: first in those whose copies lack records. The
right copy may have them as well: the producer's buffer was sent twice, once for the batch that it held
before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, ask_offsets
from ..errors import ShoalError
from ..mirroring.model.copy_options import CopyOptions
from ..topic_partition import TopicPartition
from .findings import Difference, DifferenceKind, Elsewhere, OffsetRange, Side
from .log import Log
from .records import Key, keys_of
from .report import PartitionReport

__all__ = ["with_misrouted"]

#: The most differences whose records are searched, the most records of each, and how far behind the first of
#: their time they are searched.
_MOST_SEARCHES, _MOST_RECORDS, _BEHIND = 20, 20_000, 2_048

_EXTRA = (DifferenceKind.EXTRA, DifferenceKind.ALTERED)
_MISSING = (DifferenceKind.MISSING, DifferenceKind.ALTERED)


class _Found(NamedTuple):
    """
    A record of a difference that is in another partition, too.

    Attributes:
        report: The index of the other partition's report.
        offset: Its offset there.
        extra: Its offset in the difference.

    """

    report: int
    offset: int
    extra: int


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
    extra = [
        (index, number)
        for index, report in enumerate(reports)
        for number, each in enumerate(report.differences)
        if each.kind in _EXTRA and each.copy_of is None
    ]
    clusters = {Side.SOURCE: source, Side.DESTINATION: destination}
    search = _Search(reports, clusters, options, patience_s)
    for place in extra[:_MOST_SEARCHES] if len(reports) > 1 else ():
        search.search(*place)
    return [
        replace(
            report,
            differences=tuple(
                replace(each, misrouted=search.halves.get((index, number)))
                for number, each in enumerate(report.differences)
            ),
        )
        for index, report in enumerate(reports)
    ]


class _Search:
    """
    Searches the records of differences in other partitions.

    Attributes:
        halves: The other halves of differences, by the indexes of report and difference.

    """

    def __init__(
        self,
        reports: Sequence[PartitionReport],
        clusters: Mapping[Side, Cluster],
        options: CopyOptions,
        patience_s: float,
    ) -> None:
        self.halves: dict[tuple[int, int], Elsewhere] = {}
        self._reports = reports
        self._clusters = clusters
        self._options = options
        self._patience_s = patience_s

    def search(self, own: int, number: int) -> None:
        """Search the records of a difference in the sources of the other partitions."""
        records = islice(
            self._records(Side.DESTINATION, own, self._reports[own].differences[number].destination),
            _MOST_RECORDS,
        )
        keys = {key: offset for offset, found in records for key in found}
        others = [each for each, report in enumerate(self._reports) if each != own and report.alignment]
        lacking = [each for each in others if self._lacks(each)]
        found = self._near(Side.SOURCE, lacking, keys) or self._near(
            Side.SOURCE, [each for each in others if each not in lacking], keys
        )
        if not found:
            return
        most = Counter(each.report for each in found).most_common(1)[0][0]
        there = [each for each in found if each.report == most]
        missing = {
            index: lost
            for index, each in enumerate(self._reports[most].differences)
            if (lost := [one for one in there if _is_missing(each, one.offset)])
        }
        behind = self._reports[most].not_mirrored
        is_missing: bool | None = True
        if not missing and not (behind and any(each.offset >= behind.start for each in there)):
            # A copy need not have them: an earlier comparison may have reported that they are missing.
            is_missing = False if self._near(Side.DESTINATION, [most], keys) else None
        offsets = _range([each.offset for each in there])
        name = str(self._partition(Side.SOURCE, most))
        self.halves[own, number] = Elsewhere(Side.SOURCE, name, offsets, len(there), is_missing)
        name = str(self._partition(Side.DESTINATION, own))
        for index, lost in missing.items():
            offsets = _range([each.extra for each in lost])
            self.halves.setdefault((most, index), Elsewhere(Side.DESTINATION, name, offsets, len(lost)))

    def _lacks(self, index: int) -> bool:
        """Whether the copy of a partition lacks records, or does not have all yet."""
        report = self._reports[index]
        return bool(report.not_mirrored) or any(each.kind in _MISSING for each in report.differences)

    def _near(self, side: Side, reports: Collection[int], keys: Mapping[Key, int]) -> list[_Found]:
        """Return the records with some keys on one side of partitions, near their times."""
        cluster, times = self._clusters[side], [time for _, time in keys if time is not None and time >= 0]
        if not reports or not times or len(times) < len(keys):
            return []  # the destination writes its own times: nothing says where to look
        partitions = {self._partition(side, index): index for index in reports}
        with suppress(ShoalError):
            cluster.refresh({partition.topic for partition in partitions})
        first, behind, ends = (
            ask_offsets(cluster, partitions, time, self._patience_s, self._level(side))
            for time in (min(times), max(times) + 1, LATEST)
        )
        found = []
        for partition, index in partitions.items():
            start, until, end = first[partition], behind[partition], ends[partition]
            # A reader would wait for records behind the end of the log.
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
                until = until if isinstance(until, int) and until >= 0 else start
                until = min(end, max(start, min(until, start + _MOST_RECORDS)) + len(keys) + _BEHIND)
                found += [
                    _Found(index, offset, keys[here[0]])
                    for offset, all_keys in self._records(side, index, OffsetRange(start, until))
                    if (here := [key for key in all_keys if key in keys])
                ]
        return found

    def _records(self, side: Side, index: int, offsets: OffsetRange) -> Iterator[tuple[int, Sequence[Key]]]:
        """Yield the offsets and keys of records, up to the first that cannot be read any more."""
        cluster, partition = self._clusters[side], self._partition(side, index)
        with suppress(ShoalError):  # the report has the difference, without its other half
            if partition.topic not in cluster.metadata.topics:
                cluster.refresh([partition.topic])
            rest = offsets, self._patience_s, threading.Event(), self._options
            log = Log(side, cluster, partition, self._level(side), *rest)
            with closing(log.records(*offsets)) as records:
                for each in records:
                    yield each.offset, keys_of(each, side)

    def _partition(self, side: Side, index: int) -> TopicPartition:
        report = self._reports[index]
        return report.source if side is Side.SOURCE else report.destination

    def _level(self, side: Side) -> IsolationLevel:
        is_source = side is Side.SOURCE
        return self._clusters[side].config.isolation_level if is_source else IsolationLevel.READ_COMMITTED


def _is_missing(difference: Difference, offset: int) -> bool:
    return difference.kind in _MISSING and difference.source.start <= offset < difference.source.end


def _range(offsets: Sequence[int]) -> OffsetRange:
    return OffsetRange(min(offsets), max(offsets) + 1)
