"""
Records that are extra in one copy and missing in another: they were sent to the wrong topic or partition.

Java's producer 2.8.0 to 4.1.1 could do that (CVE-2026-35554), and MirrorMaker 2 writes by it. Each of the two
copies shows half of the fault. After all partitions were compared, this module reads the records that differ
once more. It looks for the extra ones among the missing ones of the others.

The right copy may have them as well: the producer's buffer was sent twice, once for the batch that it held
before. So extra records that are missing nowhere are searched in the other sources, near their times. Then
the copy of the source that has them is searched. They need not be there: an earlier comparison may have
reported that they are missing.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..client.cluster import Cluster
from ..client.config import IsolationLevel
from ..client.offsets import LATEST, list_offsets
from ..errors import ShoalError
from ..mirroring.model.copy_options import CopyOptions
from ..topic_partition import TopicPartition
from .findings import DifferenceKind, Elsewhere, OffsetRange, Side
from .locate import Key, keys_of
from .log import Log
from .report import PartitionReport

__all__ = ["with_misrouted"]

#: The most offsets of a range, and of all ranges of one side, that are read for this.
_MOST_OF_RANGE, _MOST_OFFSETS = 20_000, 200_000

#: Kinds whose destination records the source does not have there, and the other way round.
_UNEXPECTED = (DifferenceKind.EXTRA, DifferenceKind.ALTERED)
_ABSENT = (DifferenceKind.MISSING, DifferenceKind.ALTERED)


@dataclass(frozen=True, slots=True)
class _Place:
    """
    A record that differs.

    Attributes:
        report: The index of its partition's report.
        difference: The index of its difference; None if the copy merely does not have it yet.

    """

    report: int
    difference: int | None
    offset: int


@dataclass(slots=True)
class _Found:
    """The records of one range that were found in one other partition."""

    start: int
    end: int
    records: int = 0

    def add(self, offset: int) -> None:
        self.start, self.end = min(self.start, offset), max(self.end, offset + 1)
        self.records += 1


#: The other halves of each difference, by the index of the other report. The key has the indexes of report
#: and difference, and the side of the other half.
_Halves: TypeAlias = dict[tuple[int, int, Side], dict[int, _Found]]


#: The keys of a difference's records that are missing in no other copy.
_Unmatched: TypeAlias = set[Key]

#: The most differences whose records are searched in the other sources, and how far behind the first of their
#: time in each of these.
_MOST_SEARCHES, _BEHIND = 20, 2_048


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
    unexpected = list(_ranges(reports, Side.DESTINATION))
    absent = list(_ranges(reports, Side.SOURCE))
    if not unexpected or len(reports) < 2:
        return list(reports)
    search = _Search(reports, options, patience_s)
    missing = _by_key(search.records(source, Side.SOURCE, absent))
    found: _Halves = defaultdict(dict)
    unmatched: dict[int, dict[int, _Unmatched]] = defaultdict(dict)
    for place, keys in search.records(destination, Side.DESTINATION, unexpected):
        like = _first_elsewhere(place, keys, missing)
        if like is None:
            if keys and place.difference is not None:
                unmatched[place.report].setdefault(place.difference, set()).add(keys[0])
            continue
        for one, other, side in ((place, like, Side.SOURCE), (like, place, Side.DESTINATION)):
            if one.difference is not None:
                halves = found[one.report, one.difference, side]
                halves.setdefault(other.report, _Found(other.offset, other.offset)).add(other.offset)
    elsewhere = _Others(reports, source, destination, search).find(unmatched)
    return [_explained(index, report, reports, found, elsewhere) for index, report in enumerate(reports)]


class _Others:
    """Looks for extra records in the sources of the other partitions, and in their copies."""

    def __init__(
        self, reports: Sequence[PartitionReport], source: Cluster, destination: Cluster, search: _Search
    ) -> None:
        self._reports = reports
        self._clusters = {Side.SOURCE: source, Side.DESTINATION: destination}
        self._search = search
        self._left = _MOST_SEARCHES

    def find(self, unmatched: Mapping[int, Mapping[int, _Unmatched]]) -> dict[tuple[int, int], Elsewhere]:
        """Return the other partition of each difference whose records are in its source."""
        found: dict[tuple[int, int], Elsewhere] = {}
        for report, differences in unmatched.items():
            for difference, keys in differences.items():
                if self._left <= 0:
                    return found
                self._left -= 1
                best = self._best(report, keys)
                if best is not None:
                    found[report, difference] = best
        return found

    def _best(self, own: int, keys: _Unmatched) -> Elsewhere | None:
        times = [time for _, time in keys if time is not None and time >= 0]
        if len(times) < len(keys):
            return None  # the destination writes its own times: nothing says where to look
        others = [
            index
            for index, report in enumerate(self._reports)
            if index != own and report.alignment is not None
        ]
        found = self._found(Side.SOURCE, others, keys, min(times))
        if not found:
            return None
        other, best = max(found.items(), key=lambda each: each[1].records)
        is_copied = bool(self._found(Side.DESTINATION, [other], keys, min(times)))
        name = str(self._reports[other].source)
        offsets = OffsetRange(best.start, best.end)
        return Elsewhere(Side.SOURCE, name, offsets, best.records, is_missing=False if is_copied else None)

    def _found(
        self, side: Side, reports: Sequence[int], keys: _Unmatched, since_ms: int
    ) -> dict[int, _Found]:
        """Return the records with these keys on one side of some partitions, by the index of the report."""
        cluster = self._clusters[side]
        is_source = side is Side.SOURCE
        partitions = {
            self._reports[index].source if is_source else self._reports[index].destination: index
            for index in reports
        }
        level = cluster.config.isolation_level if is_source else IsolationLevel.READ_COMMITTED
        try:
            cluster.refresh({partition.topic for partition in partitions})
            begins = list_offsets(cluster, dict.fromkeys(partitions, since_ms))
            ends = list_offsets(cluster, dict.fromkeys(partitions, LATEST), level)
        except ShoalError:
            return {}
        places = {}
        for partition, offset in begins.items():
            end = ends[partition]
            # A reader would wait for records behind the end of the log.
            if isinstance(offset, int) and isinstance(end, int) and 0 <= offset < end:
                there = OffsetRange(offset, min(end, offset + len(keys) + _BEHIND))
                places[_Place(partitions[partition], None, offset)] = there
        found: dict[int, _Found] = {}
        for place, here in self._search.records(cluster, side, list(places.items())):
            if not keys.isdisjoint(here):
                found.setdefault(place.report, _Found(place.offset, place.offset)).add(place.offset)
        return found


def _ranges(reports: Sequence[PartitionReport], side: Side) -> Iterator[tuple[_Place, OffsetRange]]:
    """Yield the ranges of a side that the other side does not have, up to a number of offsets."""
    is_source = side is Side.SOURCE
    left = _MOST_OFFSETS
    for number, report in enumerate(reports):
        ranges: list[tuple[int | None, OffsetRange]] = [
            (index, each.source if is_source else each.destination)
            for index, each in enumerate(report.differences)
            if each.kind in (_ABSENT if is_source else _UNEXPECTED) and each.copy_of is None
        ]
        if is_source and report.not_mirrored:
            ranges.append((None, report.not_mirrored))
        for index, offsets in ranges:
            size = min(offsets.end - offsets.start, _MOST_OF_RANGE, left)
            if size > 0:
                left -= size
                yield _Place(number, index, offsets.start), OffsetRange(offsets.start, offsets.start + size)


class _Search:
    """Reads the records that differ."""

    def __init__(self, reports: Sequence[PartitionReport], options: CopyOptions, patience_s: float) -> None:
        self._reports = reports
        self._options = options
        self._patience_s = patience_s

    def records(
        self, cluster: Cluster, side: Side, ranges: Sequence[tuple[_Place, OffsetRange]]
    ) -> Iterator[tuple[_Place, tuple[Key, ...]]]:
        """Yield the keys of the records in some ranges; a range that cannot be read any more has none."""
        for place, offsets in ranges:
            report = self._reports[place.report]
            partition = report.source if side is Side.SOURCE else report.destination
            try:
                for offset, keys in self._read(cluster, side, partition, offsets):
                    yield replace(place, offset=offset), keys
            except ShoalError:
                continue  # the report has the difference, without its other half

    def _read(
        self, cluster: Cluster, side: Side, partition: TopicPartition, offsets: OffsetRange
    ) -> Iterator[tuple[int, tuple[Key, ...]]]:
        if partition.topic not in cluster.metadata.topics:
            cluster.refresh([partition.topic])
        level = cluster.config.isolation_level if side is Side.SOURCE else IsolationLevel.READ_COMMITTED
        log = Log(
            side,
            cluster,
            partition,
            level,
            offsets,
            patience_s=self._patience_s,
            stop=threading.Event(),
            options=self._options,
        )
        with closing(log.records(*offsets)) as records:
            for record in records:
                yield record.offset, keys_of(record, side)


def _by_key(
    records: Iterator[tuple[_Place, tuple[Key, ...]]],
) -> dict[Key, list[_Place]]:
    found: dict[Key, list[_Place]] = defaultdict(list)
    for place, keys in records:
        for key in keys:
            found[key].append(place)
    return found


def _first_elsewhere(
    place: _Place, keys: Sequence[Key], missing: Mapping[Key, list[_Place]]
) -> _Place | None:
    """Take the first missing record of another partition that is the same; each is taken once."""
    for key in keys:
        likes = missing.get(key, [])
        for like in likes:
            if like.report != place.report:
                likes.remove(like)
                return like
    return None


def _explained(
    index: int,
    report: PartitionReport,
    reports: Sequence[PartitionReport],
    found: _Halves,
    elsewhere: Mapping[tuple[int, int], Elsewhere],
) -> PartitionReport:
    differences = tuple(
        replace(each, misrouted=_other_half(index, number, reports, found) or elsewhere.get((index, number)))
        for number, each in enumerate(report.differences)
    )
    return replace(report, differences=differences)


def _other_half(
    index: int, number: int, reports: Sequence[PartitionReport], found: _Halves
) -> Elsewhere | None:
    """Return the partition that has most of a difference's records; of altered ones, those of the copy."""
    for side in (Side.SOURCE, Side.DESTINATION):
        halves = found.get((index, number, side))
        if halves:
            other, there = max(halves.items(), key=lambda each: each[1].records)
            report = reports[other]
            partition = report.source if side is Side.SOURCE else report.destination
            return Elsewhere(side, str(partition), OffsetRange(there.start, there.end), there.records)
    return None
