"""``shoal-broker`` and ``shoal gateway`` as processes, as operators run them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rig import wait_until
from rig.process import spawn, tail

__all__ = ["ServerProcess"]

#: The arguments of Python that start each server.
_COMMANDS = {"broker": ("-m", "shoal_broker"), "gateway": ("-m", "shoal", "gateway")}

_LISTENING = re.compile(r"listening on (\S+:\d+)")


class ServerProcess:
    """A server's process.

    Attributes:
        address: Address for clients.
        log: Its output.
        process_id: The process's id.
    """

    def __init__(self, name: str, log: Path, arguments: Sequence[str]) -> None:
        self.log = log
        self._name = name
        self._process = spawn([sys.executable, *_COMMANDS[name], *arguments], log)
        self.process_id = self._process.pid
        self.address = ""

    def runs(self) -> bool:
        return self._process.poll() is None

    def listens(self) -> bool:
        assert self.runs(), f"the {self._name} ended with {self._process.returncode}:\n{tail(self.log)}"
        found = _LISTENING.search(self.log.read_text())
        self.address = found[1] if found else ""
        return found is not None

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Wait until it listens; at the end of the block stop it, and require a clean end."""
        try:
            wait_until(self.listens, f"the {self._name}")
            yield self
        finally:
            code = self.end()
        assert code == 0, f"the {self._name} ended with {code}:\n{tail(self.log)}"

    def end(self) -> int:
        """Stop it by SIGTERM, and return its exit code."""
        self._process.terminate()
        try:
            return self._process.wait(20)
        finally:
            self._process.kill()
