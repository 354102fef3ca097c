"""
The committed offsets of consumer groups in an archive: a file for each time at which they had changed.

The offsets are those of the source, and so are the offsets of the archived batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from ..errors import ConfigError
from ..topic_partition import TopicPartition
from .description import encode, read_newest, times
from .files import Store
from .names import ARCHIVE_GROUPS, check_topic, read_partition, timed_file

__all__ = ["ArchivedGroups", "check_time", "read_groups", "write_groups"]

#: The committed offsets of groups by partition, with the names of the topics in the archive.
ArchivedGroups: TypeAlias = Mapping[str, Mapping[TopicPartition, int]]

#: The largest file: a million offsets take 20 MB.
_LARGEST_BYTES = 64 * 1024 * 1024
_LARGEST_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _Groups:
    """A file: the offsets by group, topic, and number of the partition."""

    groups: Mapping[str, Mapping[str, Mapping[str, int]]]

    def __post_init__(self) -> None:
        for topics in self.groups.values():
            for topic, offsets in topics.items():
                check_topic(topic)
                for number, offset in offsets.items():
                    read_partition(topic, number)
                    if not 0 <= offset <= _LARGEST_OFFSET:
                        raise ValueError(f"{offset} is no offset")


def read_groups(store: Store, by_ms: int | None = None) -> ArchivedGroups:
    """
    Return the newest committed offsets, or those of a time; none if the archive has none of then.

    Raises:
        DamagedObject: The file cannot be read.
        ShoalError: The store does not answer.

    """
    found = read_newest(_Groups, store, ARCHIVE_GROUPS, _LARGEST_BYTES, by_ms)
    return {
        name: {
            TopicPartition(topic, int(number)): offset
            for topic, offsets in topics.items()
            for number, offset in offsets.items()
        }
        for name, topics in (found.groups if found else {}).items()
    }


def check_time(store: Store, by_ms: int | None, *, may_lack: bool = False) -> int | None:
    """
    Return the time of an archive's committed offsets: the newest ones, or those of a time.

    Raises:
        ConfigError: No file has them, and they may not lack.

    """
    found = times(store, ARCHIVE_GROUPS)
    if chosen := [each for each in found if by_ms is None or each <= by_ms]:
        return chosen[-1]
    if may_lack:
        return None
    if not found:
        raise ConfigError(
            f"{store.url} has no committed offsets of consumer groups. A mirror with --to and --groups "
            "archives them"
        )
    at = datetime.fromtimestamp(found[0] / 1000, UTC)
    raise ConfigError(
        f"{store.url} has no committed offsets of this time: the first are of {at:%Y-%m-%dT%H:%M:%S.%fZ}. "
        "Use a later --until"
    )


def write_groups(store: Store, groups: ArchivedGroups, written_ms: int) -> None:
    """
    Write the committed offsets of a time.

    Raises:
        ConfigError: No file may have so many.
        ShoalError: The store does not take them.

    """
    values: dict[str, dict[str, dict[str, int]]] = {}
    for name, offsets in groups.items():
        topics = values.setdefault(name, {})
        for partition, offset in offsets.items():
            topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    data = encode(_Groups(values))
    if len(data) > _LARGEST_BYTES:
        raise ConfigError(
            f"the committed offsets of {len(groups):,} groups take {len(data):,} bytes, and a file of an "
            f"archive has at most {_LARGEST_BYTES:,}. Select fewer groups by --groups"
        )
    store.write(f"{ARCHIVE_GROUPS}/{timed_file(written_ms)}", data)
