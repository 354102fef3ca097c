"""
One round: read the groups of one cluster, translate their offsets, and commit them at the other.

The offsets that are translated are read before the mirror's positions, and the other cluster's offsets last:
an offset that a consumer commits meanwhile is at worst one that the next round sees. A round sends each
commit once. The next one sees whether a commit without an answer was done.

Most groups need nothing: the other cluster has exactly their offsets. Such a group stays as it is until one
of its answers changes, or a fact that its translations hang on (:meth:`.copies.Copies.facts`).

While a coordinator moves, no broker may list its groups, and none reports an error: neither the former
coordinator nor the next one has them (GroupCoordinatorService.listGroups). So a listing alone does not show
that a group is gone, but its coordinator does (OffsetFetch).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from ...client.cluster import Cluster, is_transient, patiently
from ...client.committed_offsets import Committed
from ...client.group_offsets import CommittedValue, FetchedGroup, GroupOffsetsReader
from ...client.groups import GroupListing, GroupType, ListedGroup, list_groups
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...timing import DEFAULT_TIMING, Timing
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.counting import Question
from ..model.first_start import is_start_mark, read_first_start
from ..model.group_selection import GroupSelection
from ..model.offset_map import Exactness
from ..model.position import is_position
from .commit import commit_translations
from .copies import Copies, MirroredCopy
from .decide import Seen, Sides, decide
from .mark import Mark
from .report import Action, Direction, GroupOffset, GroupReport, GroupsReport, OffsetProof
from .translations import Answers, CopyMap, Translations

__all__ = ["GroupSync", "Prove"]

#: Compares the next records of a translated offset.
Prove: TypeAlias = Callable[[GroupOffset], OffsetProof | None]

#: How long the log starts of the other cluster are believed. Retention may overtake the offset of an idle
#: group at any time, also between two rounds.
_LOG_STARTS_S = 60.0

_PROVED_WRONG = "not committed: --prove found another record there. Compare the copy by shoal verify"

#: The groups whose offsets at the other cluster are read again before their commits, if a round took long.
_READ_AGAIN = 16

#: With one of these, an offset needs nothing more, whatever the mirror copies.
_NOT_TRANSLATED = frozenset({Action.NOT_MIRRORED, Action.RETURNED})

_Answer: TypeAlias = FetchedGroup | ShoalError

#: The map and the question that an offset is translated by, or an error in their place.
_Place: TypeAlias = tuple[CopyMap, Question] | ShoalError


class _Group(NamedTuple):
    """
    The answers of both clusters about one group.

    Attributes:
        here: The group as the cluster lists it whose offsets are read.
        offsets: Its offsets there; None if groups of its type commit none.
        there: The group as the other cluster lists it; None if it has no such group.
        present: Its offsets there; None without the group.

    """

    here: ListedGroup
    offsets: _Answer | None
    there: ListedGroup | None
    present: _Answer | None = None


class _Open(NamedTuple):
    """
    A group that may need a commit.

    Attributes:
        report: The group without its offsets.
        offsets: Its offsets; none if it has a problem.

    """

    report: GroupReport
    offsets: Sequence[tuple[Seen, _Place | None]]


class GroupSync:
    """The rounds of one pair of clusters. One thread uses it, with clusters of its own."""

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        settings: CopySettings,
        selection: GroupSelection,
        *,
        direction: Direction = Direction.FORWARD,
        with_lag: bool = False,
        with_states: bool = False,
        timing: Timing = DEFAULT_TIMING,
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster of the mirror.
            settings: The settings of the mirror, with its group on the source cluster.
            direction: Whether groups follow the records, or go back.
            with_lag: Whether to ask for the ends of the partitions that are read.
            with_states: Whether to see also the members of groups of brokers before Kafka 2.6.
            timing: How long the other cluster's offsets are believed.

        """
        clusters = (source, destination)
        self._read, self._written = clusters if direction is Direction.FORWARD else clusters[::-1]
        self._copies = Copies(source, destination, settings)
        self._own_group = settings.group
        self._selection = selection
        self._direction = direction
        self._with_lag = with_lag
        self._with_states = with_states
        self._timing = timing
        self._selected: dict[str, ListedGroup] = {}
        self._committed = GroupOffsetsReader(self._read)
        self._present = GroupOffsetsReader(self._written)
        self._translations = Translations()
        self._log_starts: dict[TopicPartition, int] = {}
        self._log_starts_at: dict[str, float] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._facts: object = None
        self._settled: dict[str, tuple[_Group, GroupReport]] = {}

    def settled_round(
        self, topics: Mapping[str, str], *, patience_s: float, apply: bool, **more: Any
    ) -> GroupsReport:
        """
        Repeat a round as long as a coordinator moves or does not answer.

        Args:
            topics: As for :meth:`round`, like all others.
            patience_s: How long to repeat it.

        """
        report: GroupsReport | None = None

        def attempt() -> GroupsReport:
            nonlocal report
            after = self.round(topics, apply=apply, **more)
            report = after if report is None else after.behind(report)
            if report.may_pass:
                raise _Unsettled
            return report

        try:
            return patiently(attempt, patience_s=patience_s, can_heal=_can_heal)
        except ShoalError:
            if report is None:
                raise
            return report

    def round(
        self,
        topics: Mapping[str, str],
        *,
        apply: bool,
        stable: bool = False,
        prove: Prove | None = None,
        most_counted: int | None = None,
    ) -> GroupsReport:
        """
        Read, decide, and commit.

        Args:
            topics: The mirror's topics at the destination, by their names at the source.
            apply: Whether to commit; otherwise nothing is written.
            stable: Whether to refuse offsets that an open transaction would change. The next round of a
                running mirror has them, and others have no next round.
            prove: Compares the next records of a translated offset. One with other records is not committed.
            most_counted: The most source offsets that one translation may count; None for any number.

        Raises:
            ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

        """
        started = time.monotonic()
        listed = list_groups(self._read, with_states=self._with_states)
        selected, offsets = self._read_selected(listed, topics, stable=stable)
        self._copies.read(topics)
        self._ask_logs(offsets.values())
        other = list_groups(self._written, with_states=self._with_states)
        read_at = time.monotonic()
        seen = [
            _Group(selected[name], offsets.get(name), other.groups.get(name)) for name in sorted(selected)
        ]
        groups = self._with_present(seen, self._present)
        settled = {} if prove else self._still_settled(topics, groups)
        opened = {each.here.name: self._open(each) for each in groups if each.here.name not in settled}
        answers = self._translations.translate(_asked(opened.values()), most_counted=most_counted)
        reports = []
        for number, group in enumerate(groups):
            name = group.here.name
            if name not in settled:
                is_late = apply and time.monotonic() - read_at > self._timing.fresh_groups_s
                if is_late and any(each.mark for each in self._decided(opened[name], answers, prove)):
                    # Consumers may have committed there meanwhile.
                    read_at = time.monotonic()
                    again = self._with_present(
                        groups[number : number + _READ_AGAIN], GroupOffsetsReader(self._written)
                    )
                    opened |= {each.here.name: self._open(each) for each in again}
                rows = self._decided(opened[name], answers, prove)
                if apply and any(each.mark for each in rows):
                    rows = commit_translations(self._written, name, rows)
                settled[name] = replace(opened[name].report, offsets=tuple(rows))
            reports.append(settled[name])
        self._settled = {
            group.here.name: (group, report)
            for group, report in zip(groups, reports, strict=True)
            if _is_settled(report)
        }
        warnings = [*_warnings(self._read, listed), *_warnings(self._written, other)]
        return GroupsReport(self._direction, reports, warnings, time.monotonic() - started)

    # Reading

    def _read_selected(
        self, listed: GroupListing, topics: Mapping[str, str], *, stable: bool
    ) -> tuple[dict[str, ListedGroup], Mapping[str, _Answer]]:
        """Return the selected groups, those that no broker lists for now among them, and their offsets."""
        listed_now = {each.name: each for each in listed.groups.values() if self._is_selected(each)}
        known = self._selected | listed_now
        offsets = self._committed.read(
            (name for name, each in known.items() if each.commits_offsets),
            stable=stable,
            partitions=dict.fromkeys(known, self._read_partitions(topics)) if stable else None,
        )
        self._selected = {
            name: each
            for name, each in known.items()
            if name in listed_now or _has_offsets(offsets.get(name))
        }
        return self._selected, offsets

    def _read_partitions(self, topics: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the partitions of the mirror's topics at the cluster whose offsets are read."""
        names = topics if self._direction is Direction.FORWARD else topics.values()
        found = self._read.refresh(names).topics
        return {name: sorted(found[name].partitions) for name in names if name in found}

    def _is_selected(self, group: ListedGroup) -> bool:
        # Classic groups of other protocols, such as those of Connect's workers, commit no offsets.
        is_for_consumers = group.commits_offsets or group.type is not GroupType.CLASSIC
        return is_for_consumers and group.name != self._own_group and self._selection.matches(group.name)

    def _with_present(self, groups: Sequence[_Group], reader: GroupOffsetsReader) -> list[_Group]:
        """
        Return groups with the other cluster's offsets of them, or errors.

        The read is stable: an absent offset would be written, so it must not be one that the coordinator
        does not show yet. Only a read by name shows a first offset that an open transaction commits.
        """
        wanted = {
            each.here.name: {
                there: values.keys()
                for topic, values in each.offsets.topics.items()
                if (there := self._copies.counterpart_of(topic, self._direction)) is not None
            }
            for each in groups
            if isinstance(each.offsets, FetchedGroup)
        }
        present = reader.read(wanted, stable=True, partitions=wanted)
        # Brokers do not list a group that the principal may not describe. Its commit is refused, which names
        # the remedy.
        return [
            each._replace(present=None if each.there is None and _is_unauthorized(answer) else answer)
            for each in groups
            for answer in [present.get(each.here.name)]
        ]

    def _ask_logs(self, answers: Iterable[_Answer]) -> None:
        """Ask for the first offsets at the other cluster now and then, and for the ends of this one."""
        topics = {topic for answer in answers if isinstance(answer, FetchedGroup) for topic in answer.topics}
        now = time.monotonic()
        copies = {self._copies.counterpart_of(topic, self._direction) for topic in topics}
        due = {
            each
            for each in copies
            if each is not None and now - self._log_starts_at.get(each, -_LOG_STARTS_S) >= _LOG_STARTS_S
        }
        self._log_starts |= _bounds(self._written, due, EARLIEST)
        self._log_starts_at |= dict.fromkeys(due, now)
        if self._with_lag:
            self._ends = _bounds(self._read, topics, LATEST)

    # Deciding

    def _still_settled(self, topics: Mapping[str, str], groups: Iterable[_Group]) -> dict[str, GroupReport]:
        """Return the reports of those groups of the last round that need nothing in this one either."""
        read = {
            topic
            for group in groups
            if isinstance(group.offsets, FetchedGroup)
            for topic in group.offsets.topics
        }
        facts = dict(topics), self._copies.facts(read, self._direction), self._log_starts.copy(), self._ends
        if facts != self._facts:
            self._settled.clear()
        self._facts = facts
        return {
            group.here.name: known[1]
            for group in groups
            if (known := self._settled.get(group.here.name)) is not None and known[0] == group
        }

    def _open(self, group: _Group) -> _Open:
        """Return a group without its offsets, and those that need a decision."""
        report = self._report(group)
        seen = () if report.problem else self._seen(group)
        return _Open(report, [(each, self._place(each)) for each in seen])

    def _decided(
        self, opened: _Open, answers: Mapping[CopyMap, Answers], prove: Prove | None
    ) -> list[GroupOffset]:
        """Return the decisions about the offsets of a group."""
        sides = Sides(
            self._direction,
            self._read.metadata.cluster_id,
            self._written.metadata.cluster_id,
            str(self._written),
        )
        decided = [
            decide(seen, answers[place[0]][place[1]] if isinstance(place, tuple) else place, sides)
            for seen, place in opened.offsets
        ]
        return decided if prove is None else [_proved(each, prove) for each in decided]

    def _place(self, seen: Seen) -> _Place | None:
        """Return the map and the question that an offset is translated by; None if it is not."""
        if not seen.is_translated:
            return None
        assert isinstance(seen.copy, MirroredCopy)
        try:
            return self._copies.question(seen.copy, seen.committed.offset, self._direction)
        except ShoalError as error:
            return error

    def _report(self, group: _Group) -> GroupReport:
        """Return a group without its offsets, and the reason if none of them is translated."""
        report = GroupReport(group.here.name, group.here.type, group.here.state)
        problem, is_left_out = _problem(group, str(self._written))
        if is_left_out:
            return replace(report, problem=problem, is_left_out=True)
        for answer in (group.offsets, group.present):
            if isinstance(answer, ShoalError):
                return replace(report, problem=str(answer), has_failed=True, may_pass=is_transient(answer))
        return replace(report, problem=problem)

    def _seen(self, group: _Group) -> Iterator[Seen]:
        """Yield the offsets of a group that has no problem."""
        assert isinstance(group.offsets, FetchedGroup)
        present = group.present.topics if isinstance(group.present, FetchedGroup) else {}
        is_active = group.there is not None and group.there.is_active
        for topic, committed in sorted(group.offsets.topics.items()):
            name = self._copies.counterpart_of(topic, self._direction)
            there = present.get(name) if name is not None else None
            values = {} if there is None else there
            for number, value in sorted(committed.items()):
                if value.offset < 0 and not value.error_code:
                    continue
                partition = TopicPartition(topic, number)
                source = self._copies.source_of(partition, self._direction)
                end = self._ends.get(partition)
                mark = Mark.read(value)
                is_returned = mark is not None and mark.is_from(self._written.metadata.cluster_id)
                yield Seen(
                    group.here.name,
                    partition,
                    value,
                    _known(values.get(number)),
                    None if source is None else self._copies.copy_of(source),
                    is_active,
                    None if end is None else max(0, end - value.offset),
                    0 if name is None else self._log_starts.get(TopicPartition(name, number), 0),
                    mark if is_returned else None,
                )


def _asked(opened: Iterable[_Open]) -> Mapping[CopyMap, Collection[Question]]:
    """Return the offsets to translate, by the map that translates them."""
    asked: dict[CopyMap, set[Question]] = defaultdict(set)
    for each in opened:
        for _, place in each.offsets:
            if isinstance(place, tuple):
                asked[place[0]].add(place[1])
    return asked


class _Unsettled(ShoalError):
    """A later round may commit more."""


def _can_heal(error: ShoalError) -> bool:
    return isinstance(error, _Unsettled) or is_transient(error)


def _is_settled(report: GroupReport) -> bool:
    """Whether a group needs nothing until something changes."""
    return not report.problem and all(
        each.action in _NOT_TRANSLATED
        or (each.action is Action.UNCHANGED and each.exactness is Exactness.EXACT)
        for each in report.offsets
    )


def _bounds(cluster: Cluster, topics: Iterable[str], timestamp: int) -> dict[TopicPartition, int]:
    """Return the first or the last offsets of topics. Partitions that refuse have none."""
    known = cluster.metadata.topics
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        if topic in known
        for number in known[topic].partitions
    ]
    if not partitions:
        return {}
    answers = list_offsets(cluster, dict.fromkeys(partitions, timestamp), cluster.config.isolation_level)
    return {each: answer for each, answer in answers.items() if isinstance(answer, int)}


