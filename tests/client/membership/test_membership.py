"""A member of a group, among others of ours and of confluent-kafka's, on the embedded broker."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import pytest
from confluent_kafka import Consumer

from shoal.client.assignors import ASSIGNORS
from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.client.groups import group_assignment
from shoal.client.membership import Membership, MembershipSettings, RebalanceListener
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError, ProtocolError
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker, BrokerCluster
from shoal_broker.coordination.group import Group
from tests.world.clocks import Ahead, Time
from tests.world.clusters import config_of
from tests.world.waiting import wait_until

#: The embedded broker's smallest.
SESSION_MS = 6_000


class Told(RebalanceListener):
    """Records each call as ``(what, partitions)``."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[str]]] = []
        self.on_revoked: Callable[[], object] = lambda: None

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", [str(each) for each in partitions]))
        self.on_revoked()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", [str(each) for each in partitions]))

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("lost", [str(each) for each in partitions]))


def settings(*assignors: str, **changes: object) -> MembershipSettings:
    defaults: dict[str, object] = {
        "group": "group",
        "assignors": assignors or ("range",),
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 50,
    }
    return MembershipSettings(**{**defaults, **changes})  # type: ignore[arg-type]


class Polled:
    """A membership that is polled by a thread, as an application would."""

    def __init__(self, membership: Membership, topics: Sequence[str] | re.Pattern[str]) -> None:
        self.membership = membership
        self.told = Told()
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        membership.subscribe(topics)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self.membership.poll(0.05, self.told)
                self._stopped.wait(0.005)
        except BaseException as error:
            self.failure = error

    @property
    def owned(self) -> list[str]:
        return [str(each) for each in self.membership.owned]

    def stop_polling(self) -> None:
        self._stopped.set()
        self._thread.join()

    def leave(self) -> None:
        self.stop_polling()
        self.membership.close(self.told)


@contextmanager
def polled(
    broker: Broker, given: MembershipSettings, topics: Sequence[str] | re.Pattern[str] = ("topic",)
) -> Iterator[Polled]:
    member = Polled(Membership(config_of("source", broker), given), topics)
    try:
        yield member
    finally:
        member.leave()


@contextmanager
def theirs(broker: Broker, strategy: str, **changes: object) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "group",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 100,
            **changes,
        }
    )
    consumer.subscribe(["topic"])
    try:
        yield consumer
    finally:
        consumer.close()


def parts(consumer: Consumer) -> list[str]:
    consumer.poll(0.02)
    return sorted(f"{each.topic}-{each.partition}" for each in consumer.assignment())


@pytest.fixture
def clock() -> Ahead:
    """The time of the broker, at which sessions end."""
    return Ahead()


@pytest.fixture
def broker(clock: Ahead) -> Iterator[Broker]:
    with Broker(clock=clock) as running:
        running.create_topic("topic", 4)
        yield running


ALL = ["topic-0", "topic-1", "topic-2", "topic-3"]


# Alone


def test_membership_of_only_member_owns_all_until_close(broker: Broker) -> None:
    with polled(broker, settings()) as member:
        wait_until(lambda: member.owned == ALL)
        with Cluster(config_of("source", broker)) as cluster:
            assert group_assignment(cluster, "group") == {
                member.membership.identity.member_id: list(member.membership.owned)
            }
    assert member.told.events == [("assigned", ALL), ("revoked", ALL)]
    assert broker.groups.read("group", lambda group: len(group.members)) == 0


@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_join_sends_subscription_version_3(broker: Broker, strategy: str) -> None:
    with polled(broker, settings(strategy), ["topic", "another"]) as member:
        wait_until(lambda: member.owned == ALL)
        sent = broker.groups.read("group", lambda group: next(iter(group.members.values())).join.protocols)
        assert list(sent) == [strategy]
        assert sent[strategy] == (
            b"\0\3\0\0\0\2\0\7another\0\5topic" + 4 * b"\xff" + b"\0\0\0\0\xff\xff\xff\xff\xff\xff"
        )


