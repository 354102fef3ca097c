"""The choice between names and ids of topics in Produce requests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..protocol.topic_ids import TOPIC_IDS_FROM
from ..topic_partition import TopicPartition

__all__ = ["TopicListing"]

_Batches: TypeAlias = "list[tuple[int, Sequence[memoryview]]]"


@dataclass(frozen=True, slots=True)
class TopicListing:
    """
    The names or ids by which the requests of a connection list topics.

    Attributes:
        version: The version of the requests.
        ids: The topic's id of each partition; empty if requests list topics by name.
        names: The name of each of these ids.

    """

    version: int
    ids: Mapping[TopicPartition, uuid.UUID]
    names: Mapping[uuid.UUID, str]

    @classmethod
    def of(cls, newest_version: int, ids: Mapping[TopicPartition, uuid.UUID | None] | None) -> TopicListing:
        """
        List topics by id if the broker supports it and all ids are known.

        Args:
            newest_version: The newest version that client and broker support.
            ids: The topic's id, if known, of each partition that requests will list.

        """
        known = {partition: each for partition, each in (ids or {}).items() if each is not None}
        if newest_version < TOPIC_IDS_FROM or not ids or len(known) < len(ids):
            return cls(min(newest_version, TOPIC_IDS_FROM - 1), {}, {})
        return cls(newest_version, known, {each: partition.topic for partition, each in known.items()})

    def by_topic(
        self, batches: Mapping[TopicPartition, Sequence[memoryview]]
    ) -> Mapping[str, _Batches] | Mapping[uuid.UUID, _Batches]:
        """Group batches by the topic's name or id, as the request lists it."""
        # By the id's number: a UUID is hashed in Python, which takes as long as the rest of this.
        grouped: dict[object, tuple[Any, _Batches]] = {}
        for partition, views in batches.items():
            topic: Any = self.ids[partition] if self.ids else partition[0]
            listed = grouped.setdefault(topic.int if self.ids else topic, (topic, []))
            listed[1].append((partition[1], views))
        return dict(grouped.values())
