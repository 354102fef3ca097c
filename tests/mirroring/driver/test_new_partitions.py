"""The bound on partitions that a running mirror adds, in one look and since its start."""

from __future__ import annotations

import re

from shoal.mirroring.driver.new_partitions import NewPartitions


def test_bound_of_a_look_is_reported_with_the_largest_topics() -> None:
    assert NewPartitions(1_000).count({"orders": 999, "late": 1}, {}) is None
    problem = NewPartitions(1_000).count({"a": 2, "orders": 2_000, "b": 0, "c": 1, "d": 1}, {"orders": 2})
    assert problem is not None
    assert re.findall(r"[a-z]+: [\d,]*\d|\d[\d,]*", problem) == [
        *("2,002", "orders: 1,998", "a: 2", "c: 1", "1"),
        *("1,000", "10,000", "10,000"),
    ]


def test_bound_since_the_start_is_ten_times_that_of_a_look() -> None:
    limit = NewPartitions(10)
    for look in range(10):
        assert limit.count({"topic": 10 * (look + 1)}, {"topic": 10 * look}) is None
    assert limit.count({"topic": 100}, {"topic": 100}) is None
    problem = limit.count({"topic": 101}, {"topic": 100})
    assert problem is not None
    assert re.search(r"\b0 are left", problem)


def test_topic_that_is_not_ready_yet_counts_at_its_first_look_alone() -> None:
    limit = NewPartitions(10)
    for _ in range(100):
        assert limit.count({"refused": 10}, {}) is None
    assert limit.count({"refused": 10, "late": 10}, {}) is None
    assert limit.count({"refused": 21}, {}) is not None


def test_zero_adds_none() -> None:
    assert NewPartitions(0).count({"topic": 1}, {}) is not None
    assert NewPartitions(0).count({}, {}) is None


def test_warning_names_the_option() -> None:
    problem = NewPartitions(0).count({"topic": 1}, {})
    assert problem is not None
    assert "(--max-new-partitions)" in problem
