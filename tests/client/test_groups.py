"""The groups of a cluster, with types and states."""

from __future__ import annotations

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.client.groups import GroupType, ListedGroup, describe_holder, list_groups
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.group_member import GroupMember
from tests.world.faults import offer


@pytest.mark.parametrize(
    ("group_type", "protocol_type", "state", "is_active", "commits"),
    [
        ("classic", "consumer", "Stable", True, True),
        ("Classic", "consumer", "PreparingRebalance", True, True),
        ("", "consumer", "Empty", False, True),
        ("", "consumer", "", False, True),  # a broker before Kafka 2.6
        ("classic", "", "Empty", False, True),
        ("classic", "connect", "Stable", True, False),
        ("consumer", "consumer", "Reconciling", True, True),
        ("share", "share", "Empty", False, False),
        ("streams", "streams", "Stable", True, False),
        ("of the future", "consumer", "Dead", False, False),
    ],
)
def test_listed_group_by_type_and_state(
    group_type: str, protocol_type: str, state: str, is_active: bool, commits: bool
) -> None:
    group = ListedGroup("g", GroupType.of(group_type), protocol_type, state)
    assert (group.is_active, group.commits_offsets) == (is_active, commits)


@pytest.mark.parametrize(("newest", "described"), [(3, 1), (4, 0)])
def test_list_groups_with_states_describes_the_groups_of_an_old_broker(
    broker: Broker, cluster: Cluster, newest: int, described: int
) -> None:
    offer(broker, ApiKey.LIST_GROUPS, newest=newest)
    commit_offsets(cluster, "idle", {TopicPartition("topic", 0): Committed(1, "")}, MemberId())
    GroupMember(cluster, "busy", protocol="range", instance_id="busy-1").join()
    if described:
        assert {each.state for each in list_groups(cluster).groups.values()} == {""}
    asked = broker.faults.add(ApiKey.DESCRIBE_GROUPS, times=None)
    found = list_groups(cluster, with_states=True).groups
    assert {name: each.is_active for name, each in found.items()} == {"idle": False, "busy": True}
    assert asked.hits == described


@pytest.mark.parametrize("user_data", [b"\x00\x00\x00\x01", b"\xff", b"shoal\n", None])
def test_describe_holder_without_description_returns_client_id(
    cluster: Cluster, user_data: bytes | None
) -> None:
    GroupMember(cluster, "group", protocol="ours", instance_id="ours", user_data=user_data).join()
    assert describe_holder(cluster, "group") == "client 'shoal' at 127.0.0.1"
