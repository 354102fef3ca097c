"""
The rounds of an archiving mirror: the committed offsets of groups, written whenever they have changed.

An archive has the offsets of its source, so nothing is translated before a restore. A group whose coordinator
does not answer keeps the offsets that the archive has of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from ...archive.description import now_ms
from ...archive.files import Store
from ...archive.groups import ArchivedGroups, read_groups, write_groups
from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...client.group_offsets import FetchedGroup
from ...client.groups import ListedGroup
from ...error_codes import named_code
from ...topic_partition import TopicPartition
from ..model.follow_options import GroupSelection
from ..model.offset_map import Exactness
from .report import Action, Direction, GroupOffset, GroupReport, GroupsReport
from .selected import Answer, SelectedGroups, report_of

__all__ = ["GroupArchive"]


class GroupArchive:
    """The groups of a source, and those of an archive. One thread uses it, with a cluster of its own."""

    def __init__(
        self, source: Cluster, destination: ClientConfig, selection: GroupSelection, own_group: str
    ) -> None:
        """Prepare; nothing is read yet."""
        self._source = source
        self._destination = destination
        self._selection = selection
        self._own_group = own_group
        self._archived: ArchivedGroups = {}

    @cached_property
    def _opened(self) -> tuple[Store, SelectedGroups]:
        """The archive's directory, and the groups to read: those that the archive has are known."""
        store = self._destination.open_archive().store
        self._archived = read_groups(store)
        return store, SelectedGroups(self._source, self._selection, self._own_group, known=self._archived)

    def round(self, topics: Mapping[str, str], *, most_counted: int | None = None) -> GroupsReport:
        """
        Read the groups of the source, and archive their offsets if one has changed.

        Args:
            topics: The names of the topics in the archive, by those at the source.
            most_counted: Without effect: nothing is counted.

        Raises:
            ShoalError: The source or the store does not respond, or refuses; or the newest file is damaged.

        """
        started = time.monotonic()
        store, groups_there = self._opened
        read = groups_there.read(topics, stable=False)
        reports = [
            self._report(each, read.offsets.get(name), topics) for name, each in sorted(read.groups.items())
        ]
        offsets = {each.name: self._offsets(each) for each in reports}
        groups = {name: found for name, found in offsets.items() if found}
        if groups != self._archived:
            write_groups(store, groups, now_ms())
            self._archived = groups
        elapsed_s = time.monotonic() - started
        return GroupsReport(Direction.FORWARD, reports, read.warnings, elapsed_s, read.may_list_more)

    def _offsets(self, report: GroupReport) -> Mapping[TopicPartition, int]:
        """Return the offsets to archive of a group."""
        if report.has_failed:
            return self._archived.get(report.name, {})
        return {each.counterpart: each.committed for each in report.offsets if each.counterpart is not None}

    def _report(self, group: ListedGroup, answer: Answer | None, topics: Mapping[str, str]) -> GroupReport:
        report = report_of(group, answer, self._destination.servers)
        if report.problem or not isinstance(answer, FetchedGroup):
            return report
        return replace(report, offsets=tuple(self._rows(group.name, answer, topics)))

    def _rows(self, group: str, answer: FetchedGroup, topics: Mapping[str, str]) -> Iterator[GroupOffset]:
        archived = self._archived.get(group, {})
        for topic, values in sorted(answer.topics.items()):
            for number, value in sorted(values.items()):
                here, offset = TopicPartition(topic, number), value.offset
                if topic not in topics:
                    yield GroupOffset(group, here, offset, Action.NOT_MIRRORED)
                elif value.error_code:
                    yield GroupOffset(group, here, offset, Action.REFUSED, named_code(value.error_code))
                elif offset >= 0:
                    there = TopicPartition(topics[topic], number)
                    before = archived.get(there)
                    action = Action.UNCHANGED if before == offset else Action.WRITTEN
                    yield GroupOffset(group, here, offset, action, "", there, offset, Exactness.EXACT, before)
