"""A position survives the way through a commit's metadata, or is refused; a sequence is an offset."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.committed_offsets import Committed
from shoal.errors import ConfigError
from shoal.mirroring.model.first_start import FirstStart
from shoal.mirroring.model.offset_map import Milestone, OffsetMap, Stretch
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.runs import Run

OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_IDS = st.none() | st.uuids().map(str)
IDENTITIES = st.builds(
    ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-(2**63), 2**63 - 1)
)

PAIR = MirrorPosition(
    10,
    7,
    ProducerIdentity(5, 0),
    (2, 0),
    "source-id",
    None,
    "rules",
    OffsetMap((Milestone(2, 0),)),
    2,
    begin=4,
    plan=(Run(7, 13, 2), Run(12, 19, 4)),
)


@given(
    st.builds(
        MirrorPosition,
        OFFSETS,
        OFFSETS,
        IDENTITIES,
        st.tuples(OFFSETS, OFFSETS),
        TOPIC_IDS,
        TOPIC_IDS,
        st.text(max_size=64),
        st.just(OffsetMap((Milestone(0, 0),))),
        st.integers(-1, 2**31 - 1),
        st.none() | st.builds(FirstStart, OFFSETS, st.just((("orders.*", None), ("a", "b")))),
        begin=OFFSETS,
    )
)
def test_committed_position_is_read_back(position: MirrorPosition) -> None:
    committed = position.to_committed()
    assert MirrorPosition.from_committed(committed) == position.with_milestone()
    assert committed.offset == position.source_offset
    # offset.metadata.max.bytes, for which Kafka counts characters of UTF-16
    assert len(committed.metadata) <= 4096
    assert committed.metadata.isascii()


def test_metadata_has_the_documented_form() -> None:
    metadata = PAIR.to_committed().metadata
    assert metadata.startswith("shoal4{")
    assert json.loads(metadata.removeprefix("shoal4")) == {
        "destination": 7,
        "producer": [5, 0, 0],
        "origin": [2, 0],
        "topics": ["source-id", None],
        "source_epoch": 2,
        "rules": "rules",
        "map": [1, 2, 0, 0, 8, 7, 0],
        "begin": 4,
        "plan": [0, 3, 0, 5, 1, 2],
    }


PRESENT = (
    b'shoal4{"destination":7,"producer":[5,0,0],"origin":[2,0],'
    b'"topics":["source-id",null],"source_epoch":2,"rules":"rules",'
    b'"map":[0,2,0,0,5,3,0,0,2,1,3,2,0],"begin":4,"plan":[0,3,0,5,1,2]}'
)


def test_position_of_the_present_layout_is_read_with_its_map() -> None:
    position = MirrorPosition.from_committed(Committed(10, PRESENT.decode()))

    assert position is not None
    milestones = Milestone(2, 0), Milestone(7, 3), Milestone(7, 5, Stretch.BROKEN), Milestone(10, 7)
    assert position.offsets == OffsetMap(milestones, is_whole=False)
    assert position == replace(PAIR, milestones=position.offsets)
    assert position.to_committed() == Committed(10, PRESENT.decode())


@pytest.mark.parametrize(
    ("end", "source", "leader_epoch", "plan_left"),
    [(7, 10, 2, 2), (8, 14, 2, 1), (12, 18, 2, 1), (13, 20, 4, 0), (20, 27, 4, 0)],
)
def test_end_of_the_log_is_looked_up_behind_the_record_before_it(
    end: int, source: int, leader_epoch: int, plan_left: int
) -> None:
    position = PAIR.at(end)

    assert (position.source_offset, position.destination_offset) == (source, end)
    assert position.source_leader_epoch == leader_epoch
    assert position.plan == PAIR.plan[2 - plan_left :]


@pytest.mark.parametrize(
    ("run", "end", "plan"),
    [
        pytest.param(Run(12, 19, 4), 15, PAIR.plan, id="the same"),
        pytest.param(Run(12, 22, 4), 15, (Run(7, 13, 2), Run(12, 22, 4)), id="cut otherwise"),
        pytest.param(Run(12, 19, 5), 15, (Run(7, 13, 2), Run(12, 19, 5)), id="of another epoch"),
        pytest.param(Run(15, 22, 4), 17, PAIR.plan, id="further on"),
        pytest.param(Run(15, 25, 4), 17, (*PAIR.plan, Run(15, 25, 4)), id="behind a gap"),
        pytest.param(Run(7, 14, 2), 9, (Run(7, 14, 2),), id="before the last run, cut otherwise"),
    ],
)
def test_map_leads_to_the_records_that_came_and_has_one_run_at_each_place(
    run: Run, end: int, plan: tuple[Run, ...]
) -> None:
    assert PAIR.leading_to([(run, end)]).plan == plan


def test_position_behind_its_last_milestone_continues_the_map() -> None:
    moved = replace(PAIR.with_milestone(), source_offset=20, destination_offset=16)

    assert moved.offsets.milestones[1:] == (Milestone(10, 7), Milestone(20, 16))
    assert moved.moved(source_offset=25).offsets.milestones[-1] == Milestone(25, 16, Stretch.BROKEN)


def test_position_before_its_last_milestone_trusts_nothing_from_there_on() -> None:
    """A program that sets a group's offset back may keep the metadata."""
    position = MirrorPosition.from_committed(Committed(9, PRESENT.decode()))

    assert position is not None
    assert position.offsets.milestones[-2:] == (
        Milestone(7, 5, Stretch.BROKEN),
        Milestone(9, 7, Stretch.BROKEN),
    )