def test_pattern_includes_new_topics(broker: Broker) -> None:
    broker.create_topic("other")
    given = settings(metadata_max_age_ms=100)
    with polled(broker, given, re.compile("top.*")) as member:
        wait_until(lambda: member.owned == ALL)
        broker.create_topic("topper")
        wait_until(lambda: "topper-0" in member.owned)
        assert "other-0" not in member.owned


def test_subscribe_to_other_topics_rebalances(broker: Broker) -> None:
    broker.create_topic("other")
    with polled(broker, settings()) as member:
        wait_until(lambda: member.owned == ALL)
        member.membership.subscribe(["other"])
        wait_until(lambda: member.owned == ["other-0"])
    assert ("revoked", ALL) in member.told.events


def test_on_renewed_receives_the_time_of_the_request(broker: Broker) -> None:
    renewed: list[tuple[MemberId, float]] = []
    clock = iter(range(1_000_000))
    membership = Membership(
        config_of("source", broker),
        settings(),
        on_renewed=lambda identity, asked_at: renewed.append((identity, asked_at)),
        clock=lambda: next(clock),
    )
    member = Polled(membership, ["topic"])
    wait_until(lambda: len(renewed) > 3)
    so_far = list(renewed)  # the member continues
    assert {identity for identity, _ in so_far} == {membership.identity}
    assert [asked_at for _, asked_at in so_far] == list(range(len(so_far)))
    broker.faults.add(ApiKey.HEARTBEAT, error=ErrorCode.UNKNOWN_MEMBER_ID)
    wait_until(lambda: ("lost", ALL) in member.told.events)
    member.leave()


# Among others


@pytest.mark.parametrize("strategy", ASSIGNORS)
@pytest.mark.parametrize("leads", ["ours", "theirs"])
def test_membership_shares_a_group_with_confluent_kafka(broker: Broker, strategy: str, leads: str) -> None:
    def shared(ours: Polled, consumer: Consumer) -> None:
        def is_shared() -> bool:
            return len(parts(consumer)) == 2 and sorted([*parts(consumer), *ours.owned]) == ALL

        wait_until(is_shared)

    if leads == "ours":
        with polled(broker, settings(strategy)) as ours:
            wait_until(lambda: ours.owned == ALL)
            with theirs(broker, strategy) as consumer:
                shared(ours, consumer)
            wait_until(lambda: ours.owned == ALL)
    else:
        with theirs(broker, strategy) as consumer:
            wait_until(lambda: parts(consumer) == ALL)
            with polled(broker, settings(strategy)) as ours:
                shared(ours, consumer)
            wait_until(lambda: parts(consumer) == ALL)


@pytest.mark.parametrize("others", [0, 1, 2])
@pytest.mark.parametrize("number", [0, -1], ids=["first", "last"])
def test_commit_from_before_a_join_again_is_refused(broker: Broker, others: int, number: int) -> None:
    """Also if the member that joins does not lead the group."""
    with ExitStack() as stack, Cluster(config_of("source", broker)) as cluster:
        members: list[Polled] = []
        for _ in range(1 + others):
            members.append(stack.enter_context(polled(broker, settings())))
            wait_until(lambda: all(each.owned for each in members) and _own_all(members))
        member = members[number].membership
        before = member.identity
        member.join_again()
        wait_until(lambda: member.identity.generation > before.generation and _own_all(members))
        with pytest.raises(BrokerError, match=r"ILLEGAL_GENERATION|UNKNOWN_MEMBER_ID"):
            commit_offsets(cluster, "group", {TopicPartition("topic", 0): Committed(5, "")}, before)


def test_static_member_joins_again_without_leaving(broker: Broker) -> None:
    left = broker.faults.add(ApiKey.LEAVE_GROUP, times=None)
    with polled(broker, settings(instance_id="one")) as only:
        wait_until(lambda: only.owned == ALL)
        before = only.membership.identity
        only.membership.join_again()
        wait_until(lambda: only.membership.identity.member_id != before.member_id and only.owned == ALL)
        assert left.hits == 0


def _own_all(members: Sequence[Polled]) -> bool:
    return sorted(partition for each in members for partition in each.owned) == ALL


# Static members


