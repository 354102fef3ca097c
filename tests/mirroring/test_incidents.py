"""Incidents that a mirror cannot repair: detected, named, and handled by its policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import pytest

from shoal.error_codes import ErrorCode
from shoal.json_values import read_value
from shoal.mirroring.model.incidents import Delivery, IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers, die_after, recreate
from tests.world.contents import batches_of, compacted
from tests.world.control import Killed, Mortal, Watched, incidents_of
from tests.world.faults import answers, before_request, let_pass
from tests.world.history import ABORT, NOW_MS, History
from tests.world.logs import lose_tail
from tests.world.waiting import wait_until


def incidents(control: Watched) -> list[list[object]]:
    """Return kind, lost and whether the mirror went on, of each reported incident."""
    return [[kind, lost, continued] for kind, _, lost, continued in incidents_of(control)]


def run(brokers: TwoBrokers, *expected: list[object]) -> None:
    """Run a task to its end; expect that no partition stops, and these incidents."""
    control = Watched()
    result = brokers.start(control=control).result()
    assert (result.complete, result.stopped) == (True, ())
    assert incidents(control) == list(expected)


def stop(brokers: TwoBrokers, kind: IncidentKind) -> None:
    """Run a task; expect that its partition stops for an incident, and writes nothing."""
    end = brokers.destination.log("topic").log_end_offset
    control = Watched()
    (stopped,) = brokers.start(control=control).result().stopped
    assert incidents(control) == [[kind.value, 0, False]]
    assert f"--continue-after {kind.value}" in stopped.reason
    assert brokers.destination.log("topic").log_end_offset == end


def foreign(broker: Broker, count: int = 1) -> None:
    """Let another producer write a batch to a destination partition."""
    log = broker.log("topic")
    log.store(memoryview(batches.batch([b"value 0"] * count, base_offset=log.log_end_offset)))


def ours(brokers: TwoBrokers) -> list[Content]:
    """Return the destination's records without those of other producers."""
    return [each for each in brokers.copied() if each.value != b"value 0"]


# Foreign records


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize("count", [1, 3])
def test_mirror_continues_after_foreign_records(
    brokers: TwoBrokers, history: History, written: int, count: int
) -> None:
    history.plain(1)
    brokers.run()
    history.plain(1, 2, 1, 2)
    die_after(brokers, written)
    foreign(brokers.destination, count)
    stop(brokers, IncidentKind.FOREIGN_RECORDS)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    run(brokers, ["foreign-records", 0, True])
    assert ours(brokers) == history.committed
    assert len(brokers.copied()) == len(history.committed) + count
    history.plain(3)
    run(brokers)
    assert ours(brokers) == history.committed


def test_damaged_source_batch_after_foreign_records_is_reported_in_order(
    brokers: TwoBrokers, history: History
) -> None:
    """To compare whose records these are must not stop the partition for a batch that it is not at yet."""
    history.plain(3)
    brokers.run()
    history.plain(2)
    damaged = history.batch(2)
    damaged[-1] ^= 1
    history.store(damaged)
    foreign(brokers.destination)
    stop(brokers, IncidentKind.FOREIGN_RECORDS)
    (stopped,) = brokers.going_on(IncidentKind.FOREIGN_RECORDS).start().result().stopped
    assert (stopped.offset, "CORRUPT_MESSAGE" in stopped.reason) == (5, True)
    assert ours(brokers) == history.committed


@pytest.mark.parametrize("drop", ["before", "within", "after"])
def test_incident_whose_commit_has_an_unknown_outcome_is_counted_once(
    brokers: TwoBrokers, history: History, drop: Literal["before", "within", "after"]
) -> None:
    history.plain(1)
    brokers.run()
    history.plain(1, 1)
    foreign(brokers.destination)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop=drop)
    run(brokers.going_on(IncidentKind.FOREIGN_RECORDS), ["foreign-records", 0, True])
    assert ours(brokers) == history.committed


def test_incident_is_reported_even_if_the_task_dies_as_its_position_is_committed(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1)
    brokers.run()
    history.plain(1, 1)
    foreign(brokers.destination)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    brokers.source.faults.add(ApiKey.OFFSET_COMMIT, drop="after")
    control = Mortal()
    with pytest.raises(Killed):
        brokers.run(control=control)
    assert incidents(control) == [["foreign-records", 0, True]]
    run(brokers)  # the next task begins behind the incident
    assert ours(brokers) == history.committed


