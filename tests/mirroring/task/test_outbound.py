"""A task joins batches into larger ones: it copies the same records at once, and recognizes them later."""

from __future__ import annotations

import math
from functools import partial

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.protocol.apis import ApiKey
from shoal.records import Codec, Decision, fingerprint
from tests import batches
from tests.two_brokers import (
    ABORT,
    COMMIT,
    NOW_MS,
    History,
    Killed,
    Mortal,
    TwoBrokers,
    Watched,
    batches_of,
    let_pass,
    lose_tail,
    wait_until,
)
from tests.verifying import verified

#: Larger than all batches of a test here.
ALL = Rebatch(100_000)


@pytest.fixture
def brokers(brokers: TwoBrokers) -> TwoBrokers:
    return brokers.with_settings(rebatch=ALL)


def counts(brokers: TwoBrokers) -> list[int]:
    """Return the number of records of each batch at the destination."""
    return [each.header.records_count for each in batches_of(brokers.destination.log("topic"))]


def codecs(brokers: TwoBrokers) -> list[Codec]:
    return [Codec(each.header.codec_id) for each in batches_of(brokers.destination.log("topic"))]


def run(brokers: TwoBrokers) -> dict[str, int]:
    """Copy all; return the decisions."""
    control = Watched()
    assert brokers.run(control=control).complete
    return control.decisions


# Batches to join


@pytest.mark.parametrize("codec", list(Codec))
def test_small_batches_are_joined_with_their_own_codec(
    brokers: TwoBrokers, history: History, codec: Codec
) -> None:
    history.plain(*[2] * 50, codec=codec)
    assert run(brokers) == {Decision.JOIN.value: 1}
    assert brokers.copied() == history.committed
    assert (counts(brokers), codecs(brokers)) == ([100], [codec])


@pytest.mark.parametrize("codec", list(Codec))
def test_named_codec_is_used_for_joined_batches_of_all_codecs(
    brokers: TwoBrokers, history: History, codec: Codec
) -> None:
    for each in Codec:
        history.plain(3, codec=each)
    brokers = brokers.with_settings(rebatch=Rebatch(100_000, codec))
    assert run(brokers) == {Decision.JOIN.value: 1}
    assert brokers.copied() == history.committed
    assert (counts(brokers), codecs(brokers)) == ([15], [codec])


def test_batches_of_different_codecs_are_not_joined(brokers: TwoBrokers, history: History) -> None:
    for codec in (Codec.LZ4, Codec.ZSTD, Codec.NONE):
        history.plain(1, 2, codec=codec)
    run(brokers)
    assert brokers.copied() == history.committed
    assert codecs(brokers) == [Codec.LZ4, Codec.ZSTD, Codec.NONE]


def test_joined_batch_is_complete_at_the_wanted_size(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[1] * 50)
    size = batches_of(history.log)[0].header.size
    run(brokers.with_settings(rebatch=Rebatch(10 * size)))
    assert brokers.copied() == history.committed
    assert max(counts(brokers)) <= 10
    assert len(counts(brokers)) <= 6


def test_large_batch_between_small_ones_stays_unchanged(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1, 200, 1, 1, codec=Codec.LZ4)
    large = batches_of(history.log)[2]
    brokers = brokers.with_settings(rebatch=Rebatch(large.header.size))
    assert run(brokers) == {Decision.JOIN.value: 2, Decision.COPY.value: 1}
    assert brokers.copied() == history.committed
    assert counts(brokers) == [2, 200, 2]
    assert fingerprint(batches_of(brokers.destination.log("topic"))[1]) == fingerprint(large)


def test_transactions_are_joined_without_markers_and_aborted_records(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1).transaction(2, 1, ends=COMMIT).transaction(3, ends=ABORT).plain(2).empty().gap(4)
    history.transaction(1, ends=ABORT).plain(1).transaction(1, ends=COMMIT)
    found = run(brokers)
    assert brokers.copied() == history.committed
    assert counts(brokers) == [len(history.committed)]
    assert found[Decision.DROP_CONTROL.value] == 4
    assert found[Decision.DROP_ABORTED.value] == 2
    assert found[Decision.JOIN.value] == 1
    assert brokers.position().source_offset == history.next_offset


def test_batch_with_holes_is_rebuilt_and_not_joined(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1).holed(5, [1, 3]).plain(1, 1)
    found = run(brokers)
    assert brokers.copied() == history.committed
    assert counts(brokers) == [2, 3, 2]
    assert found == {Decision.JOIN.value: 2, Decision.REBUILD_HOLES.value: 1}


def test_batch_over_the_decompression_limit_is_copied_unchanged(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1)
    large = [b"x" * 3_000]
    history.store(batches.batch(large, base_offset=2, base_timestamp=NOW_MS, codec=Codec.GZIP), shown=True)
    history.plain(1, 1)
    assert brokers.with_settings(max_decompressed_bytes=2_000).run().complete
    assert brokers.copied() == history.committed
    assert counts(brokers) == [2, 1, 2]


def test_joined_batches_stay_under_the_decompression_limit(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[10] * 10, codec=Codec.GZIP)
    assert brokers.with_settings(max_decompressed_bytes=900).run().complete
    assert brokers.copied() == history.committed
    assert 1 < len(counts(brokers)) < 10


