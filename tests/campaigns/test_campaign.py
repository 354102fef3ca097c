"""Everything goes wrong at random, several ways at once, and each copy is exact after every step.

A seed that fails is a test to be written down in the few steps that matter.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from random import Random

import pytest

from shoal.protocol.apis import ApiKey
from tests.two_brokers import wait_until
from tests.world.tasks import Setup, TaskWorld

from .plan import draw
from .trial import run_trial

pytestmark = pytest.mark.timeout(300)

#: The seeds of each run, and those of the nights.
_SEEDS = [*range(1, 61), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1_000, 1_600))]


@pytest.mark.parametrize("seed", _SEEDS)
def test_copies_are_exact_after_every_step(seed: int) -> None:
    plan = draw(seed)
    assert run_trial(plan).problems == [], plan


#: A task in a process of its own, so that it can be killed.
_TASK = """
import sys
from shoal.client.config import ClientConfig
from shoal.net.address import parse_bootstrap
from shoal.mirroring.control import Uncontrolled
from shoal.mirroring.task.task import run_copy_task
from shoal.mirroring.model.ranges import CopyRange
from shoal.mirroring.model.copy_options import CopySettings

source, destination, *ends = sys.argv[1:]
settings = CopySettings(
    ClientConfig("source", tuple(parse_bootstrap(source))),
    ClientConfig("destination", tuple(parse_bootstrap(destination))),
    "mirror",
    "rules",
    fetch_buffer_bytes=65_536 + 2_000,
    commit_interval_ms=50,
)
ranges = [CopyRange("topic", number, "topic", 0, int(end)) for number, end in enumerate(ends)]
run_copy_task(ranges, settings, Uncontrolled())
"""


def test_process_that_is_killed_again_and_again_completes_the_copy() -> None:
    with TaskWorld.started(Setup(partitions=2), Random(1)) as world:
        for each in world.partitions:
            each.small_batches(500)
        slow = world.destination.nodes[0].faults.add(ApiKey.PRODUCE, times=None, delay_s=0.002)
        ends = [each.next_offset for each in world.partitions]
        clusters = [world.source.bootstrap, world.destination.bootstrap]
        for copied in (100, 200, 300, 400):
            with subprocess.Popen([sys.executable, "-c", _TASK, *clusters, *map(str, ends)]) as task:
                wait_until(partial(_holds, world, copied), 120)
                task.kill()
            world.check()
        world.destination.nodes[0].faults.remove(slow)
        world.check(world.run(), ends)
        assert world.problems == []


def _holds(world: TaskWorld, records: int) -> bool:
    return world.copy_log(0).log_end_offset >= records
