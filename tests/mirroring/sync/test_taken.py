"""The offsets that a copy would take, counted against what it took."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal.client.cluster import Cluster
from shoal.mirroring.model.offset_map import TakenOffsets
from shoal.mirroring.sync.taken import SourceTaken
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from tests import batches
from tests.two_brokers import ABORT, COMMIT, TwoBrokers
from tests.world.source import SourcePartition


@contextmanager
def taken_of(brokers: TwoBrokers) -> Iterator[SourceTaken]:
    with Cluster(brokers.settings.source) as source:
        source.refresh(["topic"])
        yield SourceTaken(source, TopicPartition("topic", 0), brokers.settings)


@pytest.mark.parametrize("seed", range(3))
def test_every_range_of_all_kinds_of_batches_is_counted_as_it_is_read(brokers: TwoBrokers, seed: int) -> None:
    dice = random.Random(seed)
    log = brokers.topic()[0].log
    history = SourcePartition(0, log, dice, keeps_append_time=False, has_keys=False)
    for _ in range(12):
        history.grow()
    offsets = [each.offset for each in history.records if each.is_shown]
    with taken_of(brokers) as taken:
        for _ in range(60):
            first, end = sorted(dice.sample(range(history.next_offset + 1), 2))
            there = [each for each in offsets if first <= each < end]
            counted = taken.count(first, end)
            assert counted is not None
            assert counted.count == len(there)
            if there:
                number = dice.randrange(len(there))
                assert taken.nth(first, number) == there[number]


def test_offsets_of_dropped_batches_are_complete_and_of_removed_records_not(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(2).transaction(3, ends=ABORT).transaction(2, ends=COMMIT)
    behind_transactions = history.next_offset
    history.holed(4, [1, 2])
    behind_holes = history.next_offset
    history.gap(2).plain(1).empty(2).plain(1)
    with taken_of(brokers) as taken:
        assert taken.count(0, behind_transactions) == TakenOffsets(4, is_complete=True)
        assert taken.count(1, 7) == TakenOffsets(2, is_complete=True)
        assert taken.count(0, behind_holes) == TakenOffsets(6, is_complete=False)
        assert taken.count(behind_holes, history.next_offset) == TakenOffsets(2, is_complete=False)
        with pytest.raises(IndexError):
            taken.nth(0, 99)


def test_aborted_records_count_if_they_are_mirrored(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.transaction(3, ends=ABORT)
    with taken_of(brokers.read_uncommitted()) as taken:
        assert taken.count(0, 4) == TakenOffsets(3, is_complete=True)


def test_only_an_end_of_the_range_needs_a_batch_with_holes_decoded(brokers: TwoBrokers) -> None:
    """This batch cannot be decoded, and its header has the number of its records."""
    (history,) = brokers.topic()
    damaged = history.batch(5, holes=[2], codec=Codec.GZIP)
    damaged[-1] ^= 1
    history.store(damaged)
    history.plain(1)
    with taken_of(brokers) as taken:
        assert taken.count(0, 6) == TakenOffsets(5, is_complete=False)
        assert taken.count(1, 6) is None


def test_deleted_offsets_are_not_counted(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(5, 5)
    history.log.delete_records(3)
    with taken_of(brokers) as taken:
        assert taken.count(2, 8) is None
        assert taken.count(3, 8) == TakenOffsets(5, is_complete=True)


def test_offsets_of_many_groups_are_counted_from_one_answer(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    for _ in range(10):
        history.plain(3).transaction(2, ends=COMMIT).transaction(1, ends=ABORT).holed(4, [1, 2])
    end = history.next_offset
    with taken_of(brokers) as taken:
        assert taken.count(0, 1) == TakenOffsets(1, is_complete=True)
        fetches = brokers.source.faults.add(ApiKey.FETCH, times=None)
        for offset in range(3, end - 3, 12):  # none of them lies within a batch with holes
            assert taken.count(0, offset) is not None
            assert taken.count(offset, end) is not None
        assert fetches.hits == 0


def test_log_of_more_runs_than_are_kept_is_counted(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    for _ in range(300):
        history.plain(1).transaction(1, ends=COMMIT)
    with taken_of(brokers) as taken:
        for first, end in ((0, 900), (0, 899), (450, 800), (1, 451), (898, 900)):
            offsets = [each for each in range(first, end) if each % 3 != 2]
            assert taken.count(first, end) == TakenOffsets(len(offsets), is_complete=True)


def test_same_range_is_read_once(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(5)
    history.store(batches.message(0, b"old", offset=5))
    with taken_of(brokers) as taken:
        taken.count(0, 6)
        before = taken.read_bytes
        assert taken.count(0, 6) == TakenOffsets(6, is_complete=True)
        assert taken.read_bytes == before


def test_counts_beyond_the_end_of_the_log_ask_for_more_once(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(4)
    fetches = brokers.source.faults.add(ApiKey.FETCH, times=None)
    with taken_of(brokers) as taken:
        for end in range(5, 15):
            assert taken.count(0, end) == TakenOffsets(4, is_complete=False)
    assert fetches.hits == 1