@pytest.mark.parametrize("selections", [(), (("x" * 1900, None),)])
def test_position_with_the_longest_map_has_room_in_the_metadata(
    selections: tuple[tuple[str, str | None], ...],
) -> None:
    offsets = OffsetMap.begun_at(0, 0, is_whole=False)
    step = (2**63 - 1) // 40
    for number in range(1, 40):
        offsets = offsets.reached(number * step, number * step - 1, Stretch((0, 1, 3)[number % 3]))
    largest = 2**63 - 1
    position = MirrorPosition(
        largest,
        largest,
        ProducerIdentity(largest, 2**15 - 1, -(2**63)),
        (largest, largest),
        str(uuid.UUID(int=2**128 - 1)),
        str(uuid.UUID(int=2**128 - 1)),
        "r" * 64,
        offsets,
        2**31 - 1,
        FirstStart(largest, selections),
    )

    committed = position.to_committed()
    assert len(committed.metadata) <= 3500
    read = MirrorPosition.from_committed(committed)
    assert read is not None
    assert len(read.offsets.milestones) >= (10 if selections else 40)

    kept = replace(position, before_cut=offsets.with_at_most(20))
    committed = kept.to_committed()
    assert len(committed.metadata) <= 3500
    read = MirrorPosition.from_committed(committed)
    assert read is not None
    assert read.before_cut == kept.before_cut
    unbounded = kept.to_committed(10_000)
    assert kept.to_committed(len(unbounded.metadata)) == unbounded
    least = MirrorPosition.from_committed(kept.to_committed(0))
    assert least is not None
    assert least.before_cut is None


def test_position_keeps_the_map_of_a_former_life_as_long_as_its_own_begins_there() -> None:
    before = OffsetMap((Milestone(0, 0), Milestone(4, 2), Milestone(8, 7, Stretch.BROKEN)))
    own = OffsetMap((Milestone(8, 7), Milestone(10, 9)), is_whole=False)
    kept = replace(PAIR, source_offset=10, destination_offset=9, plan=(), milestones=own, before_cut=before)
    read = MirrorPosition.from_committed(kept.to_committed())
    assert read is not None
    assert read.offsets == own
    assert read.all_offsets == OffsetMap((*before.milestones, Milestone(10, 9)))
    lost = replace(read, source_offset=6, destination_offset=5, milestones=own.cut(6, 5))
    assert lost.all_offsets == lost.offsets


@pytest.mark.parametrize("metadata", ["", "words", "{}", '{"destination": 1}', "SHOAL1{}"])
def test_commit_of_another_program_is_no_position(metadata: str) -> None:
    assert MirrorPosition.from_committed(Committed(10, metadata)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"destination": "7"},
        {"destination": None},
        {"destination": True},
        {"destination": 7.0},
        {"producer": [5]},
        {"producer": []},
        {"producer": 5},
        {"producer": [5, 0, 0, 0]},
        {"producer": ["5", 0, 0]},
        {"origin": [2]},
        {"origin": None},
        {"topics": ["a"]},
        {"topics": [1, 2]},
        {"source_epoch": "2"},
        {"rules": 1},
        # Numbers that no field of the protocol holds.
        {"destination": -1},
        {"destination": 2**63},
        {"producer": [2**63, 0, 0]},
        {"producer": [-1, 0, 0]},
        {"producer": [5, 2**15, 0]},
        {"producer": [5, 0, 2**63]},
        {"origin": [2, 10**30]},
        {"source_epoch": -2},
        {"map": None},
        {"map": []},
        {"map": [1]},
        {"map": [1, 10, 7]},
        {"map": [1, "10", 7, 0]},
        {"map": [1, 10, 7.0, 0]},
        {"map": [1, 10, True, 0]},
        {"map": [1, 10, 7, 2]},
        {"map": [1, 10, 7, 0, 0]},
        {"map": [1, 10, 7, 0, 0, -1, 0]},
        {"map": [1, -1, 0, 0]},
        {"map": [1, 2**63, 7, 0]},
        {"begin": None},
        {"begin": -1},
        {"plan": None},
        {"plan": [1]},
        {"plan": [1, 2]},
        {"plan": [-1, 0, 0]},
        {"plan": [0, -11, 0]},
        {"plan": [0, 2**63, 0]},
        {"plan": [2**63, 0, 0]},
        {"plan": [0, 0, 2**31]},
        {"plan": [0, 0, -9]},
        {"plan": [1, "2", 3]},
    ],
)
def test_malformed_position_of_shoal_is_refused(change: dict[str, Any]) -> None:
    committed = PAIR.to_committed()
    values = json.loads(committed.metadata.removeprefix("shoal4")) | change
    with pytest.raises(ConfigError, match=r"another.*version"):
        MirrorPosition.from_committed(replace(committed, metadata="shoal4" + json.dumps(values)))


@pytest.mark.parametrize(
    "metadata", ["shoal4", "shoal4{", "shoal4[]", "shoal1{}", "shoal4{}", "shoal40{}", "shoal4" + "[" * 4000]
)
def test_position_of_another_version_is_refused(metadata: str) -> None:
    with pytest.raises(ConfigError, match=r"version.*another"):
        MirrorPosition.from_committed(Committed(10, metadata))


@pytest.mark.parametrize(
    ("offset", "base", "sequence"),
    [
        (0, 0, 0),
        (7, 0, 7),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, 0),
        (2**32 + 5, 0, 5),
        (2**63 - 1, 0, 2**31 - 1),
        (10, 10, 0),
        (2**31 + 10, 10, 0),
    ],
)
def test_sequence_follows_the_destination_offset(offset: int, base: int, sequence: int) -> None:
    assert ProducerIdentity(5, 0, base).sequence(offset) == sequence
