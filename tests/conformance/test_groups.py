"""Consumer groups: join, sync, heartbeat, leave, fencing, and isolation of members."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import pytest

from shoal.error_codes import ErrorCode
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import request_class
from tests.broker.new_topic import NewTopic
from tests.broker.wire import PATIENCE_S, Wire
from tests.conformance.conftest import Connect

JOIN_VERSION = 5


class Member(NamedTuple):
    wire: Wire
    member_id: str
    generation: int


@pytest.fixture
def group(unique: str) -> str:
    return f"group-{unique}"


@pytest.fixture
def new_wire(connect: Connect) -> Connect:
    """Open further connections, one for each member."""
    return connect


def join_alone(wire: Wire, group: str, **options: object) -> Member:
    """Make a stable group of one member; its assignment is ``b"all"``."""
    answer = wire.join(group, **options)  # type: ignore[arg-type]
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = wire.join(group, member=answer.member_id, **options)  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.NONE, answer
    instance = options.get("instance")
    assert isinstance(instance, str | None)
    synced = wire.sync(
        group,
        answer.member_id,
        answer.generation_id,
        instance=instance,
        assignments={answer.member_id: b"all"},
        protocol=answer.protocol_name,
    )
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"all")
    return Member(wire, answer.member_id, answer.generation_id)


def promised_id(wire: Wire, group: str) -> str:
    answer = wire.join(group)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member_id: str = answer.member_id
    return member_id


def wait_for_rebalance(member: Member, group: str) -> None:
    """Wait until a member's heartbeat is answered with a rebalance."""
    deadline = time.monotonic() + PATIENCE_S
    while member.wire.heartbeat(group, member.member_id, member.generation) == ErrorCode.NONE:
        assert time.monotonic() < deadline, "no rebalance began"


# Joining


@pytest.mark.parametrize("version", range(4, 10))
def test_new_member_receives_its_id_first(wire: Wire, group: str, version: int) -> None:
    answer = wire.join(group, version=version)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id
    assert answer.protocol_name == ("" if version < 7 else None)


def test_before_join_group_v4_a_new_member_joins_at_once(wire: Wire, group: str) -> None:
    answer = wire.join(group, version=3)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert answer.leader == answer.member_id


def test_only_member_leads_and_receives_its_assignment(wire: Wire, group: str) -> None:
    member_id = promised_id(wire, group)
    joined = wire.join(group, member=member_id, protocols={"range": b"r", "sticky": b"s"})
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 1)
    assert (joined.leader, joined.member_id, joined.protocol_name) == (member_id, member_id, "range")
    assert [(each.member_id, bytes(each.metadata)) for each in joined.members] == [(member_id, b"r")]
    synced = wire.sync(group, member_id, 1, assignments={member_id: b"mine"})
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"mine")
    assert wire.heartbeat(group, member_id, 1) == ErrorCode.NONE


