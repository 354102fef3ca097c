"""Groups follow whatever happens to them, to their coordinators and to the mirror."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.commit import commit_translations
from shoal.mirroring.sync.report import Action, GroupOffset
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from tests.group_member import GroupMember
from tests.mirroring.sync.conftest import Groups, row_of
from tests.mirroring.sync.test_groups import mixed, open_transaction
from tests.world.clusters import recreate
from tests.world.faults import answers, lists_no_groups
from tests.world.history import History


def meanwhile(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]
) -> None:
    """Let something happen between a translation and its commit, and behind the commit."""

    def commit(cluster: Cluster, group: str, rows: Sequence[GroupOffset]) -> list[GroupOffset]:
        before()
        outcomes = commit_translations(cluster, group, rows)
        after()
        return outcomes

    monkeypatch.setattr(rounds, "commit_translations", commit)


def nothing() -> None:
    """Let nothing happen."""


# Coordinators that move


def test_rounds_without_a_listing_of_the_source_translate_the_known_groups(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    sync.round(groups.topics, apply=True)
    groups.commit("source", "g", 14)
    for action in (Action.WRITTEN, Action.UNCHANGED):
        lists_no_groups(groups.two.source)
        row = row_of(sync.round(groups.topics, apply=True))
        assert (row.committed, row.action) == (14, action)


def test_round_of_a_group_that_the_principal_may_not_describe_names_the_remedy(groups: Groups) -> None:
    """Brokers do not list such a group."""
    mixed(groups)
    groups.commit("source", "g", 4)
    destination = groups.two.destination
    lists_no_groups(destination)
    for api in (ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT):
        destination.faults.add(api, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    row = row_of(groups.round())
    assert (row.action, "Grant READ" in row.detail) == (Action.REFUSED, True)


@pytest.mark.parametrize("present", [None, 3])
def test_repeated_round_leaves_an_offset_that_a_consumer_committed_meanwhile(
    groups: Groups, present: int | None
) -> None:
    """The consumer came, committed and left between two attempts, so the group has no member again."""
    mixed(groups)
    groups.commit("source", "g", 4)
    if present is not None:
        groups.commit("destination", "g", present)

    def refuse_after_a_consumer(response: Any) -> Any:
        theirs = {("topic", 0): CommittedOffset(9, -1, "theirs", now_ms())}
        groups.two.destination.groups.commit("g", theirs)
        response.topics[0].partitions[0].error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    answers(groups.two.destination, ApiKey.OFFSET_COMMIT, refuse_after_a_consumer)
    assert row_of(groups.settled_round()).action is Action.FURTHER
    found = groups.committed("destination", "g")
    assert found == Committed(9, "theirs")


# Consumers


def test_consumer_that_joins_before_the_commit_keeps_its_own_offset(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    member = GroupMember(groups.destination, "g", protocol="range", instance_id="one")
    with monkeypatch.context() as patched:
        meanwhile(patched, lambda: member.join([TopicPartition("topic", 0)]), nothing)
        assert row_of(groups.round()).action is Action.ACTIVE
    assert row_of(groups.round()).action is Action.ACTIVE
    assert groups.committed("destination", "g") is None
    member.leave()
    groups.commit("destination", "g", 9)
    assert row_of(groups.round()).action is Action.FURTHER


def test_consumer_that_commits_and_leaves_during_a_long_round_is_left_alone(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The groups are committed one after the other."""
    mixed(groups)
    for name in ("first", "second"):
        groups.commit("source", name, 4)
    with monkeypatch.context() as patched:
        patched.setattr(rounds, "READ_AGAIN", 1)
        meanwhile(patched, nothing, lambda: groups.commit("destination", "second", 9))
        report = groups.round()
    assert row_of(report, "first").action is Action.WRITTEN
    assert (row_of(report, "second").action, report.may_pass) == (Action.REFUSED, True)
    committed = groups.committed("destination", "second")
    assert committed is not None
    assert committed.offset == 9
    assert row_of(groups.round(), "second").action is Action.FURTHER


def test_transaction_that_begins_during_a_long_round_is_left_alone(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    for name in ("f", "g"):
        groups.commit("source", name, 4)
    with ExitStack() as stack:
        opened: list[Producer] = []

        def open_one() -> None:
            if not opened:
                bootstrap = groups.two.destination.bootstrap
                opened.append(stack.enter_context(open_transaction(bootstrap, 9)))

        with monkeypatch.context() as patched:
            patched.setattr(rounds, "READ_AGAIN", 1)
            meanwhile(patched, nothing, open_one)
            report = groups.round()
        assert row_of(report, "f").action is Action.WRITTEN
        assert row_of(report, "g").action is Action.REFUSED
        opened[0].commit_transaction(10.0)
    assert row_of(groups.round(), "g").action is Action.FURTHER


# Topics that are created again


def test_round_of_a_destination_topic_that_was_created_again_waits_for_the_mirror(groups: Groups) -> None:
    groups.two = groups.two.going_on(IncidentKind.DESTINATION_LOSS)
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.WRITTEN
    recreate(groups.two.destination, with_offsets=True)
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.NO_POSITION
    assert groups.committed("destination", "g") is None
    log = groups.two.source.log("topic")
    history = History(log)
    history.plain(3)
    groups.two.run()
    groups.commit("source", "h", log.log_end_offset - 2)
    report = sync.round(groups.topics, apply=True)
    assert row_of(report, "g").action is Action.WRITTEN
    row = row_of(report, "h")
    assert (row.translated, row.action) == (
        groups.two.destination.log("topic").log_end_offset - 2,
        Action.WRITTEN,
    )


# Groups that need nothing


def test_round_of_a_settled_group_sees_each_change(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()

    def action() -> Action:
        return row_of(sync.round(groups.topics, apply=True)).action

    assert [action() for _ in range(3)] == [Action.WRITTEN, Action.UNCHANGED, Action.UNCHANGED]
    groups.commit("source", "g", 5)
    assert [action(), action()] == [Action.WRITTEN, Action.UNCHANGED]
    groups.commit("destination", "g", 12)
    assert action() is Action.FURTHER
    groups.commit("source", "g", groups.two.source.log("topic").log_end_offset)
    assert [action(), action()] == [Action.WRITTEN, Action.UNCHANGED]
    groups.two.destination.log("topic").delete_records(groups.two.destination.log("topic").log_end_offset)
    groups.topics = {}
    assert action() is Action.NOT_MIRRORED


# Many groups


def test_many_groups_take_few_requests_and_no_commits_if_nothing_changed(groups: Groups) -> None:
    mixed(groups)
    names = [f"g{number:04}" for number in range(320)]
    for name in names:
        groups.commit("source", name, 4)
    sync = groups.sync()
    report = sync.round(groups.topics, apply=True)
    assert report.counts == {"committed": len(names), "exact": len(names)}
    counted = {
        (side, api): getattr(groups.two, side).faults.add(api, times=None)
        for side in ("source", "destination")
        for api in (ApiKey.LIST_GROUPS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)
    }
    assert sync.round(groups.topics, apply=True).counts == {"unchanged": len(names), "exact": len(names)}
    for side in ("source", "destination"):
        assert counted[side, ApiKey.LIST_GROUPS].hits == 1
        assert counted[side, ApiKey.FIND_COORDINATOR].hits == 0
        assert counted[side, ApiKey.OFFSET_FETCH].hits <= len(names) // 4 + 2
        assert counted[side, ApiKey.OFFSET_COMMIT].hits == 0
