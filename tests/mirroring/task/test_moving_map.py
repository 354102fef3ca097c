"""The map of a partition leads to what is queued, is ahead of what goes out, and is behind what landed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.runs import Run
from shoal.mirroring.task.moving_map import Doubt, LandedEnd, MovingMap

POSITION = MirrorPosition(10, 5, ProducerIdentity(5, 0), (5, 0), None, None, None, "rules", 0)


def moving(position: MirrorPosition = POSITION) -> MovingMap:
    found = MovingMap()
    found.put(position)
    return found


def place_of(found: MovingMap, destination: int) -> tuple[int, int]:
    position = found.get()
    assert position is not None
    run = position.run_at(destination)
    return run.source_at(destination), run.leader_epoch


#: How a fetch cuts a source: the gap before each batch, its records, and its leader epoch.
CUTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 1)), min_size=1, max_size=6)


@given(st.lists(CUTS, min_size=1, max_size=4))
def test_map_leads_to_the_records_that_were_queued_last(fetches: list[list[tuple[int, int, int]]]) -> None:
    """Each fetch begins again at the position, and the source is cut otherwise then."""
    found = moving()
    expected: dict[int, tuple[int, int]] = {}
    for fetch in fetches:
        destination, source = POSITION.destination_offset, POSITION.source_offset
        for gap, records, leader_epoch in fetch:
            source += gap
            found.lead_to(Run(destination, source, leader_epoch), destination + records)
            for number in range(records):
                expected[destination + number] = source + number, leader_epoch
            destination, source = destination + records, source + records
        here = {each: place for each, place in expected.items() if each < destination}
        assert {each: place_of(found, each) for each in here} == here


def test_run_that_another_cut_contradicts_takes_those_behind_it_away() -> None:
    found = moving(replace(POSITION, plan=(Run(5, 12, 0), Run(6, 15, 0), Run(7, 18, 0))))
    found.lead_to(Run(5, 18, 0), 14)
    position = found.get()
    assert position is not None
    assert position.plan == (Run(5, 18, 0),)


def test_map_without_a_commit_leads_nothing_out() -> None:
    found = moving()
    assert not found.is_committed_up_to(5, 6, generation=0)
    found.committed = found.get()
    assert found.is_committed_up_to(5, 6, generation=0)


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
    found = moving()
    found.committed = replace(POSITION, **change)  # type: ignore[arg-type]
    assert not found.is_committed_up_to(5, 8, generation=0)


def test_commit_whose_map_differs_only_behind_the_batch_leads_it_out() -> None:
    found = moving()
    found.committed = replace(POSITION, plan=(Run(6, 13, 0),))
    assert found.is_committed_up_to(5, 6, generation=0)


def test_map_of_unknown_outcome_has_to_lead_there_too_until_a_new_generation() -> None:
    found = moving()
    found.committed = POSITION
    found.doubt(replace(POSITION, plan=(Run(6, 13, 0),)), generation=3)
    assert found.is_committed_up_to(5, 6, generation=3)
    assert not found.is_committed_up_to(5, 7, generation=3)
    assert found.is_committed_up_to(5, 7, generation=4)
    assert found.doubts == []


def test_map_that_is_sent_again_is_one_doubt_of_the_newer_generation() -> None:
    found = moving()
    for generation in (2, 2, 3):
        found.doubt(replace(POSITION), generation)
    assert found.doubts == [Doubt(POSITION, 3)]


def test_landed_records_leave_their_runs_behind_as_milestones() -> None:
    found = moving(replace(POSITION, plan=(Run(7, 15, 0), Run(20, 40, 0))))
    found.land(LandedEnd(18, 18, 10, bytes(61), 0))
    position = found.get()
    assert position is not None
    assert (position.source_offset, position.destination_offset) == (18, 10)
    assert position.plan == (Run(20, 40, 0),)
    assert [each[:2] for each in position.offsets.milestones][-3:] == [(12, 7), (15, 7), (18, 10)]


def test_offsets_before_a_gap_at_the_end_of_a_batch_keep_their_exact_translation() -> None:
    """A rebuilt batch may end with holes, which its position has passed."""
    found = moving()
    for source, destination in ((20, 8), (30, 10)):
        found.lead_to(Run(destination - 3, source - 8, 0), destination)
        found.land(LandedEnd(source, source - 5, destination, bytes(61), 0))
    position = found.get()
    assert position is not None
    translated = position.offsets.to_destination(14)
    assert (translated.offset, translated.exactness) == (7, Exactness.EXACT)
