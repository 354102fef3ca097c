"""Absent topics, failing brokers, and differences longer than the look ahead."""

from __future__ import annotations

import pytest

from shoal.client.config import ClientConfig
from shoal.error_codes import ErrorCode
from shoal.errors import Disconnected
from shoal.net.address import Address
from shoal.protocol.apis import ApiKey
from shoal.verify import DifferenceKind, Outcome, verify
from shoal.verify.slots import MOST_DIFFERENT
from shoal.verify.tables import details, total
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.history import History
from tests.world.verifying import altered, extra, flip, partition, rewrite, verified

# Topics and partitions


def test_verify_of_an_absent_topic_or_partition_is_not_compared(brokers: TwoBrokers) -> None:
    brokers.source.create_topic("topic", 2)
    brokers.destination.create_topic("topic", 1)
    report = verified(brokers)
    assert [each.outcome for each in report.partitions] == [Outcome.NOTHING, Outcome.NOT_COMPARED]
    assert all(each in str(report.partitions[1].reason) for each in ("topic-1", "destination"))
    report = verify(
        brokers.settings.source, brokers.settings.destination, {"topic": "other", "nothing": "topic"}
    )
    assert [str(each.source) for each in report.partitions] == ["nothing-0", "topic-0", "topic-1"]
    assert all("no such topic" in str(each.reason) for each in report.partitions)
    assert report.exit_code == 3
    assert "3 of 3 partitions not compared" in total(report)


def test_verify_reports_records_of_a_surplus_partition_as_extra(brokers: TwoBrokers) -> None:
    brokers.source.create_topic("topic", 1)
    brokers.destination.create_topic("topic", 3)
    brokers.destination.log("topic", 2).store(bytes(batches.batch(3)))
    report = verified(brokers)
    assert [(each.source.partition, each.outcome) for each in report.partitions] == [
        (0, Outcome.NOTHING),
        (2, Outcome.DIFFERENT),
    ]
    assert extra(report.partitions[1]) == [(0, 3)]


# Brokers that fail


@pytest.mark.parametrize(
    "fault",
    [
        {"api": ApiKey.FETCH, "drop": "before"},
        {"api": ApiKey.FETCH, "drop": "within"},
        {"api": ApiKey.FETCH, "error": ErrorCode.NOT_LEADER_OR_FOLLOWER, "times": 2},
        {"api": ApiKey.LIST_OFFSETS, "error": ErrorCode.LEADER_NOT_AVAILABLE},
        {"api": ApiKey.LIST_OFFSETS, "drop": "before"},
        {"api": ApiKey.OFFSET_FETCH, "error": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
        {"api": ApiKey.METADATA, "drop": "before"},
    ],
)
def test_verify_retries_transient_errors(
    brokers: TwoBrokers, history: History, fault: dict[str, object]
) -> None:
    history.plain(3, 2)
    brokers.run()
    for broker in (brokers.source, brokers.destination):
        broker.faults.add(**fault)  # type: ignore[arg-type]
    report = verified(brokers)
    assert (report.equal, report.records, report.decoded_records) == (True, 5, 0)


def test_verify_with_a_lasting_error_is_not_compared(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    fault = brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
    report = partition(brokers)
    assert (report.outcome, report.records, report.may_pass) == (Outcome.NOT_COMPARED, 0, False)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(report.reason)
    assert fault.hits in (1, 2)  # the mirror's last fetch may arrive now; retries would be dozens


def test_verify_without_a_leader_is_not_compared_after_patience(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(3)
    brokers.run()
    brokers.source.faults.add(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None)
    report = partition(brokers, patience_s=0.3)
    assert (report.outcome, report.may_pass) == (Outcome.NOT_COMPARED, True)
    assert "NOT_LEADER_OR_FOLLOWER" in str(report.reason)


def test_verify_reports_differences_found_before_a_failure(brokers: TwoBrokers, history: History) -> None:
    history.plain(3, 2, 1, 4)
    brokers.run()
    rewrite(brokers, lambda found: [batches.patched(found[0], len(found[0]) - 1, b"!"), *found[1:]])
    flip(brokers.source.log("topic"), 3, 16, bit=3)  # no magic
    report = partition(brokers, patience_s=0.3)
    assert altered(report)[0] == ((2, 3), (2, 3))
    assert altered(report)[1] == ((6, 10), (6, 6))


def test_verify_without_access_to_the_group_warns(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.run()
    brokers.source.faults.add(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None)
    report = verified(brokers)
    assert report.equal
    assert "cannot be read" in report.warnings[0]


def test_verify_of_an_unreachable_cluster_raises_disconnected(brokers: TwoBrokers) -> None:
    nowhere = ClientConfig("destination", (Address("127.0.0.1", 1),))
    with pytest.raises(Disconnected, match="destination cluster"):
        verify(brokers.settings.source, nowhere, {"topic": "topic"}, patience_s=0.1)


# Long ways


def singles(numbers: range, base_offset: int = 0) -> bytes:
    """Return batches of one record each, back to back."""
    return b"".join(
        batches.batch([b"%d" % number], base_offset=base_offset + index, base_timestamp=number)
        for index, number in enumerate(numbers)
    )


def test_comparison_of_a_copy_that_goes_on_for_too_long_names_its_end(
    brokers: TwoBrokers, history: History
) -> None:
    history.store(singles(range(60)))
    log, values = brokers.destination.log("topic"), [b"%d" % number for number in range(2_000)]
    log.store(singles(range(60)))
    for number in range(70):
        log.store(batches.batch(values, base_offset=60 + 2_000 * number, base_timestamp=100 + number))
    report = partition(brokers)
    assert extra(report) == [(60, 60 + MOST_DIFFERENT)]
    assert f"destination offset {60 + MOST_DIFFERENT}" in str(report.reason)


def test_fault_before_the_last_record_of_a_copy_does_not_read_all_of_its_lag(
    brokers: TwoBrokers, history: History
) -> None:
    history.store(singles(range(60)))
    brokers.destination.log("topic").store(singles(range(58)) + singles(range(59, 60), 58))
    for number in range(60, 4_060, 100):
        history.store(batches.batch([bytes(10_000)] * 100, base_offset=number, base_timestamp=number))
    report = partition(brokers)
    assert [each.source for each in report.differences] == [(58, 59)]
    assert report.not_mirrored == (60, 4_060)
    assert report.bytes_read < 30_000_000


def test_verify_lists_the_first_ranges_and_counts_all(brokers: TwoBrokers, history: History) -> None:
    history.store(singles(range(500)))
    log = brokers.destination.log("topic")
    for number in range(500):
        batch = batches.batch([b"%d" % number], base_offset=number, base_timestamp=number)
        log.store(bytes(batch if number % 2 else batches.patched(batch, len(batch) - 2, b"!")))
    report = partition(brokers)
    assert (len(report.differences), report.differences_omitted) == (100, 150)
    assert report.counts == {DifferenceKind.ALTERED: 250}
    assert report.records == 250
    assert "245 more" in [*details(report, most_ranges=5)][5]
