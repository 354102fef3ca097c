"""
The contents of an archive: its id, its topics, and the objects of each partition.

Listings are as old as the last look. Descriptions never change, so each is read once.
"""

from __future__ import annotations

import base64
import time
import uuid
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest

from ..errors import ConfigError, ShoalError
from . import description
from .names import (
    ARCHIVE_FILE,
    ARCHIVE_TOPICS,
    ObjectName,
    check_topic,
    partition_path,
    read_topic_file,
    topic_file,
    topic_id_of_directory,
    topic_path,
)
from .segment import SegmentFacts
from .store import Store, StoredFile, open_store

__all__ = ["Archive", "ArchivedTopic", "DamagedObject", "PartitionObjects", "now_ms"]

#: The largest file of JSON that is read: a description of a topic with all of Kafka's configurations, or of a
#: segment with a hundred thousand aborted transactions.
_LARGEST_JSON_BYTES = 4 * 1024 * 1024

#: Objects overlap if a writer was late. More than so many in a row never do.
_LOOK_BACK = 16

_MOST_PARTITIONS = 100_000
_MOST_REPLICAS = 1_000


class DamagedObject(ShoalError):
    """An object is not what its description says, or what shoal writes."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def _text(self) -> str:
        return (
            f"{self.where}: {self.reason}. Nothing of it was used. Put back a version of the object that is "
            "whole, or begin behind it by --start"
        )


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """
    One creation of a topic.

    Attributes:
        name: Its name in the archive.
        directory_id: The name of its directory: the source's topic id, or ``no-id-`` and the cluster's id.
        partitions: The number of its partitions.
        replication_factor: That of the source.
        configs: Its configurations that are set on the topic.
        defaults: Its other configurations, as the source's brokers have them.
        source_topic: Its name at the source.
        written_ms: The time of this description.

    """

    name: str
    directory_id: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    defaults: Mapping[str, str]
    source_topic: str
    written_ms: int

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The source's topic id; None if the source has none."""
        return topic_id_of_directory(self.directory_id)

    def says_the_same(self, other: ArchivedTopic) -> bool:
        """Whether another description differs in its time alone."""
        return replace(self, written_ms=0) == replace(other, written_ms=0)

    def to_json_object(self) -> Mapping[str, object]:
        """Return the description as JSON, without what its path says."""
        return {
            "topic": self.name,
            "source_topic": self.source_topic,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": dict(self.configs),
            "defaults": dict(self.defaults),
        }

    @classmethod
    def from_json_object(
        cls, name: str, directory_id: str, written_ms: int, values: Mapping[str, object]
    ) -> ArchivedTopic:
        """
        Read the JSON.

        Raises:
            ValueError: The JSON is no description of a topic.

        """
        return cls(
            name,
            directory_id,
            _whole(values.get("partitions"), _MOST_PARTITIONS),
            _whole(values.get("replication_factor"), _MOST_REPLICAS),
            _texts(values.get("configs")),
            _texts(values.get("defaults")),
            str(values.get("source_topic")),
            written_ms,
        )


