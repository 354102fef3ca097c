"""Record sets as every reader of a log sees them; which batches are aborted is in test_aborted."""

from __future__ import annotations

import pytest

from shoal.errors import CorruptBatch
from shoal.records import (
    AbortedTransactions,
    BeyondTheEnd,
    CheckedCrcs,
    Decision,
    OffsetsGoBack,
    RecordBatch,
    Scan,
    Walked,
)
from tests.world.batches import TRANSACTIONAL, batch, marker

ABORT = 0


def damaged(written: bytearray) -> bytearray:
    """Flip a bit that the CRC covers, and that the decision does not depend on."""
    written[-1] ^= 1
    return written


def scanned(*written: bytearray, start_offset: int = 0, crcs: CheckedCrcs) -> list[tuple[Decision, int]]:
    record_set = memoryview(bytearray().join(written))
    return [
        (decision, found.header.base_offset)
        for decision, found in Scan[RecordBatch](
            record_set, start_offset, AbortedTransactions([(1, 0)]), crcs=crcs
        )
    ]


def aborted() -> bytearray:
    return batch(1, base_offset=0, flags=TRANSACTIONAL, producer_id=1)


def test_scan_refuses_a_batch_that_overlaps_the_previous_one() -> None:
    # The first two end before the start.
    log = [batch(2, base_offset=0), batch(2, base_offset=2), batch(3, base_offset=4), batch(3, base_offset=6)]
    found = iter(Scan[RecordBatch](memoryview(bytearray().join(log)), 5, None))
    assert next(found)[0] is Decision.CROP
    with pytest.raises(OffsetsGoBack, match="offset 6 comes after 6"):
        next(found)


@pytest.mark.parametrize(
    ("second_at", "log_end"),
    [(2, 2), (2, 1), (2, 0), (6, 7), (6, -1)],
    ids=["written", "in-first", "none", "gap", "unknown"],
)
def test_scan_takes_batches_that_were_written_since_the_response_began(second_at: int, log_end: int) -> None:
    log = memoryview(batch(2, base_offset=0) + batch(2, base_offset=second_at))
    assert len(list(Scan[RecordBatch](log, 0, None, log_end=log_end))) == 2


@pytest.mark.parametrize("log_end", [4, 6])
def test_scan_refuses_a_batch_behind_a_gap_that_reaches_the_end_of_the_log(log_end: int) -> None:
    found = iter(Scan[RecordBatch](memoryview(batch(2) + batch(2, base_offset=6)), 0, None, log_end=log_end))
    assert next(found)[0] is Decision.COPY
    with pytest.raises(BeyondTheEnd, match=f"offset 6 lies behind the end of the log, {log_end}"):
        next(found)


@pytest.mark.parametrize(
    ("crcs", "is_copied_refused", "is_dropped_refused"),
    [(CheckedCrcs.NONE, False, False), (CheckedCrcs.DROPPED, False, True), (CheckedCrcs.ALL, True, True)],
)
def test_scan_refuses_a_wrong_crc_only_of_checked_batches(
    crcs: CheckedCrcs, is_copied_refused: bool, is_dropped_refused: bool
) -> None:
    for written, is_refused in ((batch(1), is_copied_refused), (aborted(), is_dropped_refused)):
        if is_refused:
            with pytest.raises(CorruptBatch, match="CRC"):
                scanned(damaged(written), crcs=crcs)
        else:
            assert len(scanned(damaged(written), crcs=crcs)) == 1


def test_scan_gives_its_walk_the_end_of_committed_transactions() -> None:
    kept = [batch(2, base_offset=offset, flags=TRANSACTIONAL, producer_id=1) for offset in (0, 2)]
    rest = [batch(1, base_offset=4, flags=TRANSACTIONAL, producer_id=1), marker(ABORT, 1, base_offset=5)]
    asked = []

    def walk(position: int, end_offset: int, transactional: bool) -> Walked[str] | None:
        asked.append((end_offset, transactional))
        return None if position else Walked("run", len(kept[0]), 2)

    log = memoryview(bytearray().join([*kept, *rest, batch(1, base_offset=6), batch(1, base_offset=7)]))
    found = Scan(log, 0, AbortedTransactions([(1, 4)]), end_offset=7, plain=walk)
    assert [each[0] for each in found] == [
        Decision.COPY,  # the run
        Decision.COPY,
        Decision.DROP_ABORTED,
        Decision.DROP_CONTROL,
        Decision.COPY,
    ]
    assert (found.is_over, found.offset) == (True, 7)
    assert asked == [(4, True), (4, True), (7, False), (7, False), (7, True), (7, True)]


def test_scan_continues_at_the_batch_at_which_its_reader_ended() -> None:
    found = Scan[RecordBatch](memoryview(batch(2) + batch(3, base_offset=2)), 0, None)
    assert [next(iter(found))[1].header.base_offset for _ in range(2)] == [0, 0]
    found.go_past(next(iter(found))[1])
    assert [each.header.base_offset for _, each in found] == [2]
