"""The plans of `make chaos` between real clusters, and some of its hundreds of trials."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.catalogue import Family
from tests.campaigns.clusters.arena import Arena, open_arena
from tests.campaigns.clusters.events import CLUSTERS
from tests.campaigns.clusters.plan import draw
from tests.campaigns.clusters.setup import Age, Program
from tests.campaigns.clusters.trial import run_trial
from tests.campaigns.kinds import KINDS, Kind, kind_of
from tests.campaigns.report import line_of

PLANS = [draw(seed, Kind.CLUSTERS) for seed in range(400)]
PLANS_OF_CONSUMERS = [draw(seed, Kind.CONSUMERS) for seed in range(100)]


def test_plan_depends_only_on_its_seed() -> None:
    assert repr(draw(1, Kind.CLUSTERS)) == repr(PLANS[1])
    assert len({str(plan) for plan in PLANS}) == len(PLANS)


def test_run_of_all_kinds_has_half_of_its_trials_within_this_process() -> None:
    kinds = Counter(map(kind_of, range(400)))
    assert kinds.keys() == set(KINDS)
    assert kinds[Kind.TASK] + kinds[Kind.READERS] == 200
    assert kinds[Kind.CONSUMERS] == 20


def test_plans_have_all_programs_ages_events_and_ways_to_run() -> None:
    plans = [*PLANS, *PLANS_OF_CONSUMERS]
    assert {plan.setup.program for plan in PLANS} == set(Program)
    assert {plan.setup.age for plan in PLANS} == set(Age)
    assert {event for plan in plans for event in plan.events} == set(CLUSTERS.events)
    assert {step.run.name for plan in plans for step in plan.steps} == set(CLUSTERS.ways)
    assert any(len(step.events) == 3 for plan in plans for step in plan.steps)


def test_event_is_left_out_and_nothing_else_changes() -> None:
    without = "mirror is killed"
    for plan in PLANS[:50]:
        left = draw(plan.seed, Kind.CLUSTERS, [without])
        assert left.setup == plan.setup
        assert left.events == [each for each in plan.events if each != without]


def test_only_mirrors_on_spark_meet_faults_of_its_processes() -> None:
    for plan in PLANS:
        families = {CLUSTERS.events[name].family for name in plan.events}
        assert families <= {Family.FAULTS, Family.SPARK, plan.family}
        if plan.setup.program is Program.TASK:
            assert families <= {Family.FAULTS}


def test_mirror_maker_plans_have_all_modes() -> None:
    setups = [plan.setup for plan in PLANS if plan.setup.program is Program.MAKER]
    modes = itertools.product((True, False), repeat=2)
    assert {(setup.raw, setup.at_least_once) for setup in setups} == set(modes)


def test_consumers_move_in_both_directions_by_all_protocols() -> None:
    groups = [group for plan in PLANS_OF_CONSUMERS for group in plan.setup.groups]
    assert all(3 <= len(plan.setup.groups) <= 5 for plan in PLANS_OF_CONSUMERS)
    assert {plan.setup.isolation for plan in PLANS_OF_CONSUMERS} == {"read_committed"}
    assert {len(group.stays) for group in groups} == {1, 2, 3, 4}
    assert {group.protocols for group in groups} == set(itertools.product(("classic", "consumer"), repeat=2))
    assert {stay.applies for group in groups for stay in group.stays} == {True, False}
    assert not any(plan.setup.groups for plan in PLANS)


@pytest.fixture(scope="module", params=[False, True], ids=["stock", "with the agent"])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with open_arena(with_agent=request.param) as opened:
        yield opened


@pytest.mark.long
# The first trial starts six brokers; a process may take 150 s, and be started again.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "seed", "events"),
    [
        (Kind.CLUSTERS, 20, "a task without Spark: mirror is killed, acknowledgement is lost"),
        (
            Kind.CLUSTERS,
            54,
            "a task without Spark: mirror is killed, broker of the destination is killed,"
            " produce request is cut, controller of the destination restarts",
        ),
        (
            Kind.CLUSTERS,
            10,
            "shoal mirror: python worker is killed, broker of the destination restarts,"
            " controller of the source restarts",
        ),
        (
            Kind.CLUSTERS,
            35,
            "shoal mirror: partitions are added while its workers are paused,"
            " source topic is created again between kill and start",
        ),
        (Kind.CLUSTERS, 30, "shoal mirror-maker: mirror is killed, broker of the source restarts"),
    ],
)
def test_copies_are_exact_after_every_step(
    arena: Arena, tmp_path: Path, kind: Kind, seed: int, events: str
) -> None:
    plan = draw(seed, kind)
    assert f"{plan.setup.program.value}: {', '.join(plan.events)}" == events  # else it is another trial
    outcome = run_trial(plan, arena, tmp_path / "trial")
    assert outcome.is_exact, line_of(outcome)
    assert outcome.came, line_of(outcome)
