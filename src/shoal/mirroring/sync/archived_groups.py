"""
The rounds of an archiving mirror: the committed offsets of groups, written whenever they have changed.

An archive has the offsets of its source, so nothing is translated before a restore. A group whose
coordinator does not answer keeps the offsets that the archive has of it. It keeps none in a topic that was
created again since.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from ...archive.description import now_ms
from ...archive.directory import Archive
from ...archive.groups import ArchivedGroups, check_time, read_groups, write_groups
from ...client.cluster import Cluster
from ...client.config import ClientConfig
from ...client.group_offsets import CommittedValue
from ...client.groups import ListedGroup
from ...error_codes import named_code
from ...errors import ConfigError, ShoalError
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
        #: A time at which each group had its archived offsets, in milliseconds since 1970.
        self._had_them_ms: dict[str, int] = {}

    @cached_property
    def _opened(self) -> tuple[Archive, SelectedGroups]:
        """The archive, and the groups to read: those that the archive has are known."""
        archive = self._destination.open_archive()
        written_ms = check_time(archive.store, None, may_lack=True)
        self._archived = read_groups(archive.store, written_ms)
        self._had_them_ms = dict.fromkeys(self._archived, written_ms or 0)
        return archive, SelectedGroups(self._source, self._selection, self._own_group, known=self._archived)

    def round(self, topics: Mapping[str, str], *, most_counted: int | None = None) -> GroupsReport:
        """
        Read the groups of the source, and archive their offsets if one has changed.

        Args:
            topics: The names of the topics in the archive, by those at the source.
            most_counted: Without effect: nothing is counted.

        Raises:
            ShoalError: The source or the store does not respond, or refuses; or the newest file is damaged.

        """
        started, started_ms = time.monotonic(), now_ms()
        archive, groups_there = self._opened
        read = groups_there.read(topics, stable=False)
        reports = [
            self._report(each, read.offsets.get(name), topics) for name, each in sorted(read.groups.items())
        ]
        self._had_them_ms |= {each.name: started_ms for each in reports if not each.has_failed}
        offsets = {each.name: self._offsets(each) for each in reports}
        groups = {name: found for name, found in offsets.items() if found}
        if groups != self._archived:
            write_groups(archive.store, groups, now_ms())
            self._archived = groups
        elapsed_s = time.monotonic() - started
        return GroupsReport(Direction.FORWARD, reports, read.warnings, elapsed_s, read.may_list_more)

    def _offsets(self, report: GroupReport) -> Mapping[TopicPartition, int]:
        """Return the offsets to archive of a group."""
        if report.has_failed:
            kept = self._archived.get(report.name, {})
            topics = {each.topic for each in kept}
            same = {topic for topic in topics if self._is_same(topic, self._had_them_ms[report.name])}
            return {each: offset for each, offset in kept.items() if each.topic in same}
        return {each.counterpart: each.committed for each in report.offsets if each.counterpart is not None}

    def _is_same(self, topic: str, since_ms: int) -> bool:
        """Whether a topic was not created again since a time: another log has other offsets."""
        archive, _ = self._opened
        try:
            archive.check_creations([topic], since_ms)
        except ConfigError:
            return False
        return True

    def _report(self, group: ListedGroup, answer: Answer | None, topics: Mapping[str, str]) -> GroupReport:
        report = report_of(group, answer, self._destination.servers)
        if report.problem or answer is None or isinstance(answer, ShoalError):
            return report
        return replace(report, offsets=tuple(self._rows(group.name, answer, topics)))

    def _rows(
        self,
        group: str,
        answer: Mapping[TopicPartition, CommittedValue],
        topics: Mapping[str, str],
    ) -> Iterator[GroupOffset]:
        archived = self._archived.get(group, {})
        for here, (offset, _, error_code) in sorted(answer.items()):
            if here.topic not in topics:
                yield GroupOffset(group, here, offset, Action.NOT_MIRRORED)
            elif error_code:
                yield GroupOffset(group, here, offset, Action.REFUSED, named_code(error_code))
            elif offset >= 0:
                there = TopicPartition(topics[here.topic], here.partition)
                before = archived.get(there)
                action = Action.UNCHANGED if before == offset else Action.WRITTEN
                yield GroupOffset(group, here, offset, action, "", there, offset, Exactness.EXACT, before)
