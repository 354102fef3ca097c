"""The requests of a member to its coordinator, and descriptions of groups."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.client.groups import describe_holder
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.group_member import GroupMember

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
NOBODY = MemberId()


def member(cluster: Cluster, name: str = "ours") -> GroupMember:
    return GroupMember(cluster, "group", protocol=name, instance_id=name, session_timeout_ms=30_000)


def test_commit_by_a_non_member_of_an_active_group_is_refused(cluster: Cluster) -> None:
    holder = member(cluster)
    membership = holder.join([FIRST])
    assert commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, membership) == {}
    for stranger in (
        NOBODY,
        MemberId("stranger", membership.generation),
        MemberId(membership.member_id, membership.generation + 1, membership.instance_id),
        MemberId(membership.member_id, membership.generation - 1, membership.instance_id),
    ):
        with pytest.raises(BrokerError):
            commit_offsets(cluster, "group", {FIRST: Committed(2, "")}, stranger)
    holder.heartbeat()
    holder.leave()
    assert holder.membership.member_id == ""
    holder.leave()  # once is enough
    assert commit_offsets(cluster, "group", {FIRST: Committed(3, "")}, NOBODY) == {}


def test_describe_holder_returns_the_only_member(broker: Broker, cluster: Cluster) -> None:
    assert describe_holder(cluster, "group") is None
    holder = member(cluster)
    holder.join()
    assert describe_holder(cluster, "group") == "client 'shoal' at 127.0.0.1"
    with pytest.raises(BrokerError, match="INCONSISTENT_GROUP_PROTOCOL"):
        member(cluster, "theirs").join()
    holder.heartbeat()
    holder.leave()
    member(cluster, "theirs").join()


@pytest.mark.parametrize("user_data", [b"\x00\x00\x00\x01", b"\xff", b"shoal\n", None])
def test_describe_holder_without_description_returns_client_id(
    cluster: Cluster, user_data: bytes | None
) -> None:
    GroupMember(cluster, "group", protocol="ours", instance_id="ours", user_data=user_data).join()
    assert describe_holder(cluster, "group") == "client 'shoal' at 127.0.0.1"


def test_describe_holder_returns_a_consumer(broker: Broker, cluster: Cluster) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group", "client.id": "somebody"})
    consumer.subscribe(["topic"])
    while not consumer.assignment():
        consumer.poll(0.1)
    assert describe_holder(cluster, "group") == "client 'somebody' at 127.0.0.1"
    consumer.close()
    assert describe_holder(cluster, "group") is None


def test_sync_sends_the_assignment_as_java_does(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("t\N{SNOWMAN}".encode("ascii", "replace").decode().replace("?", "-"))
    member(cluster).join([FIRST, SECOND, TopicPartition("t-", 0)])
    assignment = broker.groups.read("group", lambda group: next(iter(group.members.values())).assignment)
    assert assignment == (
        b"\0\3\0\0\0\2\0\5topic\0\0\0\2\0\0\0\0\0\0\0\1\0\2t-\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    )


def test_join_with_member_id_required_joins_with_the_given_id(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.JOIN_GROUP, error=ErrorCode.MEMBER_ID_REQUIRED)
    joined = member(cluster).join()
    assert joined.member_id
    assert joined.generation == 1
