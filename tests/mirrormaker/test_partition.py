"""A partition with a handler: its position follows the source's order, whatever is acknowledged first."""

from __future__ import annotations

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
