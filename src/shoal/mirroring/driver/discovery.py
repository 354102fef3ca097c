"""
Find new topics and partitions while a mirror runs, and the ends of those that no task fetches.

Kafka cannot remove a partition, and more of them place keys differently. So a source that lists thousands of
new ones, by mistake or on purpose, must not grow the destination before an operator has looked
(``--max-new-partitions``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...client.cluster import Cluster, is_transient
from ...errors import ConfigError, ShoalError, lacks_acl
from ..assignment import end_offsets
from ..model.acls import needed_acls
from ..model.incidents import IncidentKind
from ..model.progress import PartitionIncident
from ..prepare.changes import Prepared, PreparedTopic
from ..prepare.create import prepare
from .lookout import Watch
from .running import Running

__all__ = ["Discovery", "refuse_more_partitions"]

#: Patience with a created topic's leaders and with transient errors; the next look tries again.
_PATIENCE_S = 15.0

#: The bound on new partitions since the start is so many times that of one look.
_LOOKS = 10

_NAMED_TOPICS = 3


def refuse_more_partitions(changes: Prepared, sizes: Mapping[str, int]) -> None:
    """
    Refuse changes right before they are made if the source lists more partitions than at the look.

    Raises:
        ConfigError: A topic has more than in ``sizes``; those that are mirrored already do not count.

    """
    for name, topic in changes.topics.items():
        known = max(sizes.get(name, 0), topic.present_partitions)
        if topic.deleted is None and topic.partitions > known:
            raise ConfigError(
                f"topic {name} had {known:,} partitions a moment ago, and has {topic.partitions:,} now. The "
                "next search for new partitions counts them"
            )


class Discovery(Watch):
    """
    Prepares new topics and partitions, and has them copied.

    A topic that cannot be mirrored does not delay the others: it is a warning, and is tried again.
    If a look finds more new partitions than may be added, it adds none: that is an incident.

    """

    failure = "new topics and partitions cannot be looked for: "
    needs_all_topics = True

    def __init__(self, mirror: Running, on_found: Callable[[PreparedTopic], object]) -> None:
        """
        Prepare the first look.

        Args:
            on_found: A function that receives a topic that is new, is back, or has new partitions, once its
                copy is ready.

        """
        super().__init__(mirror)
        self._topics = mirror.schedule.topics
        #: The partitions at the start and since, also of topics that do not become ready.
        self._sizes = mirror.schedule.sizes
        self._most = sum(self._sizes.values()) + _LOOKS * self._options.max_new_partitions
        self._problem: str | None = None
        self._on_found = on_found
        self._gone: set[str] = set()

    def look(self, source: Cluster, destination: Cluster) -> None:
        """Prepare new topics and partitions of the source; update the ends that no task fetches."""
        found = source.metadata.topics
        news: dict[str, int] = {}
        for name, topic in found.items():
            known = self._topics.get(name)
            is_news = known is None or name in self._gone or known.partitions < len(topic.partitions)
            if is_news and self._options.topics.matches(topic):
                news[name] = len(topic.partitions)
        if self._may_add(news):
            for name, size in news.items():
                self._prepare(name, source, size)
        self._gone = {name for name in self._topics if name not in found}
        held_up = [each for each in self._schedule.held_up() if each.topic in found]
        if held_up:
            self._mirror.metrics.expect({}, end_offsets(source, held_up, all_of_them=False))

    def _may_add(self, sizes: Mapping[str, int]) -> bool:
        """Count the new partitions of a look, unless they are too many: then count none, and report it."""
        wanted = {name: max(0, size - self._sizes.get(name, 0)) for name, size in sizes.items()}
        left = self._most - sum(self._sizes.values())
        if sum(wanted.values()) <= min(self._options.max_new_partitions, left):
            self._problem = None
            self._sizes |= {name: sizes[name] for name, more in wanted.items() if more}
            return True
        problem = self._too_many(wanted, left)
        if problem != self._problem:
            self._problem = problem
            self._warn(problem)
            largest = max(wanted, key=lambda topic: wanted[topic])
            kind = IncidentKind.NEW_PARTITIONS.value
            self._mirror.metrics.count(PartitionIncident(largest, kind, problem, 0, continued=False))
        return False

    def _too_many(self, wanted: Mapping[str, int], left: int) -> str:
        a_look = self._options.max_new_partitions
        largest = sorted(filter(wanted.__getitem__, wanted), key=lambda topic: (-wanted[topic], topic))
        named = ", ".join(f"{topic}: {wanted[topic]:,}" for topic in largest[:_NAMED_TOPICS])
        more = len(largest[_NAMED_TOPICS:])
        others = f" and {more} more topics" if more else ""
        return (
            f"the source lists {sum(wanted.values()):,} new partitions ({named}{others}), and none of them "
            f"is added. The bound is {a_look:,} a look and {_LOOKS * a_look:,} since the start "
            f"(--max-new-partitions), of which {left:,} are left. Check the source. If it is right, start "
            "the mirror again to add them"
        )

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
                    check=lambda changes: refuse_more_partitions(changes, {name: partitions}),
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
        return f". As an administrator: {' && '.join(self._options.acl_commands(acls, is_own=True))}"
