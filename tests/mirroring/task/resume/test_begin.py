"""A partition without a position begins, or stops at a copy that is not empty."""

from __future__ import annotations

from typing import Any

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, committed_by_groups
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.faults import answers

PARTITION = TopicPartition("topic", 0)


# The groups that have positions of the same copies


def test_committed_by_groups_yields_each_group_that_committed_something(brokers: TwoBrokers) -> None:
    brokers.topic("topic", 2)
    with Cluster(brokers.settings.source) as cluster:
        for group, offset in (("one", 1), ("two", 2)):
            commit_offsets(cluster, group, {PARTITION: Committed(offset, "")}, MemberId())
        commit_offsets(cluster, "other", {TopicPartition("topic", 1): Committed(3, "")}, MemberId())
        found = dict(committed_by_groups(cluster, [PARTITION]))
        assert {group: each[PARTITION].offset for group, each in found.items()} == {"one": 1, "two": 2}
        assert dict(committed_by_groups(cluster, [])) == {}


def test_committed_by_groups_leaves_out_a_group_that_cannot_be_read(brokers: TwoBrokers) -> None:
    brokers.topic()
    with Cluster(brokers.settings.source) as cluster:
        for group in ("one", "two"):
            commit_offsets(cluster, group, {PARTITION: Committed(1, "")}, MemberId())

        def refuse_one(response: Any) -> Any:
            for each in response.groups:
                if each.group_id == "one":
                    each.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return response

        answers(brokers.source, ApiKey.OFFSET_FETCH, refuse_one)
        assert list(dict(committed_by_groups(cluster, [PARTITION]))) == ["two"]
