"""Positions of a group, and membership in it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition

from shoal.broker import Broker
from shoal.client.cluster import Cluster, is_transient
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId, describe_holder
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, Disconnected
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.group_member import GroupMember
from tests.two_brokers import config_of, second_node

pytestmark = pytest.mark.timeout(30)

FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)
NOBODY = MemberId()


def member(cluster: Cluster, name: str = "ours") -> GroupMember:
    return GroupMember(cluster, "group", protocol=name, instance_id=name, session_timeout_ms=30_000)


# Positions


def test_what_was_committed_is_read_back(cluster: Cluster) -> None:
    assert fetch_offsets(cluster, "group", [FIRST, SECOND]) == {}
    committed = Committed(7, "words \N{SNOWMAN}")
    assert commit_offsets(cluster, "group", {FIRST: committed}, NOBODY) == {}
    assert fetch_offsets(cluster, "group", [FIRST, SECOND]) == {FIRST: committed}
    assert fetch_offsets(cluster, "group", []) == {}
    assert fetch_offsets(cluster, "other group", [FIRST]) == {}


def test_other_people_s_clients_see_the_position(broker: Broker, cluster: Cluster) -> None:
    commit_offsets(cluster, "group", {FIRST: Committed(7, "words")}, NOBODY)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group"})
    (seen,) = consumer.committed([TheirPartition("topic", 0)], timeout=30)
    assert seen.offset == 7
    consumer.close()


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_one_refused_partition_leaves_the_others_committed(
    broker: Broker, cluster: Cluster, code: ErrorCode
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=code, partition=1, times=None)
    positions = {FIRST: Committed(1, ""), SECOND: Committed(2, "")}
    refused = commit_offsets(cluster, "group", positions, NOBODY)
    assert refused.keys() == {SECOND}
    assert refused[SECOND].code is code
    assert str(refused[SECOND]).startswith("committing topic-1 to group 'group' on the source cluster at")
    assert fetch_offsets(cluster, "group", [FIRST, SECOND]) == {FIRST: Committed(1, "")}
    assert commit_offsets(cluster, "group", {SECOND: Committed(2, "")}, NOBODY).keys() == {SECOND}


def test_metadata_that_is_too_large_is_refused(broker: Broker, cluster: Cluster) -> None:
    refused = commit_offsets(cluster, "group", {FIRST: Committed(1, "x" * 4097)}, NOBODY)
    assert refused[FIRST].code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit_offsets(cluster, "group", {FIRST: Committed(1, "x" * 4096)}, NOBODY) == {}


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
def test_what_concerns_the_group_is_raised(
    broker: Broker, cluster: Cluster, code: ErrorCode, transient: bool
) -> None:
    for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
        broker.faults.add(api, error=code)
    with pytest.raises(BrokerError, match=f"of group 'group' .* {code.name}") as raised:
        commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY)
    assert is_transient(raised.value) is transient
    with pytest.raises(BrokerError, match=f"of group 'group' .* {code.name}"):
        fetch_offsets(cluster, "group", [FIRST])
    assert commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY) == {}


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_is_none_is_looked_up_again(
    broker: Broker, cluster: Cluster, code: ErrorCode
) -> None:
    found = broker.faults.add(ApiKey.FIND_COORDINATOR, times=None)
    for number in (1, 2, 3):
        broker.faults.add(ApiKey.OFFSET_COMMIT, error=code)
        with pytest.raises(BrokerError):
            commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY)
        assert found.hits == number


def test_a_coordinator_that_died_is_looked_up_again(broker: Broker) -> None:
    with second_node(broker) as second, Cluster(config_of("source", broker, second)) as cluster:
        commit_offsets(cluster, "group", {FIRST: Committed(1, "")}, NOBODY)
        broker.stop()
        second.groups.open()
        with pytest.raises(Disconnected):
            commit_offsets(cluster, "group", {FIRST: Committed(2, "")}, NOBODY)
        assert commit_offsets(cluster, "group", {FIRST: Committed(2, "")}, NOBODY) == {}
        assert fetch_offsets(cluster, "group", [FIRST]) == {FIRST: Committed(2, "")}


# Members


def test_only_the_member_may_commit_while_there_is_one(cluster: Cluster) -> None:
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


def test_a_group_is_held_by_whoever_is_in_it(broker: Broker, cluster: Cluster) -> None:
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
def test_holder_that_does_not_describe_itself_is_named_by_its_client_id(
    cluster: Cluster, user_data: bytes | None
) -> None:
    GroupMember(cluster, "group", protocol="ours", instance_id="ours", user_data=user_data).join()
    assert describe_holder(cluster, "group") == "client 'shoal' at 127.0.0.1"


def test_any_consumer_holds_its_group(broker: Broker, cluster: Cluster) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "group", "client.id": "somebody"})
    consumer.subscribe(["topic"])
    while not consumer.assignment():
        consumer.poll(0.1)
    assert describe_holder(cluster, "group") == "client 'somebody' at 127.0.0.1"
    consumer.close()
    assert describe_holder(cluster, "group") is None


def test_the_assignment_is_what_kafka_s_tools_show(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("t\N{SNOWMAN}".encode("ascii", "replace").decode().replace("?", "-"))
    member(cluster).join([FIRST, SECOND, TopicPartition("t-", 0)])
    assignment = broker.groups.read("group", lambda group: next(iter(group.members.values())).assignment)
    assert assignment == (
        b"\0\0\0\0\0\2\0\5topic\0\0\0\2\0\0\0\0\0\0\0\1\0\2t-\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
    )


def test_a_member_without_an_instance_id_is_given_its_id_first(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.JOIN_GROUP, error=ErrorCode.MEMBER_ID_REQUIRED)
    joined = member(cluster).join()
    assert joined.member_id
    assert joined.generation == 1
