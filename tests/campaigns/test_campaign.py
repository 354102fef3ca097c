"""Everything goes wrong at random, several ways at once, and each copy is exact after every step.

A seed that fails is a test to be written down in the few steps that matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from shoal.errors import PartitionStopped
from shoal.mirroring.driver import going_back
from shoal.mirroring.model.offset_map import OffsetMap, Question, Translation
from shoal.mirroring.model.position import MirrorPosition
from shoal.mirroring.sync import groups
from shoal.mirroring.sync.decide import Seen, decide
from shoal.mirroring.sync.report import GroupOffset
from shoal.mirroring.task.resume import align
from shoal.mirroring.task.resume.logs import PartitionLogs
from shoal.protocol.apis import ApiKey
from tests.nights import night_seeds
from tests.world.tasks import Setup, TaskWorld

from .catalogue import Catalogue, Event, Family, Plan, Run, Step
from .cut_events import CUTS
from .events import TASKS
from .plan import draw, draw_cuts, draw_executors, draw_readers
from .trial import run_cuts, run_trial

pytestmark = pytest.mark.timeout(300)

#: The seeds of each run, of tasks alone, with readers, and with cuts. The mutants' trials have twice as many.
_IS_WHOLE = os.environ.get("SHOAL_CAMPAIGN") == "whole"
_TASKS, _READERS, _CUTS = (60, 20, 20) if _IS_WHOLE else (30, 10, 10)

#: Seeds of meetings that the first ones do not have: a shared copy without its positions; a request that
#: lands in a topic that was created again; a copy that lost all behind a position; an answer about other
#: partitions to Python's sender; a commit that was refused, and is found behind an alignment; offsets that no
#: batch proves behind others; a source that lost its tail as its copy did; an empty source topic that a task
#: without an end follows; a copy without a position, of a source that shows less than it has; a copy that
#: lost all, also what no commit names; a copy whose end moves between two reads; a late request of before a
#: reset; a cleaner behind an election; a plan that the coordinator takes in parts. The trials of mutants have
#: them, and the nights.
_RARE = [
    pytest.param(seed, marks=() if _IS_WHOLE else pytest.mark.long)
    for seed in (83, 475, 77, 210, 121, 85, 859, 487, 521, 2273, 222, 291, 9_700_012, 310)
]

#: Seeds of cuts: a copy without records and position begins with late records; one partition alone goes back.
_RARE_CUTS = (43, 134)

#: Seeds of late requests: a task is killed while the map leads further than the next one fetches.
_LATE = (28,)

#: Seeds to search for one with an event.
_SEARCHED = 1_000

#: The events of consumers: only trials with readers have them.
_OF_READERS = (Family.GROUPS, Family.MOVES, Family.DAMAGES)


def _seeds(draw_one: Callable[[int], Plan[Any, Any, Any]], count: int, events: set[str]) -> list[int]:
    """Return the first seeds, and those that plan an event that the ones before do not."""
    found, missing = [], events.copy()
    for seed in range(1, _SEARCHED):
        planned = missing.intersection(draw_one(seed).events) if missing else set()
        if seed <= count or planned:
            found.append(seed)
        missing -= planned
    return found


def _nights(count: int) -> list[Any]:
    return [pytest.param(seed, marks=pytest.mark.long) for seed in night_seeds(count)]


def _events(*, of_readers: bool) -> set[str]:
    return {name for name, each in TASKS.events.items() if (each.family in _OF_READERS) is of_readers}


_TASK_SEEDS = _seeds(draw, _TASKS, _events(of_readers=False))
_READER_SEEDS = _seeds(draw_readers, _READERS, _events(of_readers=True))
_CUT_SEEDS = _seeds(draw_cuts, _CUTS, set(CUTS.events))


def _drawn(names: Sequence[str]) -> list[str]:
    """Return the steps of a seed if events and ways to run are registered in this order."""
    catalogue: Catalogue[TaskWorld, int] = Catalogue()
    for name in names:
        catalogue.add(name, Family.FAULTS, lambda world, dice: None)
        catalogue.ways[name] = Run(name, 1, lambda world, dice: 0)
    return list(map(str, catalogue.draw_steps(Random(1), {Family.FAULTS: 1}, (20, 20), least=1)))


def test_seed_plans_the_same_steps_in_any_order_of_registration() -> None:
    assert _drawn(["a", "b", "c"]) == _drawn(["c", "a", "b"])


@pytest.mark.parametrize("seed", [*_RARE, *_TASK_SEEDS, *_nights(600)])
def test_copies_are_exact_after_every_step(seed: int) -> None:
    plan = draw(seed)
    assert run_trial(plan).problems == [], plan


def _late_between_gaps(world: TaskWorld, dice: Random) -> None:
    """The copy answers too late, and a task fetches few of the batches whose requests may still arrive."""
    for partition in world.partitions:
        for _ in range(8):
            partition.gap(dice.randint(1, 3))
            partition.small_batches(1)
    settings = world.brokers.settings
    world.set(
        fetch_buffer_bytes=65_536 + dice.choice([200, 400, 700]),
        destination=replace(settings.destination, request_timeout_ms=100),
        timing=replace(settings.timing, commit_interval_s=0.0),
    )
    for node in world.destination.nodes:
        node.faults.add(ApiKey.PRODUCE, times=dice.randint(0, 3))
        node.faults.add(ApiKey.PRODUCE, delay_s=0.25, times=dice.randint(1, 3))


@pytest.mark.parametrize("seed", _LATE)
def test_map_leads_to_batches_between_gaps_that_arrive_late(seed: int) -> None:
    late = Event("copy answers too late, between gaps", Family.FAULTS, 1, _late_between_gaps)
    runs = [TASKS.ways[each] for each in ("killed", "killed", "up to an earlier end", "to the end")]
    dice = Random(seed)
    steps = tuple(Step((late,), dice.choice(runs)) for _ in range(8))
    plan = replace(draw(seed), setup=Setup(most_metadata_bytes=800, sends_natively=False), steps=steps)
    assert run_trial(plan).problems == [], plan


def test_seeds_of_each_run_plan_every_event_and_way_to_run() -> None:
    plans = [*map(draw, _TASK_SEEDS), *map(draw_readers, _READER_SEEDS)]
    assert {name for plan in plans for name in plan.events} == set(TASKS.events)
    assert {step.run.name for plan in plans for step in plan.steps} == set(TASKS.ways)
    cuts = [*map(draw_cuts, _CUT_SEEDS)]
    assert {name for plan in cuts for name in plan.events} == set(CUTS.events)
    assert {step.run.name for plan in cuts for step in plan.steps} == set(CUTS.ways)


@pytest.mark.parametrize("seed", [*dict.fromkeys((*_CUT_SEEDS, *_RARE_CUTS)), *_nights(300)])
def test_both_clusters_are_exact_behind_every_certificate(seed: int) -> None:
    plan = draw_cuts(seed)
    assert run_cuts(plan).problems == [], plan


@pytest.mark.parametrize("seed", [*range(1, 5), *_nights(200)])
def test_copies_are_exact_though_executors_die_join_and_stall(seed: int) -> None:
    plan = draw_executors(seed)
    assert run_trial(plan).problems == [], plan


@pytest.mark.parametrize("seed", [*_READER_SEEDS, *_nights(100)])
def test_consumers_that_change_clusters_read_each_record_once(seed: int) -> None:
    plan = draw_readers(seed)
    assert run_trial(plan).problems == [], plan


def _translated_by(shift: int) -> Callable[..., Translation]:
    """Return a translation to the destination that is wrong by some records."""
    right = OffsetMap.translate

    def translate(offsets: OffsetMap, question: Question) -> Translation:
        found = right(offsets, question)
        return found._replace(offset=max(0, found.offset + shift)) if question.is_source else found

    return translate


def _decided_without_present(seen: Seen, *others: Any) -> GroupOffset:
    """Decide as if the other cluster had no offset of the group."""
    return decide(seen._replace(there=None, ours=None), *others)


@pytest.mark.parametrize(
    ("owner", "name", "wrong", "first_seed"),
    [
        (OffsetMap, "translate", _translated_by(1), 1),
        (OffsetMap, "translate", _translated_by(-1), 1),
        # Few trials move a group back: number 52 is the first that does.
        (groups, "decide", _decided_without_present, 50),
    ],
    ids=["skips a record", "repeats a record", "moves backwards"],
)
def test_campaign_finds_a_wrong_translation(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, wrong: Callable[..., object], first_seed: int
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    assert any(run_trial(draw_readers(seed)).problems for seed in range(first_seed, first_seed + 100))


def _looked_up_wrongly(by: int) -> Callable[..., MirrorPosition]:
    """Return a lookup of the copy's end that is wrong by some records."""
    right = MirrorPosition.at

    def look_up(position: MirrorPosition, destination: int) -> MirrorPosition:
        found = right(position, destination)
        return (
            replace(found, source_offset=max(0, found.source_offset + by)) if found is not position else found
        )

    return look_up


@pytest.mark.parametrize("by", [1, -1], ids=["skips a record", "repeats a record"])
def test_campaign_finds_a_mirror_that_looks_up_a_wrong_place(
    monkeypatch: pytest.MonkeyPatch, by: int
) -> None:
    monkeypatch.setattr(MirrorPosition, "at", _looked_up_wrongly(by))
    # Number 60 shows both; some of the others would not end for minutes.
    assert any(run_trial(draw(seed)).problems for seed in range(60, 100))


def _refuses(logs: PartitionLogs, *others: Any) -> MirrorPosition:
    """Refuse to take over a copy, however faithful it is."""
    reason = f"--adopt: {logs.name} is not shown to be a faithful copy"
    raise PartitionStopped(*logs.copy.source, logs.copy.range.start_offset, reason)


def test_campaign_finds_a_needless_refusal_to_take_over_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "adopt", _refuses)
    seeds = (each for each in range(1, 200) if draw(each).setup.adopts)
    assert any(run_trial(draw(seed)).problems for seed in seeds)


def test_campaign_finds_a_way_back_to_a_log_that_is_not_that_of_the_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(going_back, "failback_problems", lambda *logs: iter(()))
    assert any(run_cuts(draw_cuts(seed)).problems for seed in range(1, 100))
