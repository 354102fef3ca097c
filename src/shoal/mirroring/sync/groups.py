"""
One round: read the groups of one cluster, translate their offsets, and commit them at the other.

The offsets that are translated are read before the mirror's positions, and the other cluster's offsets last:
an offset that a consumer commits meanwhile is at worst one that the next round sees.

While a coordinator moves, no broker may list its groups, and none reports an error: neither the former
coordinator nor the next one has them (GroupCoordinatorService.listGroups). So a listing alone does not show
that a group is gone, but its coordinator does (OffsetFetch).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

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
from ..model.position import is_position
from .commit import commit_translations
from .copies import Copies, MirroredCopy
from .decide import Decided, Seen, Sides, decide
from .mark import Mark
from .report import Action, Direction, GroupOffset, GroupReport, GroupsReport, OffsetProof
from .translations import CopyMap, Translations

__all__ = ["GroupSync", "Prove"]

#: Compares the next records of a translated offset.
Prove: TypeAlias = Callable[[GroupOffset], OffsetProof | None]

#: How long the log starts of the other cluster are believed. Retention may overtake the offset of an idle
#: group at any time, also between two rounds.
_LOG_STARTS_S = 60.0

_PROVED_WRONG = "not committed: --prove found another record there. Compare the copy by shoal verify"

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
    present: _Answer | None


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
        patience_s: float = 10.0,
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
            patience_s: How long to retry a commit while a coordinator moves.
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
        self._patience_s = patience_s
        self._timing = timing
        self._selected: dict[str, ListedGroup] = {}
        self._committed = GroupOffsetsReader(self._read)
        self._present = GroupOffsetsReader(self._written)
        self._translations = Translations()
        self._log_starts: dict[TopicPartition, int] = {}
        self._log_starts_at: dict[str, float] = {}
        self._ends: dict[TopicPartition, int] = {}

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
        present = {
            name: answer
            for name, answer in self._read_present([each for each in offsets if each in selected]).items()
            # Brokers do not list a group that the principal may not describe. Its commit is refused, which
            # names the remedy.
            if name in other.groups or not _is_unauthorized(answer)
        }
        groups = [
            _Group(selected[name], offsets.get(name), other.groups.get(name), present.get(name))
            for name in sorted(selected)
        ]
        reports = []
        for report, decided in self._decide(groups, most_counted):
            if prove is not None:
                decided = [_proved(each, prove) for each in decided]
            is_fresh = time.monotonic() - read_at <= self._timing.fresh_groups_s
            rows = self._commit(report.name, decided, is_fresh=is_fresh) if apply else decided
            reports.append(replace(report, offsets=tuple(each.outcome for each in rows)))
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
            partitions=self._read_partitions(topics) if stable else None,
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

    def _read_present(self, names: Sequence[str]) -> dict[str, _Answer]:
        """
        Return the other cluster's offsets of groups, or errors.

        The read is stable: an absent offset would be written, so it must not be one that the coordinator
        does not show yet.

        The first request for any coordinator has the brokers create __consumer_offsets, so it gets some time.
        """
        answers: dict[str, _Answer] = {}

        def read() -> None:
            answers.update(self._present.read(names, stable=True))
            for answer in answers.values():
                if isinstance(answer, ShoalError) and is_transient(answer):
                    raise answer

        try:
            patiently(read, patience_s=self._patience_s)
        except ShoalError:
            if len(answers) < len(names):
                raise
        return answers

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

    def _decide(
        self, groups: Iterable[_Group], most_counted: int | None
    ) -> Iterator[tuple[GroupReport, Sequence[Decided]]]:
        """Yield each group with its decisions, once all offsets are translated."""
        sides = Sides(
            self._direction,
            self._read.metadata.cluster_id,
            self._written.metadata.cluster_id,
            str(self._written),
        )
        asked: dict[CopyMap, set[Question]] = defaultdict(set)
        rows: list[tuple[GroupReport, list[tuple[Seen, _Place | None]]]] = []
        for group in groups:
            report = self._report(group)
            seen = [] if report.problem else [(each, self._place(each)) for each in self._seen(group)]
            rows.append((report, seen))
            for _, place in seen:
                if isinstance(place, tuple):
                    asked[place[0]].add(place[1])
        answers = self._translations.translate(asked, most_counted=most_counted)
        for report, seen in rows:
            yield (
                report,
                [
                    decide(each, answers[place[0]][place[1]] if isinstance(place, tuple) else place, sides)
                    for each, place in seen
                ],
            )

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
        if why := _why_left_out(group):
            return replace(report, problem=why, is_left_out=True)
        for answer in (group.offsets, group.present):
            if isinstance(answer, ShoalError):
                return replace(report, problem=str(answer), has_failed=True, may_pass=is_transient(answer))
        return replace(report, problem=_problem(group, str(self._written)))

    def _seen(self, group: _Group) -> Iterator[Seen]:
        """Yield the offsets of a group that has no problem."""
        assert isinstance(group.offsets, FetchedGroup)
        present = group.present.topics if isinstance(group.present, FetchedGroup) else {}
        is_active = group.there is not None and group.there.is_active
        for topic, committed in sorted(group.offsets.topics.items()):
            name = self._copies.counterpart_of(topic, self._direction)
            there = present.get(name) if name is not None else None
            values = {} if there is None else there.partitions
            for number, value in sorted(committed.partitions.items()):
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

    # Committing

    def _commit(self, group: str, decided: Sequence[Decided], *, is_fresh: bool) -> Sequence[Decided]:
        to_commit = [each.to_commit for each in decided if each.to_commit is not None]
        if not to_commit:
            return decided
        # Only a read by name shows a first offset that an open transaction commits.
        is_fresh = is_fresh and all(each.present is not None for each in to_commit)
        outcomes = commit_translations(
            self._written, group, to_commit, patience_s=self._patience_s, is_fresh=is_fresh
        )

        def committed(each: Decided) -> Decided:
            if each.to_commit is None:
                return each
            action, detail = outcomes[each.to_commit.partition]
            return Decided(replace(each.outcome, action=action, detail=detail or each.outcome.detail))

        return [committed(each) for each in decided]


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


def _is_unauthorized(answer: _Answer) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def _problem(group: _Group, written: str) -> str:
    """Return the reason why no offset of a group is translated; empty if there is none."""
    if group.offsets is None:
        return f"the offsets of {group.here.type.value} groups are not translated"
    assert isinstance(group.offsets, FetchedGroup)
    if _has_positions(group.offsets):
        return "some of its offsets are the positions of a mirror"
    if group.there is not None and not group.there.commits_offsets:
        kind = group.there.protocol_type
        if group.there.type is not GroupType.CLASSIC:
            kind = group.there.type.value
        return f"a {kind} group on {written} has this name. Rename one of them"
    return ""


def _why_left_out(group: _Group) -> str:
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


def _proved(decided: Decided, prove: Prove) -> Decided:
    """Return a decision with its proof, and without the commit if the next record is another one."""
    outcome = replace(decided.outcome, proof=prove(decided.outcome))
    is_wrong = outcome.proof is not None and outcome.proof.is_same is False
    if not is_wrong or outcome.action is not Action.WRITE:
        return Decided(outcome, decided.to_commit)
    return Decided(replace(outcome, action=Action.REFUSED, detail=_PROVED_WRONG))


def _warnings(cluster: Cluster, listing: GroupListing) -> list[str]:
    return [
        f"groups of broker {node_id} of {cluster} may be missing: {error}"
        for node_id, error in listing.failures.items()
    ]