def test_foreign_record_during_a_run_shifts_later_offsets(brokers: TwoBrokers, history: History) -> None:
    brokers.run()
    history.plain(*[1] * 12)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    let_pass(brokers.destination, ApiKey.PRODUCE, 3)
    fourth = brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=0.2)
    control = Watched()
    running = brokers.start(control=control)
    assert brokers.destination.faults.wait_for(fourth)
    foreign(brokers.destination)
    assert running.result().stopped == ()
    assert ours(brokers) == history.committed
    assert [each[0] for each in incidents(control)] == ["foreign-records"]
    history.plain(2)
    run(brokers)
    assert ours(brokers) == history.committed


def test_duplicate_of_a_dead_process_is_not_taken_for_the_next_records(
    brokers: TwoBrokers, history: History
) -> None:
    """Its request arrives when the broker has forgotten the producer: right records in a wrong place."""
    same = batches.batch([b"the same"], base_timestamp=NOW_MS)
    for _ in range(3):
        history.store(batches.patched(bytes(same), 0, history.next_offset.to_bytes(8)), shown=True)
    brokers.run()
    (first, *_) = batches_of(brokers.destination.log("topic"))
    history.store(batches.patched(bytes(same), 0, history.next_offset.to_bytes(8)), shown=True)
    late = bytearray(first.view)
    late[:8] = (3).to_bytes(8)
    log = brokers.destination.log("topic")
    log.forget_expired_producers(NOW_MS + 86_400_000, 1)
    log.store(memoryview(late))
    stop(brokers, IncidentKind.FOREIGN_RECORDS)
    # The broker knows the writer by the double's sequence now: ours go on there.
    run(brokers.going_on(IncidentKind.FOREIGN_RECORDS), ["foreign-records", 0, True])
    assert len(brokers.copied()) == 5
    run(brokers)


# Records that the destination deleted before they were committed


def forget_producers(brokers: TwoBrokers) -> None:
    brokers.destination.log("topic").forget_expired_producers(NOW_MS + 86_400_000, 1)


@pytest.mark.parametrize(("deleted", "gone"), [(0, 0), (1, 1), (2, 2), (4, 4), (6, 4), (7, 5), (8, 5)])
def test_own_records_deleted_among_foreign_ones_are_counted_by_their_sequences(
    brokers: TwoBrokers, history: History, deleted: int, gone: int
) -> None:
    history.plain(1)
    brokers.run()
    history.plain(1, 2, 1, 2)
    committed = brokers.position()
    die_after(brokers, 2)
    foreign(brokers.destination, 2)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    die_after(brokers, 1)
    foreign(brokers.destination)
    brokers.commit(committed)  # the second task died before it could
    brokers.destination.log("topic").delete_records(deleted)
    run(brokers, ["foreign-records", 0, True])
    assert ours(brokers) == history.committed[gone:]
    history.plain(3)
    run(brokers)
    assert ours(brokers) == history.committed[gone:]


def test_foreign_records_deleted_behind_the_position_are_passed_over(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1)
    brokers.run()
    foreign(brokers.destination, 2)
    brokers.destination.log("topic").delete_records(3)
    history.plain(2)
    stop(brokers, IncidentKind.FOREIGN_RECORDS)
    run(brokers.going_on(IncidentKind.FOREIGN_RECORDS), ["foreign-records", 0, True])
    assert ours(brokers) == history.committed[1:]


@pytest.mark.parametrize("how", ["forgets the writer", "cannot describe it", "forbids it"])
def test_deleted_records_of_a_writer_that_no_broker_knows_stop_the_partition(
    brokers: TwoBrokers, history: History, how: str
) -> None:
    history.plain(1)
    brokers.run()
    history.plain(2, 1)
    die_after(brokers, 1)
    foreign(brokers.destination)
    log = brokers.destination.log("topic")
    log.delete_records(3)
    match how:
        case "forgets the writer":
            forget_producers(brokers)
        case "cannot describe it":
            apis = dict(brokers.destination.apis)
            del apis[ApiKey.DESCRIBE_PRODUCERS]
            brokers.destination.apis = apis
        case _:
            brokers.destination.faults.add(
                ApiKey.DESCRIBE_PRODUCERS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None
            )
    end = log.log_end_offset
    (stopped,) = brokers.going_on(*IncidentKind).start().result().stopped
    assert re.search(r"\boffset 4\b.*neither", stopped.reason)
    assert log.log_end_offset == end


