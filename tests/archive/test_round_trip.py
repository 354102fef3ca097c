"""Every kind of batch, archived and restored: whole, up to an offset, and up to a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.client.cluster import Cluster
from shoal.mirroring.assignment import start_offsets, window_ends
from shoal.mirroring.model.window import Until
from shoal.records import Codec
from shoal.topic_partition import TopicPartition
from shoal.verify import Outcome
from tests.archive.archiving import Archiving, stored
from tests.world import batches
from tests.world.batches import Content
from tests.world.source import SourcePartition

_PARTITION = TopicPartition("topic", 0)
_MEBIBYTE = 1024 * 1024


@pytest.fixture
def archiving(tmp_path: Path) -> Iterator[Archiving]:
    with Archiving.started(tmp_path / "archive") as started:
        yield started


def new_source(archiving: Archiving, dice: random.Random) -> SourcePartition:
    return SourcePartition(archiving.brokers.topic()[0].log, dice)


def shown(source: SourcePartition, start: int = 0, end: int = 2**63 - 1) -> list[Content]:
    """The records that a reader of committed records sees between two offsets."""
    return [each.content for each in source.records if each.is_shown and start <= each.offset < end]


@pytest.mark.parametrize("seed", range(12))
def test_every_kind_of_batch_is_restored(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    segment_bytes = dice.choice([1, 500, 5_000, 10**9])
    with Archiving.started(
        tmp_path / "archive", segment_bytes=segment_bytes, fetch_buffer_bytes=_MEBIBYTE
    ) as archiving:
        source = new_source(archiving, dice)
        for _ in range(3):
            for _ in range(12):
                source.grow()
                dice.choice([source.begin_or_continue_transaction, source.end_transactions])()
            archiving.to_the_end()
        source.end_transactions()
        archiving.to_the_end()
        assert archiving.content() == stored(source.log)
        archiving.restore()
        assert archiving.restored() == shown(source)
        assert archiving.verified() is Outcome.EQUAL


def test_batch_of_20_megabytes_is_restored(tmp_path: Path) -> None:
    with Archiving.started(tmp_path / "archive", segment_bytes=_MEBIBYTE) as archiving:
        (history,) = archiving.brokers.topic(max_message_bytes=str(32 * _MEBIBYTE))
        values = [random.Random(number).randbytes(_MEBIBYTE) for number in range(20)]
        history.plain(3)
        for codec in (Codec.NONE, Codec.ZSTD):
            made = batches.batch(values, base_offset=history.next_offset, codec=codec)
            assert len(made) > 20 * 1_000_000
            history.store(made, shown=True)
        history.plain(1)
        archiving.to_the_end()
        assert archiving.content() == stored(history.log)
        archiving.restore()
        assert archiving.restored() == history.committed
        assert archiving.verified() is Outcome.EQUAL


# Up to an offset, or a time


@pytest.mark.parametrize("first", range(1, 5))
def test_restore_ends_at_any_offset_of_a_batch(archiving: Archiving, first: int) -> None:
    source = new_source(archiving, random.Random(1))
    for codec in (Codec.LZ4, Codec.NONE, Codec.ZSTD):
        source.any_batch(codec)
    source.any_holed_batch()
    source.any_transaction()
    source.any_batch_with_append_time()
    source.any_compressed_messages()
    archiving.to_the_end()
    # Each offset is the end of one of these tests, and so also where the next restore begins.
    for end in [*range(first, source.next_offset, 4), source.next_offset]:
        archiving.restore(end=end)
        assert archiving.restored() == shown(source, end=end)


@pytest.mark.parametrize("seed", range(6))
def test_restore_to_a_point_in_time_is_that_of_the_list(archiving: Archiving, seed: int) -> None:
    dice = random.Random(seed)
    source = new_source(archiving, dice)
    for _ in range(10):
        kinds = [
            source.any_batch,
            source.any_transaction,
            source.any_holed_batch,
            source.any_compressed_messages,
        ]
        dice.choice(kinds)()
    archiving.to_the_end()
    times = sorted({each.content.timestamp for each in source.records if each.content.timestamp > 0})
    start_ms, until_ms = sorted(dice.sample(times, 2))
    with Cluster(archiving.restoring.settings.source) as cluster:
        cluster.refresh(["topic"])
        newest = start_offsets(cluster, [_PARTITION], times[-1])[_PARTITION]
        start = start_offsets(cluster, [_PARTITION], start_ms)[_PARTITION]
        end = window_ends(cluster, [_PARTITION], Until(timestamp_ms=until_ms))[_PARTITION]
    assert newest == min(each.offset for each in source.records if each.content.timestamp == times[-1])
    assert start == min(each.offset for each in source.records if each.content.timestamp >= start_ms)
    assert end == min(each.offset for each in source.records if each.content.timestamp >= until_ms)
    archiving.restore(start, end)
    assert archiving.restored() == shown(source, start, end)
