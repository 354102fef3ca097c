"""``shoal gateway`` as a process, as an operator runs it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server_process import ServerProcess

__all__ = ["GatewayProcess", "gateway_process"]


class GatewayProcess(ServerProcess):
    """A running gateway."""

    def __init__(self, upstream: str, log: Path, options: tuple[str, ...] = ()) -> None:
        super().__init__("gateway", log, ("--listen", "127.0.0.1:0", "--upstream", upstream, *options))


@contextmanager
def gateway_process(upstream: str, *options: str) -> Iterator[GatewayProcess]:
    """Run a gateway, and require a clean end."""
    with (
        tempfile.TemporaryDirectory(prefix="shoal-gateway-") as directory,
        GatewayProcess(upstream, Path(directory) / "log", options).running() as running,
    ):
        yield running
