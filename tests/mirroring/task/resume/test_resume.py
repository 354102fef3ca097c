"""A task resumes exactly behind the destination's records, or stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.reports import Assigned
from shoal.mirroring.positions import GroupPositions
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers, die_after
from tests.world.contents import batches_of, compacted
from tests.world.control import Watched, incidents_of
from tests.world.faults import answers, before_request, refuses_offsets
from tests.world.history import NOW_MS, History
from tests.world.logs import lose_tail, may_compact
from tests.world.task import TaskResult
from tests.world.waiting import wait_until


def stopped_with(brokers: TwoBrokers, *sentences: str) -> None:
    """Run a task, and expect that its partition stops with these words and that nothing is written."""
    end = brokers.destination.log("topic").log_end_offset
    (stopped,) = brokers.start().result().stopped
    for sentence in sentences:
        assert sentence in stopped.reason
    assert brokers.destination.log("topic").log_end_offset == end


def test_nothing_is_produced_if_the_first_position_cannot_be_committed(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        brokers.run()
    assert brokers.copied() == []


def test_lost_tail_of_batches_without_epochs_is_found_though_the_log_has_grown(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1, leader_epoch=-1)
    brokers.run()
    History(lose_tail(brokers.source, "topic", 1)).plain(1, 1, 1)
    (stopped,) = brokers.run().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    assert stopped.unmirrored_from == 1


def test_lost_tail_of_an_epoch_behind_the_committed_position_begins_at_its_first_offset(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1)
    brokers.run()
    log = brokers.source.log("topic")
    log.begin_leader_epoch(log.leader_epoch + 1)
    history.plain(1, 1, 1, leader_epoch=log.leader_epoch)
    die_after(brokers, 2)
    assert len(brokers.copied()) == 5
    History(lose_tail(brokers.source, "topic", 4)).plain(1, 1)
    (stopped,) = brokers.run().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    assert stopped.unmirrored_from == 4


def test_offsets_committed_by_another_program_are_reported_and_not_used(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    key = TopicPartition("topic", 0)
    with Cluster(brokers.settings.source) as cluster:
        positions = GroupPositions(cluster, brokers.settings.group, MemberId)
        commit_offsets(cluster, brokers.settings.group, {key: Committed(2, "")}, MemberId())
        state = positions.read_state([key])
        assert (state.positions, state.others) == ({}, {key: 2})
        assert positions.read([key]) == {}
    brokers.run()
    brokers.assert_exact(history)
    with Cluster(brokers.settings.source) as cluster:
        assert GroupPositions(cluster, brokers.settings.group, MemberId).read_state([key]).others == {}


def test_log_end_inside_a_batch_is_requested_again(brokers: TwoBrokers, history: History) -> None:
    """Elections between two answers: the log is not the one whose end was requested."""
    history.plain(1, 2, 1)
    die_after(brokers, 2)

    def one_less(response: Any) -> Any:
        response.topics[0].partitions[0].end_offset = 2
        return response

    answers(brokers.destination, ApiKey.OFFSET_FOR_LEADER_EPOCH, one_less)
    control = Watched()
    result = brokers.start(control=control).result()
    assert (result.complete, result.stopped) == (True, ())
    assert control.total("retries") == 1
    brokers.assert_exact(history)


def compact(brokers: TwoBrokers, keep: Callable[[int], bool] | None, last: int = 1) -> None:
    """
    Let the destination's cleaner go over its last batches.

    Args:
        brokers: Whose destination.
        keep: Which offsets are left; None takes the batches out whole.
        last: So many of the last batches.
    """
    may_compact(brokers.destination)
    log = brokers.destination.log("topic")
    end = log.log_end_offset
    cleaned = batches_of(log)[-last:]
    after = lose_tail(brokers.destination, "topic", cleaned[0].header.base_offset)
    for batch in cleaned:
        if keep is not None:
            after.store(memoryview(compacted(batch, keep)))
    after.end_at(end)
    if keep is None:
        # A cleaner takes a writer's last batch only when the broker has forgotten that writer.
        after.forget_expired_producers(NOW_MS + 86_400_000, 1)


def test_destination_that_compacted_all_records_of_a_dead_task_stops_the_partition(
    brokers: TwoBrokers, history: History
) -> None:
    brokers = brokers.impatient()
    history.plain(1, 2)
    brokers.run()
    history.plain(3, 2)
    die_after(brokers, 1)
    compact(brokers, None)
    stopped_with(brokers, "has lost records from offset", "which program wrote them")


def test_copy_whose_leader_refuses_offsets_of_its_own_log_stops(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(5)
    brokers.run()
    history.plain(1)
    refuses_offsets(brokers.destination, times=1_000)
    (stopped,) = brokers.start().result().stopped
    assert all(each in stopped.reason for each in ("from offset 0", "5"))
    assert brokers.copied() == history.committed[:5]


def test_end_of_a_copy_that_begins_inside_a_batch_is_read_from_there(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 3, 3)
    brokers.run()
    brokers.destination.log("topic").delete_records(4)
    after = lose_tail(brokers.destination, "topic", 6)
    after.delete_records(4)
    after.forget_expired_producers(2 * NOW_MS, 1)
    result = brokers.going_on(IncidentKind.DESTINATION_LOSS).run()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed[4:]


def test_source_that_lost_its_tail_as_its_copy_did_is_another_log(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 3, 3)
    brokers.run()
    History(lose_tail(brokers.source, "topic", 3)).named("new", 9)
    lose_tail(brokers.destination, "topic", 6)
    (stopped,) = brokers.going_on(IncidentKind.DESTINATION_LOSS).run().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    assert brokers.copied() == history.committed[:6]


def test_source_that_loses_records_before_they_are_mirrored_ends_the_range(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1)
    brokers.run()
    history.plain(1)
    planned = brokers.ranges()
    lose_tail(brokers.source, "topic", 2)
    (stopped,) = brokers.run(planned).stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    control = Watched()
    assert brokers.going_on(IncidentKind.SOURCE_RESET).run(planned, control).complete
    assert [lost for _, _, lost, _ in incidents_of(control)] == [1]


def test_orphan_that_commits_while_its_successor_begins_shows_no_lost_tail(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.run()
    history.plain(3)
    # The ends of logs that were read before this are older than the position.
    before_request(brokers.source, ApiKey.OFFSET_FETCH, brokers.run)
    assert brokers.run() == TaskResult((), complete=True)
    brokers.assert_exact(history)


def test_task_resumes_by_the_map_of_the_one_that_wrote_during_an_interruption(
    brokers: TwoBrokers, history: History
) -> None:
    def another_writes() -> None:
        assert len(brokers.copied()) == 1
        history.holed(3, [1])
        brokers.run()
        control.begin_generation()

    history.plain(1)
    control = Watched(20, another_writes)  # between two fetches that bring nothing
    running = brokers.start(brokers.open_ranges(), control)
    wait_until(lambda: control.interruptions > 0)
    history.plain(1)
    wait_until(lambda: len(brokers.copied()) >= 4)
    control.request_stop()
    running.result()
    brokers.assert_exact(history)


def test_accepted_incident_stops_the_partition_if_it_happens_again(
    brokers: TwoBrokers, history: History
) -> None:
    def others_write() -> None:
        History(brokers.destination.log("topic")).named("foreign", 1)

    history.plain(1)
    brokers.run()
    others_write()
    history.plain(1, 1)
    (whole,) = brokers.ranges()
    control = Watched()
    control.assignment = {whole.source: Assigned(1, whole, accepted=IncidentKind.FOREIGN_RECORDS)}
    before_request(brokers.destination, ApiKey.PRODUCE, others_write, number=2)
    (stopped,) = brokers.run(control=control).stopped
    assert stopped.cause is IncidentKind.FOREIGN_RECORDS
    assert [each[3] for each in incidents_of(control)] == [True, False]
