"""If the mirror may, it leaves out records that the destination refuses, and loses or doubles no others."""

from __future__ import annotations

import pytest

from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import IncidentKind
from shoal.records import Codec
from tests.world import batches
from tests.world.batches import Content
from tests.world.clusters import TwoBrokers
from tests.world.contents import batches_of
from tests.world.control import Watched, incidents_of
from tests.world.history import History

DECODED = Rebatch(16_384, Codec.GZIP, everything=True)


def going_on(brokers: TwoBrokers, rebatch: Rebatch | None = None) -> TwoBrokers:
    return brokers.with_settings(continue_after=frozenset({IncidentKind.SEND_FAILURE}), rebatch=rebatch)


def keyed(history: History, *keys: bytes | None) -> None:
    """Add a batch whose records have these keys; a compacted destination refuses one without."""
    records = [
        batches.Record(b"value at %d" % (history.next_offset + delta), key, (), delta, delta)
        for delta, key in enumerate(keys)
    ]
    made = batches.raw_batch(
        batches.payload(records, Codec.NONE),
        base_offset=history.next_offset,
        last_offset_delta=len(records) - 1,
        base_timestamp=history.base_timestamp,
        max_timestamp=history.base_timestamp + len(records) - 1,
        records_count=len(records),
    )
    history.store(made, shown=True)


def lost(control: Watched) -> list[tuple[str, int]]:
    return [
        (reason, count)
        for kind, reason, count, continued in incidents_of(control)
        if kind == IncidentKind.SEND_FAILURE.value and continued
    ]


def filled(brokers: TwoBrokers) -> tuple[History, list[Content], list[Content]]:
    """Return a source with refused batches, and the copies expected of whole batches and of records."""
    (history,) = brokers.topic(cleanup_policy="compact")
    keyed(history, b"a", b"b")
    keyed(history, b"c", None, b"d")
    keyed(history, b"e")
    history.gap(3)
    keyed(history, None)
    keyed(history, None)
    history.transaction(2, ends=0)
    keyed(history, b"f", b"g")
    keyed(history, b"h", None)
    shown = history.committed
    by_batch = [*shown[0:2], shown[5], *shown[8:10]]
    by_record = [each for each in shown if each.key is not None]
    return history, by_batch, by_record


@pytest.mark.parametrize("rebatch", [None, DECODED], ids=["raw", "decoded"])
def test_refused_records_are_left_out_and_reported_and_the_rest_arrives(
    brokers: TwoBrokers, rebatch: Rebatch | None
) -> None:
    history, by_batch, by_record = filled(brokers)
    control = Watched()
    result = going_on(brokers, rebatch).start(control=control).result()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == (by_record if rebatch else by_batch)
    assert brokers.position().source_offset == history.next_offset
    told = lost(control)
    if rebatch:
        assert [count for _, count in told] == [1, 1, 1, 1]
        assert all(each in told[0][0] for each in ("offset 3 of topic-0", "INVALID_RECORD"))
    else:
        assert [count for _, count in told] == [3, 1, 1, 2]
        assert "offsets 2 to 4" in told[0][0]


def test_refused_batch_without_the_policy_stops_the_partition_before_it(brokers: TwoBrokers) -> None:
    _, by_batch, _ = filled(brokers)
    (stopped,) = brokers.start().result().stopped
    assert stopped.offset == 2
    assert brokers.copied() == by_batch[:2]
    assert brokers.position().source_offset == 2


def test_rebatch_of_everything_decodes_and_cuts_batches_to_the_size(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(*([3] * 20), codec=Codec.ZSTD).holed(5, [1, 3]).plain(400).plain(1)
    mirror = brokers.with_settings(rebatch=Rebatch(1024, Codec.NONE, everything=True))
    assert mirror.run().complete
    brokers.assert_exact(history)
    made = batches_of(brokers.destination.log("topic"))
    assert {each.header.codec_id for each in made} == {Codec.NONE}
    assert max(each.header.size for each in made) <= 1024
    assert len(made) < 60
