"""A task resumes exactly behind the destination's records, or stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.committed_offsets import Committed, commit_offsets
from shoal.client.coordinator import MemberId
from shoal.error_codes import ErrorCode
from shoal.errors import BrokerError
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.positions import GroupPositions
from shoal.protocol.apis import ApiKey
from shoal.protocol.fetch import FetchResponse
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from tests import batches
from tests.two_brokers import (
    NOW_MS,
    Acting,
    History,
    TwoBrokers,
    Watched,
    answers,
    batches_of,
    begin_at,
    compacted,
    die_after,
    lagging,
    lose_tail,
    may_compact,
    wait_until,
)


def stopped_with(brokers: TwoBrokers, *sentences: str) -> None:
    """Run a task, and expect that its partition stops with these words and that nothing is written."""
    end = brokers.destination.log("topic").log_end_offset
    (stopped,) = brokers.start().result().stopped
    for sentence in sentences:
        assert sentence in stopped.reason
    assert brokers.destination.log("topic").log_end_offset == end


# ProducerIdentity and sequence


@pytest.mark.parametrize("requests", range(6))
def test_sequences_wrap_after_two_to_the_31(brokers: TwoBrokers, history: History, requests: int) -> None:
    begin_at(brokers.destination.log("topic"), 2**31 - 4)
    history.plain(1, 2, 3, 1, 1, 1)
    die_after(brokers, requests)
    brokers.run()
    assert brokers.copied() == history.committed
    sequences = [each.header.base_sequence for each in batches_of(brokers.destination.log("topic"))]
    assert sequences == [2**31 - 4, 2**31 - 3, 2**31 - 1, 2, 3, 4]


def test_first_position_is_committed_before_the_first_batch_is_produced(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    found: list[int] = []
    brokers.run(control=Acting(1, lambda: found.append(brokers.position().destination_offset)))
    assert found == [0]


def test_nothing_is_produced_if_the_first_position_cannot_be_committed(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        brokers.run()
    assert brokers.copied() == []


def test_partition_whose_position_cannot_be_committed_does_not_delay_the_others(brokers: TwoBrokers) -> None:
    histories = brokers.topic("topic", 3)
    for history in histories:
        history.plain(1, 2)
    brokers.source.faults.add(
        ApiKey.OFFSET_COMMIT, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=1, times=None
    )
    (stopped,) = brokers.run().stopped
    assert stopped.partition == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in stopped.reason
    assert brokers.copied("topic", 0) == histories[0].committed
    assert brokers.copied("topic", 1) == []
    assert brokers.copied("topic", 2) == histories[2].committed


# With a position


def test_lost_tail_of_batches_without_epochs_is_found_though_the_log_has_grown(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1, leader_epoch=-1)
    brokers.run()
    History(lose_tail(brokers.source, "topic", 1)).plain(1, 1, 1)
    (stopped,) = brokers.run().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    assert stopped.unmirrored_from == 1


def test_destination_whose_retention_took_the_records_of_a_dead_task_continues_behind_them(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1, 1, 1)
    die_after(brokers, 2)
    brokers.destination.log("topic").delete_records(2)
    result = brokers.run()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed[2:]


def test_destination_that_deleted_and_forgot_the_records_of_a_dead_task_stops_the_partition(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1, 1, 1)
    die_after(brokers, 2)
    log = brokers.destination.log("topic")
    log.delete_records(2)
    log.forget_expired_producers(NOW_MS + 86_400_000, 1)
    stopped_with(brokers, "has lost records from offset 0 on", "retention", "nothing shows which program")


def test_source_and_destination_that_deleted_the_records_of_a_dead_task_continue_behind_them(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1, 1, 1, 1)
    die_after(brokers, 2)
    brokers.destination.log("topic").delete_records(2)
    history.log.delete_records(1)
    assert brokers.run().complete
    assert brokers.copied() == history.committed[2:]


def test_destination_whose_retention_took_everything_continues_at_its_end(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.run()
    brokers.destination.log("topic").delete_records(3)
    history.plain(2)
    assert brokers.run().complete
    assert brokers.copied() == history.committed[3:]


def test_destination_that_recompresses_is_recognised(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 4, 2, codec=Codec.GZIP)
    die_after(brokers, 2)
    log = lose_tail(brokers.destination, "topic", 1)
    identity = brokers.position().identity
    recompressed = batches.batch(
        [b"value at %d" % offset for offset in range(1, 5)],
        base_offset=1,
        codec=Codec.LZ4,
        base_timestamp=NOW_MS,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=1,
    )
    log.store(memoryview(recompressed))
    assert brokers.run().complete
    assert brokers.copied() == history.committed


def test_task_waits_until_the_high_watermark_reaches_the_log_end(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2, 3)
    die_after(brokers, 2)
    log = lagging(brokers.destination, "topic", high_watermark=1)
    control = Watched()
    running = brokers.start(control=control)
    wait_until(lambda: len(control.waits) > 3)
    assert running.is_running
    assert log.log_end_offset == 3
    log.lag_ends()
    assert running.result().complete
    assert brokers.copied() == history.committed


@pytest.mark.parametrize("mirrored", [9, 4])
def test_task_waits_if_the_source_s_new_leader_does_not_show_the_mirrored_records_yet(
    brokers: TwoBrokers, history: History, mirrored: int
) -> None:
    history.plain(*[1] * 10)
    die_after(brokers, mirrored)
    ranges = brokers.ranges()
    log = lagging(brokers.source, "topic", high_watermark=mirrored - 1)
    log.begin_leader_epoch(1)
    control = Watched()
    running = brokers.start(ranges, control=control)
    wait_until(lambda: len(control.waits) > 3)
    assert running.is_running
    log.lag_ends()
    result = running.result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed


# An answer without what was asked for


def test_damaged_source_batch_is_read_again_in_a_search(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1, 1, 1)
    die_after(brokers, 2)

    def damage(response: FetchResponse) -> FetchResponse:
        damaged = bytearray(response.partitions[0].record_set)
        damaged[16] = 18
        return replace(response, partitions=[replace(response.partitions[0], record_set=memoryview(damaged))])

    answers(brokers.source, ApiKey.FETCH, damage)
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed


def test_error_of_a_whole_fetch_is_no_crash(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1, 1, 1)
    die_after(brokers, 2)
    answers(brokers.source, ApiKey.FETCH, lambda _: FetchResponse(0, ErrorCode.KAFKA_STORAGE_ERROR, 0, ()), 2)
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed


@pytest.mark.parametrize(
    "api",
    [
        ApiKey.METADATA,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.FETCH,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_COMMIT,
        ApiKey.FIND_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.API_VERSIONS,
    ],
)
@pytest.mark.parametrize("drop", ["before", "within", "after"])
def test_connection_lost_at_any_request_is_opened_again(
    brokers: TwoBrokers, history: History, api: ApiKey, drop: str
) -> None:
    history.plain(1, 1, 1, 1)
    for broker in (brokers.source, brokers.destination):
        broker.faults.add(api, drop=drop, times=2)  # type: ignore[arg-type]
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE),
        (ApiKey.METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ApiKey.LIST_OFFSETS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (ApiKey.OFFSET_FETCH, ErrorCode.NOT_COORDINATOR),
        (ApiKey.OFFSET_FETCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR),
        (ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_transient_errors_are_retried(
    brokers: TwoBrokers, history: History, api: ApiKey, code: ErrorCode
) -> None:
    history.plain(1, 1, 1, 1)
    for broker in (brokers.source, brokers.destination):
        broker.faults.add(api, error=code, times=2)
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed


def test_offsets_committed_by_another_program_are_reported_and_not_used(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    key = TopicPartition("topic", 0)
    with Cluster(brokers.settings.source) as cluster:
        positions = GroupPositions(cluster, brokers.settings.group, MemberId)
        commit_offsets(cluster, brokers.settings.group, {key: Committed(2, "")}, MemberId())
        assert positions.read_all([key]) == ({}, {key: 2})
        assert positions.read([key]) == {}
    brokers.run()
    assert brokers.copied() == history.committed
    with Cluster(brokers.settings.source) as cluster:
        assert GroupPositions(cluster, brokers.settings.group, MemberId).read_all([key])[1] == {}


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
    assert brokers.copied() == history.committed


# A destination that compacts


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


LEFT: dict[str, Callable[[int], bool] | None] = {
    "holed": lambda offset: offset % 2 == 0,
    "emptied": lambda offset: False,
    "gone": None,
}


@pytest.mark.parametrize("keep", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize("last", [1, 2])
def test_destination_that_compacted_the_last_mirrored_records_continues(
    brokers: TwoBrokers, history: History, keep: Callable[[int], bool] | None, last: int
) -> None:
    brokers = brokers.impatient()
    history.plain(1, 2, 3)
    brokers.run()
    compact(brokers, keep, last)
    history.plain(2)
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.destination.log("topic").log_end_offset == 8
    assert batches_of(brokers.destination.log("topic"))[-1].header.base_offset == 6


@pytest.mark.parametrize("keep", LEFT.values(), ids=LEFT)
@pytest.mark.parametrize("last", [1, 2])
def test_destination_that_compacted_records_of_a_dead_task_continues(
    brokers: TwoBrokers, history: History, keep: Callable[[int], bool] | None, last: int
) -> None:
    brokers = brokers.impatient()
    history.plain(1, 2, 3, 2)
    die_after(brokers, 3)
    compact(brokers, keep, last)
    if keep is None:  # the broker has forgotten the writer, too
        stopped_with(brokers, "has lost records from offset 0 on", "which program")
        return
    result = brokers.start().result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.destination.log("topic").log_end_offset == 8
    assert batches_of(brokers.destination.log("topic"))[-1].header.base_offset == 6


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


def test_gap_behind_an_election_is_not_taken_for_a_lost_tail(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.impatient()
    may_compact(brokers.source)
    history.plain(3, 3)
    history.log.begin_leader_epoch(1)
    # Compaction took the first batch of the new epoch; the next one is not visible yet.
    history.gap(1).plain(2, leader_epoch=1)
    log = lagging(brokers.source, "topic", 7)
    log.begin_leader_epoch(1)
    log.epochs.starts = list(history.log.epochs.starts)
    up_to_the_gap = CopyRange("topic", 0, "topic", 0, 7)
    assert brokers.run([up_to_the_gap]).complete
    assert brokers.position().source_offset == 7
    log.lag_ends()
    result = brokers.run()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed


def test_partitions_that_resume_ask_their_leader_together_for_their_last_batches(brokers: TwoBrokers) -> None:
    histories = brokers.topic("topic", 30)
    for history in histories:
        history.plain(2, 1)
    assert brokers.run().complete
    for history in histories:
        history.plain(1)
    asked: list[Any] = []

    def note(response: Any) -> Any:
        asked.append(response)
        return response

    answers(brokers.destination, ApiKey.FETCH, note, 99)
    assert brokers.run().complete
    assert len(asked) == 1
    assert [brokers.copied(partition=number) for number in range(30)] == [
        each.committed for each in histories
    ]
