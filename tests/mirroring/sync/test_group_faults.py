"""Groups follow whatever happens to them, to their coordinators and to the mirror."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed
from shoal.client.groups import GroupListing, list_groups
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync import groups as rounds
from shoal.mirroring.sync.commit import commit_translations
from shoal.mirroring.sync.report import Action, Direction, GroupOffset, GroupsReport
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker.clock import now_ms
from shoal_broker.coordination.group import CommittedOffset
from tests.group_member import GroupMember
from tests.mirroring.sync.conftest import Groups, row_of
from tests.mirroring.sync.test_groups import mixed, open_transaction
from tests.world import batches
from tests.world.clusters import recreate
from tests.world.control import Killed
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


def die() -> None:
    raise Killed


def nothing() -> None:
    """Let nothing happen."""


def proved(groups: Groups, report: GroupsReport) -> bool | None:
    """Whether the group of the only offset reads the same record next at both clusters."""
    proof = row_of(groups.prove(report)).proof
    assert proof is not None
    return proof.is_same


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


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.LIST_GROUPS])
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_round_during_the_move_of_a_coordinator_is_made_up_for_by_the_next(
    groups: Groups, api: ApiKey, code: ErrorCode
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    groups.two.destination.faults.add(api, error=code)
    sync = groups.sync()
    sync.round(groups.topics, apply=True)
    assert row_of(sync.round(groups.topics, apply=True)).action in (Action.WRITTEN, Action.UNCHANGED)
    assert groups.committed("destination", "g") is not None


def test_first_group_of_a_destination_waits_for_its_coordinator(groups: Groups) -> None:
    """The first request for a coordinator has the brokers create __consumer_offsets."""
    mixed(groups)
    groups.commit("source", "g", 4)
    groups.two.destination.faults.add(
        ApiKey.FIND_COORDINATOR, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2
    )
    assert row_of(groups.settled_round()).action is Action.WRITTEN


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_round_is_repeated_while_the_coordinator_moves(groups: Groups, refusal: ErrorCode) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    groups.two.destination.faults.add(ApiKey.OFFSET_COMMIT, error=refusal, times=2)
    assert row_of(groups.settled_round()).action is Action.WRITTEN


def test_repeated_round_finds_the_commit_whose_answer_was_lost(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    commits = groups.two.destination.faults.add(ApiKey.OFFSET_COMMIT, drop="after")
    groups.two.destination.faults.add(
        ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None
    )
    row = row_of(groups.settled_round())
    assert (row.action, row.may_pass, commits.hits) == (Action.WRITTEN, False, 1)


def test_round_that_read_before_a_later_one_does_not_move_its_offset_back(groups: Groups) -> None:
    """The round of a mirror and ``shoal groups --apply`` write the same offsets; one may have older ones."""
    mixed(groups)
    groups.commit("source", "g", 4)
    slow = groups.sync()
    later: set[int | None] = set()

    def overtake(row: GroupOffset) -> None:
        groups.commit("source", "g", 14)
        later.add(row_of(groups.round()).translated)

    report = slow.round(groups.topics, apply=True, prove=overtake)
    committed = groups.committed("destination", "g")
    assert committed is not None
    assert ({committed.offset}, report.may_pass) == (later, True)
    assert row_of(slow.round(groups.topics, apply=True)).action is Action.UNCHANGED


def between_both_looks(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Let something happen once a round has read the source and the positions, and nothing there."""
    waiting = [then]

    def listed(cluster: Cluster, *, with_states: bool) -> GroupListing:
        while waiting:
            waiting.pop()()
        return list_groups(cluster, with_states=with_states)

    monkeypatch.setattr(rounds, "list_groups", listed)


