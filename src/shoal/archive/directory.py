"""The contents of an archive: its id, and its topics, of which each description is read once."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from ..errors import ConfigError, ShoalError
from ..json_values import to_json
from ..result_file import is_temporary
from ..timing import DEFAULT_TIMING, Timing
from ..topic_partition import TopicPartition
from .credentials import StoreCredentials
from .description import DamagedObject, NoArchive, encode, listed, read_archive_id, read_json, times
from .files import Store
from .names import (
    ARCHIVE_FILE,
    ARCHIVE_TOPICS,
    UnsafeName,
    check_topic,
    is_cluster_id,
    partition_path,
    timed_file,
    topic_id_of_directory,
    topic_path,
)
from .objects import PartitionObjects
from .store import open_store

__all__ = ["Archive", "ArchivedTopic"]

T = TypeVar("T")

#: The name of a topic's description begins with it.
_TOPIC = "topic."

#: Partitions that are looked at together: a store takes tens of milliseconds for each.
_AT_A_TIME = 16

#: Each is looked at, also if nothing was archived of it.
_MOST_PARTITIONS = 10_000
_MOST_REPLICAS = 100


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """
    One creation of a topic.

    Attributes:
        topic: Its name in the archive.
        directory_id: The name of its directory: the source's topic id, or ``no-id-`` and the cluster's id.
        partitions: The number of its partitions.
        replication_factor: That of the source.
        configs: Its configurations that are set on the topic.
        defaults: Its other configurations, as the source's brokers have them.
        source_topic: Its name at the source.
        written_ms: The time of this description.
        source_cluster: The id of the source's cluster; None if it has none.

    """

    topic: str
    directory_id: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    defaults: Mapping[str, str]
    source_topic: str
    written_ms: int
    source_cluster: str | None = None

    def __post_init__(self) -> None:
        if not 0 < self.partitions <= _MOST_PARTITIONS or not 0 < self.replication_factor <= _MOST_REPLICAS:
            raise ValueError(
                f"it has {self.partitions:,} partitions and {self.replication_factor:,} replicas, and an "
                f"archive has from 1 to {_MOST_PARTITIONS:,} and {_MOST_REPLICAS:,}"
            )
        if self.source_cluster is not None and not is_cluster_id(self.source_cluster):
            raise ValueError(f"{self.source_cluster!r} is no id of a cluster")

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The source's topic id; None if the source has none."""
        return topic_id_of_directory(self.directory_id)


