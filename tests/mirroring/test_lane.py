"""What one task copies, between two brokers: all of it, once, in order."""

from __future__ import annotations

import pytest
from two_brokers import ABORT, COMMIT, History, TwoBrokers, Watched, batches_of

from shoal.mirroring.ranges import CopyRange
from shoal.records import Codec

pytestmark = pytest.mark.timeout(30)


def everything(history: History) -> None:
    """Put into a partition whatever a source may hold that can be copied or dropped."""
    history.plain(3).plain(2, codec=Codec.LZ4).plain(5, codec=Codec.GZIP)
    history.transaction(2, 3, ends=COMMIT).transaction(4, ends=ABORT)
    history.plain(2, producer_id=5, producer_epoch=3, base_sequence=17)
    history.empty().gap(7).plain(1, codec=Codec.SNAPPY)
    history.transaction(1, ends=ABORT).gap(2).marker()
    history.plain(2, codec=Codec.ZSTD)


def test_a_batch_of_any_codec_arrives_with_the_bytes_it_had(brokers: TwoBrokers, history: History) -> None:
    for codec in Codec:
        history.plain(4, codec=codec)
    result = brokers.run()
    assert result.complete
    assert result.stopped == ()
    assert brokers.copied() == history.committed
    sent, arrived = batches_of(history.log), batches_of(brokers.destination.log("topic"))
    assert [bytes(each.payload) for each in arrived] == [bytes(each.payload) for each in sent]
    assert [each.header.codec_id for each in arrived] == list(Codec)


def test_markers_and_aborted_and_empty_batches_are_dropped(brokers: TwoBrokers, history: History) -> None:
    everything(history)
    brokers.run()
    assert brokers.copied() == history.committed


def test_read_uncommitted_copies_aborted_transactions_and_drops_their_markers(
    brokers: TwoBrokers, history: History
) -> None:
    everything(history)
    brokers.read_uncommitted().run()
    assert brokers.copied() == history.uncommitted


def test_an_open_transaction_is_left_for_later(brokers: TwoBrokers, history: History) -> None:
    history.plain(2)
    held_back = history.batch(3, flags=0x10, producer_id=9, producer_epoch=0)
    history.store(held_back)
    history.plain(1)
    brokers.run()
    assert len(brokers.copied()) == 2
    history.marker(ABORT, 9)
    brokers.run()
    assert brokers.copied() == history.committed


def test_partitions_and_topics_are_copied_together(brokers: TwoBrokers) -> None:
    histories = brokers.topic("first", 3) + brokers.topic("second", 2)
    for number, history in enumerate(histories):
        for _ in range(number * 5):
            everything(history)
    brokers.run(brokers.ranges("first", "second"))
    assert [brokers.copied("first", number) for number in range(3)] == [
        each.committed for each in histories[:3]
    ]
    assert [brokers.copied("second", number) for number in range(2)] == [
        each.committed for each in histories[3:]
    ]


def test_a_second_run_copies_nothing(brokers: TwoBrokers, history: History) -> None:
    everything(history)
    brokers.run()
    control = Watched()
    assert brokers.run(control=control).complete
    assert control.total("records") == 0
    assert brokers.copied() == history.committed


def test_the_position_moves_past_trailing_markers(brokers: TwoBrokers, history: History) -> None:
    history.plain(2).transaction(3, ends=ABORT)
    brokers.run()
    assert brokers.pair().source_offset == history.next_offset
    assert brokers.pair().destination_offset == 2


def test_a_partition_without_records_gets_its_pair(brokers: TwoBrokers, history: History) -> None:
    assert brokers.run().complete
    assert (brokers.pair().source_offset, brokers.pair().destination_offset) == (0, 0)


@pytest.mark.parametrize("end", range(11))
def test_a_range_ends_with_the_batch_that_holds_its_last_offset(
    brokers: TwoBrokers, history: History, end: int
) -> None:
    history.plain(3, 4, 3)
    ends = [0, 3, 7, 10]
    reached = next(offset for offset in ends if offset >= end)
    assert brokers.run([CopyRange("topic", 0, "topic", 0, end)]).complete
    assert brokers.pair().source_offset == reached
    assert brokers.copied() == history.committed[:reached]
    brokers.run()
    assert brokers.copied() == history.committed


@pytest.mark.parametrize("end", [3, 4, 7, 8])
def test_a_range_may_end_in_a_gap(brokers: TwoBrokers, history: History, end: int) -> None:
    history.plain(3).gap(5).plain(2)
    assert brokers.run([CopyRange("topic", 0, "topic", 0, end)]).complete
    assert brokers.pair().source_offset == end
    brokers.run()
    assert brokers.copied() == history.committed


@pytest.mark.usefixtures("quick_retries")
def test_a_range_may_end_where_the_log_has_nothing_more(brokers: TwoBrokers, history: History) -> None:
    history.plain(3).gap_at_the_end(4)
    assert brokers.run().complete
    assert brokers.pair().source_offset == 7
    history.plain(2)
    brokers.run()
    assert brokers.copied() == history.committed


def test_records_are_copied_under_another_name(brokers: TwoBrokers, history: History) -> None:
    history.plain(3)
    brokers.destination.create_topic("renamed")
    brokers.run([CopyRange("topic", 0, "renamed", 0, 3)])
    assert brokers.copied("renamed") == history.committed
    assert brokers.copied() == []
