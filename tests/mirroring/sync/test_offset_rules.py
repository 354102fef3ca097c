"""The rules about one committed offset, by cases."""

from __future__ import annotations

import pytest

from shoal.client.group_offsets import CommittedValue
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.offset_map import Exactness, Milestone, OffsetMap, Stretch, Translation
from shoal.mirroring.sync.mark import Mark
from shoal.mirroring.sync.offset_rules import Action, ClusterIds, OffsetDecision, decide_offset, had_incident

CLUSTERS = ClusterIds("A", "B")
EXACT, AHEAD, AT_LEAST = Exactness.EXACT, Exactness.AHEAD, Exactness.AT_LEAST


def value(offset: int, metadata: str = "") -> CommittedValue:
    return CommittedValue(offset, metadata, 0)


def marked(
    source: int, offset: int, exactness: Exactness = EXACT, metadata: str = "", cluster: str = "A"
) -> CommittedValue:
    mark = Mark.of(cluster, value(source, metadata), Translation(offset, exactness))
    return value(offset, mark.to_metadata())


AT_100 = value(100)


def decided(
    translation: Translation,
    present: CommittedValue | None,
    committed: CommittedValue = AT_100,
    *,
    is_active: bool = False,
    log_start: int = 0,
    incident: bool = False,
) -> OffsetDecision:
    return decide_offset(
        committed,
        translation,
        present,
        CLUSTERS,
        is_active=is_active,
        log_start=log_start,
        had_incident=incident,
    )


UNSTABLE = CommittedValue(-1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)

CASES = [
    # translation, the destination's offset, whether its group has members, the action
    (Translation(90, EXACT), None, False, Action.WRITE),
    (Translation(90, EXACT), None, True, Action.ACTIVE),
    (Translation(90, AHEAD), None, False, Action.WRITE),
    (Translation(90, AT_LEAST), None, False, Action.WRITE),
    # an offset of another program: forwards only
    (Translation(90, EXACT), value(89, "theirs"), False, Action.WRITE),
    (Translation(90, EXACT), value(90, "theirs"), False, Action.UNCHANGED),
    (Translation(90, EXACT), value(90, "theirs"), True, Action.UNCHANGED),
    (Translation(90, EXACT), value(91, "theirs"), False, Action.FURTHER),
    (Translation(90, EXACT), value(91), False, Action.FURTHER),
    (Translation(90, EXACT), value(91, "theirs"), True, Action.ACTIVE),
    # the same of a mark of another cluster, and of a mark that a consumer committed at another offset
    (Translation(90, EXACT), marked(100, 95, cluster="C"), False, Action.FURTHER),
    (Translation(90, EXACT), value(95, marked(100, 94).metadata), False, Action.FURTHER),
    # an offset that an open transaction changes is unknown until its end
    (Translation(90, EXACT), UNSTABLE, False, Action.REFUSED),
    (Translation(90, EXACT), UNSTABLE, True, Action.ACTIVE),
    # an offset of shoal's own follows in both directions
    (Translation(90, EXACT), marked(100, 90), False, Action.UNCHANGED),
    (Translation(90, EXACT), marked(80, 70), False, Action.WRITE),
    (Translation(90, EXACT), marked(120, 110), False, Action.WRITE),
    (Translation(90, EXACT), marked(120, 110), True, Action.ACTIVE),
    # the same offset with another exactness or other metadata is written again
    (Translation(90, EXACT), marked(100, 90, AHEAD), False, Action.WRITE),
    (Translation(90, EXACT), marked(100, 90, metadata="old"), False, Action.WRITE),
]


@pytest.mark.parametrize(("translation", "present", "is_active", "action"), CASES)
def test_decide_by_the_offset_of_the_destination(
    translation: Translation, present: CommittedValue | None, is_active: bool, action: Action
) -> None:
    decision = decided(translation, present, is_active=is_active)
    assert decision.action is action
    assert (decision.mark is not None) == (action is Action.WRITE)
    assert decision.translation == translation


def test_decide_to_write_passes_on_the_metadata_behind_the_mark() -> None:
    decision = decided(Translation(90, EXACT), None, value(100, "mine"))
    assert decision.mark is not None
    assert decision.mark.to_metadata() == "translated-by-shoal/1 A 100 90 exact mine"


def test_decide_after_its_own_write_is_unchanged() -> None:
    committed = value(100, "m" * 4096)
    first = decided(Translation(90, AHEAD), None, committed)
    assert first.mark is not None
    present = value(90, first.mark.to_metadata())
    assert decided(Translation(90, AHEAD), present, committed).action is Action.UNCHANGED


def test_decide_before_the_log_start_begins_there() -> None:
    """Otherwise a consumer with auto.offset.reset=latest would skip all records."""
    decision = decided(Translation(90, EXACT), None, log_start=95)
    assert decision == (Action.WRITE, Translation(95, EXACT), decision.mark, True)
    assert decision.mark is not None
    assert decision.mark.exactness is AT_LEAST  # nothing may count on from it
    present = value(95, decision.mark.to_metadata())
    assert decided(Translation(90, EXACT), present, log_start=95).action is Action.UNCHANGED


@pytest.mark.parametrize(
    ("present", "incident", "action", "offset"),
    [
        (marked(100, 90), False, Action.UNCHANGED, 90),
        (marked(100, 90), True, Action.WRITE, 80),  # offsets may have moved
        (marked(99, 90), False, Action.WRITE, 80),  # the translation of another offset
        (marked(100, 90, AT_LEAST), False, Action.WRITE, 80),
        (marked(100, 70), False, Action.WRITE, 80),  # below what is certain now
        (value(90, "theirs"), False, Action.FURTHER, 80),
    ],
)
def test_decide_keeps_an_earlier_exact_translation_of_an_idle_group(
    present: CommittedValue, incident: bool, action: Action, offset: int
) -> None:
    """Retention deletes the records that made the translation exact."""
    decision = decided(Translation(80, AT_LEAST), present, incident=incident)
    assert (decision.action, decision.translation.offset) == (action, offset)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (OffsetMap((Milestone(0, 0), Milestone(9, 5))), False),
        (OffsetMap((Milestone(0, 0), Milestone(9, 5, Stretch.UNPROVED))), False),
        (OffsetMap((Milestone(0, 0), Milestone(9, 5, Stretch.BROKEN), Milestone(12, 8))), True),
        (OffsetMap((Milestone(3, 0), Milestone(9, 5)), is_whole=False), True),
    ],
)
def test_had_incident_of_a_broken_or_cut_map(offsets: OffsetMap, expected: bool) -> None:
    assert had_incident(offsets) is expected
