"""Offsets committed to a group, and read back."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from shoal.client.cluster import Cluster, is_transient
from shoal.client.committed_offsets import (
    Committed,
    commit_offsets,
    committed_by_groups,
    fetch_offsets,
)
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.two_brokers import answers_without_later_commits

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
NOBODY = MemberId()


def test_fetch_offsets_after_a_coordinator_moved_returns_all_commits(
    broker: Broker, cluster: Cluster
) -> None:
    commit_offsets(cluster, "group", {FIRST: Committed(7, "")}, NOBODY)
    answers_without_later_commits(broker)
    assert fetch_offsets(cluster, "group", [FIRST]) == {FIRST: Committed(7, "")}
    assert list(committed_by_groups(cluster, [FIRST])) == [("group", {FIRST: Committed(7, "")})]


def test_commit_is_visible_to_confluent_kafka(broker: Broker, cluster: Cluster) -> None:
    commit_offsets(cluster, "group", {FIRST: Committed(7, "words")}, NOBODY)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group"})
    (seen,) = consumer.committed([TheirPartition("topic", 0)], timeout=30)
    assert seen.offset == 7
    consumer.close()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_commit_with_refused_partition_commits_the_others(
    broker: Broker, cluster: Cluster, code: ErrorCode
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=code, partition=1, times=None)
    positions = {FIRST: Committed(1, ""), SECOND: Committed(2, "")}
    refused = commit_offsets(cluster, "group", positions, NOBODY)
    assert refused.keys() == {SECOND}
    assert refused[SECOND].code is code
    assert re.search(r"topic-1.*'group'", str(refused[SECOND]))
    assert fetch_offsets(cluster, "group", [FIRST, SECOND]) == {FIRST: Committed(1, "")}
    assert commit_offsets(cluster, "group", {SECOND: Committed(2, "")}, NOBODY).keys() == {SECOND}


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True),
        (ErrorCode.ILLEGAL_GENERATION, False),
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.FENCED_INSTANCE_ID, False),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
    ],
)
def test_commit_and_fetch_with_group_error_raise(
    broker: Broker, cluster: Cluster, code: ErrorCode, transient: bool
) -> None:
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        broker.faults.add(api, error=code)
    with pytest.raises(BrokerError, match="'group'") as raised:
        commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY)
    assert (raised.value.code, is_transient(raised.value)) == (code, transient)
    with pytest.raises(BrokerError, match="'group'") as raised:
        fetch_offsets(cluster, "group", [FIRST])
    assert raised.value.code is code
    assert commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY) == {}
