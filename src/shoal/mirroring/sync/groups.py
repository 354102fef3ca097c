"""
One round: read the groups of one cluster, translate their offsets, and commit them at the other.

The offsets that are translated are read before the mirror's positions, and the other cluster's offsets last:
an offset that a consumer commits meanwhile is at worst one that the next round sees. Those of a group that
needs a commit are read again just before. If they have changed, another committer is at work, perhaps a round
that began later and has read later offsets: this one leaves the group to the next. So it does if an offset
would go back that is not the group's any more where it was read. A round sends each commit once. The next one
sees whether a commit without an answer was done.

An exact translation stays exact as long as no incident moves offsets. So a round decides about a group that
needs nothing only if its offsets, its state or the beginning of a log have changed.

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

from ...client.cluster import Cluster
from ...client.group_offsets import CommittedValue, read_groups
from ...client.groups import ListedGroup, list_groups
from ...client.offsets import EARLIEST, LATEST, list_offsets
from ...error_codes import ErrorCode
from ...errors import BrokerError, ShoalError
from ...topic_partition import TopicPartition
from ..model.copy_options import CopySettings
from ..model.follow_options import GroupSelection
from ..model.offset_map import Exactness, Question
from .commit import commit_translations
from .copies import Copies
from .decide import Seen, decide
from .report import Action, Direction, GroupOffset, GroupReport, GroupsReport, Mark, OffsetProof
from .selected import Answer, SelectedGroups, report_of, warnings_of
from .translations import Asked, MirroredCopy, count

__all__ = ["GroupSync", "OnGroups", "Prove"]

#: Receives what is being done, and for how many of how many groups it is done.
OnGroups: TypeAlias = Callable[[str, int, int], object]

#: Compares the next records of a translated offset.
Prove: TypeAlias = Callable[[GroupOffset], OffsetProof | None]

_PROVED_WRONG = "not committed: --prove found another record there. Compare the copy by shoal verify"

_OVERTAKEN = (
    "the group's offsets differ at a second look: another committer may be at work. The next round decides "
    "again"
)

#: The groups whose offsets at the other cluster are read again together, before their commits.
READ_AGAIN = 16


#: Offsets by topic and partition.
_Bounds: TypeAlias = Mapping[str, Mapping[int, int]]


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
    offsets: Answer | None
    there: ListedGroup | None
    present: Answer | None = None

    @property
    def committed(self) -> Mapping[TopicPartition, CommittedValue]:
        """Its offsets at the cluster that is read, none if they cannot be read."""
        return _offsets_of(self.offsets)

    @property
    def topics(self) -> set[str]:
        """The topics of these."""
        return {each.topic for each in self.committed}


#: The actions that leave an offset as it is until something changes.
_AT_REST = frozenset(Action) - {Action.WRITE, Action.WRITTEN, Action.UNCONFIRMED, Action.REFUSED}


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
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            source: The source cluster of the mirror.
            settings: The settings of the mirror, with its group on the source cluster.
            direction: Whether groups follow the records, or go back.
            with_lag: Whether to ask for the ends of the partitions that are read.
            with_states: Whether to see also the members of groups of brokers before Kafka 2.6.

        """
        clusters = (source, destination)
        self._read, self._written = clusters if direction is Direction.FORWARD else clusters[::-1]
        self._copies = Copies(source, destination, settings)
        self._groups = SelectedGroups(self._read, selection, settings.group, with_states=with_states)
        self._direction = direction
        #: The other cluster's name of each topic that is read, and the source's; of those that are mirrored.
        self._counterparts: Mapping[str, str] = {}
        self._sources: Mapping[str, str] = {}
        self._with_lag = with_lag
        self._with_states = with_states
        self._log_starts: _Bounds = {}
        self._ends: _Bounds = {}
        #: The groups that need nothing, as the last round saw them, and what their reports hang on besides.
        self._settled: Mapping[str, tuple[_Group, GroupReport]] = {}
        self._hung_on: Mapping[str, object] = {}

    def round(
        self,
        topics: Mapping[str, str],
        *,
        apply: bool,
        stable: bool = False,
        prove: Prove | None = None,
        most_counted: int | None = None,
        on_progress: OnGroups = lambda *_: None,
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
            on_progress: Called before each group that is proved or committed.

        Raises:
            ShoalError: A cluster does not respond, or refuses to show the mirror's positions.

        """
        started = time.monotonic()
        sources = {name: name for name in topics}
        if self._direction is Direction.REVERSE:
            sources = {copy: name for name, copy in topics.items()}
        self._sources = sources
        self._counterparts = topics if self._direction is Direction.FORWARD else sources
        read = self._groups.read(sources, stable=stable)
        self._copies.read(topics)
        self._ask_logs(read.offsets.values())
        other = list_groups(self._written, with_states=self._with_states)
        seen = [
            _Group(each, read.offsets.get(name), other.groups.get(name))
            for name, each in sorted(read.groups.items())
        ]
        groups = self._with_present(seen)
        known = self._still_settled(groups)
        if prove is not None or self._with_lag:
            known = {}  # a proof and a lag are of this moment
        news = [each for each in groups if each.here.name not in known]
        reports = known | self._decided(news, most_counted)
        if prove is not None:
            for number, (name, report) in enumerate(reports.items()):
                on_progress("proving", number, len(reports))
                reports[name] = _proved(report, prove)
        if apply:
            waiting = [each for each in news if _waits_for_commit(reports[each.here.name])]
            reports |= self._commit(waiting, reports, on_progress)
        self._settled = {
            each.here.name: (each, report)
            for each in groups
            if _is_settled(report := reports[each.here.name])
        }
        warnings = [*read.warnings, *warnings_of(self._written, other)]
        in_order = [reports[each.here.name] for each in groups]
        may_list_more = read.may_list_more or other.may_list_more
        return GroupsReport(self._direction, in_order, warnings, time.monotonic() - started, may_list_more)

    def _commit(
        self,
        groups: Sequence[_Group],
        decided: Mapping[str, GroupReport],
        on_progress: OnGroups,
    ) -> Iterator[tuple[str, GroupReport]]:
        """Commit the translations of groups, and yield their names and reports."""
        for start in range(0, len(groups), READ_AGAIN):
            # Consumers may have committed there meanwhile.
            some = groups[start : start + READ_AGAIN]
            again = self._with_present(some)
            for number, (before, group) in enumerate(zip(some, again, strict=True), start):
                on_progress("committing", number, len(groups))
                name, report = group.here.name, decided[group.here.name]
                if group != before or self._is_overtaken(report):
                    yield name, _left_to_next_round(report)
                    continue
                rows = commit_translations(self._written, name, report.offsets)
                yield name, replace(report, offsets=tuple(rows))

    def _is_overtaken(self, report: GroupReport) -> bool:
        """
        Whether an offset of shoal's would go back, and the group has committed another one here since.

        Another round may have read that one, and translated it before this one looked at the other cluster.
        If the group is as it was read, an operator has reset it, and the offset follows.
        """
        back = [each for each in report.offsets if each.mark and (each.present or 0) > (each.translated or 0)]
        if not back:
            return False
        (answer,) = read_groups(self._read, [report.name]).values()
        here = _offsets_of(answer)
        now = [here.get(each.partition) for each in back]
        return any(
            found is None or found.offset != each.committed for found, each in zip(now, back, strict=True)
        )

    # Reading

    def _with_present(self, groups: Sequence[_Group]) -> list[_Group]:
        """
        Return groups with the other cluster's offsets of them, or errors.

        The read is stable: an absent offset would be written, so it must not be one that the coordinator
        does not show yet. Only a read by name shows a first offset that an open transaction commits.
        """
        wanted = {
            each.here.name: [
                TopicPartition(there, number)
                for topic, number in each.committed
                if (there := self._counterparts.get(topic)) is not None
            ]
            for each in groups
            if not isinstance(each.offsets, ShoalError | None)
        }
        present = read_groups(self._written, wanted, stable=True, partitions=wanted)
        # Brokers do not list a group that the principal may not describe. Its commit is refused, which names
        # the remedy.
        return [
            each._replace(present=None if each.there is None and _is_unauthorized(answer) else answer)
            for each in groups
            for answer in [present.get(each.here.name)]
        ]

    def _ask_logs(self, answers: Iterable[Answer]) -> None:
        """Ask for the first offsets at the other cluster, and for the ends of this one."""
        topics = {each.topic for answer in answers for each in _offsets_of(answer)}
        copies = {self._counterparts[each] for each in topics & self._counterparts.keys()}
        self._log_starts = _bounds(self._written, copies, EARLIEST)
        if self._with_lag:
            self._ends = _bounds(self._read, topics, LATEST)

    # Deciding

    def _still_settled(self, groups: Sequence[_Group]) -> dict[str, GroupReport]:
        """Return the reports of the last round of those groups that still need nothing."""
        before, topics = self._hung_on, {topic for each in groups for topic in each.topics}
        self._hung_on = {topic: self._hangs_on(topic) for topic in topics}
        changed = {topic for topic, found in self._hung_on.items() if before.get(topic) != found}
        return {
            each.here.name: self._settled[each.here.name][1]
            for each in groups
            if each.here.name in self._settled
            and self._settled[each.here.name][0] == each
            and changed.isdisjoint(each.topics)
        }

    def _hangs_on(self, topic: str) -> object:
        """Return what decisions about offsets of a topic hang on besides the committed offsets."""
        name = self._counterparts.get(topic, "")
        return name, self._log_starts.get(name), self._copies.kept_by(self._sources.get(topic, ""))

    def _decided(self, groups: Iterable[_Group], most_counted: int | None) -> dict[str, GroupReport]:
        """Return the decisions about groups: by arithmetic, and by what has to be counted."""
        read_id, written = self._read.metadata.cluster_id, str(self._written)
        reports: dict[str, GroupReport] = {}
        seen: list[Seen] = []
        for each in groups:
            report = report_of(each.here, each.offsets, written, each.there, each.present)
            reports[each.here.name] = report
            seen += () if report.problem else self._seen(each)
        left_open = [each.asked for each in seen if each.asked is not None and each.is_open]
        counted = count(left_open, most_counted=most_counted)
        rows: dict[str, list[GroupOffset]] = defaultdict(list)
        for row in seen:
            translation = row.asked and counted.get(row.asked, row.asked.translation)
            rows[row.group].append(decide(row, translation, read_id, written))
        return {name: replace(report, offsets=tuple(rows[name])) for name, report in reports.items()}

    def _seen(self, group: _Group) -> Iterator[Seen]:
        """Yield the offsets of a group that has no problem."""
        present = _offsets_of(group.present)
        ids = self._read.metadata.cluster_id, self._written.metadata.cluster_id
        is_forward = self._direction is Direction.FORWARD
        for partition, value in sorted(group.committed.items()):
            if (here := _known(value)) is None:
                continue
            topic, number = partition
            source, ends = self._sources.get(topic), self._ends.get(topic, {})
            counterpart = TopicPartition(self._counterparts.get(topic, ""), number)
            copy = None if source is None else self._copies.copy_of(TopicPartition(source, number))
            there, returned, asked = _known(present.get(counterpart)), Mark.read(here, ids[1]), None
            if isinstance(copy, MirroredCopy) and not here.error_code and returned is None:
                asked = self._copies.asked(copy, Question(here.offset, is_forward))
            yield Seen(
                group.here.name,
                partition,
                counterpart,
                here,
                there,
                copy,
                asked,
                is_active=group.there is not None and group.there.is_active,
                lag=max(0, ends[number] - here.offset) if number in ends else None,
                log_start=self._log_starts.get(counterpart.topic, {}).get(number, 0),
                began=_began_behind(asked) if asked and is_forward else None,
                returned=returned,
                ours=None if there is None else Mark.read(there, ids[0]),
            )


def _waits_for_commit(report: GroupReport) -> bool:
    return any(each.mark for each in report.offsets)


def _left_to_next_round(report: GroupReport) -> GroupReport:
    """Return a group without commits: another committer may know later offsets than this round has read."""
    rows = [
        replace(row, action=Action.REFUSED, detail=_OVERTAKEN, mark=None, may_pass=True) if row.mark else row
        for row in report.offsets
    ]
    return replace(report, offsets=tuple(rows))


def _is_settled(report: GroupReport) -> bool:
    """Whether nothing is to be done about a group until something changes."""
    return not report.problem and all(
        each.action in _AT_REST and each.exactness in (None, Exactness.EXACT) for each in report.offsets
    )


def _bounds(cluster: Cluster, topics: Iterable[str], timestamp: int) -> _Bounds:
    """Return the first or the last offsets of topics. Partitions that refuse have none."""
    partitions = cluster.metadata.partitions_of(topics)
    if not partitions:
        return {}
    answers = list_offsets(cluster, dict.fromkeys(partitions, timestamp), cluster.config.isolation_level)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for (topic, number), answer in answers.items():
        if isinstance(answer, int):
            found[topic][number] = answer
    return found


def _offsets_of(answer: Answer | None) -> Mapping[TopicPartition, CommittedValue]:
    """Return the offsets of an answer; none of an error, or without one."""
    return {} if answer is None or isinstance(answer, ShoalError) else answer


def _known(value: CommittedValue | None) -> CommittedValue | None:
    """Return a committed offset, or an error in its place; None if there is neither."""
    return None if value is None or (value.offset < 0 and not value.error_code) else value


def _began_behind(asked: Asked) -> int | None:
    """Return the source offset at which the mirror began, if it copied nothing before; else None."""
    offsets = asked.copy.offsets
    began = offsets.milestones[0].source
    return began if offsets.is_whole and asked.question.offset < began else None


def _is_unauthorized(answer: Answer | None) -> bool:
    return isinstance(answer, BrokerError) and answer.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def _proved(report: GroupReport, prove: Prove) -> GroupReport:
    """Return a group with the proofs of its offsets."""
    return replace(report, offsets=tuple(_proved_row(each, prove) for each in report.offsets))


def _proved_row(row: GroupOffset, prove: Prove) -> GroupOffset:
    """Return an offset with its proof, and without the commit if the next record is another one."""
    proved = replace(row, proof=prove(row))
    is_wrong = proved.proof is not None and proved.proof.is_same is False
    if not is_wrong or row.mark is None:
        return proved
    return replace(proved, action=Action.REFUSED, detail=_PROVED_WRONG, mark=None)
