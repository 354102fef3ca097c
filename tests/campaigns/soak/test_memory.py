"""Growth of memory is distinguished from noise."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from rig.wait import wait_until
from tests.campaigns.soak.memory import MemorySample, MemoryWatch, Role, growth_per_hour

MEGABYTE = 1_000_000


def samples(*sizes: float) -> list[MemorySample]:
    """Return samples ten seconds apart."""
    return [
        MemorySample(10.0 * number, 1, dict.fromkeys(Role, int(size))) for number, size in enumerate(sizes)
    ]


def test_steady_growth_in_noise_is_found() -> None:
    dice = Random(0)
    grows = [100 * MEGABYTE + second * 10 / 3600 * 50 * MEGABYTE for second in range(180)]
    noisy = [size + dice.gauss(0, 2 * MEGABYTE) for size in grows]
    assert growth_per_hour(samples(*noisy), Role.JVM) == pytest.approx(50 * MEGABYTE, rel=0.1)


def test_short_lived_worker_is_no_growth() -> None:
    steps = [100 * MEGABYTE + (60 * MEGABYTE if 100 < number < 110 else 0) for number in range(180)]
    assert growth_per_hour(samples(*steps), Role.WORKERS) == 0


def test_process_and_its_children_are_sampled() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with (
        subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as process,
        MemoryWatch(lambda: process.pid, every_s=0.05) as memory,
    ):
        wait_until(lambda: bool(memory.samples) and memory.samples[-1].used[Role.WORKERS] > 0, "the child")
        assert process.stdin is not None
        process.stdin.write(os.linesep.encode())
        process.stdin.close()
        process.wait(30)
    used = next(each.used for each in memory.samples if each.used[Role.WORKERS])
    assert used[Role.DRIVER] > MEGABYTE
    assert used[Role.JVM] == 0
