"""A window begins at half of a mover's records, and a mover that fails is an error."""

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import measure as measuring
from bench.measure import MoverFailed, measure
from bench.mover import Command, Job
from rig import TimedOut

RECORDS = 1000


class Mover:
    """Runs Python code; the number of records that it has copied is in a file."""

    name = "a mover"

    def __init__(self, code: str, ends_by_itself: bool = True) -> None:
        self._code, self._ends_by_itself = code, ends_by_itself

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        yield Command(
            [sys.executable, "-IS", "-c", self._code],
            "copy",
            self._ends_by_itself,
            directory=job.directory,
        )


PROGRESS = """
import os, time
def copied(count):
    open('new', 'w').write(str(count)); os.replace('new', 'copied')
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
def await_reading(number):
    while not os.path.exists('readings') or int(open('readings').read()) < 2 * number: time.sleep(0.01)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Mover, float], measuring.Window]:
    """Measure a mover between clusters that are a file: how many records the copy has."""

    def count_records(bootstrap: str, topic: str) -> Callable[[], int]:
        def count() -> int:
            copied = tmp_path / "copied"
            return int(copied.read_text()) if copied.exists() else 0

        return count

    def end_offsets(bootstrap: str, topic: str) -> Sequence[int]:
        return [RECORDS if topic == "topic" else count_records(bootstrap, topic)()]

    monkeypatch.setattr(measuring, "count_records", count_records)
    monkeypatch.setattr(measuring, "end_offsets", end_offsets)
    readings = itertools.count(1)

    def cpu_seconds() -> float:
        """Note the reading for the mover, which waits for it; both clusters count."""
        (tmp_path / "new-reading").write_text(str(next(readings)))
        (tmp_path / "new-reading").replace(tmp_path / "readings")
        return 1.0

    cluster: Any = SimpleNamespace(cpu_seconds=cpu_seconds)
    job = Job("source", "destination", "topic", "copy", "none", tmp_path)
    return lambda mover, timeout_s: measure(mover, job, cluster, cluster, timeout_s)[0]


def test_window_excludes_the_first_half(
    run: Callable[[Mover, float], measuring.Window], tmp_path: Path
) -> None:
    code = (
        PROGRESS
        + "burn(1.0); copied(1); copied(600); await_reading(1); began = time.process_time(); burn(0.4); "
        "open('own', 'w').write(str(time.process_time() - began)); copied(1000); await_reading(2)"
    )
    window = run(Mover(code), 300)
    assert window.part == 0.4
    # Until a reading the mover looks every 10 ms, and the kernel counts in ticks of as many.
    assert window.cpu_s == pytest.approx(float((tmp_path / "own").read_text()), abs=0.1)
    assert window.destination_cpu_s == 0
    assert window.pss > 1_000_000
    assert window.yardstick_ms > 0


def test_mover_that_does_not_end_is_stopped(run: Callable[[Mover, float], measuring.Window]) -> None:
    window = run(Mover(PROGRESS + "copied(1000); time.sleep(600)", ends_by_itself=False), 60)
    assert window.part == 0


@pytest.mark.parametrize(
    ("code", "timeout_s", "error", "text"),
    [
        pytest.param("raise SystemExit('no such topic')", 60, MoverFailed, "no such topic", id="fails"),
        pytest.param(PROGRESS + "copied(500)", 1, TimedOut, "still running", id="copies a part"),
        pytest.param(
            PROGRESS + "copied(1000); raise SystemExit('late')",
            60,
            MoverFailed,
            "late",
            id="fails at its end",
        ),
        pytest.param(
            PROGRESS + "copied(1000); time.sleep(0.5); copied(1001)",
            60,
            MoverFailed,
            "1001 of 1000",
            id="copies too much",
        ),
    ],
)
def test_mover_that_fails_is_an_error_with_its_output(
    run: Callable[[Mover, float], measuring.Window],
    code: str,
    timeout_s: float,
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        run(Mover(code), timeout_s)
