"""The raw consumer as a member of a consumer group."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal import Committed, RawConsumer, RebalanceListener, TopicPartition
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.client.consumer.consumed import FIRST, SECOND, consumer, take
from tests.world.history import History
from tests.world.waiting import wait_until


class Telling(RebalanceListener):
    def __init__(self) -> None:
        self.events: list[tuple[str, list[str]]] = []

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("revoked", sorted(map(str, partitions))))

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", sorted(map(str, partitions))))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_two_members_read_everything_once(broker: Broker, log: History, strategy: str) -> None:
    History(broker.log("topic", 1)).plain(5)
    log.plain(5)
    shared = {"group_id": "group", "partition_assignment_strategy": strategy}
    with consumer(broker, **shared) as first, consumer(broker, **shared) as second:
        told = Telling()
        first.subscribe(["topic"], told)

        def has_all() -> bool:
            first.poll(0.05)
            return len(first.assignment) == 2

        wait_until(has_all)  # else both may be in the first generation
        second.subscribe(["topic"])

        def is_shared() -> bool:
            for each in (first, second):
                each.poll(0.05)
            return len(first.assignment) == len(second.assignment) == 1

        wait_until(is_shared)
        assert first.assignment | second.assignment == {FIRST, SECOND}
        assert sorted(first.group_assignment().values()) == [[FIRST], [SECOND]]
        assert first.group_assignment()[first.member_id] == list(first.assignment)
        assert told.events[0][0] == "assigned"
        assert ("revoked", ["topic-0", "topic-1"]) in told.events


def test_listener_can_commit_revoked_and_seek_assigned_partitions(broker: Broker, log: History) -> None:
    log.plain(5)

    class Committing(RebalanceListener):
        def __init__(self, owner: RawConsumer) -> None:
            self.owner = owner

        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            self.owner.commit({each: self.owner.position(each) for each in partitions}, metadata="revoked")

        def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
            if FIRST in partitions:
                self.owner.seek(FIRST, 3)

    with consumer(broker, group_id="group") as ours:
        ours.subscribe(["topic"], Committing(ours))
        assert [record.offset for record in take(ours, 2)] == [3, 4]
    with consumer(broker, group_id="group") as ours:
        assert ours.committed(FIRST) == {FIRST: Committed(5, "revoked")}


def test_listener_is_called_if_commits_are_not_authorized(broker: Broker, log: History) -> None:
    log.plain(5)
    told = Telling()
    ours = consumer(broker, group_id="group", enable_auto_commit=True)
    ours.subscribe(["topic"], told)
    take(ours, 5)
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        ours.close()
    assert told.events[-1] == ("revoked", ["topic-0", "topic-1"])
    assert ours.assignment == frozenset()


def test_consumer_subscribes_again_after_a_listener_that_raised(broker: Broker, log: History) -> None:
    log.plain(5)

    class Failing(RebalanceListener):
        def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
            raise RuntimeError("no more room")

    with consumer(broker, group_id="group") as ours:
        ours.subscribe(["topic"], Failing())
        take(ours, 5)
        with pytest.raises(RuntimeError, match="no more room"):
            ours.unsubscribe()
        assert ours.assignment == frozenset()
        ours.subscribe(["topic"])
        assert len(take(ours, 5)) == 5


def test_commit_of_an_expired_member_raises(broker: Broker, log: History) -> None:
    log.plain(5)
    with consumer(broker, group_id="group", max_poll_interval_ms=300) as slow:
        slow.subscribe(["topic"])
        take(slow, 5)
        wait_until(lambda: broker.groups.read("group", lambda group: len(group.members)) == 0)
        with consumer(broker, group_id="group", max_poll_interval_ms=10_000) as other:
            other.subscribe(["topic"])
            assert len(take(other, 5)) == 5
            with pytest.raises(BrokerError) as raised:
                slow.commit()
            assert raised.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
            slow.poll(0.0)
            assert slow.assignment == frozenset()


@pytest.mark.parametrize("is_automatic", [False, True])
def test_commit_of_an_expired_member_does_not_put_back_later_commits(
    broker: Broker, log: History, is_automatic: bool
) -> None:
    log.plain(10)

    def is_empty() -> bool:
        return broker.groups.read("group", lambda group: len(group.members)) == 0

    options = {"group_id": "group", "max_poll_interval_ms": 300, "max_poll_records": 2}
    by_itself = {"enable_auto_commit": is_automatic, "auto_commit_interval_ms": 100}
    with consumer(broker, **options, **by_itself) as slow:
        slow.subscribe(["topic"])
        take(slow, 2)
        wait_until(is_empty)
        with consumer(broker, group_id="group") as other:
            other.subscribe(["topic"])
            take(other, 10)
            other.commit()
        wait_until(is_empty)  # now the coordinator takes commits without a generation
        if is_automatic:
            slow.poll(0.0)
        else:
            with pytest.raises(BrokerError, match="UNKNOWN_MEMBER_ID"):
                slow.commit()
        assert slow.committed(FIRST) == {FIRST: Committed(10, "")}
