"""The verdicts of the gates, from values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from shoal.client.groups import GroupType
from shoal.mirroring.cutover.gates import (
    MOST_LAG,
    State,
    Verdict,
    complete_verdict,
    groups_verdict,
    in_step_verdict,
    mirror_verdict,
    quiet_verdict,
    unmoved_verdict,
    verified_verdict,
)
from shoal.mirroring.cutover.partition_seen import PartitionSeen
from shoal.mirroring.model.offset_map import Exactness
from shoal.mirroring.sync.report import Action, Direction, GroupOffset, GroupReport, GroupsReport
from shoal.topic_partition import TopicPartition
from shoal.verify import Difference, DifferenceKind, OffsetRange, PartitionReport, VerifyReport
from tests.mirroring.cutover.positions import position_at
from tests.snapshots import Texts

ORDERS = TopicPartition("orders", 0)
PAID = TopicPartition("paid", 0)


def seen(
    end: int, position: int | None, *, of: TopicPartition = ORDERS, start: int = 0, problem: str = ""
) -> PartitionSeen:
    known = None if position is None else position_at(position)
    return PartitionSeen(of, of, start, end, end, known, problem=problem)


def offset(action: Action, exactness: Exactness | None = Exactness.EXACT, detail: str = "") -> GroupOffset:
    return GroupOffset("app", ORDERS, 7, action, detail, ORDERS, 6, exactness)


def report(*offsets: GroupOffset, state: str = "Empty", problem: str = "") -> GroupsReport:
    group = GroupReport("app", GroupType.CLASSIC, state, offsets, problem)
    return GroupsReport(Direction.FORWARD, [group])


def verified(*differences: Difference, behind: OffsetRange | None = None, why: str = "") -> VerifyReport:
    partition = PartitionReport(ORDERS, ORDERS, differences=differences, not_mirrored=behind, reason=why)
    return VerifyReport("g", (partition,), (), 0.0)


def _told(verdict: Verdict) -> list[str]:
    return [verdict.state.name, *verdict.reasons]


MISSING = Difference(DifferenceKind.MISSING, OffsetRange(3, 4), OffsetRange(3, 3), 1)


@pytest.mark.parametrize(
    ("holder", "partitions", "begun"),
    [
        ("shoal-a", [seen(9, 9)], {}),
        ("shoal-a", [seen(9, 4), seen(9, 4, of=PAID)], {ORDERS: 3, PAID: 0}),
        (None, [seen(9, 9)], {}),
        ("shoal-a", [seen(MOST_LAG, 1), seen(9, 4, of=PAID)], {ORDERS: 0, PAID: 0}),
        ("shoal-a", [seen(99, 50, start=95)], {ORDERS: 94}),
        ("shoal-a", [seen(9, None)], {ORDERS: 0}),
        (None, [seen(9, 9, problem="gone")], {}),
    ],
)
def test_mirror_gate(
    holder: str | None, partitions: Sequence[PartitionSeen], begun: Mapping[TopicPartition, int], texts: Texts
) -> None:
    texts(_told(mirror_verdict("g", holder, partitions, begun)))


@pytest.mark.parametrize(
    ("drift", "groups"),
    [
        ([], report(offset(Action.WRITE))),
        ([], report(offset(Action.UNCHANGED, Exactness.AHEAD), state="Stable")),
        (["topic orders needs retention.ms='1'"], report()),
        ([], report(problem="a share group")),
        ([], report(offset(Action.REFUSED, None, "no READ"))),
        ([], report(offset(Action.WRITE, Exactness.AT_LEAST))),
        ([], replace(report(offset(Action.WRITE)), warnings=["groups of broker 1 may be missing: …"])),
        ([], report(replace(offset(Action.FURTHER), present=9))),
    ],
)
def test_in_step_gate(drift: list[str], groups: GroupsReport, texts: Texts) -> None:
    texts(_told(in_step_verdict(drift, groups, (), accepts_at_least=False)))


@pytest.mark.parametrize(
    ("partition", "still_s", "last_moved"),
    [
        (seen(9, 9), 10.0, ()),
        (seen(9, 9), 4.0, ()),
        (seen(9, 9), 0.0, (ORDERS,)),
        (replace(seen(9, 4), stable_end=4), 60.0, ()),
        (replace(seen(9, 9), unreplicated=3), 60.0, ()),
    ],
)
def test_quiet_gate(
    partition: PartitionSeen, still_s: float, last_moved: Sequence[TopicPartition], texts: Texts
) -> None:
    texts(_told(quiet_verdict([partition], still_s, last_moved, 10.0)))


@pytest.mark.parametrize(
    "partitions",
    [
        [seen(9, 3)],
        [seen(10, 9)],
        [seen(8, 8)],
        [],
        [replace(seen(9, 9), unreplicated=1)],
        [seen(9, 9), seen(0, None, of=PAID)],
    ],
)
def test_ends_behind_the_cut(partitions: Sequence[PartitionSeen], texts: Texts) -> None:
    texts(_told(unmoved_verdict({ORDERS: 9}, partitions)))


@pytest.mark.parametrize(
    "partition",
    [seen(9, 9), seen(12, 10), seen(9, 8), seen(9, None), seen(9, None, start=9), seen(0, None, of=PAID)],
)
def test_complete_gate(partition: PartitionSeen, texts: Texts) -> None:
    texts(_told(complete_verdict({ORDERS: 9}, [partition])))


@pytest.mark.parametrize(
    ("found", "is_whole"),
    [
        (verified(), True),
        (verified(behind=OffsetRange(7, 9)), False),
        (verified(behind=OffsetRange(7, 9)), True),
        (verified(MISSING), False),
        (verified(why="why"), True),
    ],
)
def test_verification_of_a_gate(found: VerifyReport, is_whole: bool, texts: Texts) -> None:
    texts(_told(verified_verdict(found, is_whole=is_whole)))


@pytest.mark.parametrize(
    "action", [Action.ACTIVE, Action.FURTHER, Action.REFUSED, Action.UNCONFIRMED, Action.NO_POSITION]
)
def test_groups_gate_waits_for_offsets_that_cannot_follow(action: Action) -> None:
    verdict = groups_verdict(report(offset(action)), (), accepts_at_least=True)
    assert (verdict.state, len(verdict.reasons)) == (State.WAITING, 1)


def test_groups_gate_needs_no_position_of_an_empty_partition() -> None:
    found = report(offset(Action.NO_POSITION, None))
    assert groups_verdict(found, [seen(0, None)], accepts_at_least=False).state is State.PASSED


@pytest.mark.parametrize(
    ("exactness", "accepts_at_least", "is_rehearsal", "state"),
    [
        (Exactness.AT_LEAST, False, False, State.WAITING),
        (Exactness.AT_LEAST, True, False, State.PASSED),
        (Exactness.AT_LEAST, False, True, State.WAITING),
        (Exactness.AHEAD, True, False, State.WAITING),
        (Exactness.AHEAD, False, True, State.PASSED),
    ],
)
def test_groups_gate_demands_exactness(
    exactness: Exactness, accepts_at_least: bool, is_rehearsal: bool, state: State
) -> None:
    found = report(offset(Action.WRITE, exactness))
    verdict = groups_verdict(found, (), accepts_at_least=accepts_at_least, is_rehearsal=is_rehearsal)
    assert verdict.state is state


@pytest.mark.parametrize(("start", "state"), [(7, State.WAITING), (8, State.PASSED)])
def test_groups_gate_waits_for_a_group_whose_records_the_source_alone_has(start: int, state: State) -> None:
    late = replace(offset(Action.WRITE, detail="b:1 has deleted earlier records"), begins_late=True)
    found = report(late)
    verdict = groups_verdict(found, [seen(9, 9, start=start)], accepts_at_least=False)
    assert verdict.state is state
    assert in_step_verdict([], found, [seen(9, 9, start=start)], accepts_at_least=True).state is state


@pytest.mark.parametrize(("end", "state"), [(6, State.WAITING), (7, State.PASSED)])
def test_in_step_gate_waits_for_a_group_beyond_the_end_of_the_source(end: int, state: State) -> None:
    """No copy would make its translation exact."""
    found = report(offset(Action.WRITE, Exactness.AHEAD))
    verdict = in_step_verdict([], found, [seen(end, 6)], accepts_at_least=False)
    assert verdict.state is state
    reason = "group 'app' at orders-0 is at 7, beyond the end at the source (6)"
    assert list(verdict.reasons) == ([reason] if state is State.WAITING else [])


def test_groups_gate_waits_for_a_broker_that_lists_no_groups() -> None:
    found = replace(report(offset(Action.WRITE)), warnings=["groups of broker 1 may be missing: …"])
    verdict = groups_verdict(found, (), accepts_at_least=False)
    assert verdict == Verdict(State.WAITING, list(found.warnings))


def test_gates_wait_for_no_group_that_is_left_out() -> None:
    left_out = GroupReport("shared", GroupType.SHARE, "Stable", (), "a share group", is_left_out=True)
    groups = GroupsReport(Direction.FORWARD, [left_out])
    assert groups_verdict(groups, [], accepts_at_least=False).state is State.PASSED
    assert in_step_verdict([], groups, [], accepts_at_least=False).state is State.PASSED


def test_sentence_of_many_reasons_names_three() -> None:
    sentence = Verdict(State.WAITING, ["a", "b", "c", "d", "e"]).sentence
    assert re.findall(r"\b[a-e]\b|\d", sentence) == ["a", "b", "c", "2"]
