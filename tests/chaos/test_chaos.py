"""A handful of the trials that `make chaos` runs by the hundred, each of them drawn from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.arena import Arena, open_arena
from chaos.plan import AGES, KINDS, Kind, Network, draw
from chaos.report import line_of
from chaos.trial import run_trial

#: What is drawn from it is stated beside each trial's number.
SEED = 0


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with open_arena() as opened:
        yield opened


def test_a_seed_makes_the_same_plan_again_and_another_makes_another() -> None:
    assert draw(1, 2) == draw(1, 2)
    assert len({str(draw(seed, number)) for seed in range(3) for number in range(30)}) == 90


def test_a_long_run_has_every_kind_of_trial_and_a_third_of_them_the_whole_product() -> None:
    plans = [draw(SEED, number) for number in range(200)]
    assert {plan.age for plan in plans} == set(AGES)
    assert {plan.kind for plan in plans} == set(Kind) == set(KINDS)
    assert sum(plan.kind is Kind.PRODUCT for plan in plans) == 60
    network = [fault for plan in plans for fault in plan.faults if isinstance(fault, Network)]
    assert len({(fault.api, fault.step) for fault in network}) > 30


# Six brokers start with the first; a process may take 150 s, and be started again.
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
def test_a_trial_is_exact(arena: Arena, tmp_path: Path, kind: Kind, number: int, faults: str) -> None:
    plan = draw(SEED, number, kind)
    assert str(plan) == faults  # else another trial would run under this name
    outcome = run_trial(plan, arena, tmp_path / "trial")
    assert outcome.is_exact, line_of(outcome)
    assert len(outcome.came) == len(plan.faults), line_of(outcome)