def test_batch_that_is_always_answered_as_an_older_one_stops_the_partition(
    brokers: TwoBrokers, history: History
) -> None:
    """The alignment finds nothing of the batch, and the broker does not write it: no try changes that."""
    history.plain(1)
    brokers.run()
    history.plain(2, 1)
    die_after(brokers, 1)
    foreign(brokers.destination)
    brokers.destination.log("topic").delete_records(3)

    def shows_less(response: Any) -> Any:
        (producer,) = response.topics[0].partitions[0].active_producers
        producer.last_sequence = 0
        return response

    answers(brokers.destination, ApiKey.DESCRIBE_PRODUCERS, shows_less)
    (stopped,) = brokers.going_on(*IncidentKind).start().result().stopped
    assert all(each in stopped.reason for each in ("offset 1 of topic-0", "instead of 4", "second try"))


# A topic that is created again while it is aligned


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_copy_created_again_between_metadata_and_log_end_is_one_loss(
    brokers: TwoBrokers, history: History, policy: str
) -> None:
    """The log's end is asked for by name: it is the new topic's, and the metadata are the former's."""
    history.plain(3, 4)
    brokers.run()
    before_request(brokers.destination, ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda: recreate(brokers.destination))
    if policy == "continue":
        run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 0, True])
        brokers.assert_exact(history)
    else:
        (stopped,) = brokers.start().result().stopped
        assert stopped.cause is IncidentKind.DESTINATION_LOSS


def test_source_created_again_between_metadata_and_log_start_is_one_reset(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3, 4)
    brokers.run()
    mirrored = history.committed
    again: list[History] = []
    before_request(
        brokers.source,
        ApiKey.LIST_OFFSETS,
        lambda: again.append(recreate(brokers.source).plain(1, base_timestamp=NOW_MS + 1)),
    )
    run(brokers.going_on(IncidentKind.SOURCE_RESET), ["source-reset", None, True])
    assert brokers.copied() == mirrored + again[0].committed


# A destination that lost something


def test_lost_tail_deleted_at_the_source_is_counted(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2, 3)
    brokers.run()
    lose_tail(brokers.destination, "topic", 3)
    history.log.delete_records(6)
    history.plain(2)
    brokers = brokers.going_on(IncidentKind.DESTINATION_LOSS)
    run(brokers, ["destination-loss", 3, True])
    assert brokers.copied() == history.committed[:3] + history.committed[6:]


def lose_tail_and_producers(brokers: TwoBrokers, end: int) -> None:
    """An unclean election, of a replica that has nothing left of our writer either."""
    lose_tail(brokers.destination, "topic", end)
    forget_producers(brokers)


@pytest.mark.parametrize("policy", ["fail", "continue"])
def test_tail_lost_during_a_run_is_found_by_the_next_batch_s_offset(
    brokers: TwoBrokers, history: History, policy: str
) -> None:
    history.plain(1, 2)
    brokers.run()
    history.plain(1, 1, 1)
    if policy == "continue":
        brokers = brokers.going_on(IncidentKind.DESTINATION_LOSS)
    first = brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=0.3)
    control = Watched()
    running = brokers.start(control=control)
    assert brokers.destination.faults.wait_for(first)
    lose_tail_and_producers(brokers, 1)
    stopped = running.result().stopped
    lost = 2 if policy == "continue" else 0
    assert incidents(control) == [["destination-loss", lost, policy == "continue"]]
    if policy == "continue":
        assert stopped == ()
        assert brokers.copied() == history.committed[:1] + history.committed[3:]
        history.plain(1)
        run(brokers)
        assert brokers.copied() == history.committed[:1] + history.committed[3:]
    else:
        assert stopped[0].cause is IncidentKind.DESTINATION_LOSS


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_lost_tail_overwritten_by_others_is_found(brokers: TwoBrokers, history: History, count: int) -> None:
    """If the log is as long as before, or longer, only the batch before the position shows the loss."""
    history.plain(3, 5)
    brokers.run()
    lose_tail(brokers.destination, "topic", 3)
    foreign(brokers.destination, count)
    history.plain(2)
    stop(brokers.going_on(IncidentKind.FOREIGN_RECORDS), IncidentKind.DESTINATION_LOSS)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS, IncidentKind.DESTINATION_LOSS)
    run(brokers, ["destination-loss", 0, True])
    assert ours(brokers) == history.committed
    run(brokers)


