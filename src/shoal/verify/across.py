"""
Extra records that another source has: they were sent to the wrong topic or partition.

Java's producer 2.8.0 to 4.1.1 could do that (CVE-2026-35554), and MirrorMaker 2 writes by it. Each of the two
copies shows half of the fault. After all partitions were compared, this module reads the extra records once
more, and searches them in the other sources near their times. The right copy may have them as well: the
producer's buffer was sent twice, once for the batch that it held before.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, ask_offsets
from ..errors import ShoalError
from ..mirroring.model.copy_options import CopyOptions
from ..topic_partition import TopicPartition
from .findings import Difference, DifferenceKind, Elsewhere, OffsetRange, Side
from .locate import find_keys
from .log import Log
from .records import Odd, keys_of
from .report import PartitionReport

__all__ = ["with_misrouted"]

#: The most differences whose records are searched, the most records of each, and how far behind the first of
#: their time they are searched.
_MOST_SEARCHES, _MOST_RECORDS, _BEHIND = 20, 20_000, 2_048

_EXTRA = (DifferenceKind.EXTRA, DifferenceKind.ALTERED)
_MISSING = (DifferenceKind.MISSING, DifferenceKind.ALTERED)


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
    search = _Search({each.source: each for each in reports}, source, destination, options, patience_s)
    extra = [
        (report, each)
        for report in reports
        for each in report.differences
        if each.kind in _EXTRA and each.copy_of is None
    ]
    for report, each in extra[:_MOST_SEARCHES] if len(reports) > 1 else ():
        with suppress(ShoalError):  # the report has the difference, without its other half
            search.search(report, each)
    return [
        replace(
            report,
            differences=tuple(
                replace(each, misrouted=search.halves.get((report.source, each)))
                for each in report.differences
            ),
        )
        for report in reports
    ]


@dataclass(slots=True)
class _Search:
    """
    Searches the records of differences in other partitions.

    Attributes:
        reports: All partitions.
        halves: The other halves of differences.

    """

    reports: Mapping[TopicPartition, PartitionReport]
    source: Cluster
    destination: Cluster
    options: CopyOptions
    patience_s: float
    halves: dict[tuple[TopicPartition, Difference], Elsewhere] = field(default_factory=dict)

    def search(self, report: PartitionReport, difference: Difference) -> None:
        """Search the records of a difference in the sources of the other partitions."""
        with closing(
            self._log(Side.DESTINATION, report.destination, difference.destination).records(
                *difference.destination
            )
        ) as records:
            strange = [Odd.of(each) for each in islice(records, _MOST_RECORDS)]
        if any(each.timestamp < 0 or each.append_time is not None for each in strange):
            return  # their times do not say where to look for them
        others = [each for each, other in self.reports.items() if each != report.source and other.alignment]
        found = self._near(others, strange) if strange and others else {}
        if found:
            most = max(found, key=lambda each: len(found[each]))
            self._name(report, difference, self.reports[most], found[most])

    def _name(
        self,
        report: PartitionReport,
        difference: Difference,
        right: PartitionReport,
        there: Mapping[int, int],
    ) -> None:
        """Name both halves of a fault: the other one is in the report of the copy that lacks the records."""
        self.halves[report.source, difference] = Elsewhere(
            Side.SOURCE, str(right.source), _range(there), len(there)
        )
        for each in right.differences:
            lost = [extra for at, extra in there.items() if at in range(*each.source)]
            if lost and each.kind in _MISSING:
                half = Elsewhere(Side.DESTINATION, str(report.destination), _range(lost), len(lost))
                self.halves.setdefault((right.source, each), half)

    def _near(
        self, partitions: Collection[TopicPartition], strange: Sequence[Odd]
    ) -> dict[TopicPartition, dict[int, int]]:
        """Return the source offsets of likes near their times, and those of the records, by partition."""
        keys = {key: each.offset for each in strange for key in keys_of(each, Side.DESTINATION)}
        times = [each.timestamp for each in strange]
        self.source.refresh({each.topic for each in partitions})
        first, behind, ends = (
            ask_offsets(self.source, partitions, time, self.patience_s, self.source.config.isolation_level)
            for time in (min(times), max(times) + 1, LATEST)
        )
        found: dict[TopicPartition, dict[int, int]] = {}
        for each in partitions:
            start, until, end = first[each], behind[each], ends[each]
            # A reader would wait for records behind the end of the log.
            if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
                until = until if isinstance(until, int) and until >= 0 else start
                until = max(start, min(until, start + _MOST_RECORDS)) + len(strange) + _BEHIND
                offsets = OffsetRange(start, min(end, until))
                likes = find_keys(self._log(Side.SOURCE, each, offsets), offsets, keys)
                if likes:
                    found[each] = {at: keys[key] for key, places in likes.items() for at in places}
        return found

    def _log(self, side: Side, partition: TopicPartition, offsets: OffsetRange) -> Log:
        cluster, level = self.source, self.source.config.isolation_level
        if side is Side.DESTINATION:
            cluster, level = self.destination, IsolationLevel.READ_COMMITTED
            cluster.refresh([partition.topic])
        stop = threading.Event()
        return Log(side, cluster, partition, level, offsets, self.patience_s, stop, self.options)


def _range(offsets: Collection[int]) -> OffsetRange:
    return OffsetRange(min(offsets), max(offsets) + 1)
