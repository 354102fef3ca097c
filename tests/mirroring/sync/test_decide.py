"""The rules about one committed offset, by cases."""

from __future__ import annotations

import pytest

from shoal.client.config import IsolationLevel
from shoal.client.group_offsets import CommittedValue
from shoal.error_codes import ErrorCode
from shoal.errors import ConfigError
from shoal.mirroring.model.offset_map import Exactness, Milestone, OffsetMap, Translation
from shoal.mirroring.sync.decide import Seen, decide
from shoal.mirroring.sync.report import Action, GroupOffset, Mark
from shoal.mirroring.sync.translations import MirroredCopy, MirroredLog
from shoal.topic_partition import TopicPartition

EXACT, AHEAD, AT_LEAST = Exactness.EXACT, Exactness.AHEAD, Exactness.AT_LEAST
PARTITION = TopicPartition("topic", 0)


def copied(*, incident: bool = False) -> MirroredCopy:
    log = MirroredLog(None, IsolationLevel.READ_COMMITTED, lambda batch, first: [])  # type: ignore[arg-type]
    offsets = OffsetMap((Milestone(0, 0), Milestone(1_000, 900)))
    return MirroredCopy(PARTITION, PARTITION, offsets, (None, None), log, incident)


def value(offset: int, metadata: str = "") -> CommittedValue:
    return CommittedValue(offset, metadata, 0)


def marked(
    source: int, offset: int, exactness: Exactness = EXACT, metadata: str = "", cluster: str = "A"
) -> CommittedValue:
    mark = Mark.of(cluster, value(source, metadata), Translation(offset, exactness))
    return value(offset, mark.to_metadata())


AT_100 = value(100)


def decided(
    translation: Translation | None,
    present: CommittedValue | None,
    committed: CommittedValue = AT_100,
    *,
    is_active: bool = False,
    log_start: int = 0,
    incident: bool = False,
    began: int | None = None,
) -> GroupOffset:
    seen = Seen(
        "g",
        PARTITION,
        PARTITION,
        committed,
        present,
        copied(incident=incident),
        is_active=is_active,
        log_start=log_start,
        began=began,
        ours=None if present is None else Mark.read(present, "A"),
    )
    return decide(seen, translation, "A", "the other cluster")


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
    outcome = decided(translation, present, is_active=is_active)
    assert outcome.action is action
    assert (outcome.mark is not None) == (action is Action.WRITE)
    assert (outcome.translated, outcome.exactness) == translation


def metadata_of(decision: GroupOffset) -> str:
    assert decision.mark is not None
    return decision.mark.to_metadata()


def test_decide_to_write_passes_on_the_metadata_behind_the_mark() -> None:
    decision = decided(Translation(90, EXACT), None, value(100, "mine"))
    assert metadata_of(decision) == "translated-by-shoal/1 A 100 90 exact mine"


def test_mark_of_a_marked_offset_passes_on_the_consumers_metadata_alone() -> None:
    first = marked(7, 5, metadata="mine")
    assert Mark.of("B", first, Translation(3, EXACT)).to_metadata() == (
        "translated-by-shoal/1 B 5 3 exact mine"
    )


def test_decide_after_its_own_write_is_unchanged() -> None:
    committed = value(100, "m" * 4096)
    whole = metadata_of(decided(Translation(90, AHEAD), None, committed))
    for metadata in (whole, whole.rstrip("m").rstrip()):  # the broker may allow the mark alone
        present = value(90, metadata)
        assert decided(Translation(90, AHEAD), present, committed).action is Action.UNCHANGED
        assert decided(Translation(91, AHEAD), present, committed).action is Action.WRITE


def test_decide_before_the_beginning_of_the_copy_marks_no_exact_place() -> None:
    outcome = decided(Translation(0, EXACT), None, began=101)
    assert outcome.begins_late
    assert "source offset 101" in outcome.detail
    assert outcome.mark is not None
    assert outcome.mark.exactness is AT_LEAST


def test_decide_with_an_error_in_place_of_the_translation_refuses_the_offset() -> None:
    seen = Seen("g", PARTITION, PARTITION, AT_100, None, copied())
    outcome = decide(seen, ConfigError("the leader does not answer"), "A", "the other cluster")
    assert (outcome.action, outcome.detail) == (Action.REFUSED, "the leader does not answer")
    assert outcome.mark is None


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
    outcome = decided(Translation(80, AT_LEAST), present, incident=incident)
    assert (outcome.action, outcome.translated) == (action, offset)
