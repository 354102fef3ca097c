"""The coordinator of a group, and a principal's operations (real brokers: tests/integration)."""

from __future__ import annotations

import pytest

from shoal.client.broker_state import group_operations, topic_operations
from shoal.client.cluster import Cluster
from shoal.client.groups import has_coordinator
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker


def test_operations_not_sent_by_the_broker_are_none(cluster: Cluster) -> None:
    assert topic_operations(cluster, ["topic", "nothing"]) == {"topic": None, "nothing": None}
    assert group_operations(cluster, "group") is None


def test_operations_of_a_refused_client_are_empty(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.METADATA, topic="topic", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topic_operations(cluster, ["topic", "other"]) == {"topic": frozenset(), "other": None}
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert group_operations(cluster, "group") == frozenset()


def test_has_coordinator_of_a_described_group_is_true(cluster: Cluster) -> None:
    assert has_coordinator(cluster, "group")


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_has_coordinator_without_coordinator_is_false(
    broker: Broker, cluster: Cluster, code: ErrorCode
) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=code)
    assert not has_coordinator(cluster, "group")


def test_has_coordinator_of_a_silent_broker_is_true(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, drop="before", times=2)
    assert has_coordinator(cluster, "group")
    assert group_operations(cluster, "group") is None


def test_has_coordinator_without_authorization_names_the_acl(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.DESCRIBE_GROUPS, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"'group'.*GROUP_AUTHORIZATION_FAILED.*Grant.*READ"):
        has_coordinator(cluster, "group")
