"""Commits without a member: the outcome of each offset, by the broker's answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets, fetch_offsets
from shoal.client.coordinator import MemberId
from shoal.client.group_offsets import CommittedValue
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.offset_map import Exactness, Translation
from shoal.mirroring.sync import commit
from shoal.mirroring.sync.commit import Outcome, ToCommit, commit_translations
from shoal.mirroring.sync.mark import Mark
from shoal.mirroring.sync.report import Action
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from tests.two_brokers import answers, config_of

FIRST = TopicPartition("topic", 0)
WRITTEN: Outcome = (Action.WRITTEN, "")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(cluster_id="destination") as running:
        running.create_topic("topic", 3)
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(config_of("destination", broker)) as cluster:
        yield cluster


def translated(partition: int, metadata: str = "") -> ToCommit:
    mark = Mark.of("A", CommittedValue(7, metadata, 0), Translation(5, Exactness.EXACT))
    return ToCommit(TopicPartition("topic", partition), 5, mark)


def committed(cluster: Cluster, *offsets: ToCommit) -> dict[TopicPartition, Outcome]:
    return commit_translations(cluster, "g", offsets, patience_s=0.1)


@pytest.mark.parametrize(
    ("code", "action", "said"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, Action.ACTIVE, "a consumer joined the group"),
        (ErrorCode.REBALANCE_IN_PROGRESS, Action.ACTIVE, "a consumer joined the group"),
        (ErrorCode.FENCED_INSTANCE_ID, Action.ACTIVE, "a consumer joined the group"),
        (ErrorCode.STALE_MEMBER_EPOCH, Action.ACTIVE, "a consumer joined the group"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Action.REFUSED, "not authorized. Grant READ on the group"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Action.REFUSED, "not authorized. Grant READ on the topic"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Action.REFUSED, "Has the mirror created it?"),
        (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, Action.REFUSED, "max.message.bytes of __consumer_offsets"),
        (ErrorCode.NOT_COORDINATOR, Action.UNCONFIRMED, "NOT_COORDINATOR. The next round tries again"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Action.UNCONFIRMED, "The next round tries again"),
        (ErrorCode.REQUEST_TIMED_OUT, Action.UNCONFIRMED, "The next round tries again"),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Action.REFUSED, "The next round tries again"),
        (ErrorCode.GROUP_ID_NOT_FOUND, Action.REFUSED, "is not a consumer group"),
        (ErrorCode.ILLEGAL_GENERATION, Action.REFUSED, "is not a consumer group"),
        (ErrorCode.INVALID_GROUP_ID, Action.REFUSED, "INVALID_GROUP_ID"),
    ],
)
def test_commit_that_is_refused_has_an_action_and_a_reason(
    broker: Broker, cluster: Cluster, code: ErrorCode, action: Action, said: str
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=code, times=None)
    outcome, reason = committed(cluster, translated(0))[FIRST]
    assert outcome is action
    assert said in reason
    broker.faults.clear()
    assert committed(cluster, translated(0)) == {FIRST: WRITTEN}


@pytest.mark.parametrize("refusal", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_commit_that_is_lost_is_unconfirmed_if_the_repetition_is_refused(
    broker: Broker, cluster: Cluster, refusal: ErrorCode
) -> None:
    """A request may still arrive late."""
    broker.faults.add(ApiKey.OFFSET_COMMIT, drop="before")
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=refusal, times=None)
    outcomes = commit_translations(cluster, "g", [translated(0)], patience_s=20.0)
    assert outcomes[FIRST][0] is Action.UNCONFIRMED


def test_commit_whose_answer_is_lost_is_found_and_not_repeated(broker: Broker, cluster: Cluster) -> None:
    commits = broker.faults.add(ApiKey.OFFSET_COMMIT, drop="after")
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    assert commit_translations(cluster, "g", [translated(0)], patience_s=20.0) == {FIRST: WRITTEN}
    assert commits.hits == 1
    assert fetch_offsets(cluster, "g", None)[FIRST].offset == 5


def test_commit_without_any_answer_is_unconfirmed(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, drop="after", times=None)
    broker.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
    assert committed(cluster, translated(0))[FIRST][0] is Action.UNCONFIRMED


@pytest.mark.parametrize("present", [None, 3])
def test_commit_that_is_repeated_leaves_an_offset_that_a_consumer_committed_meanwhile(
    broker: Broker, cluster: Cluster, present: int | None
) -> None:
    """The consumer came, committed and left between two attempts, so the group has no member again."""
    if present is not None:
        assert commit_offsets(cluster, "g", {FIRST: Committed(present, "")}, MemberId()) == {}
    offset = translated(0)._replace(present=present)

    def refuse_after_a_consumer(response: Any) -> Any:
        theirs = {("topic", 0): CommittedOffset(9, -1, "theirs", now_ms())}
        broker.groups.commit("g", theirs)
        response.topics[0].partitions[0].error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    answers(broker, ApiKey.OFFSET_COMMIT, refuse_after_a_consumer)
    outcomes = commit_translations(cluster, "g", [offset, translated(1)], patience_s=20.0)
    assert outcomes[FIRST] == (Action.ACTIVE, "a consumer has just committed this offset")
    assert outcomes[TopicPartition("topic", 1)] == WRITTEN
    found = fetch_offsets(cluster, "g", None)
    assert (found[FIRST].offset, found[FIRST].metadata) == (9, "theirs")


def test_commit_that_is_refused_for_one_partition_commits_the_others(
    broker: Broker, cluster: Cluster
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1)
    actions = {
        each.partition: outcome
        for each, (outcome, _) in committed(cluster, *map(translated, range(3))).items()
    }
    assert actions == {0: Action.WRITTEN, 1: Action.REFUSED, 2: Action.WRITTEN}


def test_commit_while_the_coordinator_moves_is_repeated(broker: Broker, cluster: Cluster) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.NOT_COORDINATOR, times=2)
    assert commit_translations(cluster, "g", [translated(0)], patience_s=20.0) == {FIRST: WRITTEN}


def test_commit_with_metadata_that_the_broker_refuses_has_the_mark_alone(
    broker: Broker, cluster: Cluster
) -> None:
    broker.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.OFFSET_METADATA_TOO_LARGE, partition=0)
    outcomes = committed(cluster, translated(0, "mine"), translated(1, "mine"))
    assert set(outcomes.values()) == {WRITTEN}
    found = fetch_offsets(cluster, "g", None)
    assert {each.partition: value.metadata for each, value in found.items()} == {
        0: "translated-by-shoal/1 A 7 5 exact/69a8d393",
        1: "translated-by-shoal/1 A 7 5 exact mine",
    }


def test_commit_of_much_metadata_is_sent_in_parts(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "AT_ONCE_BYTES", 1_000)
    requests = broker.faults.add(ApiKey.OFFSET_COMMIT, times=None)
    outcomes = committed(cluster, *(translated(number, "m" * 100) for number in range(3)))
    assert set(outcomes.values()) == {WRITTEN}
    assert requests.hits == 3
