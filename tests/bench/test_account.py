"""All CPU of a mover is counted, and none twice, also of processes that are gone."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil
import pytest

from bench import account
from bench.account import Account, NoControlGroup, group_parent, running
from rig.wait import wait_until

#: They burn CPU to count it.
pytestmark = pytest.mark.long

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
CHILD = "import subprocess, sys\nsubprocess.{call}([{program!r}, '-IS', '-c', {code!r}])\n"

Run = Callable[[str], AbstractContextManager[tuple[subprocess.Popen[bytes], Account]]]


def burn(seconds: float) -> str:
    return BURN.format(seconds=seconds)


def child(code: str, call: str = "run", program: str = sys.executable) -> str:
    return CHILD.format(call=call, program=program, code=code)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python code without site-packages: their imports cost as much again."""
    if group_parent() is None:
        pytest.skip("this process may not create control groups")

    @contextmanager
    def run(code: str) -> Iterator[tuple[subprocess.Popen[bytes], Account]]:
        with running([sys.executable, "-IS", "-c", code], tmp_path / "log") as started:
            yield started

    return run


def await_end(counted: Account) -> None:
    wait_until(lambda: not counted.pids(), "the processes to end")


@pytest.mark.parametrize(
    ("code", "expected_s"),
    [
        pytest.param(burn(0.6), 0.6, id="the process itself"),
        pytest.param(child(burn(0.3)) * 2, 0.6, id="two children one after the other"),
        pytest.param(child(child(burn(0.6))), 0.6, id="a grandchild"),
        pytest.param(child(burn(0.6), call="Popen"), 0.6, id="a child that outlives its parent"),
    ],
)
def test_cpu_of_processes_that_are_gone_is_counted_once(run: Run, code: str, expected_s: float) -> None:
    before = set(psutil.Process().children())
    with run(code) as (_, counted):
        await_end(counted)
        cpu_s = counted.cpu_s()
    # Starting Python costs some CPU, and more on a busy machine.
    assert expected_s - 0.15 < cpu_s < expected_s + 0.5
    assert set(psutil.Process().children()) <= before


def test_group_counts_children_that_no_sample_sees(run: Run) -> None:
    many = (
        "import os\nfor _ in range(40):\n"
        " if not os.fork():\n  sum(range(300_000))\n  os._exit(0)\n os.wait()\n"
    )
    with run(many) as (_, counted):
        await_end(counted)
        cpu_s = counted.cpu_s()
    assert cpu_s > 20 * _cpu_s_of("sum(range(300_000))")


def _cpu_s_of(code: str) -> float:
    began = time.process_time()
    exec(code)
    return time.process_time() - began


def test_page_that_processes_share_counts_once(run: Run, tmp_path: Path) -> None:
    done = tmp_path / "done"
    code = "import os, time\nx = b'x' * 100_000_000\n"
    code += f"if os.fork(): open({str(done)!r}, 'w').close()\ntime.sleep(60)\n"
    with run(code) as (_, counted):
        wait_until(done.exists, "the process to say that it is ready")
        assert 100_000_000 < counted.pss() < 150_000_000


def test_end_of_block_ends_all_processes(run: Run) -> None:
    with run(child("import time; time.sleep(600)", call="Popen") + "import time; time.sleep(600)") as (
        _,
        counted,
    ):
        wait_until(lambda: len(counted.pids()) >= 2, "both processes to be counted")
        pids = counted.pids()
    assert not any(map(psutil.pid_exists, pids))


def test_running_without_a_control_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "group_parent", lambda: None)
    with pytest.raises(NoControlGroup), running([sys.executable, "-c", ""], tmp_path / "log"):
        pass
