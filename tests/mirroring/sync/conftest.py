"""Two embedded brokers with a mirror between them, and the groups of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId
from shoal.mirroring.model.follow_options import GroupSelection
from shoal.mirroring.sync.groups import GroupSync
from shoal.mirroring.sync.one_round import proofs
from shoal.mirroring.sync.report import GroupOffset, GroupsReport
from shoal.mirroring.sync.selected import settled
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers


@dataclass
class Groups:
    """The groups of both brokers, and the rounds between them."""

    two: TwoBrokers
    source: Cluster
    destination: Cluster
    topics: dict[str, str] = field(default_factory=lambda: {"topic": "topic"})

    def commit(
        self,
        side: str,
        group: str,
        offset: int,
        metadata: str = "",
        *,
        topic: str = "topic",
        partition: int = 0,
    ) -> None:
        key = TopicPartition(topic, partition)
        cluster: Cluster = getattr(self, side)
        assert commit_offsets(cluster, group, {key: Committed(offset, metadata)}, MemberId()) == {}

    def committed(self, side: str, group: str, topic: str = "topic", partition: int = 0) -> Committed | None:
        key = TopicPartition(topic, partition)
        return fetch_offsets(getattr(self, side), group, [key]).get(key)

    def sync(self, groups: str = ".*", **more: Any) -> GroupSync:
        return GroupSync(self.source, self.destination, self.two.settings, GroupSelection(groups), **more)

    def round(self, *, apply: bool = True, **more: Any) -> GroupsReport:
        return self.sync(**more).round(self.topics, apply=apply)

    def settled_round(self, **more: Any) -> GroupsReport:
        return settled(partial(self.sync(**more).round, self.topics, apply=True), 20.0)

    def prove(self, report: GroupsReport) -> GroupsReport:
        """Return the report with a proof of each translation."""
        proof = proofs(self.source, self.destination, self.two.settings, report.direction)
        groups = [
            replace(group, offsets=[replace(each, proof=proof(each)) for each in group.offsets])
            for group in report.groups
        ]
        return replace(report, groups=groups)


def row_of(report: GroupsReport, group: str = "g", partition: int = 0) -> GroupOffset:
    """Return the only row of a group's partition."""
    (row,) = (
        each
        for found in report.groups
        if found.name == group
        for each in found.offsets
        if each.partition.partition == partition
    )
    return row


@pytest.fixture
def groups() -> Iterator[Groups]:
    with ExitStack() as stack:
        two = stack.enter_context(TwoBrokers.started())
        source = stack.enter_context(Cluster(two.settings.source))
        destination = stack.enter_context(Cluster(two.settings.destination))
        yield Groups(two, source, destination)