@pytest.mark.parametrize("count", [2, 20])
def test_recreated_topic_with_other_writers_is_filled_again(
    brokers: TwoBrokers, history: History, count: int
) -> None:
    history.plain(1, 2)
    brokers.run()
    recreate(brokers.destination)
    foreign(brokers.destination, count)
    history.plain(1)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 0, True])
    assert ours(brokers) == history.committed


def test_mirror_goes_on_if_retention_deletes_the_last_of_its_records_after_a_loss(
    brokers: TwoBrokers, history: History
) -> None:
    """
    The broker remembers the producer, of which the log has no batch left.

    The copy keeps 1 of 3 records, another program writes 4, and retention deletes the one.
    """
    history.plain(1, 2)
    brokers.run()
    lose_tail(brokers.destination, "topic", 1)
    foreign(brokers.destination, 4)
    brokers.destination.log("topic").delete_records(1)
    history.plain(3)
    stop(brokers, IncidentKind.DESTINATION_LOSS)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 0, True])
    assert ours(brokers) == history.committed[1:]
    run(brokers)


def test_recreated_copy_receives_source_records_before_it_was_adopted(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(*[1] * 10)
    brokers.run()
    brokers.forget_pairs()
    brokers.with_settings(adopt=True).run()
    history.log.delete_records(4)
    recreate(brokers.destination)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 4, True])
    assert brokers.copied() == history.committed[4:]


@pytest.mark.parametrize("left", [4, 0])
def test_foreign_records_lost_before_the_mirror_s_are_counted(
    brokers: TwoBrokers, history: History, left: int
) -> None:
    """A mirror begins behind records of others at an offset that consumers of its group committed."""
    foreign(brokers.destination, 4)
    foreign(brokers.destination, 2)
    history.plain(2, 2)
    brokers.taking_over().run()
    if left:
        lose_tail(brokers.destination, "topic", left)
    else:
        recreate(brokers.destination)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 6 - left, True])
    assert ours(brokers) == history.committed


def test_losses_at_both_sides_are_counted_together(brokers: TwoBrokers, history: History) -> None:
    foreign(brokers.destination, 6)
    history.plain(2, 2)
    brokers.taking_over().run()
    recreate(brokers.destination)
    history.log.delete_records(2)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 6 + 2, True])
    assert ours(brokers) == history.committed[2:]


def test_lost_tail_that_cannot_be_decoded_is_mirrored_again(brokers: TwoBrokers, history: History) -> None:
    brokers = brokers.with_settings(max_decompressed_bytes=10_000)
    history.plain(2)
    large = batches.batch([bytes(50_000)], base_offset=2, base_timestamp=NOW_MS, codec=Codec.GZIP)
    history.store(large, shown=True)
    history.plain(2)
    brokers.run()
    lose_tail(brokers.destination, "topic", 3)
    run(brokers.going_on(IncidentKind.DESTINATION_LOSS), ["destination-loss", 0, True])
    brokers.assert_exact(history)


def write_and_die_behind_aborted_records(brokers: TwoBrokers, history: History) -> None:
    """Mirror 10 records that take 71 offsets; only the position before them is committed."""
    brokers.run()
    history.plain(5).transaction(30, 30, ends=ABORT).plain(5)
    die_after(brokers, 1, drop="after")


@pytest.mark.parametrize("start", [10, 40])
@pytest.mark.parametrize("keep", [lambda offset: offset % 2 == 0, lambda offset: False])
def test_dead_task_s_run_is_looked_up_after_deletion_and_compaction(
    brokers: TwoBrokers, history: History, start: int, keep: Callable[[int], bool]
) -> None:
    """Dropped batches make the run longer at the source, of which some records or none are left."""
    write_and_die_behind_aborted_records(brokers, history)
    last = batches_of(history.log)[-1]
    history.log = lose_tail(brokers.source, "topic", 66, election=False)
    history.log.store(memoryview(compacted(last, keep)))
    history.log.delete_records(start)
    history.plain(2)
    run(brokers.going_on(*IncidentKind))
    brokers.assert_exact(history)


# A source that is another


def test_truncated_source_that_grew_again_is_found_by_its_epochs(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2, 3)
    brokers.run()
    before = brokers.copied()
    history.log = lose_tail(brokers.source, "topic", 3)
    history.next_offset = 3
    history.plain(5, leader_epoch=1)  # past the mirrored records: only the epochs show the loss
    stop(brokers, IncidentKind.SOURCE_RESET)
    run(brokers.going_on(IncidentKind.SOURCE_RESET), ["source-reset", 0, True])
    assert brokers.copied() == before + history.committed[6:]
    run(brokers)


