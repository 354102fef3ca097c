"""The examples of Kafka's documentation, and the properties of every assignment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from shoal.client.membership import ASSIGNORS
from shoal.client.membership.assignors import Member, RebalanceProtocol
from shoal.protocol.consumer_protocol import Subscription
from shoal.topic_partition import TopicPartition

Assigned = dict[str, list[str]]


def member(
    name: str,
    topics: str,
    owned: Sequence[str] = (),
    generation: int = -1,
    instance: str | None = None,
    user_data: bytes | None = None,
) -> Member:
    pairs = [(each[:2], int(each[2:])) for each in owned]
    return Member(name, instance, Subscription(topics.split(), user_data, pairs, generation))


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


def test_sticky_with_new_member_assigns_only_revoked_partitions() -> None:
    old = member("C0", "t0", ["t00", "t01", "t02", "t03"], 1)
    assert assign("cooperative-sticky", {"t0": 4}, old, member("C1", "t0")) == {
        "C0": ["t00", "t01"],
        "C1": [],
    }
    found = assign(
        "cooperative-sticky", {"t0": 4}, member("C0", "t0", ["t00", "t01"], 2), member("C1", "t0", [], 2)
    )
    assert found == {"C0": ["t00", "t01"], "C1": ["t02", "t03"]}


def test_sticky_after_a_member_left_keeps_partitions() -> None:
    found = assign(
        "cooperative-sticky",
        {"t0": 6},
        member("C0", "t0", ["t01", "t04"], 5),
        member("C2", "t0", ["t02", "t05"], 5),
    )
    assert {name: set(has) for name, has in found.items()} == {
        "C0": {"t01", "t04", "t00"},
        "C2": {"t02", "t05", "t03"},
    }


def test_sticky_with_two_claims_believes_the_later_generation() -> None:
    found = assign(
        "cooperative-sticky",
        {"t0": 2},
        member("C0", "t0", ["t00", "t01"], 3),
        member("C1", "t0", ["t01"], 4),
    )
    assert found == {"C0": ["t00"], "C1": ["t01"]}


def test_sticky_before_version_2_reads_generation_from_user_data() -> None:
    found = assign(
        "cooperative-sticky",
        {"t0": 2},
        member("C0", "t0", ["t00", "t01"], user_data=(3).to_bytes(4)),
        member("C1", "t0", ["t01"], user_data=(4).to_bytes(4)),
    )
    assert found == {"C0": ["t00"], "C1": ["t01"]}


def test_sticky_with_two_claims_of_one_generation_assigns_to_neither() -> None:
    found = assign(
        "cooperative-sticky",
        {"t0": 2},
        member("C0", "t0", ["t00", "t01"], 3),
        member("C1", "t0", ["t01"], 3),
    )
    assert found == {"C0": ["t00"], "C1": []}


def test_sticky_with_different_subscriptions_is_balanced() -> None:
    found = assign(
        "cooperative-sticky",
        {"t0": 4, "t1": 2},
        member("C0", "t0 t1"),
        member("C1", "t0"),
        member("C2", "t1"),
    )
    assert sorted(len(has) for has in found.values()) == [2, 2, 2]
    assert all(each.startswith("t0") for each in found["C1"])
    assert all(each.startswith("t1") for each in found["C2"])


def test_user_data_is_java_s() -> None:
    assert ASSIGNORS["cooperative-sticky"].user_data(7) == b"\0\0\0\x07"
    assert ASSIGNORS["cooperative-sticky"].user_data(-1) == b"\xff\xff\xff\xff"
    assert ASSIGNORS["range"].user_data(7) is None
    assert RebalanceProtocol.COOPERATIVE not in ASSIGNORS["range"].protocols


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
            assert {partition.topic for partition in found[each.member_id]} <= set(each.subscription.topics)


@given(TOPICS, st.lists(st.booleans(), min_size=1, max_size=8), st.booleans())
def test_sticky_over_many_rebalances_assigns_no_owned_partition(
    partitions: dict[str, int], steps: list[bool], same: bool
) -> None:
    """Simulate a cooperative group: after each round, a member owns its assignment."""
    assignor = ASSIGNORS["cooperative-sticky"]
    owned: dict[str, list[TopicPartition]] = {}
    numbers = itertools.count()
    for generation, comes in enumerate(steps):
        if comes or len(owned) < 2:
            owned[f"C{next(numbers)}"] = []
        else:
            owned.pop(sorted(owned)[generation % len(owned)])
        for attempt in range(4):
            members = [
                member(
                    name,
                    " ".join(partitions) if same or int(name[1:]) % 2 else min(partitions),
                    [f"{each.topic}{each.partition}" for each in has],
                    generation * 4 + attempt,
                )
                for name, has in owned.items()
            ]
            found = assignor.assign(partitions, members)
            for name, has in found.items():
                others = set(itertools.chain.from_iterable(o for n, o in owned.items() if n != name))
                assert not set(has) & others
            is_stable = all(set(owned[name]) <= set(has) for name, has in found.items())
            owned = {name: list(has) for name, has in found.items()}
            if is_stable:
                break
        assert is_stable, "it does not come to rest"
        if same:
            loads = [len(has) for has in owned.values()]
            assert sum(loads) == sum(partitions.values())
            assert max(loads) - min(loads) <= 1


class KafkaPythonCluster:
    """The part of kafka-python's ClusterMetadata that its assignors use."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._partitions = partitions

    def topics(self) -> set[str]:
        return set(self._partitions)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) if topic in self._partitions else None


def kafka_python_member(each: Member) -> SimpleNamespace:
    owned = [SimpleNamespace(topic=topic, partitions=[number]) for topic, number in each.subscription.owned]
    metadata = SimpleNamespace(
        topics=each.subscription.topics, owned_partitions=owned, generation_id=each.subscription.generation
    )
    return SimpleNamespace(member_id=each.member_id, group_instance_id=each.instance_id, metadata=metadata)


def test_kafka_python_roundrobin_fails_if_subscriptions_differ() -> None:
    """If this fails, a newer kafka-python may replace shoal's own (decision 0030)."""
    members = [member("C0", "t0"), member("C1", "t0 t1")]
    with pytest.raises(KeyError):
        RoundRobinPartitionAssignor.assign(
            KafkaPythonCluster({"t0": 1, "t1": 2}), [kafka_python_member(each) for each in members]
        )


def test_kafka_python_sticky_assigns_a_partition_that_two_members_claim() -> None:
    """Java's assigns it to neither; see decision 0030."""
    members = [member("C0", "t0", ["t00", "t01"], 3), member("C1", "t0", ["t01"], 3)]
    found = CooperativeStickyAssignor().assign(
        KafkaPythonCluster({"t0": 2}), [kafka_python_member(each) for each in members]
    )
    assigned = {name: [tuple(each) for each in part.assigned_partitions] for name, part in found.items()}
    assert assigned != {"C0": [("t0", [0])], "C1": []}