class Archive:
    """
    An archive. Only one thread may use it.

    Attributes:
        store: Its directory.
        id: Its id, in the form of a Kafka cluster's.
        damaged: Why topics cannot be read, by their names, at the last look at all topics.

    """

    def __init__(self, store: Store, archive_id: str) -> None:
        """Use a directory that is an archive; see :meth:`open`."""
        self.store = store
        self.id = archive_id
        self.damaged: Mapping[str, ShoalError] = {}
        self._topics: dict[str, ArchivedTopic] = {}

    @classmethod
    def open(
        cls,
        url: str,
        credentials: StoreCredentials | None = None,
        expected_id: str | None = None,
        timing: Timing = DEFAULT_TIMING,
        *,
        creates: bool = False,
    ) -> Archive:
        """
        Open an archive.

        Args:
            url: The URL or path of its directory.
            credentials: Those of an object store; None for the environment's, or a role's.
            expected_id: The id of the archive; None for any.
            timing: How long a store may take for an answer.
            creates: Whether to make one of a directory that is empty or does not exist.

        Raises:
            NoArchive: The directory is none.
            ConfigError: The id differs: a path may lead elsewhere on another machine. Or the directory of a
                new archive has other files.
            ShoalError: The store does not answer, or refuses.

        """
        store = open_store(url, credentials, timing)
        try:
            found = read_archive_id(store)
        except NoArchive:
            if not creates:
                raise
            found = _create(store)
        if expected_id not in (None, found):
            raise ConfigError(
                f"{store.url} on this machine is another archive than the driver's. Use a store that all "
                "machines reach, or --master local[*]"
            )
        return cls(store, found)

    # Topics

    def topics(self) -> Mapping[str, ArchivedTopic]:
        """
        Return the topics, each as its newest description says.

        A topic that cannot be read is in :attr:`damaged`: its description is damaged, or a directory has a
        name that shoal gives none.
        """
        found, damaged = {}, {}
        for name in self.topic_names():
            try:
                if creations := self.creations(name):
                    found[name] = max(creations, key=lambda each: each.written_ms)
            except (DamagedObject, UnsafeName) as error:
                damaged[name] = error
        self.damaged = damaged
        return found

    def topic_names(self) -> Sequence[str]:
        """Return the names of all directories of topics; one may be no name of a topic."""
        return [each.name for each in listed(self.store, ARCHIVE_TOPICS) if each.is_directory]

    def creations(self, topic: str) -> Sequence[ArchivedTopic]:
        """Return the newest description of each creation of a topic."""
        found = []
        for entry in self.store.names(f"{ARCHIVE_TOPICS}/{check_topic(topic)}"):
            try:
                path = topic_path(topic, entry.name)
            except UnsafeName as error:
                raise UnsafeName(f"{self.store.url}/{ARCHIVE_TOPICS}/{topic}: {error}") from None
            if written := times(self.store, path, _TOPIC):
                found.append(self._read_topic(topic, entry.name, written[-1]))
        return found

    def check_creations(self, topics: Iterable[str], by_ms: int, what: str = "--until") -> None:
        """
        Check that the creation that readers take was archived by a time, if a topic was created again.

        Args:
            what: The word for what has this time.

        Raises:
            ConfigError: That creation was archived later, so that another one may have the records of then.

        """
        for topic in topics:
            try:
                creations = self.creations(topic)
            except (DamagedObject, UnsafeName):
                continue  # each answer about the topic says so
            if len(creations) < 2:
                continue
            newest = max(creations, key=lambda each: each.written_ms)
            first_ms = times(self.store, topic_path(topic, newest.directory_id), _TOPIC)[0]
            if by_ms < first_ms:
                at = datetime.fromtimestamp(first_ms / 1000, UTC)
                raise ConfigError(
                    f"{self.store.url}: topic {topic} was created again. The creation that is read, "
                    f"{newest.directory_id}, was first archived at {at:%Y-%m-%dT%H:%M:%S.%fZ}, behind "
                    f"{what}. Use a later one, or leave the topic out by --exclude. To restore an earlier "
                    "creation, move the directory of this one out of a copy of the archive"
                )

    def _read_topic(self, topic: str, directory_id: str, written_ms: int) -> ArchivedTopic:
        path = f"{topic_path(topic, directory_id)}/{timed_file(written_ms, _TOPIC)}"
        if path not in self._topics:
            self._topics[path] = read_json(
                ArchivedTopic, self.store, path, topic=topic, directory_id=directory_id, written_ms=written_ms
            )
        return self._topics[path]

    def describe(self, topic: ArchivedTopic) -> bool:
        """
        Write a topic's description, unless the newest says the same; return whether it was written.

        Raises:
            ConfigError: The topic is of another cluster than a creation before, or another creation was
                described later, and readers take that one.

        """
        creations = self.creations(topic.topic)
        others = {each.source_cluster for each in creations} - {None, topic.source_cluster}
        if others and topic.source_cluster is not None:
            raise ConfigError(
                f"{self.store.url}: topic {topic.topic} was archived from another cluster, {others.pop()}, "
                f"and readers would take the one of {topic.source_cluster}. Archive to another directory, or "
                "give the topic another name by --rename"
            )
        known = {each.directory_id: each for each in creations}.get(topic.directory_id)
        if known is not None and any(each.written_ms > known.written_ms for each in creations):
            raise ConfigError(
                f"{self.store.url}: topic {topic.topic} was created again and put back, and readers take the "
                "one between. Archive to another directory, or give the topic another name by --rename"
            )
        if known is not None and known == replace(topic, written_ms=known.written_ms):
            return False
        path = f"{topic_path(topic.topic, topic.directory_id)}/{timed_file(topic.written_ms, _TOPIC)}"
        values = to_json(topic)
        del values["directory_id"], values["written_ms"]  # the path has them
        self.store.write(path, encode(values))
        return True

    def objects(self, topic: str, directory_id: str, partition: int) -> PartitionObjects:
        """Return the objects of a partition, as they are now."""
        return PartitionObjects(self.store, partition_path(topic, directory_id, partition))

    def problems(self) -> Iterator[str]:
        """
        Yield the damage that descriptions and sizes show, and a sentence about the files that do not count.

        Each partition has at most one damage: the first.
        """

        def look(
            _: ArchivedTopic, __: int, objects: PartitionObjects
        ) -> tuple[DamagedObject | None, list[str]]:
            uncounted = [f"{self.store.url}/{objects.path}/{name}" for name in objects.uncounted]
            return objects.first_problem(), uncounted

        found = self.each_partition(self.topics().values(), look)
        yield from map(str, self.damaged.values())
        yield from (str(damage) for damage, _ in found if damage is not None)
        if uncounted := [each for _, files in found for each in files]:
            yield (
                f"files of {self.store.url} do not count, since they have no .json or a temporary name "
                f"({len(uncounted):,}, such as {uncounted[0]}): a failed upload or a killed task left them. "
                "You may delete them while no mirror writes there"
            )

    def pieces(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> list[tuple[TopicPartition, int, int]]:
        """
        Cut ranges of offsets at the ends of their objects.

        Raises:
            ShoalError: A description is damaged, an object is missing, or the store does not answer.

        """

        def cut(
            topic: ArchivedTopic, number: int, objects: PartitionObjects
        ) -> list[tuple[TopicPartition, int, int]]:
            partition = TopicPartition(topic.topic, number)
            return [(partition, begin, end) for _, begin, end in objects.pieces(*ranges[partition])]

        topics = [topic for _, topic in sorted(self.topics().items())]
        return [piece for found in self.each_partition(topics, cut, ranges) for piece in found]

    def each_partition(
        self,
        topics: Iterable[ArchivedTopic],
        look: Callable[[ArchivedTopic, int, PartitionObjects], T],
        wanted: Container[TopicPartition] | None = None,
    ) -> list[T]:
        """
        Look at the objects of topics, some partitions at a time; return what was found, in their order.

        Args:
            look: Receives a topic, the number of a partition and its objects, in any thread.
            wanted: The partitions to look at; None for all.

        """

        def look_at(topic: ArchivedTopic, number: int) -> T:
            return look(topic, number, self.objects(topic.topic, topic.directory_id, number))

        partitions = [
            (topic, number)
            for topic in topics
            for number in range(topic.partitions)
            if wanted is None or TopicPartition(topic.topic, number) in wanted
        ]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return list(pool.map(look_at, *zip(*partitions, strict=True))) if partitions else []


def _create(store: Store) -> str:
    """Make an archive of an empty directory; return its id."""
    if others := [each.name for each in store.names("") if not is_temporary(each.name)]:
        raise ConfigError(
            f"{store.url} is no archive and has other files, such as {min(others)!r}. Choose an empty "
            "directory"
        )
    archive_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    store.write(ARCHIVE_FILE, encode({"id": archive_id}))
    return read_archive_id(store)
