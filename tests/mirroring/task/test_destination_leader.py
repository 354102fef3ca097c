"""One connection to a leader, and another if it takes several batches; test_multi_batch has the whole way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from shoal.client.produce import ProduceConnection
from shoal.mirroring.task.destination_leader import DestinationLeader
from shoal.topic_partition import TopicPartition

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


class FakeConnection:
    """A connection to a leader whose answers are known."""

    def __init__(self, is_marked: bool, answers: Mapping[TopicPartition, bool]) -> None:
        self.is_marked = is_marked
        self.is_open = True
        self._answers = answers

    def takes_multi_batch(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, bool]:
        return {each: self._answers[each] for each in partitions if each in self._answers}

    def close(self) -> None:
        self.is_open = False


class Leader:
    """A leader with node id 1, its connections, and the node ids that a worker remembers."""

    def __init__(self, answers: Mapping[TopicPartition, bool], *, marked: bool = False) -> None:
        self.connections: list[FakeConnection] = []
        self.accepting = {1, 2}

        def connect(is_marked: bool) -> ProduceConnection:
            self.connections.append(FakeConnection(is_marked, answers))
            return cast(ProduceConnection, self.connections[-1])

        self.tested = DestinationLeader(1, connect, self.accepting, marked=marked)

    @property
    def open(self) -> list[bool]:
        """For each open connection whether it is marked."""
        return [each.is_marked for each in self.connections if each.is_open]


def test_query_of_a_leader_that_takes_several_goes_on_with_the_marked_connection() -> None:
    leader = Leader({ORDERS: True, CLICKS: False})
    leader.accepting.clear()
    leader.tested.query([ORDERS, CLICKS], can_be_marked=True)
    assert leader.open == [True]
    assert leader.tested.connection is cast(object, leader.connections[1])
    assert leader.accepting == {1}
    assert [leader.tested.takes_multi_batch(each) for each in ("orders", "clicks")] == [True, False]


@pytest.mark.parametrize("answers", [{ORDERS: False}, {}], ids=["no", "no answer"])
def test_query_of_a_leader_that_takes_one_keeps_the_connection(
    answers: Mapping[TopicPartition, bool],
) -> None:
    leader = Leader(answers)
    leader.tested.query([ORDERS], can_be_marked=True)
    assert leader.open == [False]
    assert leader.accepting == {2}
    assert leader.tested.has_answered_for("orders")
    assert not leader.tested.takes_multi_batch("orders")


def test_query_keeps_the_connection_if_some_partitions_may_not_be_on_a_marked_one() -> None:
    leader = Leader({ORDERS: True})
    leader.tested.query([ORDERS], can_be_marked=False)
    assert leader.open == [False]
    assert leader.tested.needs_two_connections
    assert 1 in leader.accepting


def test_query_on_a_marked_connection_opens_no_other() -> None:
    leader = Leader({ORDERS: True, CLICKS: False}, marked=True)
    leader.tested.query([ORDERS], can_be_marked=True)
    leader.tested.query([CLICKS], can_be_marked=True)
    assert leader.open == [True]
    assert leader.accepting == {1, 2}  # it takes several for one of its topics


def test_forgotten_answers_are_unknown() -> None:
    leader = Leader({ORDERS: True, CLICKS: False}, marked=True)
    leader.tested.query([ORDERS, CLICKS], can_be_marked=True)
    leader.tested.forget_refusals()
    assert [leader.tested.has_answered_for(each) for each in ("orders", "clicks")] == [True, False]
    leader.tested.forget("orders")
    assert not leader.tested.has_answered_for("orders")


def test_close_closes_the_connection_that_is_used_now() -> None:
    leader = Leader({ORDERS: True})
    leader.tested.query([ORDERS], can_be_marked=True)
    leader.tested.close()
    assert leader.open == []
