"""Find new topics and partitions while a mirror runs, and the ends of those that no task fetches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ..assignment import end_offsets
from ..model.options import MirrorOptions
from ..prepare.create import PreparedTopic, prepare
from .lookout import Lookout
from .schedule import PartitionSchedule

__all__ = ["Discovery"]

#: Patience with a created topic's leaders and with transient errors; the next look tries again.
_PATIENCE_S = 15.0


class Discovery(Lookout):
    """
    Prepares new topics and partitions, and has them copied.

    A topic that cannot be mirrored does not delay the others: it is a warning, and is tried again.

    """

    failure = "new topics and partitions cannot be looked for: "

    def __init__(
        self,
        options: MirrorOptions,
        topics: Mapping[str, PreparedTopic],
        schedule: PartitionSchedule,
        on_found: Callable[[PreparedTopic], object],
        warn: Callable[[str], object],
    ) -> None:
        """
        Prepare the thread.

        Args:
            topics: The topics that are mirrored already, by their names at the source.
            schedule: The partitions that wait or are stopped, and the place to report their ends.
            on_found: A function that receives a topic that is new, is back, or has new partitions, once its
                copy is ready.
            warn: A function that receives each warning once.

        """
        super().__init__(options, warn)
        self._topics = dict(topics)
        self._schedule = schedule
        self._on_found = on_found
        self._gone: set[str] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Prepare new topics and partitions of the source; update the ends that no task fetches."""
        found = source.refresh().topics
        for name, topic in found.items():
            known = self._topics.get(name)
            is_news = known is None or name in self._gone or known.partitions < len(topic.partitions)
            if is_news and self._options.topics.matches(topic):
                self._prepare(name, source)
        self._gone = {name for name in self._topics if name not in found}
        held_up = [each for each in self._schedule.held_up() if each.topic in found]
        if held_up:
            level = self._options.source.isolation_level
            self._schedule.expect(end_offsets(source, held_up, level, all_of_them=False))

    def _prepare(self, name: str, source: Cluster) -> None:
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
                prepared = prepare(options, source, destination, patience_s=_PATIENCE_S)
        except ShoalError as error:
            if not is_transient(error):
                self._warn(f"topic {name} is not mirrored yet: {error}")
            return
        for warning in prepared.warnings:
            self._warn(warning)
        self._topics[name] = prepared.topics[name]
        self._on_found(prepared.topics[name])
