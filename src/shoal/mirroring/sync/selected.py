"""The selected groups of a cluster, their committed offsets, and why those of a group are not translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster, is_transient, patiently
from ...client.committed_offsets import Committed
from ...client.group_offsets import CommittedValue, read_groups
from ...client.groups import GroupListing, GroupType, ListedGroup, list_groups
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..model.first_start import is_start_mark, read_first_start
from ..model.follow_options import GroupSelection
from ..model.position import is_position
from .report import Commits, GroupReport, GroupsReport

__all__ = ["Answer", "ReadGroups", "SelectedGroups", "report_of", "settled", "warnings_of"]

#: The committed offsets of a group, or the error of its coordinator.
Answer: TypeAlias = Mapping[TopicPartition, CommittedValue] | ShoalError


class ReadGroups(NamedTuple):
    """
    The selected groups, those that no broker lists for now among them.

    Attributes:
        offsets: Their committed offsets; groups whose type commits none have no entry.
        warnings: Sentences about groups that may be missing.
        may_list_more: Whether another reading may find these.

    """

    groups: Mapping[str, ListedGroup]
    offsets: Mapping[str, Answer]
    warnings: list[str]
    may_list_more: bool


class SelectedGroups:
    """Reads the groups of a cluster for each round. One thread uses it."""

    def __init__(
        self,
        cluster: Cluster,
        selection: GroupSelection,
        own_group: str,
        *,
        with_states: bool = False,
        known: Iterable[str] = (),
    ) -> None:
        """
        Prepare; nothing is sent yet.

        Args:
            cluster: The cluster.
            selection: The groups to read.
            own_group: The mirror's group, which is none of them.
            with_states: Whether to see also the members of groups of brokers before Kafka 2.6.
            known: Groups that the cluster had before.

        """
        self._cluster = cluster
        self._selection = selection
        self._own_group = own_group
        self._with_states = with_states
        earlier = (ListedGroup(name, GroupType.CLASSIC, "", "") for name in known)
        self._known = {each.name: each for each in earlier if self._is_selected(each)}

    def read(self, topics: Iterable[str], *, stable: bool) -> ReadGroups:
        """
        List the groups, and read their offsets.

        Args:
            topics: The topics whose pending offsets count, if ``stable``.
            stable: Whether to refuse offsets that an open transaction would change.

        """
        listed = list_groups(self._cluster, with_states=self._with_states)
        listed_now = {each.name: each for each in listed.groups.values() if self._is_selected(each)}
        known = self._known | listed_now
        offsets = read_groups(
            self._cluster,
            (name for name, each in known.items() if each.commits_offsets),
            stable=stable,
            partitions=dict.fromkeys(known, self._partitions(topics)) if stable else None,
        )
        self._known = {
            name: each
            for name, each in known.items()
            if name in listed_now or _has_offsets(offsets.get(name))
        }
        return ReadGroups(self._known, offsets, warnings_of(self._cluster, listed), listed.may_list_more)

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        names = list(topics)
        return self._cluster.refresh(names).partitions_of(names)

    def _is_selected(self, group: ListedGroup) -> bool:
        # Classic groups of other protocols, such as those of Connect's workers, commit no offsets.
        is_for_consumers = group.commits_offsets or group.type is not GroupType.CLASSIC
        return is_for_consumers and group.name != self._own_group and self._selection.matches(group.name)


def settled(attempt: Callable[[], GroupsReport], patience_s: float) -> GroupsReport:
    """Repeat a round as long as a coordinator moves or does not answer, at most so long."""
    report: GroupsReport | None = None
    commits = Commits()

    def again() -> GroupsReport:
        nonlocal report
        report = commits.see(attempt())
        if report.may_pass:
            raise _Unsettled
        return report

    try:
        return patiently(again, patience_s=patience_s, can_heal=_can_heal)
    except ShoalError:
        if report is None:
            raise
        return report


class _Unsettled(ShoalError):
    """A later round may do more."""


def _can_heal(error: ShoalError) -> bool:
    return isinstance(error, _Unsettled) or is_transient(error)


def _has_offsets(answer: Answer | None) -> bool:
    """Whether a group that is not listed is there, or may be."""
    return isinstance(answer, ShoalError) or bool(answer)


def warnings_of(cluster: Cluster, listing: GroupListing) -> list[str]:
    """Return sentences about the brokers that did not list their groups."""
    return [
        f"groups of broker {node_id} of {cluster} may be missing: {error}"
        for node_id, error in listing.failures.items()
    ]


def report_of(
    here: ListedGroup,
    offsets: Answer | None,
    written: str,
    there: ListedGroup | None = None,
    present: Answer | None = None,
) -> GroupReport:
    """
    Return a group without its offsets, and the reason if none of them is translated.

    Args:
        here: The group at the cluster whose offsets are read.
        offsets: Its offsets there; None if groups of its type commit none.
        written: The name of the other cluster.
        there: The group of this name at the other cluster; None without one.
        present: Its offsets there; None without the group.

    """
    report = GroupReport(here.name, here.type, here.state)
    problem, is_left_out = _problem_of(here, offsets, there, written)
    if is_left_out:
        return replace(report, problem=problem, is_left_out=True)
    for answer in (offsets, present):
        if isinstance(answer, ShoalError):
            return replace(report, problem=str(answer), has_failed=True, may_pass=is_transient(answer))
    return replace(report, problem=problem)


def _problem_of(
    here: ListedGroup, offsets: Answer | None, there: ListedGroup | None, written: str
) -> tuple[str, bool]:
    """Return the reason why no offset of a group is translated, and whether it has none of consumers."""
    if here.type is GroupType.SHARE:
        return "a share group has no committed offsets. There it begins by share.auto.offset.reset", True
    if offsets is None:
        return f"the offsets of {here.type.value} groups are not translated", False
    if not isinstance(offsets, ShoalError):
        are_positions = {_is_of_a_mirror(each) for each in offsets.values() if each.offset >= 0}
        if are_positions == {True}:
            return "its offsets are the positions of a mirror", True
        if True in are_positions:
            return "some of its offsets are the positions of a mirror", False
    if there is not None and not there.commits_offsets:
        kind = there.protocol_type if there.type is GroupType.CLASSIC else there.type.value
        return f"a {kind} group on {written} has this name. Rename one of them", False
    return "", False


def _is_of_a_mirror(value: CommittedValue) -> bool:
    """Whether an offset is a mirror's position, or the start mark of a partition without one."""
    committed = Committed(value.offset, value.metadata)
    is_mark = is_start_mark(committed) and read_first_start(committed) is not None
    return is_mark or is_position(value.metadata)
