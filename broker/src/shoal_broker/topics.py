"""The topics of the broker: their names, ids, partitions and settings."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shoal.error_codes import ErrorCode

from .api_error import ApiError
from .config import TOPIC_SETTINGS, BrokerConfig, TopicConfig, check_settings
from .storage.data_directory import DataDirectory
from .storage.log import Log
from .storage.log_dir_failure import LogDirFailure

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
        overrides: Its own settings; the others come from the broker.

    """

    name: str
    topic_id: uuid.UUID
    logs: list[Log]
    overrides: dict[str, str] = field(default_factory=dict)


class Topics:
    """
    All topics, by name and by id. Safe to use from several threads.

    Attributes:
        failure: The failure of the data directory, if it failed.
        closing: Whether the broker is stopping. Then no partition is created, not even the next one of a
            request for thousands, for which the stop would have to wait.

    """

    def __init__(self, broker_config: BrokerConfig, data: DataDirectory | None = None) -> None:
        """
        Read the topics of a directory, or begin without any, in memory.

        Args:
            broker_config: The defaults of topics' settings.
            data: The directory of topics and logs; None for memory.

        """
        self._broker_config = broker_config
        self._data = data
        self.failure = data.failure if data is not None else LogDirFailure()
        # Held by a change of topics until it is kept, which takes a minute for thousands of partitions.
        # Lookups never need it.
        self._changing = threading.RLock()
        self._lock = threading.Lock()
        self.closing = False
        self._by_name: dict[str, Topic] = {}
        self._names: dict[uuid.UUID, str] = {}
        if data is not None:
            self._recover(data)

    def _recover(self, data: DataDirectory) -> None:
        """Read all logs, and begin a new leader epoch in each."""
        data.delete_leftovers()
        starts = dict(data.journal.facts("log_start_offset"))
        for (name,), fact in data.journal.facts("topic"):
            topic = Topic(name, uuid.UUID(fact["id"]), [], fact["config"])
            self._add_logs(topic, fact["partitions"], [])
            for number, log in enumerate(topic.logs):
                log.recover(starts.get((name, str(number)), 0), verify=not data.was_clean)
                log.begin_leader_epoch(max(log.leader_epoch, fact["leader_epoch"]) + 1)
            self._add(topic)
            self._keep(topic)

    def _add(self, topic: Topic) -> None:
        with self._lock:
            self._by_name[topic.name] = topic
            self._names[topic.topic_id] = topic.name

    def _keep(self, topic: Topic, *, flushed: bool = False) -> None:
        if self._data is not None:
            fact = {
                "id": str(topic.topic_id),
                "partitions": len(topic.logs),
                "config": topic.overrides,
                "leader_epoch": max(log.leader_epoch for log in topic.logs),
            }
            self._data.journal.put("topic", topic.name, value=fact)
            if flushed:
                self._data.journal.flush()

    def __iter__(self) -> Iterator[Topic]:
        with self._lock:
            topics = list(self._by_name.values())
        return iter(topics)

    def get(self, name: str) -> Topic | None:
        """Return the topic with this name, if there is one."""
        return self._by_name.get(name)

    def with_id(self, topic_id: uuid.UUID) -> Topic | None:
        """Return the topic with this id, if there is one."""
        name = self._names.get(topic_id)
        return self._by_name.get(name) if name is not None else None

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
        if topic is None or not 0 <= partition < len(topic.logs):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}")
        return topic.logs[partition]

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
            ApiError: As :meth:`check_new` and :func:`check_partitions`; with KAFKA_STORAGE_ERROR if it could
                not be kept.

        """
        with self._changing:
            self.check_new(name, overrides)
            check_partitions(partitions)
            topic = Topic(name, uuid.uuid4(), [], dict(overrides))
            self._grow(topic, partitions)
            self._add(topic)
            return topic

    def grow(self, topic: Topic, partitions: int) -> None:
        """
        Give a topic more partitions, up to this number.

        Raises:
            ApiError: With KAFKA_STORAGE_ERROR, if they could not be kept.

        """
        with self._changing:
            self._grow(topic, partitions)

    def _grow(self, topic: Topic, partitions: int) -> None:
        before = len(topic.logs)
        made: list[int] = []
        try:
            self._add_logs(topic, partitions, made)
            self._keep(topic, flushed=True)
        except ApiError:
            del topic.logs[before:]
            if self._data is not None:
                for number in made:
                    self._data.discard_partition(topic.name, number)
            raise

    def _add_logs(self, topic: Topic, partitions: int, made: list[int]) -> None:
        """Add logs up to a number; ``made`` gets those with a directory, even if the call fails later."""
        config = TopicConfig.of(topic.overrides, self._broker_config)
        for number in range(len(topic.logs), partitions):
            name = f"{topic.name}-{number}"
            if self.closing:
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"{name} was not created: the broker is stopping"
                )
            try:
                directory = self._data.partition(topic.name, number, topic.topic_id) if self._data else None
                made.append(number)
                topic.logs.append(Log(name, config, directory, self.failure))
            except OSError as error:
                raise self.failure.error_for(name, error) from error

    def delete(self, topic: Topic) -> None:
        """Delete a topic with its logs."""
        with self._changing:
            with self._lock:
                self._names.pop(topic.topic_id, None)
                was_there = self._by_name.pop(topic.name, None) is not None
            if not was_there or self._data is None:
                return
            self._data.journal.put("topic", topic.name, value=None)
            for number in range(len(topic.logs)):
                self._data.journal.put("log_start_offset", topic.name, number, value=None)
                self._data.delete_partition(topic.name, number)

    def delete_records(self, name: str, partition: int, before_offset: int) -> int:
        """
        Delete a partition's records before an offset, -1 for all of them; return the new start.

        Raises:
            ApiError: As :meth:`.storage.log.Log.delete_records`, or with UNKNOWN_TOPIC_OR_PARTITION.

        """
        start = self.log(name, partition).delete_records(before_offset)
        if self._data is not None:
            self._data.journal.put("log_start_offset", name, partition, value=start)
        return start

    def close(self) -> None:
        """
        Flush all logs.

        Raises:
            OSError: The first error; the other logs are flushed nevertheless.

        """
        first: OSError | None = None
        for log in (log for topic in self for log in topic.logs):
            try:
                log.close()
            except OSError as error:
                first = first or error
        if first is not None:
            raise first

    def alter(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own settings, from the next request on."""
        with self._changing:
            topic.overrides = dict(overrides)
            self._configure(topic)
            self._keep(topic)

    def broker_config_changed(self) -> None:
        """Resolve the settings of all topics again."""
        with self._changing:
            for topic in self:
                self._configure(topic)

    def _configure(self, topic: Topic) -> None:
        config = TopicConfig.of(topic.overrides, self._broker_config)
        for log in topic.logs:
            log.config = config

    def begin_leader_epoch(self) -> None:
        """Begin a new leader epoch in every partition, as an election does."""
        for topic in self:
            for log in topic.logs:
                log.begin_leader_epoch(log.leader_epoch + 1)
            self._keep(topic)


def _metric(name: str) -> str:
    return name.replace(".", "_")
