"""A task joins batches into larger ones: it copies the same records at once, and recognizes them later."""

from __future__ import annotations

from functools import partial

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.records import Codec, Decision, fingerprint
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched
from tests.world.history import ABORT, COMMIT, NOW_MS, History
from tests.world.waiting import wait_until

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


def test_large_batch_between_small_ones_stays_unchanged(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1, 200, 1, 1, codec=Codec.LZ4)
    large = batches_of(history.log)[2]
    brokers = brokers.with_settings(rebatch=Rebatch(large.header.size))
    assert run(brokers) == {Decision.JOIN.value: 2, Decision.COPY.value: 1}
    brokers.assert_exact(history)
    assert counts(brokers) == [2, 200, 2]
    assert fingerprint(batches_of(brokers.destination.log("topic"))[1]) == fingerprint(large)


def test_transactions_are_joined_without_markers_and_aborted_records(
    brokers: TwoBrokers, history: History
) -> None:
    history.plain(1).transaction(2, 1, ends=COMMIT).transaction(3, ends=ABORT).plain(2).empty().gap(4)
    history.transaction(1, ends=ABORT).plain(1).transaction(1, ends=COMMIT)
    found = run(brokers)
    brokers.assert_exact(history)
    assert counts(brokers) == [len(history.committed)]
    assert found[Decision.DROP_CONTROL.value] == 4
    assert found[Decision.DROP_ABORTED.value] == 2
    assert found[Decision.JOIN.value] == 1
    assert brokers.position().source_offset == history.next_offset


def test_batch_with_holes_is_rebuilt_and_not_joined(brokers: TwoBrokers, history: History) -> None:
    history.plain(1, 1).holed(5, [1, 3]).plain(1, 1)
    found = run(brokers)
    brokers.assert_exact(history)
    assert counts(brokers) == [2, 3, 2]
    assert found == {Decision.JOIN.value: 2, Decision.REBUILD_HOLES.value: 1}


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
    brokers.assert_exact(history)


def _holds(brokers: TwoBrokers, records: int) -> bool:
    return brokers.destination.log("topic").log_end_offset >= records


# Refused


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
