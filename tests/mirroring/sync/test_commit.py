"""Commits without a member: the outcome of each offset, by the broker's answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import fetch_offsets
from shoal.client.group_offsets import CommittedValue
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.offset_map import Exactness, Translation
from shoal.mirroring.sync.commit import commit_translations
from shoal.mirroring.sync.report import Action, GroupOffset, Mark
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.snapshots import Texts
from tests.world.clusters import config_of

FIRST = TopicPartition("topic", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(cluster_id="destination") as running:
        running.create_topic("topic", 3)
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("destination", broker)) as cluster:
        yield cluster


def translated(partition: int, metadata: str = "") -> GroupOffset:
    mark = Mark.of("A", CommittedValue(7, metadata, 0), Translation(5, Exactness.EXACT))
    at = TopicPartition("topic", partition)
    return GroupOffset("g", at, 7, Action.WRITE, "", at, 5, Exactness.EXACT, mark=mark)


def committed(cluster: Cluster, *offsets: GroupOffset) -> dict[int, GroupOffset]:
    return {each.partition.partition: each for each in commit_translations(cluster, "g", offsets)}


def actions(found: dict[int, GroupOffset]) -> dict[int, Action]:
    return {partition: each.action for partition, each in found.items()}


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Action.ACTIVE),
        (ErrorCode.REBALANCE_IN_PROGRESS, Action.ACTIVE),
        (ErrorCode.FENCED_INSTANCE_ID, Action.ACTIVE),
        (ErrorCode.STALE_MEMBER_EPOCH, Action.ACTIVE),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Action.REFUSED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Action.REFUSED),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Action.REFUSED),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, Action.REFUSED),
        (ErrorCode.NOT_COORDINATOR, Action.UNCONFIRMED),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Action.UNCONFIRMED),
        (ErrorCode.REQUEST_TIMED_OUT, Action.UNCONFIRMED),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Action.REFUSED),
        (ErrorCode.GROUP_ID_NOT_FOUND, Action.REFUSED),
        (ErrorCode.ILLEGAL_GENERATION, Action.REFUSED),
        (ErrorCode.INVALID_GROUP_ID, Action.REFUSED),
    ],
)
def test_commit_that_is_refused_has_an_action_and_a_reason(
    broker: Broker, cluster: Cluster, code: ErrorCode, action: Action, texts: Texts
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=code, times=None)
    outcome = committed(cluster, translated(0))[0]
    assert outcome.action is action
    assert outcome.may_pass is ("next round" in outcome.detail)
    texts(outcome.detail)
    broker.faults.clear()
    assert actions(committed(cluster, translated(0))) == {0: Action.WRITTEN}


def test_commit_without_an_answer_is_unconfirmed(broker: Broker, cluster: Cluster) -> None:
    commits = broker.faults.add(ApiKey.OFFSET_COMMIT, drop="after")
    outcome = committed(cluster, translated(0))[0]
    assert (outcome.action, outcome.may_pass, commits.hits) == (Action.UNCONFIRMED, True, 1)
    assert fetch_offsets(cluster, "g", None)[FIRST].offset == 5


def test_commit_that_is_refused_for_one_partition_commits_the_others(
    broker: Broker, cluster: Cluster
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1)
    found = committed(cluster, *map(translated, range(3)))
    assert actions(found) == {0: Action.WRITTEN, 1: Action.REFUSED, 2: Action.WRITTEN}


def test_commit_with_metadata_that_the_broker_refuses_has_the_mark_alone(
    broker: Broker, cluster: Cluster
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.OFFSET_METADATA_TOO_LARGE, partition=0)
    outcomes = committed(cluster, translated(0, "mine"), translated(1, "mine"))
    assert set(actions(outcomes).values()) == {Action.WRITTEN}
    found = fetch_offsets(cluster, "g", None)
    assert {each.partition: value.metadata for each, value in found.items()} == {
        0: "translated-by-shoal/1 A 7 5 exact",
        1: "translated-by-shoal/1 A 7 5 exact mine",
    }
