"""Who answers for a group, and what a principal may do (as real brokers tell it: tests/integration)."""

from __future__ import annotations

import pytest

from shoal.broker import Broker
from shoal.client.authorized import group_operations, topic_operations
from shoal.client.cluster import Cluster
from shoal.client.coordinator import has_coordinator
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey


def test_a_broker_that_tells_nothing_is_no_refusal(cluster: Cluster) -> None:
    assert topic_operations(cluster, ["topic", "nothing"]) == {"topic": None, "nothing": None}
    assert group_operations(cluster, "group") is None


def test_who_is_refused_may_do_nothing(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.METADATA, topic="topic", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topic_operations(cluster, ["topic", "other"]) == {"topic": frozenset(), "other": None}
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert group_operations(cluster, "group") == frozenset()


def test_a_broker_that_answers_for_the_group_is_its_coordinator(cluster: Cluster) -> None:
    assert has_coordinator(cluster, "group")


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_where_nobody_answers_for_it_there_are_no_groups(
    broker: Broker, cluster: Cluster, code: ErrorCode
) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=code)
    assert not has_coordinator(cluster, "group")


def test_a_broker_that_is_silent_may_be_the_coordinator(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, drop="before", times=2)
    assert has_coordinator(cluster, "group")
    assert group_operations(cluster, "group") is None


def test_who_may_not_describe_the_group_is_told(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(
        BrokerError, match=r"group 'group' .*GROUP_AUTHORIZATION_FAILED.*grant READ on the group"
    ):
        has_coordinator(cluster, "group")