def test_truncated_source_without_epochs_is_found_by_its_refusal(
    brokers: TwoBrokers, history: History
) -> None:
    apis = dict(brokers.source.apis)
    del apis[ApiKey.OFFSET_FOR_LEADER_EPOCH]
    brokers.source.apis = apis
    history.plain(1, 2, 3)
    run(brokers)
    before = brokers.copied()
    history.log = lose_tail(brokers.source, "topic", 3)
    run(brokers)  # nothing was asked of it that it does not have
    ranges = [CopyRange("topic", 0, "topic", 0, 9)]
    (stopped,) = brokers.start(ranges).result().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    control = Watched()
    running = brokers.going_on(IncidentKind.SOURCE_RESET).start(ranges, control)
    wait_until(lambda: incidents(control) == [["source-reset", 0, True]])
    history.next_offset = 3
    history.plain(1, 2, 3)
    assert running.result().complete
    assert brokers.copied() == before + history.committed[6:]


@pytest.mark.parametrize("election", [True, False])
def test_source_that_loses_a_tail_before_it_is_mirrored_ends_the_range(
    brokers: TwoBrokers, history: History, election: bool
) -> None:
    history.plain(1, 2, 3)
    planned = brokers.ranges()
    lose_tail(brokers.source, "topic", 3, election=election)
    (stopped,) = brokers.start(planned).result().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET
    control = Watched()
    assert brokers.going_on(IncidentKind.SOURCE_RESET).start(planned, control).result().complete
    assert incidents(control) == [["source-reset", 3, True]]
    assert brokers.copied() == history.committed[:3]


@pytest.mark.parametrize("election", [True, False])
def test_source_that_loses_a_mirrored_tail_has_lost_nothing(
    brokers: TwoBrokers, history: History, election: bool
) -> None:
    """The plan of ``--once`` has a range up to the position then, which is no end of the log."""
    history.plain(1, 2, 3)
    brokers.run()
    lose_tail(brokers.source, "topic", 3, election=election)
    planned = [CopyRange("topic", 0, "topic", 6, 6)]
    control = Watched()
    assert brokers.going_on(IncidentKind.SOURCE_RESET).start(planned, control).result().complete
    assert incidents(control) == [["source-reset", 0, True]]
    brokers.assert_exact(history)


@pytest.mark.parametrize("election", [True, False])
def test_source_that_loses_more_than_the_unmirrored_tail_counts_only_that(
    brokers: TwoBrokers, history: History, election: bool
) -> None:
    history.plain(1, 2, 3)
    brokers.run()
    lose_tail(brokers.source, "topic", 3, election=election)
    control = Watched()
    ranges = [CopyRange("topic", 0, "topic", 6, 9)]
    assert brokers.going_on(IncidentKind.SOURCE_RESET).start(ranges, control).result().complete
    assert incidents(control) == [["source-reset", 0, True], ["source-reset", 3, True]]


def test_recreated_source_topic_that_repeats_a_batch_is_mirrored_whole(
    brokers: TwoBrokers, history: History
) -> None:
    one, other = brokers.with_settings(group="one"), brokers.with_settings(group="other")
    for group in (one, other):
        history.plain(1, 1, 1)
        group.run()
    before, position = brokers.copied(), one.position()
    last = bytearray(batches_of(history.log)[-1].view)
    anew = recreate(brokers.source)
    anew.base_timestamp += 10
    anew.plain(1)
    last[:8] = anew.next_offset.to_bytes(8)
    anew.store(last, shown=True)
    one.commit(position)
    run(one.going_on(IncidentKind.SOURCE_RESET), ["source-reset", None, True])
    assert brokers.copied() == before + anew.committed


def test_source_leader_change_during_a_run_repeats_the_check(brokers: TwoBrokers, history: History) -> None:
    """A fetch names the epoch that it knows: a new leader's log is not taken for the old one's."""
    history.plain(*[1] * 6)
    brokers.run()
    history.plain(1)
    asked = brokers.source.faults.add(ApiKey.FETCH, delay_s=0.3)
    running = brokers.start()
    assert brokers.source.faults.wait_for(asked)
    log = lose_tail(brokers.source, "topic", 4)
    history.log, history.next_offset = log, 4
    (stopped,) = running.result().stopped
    assert stopped.cause is IncidentKind.SOURCE_RESET


