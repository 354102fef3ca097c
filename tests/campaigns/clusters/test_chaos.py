"""Some of the hundreds of trials of `make chaos`, each drawn from its seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.mirroring.model.offset_map import OffsetMap, Taken, Translation
from shoal.mirroring.sync import group_decisions
from shoal.mirroring.sync.offset_rules import OffsetDecision, decide_offset
from shoal.mirroring.task.resume import nonempty
from shoal.mirroring.task.resume.preceding import Preceding
from tests.campaigns.clusters.arena import Arena, open_arena
from tests.campaigns.clusters.plan import (
    AGES,
    COMMIT_EVENTS,
    COORDINATOR_EVENTS,
    KINDS,
    OVERLAP_EVENTS,
    Api,
    Change,
    Event,
    EventKind,
    Kind,
    Meanwhile,
    Network,
    draw,
    kind_of,
)
from tests.campaigns.clusters.report import line_of
from tests.campaigns.clusters.scenarios import SCENARIOS, ScenarioPlan, run_scenario
from tests.campaigns.clusters.scenarios.consumers import ConsumersMove
from tests.campaigns.clusters.scenarios.promises import Findings, exact, exact_or_stopped
from tests.campaigns.clusters.trial import run_trial
from tests.two_brokers import Content

#: The faults drawn from it are stated beside each trial's number.
SEED = 0


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with open_arena() as opened:
        yield opened


def test_plan_depends_only_on_its_seed() -> None:
    assert draw(1, 2) == draw(1, 2)
    assert len({str(draw(seed, number)) for seed in range(3) for number in range(30)}) == 90


def test_long_run_has_each_kind_of_trial_in_its_share() -> None:
    kinds = [kind_of(number) for number in range(400)]
    assert set(kinds) == set(Kind) == set(KINDS)
    assert sum(kind is Kind.PRODUCT for kind in kinds) == 60
    for kind in (Kind.TOPICS, Kind.MAKER, Kind.CONSUMERS):
        assert kinds.count(kind) == 20
    assert sum(kind.is_within for kind in kinds) == 200
    plans = [draw(SEED, number) for number, kind in enumerate(kinds) if not kind.is_within]
    assert {plan.age for plan in plans} == set(AGES)
    network = [fault for plan in plans for fault in plan.faults if isinstance(fault, Network)]
    assert len({(fault.api, fault.step) for fault in network}) > 30


def test_topic_changes_occur_at_every_moment_with_every_policy() -> None:
    plans = [draw(SEED, number, Kind.TOPICS) for number in range(200)]
    changes = [plan.topic_change for plan in plans]
    drawn = {(each.change, each.meanwhile) for each in changes if each is not None}
    assert drawn == set(itertools.product(Change, Meanwhile))
    assert {each.goes_on for each in changes if each and each.change is Change.RECREATED} == {True, False}
    assert {each.latest for each in changes if each and each.change is Change.TOPIC} == {True, False}
    assert not any(draw(SEED, number, Kind.PRODUCT).topic_change for number in range(50))


def test_mirror_maker_plans_have_all_modes() -> None:
    plans = [draw(SEED, number, Kind.MAKER) for number in range(60)]
    assert {(plan.raw, plan.at_least_once) for plan in plans} == set(
        itertools.product((True, False), repeat=2)
    )


def test_consumers_move_in_both_directions_by_all_protocols_and_their_own_faults_occur() -> None:
    plans = [draw(SEED, number, Kind.CONSUMERS) for number in range(100)]
    groups = [group for plan in plans for group in plan.groups]
    assert all(3 <= len(plan.groups) <= 5 and plan.isolation == "read_committed" for plan in plans)
    assert {len(group.stays) for group in groups} == {1, 2, 3, 4}
    assert {group.protocols for group in groups} == set(itertools.product(("classic", "consumer"), repeat=2))
    assert {stay.applies for group in groups for stay in group.stays} == {True, False}
    faults = [fault for plan in plans for fault in plan.faults]
    assert {*COMMIT_EVENTS, *COORDINATOR_EVENTS} <= {each.kind for each in faults if isinstance(each, Event)}
    apis = {each.api for each in faults if isinstance(each, Network)}
    assert {Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.LIST_GROUPS, Api.FIND_COORDINATOR} <= apis
    assert not any(draw(SEED, number, Kind.PRODUCT).groups for number in range(20))


def test_plans_with_real_brokers_have_controller_and_disk_events() -> None:
    wanted = {EventKind.KILL_CONTROLLER, EventKind.RESTART_CONTROLLER, EventKind.FILL_DISK}

    def drawn(kind: Kind) -> set[EventKind]:
        faults = [fault for number in range(100) for fault in draw(SEED, number, kind).faults]
        return {fault.kind for fault in faults if isinstance(fault, Event)} & wanted

    assert all(drawn(kind) == wanted for kind in (Kind.PRODUCT, Kind.ENGINE, Kind.TOPICS, Kind.MAKER))
    assert drawn(Kind.EMBEDDED) == set()


def test_plans_of_streaming_mirrors_have_events_between_two_windows() -> None:
    plans = [draw(SEED, number, Kind.PRODUCT) for number in range(300)]
    found = {fault.kind: plan for plan in plans for fault in plan.faults if isinstance(fault, Event)}
    assert all(found[kind].streams and found[kind].slice_s == 4.0 for kind in OVERLAP_EVENTS)


@pytest.mark.long
# The first trial starts six brokers; a process may take 150 s, and be started again.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "number", "faults"),
    [
        (
            Kind.ENGINE,
            701,
            "engine, 30 days old: clean restart of a broker (destination) 1 at 2 down 0.2 s;"
            " kill -9 of a task's process at 22",
        ),
        (
            Kind.ENGINE,
            255,
            "engine, fresh, joined below 500: destination PRODUCE acknowledgement lost after the append by a"
            " reset at 29;"
            " kill -9 of a task's process at 42",
        ),
        (
            Kind.ENGINE,
            3411,
            "engine, fresh, producers forgotten after 3 s: kill -9 of a task's process at 5;"
            " destination PRODUCE acknowledgement lost after the append by a reset at 32",
        ),
        (
            Kind.EMBEDDED,
            157,
            "embedded broker, 30 days old, several batches in a request: NOT_ENOUGH_REPLICAS_AFTER_APPEND"
            " after the append x5 to partition 4 at 6; kill -9 of a task's process at 25",
        ),
        (
            Kind.EMBEDDED,
            860,
            "embedded broker, fresh, producers forgotten after 3 s, several batches in a request:"
            " kill -9 of a task's process at 1; KAFKA_STORAGE_ERROR after the append x1 to partition 4 at 22",
        ),
        (
            Kind.PRODUCT,
            2542,
            "product, slices of 1 s, 30 days old: kill -9 and start of a broker (destination) 2 at 30;"
            " kill -9 of a Python worker at 49",
        ),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Kind) else None,
)
def test_trial_is_exact(arena: Arena, tmp_path: Path, kind: Kind, number: int, faults: str) -> None:
    plan = draw(SEED, number, kind)
    assert str(plan) == faults  # otherwise another trial would run under this name
    outcome = run_trial(plan, arena, tmp_path / "trial")
    assert outcome.is_exact, line_of(outcome)
    assert len(outcome.came) == len(plan.faults), line_of(outcome)


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