def _known(value: CommittedValue | None) -> CommittedValue | None:
    """Return a committed offset, or an error in its place; None if there is neither."""
    return None if value is None or (value.offset < 0 and not value.error_code) else value


def _has_offsets(answer: _Answer | None) -> bool:
    """Whether a group that is not listed is there, or may be."""
    return isinstance(answer, ShoalError) or (answer is not None and bool(answer.topics))


def _is_unauthorized(answer: _Answer | None) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def _problem(group: _Group, written: str) -> tuple[str, bool]:
    """Return the reason why no offset of a group is translated, and whether it has none of consumers."""
    here, offsets, there = group.here, group.offsets, group.there
    if here.type is GroupType.SHARE:
        return "a share group has no committed offsets. There it begins by share.auto.offset.reset", True
    if offsets is None:
        return f"the offsets of {here.type.value} groups are not translated", False
    if isinstance(offsets, FetchedGroup) and _has_positions(offsets):
        if _has_only_positions(offsets):
            return "its offsets are the positions of a mirror", True
        return "some of its offsets are the positions of a mirror", False
    if there is not None and not there.commits_offsets:
        kind = there.protocol_type if there.type is GroupType.CLASSIC else there.type.value
        return f"a {kind} group on {written} has this name. Rename one of them", False
    return "", False


