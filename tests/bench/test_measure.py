"""The CPU of a process tree includes ended children, and counts none twice."""

import sys
from pathlib import Path

import psutil
import pytest

from bench.measure import MoverFailed, run_to_end, run_until
from bench.mover import Command

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
CHILD = "import subprocess, sys\nsubprocess.{call}([{program!r}, '-IS', '-c', {code!r}])\n"


def burn(seconds: float) -> str:
    return BURN.format(seconds=seconds)


def child(code: str, call: str = "run", program: str = sys.executable) -> str:
    return CHILD.format(call=call, program=program, code=code)


def command(code: str) -> Command:
    """Run Python without its site-packages: under coverage, their imports cost as much again."""
    return Command([sys.executable, "-IS", "-c", code], copy=None)


@pytest.mark.parametrize(
    ("code", "cpu_s"),
    [
        pytest.param(burn(0.6), 0.6, id="the process itself"),
        pytest.param(child(burn(0.3)) * 2, 0.6, id="two children one after the other"),
        pytest.param(child(child(burn(0.6))), 0.6, id="a grandchild"),
        pytest.param(child(burn(0.6), call="Popen"), 0.6, id="a child that outlives its parent"),
    ],
)
def test_cpu_of_all_processes_is_counted_once(code: str, cpu_s: float, tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    _, tree = run_to_end(command(code), tmp_path / "log", timeout_s=60)
    # Starting Python costs some CPU, and more on a busy machine.
    assert cpu_s - 0.15 < tree.python_cpu_s < cpu_s + 0.5
    assert tree.jvm_cpu_s == 0
    assert tree.survivors() == []
    assert set(psutil.Process().children()) <= before


def test_java_is_recognized_by_its_name(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    _, tree = run_to_end(
        command(burn(0.5) + child(burn(3.0), program=str(java))), tmp_path / "log", timeout_s=60
    )
    # Java's CPU after the last sample counts as Python's; if the machine is busy, samples are rare.
    assert 2.0 < tree.jvm_cpu_s < 3.5
    assert 0.4 < tree.python_cpu_s < 2.0
    assert tree.jvm_peak_rss > 1_000_000


def test_memory_is_the_peak_of_the_run(tmp_path: Path) -> None:
    code = "import time\nx = bytearray(b'x' * 200_000_000); del x\n" + burn(1.5)
    _, tree = run_to_end(command(code), tmp_path / "log", timeout_s=60)
    assert 200_000_000 < tree.python_peak_rss < 450_000_000


def test_failed_mover_raises_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(MoverFailed, match="no such topic"):
        run_to_end(command("raise SystemExit('no such topic')"), tmp_path / "log", timeout_s=60)


def test_running_mover_is_stopped_after_the_last_record(tmp_path: Path) -> None:
    began = tmp_path / "began"
    code = f"open({str(began)!r}, 'w').close()\n" + child("import time; time.sleep(600)")
    _, tree = run_until(began.exists, command(code), tmp_path / "log", timeout_s=60)
    assert tree.survivors() == []


def test_running_mover_that_ends_early_raises(tmp_path: Path) -> None:
    with pytest.raises(MoverFailed, match="ended with 0"):
        run_until(lambda: False, command("pass"), tmp_path / "log", timeout_s=60)
