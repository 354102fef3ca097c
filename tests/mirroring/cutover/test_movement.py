"""Partitions that move, and sources that are quiet."""

from __future__ import annotations

from shoal.mirroring.cutover.movement import Movement, PartitionSeen, Quiet, QuietSeen
from shoal.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)


def seen(
    end: int, position: int | None, *, stable: int | None = None, unreplicated: int = 0
) -> PartitionSeen:
    stable = end if stable is None else stable
    return PartitionSeen(ORDERS, ORDERS, 0, stable, end, position, unreplicated=unreplicated)


def test_partition_that_is_behind_stands_until_it_has_moved_once() -> None:
    movement = Movement(30.0)
    assert movement.look(0.0, [seen(9, 3)]) == {ORDERS: 0.0}
    assert movement.look(5.0, [seen(9, 3)]) == {ORDERS: 5.0}
    assert movement.look(6.0, [seen(9, 4)]) == {}


def test_partition_that_has_moved_stands_after_the_patience() -> None:
    movement = Movement(30.0)
    movement.look(0.0, [seen(9, 3)])
    movement.look(1.0, [seen(9, 4)])
    assert movement.look(31.0, [seen(9, 4)]) == {}
    assert movement.look(31.5, [seen(9, 4)]) == {ORDERS: 30.5}


def test_partition_at_its_end_does_not_stand_and_has_patience_for_the_next_records() -> None:
    movement = Movement(30.0)
    assert movement.look(0.0, [seen(9, 9)]) == {}
    assert movement.look(90.0, [seen(9, 9)]) == {}
    assert movement.look(95.0, [seen(12, 9)]) == {}
    assert movement.look(121.0, [seen(12, 9)]) == {ORDERS: 31.0}


def test_partition_behind_an_open_transaction_does_not_stand() -> None:
    assert Movement(30.0).look(0.0, [seen(9, 4, stable=4)]) == {}


def test_quiet_counts_from_the_first_look_and_the_last_movement() -> None:
    quiet = Quiet()
    assert quiet.look(0.0, [seen(9, 9)]) == QuietSeen(0.0)
    assert quiet.look(4.0, [seen(9, 9)]) == QuietSeen(4.0)
    assert quiet.look(5.0, [seen(10, 9)]) == QuietSeen(0.0, (ORDERS,))
    assert quiet.look(8.0, [seen(10, 10)]) == QuietSeen(3.0, (ORDERS,))


def test_quiet_names_open_transactions() -> None:
    assert Quiet().look(0.0, [seen(9, 4, stable=4)]).open_transactions == (ORDERS,)


def test_quiet_counts_from_the_last_write_to_the_leader_and_not_from_its_replication() -> None:
    quiet = Quiet()
    quiet.look(0.0, [seen(9, 9)])
    lagging = quiet.look(4.0, [seen(9, 9, unreplicated=3)])
    assert lagging == QuietSeen(0.0, (ORDERS,), unreplicated=(ORDERS,))
    assert quiet.look(9.0, [seen(12, 9)]) == QuietSeen(5.0, (ORDERS,))


def test_quiet_begins_again_with_a_new_partition() -> None:
    quiet = Quiet()
    quiet.look(0.0, [seen(9, 9)])
    other = TopicPartition("orders", 1)
    assert quiet.look(9.0, [seen(9, 9), PartitionSeen(other, other, 0, 0, 0, None)]).still_s == 0.0