# A source that deletes too early


def test_policy_applies_to_its_own_kind(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.run()
    history.plain(1, 1, 1)
    history.log.delete_records(5)
    others = set(IncidentKind) - {IncidentKind.SOURCE_RETENTION}
    stop(brokers.going_on(*others), IncidentKind.SOURCE_RETENTION)


def test_continued_position_is_committed_before_the_first_write(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 2)
    brokers.run()
    foreign(brokers.destination)
    history.plain(1, 1)
    brokers = brokers.going_on(IncidentKind.FOREIGN_RECORDS)
    die_after(brokers, 0)
    assert brokers.position().destination_offset == 4
    run(brokers)  # and is no incident any more
    assert ours(brokers) == history.committed


# At least once


def at_least_once(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(delivery=Delivery.AT_LEAST_ONCE)


def test_at_least_once_counts_batches_that_land_behind_foreign_records(
    brokers: TwoBrokers, history: History
) -> None:
    brokers = at_least_once(brokers)
    history.plain(*[2] * 12)
    let_pass(brokers.destination, ApiKey.PRODUCE, 3)
    slow = brokers.destination.faults.add(ApiKey.PRODUCE, delay_s=0.2)
    control = Watched()
    running = brokers.start(control=control)
    assert brokers.destination.faults.wait_for(slow)
    foreign(brokers.destination)
    assert running.result().complete
    assert (incidents(control), control.total("records")) == ([], 24)
    assert ours(brokers) == history.committed
    assert brokers.position().destination_offset == brokers.destination.log("topic").log_end_offset
    (first, *_, last) = control.runs
    assert (first[2] - first[0], last[2] - last[0]) == (0, 1)


@pytest.mark.parametrize("requests", range(4))
def test_at_least_once_repeats_a_dead_task_s_uncommitted_run(
    brokers: TwoBrokers, history: History, requests: int
) -> None:
    brokers = at_least_once(brokers)
    history.plain(1, 1, 1, 1)
    die_after(brokers, requests)
    foreign(brokers.destination)
    run(brokers)
    assert ours(brokers) == history.committed[:requests] + history.committed


def test_at_least_once_with_deleted_position_has_an_incident(brokers: TwoBrokers, history: History) -> None:
    brokers = at_least_once(brokers)
    history.plain(1, 2)
    run(brokers)
    history.plain(1, 1)
    history.log.delete_records(4)
    stop(brokers, IncidentKind.SOURCE_RETENTION)
    run(brokers.going_on(IncidentKind.SOURCE_RETENTION), ["source-retention", 1, True])


def test_exactly_once_after_at_least_once_finds_other_writers(brokers: TwoBrokers, history: History) -> None:
    history.plain(1)
    run(at_least_once(brokers))
    foreign(brokers.destination)
    history.plain(1)
    stop(brokers, IncidentKind.FOREIGN_RECORDS)


# Missing records afterwards


def missing(brokers: TwoBrokers) -> int | None:
    """Run a task whose partition stops; return the lag that the registry has of it, with the source's end."""
    control = Watched()
    (stopped,) = brokers.start(control=control).result().stopped
    metrics = Metrics()
    for each in control.reports:
        metrics.apply(read_value(TaskReport, each))
    assert not stopped.can_heal
    partition = TopicPartition("topic", 0)
    metrics.expect({}, {partition: brokers.source.log("topic").log_end_offset})
    return metrics.partitions()[partition].lag_records


def test_recreated_source_topic_is_missing_whole(brokers: TwoBrokers, history: History) -> None:
    history.plain(30)
    brokers.run()
    recreate(brokers.source).plain(20)
    assert missing(brokers) == 20
    History(brokers.source.log("topic")).plain(25)
    assert missing(brokers) == 45


def test_tail_that_the_destination_lost_is_missing(brokers: TwoBrokers, history: History) -> None:
    history.plain(10, 10)
    brokers.run()
    lose_tail(brokers.destination, "topic", 10)
    history.plain(1)
    assert missing(brokers) == 11


def test_recreated_copy_is_missing_whole(brokers: TwoBrokers, history: History) -> None:
    history.plain(10, 10)
    brokers.run()
    recreate(brokers.destination)
    history.plain(1)
    assert missing(brokers) == 21
