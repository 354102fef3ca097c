"""The partitions to compare, their logs at the start, and the part that a mirror has copied."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from ..client.cluster import Cluster, patiently
from ..client.config import IsolationLevel
from ..client.offsets import LogOffsets, ask_logs, log_end_offsets
from ..error_codes import ErrorCode, named_code
from ..errors import ShoalError
from ..mirroring.model.offset_map import Exactness, OffsetMap, Question
from ..topic_partition import TopicPartition
from .errors import NotComparable
from .findings import OffsetRange, OpenTransaction, Place, Side
from .positions import CommittedPositions

__all__ = ["Copied", "Mirrored", "PartitionPlan", "Plan", "make_plan"]

#: A source partition and its mirror.
Mirrored: TypeAlias = tuple[TopicPartition, TopicPartition]


class Copied(NamedTuple):
    """
    The part of a partition that has been copied: from one place to another.

    Attributes:
        origin: The place at which the copy begins.
        progress: The place behind all that was copied.
        offsets: The map of the mirror that has copied it; None if it is not known.

    """

    origin: Place
    progress: Place
    offsets: OffsetMap | None = None

    def place_from(self, start: Place) -> Place | None:
        """Return the first place that the map knows for certain, and to which both logs reach back."""
        if self.offsets is None:
            return None
        places = [Place(each.source, each.destination) for each in self.offsets.milestones]
        there = self.offsets.translate(Question(start.source, is_source=True))
        here = self.offsets.translate(Question(start.destination, is_source=False))
        if there.exactness is Exactness.EXACT:
            places.append(Place(start.source, there.offset))
        if here.exactness is Exactness.EXACT:
            places.append(Place(here.offset, start.destination))
        return min(filter(start.precedes, places), default=None)


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """
    One partition to compare, or a part of one.

    Attributes:
        source: The partition.
        destination: Its copy.
        source_log: Its offsets at the start; up to the last stable one if only committed transactions count.
        destination_log: Its offsets at the destination, up to the last stable one.
        copied: The part that a mirror has copied, by its position, if that is about these two logs.
        note: The position, or the reason that there is none, as a phrase.
        open_transactions: Those at which the logs end before their high watermarks.
        mirrored_until: The source offset before which everything must be in the destination's log.

    """

    source: TopicPartition
    destination: TopicPartition
    source_log: OffsetRange
    destination_log: OffsetRange
    copied: Copied | None
    note: str
    open_transactions: tuple[OpenTransaction, ...] = ()
    mirrored_until: int = 0

    @property
    def ends(self) -> Place:
        """The ends of both logs."""
        return Place(self.source_log.end, self.destination_log.end)

    def after(self, reached: tuple[int, int]) -> PartitionPlan:
        """
        Return the plan for the records behind those that an earlier comparison found equal.

        Args:
            reached: The offsets of both sides from :attr:`PartitionReport.reached
                <shoal.verify.report.PartitionReport.reached>`.

        Returns:
            The rest of both logs, or the whole plan if one of them ends earlier now: it has lost records that
            were compared.

        """
        start = Place(*reached)
        if not start.precedes(self.ends):
            return replace(self, mirrored_until=start.source)
        return self._from(start, "an earlier comparison")

    def between(self, start: Place, end: Place) -> PartitionPlan:
        """Return the plan for the records between two places; the logs' own starts are found as ever."""
        is_first = start == (self.source_log.start, self.destination_log.start)
        part = self if is_first else self._from(start, "the range")
        part = replace(
            part,
            source_log=part.source_log._replace(end=end.source),
            destination_log=part.destination_log._replace(end=end.destination),
        )
        # The copy has the records behind an end within the logs, so all before it must be there.
        is_last = end.destination == self.ends.destination
        return part if is_last else replace(part, open_transactions=(), mirrored_until=end.source)

    def _from(self, place: Place, note: str) -> PartitionPlan:
        """Return the plan for the records behind a place, at which the copy is known to begin."""
        return replace(
            self,
            source_log=self.source_log.since(place.source),
            destination_log=self.destination_log.since(place.destination),
            copied=Copied(place, place) if self.copied is None else self.copied._replace(origin=place),
            note=note,
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """
    All partitions of a comparison.

    Attributes:
        group: The group whose positions were read; None if no name could be made.
        partitions: The partitions that can be compared.
        refused: Those that cannot, with the reason.
        surplus: Partitions that only the destination has, and their offsets.
        warnings: Sentences.

    """

    group: str | None
    partitions: tuple[PartitionPlan, ...]
    refused: Mapping[Mirrored, ShoalError]
    surplus: Mapping[Mirrored, OffsetRange]
    warnings: tuple[str, ...]


def make_plan(
    source: Cluster,
    destination: Cluster,
    topics: Mapping[str, str],
    *,
    group: str | None,
    rules: Set[str] | None,
    patience_s: float,
) -> Plan:
    """
    List the partitions, and ask for their logs and positions.

    The order matters while a mirror is at work: first the positions, then the
    destination's ends, then the source's. So each position is before
    the destination's end, and each record there is before the source's end.

    Args:
        topics: The destination's names by the source's.
        group: The group whose positions to read; None for the default group.
        rules: The rules that the mirror may have had (``MirrorOptions.rules``);
            None to accept any.
        patience_s: How long to retry transient errors.

    Raises:
        ShoalError: A cluster does not answer.

    """
    patiently(lambda: source.refresh(topics), patience_s=patience_s)
    patiently(lambda: destination.refresh(topics.values()), patience_s=patience_s)
    pairs = list(_pairs(source, destination, topics))
    here = {ours for ours, _ in pairs if ours.partition in _numbers(source, ours.topic)}
    there = {theirs for _, theirs in pairs if theirs.partition in _numbers(destination, theirs.topic)}
    positions = CommittedPositions(source, destination, group, rules, patience_s)
    positions.read(sorted(here))
    copies = _Logs(Side.DESTINATION, destination, IsolationLevel.READ_COMMITTED, there, patience_s)
    sources = _Logs(Side.SOURCE, source, source.config.isolation_level, here, patience_s)
    partitions, refused, surplus = [], dict[Mirrored, ShoalError](), dict[Mirrored, OffsetRange]()
    for ours, theirs in pairs:
        try:
            if ours not in here and theirs in there and ours.topic in source.metadata.topics:
                surplus[ours, theirs] = copies.of(theirs)
            else:
                partitions.append(_plan(ours, theirs, sources, copies, positions))
        except ShoalError as error:
            refused[ours, theirs] = error
    return Plan(positions.group, tuple(partitions), refused, surplus, tuple(positions.warnings))


def _pairs(source: Cluster, destination: Cluster, topics: Mapping[str, str]) -> Iterator[Mirrored]:
    for ours, theirs in topics.items():
        for number in sorted(_numbers(source, ours) | _numbers(destination, theirs)) or [0]:
            yield TopicPartition(ours, number), TopicPartition(theirs, number)


def _numbers(cluster: Cluster, topic: str) -> set[int]:
    found = cluster.metadata.topics.get(topic)
    return set(found.partitions) if found else set()


def _plan(
    ours: TopicPartition, theirs: TopicPartition, sources: _Logs, copies: _Logs, positions: CommittedPositions
) -> PartitionPlan:
    source_log = sources.of(ours)
    empty, is_lost = OffsetRange(0, 0), copies.lacks(theirs)
    copy_is_empty = is_lost or copies.of(theirs) == empty
    position, note = positions.position(ours, theirs, copy_is_empty=copy_is_empty)
    # A position shows that such a copy was there: all that was mirrored is missing.
    copy_log = empty if is_lost and position is not None else copies.of(theirs)
    copied, mirrored_until, held_copy = None, 0, copies.open_transaction(theirs)
    if position is not None:
        progress = Place(position.source_offset, position.destination_offset)
        copied = Copied(Place(*position.origin), progress, position.offsets)
        if not is_lost:
            copies.check_end(theirs, progress.destination)
        if held_copy is None or copy_log.end >= progress.destination:
            mirrored_until = progress.source
    held = tuple(each for each in (sources.open_transaction(ours), held_copy) if each is not None)
    return PartitionPlan(ours, theirs, source_log, copy_log, copied, note, held, mirrored_until)


class _Logs:
    """The logs of one side at the start."""

    def __init__(
        self,
        side: Side,
        cluster: Cluster,
        level: IsolationLevel,
        partitions: Collection[TopicPartition],
        patience_s: float,
    ) -> None:
        self._side = side
        self._cluster = cluster
        self._is_committed = level is IsolationLevel.READ_COMMITTED
        self._logs = ask_logs(cluster, partitions, patience_s)

    def lacks(self, partition: TopicPartition) -> bool:
        """Whether the cluster says that there is no such topic or partition."""
        error = self._cluster.metadata.errors.get(partition.topic)
        return partition not in self._logs and error in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def of(self, partition: TopicPartition) -> OffsetRange:
        """Return the offsets to compare; raises if there is no such log, or if its leader does not answer."""
        log = self._log(partition)
        return OffsetRange(log.start, log.stable if self._is_committed else log.end)

    def _log(self, partition: TopicPartition) -> LogOffsets:
        log = self._logs.get(partition)
        if isinstance(log, LogOffsets):
            return log
        if log is not None:
            raise log
        if not self.lacks(partition):
            code = self._cluster.metadata.errors[partition.topic]
            raise NotComparable(f"topic {partition.topic} on {self._cluster}: {named_code(code)}")
        what = "topic" if partition.topic not in self._cluster.metadata.topics else "partition"
        raise NotComparable(f"there is no such {what} on {self._cluster}: {partition}")

    def open_transaction(self, partition: TopicPartition) -> OpenTransaction | None:
        """Return the transaction at which a reader of committed records ends; None if all are closed."""
        log = self._logs.get(partition)
        if not isinstance(log, LogOffsets) or not self._is_committed or log.stable >= log.end:
            return None
        return OpenTransaction(self._side, log.stable)

    def check_end(self, partition: TopicPartition, mirrored: int) -> None:
        """
        Make sure that all records up to the committed position can be read, unless they are lost.

        Raises:
            NotComparable: The record is there, but not yet on all in-sync replicas.

        """
        high_watermark = self._log(partition).end
        if high_watermark >= mirrored:
            return
        end = log_end_offsets(self._cluster, [partition])[partition]
        if isinstance(end, ShoalError):
            raise end
        if end >= mirrored:
            raise NotComparable(
                f"the high watermark of {partition} on {self._cluster} is {high_watermark}, behind the log "
                f"end {end}: its in-sync replicas are behind. Try again when they have caught up"
            )
