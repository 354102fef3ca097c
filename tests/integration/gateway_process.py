"""``shoal gateway`` as its user runs it: a process."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig import wait_until
from rig.process import spawn, tail

__all__ = ["GatewayProcess", "gateway_process"]


_LISTENING = re.compile(r"listening on (\S+:\d+)")


class GatewayProcess:
    """
    A running gateway.

    Attributes:
        address: Where clients connect to.
        process_id: The process's.

    """

    def __init__(self, upstream: str, log: Path, options: tuple[str, ...] = ()) -> None:
        self.log = log
        command = [
            sys.executable,
            "-m",
            "shoal",
            "gateway",
            "--listen",
            "127.0.0.1:0",
            "--upstream",
            upstream,
        ]
        self._process = spawn([*command, *options], log)
        self.process_id = self._process.pid
        self.address = ""

    def runs(self) -> bool:
        return self._process.poll() is None

    def listens(self) -> bool:
        assert self.runs(), f"the gateway ended with {self._process.returncode}:\n{tail(self.log)}"
        found = _LISTENING.search(self.log.read_text())
        self.address = found[1] if found else ""
        return found is not None

    def end(self) -> int:
        """End it by SIGTERM, and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(20)
        finally:
            self._process.kill()


@contextmanager
def gateway_process(upstream: str, *options: str) -> Iterator[GatewayProcess]:
    """Run a gateway, which must end in good order."""
    with tempfile.TemporaryDirectory(prefix="shoal-gateway-") as directory:
        running = GatewayProcess(upstream, Path(directory) / "log", options)
        try:
            wait_until(running.listens, "the gateway")
            yield running
        finally:
            code = running.end()
        assert code == 0, f"the gateway ended with {code}:\n{tail(running.log)}"
