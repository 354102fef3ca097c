"""One connection to a leader, and another if it takes several batches; test_multi_batch has the whole way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

import pytest

from shoal.client.connection import Connection
from shoal.client.topic_listing import TopicListing
from shoal.mirroring.task import destination_leader
from shoal.mirroring.task.destination_leader import DestinationLeader
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


class FakeConnection:
    """A connection to a leader whose answers are known."""

    def __init__(self, is_marked: bool) -> None:
        self.is_marked = is_marked
        self.is_open = True

    def version(self, api_key: ApiKey) -> int:
        return 12

    def close(self) -> None:
        self.is_open = False


class Leader:
    """A leader with node id 1, its connections, and the node ids that a worker remembers."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        answers: Mapping[TopicPartition, bool],
        *,
        marked: bool = False,
    ) -> None:
        self.connections: list[FakeConnection] = []
        self.accepting = {1, 2} if marked else {2}

        def connect(is_marked: bool) -> Connection:
            self.connections.append(FakeConnection(is_marked))
            return cast(Connection, self.connections[-1])

        def query(
            connection: Connection, partitions: Sequence[TopicPartition], listing: TopicListing
        ) -> dict[TopicPartition, bool]:
            return {each: answers[each] for each in partitions if each in answers}

        monkeypatch.setattr(destination_leader, "query_multi_batch", query)
        self.tested = DestinationLeader(1, connect, self.accepting, can_be_marked=True)

    @property
    def open(self) -> list[bool]:
        """For each open connection whether it is marked."""
        return [each.is_marked for each in self.connections if each.is_open]


LeaderOf: TypeAlias = "Callable[..., Leader]"


@pytest.fixture
def leader_of(monkeypatch: pytest.MonkeyPatch) -> LeaderOf:
    return partial(Leader, monkeypatch)


def test_query_of_a_leader_that_takes_several_goes_on_with_the_marked_connection(leader_of: LeaderOf) -> None:
    leader = leader_of({ORDERS: True, CLICKS: False})
    leader.tested.query([ORDERS], [CLICKS])
    assert leader.open == [True]
    assert leader.tested.connection is cast(object, leader.connections[1])
    assert leader.accepting == {1, 2}
    assert [leader.tested.takes_several(each) for each in ("orders", "clicks")] == [True, False]


@pytest.mark.parametrize("answers", [{ORDERS: False}, {}], ids=["no", "no answer"])
def test_query_of_a_leader_that_takes_one_keeps_the_connection(
    leader_of: LeaderOf, answers: Mapping[TopicPartition, bool]
) -> None:
    leader = leader_of(answers)
    leader.tested.query([ORDERS], [])
    assert leader.open == [False]
    assert leader.accepting == {2}
    leader.tested.query([ORDERS], [])
    assert len(leader.connections) == 2, "it has answered"
    assert not leader.tested.takes_several("orders")


def test_leader_whose_partitions_may_not_be_marked_begins_unmarked() -> None:
    connections: list[bool] = []

    def connect(is_marked: bool) -> Connection:
        connections.append(is_marked)
        return cast(Connection, FakeConnection(is_marked))

    DestinationLeader(1, connect, {1}, can_be_marked=False).query([ORDERS], [])
    assert connections == [False]


def test_query_on_a_marked_connection_opens_no_other(leader_of: LeaderOf) -> None:
    leader = leader_of({ORDERS: True, CLICKS: False}, marked=True)
    leader.tested.query([ORDERS], [])
    leader.tested.query([CLICKS], [ORDERS])
    assert leader.open == [True]
    assert leader.accepting == {1, 2}  # it takes several for one of its topics


def test_forgotten_answers_are_unknown(leader_of: LeaderOf) -> None:
    leader = leader_of({ORDERS: True, CLICKS: False}, marked=True)
    leader.tested.query([ORDERS], [CLICKS])
    leader.tested.forget("orders")
    assert not leader.tested.takes_several("orders")
    leader.tested.query([ORDERS], [])
    assert leader.tested.takes_several("orders")


def test_close_closes_the_connection_that_is_used_now(leader_of: LeaderOf) -> None:
    leader = leader_of({ORDERS: True})
    leader.tested.query([ORDERS], [])
    leader.tested.close()
    assert leader.open == []