def test_static_member_returns_without_rebalance(broker: Broker) -> None:
    with polled(broker, settings(instance_id="one")) as first:
        wait_until(lambda: first.owned == ALL)
        with polled(broker, settings(instance_id="two")) as second:
            wait_until(lambda: len(second.owned) == 2 and len(first.owned) == 2)
            # The listener is called a moment after the member owns them.
            wait_until(lambda: first.told.events[-1] == ("assigned", first.owned))
            kept, generation = second.owned, second.membership.identity.generation
            events = len(first.told.events)
            second.leave()
            again = Polled(Membership(config_of("source", broker), settings(instance_id="two")), ["topic"])
            wait_until(lambda: again.owned == kept)
            assert again.membership.identity.generation == generation
            assert len(first.told.events) == events
            again.leave()


def test_static_leader_that_returns_watches_the_topics(broker: Broker) -> None:
    given = settings(instance_id="one", metadata_max_age_ms=100)
    with polled(broker, given) as first:
        wait_until(lambda: first.owned == ALL)
    with polled(broker, given) as again:
        wait_until(lambda: again.owned == ALL)
        broker.topics.grow(broker.topics.topic("topic"), 5)
        wait_until(lambda: again.owned == [*ALL, "topic-4"])


def test_static_member_replaced_by_another_process_raises(broker: Broker) -> None:
    with polled(broker, settings(instance_id="one")) as first:
        wait_until(lambda: first.owned == ALL)
        with polled(broker, settings(instance_id="one")) as second:
            wait_until(lambda: second.owned == ALL)
            wait_until(lambda: first.failure is not None)
            assert isinstance(first.failure, BrokerError)
            assert first.failure.code is ErrorCode.FENCED_INSTANCE_ID
    assert first.told.events[-1] == ("lost", ALL)


# Errors


def test_member_without_poll_leaves_and_poll_joins_again(broker: Broker) -> None:
    # A thread that polls all the time may be kept from it for more than a second by a busy machine.
    with polled(broker, settings(max_poll_interval_ms=3_000)) as slow:
        wait_until(lambda: slow.owned == ALL)
        slow.stop_polling()
        with polled(broker, settings()) as other:
            wait_until(lambda: other.owned == ALL)
            assert slow.told.events == [("assigned", ALL)]
            slow.membership.poll(0.0, slow.told)
            assert slow.told.events[-1] == ("lost", ALL)
            assert slow.owned == []

            def has_its_half() -> bool:
                slow.membership.poll(0.05, slow.told)
                return len(slow.owned) == 2

            wait_until(has_its_half)


def test_static_member_without_poll_stays_until_session_ends() -> None:
    time = Time()
    with Broker(clock=time) as broker:
        broker.create_topic("topic", 4)
        with polled(broker, settings(instance_id="slow", max_poll_interval_ms=500)) as slow:
            wait_until(lambda: slow.owned == ALL)
            slow.stop_polling()
            wait_until(lambda: slow.membership.identity.member_id == "")
            time.now += SESSION_MS / 1000 - 0.1
            broker.groups.expire()
            assert broker.groups.read("group", lambda group: len(group.members)) == 1
            time.now += 0.1
            wait_until(lambda: broker.groups.read("group", lambda group: len(group.members)) == 0)


def test_member_unknown_to_the_group_loses_partitions_and_joins_again(broker: Broker) -> None:
    with polled(broker, settings()) as member:
        wait_until(lambda: member.owned == ALL)
        forgotten = member.membership.identity
        broker.groups.leave("group", forgotten.member_id, None)
        wait_until(lambda: ("lost", ALL) in member.told.events)
        wait_until(lambda: member.owned == ALL)
        assert member.membership.identity.member_id != forgotten.member_id


