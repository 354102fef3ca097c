"""If the mirror may, it leaves out records that the destination refuses, and loses or doubles no others."""

from __future__ import annotations

import pytest

from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import Rebatch
from shoal.mirroring.model.incidents import IncidentKind
from shoal.protocol.apis import ApiKey
from shoal.records import Codec
from tests import batches
from tests.two_brokers import ABORT, COMMIT, Content, History, Killed, Mortal, TwoBrokers, Watched, batches_of

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
        for report in control.reports
        for each in report["partitions"]
        for kind, reason, count, continued in each["incidents"]
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


@pytest.mark.parametrize("rebatch", [None, DECODED], ids=["raw", "decoded"])
def test_task_that_dies_anywhere_is_continued_with_the_same_records_left_out(
    brokers: TwoBrokers, rebatch: Rebatch | None
) -> None:
    history, by_batch, by_record = filled(brokers)
    mirror = going_on(brokers, rebatch)
    deaths = 0
    for at_check in range(200):
        try:
            mirror.run(control=Dying(at_check % 7))
        except Killed:
            deaths += 1
        else:
            break
    mirror.run()
    assert deaths > 5
    assert brokers.copied() == (by_record if rebatch else by_batch)
    assert brokers.position().source_offset == history.next_offset


class Dying(Mortal):
    """Dies only at a check of its lease, not if the engine waits."""

    def wait(self, seconds: float) -> None:
        if self.is_dead:
            raise Killed


def test_too_large_batch_is_left_out(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic(max_message_bytes="600")
    history.plain(1).plain(30).plain(2)
    control = Watched()
    assert going_on(brokers).start(control=control).result().complete
    assert brokers.copied() == [history.committed[0], *history.committed[-2:]]
    assert [count for _, count in lost(control)] == [30]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
    ids=lambda code: code.name,
)
def test_refused_writer_leaves_no_records_out(brokers: TwoBrokers, history: History, code: ErrorCode) -> None:
    history.plain(2)
    brokers.destination.faults.add(ApiKey.PRODUCE, error=code)
    (stopped,) = going_on(brokers).start().result().stopped
    assert code.name in stopped.reason
    assert brokers.position().source_offset == 0


def test_rebatch_of_everything_decodes_and_cuts_batches_to_the_size(brokers: TwoBrokers) -> None:
    (history,) = brokers.topic()
    history.plain(*([3] * 20), codec=Codec.ZSTD).holed(5, [1, 3]).plain(400).plain(1)
    mirror = brokers.with_settings(rebatch=Rebatch(1024, Codec.NONE, everything=True))
    assert mirror.run().complete
    assert brokers.copied() == history.committed
    made = batches_of(brokers.destination.log("topic"))
    assert {each.header.codec_id for each in made} == {Codec.NONE}
    assert max(each.header.size for each in made) <= 1024
    assert len(made) < 60


@pytest.mark.parametrize("seed", range(3))
def test_task_that_dies_anywhere_is_continued_with_decoded_records_once(
    brokers: TwoBrokers, seed: int
) -> None:
    """Each attempt may have other fetches, and cut other batches of the same records."""
    (history,) = brokers.topic()
    history.plain(3).plain(2, codec=Codec.LZ4).plain(5, codec=Codec.GZIP)
    history.transaction(2, 3, ends=COMMIT).transaction(4, ends=ABORT).plain(200)
    history.holed(6, [1, 2, 5]).empty().gap(7).plain(1, codec=Codec.SNAPPY).transaction(1, ends=ABORT)
    history.plain(*([2] * 30), codec=Codec.ZSTD).marker()
    mirror = brokers.with_settings(
        rebatch=Rebatch(1024, Codec.ZSTD, everything=True), max_in_flight=1 + seed % 5, keep_append_time=True
    )
    deaths = 0
    for at_check in range(1, 12):
        try:
            mirror.run(control=Dying((at_check + seed) % 7))
        except Killed:
            deaths += 1
        history.plain(1)
    mirror.run()
    assert deaths > 1
    assert brokers.copied() == history.committed
    assert brokers.position().source_offset == history.next_offset
