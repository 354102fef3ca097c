"""
What is looked up at the source while a mirror runs: new topics and partitions, and the ends of those that
no task fetches from.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...client.cluster import Cluster, is_transient
from ...errors import ShoalError
from ...topic_partition import TopicPartition
from ..assignment import end_offsets
from ..model.options import MirrorOptions
from ..prepare.prepare import PreparedTopic, prepare

__all__ = ["Discovery"]

#: How long a created topic's leaders, and whatever else time can heal, are waited for; there is a next look.
_PATIENCE_S = 15.0


class Discovery:
    """
    A thread on the driver that looks at the source every so often, and prepares what is new.

    One topic that cannot be mirrored does not keep others from it: it is warned of, once, and tried again.

    """

    def __init__(
        self,
        options: MirrorOptions,
        topics: dict[str, PreparedTopic],
        on_found: Callable[[PreparedTopic], object],
        on_warning: Callable[[str], object],
        held_up: Callable[[], Sequence[TopicPartition]] = lambda: (),
        on_ends: Callable[[Mapping[TopicPartition, int]], object] = lambda ends: None,
    ) -> None:
        """
        Know what is mirrored already.

        Args:
            options: Of the mirror; ``refresh_s`` says how often to look.
            topics: By their names at the source.
            on_found: Told of a topic that is new, or is back, or has new partitions, once its copy is ready.
            on_warning: Told what is in the way, and of what a new copy lacks.
            held_up: Says which partitions wait or are stopped: nobody else hears how far they are behind.
            on_ends: Told where these end.

        """
        self._options = options
        self._topics = dict(topics)
        self._on_found = on_found
        self._on_warning = on_warning
        self._held_up = held_up
        self._on_ends = on_ends
        self._warned: set[str] = set()
        self._gone: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="shoal-discovery", daemon=True)

    def __enter__(self) -> Discovery:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        # It may be waiting for a broker; it holds nothing that is not its own.
        self._thread.join(timeout=1.0)

    def _keep_looking(self) -> None:
        options = self._options
        with Cluster(options.source.impatient()) as source, Cluster(options.destination) as destination:
            while not self._over.wait(self._options.refresh_s):
                try:
                    self._look(source, destination)
                except Exception as error:  # a mirror of months does not end for it
                    if not (isinstance(error, ShoalError) and is_transient(error)):
                        self._warn(f"new topics and partitions cannot be looked for: {error}")

    def _look(self, source: Cluster, destination: Cluster) -> None:
        found = source.refresh().topics
        for name, topic in found.items():
            known = self._topics.get(name)
            is_news = known is None or name in self._gone or known.partitions < len(topic.partitions)
            if is_news and self._options.topics.matches(topic):
                self._prepare(name, source, destination)
        self._gone = {name for name in self._topics if name not in found}
        held_up = [each for each in self._held_up() if each.topic in found]
        if held_up:
            level = self._options.source.isolation_level
            self._on_ends(end_offsets(source, held_up, level, all_of_them=False))

    def _prepare(self, name: str, source: Cluster, destination: Cluster) -> None:
        copy = self._options.topics.destination_of(name)
        taken = [
            each.source for each in self._topics.values() if each.destination == copy and each.source != name
        ]
        if taken:
            self._warn(f"topic {name} is not mirrored: its copy would be {copy}, which is that of {taken[0]}")
            return
        only_this = replace(self._options.topics, topics=re.escape(name))
        try:
            prepared = prepare(
                replace(self._options, topics=only_this), source, destination, patience_s=_PATIENCE_S
            )
        except ShoalError as error:
            if not is_transient(error):
                self._warn(f"topic {name} is not mirrored yet: {error}")
            return
        for warning in prepared.warnings:
            self._warn(warning)
        self._topics[name] = prepared.topics[name]
        self._on_found(prepared.topics[name])

    def _warn(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._on_warning(sentence)
