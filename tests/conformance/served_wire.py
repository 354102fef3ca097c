"""A client of a server that may lack the newest versions of requests."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.protocol.apis import ApiKey
from tests.broker.wire import Wire
from tests.conformance.servers import Server

__all__ = ["ServedWire"]


class ServedWire(Wire):
    """
    Sends each request in the given version, or in the newest that an old Kafka or the gateway serves.

    If the test is about the version itself, it is skipped. Kafka 4 and the embedded broker serve all versions
    that the tests send: nothing is changed or skipped there.
    """

    def __init__(self, server: Server, client_id: str = "test", tested: int | None = None) -> None:
        """
        Connect.

        Args:
            server: The server.
            client_id: The client's name.
            tested: The version that the test is about.
        """
        super().__init__(server.bootstrap, client_id)
        self.server = server
        self._tested = tested

    def send(self, api: ApiKey, version: int, **fields: Any) -> None:
        super().send(api, self.served(api, version), **fields)

    def receive(self, api: ApiKey, version: int) -> Any:
        return super().receive(api, self.served(api, version))

    def served(self, api: ApiKey, version: int) -> int:
        """Return the version, or the newest that the server has."""
        newest = self.server.newest.get(api, version)
        if newest < version == self._tested:
            pytest.skip(f"{self.server.name} serves {api.name} up to v{newest}")
        return min(newest, version)
