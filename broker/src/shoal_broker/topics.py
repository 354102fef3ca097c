"""The topics of the broker: their names, ids, partitions and settings."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shoal.error_codes import ErrorCode

from .api_error import ApiError
from .config import TOPIC_SETTINGS, TopicConfig, check_settings
from .storage.log import Log

__all__ = ["Topic", "Topics", "check_partitions", "check_topic_name"]

#: The most partitions that a request can create (``ReplicationControlManager.MAX_PARTITIONS_PER_BATCH``).
MAX_PARTITIONS = 10_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def check_topic_name(name: str) -> None:
    """
    Check a name by Kafka's rule (``org.apache.kafka.common.internals.Topic``).

    Raises:
        ApiError: With INVALID_TOPIC_EXCEPTION.

    """
    if name in (".", "..") or not _LEGAL_NAME.fullmatch(name):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name!r}")


def check_partitions(partitions: int) -> None:
    """
    Check a number of partitions.

    Raises:
        ApiError: With INVALID_PARTITIONS or POLICY_VIOLATION.

    """
    if partitions <= 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"{partitions} is not a valid number of partitions")
    if partitions > MAX_PARTITIONS:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"{partitions} partitions are more than {MAX_PARTITIONS}")


@dataclass(slots=True)
class Topic:
    """
    A topic and its logs, one for each partition.

    Attributes:
        topic_id: Its id; a later topic of the same name has another one.
        logs: Its logs, by partition number.
        overrides: Its own settings; the others are the defaults.

    """

    name: str
    topic_id: uuid.UUID
    logs: list[Log]
    overrides: dict[str, str] = field(default_factory=dict)

    def log(self, partition: int) -> Log | None:
        """Return a partition's log, if there is one."""
        return self.logs[partition] if 0 <= partition < len(self.logs) else None


class Topics:
    """All topics, by name and by id. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin without topics."""
        self._lock = threading.RLock()
        self._by_name: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}

    def __iter__(self) -> Iterator[Topic]:
        with self._lock:
            topics = list(self._by_name.values())
        return iter(topics)

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name, if there is one."""
        return self._by_name.get(name)

    def with_id(self, topic_id: uuid.UUID | None) -> Topic:
        """
        Return the topic with this id.

        Raises:
            ApiError: With UNKNOWN_TOPIC_ID.

        """
        topic = self._by_name.get(self._names.get(topic_id, "")) if topic_id is not None else None
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
        return topic

    @property
    def names(self) -> Mapping[uuid.UUID, str]:
        """The name of each topic, by its id."""
        return self._names

    def topic(self, name: str) -> Topic:
        """
        Return a topic.

        Raises:
            ApiError: With UNKNOWN_TOPIC_OR_PARTITION.

        """
        topic = self.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def log(self, name: str, partition: int) -> Log:
        """
        Return a partition's log.

        Raises:
            ApiError: With UNKNOWN_TOPIC_OR_PARTITION.

        """
        topic = self.get(name)
        log = topic.log(partition) if topic is not None else None
        if log is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}")
        return log

    def check_new(self, name: str, overrides: Mapping[str, str | None]) -> None:
        """
        Check that a topic with this name and these settings can be created.

        Raises:
            ApiError: With INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS or INVALID_CONFIG.

        """
        check_topic_name(name)
        with self._lock:
            if name in self._by_name:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
            # Metrics replace '.' by '_', so Kafka allows only one of two such names.
            clash = next((other for other in self._by_name if _metric(other) == _metric(name)), None)
        if clash is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} collides with {clash!r}")
        check_settings(TOPIC_SETTINGS, overrides)

    def create(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """
        Create a topic.

        Raises:
            ApiError: As :meth:`check_new` and :func:`check_partitions`.

        """
        with self._lock:
            self.check_new(name, overrides)
            check_partitions(partitions)
            topic = Topic(name, uuid.uuid4(), [], dict(overrides))
            self.grow(topic, partitions)
            self._by_name[name] = topic
            self._names[topic.topic_id] = name
            return topic

    def grow(self, topic: Topic, partitions: int) -> None:
        """Give a topic more partitions, up to this number."""
        with self._lock:
            config = TopicConfig.of(topic.overrides)
            for number in range(len(topic.logs), partitions):
                topic.logs.append(Log(f"{topic.name}-{number}", config))

    def delete(self, topic: Topic) -> None:
        """Delete a topic with its logs."""
        with self._lock:
            self._names.pop(topic.topic_id, None)
            self._by_name.pop(topic.name, None)

    def alter(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own settings, from the next request on."""
        with self._lock:
            topic.overrides = dict(overrides)
            config = TopicConfig.of(overrides)
            for log in topic.logs:
                log.config = config

    def begin_leader_epoch(self) -> None:
        """Begin a new leader epoch in every partition, as an election does."""
        for topic in self:
            for log in topic.logs:
                log.begin_leader_epoch(log.leader_epoch + 1)


def _metric(name: str) -> str:
    return name.replace(".", "_")
