"""The line on a terminal that shows how far a verb is."""

from __future__ import annotations

import io
import socket
import sys
import threading

import pytest
from rich.console import Console

from shoal.cli import main
from shoal.cli.working import Done, Working, amounts
from shoal.timing import Clock
from tests.world.waiting import DEADLINE_S, InThread


class Screen(io.StringIO):
    """A terminal that reports when it shows a text."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self._awaited = awaited
        self.has_shown = threading.Event()

    def write(self, text: str, /) -> int:
        size = super().write(text)
        if self._awaited in self.getvalue():
            self.has_shown.set()
        return size


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (Done("3/16 partitions", 66_200_000, 0.25), "3/16 partitions, 66.2 MB, 33.1 MB/s, 0:06 left"),
        (Done("3/16 partitions", 66_200_000, 0.001), "3/16 partitions, 66.2 MB, 33.1 MB/s, 0:02"),
        (Done("translating"), "translating, 0:02"),
    ],
)
def test_amounts_have_size_rate_and_time_as_far_as_they_are_known(done: Done, expected: str) -> None:
    assert amounts(done, 2.0) == expected


def test_working_on_a_terminal_shows_text_share_and_rate() -> None:
    screen = Screen("25%")
    with Working(
        "begins", console=Console(file=screen, force_terminal=True, width=120), quiet_s=0
    ) as working:
        working.show(Done("3/16 partitions", 66_200_000, 0.25))
        assert screen.has_shown.wait(10)
    assert "3/16 partitions, 66.2 MB" in screen.getvalue()


def test_rate_counts_from_the_begin_of_the_reading() -> None:
    now = 0.0
    screen = Screen("MB/s")
    console = Console(file=screen, force_terminal=True, width=120)
    with Working("begins", console=console, quiet_s=0, clock=Clock(lambda: now)) as working:
        now = 60.0
        working.show(Done("3/16 partitions", 0, 0.0))
        now = 62.0
        working.show(Done("3/16 partitions", 66_200_000, 0.25))
        assert screen.has_shown.wait(10)
    assert "33.1 MB/s, 0:06 left" in screen.getvalue()


@pytest.mark.parametrize(
    ("is_terminal", "as_json", "quiet_s"), [(False, False, 0.0), (True, True, 0.0), (True, False, 60.0)]
)
def test_working_is_quiet_without_terminal_with_json_and_at_first(
    is_terminal: bool, as_json: bool, quiet_s: float
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_terminal, width=120)
    with Working("begins", as_json=as_json, console=console, quiet_s=quiet_s) as working:
        working.show(Done("3/16 partitions"))
        console.file.flush()
    assert screen.getvalue() == ""


def test_working_is_quiet_on_a_pipe_whose_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Working("begins", quiet_s=0) as working:
        working.show(Done("3/16 partitions"))
    assert pipe.getvalue() == ""


class Terminal(Screen):
    """A terminal in place of stderr."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_verb_that_waits_for_a_silent_cluster_shows_its_work(
    monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    screen = Terminal("asking for topics")
    monkeypatch.setattr(sys, "stderr", screen)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        clusters = ["--from", server, *(["--to", server] if verb == "verify" else [])]
        running = InThread(lambda: main([verb, *clusters, "--topics", "orders"]))
        assert screen.has_shown.wait(DEADLINE_S)
    assert running.result() in (1, 3)
