"""The destination topics of a handler, created as copies of the source topic if they are missing."""

from __future__ import annotations

from ..client.cluster import Cluster
from ..client.consumer import RawRecord
from ..error_codes import ErrorCode
from ..mirroring.model.copy_options import CopySettings
from ..mirroring.model.options import MirrorOptions
from ..mirroring.model.topics import TopicSelection
from ..mirroring.prepare.create import prepare
from .handlers import ProducerRecord

__all__ = ["DestinationTopics"]


class DestinationTopics:
    """Remembers the destination topics that have enough partitions."""

    def __init__(self, source: Cluster, destination: Cluster, settings: CopySettings) -> None:
        """Look at topics by these clusters' connections."""
        assert settings.handling is not None
        self._source = source
        self._destination = destination
        self._settings = settings
        #: The number of partitions of each topic that has enough of them.
        self._there: dict[str, int] = {}

    def make_ready(self, output: ProducerRecord | RawRecord, source_topic: str) -> None:
        """Create a missing destination topic or missing partitions, as copies of the source topic."""
        wanted = 1 if output.partition is None else output.partition + 1
        if self._there.get(output.topic, 0) >= wanted:
            return
        there = self.count_partitions(output.topic)
        if there is not None and there < wanted:
            options = MirrorOptions(
                self._settings.source,
                self._settings.destination,
                TopicSelection(source_topic, rename=f"(.*)={output.topic}"),
                group=self._settings.group,
            )
            # If the destination rejects a batch later, that is a failure to send, which has a policy.
            prepare(options, self._source, self._destination, forbids=False)
            there = self.count_partitions(output.topic)
        self._there[output.topic] = wanted if there is None else there

    def forget(self, topic: str) -> None:
        """Look at a topic again before the next output."""
        self._there.pop(topic, None)

    def count_partitions(self, topic: str) -> int | None:
        """Return the topic's number of partitions, 0 if it does not exist, None if not authorized."""
        metadata = self._destination.refresh([topic])
        code = metadata.errors.get(topic)
        if code is not None:
            return 0 if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else None
        return len(metadata.topics[topic].partitions) if topic in metadata.topics else 0