def test_round_with_an_older_offset_does_not_undo_the_translation_of_a_later_one(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    slow = groups.sync()
    later: list[int | None] = []

    def overtake() -> None:
        groups.commit("source", "g", 14)
        later.append(row_of(groups.round()).translated)

    between_both_looks(monkeypatch, overtake)
    report = slow.round(groups.topics, apply=True)
    committed = groups.committed("destination", "g")
    assert committed is not None
    assert ([committed.offset], report.may_pass) == (later, True)
    assert row_of(slow.round(groups.topics, apply=True)).action is Action.UNCHANGED


def test_round_with_an_older_position_keeps_the_exact_translation_of_another_round(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed(groups)
    log = groups.two.source.log("topic")
    history = History(log)
    groups.commit("source", "g", log.log_end_offset + 2)

    def overtake() -> None:
        history.plain(5)
        groups.two.run(groups.two.ranges("topic"))
        assert row_of(groups.round()).exactness is Exactness.EXACT

    between_both_looks(monkeypatch, overtake)
    slow = groups.sync()
    row = row_of(slow.round(groups.topics, apply=True))
    assert (row.action, row.exactness) == (Action.UNCHANGED, Exactness.EXACT)
    committed = groups.committed("destination", "g")
    assert committed is not None
    assert committed.offset == row.translated


@pytest.mark.parametrize("refusal", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_commit_that_is_lost_stays_unconfirmed_if_the_repeated_one_is_refused(
    groups: Groups, refusal: ErrorCode
) -> None:
    """A request may still arrive late."""
    mixed(groups)
    groups.commit("source", "g", 4)
    groups.two.destination.faults.add(ApiKey.OFFSET_COMMIT, drop="before")
    groups.two.destination.faults.add(ApiKey.OFFSET_COMMIT, error=refusal, times=None)
    assert row_of(groups.settled_round()).action is Action.UNCONFIRMED


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


# The end of a mirror


@pytest.mark.parametrize(("before", "after"), [(die, nothing), (nothing, die)], ids=["before", "after"])
def test_round_of_a_mirror_that_was_killed_at_the_commit_is_repeated(
    groups: Groups,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[], object],
    after: Callable[[], object],
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    with monkeypatch.context() as patched:
        meanwhile(patched, before, after)
        with pytest.raises(Killed):
            groups.round()
    groups.commit("source", "g", 2)
    report = groups.round()
    assert row_of(report).action is Action.WRITTEN
    assert proved(groups, report)


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


# Groups and offsets that are gone


def test_round_without_a_group_that_was_deleted_at_the_source_leaves_the_other_alone(groups: Groups) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    sync.round(groups.topics, apply=True)
    groups.two.source.groups.delete("g")
    assert sync.round(groups.topics, apply=True).groups == []
    assert groups.committed("destination", "g") is not None


def test_round_writes_an_offset_again_that_expired_at_the_destination(groups: Groups) -> None:
    for topic in ("topic", "other"):
        mixed(groups, topic)
        groups.commit("source", "g", 4, topic=topic)
    groups.topics["other"] = "other"
    sync = groups.sync()
    sync.round(groups.topics, apply=True)
    groups.two.destination.groups.forget_topic("other")
    offsets = sync.round(groups.topics, apply=True).groups[0].offsets
    assert {each.partition.topic: each.action for each in offsets} == {
        "topic": Action.UNCHANGED,
        "other": Action.WRITTEN,
    }


@pytest.mark.parametrize("offset", [2, 4, 9, 14])
def test_reverse_restores_an_offset_that_expired_at_the_source(groups: Groups, offset: int) -> None:
    """A group that moved reads no record of a quiet partition for longer than offsets are kept."""
    mixed(groups)
    groups.commit("source", "g", offset)
    assert row_of(groups.round()).action is Action.WRITTEN
    assert row_of(groups.round(direction=Direction.REVERSE)).action is Action.RETURNED
    groups.two.source.groups.delete("g")
    row = row_of(groups.round(direction=Direction.REVERSE))
    assert (row.action, row.translated, row.exactness) == (Action.WRITTEN, offset, Exactness.EXACT)
    assert row_of(groups.round()).action is Action.RETURNED


# Topics that are created again


def test_round_of_a_source_topic_that_was_created_again_goes_on_behind_the_former(groups: Groups) -> None:
    groups.two = groups.two.going_on(IncidentKind.SOURCE_RESET)
    mixed(groups)
    copied = len(groups.two.copied())
    recreate(groups.two.source, with_offsets=True)
    history = History(groups.two.source.log("topic"), groups.two.topic("clock")[0].base_timestamp + 60_000)
    history.plain(3, 4)
    groups.commit("source", "g", 2)
    assert row_of(groups.round()).action is Action.NO_POSITION
    groups.two.run()
    report = groups.round()
    row = row_of(report)
    assert (row.translated, row.exactness, row.action) == (copied + 2, Exactness.EXACT, Action.WRITTEN)
    assert proved(groups, report)


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


# Resets by an operator


def test_round_undoes_no_reset_forwards_at_the_destination_and_follows_one_at_the_source(
    groups: Groups,
) -> None:
    mixed(groups)
    groups.commit("source", "g", 4)
    sync = groups.sync()
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.WRITTEN
    groups.commit("destination", "g", 12)
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.FURTHER
    groups.commit("source", "g", 0)
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.FURTHER
    groups.commit("source", "g", groups.two.source.log("topic").log_end_offset)
    assert row_of(sync.round(groups.topics, apply=True)).action is Action.WRITTEN


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


def test_round_of_a_settled_group_sees_an_incident_of_its_copy(groups: Groups) -> None:
    groups.two = groups.two.going_on(IncidentKind.FOREIGN_RECORDS)
    mixed(groups)
    end = groups.two.source.log("topic").log_end_offset
    groups.commit("source", "g", end)
    sync = groups.sync()
    for _ in range(2):
        before = row_of(sync.round(groups.topics, apply=True))
    assert (before.action, before.exactness) == (Action.UNCHANGED, Exactness.EXACT)
    copy = groups.two.destination.log("topic")
    copy.store(memoryview(batches.batch([b"of another writer"], base_offset=copy.log_end_offset)))
    History(groups.two.source.log("topic")).plain(1)
    groups.two.run()
    row = row_of(sync.round(groups.topics, apply=True))
    assert (row.action, row.present) == (Action.WRITTEN, before.present)
    assert row.translated == copy.log_end_offset - 1


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
