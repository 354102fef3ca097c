"""
The committed offsets of consumer groups in an archive: a file for each time at which they had changed.

The offsets are those of the source, and so are the offsets of the archived batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from ..errors import ConfigError
from ..topic_partition import TopicPartition
from .description import DamagedObject, encode, listed, newest_time, read_json
from .names import ARCHIVE_GROUPS, UnsafeName, check_topic, read_partition, read_timed_file, timed_file
from .store import Store

__all__ = ["ArchivedGroups", "check_time", "read_groups", "write_groups"]

#: The committed offsets of groups by partition, with the names of the topics in the archive.
ArchivedGroups: TypeAlias = Mapping[str, Mapping[TopicPartition, int]]

#: The largest file: a million offsets take 20 MB.
_LARGEST_BYTES = 64 * 1024 * 1024
_LARGEST_OFFSET = 2**63 - 1


def read_groups(store: Store, by_ms: int | None = None) -> ArchivedGroups:
    """
    Return the newest committed offsets, or those of a time; none if the archive has none of then.

    Raises:
        DamagedObject: The file cannot be read.
        ShoalError: The store does not answer.

    """
    newest = newest_time(store, ARCHIVE_GROUPS, by_ms=by_ms)
    if newest is None:
        return {}
    path = f"{ARCHIVE_GROUPS}/{timed_file(newest)}"
    values = read_json(store, path, _LARGEST_BYTES)
    try:
        return _groups(values.get("groups"))
    except (ValueError, UnsafeName) as error:
        raise DamagedObject(f"{store.url}/{path}", str(error)) from None


def check_time(store: Store, by_ms: int | None) -> None:
    """
    Check that an archive has committed offsets of a time, or any.

    Raises:
        ConfigError: No file has them.

    """
    if newest_time(store, ARCHIVE_GROUPS, by_ms=by_ms) is not None:
        return
    times = (read_timed_file(each.name) for each in listed(store, ARCHIVE_GROUPS))
    first = min((each for each in times if each is not None), default=None)
    if first is None:
        raise ConfigError(
            f"{store.url} has no committed offsets of consumer groups. A mirror with --to and --groups "
            "archives them"
        )
    at = datetime.fromtimestamp(first / 1000, UTC)
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
    data = encode({"groups": values})
    if len(data) > _LARGEST_BYTES:
        raise ConfigError(
            f"the committed offsets of {len(groups):,} groups take {len(data):,} bytes, and a file of an "
            f"archive has at most {_LARGEST_BYTES:,}. Select fewer groups by --groups"
        )
    store.write(f"{ARCHIVE_GROUPS}/{timed_file(written_ms)}", data)


def _groups(values: object) -> ArchivedGroups:
    return {
        name: {
            TopicPartition(check_topic(topic), read_partition(topic, number)): _offset(offset)
            for topic, offsets in _objects(topics)
            for number, offset in _objects(offsets)
        }
        for name, topics in _objects(values)
    }


def _objects(values: object) -> Sequence[tuple[str, object]]:
    if not isinstance(values, dict):
        raise ValueError(f"{values!r:.100} is no JSON object")
    return list(values.items())


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _LARGEST_OFFSET:
        raise ValueError(f"{value!r:.100} is no offset")
    return value
