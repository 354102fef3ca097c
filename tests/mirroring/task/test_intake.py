"""Fetched batches: decided about by their headers, stamped, and queued in lots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.config import ClientConfig, IsolationLevel
from shoal.errors import CorruptBatch, UnsupportedBatch
from shoal.mirroring.model.copy_options import CopySettings, Rebatch
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.reports import Counters
from shoal.mirroring.task.intake import Intake, RecordSetContent
from shoal.mirroring.task.moving_map import MovingMap
from shoal.mirroring.task.outbound import Outbound
from shoal.native import NATIVE
from shoal.protocol.fetch import FetchedPartition
from shoal.records import Codec, Decision, join, read_records, split, verify_crc
from tests.batches import TRANSACTIONAL, batch, marker
from tests.native_path import needs_native

PRODUCER_ID, FIRST_SEQUENCE = 9, 40
#: Source offset 100 lands at offset 40.
POSITION = MirrorPosition(
    100, 40, ProducerIdentity(PRODUCER_ID, 1, 0), (100, 40), None, None, None, 0, "rules", 3
)
END_OFFSET = 1000


class Taking:
    """An intake at :data:`POSITION`, and what it queued."""

    def __init__(self, **settings: object) -> None:
        source, destination = (
            ClientConfig.from_properties(name, {"bootstrap.servers": "127.0.0.1:1"})[0]
            for name in ("source", "destination")
        )
        defaults = CopySettings(source, destination, "group", rules="rules")
        self.ahead = MovingMap()
        self.ahead.put(POSITION)
        self.outbound = Outbound(self.ahead, allows_other_writers=False)
        self.intake = Intake(replace(defaults, **settings), self.outbound, self.ahead)  # type: ignore[arg-type]
        self.intake.rewind()

    def take(
        self,
        *fetched: bytes | bytearray,
        aborted: Sequence[tuple[int, int]] = (),
        level: IsolationLevel = IsolationLevel.READ_COMMITTED,
        end_offset: int = END_OFFSET,
    ) -> RecordSetContent:
        record_set = memoryview(bytearray(b"".join(fetched)))
        partition = FetchedPartition("topic", 0, 0, END_OFFSET, END_OFFSET, 0, list(aborted), record_set)
        return self.intake.take(partition, level, end_offset)

    @property
    def queued(self) -> list[tuple[Decision, int, int, int]]:
        """For each lot its decision, the source offsets, and the number of batches."""
        return [
            (lot.decision, lot.source_start, lot.source_end, lot.batches_count) for lot in self.outbound.queue
        ]

    @property
    def records(self) -> list[tuple[int, bytes]]:
        """The time and the body of each queued record."""
        batches = (each for lot in self.outbound.queue for each in split(lot.view))
        return [record[1:] for each in batches for record in read_records(each, 2**20)]

    @property
    def sequences(self) -> list[int]:
        """The sequences of all queued batches, whose CRCs match."""
        found = []
        for lot in self.outbound.queue:
            for each in split(lot.view):
                verify_crc(each)
                assert (each.header.producer_id, each.header.base_offset) == (PRODUCER_ID, 0)
                found.append(each.header.base_sequence)
        return found

    @property
    def dropped(self) -> dict[Decision, int]:
        counters = Counters()
        self.intake.count_dropped(END_OFFSET, counters)
        return {Decision(name): count for name, count in counters.decisions.items()}


def plain(*counts: int, base_offset: int = 100, **fields: int) -> bytes:
    built = bytearray()
    for count in counts:
        built += batch(count, base_offset=base_offset, **fields)  # type: ignore[arg-type]
        base_offset += count
    return bytes(built)


def test_plain_batches_are_one_lot_stamped_for_the_place_behind_the_queue() -> None:
    taking = Taking()
    assert taking.take(plain(3, 1, 2, leader_epoch=5)) is RecordSetContent.BATCHES
    assert taking.queued == [(Decision.COPY, 100, 106, 3)]
    assert taking.sequences == [40, 43, 44]
    assert (taking.intake.fetch_offset, taking.intake.source_leader_epoch) == (106, 5)
    assert taking.take(plain(2, base_offset=106)) is RecordSetContent.BATCHES
    assert taking.sequences == [40, 43, 44, 46]


@pytest.mark.parametrize(
    ("between", "decision", "end"),
    [
        pytest.param(batch(2, base_offset=102, flags=0x80), Decision.COPY, 104, id="unknown attribute"),
        pytest.param(batch(2, base_offset=103), Decision.COPY, 105, id="behind a gap"),
        pytest.param(batch(3, base_offset=102, holes=[1]), Decision.REBUILD_HOLES, 105, id="holes"),
    ],
)
def test_batch_that_is_not_plain_is_a_lot_between_others(
    between: bytearray, decision: Decision, end: int
) -> None:
    taking = Taking()
    taking.take(plain(2), between, plain(1, 1, base_offset=end))
    assert [each[0] for each in taking.queued] == [Decision.COPY, decision, Decision.COPY]
    assert [each[3] for each in taking.queued] == [1, 1, 2]
    assert taking.queued[-1][1:3] == (end, end + 2)
    assert taking.sequences[0] == FIRST_SEQUENCE
    assert taking.intake.fetch_offset == end + 2


def test_first_batch_that_begins_before_the_position_is_cropped() -> None:
    taking = Taking()
    taking.take(batch(4, base_offset=98), plain(1, base_offset=102))
    assert taking.queued == [(Decision.CROP, 100, 102, 1), (Decision.COPY, 102, 103, 1)]
    assert taking.sequences == [40, 42]


def test_batch_that_ends_before_the_position_is_left_out() -> None:
    taking = Taking()
    assert taking.take(plain(2, base_offset=98)) is RecordSetContent.BATCHES
    assert (taking.queued, taking.intake.fetch_offset) == ([], 100)


def test_dropped_batches_are_counted_once_the_position_passes_them() -> None:
    taking = Taking()
    transaction = batch(
        2, base_offset=100, flags=TRANSACTIONAL, producer_id=77, producer_epoch=0, base_sequence=0
    )
    empty = batch(2, base_offset=103, holes=[0, 1])
    taking.take(
        transaction,
        marker(0, 77, base_offset=102),
        empty,
        plain(1, base_offset=105),
        aborted=[(77, 100)],
    )
    assert taking.queued == [(Decision.COPY, 105, 106, 1)]
    counters = Counters()
    taking.intake.count_dropped(103, counters)
    assert counters.decisions == {Decision.DROP_ABORTED: 1, Decision.DROP_CONTROL: 1}
    taking.intake.count_dropped(106, counters)
    assert counters.decisions[Decision.DROP_EMPTY] == 1
    assert taking.dropped == {}


def test_aborted_batch_is_copied_with_read_uncommitted() -> None:
    taking = Taking()
    transaction = batch(
        2, base_offset=100, flags=TRANSACTIONAL, producer_id=77, producer_epoch=0, base_sequence=0
    )
    taking.take(transaction, level=IsolationLevel.READ_UNCOMMITTED)
    assert taking.queued == [(Decision.COPY, 100, 102, 1)]


@pytest.mark.parametrize("size", [0, 5, 60, 70])
def test_record_set_without_a_whole_batch_has_nothing(size: int) -> None:
    taking = Taking()
    assert taking.take(plain(3)[:size]) is RecordSetContent.NOTHING
    assert (taking.queued, taking.intake.fetch_offset) == ([], 100)


def test_batch_cut_short_is_left_for_the_next_fetch() -> None:
    taking = Taking()
    assert taking.take(plain(2, 2)[:-1]) is RecordSetContent.BATCHES
    assert taking.queued == [(Decision.COPY, 100, 102, 1)]


@pytest.mark.parametrize(
    "behind", [plain(2, base_offset=102), batch(2, base_offset=105)], ids=["next", "gap"]
)
def test_batch_behind_the_end_of_the_range_ends_it(behind: bytes) -> None:
    taking = Taking()
    assert taking.take(plain(2), behind, end_offset=102) is RecordSetContent.END
    assert taking.queued == [(Decision.COPY, 100, 102, 1)]


def test_offsets_that_go_back_forget_the_whole_record_set() -> None:
    """Offsets are not under the CRC: neither of the two batches can be believed."""
    taking = Taking()
    with pytest.raises(CorruptBatch, match=r"offset.*101.*103"):
        taking.take(plain(4), plain(2, base_offset=101))
    assert (taking.queued, taking.intake.fetch_offset, taking.outbound.next_offset) == ([], 100, 40)


def test_batch_in_an_unknown_codec_leaves_those_before_it_queued() -> None:
    taking = Taking()
    unknown = batch(1, base_offset=102, flags=5)
    with pytest.raises(UnsupportedBatch, match=r"codec.*5"):
        taking.take(plain(2), unknown, plain(1, base_offset=103))
    assert (taking.queued, taking.intake.fetch_offset) == ([(Decision.COPY, 100, 102, 1)], 102)


def test_damaged_batch_that_would_be_dropped_is_refused() -> None:
    taking = Taking()
    damaged = marker(1, 77, base_offset=102)
    damaged[70] ^= 1  # behind the header
    with pytest.raises(CorruptBatch):
        taking.take(plain(2), damaged)
    assert (taking.queued, taking.intake.fetch_offset) == ([(Decision.COPY, 100, 102, 1)], 102)


def test_batches_are_joined_up_to_the_size_of_an_option() -> None:
    taking = Taking(rebatch=Rebatch(below_bytes=10_000))
    taking.take(plain(2, 3, 1))
    assert taking.queued == [(Decision.JOIN, 100, 106, 1)]
    assert taking.sequences == [40]


def test_batches_before_a_refused_offset_are_not_joined() -> None:
    taking = Taking(rebatch=Rebatch(below_bytes=10_000))
    taking.outbound.apart_until = 105
    taking.take(plain(2, 3, 1, 1))
    assert [each[:3] for each in taking.queued] == [
        (Decision.COPY, 100, 102),
        (Decision.COPY, 102, 105),
        (Decision.JOIN, 105, 107),
    ]


def test_large_batch_is_copied_between_joined_ones() -> None:
    taking = Taking(rebatch=Rebatch(below_bytes=400))
    large = batch([bytes(1000)], base_offset=102)
    taking.take(plain(1, 1), large, plain(1, 1, base_offset=103))
    assert [each[:3] for each in taking.queued] == [
        (Decision.JOIN, 100, 102),
        (Decision.COPY, 102, 103),
        (Decision.JOIN, 103, 105),
    ]


def test_skipped_gap_moves_the_fetch_offset_and_never_back() -> None:
    intake = Taking().intake
    intake.skip_gap(120, 7)
    assert (intake.fetch_offset, intake.source_leader_epoch) == (120, 7)
    intake.skip_gap(110, 2)
    assert (intake.fetch_offset, intake.source_leader_epoch) == (120, 7)


def test_rewind_forgets_the_queue_and_the_drops() -> None:
    taking = Taking()
    taking.take(plain(2), marker(1, 77, base_offset=102))
    taking.intake.rewind()
    assert (taking.queued, taking.dropped, taking.intake.fetch_offset) == ([], {}, 100)
    taking.take(plain(2))
    assert taking.sequences == [40]


@pytest.mark.parametrize("codec", list(Codec))
def test_plain_batch_of_each_codec_is_copied(codec: Codec) -> None:
    taking = Taking()
    taking.take(batch(3, base_offset=100, codec=codec))
    assert taking.queued == [(Decision.COPY, 100, 103, 1)]


# Joins, with and without the native module

#: For each batch its records, the size of their values, and what lies before it.
_BATCHES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 200),
        st.sampled_from(["", "", "", "", "marker", "gap", "epoch", "lz4"]),
    ),
    min_size=1,
    max_size=40,
)


def laid_out(batches: Sequence[tuple[int, int, str]]) -> bytes:
    built, offset, epoch = bytearray(), 100, 3
    for count, size, before in batches:
        if before == "marker":
            built += marker(1, 77, base_offset=offset)
        offset += before in {"marker", "gap"}
        epoch += before == "epoch"
        codec = Codec.LZ4 if before == "lz4" else Codec.NONE
        built += batch([bytes(size)] * count, base_offset=offset, leader_epoch=epoch, codec=codec)
        offset += count
    return bytes(built)


@needs_native
@given(_BATCHES, st.sampled_from([300, 1_000, 100_000]), st.sampled_from([None, Codec.NONE, Codec.ZSTD]))
def test_joined_batches_hold_the_same_with_and_without_the_native_module(
    batches: list[tuple[int, int, str]], below_bytes: int, codec: Codec | None
) -> None:
    """The native module leaves to the rebuilder what lies before a marker or a gap, so batches may differ."""
    takings = []
    for native in (NATIVE, None):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(join, "NATIVE", native)
            takings.append(taking := Taking(rebatch=Rebatch(below_bytes, codec)))
            taking.take(laid_out(batches))
    found, expected = (
        [
            record[1:]
            for lot in taking.outbound.queue
            for each in split(lot.view)
            for record in read_records(each, 2**20)
        ]
        for taking in takings
    )
    assert found == expected
    natively, in_python = takings
    assert natively.sequences[0] == in_python.sequences[0] == FIRST_SEQUENCE
    assert natively.intake.fetch_offset == in_python.intake.fetch_offset
    assert natively.outbound.next_offset == in_python.outbound.next_offset
    assert natively.dropped == in_python.dropped
    assert natively.ahead.get() is not None
    for landing in range(POSITION.destination_offset, natively.outbound.next_offset):
        places = [taking.ahead.get().run_at(landing) for taking in takings]  # type: ignore[union-attr]
        assert places[0].source_at(landing) == places[1].source_at(landing)
        assert places[0].leader_epoch == places[1].leader_epoch


@needs_native
def test_many_small_batches_are_joined_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = Taking(rebatch=Rebatch(below_bytes=1_000))
    monkeypatch.setattr(CopySettings, "records_to_mirror", lambda *_: pytest.fail("it was decoded"))
    taking.take(plain(*[1] * 100, base_offset=100))
    assert {each[0] for each in taking.queued} == {Decision.JOIN}
    assert taking.queued[-1][2] == 200
