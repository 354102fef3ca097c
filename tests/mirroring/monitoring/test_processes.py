"""CPU of the driver and its JVMs from the mirror's start on, and their memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.mirroring.control.protocol import process_name
from shoal.mirroring.model.progress import ProcessRole, ProcessUsage
from shoal.mirroring.monitoring.processes import LocalProcesses
from shoal.timing import Timing
from tests.world.waiting import wait_until

_BURN = (
    "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('burnt', flush=True)\nsys.stdin.read()"
)


@pytest.fixture
def java(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A child whose name is that of a JVM, and that has used 0.2 s of CPU."""
    (tmp_path / "java").symlink_to(os.path.realpath(sys.executable))
    with subprocess.Popen(
        [str(tmp_path / "java"), "-S", "-c", _BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "burnt\n"
        yield child
        child.kill()


def only(usages: list[ProcessUsage], role: ProcessRole) -> list[ProcessUsage]:
    return [each for each in usages if each.role is role]


def of(usages: list[ProcessUsage], java: subprocess.Popen[str]) -> list[ProcessUsage]:
    """The usage of this one: clusters and Sparks of other tests may be this process' children, too."""
    return [each for each in only(usages, ProcessRole.JVM) if each.name == process_name(java.pid)]


def test_later_jvm_is_found_and_an_ended_one_forgotten(request: pytest.FixtureRequest) -> None:
    local = LocalProcesses(Timing(jvm_look_interval_s=0.0, first_jvm_look_interval_s=0.0))
    java = request.getfixturevalue("java")
    (jvm,) = of(local(), java)
    assert jvm.cpu_s >= 0.19
    java.kill()
    java.wait()
    wait_until(lambda: of(local(), java) == [])


def test_python_process_of_a_jvm_counts_as_a_worker(tmp_path: Path) -> None:
    """Spark's daemon: what it imports is the largest part of the CPU that Python needs."""
    local = LocalProcesses(Timing(jvm_look_interval_s=0.0, first_jvm_look_interval_s=0.0))
    (tmp_path / "java").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    child = [str(tmp_path / "python3"), "-S", "-c", _BURN]
    start = f"import subprocess; subprocess.run({child!r})"
    with subprocess.Popen(
        [str(tmp_path / "java"), "-S", "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as java:
        assert java.stdout
        assert java.stdout.readline() == "burnt\n"
        assert sum(each.cpu_s for each in only(local(), ProcessRole.WORKER)) >= 0.19
        assert java.stdin
        java.stdin.close()


def test_earlier_jvm_counts_from_the_mirror_s_start(java: subprocess.Popen[str]) -> None:
    (jvm,) = of(LocalProcesses()(), java)
    assert jvm.cpu_s < 0.1


def test_process_called_java_without_counters_has_no_garbage_collections(java: subprocess.Popen[str]) -> None:
    """The child is no real JVM, so it publishes no counters."""
    (jvm,) = of(LocalProcesses()(), java)
    assert jvm.gc is None
