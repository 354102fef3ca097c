"""``shoal mirror`` as a service: started, watched, stopped and started again."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from rig.shoal import state_in
from tests.campaigns.clusters.arena import Side
from tests.campaigns.clusters.movers import Started
from tests.campaigns.clusters.processes import MirrorRun
from tests.integration.shared_spark import shoal

from .clusters import GROUP, PREFIX, LockedClusters
from .plan import Setup

__all__ = ["Mirror"]

_TOPICS = PREFIX.replace(".", r"\.") + ".*"
_END_TIMEOUT_S = 90.0


class Mirror:
    """
    At most one process at a time; killed at the end of the ``with`` block if it still runs.

    Attributes:
        ends: Seconds from SIGTERM to its end, each time.
        problems: Each failure, as a sentence.

    """

    def __init__(self, clusters: LockedClusters, setup: Setup, logs: Path) -> None:
        self._clusters = clusters
        self._setup = setup
        self._logs = logs
        self._process: MirrorRun | None = None
        self._starts = 0
        self.ends: list[float] = []
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
        self._starts += 1
        log = self._logs / f"mirror-{self._starts}"
        self._process = MirrorRun(Started(verb), log, state_in(self._logs / "state"))

    def stop(self) -> None:
        """Stop it as an operator would, and record the duration and the summary."""
        process = self._process
        assert process is not None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"the mirror did not end within {_END_TIMEOUT_S:g} s of SIGTERM")
            process.kill()
        self.ends.append(time.monotonic() - began)
        if process.exit_code != 0:
            self.problems.append(f"the mirror ended with {process.exit_code}: {process.stderr[-2000:]}")
        self._forget()

    def check(self) -> None:
        """If it ended by itself, record that, and start it again, as a service manager would."""
        if self._process is None:
            return
        try:
            self._process.wait(0)
        except subprocess.TimeoutExpired:
            return
        code = self._process.exit_code
        self.problems.append(f"the mirror ended by itself with {code}: {self._process.stderr[-2000:]}")
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
