"""The partitions to compare, their logs at the start, and their positions."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..client.cluster import Cluster, is_transient, patiently
from ..client.config import IsolationLevel
from ..error_codes import ErrorCode, named_code
from ..errors import ShoalError
from ..mirroring.model.position import MirrorPosition, ProducerIdentity
from ..topic_partition import TopicPartition
from .findings import OffsetRange, OpenTransaction, Side
from .logs import ask_high_watermarks, ask_logs, check_end
from .open_transactions import LogEnds, open_transactions
from .positions import CommittedPositions
from .report import has_destination

__all__ = ["Mirrored", "PartitionPlan", "Plan", "make_plan"]

#: A source partition and its mirror.
Mirrored: TypeAlias = tuple[TopicPartition, TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """
    One partition to compare.

    Attributes:
        source_log: Its offsets at the start; up to the last stable one if
            only committed transactions count.
        destination_log: Its offsets at the destination, up to the last stable one.
        position: The committed one, if it is about these two logs.
        position_note: The position, or the reason that there is none, as a phrase.
        open_transactions: Those at which the logs end before their high watermarks.
        was_equal_until: The source offset before which the copy had everything when it was compared last, if
            it has lost records since.

    """

    source: TopicPartition
    destination: TopicPartition
    source_log: OffsetRange
    destination_log: OffsetRange
    position: MirrorPosition | None
    position_note: str
    open_transactions: tuple[OpenTransaction, ...] = ()
    was_equal_until: int = 0

    @property
    def mirrored_until(self) -> int:
        """The source offset before which everything must be in the destination's log."""
        if self.position is None or self.was_equal_until:
            return self.was_equal_until
        is_held = has_destination(self.open_transactions)
        is_behind = self.destination_log.end < self.position.destination_offset
        return 0 if is_held and is_behind else self.position.source_offset

    def after(self, reached: tuple[int, int], *, needs_position: bool = True) -> PartitionPlan:
        """
        Return the plan for the records behind those that an earlier comparison found equal.

        Args:
            reached: The offsets of both sides from :attr:`PartitionReport.reached
                <shoal.verify.report.PartitionReport.reached>`.
            needs_position: Whether the topics may be other ones than then, if no position is about them.

        Returns:
            The rest of both logs, or the whole plan if no position is about them, or if one of them ends
            earlier now: it has lost records that were compared.

        """
        ours, theirs = reached
        is_another = needs_position and self.position is None
        if is_another:
            return self
        if ours > self.source_log.end or theirs > self.destination_log.end:
            return replace(self, was_equal_until=ours)
        return replace(
            self,
            source_log=OffsetRange(max(self.source_log.start, ours), self.source_log.end),
            destination_log=OffsetRange(max(self.destination_log.start, theirs), self.destination_log.end),
            position=self._begun_at(reached),
            position_note="an earlier comparison",
        )

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> PartitionPlan:
        """Return the plan for the records between two places; the logs' own starts are found as ever."""
        is_to_the_end = end == (self.source_log.end, self.destination_log.end)
        found = replace(
            self,
            source_log=OffsetRange(start[0], end[0]),
            destination_log=OffsetRange(start[1], end[1]),
            open_transactions=self.open_transactions if is_to_the_end else (),
        )
        if start == (self.source_log.start, self.destination_log.start):
            return found
        return replace(found, position=self._begun_at(start))

    def _begun_at(self, place: tuple[int, int]) -> MirrorPosition:
        """Return the position as if the mirror had begun at a place that both sides have in common."""
        if self.position is not None:
            return replace(self.position, origin=place)
        return MirrorPosition(*place, ProducerIdentity(-1, -1), place, None, None, None, -1, "")


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
        refused_for_now: Those of ``refused`` whose reason is a transient error of a broker.

    """

    group: str | None
    partitions: tuple[PartitionPlan, ...]
    refused: Mapping[Mirrored, str]
    surplus: Mapping[Mirrored, OffsetRange]
    warnings: tuple[str, ...]
    refused_for_now: frozenset[Mirrored] = frozenset()


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
    Of each cluster, first the high watermarks, then the last stable offsets: if one of these is smaller, a
    transaction is open.

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
    on_both, on_one = _match(source, destination, topics)
    surplus = [mirrored for mirrored in on_one if _is_surplus(source, mirrored)]
    absent = [mirrored for mirrored in on_one if _is_absent_copy(source, destination, mirrored)]
    positions = CommittedPositions(source, destination, group, rules, patience_s)
    positions.read([ours for ours, _ in [*on_both, *absent]])
    # A position shows that such a copy was there: all that was mirrored is missing.
    lost = [mirrored for mirrored in absent if positions.has(mirrored[0])]
    there = [theirs for _, theirs in [*on_both, *surplus]]
    destination_ends = ask_high_watermarks(destination, there, patience_s)
    destination_logs = ask_logs(destination, there, IsolationLevel.READ_COMMITTED, patience_s)
    open_there = _open_at(Side.DESTINATION, destination, destination_ends, destination_logs, patience_s)
    destination_logs |= {theirs: OffsetRange(0, 0) for _, theirs in lost}
    here = [ours for ours, _ in [*on_both, *lost]]
    level = source.config.isolation_level
    is_committed = level is IsolationLevel.READ_COMMITTED
    source_ends = ask_high_watermarks(source, here, patience_s) if is_committed else {}
    source_logs = ask_logs(source, here, level, patience_s)
    open_here = _open_at(Side.SOURCE, source, source_ends, source_logs, patience_s)
    refused = {mirrored: why for mirrored, why in on_one.items() if mirrored not in lost}
    partitions, may_pass = [], set[Mirrored]()
    for ours, theirs in [*on_both, *lost]:
        try:
            log = _answered(destination_logs[theirs])
            position, note = positions.position(ours, theirs, copy_is_empty=log == OffsetRange(0, 0))
            if (ours, theirs) not in lost:
                end = destination_ends[theirs]
                check_end(destination, theirs, end if isinstance(end, int) else log.end, position)
            held = [each for each in (open_here.get(ours), open_there.get(theirs)) if each is not None]
            partitions.append(
                PartitionPlan(ours, theirs, _answered(source_logs[ours]), log, position, note, (*held,))
            )
        except ShoalError as error:
            refused[ours, theirs] = str(error)
            if is_transient(error):
                may_pass.add((ours, theirs))
    found = {}
    for ours, theirs in surplus:
        surplus_log = destination_logs[theirs]
        if isinstance(surplus_log, OffsetRange):
            found[ours, theirs] = surplus_log
            del refused[ours, theirs]
    return Plan(
        positions.group, tuple(partitions), refused, found, tuple(positions.warnings), frozenset(may_pass)
    )


def _open_at(
    side: Side,
    cluster: Cluster,
    high_watermarks: Mapping[TopicPartition, int | ShoalError],
    logs: Mapping[TopicPartition, OffsetRange | ShoalError],
    patience_s: float,
) -> dict[TopicPartition, OpenTransaction]:
    ends = {}
    for partition, end in high_watermarks.items():
        log = logs[partition]
        if isinstance(log, OffsetRange) and isinstance(end, int):
            ends[partition] = LogEnds(log.end, end)
    return open_transactions(side, cluster, ends, patience_s)


def _answered(log: OffsetRange | ShoalError) -> OffsetRange:
    if isinstance(log, ShoalError):
        raise log
    return log


def _match(
    source: Cluster, destination: Cluster, topics: Mapping[str, str]
) -> tuple[list[Mirrored], dict[Mirrored, str]]:
    """Return the partitions that both sides have, and the others with the side that lacks them."""
    on_both, on_one = [], {}
    for ours, theirs in topics.items():
        here, there = _numbers(source, ours), _numbers(destination, theirs)
        for number in sorted(here | there) or [0]:
            mirrored = TopicPartition(ours, number), TopicPartition(theirs, number)
            if number not in here:
                on_one[mirrored] = _absent(source, mirrored[0])
            elif number not in there:
                on_one[mirrored] = _absent(destination, mirrored[1])
            else:
                on_both.append(mirrored)
    return on_both, on_one


def _numbers(cluster: Cluster, topic: str) -> set[int]:
    found = cluster.metadata.topics.get(topic)
    return set(found.partitions) if found else set()


def _absent(cluster: Cluster, partition: TopicPartition) -> str:
    error = cluster.metadata.errors.get(partition.topic)
    if error in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        what = "topic" if partition.topic not in cluster.metadata.topics else "partition"
        return f"there is no such {what} on {cluster}: {partition}"
    return f"topic {partition.topic} on {cluster}: {named_code(error)}"


def _is_absent_copy(source: Cluster, destination: Cluster, mirrored: Mirrored) -> bool:
    """Whether the source has the partition, and the destination has no such topic or partition."""
    ours, theirs = mirrored
    error = destination.metadata.errors.get(theirs.topic)
    is_known = error in (None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return is_known and ours.partition in _numbers(source, ours.topic)


def _is_surplus(source: Cluster, mirrored: Mirrored) -> bool:
    """Whether the source has the topic, and with fewer partitions."""
    ours, _ = mirrored
    return ours.topic in source.metadata.topics and ours.partition not in _numbers(source, ours.topic)
