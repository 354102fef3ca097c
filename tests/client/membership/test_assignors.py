"""The examples of Kafka's documentation, and the properties of every assignment."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.assignors import ASSIGNORS, Member, assignors_named
from shoal.errors import ConfigError
from shoal.topic_partition import TopicPartition

Assigned = dict[str, list[str]]


def member(name: str, topics: str, instance: str | None = None) -> Member:
    return Member(name, instance, topics.split())


def assign(assignor: str, partitions: dict[str, int], *members: Member) -> Assigned:
    found = ASSIGNORS[assignor].assign(partitions, members)
    return {name: [f"{each.topic}{each.partition}" for each in has] for name, has in found.items()}


def test_range_assigns_consecutive_partitions_of_each_topic() -> None:
    # The example in RangeAssignor's documentation.
    found = assign("range", {"t0": 3, "t1": 3}, member("C1", "t0 t1"), member("C0", "t0 t1"))
    assert found == {"C0": ["t00", "t01", "t10", "t11"], "C1": ["t02", "t12"]}


def test_range_with_static_members_orders_them_first() -> None:
    found = assign(
        "range",
        {"t0": 4},
        member("a", "t0"),
        member("z", "t0", instance="1"),
        member("y", "t0", instance="2"),
    )
    assert found == {"z": ["t00", "t01"], "y": ["t02"], "a": ["t03"]}


def test_roundrobin_assigns_all_topics_in_turn() -> None:
    # The examples in RoundRobinAssignor's documentation.
    found = assign("roundrobin", {"t0": 3, "t1": 3}, member("C0", "t0 t1"), member("C1", "t0 t1"))
    assert found == {"C0": ["t00", "t02", "t11"], "C1": ["t01", "t10", "t12"]}
    found = assign(
        "roundrobin",
        {"t0": 1, "t1": 2, "t2": 3},
        member("C0", "t0"),
        member("C1", "t0 t1"),
        member("C2", "t0 t1 t2"),
    )
    assert found == {"C0": ["t00"], "C1": ["t10"], "C2": ["t11", "t20", "t21", "t22"]}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_assign_of_missing_topics_assigns_nothing(assignor: str) -> None:
    found = assign(assignor, {"t0": 1}, member("C0", "t0 no"), member("C1", "no"))
    assert found == {"C0": ["t00"], "C1": []}
    assert assign(assignor, {}, member("C0", "no")) == {"C0": []}


def test_cooperative_sticky_of_java_s_default_is_left_out() -> None:
    package = "org.apache.kafka.clients.consumer"
    given = [f"{package}.RangeAssignor", f"{package}.CooperativeStickyAssignor", "roundrobin"]
    assert list(assignors_named(given)) == ["range", "roundrobin"]
    for alone in (["cooperative-sticky"], given[1:2], ["sticky"]):
        with pytest.raises(ConfigError, match=r"sticky'.*\brange\b"):
            assignors_named(alone)


TOPICS = st.dictionaries(st.sampled_from(["t0", "t1", "t2"]), st.integers(1, 7), min_size=1)


@given(TOPICS, st.lists(st.sets(st.sampled_from(["t0", "t1", "t2"]), min_size=1), min_size=1, max_size=6))
def test_assign_gives_each_partition_to_exactly_one_subscriber(
    partitions: dict[str, int], wanted: list[set[str]]
) -> None:
    members = [member(f"C{number}", " ".join(topics)) for number, topics in enumerate(wanted)]
    expected = {
        TopicPartition(topic, number)
        for topic, count in partitions.items()
        for number in range(count)
        if any(topic in topics for topics in wanted)
    }
    for assignor in ASSIGNORS.values():
        found = assignor.assign(partitions, members)
        dealt = list(itertools.chain.from_iterable(found.values()))
        assert len(dealt) == len(set(dealt))
        assert set(dealt) == expected
        for each in members:
            assert {partition.topic for partition in found[each.member_id]} <= set(each.topics)
