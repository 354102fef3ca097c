"""The plans of `make chaos` between real clusters, and some of its hundreds of trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.campaigns.clusters.arena import Arena, open_arena, open_locked_arena
from tests.campaigns.clusters.events import CLUSTERS
from tests.campaigns.clusters.memory import MemorySample, Role, growth_per_hour
from tests.campaigns.clusters.plan import draw, draw_soak
from tests.campaigns.clusters.setup import Age, Program
from tests.campaigns.clusters.trial import run_trial
from tests.campaigns.kinds import Kind
from tests.campaigns.report import line_of
from tests.nights import night_seed, night_seeds

PLANS = [draw(seed, Kind.CLUSTERS) for seed in range(400)]
PLANS_OF_CONSUMERS = [draw(seed, Kind.CONSUMERS) for seed in range(100)]


def test_plan_depends_only_on_its_seed() -> None:
    assert repr(draw(1, Kind.CLUSTERS)) == repr(PLANS[1])
    assert len({str(plan) for plan in PLANS}) == len(PLANS)


def test_plans_have_all_programs_ages_events_and_ways_to_run() -> None:
    plans = [*PLANS, *PLANS_OF_CONSUMERS]
    assert {plan.setup.program for plan in PLANS} == set(Program)
    assert {plan.setup.age for plan in PLANS} == set(Age)
    assert {event for plan in plans for event in plan.events} == set(CLUSTERS.events)
    assert {step.run.name for plan in plans for step in plan.steps} == set(CLUSTERS.ways)
    assert any(len(step.events) == 3 for plan in plans for step in plan.steps)


def test_soak_has_the_events_of_all_trials_between_locked_clusters() -> None:
    plan = draw_soak(1, 60)
    assert repr(draw_soak(1, 60)) == repr(plan)
    assert sum(plan.setup.lasts_s) == 3_600
    assert len(plan.setup.lasts_s) == len(plan.steps)
    assert len(plan.steps[-1].events) == 24
    assert set(plan.events) <= set(CLUSTERS.events)


def _growth_of(*sizes: float) -> float:
    """Return the growth in an hour of samples ten seconds apart."""
    samples = [
        MemorySample(10.0 * each, 1, dict.fromkeys(Role, int(size))) for each, size in enumerate(sizes)
    ]
    return growth_per_hour(samples, Role.WORKERS)


def test_growth_of_memory_is_distinguished_from_noise_and_from_a_short_lived_worker() -> None:
    dice = Random(0)
    grows = (1e8 + second * 10 / 3600 * 5e7 + dice.gauss(0, 2e6) for second in range(180))
    assert _growth_of(*grows) == pytest.approx(5e7, rel=0.1)
    assert _growth_of(*(1e8 + 6e7 * (100 < number < 110) for number in range(180))) == 0


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
        (
            Kind.CLUSTERS,
            2,
            "shoal mirror: fetch is cut or stalled, mirror is killed, acknowledgement is lost",
        ),
        (Kind.CLUSTERS, 13, "shoal mirror: produce request is cut, python worker is killed"),
        (
            Kind.CLUSTERS,
            17,
            "shoal mirror: python worker is killed, controller of the destination is killed",
        ),
        (
            Kind.CLUSTERS,
            35,
            "shoal mirror: source topic is created again between kill and start,"
            " source topic is created again while its workers are paused",
        ),
        (
            Kind.CLUSTERS,
            30,
            "shoal mirror-maker: other request is cut or stalled, acknowledgement is lost",
        ),
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


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", night_seeds(6))
def test_copies_are_exact_after_every_step_of_this_night(arena: Arena, tmp_path: Path, seed: int) -> None:
    outcome = run_trial(draw(seed, Kind.CLUSTERS), arena, tmp_path / "trial")
    assert outcome.is_exact, line_of(outcome)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_soak_of_three_minutes_is_exact(tmp_path: Path) -> None:
    with open_locked_arena(relogin_ms=12_000) as arena:
        outcome = run_trial(draw_soak(night_seed(), 3), arena, tmp_path / "trial", patience=6)
    assert outcome.is_exact, line_of(outcome)
    assert outcome.came, line_of(outcome)
    assert outcome.comparison.due > 10_000
