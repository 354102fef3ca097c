"""Scenarios between embedded brokers keep their promises, and break them if the mirror is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from shoal.mirroring.model.offset_map import OffsetMap, Taken, Translation
from shoal.mirroring.sync import group_decisions
from shoal.mirroring.sync.offset_rules import OffsetDecision, decide_offset
from shoal.mirroring.task.resume import nonempty
from shoal.mirroring.task.resume.preceding import Preceding
from tests.campaigns.clusters.scenarios import SCENARIOS, ScenarioPlan, run_scenario
from tests.campaigns.clusters.scenarios.consumers import ConsumersMove
from tests.campaigns.clusters.scenarios.promises import Findings, exact, exact_or_stopped
from tests.two_brokers import Content

SEED = 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_keeps_its_promise(name: str) -> None:
    for number in range(4):
        _, problems = run_scenario(ScenarioPlan(SEED, number, name), SCENARIOS[name]())
        assert problems == [], number


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (Preceding.SHOWN, "source topic deleted and filled again with its records behind others"),
        (Preceding.NOT_SHOWN, "positions deleted, and nothing else changed"),
        (Preceding.CONTRADICTED, "positions deleted, and nothing else changed"),
    ],
)
def test_scenario_without_comparison_fails(
    monkeypatch: pytest.MonkeyPatch, answer: Preceding, name: str
) -> None:
    """Of two dozen trials most do; a mirror that always gives the same answer must fail them."""
    monkeypatch.setattr(nonempty, "compare_preceding", lambda *args, **more: answer)
    plans = (ScenarioPlan(SEED, number, name) for number in range(24))
    assert any(run_scenario(plan, SCENARIOS[name]())[1] for plan in plans)


def _translated_by(shift: int) -> Callable[..., Translation]:
    """Return a translation to the destination that is wrong by some records."""
    right = OffsetMap.to_destination

    def translate(offsets: OffsetMap, offset: int, taken: Taken) -> Translation:
        found = right(offsets, offset, taken)
        return found._replace(offset=max(0, found.offset + shift))

    return translate


def _decided_without_present(*args: Any, **more: Any) -> OffsetDecision:
    """Decide as if the other cluster had no offset of the group."""
    committed, translation, _, clusters = args
    return decide_offset(committed, translation, None, clusters, **more)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (OffsetMap, "to_destination", _translated_by(1)),
        (OffsetMap, "to_destination", _translated_by(-1)),
        (group_decisions, "decide_offset", _decided_without_present),
    ],
    ids=["skips a record", "repeats a record", "moves backwards"],
)
def test_scenario_of_consumers_with_a_wrong_translation_fails(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, wrong: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    plans = (ScenarioPlan(SEED, number, ConsumersMove.name) for number in range(24))
    assert any(run_scenario(plan, ConsumersMove())[1] for plan in plans)


def test_scenario_of_a_damaged_copy_breaks_its_promise() -> None:
    ever = [Content(number, b"key", b"value %d" % number, ()) for number in range(6)]

    def found(copy: Sequence[Content], stopped: Sequence[str] = (), lost: int = 0) -> Findings:
        return Findings(ever, ever, copy, stopped, lost, lambda sentence: sentence == "documented")

    for promise in (exact, exact_or_stopped):
        assert promise(found(ever)) == []
        assert promise(found(ever[:2] + ever[3:]))
        assert promise(found([*ever[:3], ever[4], ever[3], ever[5]]))
    assert exact(found([*ever, ever[5]]))
    assert exact_or_stopped(found([*ever, ever[5]]))
    assert exact_or_stopped(found(ever[:3], ["documented"])) == []
    assert exact_or_stopped(found(ever[:3], ["something else"]))
    assert exact_or_stopped(found([*ever[:2], ever[3]], ["documented"]))
    assert exact_or_stopped(found(ever[1:], lost=1)) == []
    # The topic was filled again, and its first two records came once more after the stop.
    again = Findings([*ever, *ever[:2]], ever, ever[2:4], ["documented"], 0, lambda _: True)
    assert exact_or_stopped(again) == []
    assert exact_or_stopped(replace(again, stopped=[]))
