"""Each of the rules for resuming in a source that changed is needed, and together they are enough.

``test_compacted_source.py`` and ``test_resume.py`` in ``tests/mirroring/task/resume`` apply such traces to
the real code.
"""

from __future__ import annotations

import pytest

from tests.model.source import Compaction, SourceRule, check_source

ALL = frozenset(SourceRule)


def without(rule: SourceRule) -> Compaction:
    return Compaction(ALL - {rule})


@pytest.mark.parametrize(
    ("updates", "states"),
    [
        (5, 47_277),
        pytest.param(6, 354_593, marks=[pytest.mark.long, pytest.mark.timeout(1800)]),
    ],
)
def test_mirror_by_all_rules_is_exact_and_stops_only_if_undecided(updates: int, states: int) -> None:
    found = check_source(Compaction(ALL, updates))
    assert found.violation is None, "\n".join(found.trace)
    assert set(found.endings) == {"done", "several places fit"}
    assert found.states == states


def test_comparison_of_count_and_last_record_loses_records() -> None:
    found = check_source(without(SourceRule.COMPARE_ALL))
    assert found.violation == "lost"
    assert found.trace == (
        "K1 is written to the source",
        "K1 is written to the source",
        "K1 is written to the source",
        "K2 is written to the source",
        "K1 is written to the source",
        "K1 is mirrored",
        "K1 is mirrored",
        "K1 is mirrored",
        "the mirror dies",
        "compaction takes K1 at 0",
        "compaction takes K1 at 1",
        "continues at 5",
    )


def test_choice_of_the_last_fitting_place_leaves_an_older_value() -> None:
    found = check_source(without(SourceRule.ONLY_HARMLESS))
    assert found.violation == "older value"
    assert found.trace == (
        "K1 is written to the source",
        "K2 is written to the source",
        "K1 is written to the source",
        "f1 is written to the source",
        "f1 is written to the source",
        "K1 is mirrored",
        "K2 is mirrored",
        "the mirror dies",
        "compaction takes K1 at 0",
        "compaction takes K2 at 1",
        "compaction takes f1 at 3",
        "continues at 3",
        "f1 is mirrored",
    )


def test_source_with_stale_leader_is_taken_for_truncated() -> None:
    found = check_source(without(SourceRule.AWAIT_LEADER))
    assert found.endings["nothing fits"][-4:] == (
        "K1 is mirrored",
        "the mirror dies",
        "a new leader shows the source up to 1",
        "stops: nothing fits",
    )
