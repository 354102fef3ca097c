"""A partition without a position begins, or stops at a copy that is not empty."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, committed_by_groups
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.faults import answers
from tests.world.history import History
from tests.world.sentences import NO_POSITION

PARTITION = TopicPartition("topic", 0)
GOES_ON = frozenset({IncidentKind.SOURCE_RESET})


@pytest.mark.parametrize("policy", [frozenset(), GOES_ON])
def test_copy_whose_position_was_deleted_stops_and_names_adopt(
    brokers: TwoBrokers, history: History, policy: frozenset[IncidentKind]
) -> None:
    brokers = brokers.with_settings(continue_after=policy)
    history.plain(2, 3)
    assert brokers.run().complete
    brokers.forget_pairs()
    history.plain(1)

    (stopped,) = brokers.run().stopped

    assert NO_POSITION in stopped.reason
    assert re.search(r"topic-0\b.*destination.*\b0 to 4\b.*--adopt", stopped.reason)
    assert not stopped.can_heal
    assert brokers.copied() == history.committed[:5]
    assert brokers.with_settings(adopt=True).run().complete
    brokers.assert_exact(history)


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