def _has_positions(offsets: FetchedGroup) -> bool:
    """Whether some of the offsets are a mirror's positions: one of each topic shows that."""
    firsts = (next(iter(topic.values()), None) for topic in offsets.topics.values())
    return any(each is not None and _is_of_a_mirror(each) for each in firsts)


def _has_only_positions(offsets: FetchedGroup) -> bool:
    """Whether no consumer has continued in the group of a mirror."""
    every = (each for topic in offsets.topics.values() for each in topic.values())
    return all(_is_of_a_mirror(each) for each in every if each.offset >= 0)


def _is_of_a_mirror(value: CommittedValue) -> bool:
    """Whether an offset is a mirror's position, or the start mark of a partition without one."""
    committed = Committed(value.offset, value.metadata)
    is_mark = is_start_mark(committed) and read_first_start(committed) is not None
    return is_mark or is_position(value.metadata)


def _proved(row: GroupOffset, prove: Prove) -> GroupOffset:
    """Return an offset with its proof, and without the commit if the next record is another one."""
    proved = replace(row, proof=prove(row))
    is_wrong = proved.proof is not None and proved.proof.is_same is False
    if not is_wrong or row.mark is None:
        return proved
    return replace(proved, action=Action.REFUSED, detail=_PROVED_WRONG, mark=None)


def _warnings(cluster: Cluster, listing: GroupListing) -> list[str]:
    return [
        f"groups of broker {node_id} of {cluster} may be missing: {error}"
        for node_id, error in listing.failures.items()
    ]
