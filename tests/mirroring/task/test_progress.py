"""The map of a partition leads to what is queued, is ahead of what goes out, and is behind what landed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.reports import Counters
from shoal.mirroring.model.runs import Run
from shoal.mirroring.task.progress import Outgoing, Progress
from shoal.records import Codec, Decision, Record, write_batch
from shoal.records.record import write_body

POSITION = MirrorPosition(10, 5, ProducerIdentity(5, 0), (5, 0), None, None, "rules", 0)


def progress(position: MirrorPosition = POSITION, *, has_map: bool = True) -> Progress:
    found = Progress(has_map=has_map)
    found.position = position
    found.source_leader_epoch = 0
    found.rewind()
    return found


def outgoing(*spans: tuple[int, int], leader_epoch: int = 0, decision: Decision = Decision.COPY) -> Outgoing:
    body = write_body(b"key", b"value")
    records = [Record(offset, 0, body) for start, end in spans for offset in range(start, end)]
    return Outgoing(write_batch(records, Codec.NONE), spans, spans[-1][1], leader_epoch, decision)


def place_of(position: MirrorPosition, destination: int) -> tuple[int, int]:
    run = position.run_at(destination)
    return run.source_at(destination), run.leader_epoch


#: How a fetch cuts a source: the gap before each batch, its records, and its leader epoch.
CUTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=6)


@given(st.lists(CUTS, min_size=1, max_size=4))
def test_map_leads_to_the_records_that_were_queued_last(fetches: list[list[tuple[int, int, int]]]) -> None:
    """Each fetch begins again at the position, and the source is cut otherwise then."""
    position = POSITION
    for fetch in fetches:
        expected: dict[int, tuple[int, int]] = {}
        destination, source = POSITION.destination_offset, POSITION.source_offset
        for gap, records, leader_epoch in fetch:
            source += gap
            position = position.leading_to([(Run(destination, source, leader_epoch), destination + records)])
            for number in range(records):
                expected[destination + number] = source + number, leader_epoch
            destination, source = destination + records, source + records
        assert {each: place_of(position, each) for each in expected} == expected


def test_run_that_another_cut_contradicts_takes_those_behind_it_away() -> None:
    planned = replace(POSITION, plan=(Run(5, 12, 0), Run(6, 15, 0), Run(7, 18, 0)))
    assert planned.leading_to([(Run(5, 18, 0), 14)]).plan == (Run(5, 18, 0),)


def test_records_to_which_the_map_leads_already_leave_it_as_it_is() -> None:
    planned = replace(POSITION, plan=(Run(9, 20, 0),))
    assert planned.leading_to([(Run(5, 10, 0), 9)]) == planned


def test_map_without_a_commit_leads_nothing_out() -> None:
    found = progress()
    found.put(outgoing((10, 11)))
    assert not found.is_planned(0)
    found.committed = found.position
    assert found.is_planned(0)


@pytest.mark.parametrize(
    "change",
    [
        {"source_offset": 11},
        {"source_leader_epoch": 1},
        {"identity": ProducerIdentity(6, 0)},
        {"destination_offset": 6, "source_offset": 11},
        {"plan": (Run(6, 13, 0),)},
    ],
)
def test_commit_of_another_map_leads_nothing_out(change: dict[str, object]) -> None:
    found = progress()
    found.put(outgoing((10, 13)))
    found.committed = replace(POSITION, **change)  # type: ignore[arg-type]
    assert not found.is_planned(0)


def test_commit_whose_map_differs_only_behind_the_batch_leads_it_out() -> None:
    found = progress()
    found.put(outgoing((10, 11)))
    found.committed = replace(POSITION, plan=(Run(6, 13, 0),))
    assert found.is_planned(0)


def test_partition_with_other_writers_needs_no_map_and_commits_none() -> None:
    found = progress(has_map=False)
    found.put(outgoing((13, 15)))
    assert found.is_planned(0)
    committed = found.to_commit()
    assert committed is not None
    assert committed.plan == ()
    found.land(1, Counters())
    assert found.here.source_offset == 15


def test_gap_between_batches_has_no_exact_place_beside_other_writers() -> None:
    found = progress(has_map=False)
    for each in (outgoing((10, 12)), outgoing((14, 15))):
        found.put(each)
    found.land(2, Counters())
    assert found.here.offsets.to_source(7).exactness is not Exactness.EXACT


def test_map_of_unknown_outcome_has_to_lead_there_too_until_a_new_generation() -> None:
    found = progress()
    found.committed = POSITION
    found.doubt(replace(POSITION, plan=(Run(6, 13, 0),)), generation=3)
    found.put(outgoing((10, 11)))
    assert found.is_planned(3)
    found.put(outgoing((11, 12)))
    assert not found.is_planned(3)
    assert found.is_planned(4)
    assert not found.doubts


def test_map_that_is_sent_again_is_one_doubt_of_the_newer_generation() -> None:
    found = progress()
    for generation in (2, 2, 3):
        found.doubt(replace(POSITION), generation)
    assert found.doubts == 1
    found.end_doubts(3)
    assert found.doubts == 1


def landed(lots: Sequence[Outgoing], batches: int) -> tuple[Progress, Counters]:
    found, counters = progress(), Counters()
    for each in lots:
        found.put(each)
    found.land(batches, counters)
    return found, counters


def test_refused_batches_go_out_by_halves_up_to_their_end() -> None:
    found, _ = landed([outgoing((10, 12)), outgoing((12, 15))], 0)
    refused = found.head(2)
    found.send_less(refused, always=False)
    assert found.most_bytes_at(14) == refused.size // 2
    assert found.most_bytes_at(15) > refused.size
    found.send_less(refused, always=False)
    assert found.most_bytes_at(10) == refused.size // 4


def test_limit_of_the_topic_holds_for_later_batches() -> None:
    found, _ = landed([outgoing((10, 12))], 0)
    refused = found.head(1)
    found.send_less(refused, always=True)
    assert found.most_bytes_at(1_000) == refused.size // 2
