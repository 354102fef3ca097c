"""The answers about consumer groups of the broker that stands for an archive: their archived offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..protocol.apis import ApiKey
from ..protocol.codec import response_class
from ..topic_partition import TopicPartition, by_topic
from .files import Store
from .groups import ArchivedGroups, read_groups

__all__ = ["GroupAnswers"]


class GroupAnswers:
    """The groups of one connection."""

    def __init__(self, store: Store, by_ms: int | None) -> None:
        """
        Prepare; nothing is read yet.

        Args:
            store: The archive's directory.
            by_ms: The time whose committed offsets are the answers; None for the newest.

        """
        self._store = store
        self._by_ms = by_ms
        self._groups: ArchivedGroups | None = None

    def list_groups(self, request: Any) -> Any:
        """Read the offsets again, and list their groups."""
        self._groups = read_groups(self._store, self._by_ms)
        message = response_class(ApiKey.LIST_GROUPS)
        listed = [
            message.ListedGroup(group_id=name, protocol_type="consumer", group_state="Empty")
            for name in self._groups
        ]
        return message(groups=listed)

    def committed_offsets(self, request: Any) -> Any:
        """Return all offsets of groups as the last listing had them, also if a request names partitions."""
        if self._groups is None:
            self._groups = read_groups(self._store, self._by_ms)
        groups = [_group(each.group_id, self._groups.get(each.group_id, {})) for each in request.groups]
        return response_class(ApiKey.OFFSET_FETCH)(groups=groups)


def _group(name: str, committed: Mapping[TopicPartition, int]) -> Any:
    group = response_class(ApiKey.OFFSET_FETCH).OffsetFetchResponseGroup
    topic = group.OffsetFetchResponseTopics
    partition = topic.OffsetFetchResponsePartitions
    answers = by_topic(
        committed, lambda each: partition(partition_index=each.partition, committed_offset=committed[each])
    )
    topics = [topic(name=each, partitions=found) for each, found in answers.items()]
    return group(group_id=name, topics=topics)
