"""
The paths of an archive, and the names that may become part of them.

A topic's name, its id and a cluster's id come from a cluster or a store that may be hostile. Each is checked
by Kafka's own rule before any path is built, so no path leaves the archive's directory.
"""

from __future__ import annotations

import re
import uuid
from typing import NamedTuple

from ..errors import ShoalError

__all__ = [
    "ARCHIVE_FILE",
    "ARCHIVE_GROUPS",
    "ARCHIVE_RUNS",
    "ARCHIVE_TOPICS",
    "LARGEST_GENERATION",
    "ObjectName",
    "UnsafeName",
    "check_topic",
    "is_cluster_id",
    "partition_path",
    "read_partition",
    "read_timed_file",
    "timed_file",
    "topic_directory_id",
    "topic_id_of_directory",
    "topic_path",
]

#: The file that makes a directory an archive.
ARCHIVE_FILE = "archive.json"
ARCHIVE_TOPICS = "topics"
ARCHIVE_GROUPS = "groups"
ARCHIVE_RUNS = "runs"

#: Kafka's rule (``org.apache.kafka.common.internals.Topic``).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_CLUSTER_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_NO_ID = "no-id-"
_OBJECT = re.compile(r"([0-9]{20})\.([0-9]{1,10})-([0-9]{1,10})\.(log|txnindex|json)", re.ASCII)
#: The largest generation that :meth:`ObjectName.parse` reads.
LARGEST_GENERATION = 10**10 - 1
_TIMED_FILE = re.compile(r"([0-9]{20})\.json", re.ASCII)
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_LARGEST_PARTITION = 2**31 - 1
#: The end of the year 9999: no date is later.
_LATEST_MS = 253_402_300_799_999


class UnsafeName(ShoalError):
    """A cluster or a store has a name that must not become part of a path."""


def check_topic(topic: str) -> str:
    """Return a topic's name if Kafka's rule allows it."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise UnsafeName(
            f"topic {topic!r}: Kafka's rule refuses this name (letters, digits, '.', '_', '-', at most "
            "249), and an archive has no path for it. Leave the topic out by --exclude, or, "
            "if an archive has it, move its directory away"
        )
    return topic


def is_cluster_id(text: str) -> bool:
    """Whether a text is an id as clusters and archives have one, which may be a part of any name."""
    return _CLUSTER_ID.fullmatch(text) is not None


def topic_directory_id(topic_id: uuid.UUID | None, cluster_id: str | None) -> str:
    """Return the directory of one creation of a topic: its id, or that of a cluster without topic ids."""
    if topic_id is not None:
        return str(topic_id)
    if cluster_id is None or not is_cluster_id(cluster_id):
        raise UnsafeName(
            f"cluster id {cluster_id!r}: the source has no topic ids, and no id of its own that may be a "
            "part of a path. Such a cluster cannot be archived"
        )
    return _NO_ID + cluster_id


def topic_id_of_directory(name: str) -> uuid.UUID | None:
    """
    Return the topic id that a directory is named by; None for a cluster without topic ids.

    Raises:
        UnsafeName: shoal gives no directory such a name.

    """
    if name.startswith(_NO_ID) and is_cluster_id(name[len(_NO_ID) :]):
        return None
    try:
        topic_id = uuid.UUID(name)
    except ValueError:
        topic_id = None
    if topic_id is None or str(topic_id) != name:
        raise UnsafeName(
            f"directory {name!r} is no topic's id. An archive has no such directory: move it away"
        )
    return topic_id


def topic_path(topic: str, directory_id: str) -> str:
    """Return the path of one creation of a topic."""
    topic_id_of_directory(directory_id)
    return f"{ARCHIVE_TOPICS}/{check_topic(topic)}/{directory_id}"


def partition_path(topic: str, directory_id: str, partition: int) -> str:
    """Return the path of a partition's objects."""
    return f"{topic_path(topic, directory_id)}/{read_partition(topic, str(partition))}"


def read_partition(topic: str, text: str) -> int:
    """Read the number of a partition."""
    if not _PARTITION.fullmatch(text) or int(text) > _LARGEST_PARTITION:
        raise UnsafeName(f"partition {text!r} of topic {topic} is no number of a partition")
    return int(text)


def timed_file(written_ms: int, prefix: str = "") -> str:
    """Return the name of a file of which each change writes another one, after a prefix."""
    return f"{prefix}{written_ms:020d}.json"


def read_timed_file(name: str, prefix: str = "") -> int | None:
    """Return the time in the name of such a file; None for another name."""
    match = _TIMED_FILE.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return int(match[1]) if match and int(match[1]) <= _LATEST_MS else None


class ObjectName(NamedTuple):
    """
    The name of a segment's files, without their suffix.

    Attributes:
        base_offset: The offset at which it begins.
        generation: Higher than in all objects that the writer has seen of the partition.
        attempt: A random number, so that no two attempts have a name in common.

    """

    base_offset: int
    generation: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.base_offset:020d}.{self.generation}-{self.attempt}"

    @classmethod
    def parse(cls, name: str) -> tuple[ObjectName, str] | None:
        """Read a file's name; return it with its suffix, or None if no segment has such a name."""
        match = _OBJECT.fullmatch(name)
        return (cls(int(match[1]), int(match[2]), int(match[3])), match[4]) if match else None
