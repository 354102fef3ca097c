"""Partitions of one limit get the same, whatever a broker's order is, and idle ones save nothing."""

from __future__ import annotations

from shoal.mirroring.task.fair_turns import FairTurns

SLACK = 100


def test_partition_ahead_of_another_waits() -> None:
    turns: FairTurns[str] = FairTurns()
    both = [("one", None), ("two", None)]
    assert turns.ahead(both, SLACK) == set()
    turns.spend("one", SLACK)
    assert turns.ahead(both, SLACK) == set()
    turns.spend("one", 1)
    assert turns.ahead(both, SLACK) == {"one"}
    turns.spend("two", 1)
    assert turns.ahead(both, SLACK) == set()


def test_partition_without_data_delays_no_other() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.ahead([("one", None), ("two", None)], SLACK)
    turns.spend("one", 10 * SLACK)
    assert turns.ahead([("one", None)], SLACK) == set()


def test_partition_that_has_data_again_begins_beside_the_least() -> None:
    turns: FairTurns[str] = FairTurns()
    turns.ahead([("one", None)], SLACK)
    turns.spend("one", 10 * SLACK)
    both = [("one", None), ("two", None)]
    assert turns.ahead(both, SLACK) == set()
    turns.spend("two", SLACK + 1)
    assert turns.ahead(both, SLACK) == {"two"}


def test_partitions_of_different_limits_do_not_wait_for_each_other() -> None:
    turns: FairTurns[str] = FairTurns()
    both = [("one", 1), ("two", 2)]
    turns.ahead(both, SLACK)
    turns.spend("one", 10 * SLACK)
    assert turns.ahead(both, SLACK) == set()
