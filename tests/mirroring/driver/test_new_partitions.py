"""The bound on partitions that a running mirror adds, in one look and since its start."""

from __future__ import annotations

from shoal.mirroring.driver.new_partitions import NewPartitions


def test_bound_of_a_look_is_reported_with_the_largest_topics() -> None:
    limit = NewPartitions(1_000)
    assert limit.warning_of({"orders": 999, "late": 1}) is None
    problem = limit.warning_of({"a": 2, "orders": 1_998, "b": 0, "c": 1, "d": 1})
    assert problem is not None
    assert "2,002 new partitions (orders: 1,998, a: 2, c: 1 and 1 more topics)" in problem
    assert "1,000 a look and 10,000 since the start, of which 10,000 are left" in problem


def test_bound_since_the_start_is_ten_times_that_of_a_look() -> None:
    limit = NewPartitions(10)
    for _ in range(10):
        assert limit.warning_of({"topic": 10}) is None
        limit.add(10)
    assert limit.warning_of({"topic": 0}) is None
    problem = limit.warning_of({"topic": 1})
    assert problem is not None
    assert "of which 0 are left" in problem


def test_zero_adds_none() -> None:
    assert NewPartitions(0).warning_of({"topic": 1}) is not None
    assert NewPartitions(0).warning_of({}) is None
