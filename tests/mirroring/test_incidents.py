"""Incidents that a mirror cannot repair: detected, named, and handled by its policy."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest

from shoal.error_codes import ErrorCode
from shoal.json_values import read_value
from shoal.mirroring.model.incidents import IncidentKind
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import TaskReport
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers, die_after, recreate
from tests.world.control import Killed, Mortal, Watched, incidents_of
from tests.world.faults import answers, before_request, let_pass
from tests.world.history import NOW_MS, History
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


def forget_producers(brokers: TwoBrokers) -> None:
    brokers.destination.log("topic").forget_expired_producers(NOW_MS + 86_400_000, 1)


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


# Records that the destination deleted before they were committed


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


# A copy that lost its tail


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


# A source that is another


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


# A source that deletes too early


def test_policy_applies_to_its_own_kind(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 2)
    brokers.run()
    history.plain(1, 1, 1)
    history.log.delete_records(5)
    others = set(IncidentKind) - {IncidentKind.SOURCE_RETENTION}
    stop(brokers.going_on(*others), IncidentKind.SOURCE_RETENTION)


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
