"""Find new topics and partitions while a mirror runs, and the ends of those that no task fetches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError, lacks_acl
from ..assignment import end_offsets
from ..model.acl_commands import commands_of
from ..model.acls import needed_acls
from ..model.incidents import IncidentKind
from ..model.options import MirrorOptions
from ..model.progress import PartitionIncident
from ..prepare.changes import PreparedTopic
from ..prepare.create import prepare
from .lookout import Lookout
from .new_partitions import NewPartitions
from .schedule import PartitionSchedule

__all__ = ["Discovery"]

#: Patience with a created topic's leaders and with transient errors; the next look tries again.
_PATIENCE_S = 15.0


class Discovery(Lookout):
    """
    Prepares new topics and partitions, and has them copied.

    A topic that cannot be mirrored does not delay the others: it is a warning, and is tried again.
    If a look finds more new partitions than may be added, it adds none: that is an incident.

    """

    failure = "new topics and partitions cannot be looked for: "

    def __init__(
        self,
        options: MirrorOptions,
        topics: Mapping[str, PreparedTopic],
        schedule: PartitionSchedule,
        on_found: Callable[[PreparedTopic], object],
        warn: Callable[[str], object],
        new_partitions: NewPartitions,
    ) -> None:
        """
        Prepare the thread.

        Args:
            topics: The topics that are mirrored already, by their names at the source.
            schedule: The partitions that wait or are stopped, and the place to report their ends.
            on_found: A function that receives a topic that is new, is back, or has new partitions, once its
                copy is ready.
            warn: A function that receives each warning once.
            new_partitions: The bound on partitions that are added.

        """
        super().__init__(options, warn)
        self._new_partitions = new_partitions
        self._problem: str | None = None
        self._topics = dict(topics)
        self._schedule = schedule
        self._on_found = on_found
        self._gone: set[str] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Prepare new topics and partitions of the source; update the ends that no task fetches."""
        found = source.refresh().topics
        news: dict[str, int] = {}
        for name, topic in found.items():
            known = self._topics.get(name)
            is_news = known is None or name in self._gone or known.partitions < len(topic.partitions)
            if is_news and self._options.topics.matches(topic):
                news[name] = len(topic.partitions)
        present = {name: topic.partitions for name, topic in self._topics.items()}
        may_add = self._may_add(news, present)
        for name, size in news.items():
            if may_add or self._new_partitions.has_counted(name, size, present):
                self._prepare(name, source, size)
        self._gone = {name for name in self._topics if name not in found}
        held_up = [each for each in self._schedule.held_up() if each.topic in found]
        if held_up:
            level = self._options.source.isolation_level
            self._schedule.expect(end_offsets(source, held_up, level, all_of_them=False))

    def _may_add(self, news: Mapping[str, int], present: Mapping[str, int]) -> bool:
        """Whether a look may add its partitions; if not, report that once."""
        before, self._problem = self._problem, self._new_partitions.count(news, present)
        if self._problem is not None and self._problem != before:
            self._warn(self._problem)
            largest = max(news, key=lambda topic: news[topic] - present.get(topic, 0))
            kind = IncidentKind.NEW_PARTITIONS.value
            self._schedule.count(PartitionIncident(largest, kind, self._problem, 0, continued=False))
        return self._problem is None

    def _prepare(self, name: str, source: Cluster, partitions: int) -> None:
        copy = self._options.topics.destination_of(name)
        taken = [
            each.source for each in self._topics.values() if each.destination == copy and each.source != name
        ]
        if taken:
            self._warn(f"topic {name} is not mirrored: its copy would be {copy}, which is that of {taken[0]}")
            return
        only_this = replace(self._options.topics, topics=re.escape(name))
        try:
            # A connection of its own: to create a topic may take longer than a look waits for an answer.
            with Cluster(self._options.destination) as destination:
                options = replace(self._options, topics=only_this)
                prepared = prepare(
                    options,
                    source,
                    destination,
                    patience_s=_PATIENCE_S,
                    check=lambda changes: self._new_partitions.check(changes, {name: partitions}),
                )
        except ShoalError as error:
            if not is_transient(error):
                self._warn(f"topic {name} is not mirrored yet: {error}{self._grants(name, copy, error)}")
            return
        for warning in prepared.warnings:
            self._warn(warning)
        self._topics[name] = prepared.topics[name]
        self._on_found(prepared.topics[name])

    def _grants(self, name: str, copy: str, error: ShoalError) -> str:
        """Return the commands that grant the ACLs of a topic and its copy, if the error is that one lacks."""
        if not lacks_acl(error):
            return ""
        needed = needed_acls({name: copy}, "", created=[copy], grown=[copy], before_2_8=False)
        acls = [each for each in needed if each.resource_type == "topic"]
        return f". As an administrator: {' && '.join(commands_of(acls, self._options, is_own=True))}"
