"""A task joins batches into larger ones: it copies the same records at once, and recognizes them later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shoal.client.config import IsolationLevel
from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.offset_map import OffsetMap
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.reports import Assigned
from shoal.mirroring.task.join_memory import JoinMemory
from shoal.mirroring.task.partition import PartitionCopy
from shoal.protocol.fetch import FetchedPartition
from shoal.records import ENTRY, Codec
from tests.world.batches import batch
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched
from tests.world.history import History

#: Larger than all batches of a test here.
ALL = Rebatch(100_000)


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(rebatch=ALL)


def counts(brokers: TwoBrokers) -> list[int]:
    """Return the number of records of each batch at the destination."""
    return [each.header.records_count for each in batches_of(brokers.destination.log("topic"))]


def run(brokers: TwoBrokers) -> dict[str, int]:
    """Copy all; return the decisions."""
    control = Watched()
    assert brokers.run(control=control).complete
    return control.decisions


# Batches to join


def test_joined_batch_is_complete_at_the_wanted_size(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[1] * 50)
    size = batches_of(history.log)[0].header.size
    run(brokers.with_settings(rebatch=Rebatch(10 * size)))
    brokers.assert_exact(history)
    assert max(counts(brokers)) <= 10
    assert len(counts(brokers)) <= 6


def test_joined_batches_of_a_response_go_out_each_to_its_partition(brokers: TwoBrokers) -> None:
    """All are of the same size, so that the destination would take one for another."""
    histories = brokers.topic("topic", 3)
    for _ in range(3):
        for name, history in zip((b"a", b"b", b"c"), histories, strict=True):
            for _ in range(40):
                history.store(history.batch([name]), shown=True)
        run(brokers.with_settings(rebatch=Rebatch(60_000)))
        brokers.assert_exact(*histories)
    assert len(counts(brokers)) < 40


def test_batches_that_expand_too_far_leave_the_joining_of_others_as_it_was(
    brokers: TwoBrokers, history: History
) -> None:
    log = brokers.destination.log("topic")
    log.config = replace(log.config, max_message_bytes=20_000)
    for number in range(60):
        history.store(history.batch([b"%03000d" % number], codec=Codec.ZSTD), shown=True)
    history.plain(*[1] * 300)
    run(brokers.with_settings(rebatch=Rebatch(4000, Codec.NONE)))
    brokers.assert_exact(history)
    assert max(counts(brokers)) >= 30


def test_record_that_is_too_large_once_decoded_leaves_the_joining_of_others_as_it_was(
    brokers: TwoBrokers, history: History
) -> None:
    log = brokers.destination.log("topic")
    log.config = replace(log.config, max_message_bytes=20_000)
    history.plain(*[1] * 100)
    history.store(history.batch([b"%040000d" % 1], codec=Codec.ZSTD), shown=True)
    history.plain(*[1] * 100).holed(30, [1])
    run(brokers.with_settings(rebatch=Rebatch(15_000, Codec.NONE)))
    brokers.assert_exact(history)
    assert counts(brokers) == [100, 1, 100, 29]


def test_response_that_expands_is_queued_in_slices(
    brokers: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.mirroring.task.intake.MADE_BYTES", 1_000_000)
    records = b"".join(batch([b"%0100000d" % n], base_offset=n, codec=Codec.ZSTD) for n in range(60))
    settings = replace(brokers.settings, rebatch=Rebatch(50_000, Codec.NONE), max_decompressed_bytes=500_000)
    copy = PartitionCopy(Assigned(1, CopyRange("topic", 0, "topic", 0, 60)), settings)
    copy.begin_alignment(0, 0)
    begun = OffsetMap.begun_at(0, 0)
    copy.align(MirrorPosition(0, 0, ProducerIdentity(1, 0), (0, 0), None, None, "rules", begun))
    response = FetchedPartition(*copy.source, 0, 60, 60, 0, [], memoryview(bytearray(records)))
    copy.take(response, IsolationLevel.READ_COMMITTED, JoinMemory())
    sizes = []
    while not copy.state.is_over:
        lot = copy.progress.to_send(copy.destination, None, multi_batch=False)
        sizes.append(sum(map(len, lot.batches)))
        copy.land(len(lot.entries) // ENTRY.size)
        copy.settle()
        copy.take_slice()
    assert len(sizes) > 1
    assert max(sizes) < 2_000_000


def test_batch_with_more_gaps_than_a_commit_has_room_for_is_sent_in_parts(
    brokers: TwoBrokers, history: History
) -> None:
    history.holed(300, range(1, 300, 2))
    run(brokers.with_settings(rebatch=None))
    brokers.assert_exact(history)
    assert counts(brokers) == [100, 50]


def test_batch_that_is_too_large_with_another_codec_goes_as_it_came(
    brokers: TwoBrokers, history: History
) -> None:
    log = brokers.destination.log("topic")
    log.config = replace(log.config, max_message_bytes=2_000)
    history.store(history.batch([b"%03000d" % 1], codec=Codec.ZSTD), shown=True)
    run(brokers.with_settings(rebatch=Rebatch(4000, Codec.NONE)))
    brokers.assert_exact(history)
    assert [each.header.codec_id for each in batches_of(log)] == [Codec.ZSTD]


# Options


@pytest.mark.parametrize(
    ("text", "rebatch"),
    [
        ("64k", Rebatch(65_536)),
        ("1m:zstd", Rebatch(1_048_576, Codec.ZSTD)),
        ("122:none", Rebatch(122, Codec.NONE)),
        ("500:LZ4", Rebatch(500, Codec.LZ4)),
    ],
)
def test_rebatch_option_yields_bytes_and_codec(text: str, rebatch: Rebatch) -> None:
    assert Rebatch.parse("rebatch", text) == rebatch


@pytest.mark.parametrize("text", ["", "x", "64k:", "64k:brotli", "121", "2m", ":zstd", "64k:zstd:9"])
def test_invalid_rebatch_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rebatch"):
        Rebatch.parse("rebatch", text)
