"""
The decisions about the offsets of all groups, made again only where something may have changed.

Answers of brokers keep their objects as long as their bytes are the same
(:class:`~shoal.client.group_offsets.GroupOffsetsReader`), so a comparison by identity is enough. The unit is
one topic of one group.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...client.cluster import is_transient
from ...client.committed_offsets import Committed
from ...client.group_listing import GroupType, ListedGroup
from ...client.group_offsets import CommittedValue, FetchedGroup, FetchedTopic
from ...error_codes import ErrorCode, named_code
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.first_start import is_start_mark, read_first_start
from ..model.offset_map import Exactness, Translation
from ..model.position import is_position
from .commit import ToCommit
from .copies import Copies, MirroredCopy
from .log_bounds import LogBounds
from .mark import Mark
from .offset_rules import UNREAD, Action, ClusterIds, Direction, decide_offset, further_from
from .report import GroupOffset, GroupReport

__all__ = ["UNSTABLE_THERE", "Decided", "DecidedGroup", "GroupDecisions", "OneGroup"]

#: How long an unchanged offset keeps its decision. An incident may move its translation, and the position
#: that shows this is not decoded meanwhile.
_SETTLED_S = 300.0

#: Actions that do not depend on the mirror's position, unless the group is ahead of it.
_SETTLED = frozenset({Action.UNCHANGED, Action.ACTIVE, Action.FURTHER})

#: Actions that the next round may repeat.
_PENDING = frozenset({Action.WRITE, Action.UNCONFIRMED, Action.REFUSED})


#: A phrase for an offset that an open transaction of the other cluster changes. A running mirror decides
#: about it again in each round.
UNSTABLE_THERE = "an open transaction commits another offset at the other cluster. Wait until it has ended"

_UNSTABLE = "an open transaction commits another offset. Repeat the command when it has ended"


class OneGroup(NamedTuple):
    """
    The answers of both clusters about one group.

    Attributes:
        here: The group as the cluster lists it whose offsets are read.
        offsets: Its offsets there; None if groups of its type commit none.
        there: The group as the other cluster lists it; None if it has no such group.
        present: Its offsets there; None without the group.

    """

    here: ListedGroup
    offsets: FetchedGroup | ShoalError | None
    there: ListedGroup | None
    present: FetchedGroup | ShoalError | None


class Decided(NamedTuple):
    """The outcome for a partition, and the offset to commit if there is one."""

    outcome: GroupOffset
    to_commit: ToCommit | None


class DecidedGroup(NamedTuple):
    """A group, and the offsets to commit to it."""

    report: GroupReport
    to_commit: Sequence[ToCommit]


@dataclass(frozen=True, slots=True)
class _Topic:
    """
    The decisions for one topic of one group, with their inputs.

    Attributes:
        committed: The offsets at the cluster that is read.
        present: Those at the other one.
        is_active: Whether the group has members there.
        positions: The mirror's positions that may change a decision, by source partition.
        decided_at: The monotonic time.
        is_pending: Whether one of them is to be tried in the next round, too.
        is_postponed: Whether one of them may be a lower bound since a count was postponed.

    """

    committed: FetchedTopic
    present: FetchedTopic | None
    is_active: bool
    positions: Mapping[TopicPartition, CommittedValue | None]
    decided_at: float
    decisions: Sequence[Decided]
    is_pending: bool
    is_postponed: bool


class GroupDecisions:
    """The decisions of all rounds of a direction."""

    def __init__(
        self,
        copies: Copies,
        direction: Direction,
        log_starts: LogBounds,
        ends: LogBounds,
        written: str,
    ) -> None:
        """
        Begin without decisions.

        Args:
            direction: From which cluster offsets are read.
            log_starts: The first offsets at the other cluster.
            ends: The ends at the cluster that is read; without bounds no lag is shown.
            written: The name of the other cluster for phrases.

        """
        self._copies = copies
        self._direction = direction
        self._log_starts = log_starts
        self._ends = ends
        self._written = written
        self._topics: dict[tuple[str, str], _Topic] = {}
        self._clusters = ClusterIds(None, None)

    def forget(self) -> None:
        """Decide everything again in the next round."""
        self._topics.clear()

    def decide(self, groups: Iterable[OneGroup], clusters: ClusterIds) -> list[DecidedGroup]:
        """Return the decisions for all groups of a round; those of other groups are forgotten."""
        self._clusters = clusters
        before, self._topics = self._topics, {}
        wanted = list(groups)
        decided = [self._group(each, before) for each in wanted]
        if self._copies.read_postponed():
            now, self._topics = self._topics, {}
            decided = [self._group(each, now, is_again=True) for each in wanted]
        return decided

    def _group(
        self, group: OneGroup, before: Mapping[tuple[str, str], _Topic], *, is_again: bool = False
    ) -> DecidedGroup:
        report = GroupReport(group.here.name, group.here.type, group.here.state)
        why = _why_left_out(group)
        if why:
            return DecidedGroup(replace(report, problem=why, is_left_out=True), ())
        problem = self._problem(group)
        if problem:
            if isinstance(problem, ShoalError):
                report = replace(report, has_failed=True, may_pass=is_transient(problem))
            return DecidedGroup(replace(report, problem=str(problem)), ())
        assert isinstance(group.offsets, FetchedGroup)
        present = group.present.topics if isinstance(group.present, FetchedGroup) else {}
        is_active = group.there is not None and group.there.is_active
        decided: list[Decided] = []
        for topic, committed in sorted(group.offsets.topics.items()):
            name = self._copies.counterpart_of(topic, self._direction)
            there = None if name is None else present.get(name)
            key = report.name, topic
            known = before.get(key)
            if is_again:
                holds = known is not None and not known.is_postponed
            else:
                holds = known is not None and self._holds(known, committed, there, is_active)
            if known is None or not holds:
                known = self._topic(key, committed, there, is_active)
            self._topics[key] = known
            decided += known.decisions
        offsets = [each.outcome for each in decided]
        return DecidedGroup(
            replace(report, offsets=offsets),
            [each.to_commit for each in decided if each.to_commit is not None],
        )

    def _problem(self, group: OneGroup) -> str | ShoalError:
        """Return the reason why no offset of a group is translated; empty if there is none."""
        if group.offsets is None:
            return f"the offsets of {group.here.type.value} groups are not translated"
        for answer in (group.offsets, group.present):
            if isinstance(answer, ShoalError):
                return answer
        assert isinstance(group.offsets, FetchedGroup)
        if _has_positions(group.offsets):
            return "some of its offsets are the positions of a mirror"
        if group.there is not None and not group.there.commits_offsets:
            kind = group.there.protocol_type
            if group.there.type is not GroupType.CLASSIC:
                kind = group.there.type.value
            return f"a {kind} group on {self._written} has this name. Rename one of them"
        return ""

    def _holds(
        self, known: _Topic, committed: FetchedTopic, present: FetchedTopic | None, is_active: bool
    ) -> bool:
        """Whether nothing has changed from which the decisions follow."""
        return (
            known.committed is committed
            and known.present is present
            and known.is_active == is_active
            and not known.is_pending
            and time.monotonic() - known.decided_at < _SETTLED_S
            and all(self._copies.position_of(each) == at for each, at in known.positions.items())
        )

    def _topic(
        self, key: tuple[str, str], committed: FetchedTopic, present: FetchedTopic | None, is_active: bool
    ) -> _Topic:
        group, topic = key
        decisions: list[Decided] = []
        positions: dict[TopicPartition, CommittedValue | None] = {}
        is_postponed = False
        for number, value in sorted(committed.partitions.items()):
            if value.offset < 0 and not value.error_code:
                continue
            partition = TopicPartition(topic, number)
            source = self._copies.source_of(partition, self._direction)
            decided = self._partition(group, partition, source, value, present, is_active)
            decisions.append(decided)
            outcome = decided.outcome
            is_settled = outcome.action in _SETTLED and outcome.exactness is not Exactness.AHEAD
            if source is None:
                continue
            is_postponed = is_postponed or self._copies.has_postponed(source)
            if not is_settled:
                positions[source] = self._copies.position_of(source)
        return _Topic(
            committed,
            present,
            is_active,
            positions,
            time.monotonic(),
            tuple(decisions),
            is_pending=any(each.outcome.action in _PENDING for each in decisions),
            is_postponed=is_postponed,
        )

    def _partition(
        self,
        group: str,
        partition: TopicPartition,
        source: TopicPartition | None,
        committed: CommittedValue,
        present: FetchedTopic | None,
        is_active: bool,
    ) -> Decided:
        end = self._ends.of(partition)
        lag = None if end is None else max(0, end - committed.offset)
        row = GroupOffset(
            group, partition, None, committed.offset, lag, None, None, None, Action.NOT_MIRRORED
        )
        if source is None:
            return Decided(row, None)
        if committed.error_code:
            detail = _UNSTABLE if _is_unstable(committed) else _unreadable(committed)
            return Decided(replace(row, action=Action.REFUSED, detail=detail), None)
        there = None if present is None else present.partitions.get(partition.partition)
        there = None if there is None or (there.offset < 0 and not there.error_code) else there
        mark = Mark.read(committed)
        returned = mark if mark is not None and mark.is_from(self._clusters.written) else None
        if returned is not None and there is not None:
            return Decided(replace(row, action=Action.RETURNED), None)
        copy = self._copies.copy_of(source)
        if isinstance(copy, str):
            return Decided(replace(row, action=Action.NO_POSITION, detail=copy), None)
        return self._translated(row, copy, committed, there, returned, is_active)

    def _translated(
        self,
        row: GroupOffset,
        copy: MirroredCopy,
        committed: CommittedValue,
        there: CommittedValue | None,
        returned: Mark | None,
        is_active: bool,
    ) -> Decided:
        counterpart = copy.destination if self._direction is Direction.FORWARD else copy.source
        try:
            # The other cluster has lost the offset that this one was translated from: it gets that again.
            translation = (
                self._translate(copy, committed, there)
                if returned is None
                else Translation(returned.offset, Exactness.EXACT)
            )
        except ShoalError as error:
            return Decided(replace(row, action=Action.REFUSED, detail=str(error)), None)
        late = self._late_beginning(copy, committed)
        log_start = self._log_starts.of(counterpart) or 0
        decision = decide_offset(
            committed,
            translation,
            there,
            self._clusters,
            is_active=is_active,
            log_start=log_start,
            begins_late=bool(late),
            had_incident=copy.had_incident,
        )
        missing = f"{self._written} has deleted earlier records" if decision.is_clamped else late
        if there is not None and decision.action is Action.REFUSED:
            missing = UNSTABLE_THERE if _is_unstable(there) else _unreadable(there)
        outcome = replace(
            row,
            counterpart=counterpart,
            translated=decision.translation.offset,
            exactness=decision.translation.exactness,
            present=None if there is None or there.error_code else there.offset,
            action=decision.action,
            detail=missing,
            begins_late=decision.is_clamped or bool(late),
        )
        if decision.mark is None:
            return Decided(outcome, None)
        return Decided(outcome, ToCommit(counterpart, decision.translation.offset, decision.mark))

    def _late_beginning(self, copy: MirroredCopy, committed: CommittedValue) -> str:
        """Return a phrase if the mirror began behind an offset; empty otherwise."""
        began = copy.offsets.milestones[0].source
        is_before = copy.offsets.is_whole and committed.offset < began
        if self._direction is Direction.FORWARD and is_before:
            return f"the copy begins at source offset {began}"
        return ""

    def _translate(
        self, copy: MirroredCopy, committed: CommittedValue, there: CommittedValue | None
    ) -> Translation:
        offset = committed.offset
        before = self._copies.before_cut(copy, offset, self._direction)
        if before is not None:
            return before
        if self._direction is Direction.REVERSE:
            return copy.offsets.to_source(offset, self._copies.taken_of(copy.source))
        known = copy.offsets.to_destination(offset, UNREAD)
        if known.exactness is not Exactness.AT_LEAST:
            return known
        taken = self._copies.taken_of(copy.source)
        if there is not None and not copy.had_incident:
            log_start = self._log_starts.of(copy.destination) or 0
            mark = Mark.read(there)
            further = further_from(mark, self._clusters.read, offset, taken, log_start=log_start)
            if further is not None:
                return further
        return copy.offsets.to_destination(offset, taken)


def _is_unstable(value: CommittedValue) -> bool:
    return value.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT


def _unreadable(value: CommittedValue) -> str:
    return f"a broker refuses to show the offset: {named_code(value.error_code)}"


def _why_left_out(group: OneGroup) -> str:
    """Return the reason why a group has no offsets of consumers; empty if it may have some."""
    if group.here.type is GroupType.SHARE:
        return "a share group has no committed offsets. There it begins by share.auto.offset.reset"
    offsets = group.offsets
    if isinstance(offsets, FetchedGroup) and _has_positions(offsets) and _has_only_positions(offsets):
        return "its offsets are the positions of a mirror"
    return ""


def _has_positions(offsets: FetchedGroup) -> bool:
    """Whether some of the offsets are a mirror's positions: one of each topic shows that."""
    firsts = (next(iter(topic.partitions.values()), None) for topic in offsets.topics.values())
    return any(each is not None and _is_of_a_mirror(each) for each in firsts)


def _has_only_positions(offsets: FetchedGroup) -> bool:
    """Whether no consumer has continued in the group of a mirror."""
    every = (each for topic in offsets.topics.values() for each in topic.partitions.values())
    return all(_is_of_a_mirror(each) for each in every if each.offset >= 0)


def _is_of_a_mirror(value: CommittedValue) -> bool:
    """Whether an offset is a mirror's position, or the start mark of a partition without one."""
    committed = Committed(value.offset, value.metadata)
    is_mark = is_start_mark(committed) and read_first_start(committed) is not None
    return is_mark or is_position(value.metadata)
