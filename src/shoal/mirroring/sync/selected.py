"""The selected groups of a cluster, and their committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from ...client.cluster import Cluster, is_transient, patiently
from ...client.group_offsets import FetchedGroup, GroupOffsetsReader
from ...client.groups import GroupListing, GroupType, ListedGroup, list_groups
from ...errors import ShoalError
from ..model.follow_options import GroupSelection
from .report import GroupsReport

__all__ = ["Answer", "ReadGroups", "SelectedGroups", "settled", "warnings_of"]

#: The committed offsets of a group, or the error of its coordinator.
Answer: TypeAlias = FetchedGroup | ShoalError


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
        self._reader = GroupOffsetsReader(cluster)
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
        offsets = self._reader.read(
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

    def _partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        names = list(topics)
        found = self._cluster.refresh(names).topics
        return {name: sorted(found[name].partitions) for name in names if name in found}

    def _is_selected(self, group: ListedGroup) -> bool:
        # Classic groups of other protocols, such as those of Connect's workers, commit no offsets.
        is_for_consumers = group.commits_offsets or group.type is not GroupType.CLASSIC
        return is_for_consumers and group.name != self._own_group and self._selection.matches(group.name)


def settled(attempt: Callable[[], GroupsReport], patience_s: float) -> GroupsReport:
    """Repeat a round as long as a coordinator moves or does not answer, at most so long."""
    report: GroupsReport | None = None

    def again() -> GroupsReport:
        nonlocal report
        after = attempt()
        report = after if report is None else after.behind(report)
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
    return isinstance(answer, ShoalError) or (answer is not None and bool(answer.topics))


def warnings_of(cluster: Cluster, listing: GroupListing) -> list[str]:
    """Return sentences about the brokers that did not list their groups."""
    return [
        f"groups of broker {node_id} of {cluster} may be missing: {error}"
        for node_id, error in listing.failures.items()
    ]