def test_second_member_causes_a_rebalance_and_the_leader_assigns_for_both(
    wire: Wire, new_wire: Callable[[], Wire], group: str
) -> None:
    first = join_alone(wire, group)
    other = new_wire()
    second_id = promised_id(other, group)
    other.join(group, member=second_id, wait=False)
    wait_for_rebalance(first, group)
    led = wire.join(group, member=first.member_id)
    followed = other.receive(ApiKey.JOIN_GROUP, JOIN_VERSION)
    assert (led.error_code, followed.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert led.generation_id == followed.generation_id == first.generation + 1
    assert led.leader == followed.leader == first.member_id
    assert {each.member_id for each in led.members} == {first.member_id, second_id}
    assert list(followed.members) == []
    other.sync(group, second_id, led.generation_id, wait=False)
    parts = {first.member_id: b"one", second_id: b"two"}
    assert bytes(wire.sync(group, first.member_id, led.generation_id, assignments=parts).assignment) == b"one"
    assert bytes(other.receive(ApiKey.SYNC_GROUP, 5).assignment) == b"two"


def test_selected_protocol_is_supported_by_all_members(
    wire: Wire, new_wire: Callable[[], Wire], group: str
) -> None:
    both = {"range": b"", "sticky": b""}
    first = join_alone(wire, group, protocols=both)
    other = new_wire()
    other.join(group, member=promised_id(other, group), protocols={"sticky": b""}, wait=False)
    wait_for_rebalance(first, group)
    assert wire.join(group, member=first.member_id, protocols=both).protocol_name == "sticky"
    assert other.receive(ApiKey.JOIN_GROUP, JOIN_VERSION).protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocol"), [("consumer", "another"), ("connect", "range")], ids=["name", "type"]
)
def test_member_without_common_protocol_is_refused_without_rebalance(
    wire: Wire, new_wire: Callable[[], Wire], group: str, protocol_type: str, protocol: str
) -> None:
    holder = join_alone(wire, group, instance="holder")
    refused = new_wire().join(group, protocols={protocol: b""}, protocol_type=protocol_type)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert wire.heartbeat(group, holder.member_id, holder.generation, instance="holder") == ErrorCode.NONE
    described = wire.describe_group(group)
    assert (described.group_state, len(described.members)) == ("Stable", 1)


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
def test_first_member_without_protocol_is_refused(
    wire: Wire, group: str, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    answer = wire.join(group, protocol_type=protocol_type, protocols=protocols)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_find_coordinator_of_an_empty_group_id_succeeds(wire: Wire, topic: str) -> None:
    """Java clients before 2.2 take an empty id for none, and ask as all others do."""
    found = wire.call(ApiKey.FIND_COORDINATOR, 0, key="")
    assert found.error_code == ErrorCode.NONE
    assert wire.committed("", topic).committed_offset == -1


def test_join_with_empty_group_id_is_refused(wire: Wire, group: str) -> None:
    wire.join(group)
    fields = {"session_timeout_ms": 10_000, "member_id": "", "protocol_type": "consumer", "protocols": []}
    answer = wire.call(ApiKey.JOIN_GROUP, 0, group_id="", **fields)
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused(wire: Wire, group: str, timeout_ms: int) -> None:
    answer = wire.join(group, session_timeout_ms=timeout_ms)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_foreign_member_id_is_unknown(wire: Wire, group: str) -> None:
    assert wire.join(group, member="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    join_alone(wire, group)
    assert wire.join(group, member="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID


# In a generation


def test_heartbeat_of_another_member_or_generation_is_refused(wire: Wire, group: str) -> None:
    member = join_alone(wire, group)
    assert wire.heartbeat(group, "stranger", member.generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.heartbeat(group, member.member_id, member.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert wire.heartbeat(f"{group}-x", member.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_of_another_member_generation_or_protocol_is_refused(wire: Wire, group: str) -> None:
    member = join_alone(wire, group)

    def code(member_id: str = member.member_id, generation: int = 1, protocol: str = "range") -> ErrorCode:
        return ErrorCode(wire.sync(group, member_id, generation, protocol=protocol).error_code)

    assert code() == ErrorCode.NONE
    assert code(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert code(protocol="sticky") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_member_that_rejoins_before_sync_keeps_the_generation(wire: Wire, group: str) -> None:
    member_id = promised_id(wire, group)
    first = wire.join(group, member=member_id)
    again = wire.join(group, member=member_id)
    assert (again.generation_id, again.leader) == (first.generation_id, first.leader)


def test_leader_that_rejoins_begins_a_new_generation(wire: Wire, group: str) -> None:
    member = join_alone(wire, group)
    assert wire.join(group, member=member.member_id).generation_id == member.generation + 1


def assert_replaced(
    member: Member, other: Wire, group: str, *, rebalance_timeout_ms: int, after: Callable[[], None]
) -> None:
    """Let another member join, and check that it is alone in the group once the time is over."""
    other.join(group, member=promised_id(other, group), rebalance_timeout_ms=rebalance_timeout_ms, wait=False)
    wait_for_rebalance(member, group)
    after()
    joined = other.receive(ApiKey.JOIN_GROUP, 5)
    assert (joined.error_code, len(joined.members)) == (ErrorCode.NONE, 1)
    assert member.wire.heartbeat(group, member.member_id, member.generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_member_without_heartbeat_is_removed(
    wire: Wire, new_wire: Callable[[], Wire], group: str, pass_by: Callable[[float], None]
) -> None:
    silent = join_alone(wire, group, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    # The other one waits for the silent one, until its session ends.
    assert_replaced(silent, new_wire(), group, rebalance_timeout_ms=60_000, after=lambda: pass_by(6.0))


@pytest.mark.parametrize("version", [1, JOIN_VERSION])
def test_member_that_does_not_rejoin_in_time_is_removed(
    wire: Wire, new_wire: Callable[[], Wire], group: str, version: int, pass_by: Callable[[float], None]
) -> None:
    # Its first assignment has to come in this time, too, on a busy machine.
    slow = join_alone(wire, group, session_timeout_ms=60_000, rebalance_timeout_ms=4_000, version=version)
    assert_replaced(slow, new_wire(), group, rebalance_timeout_ms=4_000, after=lambda: pass_by(4.0))


@pytest.mark.not_before("4.0")
def test_missing_group_is_dead_and_from_describe_groups_v6_on_an_error(wire: Wire, group: str) -> None:
    def described(version: int) -> tuple[int, str]:
        answer = wire.call(
            ApiKey.DESCRIBE_GROUPS, version, groups=[group], include_authorized_operations=False
        )
        return answer.groups[0].error_code, answer.groups[0].group_state

    wire.call_coordinator(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
    wire.call_coordinator(ApiKey.LEAVE_GROUP, 2, group_id=group, member_id="nobody")
    assert described(5) == (ErrorCode.NONE, "Dead")
    assert described(6) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


# Leaving


def test_group_without_members_is_empty(wire: Wire, group: str) -> None:
    member = join_alone(wire, group)
    assert wire.leave(group, member.member_id) == ErrorCode.NONE
    assert wire.describe_group(group).group_state == "Empty"
    assert wire.leave(group, member.member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_member_causes_a_rebalance(wire: Wire, new_wire: Callable[[], Wire], group: str) -> None:
    first = join_alone(wire, group)
    other = new_wire()
    second_id = promised_id(other, group)
    other.join(group, member=second_id, wait=False)
    wait_for_rebalance(first, group)
    generation = wire.join(group, member=first.member_id).generation_id
    other.receive(ApiKey.JOIN_GROUP, JOIN_VERSION)
    wire.sync(group, first.member_id, generation)
    assert other.leave(group, second_id) == ErrorCode.NONE
    assert wire.heartbeat(group, first.member_id, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    alone = wire.join(group, member=first.member_id)
    assert (alone.generation_id, len(alone.members)) == (generation + 1, 1)


# Static members


def test_static_member_joins_without_member_id(wire: Wire, group: str) -> None:
    answer = wire.join(group, instance="one")
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    assert [each.group_instance_id for each in answer.members] == ["one"]


def test_restarted_static_member_fences_the_old_one(
    wire: Wire, new_wire: Callable[[str], Wire], group: str
) -> None:
    old = join_alone(wire, group, instance="one")
    other = new_wire("another process")
    taken = other.join(group, instance="one")
    assert (taken.error_code, taken.generation_id) == (ErrorCode.NONE, old.generation)
    assert taken.member_id != old.member_id
    synced = other.sync(group, taken.member_id, taken.generation_id, instance="one")
    assert bytes(synced.assignment) == b"all", "the group did not rebalance"
    assert (
        wire.heartbeat(group, old.member_id, old.generation, instance="one") == ErrorCode.FENCED_INSTANCE_ID
    )
    assert wire.join(group, member=old.member_id, instance="one").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert other.heartbeat(group, taken.member_id, taken.generation_id, instance="one") == ErrorCode.NONE
    (described,) = other.describe_group(group).members
    assert (described.member_id, described.client_id) == (taken.member_id, "test"), "KIP-345 keeps the name"


@pytest.mark.not_before("3.2")
def test_join_group_v9_returns_skip_assignment_to_a_static_leader(wire: Wire, group: str) -> None:
    join_alone(wire, group, instance="one", version=9)
    taken = wire.join(group, instance="one", version=9)
    assert (taken.error_code, taken.skip_assignment) == (ErrorCode.NONE, True)
    assert taken.leader == taken.member_id


def test_static_member_is_removed_by_its_instance_id(wire: Wire, group: str) -> None:
    member = join_alone(wire, group, instance="one")
    assert wire.leave(group, "", instance="two") == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.leave(group, "stranger", instance="one") == ErrorCode.FENCED_INSTANCE_ID
    assert wire.leave(group, "", instance="one") == ErrorCode.NONE
    assert (
        wire.heartbeat(group, member.member_id, member.generation, instance="one")
        == ErrorCode.UNKNOWN_MEMBER_ID
    )


# Looking on


def test_stable_group_is_described_with_its_members(wire: Wire, group: str) -> None:
    member = join_alone(wire, group, instance="one", protocols={"range": b"mine"})
    described = wire.describe_group(group)
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    (found,) = described.members
    assert (found.member_id, found.group_instance_id) == (member.member_id, "one")
    assert (found.client_id, found.client_host) == ("test", "/127.0.0.1")
    assert (bytes(found.member_metadata), bytes(found.member_assignment)) == (b"mine", b"all")


def test_missing_group_is_dead(wire: Wire, group: str) -> None:
    described = wire.describe_group(group)
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")


def test_groups_are_listed_by_state(wire: Wire, group: str) -> None:
    join_alone(wire, group)

    def listed(*states: str) -> set[str]:
        response = wire.call(ApiKey.LIST_GROUPS, 4, states_filter=list(states))
        return {each.group_id for each in response.groups}

    assert group in listed()
    assert group in listed("Stable")
    assert group not in listed("Empty")


@pytest.mark.administrators
def test_group_with_members_is_not_deleted(wire: Wire, group: str) -> None:
    def delete() -> ErrorCode:
        response = wire.call(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
        return ErrorCode(response.results[0].error_code)

    assert delete() == ErrorCode.GROUP_ID_NOT_FOUND
    member = join_alone(wire, group)
    assert delete() == ErrorCode.NON_EMPTY_GROUP
    wire.leave(group, member.member_id)
    assert delete() == ErrorCode.NONE
    assert wire.describe_group(group).group_state == "Dead"


# Positions


def test_non_member_commits_only_while_the_group_is_empty(wire: Wire, group: str, topic: str) -> None:
    assert wire.commit(group, topic, 5) == ErrorCode.NONE
    assert wire.committed(group, topic).committed_offset == 5
    member = join_alone(wire, group)
    assert wire.commit(group, topic, 6) == ErrorCode.UNKNOWN_MEMBER_ID
    wire.leave(group, member.member_id)
    assert wire.commit(group, topic, 7) == ErrorCode.NONE
    assert wire.committed(group, topic).committed_offset == 7


def test_member_commits_with_its_id_and_generation(wire: Wire, group: str, topic: str) -> None:
    member = join_alone(wire, group)
    name, generation = member.member_id, member.generation
    assert wire.commit(group, topic, 5, member=name, generation=generation) == ErrorCode.NONE
    for other, another, code in (
        (name, generation + 1, ErrorCode.ILLEGAL_GENERATION),
        (name, generation - 1, ErrorCode.ILLEGAL_GENERATION),
        (name, -1, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", generation, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", generation, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert wire.commit(group, topic, 6, member=other, generation=another) == code
    assert wire.committed(group, topic).committed_offset == 5


def test_fenced_static_member_cannot_commit(wire: Wire, group: str, topic: str) -> None:
    old = join_alone(wire, group, instance="one")
    wire.join(group, instance="one")
    code = wire.commit(group, topic, 5, member=old.member_id, generation=old.generation, instance="one")
    assert code == ErrorCode.FENCED_INSTANCE_ID


def test_member_cannot_commit_between_join_and_sync(wire: Wire, group: str, topic: str) -> None:
    member_id = promised_id(wire, group)
    wire.join(group, member=member_id)
    assert wire.commit(group, topic, 5, member=member_id, generation=1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_member_of_a_missing_group_cannot_commit(wire: Wire, group: str, topic: str) -> None:
    assert wire.commit(group, topic, 5, member="me", generation=1) == ErrorCode.ILLEGAL_GENERATION


def test_committed_offset_keeps_its_metadata(wire: Wire, group: str, topic: str) -> None:
    assert wire.commit(group, topic, 5, metadata="κ" * 4096) == ErrorCode.NONE
    assert wire.committed(group, topic).metadata == "κ" * 4096
    assert wire.commit(group, topic, 6, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert wire.committed(group, topic).committed_offset == 5
    assert wire.commit(group, topic, 7, metadata=None) == ErrorCode.NONE
    assert wire.committed(group, topic).metadata == ""


def test_commit_that_is_larger_than_a_batch_is_refused_whole(
    wire: Wire, group: str, new_topic: NewTopic
) -> None:
    topic, others, metadata = new_topic(140), range(1, 140), "κ" * 4096
    code = wire.commit(group, topic, 5, metadata=metadata, others=others)
    assert code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)  # before Kafka 4
    assert wire.committed(group, topic).committed_offset == -1
    assert wire.commit(group, topic, 5, metadata=metadata, others=others[:60]) == ErrorCode.NONE


def test_commit_for_a_missing_partition_is_refused(wire: Wire, group: str, topic: str) -> None:
    assert wire.commit(group, topic, 5, partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_missing_committed_offset_is_minus_1(wire: Wire, group: str, topic: str) -> None:
    found = wire.committed(group, topic)
    assert (found.error_code, found.committed_offset, found.metadata) == (ErrorCode.NONE, -1, "")


@pytest.mark.parametrize("version", [2, 5, 7])
def test_offset_fetch_without_topics_returns_all_offsets(
    wire: Wire, group: str, topic: str, version: int
) -> None:
    wire.commit(group, topic, 5)
    response = wire.call(ApiKey.OFFSET_FETCH, version, group_id=group, topics=None, require_stable=False)
    (found,) = response.topics
    assert (found.name, found.partitions[0].committed_offset) == (topic, 5)


@pytest.mark.not_before("3.0")
def test_offset_fetch_returns_several_groups(wire: Wire, group: str, topic: str) -> None:
    wire.commit(group, topic, 5)
    wanted = request_class(ApiKey.OFFSET_FETCH).OffsetFetchRequestGroup
    response = wire.call(
        ApiKey.OFFSET_FETCH,
        8,
        groups=[wanted(group_id=name, topics=None) for name in (group, f"{group}-x")],
        require_stable=False,
    )
    found = {each.group_id: [topic.name for topic in each.topics] for each in response.groups}
    assert found == {group: [topic], f"{group}-x": []}


@pytest.mark.administrators
def test_committed_offsets_are_deleted_with_their_topic(wire: Wire, group: str, topic: str) -> None:
    wire.commit(group, topic, 5)
    wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=10_000)
    deadline = time.monotonic() + PATIENCE_S
    while wire.committed(group, topic).committed_offset != -1:
        assert time.monotonic() < deadline


@pytest.mark.not_before("3.0")  # FindCoordinator v4
@pytest.mark.parametrize("key_type", [0, 1])
def test_coordinator_is_the_only_broker(wire: Wire, group: str, key_type: int) -> None:
    (node,) = wire.call(ApiKey.METADATA, 1, topics=[]).brokers
    for version in (0, 1, 3):
        found = wire.call_coordinator(ApiKey.FIND_COORDINATOR, version, key=group, key_type=key_type)
        assert (found.node_id, found.host, found.port) == (node.node_id, node.host, node.port)
        if version == 0:
            key_type = 0  # it knows groups alone
    several = wire.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a", "b"], key_type=0)
    assert [each.key for each in several.coordinators] == ["a", "b"]
    assert {each.port for each in several.coordinators} == {node.port}
