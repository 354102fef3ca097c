"""``shoal mirror`` as a service: started, watched, stopped and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.shoal import state_in
from tests.campaigns.clusters.arena import Side
from tests.campaigns.clusters.movers import Started
from tests.campaigns.clusters.processes import MirrorRun
from tests.integration.shared_spark import shoal

from .clusters import GROUP, PREFIX, LockedClusters
from .plan import Setup

__all__ = ["Ended", "Mirror"]

_TOPICS = PREFIX.replace(".", r"\.") + ".*"
_END_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one run of the mirror.

    Attributes:
        seconds: Time from SIGTERM to its end.
        summary: Its last JSON object.
    """

    seconds: float
    exit_code: int | None
    summary: dict[str, Any]


class Mirror:
    """At most one process at a time; killed at the end of the ``with`` block if it still runs."""

    def __init__(self, clusters: LockedClusters, setup: Setup, logs: Path) -> None:
        self._clusters = clusters
        self._setup = setup
        self._logs = logs
        self._process: MirrorRun | None = None
        self.ends: list[Ended] = []
        self.problems: list[str] = []

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._forget()

    @property
    def process_id(self) -> int | None:
        return self._process.process_id if self._process else None

    def start(self) -> None:
        assert self._process is None
        verb = ["mirror", "--json", *self._what(), "--refresh", str(self._setup.refresh_s)]
        log = self._logs / f"mirror-{len(self.ends) + 1}"
        self._process = MirrorRun(Started(verb), log, state_in(self._logs / "state"))

    def stop(self) -> None:
        """Stop it as an operator would, and record the duration and the summary."""
        process = self._process
        assert process is not None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            summary = process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"the mirror did not end within {_END_TIMEOUT_S:g} s of SIGTERM")
            process.kill()
            summary = {}
        self.ends.append(Ended(time.monotonic() - began, process.exit_code, summary))
        if process.exit_code != 0:
            self.problems.append(f"the mirror ended with {process.exit_code}: {process.stderr[-2000:]}")
        self._forget()

    def check(self) -> None:
        """If it ended by itself, record that, and start it again, as a service manager would."""
        if self._process is None:
            return
        try:
            summary = self._process.wait(0)
        except subprocess.TimeoutExpired:
            return
        code = self._process.exit_code
        self.problems.append(f"the mirror ended by itself with {code}: {self._process.stderr[-2000:]}")
        self.ends.append(Ended(0.0, code, summary))
        self._forget()
        self.start()

    def kill_worker(self) -> None:
        """Kill its Python workers, when there are any."""
        assert self._process is not None
        self._process.kill_workers()

    def verify(self) -> tuple[int, str]:
        """Run ``shoal verify``; return its exit code and its output."""
        done = shoal("verify", *self._what(), state=self._logs / "state", timeout_s=1800)
        return done.returncode, done.stdout + done.stderr

    def _what(self) -> list[str]:
        properties = self._clusters.properties
        between = ["--from-config", str(properties[Side.SOURCE])]
        between += ["--to-config", str(properties[Side.DESTINATION])]
        return [*between, "--topics", _TOPICS, "--group", GROUP]

    def _forget(self) -> None:
        assert self._process is not None
        self._process.__exit__()
        self._process = None