def _whole(value: object, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{value!r} is not a number from 1 to {most}")
    return value


def _texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError("its configurations are no texts")
    return value


class Archive:
    """
    An archive. Only one thread may use it.

    Attributes:
        store: Its directory.
        id: Its id, in the form of a Kafka cluster's.

    """

    def __init__(self, store: Store, archive_id: str) -> None:
        """Use a directory that is an archive; see :meth:`open` and :meth:`create`."""
        self.store = store
        self.id = archive_id
        self._topics: dict[str, ArchivedTopic] = {}

    @classmethod
    def open(cls, url: str) -> Archive:
        """
        Open an archive.

        Raises:
            ConfigError: The directory is no archive.
            ShoalError: The store does not answer, or refuses.

        """
        store = open_store(url)
        try:
            return cls(store, _read_id(store))
        except FileNotFoundError:
            raise ConfigError(
                f"{store.url} is no archive: it has no {ARCHIVE_FILE}. Correct the path. A mirror with --to "
                "writes the first one"
            ) from None

    @classmethod
    def create(cls, url: str) -> Archive:
        """
        Open an archive, or make one of a directory that is empty or does not exist.

        Raises:
            ConfigError: The directory has other files.
            ShoalError: The store does not answer, or refuses.

        """
        store = open_store(url)
        try:
            return cls(store, _read_id(store))
        except FileNotFoundError:
            pass
        if others := [each.name for each in store.names("")]:
            raise ConfigError(
                f"{store.url} is no archive and has other files, such as {min(others)!r}. Choose an empty "
                "directory"
            )
        archive_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        store.write(ARCHIVE_FILE, description.encode({"id": archive_id}))
        return cls(store, _read_id(store))

    # Topics

    def topics(self) -> Mapping[str, ArchivedTopic]:
        """
        Return the topics, each as its newest description says.

        Raises:
            DamagedObject: A description cannot be read.
            UnsafeName: A directory has a name that shoal gives none.

        """
        found = {}
        for name in self.topic_names():
            if creations := self.creations(name):
                found[name] = max(creations, key=lambda each: each.written_ms)
        return found

    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics."""
        return [check_topic(each.name) for each in self.store.names(ARCHIVE_TOPICS) if each.is_directory]

    def creations(self, topic: str) -> Sequence[ArchivedTopic]:
        """Return the newest description of each creation of a topic."""
        found = []
        for entry in self.store.names(f"{ARCHIVE_TOPICS}/{check_topic(topic)}"):
            path = topic_path(topic, entry.name)
            times = [read_topic_file(each.name) for each in self.store.names(path)]
            written = max((each for each in times if each is not None), default=None)
            if written is not None:
                found.append(self._read_topic(topic, entry.name, written))
        return found

    def _read_topic(self, topic: str, directory_id: str, written_ms: int) -> ArchivedTopic:
        path = f"{topic_path(topic, directory_id)}/{topic_file(written_ms)}"
        known = self._topics.get(path)
        if known is not None:
            return known
        try:
            found = ArchivedTopic.from_json_object(
                topic, directory_id, written_ms, _read_json(self.store, path)
            )
        except ValueError as error:
            raise DamagedObject(f"{self.store.url}/{path}", str(error)) from None
        self._topics[path] = found
        return found

    def describe(self, topic: ArchivedTopic) -> bool:
        """Write a topic's description, unless the newest says the same; return whether it was written."""
        known = {each.directory_id: each for each in self.creations(topic.name)}.get(topic.directory_id)
        if known is not None and known.says_the_same(topic):
            return False
        path = f"{topic_path(topic.name, topic.directory_id)}/{topic_file(topic.written_ms)}"
        self.store.write(path, description.encode(topic.to_json_object()))
        return True

    def objects(self, topic: str, directory_id: str, partition: int) -> PartitionObjects:
        """Return the objects of a partition, as they are now."""
        return PartitionObjects(self.store, partition_path(topic, directory_id, partition))


def now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class PartitionObjects:
    """
    The objects of a partition that count: those with a description. In the order of their offsets.

    Attributes:
        path: The directory of the partition.
        names: Their names, by base offset and generation.
        uncounted: Files without a description: a failed upload left them.

    """

    def __init__(self, store: Store, path: str) -> None:
        """Look at the directory."""
        self.path = path
        self.store = store
        self._facts: dict[ObjectName, SegmentFacts] = {}
        self.names: list[ObjectName] = []
        self.uncounted: list[str] = []
        self._sizes: dict[str, int] = {}
        self._highest_generation = -1
        self.look()

    def look(self) -> None:
        """Look at the directory again."""
        parsed = [
            (each, found) for each in self.store.names(self.path) if (found := ObjectName.parse(each.name))
        ]
        counted = {name for _, (name, suffix) in parsed if suffix == "json"}
        self.names = sorted(counted)
        self.uncounted = sorted(each.name for each, (name, _) in parsed if name not in counted)
        self._sizes = {each.name: each.size for each, _ in parsed}
        self._highest_generation = max((name.generation for _, (name, _) in parsed), default=-1)

    @property
    def next_generation(self) -> int:
        """A generation that is higher than that of any object, whether it counts or not."""
        return self._highest_generation + 1

    def where(self, name: ObjectName, suffix: str = "log") -> str:
        """Return the URL of a file, for messages."""
        return f"{self.store.url}/{self.path}/{name}.{suffix}"

    def facts(self, name: ObjectName) -> SegmentFacts:
        """
        Return the description of an object.

        Raises:
            DamagedObject: The description cannot be read, or the object was cut short.

        """
        known = self._facts.get(name)
        if known is not None:
            return known
        data = _read_small(self.store, f"{self.path}/{name}.json")
        try:
            found = SegmentFacts.decode(data)
        except ValueError as error:
            raise DamagedObject(self.where(name, "json"), str(error)) from None
        if found.next_offset <= name.base_offset:
            raise DamagedObject(
                self.where(name, "json"), f"next_offset {found.next_offset} is not behind its name's"
            )
        size = self._sizes.get(f"{name}.log")
        if size is None:
            raise DamagedObject(self.where(name), "it is missing, and its description is there")
        if size != found.log_bytes:
            raise DamagedObject(
                self.where(name), f"it has {size:,} bytes, but its description {found.log_bytes:,}"
            )
        self._facts[name] = found
        return found

    def open(self, name: ObjectName, suffix: str, size: int) -> StoredFile:
        """
        Open a file of an object, whose description has its size.

        Raises:
            DamagedObject: The file is missing, or has another size.

        """
        where = self.where(name, suffix)
        try:
            file = self.store.open(f"{self.path}/{name}.{suffix}")
        except FileNotFoundError:
            raise DamagedObject(where, "it is missing, and its description is there") from None
        if file.size != size:
            file.close()
            raise DamagedObject(where, f"it has {file.size:,} bytes, but its description {size:,}")
        return file

    @property
    def end_offset(self) -> int | None:
        """The end of the last object; None without any."""
        if not self.names:
            return None
        return max(self.facts(name).next_offset for name in self._candidates(self.names[-_LOOK_BACK:]))

    def _candidates(self, names: Sequence[ObjectName]) -> list[ObjectName]:
        """
        Return the objects of a row that may reach furthest: the last one, and those of late writers.

        Each writer has a higher generation than those before it, and begins where they ended. So an object is
        of a late writer if one before it has a higher generation, or if the next one begins where it does.
        """
        highest = -1
        late, last = [], None
        for name, following in zip_longest(names, names[1:]):
            if name.generation < highest or (following and following.base_offset == name.base_offset):
                late.append(name)
            else:
                last = name
            highest = max(highest, name.generation)
        return late if last is None else [*late, last]

    def note(self, name: ObjectName, facts: SegmentFacts) -> None:
        """Add an object that was written since the last look."""
        insort(self.names, name)
        self._facts[name] = facts
        self._highest_generation = max(self._highest_generation, name.generation)

    @property
    def start_offset(self) -> int | None:
        """The first offset that the archive has; None without any object."""
        if not self.names:
            return None
        first = self.names[0]
        return max(first.base_offset, min(self.facts(first).follows, self.facts(first).next_offset - 1))

    def at(self, offset: int) -> tuple[ObjectName, int] | None:
        """
        Return the object that has an offset, or the next one; and the offset at which another begins.

        Where objects overlap, the one with the higher generation counts.

        Returns:
            None at the end, or behind it.

        Raises:
            DamagedObject: An object is missing: the next one does not follow on this offset.

        """
        behind = bisect_right(self.names, (offset, _ANY, _ANY))
        before = self.names[max(0, behind - _LOOK_BACK) : behind]
        covering = [each for each in self._candidates(before) if self.facts(each).next_offset > offset]
        if not covering:
            return self._next(offset, behind)
        found = max(covering, key=lambda each: (each.generation, each.base_offset))
        return found, self._until(found, behind)

    def _next(self, offset: int, place: int) -> tuple[ObjectName, int] | None:
        if place >= len(self.names):
            return None
        following = self.names[place]
        if self.facts(following).follows > offset:
            raise DamagedObject(
                self.where(following),
                f"no object has the offsets from {offset} to {self.facts(following).follows - 1}, which "
                "come before it",
            )
        return following, self._until(following, place + 1)

    def _until(self, name: ObjectName, place: int) -> int:
        later = self.names[place : place + _LOOK_BACK]
        return min(
            (
                each.base_offset
                for each in later
                if each.generation > name.generation and each.base_offset > name.base_offset
            ),
            default=_ANY_OFFSET,
        )


#: Greater than each generation and attempt in a name.
_ANY = 10**10
_ANY_OFFSET = 2**63 - 1


def _read_id(store: Store) -> str:
    values = _read_json(store, ARCHIVE_FILE)
    found = values.get("id")
    if not isinstance(found, str) or not 0 < len(found) <= 64 or not found.isascii():
        raise DamagedObject(f"{store.url}/{ARCHIVE_FILE}", "it has no id")
    return found


def _read_small(store: Store, path: str) -> bytes:
    with closing(store.open(path)) as file:
        if file.size > _LARGEST_JSON_BYTES:
            raise DamagedObject(
                f"{store.url}/{path}", f"{file.size:,} bytes are more than any that shoal writes"
            )
        return file.read_at(0, file.size)


def _read_json(store: Store, path: str) -> Mapping[str, object]:
    data = _read_small(store, path)
    try:
        return description.decode(data)
    except ValueError as error:
        raise DamagedObject(f"{store.url}/{path}", str(error)) from None
