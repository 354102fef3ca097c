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
from collections.abc import Collection, Mapping, Sequence
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
from .locate import find_keys
from .log import Log
from .records import Key, Odd, keys_of
from .report import PartitionReport

__all__ = ["with_misrouted"]

#: The most differences whose records are searched, the most records of each, and how far behind the first of
#: their time they are searched.
_MOST_SEARCHES, _MOST_RECORDS, _BEHIND = 20, 20_000, 2_048

_EXTRA = (DifferenceKind.EXTRA, DifferenceKind.ALTERED)
_MISSING = (DifferenceKind.MISSING, DifferenceKind.ALTERED)


class _Strange(NamedTuple):
    """The records of a difference: their offsets by their keys, and their first and last time."""

    offsets: dict[Key, int]
    first_ms: int
    last_ms: int


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
        with suppress(ShoalError):  # the report has the difference, without its other half
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
        strange = self._strange(own, self._reports[own].differences[number].destination)
        if strange is None:
            return
        others = [each for each, report in enumerate(self._reports) if each != own and report.alignment]
        lacking = [each for each in others if _lacks_any(self._reports[each])]
        found = self._near(Side.SOURCE, lacking, strange) or self._near(
            Side.SOURCE, set(others).difference(lacking), strange
        )
        if found:
            most = max(found, key=lambda each: len(found[each]))
            self._name(own, number, most, found[most], strange)

    def _strange(self, index: int, offsets: OffsetRange) -> _Strange | None:
        """Return records of a copy; None if their times do not say where to look for them."""
        log = self._log(Side.DESTINATION, index, offsets)
        with closing(log.records(*offsets)) as records:
            found = [Odd.of(each) for each in islice(records, _MOST_RECORDS)]
        times = [each.timestamp for each in found]
        if not found or min(times) < 0 or any(each.append_time is not None for each in found):
            return None
        keys = {key: each.offset for each in found for key in keys_of(each, Side.DESTINATION)}
        return _Strange(keys, min(times), max(times))

    def _name(self, own: int, number: int, other: int, there: Mapping[int, int], strange: _Strange) -> None:
        """Name both halves of a fault: the other copy lacks the records, lags, or has them as well."""
        report = self._reports[other]
        missing = {
            index: lost
            for index, each in enumerate(report.differences)
            if (lost := [extra for offset, extra in there.items() if _is_missing(each, offset)])
        }
        behind = report.not_mirrored
        is_missing: bool | None = True
        if not missing and not (behind and max(there) >= behind.start):
            # A copy need not have them: an earlier comparison may have reported that they are missing.
            is_missing = False if self._near(Side.DESTINATION, [other], strange) else None
        self.halves[own, number] = Elsewhere(
            Side.SOURCE, str(report.source), _range(there), len(there), is_missing
        )
        name = str(self._reports[own].destination)
        for index, lost in missing.items():
            half = Elsewhere(Side.DESTINATION, name, _range(lost), len(lost))
            self.halves.setdefault((other, index), half)

    def _near(self, side: Side, reports: Collection[int], strange: _Strange) -> dict[int, dict[int, int]]:
        """Return the offsets of likes near their times, and those of the records, by report."""
        cluster, partitions = self._clusters[side], {self._partition(side, each): each for each in reports}
        cluster.refresh({partition.topic for partition in partitions})
        first, behind, ends = (
            ask_offsets(cluster, partitions, time, self._patience_s, self._level(side))
            for time in (strange.first_ms, strange.last_ms + 1, LATEST)
        )
        found: dict[int, dict[int, int]] = {}
        for partition, index in partitions.items():
            start, until, end = first[partition], behind[partition], ends[partition]
            # A reader would wait for records behind the end of the log.
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
                until = until if isinstance(until, int) and until >= 0 else start
                until = max(start, min(until, start + _MOST_RECORDS)) + len(strange.offsets) + _BEHIND
                offsets = OffsetRange(start, min(end, until))
                likes = find_keys(self._log(side, index, offsets), offsets, strange.offsets)
                if likes:
                    found[index] = {
                        each: strange.offsets[key] for key, places in likes.items() for each in places
                    }
        return found

    def _log(self, side: Side, index: int, offsets: OffsetRange) -> Log:
        cluster, partition = self._clusters[side], self._partition(side, index)
        if partition.topic not in cluster.metadata.topics:
            cluster.refresh([partition.topic])
        rest = offsets, self._patience_s, threading.Event(), self._options
        return Log(side, cluster, partition, self._level(side), *rest)

    def _partition(self, side: Side, index: int) -> TopicPartition:
        report = self._reports[index]
        return report.source if side is Side.SOURCE else report.destination

    def _level(self, side: Side) -> IsolationLevel:
        is_source = side is Side.SOURCE
        return self._clusters[side].config.isolation_level if is_source else IsolationLevel.READ_COMMITTED


def _lacks_any(report: PartitionReport) -> bool:
    """Whether the copy of a partition lacks records, or does not have all yet."""
    return bool(report.not_mirrored) or any(each.kind in _MISSING for each in report.differences)


def _is_missing(difference: Difference, offset: int) -> bool:
    return difference.kind in _MISSING and difference.source.start <= offset < difference.source.end


def _range(offsets: Collection[int]) -> OffsetRange:
    return OffsetRange(min(offsets), max(offsets) + 1)