def test_single_records_of_an_open_range_are_sent_at_once(brokers: TwoBrokers, history: History) -> None:
    open_end = CopyRange("topic", 0, "topic", 0, OPEN_END)
    control = Watched()
    running = brokers.start([open_end], control)
    for expected in (1, 3, 4):
        while len(history.committed) < expected:
            history.plain(1)
        wait_until(partial(_holds, brokers, expected))
    control.request_stop()
    running.result()
    assert brokers.copied() == history.committed


def _holds(brokers: TwoBrokers, records: int) -> bool:
    return brokers.destination.log("topic").log_end_offset >= records


def test_verify_of_joined_batches_finds_them_equal(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[2] * 30, codec=Codec.LZ4).transaction(2, ends=ABORT).holed(5, [1]).plain(*[1] * 9)
    run(brokers.with_settings(rebatch=Rebatch(400, Codec.ZSTD)))
    assert len(counts(brokers)) < 35
    (partition,) = verified(brokers).partitions
    assert partition.outcome.name == "EQUAL"


# Refused


def test_joined_batch_too_large_for_the_destination_is_cut(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic(max_message_bytes="400")
    history.plain(*[1] * 30)
    assert brokers.start().result().complete
    assert brokers.copied() == history.committed
    assert 2 < len(counts(brokers)) < 30


def test_refused_batch_is_found_among_those_joined_with_it(brokers: TwoBrokers, history: History) -> None:
    history.plain(*[1] * 5)
    history.base_timestamp = NOW_MS + 30 * 86_400_000
    history.plain(2)
    history.base_timestamp = NOW_MS
    history.plain(*[1] * 5)
    (stopped,) = brokers.run().stopped
    assert stopped.offset == 5
    assert "(2 records" in stopped.reason
    assert "INVALID_TIMESTAMP" in stopped.reason
    assert brokers.copied() == history.committed[:5]


def test_damaged_batch_among_joined_ones_stops_the_partition_at_its_offset(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1, 1)
    damaged = history.batch(2)
    damaged[-1] ^= 1
    history.store(damaged)
    history.plain(1)
    (stopped,) = brokers.run().stopped
    assert stopped.offset == 2
    assert brokers.copied() == history.committed[:2]


# Continuation after a task that died at any request


def everything(history: History) -> None:
    history.plain(2, 1, 1).transaction(2, ends=COMMIT).plain(3, codec=Codec.GZIP).plain(1, codec=Codec.GZIP)
    history.transaction(1, ends=ABORT).holed(4, [2]).plain(1, 2, 1).plain(9)


SETTINGS: dict[str, Rebatch | None] = {
    "the same": Rebatch(200),
    "smaller": Rebatch(150),
    "larger": ALL,
    "another codec": Rebatch(200, Codec.ZSTD),
    "none": None,
}


@pytest.mark.parametrize("afterwards", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("requests", [1, 2, 5])
@pytest.mark.parametrize("effect", ["before", "after"])
def test_joined_records_written_by_a_dead_task_are_skipped(
    brokers: TwoBrokers, history: History, requests: int, effect: str, afterwards: Rebatch | None
) -> None:
    everything(history)
    let_pass(brokers.destination, ApiKey.PRODUCE, requests)
    brokers.destination.faults.add(ApiKey.PRODUCE, drop=effect)  # type: ignore[arg-type]
    try:
        brokers.with_settings(rebatch=Rebatch(200)).run(control=Mortal())
    except Killed:
        brokers.destination.faults.clear()
    assert brokers.with_settings(rebatch=afterwards).run().complete
    assert brokers.copied() == history.committed


@pytest.mark.parametrize(
    "afterwards", [ALL, Rebatch(150), None], ids=["joins", "joins less", "joins nothing"]
)
@pytest.mark.parametrize("survive", [1, 7, 25, 55])
def test_surviving_part_of_a_joined_and_cut_batch_is_skipped(
    brokers: TwoBrokers, survive: int, afterwards: Rebatch | None
) -> None:
    (history,) = brokers.topic(max_message_bytes="400")
    brokers.run()
    first = brokers.position()
    history.plain(*[5] * 12)
    assert brokers.start().result().complete
    lose_tail(brokers.destination, "topic", survive)
    brokers.commit(first)
    assert brokers.with_settings(rebatch=afterwards).start().result().complete
    assert brokers.copied() == history.committed


@pytest.mark.parametrize("codec", [None, Codec.ZSTD])
def test_mirror_goes_on_behind_a_joined_batch_after_an_election(
    brokers: TwoBrokers, history: History, codec: Codec | None
) -> None:
    brokers = brokers.with_settings(rebatch=Rebatch(300, codec))
    history.plain(*[1] * 20)
    run(brokers)
    lose_tail(brokers.destination, "topic", math.inf)  # type: ignore[arg-type]
    history.plain(*[1] * 20)
    result = brokers.run()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed


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
    assert Rebatch.parse("rebatch", str(rebatch)) == rebatch


@pytest.mark.parametrize("text", ["", "x", "64k:", "64k:brotli", "121", "2m", ":zstd", "64k:zstd:9"])
def test_invalid_rebatch_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rebatch"):
        Rebatch.parse("rebatch", text)