def expire_former_member(broker: Broker, clock: Ahead) -> None:
    """End the session of a member that has forgotten its id, once it waits to join by another."""

    def waits(group: Group) -> bool:
        return bool(group.members) and len(group.members) + len(group.promised) == 2

    wait_until(lambda: broker.groups.read("group", waits))
    clock.pass_by(SESSION_MS / 1000)


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ],
)
def test_membership_after_transient_error_continues(
    broker: Broker, clock: Ahead, api: ApiKey, code: ErrorCode
) -> None:
    fault = broker.faults.add(api, error=code)
    with polled(broker, settings()) as member:
        assert broker.faults.wait_for(fault)
        if (api, code) == (ApiKey.SYNC_GROUP, ErrorCode.UNKNOWN_MEMBER_ID):
            expire_former_member(broker, clock)
        wait_until(lambda: member.owned == ALL and not member.membership.is_rebalancing)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INVALID_GROUP_ID],
)
def test_poll_after_permanent_error_raises(broker: Broker, code: ErrorCode) -> None:
    broker.faults.add(ApiKey.JOIN_GROUP, error=code, times=None)
    with polled(broker, settings()) as member:
        wait_until(lambda: member.failure is not None)
        assert isinstance(member.failure, BrokerError)
        assert member.failure.code is code


def test_poll_after_failure_of_the_keeper_raises(broker: Broker) -> None:
    def fail(identity: MemberId, asked_at: float) -> None:
        raise LookupError("of the caller's")

    membership = Membership(config_of("source", broker), settings(), on_renewed=fail)
    membership.subscribe(["topic"])

    def fails() -> bool:
        try:
            membership.poll(0.05, Told())
        except ProtocolError as error:
            return "of the caller's" in str(error)
        return False

    wait_until(fails)
    membership.close(Told())


def test_members_without_common_assignor_are_refused(broker: Broker) -> None:
    with polled(broker, settings("range")) as first:
        wait_until(lambda: first.owned == ALL)
        with polled(broker, settings("roundrobin")) as second:
            wait_until(lambda: second.failure is not None)
            assert isinstance(second.failure, BrokerError)
            assert second.failure.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert first.owned == ALL


def test_membership_after_coordinator_restart_continues() -> None:
    with BrokerCluster(2) as cluster:
        first, second = cluster.nodes
        cluster.create_topic("topic", 4)
        heartbeats = [node.faults.add(ApiKey.HEARTBEAT, times=None) for node in cluster.nodes]

        def hits() -> int:
            return sum(fault.hits for fault in heartbeats)

        with polled(first, settings()) as member:
            wait_until(lambda: member.owned == ALL and hits() > 0)
            before = member.membership.identity
            for node in (first, second):
                cluster.stop_node(node.node_id)
                cluster.start_node(node.node_id)
                reached = hits()
                wait_until(lambda reached=reached: hits() > reached + 1)  # type: ignore[misc]
            assert member.membership.identity == before
            assert member.told.events == [("assigned", ALL)]


def test_close_during_a_rebalance_does_not_delay_others(broker: Broker) -> None:
    with polled(broker, settings(max_poll_interval_ms=30_000)) as first:
        wait_until(lambda: first.owned == ALL)
        first.stop_polling()  # it will not join again: the second one waits
        second = Membership(config_of("source", broker), settings(max_poll_interval_ms=30_000))
        told = Told()
        second.subscribe(["topic"])
        second.poll(0.0, told)
        wait_until(lambda: broker.groups.read("group", lambda group: len(group.members)) == 2)
        (waited_for, _) = broker.groups.read("group", lambda group: list(group.members))
        second.close(told)
        # The group waits for the first one for 30 s, and would then be without it.
        wait_until(lambda: broker.groups.read("group", lambda group: list(group.members)) == [waited_for])


def test_poll_raises_listener_error_after_the_rebalance(broker: Broker) -> None:
    with polled(broker, settings()) as first:
        wait_until(lambda: first.owned == ALL)

        def fail() -> None:
            raise RuntimeError("the listener")

        first.told.on_revoked = fail
        with polled(broker, settings()) as second:
            wait_until(lambda: first.failure is not None)
            assert isinstance(first.failure, RuntimeError)
            first.told.on_revoked = lambda: None

            def is_shared() -> bool:
                with suppress(RuntimeError):
                    first.membership.poll(0.05, first.told)
                return len(second.owned) == 2 and len(first.owned) == 2

            wait_until(is_shared)
