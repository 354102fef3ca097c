"""A partition with a handler: its position follows the source's order, whatever is acknowledged first."""

from __future__ import annotations

import re

from shoal.mirrormaker.partition import HandledPartition, PendingInput
from shoal.records import Decision
from shoal.topic_partition import TopicPartition


def partition(*pending_inputs: PendingInput, skips_failures: bool = False) -> HandledPartition:
    made = HandledPartition(
        TopicPartition("orders", 0), pending_inputs[0].first_offset if pending_inputs else 0, skips_failures
    )
    made.pending_inputs.extend(pending_inputs)
    return made


def test_records_taken_and_outputs_acknowledged_are_counted_in_bytes() -> None:
    given, pending = partition(), PendingInput(0, 2, 2, left=1)
    given.take(pending, Decision.COPY, newest_ms=None, size_bytes=70)
    given.acknowledge(pending, 30)
    given.advance()
    counters = given.counters
    assert (counters.batches, counters.records, counters.bytes_in, counters.bytes_out) == (1, 2, 70, 30)


def test_failed_output_stops_the_partition_at_its_offset() -> None:
    given = partition(
        PendingInput(0, 1, 1), PendingInput(1, 2, 1, failure="too large"), PendingInput(2, 3, 1)
    )
    given.advance()
    assert given.position == 1
    assert given.stopped is not None
    assert given.stopped.offset == 1
    assert re.search(r"offset.*1.*orders-0", given.stopped.reason)
    given.go_over(7)
    given.advance()
    assert given.position == 1


def test_failed_output_is_skipped_and_reported_once_if_configured() -> None:
    given = partition(PendingInput(0, 3, 2, failure="too large"), PendingInput(3, 4, 1), skips_failures=True)
    given.advance()
    assert (given.position, given.counters.records, given.stopped) == (4, 1, None)
    report = given.report()
    assert report is not None
    ((kind, reason, lost, continued),) = report.as_json()["incidents"]
    assert (kind, lost, continued) == ("send-failure", 2, True)
    assert all(each in reason for each in ("offsets 0 to 2 of orders-0", "too large"))
    assert given.report() is None


def test_failure_of_the_writer_skips_nothing() -> None:
    given = partition(PendingInput(0, 1, 1, failure="not allowed", stops=True), skips_failures=True)
    given.advance()
    assert given.stopped is not None
    assert given.position == 0


def test_skipped_offsets_keep_their_order() -> None:
    first = PendingInput(0, 2, 2, left=1)
    given = partition(first)
    given.go_over(2)
    assert list(given.pending_inputs) == [first]
    given.go_over(3)
    given.go_over(3)
    given.advance()
    assert given.position == 0
    first.left = 0
    given.advance()
    assert (given.position, given.counters.records, list(given.pending_inputs)) == (3, 2, [])
    given.go_over(1)
    given.advance()
    assert given.position == 3


def test_skipped_failure_ends_consumption_only_if_the_writer_is_refused() -> None:
    pending = PendingInput(0, 1, 1)
    given = partition(pending, skips_failures=True)
    given.fail(pending, "too large")
    assert not given.is_ending
    given.fail(pending, "not allowed", stops=True)
    assert given.is_ending
